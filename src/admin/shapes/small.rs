//! Small shapes: parts of a status, and answers of one word.

use std::time::Duration;

use consign_core::http::rfc3339;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inbox::InboxState;
use crate::watch::WatchState;

/// A watched directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Watch {
    /// The directory.
    pub dir: String,
    /// Where its files go; empty is every known peer.
    pub to: Vec<String>,
    /// Files taken since the start.
    pub taken: u64,
    /// Files that are there and not taken.
    pub waiting: u64,
    /// Last trouble; empty when there is none.
    pub error: String,
}

/// An inbox rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inbox {
    /// Where its files go.
    pub dir: String,
    /// What it picks.
    pub picks: String,
    /// What is wrong with its directory, or why one export after the other fails; empty when nothing is.
    pub error: String,
    /// Since when that is so.
    pub since: Option<String>,
    /// Exports that were given up and wait for an operator; 65,536 of all rules are so many or more.
    pub failed: u64,
}

/// How far content was compared with its digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scrub {
    /// When the last pass over everything ended.
    pub last: Option<String>,
    /// Whether a pass is under way.
    pub running: bool,
    /// Pieces of content since the start.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments whose content was found to be wrong or gone, since the start.
    pub corrupt: u64,
    /// Segments held here whose content is known to be wrong or gone, whenever that was found; 65,536 are so many or more.
    pub damaged: u64,
}

/// An operator has said that the clock is right.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// `consign.clock/1`
    pub schema: String,
    /// Whether a step of it was waiting for that.
    pub was_held: bool,
}

/// Whether a peer answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ping {
    /// `consign.ping/1`
    pub schema: String,
    /// The peer.
    pub peer: String,
    /// Whether there is a session with it.
    pub up: bool,
    /// After how many seconds it answered; null when it did not.
    pub rtt_seconds: Option<f64>,
    /// Why it did not, if that is known.
    pub problem: String,
}

impl Ping {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.ping/1";

    /// It answered.
    pub(in crate::admin) fn answered(peer: String, rtt: Duration) -> Ping {
        let rtt_seconds = Some(rtt.as_secs_f64());
        Ping { schema: Ping::SCHEMA.into(), peer, up: true, rtt_seconds, problem: String::new() }
    }

    /// It did not.
    pub(in crate::admin) fn silent(peer: String, up: bool, problem: String) -> Ping {
        Ping { schema: Ping::SCHEMA.into(), peer, up, rtt_seconds: None, problem }
    }
}

/// The node is stopping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stopping {
    /// `consign.stopping/1`
    pub schema: String,
    /// Always true.
    pub stopping: bool,
    /// The process that stops.
    pub pid: u32,
}

/// A link to the page that may act.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageLink {
    /// `consign.page/1`
    pub schema: String,
    /// The link; its code is good once.
    pub url: String,
    /// Seconds for which it is good.
    pub expires_seconds: u64,
}

impl PageLink {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.page/1";
}

/// A page may act from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageEntered {
    /// `consign.page_session/1`
    pub schema: String,
    /// What it shows with each act, 64 hex digits.
    pub token: String,
    /// Seconds for which it is good, unless the site is restarted.
    pub expires_seconds: u64,
    /// Whose acts they are: who asked for the link, such as `uid:1000`.
    pub who: String,
}

impl PageEntered {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.page_session/1";
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    /// Stable code.
    pub code: String,
    /// For people.
    pub message: String,
}

/// An item of a batch that is not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedItem {
    /// `consign.refused/1`
    pub schema: String,
    /// Its name; empty where it could not be read.
    pub name: String,
    /// The status it would have had alone.
    pub status: u16,
    /// Stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// Seconds after which it may be tried again; null where waiting does not help.
    pub retry_after_seconds: Option<u64>,
}

impl RefusedItem {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.refused/1";
}

impl Watch {
    pub(super) fn of(state: WatchState) -> Watch {
        let WatchState { dir, to, taken, waiting, trouble } = state;
        Watch { dir, to, taken, waiting, error: trouble.text }
    }
}

impl Inbox {
    /// A rule, and how many of its exports were given up.
    pub(crate) fn of(state: InboxState, failed: u64) -> Inbox {
        let InboxState { dir, picks, trouble, .. } = state;
        let since = trouble.since.map(rfc3339);
        Inbox { dir: dir.display().to_string(), picks, error: trouble.text, since, failed }
    }
}
