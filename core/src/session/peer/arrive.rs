//! Bytes as they arrive, to frames; content of a SEGMENT goes on before the rest of it is there.

use super::PeerSession;
use super::fault::PeerFault;
use super::phase::{self, Phase};
use crate::id::TransferNo;
use crate::session::SessionOut;
use crate::time::Now;
use crate::wire::{self, SEGMENT_FRONT, SegmentFront};

impl PeerSession {
    /// Takes frames from what was left before and from `input`.
    pub(super) fn take_bytes(
        &mut self,
        now: Now,
        mut input: &[u8],
        out: &mut SessionOut,
    ) -> Result<(), PeerFault> {
        self.alive.hear(now.mono);
        while !input.is_empty() && self.phase != Phase::Over {
            let used = if let Some((transfer, left)) = self.segment {
                self.take_content(transfer, left, input, out)
            } else if self.partial.is_empty() {
                self.take_first(now, input, out)?
            } else {
                self.take_more(now, input, out)?
            };
            input = input.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// A frame begins. Returns how many bytes were taken.
    fn take_first(
        &mut self,
        now: Now,
        input: &[u8],
        out: &mut SessionOut,
    ) -> Result<usize, PeerFault> {
        if let Some((used, frame)) = wire::decode(input)? {
            self.take_frame(now, frame, out)?;
            return Ok(used);
        }
        if let Some(front) = wire::segment_front(input)? {
            self.begin_segment(&front)?;
            return Ok(SEGMENT_FRONT);
        }
        self.partial.reserve_exact(wire::wanted(input));
        self.partial.extend_from_slice(input);
        Ok(input.len())
    }

    /// A frame goes on. Never more than one is kept.
    fn take_more(
        &mut self,
        now: Now,
        input: &[u8],
        out: &mut SessionOut,
    ) -> Result<usize, PeerFault> {
        let missing = wire::wanted(&self.partial).saturating_sub(self.partial.len());
        let piece = input.get(..missing.min(input.len())).unwrap_or_default();
        self.partial.reserve_exact(missing);
        self.partial.extend_from_slice(piece);
        let mut partial = core::mem::take(&mut self.partial);
        if let Some((_, frame)) = wire::decode(&partial)? {
            self.take_frame(now, frame, out)?;
            partial.clear();
        } else if let Some(front) = wire::segment_front(&partial)? {
            self.begin_segment(&front)?;
            partial.clear();
        }
        self.partial = partial;
        Ok(piece.len())
    }

    /// Content of the SEGMENT that has begun.
    fn take_content(
        &mut self,
        transfer: TransferNo,
        left: usize,
        input: &[u8],
        out: &mut SessionOut,
    ) -> usize {
        let piece = input.get(..left.min(input.len())).unwrap_or_default();
        self.receiver.content(transfer, piece, out);
        let left = left.saturating_sub(piece.len());
        self.segment = (left > 0).then_some((transfer, left));
        piece.len()
    }

    /// A SEGMENT whose content is still to come, at least a part of it.
    fn begin_segment(&mut self, front: &SegmentFront) -> Result<(), PeerFault> {
        self.advance(phase::Event::Frame)?;
        self.receiver.segment(front.transfer, front.offset, front.len as u64)?;
        self.segment = Some((front.transfer, front.len));
        Ok(())
    }
}
