//! The offering side: offers in order, content in turns, and how each attempt ends.
//!
//! ```text
//!            OFFER, body rides                                 ACK ─▶ Acked
//!   queued ───────────────────────────────▶ Sent ──────────── REJECT ─▶ Rejected
//!      │                                     ▲                   time ─▶ AckTimeout, withdrawn
//!      │ OFFER          ACCEPT               │ last byte
//!      └───────▶ Offered ──────▶ Waiting ──▶ Feeding      unreadable ─▶ Unreadable, withdrawn
//!                                   ▲          │
//!                                   └──────────┘ quantum sent, another transfer waits
//! ```
//!
//! ACK and REJECT are taken in every state after the OFFER. The turns go round between the queue of
//! offers and the transfers that feed, one turn being 64 KiB; whose turn it is waits for credit and
//! room, so that a big transfer never starves small bodies, nor they it.

mod wants;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use core::time::Duration;

use bytes::Bytes;

use self::wants::Wants;
use super::fault::PeerFault;
use super::feed::Feed;
use super::late::Late;
use super::offers::Offers;
use super::paced::Paced;
use crate::id::{Epoch, SegmentId, TransferNo};
use crate::ledger::rows::Body;
use crate::limits::SEGMENT_MAX;
use crate::session::{Outcome, Sending, SessionEvent, SessionOut};
use crate::store::StoreFault;
use crate::time::Instant;
use crate::wire::{Frame, SEGMENT_FRONT, WITHDRAWN, encode, encode_offer, encode_segment_front};

/// Transfers whose content is read at a time.
const FEEDS: usize = 4;
/// With this much room a frame may go, even if it is larger: a driver's room is then exceeded by
/// less than one frame, and a large body cannot wait for ever on a small one.
const ROOM_ENOUGH: usize = 32 << 10;
/// Bulk of one turn.
const TURN: usize = SEGMENT_MAX;
/// Distance of progress events.
const PROGRESS: u64 = 1 << 20;
/// What an OFFER adds to its body, roughly: only for the room.
const OFFER_OVERHEAD: usize = 256;

#[derive(Clone, Debug)]
enum State {
    /// OFFER is out, content is asked for by ACCEPT.
    Offered,
    /// Content is asked for from this offset, and waits until it may be read.
    Waiting(u64),
    /// Content is under way.
    Feeding(Box<Feed>),
    /// Everything is sent.
    Sent,
}

#[derive(Clone, Debug)]
struct Outgoing {
    id: SegmentId,
    size: u64,
    body: Body,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Offers,
    Feed(TransferNo),
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Something was sent.
    Sent,
    /// There is nothing that could be sent.
    Idle,
    /// Something is ready and waits for credit or room.
    Blocked,
    /// Something is ready and waits for its pace: so many bytes.
    Paced(u64),
}

/// The offering side of a session.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    epoch: Epoch,
    ack_timeout: Duration,
    /// Longest piece of content in one SEGMENT, in bytes.
    longest: usize,
    max_offers: usize,
    credit: u64,
    last: TransferNo,
    offers: Offers,
    wants: Wants,
    open: BTreeMap<TransferNo, Outgoing>,
    late: Late,
    waiting: VecDeque<TransferNo>,
    turns: VecDeque<Turn>,
    paced: Paced,
    /// Something is ready to be sent and nothing has moved since then.
    stalled: Option<Instant>,
    ignored: u64,
}

impl Sender {
    /// Nothing may be offered before [`Sender::start`].
    pub(super) fn new(ack_timeout: Duration, longest: usize) -> Sender {
        Sender {
            epoch: Epoch::default(),
            ack_timeout,
            longest,
            max_offers: 0,
            credit: 0,
            last: TransferNo(0),
            offers: Offers::default(),
            wants: Wants::default(),
            open: BTreeMap::new(),
            late: Late::new(ack_timeout),
            waiting: VecDeque::new(),
            turns: VecDeque::from([Turn::Offers]),
            paced: Paced::default(),
            stalled: None,
            ignored: 0,
        }
    }

    /// At most `rate` bytes of content per second go out from now on, in pieces short enough for
    /// others to have their turns in between.
    pub(super) fn set_pace(&mut self, now: Instant, rate: u64) {
        self.longest = self.longest.min(self.paced.set(now, rate));
    }

    /// Our epoch: ACKs must bear it.
    pub(super) fn set_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
    }

    /// The epoch ACKs must bear.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The peer's HELLO.
    pub(super) fn start(&mut self, credit: u64, max_offers: u32) {
        self.credit = credit;
        self.max_offers = usize::try_from(max_offers).unwrap_or(usize::MAX);
    }

    /// The node wants a segment offered.
    ///
    /// # Panics
    /// When its transfer number does not ascend.
    pub(super) fn send(&mut self, sending: Box<Sending>) {
        let transfer = sending.offer.transfer;
        assert!(transfer > self.last, "transfer {transfer} after {}", self.last);
        self.last = transfer;
        self.offers.push(sending);
    }

    /// The store has read something.
    pub(super) fn content(
        &mut self,
        ticket: TransferNo,
        offset: u64,
        data: Result<Bytes, StoreFault>,
        out: &mut SessionOut,
    ) {
        if let Some(Outgoing { id, state: State::Feeding(feed), .. }) = self.open.get_mut(&ticket) {
            let id = *id;
            if let Err(fault) = data.and_then(|data| feed.content(offset, data)) {
                self.withdraw(ticket, id, "unreadable here", out);
                self.end(ticket, Outcome::Unreadable(fault), out);
            }
            return;
        }
        // Otherwise it is a body that will ride, or nobody waits for it any more.
        self.offers.content(ticket, data, out);
    }

    /// ACK.
    pub(super) fn acked(
        &mut self,
        transfer: TransferNo,
        id: &SegmentId,
        epoch: Epoch,
        out: &mut SessionOut,
    ) {
        match self.open.get(&transfer) {
            Some(outgoing) if epoch == self.epoch => {
                let ours = outgoing.id == *id;
                self.moved();
                let outcome = if ours { Outcome::Acked } else { Outcome::AckMismatch };
                self.end(transfer, outcome, out);
            }
            Some(_) | None => self.ignored = self.ignored.saturating_add(1),
        }
    }

    /// REJECT of an offer of ours.
    pub(super) fn rejected(
        &mut self,
        transfer: TransferNo,
        id: &SegmentId,
        outcome: Outcome,
        out: &mut SessionOut,
    ) {
        if self.wants.refused(transfer) {
            out.events.push(SessionEvent::Outcome { transfer, outcome });
        } else if self.open.get(&transfer).is_some_and(|outgoing| outgoing.id == *id) {
            self.moved();
            self.end(transfer, outcome, out);
        } else {
            self.ignored = self.ignored.saturating_add(1);
        }
    }

    /// ACCEPT.
    pub(super) fn accepted(
        &mut self,
        now: Instant,
        transfer: TransferNo,
        id: &SegmentId,
        offset: u64,
    ) -> Result<(), PeerFault> {
        let Some(outgoing) = self.open.get_mut(&transfer) else {
            self.ignored = self.ignored.saturating_add(1);
            return Ok(());
        };
        let fault = |problem| Err(PeerFault::Accept { transfer, problem });
        if outgoing.id != *id {
            return fault("names another segment");
        }
        match outgoing.state {
            State::Offered => {}
            State::Waiting(_) | State::Feeding(_) | State::Sent => {
                return fault("whose content is under way or was sent");
            }
        }
        if offset > outgoing.size {
            return fault("begins after the end");
        }
        if offset == outgoing.size {
            outgoing.state = State::Sent;
            self.late.begin(now, transfer);
        } else {
            outgoing.state = State::Waiting(offset);
            self.waiting.push_back(transfer);
            self.late.forget(transfer);
        }
        self.moved();
        Ok(())
    }

    /// CREDIT for the session.
    pub(super) fn credited(&mut self, more: u64) -> Result<(), PeerFault> {
        let credit = self.credit;
        self.credit = credit.checked_add(more).ok_or(PeerFault::Credit { credit, more })?;
        self.moved();
        Ok(())
    }

    /// Frames that changed nothing: foreign, late or doubled answers.
    pub(super) fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Sends as much as credit, pace and room allow.
    pub(super) fn pump(&mut self, now: Instant, mut room: usize, out: &mut SessionOut) {
        self.paced.begin(now);
        self.say_wants(out);
        let mut idle = 0;
        while idle < self.turns.len() {
            let Some(turn) = self.turns.front().copied() else { break };
            let taken = match turn {
                Turn::Offers => self.offer_turn(self.credit, &mut room, out),
                Turn::Feed(transfer) => self.feed_turn(transfer, &mut room, out),
            };
            match taken {
                Taken::Sent => {
                    idle = 0;
                    self.moved();
                }
                Taken::Idle => idle += 1,
                blocked @ (Taken::Blocked | Taken::Paced(_)) => {
                    // Offers without content need no credit and take nobody's turn.
                    if turn != Turn::Offers {
                        while self.offer_turn(0, &mut room, out) == Taken::Sent {}
                    }
                    if let Taken::Paced(bytes) = blocked {
                        self.paced.wait(bytes);
                    }
                    break;
                }
            }
            // A transfer that is done or gives way has left its place already.
            if self.turns.front() == Some(&turn) {
                self.turns.rotate_left(1);
            }
        }
    }

    /// After every input: what the store must be asked, and whether anything is held up.
    pub(super) fn settle(&mut self, now: Instant, said: u64, out: &mut SessionOut) {
        self.late.put_out(said);
        self.offers.read_ahead(out);
        self.fill_feeds(out);
        // What waits for its pace is not held up by anybody.
        self.paced.settle(now);
        let ready = self.paced.until().is_none() && self.has_ready();
        if ready || self.late.is_held_up() {
            self.stalled.get_or_insert(now);
        } else {
            self.stalled = None;
        }
    }

    /// Whether something could be sent, if there were credit and room.
    fn has_ready(&self) -> bool {
        let offer = self.may_open() && self.offers.front().is_some();
        let feeds = |turn: &Turn| match turn {
            Turn::Offers => offer,
            Turn::Feed(transfer) => match self.open.get(transfer).map(|o| &o.state) {
                Some(State::Feeding(feed)) => feed.has_piece(),
                Some(State::Offered | State::Waiting(_) | State::Sent) | None => false,
            },
        };
        self.turns.iter().any(feeds)
    }

    /// When the next answer is overdue, if the peer gives signs of life; and when nothing at all
    /// has moved for too long.
    pub(super) fn next_deadline(&self, live: bool) -> Option<Instant> {
        let ack = self.late.first().map(|(at, _)| at).filter(|_| live);
        let stall = self.stalled.map(|since| since.after(self.ack_timeout));
        [ack, stall, self.paced.until()].into_iter().flatten().min()
    }

    /// Whether something could be sent and the peer has let nothing move for too long.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.stalled.is_some_and(|since| now >= since.after(self.ack_timeout))
    }

    /// Ends the attempts whose answers are overdue.
    pub(super) fn expire(&mut self, now: Instant, out: &mut SessionOut) {
        while let Some((at, transfer)) = self.late.first().filter(|(at, _)| *at <= now) {
            let Some(outgoing) = self.open.get(&transfer) else {
                unreachable!("deadline {at:?} of transfer {transfer}, which is not open");
            };
            let id = outgoing.id;
            self.withdraw(transfer, id, "no answer in time", out);
            self.end(transfer, Outcome::AckTimeout, out);
        }
    }

    /// Sends offers worth at most one turn, whose bodies together fit `credit`.
    fn offer_turn(&mut self, mut credit: u64, room: &mut usize, out: &mut SessionOut) -> Taken {
        let before = out.bytes.len();
        let mut taken = Taken::Idle;
        while out.bytes.len().saturating_sub(before) < TURN && self.may_open() {
            let Some((sending, ride)) = self.offers.front() else { break };
            let bytes = ride.map_or(0, Bytes::len);
            let cost = bytes as u64;
            if cost > credit || !fits(bytes.saturating_add(OFFER_OVERHEAD), *room) {
                return if taken == Taken::Sent { taken } else { Taken::Blocked };
            }
            if !self.paced.pay(cost) {
                return if taken == Taken::Sent { taken } else { Taken::Paced(cost) };
            }
            let start = out.bytes.len();
            encode_offer(&sending.offer, ride.map(|body| body.as_ref()), &mut out.bytes);
            *room = room.saturating_sub(out.bytes.len().saturating_sub(start));
            credit = credit.saturating_sub(cost);
            self.credit = self.credit.saturating_sub(cost);
            let rides = ride.is_some();
            let Some(sending) = self.offers.pop() else { break };
            self.opened(&sending, rides);
            self.go_on(out);
            taken = Taken::Sent;
        }
        taken
    }

    fn opened(&mut self, sending: &Sending, rides: bool) {
        let transfer = sending.offer.transfer;
        let outgoing = Outgoing {
            id: sending.offer.id,
            size: sending.offer.size,
            body: sending.body,
            state: if rides { State::Sent } else { State::Offered },
        };
        self.open.insert(transfer, outgoing);
        self.late.ask(transfer);
    }

    fn feed_turn(&mut self, transfer: TransferNo, room: &mut usize, out: &mut SessionOut) -> Taken {
        let Some(Outgoing { state: State::Feeding(feed), .. }) = self.open.get_mut(&transfer)
        else {
            unreachable!("turn of transfer {transfer}, which does not feed");
        };
        let Some((offset, piece)) = feed.piece() else { return Taken::Idle };
        let (len, cost) = (piece.len(), piece.len() as u64);
        if cost > self.credit || !fits(len, *room) {
            return Taken::Blocked;
        }
        if !self.paced.pay(cost) {
            return Taken::Paced(cost);
        }
        encode_segment_front(transfer, offset, len, &mut out.bytes);
        out.place(piece);
        *room = room.saturating_sub(len.saturating_add(SEGMENT_FRONT));
        self.credit = self.credit.saturating_sub(cost);
        let sent = feed.advance(len);
        if offset / PROGRESS != sent / PROGRESS {
            out.events.push(SessionEvent::Progress { transfer, sent });
        }
        if feed.is_done() {
            self.leave_turns(transfer, State::Sent);
            self.late.ask(transfer);
            self.fill_feeds(out);
        } else if let Some(offset) = feed.spent() {
            if self.waiting.is_empty() {
                feed.renew();
                feed.read_ahead(out);
            } else {
                self.leave_turns(transfer, State::Waiting(offset));
                self.waiting.push_back(transfer);
                self.fill_feeds(out);
            }
        } else {
            feed.read_ahead(out);
        }
        Taken::Sent
    }

    /// The transfer feeds no more.
    fn leave_turns(&mut self, transfer: TransferNo, state: State) {
        self.turns.retain(|turn| *turn != Turn::Feed(transfer));
        if let Some(outgoing) = self.open.get_mut(&transfer) {
            outgoing.state = state;
        }
    }

    /// Lets transfers that wait feed, while there are places.
    fn fill_feeds(&mut self, out: &mut SessionOut) {
        let longest = self.longest;
        while self.turns.len() <= FEEDS {
            let Some(transfer) = self.waiting.pop_front() else { break };
            let Some(outgoing) = self.open.get_mut(&transfer) else { continue };
            let State::Waiting(offset) = outgoing.state else { continue };
            let mut feed =
                Box::new(Feed::new(transfer, outgoing.body, outgoing.size, offset, longest));
            feed.read_ahead(out);
            outgoing.state = State::Feeding(feed);
            self.turns.push_back(Turn::Feed(transfer));
        }
    }

    /// The first `bytes` of what was put out are in the kernel's hands.
    pub(super) fn handed(&mut self, now: Instant, bytes: u64) {
        if self.late.handed(now, bytes) {
            self.moved();
        }
    }

    /// Takes an offer back, so that the peer stops counting and keeping it.
    fn withdraw(&mut self, transfer: TransferNo, id: SegmentId, why: &str, out: &mut SessionOut) {
        let text = String::from(why);
        let frame = Frame::Reject { transfer, id, code: WITHDRAWN, retry_after: 0, text };
        encode(&frame, &mut out.bytes);
    }

    fn end(&mut self, transfer: TransferNo, outcome: Outcome, out: &mut SessionOut) {
        self.late.forget(transfer);
        if let Some(outgoing) = self.open.remove(&transfer) {
            match outgoing.state {
                State::Feeding(_) => self.turns.retain(|turn| *turn != Turn::Feed(transfer)),
                State::Waiting(_) => self.waiting.retain(|waiting| *waiting != transfer),
                State::Offered | State::Sent => {}
            }
            out.events.push(SessionEvent::Outcome { transfer, outcome });
        }
    }

    /// Things move: whatever is held up is so only from now on.
    fn moved(&mut self) {
        self.stalled = None;
    }
}

/// Whether a frame of about that length may be appended.
fn fits(len: usize, room: usize) -> bool {
    len.min(ROOM_ENOUGH) <= room
}
