//! Content of one transfer on its way from the store to the peer: read ahead in order, cut into
//! pieces.

use alloc::collections::VecDeque;
use alloc::format;

use bytes::{Buf, Bytes};

use crate::id::TransferNo;
use crate::ledger::rows::Body;
use crate::session::SessionOut;
use crate::store::{StoreFault, StoreRequest};

/// Bytes asked from the store at a time.
pub(super) const READ: u64 = 256 << 10;
/// Bytes of one transfer that are asked for or in memory, at most.
const AHEAD: u64 = 1 << 20;
/// Bytes a transfer may send before it makes room for one that waits for its turn to read.
const QUANTUM: u64 = 4 << 20;

/// One transfer's content.
#[derive(Clone, Debug)]
pub(super) struct Feed {
    transfer: TransferNo,
    body: Body,
    size: u64,
    /// Everything before is sent.
    sent: u64,
    /// Everything before is asked from the store.
    asked: u64,
    /// Nothing from here on is asked until the next quantum.
    until: u64,
    /// Lengths of the reads that are not answered, in order.
    reads: VecDeque<u64>,
    chunks: VecDeque<Bytes>,
    /// Longest piece, in bytes.
    longest: usize,
}

impl Feed {
    pub(super) fn new(
        transfer: TransferNo,
        body: Body,
        size: u64,
        offset: u64,
        longest: usize,
    ) -> Feed {
        Feed {
            transfer,
            body,
            size,
            sent: offset,
            asked: offset,
            until: offset.saturating_add(QUANTUM).min(size),
            reads: VecDeque::new(),
            chunks: VecDeque::new(),
            longest,
        }
    }

    /// Asks the store for what may be asked.
    pub(super) fn read_ahead(&mut self, out: &mut SessionOut) {
        while self.asked < self.until {
            let len = READ.min(self.until.saturating_sub(self.asked));
            let ahead = self.asked.saturating_sub(self.sent);
            if ahead.saturating_add(len) > AHEAD {
                break;
            }
            out.requests.push(StoreRequest::Read {
                ticket: self.transfer,
                body: self.body,
                offset: self.asked,
                len: usize::try_from(len).unwrap_or(usize::MAX),
            });
            self.reads.push_back(len);
            self.asked = self.asked.saturating_add(len);
        }
    }

    /// A read was answered.
    pub(super) fn content(&mut self, offset: u64, data: Bytes) -> Result<(), StoreFault> {
        let pending: u64 = self.reads.iter().sum();
        let expected = self.asked.saturating_sub(pending);
        let len = self.reads.pop_front().unwrap_or(0);
        if offset != expected || data.len() as u64 != len {
            let found = data.len();
            let text = format!("{found} bytes at {offset} instead of {len} at {expected}");
            return Err(StoreFault::Corrupt(text));
        }
        self.chunks.push_back(data);
        Ok(())
    }

    /// The piece that is to be sent next, if it is there, and where it stands.
    pub(super) fn piece(&self) -> Option<(u64, Bytes)> {
        let chunk = self.chunks.front()?;
        Some((self.sent, chunk.slice(..chunk.len().min(self.longest))))
    }

    /// Whether there is one.
    pub(super) fn has_piece(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// That piece, of `len` bytes, was sent. Returns how much is sent now.
    pub(super) fn advance(&mut self, len: usize) -> u64 {
        if let Some(chunk) = self.chunks.front_mut() {
            chunk.advance(len.min(chunk.len()));
            self.sent = self.sent.saturating_add(len as u64);
            if chunk.is_empty() {
                self.chunks.pop_front();
            }
        }
        self.sent
    }

    pub(super) fn is_done(&self) -> bool {
        self.sent == self.size
    }

    /// Where to go on later, once this quantum is sent.
    pub(super) fn spent(&self) -> Option<u64> {
        (self.sent == self.until && self.sent < self.size).then_some(self.sent)
    }

    /// Nobody waits: another quantum.
    pub(super) fn renew(&mut self) {
        self.until = self.until.saturating_add(QUANTUM).min(self.size);
    }
}
