//! How much of the node's story is logged: as configured, or otherwise for a while because an operator asked.
//!
//! ```text
//!                asked, with or without an end
//!  configured ───────────────────────────────────▶ asked for ─┐ asked again
//!      ▲                                              │  ▲    │
//!      └──────────────────────────────────────────────┘  └────┘
//!        its time is over, a reload was taken, or asked back
//! ```
//!
//! The node keeps time and the record of it; whoever logs hears of every change by [`Note::LogLevel`]. A start begins as
//! configured.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use super::Node;
use super::remove::Act;
use super::types::{Action, Note};
use crate::time::{Instant, Now, UnixMillis};

/// The least level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LogLevel {
    /// What somebody must act on.
    Error,
    /// What an operator may act on.
    Warn,
    /// What happens seldom.
    Info,
    /// Every step of a segment.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// All of them, those that log least first.
    pub const ALL: [LogLevel; 5] =
        [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

    /// Its stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }

    /// The level of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<LogLevel> {
        LogLevel::ALL.into_iter().find(|level| level.word() == word)
    }
}

/// What an operator asks of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LogWanted {
    /// From now on this; `None` is as configured.
    pub level: Option<LogLevel>,
    /// For so long; `None` is until a reload or the end of the process.
    pub lasting: Option<Duration>,
    /// Who asks, as the audit has it.
    pub who: String,
}

/// A level that holds in place of the configured one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAsked {
    /// The level.
    pub level: LogLevel,
    /// When it ends by itself, if it does.
    pub until: Option<UnixMillis>,
    /// Who asked for it.
    pub who: String,
}

/// The same, as the node keeps it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    level: LogLevel,
    ends: Option<Instant>,
    who: String,
}

impl Node {
    /// An operator wants another level, or the configured one again.
    pub(super) fn log_wanted(&mut self, now: Now, wanted: &LogWanted, out: &mut Vec<Action>) {
        let Some(level) = wanted.level else {
            return self.log_as_configured(now, &wanted.who, "asked back", out);
        };
        let ends = wanted.lasting.map(|lasting| now.mono.after(lasting));
        let how_long = match wanted.lasting {
            Some(lasting) => format!("for {} s", lasting.as_secs()),
            None => "until a reload or a restart".to_string(),
        };
        self.log_level = Some(Asked { level, ends, who: wanted.who.clone() });
        self.log_told(now, &wanted.who, how_long, out);
    }

    /// What was asked for holds no longer.
    pub(super) fn log_as_configured(
        &mut self,
        now: Now,
        who: &str,
        why: &str,
        out: &mut Vec<Action>,
    ) {
        if self.log_level.take().is_some() {
            self.log_told(now, who, why.to_string(), out);
        }
    }

    /// Its time may be over.
    pub(super) fn log_turn(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.log_deadline().is_some_and(|ends| ends <= now.mono) {
            self.log_as_configured(now, "", "its time is over", out);
        }
    }

    pub(super) fn log_deadline(&self) -> Option<Instant> {
        self.log_level.as_ref().and_then(|asked| asked.ends)
    }

    /// For `status`; `None` while it is as configured.
    pub(super) fn log_asked(&self, now: Now) -> Option<LogAsked> {
        let Asked { level, ends, who } = self.log_level.clone()?;
        let until = ends.map(|ends| now.wall.after(ends.since(now.mono)));
        Some(LogAsked { level, until, who })
    }

    fn log_told(&mut self, now: Now, who: &str, text: String, out: &mut Vec<Action>) {
        let level = self.log_level.as_ref().map(|asked| asked.level);
        let subject = level.map_or("configured", LogLevel::word).to_string();
        let act = Act {
            who: who.into(),
            action: "log_level",
            subject,
            text: text.clone(),
            ..Act::default()
        };
        self.record(now, act);
        out.push(Action::Note(Note::LogLevel { who: who.into(), level, text }));
    }
}
