//! Shares between the four classes of one peer: 8 : 4 : 2 : 1 by bytes, none starves (DESIGN 3.3).

use crate::limits::CLASSES;
use crate::segment::Class;

/// Turns of a class cost at least this much, so that tiny segments share by count.
const COST_MIN: u64 = 1 << 10;
/// … and at most this much, so that one huge segment does not silence its class for hours.
const COST_MAX: u64 = 16 << 20;

/// Virtual time of each class; the eligible class that is furthest behind goes next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    virtual_time: [u64; CLASSES],
    floor: u64,
}

impl Shares {
    /// The class to serve next among those that have something due; ties go to the more urgent.
    #[must_use]
    pub fn pick(&self, has_due: impl Fn(Class) -> bool) -> Option<Class> {
        Class::ALL.into_iter().filter(|c| has_due(*c)).min_by_key(|c| (self.time(*c), *c))
    }

    /// Charges a class for a segment of `size` bytes that was picked for it.
    pub fn charge(&mut self, class: Class, size: u64) {
        // A class that was idle does not bring saved-up turns with it.
        let start = self.time(class);
        self.floor = start;
        let weight = 8u64 >> (class as u8);
        let cost = size.clamp(COST_MIN, COST_MAX) * 8 / weight;
        if let Some(time) = self.virtual_time.get_mut(class as usize) {
            *time = start.saturating_add(cost);
        }
    }

    fn time(&self, class: Class) -> u64 {
        self.virtual_time.get(class as usize).copied().unwrap_or(0).max(self.floor)
    }
}
