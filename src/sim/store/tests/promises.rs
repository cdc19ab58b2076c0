//! The property everything rests on: after any calls and any ends, what was answered as durable is
//! there, byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use consign_core::mem::contract::pattern;

use super::super::StoreFaults;
use super::*;

/// What was promised, by the answers alone.
#[derive(Default)]
struct Promised {
    /// Batches that are committed; others may be there.
    batches: BTreeSet<u64>,
    /// Durable length of each file; `None` when it is removed.
    files: BTreeMap<BlobNo, Option<u64>>,
    /// Files that will not be written any more.
    finished: BTreeSet<BlobNo>,
}

struct Play {
    store: Driven,
    rng: Rng,
    promised: Promised,
    batches: u64,
    blobs: u64,
    /// Files that are being written, and how long each is.
    writing: BTreeMap<BlobNo, u64>,
    conns: u32,
}

/// Content of each file, from its beginning.
fn content(blob: BlobNo, from: u64, len: u64) -> Bytes {
    pattern(blob.0 * 1_000_003 + from, len as usize)
}

impl Play {
    fn new(seed: u64, faults: StoreFaults) -> Play {
        let store = Driven::new(seed);
        store.store.borrow_mut().faults = faults;
        Play {
            store,
            rng: Rng::stream(seed, 1),
            promised: Promised::default(),
            batches: 0,
            blobs: 0,
            writing: BTreeMap::new(),
            conns: 1,
        }
    }

    fn conn(&self) -> ConnId {
        conn(self.conns)
    }

    fn some_blob(&mut self) -> Option<BlobNo> {
        let open: Vec<BlobNo> = self.writing.keys().copied().collect();
        (!open.is_empty()).then(|| *self.rng.pick(&open))
    }

    /// One thing that a node or a session may do.
    fn act(&mut self) {
        let conn = self.conn();
        match self.rng.below(10) {
            0 => {
                self.batches += 1;
                self.store.begin(batch(self.batches));
            }
            1 => {
                self.blobs += 1;
                let blob = BlobNo(self.blobs);
                self.writing.insert(blob, 0);
                self.store.request(conn, StoreRequest::Create { blob, offset: 0 });
            }
            2..=4 => {
                let len = self.rng.between(1, 9000);
                let Some(blob) = self.some_blob() else { return };
                let at = self.writing.get_mut(&blob).expect("it is open");
                let data = content(blob, *at, len);
                *at += len;
                self.store.request(conn, StoreRequest::Write { blob, data });
            }
            5 => {
                let Some(blob) = self.some_blob() else { return };
                self.store.request(conn, StoreRequest::Sync { blob });
            }
            6 => {
                let Some(blob) = self.some_blob() else { return };
                self.writing.remove(&blob);
                self.store.request(conn, StoreRequest::Finish { blob });
            }
            7 => self.remove(),
            8 => self.resume(),
            _ => {
                for _ in 0..self.rng.below(6) {
                    self.store.go();
                }
            }
        }
    }

    /// Removes a file that nobody writes; no promise holds for it until that is answered.
    fn remove(&mut self) {
        let finished: Vec<BlobNo> = self.promised.finished.iter().copied().collect();
        if !finished.is_empty() {
            let blob = *self.rng.pick(&finished);
            self.promised.finished.remove(&blob);
            self.promised.files.remove(&blob);
            self.store.give(Errand::Unlink(blob));
        }
    }

    /// Goes on with a file from any durable length, once nothing is under way for it.
    fn resume(&mut self) {
        self.store.rest();
        self.hear();
        let Some(blob) = self.some_blob() else { return };
        if let Some(Some(durable)) = self.promised.files.get_mut(&blob)
            && *durable > 0
        {
            *durable = self.rng.between(1, *durable);
            let offset = *durable;
            let conn = self.conn();
            self.writing.insert(blob, offset);
            self.store.request(conn, StoreRequest::Create { blob, offset });
        }
    }

    /// Takes in what was answered.
    fn hear(&mut self) {
        for input in self.store.node.borrow_mut().drain(..) {
            match input {
                Input::Committed { through, .. } => {
                    self.promised.batches.insert(through.0);
                }
                Input::Unlinked { blob, result: Ok(()) } => {
                    self.promised.files.insert(blob, None);
                }
                _ => {}
            }
        }
        for (_, event) in self.store.conn.borrow_mut().drain(..) {
            match event {
                StoreEvent::Synced { blob, offset } => {
                    self.promised.files.insert(blob, Some(offset));
                }
                StoreEvent::Finished { blob, size } => {
                    self.promised.files.insert(blob, Some(size));
                    self.promised.finished.insert(blob);
                }
                StoreEvent::WriteFailed { blob, .. } => {
                    self.writing.remove(&blob);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self) {
        if self.rng.chance(500_000) {
            self.store.store.borrow_mut().power_cut();
        } else {
            self.store.store.borrow_mut().kill();
        }
        self.check();
        self.store.store.borrow_mut().recover().expect("the ledger can be read");
        self.batches = self.store.store.borrow().committed().0;
        self.conns += 1;
        // What cannot be gone on with is given up.
        let durable = &self.promised.files;
        self.writing.retain(|blob, len| {
            let at = durable.get(blob).copied().flatten().filter(|at| *at > 0);
            *len = at.unwrap_or(0);
            at.is_some()
        });
        let conn = self.conn();
        for (blob, offset) in self.writing.clone() {
            self.store.request(conn, StoreRequest::Create { blob, offset });
        }
    }

    fn check(&self) {
        let store = self.store.store.borrow();
        let snapshot = store.snapshot();
        for number in &self.promised.batches {
            let row = snapshot.get(Table::Segments, &keys::seq(Seq(*number)));
            assert_eq!(row, Ok(Some(&b"a row"[..])), "batch {number} is lost");
        }
        for (blob, len) in &self.promised.files {
            let held = store.content(*blob);
            match (len, held) {
                (None, held) => assert_eq!(held, None, "blob {blob} is back"),
                (Some(_), None) => panic!("blob {blob} is lost"),
                (Some(len), Some(held)) => {
                    let wanted = content(*blob, 0, *len);
                    let part = held.get(..wanted.len());
                    assert_eq!(part, Some(wanted.as_ref()), "blob {blob} is damaged");
                }
            }
        }
    }
}

fn play(seed: u64, faults: StoreFaults) {
    let mut play = Play::new(seed, faults);
    for _ in 0..8 {
        for _ in 0..60 {
            play.act();
            play.hear();
        }
        play.end();
    }
    play.store.rest();
    play.hear();
    play.check();
}

#[test]
fn what_was_answered_as_durable_is_there_after_any_end() {
    for seed in 0..150 {
        play(seed, StoreFaults::default());
    }
}

#[test]
fn nor_do_errors_take_what_was_answered_before() {
    for seed in 0..150 {
        let faults = StoreFaults {
            commit_full: 100_000,
            commit_after: 200_000,
            file_eio: 50_000,
            file_after: 50_000,
            file_full: 50_000,
            stall: 20_000,
            ..StoreFaults::default()
        };
        play(seed, faults);
    }
}
