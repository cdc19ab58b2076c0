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

    /// What may be more than a limit that was lowered: what was charged, and what was kept or let come.
    pub(super) fn usage_before(&self) -> (u64, u64) {
        let disk = &self.site.disk;
        let coming = disk.incoming.values().filter(|row| row.shard.is_none()).count() as u64;
        let usage = (disk.meta(MetaName::UsedBytes), disk.meta(MetaName::Segments) + coming);
        if self.site.past.reloaded { usage } else { (0, 0) }
    }

    /// No more is charged for a peer than it may bring, or than was before the quota was lowered.
    pub(super) fn inbound(&self, no: SiteNo, before: Option<u64>) -> Check {
        let held = self.site.disk.counters.get(&(no, consign_core::ledger::rows::INBOUND));
        let held = held.map_or(0, |row| row.bytes);
        let name = self.site.peer(no);
        let most = self.site.most(|config| {
            let quota = config.peers.iter().find(|peer| peer.name == name);
            quota.and_then(|peer| peer.inbound_quota).unwrap_or(u64::MAX)
        });
        let eased = self.site.past.reloaded && before.is_some_and(|before| held <= before);
        demand(held <= most || eased, "I10", None, || {
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
