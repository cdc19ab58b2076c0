//! Memory for content that arrives, used again once the store has let go of what was in it: touching fresh
//! pages costs more than hashing what goes into them.

use alloc::collections::VecDeque;
use core::mem;

use bytes::{Buf, Bytes, BytesMut};

use crate::limits::CONTENT_ALIGN;

/// Length of a buffer in bytes: the most that is handed to the store at a time.
pub(super) const CHUNK: usize = 256 << 10;
/// Buffers that are kept at most.
const MOST: usize = 16;
/// What a buffer takes so that [`CHUNK`] bytes of it stand aligned.
const ROOM: usize = CHUNK + CONTENT_ALIGN;

/// Buffers whose content was handed on. Each still points to its memory, and has it for itself again when
/// nobody else holds a part of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Spare {
    handed_on: VecDeque<BytesMut>,
    /// Where small bodies are gathered.
    bodies: Option<BytesMut>,
}

impl Spare {
    /// An empty buffer with room for `len` bytes, at most [`CHUNK`]; one with room for so many begins at an
    /// aligned address.
    pub(super) fn lend(&mut self, len: usize) -> BytesMut {
        if len < CHUNK {
            return BytesMut::with_capacity(len);
        }
        // The store lets go in order, so the first look nearly always finds one.
        for _ in 0..self.handed_on.len() {
            let Some(mut buffer) = self.handed_on.pop_front() else { break };
            if buffer.try_reclaim(ROOM) {
                return aligned(buffer);
            }
            self.handed_on.push_back(buffer);
        }
        aligned(BytesMut::with_capacity(ROOM))
    }

    /// Everything that is in a buffer, to be handed on. What is left of it comes back.
    pub(super) fn hand_on(&mut self, mut buffer: BytesMut) -> Bytes {
        let data = buffer.split().freeze();
        if data.len().saturating_add(buffer.capacity()) >= CHUNK {
            self.give_back(buffer);
        }
        data
    }

    fn give_back(&mut self, buffer: BytesMut) {
        if self.handed_on.len() < MOST {
            self.handed_on.push_back(buffer);
        }
    }

    /// A copy of a small body, to be handed on.
    pub(super) fn copy(&mut self, body: &[u8]) -> Bytes {
        let mut bodies = match self.bodies.take() {
            Some(bodies) if bodies.capacity() >= body.len() => bodies,
            full => {
                full.into_iter().for_each(|full| self.give_back(full));
                self.lend(CHUNK)
            }
        };
        bodies.extend_from_slice(body);
        let data = bodies.split().freeze();
        self.bodies = Some(bodies);
        data
    }

    /// Nothing is expected: the memory is given up.
    pub(super) fn clear(&mut self) {
        drop(mem::take(self));
    }
}

/// An empty buffer that begins at an aligned address.
fn aligned(mut buffer: BytesMut) -> BytesMut {
    let ahead = buffer.as_ptr().align_offset(CONTENT_ALIGN).min(CONTENT_ALIGN);
    buffer.resize(ahead, 0);
    buffer.advance(ahead);
    buffer
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn filled(spare: &mut Spare, byte: u8) -> Bytes {
        let mut buffer = spare.lend(CHUNK);
        buffer.extend_from_slice(&vec![byte; CHUNK]);
        spare.hand_on(buffer)
    }

    #[test]
    fn memory_is_used_again_only_when_nobody_holds_it() {
        let mut spare = Spare::default();
        let first = filled(&mut spare, 1);
        let place = first.as_ptr();
        let second = filled(&mut spare, 2);
        assert_ne!(second.as_ptr(), place, "the first is still held");
        assert!(first.iter().all(|b| *b == 1));
        drop(first);
        let third = filled(&mut spare, 3);
        assert_eq!(third.as_ptr(), place);
        assert!([&second, &third].iter().all(|data| data.as_ptr().align_offset(4096) == 0));
        assert!(second.iter().all(|b| *b == 2) && third.iter().all(|b| *b == 3));
    }

    #[test]
    fn no_more_is_kept_than_is_said() {
        let mut spare = Spare::default();
        let held: Vec<Bytes> = (0..2 * MOST as u8).map(|i| filled(&mut spare, i)).collect();
        assert_eq!(spare.handed_on.len(), MOST);
        drop(held);
        spare.clear();
        assert!(spare.handed_on.is_empty() && spare.bodies.is_none());
    }

    #[test]
    fn small_ones_are_no_larger_than_they_must_be_and_are_not_kept() {
        let mut spare = Spare::default();
        let mut buffer = spare.lend(100);
        assert!(buffer.capacity() < 200);
        buffer.extend_from_slice(&[7; 100]);
        assert_eq!(spare.hand_on(buffer), vec![7; 100]);
        assert!(spare.handed_on.is_empty());
    }

    #[test]
    fn bodies_share_a_buffer_and_none_overwrites_another() {
        fn holds(sizes: Vec<u16>) {
            let mut spare = Spare::default();
            let mut held = VecDeque::new();
            for (i, size) in sizes.into_iter().enumerate() {
                let body = vec![i as u8; usize::from(size)];
                held.push_back((i as u8, usize::from(size), spare.copy(&body)));
                if i % 3 == 0 {
                    held.pop_front();
                }
                for (byte, len, data) in &held {
                    assert!(data.len() == *len && data.iter().all(|b| b == byte));
                }
            }
        }
        quickcheck::quickcheck(holds as fn(Vec<u16>));
    }
}
