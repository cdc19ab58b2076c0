//! Nothing is lost: whatever a site has promised to bring somewhere is there, or is owed or a dead letter
//! at somebody who holds it, or was let go by a record that says so.

use std::collections::{BTreeMap, BTreeSet};

use consign_core::id::{SegmentId, Seq};
use consign_core::ledger::rows::State;

use super::site::{Holds, Site};
use super::violation::broken;
use super::{Audit, World};
use crate::sim::seen::SiteIx;

/// Who has promised what.
#[derive(Debug, Default)]
pub(super) struct Custody {
    /// For each segment the promises that stand: by whom, for which site.
    promised: BTreeMap<SegmentId, BTreeSet<(SiteIx, String)>>,
}

impl Custody {
    /// A site has said that a segment will be brought to `name`.
    pub fn promise(&mut self, ix: SiteIx, id: SegmentId, name: &str) {
        self.promised.entry(id).or_default().insert((ix, name.to_string()));
    }

    /// A promise has come to its end by a record.
    pub fn ends(&mut self, ix: SiteIx, id: SegmentId, name: &str) {
        if let Some(promised) = self.promised.get_mut(&id) {
            promised.remove(&(ix, name.to_string()));
        }
    }

    /// An older ledger was put back: what a site has promised since cannot be told any more.
    pub fn forget_all_of(&mut self, ix: SiteIx) {
        for promised in self.promised.values_mut() {
            promised.retain(|(by, _)| *by != ix);
        }
    }
}

// A violation ends the run: its size costs nothing.
#[allow(clippy::result_large_err)]
impl Audit {
    /// Looks at every promise of every site.
    ///
    /// # Errors
    /// The first that nobody can keep any more.
    pub fn nothing_is_lost(&mut self) -> Result<(), super::Violation> {
        let Audit { sites, world } = self;
        let mut lost = None;
        world.custody.promised.retain(|id, promised| {
            promised.retain(|(ix, name)| {
                let there = || has_arrived(&world.began, &world.names, id, name);
                let unseen = !world.taps && (is_there(sites, id, name) || there());
                let kept =
                    lost.is_some() || unseen || is_kept(sites, &world.held, &world.names, id, name);
                if !kept {
                    lost = Some((*ix, *id, name.clone()));
                }
                // What has arrived stays arrived.
                !has_arrived(&world.held, &world.names, id, name)
            });
            !promised.is_empty()
        });
        let Some((ix, id, name)) = lost else { return Ok(()) };
        let text =
            format!("it was to be brought to {name}; nobody owes it any more, nobody says why");
        Err(self.violation(ix, *broken("I2", Some(id), text)))
    }
}

fn has_arrived(
    held: &BTreeSet<(SegmentId, SiteIx)>,
    names: &BTreeMap<SiteIx, String>,
    id: &SegmentId,
    name: &str,
) -> bool {
    let ix = names.iter().find(|(_, known)| *known == name).map(|(ix, _)| *ix);
    ix.is_some_and(|ix| held.contains(&(*id, ix)))
}

fn is_kept(
    sites: &BTreeMap<SiteIx, Site>,
    held: &BTreeSet<(SegmentId, SiteIx)>,
    names: &BTreeMap<SiteIx, String>,
    id: &SegmentId,
    name: &str,
) -> bool {
    has_arrived(held, names, id, name) || sites.values().any(|site| site.answers_for(id, name))
}

/// Whether a destination holds a segment, where nobody can see the ACK that says so.
fn is_there(sites: &BTreeMap<SiteIx, Site>, id: &SegmentId, name: &str) -> bool {
    let site = sites.values().find(|site| site.config.name == name);
    site.is_some_and(|site| matches!(site.holds(id), Holds::Yes | Holds::Harmed))
}

impl Site {
    /// Whether this site holds a segment and has not brought it to `name`, or it cannot be told any more.
    fn answers_for(&self, id: &SegmentId, name: &str) -> bool {
        if self.lost_track {
            return true;
        }
        if self.newest.get(id).is_some_and(|newest| self.answers_under(*newest, name)) {
            return true;
        }
        // What has lost its content keeps its number and its dead letters beside a later accept.
        let mut numbers = self.disk.segments.iter().filter(|(_, row)| row.id == *id);
        numbers.any(|(seq, _)| self.answers_under(*seq, name))
    }

    /// [`Site::answers_for`], as far as one number of it says.
    fn answers_under(&self, seq: Seq, name: &str) -> bool {
        if self.is_harmed(seq) {
            return true;
        }
        let Some(row) = self.disk.segments.get(&seq) else { return false };
        let here = matches!(self.content(row), Holds::Yes | Holds::Harmed);
        let numbers = self.disk.peers.iter().filter(|(_, known)| *known == name);
        here && numbers.into_iter().any(|(no, _)| {
            let state = self.disk.deliveries.get(&(seq, *no)).map(|row| row.state);
            state.is_some_and(|state| state != State::Acked)
                || self.settled.contains(&(seq, *no))
                || self.excuses(seq, *no)
        })
    }
}

impl World {
    /// A promise to bring a segment to these sites.
    pub(super) fn promise<'n>(
        &mut self,
        ix: SiteIx,
        id: SegmentId,
        names: impl Iterator<Item = &'n str>,
    ) {
        names.for_each(|name| self.custody.promise(ix, id, name));
    }
}
