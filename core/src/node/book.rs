//! The overlay: everything staged or committed so recently that an open read may not have seen it.
//!
//! A decision reads committed plus staged state. What an answer of the store says is corrected by this
//! book: entries newer than the answer's `as_of` win (W3). An entry is forgotten once every read that
//! is still open was asked after its commit.

use alloc::collections::btree_map::Entry as MapEntry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use crate::id::{BatchNo, BlobDigest, BlobNo, ReadNo, SegmentId, Seq, SiteNo};
use crate::ledger::rows::{BlobRow, DeliveryRow, SegmentRow};
use crate::ledger::rows_upkeep::{ReceiptRow, RememberedRow};

/// A segment that something in memory needs.
#[derive(Clone, Debug)]
pub(super) struct Active {
    /// Shared, so that a claim does not copy it and the tree moves little.
    row: Arc<SegmentRow>,
    /// Windows and flights that hold it.
    refs: u32,
    /// The batch of its last change.
    changed: BatchNo,
}

/// A delivery that changed.
#[derive(Clone, Debug)]
struct Changed {
    batch: BatchNo,
    row: Option<DeliveryRow>,
    /// Whether its segment is kept in memory with it.
    holds: bool,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Segment(Seq),
    Delivery(SiteNo, Seq),
    Id(SegmentId),
    Blob(BlobNo),
    Digest(BlobDigest),
    Gone(Seq),
    Removed(SegmentId),
    Receipt(Seq, SiteNo),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    segments: BTreeMap<Seq, Active>,
    deliveries: BTreeMap<(SiteNo, Seq), Changed>,
    /// Where ids lead; `None` is nowhere.
    ids: BTreeMap<SegmentId, (BatchNo, Option<Seq>)>,
    /// Content files; `None` is removed.
    blobs: BTreeMap<BlobNo, (BatchNo, Option<BlobRow>)>,
    /// Where digests lead; `None` is nowhere.
    digests: BTreeMap<BlobDigest, (BatchNo, Option<BlobNo>)>,
    /// Segments that were removed.
    gone: BTreeMap<Seq, BatchNo>,
    /// Their ids, with what is remembered of them.
    removed: BTreeMap<SegmentId, (BatchNo, Option<RememberedRow>)>,
    receipts: BTreeMap<(Seq, SiteNo), (BatchNo, ReceiptRow)>,
    log: VecDeque<(BatchNo, Entry)>,
    open: BTreeMap<ReadNo, BatchNo>,
    committed: BatchNo,
}

/// Takes an entry away if it is such a one, looking for it once.
fn take_if<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: K,
    is_old: impl FnOnce(&V) -> bool,
) -> Option<V> {
    match map.entry(key) {
        MapEntry::Occupied(entry) if is_old(entry.get()) => Some(entry.remove()),
        MapEntry::Occupied(_) | MapEntry::Vacant(_) => None,
    }
}

impl Book {
    /// A read is asked: changes after the last commit are kept for it, or after `from` only.
    pub fn opened(&mut self, read: ReadNo, from: Option<BatchNo>) {
        self.open.insert(read, from.unwrap_or(self.committed));
    }

    /// After which batch changes are kept for an open read.
    pub fn kept_for(&self, read: ReadNo) -> BatchNo {
        self.open.get(&read).copied().unwrap_or(self.committed)
    }

    /// A read's answer has been used up.
    pub fn closed(&mut self, read: ReadNo) {
        self.open.remove(&read);
        self.prune();
    }

    pub fn committed(&mut self, through: BatchNo) {
        self.committed = self.committed.max(through);
        self.prune();
    }

    /// Everything staged is void; open reads were voided with it (W2).
    pub fn clear(&mut self) {
        let committed = self.committed;
        *self = Book { committed, ..Book::default() };
    }

    /// Changes of batches up to this one are in whatever is read from now on, and in every open read.
    pub fn floor(&self) -> BatchNo {
        self.open.values().copied().min().unwrap_or(self.committed).min(self.committed)
    }

    fn prune(&mut self) {
        let floor = self.floor();
        while self.log.front().is_some_and(|(batch, _)| *batch <= floor) {
            let Some((batch, entry)) = self.log.pop_front() else { break };
            match entry {
                Entry::Segment(seq) => self.drop_segment(seq, floor),
                Entry::Delivery(site, seq) => {
                    let old = take_if(&mut self.deliveries, (site, seq), |d| d.batch == batch);
                    if old.is_some_and(|d| d.holds) {
                        self.release(seq);
                    }
                }
                Entry::Id(id) => drop(take_if(&mut self.ids, id, |i| i.0 == batch)),
                Entry::Blob(blob) => drop(take_if(&mut self.blobs, blob, |b| b.0 == batch)),
                Entry::Digest(digest) => drop(take_if(&mut self.digests, digest, |d| d.0 == batch)),
                Entry::Gone(seq) => drop(take_if(&mut self.gone, seq, |gone| *gone == batch)),
                Entry::Removed(id) => drop(take_if(&mut self.removed, id, |r| r.0 == batch)),
                Entry::Receipt(seq, site) => {
                    drop(take_if(&mut self.receipts, (seq, site), |r| r.0 == batch));
                }
            }
        }
    }

    fn drop_segment(&mut self, seq: Seq, floor: BatchNo) {
        drop(take_if(&mut self.segments, seq, |s| s.refs == 0 && s.changed <= floor));
    }

    /// A window or a flight begins to hold a segment; `row` is used only when it is not here yet.
    pub fn hold(&mut self, seq: Seq, row: impl FnOnce() -> Arc<SegmentRow>) {
        let active = self.segments.entry(seq).or_insert_with(|| Active {
            row: row(),
            refs: 0,
            changed: BatchNo(0),
        });
        active.refs += 1;
    }

    /// … and lets go of it.
    pub fn release(&mut self, seq: Seq) {
        let floor = self.floor();
        if let Some(active) = self.segments.get_mut(&seq) {
            active.refs = active.refs.saturating_sub(1);
            self.drop_segment(seq, floor);
        }
    }

    pub fn segment(&self, seq: Seq) -> Option<&SegmentRow> {
        self.segments.get(&seq).map(|a| &*a.row)
    }

    /// [`Book::segment`], to be kept while the book changes.
    pub fn shared(&self, seq: Seq) -> Option<Arc<SegmentRow>> {
        self.segments.get(&seq).map(|a| a.row.clone())
    }

    /// Whether a segment's row is in the ledger as it stands here.
    pub fn is_committed(&self, seq: Seq, committed: BatchNo) -> bool {
        self.segments.get(&seq).is_none_or(|active| active.changed <= committed)
    }

    /// A segment's row as it stands after the staged batch.
    pub fn set_segment(&mut self, batch: BatchNo, seq: Seq, row: impl Into<Arc<SegmentRow>>) {
        let row = row.into();
        match self.segments.get_mut(&seq) {
            Some(active) => {
                active.row = row;
                active.changed = batch;
            }
            None => {
                self.segments.insert(seq, Active { row, refs: 0, changed: batch });
            }
        }
        self.log.push_back((batch, Entry::Segment(seq)));
    }

    /// A delivery's row as it stands after the staged batch. Its segment stays in memory with it, for
    /// a scan that has to place it.
    pub fn set_delivery(
        &mut self,
        batch: BatchNo,
        site: SiteNo,
        seq: Seq,
        row: Option<DeliveryRow>,
        segment: &SegmentRow,
    ) {
        let changed = Changed { batch, row, holds: true };
        if self.deliveries.insert((site, seq), changed).is_none_or(|before| !before.holds) {
            self.hold(seq, || Arc::new(segment.clone()));
        }
        self.log.push_back((batch, Entry::Delivery(site, seq)));
    }

    /// As [`Book::set_delivery`], without the segment: for a delivery that no open scan may place,
    /// because its window was closed until `batch` is durable.
    pub fn set_delivery_alone(
        &mut self,
        batch: BatchNo,
        site: SiteNo,
        seq: Seq,
        row: Option<DeliveryRow>,
    ) {
        let holds = self.deliveries.get(&(site, seq)).is_some_and(|d| d.holds);
        self.deliveries.insert((site, seq), Changed { batch, row, holds });
        self.log.push_back((batch, Entry::Delivery(site, seq)));
    }

    /// What is known of a delivery beyond a reading `as_of`; the outer `None` is nothing.
    pub fn delivery(&self, site: SiteNo, seq: Seq, as_of: BatchNo) -> Option<Option<&DeliveryRow>> {
        let changed = self.deliveries.get(&(site, seq))?;
        (changed.batch > as_of).then_some(changed.row.as_ref())
    }

    /// Every delivery of a peer that changed after `as_of`.
    pub fn changes(
        &self,
        site: SiteNo,
        as_of: BatchNo,
    ) -> impl Iterator<Item = (Seq, Option<&DeliveryRow>)> {
        self.deliveries
            .range((site, Seq(0))..=(site, Seq(u64::MAX)))
            .filter(move |(_, changed)| changed.batch > as_of)
            .map(|((_, seq), changed)| (*seq, changed.row.as_ref()))
    }

    /// Where an id leads after the staged batch; `None` is nowhere.
    pub fn set_id(&mut self, batch: BatchNo, id: SegmentId, seq: Option<Seq>) {
        self.ids.insert(id, (batch, seq));
        self.log.push_back((batch, Entry::Id(id)));
    }

    /// Where an id leads, as far as that changed lately: the outer `None` is unknown.
    pub fn id(&self, id: &SegmentId) -> Option<Option<Seq>> {
        self.ids.get(id).map(|(_, seq)| *seq)
    }

    /// A segment is gone after the staged batch, and what is remembered of its id.
    pub fn set_gone(
        &mut self,
        batch: BatchNo,
        seq: Seq,
        id: SegmentId,
        remembered: Option<RememberedRow>,
    ) {
        self.gone.insert(seq, batch);
        self.log.push_back((batch, Entry::Gone(seq)));
        self.set_removed(batch, id, remembered);
    }

    /// Whether a segment was removed lately: an older reading still shows it.
    pub fn is_gone(&self, seq: Seq) -> bool {
        self.gone.contains_key(&seq)
    }

    /// What is remembered of an id after the staged batch.
    pub fn set_removed(
        &mut self,
        batch: BatchNo,
        id: SegmentId,
        remembered: Option<RememberedRow>,
    ) {
        self.removed.insert(id, (batch, remembered));
        self.log.push_back((batch, Entry::Removed(id)));
    }

    /// What is remembered of an id, as far as that changed lately: the outer `None` is unknown, the
    /// inner one is nothing.
    pub fn removed(&self, id: &SegmentId) -> Option<Option<RememberedRow>> {
        self.removed.get(id).map(|(_, row)| row.clone())
    }

    /// A content file's row after the staged batch; `None` is removed.
    pub fn set_blob(&mut self, batch: BatchNo, blob: BlobNo, row: Option<BlobRow>) {
        self.blobs.insert(blob, (batch, row));
        self.log.push_back((batch, Entry::Blob(blob)));
    }

    /// A content file's row, as far as it changed lately: the outer `None` is unknown.
    pub fn blob(&self, blob: BlobNo) -> Option<Option<BlobRow>> {
        self.blobs.get(&blob).map(|(_, row)| *row)
    }

    /// Where a digest leads after the staged batch; `None` is nowhere.
    pub fn set_digest(&mut self, batch: BatchNo, digest: BlobDigest, blob: Option<BlobNo>) {
        self.digests.insert(digest, (batch, blob));
        self.log.push_back((batch, Entry::Digest(digest)));
    }

    /// Where a digest leads, as far as that changed lately: the outer `None` is unknown.
    pub fn digest(&self, digest: &BlobDigest) -> Option<Option<BlobNo>> {
        self.digests.get(digest).map(|(_, blob)| *blob)
    }

    pub fn set_receipt(&mut self, batch: BatchNo, seq: Seq, site: SiteNo, row: ReceiptRow) {
        self.receipts.insert((seq, site), (batch, row));
        self.log.push_back((batch, Entry::Receipt(seq, site)));
    }

    /// A receipt as it stands with everything staged.
    pub fn receipt(&self, seq: Seq, site: SiteNo) -> Option<&ReceiptRow> {
        self.receipts.get(&(seq, site)).map(|(_, row)| row)
    }

    /// How many entries there are, for bounds in tests.
    pub fn len(&self) -> usize {
        let content = self.blobs.len() + self.digests.len();
        let removed = self.gone.len() + self.removed.len() + self.receipts.len();
        self.segments.len() + self.deliveries.len() + self.ids.len() + content + removed
    }
}
