//! A network moved by hand.

use std::time::Duration;

use crate::sim::net::*;

pub struct Rig {
    pub net: Net,
    pub now: Micros,
    /// Every event, in order.
    pub seen: Vec<NetEvent>,
}

impl Rig {
    /// So many sites, all listening.
    pub fn new(seed: u64, sites: usize) -> Rig {
        let mut net = Net::new(Rng::new(seed), sites);
        for site in 0..sites {
            net.listen(site, true);
        }
        Rig { net, now: Micros(1), seen: Vec::new() }
    }

    pub fn site(&self, sock: Sock) -> SiteIx {
        self.net.wires[&sock.wire()].site(sock)
    }

    /// Time passes, and everything happens that is due.
    pub fn run_to(&mut self, until: Micros) {
        while let Some(next) = self.net.next()
            && next <= until
        {
            self.now = self.now.max(next);
            self.take();
        }
        self.now = until;
        self.take();
    }

    fn take(&mut self) {
        while let Some(event) = self.net.take(self.now) {
            self.seen.push(event);
        }
        for wire in self.net.wires.values() {
            let fault = wire.pipes.iter().find_map(|pipe| pipe.fault());
            assert_eq!(fault, None);
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.run_to(self.now.after(time));
    }

    /// Until something is seen that was not seen before.
    pub fn run_until_seen(&mut self, event: NetEvent) {
        self.seen.clear();
        while !self.seen.contains(&event) {
            let next = self.net.next().expect("it comes some time");
            self.run_to(next);
        }
    }

    /// Dials, and waits for what becomes of it: both ends, or why not.
    pub fn dial(&mut self, from: SiteIx, to: SiteIx) -> Result<(Sock, Sock), &'static str> {
        let attempt = self.net.dial(self.now, from, to);
        let mut looked_at = self.seen.len();
        loop {
            let next = self.net.next().expect("it comes to an end");
            self.run_to(next);
            for event in &self.seen[looked_at..] {
                match *event {
                    NetEvent::DialFailed { attempt: n, why, .. } if n == attempt => {
                        return Err(why);
                    }
                    NetEvent::Connected { attempt: n, sock, .. } if n == attempt => {
                        return Ok((sock, sock.other()));
                    }
                    _ => {}
                }
            }
            looked_at = self.seen.len();
        }
    }

    /// A connection that both ends know of.
    pub fn connect(&mut self, from: SiteIx, to: SiteIx) -> (Sock, Sock) {
        let (a, b) = self.dial(from, to).expect("connected");
        self.run_until_seen(NetEvent::Accepted { site: to, from, sock: b });
        (a, b)
    }

    /// Everything there is to read, and what came after it.
    pub fn drain(&mut self, sock: Sock) -> (Vec<u8>, Got) {
        let mut bytes = Vec::new();
        loop {
            let got = self.net.read(self.now, sock, &mut bytes, 1000);
            if got != Got::Bytes {
                return (bytes, got);
            }
        }
    }
}
