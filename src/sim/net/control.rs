//! What a scenario or the swarm does to links, and what links do by themselves.

use super::faults::Fate;
use super::link::{Contacts, Span};
use super::{Event, Net, NetFaults, Sock};
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

const MINUTE: u64 = 60_000_000;
const SECOND: u64 = 1_000_000;

impl Net {
    /// Both directions of a link are down until [`Net::restore`]: what arrives is lost.
    pub fn cut(&mut self, _now: Micros, a: SiteIx, b: SiteIx) {
        self.roads.both(a, b, |lane| lane.cut = true);
    }

    /// One direction of a link is down until [`Net::restore`].
    pub fn one_way(&mut self, _now: Micros, from: SiteIx, to: SiteIx) {
        self.roads.lane_mut(from, to).cut = true;
    }

    /// Both directions of a link are up again. What was lost is sent again when its kernel tries next.
    pub fn restore(&mut self, _now: Micros, a: SiteIx, b: SiteIx) {
        self.roads.both(a, b, |lane| (lane.cut, lane.cut_span) = (false, Span::default()));
    }

    /// Nothing crosses a link until [`Net::unclog`]; then what was held up comes out at once.
    pub fn clog(&mut self, _now: Micros, a: SiteIx, b: SiteIx) {
        self.roads.both(a, b, |lane| lane.clogged = true);
    }

    /// A clog is gone.
    pub fn unclog(&mut self, now: Micros, a: SiteIx, b: SiteIx) {
        self.roads.both(a, b, |lane| (lane.clogged, lane.clog_span) = (false, Span::default()));
        self.resume(now, a, b);
    }

    /// A link is up during contacts only; always, with `None`.
    pub fn contacts(&mut self, a: SiteIx, b: SiteIx, contacts: Option<Contacts>) {
        self.roads.both(a, b, |lane| lane.contacts = contacts);
    }

    /// Once `bytes` more bytes from this end have arrived, both ends are reset.
    pub fn reset_after(&mut self, sock: Sock, bytes: u64) {
        self.doom(sock, Fate::Reset, bytes);
    }

    /// Once `bytes` more bytes from this end have arrived, nothing crosses any more in either direction.
    pub fn silence_after(&mut self, sock: Sock, bytes: u64) {
        self.doom(sock, Fate::Silence, bytes);
    }

    /// From now on, what this end writes crosses at one byte a second.
    pub fn drip(&mut self, sock: Sock) {
        if let Some(wire) = self.wires.get_mut(&sock.wire()) {
            wire.pipes[sock.side()].drip = true;
        }
    }

    fn doom(&mut self, sock: Sock, fate: Fate, bytes: u64) {
        if let Some(wire) = self.wires.get_mut(&sock.wire()) {
            let pipe = &mut wire.pipes[sock.side()];
            pipe.fate = Some((fate, pipe.carried.saturating_add(bytes)));
        }
    }

    /// No faults from now on, every link is up, what was held up or lost goes on at once, and no
    /// connection is slow or doomed. Contacts stay, and so does what has happened: a silent connection
    /// is silent, a reset one is reset, a host without power has none.
    pub fn heal(&mut self, now: Micros) {
        self.faults = NetFaults::NONE;
        for (a, b) in self.roads.pairs() {
            self.roads.both(a, b, |lane| lane.heal());
            self.resume(now, a, b);
        }
        for id in self.wires.keys().copied().collect::<Vec<_>>() {
            for sock in [Sock::of(id, 0), Sock::of(id, 1)] {
                let Some(wire) = self.wires.get_mut(&id) else { break };
                let pipe = &mut wire.pipes[sock.side()];
                (pipe.fate, pipe.drip) = (None, false);
                self.launch(now, sock);
            }
        }
    }

    /// Decides what links do in the minute that begins now.
    pub(super) fn weather(&mut self, now: Micros) {
        for (a, b) in self.roads.pairs() {
            if self.weather_rng.chance(self.faults.cuts) {
                self.draw_cut(now, a, b);
            }
            if self.weather_rng.chance(self.faults.bursts) {
                let span = self.draw_span(now, 60);
                let extra = self.weather_rng.between(SECOND / 10, 10 * SECOND);
                self.roads.both(a, b, |lane| lane.burst = (span, extra));
            }
        }
        if self.weather_rng.chance(self.faults.clogs) {
            self.swizzle(now);
        }
    }

    /// Begins within this minute and lasts 1 to `most` seconds.
    fn draw_span(&mut self, now: Micros, most: u64) -> Span {
        let from = now.plus(self.weather_rng.below(MINUTE));
        Span { from, until: from.plus(self.weather_rng.between(SECOND, most * SECOND)) }
    }

    fn draw_cut(&mut self, now: Micros, a: SiteIx, b: SiteIx) {
        let span = self.draw_span(now, 120);
        let ways: &[(SiteIx, SiteIx)] = match self.weather_rng.below(3) {
            0 => &[(a, b)],
            1 => &[(b, a)],
            _ => &[(a, b), (b, a)],
        };
        for (from, to) in ways {
            self.roads.lane_mut(*from, *to).cut_span = span;
        }
    }

    /// Clogs a random half of the links one by one, and unclogs them in an order of its own.
    fn swizzle(&mut self, now: Micros) {
        for (a, b) in self.roads.pairs() {
            if self.weather_rng.chance(500_000) && self.roads.lane(a, b).clog_span.until <= now {
                let from = now.plus(self.weather_rng.below(10 * SECOND));
                let until = now.plus(self.weather_rng.between(10 * SECOND, 70 * SECOND));
                self.roads.both(a, b, |lane| lane.clog_span = Span { from, until });
                self.agenda.push(until, Event::Unclog(a, b));
            }
        }
    }
}
