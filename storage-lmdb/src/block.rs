//! Aligned buffers for direct writes, from a pool of fixed size.

/// Bytes of a block: what is written at a time.
pub(crate) const BLOCK: usize = 1 << 20;
/// What direct writes have to be aligned to, in memory and in the file.
pub(crate) const ALIGN: usize = 4096;

/// A buffer of [`BLOCK`] bytes at an aligned address, filled from the front.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Box<[u8]>,
    start: usize,
    fill: usize,
}

impl Block {
    pub(crate) fn new() -> Block {
        let bytes = vec![0u8; BLOCK + ALIGN].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(ALIGN);
        assert!(start <= ALIGN, "an address less than {ALIGN} bytes on is aligned");
        Block { bytes, start, fill: 0 }
    }

    /// The bytes from the front up to `to`, a multiple of [`ALIGN`] for direct writes.
    pub(crate) fn front(&self, to: usize) -> &[u8] {
        self.bytes.get(self.start..self.start + to.min(BLOCK)).unwrap_or_default()
    }

    /// How many bytes are filled.
    pub(crate) fn fill(&self) -> usize {
        self.fill
    }

    /// How many filled bytes can be written aligned.
    pub(crate) fn whole(&self) -> usize {
        self.fill / ALIGN * ALIGN
    }

    /// Copies as much of `data` as fits; how much that was.
    pub(crate) fn append(&mut self, data: &[u8]) -> usize {
        let len = data.len().min(BLOCK - self.fill);
        let from = self.start + self.fill;
        let room = self.bytes.get_mut(from..from + len).unwrap_or_default();
        room.copy_from_slice(data.get(..len).unwrap_or_default());
        self.fill += len;
        len
    }

    /// Clears what stands behind the filled bytes up to the next boundary; where that is.
    pub(crate) fn pad(&mut self) -> usize {
        let to = self.fill.next_multiple_of(ALIGN);
        self.bytes.get_mut(self.start + self.fill..self.start + to).unwrap_or_default().fill(0);
        to
    }

    /// Drops the first `len` filled bytes; the rest moves to the front.
    pub(crate) fn consume(&mut self, len: usize) {
        let len = len.min(self.fill);
        let from = self.start + len;
        self.bytes.copy_within(from..self.start + self.fill, self.start);
        self.fill -= len;
    }
}

/// A pool of blocks; they are made when first wanted and kept.
#[derive(Debug)]
pub(crate) struct Pool {
    free: Vec<Block>,
    left: usize,
}

impl Pool {
    /// A pool of at most `blocks`.
    pub(crate) fn new(blocks: usize) -> Pool {
        Pool { free: Vec::new(), left: blocks }
    }

    /// An empty block; `None` when all are in use.
    pub(crate) fn take(&mut self) -> Option<Block> {
        self.free.pop().or_else(|| {
            self.left = self.left.checked_sub(1)?;
            Some(Block::new())
        })
    }

    /// Takes a block back.
    pub(crate) fn give(&mut self, mut block: Block) {
        block.fill = 0;
        self.free.push(block);
    }
}
