//! One direction of a connection: from the writer's kernel through the air to the reader's kernel.
//!
//! ```text
//!   written ─▶ waiting ─▶ flying ─▶ readable ─▶ read
//!                 ▲          │          │
//!                 │ credit   └─▶ unacked: holds room in the send buffer until the ack is back
//!                 └──────────────────── grants: what was read opens the window again
//! ```
//!
//! The bytes of all three stages lie in one queue, in order; a flight is only a length. What the reader
//! tells the writer's kernel (acks, grants) is a list of moments from which it counts, so that it costs
//! no event unless somebody waits for it.

use std::collections::VecDeque;

use super::faults::Fate;
use super::link::{Lane, LinkSpec};
use crate::sim::rng::Rng;
use crate::sim::time::Micros;

/// What a flight carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cargo {
    /// The last step of connecting.
    Hello,
    /// So many bytes.
    Bytes(usize),
    /// The end of the stream.
    Fin,
}

/// Something in the air.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub cargo: Cargo,
    /// When it was handed to the link.
    born: Micros,
    /// When its last byte has left the sender.
    sent: Micros,
    /// When it arrives.
    pub due: Micros,
}

/// How far the end of the stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shut {
    #[default]
    Not,
    Asked,
    Flying,
    Arrived,
}

/// Sending again what was lost: doubling waits, until the kernel gives the connection up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub next: Micros,
    pub wait: u64,
    pub until: Micros,
}

/// Amounts that count from a moment on.
#[derive(Clone, Debug, Default)]
pub(super) struct Later {
    entries: VecDeque<(Micros, usize)>,
}

impl Later {
    fn push(&mut self, at: Micros, amount: usize) {
        match self.entries.back_mut() {
            // News does not overtake news.
            Some((last, sum)) if *last >= at => *sum += amount,
            Some(_) | None => self.entries.push_back((at, amount)),
        }
    }

    fn take(&mut self, now: Micros) -> usize {
        let mut sum = 0;
        while let Some((at, amount)) = self.entries.front().copied()
            && at <= now
        {
            sum += amount;
            self.entries.pop_front();
        }
        sum
    }

    pub fn first(&self) -> Option<Micros> {
        self.entries.front().map(|(at, _)| *at)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Pipe {
    stream: VecDeque<u8>,
    readable: usize,
    flying: usize,
    waiting: usize,
    air: VecDeque<Flight>,
    pub shut: Shut,
    /// Bytes that have ever arrived.
    pub carried: u64,
    send_buffer: usize,
    unacked: usize,
    acks: Later,
    /// Arrived, but the ack was lost.
    pub lost_acks: usize,
    credit: usize,
    grants: Later,
    /// The writer was refused room and waits for it.
    pub blocked: bool,
    /// Something in the air was lost: nothing leaves until it was sent again.
    pub stalled: bool,
    pub retry: Option<Retry>,
    pub drip: bool,
    pub fate: Option<(Fate, u64)>,
    /// When each event of this pipe is due; one that comes at another time is stale.
    pub arrive_at: Option<Micros>,
    pub launch_at: Option<Micros>,
    pub wake_at: Option<Micros>,
}

/// What a launch needs to know.
pub(super) struct Launch<'a> {
    pub now: Micros,
    pub lane: &'a mut Lane,
    pub losses: u32,
    pub rng: &'a mut Rng,
}

impl Launch<'_> {
    fn depart(&mut self, bytes: usize) -> Micros {
        self.lane.depart(self.now, bytes)
    }

    fn arrive(&mut self, sent: Micros) -> Micros {
        sent.plus(self.lane.flight_delay(sent, self.losses, self.rng))
    }
}

impl Pipe {
    pub fn new(spec: &LinkSpec) -> Pipe {
        Pipe {
            stream: VecDeque::new(),
            readable: 0,
            flying: 0,
            waiting: 0,
            air: VecDeque::new(),
            shut: Shut::Not,
            carried: 0,
            send_buffer: spec.send_buffer,
            unacked: 0,
            acks: Later::default(),
            lost_acks: 0,
            credit: spec.window,
            grants: Later::default(),
            blocked: false,
            stalled: false,
            retry: None,
            drip: false,
            fate: None,
            arrive_at: None,
            launch_at: None,
            wake_at: None,
        }
    }

    /// Bytes that have arrived and were not read.
    pub fn readable(&self) -> usize {
        self.readable
    }

    /// Room in the send buffer.
    pub fn room(&mut self, now: Micros) -> usize {
        self.unacked -= self.acks.take(now);
        self.send_buffer.saturating_sub(self.waiting + self.flying + self.unacked)
    }

    /// Whether there is enough room to bother a writer that waits for it.
    pub fn has_ample_room(&mut self, now: Micros) -> bool {
        self.room(now) > self.send_buffer / 4
    }

    /// Takes as much as there is room for.
    pub fn write(&mut self, now: Micros, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room(now));
        self.stream.extend(&bytes[..n]);
        self.waiting += n;
        self.blocked = n < bytes.len();
        n
    }

    /// Hands out at most `max` bytes of what has arrived; the window opens by as much at `granted`.
    pub fn read(&mut self, buffer: &mut Vec<u8>, max: usize, granted: Micros) -> usize {
        let n = max.min(self.readable);
        let (head, tail) = self.stream.as_slices();
        let of_head = n.min(head.len());
        buffer.extend_from_slice(&head[..of_head]);
        buffer.extend_from_slice(&tail[..n - of_head]);
        self.stream.drain(..n);
        self.readable -= n;
        self.grants.push(granted, n);
        n
    }

    /// Forgets what has arrived and was not read.
    pub fn discard_unread(&mut self) {
        self.stream.drain(..self.readable);
        self.readable = 0;
    }

    /// Puts on the link what may go.
    pub fn launch(&mut self, mut with: Launch<'_>) {
        if self.stalled {
            return;
        }
        self.credit += self.grants.take(with.now);
        while self.waiting > 0 && self.credit > 0 {
            if self.drip && !self.air.is_empty() {
                return;
            }
            let most = if self.drip { 1 } else { with.lane.flight_max() };
            let n = self.waiting.min(self.credit).min(most);
            self.put_in_the_air(n, &mut with);
            self.waiting -= n;
            self.flying += n;
            self.credit -= n;
        }
        if self.shut == Shut::Asked && self.waiting == 0 {
            self.shut = Shut::Flying;
            self.fly(Cargo::Fin, with.now, &mut with);
        }
    }

    /// The last step of connecting goes first of all.
    pub fn launch_hello(&mut self, mut with: Launch<'_>) {
        self.fly(Cargo::Hello, with.now, &mut with);
    }

    fn put_in_the_air(&mut self, n: usize, with: &mut Launch<'_>) {
        let (now, most) = (with.now, with.lane.flight_max());
        let sent = if self.drip { now.plus(1_000_000) } else { with.depart(n) };
        // What is handed over before the last flight has left goes with it: one event for both.
        if let Some(last) = self.air.back_mut()
            && let Cargo::Bytes(bytes) = &mut last.cargo
            && (last.born == now || last.sent > now)
            && bytes.saturating_add(n) <= most
            && !self.drip
        {
            *bytes += n;
            let later = sent.0.saturating_sub(last.sent.0);
            (last.sent, last.due) = (last.sent.plus(later), last.due.plus(later));
            return;
        }
        self.fly(Cargo::Bytes(n), sent, with);
    }

    fn fly(&mut self, cargo: Cargo, sent: Micros, with: &mut Launch<'_>) {
        // Nothing leaves before what was handed over earlier, nor overtakes it.
        let sent = sent.max(self.air.back().map_or(Micros::ZERO, |f| f.sent));
        let due = with.arrive(sent).max(self.last_due());
        self.air.push_back(Flight { cargo, born: with.now, sent, due });
    }

    /// When the last thing in the air arrives.
    pub fn last_due(&self) -> Micros {
        self.air.back().map_or(Micros::ZERO, |f| f.due)
    }

    /// Sends everything in the air once more: it was lost.
    pub fn relaunch(&mut self, mut with: Launch<'_>) {
        self.stalled = false;
        let lost = std::mem::take(&mut self.air);
        for flight in lost {
            let sent = match flight.cargo {
                Cargo::Hello | Cargo::Fin => with.now,
                Cargo::Bytes(n) => with.depart(n),
            };
            self.fly(flight.cargo, sent, &mut with);
        }
        self.launch(with);
    }

    /// What was held up goes on at once.
    pub fn resume(&mut self) {
        self.stalled = false;
    }

    /// The next thing to arrive.
    pub fn front(&self) -> Option<Flight> {
        self.air.front().copied()
    }

    /// The hello or fin in front has arrived.
    pub fn land_mark(&mut self) {
        self.air.pop_front();
    }

    /// Of the bytes in front, `n` have arrived and are readable.
    pub fn land(&mut self, n: usize) {
        if let Some(Flight { cargo: Cargo::Bytes(left), .. }) = self.air.front_mut() {
            assert!(n <= *left, "{n} of {left} bytes land");
            *left -= n;
            if *left == 0 {
                self.air.pop_front();
            }
            self.flying -= n;
            self.readable += n;
            self.unacked += n;
            self.carried += n as u64;
        }
    }

    /// The ack of `n` bytes, and of all before whose acks were lost, is back at `at`.
    pub fn acked(&mut self, at: Micros, n: usize) {
        self.acks.push(at, n + std::mem::take(&mut self.lost_acks));
    }

    /// When the writer's kernel hears of acks next.
    pub fn next_ack(&self) -> Option<Micros> {
        self.acks.first()
    }

    /// When to launch again: bytes wait for a window that is about to open.
    pub fn next_launch(&self) -> Option<Micros> {
        if self.waiting > 0 && !self.stalled { self.grants.first() } else { None }
    }

    /// Whether bytes wait for a window of which nothing is heard.
    pub fn is_choked(&self) -> bool {
        let silence = self.air.is_empty() && self.grants.first().is_none();
        self.waiting > 0 && self.credit == 0 && !self.stalled && silence
    }

    /// The sender is gone: what has not left it by now never does.
    pub fn drop_unsent(&mut self, now: Micros) {
        let mut dropped = std::mem::take(&mut self.waiting);
        while let Some(last) = self.air.back()
            && last.sent > now
        {
            if let Cargo::Bytes(n) = last.cargo {
                self.flying -= n;
                dropped += n;
            }
            self.air.pop_back();
        }
        self.stream.truncate(self.stream.len() - dropped);
        self.never_shut();
        self.blocked = false;
    }

    /// Nothing on the way arrives any more, nor is sent again.
    pub fn drop_flying(&mut self) {
        self.air.clear();
        (self.flying, self.waiting) = (0, 0);
        self.stream.truncate(self.readable);
        (self.stalled, self.retry, self.blocked) = (false, None, false);
        self.lost_acks = 0;
        self.never_shut();
    }

    /// An end that was asked for and has not left is not coming: what came before it was dropped.
    fn never_shut(&mut self) {
        if self.shut != Shut::Arrived && !self.air.iter().any(|f| f.cargo == Cargo::Fin) {
            self.shut = Shut::Not;
        }
    }

    /// What is wrong with the books, if anything.
    #[cfg(test)]
    pub fn fault(&self) -> Option<String> {
        let bytes = |f: &Flight| match f.cargo {
            Cargo::Bytes(n) => n,
            Cargo::Hello | Cargo::Fin => 0,
        };
        let flying: usize = self.air.iter().map(bytes).sum();
        let ordered = self.air.iter().zip(self.air.iter().skip(1)).all(|(a, b)| a.due <= b.due);
        let whole = self.stream.len() == self.readable + self.flying + self.waiting;
        let sound = flying == self.flying && ordered && whole;
        (!sound).then(|| format!("{self:?}"))
    }
}
