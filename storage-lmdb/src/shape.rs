//! Whether the ledger's file is as long as it has to be, told without mapping it.
//!
//! LMDB maps its file and touches pages where they should be; when the file was cut short that is a
//! SIGBUS, not an error. The file of a healthy ledger may end before its last page, but only if the
//! list of free pages names every page behind the end. So that list is read here, with plain reads.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A page in use lies behind the end of the file.
    Short {
        /// Length of the file in bytes.
        have: u64,
        /// The page.
        page: u64,
        /// Bytes of a page.
        size: u64,
    },
    /// Not an LMDB file, or one whose list of free pages makes no sense.
    Unreadable(String),
}

const MAGIC: u32 = 0xbeef_c0de;
/// Bytes before the content of a page.
const HEADER: usize = 16;
/// Bytes of a meta page's content that are looked at.
const META: usize = 136;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
/// Flag of a node whose data is on pages of its own.
const BIG: u16 = 0x01;
const NO_PAGE: u64 = u64::MAX;

/// Judges the file at `path`.
pub(crate) fn check(path: &Path) -> Result<(), Fault> {
    let unreadable = |why: std::io::Error| Fault::Unreadable(why.to_string());
    let file = File::open(path).map_err(unreadable)?;
    let have = file.metadata().map_err(unreadable)?.len();
    let meta = newest_meta(&file)?;
    let need = meta.last.saturating_add(1).saturating_mul(meta.size);
    if have >= need {
        return Ok(());
    }
    let mut walk =
        Walk { file: &file, have, size: meta.size, from: have / meta.size, free: vec![] };
    if meta.free_root != NO_PAGE {
        walk.tree(meta.free_root, meta.free_depth)?;
    }
    walk.free.sort_unstable();
    walk.free.dedup();
    for (at, page) in (walk.from..=meta.last).enumerate() {
        if walk.free.get(at) != Some(&page) {
            return Err(Fault::Short { have, page, size: meta.size });
        }
    }
    Ok(())
}

struct Meta {
    size: u64,
    free_root: u64,
    free_depth: u16,
    last: u64,
    txn: u64,
}

fn newest_meta(file: &File) -> Result<Meta, Fault> {
    let first = read_meta(file, 0)?;
    let second = read_meta(file, first.size)?;
    Ok(if second.txn > first.txn { second } else { first })
}

fn read_meta(file: &File, at: u64) -> Result<Meta, Fault> {
    let mut bytes = [0u8; HEADER + META];
    file.read_exact_at(&mut bytes, at)
        .map_err(|why| Fault::Unreadable(format!("meta page at byte {at}: {why}")))?;
    let page = Fields(&bytes);
    let meta = Fields(bytes.get(HEADER..).unwrap_or_default());
    if meta.u32(0) != MAGIC {
        return Err(Fault::Unreadable(format!("no LMDB meta page at byte {at}")));
    }
    // Behind magic, version, address and map size stand the records of the free list and of the
    // main table, 48 bytes each, then the last page and the transaction.
    let size = u64::from(meta.u32(24));
    if page.u16(10) & 0x08 == 0 || !size.is_power_of_two() || !(512..=65_536).contains(&size) {
        return Err(Fault::Unreadable(format!("the meta page at byte {at} makes no sense")));
    }
    Ok(Meta {
        size,
        free_depth: meta.u16(30),
        free_root: meta.u64(64),
        last: meta.u64(120),
        txn: meta.u64(128),
    })
}

/// Collects the free pages from `from` on.
struct Walk<'f> {
    file: &'f File,
    have: u64,
    size: u64,
    from: u64,
    free: Vec<u64>,
}

impl Walk<'_> {
    fn page(&self, number: u64, count: u64) -> Result<Vec<u8>, Fault> {
        let end = number.saturating_add(count).saturating_mul(self.size);
        if end > self.have {
            return Err(Fault::Short { have: self.have, page: number, size: self.size });
        }
        let mut bytes = vec![0u8; (count * self.size) as usize];
        self.file
            .read_exact_at(&mut bytes, number * self.size)
            .map_err(|why| Fault::Unreadable(format!("page {number}: {why}")))?;
        Ok(bytes)
    }

    fn tree(&mut self, number: u64, depth: u16) -> Result<(), Fault> {
        let bad = || Fault::Unreadable(format!("page {number} of the free list makes no sense"));
        let depth = depth.checked_sub(1).ok_or_else(bad)?;
        let bytes = self.page(number, 1)?;
        let page = Fields(&bytes);
        let flags = page.u16(10);
        if flags & (BRANCH | LEAF) == 0 {
            return Err(bad());
        }
        let count = usize::from(page.u16(12)).checked_sub(HEADER).ok_or_else(bad)? / 2;
        for at in 0..count {
            let node = usize::from(page.u16(HEADER + 2 * at));
            let node = Fields(bytes.get(node..).ok_or_else(bad)?);
            let low = node.low();
            if flags & BRANCH != 0 {
                self.tree(low | u64::from(node.u16(4)) << 32, depth)?;
                continue;
            }
            let data = 8 + usize::from(node.u16(6));
            if node.u16(4) & BIG == 0 {
                let list = node.0.get(data..data.saturating_add(low as usize)).ok_or_else(bad)?;
                self.list(list);
            } else {
                let big = self.overflow(node.u64(data))?;
                let end = HEADER.saturating_add(low as usize);
                self.list(big.get(HEADER..end).ok_or_else(bad)?);
            }
        }
        Ok(())
    }

    fn overflow(&self, number: u64) -> Result<Vec<u8>, Fault> {
        let first = self.page(number, 1)?;
        let page = Fields(&first);
        if page.u16(10) & OVERFLOW == 0 {
            return Err(Fault::Unreadable(format!("page {number} is no overflow page")));
        }
        self.page(number, u64::from(page.u32(12)).max(1))
    }

    /// A list of free pages: how many, then their numbers.
    fn list(&mut self, bytes: &[u8]) {
        let numbers = bytes.chunks_exact(8).skip(1).map(|number| Fields(number).u64(0));
        self.free.extend(numbers.filter(|page| *page >= self.from));
    }
}

/// Fields in the byte order of the machine; what lies outside reads as zero.
struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..at.saturating_add(N)).and_then(|bytes| bytes.try_into().ok());
        bytes.unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    /// The low 32 bits of a node's page number or length: two halves, the low one first on
    /// little-endian machines.
    fn low(&self) -> u64 {
        let (a, b) = (u64::from(self.u16(0)), u64::from(self.u16(2)));
        if cfg!(target_endian = "little") { a | b << 16 } else { b | a << 16 }
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }
}
