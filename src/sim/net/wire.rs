//! Connections: what arrives, what is lost, and how each end comes to know.

use std::time::Duration;

use super::faults::Fate;
use super::link::Roads;
use super::pipe::{Cargo, Launch, Pipe, Retry, Shut};
use super::{Event, Net, NetEvent, Sock};
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// What was lost is first sent again after so long.
const RETRY: Duration = Duration::from_millis(200);
/// The waits double up to this: below [`GIVE_UP_MIN`], so that a probe comes before the end.
const RETRY_MAX: u64 = 25_000_000;
/// The least for [`Net::GIVE_UP`].
const GIVE_UP_MIN: Duration = Duration::from_secs(30);

/// What a kernel knows of its end of a connection.
///
/// ```text
///   Pending ── hello arrives ─▶ Open ── close ─▶ Closed ── fin arrived, other end done ─▶ (removed)
///      │                         │ rst, given up    │ rst, given up, more data comes
///      ▼                         ▼                  ▼
///     Gone ◀───── close ────── Reset               Gone
/// ```
/// An open end that is closed with something unread, and every end when the power goes, is Gone at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Connected, but the process has not heard of it.
    Pending,
    Open,
    /// The process has let go of it; the kernel still sends what was written.
    Closed,
    /// The connection is over, and the process has not let go of it.
    Reset,
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub sites: [SiteIx; 2],
    pub ends: [Life; 2],
    /// The pipe that begins at each end.
    pub pipes: [Pipe; 2],
    /// Nothing crosses any more, in either direction.
    pub silent: bool,
}

impl Wire {
    pub fn new(sites: [SiteIx; 2], roads: &Roads) -> Wire {
        let spec = &roads.lane(sites[0], sites[1]).spec;
        Wire {
            sites,
            ends: [Life::Open, Life::Pending],
            pipes: [Pipe::new(spec), Pipe::new(spec)],
            silent: false,
        }
    }

    pub fn site(&self, sock: Sock) -> SiteIx {
        self.sites[sock.side()]
    }

    pub fn may_write(&self, side: usize) -> bool {
        self.ends[side] == Life::Open && self.pipes[side].shut == Shut::Not
    }

    /// Whether what leaves `from` now, or arrives from there now, gets through.
    fn passes(&self, now: Micros, roads: &Roads, from: Sock) -> bool {
        !self.silent && roads.is_open(now, self.site(from), self.site(from.other()))
    }

    fn is_done(&self, side: usize) -> bool {
        match self.ends[side] {
            Life::Gone => true,
            Life::Closed => self.pipes[side].shut == Shut::Arrived,
            // The hello never comes.
            Life::Pending => self.pipes[1 - side].front().is_none(),
            Life::Open | Life::Reset => false,
        }
    }
}

impl Net {
    /// A kernel that has something to send and hears nothing resets its end after 30 s to this long.
    pub const GIVE_UP: Duration = Duration::from_secs(120);

    /// Lets a pipe send, and foresees what comes of it.
    fn send(&mut self, now: Micros, sock: Sock, how: fn(&mut Pipe, Launch<'_>)) {
        let Net { wires, roads, agenda, rng, faults, .. } = self;
        let Some(wire) = wires.get_mut(&sock.wire()) else { return };
        let lane = roads.lane_mut(wire.site(sock), wire.site(sock.other()));
        let pipe = &mut wire.pipes[sock.side()];
        how(pipe, Launch { now, lane, losses: faults.losses, rng });
        if !pipe.stalled
            && let Some(flight) = pipe.front()
        {
            agenda.arm(&mut pipe.arrive_at, flight.due, Event::Arrive(sock));
        }
        if let Some(at) = pipe.next_launch() {
            agenda.arm(&mut pipe.launch_at, at, Event::Launch(sock));
        }
        if pipe.is_choked() {
            // Somebody has to find out whether the reader that keeps the window shut still exists.
            self.arm_retry(now, sock);
        }
    }

    pub(super) fn launch(&mut self, now: Micros, sock: Sock) {
        self.send(now, sock, Pipe::launch);
    }

    /// Sends the last step of connecting.
    pub(super) fn greet(&mut self, now: Micros, sock: Sock) {
        self.send(now, sock, Pipe::launch_hello);
    }

    /// Foresees the next news for a writer that waits for room.
    pub(super) fn arm_wake(&mut self, sock: Sock) {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return };
        let pipe = &mut wire.pipes[sock.side()];
        if pipe.blocked
            && let Some(at) = pipe.next_ack()
        {
            self.agenda.arm(&mut pipe.wake_at, at, Event::Wake(sock));
        }
    }

    fn ready(&mut self, site: SiteIx, sock: Sock) {
        let event = NetEvent::Ready { site, sock };
        if self.out.back() != Some(&event) {
            self.out.push_back(event);
        }
    }

    pub(super) fn window_opens(&mut self, now: Micros, sock: Sock) {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return };
        let pipe = &mut wire.pipes[sock.side()];
        if pipe.launch_at == Some(now) {
            pipe.launch_at = None;
            self.launch(now, sock);
        }
    }

    pub(super) fn acks_come(&mut self, now: Micros, sock: Sock) {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return };
        let site = wire.site(sock);
        let pipe = &mut wire.pipes[sock.side()];
        if pipe.wake_at != Some(now) {
            return;
        }
        pipe.wake_at = None;
        if pipe.blocked && pipe.has_ample_room(now) {
            pipe.blocked = false;
            self.ready(site, sock);
        }
        self.arm_wake(sock);
    }

    /// Takes in what is due at the far end of the pipe that begins at `from`.
    pub(super) fn arrive(&mut self, now: Micros, from: Sock) {
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        if wire.pipes[from.side()].arrive_at.is_some_and(|at| at <= now) {
            wire.pipes[from.side()].arrive_at = None;
        }
        while let Some(wire) = self.wires.get_mut(&from.wire()) {
            let pipe = &mut wire.pipes[from.side()];
            let Some(flight) = pipe.front().filter(|f| f.due <= now && !pipe.stalled) else {
                break;
            };
            let to = wire.site(from.other());
            if !wire.passes(now, &self.roads, from) || !self.hosts[to].on {
                return self.stall(now, from);
            }
            self.deliver(now, from, flight.cargo);
        }
        self.launch(now, from);
    }

    /// The front of a pipe's air has reached the other host.
    fn deliver(&mut self, now: Micros, from: Sock, cargo: Cargo) {
        let to = from.other();
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        let (site, dialler) = (wire.site(to), wire.site(from));
        let pipe = &mut wire.pipes[from.side()];
        match (wire.ends[to.side()], cargo) {
            (Life::Pending, Cargo::Hello) if self.hosts[site].listens => {
                pipe.land_mark();
                wire.ends[to.side()] = Life::Open;
                self.out.push_back(NetEvent::Accepted { site, from: dialler, sock: to });
            }
            (Life::Open, Cargo::Bytes(n)) => return self.deliver_bytes(now, from, n),
            (Life::Open | Life::Closed, Cargo::Fin) => {
                pipe.land_mark();
                pipe.shut = Shut::Arrived;
                if wire.ends[to.side()] == Life::Open {
                    self.ready(site, to);
                }
            }
            (Life::Pending | Life::Closed, _) => {
                self.abort(now, to);
                return self.stall(now, from);
            }
            (Life::Reset | Life::Gone, _) => {
                self.send_rst(now, from);
                return self.stall(now, from);
            }
            (Life::Open, Cargo::Hello) => pipe.land_mark(),
        }
        self.acknowledge(now, from, 0);
        self.tidy(from.wire());
    }

    fn deliver_bytes(&mut self, now: Micros, from: Sock, arriving: usize) {
        let to = from.other();
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        let site = wire.site(to);
        let pipe = &mut wire.pipes[from.side()];
        let before = pipe.fate.map_or(u64::MAX, |(_, at)| at.saturating_sub(pipe.carried));
        let n = arriving.min(usize::try_from(before).unwrap_or(usize::MAX));
        if n > 0 {
            pipe.land(n);
            self.ready(site, to);
            self.acknowledge(now, from, n);
        }
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        let pipe = &mut wire.pipes[from.side()];
        let Some((fate, _)) = pipe.fate.filter(|(_, at)| *at <= pipe.carried) else { return };
        pipe.fate = None;
        match fate {
            // Whoever resets it is between the two: both hear of it.
            Fate::Reset => {
                self.reset(to);
                self.send_rst(now, from);
            }
            Fate::Silence => wire.silent = true,
        }
    }

    /// What arrived from `from` is acknowledged; or the ack is lost, and the writer tries again.
    fn acknowledge(&mut self, now: Micros, from: Sock, n: usize) {
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        let passes = wire.passes(now, &self.roads, from.other());
        let back = self.roads.lane(wire.site(from.other()), wire.site(from)).delay(now);
        let pipe = &mut wire.pipes[from.side()];
        if passes {
            pipe.acked(now.plus(back), n);
            pipe.retry = None;
            self.arm_wake(from);
        } else if n > 0 {
            pipe.lost_acks += n;
            self.arm_retry(now, from);
        }
    }

    fn stall(&mut self, now: Micros, from: Sock) {
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        if wire.ends[from.side()] == Life::Gone {
            // Nobody is left to send it again.
            wire.pipes[from.side()].drop_flying();
            return self.tidy(from.wire());
        }
        wire.pipes[from.side()].stalled = true;
        self.arm_retry(now, from);
    }

    fn arm_retry(&mut self, now: Micros, from: Sock) {
        self.arm_retry_after(now, from, RETRY.as_micros() as u64);
    }

    fn arm_retry_after(&mut self, now: Micros, from: Sock, wait: u64) {
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        let pipe = &mut wire.pipes[from.side()];
        if pipe.retry.is_none() {
            let spread = (Net::GIVE_UP - GIVE_UP_MIN).as_micros() as u64;
            let until = now.after(GIVE_UP_MIN).plus(self.rng.below(spread + 1));
            let next = now.plus(wait);
            pipe.retry = Some(Retry { next, wait, until });
            self.agenda.push(next, Event::Retry(from));
        }
    }

    pub(super) fn retry(&mut self, now: Micros, from: Sock) {
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        let (there, back) =
            (wire.passes(now, &self.roads, from), wire.passes(now, &self.roads, from.other()));
        let (stranger, host) = (
            matches!(wire.ends[from.other().side()], Life::Reset | Life::Gone),
            wire.site(from.other()),
        );
        let pipe = &mut wire.pipes[from.side()];
        let Some(retry) = pipe.retry.filter(|r| r.next == now) else { return };
        if !pipe.stalled && pipe.lost_acks == 0 && !pipe.is_choked() {
            pipe.retry = None;
            return;
        }
        if retry.until <= now {
            self.reset(from);
            return self.tidy(from.wire());
        }
        let wait = (retry.wait * 2).min(RETRY_MAX);
        let next = now.plus(wait).min(retry.until);
        pipe.retry = Some(Retry { next, wait, until: retry.until });
        self.agenda.push(next, Event::Retry(from));
        if !there || !self.hosts[host].on {
            return;
        }
        if pipe.stalled {
            self.send(now, from, Pipe::relaunch);
        } else if stranger {
            self.send_rst(now, from);
        } else if back {
            self.answer_probe(now, from, wait);
        }
    }

    /// The other kernel is there: what it has is acknowledged, and a shut window is probed on.
    fn answer_probe(&mut self, now: Micros, from: Sock, wait: u64) {
        self.acknowledge(now, from, 0);
        let Some(wire) = self.wires.get_mut(&from.wire()) else { return };
        if wire.pipes[from.side()].is_choked() {
            self.arm_retry_after(now, from, wait);
        }
    }

    /// Lets what a clog held up between two sites go on.
    pub(super) fn resume(&mut self, now: Micros, a: SiteIx, b: SiteIx) {
        let between = |w: &Wire| w.sites == [a, b] || w.sites == [b, a];
        let ids = self.wires.iter().filter(|(_, w)| between(w)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            for sock in [Sock::of(id, 0), Sock::of(id, 1)] {
                let Some(wire) = self.wires.get_mut(&id) else { break };
                if wire.passes(now, &self.roads, sock) {
                    wire.pipes[sock.side()].resume();
                    self.arrive(now, sock);
                    self.retry_acks(now, sock);
                }
            }
        }
    }

    fn retry_acks(&mut self, now: Micros, from: Sock) {
        let Some(wire) = self.wires.get(&from.wire()) else { return };
        if wire.pipes[from.side()].lost_acks > 0 && wire.ends[from.other().side()] == Life::Open {
            self.acknowledge(now, from, 0);
        }
    }

    /// Tells the end that sent something that there is no such connection.
    fn send_rst(&mut self, now: Micros, to: Sock) {
        let Some(wire) = self.wires.get(&to.wire()) else { return };
        let from = to.other();
        let lane = self.roads.lane(wire.site(from), wire.site(to));
        // It does not overtake what is in the air.
        let at = now.plus(lane.delay(now)).max(wire.pipes[from.side()].last_due());
        self.agenda.push(at, Event::Rst(to));
    }

    pub(super) fn rst(&mut self, now: Micros, to: Sock) {
        self.arrive(now, to.other());
        let Some(wire) = self.wires.get(&to.wire()) else { return };
        if wire.passes(now, &self.roads, to.other()) && self.hosts[wire.site(to)].on {
            self.reset(to);
            self.tidy(to.wire());
        }
    }

    /// An end learns that its connection is over.
    pub(super) fn reset(&mut self, sock: Sock) {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return };
        let site = wire.site(sock);
        wire.pipes[sock.side()].drop_flying();
        match wire.ends[sock.side()] {
            Life::Open => {
                wire.ends[sock.side()] = Life::Reset;
                if self.rng.chance(self.faults.reset_drops) {
                    wire.pipes[sock.other().side()].discard_unread();
                }
                self.ready(site, sock);
            }
            Life::Pending | Life::Closed => wire.ends[sock.side()] = Life::Gone,
            Life::Reset | Life::Gone => {}
        }
    }

    /// An end goes at once, and says so.
    pub(super) fn abort(&mut self, now: Micros, sock: Sock) {
        self.vanish(now, sock);
        self.send_rst(now, sock.other());
    }

    /// An end goes at once, and says nothing. What has left it still arrives.
    pub(super) fn vanish(&mut self, now: Micros, sock: Sock) {
        let Some(wire) = self.wires.get_mut(&sock.wire()) else { return };
        wire.pipes[sock.side()].drop_unsent(now);
        self.end(sock, Life::Gone);
    }

    /// The process has nothing more to do with an end.
    pub(super) fn end(&mut self, sock: Sock, life: Life) {
        if let Some(wire) = self.wires.get_mut(&sock.wire()) {
            wire.ends[sock.side()] = life;
            wire.pipes[sock.other().side()].discard_unread();
        }
        self.tidy(sock.wire());
    }

    /// Forgets a connection that no end has any more use for.
    pub(super) fn tidy(&mut self, id: u64) {
        if self.wires.get(&id).is_some_and(|w| w.is_done(0) && w.is_done(1)) {
            self.wires.remove(&id);
        }
    }
}
