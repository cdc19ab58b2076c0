//! Content of one transfer on its way from the peer to the store: gathered into chunks, each hashed when it is
//! handed on, checkpointed.

use alloc::collections::VecDeque;

use bytes::BytesMut;

use super::fault::PeerFault;
use super::spare::{CHUNK, Spare};
use crate::hash::{ChainFault, Checkpoint, Hasher};
use crate::id::{BlobDigest, BlobNo, TransferNo};
use crate::limits::ARRIVED_EVERY;
use crate::session::{SessionEvent, SessionOut};
use crate::store::StoreRequest;

/// One transfer's content.
#[derive(Clone, Debug)]
pub(super) struct Intake {
    transfer: TransferNo,
    pub(super) blob: BlobNo,
    size: u64,
    every: u64,
    hasher: Hasher,
    chunk: BytesMut,
    /// Bytes of credit that are in `chunk` or with the store.
    held: u64,
    /// Checkpoints that become true when the store has synced.
    syncs: VecDeque<Checkpoint>,
    /// Whether checkpoints are told when they are asked for (planted).
    hasty: bool,
}

impl Intake {
    /// Content of `size` bytes that goes on where `chain` stands; `hasty` is a planted bug.
    pub(super) fn new(
        transfer: TransferNo,
        blob: BlobNo,
        size: u64,
        chain: &[u8],
        every: u64,
        hasty: bool,
    ) -> Result<Intake, ChainFault> {
        let hasher = Hasher::resume_with_distance(&Checkpoint::decode(chain)?, every)?;
        Ok(Intake {
            transfer,
            blob,
            size,
            every,
            hasher,
            chunk: BytesMut::new(),
            held: 0,
            syncs: VecDeque::new(),
            hasty,
        })
    }

    /// How much of the content is here.
    pub(super) fn received(&self) -> u64 {
        self.hasher.offset().saturating_add(self.chunk.len() as u64)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.received() == self.size
    }

    /// A SEGMENT of `len` bytes begins: whether they go on where the others end, and lie within the content.
    pub(super) fn expect(&self, offset: u64, len: u64) -> Result<(), PeerFault> {
        let (transfer, size, expected) = (self.transfer, self.size, self.received());
        if offset != expected {
            return Err(PeerFault::Gap { transfer, offset, expected });
        }
        let over = len.saturating_sub(size.saturating_sub(offset));
        if over > 0 {
            return Err(PeerFault::Overlong { transfer, over, size });
        }
        Ok(())
    }

    /// Takes bytes of a SEGMENT that was expected, the next of it.
    pub(super) fn take(&mut self, mut data: &[u8], spare: &mut Spare, out: &mut SessionOut) {
        let before = self.received();
        self.held = self.held.saturating_add(data.len() as u64);
        while !data.is_empty() {
            data = self.take_piece(data, spare, out);
        }
        if self.is_whole() {
            self.flush(spare, out);
        } else if before / ARRIVED_EVERY != self.received() / ARRIVED_EVERY {
            let (transfer, blob) = (self.transfer, self.blob);
            out.events.push(SessionEvent::Arrived { transfer, blob });
        }
    }

    /// Takes as much as fits the chunk and lies before the next checkpoint; returns the rest.
    fn take_piece<'d>(
        &mut self,
        data: &'d [u8],
        spare: &mut Spare,
        out: &mut SessionOut,
    ) -> &'d [u8] {
        let at = self.received();
        if self.chunk.is_empty() {
            let left = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
            self.chunk = spare.lend(left.min(CHUNK));
        }
        let to_checkpoint = self.every.saturating_sub(at % self.every);
        let to_checkpoint = usize::try_from(to_checkpoint).unwrap_or(usize::MAX);
        let fits = CHUNK.saturating_sub(self.chunk.len()).min(to_checkpoint);
        let (piece, rest) = data.split_at(fits.min(data.len()));
        self.chunk.extend_from_slice(piece);
        let complete = piece.len() == to_checkpoint && !self.is_whole();
        if complete || self.chunk.len() >= CHUNK {
            self.flush(spare, out);
        }
        let checkpoint = if complete { self.hasher.checkpoint() } else { None };
        if let Some(checkpoint) = checkpoint {
            if self.hasty {
                out.events.push(self.checkpoint(&checkpoint));
            } else {
                self.syncs.push_back(checkpoint);
            }
            out.requests.push(StoreRequest::Sync { blob: self.blob });
        }
        rest
    }

    /// Hashes what is gathered, in one go: short pieces cost a hash more. Hands it to the store.
    pub(super) fn flush(&mut self, spare: &mut Spare, out: &mut SessionOut) {
        if !self.chunk.is_empty() {
            self.hasher.update(&self.chunk);
            let data = spare.hand_on(core::mem::take(&mut self.chunk));
            out.requests.push(StoreRequest::Write { blob: self.blob, data });
        }
    }

    /// So many bytes left memory. Returns how much credit that frees.
    pub(super) fn written(&mut self, bytes: u64) -> u64 {
        let freed = bytes.min(self.held.saturating_sub(self.chunk.len() as u64));
        self.held = self.held.saturating_sub(freed);
        freed
    }

    /// Everything before `offset` is durable.
    pub(super) fn synced(&mut self, offset: u64, out: &mut SessionOut) {
        while self.syncs.front().is_some_and(|c| c.offset <= offset) {
            let Some(checkpoint) = self.syncs.pop_front() else { break };
            if checkpoint.offset == offset {
                out.events.push(self.checkpoint(&checkpoint));
            }
        }
    }

    fn checkpoint(&self, checkpoint: &Checkpoint) -> SessionEvent {
        SessionEvent::Checkpoint {
            transfer: self.transfer,
            blob: self.blob,
            offset: checkpoint.offset,
            chain: checkpoint.encode(),
        }
    }

    /// Credit that is still spent for this content.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Digest of what was handed on: of everything, when it is whole.
    pub(super) fn digest(&self) -> BlobDigest {
        self.hasher.finalize()
    }
}

#[cfg(test)]
mod tests;
