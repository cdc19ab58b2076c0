//! Content that goes to a file: pieces, checkpoints, and how it ends.

use bytes::BytesMut;

use super::{
    BrokenUpload, Digester, EXTEND_AHEAD, Event, Grant, No, PIECE, PickupRefusal, Stage, Upload,
    event, seal, unseal,
};
use crate::id::{BlobNo, Sha256Digest};
use crate::session::{SessionEvent, SessionOut};
use crate::store::{StoreFault, StoreRequest};

impl Upload {
    /// Takes bytes that go to the file.
    pub(super) fn take(&mut self, mut data: &[u8], out: &mut SessionOut) -> Result<(), No> {
        let end = self.digester.offset().saturating_add(data.len() as u64);
        match self.head.size {
            Some(size) if end > size => {
                self.mismatched(out);
                return Ok(());
            }
            None if end > self.max_upload => {
                self.cut(out);
                let text = alloc::format!("more than {} bytes", self.max_upload);
                return Err(No::of(PickupRefusal::TooLarge, text));
            }
            Some(_) | None => {}
        }
        while !data.is_empty() {
            let at = self.digester.offset();
            let to_checkpoint = self.every.saturating_sub(at % self.every);
            let to_checkpoint = usize::try_from(to_checkpoint).unwrap_or(usize::MAX);
            let (piece, rest) = data.split_at(to_checkpoint.min(data.len()));
            self.digester.update(piece);
            self.buffer.extend_from_slice(piece);
            data = rest;
            let here = self.digester.offset();
            if piece.len() == to_checkpoint
                && self.head.size != Some(here)
                && let Some(chain) = self.digester.chain()
            {
                self.syncs.push_back((here, chain));
            }
        }
        self.push(false, out);
        Ok(())
    }

    /// Hands on what is there in whole pieces, or `all` of it, within the reservation; and sees that
    /// more is reserved in time.
    fn push(&mut self, all: bool, out: &mut SessionOut) {
        let end = self.digester.offset();
        let Stage::Writing(grant) = &mut self.stage else { return };
        let blob = grant.blob;
        loop {
            let at = end.saturating_sub(self.buffer.len() as u64);
            // Pieces end at checkpoints, so that a sync there covers exactly what is before it.
            let next = self.syncs.iter().map(|(offset, _)| *offset).find(|offset| *offset > at);
            let due = next.map_or(usize::MAX, |next| length(next.saturating_sub(at)));
            let wanted = due.min(self.buffer.len()).min(PIECE);
            let len = wanted.min(length(grant.reserved.saturating_sub(at)));
            if len == 0 || !(all || next.is_some() || wanted == PIECE) {
                break;
            }
            open(grant, out);
            let data = self.buffer.split_to(len).freeze();
            self.unwritten = self.unwritten.saturating_add(len as u64);
            out.requests.push(StoreRequest::Write { blob, data });
            if len == due {
                grant.syncing = grant.syncing.saturating_add(1);
                out.requests.push(StoreRequest::Sync { blob });
            }
        }
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        // Asked ahead, so that a slow commit does not stop the content; never past the end.
        let body = self.head.body.map(|body| grant.offset.saturating_add(body));
        let needed = match body.or(self.head.size) {
            _ if self.ended => end,
            Some(last) => last,
            None => end.saturating_add(EXTEND_AHEAD).min(self.max_upload),
        };
        if !grant.extending && needed > grant.reserved {
            grant.extending = true;
            out.events.push(event(Event::Extend { ticket: self.ticket, blob }));
        }
    }

    /// The body has ended: is what arrived right?
    pub(super) fn judge(&mut self, out: &mut SessionOut) {
        if let Some(part) = self.part.take() {
            let (sha256, blake3) = part.finish();
            if !self.head.part.fits(&sha256, &blake3) {
                return self.mismatched(out);
            }
        }
        if self.head.complete {
            let (sha256, blake3) = self.digester.finish();
            if !self.head.whole.fits(&sha256, &blake3) || !self.fits_size() {
                self.mismatched(out);
            }
        }
    }

    /// Goes on with what is reserved; ends once the body has and all of it is handed on.
    pub(super) fn advance(&mut self, out: &mut SessionOut) {
        self.push(self.ended, out);
        if !self.ended || !self.buffer.is_empty() {
            return;
        }
        if !self.head.complete {
            return self.cut(out);
        }
        if let Stage::Writing(grant) = &mut self.stage {
            let blob = grant.blob;
            open(grant, out);
            out.requests.push(StoreRequest::Finish { blob });
            self.stage = Stage::Finishing(blob);
        }
    }

    /// It stops here: what arrived and is reserved is made durable.
    pub(super) fn cut(&mut self, out: &mut SessionOut) {
        self.push(true, out);
        let all = self.buffer.is_empty();
        self.buffer = BytesMut::new();
        match core::mem::replace(&mut self.stage, Stage::Judged) {
            Stage::Writing(mut grant) if grant.open => {
                grant.syncing = grant.syncing.saturating_add(1);
                grant.seal = all.then(|| self.digester.sha256());
                out.requests.push(StoreRequest::Sync { blob: grant.blob });
                self.stage = Stage::Cutting(grant);
            }
            // Nothing was added.
            Stage::Writing(grant) | Stage::Rehashing(grant) => {
                let Grant { blob, offset, chain, .. } = grant;
                out.events.push(self.broken(blob, BrokenUpload::Cut { offset, chain }));
            }
            Stage::Gather
            | Stage::Asked
            | Stage::Cutting(_)
            | Stage::Finishing(_)
            | Stage::Judged => {}
        }
    }

    /// What arrived cannot become right.
    fn mismatched(&mut self, out: &mut SessionOut) {
        if let Stage::Writing(grant) = core::mem::replace(&mut self.stage, Stage::Judged) {
            if grant.open {
                out.requests.push(StoreRequest::Abandon { blob: grant.blob });
            }
            self.buffer = BytesMut::new();
            out.events.push(self.broken(grant.blob, BrokenUpload::Mismatch));
        }
    }

    /// The store has written so many bytes.
    pub(in crate::pickup::session) fn written(&mut self, bytes: u64) {
        self.unwritten = self.unwritten.saturating_sub(bytes);
    }

    /// Everything before `offset` is durable.
    pub(in crate::pickup::session) fn synced(&mut self, offset: u64, out: &mut SessionOut) {
        let (ticket, goes_on) = (self.ticket, matches!(self.stage, Stage::Writing(_)));
        let (Stage::Writing(grant) | Stage::Cutting(grant)) = &mut self.stage else { return };
        let blob = grant.blob;
        grant.syncing = grant.syncing.saturating_sub(1);
        while self.syncs.front().is_some_and(|(at, _)| *at <= offset) {
            let Some((at, chain)) = self.syncs.pop_front() else { break };
            grant.chain.clone_from(&chain);
            // A cut tells more, and at once.
            if at == offset && goes_on {
                out.events.push(event(Event::Checkpoint { ticket, blob, offset, chain }));
            }
        }
        if goes_on || grant.syncing > 0 {
            return;
        }
        let (chain, all) = (core::mem::take(&mut grant.chain), grant.seal);
        self.stage = Stage::Judged;
        out.requests.push(StoreRequest::Abandon { blob });
        let why = self.stopped(offset, &chain, all);
        out.events.push(self.broken(blob, why));
    }

    /// Where it goes on later. What stands behind the last checkpoint counts only with a digest of `all`
    /// that tells whether it is still the same then: there is none where more was hashed than room was
    /// reserved for.
    fn stopped(&self, offset: u64, chain: &[u8], all: Option<Sha256Digest>) -> BrokenUpload {
        let bare = unseal(chain).map_or(chain, |(_, bare)| bare);
        let checkpoint = Digester::resume(bare, self.every).map_or(0, |d| d.offset());
        match all.filter(|_| checkpoint != offset) {
            Some(all) => BrokenUpload::Cut { offset, chain: seal(all, bare) },
            None => BrokenUpload::Cut { offset: checkpoint, chain: bare.to_vec() },
        }
    }

    /// The file is whole and durable.
    pub(in crate::pickup::session) fn finished(&mut self, size: u64, out: &mut SessionOut) {
        let Stage::Finishing(blob) = self.stage else { return };
        self.stage = Stage::Judged;
        if size != self.digester.offset() {
            let text = alloc::format!("a file of {size} bytes, not {}", self.digester.offset());
            let why = BrokenUpload::Store(StoreFault::Corrupt(text));
            return out.events.push(self.broken(blob, why));
        }
        let (sha256, blake3) = self.digester.finish();
        let ticket = self.ticket;
        out.events.push(event(Event::Whole { ticket, blob, size, sha256, blake3 }));
    }

    /// The store could not write it; the file is closed.
    pub(in crate::pickup::session) fn write_failed(
        &mut self,
        fault: StoreFault,
        out: &mut SessionOut,
    ) {
        if let Some(blob) = self.blob() {
            self.stage = Stage::Judged;
            self.buffer = BytesMut::new();
            out.events.push(self.broken(blob, BrokenUpload::Store(fault)));
        }
    }

    /// Whether this is the file it writes to.
    pub(in crate::pickup::session) fn writes(&self, number: BlobNo) -> bool {
        self.blob() == Some(number)
    }

    fn blob(&self) -> Option<BlobNo> {
        match &self.stage {
            Stage::Writing(grant) | Stage::Cutting(grant) => Some(grant.blob),
            Stage::Finishing(blob) => Some(*blob),
            Stage::Gather | Stage::Asked | Stage::Rehashing(_) | Stage::Judged => None,
        }
    }

    pub(super) fn broken(&self, blob: BlobNo, why: BrokenUpload) -> SessionEvent {
        event(Event::Broken { ticket: self.ticket, blob, why })
    }
}

/// A file is there from its first byte on: a cut before that leaves none behind.
fn open(grant: &mut Grant, out: &mut SessionOut) {
    if !grant.open {
        grant.open = true;
        out.requests.push(StoreRequest::Create { blob: grant.blob, offset: grant.offset });
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
