//! Which of a session's bytes the kernel has taken: an answer can be late only to what has left.

use alloc::collections::VecDeque;

/// How much of what the session has said is in the kernel's hands. Under TLS that is longer on the wire
/// than in the session: marks tell which byte of the one is which of the other.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Bytes of the session so far.
    said: u64,
    /// Bytes the socket has taken so far.
    taken: u64,
    /// Once the socket has taken the first, the session's bytes up to the second are gone.
    marks: VecDeque<(u64, u64)>,
    /// The session's bytes that are gone, until it has been told.
    news: Option<u64>,
}

impl Handover {
    /// The session's next `plain` bytes are the last of the `pending` ones.
    pub(crate) fn put(&mut self, plain: u64, pending: usize) {
        self.said = self.said.saturating_add(plain);
        self.marks.push_back((self.taken.saturating_add(pending as u64), self.said));
    }

    /// The socket took so many bytes.
    pub(crate) fn sent(&mut self, n: usize) {
        self.taken = self.taken.saturating_add(n as u64);
        while let Some((_, said)) = self.marks.front().copied().filter(|m| m.0 <= self.taken) {
            self.news = Some(said);
            self.marks.pop_front();
        }
    }

    /// Bytes of the session that are gone, if that has changed since the last call.
    pub(crate) fn news(&mut self) -> Option<u64> {
        self.news.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_on_the_wire_is_gone_when_its_last_byte_is() {
        let mut handover = Handover::default();
        handover.put(10, 32);
        handover.put(5, 32 + 27);
        handover.sent(31);
        assert_eq!(handover.news(), None);
        handover.sent(1);
        assert_eq!(handover.news(), Some(10));
        assert_eq!(handover.news(), None);
        handover.sent(20);
        assert_eq!(handover.news(), None);
        // A close_notify behind it.
        handover.sent(7 + 24);
        assert_eq!(handover.news(), Some(15));
        handover.put(1, 1);
        handover.sent(1);
        assert_eq!(handover.news(), Some(16));
    }
}
