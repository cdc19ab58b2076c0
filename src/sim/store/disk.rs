//! Content files on a simulated disk: what the process sees, and what a power cut would leave.
//!
//! | after | durable is |
//! |---|---|
//! | a write | nothing of it: at a cut each page is kept, lost or torn, the length old, new or between |
//! | a sync of the file | its bytes and its length; not its name |
//! | a sync of the folder | every name in it that was made or removed before |
//!
//! Bytes are kept whole, as they were written. A file whose name is gone lives on while it is open.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use consign_core::id::{BlobDigest, BlobNo};
use consign_core::store::StoreFault;

use crate::sim::rng::Rng;

/// What is written and lost as a whole, unless it is torn.
pub(super) const PAGE: usize = 4096;
/// What is never torn.
pub(super) const SECTOR: usize = 512;

/// An inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileNo(u64);

/// A name: the folder, which is the low byte of the number, then the number.
type Name = (u8, BlobNo);

fn name(blob: BlobNo) -> Name {
    let [.., low] = blob.0.to_be_bytes();
    (low, blob)
}

/// The folder of a blob.
pub(super) fn folder_of(blob: BlobNo) -> u8 {
    name(blob).0
}

/// A file. On disk are the first `same` bytes of `data`, then `old`.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// What whoever opens it sees.
    pub(super) data: Vec<u8>,
    /// How many of them are on disk already.
    pub(super) same: usize,
    /// What stands on disk behind these.
    pub(super) old: Vec<u8>,
    /// Finished: whole, and durable with its name.
    whole: bool,
    /// Names and places in quarantine.
    links: u32,
    /// Descriptors of the process.
    opens: u32,
}

impl File {
    fn truncate(&mut self, len: usize) {
        if len < self.same {
            let mut old = self.data[len..self.same].to_vec();
            old.append(&mut self.old);
            (self.same, self.old) = (len, old);
        }
        self.data.truncate(len);
    }

    fn sync(&mut self) {
        self.same = self.data.len();
        self.old = Vec::new();
    }

    fn dirty(&self) -> bool {
        self.same < self.data.len() || !self.old.is_empty()
    }

    /// What a cut leaves: pages behind the synced bytes are kept, lost or torn, each for itself; what
    /// was never written there reads as zeros.
    fn cut(&mut self, rng: &mut Rng) {
        if !self.dirty() {
            return;
        }
        let (had, has) = (self.same + self.old.len(), self.data.len());
        let len = match rng.below(4) {
            0 => had,
            1 => has,
            _ => rng.between(self.same as u64, has as u64) as usize,
        };
        self.settle(len, rng);
        self.sync();
    }

    /// Makes it `len` bytes long, each page behind the synced bytes new, old or both.
    fn settle(&mut self, len: usize, rng: &mut Rng) {
        // From cut to cut a disk may have got far with its writes, or hardly begun.
        let kept = rng.below(5) as u32 * 250_000;
        let mut image = self.data[..self.same.min(len)].to_vec();
        while image.len() < len {
            let page_end = (image.len() / PAGE + 1) * PAGE;
            let torn = rng.chance(100_000);
            let mut new = rng.chance(kept);
            while image.len() < len.min(page_end) {
                if torn {
                    new = rng.chance(500_000);
                }
                let end = ((image.len() / SECTOR + 1) * SECTOR).min(len);
                self.sector(&mut image, end, new);
            }
        }
        self.data = image;
    }

    /// Appends what stands on disk up to `end`: the new bytes or the old ones, or zeros.
    fn sector(&self, image: &mut Vec<u8>, end: usize, new: bool) {
        let cut = |from: &[u8], at: usize, end: usize| {
            from.get(at..end.min(from.len())).unwrap_or_default().to_vec()
        };
        if new {
            image.extend(cut(&self.data, image.len(), end));
        }
        let at = image.len() - self.same;
        image.extend(cut(&self.old, at, end - self.same));
        image.resize(end, 0);
    }
}

/// The files and their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<FileNo, File>,
    names: BTreeMap<Name, FileNo>,
    /// Names that were made since the last sync of their folder.
    fresh: BTreeSet<Name>,
    /// Names that were taken away since the last sync of their folder.
    gone: BTreeMap<Name, FileNo>,
    /// What was set aside, and under which number.
    aside: Vec<(BlobNo, FileNo)>,
    last: u64,
    bytes: u64,
}

impl Disk {
    /// Bytes of all files, set aside and removed but open ones included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file under a number.
    pub(super) fn find(&self, blob: BlobNo) -> Option<FileNo> {
        self.names.get(&name(blob)).copied()
    }

    /// The bytes under a number.
    pub(super) fn data(&self, blob: BlobNo) -> Option<&[u8]> {
        self.find(blob).and_then(|file| self.files.get(&file)).map(|file| file.data.as_slice())
    }

    /// Part of a file; less at its end.
    pub(super) fn read(&self, blob: BlobNo, offset: u64, len: usize) -> Result<Bytes, StoreFault> {
        let data = self.data(blob).ok_or_else(|| missing(blob))?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
        let to = from.saturating_add(len).min(data.len());
        Ok(Bytes::copy_from_slice(&data[from..to]))
    }

    /// Every name, with the length of its file and whether that is whole and durable.
    pub(super) fn files(&self) -> impl Iterator<Item = (BlobNo, u64, bool)> {
        self.names.iter().filter_map(|((_, blob), file)| {
            self.files.get(file).map(|file| (*blob, file.data.len() as u64, file.whole))
        })
    }

    /// How many names there are.
    pub(super) fn count(&self) -> usize {
        self.names.len()
    }

    /// The `nth` name, from 0.
    pub(super) fn nth(&self, nth: usize) -> Option<BlobNo> {
        self.names.keys().nth(nth).map(|(_, blob)| *blob)
    }

    /// Numbers below `below` in a folder.
    pub(super) fn folder(&self, folder: u8, below: BlobNo) -> Vec<BlobNo> {
        let range = (folder, BlobNo(0))..(folder, below);
        self.names.range(range).map(|((_, blob), _)| *blob).collect()
    }

    /// Numbers of what was set aside.
    pub(super) fn set_aside(&self) -> impl Iterator<Item = BlobNo> {
        self.aside.iter().map(|(blob, _)| *blob)
    }

    /// The file, to be damaged.
    pub(super) fn file_mut(&mut self, blob: BlobNo) -> Option<&mut File> {
        let file = self.find(blob)?;
        self.files.get_mut(&file)
    }

    /// Changes the bytes of an open file.
    fn change<T>(&mut self, file: FileNo, how: impl FnOnce(&mut File) -> T) -> Option<T> {
        let file = self.files.get_mut(&file)?;
        let before = file.data.len() as u64;
        let done = how(file);
        self.bytes = self.bytes - before + file.data.len() as u64;
        Some(done)
    }

    fn unlinked(&mut self, no: FileNo) {
        if let Some(file) = self.files.get_mut(&no) {
            file.links -= 1;
        }
        self.forget(no);
    }

    /// Frees a file nobody can reach.
    fn forget(&mut self, no: FileNo) {
        if self.files.get(&no).is_some_and(|file| file.links == 0 && file.opens == 0)
            && let Some(file) = self.files.remove(&no)
        {
            self.bytes -= file.data.len() as u64;
        }
    }
}

/// What the process asks for.
impl Disk {
    /// Creates a file, open (O_EXCL).
    pub(super) fn create(&mut self, blob: BlobNo) -> Result<FileNo, StoreFault> {
        if self.find(blob).is_some() {
            return Err(StoreFault::Io(format!("blob {blob} is there already")));
        }
        self.last += 1;
        let no = FileNo(self.last);
        self.files.insert(no, File { links: 1, opens: 1, ..File::default() });
        self.names.insert(name(blob), no);
        self.fresh.insert(name(blob));
        Ok(no)
    }

    /// Opens a file that is there and cuts it to `offset`.
    pub(super) fn reopen(&mut self, blob: BlobNo, offset: u64) -> Result<FileNo, StoreFault> {
        let no = self.find(blob).ok_or_else(|| missing(blob))?;
        let keep = usize::try_from(offset).unwrap_or(usize::MAX);
        let opened = self.change(no, |file| {
            let have = file.data.len();
            if have < keep {
                let why = format!("blob {blob} has {have} bytes, {offset} were durable");
                return Err(StoreFault::Corrupt(why));
            }
            file.truncate(keep);
            file.whole = false;
            file.opens += 1;
            Ok(no)
        });
        opened.unwrap_or_else(|| Err(missing(blob)))
    }

    pub(super) fn close(&mut self, no: FileNo) {
        if let Some(file) = self.files.get_mut(&no) {
            file.opens -= 1;
        }
        self.forget(no);
    }

    pub(super) fn append(&mut self, no: FileNo, data: &[u8]) {
        self.change(no, |file| file.data.extend_from_slice(data));
    }

    /// Length of an open file.
    pub(super) fn len(&self, no: FileNo) -> u64 {
        self.files.get(&no).map_or(0, |file| file.data.len() as u64)
    }

    /// Makes bytes and length durable.
    pub(super) fn sync(&mut self, no: FileNo) {
        self.change(no, File::sync);
    }

    /// A sync that fails: what was not durable is taken for clean, and is there or not.
    pub(super) fn sync_fails(&mut self, no: FileNo, rng: &mut Rng) {
        self.change(no, |file| {
            let len = file.data.len();
            file.settle(len, rng);
            file.sync();
        });
    }

    /// Makes every name of a folder durable; the numbers that are now durably gone.
    pub(super) fn sync_folder(&mut self, folder: u8) -> Vec<BlobNo> {
        let range = (folder, BlobNo(0))..=(folder, BlobNo(u64::MAX));
        let made: Vec<Name> = self.fresh.range(range.clone()).copied().collect();
        for name in made {
            self.fresh.remove(&name);
        }
        let gone: Vec<Name> = self.gone.range(range).map(|(name, _)| *name).collect();
        for name in &gone {
            if let Some(file) = self.gone.remove(name) {
                self.unlinked(file);
            }
        }
        gone.into_iter().map(|(_, blob)| blob).collect()
    }

    /// Marks a file as finished, if bytes and name are durable indeed; its length and digest.
    pub(super) fn finish(&mut self, blob: BlobNo, no: FileNo) -> Option<(u64, BlobDigest)> {
        let named = self.find(blob) == Some(no) && !self.fresh.contains(&name(blob));
        let file = self.files.get_mut(&no).filter(|file| named && !file.dirty())?;
        file.whole = true;
        let digest = BlobDigest(*blake3::hash(&file.data).as_bytes());
        Some((file.data.len() as u64, digest))
    }

    /// Takes a name away; whether it was there.
    pub(super) fn unlink(&mut self, blob: BlobNo) -> bool {
        let name = name(blob);
        let Some(file) = self.names.remove(&name) else { return false };
        self.fresh.remove(&name);
        if let Some(older) = self.gone.insert(name, file) {
            self.unlinked(older);
        }
        true
    }

    /// Moves a file into quarantine; whether it was there.
    pub(super) fn quarantine(&mut self, blob: BlobNo) -> bool {
        let Some(no) = self.find(blob).filter(|_| self.unlink(blob)) else { return false };
        if let Some(file) = self.files.get_mut(&no) {
            file.links += 1;
        }
        self.aside.push((blob, no));
        true
    }

    /// Gives two numbers each other's file.
    pub(super) fn swap(&mut self, one: BlobNo, other: BlobNo) {
        let (one, other) = (name(one), name(other));
        if let (Some(a), Some(b)) = (self.names.get(&one).copied(), self.names.get(&other).copied())
        {
            self.names.insert(one, b);
            self.names.insert(other, a);
        }
    }

    /// Puts a durable file there that the process did not write.
    pub(super) fn plant(&mut self, blob: BlobNo, data: &[u8]) {
        self.unlink(blob);
        if let Ok(no) = self.create(blob) {
            self.append(no, data);
            self.sync(no);
            self.close(no);
        }
        self.sync_folder(folder_of(blob));
    }

    /// The process dies: of what it had not handed to the system yet, nothing is left.
    pub(super) fn die(&mut self, rng: &mut Rng) {
        let open = self.files.iter().filter(|(_, file)| file.opens > 0);
        let open: Vec<FileNo> = open.map(|(no, _)| *no).collect();
        for no in open {
            self.change(no, |file| {
                file.opens = 0;
                let (at, len) = (file.same.min(file.data.len()), file.data.len());
                let handed = match rng.below(4) {
                    0 => len,
                    1 => at,
                    _ => rng.between(at as u64, len as u64) as usize,
                };
                file.data.truncate(handed);
            });
            self.forget(no);
        }
    }

    /// The power goes, after [`Disk::die`]: each name that was not synced is made or not, taken away
    /// or not, and each file is what [`File::cut`] leaves. The numbers that are gone for good.
    pub(super) fn cut(&mut self, rng: &mut Rng) -> Vec<BlobNo> {
        let mut lost = Vec::new();
        for (name, no) in std::mem::take(&mut self.gone) {
            if !self.names.contains_key(&name) && rng.chance(500_000) {
                self.names.insert(name, no);
                if let Some(at) = self.aside.iter().position(|(_, other)| *other == no) {
                    self.aside.remove(at);
                    self.unlinked(no);
                }
            } else {
                self.unlinked(no);
                lost.push(name.1);
            }
        }
        for name in std::mem::take(&mut self.fresh) {
            if rng.chance(500_000)
                && let Some(no) = self.names.remove(&name)
            {
                self.unlinked(no);
            }
        }
        for file in self.files.values_mut() {
            file.cut(rng);
        }
        self.bytes = self.files.values().map(|file| file.data.len() as u64).sum();
        lost
    }
}

pub(super) fn missing(blob: BlobNo) -> StoreFault {
    StoreFault::Missing(format!("blob {blob}"))
}
