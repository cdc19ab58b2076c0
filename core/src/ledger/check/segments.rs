//! Segments with their deliveries, and the index rows that lead to both.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::lose::due;
use super::{Check, Fix, Look, Rule};
use crate::code::Cause;
use crate::id::{Epoch, Seq, SiteNo};
use crate::ledger::keys_upkeep::{self, ExpiryKind, Owner};
use crate::ledger::rows::{
    Body, DeadletterRow, DeliveryRow, IdRow, InflightRow, Loss, MetaName, SegmentRow, State,
};
use crate::ledger::{Table, codec, keys};
use crate::segment::Destinations;
use crate::time::UnixMillis;

impl Check<'_> {
    pub(super) fn segments(&mut self) {
        self.each(Table::Segments, &[], &mut |check, key, value| {
            let Some(seq) = keys::parse_u64(key).map(Seq) else {
                check.key_is_good(Table::Segments, key, value);
                return;
            };
            check.sums.gives(MetaName::NextSeq, seq.0);
            if let Some(row) = check.readable::<SegmentRow>(Table::Segments, key, value) {
                check.segment(seq, &row);
            }
        });
    }

    fn segment(&mut self, seq: Seq, row: &SegmentRow) {
        self.sums.segment(row.from, row.loss.is_some());
        if row.unplaced == Some(true) {
            self.sums.counts(MetaName::Unplaced);
        }
        if row.loss != Some(Loss::Gone) {
            self.id(seq, row);
        }
        self.body(seq, row);
        self.its_deliveries(seq, row);
        if row.relayed_at.is_none() && row.required > 0 {
            let key = keys::unmet(UnixMillis(row.accepted_at), seq);
            self.need(Table::Unmet, &key, &format!("segment {seq}"));
        }
        // What is over by the clock may have been dealt with.
        if let Some(at) = row.meta.expires().filter(|at| at.0 > self.time_high) {
            let key = keys_upkeep::expiry(at, ExpiryKind::Segment, &keys::seq(seq));
            self.need(Table::Expiry, &key, &format!("segment {seq}"));
        }
    }

    /// Its id leads to it, or to another segment of that id whose content is there.
    fn id(&mut self, seq: Seq, row: &SegmentRow) {
        let key = keys::id(&row.id);
        let leads = match self.look::<IdRow>(Table::Ids, &key) {
            Look::Row(id) if id.seq == seq => true,
            Look::Row(id) => {
                let other = self.look::<SegmentRow>(Table::Segments, &keys::seq(id.seq)).row();
                other.is_some_and(|o| o.id == row.id && o.loss != Some(Loss::Gone))
            }
            Look::Nothing | Look::Bad => false,
        };
        if !leads {
            let text = format!("the id of segment {seq} does not lead to it");
            let fix = Fix::put(Table::Ids, &key, &IdRow { seq });
            self.found(Rule::IndexMissing, Table::Ids, &key, text, vec![fix]);
        }
    }

    fn its_deliveries(&mut self, seq: Seq, segment: &SegmentRow) {
        // A delivery is at most one for each peer.
        let mut rows: BTreeMap<SiteNo, Option<DeliveryRow>> = BTreeMap::new();
        let prefix = keys::seq(seq);
        let snapshot = self.snapshot;
        let scanned = crate::ledger::read::scan_prefix(
            snapshot,
            Table::Deliveries,
            &prefix,
            &mut |key, value| {
                if let Some((_, site)) = keys::parse_delivery(key) {
                    rows.insert(site, codec::decode(Table::Deliveries, key, value).ok());
                }
                true
            },
        );
        if self.failed(scanned).is_none() {
            return;
        }
        for (site, row) in &rows {
            if let Some(row) = row {
                self.delivery(seq, *site, row, segment);
            }
        }
        let acked = rows.values().flatten().filter(|r| r.state == State::Acked).count() as u32;
        let mut fixes = Vec::new();
        let mut required = rows.len() as u32;
        if required < segment.required {
            for site in self.lost_sites(seq, segment, &rows) {
                self.unknown_peer(site);
                fixes.extend(self.anew(seq, site, segment));
                required += 1;
            }
        }
        if required != segment.required || acked != segment.acked || !fixes.is_empty() {
            let text = format!(
                "segment {seq} counts {} deliveries, {} of them acked; there are {} and {acked}",
                segment.required,
                segment.acked,
                rows.len()
            );
            let row = SegmentRow { required, acked, ..segment.clone() };
            let key = keys::seq(seq);
            fixes.push(Fix::put(Table::Segments, &key, &row));
            if row.required > 0 && row.relayed_at.is_none() {
                let unmet = keys::unmet(UnixMillis(row.accepted_at), seq);
                fixes.push(Fix::index(Table::Unmet, &unmet));
            }
            self.found(Rule::SegmentCounts, Table::Segments, &key, text, fixes);
        }
    }

    /// Sites whose delivery has no row any more: those that index rows name, or else all that the
    /// segment goes to. One too many is stored once; one too few is lost.
    fn lost_sites(
        &mut self,
        seq: Seq,
        segment: &SegmentRow,
        rows: &BTreeMap<SiteNo, Option<DeliveryRow>>,
    ) -> Vec<SiteNo> {
        let missing = segment.required.saturating_sub(rows.len() as u32) as usize;
        let others: Vec<SiteNo> =
            self.peers.keys().copied().filter(|site| !rows.contains_key(site)).collect();
        let mut lost = Vec::new();
        for site in &others {
            let key = keys::peer_seq(*site, seq);
            let named = [Table::Owed, Table::Inflight, Table::Handed];
            if named.into_iter().any(|table| self.has(table, &key)) {
                lost.push(*site);
            }
        }
        if lost.len() >= missing {
            return lost;
        }
        others
            .into_iter()
            .filter(|site| lost.contains(site) || self.goes_to(*site, segment))
            .collect()
    }

    fn goes_to(&self, site: SiteNo, segment: &SegmentRow) -> bool {
        let Some(peer) = self.peers.get(&site) else { return false };
        site.0 != segment.from
            && match &segment.to {
                Destinations::All => true,
                Destinations::Named(names) => names.contains(&peer.name),
            }
    }

    /// A delivery that begins anew: what was known of it is gone. It was owed, so it is owed; if the
    /// content is gone it is a dead letter.
    pub(super) fn anew(&self, seq: Seq, site: SiteNo, segment: &SegmentRow) -> Vec<Fix> {
        let dead = segment.loss.is_some();
        let cause = if dead { Cause::Missing } else { Cause::Restart };
        let row = DeliveryRow {
            state: if dead { State::Deadletter } else { State::Scheduled },
            attempts: 0,
            spent: 0,
            next_attempt_after: self.at.0,
            last_error: cause.number(),
            since: self.at.0,
            custody: None,
            held: None,
            claimed_at: None,
            refused: 0,
        };
        let mut fixes = vec![Fix::put(Table::Deliveries, &keys::delivery(seq, site), &row)];
        let pair = keys::peer_seq(site, seq);
        fixes.extend([Table::Inflight, Table::Handed].map(|table| Fix::del(table, &pair)));
        if dead {
            let key = keys::deadletter(self.at, seq, site);
            let dead = DeadletterRow { cause: cause.number() };
            fixes.push(Fix::put(Table::Deadletters, &key, &dead));
        } else {
            fixes.push(Fix::index(Table::Owed, &pair));
            fixes.push(Fix::index(Table::Due, &due(site, seq, &row, segment).key()));
        }
        fixes
    }

    fn delivery(&mut self, seq: Seq, site: SiteNo, row: &DeliveryRow, segment: &SegmentRow) {
        self.sums.delivery(site, row, segment.size);
        self.unknown_peer(site);
        let whose = format!("the delivery of segment {seq} to site number {site}");
        let pair = keys::peer_seq(site, seq);
        if matches!(row.state, State::Scheduled | State::Failed | State::Inflight) {
            self.need(Table::Owed, &pair, &whose);
        }
        match row.state {
            State::Scheduled | State::Failed => {
                let held = row.held == Some(true)
                    || segment.held
                    || self.peers.get(&site).is_some_and(|peer| peer.held);
                if !held {
                    self.need(Table::Due, &due(site, seq, row, segment).key(), &whose);
                }
            }
            State::Inflight if row.custody.is_some() => {
                if !self.has(Table::Inflight, &pair) {
                    self.need(Table::Handed, &pair, &whose);
                }
            }
            State::Inflight => {
                if !self.has(Table::Inflight, &pair) {
                    // Of a session long over: the next start settles it.
                    let epoch = InflightRow { epoch: Epoch { boot: 0, session: 0 } };
                    let fix = Fix::put(Table::Inflight, &pair, &epoch);
                    let text = format!("{whose} has no row in inflight");
                    self.found(Rule::IndexMissing, Table::Inflight, &pair, text, vec![fix]);
                }
            }
            State::Deadletter => {
                let key = keys::deadletter(UnixMillis(row.since), seq, site);
                if !self.has(Table::Deadletters, &key) {
                    let dead = DeadletterRow { cause: row.last_error };
                    let fix = Fix::put(Table::Deadletters, &key, &dead);
                    let text = format!("{whose} has no row in deadletters");
                    self.found(Rule::IndexMissing, Table::Deadletters, &key, text, vec![fix]);
                }
            }
            State::Acked => {}
        }
    }

    /// Deliveries without a segment, and those that cannot be read.
    pub(super) fn deliveries(&mut self) {
        let mut last: Option<(Seq, Option<SegmentRow>)> = None;
        self.each(Table::Deliveries, &[], &mut |check, key, value| {
            let Some((seq, site)) = keys::parse_delivery(key) else {
                check.key_is_good(Table::Deliveries, key, value);
                return;
            };
            check.sums.gives(MetaName::NextSeq, seq.0);
            if last.as_ref().is_none_or(|(of, _)| *of != seq) {
                let row = check.look(Table::Segments, &keys::seq(seq)).row();
                last = Some((seq, row));
            }
            let segment = last.as_ref().and_then(|(_, segment)| segment.as_ref());
            let bad = super::decodes(Table::Deliveries, key, value).err();
            let at = check.at.0;
            match (segment, bad) {
                (Some(_), None) => {}
                (Some(segment), Some((rule, why))) => {
                    check.unknown_peer(site);
                    let mut fixes = super::quarantine(Table::Deliveries, key, value, at, &why);
                    fixes.extend(check.anew(seq, site, segment));
                    check.found(rule, Table::Deliveries, key, why, fixes);
                }
                (None, bad) => {
                    let (rule, why) = bad.unwrap_or_else(|| {
                        (Rule::SegmentLost, format!("there is no segment {seq} to deliver"))
                    });
                    let fixes = super::quarantine(Table::Deliveries, key, value, at, &why);
                    check.found(rule, Table::Deliveries, key, why, fixes);
                }
            }
        });
    }

    fn body(&mut self, seq: Seq, row: &SegmentRow) {
        let fault = match row.body {
            Body::Inline(_) => {
                self.sums.charge(row.from, crate::node::inline_charge(row.size));
                self.inline(row)
            }
            Body::Blob(blob) => {
                let owner = keys_upkeep::owner(blob, &Owner::Segment(seq));
                self.need(Table::Owners, &owner, &format!("segment {seq}"));
                self.blob_of(blob, row)
            }
        };
        let Some((cause, what)) = fault.filter(|_| row.loss.is_none()) else { return };
        let (snapshot, at) = (self.snapshot, self.at);
        let fixes = self.failed(super::lose(snapshot, seq, cause, at)).unwrap_or_default();
        let text = format!("the content of segment {seq} is {}: {what}", cause.word());
        self.found(Rule::ContentLost, Table::Segments, &keys::seq(seq), text, fixes);
    }
}
