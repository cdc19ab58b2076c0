//! What goes: segments, deliveries, dead letters, records, memory. Nothing goes before it may, and nothing
//! of what somebody relies on goes without a record.
//!
//! The rules are written down a second time here, from the model: a copy that this site itself is
//! addressed by is never evicted (R1), what is forgotten is remembered (R2), and a copy that is let go
//! was relayed, or used, or has expired, or is on its way through and has arrived (R3).

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::Config;
use consign_core::id::{BodyNo, SegmentId, Seq, SiteNo};
use consign_core::ledger::rows::{Body, DeliveryRow, MetaName, SegmentRow, State};
use consign_core::ledger::rows_upkeep::{AuditRow, ExportState, ReceiptRow, RememberedRow};
use consign_core::segment::Destinations;

use super::Desk;
use super::batch::Touched;
use super::site::{Answer, Claim};
use super::violation::{Check, demand};

/// A delivery that left the ledger, with what was known of its last attempt.
#[derive(Clone, Debug)]
pub(super) struct Dropped {
    pub seq: Seq,
    pub no: SiteNo,
    pub row: DeliveryRow,
    pub claim: Option<Claim>,
}

/// What a batch removes, and the records it writes.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// Segments, as their rows were.
    pub segments: Vec<(Seq, SegmentRow)>,
    pub deliveries: Vec<Dropped>,
    pub bodies: Vec<BodyNo>,
    pub letters: Vec<(u64, Seq, SiteNo)>,
    /// Records that are written.
    pub records: Vec<AuditRow>,
    /// Records that go, with how many there were.
    pub old_records: Vec<(u64, usize)>,
    pub receipts: Vec<(Seq, SiteNo, ReceiptRow)>,
    /// Ids that are not remembered any more, with how many there were.
    pub memory: Vec<(SegmentId, RememberedRow, usize)>,
}

impl Removals {
    /// The segment that goes under this number.
    pub fn segment(&self, seq: Seq) -> Option<&SegmentRow> {
        self.segments.iter().find(|(gone, _)| *gone == seq).map(|(_, row)| row)
    }

    /// A record about a subject that begins so.
    pub fn record(&self, subject: &str, actions: &[&str]) -> Option<&AuditRow> {
        let about = |row: &&AuditRow| {
            row.subject.starts_with(subject) && actions.contains(&row.action.as_str())
        };
        self.records.iter().find(about)
    }

    /// Somebody's act of one of these kinds.
    fn act(&self, actions: &[&str]) -> Option<&AuditRow> {
        let is = |row: &&AuditRow| !row.who.is_empty() && actions.contains(&row.action.as_str());
        self.records.iter().find(is)
    }
}

/// Acts after which deliveries may be gone.
const TAKE_AWAY: [&str; 3] = ["purge", "forget", "release"];

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

impl Desk<'_> {
    /// Everything that a batch has removed.
    pub(super) fn removed(&mut self, t: &Touched) -> Check {
        let gone = &t.gone;
        for record in &gone.records {
            self.is_asked(record)?;
        }
        for (seq, row) in &gone.segments {
            self.segment_gone(*seq, row, gone)?;
        }
        for dropped in &gone.deliveries {
            self.delivery_gone(dropped, gone)?;
        }
        for (at, seq, no) in &gone.letters {
            self.letter_gone(*at, *seq, *no, gone)?;
        }
        for body in &gone.bodies {
            let of = |row: &SegmentRow| row.body == Body::Inline(*body);
            let users = gone.segments.iter().any(|(_, row)| of(row));
            let mended = t.mended.iter().any(|(_, old)| *old == Body::Inline(*body));
            let shard = t.pickup.let_go.contains(body);
            demand(users || mended || shard, "I17", None, || {
                format!("body {body} is removed, and its segment is not")
            })?;
        }
        for (seq, _) in &t.mended {
            self.mended(*seq, gone)?;
        }
        for seq in &t.cleared {
            self.cleared(*seq, gone)?;
        }
        self.memory_gone(gone)?;
        for (seq, no, row) in &gone.receipts {
            let high = self.site.disk.meta(MetaName::TimeHigh);
            let over = row.expires_at <= high && !row.pending;
            demand(over, "I31", Some(row.id), || {
                let to = self.site.peer(*no);
                format!("the receipt of number {seq} for {to} goes at {high}: {row:?}")
            })?;
        }
        Ok(())
    }

    /// What is recorded as somebody's act was asked for.
    fn is_asked(&self, record: &AuditRow) -> Check {
        let asked = record.who.is_empty() || self.site.acts.contains(&record.action);
        demand(asked, "I4", None, || format!("nobody has asked for {record:?}"))
    }

    fn segment_gone(&mut self, seq: Seq, row: &SegmentRow, gone: &Removals) -> Check {
        let judged = self.may_go(seq, row, gone);
        self.site.addressed.remove(&seq);
        self.site.given_out.remove(&seq);
        self.site.doubted_rightly.remove(&seq);
        judged
    }

    fn may_go(&self, seq: Seq, row: &SegmentRow, gone: &Removals) -> Check {
        let id = row.id;
        if self.site.harm.segment(seq) {
            return Ok(());
        }
        let record = gone.record(&id.to_string(), &["evict", "release", "expire"]);
        let record = record.or(gone.act(&["release"]));
        demand(record.is_some(), "I2", Some(id), || {
            format!("number {seq} is removed, and no record says so")
        })?;
        let Some(record) = record else { return Ok(()) };
        let flies = self.site.claims.keys().any(|(_, of)| *of == seq);
        let held = row.held && record.who.is_empty();
        demand(!flies && !held, "I9", Some(id), || {
            format!("number {seq} is removed, is sent: {flies}, is held: {held}")
        })?;
        self.leaves_nothing(seq, row, gone)?;
        let of: Vec<&Dropped> = gone.deliveries.iter().filter(|d| d.seq == seq).collect();
        for dropped in &of {
            self.leaves_a_trace(dropped, row, record, gone)?;
        }
        // What an operator has given up in this batch is not open any more.
        let ended = |d: &&Dropped| matches!(d.row.state, State::Acked | State::Deadletter);
        let given_up = given_up(row, gone);
        let settled: Vec<&Dropped> = of.into_iter().filter(|d| !given_up || ended(d)).collect();
        match record.action.as_str() {
            "evict" => self.evicted(seq, row, &record.reason),
            "expire" => self.expired(row, &settled),
            _ if record.who.is_empty() => self.released(seq, row, &settled, &record.reason),
            _ => Ok(()),
        }
    }

    /// Everything that was a segment's own goes with it.
    fn leaves_nothing(&self, seq: Seq, row: &SegmentRow, gone: &Removals) -> Check {
        let disk = &self.site.disk;
        let kept = match row.body {
            Body::Inline(body) => !gone.bodies.contains(&body) && disk.bodies.contains_key(&body),
            Body::Blob(blob) => disk.owners.contains(&(blob, seq)),
        };
        demand(!kept, "I10", Some(row.id), || {
            format!("number {seq} is removed, and its content {:?} is still its own", row.body)
        })?;
        // A row that cannot be read is not seen when its segment goes: `fsck` finds it.
        let mut left = disk.of_segment(seq).filter(|(no, _)| !self.site.excuses(seq, *no));
        let left = left.next().map(|(no, _)| no);
        demand(left.is_none(), "I2", Some(row.id), || {
            format!("number {seq} is removed, and its delivery to {left:?} is left")
        })?;
        let waits = disk.unmet.contains(&(row.accepted_at, seq));
        let known = disk.ids.get(&row.id) == Some(&seq);
        demand(!waits && !known, "I2", Some(row.id), || {
            format!("number {seq} is removed; in unmet: {waits}, by its identity: {known}")
        })
    }

    /// What was delivered leaves a receipt, what was not is recorded by itself.
    fn leaves_a_trace(
        &self,
        dropped: &Dropped,
        row: &SegmentRow,
        record: &AuditRow,
        gone: &Removals,
    ) -> Check {
        let Dropped { seq, no, row: delivery, .. } = dropped;
        let peer = self.site.peer(*no);
        demand(delivery.state != State::Inflight, "I9", Some(row.id), || {
            format!("it is removed ({}), and is in flight to {peer}", record.action)
        })?;
        let told = match delivery.state {
            // Its receipt may be over at the same time.
            State::Acked => {
                let over = gone.receipts.iter().any(|(s, n, _)| (s, n) == (seq, no));
                // … or was a moment before.
                let keep = self.site.least(|config| millis(config.keep_receipts));
                let end = delivery.since.saturating_add(keep);
                over || end <= self.site.clock.now.wall.0
                    || self.site.disk.receipts.contains_key(&(*seq, *no))
            }
            _ => {
                let subject = format!("{} to {peer}", row.id);
                let recorded = gone.records.iter().any(|r| r.subject == subject);
                recorded || given_up(row, gone) || !record.who.is_empty()
            }
        };
        demand(told, "I2", Some(row.id), || {
            let state = delivery.state;
            format!("it is removed, was {state:?} for {peer}, and nothing says so any more")
        })
    }

    /// Evicted: relayed, not for this site, and remembered.
    fn evicted(&self, seq: Seq, row: &SegmentRow, reason: &str) -> Check {
        let site = &*self.site;
        let id = Some(row.id);
        demand(site.rules().any(|config| config.evict_on_relay), "I9", id, || {
            "it is evicted, and nothing is to be".into()
        })?;
        let own = &site.config.name;
        let elsewhere = !row.origin.is_empty() && row.origin != *own;
        let named = matches!(row.to, Destinations::Named(_));
        let addressed = (elsewhere || named) && row.to.addresses(own);
        let asked = site.addressed.contains(&seq);
        demand(!row.here && !addressed && !asked, "I9", id, || {
            format!(
                "it is evicted, and is for this site itself: {:?} from {:?}",
                row.to, row.origin
            )
        })?;
        demand(self.was_met(row), "I9", id, || {
            format!("it is evicted with {} of {} Acked", row.acked, row.required)
        })?;
        let high = site.disk.meta(MetaName::TimeHigh);
        let keep = site.least(|config| millis(config.keep_relayed));
        let from = row.relayed_at.map(|at| at.saturating_add(keep));
        let over = from.is_some_and(|from| from <= high);
        demand(
            over || (site.short && reason == "space" && row.relayed_at.is_some()),
            "I9",
            id,
            || format!("it is evicted at {high}, and is to be kept until {from:?}"),
        )?;
        demand(self.is_exported(seq, row), "I9", id, || {
            "it is evicted, and an inbox rule has not given it out yet".into()
        })?;
        let known = site.disk.remembered.get(&row.id);
        let origin = if row.origin == *own { "" } else { row.origin.as_str() };
        let right = known.is_some_and(|known| known.origin == origin && known.seq == seq);
        demand(right, "I9", id, || format!("it is evicted as {row:?}, and remembered as {known:?}"))
    }

    /// Released by itself: used here, or through and everybody has it.
    fn released(&self, seq: Seq, row: &SegmentRow, of: &[&Dropped], reason: &str) -> Check {
        let id = Some(row.id);
        let site = &*self.site;
        let open = of.iter().find(|d| d.row.state != State::Acked);
        demand(open.is_none(), "I9", id, || {
            let open = open.map(|d| (self.site.peer(d.no), d.row.state));
            format!("it is released, and still open is {open:?}")
        })?;
        let used = row.let_go.is_some() || (row.here && self.site.given_out.contains(&seq));
        let through = row.from != 0 && !row.here && !of.is_empty();
        demand(used || through, "I9", id, || {
            let (here, from, n) = (row.here, row.from, of.len());
            format!("it is released: for this site {here}, from {from}, {n} deliveries")
        })?;
        let high = site.disk.meta(MetaName::TimeHigh);
        let last = of.iter().map(|d| d.row.since).max().unwrap_or(0).max(row.accepted_at);
        let until = last.saturating_add(site.least(|config| millis(config.keep)));
        let until = if row.let_go.is_some() { 0 } else { until };
        demand(until <= high || (site.short && reason == "space"), "I9", id, || {
            format!("it is released at {high}, and is to be kept until {until}")
        })
    }

    fn expired(&self, row: &SegmentRow, of: &[&Dropped]) -> Check {
        let id = Some(row.id);
        let high = self.site.disk.meta(MetaName::TimeHigh);
        let over = row.meta.expires_at.is_some_and(|at| at <= high);
        demand(over, "I9", id, || {
            format!("its time is said to be over at {high}, and ends at {:?}", row.meta.expires_at)
        })?;
        let open = of.iter().find(|d| !matches!(d.row.state, State::Acked | State::Deadletter));
        demand(open.is_none(), "I9", id, || {
            let open = open.map(|d| (self.site.peer(d.no), d.row.state));
            format!("its time is over, and still open is {open:?}")
        })
    }

    /// Whether every inbox rule that has begun on it is done.
    fn is_exported(&self, seq: Seq, _row: &SegmentRow) -> bool {
        let of = self.site.disk.exports.iter().filter(|((_, of), _)| *of == seq);
        of.into_iter().all(|(_, row)| row.state == ExportState::Done)
    }

    /// A delivery left the required set of a segment that stays.
    fn delivery_gone(&mut self, dropped: &Dropped, gone: &Removals) -> Check {
        let Dropped { seq, no, row, claim } = dropped;
        let name = self.site.peer(*no);
        let id = gone.segment(*seq).map(|row| row.id).or(self.site.id(*seq));
        let Some(id) = id else { return Ok(()) };
        if gone.segment(*seq).is_some() {
            if row.state != State::Acked {
                self.world.custody.ends(self.ix, id, &name);
            }
            return Ok(());
        }
        if self.site.excuses(*seq, *no) {
            self.world.custody.ends(self.ix, id, &name);
            return Ok(());
        }
        if gone.act(&TAKE_AWAY).is_some() && row.state != State::Acked {
            self.world.custody.ends(self.ix, id, &name);
            return Ok(());
        }
        if row.state == State::Deadletter {
            self.world.custody.ends(self.ix, id, &name);
            return Ok(());
        }
        let recorded = gone.record(&id.to_string(), &["settled"]).is_some();
        demand(recorded, "I2", Some(id), || {
            format!("delivery to {name} is removed, and no record says so")
        })?;
        self.settled_by_itself(id, &name, *no, claim.as_ref())?;
        // On its way through, whoever handed it on is told. Where it began it must stay (R3).
        if self.site.disk.segments.get(seq).is_some_and(|row| row.from != 0) {
            self.world.custody.ends(self.ix, id, &name);
        }
        Ok(())
    }

    /// Only a site that is itself addressed may say that it had it (R3).
    fn settled_by_itself(
        &self,
        id: SegmentId,
        name: &str,
        no: SiteNo,
        claim: Option<&Claim>,
    ) -> Check {
        let is_peer = |config: &Config| config.peers.iter().any(|peer| peer.name == name);
        let direct = self.site.rules().any(is_peer);
        demand(direct, "I4", Some(id), || {
            format!("delivery to {name} is removed, and {name} itself never answers here")
        })?;
        if !self.world.taps {
            return Ok(());
        }
        let answer = claim.and_then(|claim| claim.answer).map(|(answer, _)| answer);
        let had = Refusal::AlreadyRelayed.number();
        let came = matches!(answer, Some(Answer::Reject { code, .. }) if code == had);
        demand(came, "I4", Some(id), || {
            let no = no.0;
            format!("delivery to {name} ({no}) is removed, and there came {answer:?}")
        })
    }

    /// A dead letter goes with its segment, by an operator, or when it was kept long enough.
    fn letter_gone(&self, at: u64, seq: Seq, no: SiteNo, gone: &Removals) -> Check {
        let disk = &self.site.disk;
        let id = self.site.id(seq).or(gone.segment(seq).map(|row| row.id));
        let asked = gone.act(&["retry", "purge", "forget", "release"]).is_some();
        if asked || gone.segment(seq).is_some() || self.site.excuses(seq, no) {
            return Ok(());
        }
        let keep = self.site.least(|config| millis(config.keep_deadletter));
        let until = at.saturating_add(keep);
        let high = disk.meta(MetaName::TimeHigh);
        let recorded = id.is_some_and(|id| gone.record(&id.to_string(), &["purge"]).is_some());
        demand(until <= high && recorded, "I31", id, || {
            let peer = self.site.peer(no);
            format!("the dead letter of {at} to {peer} goes at {high}; recorded: {recorded}")
        })
    }

    /// Memory and records are bounded by age and number, and the oldest go first.
    fn memory_gone(&self, gone: &Removals) -> Check {
        let disk = &self.site.disk;
        let remember_for = self.site.least(|config| millis(config.remember_for));
        let remember_max = self.site.least(|config| config.remember_max);
        let audit_max = self.site.least(|config| config.audit_max);
        let high = disk.meta(MetaName::TimeHigh);
        for (id, row, count) in &gone.memory {
            let old = row.evicted_at.saturating_add(remember_for) <= high;
            let many = *count as u64 > remember_max;
            // It is here again, or was evicted once more.
            let anew = disk.ids.contains_key(id) || disk.remembered.contains_key(id);
            demand(old || many || anew, "I9", Some(*id), || {
                format!("it is forgotten at {high} as one of {count}: {row:?}")
            })?;
        }
        for (number, count) in &gone.old_records {
            let many = *count as u64 > audit_max;
            let first = disk.audit.keys().next().is_none_or(|first| first > number);
            demand(many && first, "I31", None, || {
                format!("record {number} goes, one of {count}, and is the oldest: {first}")
            })?;
        }
        Ok(())
    }
}

/// Whether an operator has given up what was owed in this batch, before the segment went by itself.
fn given_up(row: &SegmentRow, gone: &Removals) -> bool {
    let released = row.let_go.is_some() && gone.act(&["release"]).is_some();
    released || gone.act(&["purge", "forget"]).is_some()
}
