//! How many rows a batch may hold: the usual number, or less while space is short.
//!
//! What a batch touches is written beside what was there, and what it takes the place of is free only two commits
//! later. So a batch that takes the last room leaves none for the next, however small that is. Relief begins with
//! batches of one thing; each that is through has paid for the next, which may hold twice as much. One that finds no
//! room begins anew, and for a while none grows as large again.

use crate::limits::BATCH_ROWS;

/// Most rows of a batch that is to hold one thing: with counters and meta rows, nothing fits in beside it.
const LEAST: usize = 64;
/// Batches of the largest size that are through before a larger one is tried again.
const CALM: u32 = 64;

/// Most rows of a batch, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    most: usize,
    /// How far `most` may grow.
    ceiling: usize,
    /// Batches that were through since the ceiling was reached.
    calm: u32,
}

impl Width {
    /// Where space is not short.
    pub const USUAL: Width = Width { most: BATCH_ROWS, ceiling: BATCH_ROWS, calm: 0 };

    /// Most rows of a batch, but for one thing that has more by itself.
    pub fn most(self) -> usize {
        self.most
    }

    /// How many things of so many rows may come at a time: at least one.
    pub fn things(self, rows: usize) -> usize {
        (self.most / 2 / rows.max(1)).max(1)
    }

    /// How many attempts of one peer may be under way while space is short: what ends of them is more relief.
    pub fn attempts(self) -> usize {
        self.most / 16
    }

    /// A batch found no room.
    pub fn short(&mut self) {
        // The first one had no ballast to go on, and tells nothing of what fits on that.
        let ceiling = if self.most == BATCH_ROWS { BATCH_ROWS } else { self.most / 2 };
        *self = Width { most: LEAST, ceiling: ceiling.max(LEAST), calm: 0 };
    }

    /// A batch of so many rows is through.
    pub fn through(&mut self, rows: usize) {
        // A batch that could have been much larger tells nothing of larger ones.
        if self.most > LEAST && rows < self.most / 4 {
            return;
        }
        if self.most == self.ceiling && self.ceiling < BATCH_ROWS {
            self.calm += 1;
            if self.calm < CALM {
                return;
            }
            (self.ceiling, self.calm) = (self.ceiling * 2, 0);
        }
        self.most = (self.most * 2).min(self.ceiling);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{BATCH_ROWS, CALM, LEAST, Width};

    #[test]
    fn batches_begin_with_one_thing_and_grow_while_they_are_through() {
        let mut width = Width::USUAL;
        width.through(BATCH_ROWS);
        assert_eq!(width, Width::USUAL);
        width.short();
        let mut sizes = Vec::new();
        while width.most() < BATCH_ROWS {
            sizes.push(width.most());
            width.through(width.most() / 2);
        }
        assert_eq!(sizes, [64, 128, 256, 512, 1_024, 2_048]);
        assert_eq!((width.things(10), width.things(BATCH_ROWS)), (204, 1));
    }

    #[test]
    fn what_found_no_room_is_not_tried_as_large_again_for_a_while() {
        let mut width = Width::USUAL;
        width.short();
        (0..3).for_each(|_| width.through(400));
        assert_eq!(width.most(), 512);
        width.short();
        assert_eq!(width.most(), LEAST);
        for _ in 0..CALM + 1 {
            width.through(256);
            assert!(width.most() <= 256);
        }
        width.through(256);
        assert_eq!(width.most(), 512, "it is tried again after that");
    }

    #[test]
    fn a_small_batch_tells_nothing_of_large_ones_and_none_is_smaller_than_one_thing() {
        let mut width = Width::USUAL;
        width.short();
        width.through(1);
        assert_eq!(width.most(), 2 * LEAST, "one thing is what it was to hold");
        (0..100).for_each(|_| width.through(1));
        assert_eq!(width.most(), 2 * LEAST);
        (0..100).for_each(|_| width.short());
        assert_eq!((width.most(), width.things(76)), (LEAST, 1));
    }
}
