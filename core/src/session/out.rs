//! What a session wants done.

use alloc::vec::Vec;

use bytes::Bytes;

use super::SessionEvent;
use crate::store::StoreRequest;

/// What a session wants done, in order: requests before events before bytes.
#[derive(Debug, Default)]
pub struct SessionOut {
    /// For the store. Carried out before the events go to the node.
    pub requests: Vec<StoreRequest>,
    /// For the node.
    pub events: Vec<SessionEvent>,
    /// For the socket.
    pub bytes: Vec<u8>,
    /// For the socket as well: content that goes out as the store gave it, and is not copied for that. Each stands
    /// behind the first so many of `bytes`, in order; [`SessionOut::place`] puts it there.
    pub content: Vec<(usize, Bytes)>,
    /// Close once `bytes` are written: send the TLS close_notify, half-close, read to the end for at
    /// most 2 s, drop.
    pub close: bool,
    /// With `close`: drop what the socket has not taken yet, and the connection with it. What breaks off
    /// must not look whole to the peer.
    pub cut: bool,
}

impl SessionOut {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.events.is_empty() && !self.says_anything() && !self.close
    }

    /// Whether there is something for the socket.
    #[must_use]
    pub fn says_anything(&self) -> bool {
        !self.bytes.is_empty() || !self.content.is_empty()
    }

    /// How many bytes there are for the socket.
    #[must_use]
    pub fn said(&self) -> usize {
        let content = self.content.iter().map(|(_, content)| content.len());
        content.fold(self.bytes.len(), usize::saturating_add)
    }

    /// Has content go out behind everything that is there by now.
    pub fn place(&mut self, content: Bytes) {
        self.content.push((self.bytes.len(), content));
    }

    /// Everything for the socket, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        let placed = self.content.iter().flat_map(move |(at, content)| {
            let before = self.bytes.get(from..*at).unwrap_or_default();
            from = *at;
            [before, content.as_ref()]
        });
        let last = self.content.last().map_or(0, |(at, _)| *at);
        placed.chain([self.bytes.get(last..).unwrap_or_default()]).filter(|piece| !piece.is_empty())
    }

    /// Forgets everything that was for the socket.
    pub fn clear_said(&mut self) {
        self.bytes.clear();
        self.content.clear();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn pieces_come_in_the_order_in_which_they_were_said() {
        let mut out = SessionOut::default();
        assert!(out.pieces().next().is_none() && out.is_empty());
        out.place(Bytes::from_static(b"ab"));
        assert!(!out.is_empty() && out.says_anything());
        out.bytes.extend_from_slice(b"cde");
        out.place(Bytes::from_static(b"f"));
        out.place(Bytes::from_static(b"gh"));
        out.bytes.push(b'i');
        assert_eq!(out.pieces().collect::<Vec<_>>(), [&b"ab"[..], b"cde", b"f", b"gh", b"i"]);
        assert_eq!(out.said(), 9);
        out.clear_said();
        assert_eq!((out.said(), out.pieces().count()), (0, 0));
        out.bytes = vec![1];
        assert_eq!(out.pieces().collect::<Vec<_>>(), [[1]]);
    }
}
