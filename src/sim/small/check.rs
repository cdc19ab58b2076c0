//! The promises a small world must keep, checked after everything that changes a store or leaves a
//! site. Small and obvious, and no part of the core decides anything here: rows are decoded with
//! the ledger's codec, the rest is counted anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use consign_core::id::{BlobDigest, BlobNo, Epoch, SegmentId, Seq, SiteNo};
use consign_core::ledger::rows::{
    BlobRow, Body, CounterRow, DeadletterRow, DeliveryRow, DoomedRow, INBOUND, IdRow, IncomingRow,
    InflightRow, MetaName, MetaRow, SegmentRow, State,
};
use consign_core::ledger::{Table, codec, keys};
use consign_core::mem::{MemSnapshot, MemStore};
use consign_core::store::Snapshot;

use super::ops::{NAMES, other};
use super::site::print;
use crate::sim::seen::SiteIx;

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which one, as a sentence that should hold.
    pub promise: &'static str,
    /// What was found instead.
    pub found: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken promise: {}\n  {}", self.promise, self.found)
    }
}

/// Whether what was told to others, or stands in the ledger, is true.
pub type Checked = Result<(), Broken>;

pub(super) fn broken<T>(promise: &'static str, found: String) -> Result<T, Broken> {
    Err(Broken { promise, found })
}

const SAFE: &str = "what a client was told is queued is durable here, row and content (I1)";
const HELD: &str = "what was acknowledged to the peer is durable here, row and content (I1)";
const ACKED: &str = "a delivery is Acked only if the peer has acknowledged it (I3)";
const ATTEMPTS: &str =
    "attempts grow, are durable before an offer leaves, and are never reset (I6)";
const SPENT: &str = "`spent` rises only for a segment's own failures, never past its limit (I6)";
const CLAIMED: &str = "an offer leaves only for a durable claim of its session's epoch (I7, I8)";
const COUNTS: &str = "counters, usage and indexes agree with the rows they count (I10)";
const FILES: &str = "every file belongs to a row and every row to a whole file (I16)";
const REST: &str = "once faults stop, everything owed is Acked and nothing is left over (I28)";

/// What is known of one site from outside.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Clients were told that these are safe.
    safe: BTreeSet<SegmentId>,
    /// The peer was told that these are held.
    acked: BTreeSet<SegmentId>,
    /// Durable attempts so far.
    attempts: BTreeMap<(Seq, SiteNo), u64>,
    /// Claims that were durable once.
    claims: BTreeSet<(SegmentId, Epoch)>,
    /// Offers that left.
    offers: BTreeMap<SegmentId, u64>,
}

/// The checker: what was said so far by both sites.
#[derive(Clone, Debug, Default)]
pub struct Check {
    sites: [Rc<Known>; 2],
    /// Failures of its own that any one segment may have had; only failing stores cause any.
    pub(super) spent_max: u32,
    print: u128,
}

impl Check {
    /// A fingerprint of what is known.
    #[must_use]
    pub fn print(&self) -> u128 {
        self.print
    }

    fn printed(&mut self) {
        self.print = print(&format!("{:?}", self.sites));
    }

    /// A client hears that its segment is safe.
    ///
    /// # Errors
    /// When it is not.
    pub fn told_safe(&mut self, site: SiteIx, id: SegmentId, store: &MemStore) -> Checked {
        Rc::make_mut(&mut self.sites[site]).safe.insert(id);
        self.printed();
        must_hold(SAFE, site, id, store)
    }

    /// An ACK leaves.
    ///
    /// # Errors
    /// When the segment is not held.
    pub fn ack_sent(&mut self, site: SiteIx, id: SegmentId, store: &MemStore) -> Checked {
        Rc::make_mut(&mut self.sites[site]).acked.insert(id);
        self.printed();
        must_hold(HELD, site, id, store)
    }

    /// An OFFER leaves on a session of this epoch.
    ///
    /// # Errors
    /// When no durable claim stands behind it.
    pub fn offer_sent(
        &mut self,
        site: SiteIx,
        id: SegmentId,
        epoch: Epoch,
        store: &MemStore,
    ) -> Checked {
        let known = Rc::make_mut(&mut self.sites[site]);
        let offers = known.offers.entry(id).or_default();
        *offers += 1;
        let offers = *offers;
        let claimed = known.claims.contains(&(id, epoch));
        self.printed();
        if !claimed {
            let id = id.short();
            return broken(CLAIMED, format!("{}: {id} in epoch {epoch}", NAMES[site]));
        }
        let snapshot = store.snapshot();
        let seq = read_row::<IdRow>(&snapshot, Table::Ids, &keys::id(&id))?.map(|row| row.seq);
        let mut attempts = 0;
        rows::<DeliveryRow>(&snapshot, Table::Deliveries, |key, row| {
            if keys::parse_delivery(key).map(|(seq, _)| seq) == seq {
                attempts += row.attempts;
            }
        })?;
        if offers > attempts {
            let found = format!("{}: {offers} offers, {attempts} attempts", NAMES[site]);
            return broken(ATTEMPTS, found);
        }
        Ok(())
    }

    /// The durable state of a site is new: after a commit, a removal, a crash.
    ///
    /// # Errors
    /// The first promise that it breaks.
    pub fn durable(&mut self, site: SiteIx, store: &MemStore) -> Checked {
        let snapshot = store.snapshot();
        for (ids, promise) in [(&self.sites[site].safe, SAFE), (&self.sites[site].acked, HELD)] {
            for id in ids {
                must_hold(promise, site, *id, store)?;
            }
        }
        let ledger = Ledger::read(&snapshot)?;
        ledger.counts(site, &snapshot)?;
        ledger.files(site, store)?;
        let there = self.sites[other(site)].clone();
        let known = Rc::make_mut(&mut self.sites[site]);
        for ((seq, to), row) in &ledger.deliveries {
            let Some(segment) = ledger.segments.get(seq) else { continue };
            if row.state == State::Acked && !there.acked.contains(&segment.id) {
                return broken(ACKED, format!("{}: {}", NAMES[site], segment.meta.name));
            }
            if row.spent > self.spent_max {
                let found = format!("{}: {}: {}", NAMES[site], segment.meta.name, row.spent);
                return broken(SPENT, found);
            }
            let before = known.attempts.insert((*seq, *to), row.attempts).unwrap_or(0);
            if row.attempts < before {
                let name = &segment.meta.name;
                let found = format!("{}: {name}: {before}, then {}", NAMES[site], row.attempts);
                return broken(ATTEMPTS, found);
            }
        }
        for ((_, seq), row) in &ledger.inflight {
            if let Some(segment) = ledger.segments.get(seq) {
                known.claims.insert((segment.id, row.epoch));
            }
        }
        self.printed();
        Ok(())
    }

    /// Nothing happens any more: everything must have come to its end.
    ///
    /// # Errors
    /// What has not.
    pub fn at_rest(&self, site: SiteIx, store: &MemStore) -> Checked {
        let ledger = Ledger::read(&store.snapshot())?;
        let name = NAMES[site];
        for ((seq, to), row) in &ledger.deliveries {
            if row.state != State::Acked {
                let segment = ledger.segments.get(seq).map_or("?", |s| &s.meta.name);
                let found = format!("{name}: {segment} for {to} is {:?}", row.state);
                return broken(REST, found);
            }
        }
        for id in &self.sites[site].safe {
            if !self.sites[other(site)].acked.contains(id) {
                return broken(REST, format!("{name}: {} has not crossed", id.short()));
            }
        }
        let left = [
            (ledger.incoming.len(), "partial contents"),
            (ledger.doomed.len(), "doomed files"),
            (store.parked(), "parked bodies"),
            (store.quarantined().len(), "quarantined files"),
        ];
        match left.iter().find(|(count, _)| *count > 0) {
            Some((count, what)) => broken(REST, format!("{name}: {count} {what}")),
            None => Ok(()),
        }
    }
}

/// A row that can be read with the ledger's codec.
trait Row: Sized {
    fn decode(table: Table, key: &[u8], value: &[u8]) -> Result<Self, String>;
}

macro_rules! rows_of {
    ($($row:ty),*) => {$(
        impl Row for $row {
            fn decode(table: Table, key: &[u8], value: &[u8]) -> Result<Self, String> {
                codec::decode(table, key, value).map_err(|fault| fault.to_string())
            }
        }
    )*};
}

rows_of!(
    BlobRow,
    CounterRow,
    DeadletterRow,
    DeliveryRow,
    DoomedRow,
    IdRow,
    IncomingRow,
    InflightRow,
    MetaRow,
    SegmentRow
);

fn must_hold(promise: &'static str, site: SiteIx, id: SegmentId, store: &MemStore) -> Checked {
    holds(id, store)
        .or_else(|b| broken(promise, format!("{}: {}: {}", NAMES[site], id.short(), b.found)))
}

/// Whether a crash right now would leave this segment whole.
fn holds(id: SegmentId, store: &MemStore) -> Checked {
    let snapshot = store.snapshot();
    let no = |found: &str| broken(HELD, found.to_string());
    let Some(at) = read_row::<IdRow>(&snapshot, Table::Ids, &keys::id(&id))? else {
        return no("no row under its id");
    };
    let key = keys::seq(at.seq);
    let Some(row) = read_row::<SegmentRow>(&snapshot, Table::Segments, &key)? else {
        return no("no segment row");
    };
    let content = match row.body {
        Body::Inline(body) => match snapshot.get(Table::Bodies, &keys::body(body)) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(_) => return no("no inline body"),
        },
        Body::Blob(blob) => match store.files().find(|(number, _)| *number == blob) {
            Some((_, file)) if file.named => &file.data[..file.synced],
            Some(_) => return no("the name of its file is not durable"),
            None => return no("no file"),
        },
    };
    let digest = BlobDigest(*blake3::hash(content).as_bytes());
    if row.id != id || digest != row.digest { no("other content") } else { Ok(()) }
}

fn read_row<R: Row>(snapshot: &MemSnapshot, table: Table, key: &[u8]) -> Result<Option<R>, Broken> {
    let bad = |fault: String| broken(COUNTS, format!("{table}: {fault}"));
    match snapshot.get(table, key) {
        Ok(value) => value.map(|v| R::decode(table, key, v)).transpose().or_else(bad),
        Err(fault) => bad(fault.to_string()),
    }
}

fn rows<R: Row>(snapshot: &MemSnapshot, table: Table, mut visit: impl FnMut(&[u8], R)) -> Checked {
    let mut bad = None;
    let scanned = snapshot.scan(table, &[], &mut |key, value| {
        match R::decode(table, key, value) {
            Ok(row) => visit(key, row),
            Err(fault) => bad = Some(format!("{table}: {fault}")),
        }
        bad.is_none()
    });
    let bad = bad.or(scanned.err().map(|fault| fault.to_string()));
    bad.map_or(Ok(()), |found| broken(COUNTS, found))
}

/// The rows of one site.
struct Ledger {
    segments: BTreeMap<Seq, SegmentRow>,
    deliveries: BTreeMap<(Seq, SiteNo), DeliveryRow>,
    inflight: BTreeMap<(SiteNo, Seq), InflightRow>,
    blobs: BTreeMap<BlobNo, BlobRow>,
    incoming: BTreeMap<BlobNo, IncomingRow>,
    doomed: BTreeMap<BlobNo, DoomedRow>,
}

impl Ledger {
    fn read(snapshot: &MemSnapshot) -> Result<Ledger, Broken> {
        Ok(Ledger {
            segments: table(snapshot, Table::Segments, |k| keys::parse_u64(k).map(Seq))?,
            deliveries: table(snapshot, Table::Deliveries, keys::parse_delivery)?,
            inflight: table(snapshot, Table::Inflight, keys::parse_peer_seq)?,
            blobs: table(snapshot, Table::Blobs, |k| keys::parse_u64(k).map(BlobNo))?,
            incoming: table(snapshot, Table::Incoming, |k| keys::parse_u64(k).map(BlobNo))?,
            doomed: table(snapshot, Table::Doomed, |k| keys::parse_u64(k).map(BlobNo))?,
        })
    }

    /// Counters, usage and indexes.
    fn counts(&self, site: SiteIx, snapshot: &MemSnapshot) -> Checked {
        let no = |found: String| broken(COUNTS, format!("{}: {found}", NAMES[site]));
        let mut counters = BTreeMap::<Vec<u8>, CounterRow>::new();
        let (mut due, mut owed, mut dead, mut inflight) = (0, 0, 0, BTreeSet::new());
        for ((seq, to), row) in &self.deliveries {
            let Some(segment) = self.segments.get(seq) else {
                return no(format!("a delivery of {seq}, which is not there"));
            };
            for at in row.counted_as() {
                let counter = counters.entry(keys::counter(*to, at).to_vec()).or_default();
                counter.count += 1;
                counter.bytes += segment.size;
            }
            due += usize::from(matches!(row.state, State::Scheduled | State::Failed));
            dead += usize::from(row.state == State::Deadletter);
            owed += usize::from(!matches!(row.state, State::Acked | State::Deadletter));
            if row.state == State::Inflight {
                inflight.insert((*to, *seq));
            }
        }
        counters.extend(self.inbound());
        let mut wrong = None;
        rows::<CounterRow>(snapshot, Table::Counters, |key, row| {
            let counted = counters.remove(key).unwrap_or_default();
            if counted != row {
                wrong = Some(format!("a counter says {row:?}, the rows say {counted:?}"));
            }
        })?;
        if let Some(wrong) = wrong.or(counters.pop_first().map(|c| format!("not counted: {c:?}"))) {
            return no(wrong);
        }
        if !inflight.iter().eq(self.inflight.keys()) {
            return no(format!("inflight {:?}, rows {inflight:?}", self.inflight));
        }
        for (table, counted) in [(Table::Due, due), (Table::Owed, owed), (Table::Deadletters, dead)]
        {
            let rows = count(snapshot, table);
            if rows != counted {
                return no(format!("{table} has {rows} rows, deliveries say {counted}"));
            }
        }
        let mut mute = 0;
        rows::<DeadletterRow>(snapshot, Table::Deadletters, |_, row| {
            mute += usize::from(row.cause == 0);
        })?;
        if mute > 0 {
            return no(format!("{mute} dead letters without a cause"));
        }
        for (name, counted) in
            [(MetaName::UsedBytes, self.used()), (MetaName::Segments, self.segments.len() as u64)]
        {
            let row = read_row::<MetaRow>(snapshot, Table::Meta, name.key())?;
            let said = row.map_or(0, |row| row.value);
            if said != counted {
                return no(format!("{name:?} says {said}, the rows say {counted}"));
            }
        }
        Ok(())
    }

    /// Bytes that must be charged.
    fn used(&self) -> u64 {
        let inline = |s: &SegmentRow| match s.body {
            Body::Inline(_) => s.size + 24,
            Body::Blob(_) => 0,
        };
        self.segments.values().map(inline).sum::<u64>()
            + self.blobs.values().map(|b| b.size).sum::<u64>()
            + self.incoming.values().map(|i| i.reserved).sum::<u64>()
            + self.doomed.values().map(|d| d.size).sum::<u64>()
    }

    /// What is charged for each peer that brought anything.
    fn inbound(&self) -> BTreeMap<Vec<u8>, CounterRow> {
        let mut all = BTreeMap::<Vec<u8>, CounterRow>::new();
        let mut add = |site: u32, count: u64, bytes: u64| {
            if site != 0 {
                let row = all.entry(keys::counter(SiteNo(site), INBOUND).to_vec()).or_default();
                (row.count, row.bytes) = (row.count + count, row.bytes + bytes);
            }
        };
        for s in self.segments.values() {
            let inline = matches!(s.body, Body::Inline(_));
            add(s.from, 1, if inline { s.size + 24 } else { 0 });
        }
        self.blobs.values().for_each(|b| add(b.owner.unwrap_or(0), 0, b.size));
        self.incoming.values().for_each(|i| add(i.source, 0, i.reserved));
        self.doomed.values().for_each(|d| add(d.owner, 0, d.size));
        all
    }

    /// Files against the rows that name them, references against the segments that use them.
    fn files(&self, site: SiteIx, store: &MemStore) -> Checked {
        let no = |found: String| broken(FILES, format!("{}: {found}", NAMES[site]));
        for (blob, row) in &self.blobs {
            let uses = self.segments.values().filter(|s| s.body == Body::Blob(*blob)).count();
            if uses != row.refs as usize {
                return no(format!("blob {blob} has {} references, {uses} segments", row.refs));
            }
            let file = store.files().find(|(number, _)| number == blob);
            if file.is_none_or(|(_, f)| !f.named || f.synced as u64 != row.size) {
                return no(format!("blob {blob} is not whole on the disk"));
            }
        }
        for (blob, row) in &self.incoming {
            let file = store.files().find(|(number, _)| number == blob);
            let durable = file.map_or(0, |(_, f)| if f.named { f.synced as u64 } else { 0 });
            if row.offset > durable {
                return no(format!("partial {blob} says {}, {durable} are durable", row.offset));
            }
        }
        for (blob, _) in store.files() {
            let known = self.blobs.contains_key(&blob)
                || self.incoming.contains_key(&blob)
                || self.doomed.contains_key(&blob);
            if !known {
                return no(format!("file {blob} belongs to no row"));
            }
        }
        Ok(())
    }
}

fn table<K: Ord, R: Row>(
    snapshot: &MemSnapshot,
    table: Table,
    parse: impl Fn(&[u8]) -> Option<K>,
) -> Result<BTreeMap<K, R>, Broken> {
    let mut found = BTreeMap::new();
    rows::<R>(snapshot, table, |key, row| {
        if let Some(key) = parse(key) {
            found.insert(key, row);
        }
    })?;
    Ok(found)
}

fn count(snapshot: &MemSnapshot, table: Table) -> usize {
    let mut rows = 0;
    // Nothing can fail in memory.
    let _ = snapshot.scan(table, &[], &mut |_, _| {
        rows += 1;
        true
    });
    rows
}
