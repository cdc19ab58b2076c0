//! Sockets between sites, with the latency, bandwidth and all the ways to fail that TCP links have.
//!
//! A live connection loses nothing and keeps order, however late its packets are; what a connection can
//! do is end early. Then the bytes that arrived are a prefix of the bytes written, and neither end knows
//! which. What is modelled:
//!
//! | of a kernel | how |
//! |---|---|
//! | connecting | SYN sent again after 1, 2, 4 s; refused by a host that does not listen; given up after 10 s |
//! | sending | a bounded send buffer, held until acknowledged; flights that share the link's bandwidth |
//! | receiving | a bounded window; a reader that does not read stops the writer |
//! | closing | FIN after what was written; RST when something was not read or still comes |
//! | loss | sent again after 0.2, 0.4, … s, and the writer is reset after 30 to 120 s without an ack |
//! | a dead process | its kernel closes its sockets |
//! | a dead host | nobody is told; whoever sends is reset once the host is up again |
//!
//! Contract with the world: [`Net::next`] says when to call [`Net::take`] again; `take` is called until
//! it gives nothing. After [`NetEvent::Ready`] the site reads until [`Got::Nothing`], or remembers that it
//! has not: there is no second event for bytes that were there before. Every socket is closed in the
//! end, also one that was reset. Time never goes back.

mod control;
mod dial;
mod faults;
mod link;
mod pipe;
#[cfg(test)]
mod tests;
mod topology;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use faults::NetFaults;
pub use link::{Contacts, LinkSpec};
pub use topology::Topology;

use self::dial::Attempt;
use self::link::Roads;
use self::wire::{Life, Wire};
use super::rng::Rng;
use super::seen::SiteIx;
use super::time::Micros;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sock(pub u64);

impl Sock {
    fn of(wire: u64, side: usize) -> Sock {
        Sock(wire * 2 + side as u64)
    }

    fn wire(self) -> u64 {
        self.0 / 2
    }

    fn side(self) -> usize {
        (self.0 % 2) as usize
    }

    /// The other end.
    #[must_use]
    pub fn other(self) -> Sock {
        Sock(self.0 ^ 1)
    }
}

/// Something for a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetEvent {
    /// A dial succeeded.
    Connected {
        /// Who dialled.
        site: SiteIx,
        /// Which dial.
        attempt: u64,
        /// Its end.
        sock: Sock,
    },
    /// A dial failed.
    DialFailed {
        /// Who dialled.
        site: SiteIx,
        /// Which dial.
        attempt: u64,
        /// As a kernel says it.
        why: &'static str,
    },
    /// Somebody has connected.
    Accepted {
        /// To whom.
        site: SiteIx,
        /// Who dialled.
        from: SiteIx,
        /// The end of `site`.
        sock: Sock,
    },
    /// Readable, writable again, at its end or reset: look at it.
    Ready {
        /// Whose.
        site: SiteIx,
        /// The socket.
        sock: Sock,
    },
}

impl NetEvent {
    /// Whom it is for.
    #[must_use]
    pub fn site(&self) -> SiteIx {
        match *self {
            NetEvent::Connected { site, .. }
            | NetEvent::DialFailed { site, .. }
            | NetEvent::Accepted { site, .. }
            | NetEvent::Ready { site, .. } => site,
        }
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// So many bytes were taken. Less than all: [`NetEvent::Ready`] comes once there is room.
    Took(usize),
    /// The connection is reset, or this end has been shut.
    Reset,
}

/// What a read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// Bytes, now in the buffer.
    Bytes,
    /// None at present.
    Nothing,
    /// None any more: the other end has shut.
    Eof,
    /// None any more: the connection is reset.
    Reset,
}

/// Something that happens in the network at a moment. A socket stands for the pipe that begins there.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A connect reaches the other host.
    Syn(u64),
    /// The other host's answer to a connect is back.
    Answer { attempt: u64, refused: bool },
    /// A connect fails.
    Fail { attempt: u64, why: &'static str },
    /// The front of a pipe's air is due.
    Arrive(Sock),
    /// A pipe's window opens.
    Launch(Sock),
    /// Acks reach a writer that waits for room.
    Wake(Sock),
    /// What was lost in a pipe is sent again, or given up.
    Retry(Sock),
    /// A reset reaches a socket.
    Rst(Sock),
    /// A clog of the weather is gone.
    Unclog(SiteIx, SiteIx),
}

/// What will happen, in order: by time, then in the order in which it was foreseen.
#[derive(Debug, Default)]
struct Agenda {
    entries: BTreeMap<(Micros, u64), Event>,
    foreseen: u64,
}

impl Agenda {
    fn push(&mut self, at: Micros, event: Event) {
        self.foreseen += 1;
        self.entries.insert((at, self.foreseen), event);
    }

    /// Foresees an event of which a pipe needs only the first.
    fn arm(&mut self, slot: &mut Option<Micros>, at: Micros, event: Event) {
        if slot.is_none_or(|armed| at < armed) {
            *slot = Some(at);
            self.push(at, event);
        }
    }

    fn next(&self) -> Option<Micros> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }
}

#[derive(Clone, Copy, Debug)]
struct Host {
    listens: bool,
    on: bool,
}

/// The network.
#[derive(Debug)]
pub struct Net {
    /// What goes wrong from now on. Connections that exist keep the fate they were born with.
    pub faults: NetFaults,
    rng: Rng,
    /// Chance of its own for what links do by themselves: calm weather leaves the rest as it is.
    weather_rng: Rng,
    hosts: Vec<Host>,
    roads: Roads,
    attempts: BTreeMap<u64, Attempt>,
    wires: BTreeMap<u64, Wire>,
    made: u64,
    agenda: Agenda,
    out: VecDeque<NetEvent>,
    weather_at: Micros,
}

impl Net {
    /// A perfect network between so many sites, each linked with each by [`LinkSpec::default`]; nobody
    /// listens.
    #[must_use]
    pub fn new(mut rng: Rng, sites: usize) -> Net {
        Net {
            faults: NetFaults::NONE,
            weather_rng: Rng::new(rng.next()),
            rng,
            hosts: vec![Host { listens: false, on: true }; sites],
            roads: Roads::new(sites),
            attempts: BTreeMap::new(),
            wires: BTreeMap::new(),
            made: 0,
            agenda: Agenda::default(),
            out: VecDeque::new(),
            weather_at: Micros::ZERO,
        }
    }

    /// What the link between two sites is like, for connections made from now on; latency and bandwidth
    /// for those that exist too.
    pub fn set_link(&mut self, a: SiteIx, b: SiteIx, spec: LinkSpec) {
        self.roads.both(a, b, |lane| lane.refit(spec));
    }

    /// A site's process listens, or does not. A host whose process listens has power.
    pub fn listen(&mut self, site: SiteIx, on: bool) {
        let host = &mut self.hosts[site];
        host.listens = on;
        host.on |= on;
    }

    /// Hands bytes to a socket.
    pub fn write(&mut self, now: Micros, sock: Sock, bytes: &[u8]) -> Written {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return Written::Reset };
        if !wire.may_write(sock.side()) {
            return Written::Reset;
        }
        let took = wire.pipes[sock.side()].write(now, bytes);
        if took > 0 {
            self.launch(now, sock);
        }
        if took < bytes.len() {
            self.arm_wake(sock);
        }
        Written::Took(took)
    }

    /// Appends at most `max` bytes to the buffer.
    pub fn read(&mut self, now: Micros, sock: Sock, buffer: &mut Vec<u8>, max: usize) -> Got {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return Got::Reset };
        let life = wire.ends[sock.side()];
        let from = sock.other();
        let granted = now.plus(self.roads.lane(wire.site(sock), wire.site(from)).delay(now));
        let pipe = &mut wire.pipes[from.side()];
        match life {
            Life::Pending | Life::Closed | Life::Gone => return Got::Reset,
            Life::Reset if pipe.readable() == 0 => return Got::Reset,
            Life::Open | Life::Reset => {}
        }
        if pipe.readable() == 0 {
            return if pipe.shut == pipe::Shut::Arrived { Got::Eof } else { Got::Nothing };
        }
        pipe.read(buffer, max, granted);
        if let Some(at) = pipe.next_launch() {
            self.agenda.arm(&mut pipe.launch_at, at, Event::Launch(from));
        }
        Got::Bytes
    }

    /// Ends the stream of a socket; what was written still goes out, and reading goes on.
    pub fn shut(&mut self, now: Micros, sock: Sock) {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return };
        if wire.may_write(sock.side()) {
            wire.pipes[sock.side()].shut = pipe::Shut::Asked;
            self.launch(now, sock);
        }
    }

    /// Lets a socket go. The other end sees the end of the stream after all that was written; or a
    /// reset, when something here was not read or more comes.
    pub fn close(&mut self, now: Micros, sock: Sock) {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return };
        match wire.ends[sock.side()] {
            Life::Open if wire.pipes[sock.other().side()].readable() > 0 => self.abort(now, sock),
            Life::Open => {
                self.shut(now, sock);
                self.end(sock, Life::Closed);
            }
            Life::Reset => self.end(sock, Life::Gone),
            Life::Pending | Life::Closed | Life::Gone => {}
        }
        self.tidy(sock.wire());
    }

    /// A site's process has died, and nobody dials, listens or is told anything there. Its kernel closes
    /// its sockets; or, when the power went, forgets them without a word, and the host is silent until
    /// a process listens there again.
    pub fn host_down(&mut self, now: Micros, site: SiteIx, power: bool) {
        let host = &mut self.hosts[site];
        (host.listens, host.on) = (false, host.on && !power);
        self.attempts.retain(|_, attempt| attempt.from != site);
        self.out.retain(|event| event.site() != site);
        let ends = |(id, wire): (&u64, &Wire)| {
            let sides = [0, 1].into_iter().filter(|side| wire.sites[*side] == site);
            sides.map(|side| Sock::of(*id, side)).collect::<Vec<_>>()
        };
        for sock in self.wires.iter().flat_map(ends).collect::<Vec<_>>() {
            if power {
                self.vanish(now, sock);
            } else {
                self.close(now, sock);
            }
        }
    }

    /// When something happens next.
    #[must_use]
    pub fn next(&self) -> Option<Micros> {
        if !self.out.is_empty() {
            return Some(Micros::ZERO);
        }
        let weather = self.faults.is_windy().then_some(self.weather_at);
        [self.agenda.next(), weather].into_iter().flatten().min()
    }

    /// The next thing that has happened by now, for a site.
    pub fn take(&mut self, now: Micros) -> Option<NetEvent> {
        loop {
            if let Some(event) = self.out.pop_front() {
                if self.is_stale(&event) {
                    continue;
                }
                return Some(event);
            }
            let next = self.agenda.next().filter(|at| *at <= now);
            if self.faults.is_windy() && self.weather_at <= next.unwrap_or(now) {
                self.weather(now);
                self.weather_at = now.after(Duration::from_secs(60));
                continue;
            }
            next?;
            let ((at, _), event) = self.agenda.entries.pop_first()?;
            self.happen(at, event);
        }
    }

    /// Whether the process has let go of the socket since.
    fn is_stale(&self, event: &NetEvent) -> bool {
        let NetEvent::Ready { sock, .. } = event else { return false };
        let life = self.wires.get(&sock.wire()).map(|wire| wire.ends[sock.side()]);
        !matches!(life, Some(Life::Open | Life::Reset))
    }

    /// Connections that some kernel still knows.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.wires.len()
    }

    fn happen(&mut self, now: Micros, event: Event) {
        match event {
            Event::Syn(attempt) => self.syn(now, attempt),
            Event::Answer { attempt, refused } => self.answer(now, attempt, refused),
            Event::Fail { attempt, why } => self.fail(attempt, why),
            Event::Arrive(sock) => self.arrive(now, sock),
            Event::Launch(sock) => self.window_opens(now, sock),
            Event::Wake(sock) => self.acks_come(now, sock),
            Event::Retry(sock) => self.retry(now, sock),
            Event::Rst(sock) => self.rst(now, sock),
            Event::Unclog(from, to) => self.resume(now, from, to),
        }
    }
}
