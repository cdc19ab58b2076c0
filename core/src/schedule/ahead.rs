//! How much may be claimed ahead of a session that paces what it sends.

use crate::limits::CLASSES;
use crate::segment::Class;

/// What is claimed for one session and not answered, as far as its rate bounds it: two seconds' worth, so
/// that what becomes urgent waits little longer than that. A segment that takes more than one second
/// counts for an eighth, and each class has one of those at most: half the room is left for whatever is
/// small. Without a rate there is always room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Most bytes.
    most: Option<u64>,
    bytes: u64,
    large: [bool; CLASSES],
}

impl Ahead {
    /// Nothing is claimed yet. `rate` is in bytes per second.
    #[must_use]
    pub fn new(rate: Option<u64>) -> Ahead {
        let most = rate.map(|rate| rate.saturating_mul(2).max(32 << 10));
        Ahead { most, ..Ahead::default() }
    }

    /// Whether there is a rate.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.most.is_some()
    }

    /// The same bound with nothing claimed.
    #[must_use]
    pub fn emptied(&self) -> Ahead {
        Ahead { most: self.most, ..Ahead::default() }
    }

    /// Whether a segment of this class and size may be claimed besides.
    #[must_use]
    pub fn has_room(&self, class: Class, size: u64) -> bool {
        let Some(most) = self.most else { return true };
        let doubled = size > most / 2 && self.large.get(class as usize).is_some_and(|large| *large);
        self.bytes < most && !doubled
    }

    /// It is claimed.
    pub fn add(&mut self, class: Class, size: u64) {
        let Some(most) = self.most else { return };
        let is_large = size > most / 2;
        self.bytes = self.bytes.saturating_add(if is_large { most / 8 } else { size });
        if let Some(large) = self.large.get_mut(class as usize) {
            *large |= is_large;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quickcheck::quickcheck;

    use super::*;

    #[test]
    fn without_a_rate_there_is_always_room() {
        let mut ahead = Ahead::new(None);
        ahead.add(Class::Bulk, u64::MAX);
        ahead.add(Class::Bulk, u64::MAX);
        assert!(!ahead.is_bounded() && ahead.has_room(Class::Bulk, u64::MAX));
    }

    #[test]
    fn two_seconds_of_small_ones_fill_it() {
        let mut ahead = Ahead::new(Some(100_000));
        let mut count = 0;
        while ahead.has_room(Class::Normal, 10_000) {
            ahead.add(Class::Normal, 10_000);
            count += 1;
        }
        assert_eq!(count, 20);
        assert!(!ahead.has_room(Class::Urgent, 1));
        assert!(ahead.emptied().has_room(Class::Urgent, 1));
    }

    #[test]
    fn one_large_one_of_each_class_leaves_half_to_small_ones() {
        let mut ahead = Ahead::new(Some(100_000));
        for class in Class::ALL {
            assert!(ahead.has_room(class, 1 << 40));
            ahead.add(class, 1 << 40);
            assert!(!ahead.has_room(class, 1 << 40) && ahead.has_room(class, 100_000));
        }
        ahead.add(Class::Normal, 99_999);
        assert!(ahead.has_room(Class::Urgent, 50_000));
    }

    quickcheck! {
        /// However it is filled, something of every size gets in when it is empty, and no more than
        /// three seconds' worth of small ones are in it.
        fn it_is_bounded_and_never_shut(rate: u32, sizes: Vec<u64>) -> bool {
            let rate = u64::from(rate);
            let mut ahead = Ahead::new(Some(rate));
            let second = rate.max(16 << 10);
            let mut small = 0;
            for size in sizes {
                if ahead.has_room(Class::Normal, size) {
                    ahead.add(Class::Normal, size);
                    small += if size <= second { size } else { 0 };
                }
            }
            let open = ahead.emptied().has_room(Class::Bulk, u64::MAX);
            open && small <= 3 * second
        }
    }
}
