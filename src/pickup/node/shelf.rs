//! Where a node keeps shards, and in which order they become durable.
//!
//! ```text
//! DIR/.consign/partial/KEY-DIGEST      content on its way in
//! DIR/FILE/VERSION/SHARD               content, whole and verified
//! DIR/.consign/fresh/KEY               record of it, until the relay has answered the ack
//! DIR/.consign/held/KEY                record of it, afterwards
//! ```
//!
//! `FILE` is the file id with everything but `A-Z a-z 0-9 . _ -` written as `%XX`; `KEY` is made of
//! SHA-256 of the shard's key. Below `DIR` no link is ever followed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_core::id::hex;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::pickup::message::{Digests, PendingNotify};
use consign_core::pickup::sign::sha256;
use consign_storage_lmdb::LargeFile;
use rustix::fs::{AtFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::records;
use crate::below::{self, There};
use crate::exit::{Exit, Failure};
use crate::pickup::source::Hashes;

/// This node's own, below its directory.
pub(super) const OWN: &str = ".consign";
/// Longest escaped file id that is a name as it is.
const NAME_MAX: usize = 200;
/// Who may read content and its records: as the umask has it.
const MODE: u32 = 0o666;
/// Length from which on content is written past the page cache, in large blocks.
const LARGE: u64 = 8 << 20;
/// Age at which a part is given up.
const OLD: Duration = Duration::from_secs(7 * 86_400);

/// Something becomes durable, one after the other; tests end between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The content is synced aside and verified.
    Verified,
    /// It has its name.
    Placed,
    /// Its record is synced.
    Recorded,
}

/// What is known of a stored shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The file.
    pub file_id: String,
    /// Its version.
    pub version_number: u64,
    /// Which part.
    pub shard_index: u64,
    /// The node it was for.
    pub node_id: String,
    /// Length.
    pub size: u64,
    /// Digests.
    pub digest: Digests,
    /// The redemption that is acked with it.
    pub redemption: u64,
}

impl Record {
    /// What is stored for a notify.
    #[must_use]
    pub fn of(notify: &PendingNotify, node: &str) -> Record {
        Record {
            file_id: notify.file_id.clone(),
            version_number: notify.version_number,
            shard_index: notify.shard_index,
            node_id: node.into(),
            size: notify.size,
            digest: notify.digest,
            redemption: notify.redemption,
        }
    }

    fn key(&self) -> Option<ShardKey> {
        let (version, index) = (self.version_number, self.shard_index);
        ShardKey::new(self.file_id.as_str(), version, index, self.node_id.as_str()).ok()
    }
}

/// How a shard is called below the node's directory.
#[must_use]
pub fn path_of(shard: &ShardKey) -> [String; 3] {
    [escaped(shard.file_id()), shard.version().to_string(), shard.index().to_string()]
}

/// A file id as one name, no two alike: it is no path, hides nothing and reserves nothing.
fn escaped(file_id: &str) -> String {
    let mut name = String::new();
    for (i, byte) in file_id.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let edge = byte == b'.' && (i == 0 || i + 1 == file_id.len());
        if plain && !edge {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    if name.len() > NAME_MAX {
        // `%_` begins no escape, so that no short id has such a name.
        let hash = hex(sha256(file_id.as_bytes()).0.get(..16).unwrap_or_default());
        name = format!("{}%_{hash}", name.get(..NAME_MAX - 40).unwrap_or_default());
    }
    name
}

/// The directory.
#[derive(Debug)]
pub struct Shelf {
    dir: PathBuf,
    base: OwnedFd,
    partial: OwnedFd,
    fresh: OwnedFd,
    held: OwnedFd,
    /// Locked as long as this is open.
    lock: OwnedFd,
}

/// Where it is written to.
#[derive(Debug)]
enum Part {
    Small(File),
    Large(LargeFile),
}

/// Content on its way in.
#[derive(Debug)]
pub struct Partial {
    file: Part,
    name: String,
    hashes: Hashes,
}

impl Partial {
    /// Bytes that are there.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.hashes.size
    }

    /// The next bytes.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.file {
            Part::Small(file) => file.write_all(data)?,
            Part::Large(file) => file.append(data)?,
        }
        self.hashes.update(data);
        Ok(())
    }

    /// Makes what is there durable: a later fetch goes on behind it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn sync(&mut self) -> io::Result<()> {
        match &mut self.file {
            Part::Small(file) => file.sync_data(),
            Part::Large(file) => file.sync(),
        }
    }

    /// Whether it is long enough to be worth a thread.
    pub(super) fn is_large(&self) -> bool {
        matches!(self.file, Part::Large(_))
    }

    /// Whether it is what was announced.
    #[must_use]
    pub fn is(&self, size: u64, digest: &Digests) -> bool {
        let (sha256, blake3) = self.hashes.clone().finish();
        self.hashes.size == size && sha256 == digest.sha256 && blake3 == digest.blake3
    }
}

fn open_at(dir: &OwnedFd, name: &str, flags: OFlags) -> Result<File, Errno> {
    records::open(dir, name, flags, MODE)
}

impl Drop for Shelf {
    fn drop(&mut self) {
        // By itself it would go with the last copy of its descriptor, and a child of this process that
        // has not come to its exec has one.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Shelf {
    /// Opens a directory, made when only its last part is missing, and locks it for this process.
    ///
    /// # Errors
    /// When it cannot be used, or another process does.
    pub fn open(dir: &Path) -> Result<Shelf, Failure> {
        let failed = |why: Errno| {
            let text = format!("{} cannot be used: {}", dir.display(), io::Error::from(why));
            Failure::new(Exit::Config, "CN0821", text)
        };
        let base = below::open(dir).map_err(failed)?;
        let own = |name: &str| {
            let made = below::walk(&base, &[OWN, name], true)?;
            made.ok_or(Errno::NOENT)
        };
        let (partial, fresh) = (own("partial").map_err(failed)?, own("fresh").map_err(failed)?);
        let held = own("held").map_err(failed)?;
        let lock = open_at(&held, "../lock", OFlags::RDWR | OFlags::CREATE).map_err(failed)?;
        let lock = OwnedFd::from(lock);
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let text = format!("another process keeps shards in {}", dir.display());
            Failure::new(Exit::Failed, "CN0824", text)
        })?;
        let shelf = Shelf { dir: dir.into(), base, partial, fresh, held, lock };
        // What cannot be looked at now is looked at by the next process.
        let _ = shelf.forget_old();
        Ok(shelf)
    }

    /// Removes parts that nobody has gone on with for a week.
    fn forget_old(&self) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for entry in rustix::fs::Dir::read_from(&self.partial)? {
            let entry = entry?;
            let name = entry.file_name();
            if let Some(There::File(mark, _)) = below::look(&self.partial, name.to_bytes())?
                && now.as_nanos().saturating_sub(mark.modified.max(0) as u128) > OLD.as_nanos()
            {
                rustix::fs::unlinkat(&self.partial, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// A directory for this node's own records.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn own(&self, name: &str) -> io::Result<OwnedFd> {
        Ok(below::walk(&self.base, &[OWN, name], true)?.ok_or(Errno::NOENT)?)
    }

    /// The content of a shard, if a file is in its place.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn content(&self, shard: &ShardKey) -> io::Result<Option<File>> {
        let [file, version, index] = path_of(shard);
        let Some(parent) = below::walk(&self.base, &[&file, &version], false)? else {
            return Ok(None);
        };
        match open_at(&parent, &index, OFlags::RDONLY) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether a shard with this content is here: by its record and its file, or by its file alone,
    /// which is read then. A record without its file counts for nothing: what is gone is fetched again.
    ///
    /// # Errors
    /// Those of the system.
    pub fn has(&self, shard: &ShardKey, size: u64, digest: &Digests) -> io::Result<bool> {
        let [file, version, index] = path_of(shard);
        let parent = match below::walk(&self.base, &[&file, &version], false) {
            Ok(Some(parent)) => parent,
            Ok(None) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        match below::look(&parent, index.as_bytes())? {
            Some(There::File(_, len)) if len == size => {}
            Some(There::File(..) | There::Directory | There::Other) | None => return Ok(false),
        }
        if let Some(record) = self.record(shard)?
            && record.size == size
            && record.digest == *digest
        {
            return Ok(true);
        }
        let mut hashes = Hashes::default();
        hashes.read(&mut open_at(&parent, &index, OFlags::RDONLY)?, &mut |_| {})?;
        let (sha256, blake3) = hashes.finish();
        Ok(sha256 == digest.sha256 && blake3 == digest.blake3)
    }

    /// The record of a shard, if there is one that can be read.
    ///
    /// # Errors
    /// Those of the system.
    pub fn record(&self, shard: &ShardKey) -> io::Result<Option<Record>> {
        for dir in [&self.fresh, &self.held] {
            if let Some(record) = read_record(dir, &name_of(shard))?
                && record.key().as_ref() == Some(shard)
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Content that is on its way in, as far as it is there; begun when there is none.
    ///
    /// # Errors
    /// Those of the system.
    pub fn partial(&self, shard: &ShardKey, size: u64, digest: &Digests) -> io::Result<Partial> {
        let name = format!("{}-{}", name_of(shard), digest.sha256.short());
        let mut file = open_at(&self.partial, &name, OFlags::RDWR | OFlags::CREATE)?;
        let mut hashes = Hashes::default();
        if file.metadata()?.len() > size {
            file.set_len(0)?;
        }
        hashes.read(&mut Read::by_ref(&mut file).take(size), &mut |_| {})?;
        file.seek(SeekFrom::Start(hashes.size))?;
        let file = match size >= LARGE {
            true => Part::Large(LargeFile::new(file.into(), hashes.size)?),
            false => Part::Small(file),
        };
        Ok(Partial { file, name, hashes })
    }

    /// Throws content away that is not what was announced.
    ///
    /// # Errors
    /// Those of the system.
    pub fn discard(&self, partial: &Partial) -> io::Result<()> {
        records::unlink(&self.partial, &partial.name)?;
        Ok(())
    }

    /// Keeps content for good: synced, in its place, recorded. It was found to be right before.
    ///
    /// # Errors
    /// Those of the system; what is done so far is found again.
    pub fn keep(
        &self,
        shard: &ShardKey,
        partial: &mut Partial,
        record: &Record,
        done: &mut dyn FnMut(Step) -> io::Result<()>,
    ) -> io::Result<()> {
        partial.sync()?;
        rustix::fs::fsync(&self.partial)?;
        done(Step::Verified)?;
        let [file, version, index] = path_of(shard);
        let parent = below::walk(&self.base, &[file, version], true)?.ok_or(Errno::NOENT)?;
        rustix::fs::renameat(&self.partial, &partial.name, &parent, &index)?;
        rustix::fs::fsync(&parent)?;
        done(Step::Placed)?;
        self.write_record(shard, record)?;
        done(Step::Recorded)
    }

    /// Writes the record of a shard that waits for the answer to its ack.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write_record(&self, shard: &ShardKey, record: &Record) -> io::Result<()> {
        records::put(&self.fresh, &name_of(shard), record, MODE)
    }

    /// The relay has answered the ack. If this is lost by a kill, it is only acked once more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn answered(&self, shard: &ShardKey) -> io::Result<()> {
        let name = name_of(shard);
        match rustix::fs::renameat(&self.fresh, &name, &self.held, &name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Shards whose acks the relay may not have answered.
    ///
    /// # Errors
    /// Those of the system.
    pub fn unanswered(&self) -> io::Result<Vec<(ShardKey, Record)>> {
        let mut found = Vec::new();
        for name in records::names(&self.fresh)? {
            if let Some(record) = read_record(&self.fresh, &name)?
                && let Some(shard) = record.key()
            {
                found.push((shard, record));
            }
        }
        Ok(found)
    }
}

/// A name for files about a shard.
pub(super) fn name_of(shard: &ShardKey) -> String {
    hex(sha256(&shard.key()).0.get(..20).unwrap_or_default())
}

fn read_record(dir: &OwnedFd, name: &str) -> io::Result<Option<Record>> {
    // One that cannot be read counts for nothing: the content is hashed instead.
    Ok(records::get(dir, name)?.and_then(|text| serde_json::from_slice(&text).ok()))
}

#[cfg(test)]
mod tests;
