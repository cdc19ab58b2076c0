//! The accepting side: offers judged as far as they can be without a ledger, content taken in, and
//! every offer answered exactly once.
//!
//! ```text
//!                    node: Accept              last byte good        Finished
//!   OFFER ─▶ Offered ──────────▶ Receiving ──────────────▶ Finishing ─────────▶ Received
//!              │                    │ digest wrong, store failed                   │
//!              │                    ▼                                              │
//!              │                  Broken                                           │
//!              ▼                    ▼                                              ▼
//!       node: Ack, Refuse      node: Refuse                             node: Ack, Refuse
//! ```
//!
//! An offer that its side takes back stays in its state, marked, until the node has answered; the
//! answer is not sent then. Content of a transfer that is answered may still be on its way: it is
//! dropped, and its credit returned.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::credit::Grant;
use super::fault::PeerFault;
use super::intake::Intake;
use super::judge::{judge, reject};
use super::spare::Spare;
use crate::code::Refusal;
use crate::id::{BlobDigest, BlobNo, ConnId, Epoch, Handle, SegmentId, TransferNo};
use crate::plant::Plant;
use crate::session::{Broken, SessionEvent, SessionOut};
use crate::store::{StoreFault, StoreRequest};
use crate::wire::{BadOffer, Frame, Offer, Wanted, encode};

#[derive(Clone, Debug)]
enum State {
    /// With the node. So many bytes rode along and are parked.
    Offered { rode: Option<u64> },
    /// Content comes.
    Receiving(Box<Intake>),
    /// Content is whole; the store makes it durable.
    Finishing(Box<Intake>),
    /// Content is durable; with the node.
    Received,
    /// Content will not come; the node refuses.
    Broken,
    /// A WANT; with the node.
    Wanted(Wanted),
}

#[derive(Clone, Debug)]
struct Incoming {
    id: SegmentId,
    digest: BlobDigest,
    size: u64,
    state: State,
    withdrawn: bool,
}

/// The accepting side of a session.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    conn: ConnId,
    every: u64,
    max_offers: usize,
    /// The peer's epoch: our ACKs bear it.
    epoch: Epoch,
    grant: Grant,
    last: TransferNo,
    handles: u32,
    open: BTreeMap<TransferNo, Incoming>,
    /// How many of those are withdrawn.
    withdrawn: usize,
    /// How many of those are WANTs.
    wants: usize,
    blobs: BTreeMap<BlobNo, TransferNo>,
    plant: Option<Plant>,
    spare: Spare,
}

impl Receiver {
    pub(super) fn new(conn: ConnId, max_offers: u32, every: u64, plant: Option<Plant>) -> Receiver {
        Receiver {
            conn,
            every,
            max_offers: usize::try_from(max_offers).unwrap_or(usize::MAX),
            epoch: Epoch::default(),
            grant: Grant::default(),
            last: TransferNo(0),
            handles: 0,
            open: BTreeMap::new(),
            withdrawn: 0,
            wants: 0,
            blobs: BTreeMap::new(),
            plant,
            spare: Spare::default(),
        }
    }

    /// HELLO grants this much.
    pub(super) fn start(&mut self, allowance: u64) {
        self.grant = Grant::new(allowance);
    }

    /// The peer's HELLO.
    pub(super) fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// The node's word on how much may be in memory.
    pub(super) fn resize(&mut self, allowance: u64) {
        self.grant.resize(allowance);
    }

    /// Nothing happens for a while: memory for content is given up if none is under way.
    pub(super) fn rest(&mut self) {
        if self.is_idle() {
            self.spare.clear();
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether more offers can be placed. Withdrawn ones count here until the node has answered, so
    /// that offering and taking back in turns fills nothing.
    pub(super) fn has_place(&self) -> bool {
        self.open.len() < self.max_offers.saturating_mul(2)
    }

    /// OFFER.
    pub(super) fn offered(
        &mut self,
        offer: Offer,
        body: Option<&[u8]>,
        out: &mut SessionOut,
    ) -> Result<(), PeerFault> {
        let rode = body.map(|body| body.len() as u64);
        self.admit(offer.transfer, rode.unwrap_or(0))?;
        let (transfer, id) = (offer.transfer, offer.id);
        if let Some((refusal, text)) = judge(&offer, body) {
            self.grant.free(rode.unwrap_or(0));
            reject(transfer, id, refusal, 0, text, out);
            return Ok(());
        }
        let handle = body.map(|body| {
            self.handles = self.handles.wrapping_add(1);
            let handle = Handle { conn: self.conn, number: self.handles };
            let data = self.spare.copy(body);
            out.requests.push(StoreRequest::Park { handle, data });
            handle
        });
        let (digest, size, state) = (offer.digest, offer.size, State::Offered { rode });
        self.open.insert(transfer, Incoming { id, digest, size, state, withdrawn: false });
        out.events.push(SessionEvent::Offered { offer: Box::new(offer), body: handle });
        Ok(())
    }

    /// OFFER with values that cannot be taken: refused here, the node never sees it.
    pub(super) fn offered_badly(
        &mut self,
        bad: &BadOffer,
        out: &mut SessionOut,
    ) -> Result<(), PeerFault> {
        let rode = bad.rode as u64;
        self.admit(bad.transfer, rode)?;
        self.grant.free(rode);
        reject(bad.transfer, bad.id, Refusal::Invalid, 0, bad.fault.to_string(), out);
        Ok(())
    }

    /// WANT.
    pub(super) fn wanted(
        &mut self,
        transfer: TransferNo,
        what: Wanted,
        out: &mut SessionOut,
    ) -> Result<(), PeerFault> {
        self.admit(transfer, 0)?;
        let (id, digest) = match what {
            Wanted::Segment(id) => (id, BlobDigest([0; 32])),
            // What a REJECT names is what was asked for.
            Wanted::Blob(digest) => (SegmentId(digest.0), digest),
        };
        let state = State::Wanted(what);
        self.wants = self.wants.saturating_add(1);
        self.open.insert(transfer, Incoming { id, digest, size: 0, state, withdrawn: false });
        out.events.push(SessionEvent::Want { transfer, what });
        Ok(())
    }

    /// We offer something: WANTs for it are answered by that.
    pub(super) fn answer_wants(&mut self, offer: &Offer, out: &mut SessionOut) {
        if self.wants == 0 {
            return;
        }
        let answered = |incoming: &Incoming| match incoming.state {
            State::Wanted(Wanted::Segment(id)) => id == offer.id,
            State::Wanted(Wanted::Blob(digest)) => digest == offer.digest,
            State::Offered { .. }
            | State::Receiving(_)
            | State::Finishing(_)
            | State::Received
            | State::Broken => false,
        };
        let transfers: Vec<TransferNo> =
            self.open.iter().filter(|(_, i)| answered(i)).map(|(transfer, _)| *transfer).collect();
        for transfer in transfers {
            self.close(transfer, out);
        }
    }

    /// A SEGMENT with `len` bytes of content begins: judges it, and spends its credit.
    pub(super) fn segment(
        &mut self,
        transfer: TransferNo,
        offset: u64,
        len: u64,
    ) -> Result<(), PeerFault> {
        self.grant.spend(len)?;
        if transfer > self.last {
            return Err(PeerFault::NeverOffered { transfer });
        }
        match self.open.get(&transfer).map(|incoming| &incoming.state) {
            Some(State::Receiving(intake)) => intake.expect(offset, len),
            // Sent before the peer could know.
            None | Some(State::Broken) => Ok(()),
            Some(
                State::Offered { .. } | State::Finishing(_) | State::Received | State::Wanted(_),
            ) => Err(PeerFault::NotAsked { transfer }),
        }
    }

    /// Content of a SEGMENT that has begun, the next of it. Nobody may want it any more since then.
    pub(super) fn content(&mut self, transfer: TransferNo, data: &[u8], out: &mut SessionOut) {
        match self.open.get_mut(&transfer).map(|incoming| &mut incoming.state) {
            Some(State::Receiving(intake)) => {
                intake.take(data, &mut self.spare, out);
                if intake.is_whole() {
                    self.finish(transfer, out);
                }
            }
            None
            | Some(
                State::Broken
                | State::Offered { .. }
                | State::Finishing(_)
                | State::Received
                | State::Wanted(_),
            ) => self.grant.free(data.len() as u64),
        }
    }

    /// The offering side takes an offer back.
    pub(super) fn taken_back(
        &mut self,
        transfer: TransferNo,
        id: &SegmentId,
        out: &mut SessionOut,
    ) {
        let Some(incoming) = self.open.get_mut(&transfer).filter(|i| i.id == *id) else { return };
        if let State::Receiving(intake) = &incoming.state {
            let (blob, held) = (intake.blob, intake.held());
            self.open.remove(&transfer);
            self.abandon(blob, held, out);
            out.events.push(SessionEvent::Broken { transfer, blob, why: Broken::Cut });
        } else if !incoming.withdrawn {
            incoming.withdrawn = true;
            self.withdrawn = self.withdrawn.saturating_add(1);
        }
    }

    /// The node lets content come.
    pub(super) fn accept(
        &mut self,
        transfer: TransferNo,
        blob: BlobNo,
        offset: u64,
        chain: &[u8],
        out: &mut SessionOut,
    ) {
        // Nothing was begun here that the node would have to give up.
        let never = SessionEvent::Broken { transfer, blob, why: Broken::Cut };
        let Some(incoming) = self.open.get_mut(&transfer) else {
            return out.events.push(never);
        };
        let (id, size) = (incoming.id, incoming.size);
        match incoming.state {
            State::Offered { rode: None } => {}
            State::Offered { rode: Some(_) }
            | State::Receiving(_)
            | State::Finishing(_)
            | State::Received
            | State::Broken
            | State::Wanted(_) => return out.events.push(never),
        }
        if incoming.withdrawn {
            self.close(transfer, out);
            return out.events.push(never);
        }
        // Content that does not go on where its checkpoint stands is not what was offered: the
        // node gives up what it has, and the next attempt begins anew.
        let fits = |intake: &Intake| intake.received() == offset && offset <= size;
        let hasty = Plant::ResumePastDurable.is_in(self.plant);
        let intake = Intake::new(transfer, blob, size, chain, self.every, hasty);
        let Some(intake) = intake.ok().filter(fits) else {
            return self.broken(transfer, blob, Broken::Mismatch, out);
        };
        let whole = intake.is_whole();
        incoming.state = State::Receiving(Box::new(intake));
        self.blobs.insert(blob, transfer);
        out.requests.push(StoreRequest::Create { blob, offset });
        encode(&Frame::Accept { transfer, id, offset }, &mut out.bytes);
        if whole {
            self.finish(transfer, out);
        }
    }

    /// The node holds the segment durably.
    pub(super) fn ack(&mut self, transfer: TransferNo, id: SegmentId, out: &mut SessionOut) {
        if self.close(transfer, out).is_some() {
            encode(&Frame::Ack { transfer, id, epoch: self.epoch }, &mut out.bytes);
        }
    }

    /// The node refuses.
    pub(super) fn refuse(
        &mut self,
        transfer: TransferNo,
        refusal: Refusal,
        retry_after: u64,
        text: String,
        out: &mut SessionOut,
    ) {
        if let Some(id) = self.close(transfer, out) {
            reject(transfer, id, refusal, retry_after, text, out);
        }
    }

    /// Bytes of a blob left memory.
    pub(super) fn written(&mut self, blob: BlobNo, bytes: u64) {
        if let Some(intake) = self.intake(blob) {
            let freed = intake.written(bytes);
            self.grant.free(freed);
        }
    }

    /// A blob is durable up to there.
    pub(super) fn synced(&mut self, blob: BlobNo, offset: u64, out: &mut SessionOut) {
        if let Some(intake) = self.intake(blob) {
            intake.synced(offset, out);
        }
    }

    /// A blob and its name are durable.
    pub(super) fn finished(&mut self, blob: BlobNo, size: u64, out: &mut SessionOut) {
        let Some(transfer) = self.blobs.get(&blob).copied() else { return };
        let Some(incoming) = self.open.get_mut(&transfer) else { return };
        let State::Finishing(intake) = &incoming.state else { return };
        if size != incoming.size {
            let text = format!("a file of {size} bytes instead of {}", incoming.size);
            return self.broken(transfer, blob, Broken::Store(StoreFault::Corrupt(text)), out);
        }
        self.grant.free(intake.held());
        incoming.state = State::Received;
        self.blobs.remove(&blob);
        out.events.push(SessionEvent::Received { transfer, blob });
    }

    /// A blob could not be written; the store has closed it.
    pub(super) fn write_failed(&mut self, blob: BlobNo, fault: StoreFault, out: &mut SessionOut) {
        let Some(transfer) = self.blobs.get(&blob).copied() else { return };
        self.broken(transfer, blob, Broken::Store(fault), out);
    }

    /// The session ends: what is under way is cut. What is checkpointed stays for a later resume.
    pub(super) fn cut(&mut self, out: &mut SessionOut) {
        for (blob, transfer) in core::mem::take(&mut self.blobs) {
            out.requests.push(StoreRequest::Abandon { blob });
            out.events.push(SessionEvent::Broken { transfer, blob, why: Broken::Cut });
        }
        self.open.clear();
    }

    /// After every input: hands over what is gathered while the window is low, returns credit if
    /// it is time, and tells the node once if more would help.
    pub(super) fn settle(&mut self, out: &mut SessionOut) {
        if self.grant.is_low() {
            self.flush_all(out);
        }
        if let Some(bytes) = self.grant.take_due() {
            encode(&Frame::Credit { transfer: TransferNo(0), bytes }, &mut out.bytes);
        }
        if self.grant.take_wants() {
            out.events.push(SessionEvent::Wants);
        }
    }

    /// Judges what all offers have in common.
    fn admit(&mut self, transfer: TransferNo, bytes: u64) -> Result<(), PeerFault> {
        let last = self.last;
        if transfer <= last {
            return Err(PeerFault::Reused { transfer, last });
        }
        self.last = transfer;
        if self.open.len().saturating_sub(self.withdrawn) >= self.max_offers {
            return Err(PeerFault::Offers { limit: self.max_offers });
        }
        self.grant.spend(bytes)
    }

    /// Everything is here: right or wrong?
    fn finish(&mut self, transfer: TransferNo, out: &mut SessionOut) {
        let Some(incoming) = self.open.get_mut(&transfer) else { return };
        match core::mem::replace(&mut incoming.state, State::Broken) {
            State::Receiving(intake) if intake.digest() == incoming.digest => {
                out.requests.push(StoreRequest::Finish { blob: intake.blob });
                incoming.state = State::Finishing(intake);
            }
            State::Receiving(intake) => {
                let blob = intake.blob;
                incoming.state = State::Receiving(intake);
                self.broken(transfer, blob, Broken::Mismatch, out);
            }
            other @ (State::Offered { .. }
            | State::Finishing(_)
            | State::Received
            | State::Broken
            | State::Wanted(_)) => incoming.state = other,
        }
    }

    /// The content will not be finished; the node hears why, and refuses.
    fn broken(&mut self, transfer: TransferNo, blob: BlobNo, why: Broken, out: &mut SessionOut) {
        let Some(incoming) = self.open.get_mut(&transfer) else { return };
        let held = match core::mem::replace(&mut incoming.state, State::Broken) {
            State::Receiving(intake) | State::Finishing(intake) => intake.held(),
            State::Offered { .. } | State::Received | State::Broken | State::Wanted(_) => 0,
        };
        self.grant.free(held);
        let open = self.blobs.remove(&blob).is_some();
        if open && !matches!(why, Broken::Store(_)) {
            out.requests.push(StoreRequest::Abandon { blob });
        }
        out.events.push(SessionEvent::Broken { transfer, blob, why });
    }

    /// The transfer is answered. Returns the segment the answer names, unless nobody waits for it.
    fn close(&mut self, transfer: TransferNo, out: &mut SessionOut) -> Option<SegmentId> {
        let incoming = self.open.remove(&transfer)?;
        match incoming.state {
            State::Offered { .. } if Plant::CreditLeak.is_in(self.plant) => {}
            State::Offered { rode } => self.grant.free(rode.unwrap_or(0)),
            State::Receiving(intake) | State::Finishing(intake) => {
                self.abandon(intake.blob, intake.held(), out);
            }
            State::Wanted(_) => self.wants = self.wants.saturating_sub(1),
            State::Received | State::Broken => {}
        }
        if incoming.withdrawn {
            self.withdrawn = self.withdrawn.saturating_sub(1);
            return None;
        }
        Some(incoming.id)
    }

    fn abandon(&mut self, blob: BlobNo, held: u64, out: &mut SessionOut) {
        self.blobs.remove(&blob);
        self.grant.free(held);
        out.requests.push(StoreRequest::Abandon { blob });
    }

    fn intake(&mut self, blob: BlobNo) -> Option<&mut Intake> {
        let transfer = self.blobs.get(&blob)?;
        match &mut self.open.get_mut(transfer)?.state {
            State::Receiving(intake) | State::Finishing(intake) => Some(intake),
            State::Offered { .. } | State::Received | State::Broken | State::Wanted(_) => None,
        }
    }

    /// The window is low: half-filled chunks of many transfers must not hold it.
    fn flush_all(&mut self, out: &mut SessionOut) {
        for transfer in self.blobs.values() {
            if let Some(Incoming { state: State::Receiving(intake), .. }) =
                self.open.get_mut(transfer)
            {
                intake.flush(&mut self.spare, out);
            }
        }
    }
}
