//! Bytes of the next request that arrived before the present one was answered.

use alloc::vec::Vec;

/// Input that waits. A session joins what arrives to what waits, reads, and puts the rest back:
/// nothing is copied while nothing waits, and every byte at most a few times otherwise.
#[derive(Debug, Default)]
pub struct Held {
    bytes: Vec<u8>,
    /// How many of them are read already.
    at: usize,
}

impl Held {
    /// How many bytes wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is to be read now: what waited, then `new`.
    pub fn join<'a>(&'a mut self, new: &'a [u8]) -> &'a [u8] {
        if self.is_empty() {
            return new;
        }
        if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        self.bytes.extend_from_slice(new);
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Keeps the last `rest` bytes of what [`Held::join`] gave for these `new` bytes.
    pub fn keep(&mut self, new: &[u8], rest: usize) {
        if rest == 0 {
            *self = Held::default();
        } else if self.is_empty() {
            let from = new.len().saturating_sub(rest);
            *self = Held { bytes: new.get(from..).unwrap_or_default().to_vec(), at: 0 };
        } else {
            self.at = self.bytes.len().saturating_sub(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `take` bytes of what is there and checks that they follow each other.
    fn read(held: &mut Held, new: &[u8], take: usize, next: &mut u8) {
        let mut waiting = core::mem::take(held);
        let input = waiting.join(new);
        let take = take.min(input.len());
        for byte in &input[..take] {
            assert_eq!(*byte, *next);
            *next = next.wrapping_add(1);
        }
        let rest = input.len() - take;
        waiting.keep(new, rest);
        assert_eq!(waiting.len(), rest);
        *held = waiting;
    }

    #[test]
    fn no_byte_is_lost_doubled_or_out_of_order() {
        fn holds(pieces: Vec<(u8, u8)>) {
            let mut held = Held::default();
            let (mut written, mut next) = (0u8, 0u8);
            for (arrive, take) in pieces {
                let new: Vec<u8> = (0..arrive).map(|i| written.wrapping_add(i)).collect();
                written = written.wrapping_add(arrive);
                read(&mut held, &new, usize::from(take), &mut next);
            }
            read(&mut held, &[], usize::MAX, &mut next);
            assert_eq!(next, written);
            assert!(held.is_empty());
        }
        quickcheck::quickcheck(holds as fn(Vec<(u8, u8)>));
    }
}
