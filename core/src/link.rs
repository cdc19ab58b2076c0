//! One connection between socket and session, without either's I/O: the glue that every driver needs.
//!
//! ```text
//!             received, eof                      Bytes, Eof
//!   socket ───────────────▶ ┌──────┐ (TLS) ───────────────▶ ┌─────────┐
//!                           │ Link │     Room, Timer,       │ Session │
//!   socket ◀─────────────── └──────┘ ◀─── Command, Store    └─────────┘
//!             pending, sent    │ ▲
//!                              ▼ │ requests, events: first to the store, then to the node
//! ```
//!
//! Phases: *handshake* (TLS only, at most [`Timeouts::handshake`]) → *ready* (the peer's identity is
//! known, the driver attaches a session) → *open* → *closing* (what is owed is written, close_notify
//! last) → *lingering* (half-closed, reading to the end so that the peer gets all of it) → *over*.
//! Every phase but *ready* and *open* has a deadline of its own, and in *open* the session has.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::code::Goodbye;
use crate::handover::Handover;
use crate::sendbuf::SendBuffer;
use crate::session::{Identity, Session, SessionCommand, SessionInput, SessionOut};
use crate::store::StoreEvent;
use crate::time::{Instant, Now};
use crate::tls::{PickupTls, TlsConn, TlsFault, TlsSetup};

/// How much output a session is asked for at a time.
pub const OUTPUT_TARGET: usize = 256 << 10;
/// Bulk is asked for while less than this waits to be sent.
pub const OUTPUT_LOW: usize = OUTPUT_TARGET / 2;
/// Answers to what was read that may wait unsent: above it nothing more is read, so that a peer that
/// asks and never reads its answers costs no more than this.
pub const REPLIES_MAX: usize = 256 << 10;

/// Deadlines of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the connection's begin to the end of the TLS handshake.
    pub handshake: Duration,
    /// From a session's close to its last byte written.
    pub flush: Duration,
    /// From the half-close to the peer's end of stream.
    pub linger: Duration,
    /// For looking up an address and connecting to it.
    pub connect: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            handshake: Duration::from_secs(10),
            flush: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            connect: Duration::from_secs(10),
        }
    }
}

/// Why a connection ended otherwise than by its session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFault {
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsFault),
    /// The handshake took too long.
    #[error("no tls handshake within {0:?}")]
    Slow(Duration),
    /// The driver turned the peer away.
    #[error("{0}")]
    Refused(String),
    /// The socket failed.
    #[error("{0}")]
    Socket(String),
}

/// How a connection ended for its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The session closed it.
    Orderly,
    /// Something else did.
    Fault(LinkFault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Handshake { until: Instant },
    Ready,
    Open,
    Closing { until: Instant },
    Lingering { until: Instant },
    Over,
}

/// A connection's TLS, session and pending output.
///
/// A driver's round: inputs ([`Link::received`], [`Link::command`], …), then [`Link::fill`], then carry
/// out [`Link::out`], write [`Link::pending`], half-close if [`Link::wants_shutdown`], and wait for what
/// [`Link::wants_read`], [`Link::pending`] and [`Link::next_deadline`] name.
pub struct Link {
    tls: Option<Box<TlsConn>>,
    session: Option<Box<dyn Session>>,
    out: SessionOut,
    pending: SendBuffer,
    handover: Handover,
    phase: Phase,
    end: Option<End>,
    timeouts: Timeouts,
    /// At most so many of the pending bytes are answers to what was read.
    replies: usize,
    eof: bool,
    eof_told: bool,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("phase", &self.phase)
            .field("tls", &self.tls)
            .field("session", &self.session.is_some())
            .field("pending", &self.pending.len())
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// A connection without TLS: ready for its session at once.
    #[must_use]
    pub fn plain(timeouts: Timeouts) -> Link {
        Link {
            tls: None,
            session: None,
            out: SessionOut::default(),
            pending: SendBuffer::new(),
            handover: Handover::default(),
            phase: Phase::Ready,
            end: None,
            timeouts,
            replies: 0,
            eof: false,
            eof_told: false,
        }
    }

    /// The listening side of a TLS connection.
    #[must_use]
    pub fn server(setup: &TlsSetup, now: Now, timeouts: Timeouts) -> Link {
        Link::plain(timeouts).with_tls(now, |_| TlsConn::server(setup))
    }

    /// The listening side of a TLS connection with anybody ([`TlsConn::for_anybody`]).
    #[must_use]
    pub fn for_anybody(config: &PickupTls, now: Now, timeouts: Timeouts) -> Link {
        Link::plain(timeouts).with_tls(now, |_| TlsConn::for_anybody(config))
    }

    /// The dialling side of a TLS connection to the site `name`.
    #[must_use]
    pub fn client(setup: &TlsSetup, name: &str, now: Now, timeouts: Timeouts) -> Link {
        Link::plain(timeouts).with_tls(now, |out| TlsConn::client(setup, name, out))
    }

    fn with_tls(
        mut self,
        now: Now,
        make: impl FnOnce(&mut SendBuffer) -> Result<TlsConn, TlsFault>,
    ) -> Link {
        match make(&mut self.pending) {
            Ok(tls) => {
                self.tls = Some(Box::new(tls));
                self.phase = Phase::Handshake { until: now.mono.after(self.timeouts.handshake) };
            }
            Err(fault) => self.finish(End::Fault(fault.into())),
        }
        self
    }

    /// Who the peer is; `None` while that is not known, and without TLS.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.tls.as_ref().and_then(|tls| tls.identity())
    }

    /// Whether it waits for [`Link::attach`] or [`Link::refuse`].
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Gives it its session, which gets [`SessionInput::Open`] and whatever has arrived already.
    ///
    /// # Panics
    /// When it is not ready.
    pub fn attach(&mut self, now: Now, session: Box<dyn Session>) {
        assert!(self.is_ready(), "attached a session to {self:?}");
        self.phase = Phase::Open;
        self.session = Some(session);
        if let Some(tls) = &mut self.tls {
            tls.open();
        }
        self.step(now, SessionInput::Open);
        if self.tls.is_some() {
            self.received(now, &mut []);
        }
    }

    /// Turns the peer away; `why` is for this side's people.
    pub fn refuse(&mut self, now: Now, why: String) {
        self.fail(now, LinkFault::Refused(why));
    }

    /// Bytes arrived from the socket. They are decrypted in place.
    pub fn received(&mut self, now: Now, data: &mut [u8]) {
        match self.phase {
            Phase::Handshake { .. } | Phase::Ready | Phase::Open => {}
            Phase::Closing { .. } | Phase::Lingering { .. } | Phase::Over => return,
        }
        let before = self.queued();
        if self.tls.is_some() {
            self.received_tls(now, data);
        } else {
            self.step(now, SessionInput::Bytes(data));
        }
        self.replies = self.replies.saturating_add(self.queued().saturating_sub(before));
    }

    fn received_tls(&mut self, now: Now, data: &mut [u8]) {
        let Link { tls, session, out, pending, .. } = self;
        let Some(tls) = tls else { return };
        let mut plain = |bytes: &[u8]| match session {
            Some(session) if !out.close => session.step(now, SessionInput::Bytes(bytes), out),
            Some(_) | None => {}
        };
        if let Err(fault) = tls.receive(data, pending, &mut plain) {
            return self.fail(now, fault.into());
        }
        if !tls.is_handshaking() && matches!(self.phase, Phase::Handshake { .. }) {
            self.phase = Phase::Ready;
        }
        if tls.peer_closed() && self.phase == Phase::Open && !self.eof_told {
            self.eof_told = true;
            self.step(now, SessionInput::Eof);
        }
        self.settle(now);
    }

    /// The socket's stream has ended.
    pub fn eof(&mut self, now: Now) {
        self.eof = true;
        match self.phase {
            Phase::Handshake { .. } | Phase::Ready | Phase::Open => {}
            Phase::Closing { .. } | Phase::Over => return,
            Phase::Lingering { .. } => return self.phase = Phase::Over,
        }
        match self.tls.as_ref().map(|tls| tls.eof()) {
            Some(Err(fault)) => self.finish(End::Fault(fault.into())),
            Some(Ok(())) | None if self.eof_told => {}
            Some(Ok(())) | None => {
                self.eof_told = true;
                self.step(now, SessionInput::Eof);
            }
        }
    }

    /// The node's word.
    pub fn command(&mut self, now: Now, command: SessionCommand) {
        self.step(now, SessionInput::Command(command));
    }

    /// The store's answer.
    pub fn store_event(&mut self, now: Now, event: StoreEvent) {
        self.step(now, SessionInput::Store(event));
    }

    /// Time has passed; does nothing when no deadline has.
    pub fn timer(&mut self, now: Now) {
        // What the socket has taken by now is not late.
        self.tell_handed(now);
        let due = self.next_deadline().is_some_and(|at| at <= now.mono);
        match self.phase {
            _ if !due => {}
            Phase::Handshake { .. } => {
                self.finish(End::Fault(LinkFault::Slow(self.timeouts.handshake)));
            }
            Phase::Ready => {}
            Phase::Open => self.step(now, SessionInput::Timer),
            Phase::Closing { .. } | Phase::Lingering { .. } => self.phase = Phase::Over,
            Phase::Over => {}
        }
    }

    /// Asks the session for bulk if there is room, and encrypts everything that is to be sent. Returns
    /// whether there is more to send than before.
    pub fn fill(&mut self, now: Now) -> bool {
        self.tell_handed(now);
        let before = self.pending.len();
        let queued = self.queued();
        if queued <= OUTPUT_LOW {
            self.step(now, SessionInput::Room(OUTPUT_TARGET.saturating_sub(queued)));
        }
        self.seal(now);
        self.pending.len() > before
    }

    fn tell_handed(&mut self, now: Now) {
        if let Some(bytes) = self.handover.news() {
            self.step(now, SessionInput::Handed(bytes));
        }
    }

    /// Bytes for the socket, after [`Link::fill`].
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        self.pending.pending()
    }

    /// The socket took the first `n` of them.
    pub fn sent(&mut self, n: usize) {
        self.pending.sent(n);
        self.handover.sent(n);
        self.replies = self.replies.min(self.pending.len());
    }

    /// Whether the socket is to be shut down for writing now; tell it by [`Link::shut`].
    #[must_use]
    pub fn wants_shutdown(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. }) && self.pending.is_empty()
    }

    /// The socket has been shut down for writing.
    pub fn shut(&mut self, now: Now) {
        if matches!(self.phase, Phase::Closing { .. }) {
            self.phase = match self.eof {
                true => Phase::Over,
                false => Phase::Lingering { until: now.mono.after(self.timeouts.linger) },
            };
        }
    }

    /// The site is stopping: an open session is told to say goodbye, anything younger ends at once.
    pub fn stop(&mut self, now: Now) {
        match self.phase {
            Phase::Handshake { .. } | Phase::Ready => {
                self.finish(End::Fault(LinkFault::Refused("this site is stopping".into())));
            }
            Phase::Open => {
                let text = "this site is stopping".into();
                self.command(now, SessionCommand::Close { why: Goodbye::Stopping, text });
            }
            Phase::Closing { .. } | Phase::Lingering { .. } | Phase::Over => {}
        }
    }

    /// The socket failed; nothing can be sent or received any more.
    pub fn broken(&mut self, why: String) {
        self.finish(End::Fault(LinkFault::Socket(why)));
    }

    /// Whether to read from the socket.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        if self.eof {
            return false;
        }
        match self.phase {
            Phase::Handshake { .. } | Phase::Closing { .. } | Phase::Lingering { .. } => true,
            Phase::Ready | Phase::Over => false,
            Phase::Open => {
                !self.eof_told
                    && self.replies < REPLIES_MAX
                    && self.session.as_ref().is_some_and(|session| session.wants_read())
            }
        }
    }

    /// When to call [`Link::timer`] if nothing happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Handshake { until } | Phase::Closing { until } | Phase::Lingering { until } => {
                Some(until)
            }
            Phase::Open => self.session.as_ref().and_then(|session| session.next_deadline()),
            Phase::Ready | Phase::Over => None,
        }
    }

    /// How the connection ended for its session; known before the socket is done with.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Whether the socket can be dropped.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// What the session wants of store and node. Requests are to be carried out before events.
    pub fn out(&mut self) -> &mut SessionOut {
        &mut self.out
    }

    /// Gives back what memory is not needed while nothing happens.
    pub fn rest(&mut self) {
        self.pending.release();
        if self.out.is_empty() {
            self.out = SessionOut::default();
        }
        if let Some(tls) = &mut self.tls {
            tls.rest();
        }
    }

    fn queued(&self) -> usize {
        self.pending.len().saturating_add(self.out.said())
    }

    fn step(&mut self, now: Now, input: SessionInput<'_>) {
        if let (Phase::Open, Some(session)) = (self.phase, &mut self.session) {
            session.step(now, input, &mut self.out);
            self.settle(now);
        }
    }

    /// Closes if the session said so.
    fn settle(&mut self, now: Now) {
        if !self.out.close || self.phase != Phase::Open {
            return;
        }
        if self.out.cut {
            return self.finish(End::Orderly);
        }
        self.seal(now);
        if self.phase != Phase::Open {
            return;
        }
        self.out.close = false;
        let Link { tls, pending, .. } = self;
        let closed = tls.as_mut().map_or(Ok(()), |tls| tls.close(pending));
        self.session = None;
        self.end = Some(End::Orderly);
        self.phase = Phase::Closing { until: now.mono.after(self.timeouts.flush) };
        if closed.is_err() {
            self.phase = Phase::Over;
        }
    }

    /// Moves the session's bytes behind what waits, encrypted where there is TLS.
    fn seal(&mut self, now: Now) {
        if self.phase != Phase::Open || !self.out.says_anything() {
            return;
        }
        let plain = self.out.said() as u64;
        let Link { tls, out, pending, .. } = self;
        let sealed = match tls {
            None => {
                match out.content.is_empty() {
                    true => pending.adopt(&mut out.bytes),
                    false => out.pieces().for_each(|piece| pending.append(piece)),
                }
                Ok(())
            }
            Some(tls) => out.pieces().try_for_each(|piece| tls.send(piece, pending)),
        };
        out.clear_said();
        if let Err(fault) = sealed {
            return self.fail(now, fault.into());
        }
        self.handover.put(plain, self.pending.len());
    }

    /// Ends it for a fault that the peer should still hear of.
    fn fail(&mut self, now: Now, fault: LinkFault) {
        match self.phase {
            Phase::Handshake { .. } | Phase::Ready | Phase::Open => {}
            Phase::Closing { .. } | Phase::Lingering { .. } | Phase::Over => return,
        }
        if let (LinkFault::Refused(_), Some(tls)) = (&fault, &mut self.tls) {
            // Nothing depends on whether the peer can still be told.
            let _ = tls.close(&mut self.pending);
        }
        self.finish(End::Fault(fault));
        self.phase = Phase::Closing { until: now.mono.after(self.timeouts.linger) };
    }

    fn finish(&mut self, end: End) {
        self.session = None;
        self.out.clear_said();
        (self.out.close, self.out.cut) = (false, false);
        self.phase = Phase::Over;
        self.end.get_or_insert(end);
    }
}
