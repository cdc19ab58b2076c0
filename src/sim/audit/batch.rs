//! A batch that is durable: each of its rows is judged against what was there before, then written into
//! the image. What can only be judged at its end is touched here and settled in `settle`.

use std::collections::BTreeMap;

use bytes::Bytes;
use consign_core::id::{BatchNo, BlobDigest, BlobNo, BodyNo, Epoch, SegmentId, Seq, SiteNo};
use consign_core::ledger::keys::DueKey;
use consign_core::ledger::keys_upkeep::{ExpiryKind, parse_expiry};
use consign_core::ledger::rows::{Body, DeliveryRow, INBOUND, Loss, MetaName, SegmentRow, State};
use consign_core::ledger::rows_upkeep::ExportState;
use consign_core::ledger::{Table, keys};
use consign_core::segment::{Destinations, Meta};
use consign_core::store::{Batch, Op};

use super::Desk;
use super::disk::{due_key, waits};
use super::edges::Step;
use super::pickup::Moves;
use super::removal::{Dropped, Removals};
use super::rows::{self, Inline, Name, Row};
use super::site::Claim;
use super::story::Event;
use super::violation::{Check, broken, demand};

/// What a batch has touched.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Counters before it: batch, next segment, next file, next body.
    pub before: (u64, Seq, BlobNo, BodyNo),
    /// Bytes that were charged before it, and segments that were kept or let come, if limits were ever changed.
    pub usage: (u64, u64),
    /// Bytes that were charged for peers before it.
    pub inbound: BTreeMap<SiteNo, u64>,
    /// Segments that count as relayed since this batch.
    pub relayed: Vec<Seq>,
    /// New segments, with where they were to go at first: the same batch may add destinations.
    pub new: Vec<(Seq, Destinations)>,
    pub segments: Vec<Seq>,
    /// Segments that were Acked once more, with what they required before.
    pub acked: Vec<(Seq, u32)>,
    pub deliveries: Vec<(Seq, SiteNo)>,
    /// Keys under which a delivery waited before it changed.
    pub left: Vec<DueKey>,
    /// Keys under which a delivery was claimed.
    pub claimed: Vec<DueKey>,
    /// Keys that were written.
    pub due: Vec<DueKey>,
    pub counters: Vec<(SiteNo, u8)>,
    pub blobs: Vec<BlobNo>,
    pub bodies: Vec<BodyNo>,
    pub digests: Vec<BlobDigest>,
    pub sources: Vec<(BlobDigest, SiteNo)>,
    pub incoming: Vec<BlobNo>,
    /// Segments whose content was put in place of what was lost, with what they had before.
    pub mended: Vec<(Seq, Body)>,
    /// Segments whose content is doubted no more, as it is.
    pub cleared: Vec<Seq>,
    /// Identities that are not looked up any more.
    pub lost: Vec<(SegmentId, Seq)>,
    pub gone: Removals,
    pub pickup: Moves,
}

/// Whether a segment may change like that: its origin, or this site itself, may accept it anew with a
/// newer number, and its expiry may rise.
fn may_become(old: &SegmentRow, new: &SegmentRow) -> bool {
    let accepted_here = new.origin.is_empty() && new.origin_seq > 0;
    let origin = (&old.origin, old.origin_seq) == (&new.origin, new.origin_seq)
        || (old.origin == new.origin && new.origin_seq > old.origin_seq)
        || accepted_here;
    let same = Meta { expires_at: old.meta.expires_at, ..new.meta.clone() } == old.meta;
    let rises = old.meta.expires_at == new.meta.expires_at
        || old.meta.expires_at.is_some_and(|old| new.meta.expires_at.is_none_or(|at| at > old));
    origin && same && rises
}

impl Desk<'_> {
    /// A batch is on disk.
    pub(super) fn durable(&mut self, batch: &Batch, bodies: &[(BodyNo, Bytes)]) -> Check {
        let disk = &self.site.disk;
        let mut t = Touched {
            before: (
                disk.meta(MetaName::Batch),
                Seq(disk.meta(MetaName::NextSeq)),
                BlobNo(disk.meta(MetaName::NextBlob)),
                BodyNo(disk.meta(MetaName::NextBody)),
            ),
            usage: self.usage_before(),
            ..Touched::default()
        };
        self.site.judges(batch.number.0);
        self.site.revived.clear();
        let mut given = bodies.iter();
        for op in batch.ops() {
            match op {
                Op::Put { table, key, value } => {
                    let row = rows::row(table, key, value)
                        .map_err(|why| broken("I2", None, format!("batch: {why}")))?;
                    self.heal(table, key);
                    self.put(row, &mut t)?;
                }
                Op::Del { table, key } => {
                    let name = rows::name(table, key).ok_or_else(|| {
                        broken("I2", None, format!("{table} has a key it cannot have"))
                    })?;
                    self.del(&name, &mut t)?;
                }
                Op::PutBody { number, .. } => {
                    // They come in the order of the batch; a missing one is searched for.
                    let next = given.next().filter(|(no, _)| *no == number);
                    let found = next.or_else(|| bodies.iter().find(|(no, _)| *no == number));
                    let Some((_, bytes)) = found else {
                        let text = format!("body {number} was written without its bytes");
                        return Err(broken("I1", None, text));
                    };
                    self.heal(Table::Bodies, &keys::body(number));
                    self.put(Row::Body(number, Inline::of(bytes)), &mut t)?;
                }
            }
        }
        self.world.totals.batches += 1;
        self.world.totals.rows += batch.rows() as u64;
        self.settle(batch, t)?;
        self.site.has_judged();
        Ok(())
    }

    /// A row that was destroyed and is written anew is whole again.
    fn heal(&mut self, table: Table, key: &[u8]) {
        if !self.site.harm.rows.is_empty()
            && let Some(name) = rows::name(table, key)
        {
            self.site.harm.rows.remove(&name);
        }
    }

    fn put(&mut self, row: Row, t: &mut Touched) -> Check {
        match row {
            Row::Meta(name, value) => self.put_meta(name, value)?,
            Row::Segment(seq, row) => return self.put_segment(seq, *row, t),
            Row::Id(id, seq) => self.put_id(id, seq)?,
            Row::Body(body, inline) => {
                demand(body >= t.before.3, "I2", None, || {
                    format!("body number {body} is given twice")
                })?;
                self.site.charged += i128::from(inline.charge());
                t.bodies.push(body);
            }
            Row::Blob(blob, ref row) => self.put_blob(blob, row, t)?,
            Row::Digest(digest, _) => t.digests.push(digest),
            Row::Delivery(seq, no, row) => return self.put_delivery(seq, no, row, t),
            Row::Due(key) => {
                self.site.set_aside.remove(&(key.seq, key.peer));
                t.deliveries.push((key.seq, key.peer));
                t.due.push(key);
            }
            Row::Owed(no, seq) => t.deliveries.push((seq, no)),
            Row::Inflight(no, seq, epoch) => self.put_inflight(no, seq, epoch, t)?,
            Row::Deadletter(_, seq, no, _) => t.deliveries.push((seq, no)),
            Row::Expiry(ref key) => touch_expiry(key, t),
            Row::Doomed(blob, row) => {
                let before = self.site.disk.doomed.get(&blob).map_or(0, |row| row.size);
                self.site.charged += i128::from(row.size) - i128::from(before);
                t.blobs.push(blob);
            }
            Row::Incoming(blob, ref row) => self.put_incoming(blob, row, t)?,
            Row::Counter(no, state, _) => {
                let before = self.site.disk.counters.get(&(no, state)).map_or(0, |row| row.bytes);
                if state == INBOUND {
                    t.inbound.entry(no).or_insert(before);
                }
                t.counters.push((no, state));
            }
            Row::Unmet(_, seq) => t.segments.push(seq),
            Row::Owner(blob, _) => t.blobs.push(blob),
            Row::Source(digest, no, _) => t.sources.push((digest, no)),
            Row::Audit(number, ref row) => {
                let first = self.site.disk.audit.last_key_value().is_none_or(|(n, _)| *n < number);
                demand(first, "I31", None, || format!("audit record {number} is written again"))?;
                t.gone.records.push((**row).clone());
            }
            Row::Handed(no, seq) => t.deliveries.push((seq, no)),
            Row::Receipt(_, _, ref row) => {
                self.site.said.insert((row.id, row.site.clone(), row.cause == 0));
            }
            Row::Remembered(id, ref row) => {
                let number = if row.origin_seq == 0 { row.seq.0 } else { row.origin_seq };
                self.site.recalled.entry(id).or_default().push((row.origin.clone(), number));
            }
            Row::Export(_, seq, ref row) if row.state == ExportState::Done => {
                self.site.given_out.insert(seq);
            }
            Row::Peer(..)
            | Row::PassBack(..)
            | Row::RememberedAge(..)
            | Row::Export(..)
            | Row::Quarantine(..)
            | Row::Foreign => {}
            Row::Pickup(row) => return self.put_pickup(row, t),
        }
        self.site.disk.set(row);
        Ok(())
    }

    fn del(&mut self, name: &Name, t: &mut Touched) -> Check {
        match name {
            Name::Meta(_) | Name::Peer(_) | Name::Counter(..) => {
                return demand(false, "I2", None, || format!("{name:?} is removed"));
            }
            Name::Segment(seq) => {
                if let Some(row) = self.site.disk.segments.get(seq) {
                    let (id, row) = (row.id, row.clone());
                    t.gone.segments.push((*seq, row));
                    self.tell(&id, Event::Removed(*seq));
                }
                t.segments.push(*seq);
            }
            Name::Body(body) => {
                if let Some(inline) = self.site.disk.bodies.get(body) {
                    self.site.charged -= i128::from(inline.charge());
                    t.gone.bodies.push(*body);
                }
            }
            Name::Id(id) => {
                if let Some(seq) = self.site.disk.ids.get(id) {
                    t.lost.push((*id, *seq));
                    self.tell(id, Event::Distrusted);
                }
            }
            Name::Blob(blob) => {
                let size = self.site.disk.blobs.get(blob).map_or(0, |row| row.size);
                self.site.charged -= i128::from(size);
                t.blobs.push(*blob);
            }
            Name::Delivery(seq, no) => self.del_delivery(*seq, *no, t)?,
            Name::Due(key) => self.leaves(key.seq, key.peer, t),
            Name::Owed(no, seq) | Name::Inflight(no, seq) => self.leaves(*seq, *no, t),
            Name::Deadletter(at, seq, no) => {
                let there = self.site.disk.deadletters.contains_key(&(*at, *seq, *no));
                t.gone.letters.extend(there.then_some((*at, *seq, *no)));
                t.deliveries.push((*seq, *no));
            }
            Name::Audit(number) => {
                let count = self.site.disk.audit.len();
                t.gone.old_records.push((*number, count));
            }
            Name::Receipt(seq, no) => {
                let row = self.site.disk.receipts.get(&(*seq, *no)).cloned();
                t.gone.receipts.extend(row.map(|row| (*seq, *no, row)));
            }
            Name::Remembered(id) => {
                let count = self.site.disk.remembered.len();
                let row = self.site.disk.remembered.get(id).cloned();
                t.gone.memory.extend(row.map(|row| (*id, row, count)));
            }
            Name::Expiry(key) => touch_expiry(key, t),
            Name::Doomed(blob) => {
                let there = self.site.files.contains_key(blob);
                demand(!there, "I16", None, || {
                    format!("file {blob} is forgotten, and is still on disk")
                })?;
                let size = self.site.disk.doomed.get(blob).map_or(0, |row| row.size);
                self.site.charged -= i128::from(size);
            }
            Name::Incoming(blob) => {
                if let Some(row) = self.site.disk.incoming.get(blob) {
                    self.site.charged -= i128::from(row.reserved);
                    t.sources.push((row.digest, SiteNo(row.source)));
                    t.incoming.push(*blob);
                }
            }
            Name::Unmet(_, seq) => t.segments.push(*seq),
            Name::Owner(blob, _) => t.blobs.push(*blob),
            Name::Source(digest, no) => t.sources.push((*digest, *no)),
            Name::PassBack(..) | Name::RememberedAge(..) => {}
            Name::Handed(no, seq) => t.deliveries.push((*seq, *no)),
            Name::Pickup(name) => self.del_pickup(name, t)?,
            Name::Digest(_) | Name::Export(..) | Name::Quarantine(_) | Name::Foreign => {}
        }
        self.site.disk.unset(name);
        Ok(())
    }

    /// A delivery leaves an index; if its rows cannot be read, it stays out for now.
    fn leaves(&mut self, seq: Seq, no: SiteNo, t: &mut Touched) {
        t.deliveries.push((seq, no));
        if !self.site.harm.rows.is_empty() && self.site.harm.delivery(seq, no) {
            self.site.set_aside.insert((seq, no));
        }
    }

    fn put_meta(&mut self, name: MetaName, value: u64) -> Check {
        let before = self.site.disk.meta(name);
        let goes_down = matches!(
            name,
            MetaName::UsedBytes
                | MetaName::Segments
                | MetaName::Unplaced
                | MetaName::Remembered
                | MetaName::AuditRows
                | MetaName::ScrubNext
        );
        let invariant = if name == MetaName::TimeHigh { "I18" } else { "I2" };
        demand(goes_down || value >= before, invariant, None, || {
            format!("{name:?} goes back from {before} to {value}")
        })
    }

    fn put_segment(&mut self, seq: Seq, row: SegmentRow, t: &mut Touched) -> Check {
        let id = row.id;
        match self.site.disk.segments.get(&seq) {
            None => {
                demand(seq >= t.before.1, "I2", Some(id), || {
                    format!("accept number {seq} is given twice")
                })?;
                t.new.push((seq, row.to.clone()));
                self.site.newest.insert(id, seq);
                self.tell(&id, Event::Kept(seq, SiteNo(row.from)));
            }
            Some(old) => {
                // What was marked as lost may be put in place again, and only then the mark goes.
                // … or was only doubted.
                let back = old.loss.is_some() && row.loss.is_none();
                let mends = back && old.body != row.body;
                let clears = back && !mends && old.loss == Some(Loss::Doubted);
                t.mended.extend(mends.then_some((seq, old.body)));
                t.cleared.extend(clears.then_some(seq));
                if old.loss.is_none() && row.loss.is_some() && self.site.is_destroyed(old.body) {
                    self.site.doubted_rightly.insert(seq);
                }
                let kept = (old.id, old.digest, old.size, old.from, old.accepted_at)
                    == (id, row.digest, row.size, row.from, row.accepted_at)
                    && (mends || clears || (old.body == row.body && old.loss <= row.loss))
                    && may_become(old, &row);
                demand(kept, "I2", Some(old.id), || {
                    format!("number {seq} becomes something else: {old:?}, now {row:?}")
                })?;
                demand(row.here || !old.here, "I1", Some(id), || {
                    "it is not for this site any more".into()
                })?;
                let (origin, number, hops) = (old.origin.clone(), old.origin_seq, old.hops);
                if (&origin, number, hops) != (&row.origin, row.origin_seq, row.hops) {
                    self.site.former.insert((seq, origin, number, hops));
                }
                if row.relayed_at.is_some() && old.relayed_at.is_none() {
                    t.relayed.push(seq);
                }
                if row.acked > old.acked {
                    t.acked.push((seq, old.required));
                }
            }
        }
        if row.here && row.from != 0 && self.world.held.insert((id, self.ix)) {
            self.world.totals.delivered += 1;
        }
        if row.from == 0 && !self.world.taps {
            self.world.began.insert((id, self.ix));
        }
        t.segments.push(seq);
        self.site.disk.set(Row::Segment(seq, Box::new(row)));
        Ok(())
    }

    fn put_id(&mut self, id: SegmentId, seq: Seq) -> Check {
        let site = &*self.site;
        let Some(old) = site.disk.ids.get(&id).copied().filter(|old| *old != seq) else {
            return Ok(());
        };
        let excused = site.harm.row(&Name::Id(id)) || site.is_harmed(old);
        demand(excused, "I25", Some(id), || {
            format!("it is kept as number {old} already, and is kept again as {seq}")
        })
    }

    fn put_delivery(&mut self, seq: Seq, no: SiteNo, new: DeliveryRow, t: &mut Touched) -> Check {
        t.deliveries.push((seq, no));
        let site = &*self.site;
        let old = site.disk.deliveries.get(&(seq, no));
        let Some(segment) = site.disk.segments.get(&seq) else {
            let text = format!("number {seq} is owed to {} and is not kept", site.peer(no));
            return Err(broken("I2", None, text));
        };
        let (id, size) = (segment.id, segment.size);
        self.judge(&Step { seq, no, old, new: Some(&new), segment })?;
        let from = old.map(|old| old.state);
        let told = old.is_some_and(|old| old.custody.is_some());
        let old_key = old
            .filter(|old| waits(old.state))
            .map(|old| due_key(no, seq, old.next_attempt_after, segment));
        t.left.extend(old_key);
        let claims = new.state == State::Inflight && from != Some(State::Inflight);
        t.claimed.extend(old_key.filter(|_| claims));
        let before = old.map(|old| old.counted_as().collect()).unwrap_or_default();
        self.counted(no, before, new.counted_as().collect(), size, t);
        if from == Some(State::Deadletter) {
            self.site.revived.insert((seq, no));
        }
        if from == Some(State::Inflight) && new.state != State::Inflight {
            self.site.claims.remove(&(no, seq));
            if told {
                let peer = self.site.peer(no);
                self.site.confirmed.insert((id, peer));
            }
        }
        if from != Some(new.state) {
            let totals = &mut self.world.totals;
            totals.acks += u64::from(new.state == State::Acked);
            totals.dead += u64::from(new.state == State::Deadletter);
            let (to, attempts) = (Some(new.state), new.attempts);
            let cause = if matches!(new.state, State::Failed | State::Deadletter) {
                new.last_error
            } else {
                0
            };
            let moved = Event::Moved { peer: no, from, to, attempts, spent: new.spent, cause };
            self.tell(&id, moved);
        }
        self.site.disk.set(Row::Delivery(seq, no, new));
        Ok(())
    }

    /// It leaves the required set, or the ledger with its segment: why is judged at the batch's end.
    fn del_delivery(&mut self, seq: Seq, no: SiteNo, t: &mut Touched) -> Check {
        let site = &*self.site;
        let (Some(old), Some(segment)) =
            (site.disk.deliveries.get(&(seq, no)), site.disk.segments.get(&seq))
        else {
            return Ok(());
        };
        let (from, id, size) = (Some(old.state), segment.id, segment.size);
        let (attempts, spent, cause) = (old.attempts, old.spent, 0);
        let (row, counted) = (old.clone(), old.counted_as().collect());
        if waits(old.state) {
            t.left.push(due_key(no, seq, old.next_attempt_after, segment));
        }
        t.deliveries.push((seq, no));
        t.segments.push(seq);
        self.counted(no, counted, Vec::new(), size, t);
        let claim = self.site.claims.remove(&(no, seq));
        t.gone.deliveries.push(Dropped { seq, no, row, claim });
        self.site.settled.insert((seq, no));
        self.tell(&id, Event::Moved { peer: no, from, to: None, attempts, spent, cause });
        Ok(())
    }

    fn counted(&mut self, no: SiteNo, from: Vec<u8>, to: Vec<u8>, size: u64, t: &mut Touched) {
        if from == to {
            return;
        }
        for at in from {
            self.site.tally.entry((no, at)).or_default().leaves(size);
            t.counters.push((no, at));
        }
        for at in to {
            self.site.tally.entry((no, at)).or_default().arrives(size);
            t.counters.push((no, at));
        }
    }

    /// A session has claimed a delivery.
    fn put_inflight(&mut self, no: SiteNo, seq: Seq, epoch: Epoch, t: &mut Touched) -> Check {
        t.deliveries.push((seq, no));
        let id = self.site.id(seq);
        let peer = self.site.peer(no);
        let before = self.site.disk.inflight.get(&(no, seq));
        demand(before.is_none(), "I7", id, || {
            format!("delivery to {peer}: claimed by {epoch}, and by {before:?} before")
        })?;
        let life = &self.site.life;
        let up = epoch.boot == life.boot && life.up.contains(&epoch.session);
        demand(up, "I8", id, || {
            format!("delivery to {peer}: claimed by {epoch}, which was never up in this boot")
        })?;
        if self.world.taps {
            *self.site.unsaid.entry((epoch.session, no, seq)).or_default() += 1;
        }
        let claim = Claim { epoch, offered: None, answer: None };
        self.site.claims.insert((no, seq), claim);
        Ok(())
    }

    pub(super) fn number_is(&self, batch: BatchNo, before: u64) -> Check {
        let written = self.site.disk.meta(MetaName::Batch);
        demand(written == batch.0 && written > before, "I2", None, || {
            format!("batch {batch} says that it is {written}, after {before}")
        })
    }
}

fn touch_expiry(key: &[u8], t: &mut Touched) {
    if let Some((_, ExpiryKind::Segment, rest)) = parse_expiry(key)
        && let Some(seq) = keys::parse_u64(rest)
    {
        t.segments.push(Seq(seq));
    }
}
