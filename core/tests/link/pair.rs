//! Two links and the stream between them.
#![allow(unreachable_pub)]

use std::time::Duration;

use consign_core::link::{Link, Timeouts};
use consign_core::session::Session;
use consign_core::time::{Instant, Now, UnixMillis};
use consign_core::tls::TlsSetup;

pub fn at(ms: u64) -> Now {
    Now { mono: Instant(ms * 1_000_000), wall: UnixMillis(1_700_000_000_000 + ms) }
}

/// Two links, `sides[0]` the dialling one.
pub struct Pair {
    pub now: Now,
    pub sides: [Link; 2],
    /// Most bytes moved at a time.
    pub chunk: usize,
    shut: [bool; 2],
}

impl Pair {
    pub fn new(sides: [Link; 2]) -> Pair {
        Pair { now: at(0), sides, chunk: 64 << 10, shut: [false; 2] }
    }

    pub fn tls(alpha: &TlsSetup, beta: &TlsSetup) -> Pair {
        let timeouts = Timeouts::default();
        Pair::new([
            Link::client(alpha, "beta", at(0), timeouts),
            Link::server(beta, at(0), timeouts),
        ])
    }

    /// Runs the handshake and attaches the sessions.
    pub fn attach(&mut self, sessions: [Box<dyn Session>; 2]) {
        self.run();
        for (link, session) in self.sides.iter_mut().zip(sessions) {
            link.attach(self.now, session);
        }
    }

    pub fn wait(&mut self, by: Duration) {
        self.now.mono = self.now.mono.after(by);
        self.now.wall = self.now.wall.after(by);
        for link in &mut self.sides {
            link.timer(self.now);
        }
    }

    /// Moves bytes until nothing moves any more.
    pub fn run(&mut self) {
        while self.round() {}
    }

    /// One round in each direction; whether anything happened.
    pub fn round(&mut self) -> bool {
        let mut moved = false;
        for from in [0, 1] {
            let [a, b] = &mut self.sides;
            let (from_link, to_link) = if from == 0 { (a, b) } else { (b, a) };
            moved |= from_link.fill(self.now);
            if !from_link.pending().is_empty() && to_link.wants_read() {
                let n = from_link.pending().len().min(self.chunk);
                let mut data = from_link.pending()[..n].to_vec();
                from_link.sent(n);
                to_link.received(self.now, &mut data);
                moved = true;
            }
            if from_link.wants_shutdown() {
                from_link.shut(self.now);
                self.shut[from] = true;
                moved = true;
            }
            if self.shut[from] && to_link.wants_read() {
                to_link.eof(self.now);
                moved = true;
            }
        }
        moved
    }
}
