//! Bytes on their way to a socket: filled behind, drained in front.

use alloc::vec::Vec;

/// A buffer whose storage is initialised once and kept while it is in use, so that encrypting into it
/// and sending from it costs no clearing and, as a rule, no moving.
#[derive(Debug, Default)]
pub struct SendBuffer {
    /// All of it is initialised; what is to be sent is `start..end`.
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

impl SendBuffer {
    /// An empty buffer that holds no memory.
    #[must_use]
    pub const fn new() -> SendBuffer {
        SendBuffer { storage: Vec::new(), start: 0, end: 0 }
    }

    /// What is to be sent next.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        self.storage.get(self.start..self.end).unwrap_or_default()
    }

    /// How many bytes wait to be sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `n` bytes have been sent.
    ///
    /// # Panics
    /// When there were not so many.
    pub fn sent(&mut self, n: usize) {
        assert!(n <= self.len(), "{n} bytes sent of {}", self.len());
        self.start = self.start.saturating_add(n);
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        }
    }

    /// At least `n` writable bytes behind what waits; [`SendBuffer::commit`] says how many were used.
    pub fn spare(&mut self, n: usize) -> &mut [u8] {
        if self.storage.len().saturating_sub(self.end) < n {
            self.make_room(n);
        }
        self.storage.get_mut(self.end..).unwrap_or_default()
    }

    /// The first `n` bytes of [`SendBuffer::spare`] have been filled.
    ///
    /// # Panics
    /// When there was less room.
    pub fn commit(&mut self, n: usize) {
        let room = self.storage.len().saturating_sub(self.end);
        assert!(n <= room, "{n} bytes filled in a room of {room}");
        self.end = self.end.saturating_add(n);
    }

    /// Appends a copy of `bytes`.
    pub fn append(&mut self, bytes: &[u8]) {
        if let Some(room) = self.spare(bytes.len()).get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.commit(bytes.len());
    }

    /// Takes over everything in `bytes` and leaves it empty; copies nothing when nothing waits.
    pub fn adopt(&mut self, bytes: &mut Vec<u8>) {
        if self.is_empty() {
            core::mem::swap(&mut self.storage, bytes);
            self.start = 0;
            self.end = self.storage.len();
        } else {
            self.append(bytes);
        }
        bytes.clear();
    }

    /// Gives the memory back if nothing waits.
    pub fn release(&mut self) {
        if self.is_empty() {
            *self = SendBuffer::new();
        }
    }

    fn make_room(&mut self, n: usize) {
        if self.start > 0 {
            self.storage.copy_within(self.start..self.end, 0);
            self.end = self.len();
            self.start = 0;
        }
        let needed = self.end.saturating_add(n);
        if self.storage.len() < needed {
            let doubled = self.storage.len().saturating_mul(2);
            self.storage.resize(needed.max(doubled), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn keeps_order_over_any_mix_of_filling_and_sending() {
        fn check(steps: Vec<(u8, bool)>) -> bool {
            let mut buffer = SendBuffer::new();
            let mut model: Vec<u8> = Vec::new();
            let mut next = 0u8;
            for (n, send) in steps {
                let n = usize::from(n);
                if send {
                    let n = n.min(model.len());
                    buffer.sent(n);
                    model.drain(..n);
                } else {
                    let bytes: Vec<u8> = (0..n).map(|i| next.wrapping_add(i as u8)).collect();
                    next = next.wrapping_add(97);
                    model.extend_from_slice(&bytes);
                    if n % 2 == 0 {
                        buffer.append(&bytes);
                    } else {
                        let mut given = bytes;
                        buffer.adopt(&mut given);
                        assert!(given.is_empty());
                    }
                }
                buffer.release();
                if buffer.pending() != model.as_slice() || buffer.len() != model.len() {
                    return false;
                }
            }
            true
        }
        quickcheck::quickcheck(check as fn(Vec<(u8, bool)>) -> bool);
    }

    #[test]
    fn adopting_into_an_empty_buffer_moves_the_storage() {
        let mut buffer = SendBuffer::new();
        let mut bytes = vec![7u8; 1000];
        let address = bytes.as_ptr();
        buffer.adopt(&mut bytes);
        assert_eq!(buffer.pending().as_ptr(), address);
        buffer.sent(1000);
        buffer.release();
        assert_eq!(buffer.storage.capacity(), 0);
    }
}
