//! What goes into a node and what comes out of it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::log_level::{LogAsked, LogWanted};
pub use super::note::{Note, Reading, ReconcileSummary};
use super::status::Allowed;
use super::tally::{PeerTallied, Tallied};
use crate::act::{self, Report};
use crate::code::Refusal;
use crate::config::Config;
use crate::id::{BatchNo, BlobNo, ConnId, Epoch, ReadNo, Seq, SiteNo};
use crate::inbox::{ExportJob, ExportStep};
use crate::ledger::keys_upkeep::RuleId;
use crate::ledger::read::ReadRequest;
use crate::ledger::rows::CounterRow;
use crate::ledger::rows_pickup::ShardState;
use crate::pickup::PickupRefusal;
use crate::session::{Identity, SessionCommand, SessionEvent};
use crate::store::{CommitFault, Errand, ReadResult, ScrubFault, Space, StoreFault};
use crate::time::UnixMillis;

/// An input of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Input {
    /// A TLS handshake with a peer is done.
    Connected {
        /// The connection.
        conn: ConnId,
        /// Who its certificate says it is.
        identity: Identity,
        /// Whether this side dialled.
        dialled: bool,
    },
    /// A local connection (Unix socket, loopback HTTP) is open.
    Opened {
        /// The connection.
        conn: ConnId,
    },
    /// A dial asked for by [`Action::Dial`] did not lead to a session.
    DialFailed {
        /// The peer.
        site: SiteNo,
        /// Why, for people.
        why: String,
        /// Whether somebody answered there: it is no use to knock more often then.
        #[cfg_attr(feature = "serde", serde(default))]
        reached: bool,
    },
    /// An event of a session.
    Session(ConnId, SessionEvent),
    /// A connection is gone. Last input of that connection.
    Closed {
        /// The connection.
        conn: ConnId,
        /// Why, for people; empty for an orderly end.
        why: String,
    },
    /// Batches up to this one are durable.
    Committed {
        /// The last one.
        through: BatchNo,
        /// The disk afterwards.
        space: Space,
    },
    /// A batch did not become durable, and nothing of it is there.
    CommitFailed {
        /// It.
        from: BatchNo,
        /// Why.
        why: CommitFault,
        /// The disk afterwards.
        space: Space,
    },
    /// A read's answer.
    Read(ReadNo, ReadResult),
    /// A doomed file is durably gone, or was not there.
    Unlinked {
        /// The blob.
        blob: BlobNo,
        /// What went wrong, if anything.
        result: Result<(), StoreFault>,
    },
    /// Content that was looked for.
    Checked {
        /// How much was looked at.
        seen: usize,
        /// What is missing or has the wrong length.
        missing: Vec<Seq>,
    },
    /// A content folder was swept.
    Swept {
        /// The folder.
        folder: u8,
        /// Files set aside.
        quarantined: u64,
    },
    /// Content was compared with its digest.
    Scrubbed {
        /// How many pieces were looked at.
        seen: u64,
        /// Bytes that were read.
        bytes: u64,
        /// What is wrong, by the segment it was asked for.
        bad: Vec<(Seq, ScrubFault)>,
        /// What could not be read for a reason that may pass: nothing is known of it.
        #[cfg_attr(feature = "serde", serde(default))]
        unread: Vec<Seq>,
    },
    /// The disk as it is.
    Space(Space),
    /// What became of a task of the exporter.
    Export {
        /// The task's number.
        job: u64,
        /// What became of it.
        step: ExportStep,
    },
    /// The system clock was found so far ahead of effective time, after a step or after what is left of
    /// one ([`crate::time::EffectiveClock::step`]).
    Clock {
        /// So far, in milliseconds.
        ahead: u64,
    },
    /// The configuration was read again, or could not be.
    Reconfigure {
        /// The number of [`Action::Reload`]; 0 when no client asked.
        reload: u64,
        /// What to go by from now on; `None` changes nothing.
        config: Option<Box<Config>>,
        /// Sessions were judged by authorities that are believed no longer: all are renewed.
        renew: bool,
        /// What the audit and whoever watches are told of it; `None` when there is nothing to tell.
        reading: Option<Box<Reading>>,
    },
    /// How far the system clock is ahead of effective time by now ([`crate::time::EffectiveClock::skew`]):
    /// signatures are judged by the system clock.
    Skew {
        /// So far, in milliseconds; negative when it is behind.
        ahead: i64,
    },
    /// A deadline has passed.
    Timer,
    /// The pump has given everything it had: do what is best done in bulk.
    Turn,
    /// Take no more work, finish what is in flight, then say [`Action::Drained`].
    Stop,
}

/// Something that may leave the node at once. Batches go out by [`super::Node::take_batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// For a session.
    Command(ConnId, SessionCommand),
    /// For the store.
    Read(ReadNo, ReadRequest),
    /// For the store.
    Errand(Errand),
    /// Connect to a peer; answered by [`Input::Connected`] or [`Input::DialFailed`].
    Dial {
        /// The peer.
        site: SiteNo,
        /// Its name: what its certificate must say.
        name: String,
        /// Where.
        address: String,
    },
    /// A task for the exporter; answered by [`Input::Export`].
    Export(Box<ExportJob>),
    /// Read the configuration again; answered by [`Input::Reconfigure`] with this number.
    Reload(u64),
    /// Something an operator may want to see.
    Note(Note),
    /// Everything is settled after [`Input::Stop`].
    Drained,
    /// The store cannot be trusted: stop the process (exit 70).
    Halt(String),
}

/// A question about the node's memory; the ledger answers all others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Question {
    /// Everything `status` shows.
    Status,
    /// How far the attempts for a segment are.
    Progress(Seq),
    /// Stop the process (drain).
    Stop,
    /// Give out what is here already by the inbox rules there are now.
    InboxRun,
    /// Try the exports of a segment again that failed or wait.
    InboxRetry(Seq),
    /// Forget that files of a watched directory were taken, by the hashes of their paths.
    Unwatch(RuleId, Vec<PathHash>),
    /// The clock is right: what a step of it has held goes on.
    ConfirmClock,
    /// Whether the peer of that name answers.
    Ping(String),
    /// Read the configuration again; who asks, as the audit has it.
    Reload(String),
    /// Log more or less from now on; answered as [`Question::Status`].
    LogLevel(LogWanted),
}

/// BLAKE3 of a path below a watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PathHash(
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::array"))] pub [u8; 32],
);

/// An answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::Status`] and [`Question::LogLevel`].
    Status(Box<Status>),
    /// To [`Question::Progress`]: destinations with bytes sent so far.
    Progress(Vec<(String, u64)>),
    /// To [`Question::Stop`].
    Stopping,
    /// To an act that changed nothing, or nothing more than what is durable already.
    Acted(Box<Report>),
    /// To [`Question::InboxRun`] and [`Question::InboxRetry`]: exports that were begun; durable.
    Exports(u64),
    /// To [`Question::Unwatch`]: so many are forgotten; what did not fit is to be asked again.
    Unwatched(u64),
    /// To [`Question::ConfirmClock`]: whether it was doubted.
    ClockConfirmed(bool),
    /// To [`Question::Ping`].
    Pinged(Pinged),
    /// To [`Question::Reload`]: the number under which the reader of the configuration keeps what became of it.
    Reloaded(u64),
}

/// Whether a peer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinged {
    /// Nobody has that name.
    Unknown,
    /// There is no session with it; why, for people, if that is known.
    Down(String),
    /// It answered after so many microseconds.
    After(u64),
}

/// The node at a glance; never the result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Boot counter.
    pub boot: u64,
    /// Segments held.
    pub segments: u64,
    /// Segments among them that every destination refused as already relayed.
    pub unplaced: u64,
    /// Bytes charged.
    pub used: u64,
    /// Bytes allowed.
    pub limit: u64,
    /// What else the configuration allows.
    pub allowed: Allowed,
    /// The disk.
    pub space: Space,
    /// Whether new content is refused for want of space.
    pub full: bool,
    /// Whether start-up reconciliation is still under way.
    pub reconciling: bool,
    /// Segments it has looked at so far, and how many there were at the start.
    pub reconciled: (u64, u64),
    /// Whether it is stopping.
    pub stopping: bool,
    /// Whether nothing expires because a step of the clock is not confirmed.
    pub clock_held: bool,
    /// What is logged in place of what is configured, if an operator asked.
    pub log: Option<LogAsked>,
    /// Batches committed since the start, and their rows.
    pub commits: (u64, u64),
    /// What else is counted since then.
    pub tallied: Tallied,
    /// Refusals since the start, in the order of [`Refusal::ALL`].
    pub refusals: [u64; Refusal::ALL.len()],
    /// Operators' acts since the start, in the order of [`act::Action::ALL`].
    pub acts: [u64; act::Action::ALL.len()],
    /// Rows in quarantine.
    pub quarantined: u64,
    /// How far content was compared with its digests.
    pub scrub: ScrubStatus,
    /// Exports of each inbox rule that were given up; 65,536 in all are so many or more. None where there is none.
    pub given_up: BTreeMap<RuleId, u64>,
    /// Shards for nodes that are not there.
    pub pickup: PickupStatus,
    /// Peers by name.
    pub peers: Vec<PeerStatus>,
}

/// How far content was compared with its digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// When the last pass over everything ended.
    pub last: Option<UnixMillis>,
    /// Whether a pass is under way.
    pub running: bool,
    /// Pieces of content since the start.
    pub items: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments whose content was found to be wrong or gone.
    pub corrupt: u64,
    /// Segments that are held though their content is known to be wrong or gone, whenever that was found; 65,536 are
    /// so many or more.
    pub damaged: u64,
}

/// Pickup at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickupStatus {
    /// Shards by state, with the bytes that are held or reserved for them, in the order of
    /// [`ShardState::ALL`].
    pub shards: [CounterRow; ShardState::ALL.len()],
    /// Bytes held or reserved for shards in all.
    pub used: u64,
    /// `buffer.max_bytes`
    pub limit: u64,
    /// Clients that may upload.
    pub clients: u64,
    /// Nodes that are registered now.
    pub sessions: u64,
    /// Uploads under way.
    pub uploads: u64,
    /// Fetches under way.
    pub fetches: u64,
    /// Notifications without an answer.
    pub unanswered: u64,
    /// Since the start: uploads that were stored.
    pub stored: u64,
    /// Since the start: notifications, each with its token.
    pub notified: u64,
    /// Since the start: tokens that were redeemed.
    pub redeemed: u64,
    /// Since the start: tokens that ran out unused while their session was there.
    pub unused: u64,
    /// Since the start: acks that said `verified`, and that said `failed`.
    pub acks: (u64, u64),
    /// Since the start: fetches that broke off.
    pub broken: u64,
    /// Since the start: tokens that were shown and are used up, are over, or are not the node's.
    pub bad_tokens: [u64; 3],
    /// Since the start: uploads that broke off, and that were refused.
    pub lost_uploads: (u64, u64),
    /// Refusals since the start, in the order of [`PickupRefusal::ALL`].
    pub refusals: [u64; PickupRefusal::ALL.len()],
}

/// A peer at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Where it is dialled; empty when it is no longer known.
    pub address: String,
    /// Whether anything can be sent to it: it is configured, or a route leads there. What is owed to one
    /// that is not known is orphaned, and success still waits for it.
    pub known: bool,
    /// Held by an operator.
    pub held: bool,
    /// Its configured pin is not the one it is known by: no session before `peers rekey`.
    pub needs_rekey: bool,
    /// The known peer it is reached by way of; empty when it is a known peer itself.
    pub via: String,
    /// Epoch of the live session.
    pub session: Option<Epoch>,
    /// Deliveries by state, indexed by [`crate::ledger::rows::State`].
    pub counters: [CounterRow; 5],
    /// Of what is scheduled, and of what has failed: what waits because an operator holds its segment.
    pub held_back: [CounterRow; 2],
    /// Bytes sent of attempts in flight.
    pub sending: u64,
    /// Segments and bytes of what it brought that are held, reserved or being removed.
    pub inbound: CounterRow,
    /// Bytes it may have here (`inbound_quota`).
    pub inbound_quota: Option<u64>,
    /// When it will be dialled or offered again, if it is backing off.
    pub retry_at: Option<UnixMillis>,
    /// When its contact window opens, if it is closed (`window`).
    pub opens_at: Option<UnixMillis>,
    /// Due time of its oldest waiting delivery in memory.
    pub next_due: Option<UnixMillis>,
    /// Accept time of its oldest waiting delivery in memory.
    pub oldest: Option<UnixMillis>,
    /// Last trouble, for people.
    pub last_error: String,
    /// When that was.
    pub erred_at: Option<UnixMillis>,
    /// While there is no session: when the last one of this run ended.
    pub down_since: Option<UnixMillis>,
    /// Last committed ACK.
    pub last_acked: Option<UnixMillis>,
    /// What is counted of it since the start.
    pub tallied: PeerTallied,
}

/// A command with its receiver, as promises are kept.
pub type Addressed = (ConnId, SessionCommand);

/// Shared pointer that sinks use for big answers.
pub type Shared<T> = Arc<T>;
