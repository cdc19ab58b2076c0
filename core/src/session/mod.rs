//! Sessions: one machine per connection, bytes on one side, typed events and commands on the other.
//!
//! A session has no ledger and no clock. It runs where its connection runs, so TLS, framing and hashing
//! use every core; everything that needs a decision goes to the [`crate::node::Node`] as a
//! [`SessionEvent`] and comes back as a [`SessionCommand`]. Peer sessions, HTTP sessions and whatever
//! comes later share the trait [`Session`]; a runtime drives all of them without knowing which.

mod out;
mod outcome;
pub mod peer;
mod spoken;

pub use out::SessionOut;
pub use outcome::Outcome;
pub use spoken::Spoken;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::act::{Act, Report};
use crate::code::{Goodbye, Refusal};
use crate::gate::Promised;
use crate::id::{BlobDigest, BlobNo, ConnId, Epoch, Handle, SegmentId, Seq, TransferNo};
use crate::ledger::keys_upkeep::RuleId;
use crate::ledger::rows::Body;
use crate::node::{Answer, Question};
use crate::pickup;
use crate::segment::{Destinations, Meta};
use crate::store::{StoreEvent, StoreFault};
use crate::time::{Instant, Now};
use crate::wire::{Offer, Receipt, Wanted};

/// A connection's machine.
pub trait Session: Send {
    /// Takes one input. Never blocks, never fails, does a bounded amount of work, and appends its
    /// results to `out`.
    fn step(&mut self, now: Now, input: SessionInput<'_>, out: &mut SessionOut);
    /// When it wants [`SessionInput::Timer`] next, if nothing else happens before.
    fn next_deadline(&self) -> Option<Instant>;
    /// Whether the driver should read from the socket. A session says no while it cannot place what
    /// would arrive.
    fn wants_read(&self) -> bool;
}

/// What happens to a session.
#[derive(Debug)]
pub enum SessionInput<'a> {
    /// The connection is up (after TLS, where there is TLS). First input, exactly once.
    Open,
    /// Bytes that arrived; all of them are taken.
    Bytes(&'a [u8]),
    /// The other side will send no more.
    Eof,
    /// So many bytes of bulk content may be appended to [`SessionOut::bytes`] or placed there now. Control frames and
    /// answers do not wait for it.
    Room(usize),
    /// Of everything it has ever appended to [`SessionOut::bytes`] or placed there, so many bytes are in the kernel's
    /// hands by now. Comes in its own time, never twice with the same number.
    Handed(u64),
    /// A deadline has passed.
    Timer,
    /// The node's word.
    Command(SessionCommand),
    /// The store's answer.
    Store(StoreEvent),
}

/// What the peer said about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerLimits {
    /// Name in its HELLO; must be the name in its certificate.
    pub name: String,
    /// Largest segment it takes.
    pub max_segment: Option<u64>,
    /// Most offers it takes unanswered.
    pub max_offers: u32,
}

/// Content of a local submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Content {
    /// Parked under a handle, at most [`crate::limits::INLINE_MAX`] bytes.
    Parked(Handle),
    /// A finished file of a granted reservation.
    Blob(BlobNo),
}

/// A segment that a local client hands in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Submission {
    /// Name, type, labels, class, expiry. The node sets `accepted_at`.
    pub meta: Meta,
    /// Where to.
    pub to: Destinations,
    /// Identity, computed by the session.
    pub id: SegmentId,
    /// Digest of the content, computed by the session.
    pub digest: BlobDigest,
    /// Its length.
    pub size: u64,
    /// The content.
    pub content: Content,
    /// The file of a watched directory that it is: what is remembered in the same commit.
    #[cfg_attr(feature = "serde", serde(default))]
    pub watched: Option<Box<WatchedFile>>,
}

/// A file of a watched directory, as it was when it was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WatchedFile {
    /// The watch rule.
    pub rule: RuleId,
    /// Path below its directory, in bytes.
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
    pub path: Vec<u8>,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Time of its last change in nanoseconds since the Unix epoch.
    pub modified: i64,
}

/// What a session tells the node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum SessionEvent {
    /// The peer's HELLO is there and good: offers may be sent.
    Ready(PeerLimits),
    /// The peer offers a segment. A body that rode along is parked and matches digest and id.
    Offered {
        /// The offer.
        offer: Box<Offer>,
        /// Its body, if it rode along.
        body: Option<Handle>,
    },
    /// Content of an accepted transfer or a granted reservation is durable up to here.
    Checkpoint {
        /// The transfer or ticket.
        transfer: TransferNo,
        /// The blob.
        blob: BlobNo,
        /// Durable length.
        offset: u64,
        /// Encoded [`crate::hash::Checkpoint`].
        #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
        chain: Vec<u8>,
    },
    /// Content of an accepted transfer is whole, matches its digest, and its file and name are durable.
    Received {
        /// The transfer.
        transfer: TransferNo,
        /// The blob.
        blob: BlobNo,
    },
    /// An accepted transfer will not be finished; its file is closed.
    Broken {
        /// The transfer or ticket.
        transfer: TransferNo,
        /// The blob.
        blob: BlobNo,
        /// What was wrong.
        why: Broken,
    },
    /// A delivery attempt ended.
    Outcome {
        /// The transfer the node chose for it.
        transfer: TransferNo,
        /// How.
        outcome: Outcome,
    },
    /// Content bytes of an attempt handed to the kernel so far; at most every 1 MiB.
    Progress {
        /// The transfer.
        transfer: TransferNo,
        /// Bytes.
        sent: u64,
    },
    /// Another [`crate::limits::ARRIVED_EVERY`] bytes of an accepted transfer have arrived, durable or
    /// not.
    Arrived {
        /// The transfer.
        transfer: TransferNo,
        /// The blob.
        blob: BlobNo,
    },
    /// The peer's credit is used up by waiting content: more allowance would help.
    Wants,
    /// The peer has answered a PING that the node wanted, after so many microseconds.
    Pong(u64),
    /// Content of this segment was read here for a local client, and is not what was accepted, or not there.
    Corrupt(Seq),
    /// A receipt on its way to the origin.
    Receipt(Receipt),
    /// The peer keeps our receipt, or cannot take it yet.
    ReceiptOk {
        /// The segment.
        id: SegmentId,
        /// The destination.
        site: String,
        /// Not taken: it is to be said again when the peer asks again, or in the next session.
        #[cfg_attr(feature = "serde", serde(default))]
        later: bool,
    },
    /// The peer asks for content.
    Want {
        /// Its number.
        transfer: TransferNo,
        /// What.
        what: Wanted,
    },
    /// A local client hands in a segment.
    Submit {
        /// Number of the request in this session.
        ticket: TransferNo,
        /// The segment.
        submission: Box<Submission>,
    },
    /// A local client wants to hand in content too large to park.
    Reserve {
        /// Number of the request in this session.
        ticket: TransferNo,
        /// Length, if known.
        size: Option<u64>,
    },
    /// A reservation of unknown size needs another step.
    Extend {
        /// Number of the request.
        ticket: TransferNo,
        /// The blob.
        blob: BlobNo,
    },
    /// A local client asks about the node's memory.
    Ask {
        /// Number of the request.
        ticket: TransferNo,
        /// What.
        question: Question,
    },
    /// An operator wants something done.
    Act {
        /// Number of the request.
        ticket: TransferNo,
        /// What.
        act: Box<Act>,
    },
    /// The peer broke the protocol; the session closes itself.
    Fault(String),
    /// Of a pickup session, or of an operator about pickup.
    Pickup(Box<pickup::Event>),
}

/// Why content that was being received will not be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Broken {
    /// Length, digest or identity did not match.
    Mismatch,
    /// The connection ended; what is checkpointed stays for a later resume.
    Cut,
    /// The store could not write it.
    Store(StoreFault),
}

/// One delivery attempt for a session to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// The segment here.
    pub seq: Seq,
    /// What to offer; its transfer number is the node's.
    pub offer: Offer,
    /// Where the content is. Inline content rides with the offer.
    pub body: Body,
}

/// What the node tells a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionCommand {
    /// Something that only the commit gate could release.
    Promised(Promised),
    /// No.
    Refuse {
        /// The transfer or ticket.
        transfer: TransferNo,
        /// The segment; all zero for a reservation.
        id: SegmentId,
        /// Why.
        refusal: Refusal,
        /// How long to wait, in milliseconds; 0 says nothing.
        retry_after: u64,
        /// For people, with numbers.
        text: Cow<'static, str>,
    },
    /// The session may have so many bytes of received content in memory from now on.
    Allowance(u64),
    /// At most so many bytes of content per second may be sent from now on. Comes before the start.
    Pace(u64),
    /// Send a PING; answered by [`SessionEvent::Pong`] once the peer answers.
    Ping,
    /// An answer to a question.
    Answer {
        /// Number of the request.
        ticket: TransferNo,
        /// The answer.
        answer: Arc<Answer>,
    },
    /// For a pickup session, or an operator who asked about pickup.
    Pickup(Box<pickup::Command>),
    /// End the session.
    Close {
        /// Why.
        why: Goodbye,
        /// For people.
        text: String,
    },
}

/// What only the gate releases: each lets somebody else forget their copy, or rests on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The boot counter behind this epoch is committed: say HELLO.
    Start {
        /// Epoch of this session.
        epoch: Epoch,
        /// Bytes of received content it may have in memory.
        allowance: u64,
    },
    /// The claim is committed: offer it.
    Send(Box<Sending>),
    /// The segment is committed: send ACK.
    Ack {
        /// The transfer.
        transfer: TransferNo,
        /// The segment.
        id: SegmentId,
    },
    /// The `incoming` row is committed: create or reopen the file and send ACCEPT, or let a local
    /// client go on.
    Accept {
        /// The transfer or ticket.
        transfer: TransferNo,
        /// The blob to write.
        blob: BlobNo,
        /// Where to begin.
        offset: u64,
        /// Encoded [`crate::hash::Checkpoint`] at that offset.
        chain: Vec<u8>,
        /// Bytes reserved in all.
        reserved: u64,
    },
    /// What became of a segment for a site further on is committed: tell it back.
    Receipt(Receipt),
    /// The peer's receipt is committed: say so; or, with `later`, that it cannot be taken yet.
    ReceiptOk {
        /// What the peer said.
        receipt: Receipt,
        /// Not taken.
        later: bool,
    },
    /// Ask the peer for content, after all offers with lower numbers. Answered by an offer of it, or by [`SessionEvent::Outcome`] of this
    /// transfer when the peer refuses.
    Want {
        /// The number the node chose for it.
        transfer: TransferNo,
        /// What.
        what: Wanted,
    },
    /// The submission is committed: say so.
    Accepted {
        /// The ticket.
        ticket: TransferNo,
        /// What became of it.
        accepted: Accepted,
    },
    /// An act is committed: report it.
    Done {
        /// Number of the request.
        ticket: TransferNo,
        /// What was done.
        report: Box<Report>,
    },
    /// For a pickup session, or an operator who asked about pickup.
    Pickup(Box<pickup::Answer>),
}

/// What became of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The segment.
    pub id: SegmentId,
    /// Its accept number.
    pub seq: Seq,
    /// Whether it was not held before.
    pub new: bool,
    /// Destinations that were added by this submission.
    pub added: Vec<String>,
    /// Destinations that were owed already.
    pub queued: Vec<String>,
    /// Destinations that hold it already.
    pub delivered: Vec<String>,
    /// Destinations for which it lies among the dead letters.
    pub dead: Vec<String>,
    /// Whether it is worth delivering longer than before.
    pub raised: bool,
}

/// What a session must know of its connection when it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// Its number.
    pub conn: ConnId,
    /// Address of the other side, for people.
    pub remote: String,
    /// User id of a Unix peer.
    pub uid: Option<u32>,
    /// Who the certificate says it is.
    pub identity: Option<Identity>,
}

/// A peer as its certificate names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Identity {
    /// Name in the certificate's SAN.
    pub name: String,
    /// SHA-256 of the certificate (DER).
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::array"))]
    pub fingerprint: [u8; 32],
    /// Its `notAfter`, in milliseconds since the Unix epoch.
    pub not_after: u64,
}

/// What peer sessions go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// This node's name.
    pub name: String,
    /// `relay.ack_timeout`: from the last body byte handed to the kernel, and no progress before.
    pub ack_timeout: core::time::Duration,
    /// `storage.max_segment`: told in HELLO.
    pub max_segment: Option<u64>,
    /// Unanswered offers it takes: told in HELLO.
    pub max_offers: u32,
    /// How long the peer may take to say HELLO.
    pub hello_timeout: core::time::Duration,
    /// Silence after which it is asked for a sign of life.
    pub ping_after: core::time::Duration,
    /// Silence after which it counts as gone.
    pub dead_after: core::time::Duration,
    /// A rule that is dropped on purpose, for tests of the simulator.
    #[doc(hidden)]
    pub plant: Option<crate::plant::Plant>,
}
