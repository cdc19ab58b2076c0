//! `consign doctor`: looks at everything around a site that can be wrong, and packs what helps others to
//! see it too.

mod bundle;
mod checks;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::screen::{Screen, during, standard};
use crate::client::Api;
use crate::config::Faults;
use crate::exit::{Exit, Failure, Global};

/// Looks at configuration, permissions, certificate, clock, disk, socket and peers, and says what is wrong.
#[derive(Args, Clone, Debug, Default)]
pub struct DoctorArgs {
    /// Packs the findings with status, metrics, events, dead letters and the configuration without its secrets
    #[arg(long, value_name = "FILE.tar.gz")]
    pub bundle: Option<PathBuf>,
    /// Puts the last 2,000 lines of this log into the bundle
    #[arg(long, value_name = "FILE", requires = "bundle")]
    pub log: Option<PathBuf>,
}

/// Everything that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Findings {
    /// `consign.doctor/1`
    pub schema: String,
    /// Version of the command.
    pub version: String,
    /// Whether nothing is wrong; warnings are not.
    pub good: bool,
    /// The checks, in order.
    pub checks: Vec<Check>,
    /// The bundle that was written.
    pub bundle: Option<String>,
}

impl Findings {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.doctor/1";
}

/// One thing that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Stable word: `configuration`, `certificate`, `data_dir`, `clock`, `disk`, `inbox`, `watch`,
    /// `site`, `ledger`, `deadletters`, `peer`.
    pub check: String,
    /// `ok`, `warning` or `wrong`.
    pub result: String,
    /// A sentence.
    pub text: String,
    /// What to do about it; empty when nothing is to be done.
    pub help: String,
}

impl Check {
    fn new(check: &str, result: &str, text: impl Into<String>) -> Check {
        let (check, result) = (check.into(), result.into());
        Check { check, result, text: text.into(), help: String::new() }
    }

    fn ok(check: &str, text: impl Into<String>) -> Check {
        Check::new(check, "ok", text)
    }

    fn warning(check: &str, text: impl Into<String>, help: impl Into<String>) -> Check {
        Check { help: help.into(), ..Check::new(check, "warning", text) }
    }

    fn wrong(check: &str, text: impl Into<String>, help: impl Into<String>) -> Check {
        Check { help: help.into(), ..Check::new(check, "wrong", text) }
    }

    fn failed(check: &str, why: &Failure) -> Check {
        Check::wrong(check, format!("{} [{}]", why.message, why.code), why.help.as_str())
    }
}

/// Runs it: exit 1 when something is wrong.
///
/// # Errors
/// When the bundle cannot be written.
pub fn run(args: DoctorArgs, global: &Global, socket: Option<PathBuf>) -> Result<Exit, Failure> {
    let settings = crate::cli::settings(global, &[]);
    standard(global, |screen| {
        let mut findings = Findings {
            schema: Findings::SCHEMA.into(),
            version: crate::cli::VERSION.into(),
            ..Findings::default()
        };
        let at = socket.or_else(|| match &settings {
            Ok(settings) => Some(settings.admin.clone()),
            Err(faults) => faults.socket(),
        });
        let mut api = at.as_deref().map(Api::new);
        match &settings {
            Err(faults) => findings.checks.push(bad_configuration(faults)),
            Ok(settings) => findings.checks.extend(checks::of_files(settings)),
        }
        let peers = settings.as_ref().map(|s| s.node.peers.as_slice()).unwrap_or_default();
        findings.checks.extend(checks::of_site(api.as_mut(), peers));
        findings.good = findings.checks.iter().all(|check| check.result != "wrong");
        if let Some(path) = &args.bundle {
            findings.bundle = Some(path.display().to_string());
            let config = match &settings {
                Ok(settings) => Some(settings.file.as_path()),
                Err(faults) => Some(faults.file.as_path()).filter(|file| file.is_file()),
            };
            let (got, look) = (AtomicU64::new(0), |got: &AtomicU64| got.load(Ordering::Relaxed));
            let (log, asked) = (args.log.as_deref(), api.as_mut());
            during(
                screen,
                "Packing",
                None,
                || (look(&got), (0, 0)),
                || bundle::write(path, &findings, config, asked, log, &got),
            )?;
        }
        say(&findings, screen)
    })
}

fn bad_configuration(faults: &Faults) -> Check {
    Check::failed("configuration", &faults.failure())
}

fn say(findings: &Findings, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if screen.is_json() {
        screen.object(findings)?;
    } else {
        for check in &findings.checks {
            screen.line(&format!("{:<8} {:<14} {}", check.result, check.check, check.text));
            if !check.help.is_empty() {
                screen.advise(&format!("{:<8} {:<14} {}", "", "  do this:", check.help));
            }
        }
        let count = |result: &str| findings.checks.iter().filter(|c| c.result == result).count();
        let (wrong, warnings) = (count("wrong"), count("warning"));
        screen.note(&format!("{wrong} wrong, {}", crate::human::count(warnings as u64, "warning")));
        if let Some(bundle) = &findings.bundle {
            screen.note(&format!("Packed {bundle}: look through it before you give it away"));
        }
    }
    Ok(if findings.good { Exit::Done } else { Exit::Failed })
}

#[cfg(test)]
mod tests;
