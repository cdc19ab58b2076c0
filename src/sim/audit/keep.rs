//! Bounds of what is kept, and what is known of what is not kept any more.

use consign_core::id::{SegmentId, SiteNo};
use consign_core::ledger::rows::MetaName;

use super::Desk;
use super::batch::Touched;
use super::rows::Name;
use super::violation::{Check, demand};

impl Desk<'_> {
    /// What was removed as it may be: what others rest on it is over.
    pub(super) fn remember_gone(&mut self, t: &Touched) {
        for (seq, row) in &t.gone.segments {
            self.site.removed.insert(row.id, *seq);
            if self.site.newest.get(&row.id) == Some(seq) {
                self.site.newest.remove(&row.id);
            }
        }
        self.site.replaced.clear();
        for (seq, _) in &t.new {
            let Some(id) = self.site.id(*seq) else { continue };
            self.site.removed.remove(&id);
            if t.gone.segments.iter().any(|(_, row)| row.id == id) {
                self.site.replaced.insert(id);
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
                || disk.remembered.keys().any(harmed),
            "I31",
            None,
            || "an id is remembered and not found by age".into(),
        )
    }
}
