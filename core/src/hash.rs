//! A BLAKE3 hasher that can stop at a checkpoint and go on after a restart without re-reading.
//!
//! BLAKE3 is a binary tree over 1 KiB chunks. Content is hashed in groups, each a whole subtree;
//! the chaining values of finished groups stand on a stack that merges like a binary counter:
//!
//! ```text
//! groups done   stack (subtree sizes in groups)
//!      1        1
//!      2        2
//!      3        2 1
//!      4        4
//!      7        4 2 1
//! ```
//!
//! The value on top may only be merged when it is known that more content follows, because the root
//! is formed otherwise than every other node. A group is half a checkpoint, so that a checkpoint
//! always holds at least two values and the root can be formed from it even if nothing follows.

use alloc::vec::Vec;
use core::fmt;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::id::BlobDigest;
use crate::limits::CHECKPOINT_EVERY;

/// First byte of an encoded checkpoint.
const CHAIN_VERSION: u8 = 1;

/// Where hashing can go on later: everything before `offset` in chaining values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Bytes that have been hashed; a multiple of the checkpoint distance.
    pub offset: u64,
    /// Chaining values from the left, the last one not merged yet. Empty at offset 0.
    pub stack: Vec<[u8; 32]>,
}

/// Why an encoded checkpoint cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainFault {
    /// Neither empty nor a version byte, an offset and whole values.
    #[error("a checkpoint of {len} bytes has no whole number of values")]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// Written by a newer version.
    #[error("a checkpoint of version {version}, this build reads 1")]
    Version {
        /// Its version.
        version: u8,
    },
    /// The offset is not a multiple of the distance between checkpoints.
    #[error("a checkpoint at byte {offset} is not a multiple of {every}")]
    Offset {
        /// It.
        offset: u64,
        /// The distance.
        every: u64,
    },
    /// The number of values does not fit the offset.
    #[error("a checkpoint at byte {offset} has {found} values, not {expected}")]
    Values {
        /// The offset.
        offset: u64,
        /// How many there are.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
}

impl Checkpoint {
    /// Compact bytes for the ledger: nothing at offset 0, otherwise version 1, the offset as
    /// big-endian u64, and the values.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if self.offset == 0 {
            return Vec::new();
        }
        let mut bytes = Vec::with_capacity(self.stack.len().saturating_mul(32).saturating_add(9));
        bytes.push(CHAIN_VERSION);
        bytes.extend_from_slice(&self.offset.to_be_bytes());
        bytes.extend(self.stack.iter().flatten());
        bytes
    }

    /// Reads what [`Checkpoint::encode`] wrote. Whether it fits a distance is judged by
    /// [`Hasher::resume`].
    ///
    /// # Errors
    /// See [`ChainFault`].
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, ChainFault> {
        let Some((version, rest)) = bytes.split_first() else { return Ok(Checkpoint::default()) };
        if *version != CHAIN_VERSION {
            return Err(ChainFault::Version { version: *version });
        }
        let short = ChainFault::Length { len: bytes.len() };
        let (offset, values) = rest.split_first_chunk::<8>().ok_or(short)?;
        let (values, rest) = values.as_chunks::<32>();
        if !rest.is_empty() || values.len() > 64 {
            return Err(short);
        }
        Ok(Checkpoint { offset: u64::from_be_bytes(*offset), stack: values.to_vec() })
    }
}

/// The hasher.
#[derive(Clone)]
pub struct Hasher {
    every: u64,
    offset: u64,
    /// Groups whose values are on the stack; they all lie before `last` and `current`.
    done: u64,
    stack: Vec<ChainingValue>,
    /// The last group of a checkpoint that was resumed, until more content follows.
    last: Option<ChainingValue>,
    /// The group under way; may be full, then it is merged when more content follows.
    current: blake3::Hasher,
}

impl Default for Hasher {
    fn default() -> Hasher {
        Hasher::new()
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hasher(at {}, {} values)", self.offset, self.stack.len())
    }
}

impl Hasher {
    /// A hasher at the beginning of content, with checkpoints every [`CHECKPOINT_EVERY`] bytes.
    #[must_use]
    pub fn new() -> Hasher {
        Hasher::with_distance(CHECKPOINT_EVERY)
    }

    /// A hasher with checkpoints every `every` bytes.
    ///
    /// # Panics
    /// When `every` is not a power of two of at least 2,048.
    #[must_use]
    pub fn with_distance(every: u64) -> Hasher {
        assert!(every.is_power_of_two() && every >= 2_048, "no distance: {every}");
        Hasher {
            every,
            offset: 0,
            done: 0,
            stack: Vec::new(),
            last: None,
            current: blake3::Hasher::new(),
        }
    }

    /// Goes on from `checkpoint`, with checkpoints every [`CHECKPOINT_EVERY`] bytes.
    ///
    /// # Errors
    /// When the checkpoint does not fit itself or that distance.
    pub fn resume(checkpoint: &Checkpoint) -> Result<Hasher, ChainFault> {
        Hasher::resume_with_distance(checkpoint, CHECKPOINT_EVERY)
    }

    /// Goes on from `checkpoint`, with checkpoints every `every` bytes.
    ///
    /// # Errors
    /// When the checkpoint does not fit itself or that distance.
    ///
    /// # Panics
    /// When `every` is not a power of two of at least 2,048.
    pub fn resume_with_distance(checkpoint: &Checkpoint, every: u64) -> Result<Hasher, ChainFault> {
        let mut hasher = Hasher::with_distance(every);
        let offset = checkpoint.offset;
        if !offset.is_multiple_of(every) {
            return Err(ChainFault::Offset { offset, every });
        }
        let groups = offset / hasher.group();
        let expected = match groups.checked_sub(1) {
            None => 0,
            Some(merged) => usize::try_from(merged.count_ones()).unwrap_or(0).saturating_add(1),
        };
        let found = checkpoint.stack.len();
        if found != expected {
            return Err(ChainFault::Values { offset, found, expected });
        }
        if let Some((last, merged)) = checkpoint.stack.split_last() {
            hasher.stack.extend_from_slice(merged);
            hasher.last = Some(*last);
            hasher.done = groups.saturating_sub(1);
            hasher.offset = offset;
            hasher.current.set_input_offset(offset);
        }
        Ok(hasher)
    }

    /// Hashes more content.
    pub fn update(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let filled = self.offset % self.group();
            if filled == 0 && self.offset > 0 {
                self.turn_group();
            }
            let room = usize::try_from(self.group().saturating_sub(filled)).unwrap_or(usize::MAX);
            let (piece, rest) = data.split_at(room.min(data.len()));
            self.current.update(piece);
            self.offset = self.offset.saturating_add(piece.len() as u64);
            data = rest;
        }
    }

    /// How many bytes have been hashed.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The checkpoint here, if this offset is one.
    #[must_use]
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        if !self.offset.is_multiple_of(self.every) {
            return None;
        }
        let mut stack = self.stack.clone();
        stack.extend(self.right_edge());
        Some(Checkpoint { offset: self.offset, stack })
    }

    /// BLAKE3 of everything hashed.
    #[must_use]
    pub fn finalize(&self) -> BlobDigest {
        let Some((root, inner)) = self.stack.split_first() else {
            return BlobDigest(*self.current.finalize().as_bytes());
        };
        let Some(mut right) = self.right_edge() else {
            unreachable!("values on the stack are followed by at least one group");
        };
        for left in inner.iter().rev() {
            right = merge_subtrees_non_root(left, &right, Mode::Hash);
        }
        BlobDigest(*merge_subtrees_root(root, &right, Mode::Hash).as_bytes())
    }

    fn group(&self) -> u64 {
        self.every / 2
    }

    /// Value of the group that nothing follows yet.
    fn right_edge(&self) -> Option<ChainingValue> {
        if self.current.count() > 0 { Some(self.current.finalize_non_root()) } else { self.last }
    }

    /// More content follows: the full group goes on the stack, and a new one begins.
    fn turn_group(&mut self) {
        if let Some(mut value) = self.right_edge() {
            self.done = self.done.saturating_add(1);
            for _ in 0..self.done.trailing_zeros() {
                if let Some(left) = self.stack.pop() {
                    value = merge_subtrees_non_root(&left, &value, Mode::Hash);
                }
            }
            self.stack.push(value);
        }
        self.last = None;
        self.current = blake3::Hasher::new();
        self.current.set_input_offset(self.offset);
    }
}

#[cfg(test)]
mod tests;
