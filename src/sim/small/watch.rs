//! The auditor looks on: what happens on one path is shown to it, as the simulator's own worlds
//! show theirs. It cannot be copied, so it never looks on while a world is explored, only when one
//! path is walked.

use std::cell::RefCell;
use std::rc::Rc;

use consign_core::id::{BlobDigest, BlobNo, BodyNo};
use consign_core::ledger::{Table, keys};
use consign_core::mem::MemStore;
use consign_core::store::{Batch, Op, Snapshot};
use consign_core::time::{Instant, Now};

use super::check::{Broken, Checked};
use super::site::Sites;
use crate::sim::audit::{Audit, Violation};
use crate::sim::seen::{Seen, SiteIx};
use crate::sim::time::Micros;

const AUDITED: &str = "what the auditor has seen keeps every invariant";

/// Whoever looks on, if anybody does.
#[derive(Clone, Default)]
pub(super) struct Watch(Option<Rc<RefCell<Audit>>>);

fn at(now: Now) -> Micros {
    Micros(now.mono.since(Instant::ZERO).as_micros() as u64)
}

// A violation ends the run: its size costs nothing.
#[allow(clippy::result_large_err)]
fn judged(checked: Result<(), Violation>) -> Checked {
    checked.map_err(|violation| Broken { promise: AUDITED, found: violation.to_string() })
}

impl Watch {
    /// The auditor looks on from now; nothing has happened yet.
    pub fn begin(&mut self, now: Now, sites: &Sites) -> Checked {
        self.0 = Some(Rc::new(RefCell::new(Audit::new())));
        for (i, site) in sites.iter().enumerate() {
            self.see(now, i, &Seen::Born { config: &site.config })?;
        }
        Ok(())
    }

    /// Whether anybody looks on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Something happened.
    pub fn see(&self, now: Now, site: SiteIx, seen: &Seen<'_>) -> Checked {
        let Some(audit) = &self.0 else { return Ok(()) };
        judged(audit.borrow_mut().see(at(now), site, seen))
    }

    /// A batch is on the disk.
    pub fn durable(&self, now: Now, site: SiteIx, batch: &Batch, store: &MemStore) -> Checked {
        if !self.is_on() {
            return Ok(());
        }
        let snapshot = store.snapshot();
        let mut bodies = Vec::new();
        for op in batch.ops() {
            if let Op::PutBody { number, .. } = op
                && let Ok(Some(body)) = snapshot.get(Table::Bodies, &keys::body(number))
            {
                bodies.push((BodyNo(number.0), bytes::Bytes::copy_from_slice(body)));
            }
        }
        self.see(now, site, &Seen::Durable { batch, bodies: &bodies })
    }

    /// A file and its name are on the disk.
    pub fn whole(&self, now: Now, site: SiteIx, blob: BlobNo, store: &MemStore) -> Checked {
        let file = store.files().find(|(number, _)| *number == blob);
        let Some((_, file)) = file.filter(|_| self.is_on()) else { return Ok(()) };
        let digest = BlobDigest(*blake3::hash(&file.data).as_bytes());
        let size = file.data.len() as u64;
        self.see(now, site, &Seen::FileWhole { blob, size, digest })
    }

    /// Everything has come to its end.
    pub fn at_rest(&self, now: Now, site: SiteIx, store: &MemStore) -> Checked {
        let Some(audit) = &self.0 else { return Ok(()) };
        let whole = |f: &consign_core::mem::BlobFile| f.named && f.synced == f.data.len();
        let files: Vec<(BlobNo, u64, bool)> =
            store.files().map(|(blob, f)| (blob, f.data.len() as u64, whole(f))).collect();
        judged(audit.borrow_mut().at_rest(at(now), site, &store.snapshot(), &files))
    }
}
