//! The model of one site: its durable image, what was destroyed there, its sessions, what it has in
//! flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use consign_core::config::Config;
use consign_core::id::{BlobDigest, BlobNo, ConnId, Epoch, SegmentId, Seq, SiteNo, TransferNo};
use consign_core::ledger::rows::{Body, SegmentRow};
use consign_core::ledger::rows_upkeep::ExportState;
use consign_core::segment::Destinations;
use consign_core::time::{Instant, Now};
use consign_core::wire::Wanted;

use super::disk::{Disk, Tally};
use super::pickup::Shards;
use super::rows::Name;
use super::rules::Past;
use super::turn::Clock;
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// Connections that are remembered; older ones have long been over.
const LINKS: usize = 256;

/// What a peer's answer to an attempt was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// ACK of this segment, in the epoch of the claim.
    Ack,
    /// ACK of another segment.
    Other,
    /// REJECT.
    Reject { code: u8, retry_after: u64 },
}

/// A delivery that is in flight.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// Epoch of the session that claimed it.
    pub epoch: Epoch,
    /// Where it was offered, once it was, and the site's monotonic clock then.
    pub offered: Option<(ConnId, TransferNo, Instant)>,
    /// The first answer in that session, and the site's wall clock then.
    pub answer: Option<(Answer, u64)>,
}

/// An offer of the peer that waits for an answer.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub id: SegmentId,
    pub digest: BlobDigest,
    pub to: Destinations,
    pub origin: String,
    /// Its accept number at its origin.
    pub origin_seq: u64,
    /// Whether it was held when the offer came.
    pub held: bool,
    /// What was kept of it and known to be doubtful by then.
    pub doubted: Option<Body>,
    /// When it came.
    pub at: Micros,
}

/// A connection with a peer.
#[derive(Debug, Default)]
pub(super) struct Link {
    /// When it began.
    pub born: Micros,
    /// What its session was made with.
    pub ack_timeout: Option<Duration>,
    /// The epoch that this site said HELLO with.
    pub mine: Option<Epoch>,
    /// The epoch that the peer said HELLO with.
    pub theirs: Option<Epoch>,
    /// What this site has offered.
    pub out: BTreeMap<TransferNo, (Seq, Vec<SiteNo>)>,
    /// ACKs that the node has let go.
    pub let_go: BTreeSet<(TransferNo, SegmentId)>,
    /// What the peer wants of this site.
    pub wants: BTreeSet<Wanted>,
    /// What the peer has offered.
    pub asked: BTreeMap<TransferNo, Asked>,
}

/// Connections of the running process.
#[derive(Debug, Default)]
pub(super) struct Links {
    open: BTreeMap<ConnId, Link>,
    order: VecDeque<ConnId>,
}

impl Links {
    pub fn clear(&mut self) {
        *self = Links::default();
    }

    /// What the session of a connection was made with, if it is still known.
    pub fn ack_timeout(&self, conn: ConnId) -> Option<Duration> {
        self.open.get(&conn).and_then(|link| link.ack_timeout)
    }

    /// What is kept of a segment is known to be whole: whoever has offered it may be answered for it.
    pub fn is_whole(&mut self, id: &SegmentId) {
        let asked = self.open.values_mut().flat_map(|link| link.asked.values_mut());
        for asked in asked.filter(|asked| asked.id == *id) {
            asked.doubted = None;
        }
    }

    /// A connection, new or known.
    pub fn get(&mut self, conn: ConnId) -> &mut Link {
        // What was used longest ago is forgotten: a session may outlive many dials that came to nothing.
        match self.order.iter().position(|known| *known == conn) {
            Some(at) => drop(self.order.remove(at)),
            None if self.order.len() >= LINKS => {
                let oldest = self.order.pop_front();
                oldest.and_then(|oldest| self.open.remove(&oldest));
            }
            None => {}
        }
        self.order.push_back(conn);
        self.open.entry(conn).or_default()
    }
}

/// What the simulator has destroyed: loss of exactly that is excused.
#[derive(Debug, Default)]
pub(super) struct Harm {
    pub files: BTreeSet<BlobNo>,
    pub rows: BTreeSet<Name>,
}

impl Harm {
    pub fn row(&self, name: &Name) -> bool {
        !self.rows.is_empty() && self.rows.contains(name)
    }

    pub fn segment(&self, seq: Seq) -> bool {
        self.row(&Name::Segment(seq))
    }

    /// Anything that says where a delivery stands.
    pub fn delivery(&self, seq: Seq, site: SiteNo) -> bool {
        let of = |name: &Name| match name {
            Name::Segment(s) => *s == seq,
            Name::Delivery(s, at) | Name::Owed(at, s) | Name::Inflight(at, s) => {
                (*s, *at) == (seq, site)
            }
            Name::Due(key) => (key.seq, key.peer) == (seq, site),
            Name::Deadletter(_, s, at) => (*s, *at) == (seq, site),
            _ => false,
        };
        self.rows.iter().any(of)
    }
}

/// Whether a site holds a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    /// What it held was destroyed.
    Harmed,
    /// Why not.
    No(String),
}

/// The process of a site.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub running: bool,
    /// Boot number of the last process.
    pub boot: u64,
    /// Deliveries that were in flight when it started.
    pub found: u64,
    /// Whether it was asked to stop.
    pub stopping: bool,
    /// The site's clocks in the first turn after that.
    pub stop_at: Option<Now>,
    /// Turns after the drain's end.
    pub overtime: u32,
    /// Whether start-up reconciliation has come to its end.
    pub reconciled: bool,
    /// Value of the file counter at the start.
    pub below: BlobNo,
    /// Session numbers that were said in a HELLO of this boot.
    pub said: BTreeSet<u64>,
    /// Session numbers that were up in this boot.
    pub up: BTreeSet<u64>,
    /// Epochs of sessions that are up, by the name of the peer.
    pub live: BTreeMap<String, Epoch>,
}

/// A site.
#[derive(Debug)]
pub(super) struct Site {
    pub config: Config,
    /// What it went by before.
    pub past: Past,
    pub life: Life,
    pub clock: Clock,
    pub disk: Disk,
    /// Files that are whole and durable: length and digest.
    pub files: BTreeMap<BlobNo, (u64, BlobDigest)>,
    pub harm: Harm,
    /// An older ledger was put back: nothing is known of this site before the next deep check.
    pub lost_track: bool,
    /// … or was, once.
    pub rolled_back: bool,
    /// Bytes that must be charged.
    pub charged: i128,
    /// Deliveries by peer and state.
    pub tally: BTreeMap<(SiteNo, u8), Tally>,
    pub claims: BTreeMap<(SiteNo, Seq), Claim>,
    /// Durable claims of this boot that were not offered yet, by session. An offer may be written after
    /// its delivery has failed with its session.
    pub unsaid: BTreeMap<(u64, SiteNo, Seq), u32>,
    /// How far content of a peer has ever been durable in this boot.
    pub reached: BTreeMap<(BlobDigest, SiteNo), u64>,
    /// Deliveries that left an index while their rows could not be read.
    pub set_aside: BTreeSet<(Seq, SiteNo)>,
    /// Deliveries that left the required set: the peer had it and let it go.
    pub settled: BTreeSet<(Seq, SiteNo)>,
    /// Dead letters that the newest batch has queued again.
    pub revived: BTreeSet<(Seq, SiteNo)>,
    /// The newest row of a segment, even when its identity is not looked up any more.
    pub newest: BTreeMap<SegmentId, Seq>,
    /// Segments that were removed as the policy allows, and the last number they had.
    pub removed: BTreeMap<SegmentId, Seq>,
    /// Those that the newest batch has removed and accepted anew.
    pub replaced: BTreeSet<SegmentId>,
    pub links: Links,
    /// Rows that the node said it has set aside.
    pub told: BTreeSet<String>,
    /// What segments were known as before their origin accepted them anew: origin, number, hops.
    pub former: BTreeSet<(Seq, String, u64, u8)>,
    /// RECEIPTs that came: segment, destination, from whom, the cause of a failure.
    pub heard: BTreeSet<(SegmentId, String, SiteIx, u8)>,
    /// Receipts that were ever on disk: segment, destination, whether it was delivered.
    pub said: BTreeSet<(SegmentId, String, bool)>,
    /// Deliveries that a hop's receipt has ended.
    pub confirmed: BTreeSet<(SegmentId, String)>,
    /// What was ever remembered: origins and their accept numbers.
    pub recalled: BTreeMap<SegmentId, Vec<(String, u64)>>,
    /// Copies that were acknowledged to somebody who addressed this site itself: by number, because one that
    /// has lost its content may stand beside a later one of the same identity.
    pub addressed: BTreeSet<Seq>,
    /// Segments that an inbox rule has given out.
    pub given_out: BTreeSet<Seq>,
    /// Segments whose content was destroyed before it was doubted.
    pub doubted_rightly: BTreeSet<Seq>,
    /// Words of what operators have asked for here.
    pub acts: BTreeSet<String>,
    /// Whether this process has said that something does not fit: what may go later then goes at once.
    pub short: bool,
    /// What is known of its shards beside their rows.
    pub pickup: Shards,
    /// Rows were destroyed on which shards rest: nothing is said of them any more.
    pub pickup_harmed: bool,
}

impl Site {
    pub fn new(config: Config) -> Site {
        let mut site = Site {
            config: Config::default(),
            past: Past::default(),
            life: Life::default(),
            clock: Clock::default(),
            disk: Disk::default(),
            files: BTreeMap::new(),
            harm: Harm::default(),
            lost_track: false,
            rolled_back: false,
            charged: 0,
            tally: BTreeMap::new(),
            claims: BTreeMap::new(),
            unsaid: BTreeMap::new(),
            reached: BTreeMap::new(),
            set_aside: BTreeSet::new(),
            settled: BTreeSet::new(),
            revived: BTreeSet::new(),
            newest: BTreeMap::new(),
            removed: BTreeMap::new(),
            replaced: BTreeSet::new(),
            links: Links::default(),
            told: BTreeSet::new(),
            former: BTreeSet::new(),
            heard: BTreeSet::new(),
            said: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            recalled: BTreeMap::new(),
            addressed: BTreeSet::new(),
            given_out: BTreeSet::new(),
            doubted_rightly: BTreeSet::new(),
            acts: BTreeSet::new(),
            short: false,
            pickup: Shards::default(),
            pickup_harmed: false,
        };
        site.starts_with(config);
        site
    }

    /// Takes the rows that are really there for what is known.
    pub fn adopt(&mut self, disk: Disk) {
        self.charged = i128::from(disk.charge());
        self.tally = disk.tally();
        let claim = |epoch: &Epoch| Claim { epoch: *epoch, offered: None, answer: None };
        self.claims = disk.inflight.iter().map(|(key, epoch)| (*key, claim(epoch))).collect();
        let done = disk.exports.iter().filter(|(_, row)| row.state == ExportState::Done);
        self.given_out = done.map(|((_, seq), _)| *seq).collect();
        self.newest = disk.segments.iter().map(|(seq, row)| (row.id, *seq)).collect();
        self.disk = disk;
        self.lost_track = false;
    }

    /// The name of a peer, for people too.
    pub fn peer(&self, no: SiteNo) -> String {
        self.disk.peers.get(&no).cloned().unwrap_or_else(|| format!("site number {no}"))
    }

    pub fn id(&self, seq: Seq) -> Option<SegmentId> {
        self.disk.segments.get(&seq).map(|row| row.id)
    }

    /// Whether bytes of this content were destroyed.
    pub fn is_destroyed(&self, body: Body) -> bool {
        match body {
            Body::Inline(body) => self.harm.row(&Name::Body(body)),
            Body::Blob(blob) => self.harm.files.contains(&blob),
        }
    }

    /// Whether the content of a segment is durable here, byte for byte.
    pub fn content(&self, row: &SegmentRow) -> Holds {
        let is = |size: u64, digest: BlobDigest| {
            if (size, digest) == (row.size, row.digest) {
                return Holds::Yes;
            }
            let (have, want) = (digest.short(), row.digest.short());
            let sizes = format!("{size} bytes instead of {}", row.size);
            Holds::No(format!("its content is {have} with {sizes}, accepted was {want}"))
        };
        match row.body {
            body if self.is_destroyed(body) => Holds::Harmed,
            Body::Inline(body) => match self.disk.bodies.get(&body) {
                Some(inline) => is(inline.size, inline.digest),
                None => Holds::No(format!("body {body} is not on disk")),
            },
            Body::Blob(blob) if !self.disk.blobs.contains_key(&blob) => {
                let harmed = self.harm.row(&Name::Blob(blob));
                let no = Holds::No(format!("file {blob} has no row in blobs"));
                if harmed { Holds::Harmed } else { no }
            }
            Body::Blob(blob) => match self.files.get(&blob) {
                Some((size, digest)) => is(*size, *digest),
                None => Holds::No(format!("file {blob} is not on disk")),
            },
        }
    }

    /// Whether a segment is durable here.
    pub fn holds(&self, id: &SegmentId) -> Holds {
        if self.lost_track {
            return Holds::Harmed;
        }
        let seq = self.disk.ids.get(id).or_else(|| self.newest.get(id)).copied();
        let Some(seq) = seq else {
            let harmed = self.harm.row(&Name::Id(*id));
            return if harmed {
                Holds::Harmed
            } else {
                Holds::No("no row has its identity".into())
            };
        };
        match self.disk.segments.get(&seq) {
            Some(row) if row.id == *id => self.content(row),
            Some(row) => Holds::No(format!("number {seq} is segment {}", row.id.short())),
            None if self.harm.segment(seq) => Holds::Harmed,
            None => Holds::No(format!("number {seq} has no row")),
        }
    }

    /// What is kept of a segment, if the site knows that something is wrong with it.
    pub fn doubts(&self, id: &SegmentId) -> Option<Body> {
        let row = self.disk.segments.get(self.disk.ids.get(id)?)?;
        row.loss.filter(|_| !self.lost_track).map(|_| row.body)
    }

    /// Whether content of a segment was destroyed.
    pub fn is_harmed(&self, seq: Seq) -> bool {
        self.harm.segment(seq)
            || self.disk.segments.get(&seq).is_some_and(|row| {
                self.content(row) == Holds::Harmed || self.harm.row(&Name::Id(row.id))
            })
    }

    /// Whether it cannot be told any more where a delivery stands.
    pub fn excuses(&self, seq: Seq, site: SiteNo) -> bool {
        (!self.set_aside.is_empty() && self.set_aside.contains(&(seq, site)))
            || (!self.harm.rows.is_empty() && self.harm.delivery(seq, site))
    }
}
