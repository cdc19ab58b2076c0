//! What must hold on a full disk: growth waits until the ballast is whole again (G5), and what is held
//! leaves all the same (G4).

use std::time::Duration;

use consign_core::ledger::Table;
use consign_core::store::{Batch, Op, Snapshot};

use super::audit::Violation;
use super::run::Run;
use super::seen::SiteIx;
use super::world::{Site, World};

/// Beside some waits of the longest backoff: for starts, dials and what is sent.
const BESIDE: Duration = Duration::from_secs(1_800);
/// By then everything that was held is let loose.
const LOOSE: Duration = Duration::from_secs(600);
/// How often is looked whether everything has left.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// New content is in it. What had been reserved before is let finish, and is not counted here.
fn grows(batch: &Batch) -> bool {
    batch.ops().any(|op| matches!(op, Op::PutBody { .. }))
}

impl World {
    fn broken(&mut self, ix: SiteIx, text: String) {
        let violation = Violation {
            invariant: "I21",
            site: self.sites[ix].config.name.clone(),
            segment: None,
            name: String::new(),
            text,
            story: Vec::new(),
        };
        self.watch.check(self.now, Err(violation));
    }

    /// Whether a site runs on, has its whole ballast and takes in no content.
    fn is_ready(&self, ix: SiteIx) -> bool {
        let Site { store, process, .. } = &self.sites[ix];
        if process.as_ref().is_none_or(|process| process.stopping) {
            return false;
        }
        let mut idle = true;
        let looked = store.snapshot().scan(Table::Incoming, &[], &mut |_, _| {
            idle = false;
            false
        });
        looked.is_ok() && idle && store.space().ballast_whole
    }

    /// Deliveries that a site still owes.
    fn owed_by(&self, ix: SiteIx) -> usize {
        let mut owed = 0;
        let counted = self.sites[ix].store.snapshot().scan(Table::Owed, &[], &mut |_, _| {
            owed += 1;
            true
        });
        // A store that cannot be read owes more than nothing.
        if counted.is_ok() { owed } else { usize::MAX }
    }

    /// A batch is durable: was the room that relief had been given taken by growth?
    pub fn relief_keeps_its_room(&mut self, ix: SiteIx, batch: &Batch) {
        let site = &mut self.sites[ix];
        let whole = site.store.space().ballast_whole;
        let taken = site.on_ballast && !whole && grows(batch);
        site.on_ballast = !whole && (site.on_ballast || batch.free_ballast);
        if taken {
            let text = format!("batch {} grows on the ballast that relief had freed", batch.number);
            self.broken(ix, text);
        }
    }
}

impl Run {
    /// Everything goes well, but the disk of the first site stays full: what it owes must leave before
    /// there is room again.
    pub fn leave_on_a_full_disk(&mut self) {
        // Whoever has lost the ballast to others cannot do anything, and says so (exit 70). What is being
        // written already goes on being written, and may take it: nothing stops that yet.
        // What operators held is let loose first: that takes growth.
        if self.world.options.keeping.acts > 0 {
            self.advance(self.world.now.after(LOOSE));
        }
        let ready = self.world.now.after(BESIDE);
        while !self.world.is_ready(0) && self.goes_on() && self.world.now < ready {
            self.advance(self.world.now.after(LOOK_EVERY));
        }
        if !self.world.is_ready(0) {
            return;
        }
        let longest = self.world.options.knobs.backoff_max;
        let last = self.world.now.after(longest * 8 + BESIDE);
        self.world.fill_up(0);
        let mut owed = usize::MAX;
        while owed > 0 && self.goes_on() && self.world.now < last {
            self.advance(self.world.now.after(LOOK_EVERY));
            owed = self.world.owed_by(0);
        }
        if self.goes_on() && owed > 0 {
            let text = format!("{owed} deliveries do not leave while the disk is full");
            self.world.broken(0, text);
        }
        self.world.fill(0, false);
    }
}
