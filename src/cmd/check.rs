//! `consign check`: whether the site is well, against thresholds, for whatever calls probes: Nagios and its kin, a
//! textfile collector, a script. Exit codes are those of Nagios plugins.

pub(super) mod judge;
mod say;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::screen::{Screen, standard};
use crate::admin::shapes::{Peers, Status};
use crate::client::Api;
use crate::config::Faults;
use crate::exit::{Exit, Failure, Global};

/// Says whether the site is well: exit 0 well, 1 warning, 2 critical, 3 unknown
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// How it is said; `--json` is the same as json
    #[arg(long, value_enum, value_name = "F", default_value_t = Format::Text)]
    pub format: Format,
    /// Only what is about this peer; repeat it for several
    #[arg(long, value_name = "P")]
    pub peer: Vec<String>,
    /// How long the oldest segment for a peer may wait
    #[arg(long, value_name = "W,C", default_value = "15m,4h", value_parser = durations)]
    pub pending: Limits,
    /// How many dead letters a peer may have
    #[arg(long, value_name = "W,C", default_value = "1,100", value_parser = numbers)]
    pub deadletters: Limits,
    /// Percent of storage.max_bytes, storage.ledger_max and buffer.max_bytes that may be used
    #[arg(long, value_name = "W,C", default_value = "80,95", value_parser = percents)]
    pub storage: Limits,
    /// How long certificates must be valid
    #[arg(long, value_name = "W,C", default_value = "14d,3d", value_parser = falling)]
    pub certificate: Limits,
}

/// How long certificates must be valid where nobody says otherwise.
pub(super) const CERTIFICATE: Limits = Limits { warning: 14 * 86_400, critical: 3 * 86_400 };

/// How verdicts are said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each check
    Text,
    /// One line with performance data, and one more for each check that is not well
    Nagios,
    /// Metrics for a textfile collector
    Prometheus,
    /// One object: consign.check/1
    Json,
}

/// Where a value becomes a warning, and where it becomes critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    warning: u64,
    critical: u64,
}

fn pair(text: &str, one: impl Fn(&str) -> Result<u64, String>) -> Result<Limits, String> {
    let (warning, critical) =
        text.split_once(',').ok_or("two limits with a comma between: warning,critical")?;
    Ok(Limits { warning: one(warning.trim())?, critical: one(critical.trim())? })
}

fn rising(limits: Limits) -> Result<Limits, String> {
    if limits.warning > limits.critical {
        return Err("the warning comes before what is critical: it is the smaller one".into());
    }
    Ok(limits)
}

fn seconds(text: &str) -> Result<u64, String> {
    humantime::parse_duration(text).map(|time| time.as_secs()).map_err(|why| why.to_string())
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number"))
}

fn durations(text: &str) -> Result<Limits, String> {
    pair(text, seconds).and_then(rising)
}

fn numbers(text: &str) -> Result<Limits, String> {
    pair(text, number).and_then(rising)
}

fn percents(text: &str) -> Result<Limits, String> {
    pair(text, |text| number(text.trim_end_matches('%'))).and_then(rising)
}

fn falling(text: &str) -> Result<Limits, String> {
    let limits = pair(text, seconds)?;
    if limits.warning < limits.critical {
        return Err("the warning comes before what is critical: it is the longer one".into());
    }
    Ok(limits)
}

/// How well something is, worst last; the numbers are exit codes of Nagios plugins.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Well.
    #[default]
    Ok,
    /// An operator may act.
    Warning,
    /// Nothing can be said of it.
    Unknown,
    /// Somebody must act.
    Critical,
}

impl Verdict {
    fn number(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::Warning => 1,
            Verdict::Critical => 2,
            Verdict::Unknown => 3,
        }
    }

    /// The exit with that number: it has another meaning for every other command.
    fn exit(self) -> Exit {
        match self {
            Verdict::Ok => Exit::Done,
            Verdict::Warning => Exit::Failed,
            Verdict::Critical => Exit::Usage,
            Verdict::Unknown => Exit::Partly,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Critical => "critical",
            Verdict::Unknown => "unknown",
        }
    }
}

/// Whether a site is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// `consign.check/1`
    pub schema: String,
    /// The site; empty when it does not answer.
    pub site: String,
    /// The worst of its checks.
    pub verdict: Verdict,
    /// Each of them.
    pub checks: Vec<Check>,
}

impl Checked {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.check/1";

    fn new(site: &str, checks: Vec<Check>) -> Checked {
        let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Unknown);
        Checked { schema: Checked::SCHEMA.into(), site: site.into(), verdict, checks }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// `site`, `pending`, `deadletters`, `peer`, `storage`, `content`, `certificate` or `reload`.
    pub check: String,
    /// The peer, certificate or quota it is about; empty for the site.
    pub subject: String,
    /// How well it is.
    pub verdict: Verdict,
    /// Why, in a sentence.
    pub text: String,
    /// What was measured, if it is a number.
    pub value: Option<i64>,
    /// Its unit: `s`, `%`, or nothing.
    pub unit: String,
    /// From where it is a warning.
    pub warning: Option<u64>,
    /// From where it is critical.
    pub critical: Option<u64>,
}

/// Runs it. `socket` may be what stands in the way of asking.
///
/// # Errors
/// When what it says cannot be written; everything else is a verdict.
pub fn run(
    args: &CheckArgs,
    global: &Global,
    socket: Result<PathBuf, Faults>,
) -> Result<Exit, Failure> {
    let checked = match socket {
        Ok(socket) => ask(args, &socket),
        Err(faults) => {
            let fault = faults.json();
            let what = |key: &str| fault[key].as_str().unwrap_or_default().to_owned();
            judge::no_answer(Verdict::Unknown, &format!("{}: {}", what("code"), what("message")))
        }
    };
    let format = if global.json { Format::Json } else { args.format };
    standard(global, |screen| show(&checked, format, screen))
}

fn ask(args: &CheckArgs, socket: &Path) -> Checked {
    match asked(&mut Api::new(socket)) {
        Ok(status) => judge::judge(&status, args, SystemTime::now()),
        Err(failure) => {
            let silent = matches!(failure.exit, Exit::Unreachable | Exit::TryLater);
            let verdict = if silent { Verdict::Critical } else { Verdict::Unknown };
            judge::no_answer(verdict, &format!("{}: {}", failure.code, failure.message))
        }
    }
}

/// The site at a glance, with peers as the ledger has them: which segment is the oldest.
fn asked(api: &mut Api) -> Result<Status, Failure> {
    let status: Status = api.json("GET", "/v1/status")?;
    let peers: Peers = api.json("GET", "/v1/peers")?;
    Ok(Status { peers: peers.peers, ..status })
}

fn show(checked: &Checked, format: Format, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    match format {
        Format::Json => screen.object(checked)?,
        Format::Text => screen.advise(&say::text(checked)),
        Format::Nagios => screen.advise(&say::nagios(checked)),
        Format::Prometheus => screen.line(&say::prometheus(checked)),
    }
    Ok(checked.verdict.exit())
}
