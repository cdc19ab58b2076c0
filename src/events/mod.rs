//! What the site tells of itself, one event after the other, for whoever watches: a bounded ring in memory.
//! Ids rise by one, so that a watcher sees what it has missed; they begin at 1 with the process.
//!
//! The node's thread only keeps a note as it is; words are found for it when somebody asks.

mod words;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::http::rfc3339;
use consign_core::ledger::rows::State;
use consign_core::node::Note;
use consign_core::time::UnixMillis;

/// Events that are kept.
pub const KEPT: usize = 4_096;

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// `consign.event/1`
    pub schema: String,
    /// Its number: the one before it has one less.
    pub id: u64,
    /// When.
    pub at: String,
    /// Stable word, such as `accepted`, `delivered`, `session_up`.
    pub kind: String,
    /// `info`; `warn` where an operator may act, `error` where somebody must.
    pub level: String,
    /// The segment, 64 hex digits.
    pub segment: Option<String>,
    /// The peer it is about.
    pub peer: Option<String>,
    /// Stable code or cause.
    pub code: Option<String>,
    /// A sentence.
    pub text: String,
}

/// Events behind an id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// `consign.events/1`
    pub schema: String,
    /// Differs from one start of the site to the next: ids begin anew then.
    pub start: String,
    /// The oldest event that is still kept; 0 when there is none.
    pub first: u64,
    /// The newest event there is; 0 when there is none.
    pub last: u64,
    /// The events, in order.
    pub events: Vec<Event>,
}

impl EventPage {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.events/1";
}

/// Which events are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Behind this one; `None` is the newest ones.
    pub since: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

/// The ring of a site.
#[derive(Clone, Debug)]
pub struct Events {
    start: Arc<str>,
    ring: Arc<Mutex<Ring>>,
}

#[derive(Debug)]
struct Ring {
    most: usize,
    /// Id of the newest.
    last: u64,
    notes: VecDeque<(u64, Note)>,
}

impl Default for Events {
    fn default() -> Events {
        Events::of(KEPT, wall())
    }
}

impl Events {
    fn of(most: usize, start: u64) -> Events {
        let ring = Ring { most, last: 0, notes: VecDeque::new() };
        Events { start: rfc3339(UnixMillis(start)).into(), ring: Arc::new(Mutex::new(ring)) }
    }

    /// Keeps a note, if it is one that is told.
    pub fn record(&self, note: Note) {
        if is_told(&note) {
            self.keep(wall(), note);
        }
    }

    fn keep(&self, at: u64, note: Note) {
        let mut ring = locked(&self.ring);
        if ring.notes.len() == ring.most {
            ring.notes.pop_front();
        }
        ring.last += 1;
        ring.notes.push_back((at, note));
    }

    /// Whether there is an event behind this one.
    #[must_use]
    pub fn has_more(&self, since: u64) -> bool {
        // An id that is not there yet is one of an earlier start: whoever has it must be told.
        locked(&self.ring).last != since
    }

    /// The events behind an id, the oldest first.
    #[must_use]
    pub fn page(&self, wanted: Wanted) -> EventPage {
        let ring = locked(&self.ring);
        let kept = u64::try_from(ring.notes.len()).unwrap_or(u64::MAX);
        let first = ring.last - kept + 1;
        let newest = || {
            let limit = u64::try_from(wanted.limit).unwrap_or(u64::MAX);
            ring.last.saturating_sub(limit)
        };
        // One that is ahead has seen another start.
        let since = wanted.since.filter(|since| *since <= ring.last);
        let since = since.or(wanted.since.map(|_| 0)).unwrap_or_else(newest);
        let skip = usize::try_from((since + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let events = (first..).zip(&ring.notes).skip(skip).take(wanted.limit);
        let events = events.map(|(id, (at, note))| words::event(id, *at, note)).collect();
        let first = if kept == 0 { 0 } else { first };
        let (schema, start) = (EventPage::SCHEMA.into(), self.start.to_string());
        EventPage { schema, start, first, last: ring.last, events }
    }
}

/// Steps of a delivery on its way are no news; how it ends is.
fn is_told(note: &Note) -> bool {
    !matches!(note, Note::Delivery { to: Some(State::Scheduled | State::Inflight) | None, .. })
}

fn locked(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
