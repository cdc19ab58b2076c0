//! What must hold between rows once a batch is whole: for what it touched after every batch, for
//! everything in a deep check.

use std::collections::{BTreeMap, BTreeSet};

use consign_core::code::Cause;
use consign_core::config::{Config, SuccessCondition};
use consign_core::id::{BlobDigest, BlobNo, BodyNo, SegmentId, Seq, SiteNo};
use consign_core::ledger::keys::{self, DueKey};
use consign_core::ledger::keys_upkeep::{self, ExpiryKind};
use consign_core::ledger::rows::{Body, INBOUND, IncomingRow, MetaName, SHARDS, SegmentRow, State};
use consign_core::limits::{ACT_BATCH_ROWS, BATCH_BYTES, BATCH_ROWS};
use consign_core::segment::{Class, Destinations};
use consign_core::store::Batch;
use consign_core::time::UnixMillis;

use super::Desk;
use super::batch::Touched;
use super::disk::{Tally, due_key, waits};
use super::rows::Name;
use super::rules::{hop, wanted};
use super::site::Holds;
use super::violation::{Check, demand};

/// When a segment is relayed: a named destination is always needed; of all peers one is enough if
/// the configuration says so; nobody at all is never enough.
fn meets(row: &SegmentRow, condition: SuccessCondition) -> bool {
    let one = matches!(row.to, Destinations::All) && condition == SuccessCondition::OnePeer;
    if one { row.acked > 0 } else { row.required > 0 && row.acked >= row.required }
}

impl Desk<'_> {
    /// The end of a batch.
    pub(super) fn settle(&mut self, batch: &Batch, mut t: Touched) -> Check {
        let (rows, bytes) = (batch.rows(), batch.bytes());
        // What an operator asks for is one commit.
        let act = t.gone.records.iter().any(|record| !record.who.is_empty());
        let most = if act { ACT_BATCH_ROWS } else { BATCH_ROWS };
        demand(rows <= most && bytes <= BATCH_BYTES, "I19", None, || {
            format!("batch {} has {rows} rows and {bytes} bytes", batch.number)
        })?;
        self.number_is(batch.number, t.before.0)?;
        t.deliveries.sort_unstable();
        t.deliveries.dedup();
        for (seq, no) in &t.deliveries {
            self.delivery(*seq, *no)?;
        }
        for key in &t.left {
            self.left(key)?;
        }
        t.segments.extend(t.deliveries.iter().map(|(seq, _)| *seq));
        t.segments.sort_unstable();
        t.segments.dedup();
        for seq in &t.segments {
            self.segment(*seq)?;
        }
        for (seq, to) in &t.new {
            self.new_segment(*seq, to)?;
        }
        self.nothing_new_after_a_stop(&t)?;
        for (seq, required) in &t.acked {
            self.met(*seq, *required)?;
        }
        for seq in &t.relayed {
            self.is_relayed_now(*seq)?;
        }
        t.counters.sort_unstable();
        t.counters.dedup();
        for key in &t.counters {
            self.counter(*key, t.inbound.get(&key.0).copied())?;
        }
        self.usage(t.usage)?;
        for blob in &t.blobs {
            self.blob(*blob)?;
        }
        for blob in &t.incoming {
            self.incoming(*blob)?;
        }
        for digest in &t.digests {
            self.digest(digest)?;
        }
        for (digest, no) in &t.sources {
            self.source(digest, *no)?;
        }
        for (id, seq) in &t.lost {
            if t.gone.segment(*seq).is_none() {
                self.lost(id, *seq)?;
            }
        }
        self.settle_pickup(&t)?;
        self.removed(&t)?;
        self.bodies_are_used(&t)?;
        self.remember_gone(&t);
        self.in_turn(t)
    }

    /// A delivery and the indexes that say where it stands.
    pub(super) fn delivery(&self, seq: Seq, no: SiteNo) -> Check {
        let disk = &self.site.disk;
        let row = disk.deliveries.get(&(seq, no));
        let segment = disk.segments.get(&seq);
        let id = segment.map(|segment| segment.id);
        if self.site.excuses(seq, no) {
            return Ok(());
        }
        let state = row.map(|row| row.state);
        let must = |is: bool, should: bool, index: &str| {
            demand(is == should, "I2", id, || {
                let peer = self.site.peer(no);
                let word = if is { "stands in" } else { "is missing in" };
                format!("delivery to {peer} is {state:?} and {word} {index}")
            })
        };
        let owed = matches!(state, Some(State::Scheduled | State::Inflight | State::Failed));
        must(disk.owed.contains(&(no, seq)), owed, "owed")?;
        let inflight = state == Some(State::Inflight);
        let handed = inflight && row.is_some_and(|row| row.custody.is_some());
        must(disk.inflight.contains_key(&(no, seq)), inflight && !handed, "inflight")?;
        must(disk.handed.contains(&(no, seq)), handed, "handed")?;
        let (Some(row), Some(segment)) = (row, segment) else { return Ok(()) };
        let key = due_key(no, seq, row.next_attempt_after, segment);
        let due = waits(row.state) && row.held != Some(true);
        must(disk.due.contains(&key), due, "due")?;
        self.in_time(row.since, segment, no)?;
        if row.state == State::Deadletter {
            let cause = disk.deadletters.get(&(row.since, seq, no)).copied();
            let known = Cause::from_number(row.last_error).is_some();
            return demand(known && cause == Some(row.last_error), "I2", id, || {
                let (peer, why) = (self.site.peer(no), row.last_error);
                format!("delivery to {peer} is dead of {why}, its dead letter says {cause:?}")
            });
        }
        Ok(())
    }

    /// A delivery does not wait under a key that it has left.
    fn left(&self, key: &DueKey) -> Check {
        let disk = &self.site.disk;
        let stays = disk.deliveries.get(&(key.seq, key.peer)).is_some_and(|row| {
            waits(row.state) && row.held != Some(true) && row.next_attempt_after == key.at.0
        });
        demand(stays || !disk.due.contains(key), "I2", self.site.id(key.seq), || {
            format!("delivery to {} still waits under an old key", self.site.peer(key.peer))
        })
    }

    /// A segment and its deliveries: what it requires, what is Acked, whether it is relayed.
    pub(super) fn segment(&self, seq: Seq) -> Check {
        let disk = &self.site.disk;
        let Some(row) = disk.segments.get(&seq) else {
            // A row that cannot be read is not seen when its segment goes: `fsck` finds it.
            let mut kept = disk.of_segment(seq).filter(|(no, _)| !self.site.excuses(seq, *no));
            let orphan = kept.next().is_some() && !self.site.harm.segment(seq);
            return demand(!orphan, "I2", None, || format!("number {seq} is owed and not kept"));
        };
        if self.site.harm.segment(seq) {
            return Ok(());
        }
        let id = Some(row.id);
        let required = disk.of_segment(seq).count() as u64;
        let acked = disk.of_segment(seq).filter(|(_, d)| d.state == State::Acked).count() as u64;
        let told = (u64::from(row.required), u64::from(row.acked));
        demand(told == (required, acked), "I2", id, || {
            let (r, a) = told;
            format!("{r} required and {a} Acked by its row, {required} and {acked} by deliveries")
        })?;
        let met = self.was_met(row);
        demand(met || row.relayed_at.is_none(), "I9", id, || {
            format!("it counts as relayed with {acked} of {required} Acked")
        })?;
        let unmet = disk.unmet.contains(&(row.accepted_at, seq));
        let right = match row.relayed_at {
            Some(_) => !unmet,
            None => unmet || row.required == 0,
        };
        demand(right, "I2", id, || {
            format!("relayed at {:?}, and in unmet: {unmet}", row.relayed_at)
        })?;
        if let Some(at) = row.meta.expires() {
            let key = keys_upkeep::expiry(at, ExpiryKind::Segment, &keys::seq(seq));
            // Once its time was over it was looked at, and what keeps it longer has keys of its own.
            let over = at.0 <= disk.meta(MetaName::TimeHigh);
            let expires = over || disk.expiry.contains(&key[..]);
            demand(expires, "I18", id, || format!("it expires at {at}, and expiry does not know"))?;
        }
        if let Body::Blob(blob) = row.body {
            let owns = disk.owners.contains(&(blob, seq));
            demand(owns, "I16", id, || format!("it needs file {blob}, and owners does not know"))?;
        }
        Ok(())
    }

    /// Whether a segment that counts as relayed was so by any condition that ever held here.
    pub(super) fn was_met(&self, row: &SegmentRow) -> bool {
        let one = self.site.has_needed_one_peer() && meets(row, SuccessCondition::OnePeer);
        one || meets(row, SuccessCondition::AllPeers)
    }

    /// It counts as relayed since this batch, by a condition that held then.
    fn is_relayed_now(&self, seq: Seq) -> Check {
        let Some(row) = self.site.disk.segments.get(&seq) else { return Ok(()) };
        let met = self.site.rules().any(|config| meets(row, config.success_condition));
        // The same batch may have added a destination.
        let still = row.relayed_at.is_some() && !self.site.is_harmed(seq);
        demand(met || !still, "I9", Some(row.id), || {
            format!("it counts as relayed now, with {} of {} Acked", row.acked, row.required)
        })
    }

    /// The ACK that meets the condition sets the marker.
    fn met(&self, seq: Seq, required: u32) -> Check {
        let Some(row) = self.site.disk.segments.get(&seq) else { return Ok(()) };
        let met = self.site.rules().all(|config| meets(row, config.success_condition));
        let owes = row.relayed_at.is_none() && row.required == required && met;
        demand(!owes, "I9", Some(row.id), || {
            format!("{} of {required} are Acked, and it does not count as relayed", row.acked)
        })
    }

    /// A segment that is new: what was handed in, whole, and owed to everybody it is for.
    fn new_segment(&self, seq: Seq, to: &Destinations) -> Check {
        let disk = &self.site.disk;
        let Some(row) = disk.segments.get(&seq) else { return Ok(()) };
        let id = Some(row.id);
        demand(disk.ids.get(&row.id) == Some(&seq), "I1", id, || {
            format!("it is kept as number {seq}, and its identity leads to {:?}", {
                disk.ids.get(&row.id)
            })
        })?;
        self.keeps(row)?;
        let handed = self.world.stories.handed(&row.id);
        let same = handed.is_some_and(|h| (h.digest, h.size) == (row.digest, row.size));
        demand(same, "I11", id, || {
            let (digest, size) = (row.digest.short(), row.size);
            format!("{size} bytes of {digest} are kept, handed in was {handed:?}")
        })?;
        let from = if row.from == 0 { String::new() } else { self.site.peer(SiteNo(row.from)) };
        self.owed_as_taken(seq, to, &from, row)?;
        if let (Destinations::Named(names), 0) = (to, row.from) {
            let own = &self.site.config.name;
            let known = |n: &String| n == own || self.site.rules().any(|c| hop(c, n).is_some());
            let stranger = names.iter().find(|name| !known(name));
            demand(stranger.is_none(), "I2", id, || {
                format!("it is accepted for {stranger:?}, whom nobody serves")
            })?;
        }
        let end = self.site.disk.meta(MetaName::TimeHigh);
        demand(row.accepted_at <= end, "I18", id, || {
            format!("it is accepted at {}, the high water is {end} ms", row.accepted_at)
        })
    }

    /// After a stop nothing is accepted but content that was on its way in by then: each takes a
    /// reservation along.
    fn nothing_new_after_a_stop(&self, t: &Touched) -> Check {
        let Some(stopped) = self.site.life.stop_at.map(|now| now.wall.0) else { return Ok(()) };
        let disk = &self.site.disk;
        let rows = t.new.iter().filter_map(|(seq, _)| disk.segments.get(seq));
        let late: Vec<&SegmentRow> = rows.filter(|row| row.accepted_at > stopped).collect();
        let came = t.incoming.iter().filter(|blob| !disk.incoming.contains_key(blob)).count();
        demand(late.len() <= came, "I30", late.first().map(|row| row.id), || {
            let at: Vec<u64> = late.iter().map(|row| row.accepted_at).collect();
            format!("accepted at {at:?}: a stop was asked for, and {came} of them had begun")
        })
    }

    /// What a new row owes. A peer's offer and a local client's accept of the same content may share a
    /// batch: the row's origin is then this site, and who the offer named as origin has it and is
    /// owed nothing.
    fn owed_as_taken(&self, seq: Seq, to: &Destinations, from: &str, row: &SegmentRow) -> Check {
        let owes = |origin: &str| {
            let judged = self.site.rules().map(|config| self.owes(config, seq, to, from, origin));
            judged.reduce(Check::or).unwrap_or(Ok(()))
        };
        let judged = owes(&row.origin);
        let both = row.from != 0 && row.origin.is_empty();
        let mut origins = self.world.stories.origins(&row.id).map(|ix| self.name_of(ix));
        if both && origins.any(|origin| owes(&origin).is_ok()) {
            return Ok(());
        }
        judged
    }

    /// A segment is owed to every peer that it must go to from here, and to nobody it is not for.
    pub(super) fn owes(
        &self,
        config: &Config,
        seq: Seq,
        to: &Destinations,
        from: &str,
        origin: &str,
    ) -> Check {
        let disk = &self.site.disk;
        for name in wanted(config, to, from, origin) {
            let owed = disk.number_of(name).is_some_and(|no| {
                disk.deliveries.contains_key(&(seq, no))
                    || self.site.settled.contains(&(seq, no))
                    || self.site.excuses(seq, no)
            });
            demand(owed, "I2", self.site.id(seq), || {
                format!("number {seq} is accepted for {name} too, and not owed there")
            })?;
        }
        let stranger = disk.of_segment(seq).find(|(no, _)| {
            let row = disk.segments.get(&seq);
            !row.is_some_and(|row| row.to.addresses(&self.site.peer(*no)))
        });
        demand(stranger.is_none(), "I2", self.site.id(seq), || {
            let peer = stranger.map(|(no, _)| self.site.peer(no));
            format!("number {seq} is owed to {peer:?}, whom it is not for")
        })
    }

    /// Deliveries of one peer and state are as many as `counters` says.
    pub(super) fn counter(&self, key: (SiteNo, u8), before: Option<u64>) -> Check {
        if self.site.harm.row(&Name::Counter(key.0, key.1)) {
            return Ok(());
        }
        if key.1 == INBOUND {
            return self.inbound(key.0, before);
        }
        if key.1 >= SHARDS {
            return self.shards_counted(key);
        }
        let counted = self.site.tally.get(&key).copied().unwrap_or_default();
        let told = self.site.disk.counters.get(&key).copied().unwrap_or_default();
        demand(Tally::is(&counted, &told), "I2", None, || {
            let (peer, state) = (self.site.peer(key.0), key.1);
            format!("state {state} for {peer}: {told:?} by the counters, {counted:?} by the rows")
        })
    }

    /// What is charged is what is kept, within the limits, or on its way there: what is charged when a limit is
    /// lowered stays, and nothing comes on top.
    pub(super) fn usage(&self, before: (u64, u64)) -> Check {
        let disk = &self.site.disk;
        let (used, charged) = (disk.meta(MetaName::UsedBytes), self.site.charged);
        demand(i128::from(used) == charged, "I10", None, || {
            format!("{used} bytes are charged, {charged} are kept, reserved or to be removed")
        })?;
        let most = self.site.most(|config| config.max_bytes);
        demand(used <= most || used <= before.0, "I10", None, || {
            format!("{used} bytes are charged, {most} are the limit")
        })?;
        let (told, held) = (disk.meta(MetaName::Segments), disk.segments.len() as u64);
        demand(told == held, "I2", None, || {
            format!("{told} segments are held by the counter, {held} by their rows")
        })?;
        let most = self.site.most(|config| config.max_segments.unwrap_or(u64::MAX));
        let right = held <= most || held <= before.1;
        demand(right, "I10", None, || format!("{held} segments, {most} are the limit"))
    }

    /// A file: its users, and whether it is still to be there.
    pub(super) fn blob(&self, blob: BlobNo) -> Check {
        let disk = &self.site.disk;
        if self.site.harm.row(&Name::Blob(blob)) {
            return Ok(());
        }
        let owners = disk.owners_of(blob);
        let row = disk.blobs.get(&blob);
        let refs = row.map_or(0, |row| u64::from(row.refs));
        demand(owners == refs, "I16", None, || {
            format!("file {blob} has {refs} references, and {owners} segments need it")
        })?;
        let places = usize::from(row.is_some())
            + usize::from(disk.incoming.contains_key(&blob))
            + usize::from(disk.doomed.contains_key(&blob));
        let there = self.site.files.contains_key(&blob);
        demand(places == 1 || (places == 0 && !there), "I16", None, || {
            format!("file {blob} stands in {places} of blobs, incoming and doomed")
        })
    }

    /// Content on its way in: what its end leaves, and when it is given up.
    pub(super) fn incoming(&self, blob: BlobNo) -> Check {
        let disk = &self.site.disk;
        let Some(row) = disk.incoming.get(&blob) else { return self.blob(blob) };
        let ttl = self.site.past.partial_ttl;
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let latest = disk.meta(MetaName::TimeHigh).saturating_add(ttl);
        // Its shard has a deadline of its own.
        demand(row.expires_at <= latest || row.shard.is_some(), "I18", None, || {
            format!("file {blob} is given up at {}, {latest} is the latest", row.expires_at)
        })?;
        self.blob(blob)
    }

    pub(super) fn digest(&self, digest: &BlobDigest) -> Check {
        let disk = &self.site.disk;
        let Some(blob) = disk.digests.get(digest).copied() else { return Ok(()) };
        let harmed =
            self.site.harm.row(&Name::Blob(blob)) || self.site.harm.row(&Name::Digest(*digest));
        let right = disk.blobs.get(&blob).is_some_and(|row| row.digest == *digest);
        demand(right || harmed, "I16", None, || {
            format!("content {} is said to be in file {blob}, and is not", digest.short())
        })
    }

    /// Partial content of a peer is found again by its source.
    pub(super) fn source(&self, digest: &BlobDigest, no: SiteNo) -> Check {
        let (disk, harm) = (&self.site.disk, &self.site.harm);
        if no == SiteNo(0) || harm.row(&Name::Source(*digest, no)) {
            return Ok(());
        }
        let known = disk.sources.get(&(*digest, no)).and_then(|row| row.blob);
        let is = |row: &IncomingRow| (row.digest, SiteNo(row.source)) == (*digest, no);
        let there = disk.incoming.iter().find(|(_, row)| is(row)).map(|(blob, _)| *blob);
        demand(known == there, "I16", None, || {
            let (peer, digest) = (self.site.peer(no), digest.short());
            format!("{peer} sends {digest} into file {there:?}, sources says {known:?}")
        })
    }

    /// An identity is given up only with its content: nobody's word is enough for that.
    fn lost(&self, id: &SegmentId, seq: Seq) -> Check {
        let row = self.site.disk.segments.get(&seq);
        let whole = row.is_some_and(|row| self.site.content(row) == Holds::Yes);
        demand(!whole || self.site.is_harmed(seq), "I1", Some(*id), || {
            "its identity is given up, and its content is there".into()
        })
    }

    /// A body in the ledger has a segment.
    fn bodies_are_used(&self, t: &Touched) -> Check {
        if t.bodies.is_empty() {
            return Ok(());
        }
        let with_content =
            t.new.iter().map(|(seq, _)| seq).chain(t.mended.iter().map(|(seq, _)| seq));
        let rows = with_content.filter_map(|seq| self.site.disk.segments.get(seq));
        let used: BTreeSet<BodyNo> = rows
            .filter_map(|row| match row.body {
                Body::Inline(body) => Some(body),
                Body::Blob(_) => None,
            })
            .collect();
        let shards = &self.site.disk.pickup;
        let unused = t.bodies.iter().find(|body| !used.contains(body) && !shards.uses(**body));
        demand(unused.is_none(), "I10", None, || format!("body {unused:?} belongs to no segment"))
    }

    /// Of one peer and class, what has been due for longer goes first.
    fn in_turn(&self, mut t: Touched) -> Check {
        t.due.sort_unstable();
        // Of what goes to several sites by way of one hop, one has its turn, and the others go along.
        let hop = |config: &Config, no: SiteNo| {
            let name = self.site.peer(no);
            hop(config, &name).map(str::to_string).unwrap_or(name)
        };
        let one_way =
            |a: SiteNo, b: SiteNo| self.site.rules().any(|config| hop(config, a) == hop(config, b));
        let all = std::mem::take(&mut t.claimed);
        let along = |key: &&DueKey| {
            let with = |other: &DueKey| {
                other.seq == key.seq && other.peer != key.peer && one_way(other.peer, key.peer)
            };
            !all.iter().any(with)
        };
        t.claimed = all.iter().filter(along).copied().collect();
        let mut last: BTreeMap<(SiteNo, Class), DueKey> = BTreeMap::new();
        for key in &t.claimed {
            let most = last.entry((key.peer, key.class)).or_insert(*key);
            // The rows of a batch stand in the order in which they were decided.
            let late = *key < *most && t.due.binary_search(key).is_err();
            demand(!late, "I21", self.site.id(key.seq), || {
                let (peer, seq, at) = (self.site.peer(key.peer), key.seq, key.at);
                format!("number {seq}, due at {at}, goes to {peer} after {:?}", (most.seq, most.at))
            })?;
            *most = (*most).max(*key);
        }
        for ((peer, class), key) in last {
            let first = DueKey { peer, class, at: UnixMillis(0), id8: 0, seq: Seq(0) };
            let before = self.site.disk.due.range(first..key);
            let skipped = before
                .filter(|k| t.due.binary_search(k).is_err())
                .find(|k| !self.site.excuses(k.seq, k.peer));
            demand(skipped.is_none(), "I21", self.site.id(key.seq), || {
                let (peer, skipped) = (self.site.peer(peer), skipped.map(|k| (k.seq, k.at.0)));
                let (seq, at) = (key.seq, key.at);
                format!("number {seq}, due at {at}, goes to {peer} before {skipped:?}")
            })?;
        }
        Ok(())
    }
}
