//! A node's WebSocket: registration, notifications, acks.
//!
//! ```text
//!              register            Registered
//!   Upgraded ────────────▶ Asked ─────────────▶ Registered     every other message in Upgraded:
//!      │                     │                      │          error not_registered
//!      └─────────────────────┴──────────────────────┘
//!             close, fault, silence, flood, the node's word
//!                             ▼
//!                           Closed
//! ```
//!
//! The session draws the tokens and keeps them; the node hears their hashes and says by a handle which
//! one a notification carries. Between messages nothing is kept but the tokens.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::context::{FillRandom, PickupContext};
use super::event;
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::rows_pickup::ShardState;
use crate::pickup::message::{
    Digests, ErrorOf, FromNode, FromRelay, PendingNotify, Registered, ShardAck, ShardStateOf,
    buffer_id,
};
use crate::pickup::token::Token;
use crate::pickup::ws::{self, Message, Reader, Side};
use crate::pickup::{AckAsk, Event, Notify, PickupRefusal, TokenOffer};
use crate::session::SessionOut;
use crate::time::{Instant, Now};

/// Tokens beyond the window, so that a notification need not wait for its token.
const SPARE: usize = 4;
/// Bytes that may wait for the kernel before the node counts as one that does not read.
const OUT_MAX: u64 = 128 << 10;
/// Acks that may be unanswered before nothing more is read.
const ACKS_MAX: usize = 256;
/// Most control frames in [`CONTROL_TIME`].
const CONTROL_FRAMES: u32 = 100;
const CONTROL_TIME: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Upgraded,
    Asked,
    Registered,
    Closed,
}

/// Where random bytes come from.
pub(super) struct Random(pub(super) FillRandom);

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

/// The socket.
#[derive(Debug)]
pub(super) struct Socket {
    node: String,
    reader: Reader,
    phase: Phase,
    tokens: BTreeMap<u64, Token>,
    handles: u64,
    acks: usize,
    heard: Instant,
    asked: Instant,
    /// Control frames since then.
    control: (Instant, u32),
    ping_after: Duration,
    dead_after: Duration,
}

impl Socket {
    pub(super) fn new(now: Now, node: String, context: &PickupContext) -> Socket {
        Socket {
            node,
            reader: Reader::new(Side::Server),
            phase: Phase::Upgraded,
            tokens: BTreeMap::new(),
            handles: 0,
            acks: 0,
            heard: now.mono,
            asked: now.mono,
            control: (now.mono, 0),
            ping_after: context.ping_after,
            dead_after: context.dead_after,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    pub(super) fn wants_read(&self) -> bool {
        self.acks < ACKS_MAX
    }

    /// When it wants to be asked again.
    pub(super) fn deadline(&self) -> Instant {
        let ping = self.heard.max(self.asked).after(self.ping_after);
        ping.min(self.heard.after(self.dead_after))
    }

    /// Bytes behind the upgrade.
    pub(super) fn bytes(
        &mut self,
        now: Now,
        mut input: &[u8],
        context: &PickupContext,
        random: &mut Random,
        out: &mut SessionOut,
    ) {
        self.heard = now.mono;
        while !self.is_closed() {
            match self.reader.read(&mut input) {
                Ok(Some(message)) => self.message(now, message, context, random, out),
                Ok(None) => return,
                Err(fault) => self.close(fault.code(), &format!("{fault}"), out),
            }
        }
    }

    fn message(
        &mut self,
        now: Now,
        message: Message,
        context: &PickupContext,
        random: &mut Random,
        out: &mut SessionOut,
    ) {
        match message {
            Message::Text(text) => self.text(&text, context, random, out),
            Message::Ping(payload) => {
                if self.may_control(now, out) {
                    ws::pong(&payload, None, &mut out.bytes);
                }
            }
            Message::Pong(_) => {
                self.may_control(now, out);
            }
            // Answered with its own code (RFC 6455, 5.5.1).
            Message::Close(code, _) => self.close(code.unwrap_or(ws::NORMAL), "", out),
        }
    }

    /// Counts a control frame; too many end the session.
    fn may_control(&mut self, now: Now, out: &mut SessionOut) -> bool {
        let (since, count) = &mut self.control;
        if now.mono.since(*since) >= CONTROL_TIME {
            (*since, *count) = (now.mono, 0);
        }
        *count = count.saturating_add(1);
        let fine = *count <= CONTROL_FRAMES;
        if !fine {
            self.close(ws::POLICY, "too many control frames", out);
        }
        fine
    }

    fn text(
        &mut self,
        text: &str,
        context: &PickupContext,
        random: &mut Random,
        out: &mut SessionOut,
    ) {
        match (FromNode::parse(text), self.phase) {
            (_, Phase::Closed) => {}
            (Ok(FromNode::Register(register)), _) if register.node_id != self.node => {
                let why = "the upgrade was signed by another node";
                say(&FromRelay::Error(ErrorOf::new("wrong_node", why)), out);
                self.close(ws::POLICY, "wrong node", out);
            }
            (Ok(FromNode::Register(_)), Phase::Upgraded) => {
                self.phase = Phase::Asked;
                let count = context.notify_window.saturating_add(SPARE);
                let tokens = (0..count).map(|_| self.offer(random)).collect();
                out.events.push(event(Event::Register { tokens }));
            }
            (_, Phase::Upgraded) => error("not_registered", "register comes first", out),
            (Ok(FromNode::Register(_)), Phase::Asked | Phase::Registered) => {
                error("already_registered", "this session is registered", out);
            }
            (Ok(FromNode::ShardAck(ack)), Phase::Asked | Phase::Registered) => self.ack(ack, out),
            (Err(fault), Phase::Asked | Phase::Registered) => {
                error(fault.code(), &format!("{fault}"), out);
            }
        }
    }

    fn ack(&mut self, ack: ShardAck, out: &mut SessionOut) {
        let ShardAck { file_id, version_number, shard_index, redemption, status, reason } = ack;
        match ShardKey::new(file_id, version_number, shard_index, self.node.clone()) {
            Ok(shard) => {
                self.acks = self.acks.saturating_add(1);
                let reason = reason.unwrap_or_default();
                let ask = AckAsk { shard, redemption, status, reason };
                out.events.push(event(Event::Ack(Box::new(ask))));
            }
            Err(why) => error("bad_message", &format!("{why}"), out),
        }
    }

    /// Draws a token; its hash is for the node.
    fn offer(&mut self, random: &mut Random) -> TokenOffer {
        let mut bytes = [0; 32];
        (random.0)(&mut bytes);
        let token = Token::new(bytes);
        self.handles = self.handles.saturating_add(1);
        self.tokens.insert(self.handles, token);
        TokenOffer { handle: self.handles, hash: token.hash() }
    }

    /// The registration is committed.
    pub(super) fn registered(&mut self, session: u64, owed: u64, out: &mut SessionOut) {
        if self.phase == Phase::Asked {
            self.phase = Phase::Registered;
            let node_id = self.node.clone();
            say(&FromRelay::Registered(Registered { node_id, session, owed }), out);
        }
    }

    /// A notification is committed.
    pub(super) fn notify(&mut self, notify: Notify, random: &mut Random, out: &mut SessionOut) {
        if self.is_closed() {
            return;
        }
        // A handle that is not there was used before: the token would open something else.
        let Some(token) = self.tokens.remove(&notify.handle) else { return };
        let (shard, digest) =
            (&notify.shard, Digests { sha256: notify.sha256, blake3: notify.blake3 });
        let message = PendingNotify {
            file_id: shard.file_id().into(),
            version_number: shard.version(),
            shard_index: shard.index(),
            buffer_id: buffer_id(notify.buffer),
            size: notify.size,
            digest,
            token,
            token_expires_at: notify.token_expires_at,
            redemption: notify.redemption,
        };
        say(&FromRelay::PendingNotify(message), out);
        let offers = Vec::from([self.offer(random)]);
        out.events.push(event(Event::Tokens(offers)));
    }

    /// The answer to an ack.
    pub(super) fn state(
        &mut self,
        shard: &ShardKey,
        redemption: u64,
        state: ShardState,
        out: &mut SessionOut,
    ) {
        self.acks = self.acks.saturating_sub(1);
        if !self.is_closed() {
            let state = ShardStateOf {
                file_id: shard.file_id().into(),
                version_number: shard.version(),
                shard_index: shard.index(),
                redemption,
                state,
            };
            say(&FromRelay::ShardState(state), out);
        }
    }

    /// An ack changes nothing.
    pub(super) fn ack_refused(
        &mut self,
        ack: &AckAsk,
        refusal: PickupRefusal,
        text: String,
        out: &mut SessionOut,
    ) {
        self.acks = self.acks.saturating_sub(1);
        if !self.is_closed() {
            let error = ErrorOf::new(refusal.word(), text).about(&ack.shard, ack.redemption);
            say(&FromRelay::Error(error), out);
        }
    }

    /// Says goodbye, once.
    pub(super) fn close(&mut self, code: u16, reason: &str, out: &mut SessionOut) {
        if !self.is_closed() {
            self.phase = Phase::Closed;
            self.tokens = BTreeMap::new();
            self.reader = Reader::new(Side::Server);
            ws::close(code, reason, None, &mut out.bytes);
        }
    }

    /// After every input: a node that does not read is not waited for. What it is owed is said again
    /// in its next session.
    pub(super) fn settle(&mut self, unsent: u64, out: &mut SessionOut) {
        if unsent > OUT_MAX {
            self.close(ws::POLICY, "nothing is read", out);
        }
    }

    /// A deadline may have passed.
    pub(super) fn timer(&mut self, now: Now, out: &mut SessionOut) {
        if self.is_closed() || now.mono < self.deadline() {
            return;
        }
        if now.mono.since(self.heard) >= self.dead_after {
            return self.close(ws::GOING_AWAY, "silence", out);
        }
        self.asked = now.mono;
        ws::ping(b"", None, &mut out.bytes);
    }
}

fn error(code: &str, message: &str, out: &mut SessionOut) {
    say(&FromRelay::Error(ErrorOf::new(code, message)), out);
}

fn say(message: &FromRelay, out: &mut SessionOut) {
    ws::text(&message.text(), None, &mut out.bytes);
}
