//! The remover: takes files away, looks after those that are there, and asks the disk how it is.
//!
//! Removals that wait together are made durable together, one directory sync for each folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use consign_core::id::{BlobNo, Seq};
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::store::{Snapshot, StoreFault};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::dir::{self, Thing, Whose};
use crate::readers::file_fault;
use crate::shared::{Shared, locked};

/// How often reader slots of dead processes are freed.
const STALE_EVERY: Duration = Duration::from_secs(3600);
/// How long what a sweep set aside is kept.
const ASIDE_FOR: Duration = Duration::from_secs(24 * 3600);
/// Most removals that are made durable together.
const TOGETHER: usize = 256;

/// What the remover is given.
pub(crate) enum Job {
    /// Remove a doomed file.
    Unlink(BlobNo),
    /// Move the file of damaged content to the quarantine.
    SetAside(BlobNo),
    /// See whether content is there.
    Check(Vec<(Seq, Body, u64)>),
    /// Set aside the orphans of a folder.
    Sweep(u8, BlobNo),
    /// Look at the disk.
    Probe,
    /// The end.
    Stop,
}

/// Serves jobs until told to stop.
pub(crate) fn run(shared: &Shared, jobs: &Receiver<Job>) {
    let mut checked = Instant::now();
    let mut next = None;
    forget_aside(shared);
    loop {
        if checked.elapsed() >= STALE_EVERY {
            shared.ledger.clear_stale_readers();
            forget_aside(shared);
            checked = Instant::now();
        }
        let job = match next.take() {
            Some(job) => job,
            None => match jobs.recv_timeout(STALE_EVERY) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            },
        };
        match job {
            Job::Unlink(first) => {
                let mut blobs = vec![first];
                while blobs.len() < TOGETHER && next.is_none() {
                    match jobs.try_recv() {
                        Ok(Job::Unlink(blob)) => blobs.push(blob),
                        Ok(other) => next = Some(other),
                        Err(_) => break,
                    }
                }
                unlink(shared, &blobs);
            }
            Job::SetAside(blob) => {
                let result = set_aside(shared, blob).map_err(|why| file_fault(blob, why));
                shared.node(Input::Unlinked { blob, result });
            }
            Job::Check(wanted) => check(shared, &wanted),
            Job::Sweep(folder, below) => sweep(shared, folder, below),
            Job::Probe => {
                shared.ballast.restore(&shared.dir);
                shared.node(Input::Space(shared.space()));
            }
            Job::Stop => return,
        }
        shared.fail_if_damaged();
    }
}

fn unlink(shared: &Shared, blobs: &[BlobNo]) {
    let mut folders: BTreeMap<u8, Vec<BlobNo>> = BTreeMap::new();
    for blob in blobs {
        folders.entry(dir::folder_of(*blob)).or_default().push(*blob);
    }
    let mut results: BTreeMap<BlobNo, Result<(), Errno>> = BTreeMap::new();
    for (number, blobs) in folders {
        match shared.dir.folder(number) {
            Ok(folder) => {
                for blob in &blobs {
                    results.insert(*blob, remove(shared, &folder, *blob));
                }
                // Also when nothing was there: an earlier removal may not be durable yet.
                if let Err(why) = rustix::fs::fsync(&folder) {
                    results.extend(blobs.iter().map(|blob| (*blob, Err(why))));
                }
            }
            Err(Errno::NOENT) => {
                for blob in &blobs {
                    results.insert(*blob, remove_or_forbid(shared, *blob));
                }
            }
            Err(why) => results.extend(blobs.iter().map(|blob| (*blob, Err(why)))),
        }
    }
    for (blob, result) in results {
        let result = result.map_err(|why| file_fault(blob, why));
        shared.node(Input::Unlinked { blob, result });
    }
}

/// A file that is not what its row said goes where an operator can look at it, under the name and for the
/// time of what no row names.
fn set_aside(shared: &Shared, blob: BlobNo) -> Result<(), Errno> {
    let number = dir::folder_of(blob);
    let folder = match shared.dir.folder(number) {
        Err(Errno::NOENT) => return remove_or_forbid(shared, blob),
        other => other?,
    };
    let entry = OsString::from(blob.to_string());
    if !shared.dir.set_aside(&folder, number, &entry, Whose::Sweep)? {
        return remove_or_forbid(shared, blob);
    }
    tracing::warn!(blob = blob.0, code = "CN0590", "damaged content was set aside");
    shared.dir.sync_quarantine(&folder)
}

fn remove(shared: &Shared, folder: &OwnedFd, blob: BlobNo) -> Result<(), Errno> {
    match rustix::fs::unlinkat(folder, blob.to_string(), AtFlags::empty()) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => remove_or_forbid(shared, blob),
        Err(Errno::ISDIR | Errno::PERM) => {
            // A directory in the place of a file is not ours to empty.
            let entry = OsString::from(blob.to_string());
            tracing::warn!(
                blob = blob.0,
                code = "CN0557",
                "no file in the place of a blob, set aside"
            );
            shared.dir.set_aside(folder, dir::folder_of(blob), &entry, Whose::Sweep)?;
            shared.dir.sync_quarantine(folder)
        }
        Err(why) => Err(why),
    }
}

/// Nothing was there: looks once more while nobody can make it, and sees to it that nobody will.
fn remove_or_forbid(shared: &Shared, blob: BlobNo) -> Result<(), Errno> {
    let mut never = locked(&shared.never);
    let folder = shared.dir.folder(dir::folder_of(blob));
    let removed = folder.and_then(|folder| {
        rustix::fs::unlinkat(&folder, blob.to_string(), AtFlags::empty())?;
        rustix::fs::fsync(&folder)
    });
    if removed == Err(Errno::NOENT) {
        never.nothing_there(blob);
        return Ok(());
    }
    removed
}

/// Finds content that is missing or has another length. What cannot be told counts as there: it is
/// looked at again when it is read, and nothing is given up for an error that may pass.
fn check(shared: &Shared, wanted: &[(Seq, Body, u64)]) {
    let inline = check_inline(shared, wanted);
    if let Err(why) = &inline {
        tracing::warn!(%why, code = "CN0556", "bodies cannot be checked now");
    }
    let mut missing = inline.unwrap_or_default();
    for (seq, body, size) in wanted {
        let Body::Blob(blob) = body else { continue };
        match shared.dir.blob_thing(*blob) {
            Ok(Some(Thing::File(len))) if len == *size => {}
            Ok(_) => missing.push(*seq),
            Err(why) => {
                tracing::warn!(blob = blob.0, %why, code = "CN0556", "content cannot be checked now");
            }
        }
    }
    missing.sort_unstable();
    shared.node(Input::Checked { seen: wanted.len(), missing });
}

/// The bodies among them, in one short read transaction.
fn check_inline(shared: &Shared, wanted: &[(Seq, Body, u64)]) -> Result<Vec<Seq>, StoreFault> {
    let snapshot = shared.ledger.snapshot()?;
    let mut missing = Vec::new();
    for (seq, body, size) in wanted {
        let Body::Inline(number) = body else { continue };
        let row = snapshot.get(Table::Bodies, &keys::body(*number))?;
        if row.is_none_or(|row| row.len() as u64 != *size) {
            missing.push(*seq);
        }
    }
    Ok(missing)
}

fn sweep(shared: &Shared, number: u8, below: BlobNo) {
    let quarantined = set_orphans_aside(shared, number, below).unwrap_or_else(|why| {
        tracing::warn!(folder = number, %why, code = "CN0558", "a content folder cannot be swept");
        0
    });
    shared.node(Input::Swept { folder: number, quarantined });
}

fn set_orphans_aside(shared: &Shared, number: u8, below: BlobNo) -> Result<u64, StoreFault> {
    let io = |why: Errno| StoreFault::Io(why.to_string());
    let folder = match shared.dir.folder(number) {
        Err(Errno::NOENT) => return Ok(0),
        other => other.map_err(io)?,
    };
    let entries = dir::entries(&folder).map_err(io)?;
    let known = known(shared, number, below, &entries)?;
    let mut orphans = Vec::new();
    for (entry, known) in entries.into_iter().zip(known) {
        let orphan = match known {
            Known::No => true,
            Known::Yes => dir::thing(&folder, &entry).map_err(io)? == Some(Thing::Other),
            Known::New => false,
        };
        if orphan {
            orphans.push(entry);
        }
    }
    let mut moved = 0;
    for entry in &orphans {
        if shared.dir.set_aside(&folder, number, entry, Whose::Sweep).map_err(io)? {
            let text = "a file without a row was set aside";
            tracing::warn!(folder = number, ?entry, code = "CN0559", "{text}");
            moved += 1;
        }
    }
    if moved > 0 {
        shared.dir.sync_quarantine(&folder).map_err(io)?;
    }
    Ok(moved)
}

/// Nothing grows for ever: what was set aside long enough ago goes.
fn forget_aside(shared: &Shared) {
    match shared.dir.forget_aside(SystemTime::now(), ASIDE_FOR) {
        Ok(0) => {}
        Ok(files) => tracing::info!(files, "what was set aside a day ago is removed"),
        Err(why) => tracing::warn!(%why, code = "CN0558", "the quarantine cannot be read"),
    }
}

/// What the ledger knows of an entry of a content folder.
enum Known {
    /// Nothing, or it is no number of this folder.
    No,
    /// A row names it.
    Yes,
    /// Its number was given since the start, so a row may still be under way.
    New,
}

/// Looks all entries up in one snapshot of all three tables (B1).
fn known(
    shared: &Shared,
    number: u8,
    below: BlobNo,
    entries: &[OsString],
) -> Result<Vec<Known>, StoreFault> {
    let snapshot = shared.ledger.snapshot()?;
    let mut all = Vec::with_capacity(entries.len());
    for entry in entries {
        all.push(match dir::number_in(number, entry) {
            None => Known::No,
            Some(blob) if blob >= below => Known::New,
            Some(blob) => {
                let mut row = false;
                for table in [Table::Blobs, Table::Incoming, Table::Doomed] {
                    row |= snapshot.get(table, &keys::blob(blob))?.is_some();
                }
                if row { Known::Yes } else { Known::No }
            }
        });
    }
    Ok(all)
}
