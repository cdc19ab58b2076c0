//! What relief is meant to do, apart from the rows that do it.

use alloc::boxed::Box;

use super::pickup::Job;
use super::remove::Act;
use crate::code::Cause;
use crate::id::{BlobDigest, BlobNo, Epoch, Seq, SiteNo};
use crate::time::UnixMillis;

/// Relief that must not be lost when a commit fails: kept as what was meant, not as row images, and
/// judged again on the freshly read ledger (G3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// An attempt ended.
    Settle { peer: SiteNo, seq: Seq, epoch: Epoch, verdict: Verdict },
    /// Content being received is given up.
    Doom { blob: BlobNo },
    /// A doomed file is gone.
    Gone { blob: BlobNo },
    /// A source sent content that did not match.
    Mismatch { digest: BlobDigest, source: SiteNo },
    /// Something of pickup.
    Pickup(Box<Job>),
    /// A record of what has happened already.
    Record(Box<Act>),
}

/// What an attempt comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Durably held over there.
    Acked,
    /// To be tried again.
    Failed {
        /// Why.
        cause: Cause,
        /// Whether it is the segment's own fault.
        spends: bool,
        /// Not before.
        retry_at: UnixMillis,
        /// Whether it was a refusal that spends nothing.
        refused: bool,
    },
    /// Not to be tried again by itself.
    Dead(Cause),
    /// The destination leaves the required set: it had it, and let it go.
    Settled,
    /// This hop has custody; what becomes of it further on its receipt will tell (R4).
    HandedOn(SiteNo),
}
