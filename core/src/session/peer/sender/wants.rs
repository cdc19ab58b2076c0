//! What this side wants of the peer, until the peer offers it or says no.

use alloc::collections::{BTreeMap, VecDeque};

use super::Sender;
use crate::id::TransferNo;
use crate::session::SessionOut;
use crate::wire::{Frame, Offer, Wanted, encode};

/// WANTs by their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Wants {
    /// Not said yet.
    waiting: VecDeque<(TransferNo, Wanted)>,
    /// Said and not answered.
    asked: BTreeMap<TransferNo, Wanted>,
}

impl Wants {
    fn push(&mut self, transfer: TransferNo, what: Wanted) {
        self.waiting.push_back((transfer, what));
    }

    /// How many the peer has not answered.
    fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Says the next one, if its number is below that of the next offer. Whether it was said.
    fn say(&mut self, before: Option<TransferNo>, out: &mut SessionOut) -> bool {
        let next = self.waiting.front().map(|(transfer, _)| *transfer);
        if next.is_none_or(|next| before.is_some_and(|before| before < next)) {
            return false;
        }
        let Some((transfer, what)) = self.waiting.pop_front() else { return false };
        encode(&Frame::Want { transfer, what }, &mut out.bytes);
        self.asked.insert(transfer, what);
        true
    }

    /// An offer answers every WANT for what it offers.
    fn answered(&mut self, offer: &Offer) {
        self.asked.retain(|_, what| match what {
            Wanted::Segment(id) => *id != offer.id,
            Wanted::Blob(digest) => *digest != offer.digest,
        });
    }

    /// The peer refuses a transfer; whether that was one of these.
    pub(super) fn refused(&mut self, transfer: TransferNo) -> bool {
        self.asked.remove(&transfer).is_some()
    }
}

impl Sender {
    /// The node wants content of the peer. Its number ascends, as in [`Sender::send`].
    pub(in crate::session::peer) fn want(&mut self, transfer: TransferNo, what: Wanted) {
        self.last = transfer;
        self.wants.push(transfer, what);
    }

    /// The peer offers something: what was wanted of it is answered by that.
    pub(in crate::session::peer) fn want_answered(&mut self, offer: &Offer) {
        self.wants.answered(offer);
    }

    /// Whether one more offer or WANT may wait for its answer.
    pub(super) fn may_open(&self) -> bool {
        self.open.len().saturating_add(self.wants.asked()) < self.max_offers
    }

    /// An offer is out: the next body is read, and WANTs behind that offer are said.
    pub(super) fn go_on(&mut self, out: &mut SessionOut) {
        self.offers.read_ahead(out);
        self.say_wants(out);
    }

    /// Numbers ascend on the wire, so a WANT waits for the offers before it.
    pub(super) fn say_wants(&mut self, out: &mut SessionOut) {
        while self.may_open() {
            let before = self.offers.next_transfer();
            if !self.wants.say(before, out) {
                return;
            }
        }
    }
}
