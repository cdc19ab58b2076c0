//! Content against the ledger: each file that a row names, each file that none does, and on request every
//! byte of both kinds of content.

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use consign_core::code::Cause;
use consign_core::id::{BlobDigest, BlobNo, Seq};
use consign_core::ledger::check::{Finding, Fix, Rule, lose, lose_shard};
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::keys_upkeep::{self, Owner, owner_prefix, parse_owner};
use consign_core::ledger::read::{row, scan_prefix};
use consign_core::ledger::rows::{
    BlobRow, Body, DoomedRow, IncomingRow, Loss, MetaName, MetaRow, SegmentRow,
};
use consign_core::ledger::rows_pickup::ShardRow;
use consign_core::ledger::{Table, codec, keys};
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;
use rustix::fs::Advice;
use rustix::io::Errno;

use super::{Offline, OfflineSnapshot};
use crate::dir::{self, DataDir, Thing, Whose};
use crate::readers::file_fault;

/// An entry of a content folder that is to be set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    folder: u8,
    entry: OsString,
}

/// Who is told about files.
pub trait WatchFiles {
    /// Something is wrong; what mends it is in the finding, and a file to be set aside.
    fn found(&mut self, finding: Finding, aside: Option<Aside>);
    /// Another piece of content, in a file or in the ledger, with so many bytes of it read.
    fn seen(&mut self, bytes: u64);
}

/// How files are looked at.
#[derive(Clone, Copy, Debug)]
pub struct HowFiles {
    /// Read and hash everything.
    pub content: bool,
    /// When mended rows are dated.
    pub at: UnixMillis,
}

/// How far the number of a file that was never given lets the counter jump.
const JUMP: u64 = 1 << 32;
/// How much is read at a time.
const PIECE: usize = 1 << 20;

impl Offline {
    /// Looks at all content, in the order of its numbers.
    ///
    /// # Errors
    /// When the ledger cannot be read, or a folder.
    pub fn files(&self, how: HowFiles, watch: &mut dyn WatchFiles) -> Result<(), StoreFault> {
        let snapshot = self.snapshot()?;
        let dir = self.view()?;
        let mut look = Look { snapshot: &snapshot, dir: dir.as_ref(), how, watch, fault: None };
        look.blobs();
        look.incoming();
        if how.content {
            look.bodies();
        }
        look.folders();
        look.fault.map_or(Ok(()), Err)
    }

    /// The highest number of a content file that is there.
    ///
    /// # Errors
    /// When a folder cannot be read.
    pub fn highest_file(&self) -> Result<Option<BlobNo>, StoreFault> {
        let Some(dir) = self.view()? else { return Ok(None) };
        let mut highest = None;
        for folder in 0..=u8::MAX {
            for (blob, _) in entries(&dir, folder)? {
                highest = highest.max(blob);
            }
        }
        Ok(highest)
    }

    /// What stands in the folder of files that were set aside, in order.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn set_aside_before(&self) -> Result<Vec<OsString>, StoreFault> {
        let Some(dir) = self.view()? else { return Ok(Vec::new()) };
        let mut names = dir.aside().map_err(|why| StoreFault::Io(why.to_string()))?;
        names.sort();
        Ok(names)
    }

    /// Moves files aside, durably; how many there were.
    ///
    /// # Errors
    /// When one cannot be moved, or the directory was opened to be read.
    pub fn set_aside(&self, files: &[Aside]) -> Result<u64, StoreFault> {
        if !self.may_write {
            return Err(StoreFault::Io("the directory was opened to be read".to_owned()));
        }
        let io = |why: Errno| StoreFault::Io(why.to_string());
        let dir = self.folders().map_err(io)?;
        let mut moved = 0;
        for Aside { folder: number, entry } in files {
            let folder = dir.folder(*number).map_err(io)?;
            moved +=
                u64::from(dir.set_aside(&folder, *number, entry, Whose::Operator).map_err(io)?);
            dir.sync_quarantine(&folder).map_err(io)?;
        }
        Ok(moved)
    }

    fn view(&self) -> Result<Option<DataDir>, StoreFault> {
        let io = |why: Errno| StoreFault::Io(why.to_string());
        let root = rustix::io::fcntl_dupfd_cloexec(&self.root, 0).map_err(io)?;
        DataDir::view(&self.path, root).map_err(io)
    }
}

/// The entries of a content folder, with the number of those that are numbers of it.
fn entries(dir: &DataDir, folder: u8) -> Result<Vec<(Option<BlobNo>, OsString)>, StoreFault> {
    let io = |why: Errno| StoreFault::Io(why.to_string());
    let open = match dir.folder(folder) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => other.map_err(io)?,
    };
    let entries = dir::entries(&open).map_err(io)?;
    let number = |entry: OsString| (dir::number_in(folder, &entry), entry);
    Ok(entries.into_iter().map(number).collect())
}

struct Look<'l> {
    snapshot: &'l OfflineSnapshot<'l>,
    dir: Option<&'l DataDir>,
    how: HowFiles,
    watch: &'l mut dyn WatchFiles,
    fault: Option<StoreFault>,
}

impl Look<'_> {
    fn failed<T>(&mut self, result: Result<T, StoreFault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.fault.get_or_insert(fault);
                None
            }
        }
    }

    fn each<R>(&mut self, table: Table, visit: fn(&mut Self, &[u8], R))
    where
        R: for<'b> minicbor::Decode<'b, ()>,
    {
        let snapshot = self.snapshot;
        let scanned = snapshot.scan(table, &[], &mut |key, value| {
            // Rows that cannot be read are found by the rules about rows.
            if let Ok(row) = codec::decode(table, key, value) {
                visit(self, key, row);
            }
            self.fault.is_none()
        });
        self.failed(scanned);
    }

    fn report(&mut self, rule: Rule, table: Table, key: &[u8], text: String, fixes: Vec<Fix>) {
        self.watch.found(Finding { rule, table, key: key.to_vec(), text, fixes }, None);
    }

    fn blobs(&mut self) {
        self.each(Table::Blobs, |look, key, row: BlobRow| {
            let Some(blob) = keys::parse_u64(key).map(BlobNo) else { return };
            if let Some((rule, cause, what)) = look.wrong(blob, &row) {
                look.content_lost(blob, key, rule, cause, what);
            }
        });
    }

    /// What is wrong with a file that a row names.
    fn wrong(&mut self, blob: BlobNo, row: &BlobRow) -> Option<(Rule, Cause, String)> {
        let thing = match self.dir.map(|dir| dir.blob_thing(blob)) {
            None => Ok(None),
            Some(thing) => thing.map_err(|why| file_fault(blob, why)),
        };
        match self.failed(thing)? {
            None => Some((Rule::FileMissing, Cause::Missing, format!("blob {blob} has no file"))),
            Some(Thing::Other) => {
                let what = format!("there is no file in the place of blob {blob}");
                Some((Rule::FileKind, Cause::Missing, what))
            }
            Some(Thing::File(len)) if len != row.size => {
                let what = format!("the file of blob {blob} has {len} bytes, not {}", row.size);
                Some((Rule::FileLength, Cause::Corrupt, what))
            }
            Some(Thing::File(_)) if !self.how.content => {
                self.watch.seen(0);
                None
            }
            Some(Thing::File(_)) => match self.hash(blob) {
                Ok(digest) if digest == row.digest => None,
                Ok(_) => {
                    let what = format!("the file of blob {blob} is not what was accepted");
                    Some((Rule::Corrupt, Cause::Corrupt, what))
                }
                Err(why) => {
                    let what = format!("the file of blob {blob} cannot be read: {why}");
                    Some((Rule::Corrupt, Cause::Corrupt, what))
                }
            },
        }
    }

    fn hash(&mut self, blob: BlobNo) -> Result<BlobDigest, Errno> {
        let dir = self.dir.ok_or(Errno::NOENT)?;
        let (file, _) = dir.open_blob(blob)?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; PIECE];
        let mut at = 0u64;
        self.watch.seen(0);
        loop {
            let read = match rustix::io::pread(&file, &mut piece[..], at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(why) => return Err(why),
            };
            hasher.update(piece.get(..read).unwrap_or_default());
            forget(&file, at, read);
            at = at.saturating_add(read as u64);
            self.watch.seen(read as u64);
        }
        Ok(BlobDigest(*hasher.finalize().as_bytes()))
    }

    /// The content of everybody who owns a blob is gone or wrong, unless that is known.
    fn content_lost(&mut self, blob: BlobNo, key: &[u8], rule: Rule, cause: Cause, what: String) {
        let least = if cause == Cause::Missing { Loss::Gone } else { Loss::Doubted };
        let mut owners = Vec::new();
        let scanned =
            scan_prefix(self.snapshot, Table::Owners, &owner_prefix(blob), &mut |key, _| {
                owners.extend(parse_owner(key).map(|(_, owner)| owner));
                true
            });
        self.failed(scanned);
        let mut fixes = Vec::new();
        let mut known = !owners.is_empty();
        for owner in owners {
            let lost = match owner {
                Owner::Segment(seq) => {
                    known &= self.loss(seq) >= Some(least);
                    lose(self.snapshot, seq, cause, self.how.at)
                }
                Owner::Shard(shard) => {
                    known = false;
                    lose_shard(self.snapshot, &shard, Body::Blob(blob), least, self.how.at)
                }
            };
            fixes.extend(self.failed(lost).unwrap_or_default());
        }
        if !known {
            self.report(rule, Table::Blobs, key, what, fixes);
        }
    }

    fn loss(&mut self, seq: Seq) -> Option<Loss> {
        let segment: Result<Option<SegmentRow>, _> =
            row(self.snapshot, Table::Segments, &keys::seq(seq));
        segment.ok().flatten().and_then(|segment| segment.loss)
    }

    fn incoming(&mut self) {
        self.each(Table::Incoming, |look, key, row: IncomingRow| {
            let Some(blob) = keys::parse_u64(key).map(BlobNo) else { return };
            let thing = look.dir.map(|dir| dir.blob_thing(blob));
            let there = match thing {
                Some(Ok(Some(Thing::File(len)))) => len >= row.offset,
                Some(Err(why)) => {
                    look.fault.get_or_insert(file_fault(blob, why));
                    return;
                }
                Some(Ok(Some(Thing::Other))) => false,
                // Its file is made after its row.
                Some(Ok(None)) | None => row.offset == 0,
            };
            if there {
                return;
            }
            let doomed = DoomedRow::new(row.reserved, row.source);
            let source = keys_upkeep::source(&row.digest, consign_core::id::SiteNo(row.source));
            let fixes = vec![
                Fix::del(Table::Incoming, key),
                Fix::del(Table::Sources, &source),
                Fix::put(Table::Doomed, key, &doomed),
            ];
            let text = format!("the partial content {blob} does not reach its last checkpoint");
            look.report(Rule::FileLength, Table::Incoming, key, text, fixes);
        });
    }

    /// Inline content against its digest.
    fn bodies(&mut self) {
        self.bodies_of_shards();
        self.each(Table::Segments, |look, key, row: SegmentRow| {
            let (Body::Inline(number), None) = (row.body, row.loss) else { return };
            let Some(seq) = keys::parse_u64(key).map(Seq) else { return };
            let snapshot = look.snapshot;
            let body = look.failed(snapshot.get(Table::Bodies, &keys::body(number))).flatten();
            // One that is not there is found by the rules about rows.
            let Some(body) = body else { return };
            look.watch.seen(body.len() as u64);
            if *blake3::hash(body).as_bytes() != row.digest.0 {
                let lost = lose(snapshot, seq, Cause::Corrupt, look.how.at);
                let fixes = look.failed(lost).unwrap_or_default();
                let text = format!("body {number} of segment {seq} is not what was accepted");
                look.report(Rule::Corrupt, Table::Segments, key, text, fixes);
            }
        });
    }

    fn bodies_of_shards(&mut self) {
        self.each(Table::Shards, |look, key, row: ShardRow| {
            let (Some(Body::Inline(number)), Some(digest)) = (row.buffer, row.blake3) else {
                return;
            };
            let Some(shard) = ShardKey::parse(key) else { return };
            let snapshot = look.snapshot;
            let body = look.failed(snapshot.get(Table::Bodies, &keys::body(number))).flatten();
            let Some(body) = body else { return };
            look.watch.seen(body.len() as u64);
            if *blake3::hash(body).as_bytes() != digest.0 {
                let (body, loss) = (Body::Inline(number), Loss::Doubted);
                let lost = lose_shard(snapshot, &shard, body, loss, look.how.at);
                let fixes = look.failed(lost).unwrap_or_default();
                let text =
                    format!("body {number} of shard {} is not what was uploaded", shard.file_id());
                look.report(Rule::Corrupt, Table::Shards, key, text, fixes);
            }
        });
    }

    /// Files that no row names.
    fn folders(&mut self) {
        let Some(dir) = self.dir else { return };
        let next: Result<Option<MetaRow>, _> =
            row(self.snapshot, Table::Meta, MetaName::NextBlob.key());
        let next = next.ok().flatten().map_or(u64::MAX, |row| row.value);
        for folder in 0..=u8::MAX {
            let Some(entries) = self.failed(entries(dir, folder)) else { return };
            for (blob, entry) in entries {
                self.entry(folder, entry, blob, next);
            }
        }
    }

    fn entry(&mut self, folder: u8, entry: OsString, blob: Option<BlobNo>, next: u64) {
        let path = format!("blobs/{}/{}", dir::folder_name(folder), entry.display());
        let (table, aside) = (Table::Blobs, Some(Aside { folder, entry }));
        let Some(blob) = blob else {
            let text = format!("{path} is no number of its folder");
            let finding =
                Finding { rule: Rule::FileKind, table, key: Vec::new(), text, fixes: Vec::new() };
            return self.watch.found(finding, aside);
        };
        let key = keys::blob(blob);
        let snapshot = self.snapshot;
        for table in [Table::Blobs, Table::Incoming, Table::Doomed] {
            if self.failed(snapshot.get(table, &key)).flatten().is_some() {
                return;
            }
        }
        let ahead = blob.0 >= next;
        let (rule, text) = if ahead {
            (Rule::FileAhead, format!("{path} has a number that was never given: an older ledger?"))
        } else {
            (Rule::FileOrphan, format!("{path} belongs to no row"))
        };
        let value = blob.0.saturating_add(JUMP);
        let fix = Fix::put(Table::Meta, MetaName::NextBlob.key(), &MetaRow { value });
        let fixes = if ahead { vec![fix] } else { Vec::new() };
        self.watch.found(Finding { rule, table, key: key.to_vec(), text, fixes }, aside);
    }
}

/// Content is read once: it is not to push out what others read.
fn forget(file: &OwnedFd, at: u64, len: usize) {
    let len = std::num::NonZero::new(len as u64);
    // Only a hint.
    let _ = rustix::fs::fadvise(file, at, len, Advice::DontNeed);
}
