//! The remover: takes files away, looks after those that are there, and asks the disk how it is.

use std::collections::{BTreeMap, BTreeSet};

use consign_core::id::{BlobNo, Seq};
use consign_core::ledger::read_scrub::ScrubItem;
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::store::{Errand, ScrubFault, Snapshot, StoreFault};

use super::disk::folder_of;
use super::faults::{Hit, Kind};
use super::{Done, SimStore};
use crate::sim::time::Micros;

/// Most removals that are made durable together.
const TOGETHER: usize = 256;
/// Tables that name content files.
const NAMING: [Table; 3] = [Table::Blobs, Table::Incoming, Table::Doomed];

/// What the remover is given.
#[derive(Debug)]
pub(super) enum Job {
    Unlink(BlobNo),
    SetAside(BlobNo),
    Check(Vec<(Seq, Body, u64)>),
    Sweep(u8, BlobNo),
    Probe,
    Scrub(Vec<ScrubItem>, u64),
}

type Results = BTreeMap<BlobNo, Result<(), StoreFault>>;

/// What the remover does next; the last moment of each is when it goes on.
#[derive(Debug)]
pub(super) enum Step {
    /// Takes names away.
    Unlink(Vec<BlobNo>, Micros),
    /// Moves a file to the quarantine.
    SetAside(BlobNo, Micros),
    /// Makes that durable.
    SyncUnlinked(Results, Micros),
    /// Looks for content.
    Check(Vec<(Seq, Body, u64)>, Micros),
    /// Lists a folder.
    List(u8, BlobNo, Micros),
    /// Looks up which of these a row names: in so many tables already.
    LookUp(u8, Vec<BlobNo>, usize, Micros),
    /// Sets these aside.
    Move(u8, Vec<BlobNo>, Micros),
    /// Makes that durable.
    SyncMoved(u8, u64, Micros),
    /// Looks at the disk.
    Probe(Micros),
    /// Compares content with its digests; answers when that was read at its rate.
    Scrub(Vec<ScrubItem>, Micros),
    /// Answers.
    Answer(Vec<Input>),
}

impl SimStore {
    pub(super) fn remover_next(&mut self, at: Micros) {
        let Some(job) = self.remover.waiting.pop_front() else { return };
        let call = self.call(at, self.faults.unlink);
        let step = match job {
            Job::Unlink(first) => {
                let mut blobs = vec![first];
                while let Some(Job::Unlink(blob)) = self.remover.waiting.front()
                    && blobs.len() < TOGETHER
                {
                    blobs.push(*blob);
                    self.remover.waiting.pop_front();
                }
                Step::Unlink(blobs, call.end)
            }
            Job::SetAside(blob) => Step::SetAside(blob, call.end),
            Job::Check(wanted) => Step::Check(wanted, call.end),
            Job::Sweep(folder, below) => Step::List(folder, below, call.end),
            Job::Probe => Step::Probe(call.end),
            Job::Scrub(items, rate) => {
                let bytes: u64 = items.iter().map(|item| item.size).sum();
                let takes = bytes.saturating_mul(1_000_000) / rate.max(1);
                Step::Scrub(items, call.end.plus(takes))
            }
        };
        self.remover.doing = Some((call.effect, step));
    }

    pub(super) fn remover_step(&mut self, at: Micros) {
        let Some((_, step)) = self.remover.doing.take() else { return };
        let next = match step {
            Step::Unlink(blobs, end) => {
                let results = self.unlink_now(blobs);
                let call = self.call(end, self.faults.sync);
                (call.effect, Step::SyncUnlinked(results, call.end))
            }
            Step::SetAside(blob, end) => {
                let results = self.set_aside_now(blob);
                let call = self.call(end, self.faults.sync);
                (call.effect, Step::SyncUnlinked(results, call.end))
            }
            Step::SyncUnlinked(results, end) => (end, Step::Answer(self.sync_unlinked(results))),
            Step::Check(wanted, end) => (end, Step::Answer(vec![self.check_now(&wanted)])),
            Step::List(folder, below, end) => {
                let found = self.disk.folder(folder, below);
                self.swept_so_far(folder, found, 0, end)
            }
            Step::LookUp(folder, found, tables, end) => {
                let (unnamed, tables) = self.look_up(found, tables);
                self.swept_so_far(folder, unnamed, tables, end)
            }
            Step::Move(folder, orphans, end) => {
                let moved = orphans.into_iter().filter(|blob| self.disk.quarantine(*blob));
                let moved = moved.count() as u64;
                let call = self.call(end, self.faults.sync);
                (call.effect, Step::SyncMoved(folder, moved, call.end))
            }
            Step::SyncMoved(folder, quarantined, end) => {
                self.sync_folder(folder);
                (end, Step::Answer(vec![Input::Swept { folder, quarantined }]))
            }
            Step::Probe(end) => {
                self.settle_space(at);
                (end, Step::Answer(self.mem.errand(Errand::Probe).into_iter().collect()))
            }
            Step::Scrub(items, end) => (end, Step::Answer(vec![self.scrub_now(&items)])),
            Step::Answer(answers) => {
                self.ready.extend(answers.into_iter().map(Done::Node));
                return self.remover_next(at);
            }
        };
        self.remover.doing = Some(next);
    }

    fn unlink_now(&mut self, blobs: Vec<BlobNo>) -> Results {
        let mut results = Results::new();
        for blob in blobs {
            let hit = self.hit(Kind::Remove, "remove", blob);
            if matches!(hit, Hit::None | Hit::After(_)) && !self.disk.unlink(blob) {
                self.never.nothing_there(blob);
            }
            let result = match hit {
                Hit::None => Ok(()),
                Hit::Before(fault) | Hit::After(fault) => Err(fault),
            };
            results.insert(blob, result);
        }
        results
    }

    fn set_aside_now(&mut self, blob: BlobNo) -> Results {
        let hit = self.hit(Kind::Remove, "set aside", blob);
        if matches!(hit, Hit::None | Hit::After(_)) && !self.disk.quarantine(blob) {
            self.never.nothing_there(blob);
        }
        let result = match hit {
            Hit::None => Ok(()),
            Hit::Before(fault) | Hit::After(fault) => Err(fault),
        };
        Results::from([(blob, result)])
    }

    /// One sync for each folder; also when nothing was there, for an earlier removal may not be
    /// durable yet.
    fn sync_unlinked(&mut self, mut results: Results) -> Vec<Input> {
        let folders: BTreeSet<u8> = results.keys().map(|blob| folder_of(*blob)).collect();
        for folder in folders {
            let hit = self.hit(Kind::Remove, "sync the folder of", BlobNo(folder.into()));
            if matches!(hit, Hit::None | Hit::After(_)) {
                self.sync_folder(folder);
            }
            if let Hit::Before(fault) | Hit::After(fault) = hit {
                for (blob, result) in &mut results {
                    if folder_of(*blob) == folder {
                        *result = Err(fault.clone());
                    }
                }
            }
        }
        results.into_iter().map(|(blob, result)| Input::Unlinked { blob, result }).collect()
    }

    /// What cannot be told counts as there.
    fn check_now(&mut self, wanted: &[(Seq, Body, u64)]) -> Input {
        let mut missing = Vec::new();
        for (seq, body, size) in wanted {
            if self.rng.chance(self.faults.content_eio) {
                continue;
            }
            let len = match body {
                Body::Inline(number) => {
                    let row = self.mem.ledger().get(Table::Bodies, &keys::body(*number));
                    row.ok().flatten().map(<[u8]>::len)
                }
                Body::Blob(blob) => self.disk.data(*blob).map(<[u8]>::len),
            };
            if len.map(|len| len as u64) != Some(*size) {
                missing.push(*seq);
            }
        }
        missing.sort_unstable();
        Input::Checked { seen: wanted.len(), missing }
    }

    /// An error that may pass is no verdict.
    fn scrub_now(&mut self, items: &[ScrubItem]) -> Input {
        let (mut bad, mut unread, mut bytes) = (Vec::new(), Vec::new(), 0);
        for item in items {
            if self.rng.chance(self.faults.content_eio) {
                unread.push(item.seq);
                continue;
            }
            let data = match item.body {
                Body::Inline(number) => {
                    let row = self.mem.ledger().get(Table::Bodies, &keys::body(number));
                    row.ok().flatten().map(<[u8]>::to_vec)
                }
                Body::Blob(blob) => self.disk.data(blob).map(<[u8]>::to_vec),
            };
            match data {
                None => bad.push((item.seq, ScrubFault::Missing)),
                Some(data) if *blake3::hash(&data).as_bytes() != item.digest.0 => {
                    bad.push((item.seq, ScrubFault::Corrupt));
                }
                Some(data) => bytes += data.len() as u64,
            }
        }
        Input::Scrubbed { seen: items.len() as u64, bytes, bad, unread }
    }

    /// Drops what is named by a row of one of the tables that are left; all are read at one moment
    /// (B1).
    fn look_up(&self, mut found: Vec<BlobNo>, tables: usize) -> (Vec<BlobNo>, usize) {
        let until = if Plant::B1.is_in(self.config.plant) { tables + 1 } else { NAMING.len() };
        for table in &NAMING[tables..until] {
            found.retain(|blob| {
                !matches!(self.mem.ledger().get(*table, &keys::blob(*blob)), Ok(Some(_)))
            });
        }
        (found, until)
    }

    fn swept_so_far(
        &mut self,
        folder: u8,
        left: Vec<BlobNo>,
        tables: usize,
        end: Micros,
    ) -> (Micros, Step) {
        if left.is_empty() {
            return (end, Step::Answer(vec![Input::Swept { folder, quarantined: 0 }]));
        }
        // Tables that are read one after the other are read far apart, or hardly any partial would
        // become a blob in between.
        let apart = if tables > 0 && tables < NAMING.len() { 3_000_000 } else { 0 };
        let call = self.call(end.plus(apart), self.faults.unlink);
        let step = if tables == NAMING.len() {
            Step::Move(folder, left, call.end)
        } else {
            Step::LookUp(folder, left, tables, call.end)
        };
        (call.effect, step)
    }

    /// What the remover is at when the process ends takes effect or not, file by file.
    pub(super) fn interrupted_removals(&mut self) {
        match self.remover.doing.take() {
            Some((_, Step::Unlink(blobs, _))) => {
                for blob in blobs {
                    if self.rng.chance(500_000) {
                        self.disk.unlink(blob);
                    }
                }
            }
            Some((_, Step::SetAside(blob, _))) => {
                if self.rng.chance(500_000) {
                    self.disk.quarantine(blob);
                }
            }
            Some((_, Step::Move(_, orphans, _))) => {
                for blob in orphans {
                    if self.rng.chance(500_000) {
                        self.disk.quarantine(blob);
                    }
                }
            }
            Some(_) | None => {}
        }
    }
}
