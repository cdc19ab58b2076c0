//! A content file being written.
//!
//! Bytes gather in an aligned block and are written past the page cache, a whole block at a time. Pieces that are
//! aligned themselves are not copied for that: they gather as they are, until they are as much as a block. What
//! a block holds when the file is synced is padded to the alignment, written, and cut off again. Where
//! direct writes are refused the same blocks go through the page cache, with write-back kept going so
//! that the final sync has little left to do.

use std::os::fd::{IntoRawFd, OwnedFd};

use bytes::Bytes;
use consign_core::id::BlobNo;
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use crate::block::{ALIGN, BLOCK, Block};
use crate::dir::{self, DataDir, FILE_MODE};
use crate::grown::{self, Grown};

/// Why a file cannot be opened for writing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OpenFault {
    /// Something else than a regular file, or one that is shorter than it must be.
    Wrong(String),
    /// An error of the system.
    System(Errno),
}

impl From<Errno> for OpenFault {
    fn from(why: Errno) -> OpenFault {
        OpenFault::System(why)
    }
}

/// Shorter pieces are copied: what each part of a write costs is then more than the copy.
const AS_IT_IS: usize = 64 << 10;

/// The file. Its bytes are those on disk, then those that are gathered as they came, then those of the block or
/// of the tail; while any are gathered there are none behind them.
#[derive(Debug)]
pub(crate) struct BlobFile {
    disk: Grown,
    folder: OwnedFd,
    gathered: Vec<Bytes>,
    block: Option<Block>,
    /// What is left when the block was taken away: less than the alignment.
    tail: Vec<u8>,
    /// Whether the name is durable.
    named: bool,
}

impl BlobFile {
    /// Creates the file of a blob, or opens it and cuts it to `offset`.
    pub(crate) fn open(dir: &DataDir, blob: BlobNo, offset: u64) -> Result<BlobFile, OpenFault> {
        let folder = dir::folder_of(blob);
        let folder = if offset == 0 { dir.make_folder(folder) } else { dir.folder(folder) }?;
        let how = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let how = if offset == 0 { how | OFlags::CREATE | OFlags::EXCL } else { how };
        let file = match rustix::fs::openat(&folder, blob.to_string(), how, FILE_MODE) {
            Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => {
                return Err(OpenFault::Wrong(format!("blob {blob} is not a regular file")));
            }
            other => other?,
        };
        let at = offset - offset % ALIGN as u64;
        let mut tail = vec![0; (offset - at) as usize];
        if offset > 0 {
            cut(&file, blob, offset, at, &mut tail)?;
        }
        // Direct only now: with O_CREAT a refusal would leave the file behind.
        let (disk, gathered, block) = (Grown::new(file, at), Vec::new(), None);
        Ok(BlobFile { disk, folder, gathered, block, tail, named: offset > 0 })
    }

    /// How long it is, what is in memory included.
    pub(crate) fn len(&self) -> u64 {
        let held = self.block.as_ref().map_or(self.tail.len(), Block::fill);
        self.disk.at().saturating_add(self.gathered() as u64).saturating_add(held as u64)
    }

    /// How many of its bytes are in memory that whoever gave them has to spare until they are written.
    pub(crate) fn gathered(&self) -> usize {
        self.gathered.iter().map(Bytes::len).sum()
    }

    /// Whether it has a block.
    pub(crate) fn has_block(&self) -> bool {
        self.block.is_some()
    }

    /// Gives it an empty block.
    pub(crate) fn give_block(&mut self, mut block: Block) {
        block.append(&self.tail);
        self.tail = Vec::new();
        self.block = Some(block);
    }

    /// Takes its block away, empty: what it holds is written or kept as the tail.
    pub(crate) fn take_block(&mut self) -> (Option<Block>, Result<(), Errno>) {
        let Some(mut block) = self.block.take() else { return (None, Ok(())) };
        let whole = block.whole();
        let written = self.disk.write(block.front(whole));
        if written.is_ok() {
            block.consume(whole);
            self.tail = block.front(block.fill()).to_vec();
        }
        (Some(block), written)
    }

    /// Appends bytes; the file must have a block.
    pub(crate) fn append(&mut self, data: Bytes) -> Result<(), Errno> {
        if !self.takes_as_it_is(&data) {
            self.write_gathered()?;
            return self.copy(&data);
        }
        self.gathered.push(data);
        if self.gathered() < BLOCK { Ok(()) } else { self.write_gathered() }
    }

    fn takes_as_it_is(&self, data: &Bytes) -> bool {
        let nothing_held = self.block.as_ref().is_some_and(|block| block.fill() == 0);
        let aligned = data.len().is_multiple_of(ALIGN) && data.as_ptr().align_offset(ALIGN) == 0;
        aligned && data.len() >= AS_IT_IS && nothing_held && self.disk.is_direct()
    }

    /// Writes what is gathered, and lets go of it.
    pub(crate) fn write_gathered(&mut self) -> Result<(), Errno> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let written = self.disk.write_pieces(&self.gathered);
        self.gathered.clear();
        written
    }

    fn copy(&mut self, mut data: &[u8]) -> Result<(), Errno> {
        while !data.is_empty() {
            let Some(mut block) = self.block.take() else { return Err(Errno::INVAL) };
            let taken = block.append(data);
            data = data.get(taken..).unwrap_or_default();
            let mut written = Ok(());
            if block.fill() == BLOCK {
                written = self.disk.write(block.front(BLOCK));
                block.consume(BLOCK);
            }
            self.block = Some(block);
            written?;
        }
        Ok(())
    }

    /// Makes all bytes durable, and the name with the first of them. Needs a block.
    pub(crate) fn sync(&mut self) -> Result<(), Errno> {
        self.write_gathered()?;
        let Some(mut block) = self.block.take() else { return Err(Errno::INVAL) };
        let written = self.write_rest(&mut block);
        self.block = Some(block);
        written?;
        self.disk.sync()?;
        if !self.named {
            rustix::fs::fsync(&self.folder)?;
            self.named = true;
        }
        Ok(())
    }

    /// Writes what the block holds, and keeps there what does not end on a boundary.
    fn write_rest(&mut self, block: &mut Block) -> Result<(), Errno> {
        let whole = block.whole();
        self.disk.write(block.front(whole))?;
        block.consume(whole);
        if block.fill() == 0 {
            return Ok(());
        }
        let padded = if self.disk.is_direct() { block.pad() } else { block.fill() };
        self.disk.write_ahead(block.front(padded))?;
        if padded > block.fill() {
            self.disk.cut(block.fill() as u64)?;
        }
        Ok(())
    }

    /// Closes it and says whether the system was content with that. Gives its block back.
    pub(crate) fn close(mut self) -> (Option<Block>, Result<(), Errno>) {
        let block = self.block.take();
        let fd = self.disk.into_file().into_raw_fd();
        // SAFETY: `into_raw_fd` gave up the ownership, and nothing else has the number.
        let closed = unsafe { rustix::io::try_close(fd) };
        (block, closed)
    }
}

/// Cuts a file that is to be gone on with, and reads what stands before a boundary into `tail`.
fn cut(
    file: &OwnedFd,
    blob: BlobNo,
    offset: u64,
    at: u64,
    tail: &mut [u8],
) -> Result<(), OpenFault> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenFault::Wrong(format!("blob {blob} is not a regular file")));
    }
    let have = u64::try_from(stat.st_size).unwrap_or(0);
    if have < offset {
        let why = format!("blob {blob} has {have} bytes, {offset} were durable");
        return Err(OpenFault::Wrong(why));
    }
    rustix::fs::ftruncate(file, offset)?;
    Ok(grown::read_exact(file, tail, at)?)
}
