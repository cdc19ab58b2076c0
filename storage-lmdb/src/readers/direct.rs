//! Reading past the page cache, into memory that is used again: fresh memory is cleared first, page by page, which
//! costs more than the reading does.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustix::io::Errno;

use crate::block::ALIGN;
use crate::shared::locked;

/// Bytes of a buffer: what sessions ask for at a time, wherever it begins, at an aligned address.
const BUFFER: usize = (256 << 10) + 2 * ALIGN;
/// Buffers that are kept while others are in use …
const MOST: usize = 16;
/// … and when none is.
const AT_REST: usize = 2;

/// Buffers; whoever holds what was read holds one.
#[derive(Debug, Default)]
pub(crate) struct Pages(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    free: Vec<Box<[u8]>>,
    lent: usize,
}

impl Pages {
    /// Reads whole pages into memory at an address of a page, and shows the part that was asked for.
    pub(crate) fn read(&self, file: &OwnedFd, offset: u64, len: usize) -> Result<Bytes, Errno> {
        let ahead = (offset % ALIGN as u64) as usize;
        let (from, whole) = (offset - ahead as u64, (ahead + len).next_multiple_of(ALIGN));
        let mut lent = self.lend(whole + ALIGN);
        let start = lent.pages.as_ptr().align_offset(ALIGN);
        let mut done = 0;
        // A piece that ends within a page ends the file.
        while done < ahead + len && done.is_multiple_of(ALIGN) {
            let Some(rest) = lent.pages.get_mut(start + done..start + whole) else {
                return Err(Errno::INVAL);
            };
            match rustix::io::pread(file, rest, from.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
        }
        let end = start + done.min(ahead + len);
        lent.shown = (start + ahead).min(end)..end;
        Ok(Bytes::from_owner(lent))
    }

    /// A buffer of at least `len` bytes.
    fn lend(&self, len: usize) -> Lent {
        let mut pool = locked(&self.0);
        let free = if len <= BUFFER { pool.free.pop() } else { None };
        pool.lent += 1;
        drop(pool);
        let pages = free.unwrap_or_else(|| vec![0; len.max(BUFFER)].into_boxed_slice());
        Lent { pages, shown: 0..0, pool: Arc::clone(&self.0) }
    }
}

/// A buffer in use. Dropped, it goes back.
struct Lent {
    pages: Box<[u8]>,
    shown: Range<usize>,
    pool: Arc<Mutex<Pool>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.pages.get(self.shown.clone()).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        let mut pool = locked(&self.pool);
        pool.lent -= 1;
        if pages.len() == BUFFER && pool.free.len() < MOST {
            pool.free.push(pages);
        }
        if pool.lent == 0 {
            pool.free.truncate(AT_REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grown;

    #[test]
    fn what_is_read_past_the_page_cache_is_what_was_asked_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        let content: Vec<u8> = (0..30_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &content).expect("a file");
        let file = OwnedFd::from(std::fs::File::open(&path).expect("it opens"));
        if grown::set_direct(&file, true).is_err() {
            println!("not past the page cache: the directory is none of a disk");
        }
        let pages = Pages::default();
        let read_direct = |file: &OwnedFd, offset, len| pages.read(file, offset, len);
        let pieces =
            [(0, 4096), (0, 1), (4095, 2), (1, 29_999), (8192, 8192), (29_999, 1), (0, 30_000)];
        for (offset, len) in pieces {
            let read = read_direct(&file, offset, len).expect("it reads");
            assert_eq!(
                read,
                content[offset as usize..offset as usize + len],
                "{len} from {offset}"
            );
        }
        assert!(read_direct(&file, 30_000, 0).expect("it reads").is_empty());
        assert_eq!(
            read_direct(&file, 29_000, 5_000).expect("it reads"),
            content[29_000..],
            "the end"
        );
        assert!(read_direct(&file, 40_000, 10).expect("it reads").is_empty(), "behind the end");
    }

    /// A file of so many pieces of 256 KiB, each of its own byte.
    fn file_of(pieces: u8) -> (tempfile::NamedTempFile, OwnedFd) {
        let path = tempfile::NamedTempFile::new().expect("a file");
        let content: Vec<u8> =
            (0..pieces).flat_map(|piece| std::iter::repeat_n(piece, 256 << 10)).collect();
        std::fs::write(path.path(), content).expect("it is written");
        let file = OwnedFd::from(std::fs::File::open(path.path()).expect("it opens"));
        (path, file)
    }

    #[test]
    fn memory_is_used_again_only_when_nobody_holds_it() {
        let (_path, file) = file_of(4);
        let pages = Pages::default();
        let read = |piece: u64| pages.read(&file, piece * (256 << 10), 256 << 10).expect("a read");
        let first = read(0);
        let (place, part) = (first.as_ptr(), first.slice(100..200));
        drop(first);
        let second = read(1);
        assert_ne!(second.as_ptr(), place, "a part of the first is still held");
        assert!(part.iter().all(|byte| *byte == 0) && second.iter().all(|byte| *byte == 1));
        drop(part);
        let third = read(2);
        assert_eq!(third.as_ptr(), place);
        assert!(second.iter().all(|byte| *byte == 1) && third.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn no_more_is_kept_than_is_said() {
        let (_path, file) = file_of(1);
        let pages = Pages::default();
        let read = |len| pages.read(&file, 0, len).expect("a read");
        let one = read(10);
        let held: Vec<Bytes> = (0..2 * MOST).map(|_| read(4096)).collect();
        drop(held);
        assert_eq!(locked(&pages.0).free.len(), MOST);
        drop(one);
        assert_eq!(locked(&pages.0).free.len(), AT_REST, "nobody holds any");
        drop(read(BUFFER));
        assert!(
            locked(&pages.0).free.iter().all(|pages| pages.len() == BUFFER),
            "what is larger goes"
        );
    }
}
