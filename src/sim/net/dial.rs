//! Connecting: SYN, answer, and the ways in which neither comes.

use std::time::Duration;

use super::wire::{Life, Wire};
use super::{Event, Net, NetEvent, Sock};
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// After so long a connect is given up.
const CONNECT: Duration = Duration::from_secs(10);
/// A connect without an answer is sent again after 1 s, then 2 s later, then 4 s later.
const SYN_WAIT: Duration = Duration::from_secs(1);

/// A connect under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub from: SiteIx,
    to: SiteIx,
    /// Until it is sent once more.
    wait: Duration,
}

impl Net {
    /// Connects to a site. Ends in [`NetEvent::Connected`] or [`NetEvent::DialFailed`] with the number
    /// returned here, unless the process dies before.
    pub fn dial(&mut self, now: Micros, from: SiteIx, to: SiteIx) -> u64 {
        self.made += 1;
        let attempt = self.made;
        self.attempts.insert(attempt, Attempt { from, to, wait: SYN_WAIT });
        let there = self.roads.lane(from, to).delay(now);
        let back = self.roads.lane(to, from).delay(now);
        if self.rng.chance(self.faults.unroutable) {
            self.agenda.push(now.plus(1), Event::Fail { attempt, why: "no route to host" });
            return attempt;
        }
        if self.rng.chance(self.faults.refused) {
            let at = now.plus(there + back);
            self.agenda.push(at, Event::Answer { attempt, refused: true });
        } else if !self.rng.chance(self.faults.unanswered) {
            self.agenda.push(now.plus(there), Event::Syn(attempt));
        }
        self.agenda.push(now.after(CONNECT), Event::Fail { attempt, why: "timed out" });
        attempt
    }

    pub(super) fn syn(&mut self, now: Micros, attempt: u64) {
        let Some(Attempt { from, to, .. }) = self.attempts.get(&attempt).copied() else { return };
        let host = self.hosts[to];
        if !host.on || !self.roads.is_open(now, from, to) {
            return self.syn_again(now, attempt);
        }
        let back = now.plus(self.roads.lane(to, from).delay(now));
        self.agenda.push(back, Event::Answer { attempt, refused: !host.listens });
    }

    fn syn_again(&mut self, now: Micros, attempt: u64) {
        if let Some(entry) = self.attempts.get_mut(&attempt) {
            self.agenda.push(now.after(entry.wait), Event::Syn(attempt));
            entry.wait *= 2;
        }
    }

    pub(super) fn answer(&mut self, now: Micros, attempt: u64, refused: bool) {
        let Some(Attempt { from, to, .. }) = self.attempts.get(&attempt).copied() else { return };
        if !self.roads.is_open(now, to, from) {
            return self.syn_again(now, attempt);
        }
        if refused {
            return self.fail(attempt, "connection refused");
        }
        self.attempts.remove(&attempt);
        self.made += 1;
        let id = self.made;
        let mut wire = Wire::new([from, to], &self.roads);
        for pipe in &mut wire.pipes {
            pipe.fate = self.faults.fate(&mut self.rng);
            pipe.drip = self.rng.chance(self.faults.drips);
        }
        if !self.hosts[to].on {
            // The power went while the answer was on its way.
            wire.ends[1] = Life::Gone;
        }
        self.wires.insert(id, wire);
        let sock = Sock::of(id, 0);
        self.out.push_back(NetEvent::Connected { site: from, attempt, sock });
        self.greet(now, sock);
    }

    pub(super) fn fail(&mut self, attempt: u64, why: &'static str) {
        if let Some(Attempt { from: site, .. }) = self.attempts.remove(&attempt) {
            self.out.push_back(NetEvent::DialFailed { site, attempt, why });
        }
    }
}
