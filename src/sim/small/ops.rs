//! What small worlds are made of: operations, choices, and how both are said in words.

use std::fmt;

use consign_core::id::{BlobDigest, ConnId, ReadNo, SegmentId};
use consign_core::segment::{Meta, segment_id};

use crate::sim::seen::SiteIx;

/// Names of the two sites.
pub const NAMES: [&str; 2] = ["alpha", "beta"];
/// Content up to this many bytes is kept inline in a small world.
pub const INLINE: u64 = 64;
/// Distance of checkpoints in a small world, and the longest piece of content in one frame.
pub const CHECKPOINT: u64 = 2_048;
/// Length of content in a file: two checkpoints and a rest.
const FILE: usize = 5_000;

/// The other site.
#[must_use]
pub fn other(site: SiteIx) -> SiteIx {
    1 - site
}

/// A segment that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Small enough to be kept inline.
    Small,
    /// The same content as [`What::Small`] under another name.
    SmallTwin,
    /// Another small content.
    Back,
    /// Content that is kept in a file.
    File,
    /// The same content as [`What::File`] under another name.
    FileTwin,
}

impl What {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            What::Small => "small",
            What::SmallTwin => "small-twin",
            What::Back => "back",
            What::File => "file",
            What::FileTwin => "file-twin",
        }
    }

    /// Its content.
    #[must_use]
    pub fn content(self) -> Vec<u8> {
        match self {
            What::Small | What::SmallTwin => b"a small content".to_vec(),
            What::Back => b"what goes back".to_vec(),
            What::File | What::FileTwin => {
                (0..FILE as u64).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect()
            }
        }
    }

    /// Its metadata.
    #[must_use]
    pub fn meta(self) -> Meta {
        Meta { name: self.name().to_string(), ..Meta::default() }
    }

    /// Digest of its content.
    #[must_use]
    pub fn digest(self) -> BlobDigest {
        BlobDigest(*blake3::hash(&self.content()).as_bytes())
    }

    /// Its identity.
    #[must_use]
    pub fn id(self) -> SegmentId {
        segment_id(&self.meta(), &self.digest())
    }
}

/// An operation of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A local client at this site hands in a segment for the other site.
    Send(SiteIx, What),
    /// Every connection breaks, and what is on its way is lost.
    Cut,
    /// The power goes at this site.
    Crash(SiteIx),
}

impl Op {
    /// Every operation that workloads are made of.
    pub const ALL: [Op; 8] = [
        Op::Send(0, What::Small),
        Op::Send(0, What::SmallTwin),
        Op::Send(1, What::Back),
        Op::Send(0, What::File),
        Op::Send(0, What::FileTwin),
        Op::Cut,
        Op::Crash(0),
        Op::Crash(1),
    ];
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Send(site, what) => write!(f, "{} sends {}", NAMES[*site], what.name()),
            Op::Cut => f.write_str("the connection breaks"),
            Op::Crash(site) => write!(f, "{} loses power", NAMES[*site]),
        }
    }
}

/// Every workload of `len` operations out of `ops`, in order, but for those that are another one
/// with the names of twins exchanged: a twin comes after the segment whose content it shares.
#[must_use]
pub fn workloads(ops: &[Op], len: usize) -> Vec<Vec<Op>> {
    let mut all = vec![Vec::new()];
    for _ in 0..len {
        let longer = |w: &Vec<Op>| {
            ops.iter().map(|op| w.iter().copied().chain([*op]).collect()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.retain(|workload| {
        let at = |op: Op| workload.iter().position(|o| *o == op).unwrap_or(usize::MAX);
        let first = |one, twin| at(Op::Send(0, one)) <= at(Op::Send(0, twin));
        first(What::Small, What::SmallTwin) && first(What::File, What::FileTwin)
    });
    all
}

/// One step that a small world may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Choice {
    /// The process starts on what its store holds.
    Start(SiteIx),
    /// A site learns that a connection is gone.
    Notice(SiteIx, ConnId),
    /// The store carries out the next file request of a connection.
    File(SiteIx, ConnId),
    /// The batch that was handed over becomes durable.
    Durable(SiteIx),
    /// The node's queue gets the answer of that commit.
    Told(SiteIx),
    /// A read sees the ledger as it is now.
    Look(SiteIx, ReadNo),
    /// The node's queue gets the answer of that read.
    Answer(SiteIx, ReadNo),
    /// All reads look at the ledger and are answered.
    Answers(SiteIx),
    /// Everything on its way to a connection arrives.
    Arrive(SiteIx, ConnId),
    /// The first half of it arrives.
    Half(SiteIx, ConnId),
    /// A session hears what the node has to say.
    Word(SiteIx, ConnId),
    /// A dial that the node asked for comes through, or fails.
    Dial(SiteIx),
    /// The file of a doomed blob is removed.
    Unlink(SiteIx),
    /// The node's loop goes round once: it takes everything in its queue.
    Turn(SiteIx),
    /// The next operation of the workload begins.
    Next,
    /// Time passes to the next deadline. Possible when nothing else is.
    Wait,
    /// The process dies; what it wrote to files stays.
    Kill(SiteIx),
    /// The power goes: what was not synced is lost.
    PowerCut(SiteIx),
}

impl Choice {
    /// Whether it is a fault, which runs out, and not the world going on.
    #[must_use]
    pub fn is_fault(self) -> bool {
        match self {
            Choice::Kill(_) | Choice::PowerCut(_) => true,
            Choice::Start(_)
            | Choice::Notice(..)
            | Choice::File(..)
            | Choice::Durable(_)
            | Choice::Told(_)
            | Choice::Look(..)
            | Choice::Answer(..)
            | Choice::Answers(_)
            | Choice::Arrive(..)
            | Choice::Half(..)
            | Choice::Word(..)
            | Choice::Dial(_)
            | Choice::Unlink(_)
            | Choice::Turn(_)
            | Choice::Next
            | Choice::Wait => false,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |site: &SiteIx| NAMES[*site];
        match self {
            Choice::Start(s) => write!(f, "{} starts", name(s)),
            Choice::Notice(s, c) => write!(f, "{} learns that connection {c} is gone", name(s)),
            Choice::File(s, c) => write!(f, "{}: a file request of {c} is done", name(s)),
            Choice::Durable(s) => write!(f, "{}: the batch becomes durable", name(s)),
            Choice::Told(s) => write!(f, "{}: the commit is answered", name(s)),
            Choice::Look(s, n) => write!(f, "{}: read {n} looks at the ledger", name(s)),
            Choice::Answer(s, n) => write!(f, "{}: read {n} is answered", name(s)),
            Choice::Answers(s) => write!(f, "{}: its reads are answered", name(s)),
            Choice::Arrive(s, c) => write!(f, "{}: bytes arrive on {c}", name(s)),
            Choice::Half(s, c) => write!(f, "{}: half of the bytes arrive on {c}", name(s)),
            Choice::Word(s, c) => write!(f, "{}: session {c} hears its node", name(s)),
            Choice::Dial(s) => write!(f, "{}: its dial is answered", name(s)),
            Choice::Unlink(s) => write!(f, "{}: a doomed file is removed", name(s)),
            Choice::Turn(s) => write!(f, "{}: the node takes a turn", name(s)),
            Choice::Next => f.write_str("the next operation begins"),
            Choice::Wait => f.write_str("time passes to the next deadline"),
            Choice::Kill(s) => write!(f, "{} is killed", name(s)),
            Choice::PowerCut(s) => write!(f, "{} loses power", name(s)),
        }
    }
}
