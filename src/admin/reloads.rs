//! What became of the readings of the configuration, and what is shown of certificates: written by whoever reads them, seen
//! by `status`, metrics and those who asked for a reload.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use consign_core::config::{Config, SuccessCondition};
use consign_core::http::rfc3339;
use consign_core::time::UnixMillis;

/// Most reports that wait to be fetched by whoever asked.
const REPORTS: usize = 64;

/// A key, or a peer, that holds another value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedKey {
    /// Dotted path, with the name of the peer where there are several.
    pub key: String,
    /// What held before; empty for a peer that is new.
    pub from: String,
    /// What holds now; empty for a peer that is gone.
    pub to: String,
    /// Both, for people.
    pub text: String,
}

/// What became of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// `consign.reload/1`
    pub schema: String,
    /// Whether the configuration was taken; if not, nothing has changed.
    pub ok: bool,
    /// The file.
    pub file: String,
    /// What holds from now on.
    pub changed: Vec<ChangedKey>,
    /// Keys that need a restart and stay as they are.
    pub restart: Vec<String>,
    /// Whether another certificate or authority holds from now on.
    pub certificates: bool,
    /// What is wrong and may be right later, such as the time of a certificate.
    pub warnings: Vec<String>,
    /// What is wrong, as `consign.error/1`; null if nothing is.
    pub error: serde_json::Value,
    /// The same for people, as `config check` shows it.
    pub text: String,
}

impl Reloaded {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.reload/1";

    /// For a site whose configuration comes from nowhere.
    pub(super) fn nobody() -> Reloaded {
        let text = "error[CN0201]: this site was not started from a configuration file";
        let error = json!({
            "schema": "consign.error/1", "code": "CN0201", "help": "",
            "message": "this site was not started from a configuration file",
        });
        let schema = Reloaded::SCHEMA.into();
        Reloaded { schema, error, text: text.into(), ..Reloaded::default() }
    }
}

/// The last reading of the configuration, in `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastReload {
    /// When it was read; the start counts. One that was refused counts only while the file is not put back.
    pub at: Option<String>,
    /// Whether it was taken.
    pub ok: bool,
    /// When one was taken last.
    pub success_at: Option<String>,
    /// What is wrong with it; empty if nothing is.
    pub problem: String,
    /// Keys whose values in the file need a restart.
    pub restart: Vec<String>,
}

/// A certificate, in `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// `own`, or `authority`: the one of `tls.ca` that ends first.
    pub certificate: String,
    /// The last second of its validity.
    pub expires: String,
    /// SHA-256 of it; empty for authorities.
    pub fingerprint: String,
    /// The same instant, in seconds since the Unix epoch.
    pub expires_seconds: i64,
}

#[derive(Debug, Default)]
struct State {
    last: Option<(UnixMillis, bool)>,
    success: Option<UnixMillis>,
    problem: String,
    restart: Vec<String>,
    log_level: String,
    ledger_max: u64,
    condition: SuccessCondition,
    certificates: Vec<Certificate>,
    /// What is wrong with certificate and key as they lie there; the last good ones are in use.
    files: String,
    reports: BTreeMap<u64, Reloaded>,
}

/// Shared by all who write or see it.
#[derive(Clone, Debug, Default)]
pub struct Reloads(Arc<Mutex<State>>);

impl Reloads {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reading was taken, at the start or later.
    pub fn taken(&self, at: UnixMillis, node: &Config, restart: &[String]) {
        let mut state = self.lock();
        (state.last, state.success) = (Some((at, true)), Some(at));
        state.problem.clear();
        state.restart = restart.to_vec();
        state.ledger_max = node.ledger_max;
        state.condition = node.success_condition;
    }

    /// A reading was refused.
    pub fn refused(&self, at: UnixMillis, problem: String) {
        let mut state = self.lock();
        state.last = Some((at, false));
        state.problem = problem;
    }

    /// What was refused is in the file no longer: it says again what was taken last.
    pub fn withdrawn(&self) {
        let mut state = self.lock();
        state.last = state.success.map(|at| (at, true));
        state.problem.clear();
    }

    /// `log.level` as it holds from now on.
    pub fn logs_at(&self, level: tracing::Level) {
        self.lock().log_level = level.as_str().to_lowercase();
    }

    /// The same.
    pub(super) fn log_level(&self) -> String {
        self.lock().log_level.clone()
    }

    /// Whether these are the keys that wait for a restart.
    pub fn waits_for(&self, restart: &[String]) -> bool {
        self.lock().restart == restart
    }

    /// Certificates that are in use from now on.
    pub fn certificates(&self, certificates: Vec<Certificate>) {
        let mut state = self.lock();
        state.certificates = certificates;
        state.files.clear();
    }

    /// The files of certificate and key cannot be used as they are; empty when they can.
    pub fn files_are(&self, problem: &str) {
        self.lock().files = problem.to_owned();
    }

    /// What became of the reload that somebody asked for under that number.
    pub fn report(&self, number: u64, report: Reloaded) {
        let mut state = self.lock();
        state.reports.insert(number, report);
        while state.reports.len() > REPORTS {
            state.reports.pop_first();
        }
    }

    /// Takes that out.
    pub(super) fn take(&self, number: u64) -> Option<Reloaded> {
        self.lock().reports.remove(&number)
    }

    /// `storage.ledger_max` as it holds now.
    pub(super) fn ledger_max(&self) -> u64 {
        self.lock().ledger_max
    }

    /// `relay.success_condition` as it holds now.
    pub(super) fn condition(&self) -> SuccessCondition {
        self.lock().condition
    }

    /// For `status`.
    pub(super) fn last(&self) -> LastReload {
        let state = self.lock();
        LastReload {
            at: state.last.map(|(at, _)| rfc3339(at)),
            ok: state.last.is_some_and(|(_, ok)| ok),
            success_at: state.success.map(rfc3339),
            problem: state.problem.clone(),
            restart: state.restart.clone(),
        }
    }

    /// For `status` and metrics, with what is wrong with the files.
    pub(super) fn certificates_now(&self) -> (Vec<Certificate>, String) {
        let state = self.lock();
        (state.certificates.clone(), state.files.clone())
    }

    /// For metrics: whether the last one was taken, and when one was, in milliseconds.
    pub(super) fn numbers(&self) -> (bool, u64) {
        let state = self.lock();
        (state.last.is_some_and(|(_, ok)| ok), state.success.map_or(0, |at| at.0))
    }
}
