//! What a world shows to those who watch it: the auditor, the trace.

use bytes::Bytes;
use consign_core::config::Config;
use consign_core::id::{BatchNo, BlobDigest, BlobNo, BodyNo, ConnId, SegmentId, TransferNo};
use consign_core::ledger::Table;
use consign_core::node::Note;
use consign_core::segment::{Destinations, Meta};
use consign_core::session::Accepted;
use consign_core::store::Batch;
use consign_core::time::Now;
use consign_core::wire::Frame;

use super::pickup::sight::Sight;

/// Index of a site in its world.
pub type SiteIx = usize;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Killed; the operating system and its page cache live on.
    Killed,
    /// The power went: what was not synced is kept, lost or torn.
    PowerCut,
    /// It stopped by itself because its store failed (exit 70).
    Halted,
    /// It drained and stopped.
    Stopped,
}

/// Something durable that the simulator destroyed, as a bad disk does. What follows from it must be
/// told, never hidden: a dead letter with its cause, a quarantined row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Bytes of a content file.
    File(BlobNo),
    /// A row of the ledger.
    Row(Table, Vec<u8>),
    /// The ledger was replaced by an older copy of itself.
    Rollback,
}

/// One thing that happened.
#[derive(Debug)]
pub enum Seen<'a> {
    /// A site exists from now on, with an empty store.
    Born {
        /// What it goes by.
        config: &'a Config,
    },
    /// A process runs, on what its store holds.
    Started {
        /// Its boot number.
        boot: u64,
    },
    /// A connection with a peer begins.
    Opened(ConnId),
    /// The node goes by another configuration from this turn on.
    Reconfigured {
        /// What it goes by.
        config: &'a Config,
        /// The last batch that was filled before.
        handed: BatchNo,
    },
    /// A session is given the content of a shard to send.
    Serving {
        /// Which.
        conn: ConnId,
        /// The number of the redemption.
        redemption: u64,
    },
    /// A session says that it is over with that, or is gone.
    FetchOver {
        /// Which.
        conn: ConnId,
        /// The redemption, and whether the socket took all of it; `None` when the session is gone.
        end: Option<(u64, bool)>,
    },
    /// A process was asked to drain and stop.
    Stopping,
    /// A process ended.
    Died(Death),
    /// A batch is on disk from now on, whether or not the node will hear of it.
    Durable {
        /// The batch.
        batch: &'a Batch,
        /// The inline bodies it wrote.
        bodies: &'a [(BodyNo, Bytes)],
    },
    /// A content file and its name are durable from now on.
    FileWhole {
        /// Its number.
        blob: BlobNo,
        /// Its length.
        size: u64,
        /// Digest of what is in it, computed from the file.
        digest: BlobDigest,
    },
    /// A content file is durably gone.
    FileGone(BlobNo),
    /// The simulator destroyed something.
    Damaged(Damage),
    /// A local client hands in a segment.
    Submitted {
        /// Identity.
        id: SegmentId,
        /// Digest of the content.
        digest: BlobDigest,
        /// Length of the content.
        size: u64,
        /// Name, type, labels, class, expiry.
        meta: &'a Meta,
        /// Where to.
        to: &'a Destinations,
    },
    /// A local client is told that its segment is safe.
    Queued(&'a Accepted),
    /// A local client is told no.
    Refused {
        /// Identity.
        id: SegmentId,
        /// Stable code.
        code: &'static str,
    },
    /// An operator wants something done; the word of the act.
    Operated(&'a str),
    /// The node lets an ACK go to a session, which will write it.
    AckLetGo {
        /// The connection.
        conn: ConnId,
        /// Which offer it answers.
        transfer: TransferNo,
        /// The segment.
        id: SegmentId,
    },
    /// A session hands a whole frame to the network.
    FrameSent {
        /// The other site.
        peer: SiteIx,
        /// The connection here.
        conn: ConnId,
        /// The frame.
        frame: &'a Frame<'a>,
    },
    /// A whole frame has reached a session.
    FrameArrived {
        /// The other site.
        peer: SiteIx,
        /// The connection here.
        conn: ConnId,
        /// The frame.
        frame: &'a Frame<'a>,
    },
    /// The node says something.
    Note(&'a Note),
    /// A client or a node of this site has done something, or was told something.
    Pickup(&'a Sight),
    /// The node's loop went round once.
    Turned {
        /// The site's clocks.
        now: Now,
        /// Inputs it took.
        inputs: usize,
        /// Entries in memory: overlay, windows, promises.
        footprint: (usize, usize, usize),
    },
}
