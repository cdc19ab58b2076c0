//! How much is logged, and why: in `status`, and for whoever asks for another level.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::http::{Query, rfc3339};
use consign_core::node::{self, LogLevel, LogWanted};

use super::AdminContext;
use super::refusal::No;
use super::route::{bad, must, one};

/// The word for the level of the configuration.
pub(crate) const CONFIGURED: &str = "configured";
/// The longest time that may be asked for.
pub(crate) const FOR_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What is logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Logged {
    /// The least level that is logged now: `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The level of the configuration.
    pub configured: String,
    /// Whether the level is one that an operator asked for.
    pub asked: bool,
    /// When the configured level holds again; null while it does, and where only a reload or a restart ends the other.
    pub until: Option<String>,
    /// Who asked, such as `uid:1000`; empty while the configured level holds.
    pub who: String,
}

impl Logged {
    pub(super) fn of(node: &node::Status, context: &AdminContext) -> Logged {
        let configured = context.reloads.log_level();
        match &node.log {
            None => Logged { level: configured.clone(), configured, ..Logged::default() },
            Some(asked) => Logged {
                level: asked.level.word().into(),
                configured,
                asked: true,
                until: asked.until.map(rfc3339),
                who: asked.who.clone(),
            },
        }
    }
}

/// The level of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogShown {
    /// `consign.log_level/1`
    pub schema: String,
    /// What is logged.
    #[serde(flatten)]
    pub logged: Logged,
}

impl LogShown {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.log_level/1";

    pub(super) fn of(node: &node::Status, context: &AdminContext) -> LogShown {
        LogShown { schema: LogShown::SCHEMA.into(), logged: Logged::of(node, context) }
    }
}

/// Reads `level=` and `for=` (seconds); who asks is not in them.
pub(super) fn wanted(query: &str) -> Result<LogWanted, No> {
    let query = Query::parse(query, &["level", "for"]).map_err(No::of_fault)?;
    let level = match must(&query, "level")? {
        CONFIGURED => None,
        word => {
            let words = format!("error, warn, info, debug, trace or {CONFIGURED}");
            Some(LogLevel::from_word(word).ok_or_else(|| bad(&words, word))?)
        }
    };
    let lasting = one(&query, "for")?
        .map(|text| {
            let time = text.parse().map(Duration::from_secs).ok();
            let time = time.filter(|time| !time.is_zero() && *time <= FOR_MAX);
            let what = format!("a number of seconds from 1 to {}", FOR_MAX.as_secs());
            time.ok_or_else(|| bad(&what, text))
        })
        .transpose()?;
    if level.is_none() && lasting.is_some() {
        return Err(No::new(400, "invalid", format!("{CONFIGURED} has no end")));
    }
    Ok(LogWanted { level, lasting, who: String::new() })
}
