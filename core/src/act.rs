//! What an operator asks for, and what became of it: the verbs of the local interface.
//!
//! An [`Act`] goes to the node as one event. The node reads what the [`Selection`] names, judges every
//! row on committed plus staged state, and answers with a [`Report`] that hangs on the batch which makes
//! it true: nothing is reported as done that a power cut could undo.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use crate::code::{Cause, codes};
use crate::id::SegmentId;

codes! {
    /// What an operator does; the word is the same in the audit, on the wire and in metrics.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub enum Action {
        /// Dead letters are queued again with a fresh allowance.
        Retry = 1, "retry";
        /// Dead letters are removed from their segments' required sets.
        Purge = 2, "purge";
        /// Segments are not sent until they are let loose again.
        Hold = 3, "hold";
        /// Held segments are sent again.
        Unhold = 4, "unhold";
        /// Content is no longer needed here.
        Release = 5, "release";
        /// Nothing is sent to a peer.
        HoldPeer = 6, "hold_peer";
        /// A held peer is sent to again.
        ReleasePeer = 7, "release_peer";
        /// A peer's backoff ends: it is dialled now.
        Flush = 8, "flush";
        /// What is owed to a peer that is no longer configured is given up.
        Forget = 9, "forget";
        /// A peer has a new certificate pin.
        Rekey = 10, "rekey";
    }
}

impl Action {
    /// Whether it needs room: it is refused while the disk is full.
    #[must_use]
    pub const fn is_growth(self) -> bool {
        matches!(self, Action::Retry | Action::Unhold)
    }

    /// Whether it is about one peer rather than about segments.
    #[must_use]
    pub const fn is_of_peer(self) -> bool {
        matches!(
            self,
            Action::HoldPeer | Action::ReleasePeer | Action::Flush | Action::Forget | Action::Rekey
        )
    }
}

codes! {
    /// Why an act left something as it was.
    pub enum Why {
        /// No segment has an id that begins so.
        Unknown = 1, "unknown";
        /// Several segments have.
        Ambiguous = 2, "ambiguous";
        /// It is not a dead letter.
        NotDead = 3, "not_dead";
        /// The content is gone from this site.
        ContentGone = 4, "content_gone";
        /// The segment has expired.
        Expired = 5, "expired";
        /// It is held, or not, already.
        Already = 6, "already";
        /// Not every required site has it.
        StillOwed = 7, "still_owed";
        /// An attempt is under way.
        InFlight = 8, "in_flight";
    }
}

/// An act of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Act {
    /// What.
    pub action: Action,
    /// On what. Acts on a peer name it in `of.peer` and nothing else.
    pub of: Selection,
    /// Who: `uid:1000`.
    pub who: String,
    /// The reason given; may be empty.
    pub why: String,
    /// Only say what would be done.
    pub dry_run: bool,
    /// [`Action::Release`]: also what is still owed to others; it is given up.
    pub force: bool,
    /// [`Action::Rekey`]: the new pin; `None` is the configuration's.
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::maybe"))]
    pub pin: Option<[u8; 32]>,
}

/// Which segments or deliveries: everything that is given must be true of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Selection {
    /// Segments by the beginning of their id; empty is any.
    pub ids: Vec<IdPrefix>,
    /// Every one, said in so many words.
    pub all: bool,
    /// Deliveries to this peer.
    pub peer: Option<String>,
    /// Dead letters for this reason.
    pub reason: Option<Cause>,
    /// Dead letters, or segments, that are at least so old.
    pub older: Option<Duration>,
}

impl Selection {
    /// Whether nothing at all is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let filters = self.peer.is_some() || self.reason.is_some() || self.older.is_some();
        self.ids.is_empty() && !self.all && !filters
    }

    /// In words, for the audit.
    #[must_use]
    pub fn words(&self) -> String {
        let mut words = Vec::new();
        match self.ids.as_slice() {
            [] => {}
            [id] => words.push(id.to_string()),
            [id, rest @ ..] => words.push(alloc::format!("{id} and {} more", rest.len())),
        }
        words.extend(self.peer.iter().map(|peer| alloc::format!("peer={peer}")));
        words.extend(self.reason.iter().map(|reason| alloc::format!("reason={reason}")));
        words.extend(self.older.iter().map(|age| alloc::format!("older={}s", age.as_secs())));
        if words.is_empty() { "all".to_string() } else { words.join(" ") }
    }
}

/// The beginning of a segment id: 6 to 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IdPrefix {
    /// The smallest id that begins so.
    first: SegmentId,
    digits: u8,
}

impl IdPrefix {
    /// Fewest digits.
    pub const DIGITS_MIN: usize = 6;

    /// Reads it, either case.
    #[must_use]
    pub fn parse(text: &str) -> Option<IdPrefix> {
        let digits = text.len();
        if !(IdPrefix::DIGITS_MIN..=64).contains(&digits) {
            return None;
        }
        let mut whole = [b'0'; 64];
        whole.get_mut(..digits)?.copy_from_slice(text.as_bytes());
        let first = SegmentId::from_hex(core::str::from_utf8(&whole).ok()?)?;
        Some(IdPrefix { first, digits: u8::try_from(digits).ok()? })
    }

    /// A whole id.
    #[must_use]
    pub const fn whole(id: SegmentId) -> IdPrefix {
        IdPrefix { first: id, digits: 64 }
    }

    /// The smallest id that begins so.
    #[must_use]
    pub const fn first(&self) -> &SegmentId {
        &self.first
    }

    /// Whether an id begins so.
    #[must_use]
    pub fn begins(&self, id: &SegmentId) -> bool {
        let digits = usize::from(self.digits);
        let whole = digits / 2;
        let half = |id: &SegmentId| id.0.get(whole).map(|byte| byte >> 4);
        id.0.get(..whole) == self.first.0.get(..whole)
            && (digits.is_multiple_of(2) || half(id) == half(&self.first))
    }
}

impl core::fmt::Display for IdPrefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = self.first.to_string();
        f.write_str(text.get(..usize::from(self.digits)).unwrap_or(&text))
    }
}

/// What became of an act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The act.
    pub action: Action,
    /// Whether nothing was changed because that was asked for.
    pub dry_run: bool,
    /// What was done, or would be: by peer, or under an empty name for acts on segments.
    pub done: Vec<Tally>,
    /// Commits it took.
    pub commits: u64,
    /// What was left as it was; [`Report::LEFT_MAX`] at most are named.
    pub left: Vec<Left>,
    /// How much was left in all.
    pub left_count: u64,
}

/// How much was done for one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The peer; empty for acts on segments.
    pub peer: String,
    /// Deliveries or segments.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Something an act left as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// An id, or its beginning as it was given.
    pub id: String,
    /// The peer; empty where it is not about one.
    pub peer: String,
    /// Why.
    pub why: Why,
    /// For people.
    pub text: String,
}

impl Report {
    /// Most that are named of what was left.
    pub const LEFT_MAX: usize = 100;

    /// Nothing done yet.
    #[must_use]
    pub fn new(act: &Act) -> Report {
        Report {
            action: act.action,
            dry_run: act.dry_run,
            done: Vec::new(),
            commits: 0,
            left: Vec::new(),
            left_count: 0,
        }
    }

    /// One more done.
    pub fn add(&mut self, peer: &str, bytes: u64) {
        let tally = match self.done.iter_mut().position(|t| t.peer == peer) {
            Some(at) => self.done.get_mut(at),
            None => {
                self.done.push(Tally { peer: peer.to_string(), ..Tally::default() });
                self.done.last_mut()
            }
        };
        if let Some(tally) = tally {
            tally.count += 1;
            tally.bytes = tally.bytes.saturating_add(bytes);
        }
    }

    /// One more left as it was.
    pub fn leave(&mut self, left: Left) {
        self.left_count += 1;
        if self.left.len() < Report::LEFT_MAX {
            self.left.push(left);
        }
    }

    /// How much was done, and its bytes.
    #[must_use]
    pub fn total(&self) -> (u64, u64) {
        let add = |(count, bytes): (u64, u64), t: &Tally| {
            (count + t.count, bytes.saturating_add(t.bytes))
        };
        self.done.iter().fold((0, 0), add)
    }
}

#[cfg(test)]
mod tests;
