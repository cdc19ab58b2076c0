//! The session of a peer: wire protocol 1 (docs/PROTOCOL.md) from both sides at once.
//!
//! [`PeerSession`] takes frames apart and hands them to the side they concern: `sender` offers
//! what the node claims, `receiver` takes what the peer offers. Neither knows a ledger: what must
//! be decided goes to the node as an event, and what may let somebody forget a copy comes back as
//! a promise that only the commit gate could release. `phase` knows who has said HELLO, `credit`
//! what the peer may still send, `keepalive` whether it is there at all.
//!
//! Memory: received content stays within the allowance the node grants; content to be sent within
//! 1 MiB of small bodies and 4 × 1 MiB of large ones read ahead; one partial frame, content of a SEGMENT
//! excepted, which goes on as it comes; and a fixed
//! size for every open transfer, of which there are at most `max_offers` in each direction (twice
//! that while the node has not answered withdrawn ones).

mod arrive;
mod credit;
mod fault;
mod feed;
mod intake;
mod judge;
mod keepalive;
mod late;
mod offers;
mod paced;
mod phase;
mod probe;
mod receiver;
mod sender;
mod spare;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use fault::PeerFault;
use keepalive::{Keepalive, Silence};
use phase::{Phase, Step};
use probe::{Ask, Probe};
use receiver::Receiver;
use sender::Sender;

use super::{
    ConnInfo, Outcome, PeerLimits, Promise, Session, SessionCommand, SessionConfig, SessionEvent,
    SessionInput, SessionOut,
};
use crate::code::Goodbye;
use crate::id::{Epoch, TransferNo};
use crate::limits::{CHECKPOINT_EVERY, SEGMENT_MAX};
use crate::plant::Plant;
use crate::store::StoreEvent;
use crate::time::{Instant, Now};
use crate::wire::{Frame, Hello, Receipt, VERSION, WITHDRAWN, encode};

/// A session with a peer.
#[derive(Clone, Debug)]
pub struct PeerSession {
    config: SessionConfig,
    /// Name in the peer's certificate.
    certified: String,
    phase: Phase,
    /// The beginning of a frame whose end has not arrived.
    partial: Vec<u8>,
    /// The SEGMENT whose content is arriving, and how many bytes of it are still to come.
    segment: Option<(TransferNo, usize)>,
    /// Bytes it has put out so far.
    said: u64,
    /// When the peer must have said HELLO.
    hello_by: Instant,
    hello: Option<PeerLimits>,
    alive: Keepalive,
    probe: Probe,
    sender: Sender,
    receiver: Receiver,
}

impl PeerSession {
    /// A session for a connection whose TLS handshake is done.
    #[must_use]
    pub fn new(info: &ConnInfo, config: SessionConfig) -> PeerSession {
        PeerSession::with_checkpoints(info, config, CHECKPOINT_EVERY)
    }

    /// A session that checkpoints content every `every` bytes, and sends it in pieces of at most so
    /// many: for tests only, a peer does not see the difference but the ledger would.
    #[doc(hidden)]
    #[must_use]
    pub fn with_checkpoints(info: &ConnInfo, config: SessionConfig, every: u64) -> PeerSession {
        let max_offers = config.max_offers.max(1);
        let longest = usize::try_from(every).unwrap_or(usize::MAX).min(SEGMENT_MAX);
        PeerSession {
            certified: info.identity.as_ref().map(|i| i.name.clone()).unwrap_or_default(),
            phase: Phase::New,
            partial: Vec::new(),
            segment: None,
            said: 0,
            hello_by: Instant::FAR,
            hello: None,
            alive: Keepalive::new(config.ping_after, config.dead_after),
            probe: Probe::default(),
            sender: Sender::new(config.ack_timeout, longest),
            receiver: Receiver::new(info.conn, max_offers, every, config.plant),
            config: SessionConfig { max_offers, ..config },
        }
    }

    /// Answers of the peer that changed nothing: late, doubled, or of another epoch.
    #[must_use]
    pub fn ignored(&self) -> u64 {
        self.sender.ignored()
    }

    /// Moves to the next phase. Returns whether it did.
    fn advance(&mut self, event: phase::Event) -> Result<bool, PeerFault> {
        match phase::next(self.phase, event) {
            Step::To(phase) => {
                self.phase = phase;
                Ok(true)
            }
            Step::Fault(fault) => Err(fault.into()),
            Step::Ignore => Ok(false),
        }
    }

    fn open(&mut self, now: Now) {
        if self.advance(phase::Event::Opened).unwrap_or(false) {
            self.hello_by = now.mono.after(self.config.hello_timeout);
            self.alive.hear(now.mono);
        }
    }

    fn take_frame(
        &mut self,
        now: Now,
        frame: Frame<'_>,
        out: &mut SessionOut,
    ) -> Result<(), PeerFault> {
        match &frame {
            Frame::Hello(_) | Frame::Goodbye { .. } => {}
            Frame::Offer(..)
            | Frame::BadOffer(_)
            | Frame::Segment { .. }
            | Frame::Ack { .. }
            | Frame::Accept { .. }
            | Frame::Reject { .. }
            | Frame::Ping(_)
            | Frame::Pong(_)
            | Frame::Credit { .. }
            | Frame::Receipt(_)
            | Frame::Want { .. }
            | Frame::ReceiptOk { .. }
            | Frame::Skipped(_) => {
                self.advance(phase::Event::Frame)?;
            }
        }
        match frame {
            Frame::Hello(hello) => self.take_hello(hello, out)?,
            Frame::Goodbye { code, text } => self.take_goodbye(code, &text, out),
            Frame::Offer(offer, body) => {
                self.sender.want_answered(&offer);
                self.receiver.offered(offer, body, out)?;
            }
            Frame::BadOffer(bad) => self.receiver.offered_badly(&bad, out)?,
            Frame::Segment { transfer, offset, data } => {
                self.receiver.segment(transfer, offset, data.len() as u64)?;
                self.receiver.content(transfer, data, out);
            }
            Frame::Ack { transfer, id, epoch } => {
                let any = Plant::StaleEpoch.is_in(self.config.plant);
                let epoch = if any { self.sender.epoch() } else { epoch };
                self.sender.acked(transfer, &id, epoch, out);
            }
            Frame::Accept { transfer, id, offset } => {
                self.sender.accepted(now.mono, transfer, &id, offset)?;
            }
            Frame::Reject { transfer, id, code: WITHDRAWN, .. } => {
                self.receiver.taken_back(transfer, &id, out);
            }
            // From 128 on codes are about the sender's own transfers; these mean nothing yet.
            Frame::Reject { code, .. } if code > WITHDRAWN => {}
            Frame::Reject { transfer, id, code, retry_after, text } => {
                let outcome = Outcome::Rejected { code, retry_after, text };
                self.sender.rejected(transfer, &id, outcome, out);
            }
            Frame::Ping(payload) => {
                self.alive.asked(now.mono)?;
                self.receiver.rest();
                encode(&Frame::Pong(payload), &mut out.bytes);
            }
            Frame::Credit { transfer: TransferNo(0), bytes } => {
                self.sender.credited(bytes)?;
            }
            // Of a sign of life, that it was heard is all it says.
            Frame::Pong(payload) => {
                let micros = self.probe.pong(now.mono, payload);
                out.events.extend(micros.map(SessionEvent::Pong));
            }
            // Credit for one transfer has no meaning in protocol 1, and unknown frames of a
            // skippable type are skipped.
            Frame::Credit { .. } | Frame::Skipped(_) => {}
            Frame::Receipt(receipt) => out.events.push(SessionEvent::Receipt(receipt)),
            Frame::ReceiptOk { id, site, later } => {
                out.events.push(SessionEvent::ReceiptOk { id, site, later });
            }
            Frame::Want { transfer, what } => self.receiver.wanted(transfer, what, out)?,
        }
        Ok(())
    }

    fn take_hello(&mut self, hello: Hello, out: &mut SessionOut) -> Result<(), PeerFault> {
        if hello.name != self.certified {
            let certified = self.certified.clone();
            return Err(PeerFault::Name { claimed: hello.name, certified });
        }
        self.advance(phase::Event::Hello)?;
        self.hello_by = Instant::FAR;
        self.receiver.set_epoch(hello.epoch);
        self.sender.start(hello.credit, hello.max_offers);
        let (max_segment, max_offers) = (hello.max_segment, hello.max_offers);
        self.hello = Some(PeerLimits { name: hello.name, max_segment, max_offers });
        self.become_ready(out);
        Ok(())
    }

    fn say_hello(&mut self, epoch: Epoch, allowance: u64, out: &mut SessionOut) {
        if !self.advance(phase::Event::Start).unwrap_or(false) {
            return;
        }
        self.sender.set_epoch(epoch);
        self.receiver.start(allowance);
        let hello = Hello {
            version: VERSION,
            name: self.config.name.clone(),
            epoch,
            max_segment: self.config.max_segment,
            credit: allowance,
            max_offers: self.config.max_offers,
            features: Vec::new(),
        };
        encode(&Frame::Hello(hello), &mut out.bytes);
        self.become_ready(out);
    }

    fn become_ready(&mut self, out: &mut SessionOut) {
        if self.phase == Phase::Ready
            && let Some(limits) = self.hello.take()
        {
            out.events.push(SessionEvent::Ready(limits));
        }
    }

    /// The peer ends the session. What an operator must see is passed on: a peer that turns us away
    /// does so each time.
    fn take_goodbye(&mut self, code: u8, text: &str, out: &mut SessionOut) {
        let fault = match Goodbye::from_number(code) {
            Some(Goodbye::Stopping | Goodbye::Replaced | Goodbye::Age) => None,
            Some(
                why @ (Goodbye::Protocol
                | Goodbye::Version
                | Goodbye::UnknownPeer
                | Goodbye::Silent
                | Goodbye::Crowded),
            ) => Some(format!("the peer ended the session: {why}: {text}")),
            None => Some(format!("the peer ended the session: code {code}: {text}")),
        };
        self.end(None, fault, out);
    }

    fn take_command(&mut self, now: Now, command: SessionCommand, out: &mut SessionOut) {
        match command {
            SessionCommand::Promised(promised) => self.keep(promised.into_inner(), out),
            SessionCommand::Refuse { transfer, id: _, refusal, retry_after, text } => {
                self.receiver.refuse(transfer, refusal, retry_after, text.into_owned(), out);
            }
            SessionCommand::Allowance(allowance) => self.receiver.resize(allowance),
            SessionCommand::Pace(rate) => self.sender.set_pace(now.mono, rate),
            SessionCommand::Ping => self.ping(now, out),
            SessionCommand::Close { why, text } => self.end(Some((why, text)), None, out),
            // For local sessions.
            SessionCommand::Answer { .. } | SessionCommand::Pickup(_) => {}
        }
    }

    /// Somebody wants to know whether the peer answers.
    fn ping(&mut self, now: Now, out: &mut SessionOut) {
        if self.phase != Phase::Ready {
            return;
        }
        match self.probe.ask(now.mono) {
            Ask::Send(payload) => encode(&Frame::Ping(&payload), &mut out.bytes),
            Ask::Known(micros) => out.events.push(SessionEvent::Pong(micros)),
            Ask::Wait => {}
        }
    }

    fn keep(&mut self, promise: Promise, out: &mut SessionOut) {
        match promise {
            Promise::Start { epoch, allowance } => self.say_hello(epoch, allowance, out),
            Promise::Send(sending) => {
                self.receiver.answer_wants(&sending.offer, out);
                self.sender.send(sending);
            }
            Promise::Ack { transfer, id } => self.receiver.ack(transfer, id, out),
            Promise::Accept { transfer, blob, offset, chain, reserved: _ } => {
                self.receiver.accept(transfer, blob, offset, &chain, out);
            }
            Promise::Receipt(receipt) => encode(&Frame::Receipt(receipt), &mut out.bytes),
            Promise::ReceiptOk { receipt: Receipt { id, site, .. }, later } => {
                encode(&Frame::ReceiptOk { id, site, later }, &mut out.bytes);
            }
            Promise::Want { transfer, what } => self.sender.want(transfer, what),
            // For local sessions.
            Promise::Accepted { .. } | Promise::Done { .. } | Promise::Pickup(_) => {}
        }
    }

    fn take_stored(&mut self, event: StoreEvent, out: &mut SessionOut) {
        match event {
            StoreEvent::Written { blob, bytes } => self.receiver.written(blob, bytes),
            StoreEvent::Synced { blob, offset } => self.receiver.synced(blob, offset, out),
            StoreEvent::Finished { blob, size } => self.receiver.finished(blob, size, out),
            StoreEvent::WriteFailed { blob, fault } => {
                self.receiver.write_failed(blob, fault, out);
            }
            StoreEvent::Content { ticket, offset, data } => {
                self.sender.content(ticket, offset, data, out);
            }
            // Nothing is asked of the ledger here.
            StoreEvent::Queried { .. } => {}
        }
    }

    fn take_timer(&mut self, now: Now, out: &mut SessionOut) {
        if now.mono >= self.hello_by {
            let text = format!("no HELLO within {:?}", self.config.hello_timeout);
            return self.end(Some((Goodbye::Silent, text.clone())), Some(text), out);
        }
        if self.phase != Phase::Ready {
            return;
        }
        if !self.receiver.has_place() {
            // It is this side that does not listen.
            self.alive.hear(now.mono);
        }
        match self.alive.check(now.mono) {
            Silence::Bearable => {}
            Silence::Ask(payload) => {
                self.receiver.rest();
                encode(&Frame::Ping(&payload), &mut out.bytes);
            }
            Silence::Dead => {
                let text = format!("silent for {:?}", self.config.dead_after);
                return self.end(Some((Goodbye::Silent, text.clone())), Some(text), out);
            }
        }
        if self.sender.is_stuck(now.mono) {
            let text = format!("no progress for {:?}", self.config.ack_timeout);
            return self.end(Some((Goodbye::Silent, text.clone())), Some(text), out);
        }
        // While a sign of life is asked for, nobody knows whether the segment or the link is at
        // fault: the one costs an attempt, the other does not.
        if self.alive.is_live() {
            self.sender.expire(now.mono, out);
        }
    }

    /// Ends the session: cuts what is under way, says goodbye, tells the node why.
    fn end(
        &mut self,
        goodbye: Option<(Goodbye, String)>,
        fault: Option<String>,
        out: &mut SessionOut,
    ) {
        if self.phase == Phase::Over || !self.advance(phase::Event::End).unwrap_or(false) {
            return;
        }
        self.receiver.cut(out);
        (self.partial, self.segment) = (Vec::new(), None);
        self.sender = Sender::new(self.config.ack_timeout, 0);
        if let Some((why, text)) = goodbye {
            encode(&Frame::Goodbye { code: why.number(), text }, &mut out.bytes);
        }
        if let Some(fault) = fault {
            out.events.push(SessionEvent::Fault(fault));
        }
        out.close = true;
    }

    /// After every input: what may be sent, what credit is due, what memory can go.
    fn settle(&mut self, now: Now, out: &mut SessionOut) {
        if self.phase == Phase::Ready {
            self.receiver.settle(out);
            self.sender.settle(now.mono, self.said, out);
        }
        if self.partial.is_empty() && self.partial.capacity() > 0 && self.receiver.is_idle() {
            self.partial = Vec::new();
        }
    }
}

impl Session for PeerSession {
    fn step(&mut self, now: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        if self.phase == Phase::Over {
            return;
        }
        let before = out.said();
        match input {
            SessionInput::Open => self.open(now),
            SessionInput::Bytes(bytes) => {
                if let Err(fault) = self.take_bytes(now, bytes, out) {
                    let text = fault.to_string();
                    self.end(Some((fault.goodbye(), text.clone())), Some(text), out);
                }
            }
            SessionInput::Eof => self.end(None, None, out),
            SessionInput::Room(room) if self.phase == Phase::Ready => {
                self.sender.pump(now.mono, room, out);
            }
            SessionInput::Room(_) => {}
            SessionInput::Handed(bytes) => self.sender.handed(now.mono, bytes),
            SessionInput::Timer => self.take_timer(now, out),
            SessionInput::Command(command) => self.take_command(now, command, out),
            SessionInput::Store(event) => self.take_stored(event, out),
        }
        self.said = self.said.saturating_add(out.said().saturating_sub(before) as u64);
        self.settle(now, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::New | Phase::Over => None,
            Phase::Quiet | Phase::Said => Some(self.hello_by),
            Phase::Heard => None,
            Phase::Ready => {
                let sender = self.sender.next_deadline(self.alive.is_live());
                let alive = self.alive.next_deadline();
                Some(sender.map_or(alive, |at| at.min(alive)))
            }
        }
    }

    fn wants_read(&self) -> bool {
        self.receiver.has_place()
    }
}

#[cfg(test)]
mod tests;
