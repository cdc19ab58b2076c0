//! What may leave a ledger, and what must stay of it: the policy, written down a second time.

use std::time::Duration;

use consign_core::id::{SegmentId, Seq, SiteNo};
use consign_core::ledger::rows::{Body, DeliveryRow, MetaName, SegmentRow, State};

use super::Desk;
use super::batch::Touched;
use super::rows::Name;
use super::violation::{Check, demand};

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// Why something went, by the record of it.
struct Record<'a> {
    action: &'a str,
    reason: &'a str,
}

impl Desk<'_> {
    /// What a batch has removed: each segment by a policy that allows it, with a record of it.
    pub(super) fn removed(&self, t: &Touched) -> Check {
        for (seq, row) in &t.gone {
            self.segment_goes(*seq, row, t)?;
        }
        for (seq, no, row) in &t.dropped {
            if !t.gone.iter().any(|(gone, _)| gone == seq) {
                self.purged(*seq, *no, row, t)?;
            }
        }
        for body in &t.gone_bodies {
            let of = |row: &SegmentRow| row.body == Body::Inline(*body);
            let with = t.gone.iter().any(|(_, row)| of(row));
            demand(with, "I2", None, || format!("body {body} is removed without its segment"))?;
        }
        self.acts_go(t)?;
        self.forgets(t)
    }

    fn record<'t>(&self, t: &'t Touched, subject: &str, actions: &[&str]) -> Option<Record<'t>> {
        let found = t
            .acts
            .iter()
            .find(|(action, to, _)| actions.contains(&action.as_str()) && to == subject);
        found.map(|(action, _, reason)| Record { action, reason })
    }

    fn segment_goes(&self, seq: Seq, row: &SegmentRow, t: &Touched) -> Check {
        let id = Some(row.id);
        let site = &*self.site;
        if site.disk.segments.contains_key(&seq) {
            return demand(false, "I2", id, || {
                format!("number {seq} is removed and written again")
            });
        }
        let record = self.record(t, &row.id.to_string(), &["evict", "release", "expire"]);
        let Some(record) = record else {
            return demand(false, "I2", id, || format!("number {seq} is removed unrecorded"));
        };
        let had: Vec<(SiteNo, &DeliveryRow)> =
            t.dropped.iter().filter(|(of, ..)| *of == seq).map(|(_, no, row)| (*no, row)).collect();
        let stays = site.disk.of_segment(seq).next().is_none();
        demand(stays, "I2", id, || format!("number {seq} is removed before its deliveries"))?;
        let flying = site.claims.keys().any(|(_, of)| *of == seq);
        demand(!flying && !row.held, "I9", id, || {
            format!("number {seq} is removed while it is sent, or held: {row:?}")
        })?;
        match record.action {
            "evict" => self.evicted(row, &had, record.reason)?,
            "release" => self.released(row, &had, record.reason)?,
            _ => self.expired(row, &had)?,
        }
        self.leaves_nothing(seq, row, &had)
    }

    fn evicted(&self, row: &SegmentRow, had: &[(SiteNo, &DeliveryRow)], reason: &str) -> Check {
        let (id, config) = (Some(row.id), &self.site.config);
        let acked = had.iter().filter(|(_, d)| d.state == State::Acked).count();
        let met = row.relayed_at.is_some() && acked > 0 && self.condition(row);
        demand(met && config.evict_on_relay, "I9", id, || {
            format!("it is evicted with {acked} of {} Acked: {row:?}", had.len())
        })?;
        demand(!row.here, "R1", id, || "it is evicted, and is for this site itself".into())?;
        let from = row.relayed_at.unwrap_or(0).saturating_add(millis(config.keep_relayed));
        let high = self.site.disk.meta(MetaName::TimeHigh);
        demand(from <= high || reason == "space", "I9", id, || {
            format!("it is evicted at {high} ms and was to be kept until {from}")
        })?;
        let remembered = self.site.disk.remembered.get(&row.id).is_some_and(|kept| {
            row.origin == kept.origin
                && (row.origin_seq == kept.origin_seq || row.origin.is_empty())
        });
        demand(remembered, "R2", id, || "it is evicted and not remembered".into())
    }

    fn released(&self, row: &SegmentRow, had: &[(SiteNo, &DeliveryRow)], reason: &str) -> Check {
        let id = Some(row.id);
        let all = !had.is_empty() && had.iter().all(|(_, d)| d.state == State::Acked);
        // Nothing exports in the simulator: what is for a site stays there.
        let transit = row.from != 0 && !row.here;
        demand(all && transit, "R3", id, || format!("it is released: {row:?}, owed was {had:?}"))?;
        let last = had.iter().map(|(_, d)| d.since).max().unwrap_or(0);
        let from = last.max(row.accepted_at).saturating_add(millis(self.site.config.keep));
        let high = self.site.disk.meta(MetaName::TimeHigh);
        demand(from <= high || reason == "space", "R5", id, || {
            format!("it is released at {high} ms and was to be kept until {from}")
        })
    }

    fn expired(&self, row: &SegmentRow, had: &[(SiteNo, &DeliveryRow)]) -> Check {
        let id = Some(row.id);
        let high = self.site.disk.meta(MetaName::TimeHigh);
        let over = row.meta.expires_at.is_some_and(|at| at <= high);
        demand(over, "I18", id, || format!("it expires at {high} ms: {:?}", row.meta.expires_at))?;
        let owed = had.iter().find(|(_, d)| d.state != State::Acked);
        demand(owed.is_none(), "I31", id, || {
            let (no, state) = owed.map_or((SiteNo(0), None), |(no, d)| (*no, Some(d.state)));
            format!("it expires while delivery to {} is {state:?}", self.site.peer(no))
        })
    }

    /// Its rows go with it, and receipts of what was delivered stay.
    fn leaves_nothing(&self, seq: Seq, row: &SegmentRow, had: &[(SiteNo, &DeliveryRow)]) -> Check {
        let (disk, id) = (&self.site.disk, Some(row.id));
        for (no, delivery) in had {
            let there = disk.receipts.contains_key(&(seq, *no));
            demand(there || delivery.state != State::Acked, "I2", id, || {
                format!("delivery to {} leaves no receipt", self.site.peer(*no))
            })?;
        }
        let leads = disk.ids.get(&row.id) == Some(&seq);
        demand(!leads, "I2", id, || format!("its identity leads to {seq}, which is gone"))?;
        let waits = disk.unmet.contains(&(row.accepted_at, seq));
        demand(!waits, "I2", id, || "it is gone, and still unmet".into())?;
        let kept = match row.body {
            Body::Inline(body) => disk.bodies.contains_key(&body),
            Body::Blob(blob) => disk.owners.contains(&(blob, seq)),
        };
        demand(!kept, "I10", id, || "it is gone, and its content is kept for it".into())
    }

    /// A dead letter that goes while its segment stays: long enough after it was written.
    fn purged(&self, seq: Seq, no: SiteNo, row: &DeliveryRow, t: &Touched) -> Check {
        let (site, id) = (&*self.site, self.site.id(seq));
        let subject = id.map(|id| format!("{id} to {}", site.peer(no))).unwrap_or_default();
        let high = site.disk.meta(MetaName::TimeHigh);
        let until = row.since.saturating_add(millis(site.config.keep_deadletter));
        let dead = row.state == State::Deadletter;
        demand(dead, "I4", id, || {
            format!("delivery to {} goes from {:?} to nothing", site.peer(no), row.state)
        })?;
        demand(until <= high, "I31", id, || {
            format!("the dead letter to {} is removed at {high}, before {until}", site.peer(no))
        })?;
        let recorded = self.record(t, &subject, &["purge"]).is_some();
        demand(recorded, "I31", id, || "a dead letter is removed unrecorded".into())
    }

    /// A receipt goes when its time is over.
    pub(super) fn receipt_goes(&self, seq: Seq, no: SiteNo) -> Check {
        let disk = &self.site.disk;
        let Some(row) = disk.receipts.get(&(seq, no)) else { return Ok(()) };
        let now = self.site.clock.now.wall.0.max(disk.meta(MetaName::TimeHigh));
        demand(row.expires_at <= now && !row.pending, "I31", Some(row.id), || {
            format!("the receipt of {} goes at {now}, before {}", row.site, row.expires_at)
        })
    }

    /// Records go oldest first, and only when there are more than are to be kept.
    fn acts_go(&self, t: &Touched) -> Check {
        let Some(last) = t.forgotten_acts.iter().max() else { return Ok(()) };
        let disk = &self.site.disk;
        let (first, left) = (disk.audit.keys().next().copied(), disk.audit.len() as u64);
        let right = first.is_none_or(|first| first > *last) && left >= self.site.config.audit_max;
        demand(right, "I31", None, || {
            format!("audit record {last} is removed: {left} are left, from {first:?} on")
        })
    }

    /// Ids are forgotten when their time is over or there are too many, never otherwise.
    fn forgets(&self, t: &Touched) -> Check {
        let (disk, config) = (&self.site.disk, &self.site.config);
        let high = disk.meta(MetaName::TimeHigh);
        for (id, since) in &t.forgotten {
            if disk.remembered.contains_key(id) {
                continue;
            }
            let over = since.saturating_add(millis(config.remember_for)) <= high;
            let many = disk.remembered.len() as u64 >= config.remember_max;
            demand(over || many, "R2", Some(*id), || {
                format!("it was evicted at {since}, and is forgotten at {high}")
            })?;
        }
        Ok(())
    }

    /// What was removed as it may be: what others rest on it is over.
    pub(super) fn remember_gone(&mut self, t: &Touched) {
        for (seq, row) in &t.gone {
            self.site.removed.insert(row.id, *seq);
            if self.site.newest.get(&row.id) == Some(seq) {
                self.site.newest.remove(&row.id);
            }
        }
        for (seq, _) in &t.new {
            if let Some(row) = self.site.disk.segments.get(seq) {
                self.site.removed.remove(&row.id);
            }
        }
    }

    /// No more is charged for a peer than it may bring.
    pub(super) fn inbound(&self, no: SiteNo) -> Check {
        let held = self.site.disk.counters.get(&(no, consign_core::ledger::rows::INBOUND));
        let held = held.map_or(0, |row| row.bytes);
        let name = self.site.peer(no);
        let quota = self.site.config.peers.iter().find(|peer| peer.name == name);
        let most = quota.and_then(|peer| peer.inbound_quota).unwrap_or(u64::MAX);
        demand(held <= most, "I10", None, || {
            format!("{held} bytes of {name} are charged, {most} are the limit")
        })
    }

    /// Records and memories are counted, found by age, and no more than they may be.
    pub(super) fn records(&self) -> Check {
        let disk = &self.site.disk;
        let harmed = |name: MetaName| self.site.harm.row(&Name::Meta(name));
        for (name, kept) in
            [(MetaName::AuditRows, disk.audit.len()), (MetaName::Remembered, disk.remembered.len())]
        {
            let told = disk.meta(name);
            demand(told == kept as u64 || harmed(name), "I31", None, || {
                format!("{name:?} is {told}, and {kept} are kept")
            })?;
        }
        let harmed = |id: &SegmentId| self.site.harm.row(&Name::Remembered(*id));
        for (at, id) in &disk.remembered_age {
            let right = disk.remembered.get(id).is_some_and(|row| row.evicted_at == *at);
            demand(right || harmed(id), "I31", Some(*id), || {
                format!("it is remembered by age since {at}, and otherwise it is not")
            })?;
        }
        demand(
            disk.remembered_age.len() >= disk.remembered.len()
                || disk.remembered.keys().any(|id| harmed(id)),
            "I31",
            None,
            || "an id is remembered and not found by age".into(),
        )
    }
}
