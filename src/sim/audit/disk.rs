//! The durable image of one site: what a crash right now would leave of its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use consign_core::id::{BlobDigest, BlobNo, BodyNo, Epoch, SegmentId, Seq, SiteNo};
use consign_core::ledger::keys::{DueKey, id8};
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::rows::{
    BlobRow, Body, CounterRow, DeliveryRow, DoomedRow, IncomingRow, MetaName, SegmentRow,
    SourceRow, State,
};
use consign_core::ledger::rows_upkeep::{
    AuditRow, ExportRow, QuarantineRow, ReceiptRow, RememberedRow,
};
use consign_core::time::UnixMillis;

use super::rows::{Inline, Name, Row};
use super::shards::Tables;

/// The tables.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub meta: BTreeMap<MetaName, u64>,
    pub peers: BTreeMap<SiteNo, String>,
    pub segments: BTreeMap<Seq, SegmentRow>,
    /// Sizes of segments that went while a delivery's row stayed, since it was destroyed: it is still counted.
    pub left_sizes: BTreeMap<Seq, u64>,
    pub ids: BTreeMap<SegmentId, Seq>,
    pub bodies: BTreeMap<BodyNo, Inline>,
    pub blobs: BTreeMap<BlobNo, BlobRow>,
    pub digests: BTreeMap<BlobDigest, BlobNo>,
    pub deliveries: BTreeMap<(Seq, SiteNo), DeliveryRow>,
    pub due: BTreeSet<DueKey>,
    pub owed: BTreeSet<(SiteNo, Seq)>,
    pub inflight: BTreeMap<(SiteNo, Seq), Epoch>,
    pub deadletters: BTreeMap<(u64, Seq, SiteNo), u8>,
    pub expiry: BTreeSet<Vec<u8>>,
    pub doomed: BTreeMap<BlobNo, DoomedRow>,
    pub incoming: BTreeMap<BlobNo, IncomingRow>,
    pub counters: BTreeMap<(SiteNo, u8), CounterRow>,
    pub unmet: BTreeSet<(u64, Seq)>,
    pub owners: BTreeSet<(BlobNo, Seq)>,
    pub sources: BTreeMap<(BlobDigest, SiteNo), SourceRow>,
    pub audit: BTreeMap<u64, AuditRow>,
    /// In custody of a hop.
    pub handed: BTreeSet<(SiteNo, Seq)>,
    pub receipts: BTreeMap<(Seq, SiteNo), ReceiptRow>,
    /// Receipts that a peer has still to be told.
    pub pass_back: BTreeSet<(SiteNo, Seq, SiteNo)>,
    pub remembered: BTreeMap<SegmentId, RememberedRow>,
    pub remembered_age: BTreeSet<(u64, SegmentId)>,
    pub exports: BTreeMap<(RuleId, Seq), ExportRow>,
    pub quarantine: BTreeMap<Vec<u8>, QuarantineRow>,
    pub pickup: Tables,
}

impl Disk {
    /// A counter of `meta`; a missing one counts as 0.
    pub fn meta(&self, name: MetaName) -> u64 {
        self.meta.get(&name).copied().unwrap_or(0)
    }

    /// The number of a peer, by its name.
    pub fn number_of(&self, name: &str) -> Option<SiteNo> {
        self.peers.iter().find(|(_, known)| *known == name).map(|(no, _)| *no)
    }

    /// Deliveries of a segment.
    pub fn of_segment(&self, seq: Seq) -> impl Iterator<Item = (SiteNo, &DeliveryRow)> {
        self.deliveries
            .range((seq, SiteNo(0))..=(seq, SiteNo(u32::MAX)))
            .map(|((_, site), row)| (*site, row))
    }

    /// How many segments and shards use a file.
    pub fn owners_of(&self, blob: BlobNo) -> u64 {
        let segments = self.owners.range((blob, Seq(0))..=(blob, Seq(u64::MAX))).count();
        (segments + self.pickup.owners_of(blob)) as u64
    }

    /// What must be charged: content in the ledger and in files, reservations, files that are to be
    /// removed.
    pub fn charge(&self) -> u64 {
        let bodies: u64 = self.bodies.values().map(Inline::charge).sum();
        let blobs: u64 = self.blobs.values().map(|row| row.size).sum();
        let reserved: u64 = self.incoming.values().map(|row| row.reserved).sum();
        let doomed: u64 = self.doomed.values().map(|row| row.size).sum();
        bodies + blobs + reserved + doomed + self.pickup.reserved()
    }

    /// What each peer must be charged for, in segments and bytes.
    pub fn inbound(&self) -> BTreeMap<SiteNo, Tally> {
        let mut all: BTreeMap<SiteNo, Tally> = BTreeMap::new();
        let mut add = |site: u32, count: i64, bytes: u64| {
            let tally = all.entry(SiteNo(site)).or_default();
            tally.count += count;
            tally.bytes += i128::from(bytes);
        };
        for row in self.segments.values() {
            let inline = match row.body {
                Body::Inline(body) => self.bodies.get(&body).map_or(0, Inline::charge),
                Body::Blob(_) => 0,
            };
            add(row.from, 1, inline);
        }
        for row in self.blobs.values() {
            add(row.owner.unwrap_or(0), 0, row.size);
        }
        for row in self.incoming.values() {
            add(row.source, 0, row.reserved);
        }
        for row in self.doomed.values() {
            add(row.owner, 0, row.size);
        }
        all.remove(&SiteNo(0));
        all
    }

    /// Deliveries and their bytes, by peer and state.
    pub fn tally(&self) -> BTreeMap<(SiteNo, u8), Tally> {
        let mut tally: BTreeMap<(SiteNo, u8), Tally> = BTreeMap::new();
        for ((seq, site), row) in &self.deliveries {
            let size = self.segments.get(seq).map(|segment| segment.size);
            let size = size.or_else(|| self.left_sizes.get(seq).copied()).unwrap_or(0);
            for at in row.counted_as() {
                tally.entry((*site, at)).or_default().arrives(size);
            }
        }
        tally
    }

    /// Writes a row. Returns whether there was one.
    pub fn set(&mut self, row: Row) -> bool {
        match row {
            Row::Meta(name, value) => self.meta.insert(name, value).is_some(),
            Row::Peer(site, name) => self.peers.insert(site, name).is_some(),
            Row::Segment(seq, row) => self.segments.insert(seq, *row).is_some(),
            Row::Id(id, seq) => self.ids.insert(id, seq).is_some(),
            Row::Body(body, inline) => self.bodies.insert(body, inline).is_some(),
            Row::Blob(blob, row) => self.blobs.insert(blob, row).is_some(),
            Row::Digest(digest, blob) => self.digests.insert(digest, blob).is_some(),
            Row::Delivery(seq, site, row) => self.deliveries.insert((seq, site), row).is_some(),
            Row::Due(key) => !self.due.insert(key),
            Row::Owed(site, seq) => !self.owed.insert((site, seq)),
            Row::Inflight(site, seq, epoch) => self.inflight.insert((site, seq), epoch).is_some(),
            Row::Deadletter(at, seq, site, cause) => {
                self.deadletters.insert((at, seq, site), cause).is_some()
            }
            Row::Expiry(key) => !self.expiry.insert(key),
            Row::Doomed(blob, row) => self.doomed.insert(blob, row).is_some(),
            Row::Incoming(blob, row) => self.incoming.insert(blob, row).is_some(),
            Row::Counter(site, state, row) => self.counters.insert((site, state), row).is_some(),
            Row::Unmet(at, seq) => !self.unmet.insert((at, seq)),
            Row::Owner(blob, seq) => !self.owners.insert((blob, seq)),
            Row::Source(digest, site, row) => self.sources.insert((digest, site), row).is_some(),
            Row::Audit(number, row) => self.audit.insert(number, *row).is_some(),
            Row::Handed(site, seq) => !self.handed.insert((site, seq)),
            Row::Receipt(seq, site, row) => self.receipts.insert((seq, site), *row).is_some(),
            Row::PassBack(peer, seq, site) => !self.pass_back.insert((peer, seq, site)),
            Row::Remembered(id, row) => self.remembered.insert(id, *row).is_some(),
            Row::RememberedAge(at, id) => !self.remembered_age.insert((at, id)),
            Row::Export(rule, seq, row) => self.exports.insert((rule, seq), *row).is_some(),
            Row::Quarantine(what, row) => self.quarantine.insert(what, *row).is_some(),
            Row::Pickup(row) => self.pickup.set(row),
            Row::Foreign => false,
        }
    }

    /// Removes a row. Returns whether there was one.
    pub fn unset(&mut self, name: &Name) -> bool {
        match name {
            Name::Meta(name) => self.meta.remove(name).is_some(),
            Name::Peer(site) => self.peers.remove(site).is_some(),
            Name::Segment(seq) => self.unset_segment(*seq),
            Name::Id(id) => self.ids.remove(id).is_some(),
            Name::Body(body) => self.bodies.remove(body).is_some(),
            Name::Blob(blob) => self.blobs.remove(blob).is_some(),
            Name::Digest(digest) => self.digests.remove(digest).is_some(),
            Name::Delivery(seq, site) => self.deliveries.remove(&(*seq, *site)).is_some(),
            Name::Due(key) => self.due.remove(key),
            Name::Owed(site, seq) => self.owed.remove(&(*site, *seq)),
            Name::Inflight(site, seq) => self.inflight.remove(&(*site, *seq)).is_some(),
            Name::Deadletter(at, seq, site) => {
                self.deadletters.remove(&(*at, *seq, *site)).is_some()
            }
            Name::Expiry(key) => self.expiry.remove(key),
            Name::Doomed(blob) => self.doomed.remove(blob).is_some(),
            Name::Incoming(blob) => self.incoming.remove(blob).is_some(),
            Name::Counter(site, state) => self.counters.remove(&(*site, *state)).is_some(),
            Name::Unmet(at, seq) => self.unmet.remove(&(*at, *seq)),
            Name::Owner(blob, seq) => self.owners.remove(&(*blob, *seq)),
            Name::Source(digest, site) => self.sources.remove(&(*digest, *site)).is_some(),
            Name::Audit(number) => self.audit.remove(number).is_some(),
            Name::Handed(site, seq) => self.handed.remove(&(*site, *seq)),
            Name::Receipt(seq, site) => self.receipts.remove(&(*seq, *site)).is_some(),
            Name::PassBack(peer, seq, site) => self.pass_back.remove(&(*peer, *seq, *site)),
            Name::Remembered(id) => self.remembered.remove(id).is_some(),
            Name::RememberedAge(at, id) => self.remembered_age.remove(&(*at, *id)),
            Name::Export(rule, seq) => self.exports.remove(&(*rule, *seq)).is_some(),
            Name::Quarantine(what) => self.quarantine.remove(what).is_some(),
            Name::Pickup(name) => self.pickup.unset(name),
            Name::Foreign => false,
        }
    }

    fn unset_segment(&mut self, seq: Seq) -> bool {
        let Some(row) = self.segments.remove(&seq) else { return false };
        if self.of_segment(seq).next().is_some() {
            self.left_sizes.insert(seq, row.size);
        }
        true
    }

    /// The first row that is here and not in `real`, or there and not here, or not the same; rows that
    /// were destroyed do not count.
    pub fn differs(&self, real: &Disk, harmed: &BTreeSet<Name>) -> Option<String> {
        let (a, b) = (self, real);
        let blank = |set: &'static str| (set, harmed);
        maps(blank("meta"), &a.meta, &b.meta, |k| Name::Meta(*k))
            .or_else(|| maps(blank("peers"), &a.peers, &b.peers, |k| Name::Peer(*k)))
            .or_else(|| maps(blank("segments"), &a.segments, &b.segments, |k| Name::Segment(*k)))
            .or_else(|| maps(blank("ids"), &a.ids, &b.ids, |k| Name::Id(*k)))
            .or_else(|| maps(blank("bodies"), &a.bodies, &b.bodies, |k| Name::Body(*k)))
            .or_else(|| maps(blank("blobs"), &a.blobs, &b.blobs, |k| Name::Blob(*k)))
            .or_else(|| maps(blank("digests"), &a.digests, &b.digests, |k| Name::Digest(*k)))
            .or_else(|| {
                let name = |k: &(Seq, SiteNo)| Name::Delivery(k.0, k.1);
                maps(blank("deliveries"), &a.deliveries, &b.deliveries, name)
            })
            .or_else(|| sets(blank("due"), &a.due, &b.due, |k| Name::Due(*k)))
            .or_else(|| sets(blank("owed"), &a.owed, &b.owed, |k| Name::Owed(k.0, k.1)))
            .or_else(|| {
                let name = |k: &(SiteNo, Seq)| Name::Inflight(k.0, k.1);
                maps(blank("inflight"), &a.inflight, &b.inflight, name)
            })
            .or_else(|| {
                let name = |k: &(u64, Seq, SiteNo)| Name::Deadletter(k.0, k.1, k.2);
                maps(blank("deadletters"), &a.deadletters, &b.deadletters, name)
            })
            .or_else(|| sets(blank("expiry"), &a.expiry, &b.expiry, |k| Name::Expiry(k.clone())))
            .or_else(|| maps(blank("doomed"), &a.doomed, &b.doomed, |k| Name::Doomed(*k)))
            .or_else(|| maps(blank("incoming"), &a.incoming, &b.incoming, |k| Name::Incoming(*k)))
            .or_else(|| {
                let name = |k: &(SiteNo, u8)| Name::Counter(k.0, k.1);
                maps(blank("counters"), &a.counters, &b.counters, name)
            })
            .or_else(|| sets(blank("unmet"), &a.unmet, &b.unmet, |k| Name::Unmet(k.0, k.1)))
            .or_else(|| sets(blank("owners"), &a.owners, &b.owners, |k| Name::Owner(k.0, k.1)))
            .or_else(|| {
                let name = |k: &(BlobDigest, SiteNo)| Name::Source(k.0, k.1);
                maps(blank("sources"), &a.sources, &b.sources, name)
            })
            .or_else(|| maps(blank("audit"), &a.audit, &b.audit, |k| Name::Audit(*k)))
            .or_else(|| a.differs_in_memory(b, harmed))
    }

    /// The same for what outlives a segment, or is about where it went.
    fn differs_in_memory(&self, real: &Disk, harmed: &BTreeSet<Name>) -> Option<String> {
        let (a, b) = (self, real);
        let blank = |set: &'static str| (set, harmed);
        sets(blank("handed"), &a.handed, &b.handed, |k| Name::Handed(k.0, k.1))
            .or_else(|| {
                let name = |k: &(Seq, SiteNo)| Name::Receipt(k.0, k.1);
                maps(blank("receipts"), &a.receipts, &b.receipts, name)
            })
            .or_else(|| {
                let name = |k: &(SiteNo, Seq, SiteNo)| Name::PassBack(k.0, k.1, k.2);
                sets(blank("pass_back"), &a.pass_back, &b.pass_back, name)
            })
            .or_else(|| {
                let name = |k: &SegmentId| Name::Remembered(*k);
                maps(blank("remembered"), &a.remembered, &b.remembered, name)
            })
            .or_else(|| {
                let name = |k: &(u64, SegmentId)| Name::RememberedAge(k.0, k.1);
                sets(blank("remembered_age"), &a.remembered_age, &b.remembered_age, name)
            })
            .or_else(|| {
                let name = |k: &(RuleId, Seq)| Name::Export(k.0, k.1);
                maps(blank("exports"), &a.exports, &b.exports, name)
            })
            .or_else(|| {
                let name = |k: &Vec<u8>| Name::Quarantine(k.clone());
                maps(blank("quarantine"), &a.quarantine, &b.quarantine, name)
            })
            .or_else(|| a.pickup.differs(&b.pickup, harmed))
    }
}

/// Deliveries and their bytes. Signed, so that a model that is wrong says so instead of panicking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub count: i64,
    pub bytes: i128,
}

impl Tally {
    pub fn arrives(&mut self, size: u64) {
        self.count += 1;
        self.bytes += i128::from(size);
    }

    pub fn leaves(&mut self, size: u64) {
        self.count -= 1;
        self.bytes -= i128::from(size);
    }

    /// Whether a row of `counters` says the same.
    pub fn is(&self, row: &CounterRow) -> bool {
        i128::from(self.count) == i128::from(row.count) && self.bytes == i128::from(row.bytes)
    }
}

/// The key in `due` of a delivery that waits.
pub(super) fn due_key(site: SiteNo, seq: Seq, at: u64, segment: &SegmentRow) -> DueKey {
    let (class, id8) = (segment.meta.class, id8(&segment.id));
    DueKey { peer: site, class, at: UnixMillis(at), id8, seq }
}

/// Whether it waits for its turn.
pub(super) fn waits(state: State) -> bool {
    matches!(state, State::Scheduled | State::Failed)
}

pub(super) type Of<'a> = (&'static str, &'a BTreeSet<Name>);

pub(super) fn maps<K: Ord + Debug, V: PartialEq + Debug>(
    (table, harmed): Of<'_>,
    model: &BTreeMap<K, V>,
    real: &BTreeMap<K, V>,
    name: impl Fn(&K) -> Name,
) -> Option<String> {
    let excused = |key: &K| !harmed.is_empty() && harmed.contains(&name(key));
    let lost = model.iter().find(|(k, v)| real.get(k) != Some(v) && !excused(k));
    if let Some((key, row)) = lost {
        let there = real.get(key);
        return Some(format!("{table} {key:?}: {row:?} was written, {there:?} is there"));
    }
    let extra = real.iter().find(|(k, _)| !model.contains_key(k) && !excused(k));
    extra.map(|(key, row)| format!("{table} {key:?}: nothing was written, {row:?} is there"))
}

pub(super) fn sets<K: Ord + Debug>(
    (table, harmed): Of<'_>,
    model: &BTreeSet<K>,
    real: &BTreeSet<K>,
    name: impl Fn(&K) -> Name,
) -> Option<String> {
    let excused = |key: &&K| !harmed.is_empty() && harmed.contains(&name(key));
    let lost = model.difference(real).find(|k| !excused(k));
    if let Some(key) = lost {
        return Some(format!("{table} {key:?} was written and is not there"));
    }
    let extra = real.difference(model).find(|k| !excused(k));
    extra.map(|key| format!("{table} {key:?} is there and was never written"))
}
