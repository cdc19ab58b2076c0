//! What is decided but not yet durable: the staged batch, the counters behind it, and what is said
//! once it is.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use super::pickup::Job;
use super::remove::Act;
use super::tally::{Tallied, Tally};
use super::types::Note;
use crate::code::Cause;
use crate::id::{BatchNo, BlobDigest, BlobNo, BodyNo, Epoch, Handle, Seq, SiteNo};
use crate::ledger::read::Recovery;
use crate::ledger::rows::{
    CounterRow, DeliveryRow, HELD, INBOUND, MetaName, MetaRow, SHARDS, State,
};
use crate::ledger::rows_pickup::ShardState;
use crate::ledger::{Table, keys};
use crate::limits::{BATCH_BYTES, BATCH_ROWS, GROWTH_ROWS};
use crate::store::Batch;
use crate::time::{Instant, Now, UnixMillis};

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

/// Counters of `meta`, staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub boot: u64,
    pub next_seq: u64,
    pub next_blob: u64,
    pub next_body: u64,
    pub next_site: u32,
    /// 0 before the first was asked for.
    pub next_redemption: u64,
    pub next_audit: u64,
    pub time_high: u64,
    pub used: u64,
    pub segments: u64,
    pub unplaced: u64,
    pub remembered: u64,
    pub audit_rows: u64,
}

#[derive(Clone, Debug, Default)]
struct UnderWay {
    number: BatchNo,
    rows: u64,
    intents: Vec<Intent>,
    notes: Vec<Note>,
    tallies: Vec<Tally>,
    since: Instant,
    handles: Vec<Handle>,
    counters: Vec<((SiteNo, u8), CounterRow)>,
}

/// What a failed commit leaves behind.
#[derive(Clone, Debug, Default)]
pub(super) struct Wreck {
    /// Relief of the failed and of the staged batch, in order (G6).
    pub intents: Vec<Intent>,
    /// Parked bodies that no batch will take.
    pub handles: Vec<Handle>,
}

#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub batch: Batch,
    pub meta: Meta,
    written: Meta,
    counters: BTreeMap<(SiteNo, u8), CounterRow>,
    /// The counters as they are in the ledger: what may be told.
    durable: BTreeMap<(SiteNo, u8), CounterRow>,
    dirty: BTreeSet<(SiteNo, u8)>,
    /// Most rows of a batch.
    most: usize,
    intents: Vec<Intent>,
    notes: Vec<Note>,
    tallies: Vec<Tally>,
    handles: Vec<Handle>,
    under_way: Option<UnderWay>,
    /// Batches and rows committed since the start.
    pub commits: (u64, u64),
    /// What else is counted since then.
    pub tallied: Tallied,
    /// An act waits for a batch that it can have to itself: everything else waits for the next.
    pub reserved: bool,
}

impl Stage {
    /// A stage on top of what the ledger holds.
    pub fn new(recovery: &Recovery) -> Stage {
        let committed = recovery.meta_value(MetaName::Batch);
        let mut stage = Stage {
            batch: Batch::new(BatchNo(committed + 1)),
            meta: Meta::default(),
            written: Meta::default(),
            counters: BTreeMap::new(),
            durable: BTreeMap::new(),
            dirty: BTreeSet::new(),
            most: BATCH_ROWS,
            intents: Vec::new(),
            notes: Vec::new(),
            tallies: Vec::new(),
            handles: Vec::new(),
            under_way: None,
            commits: (0, 0),
            tallied: Tallied::default(),
            reserved: false,
        };
        stage.load(recovery);
        stage
    }

    /// Takes counters from a fresh reading; numbers that were given out stay given out.
    pub fn load(&mut self, recovery: &Recovery) {
        let value = |name| recovery.meta_value(name);
        let next_site = u32::try_from(value(MetaName::NextSite)).unwrap_or(u32::MAX);
        self.meta = Meta {
            boot: self.meta.boot.max(value(MetaName::Boot)),
            next_seq: self.meta.next_seq.max(value(MetaName::NextSeq)).max(1),
            next_blob: self.meta.next_blob.max(value(MetaName::NextBlob)).max(1),
            next_body: self.meta.next_body.max(value(MetaName::NextBody)).max(1),
            next_site: self.meta.next_site.max(next_site).max(1),
            next_redemption: self.meta.next_redemption.max(value(MetaName::NextRedemption)),
            next_audit: self.meta.next_audit.max(value(MetaName::NextAudit)).max(1),
            time_high: self.meta.time_high.max(value(MetaName::TimeHigh)),
            used: value(MetaName::UsedBytes),
            segments: value(MetaName::Segments),
            unplaced: value(MetaName::Unplaced),
            remembered: value(MetaName::Remembered),
            audit_rows: value(MetaName::AuditRows),
        };
        self.written = Meta::default();
        self.dirty.clear();
        self.counters =
            recovery.counters.iter().map(|(site, state, row)| ((*site, *state), *row)).collect();
        self.durable = self.counters.clone();
    }

    /// Takes only numbers from a fresh reading, and keeps the counts as they were staged (G3 dropped).
    pub fn load_numbers(&mut self, recovery: &Recovery) {
        let (used, segments, unplaced) = (self.meta.used, self.meta.segments, self.meta.unplaced);
        let counters = mem::take(&mut self.counters);
        self.load(recovery);
        self.meta = Meta { used, segments, unplaced, ..self.meta };
        self.dirty.extend(counters.keys());
        self.counters = counters;
    }

    /// Drops the relief of the staged batch (G6 dropped).
    pub fn forget_intents(&mut self) {
        self.intents.clear();
    }

    /// The number of the staged batch.
    pub fn number(&self) -> BatchNo {
        self.batch.number
    }

    /// Batches have so many rows at most from now on, but for one thing that has more by itself.
    pub fn holds_at_most(&mut self, rows: usize) {
        self.most = rows;
    }

    /// Whether so many rows more fit in.
    pub fn room(&self, rows: usize) -> bool {
        !self.reserved && self.has_room(rows)
    }

    /// How many rows more fit in, one thing in an empty batch aside.
    pub fn left(&self) -> usize {
        let rows = self.most.saturating_sub(self.batch.rows() + self.dirty.len() + 16);
        if self.room(rows) { rows } else { 0 }
    }

    /// The same for an act, whose turn it is.
    pub fn has_room(&self, rows: usize) -> bool {
        // One thing has room at any time. Counters and meta rows come on top when the batch is taken.
        let most = if self.batch.is_empty() { BATCH_ROWS } else { self.most };
        self.batch.rows() + rows + self.dirty.len() + 16 <= most && self.has_room_for_act(0)
    }

    /// Whether an act of so many bytes fits in, whatever its rows.
    pub fn has_room_for_act(&self, bytes: usize) -> bool {
        self.batch.bytes() + bytes + (256 << 10) <= BATCH_BYTES
    }

    /// Whether so many rows of growth fit in.
    pub fn growth_room(&self, rows: usize) -> bool {
        self.room(rows) && self.batch.rows() + rows <= GROWTH_ROWS.max(rows)
    }

    pub fn next_seq(&mut self) -> Seq {
        let seq = Seq(self.meta.next_seq);
        self.meta.next_seq += 1;
        seq
    }

    pub fn next_blob(&mut self) -> BlobNo {
        let blob = BlobNo(self.meta.next_blob);
        self.meta.next_blob += 1;
        blob
    }

    pub fn next_body(&mut self) -> BodyNo {
        let body = BodyNo(self.meta.next_body);
        self.meta.next_body += 1;
        body
    }

    pub fn next_site(&mut self) -> SiteNo {
        let site = SiteNo(self.meta.next_site);
        self.meta.next_site += 1;
        site
    }

    /// A number for a redemption: never given twice, whatever becomes of the batch (P1).
    pub fn next_redemption(&mut self) -> u64 {
        let number = self.meta.next_redemption.max(1);
        self.meta.next_redemption = number + 1;
        number
    }

    pub fn next_audit(&mut self) -> u64 {
        let number = self.meta.next_audit;
        self.meta.next_audit += 1;
        self.meta.audit_rows += 1;
        number
    }

    /// A parked body becomes a row of this batch.
    pub fn put_body(&mut self, body: BodyNo, handle: Handle, len: u64) {
        self.handles.push(handle);
        self.batch.put_body(body, handle, usize::try_from(len).unwrap_or(usize::MAX));
    }

    /// A delivery of `bytes` goes from one state to another; `None` is not there.
    pub fn count(&mut self, site: SiteNo, from: Option<State>, to: Option<State>, bytes: u64) {
        self.moves(site, from.map(|state| state as u8), to.map(|state| state as u8), bytes);
    }

    /// The same of what an operator holds ([`DeliveryRow::counted_held`]).
    pub fn count_held(
        &mut self,
        site: SiteNo,
        from: Option<u8>,
        row: Option<&DeliveryRow>,
        bytes: u64,
    ) {
        let to = row.and_then(DeliveryRow::counted_held);
        if from != to {
            self.moves(site, from, to, bytes);
        }
    }

    fn moves(&mut self, site: SiteNo, from: Option<u8>, to: Option<u8>, bytes: u64) {
        for (state, arrives) in [(from, false), (to, true)] {
            let Some(state) = state else { continue };
            let row = self.counters.entry((site, state)).or_default();
            if arrives {
                row.count += 1;
                row.bytes += bytes;
            } else {
                row.count = row.count.saturating_sub(1);
                row.bytes = row.bytes.saturating_sub(bytes);
            }
            self.dirty.insert((site, state));
        }
    }

    /// Of what waits in that state: what an operator holds, as it is in the ledger.
    pub fn counter_held(&self, site: SiteNo, state: State) -> CounterRow {
        self.durable.get(&(site, HELD + state as u8)).copied().unwrap_or_default()
    }

    /// A counter as it is in the ledger: nobody is told "delivered" before it is durable.
    pub fn counter(&self, site: SiteNo, state: State) -> CounterRow {
        self.durable.get(&(site, state as u8)).copied().unwrap_or_default()
    }

    /// Shards in a state, and their bytes, change.
    pub fn shards(&mut self, state: ShardState, change: impl FnOnce(&mut CounterRow)) {
        let key = (SiteNo(0), SHARDS + state.number());
        change(self.counters.entry(key).or_default());
        self.dirty.insert(key);
    }

    /// Shards in a state, as they are in the ledger.
    pub fn shards_durable(&self, state: ShardState) -> CounterRow {
        self.durable.get(&(SiteNo(0), SHARDS + state.number())).copied().unwrap_or_default()
    }

    /// Bytes held or reserved for shards, with what is staged.
    pub fn shard_bytes(&self) -> u64 {
        let row = |state: &ShardState| self.counters.get(&(SiteNo(0), SHARDS + state.number()));
        ShardState::ALL.iter().filter_map(row).map(|row| row.bytes).fold(0, u64::saturating_add)
    }

    /// How many deliveries are in that state, with what is staged.
    pub fn staged(&self, site: SiteNo, state: State) -> u64 {
        self.counters.get(&(site, state as u8)).map_or(0, |row| row.count)
    }

    /// So many bytes more are charged, for content that comes from `site`; 0 is here.
    pub fn charge(&mut self, site: SiteNo, bytes: u64) {
        self.meta.used = self.meta.used.saturating_add(bytes);
        self.inbound_row(site, |row| row.bytes = row.bytes.saturating_add(bytes));
    }

    /// … and so many less.
    pub fn uncharge(&mut self, site: SiteNo, bytes: u64) {
        self.meta.used = self.meta.used.saturating_sub(bytes);
        self.inbound_row(site, |row| row.bytes = row.bytes.saturating_sub(bytes));
    }

    /// A segment from `site` is held.
    pub fn segment_in(&mut self, site: SiteNo) {
        self.meta.segments += 1;
        self.inbound_row(site, |row| row.count += 1);
    }

    /// A segment from `site` is held no more.
    pub fn segment_out(&mut self, site: SiteNo) {
        self.meta.segments = self.meta.segments.saturating_sub(1);
        self.inbound_row(site, |row| row.count = row.count.saturating_sub(1));
    }

    fn inbound_row(&mut self, site: SiteNo, change: impl FnOnce(&mut CounterRow)) {
        if site != SiteNo(0) {
            change(self.counters.entry((site, INBOUND)).or_default());
            self.dirty.insert((site, INBOUND));
        }
    }

    /// Bytes charged for what came from a peer.
    pub fn inbound(&self, site: SiteNo) -> u64 {
        self.counters.get(&(site, INBOUND)).map_or(0, |row| row.bytes)
    }

    /// Segments and bytes of what came from a peer, as they are in the ledger.
    pub fn inbound_durable(&self, site: SiteNo) -> CounterRow {
        self.durable.get(&(site, INBOUND)).copied().unwrap_or_default()
    }

    pub fn intend(&mut self, intent: Intent) {
        self.intents.push(intent);
    }

    /// Something to say once this batch is durable.
    pub fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// Something to count once this batch is durable.
    pub fn tally(&mut self, tally: Tally) {
        self.tallies.push(tally);
    }

    /// The staged batch with its counters, if there is anything in it and none is under way.
    pub fn take(&mut self, now: Now) -> Option<Batch> {
        if self.under_way.is_some() || self.batch.is_empty() {
            return None;
        }
        self.meta.time_high = self.meta.time_high.max(now.wall.0);
        let counters = self.write_counters();
        let number = self.batch.number;
        let next = Batch::new(BatchNo(number.0 + 1));
        let batch = mem::replace(&mut self.batch, next);
        self.under_way = Some(UnderWay {
            number,
            rows: batch.rows() as u64,
            intents: mem::take(&mut self.intents),
            notes: mem::take(&mut self.notes),
            tallies: mem::take(&mut self.tallies),
            since: now.mono,
            handles: mem::take(&mut self.handles),
            counters,
        });
        Some(batch)
    }

    fn write_counters(&mut self) -> Vec<((SiteNo, u8), CounterRow)> {
        let number = self.batch.number;
        let (meta, old) = (self.meta, self.written);
        let rows = [
            (MetaName::Batch, number.0, u64::MAX),
            (MetaName::Boot, meta.boot, old.boot),
            (MetaName::NextSeq, meta.next_seq, old.next_seq),
            (MetaName::NextBlob, meta.next_blob, old.next_blob),
            (MetaName::NextBody, meta.next_body, old.next_body),
            (MetaName::NextSite, meta.next_site.into(), old.next_site.into()),
            (MetaName::NextRedemption, meta.next_redemption, old.next_redemption),
            (MetaName::NextAudit, meta.next_audit, old.next_audit),
            (MetaName::TimeHigh, meta.time_high, old.time_high),
            (MetaName::UsedBytes, meta.used, old.used),
            (MetaName::Segments, meta.segments, old.segments),
            (MetaName::Unplaced, meta.unplaced, old.unplaced),
            (MetaName::Remembered, meta.remembered, old.remembered),
            (MetaName::AuditRows, meta.audit_rows, old.audit_rows),
        ];
        for (name, value, before) in rows {
            if value != before {
                self.batch.put(Table::Meta, name.key(), &MetaRow { value });
            }
        }
        if old == Meta::default() {
            // The first batch of a run writes every counter, zeros too.
            let format = MetaRow { value: crate::ledger::FORMAT.into() };
            self.batch.put(Table::Meta, MetaName::Format.key(), &format);
            for (name, value) in [
                (MetaName::UsedBytes, meta.used),
                (MetaName::Segments, meta.segments),
                (MetaName::Remembered, meta.remembered),
                (MetaName::Unplaced, meta.unplaced),
                (MetaName::AuditRows, meta.audit_rows),
            ] {
                self.batch.put(Table::Meta, name.key(), &MetaRow { value });
            }
        }
        self.written = meta;
        let mut written = Vec::new();
        for (site, state) in mem::take(&mut self.dirty) {
            let row = self.counters.get(&(site, state)).copied().unwrap_or_default();
            self.batch.put(Table::Counters, &keys::counter(site, state), &row);
            written.push(((site, state), row));
        }
        written
    }

    /// Whether a commit is under way.
    pub fn committing(&self) -> bool {
        self.under_way.is_some()
    }

    /// The batch under way is durable: what can be said and counted now.
    pub fn committed(&mut self, now: Now, through: BatchNo) -> (Vec<Note>, Vec<Tally>) {
        let done = self.under_way.take_if(|u| u.number <= through).unwrap_or_default();
        let micros = now.mono.since(done.since).as_micros();
        self.tallied.commits.observe(u64::try_from(micros).unwrap_or(u64::MAX));
        self.commits.0 += 1;
        self.commits.1 += done.rows;
        self.durable.extend(done.counters);
        (done.notes, done.tallies)
    }

    /// The batch under way failed, and what is staged goes with it.
    pub fn wreck(&mut self) -> Wreck {
        let failed = self.under_way.take().unwrap_or_default();
        let mut wreck = Wreck { intents: failed.intents, handles: failed.handles };
        wreck.intents.append(&mut self.intents);
        wreck.handles.append(&mut self.handles);
        self.notes.clear();
        self.tallies.clear();
        // A number is never used twice, so the next batch gets a new one.
        self.batch = Batch::new(BatchNo(self.batch.number.0 + 1));
        wreck
    }
}
