//! The node's story: what an operator may want to see, as it happens.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use super::log_level::LogLevel;
pub use super::reconcile::ReconcileSummary;
use crate::code::Cause;
use crate::id::{Epoch, SegmentId, Seq};
use crate::ledger::rows::State;

/// A line of the node's story; the driver logs and counts it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A session with a peer is up.
    SessionUp {
        /// The peer.
        peer: String,
        /// Its epoch here.
        epoch: Epoch,
        /// Whether this side dialled.
        dialled: bool,
    },
    /// A session with a peer is over.
    SessionDown {
        /// The peer.
        peer: String,
        /// Why.
        why: String,
    },
    /// Somebody was turned away.
    Unwelcome {
        /// The name it bears.
        name: String,
        /// Why.
        why: String,
    },
    /// A delivery changed its state (after commit).
    Delivery {
        /// The segment.
        id: SegmentId,
        /// The destination.
        peer: Arc<str>,
        /// State before; `None` for a new row.
        from: Option<State>,
        /// State after; `None` when removed.
        to: Option<State>,
        /// Why, for failures.
        cause: Option<Cause>,
        /// Attempts so far.
        attempts: u64,
        /// The segment's length in bytes.
        bytes: u64,
        /// Milliseconds from the claim of the attempt that this ends; `None` where it ends none, or nobody
        /// knows.
        took: Option<u64>,
    },
    /// A hop has a segment for a site behind it (after commit): its receipt is waited for.
    HandedOn {
        /// The segment.
        id: SegmentId,
        /// The destination.
        site: String,
        /// The peer that has custody.
        hop: String,
    },
    /// A segment was accepted (after commit).
    Accepted {
        /// The segment.
        id: SegmentId,
        /// Its accept number.
        seq: Seq,
        /// Its length.
        size: u64,
        /// The peer it came from; empty for a local client.
        from: Arc<str>,
    },
    /// A segment's success condition is met (after commit).
    Relayed {
        /// The segment.
        id: SegmentId,
        /// `one_peer` or `all_peers`.
        condition: &'static str,
        /// How many acknowledged.
        acks: u32,
    },
    /// A segment is not kept here any more (after commit).
    Removed {
        /// The segment.
        id: SegmentId,
        /// Its name.
        name: String,
        /// Its length.
        size: u64,
        /// `evict`, `release` or `expire`.
        how: &'static str,
    },
    /// An offer or submission was refused.
    Refused {
        /// Stable code.
        code: &'static str,
        /// The peer; empty for a local client.
        peer: String,
        /// The text it was given.
        text: String,
    },
    /// The disk is full; new content is refused until space is back.
    Full {
        /// What the store said.
        why: String,
    },
    /// A segment was given out by a rule, or could not be (after commit).
    Exported {
        /// The segment.
        id: SegmentId,
        /// The file below the rule's directory; may be empty when it failed.
        name: String,
        /// What is wrong; empty when nothing is.
        problem: String,
        /// Whether it waits for an operator.
        given_up: bool,
    },
    /// There is room again.
    RoomAgain,
    /// Start-up reconciliation is done.
    Reconciled(ReconcileSummary),
    /// One item was set aside because its row cannot be read.
    Quarantined {
        /// Which.
        what: String,
    },
    /// Something went wrong that an operator may act on.
    Warn {
        /// Stable code.
        code: &'static str,
        /// What.
        text: String,
    },
    /// Trouble that was told of is over by itself.
    Recovered {
        /// What.
        text: String,
    },
    /// The configuration was read again, or the files of certificate and key.
    Reread {
        /// Who asked: `uid:1000`, `SIGHUP`, or empty for the site itself.
        who: String,
        /// What became of it.
        reading: Box<Reading>,
    },
    /// Another level is logged from now on.
    LogLevel {
        /// Who asked: `uid:1000`, or empty for the site itself.
        who: String,
        /// The level; `None` is the configured one.
        level: Option<LogLevel>,
        /// For how long, or why it holds no longer.
        text: String,
    },
}

/// What became of a reading of the configuration, as words: for the audit, and for whoever watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reading {
    /// Who asked for it when no client did: `SIGHUP`, or empty for the site itself.
    pub who: String,
    /// The file that was read.
    pub file: String,
    /// Whether it was taken; if not, nothing has changed.
    pub taken: bool,
    /// Stable code of what an operator has to do about it; empty when there is nothing.
    pub code: String,
    /// What changed and what waits for a restart, or why it was refused.
    pub text: String,
    /// How many keys and peers hold another value.
    pub changes: u64,
}
