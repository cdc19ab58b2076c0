//! One connection of a process: the core's `Conn` on a simulated socket, driven as the runtimes do.

use std::collections::VecDeque;

use consign_core::conn::{Conn, Outlet};
use consign_core::id::{ConnId, Epoch, SegmentId, TransferNo};
use consign_core::node::{Input, Note};
use consign_core::pickup::{Answer, Event, FetchEnd};
use consign_core::session::{Promise, SessionCommand, SessionEvent};
use consign_core::store::{StoreEvent, StoreRequest};
use consign_core::time::Now;
use consign_core::wire::{self, Frame, Offer};

use super::net::{Got, Net, Sock, Written};
use super::rng::Rng;
use super::seen::{Seen, SiteIx};
use super::store::SimStore;
use super::time::Micros;
use super::watch::Watch;

/// What one read takes at most.
const READ_MAX: usize = 64 << 10;
/// Rounds of filling and writing before the socket is looked at for input again.
const WRITE_ROUNDS: usize = 8;

/// Something for a connection from its own site.
#[derive(Debug)]
pub enum Mail {
    /// The node's word.
    Command(SessionCommand),
    /// The store's answer.
    Store(StoreEvent),
}

/// Whom a connection is with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// Another site.
    Peers,
    /// A client or a node on the quay, with bytes of its own.
    Quay,
}

/// What a connection works with.
pub struct Around<'a> {
    /// True time.
    pub at: Micros,
    /// The site's clocks.
    pub now: Now,
    /// The site.
    pub site: SiteIx,
    /// The sockets.
    pub net: &'a mut Net,
    /// Those of the quay.
    pub quay: &'a mut Net,
    /// The site's store.
    pub store: &'a mut SimStore,
    /// The node's inbox.
    pub inbox: &'a mut VecDeque<Input>,
    /// Whoever watches.
    pub watch: &'a mut Watch,
    /// The site's chance.
    pub rng: &'a mut Rng,
    /// Foreign frames per million frames sent.
    pub forged: u32,
    /// Panics per million rounds.
    pub panics: u32,
    /// Threads that get no turn for a while, per million wake-ups.
    pub starved: u32,
}

impl Around<'_> {
    fn net(&mut self, port: Port) -> &mut Net {
        match port {
            Port::Peers => self.net,
            Port::Quay => self.quay,
        }
    }

    /// When a thread that is woken now gets its turn.
    pub fn soon(&mut self) -> Micros {
        let late = if self.rng.chance(self.starved) { 100_000 } else { 30 };
        self.at.plus(self.rng.below(late))
    }
}

impl Around<'_> {
    /// A session is told to send the content of a shard.
    pub fn is_served(&mut self, conn: ConnId, command: &SessionCommand) {
        if let SessionCommand::Promised(promised) = command
            && let Promise::Pickup(answer) = promised.clone().into_inner()
            && let Answer::Serve { serve, .. } = *answer
        {
            let redemption = serve.redemption;
            self.watch.see(self.at, self.site, &Seen::Serving { conn, redemption });
        }
    }

    /// A session says that such a content is sent, or will not be.
    fn is_over(&mut self, input: &Input) {
        let (conn, end) = match input {
            Input::Closed { conn, .. } => (*conn, None),
            Input::Session(conn, SessionEvent::Pickup(event)) => match &**event {
                Event::FetchEnded { redemption, end } => {
                    (*conn, Some((*redemption, *end == FetchEnd::Whole)))
                }
                _ => return,
            },
            _ => return,
        };
        self.watch.see(self.at, self.site, &Seen::FetchOver { conn, end });
    }
}

impl Outlet for Around<'_> {
    fn request(&mut self, conn: ConnId, request: StoreRequest) {
        self.store.request(self.at, conn, request);
    }

    fn ended(&mut self, conn: ConnId) {
        self.store.conn_ended(self.at, conn);
    }

    fn node(&mut self, input: Input) {
        self.is_over(&input);
        self.inbox.push_back(input);
    }

    fn note(&mut self, note: Note) {
        self.watch.see(self.at, self.site, &Seen::Note(&note));
    }
}

/// A connection to a peer.
#[derive(Debug)]
pub struct Wire {
    conn: Conn,
    sock: Sock,
    port: Port,
    peer: SiteIx,
    mail: VecDeque<Mail>,
    readable: bool,
    writable: bool,
    sent: Tap,
    arrived: Tap,
    forger: Forger,
    buffer: Vec<u8>,
    /// When its thread wants to run: at once after mail, at its deadline otherwise.
    pub wake: Micros,
}

impl Wire {
    /// A connection on a socket.
    #[must_use]
    pub fn new(conn: Conn, sock: Sock, peer: SiteIx, wake: Micros) -> Wire {
        Wire {
            conn,
            sock,
            port: Port::Peers,
            peer,
            mail: VecDeque::new(),
            readable: true,
            writable: true,
            sent: Tap::default(),
            arrived: Tap::default(),
            forger: Forger::default(),
            buffer: Vec::new(),
            wake,
        }
    }

    /// The same with somebody on the quay: what is said there are no frames.
    #[must_use]
    pub fn quay(conn: Conn, sock: Sock, wake: Micros) -> Wire {
        Wire { port: Port::Quay, ..Wire::new(conn, sock, 0, wake) }
    }

    /// The socket, and where.
    #[must_use]
    pub fn sock(&self) -> (Port, Sock) {
        (self.port, self.sock)
    }

    /// Puts something into its mailbox.
    pub fn post(&mut self, mail: Mail) {
        self.mail.push_back(mail);
    }

    /// The socket has changed.
    pub fn ready(&mut self) {
        self.readable = true;
        self.writable = true;
    }

    /// The site is stopping.
    pub fn stop(&mut self, now: Now) {
        self.conn.link().stop(now);
    }

    /// Cuts the connection from this side.
    pub fn break_off(&mut self, why: &str) {
        self.conn.link().broken(why.to_string());
    }

    /// Runs its thread until it has to wait; whether the connection is over.
    pub fn run(&mut self, around: &mut Around<'_>) -> bool {
        let now = around.now;
        if around.rng.chance(around.panics) {
            self.break_off("the session panicked");
        }
        loop {
            for mail in self.mail.drain(..) {
                match mail {
                    Mail::Command(command) => self.conn.link().command(now, command),
                    Mail::Store(event) => self.conn.link().store_event(now, event),
                }
            }
            self.conn.link().timer(now);
            self.conn.deliver(now, around);
            if self.readable && self.conn.link().wants_read() {
                self.read(around);
                self.conn.deliver(now, around);
            }
            let more = self.write(around);
            self.conn.deliver(now, around);
            if self.conn.link().wants_shutdown() {
                let at = around.at;
                around.net(self.port).shut(at, self.sock);
                self.conn.link().shut(now);
            }
            if self.conn.link().is_over() {
                self.conn.deliver(now, around);
                let at = around.at;
                around.net(self.port).close(at, self.sock);
                return true;
            }
            let busy = more || (self.readable && self.conn.link().wants_read());
            if !busy {
                self.conn.link().rest();
                return false;
            }
        }
    }

    /// When its session or link wants to be woken by its clock.
    #[must_use]
    pub fn deadline(&self) -> Option<consign_core::time::Instant> {
        self.conn.next_deadline()
    }

    fn read(&mut self, around: &mut Around<'_>) {
        self.buffer.clear();
        let at = around.at;
        match around.net(self.port).read(at, self.sock, &mut self.buffer, READ_MAX) {
            Got::Bytes => {
                if around.watch.taps && self.port == Port::Peers {
                    let id = self.conn.id();
                    let (at, site, peer) = (around.at, around.site, self.peer);
                    let Around { watch, rng, forged, .. } = around;
                    let forger = &mut self.forger;
                    self.arrived.take(&self.buffer, |frame, _| {
                        watch.see(at, site, &Seen::FrameArrived { peer, conn: id, frame });
                        if let Frame::Offer(offer, _) = frame
                            && rng.chance(*forged)
                        {
                            forger.offered(offer, rng);
                        }
                    });
                }
                self.conn.link().received(around.now, &mut self.buffer);
            }
            Got::Nothing => self.readable = false,
            Got::Eof => self.conn.link().eof(around.now),
            Got::Reset => self.conn.link().broken("connection reset".to_string()),
        }
    }

    /// Fills and writes until there is nothing more or the socket takes no more; whether it stopped
    /// for another reason.
    fn write(&mut self, around: &mut Around<'_>) -> bool {
        for _ in 0..WRITE_ROUNDS {
            self.conn.link().fill(around.now);
            if !self.writable || !self.slip(around) || self.conn.link().pending().is_empty() {
                return false;
            }
            let pending = self.conn.link().pending();
            let at = around.at;
            match around.net(self.port).write(at, self.sock, pending) {
                Written::Took(n) => {
                    self.writable = n == pending.len();
                    self.tell_sent(n, around);
                    self.conn.link().sent(n);
                }
                Written::Reset => self.conn.link().broken("connection reset".to_string()),
            }
        }
        true
    }

    /// Shows the frames among the first `n` pending bytes.
    fn tell_sent(&mut self, n: usize, around: &mut Around<'_>) {
        if !around.watch.taps {
            return;
        }
        let id = self.conn.id();
        let pending = self.conn.link().pending();
        let bytes = pending.get(..n).unwrap_or_default();
        around.watch.hash.bytes(bytes);
        if self.port == Port::Quay {
            return;
        }
        let (at, site, peer) = (around.at, around.site, self.peer);
        let Around { watch, rng, forged, .. } = around;
        let forger = &mut self.forger;
        self.sent.take(bytes, |frame, raw| {
            watch.see(at, site, &Seen::FrameSent { peer, conn: id, frame });
            if *forged > 0 {
                forger.sent(frame, raw, rng.chance(*forged));
            }
        });
    }

    /// Writes what was forged, between two frames of the session; whether the socket can take more.
    fn slip(&mut self, around: &mut Around<'_>) -> bool {
        if self.forger.slipped.is_empty() || !self.sent.between_frames() {
            return true;
        }
        let at = around.at;
        match around.net(self.port).write(at, self.sock, &self.forger.slipped) {
            Written::Took(n) => {
                self.forger.slipped.drain(..n);
            }
            Written::Reset => self.forger.slipped.clear(),
        }
        self.writable = self.forger.slipped.is_empty();
        self.forger.slipped.is_empty()
    }
}

/// What foreign frames are made of.
#[derive(Debug, Default)]
struct Forger {
    /// Waits to be written between two frames of the session.
    slipped: Vec<u8>,
    /// An earlier answer, to be doubled.
    kept: Vec<u8>,
    /// The epoch that the other side's offers belong to.
    epoch: Option<Epoch>,
}

impl Forger {
    /// A frame of the session was sent: an earlier answer may follow it once more.
    fn sent(&mut self, frame: &Frame<'_>, raw: &[u8], now: bool) {
        if now && self.slipped.is_empty() {
            self.slipped.append(&mut self.kept);
        }
        if let Frame::Ack { epoch, .. } = frame {
            self.epoch = Some(*epoch);
        }
        let answer =
            matches!(frame, Frame::Ack { .. } | Frame::Reject { .. } | Frame::Credit { .. });
        if answer && self.kept.is_empty() {
            self.kept.extend_from_slice(raw);
        }
    }

    /// An offer has arrived: an answer no honest session would give may come first. For another
    /// segment, of another epoch, for a transfer that never was; never one that would be true if it
    /// were honest, since no sender can tell that from the truth.
    fn offered(&mut self, offer: &Offer, rng: &mut Rng) {
        if !self.slipped.is_empty() {
            return;
        }
        let (mut transfer, mut id) = (offer.transfer, offer.id);
        let stale = Epoch { boot: u64::MAX, session: 1 };
        let epoch = match (rng.below(3), self.epoch) {
            (0, _) | (_, None) => stale,
            (1, Some(epoch)) => {
                id = SegmentId([0xee; 32]);
                epoch
            }
            (_, Some(epoch)) => {
                transfer = TransferNo(transfer.0.wrapping_add(1_000_000).max(1));
                epoch
            }
        };
        wire::encode(&Frame::Ack { transfer, id, epoch }, &mut self.slipped);
    }
}

/// Cuts a stream into frames for those who watch.
#[derive(Debug, Default)]
struct Tap {
    partial: Vec<u8>,
    /// The stream makes no sense any more: it is not looked at.
    lost: bool,
}

impl Tap {
    fn between_frames(&self) -> bool {
        self.partial.is_empty() && !self.lost
    }

    fn take(&mut self, bytes: &[u8], mut see: impl FnMut(&Frame<'_>, &[u8])) {
        if self.lost {
            return;
        }
        if self.partial.is_empty() {
            let used = self.frames(bytes, &mut see);
            self.partial.extend_from_slice(bytes.get(used..).unwrap_or_default());
        } else {
            self.partial.extend_from_slice(bytes);
            let whole = std::mem::take(&mut self.partial);
            let used = self.frames(&whole, &mut see);
            self.partial.extend_from_slice(whole.get(used..).unwrap_or_default());
        }
    }

    fn frames(&mut self, bytes: &[u8], see: &mut dyn FnMut(&Frame<'_>, &[u8])) -> usize {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            match wire::decode(rest) {
                Ok(Some((used, frame))) => {
                    see(&frame, rest.get(..used).unwrap_or_default());
                    at += used;
                }
                Ok(None) => return at,
                Err(_) => {
                    self.lost = true;
                    return bytes.len();
                }
            }
        }
    }
}
