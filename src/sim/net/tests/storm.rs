//! Everything at once, at random: what arrives is a prefix of what was written, nothing leaks, and the
//! same seed gives the same storm.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::sim::net::*;

const SITES: u64 = 4;

/// What an end has done so far.
#[derive(Clone, Copy, Default)]
struct Tally {
    written: u64,
    read: u64,
    shut: bool,
    over: bool,
}

struct Storm {
    net: Net,
    rng: Rng,
    now: Micros,
    /// Sockets that some process holds, and whose.
    held: BTreeMap<Sock, SiteIx>,
    tallies: BTreeMap<Sock, Tally>,
    log: Vec<(Micros, NetEvent)>,
    /// What was met on the way.
    met: BTreeSet<String>,
}

/// The byte that a socket writes at an offset.
fn byte(sock: Sock, at: u64) -> u8 {
    (sock.0.wrapping_mul(0x9e37_79b9) ^ at.wrapping_mul(0x85eb_ca6b) >> 7) as u8
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut rng = Rng::stream(seed, 1);
        let mut net = Net::new(Rng::stream(seed, 2), SITES as usize);
        for site in 0..SITES as usize {
            net.listen(site, true);
        }
        for (a, b) in Topology::Mesh.links(SITES as usize) {
            let latency = Duration::from_micros(rng.below(100_000));
            let jitter = Duration::from_micros(rng.below(50_000));
            let bandwidth = *rng.pick(&[0, 5_000, 1_000_000]);
            let (send_buffer, window) = (*rng.pick(&[1, 1000, 262_144]), *rng.pick(&[200, 5000]));
            net.set_link(a, b, LinkSpec { latency, jitter, bandwidth, send_buffer, window });
        }
        net.faults = NetFaults::draw(&mut rng);
        (net.faults.resets, net.faults.silences) = (100_000, 50_000);
        let (held, tallies) = (BTreeMap::new(), BTreeMap::new());
        let (now, log, met) = (Micros(1), Vec::new(), BTreeSet::new());
        Storm { net, rng, now, held, tallies, log, met }
    }

    fn run_to(&mut self, until: Micros) {
        while let Some(next) = self.net.next()
            && next <= until
        {
            self.now = self.now.max(next);
            while let Some(event) = self.net.take(self.now) {
                self.log.push((self.now, event));
                match event {
                    NetEvent::Connected { site, sock, .. }
                    | NetEvent::Accepted { site, sock, .. } => {
                        assert_eq!(self.held.insert(sock, site), None);
                    }
                    NetEvent::DialFailed { why, .. } => drop(self.met.insert(why.to_string())),
                    NetEvent::Ready { site, sock } => assert_eq!(self.held.get(&sock), Some(&site)),
                }
            }
        }
        self.now = until;
    }

    fn check(&self) {
        let fault = self.net.wires.values().flat_map(|w| &w.pipes).find_map(|p| p.fault());
        assert_eq!(fault, None);
    }

    fn site(&mut self) -> SiteIx {
        self.rng.below(SITES) as usize
    }

    fn pair(&mut self) -> (SiteIx, SiteIx) {
        let a = self.site();
        (a, (a + 1 + self.rng.below(SITES - 1) as usize) % SITES as usize)
    }

    fn act(&mut self) {
        let socks: Vec<Sock> = self.held.keys().copied().collect();
        let sock = (!socks.is_empty()).then(|| *self.rng.pick(&socks));
        match (self.rng.below(50), sock) {
            (0..4, _) => {
                let (a, b) = self.pair();
                self.net.dial(self.now, a, b);
            }
            (4..16, Some(sock)) => self.write(sock),
            (16..30, Some(sock)) => drop(self.read(sock)),
            (30, Some(sock)) => {
                self.net.shut(self.now, sock);
                self.tallies.entry(sock).or_default().shut = true;
            }
            (31, Some(sock)) => self.close(sock),
            (32, _) => self.host_down(),
            (33, _) => {
                let site = self.site();
                self.net.listen(site, true);
            }
            (34..38, _) => self.bend(),
            _ => {
                let pause = 1 << self.rng.below(25);
                self.run_to(self.now.plus(pause));
            }
        }
    }

    fn bend(&mut self) {
        let (a, b) = self.pair();
        let now = self.now;
        match self.rng.below(10) {
            0 => self.net.cut(now, a, b),
            1 => self.net.one_way(now, a, b),
            2 => self.net.clog(now, a, b),
            3..6 => self.net.restore(now, a, b),
            _ => self.net.unclog(now, a, b),
        }
    }

    fn host_down(&mut self) {
        let site = self.site();
        let power = self.rng.chance(500_000);
        self.net.host_down(self.now, site, power);
        self.held.retain(|_, of| *of != site);
    }

    fn write(&mut self, sock: Sock) {
        let tally = self.tallies.entry(sock).or_default();
        let n = 1 << self.rng.below(15);
        let bytes: Vec<u8> = (tally.written..tally.written + n).map(|at| byte(sock, at)).collect();
        match self.net.write(self.now, sock, &bytes) {
            Written::Took(took) => {
                assert!(!tally.shut && !tally.over);
                tally.written += took as u64;
                self.met.insert(if took < bytes.len() { "full" } else { "took all" }.to_string());
            }
            Written::Reset => drop(self.met.insert("write reset".to_string())),
        }
    }

    fn tally(&self, sock: Sock) -> Tally {
        self.tallies.get(&sock).copied().unwrap_or_default()
    }

    fn read_all(&mut self, sock: Sock) {
        while self.read(sock) == Got::Bytes {}
    }

    fn read(&mut self, sock: Sock) -> Got {
        let written = self.tallies.entry(sock.other()).or_default().written;
        let tally = self.tallies.entry(sock).or_default();
        let mut bytes = Vec::new();
        let max = 1 << self.rng.below(15);
        let got = self.net.read(self.now, sock, &mut bytes, max);
        for found in &bytes {
            assert_eq!(*found, byte(sock.other(), tally.read), "{sock:?} at {}", tally.read);
            tally.read += 1;
        }
        assert!(tally.read <= written && bytes.len() <= max);
        assert_eq!(bytes.is_empty(), got != Got::Bytes);
        match got {
            Got::Eof => assert_eq!(tally.read, written, "the end comes after everything"),
            Got::Reset => tally.over = true,
            Got::Bytes | Got::Nothing => assert!(!tally.over),
        }
        self.met.insert(format!("{got:?}"));
        got
    }

    fn close(&mut self, sock: Sock) {
        self.net.close(self.now, sock);
        self.held.remove(&sock);
        assert_eq!(self.net.write(self.now, sock, b"x"), Written::Reset);
    }

    /// After the storm, what is written on a connection that lives arrives, and closed is forgotten.
    fn settle(&mut self) {
        self.net.heal(self.now);
        for site in 0..SITES as usize {
            self.net.listen(site, true);
        }
        let mut look: Vec<Sock> = self.held.keys().copied().collect();
        loop {
            look.into_iter().for_each(|sock| self.read_all(sock));
            let Some(next) = self.net.next() else { break };
            let known = self.log.len();
            self.run_to(self.now.max(next));
            let ready = self.log[known..].iter().filter_map(|(_, event)| match event {
                NetEvent::Ready { sock, .. } => Some(*sock),
                _ => None,
            });
            look = ready.collect();
        }
        for sock in self.held.keys().copied().collect::<Vec<_>>() {
            let silent = self.net.wires[&sock.wire()].silent;
            let (tally, other) = (self.tally(sock), self.tally(sock.other()));
            let (read, written) = (tally.read, other.written);
            let both = self.held.contains_key(&sock.other());
            let lives = both && !silent && !tally.over && !other.over;
            assert!(!lives || read == written, "{sock:?} has {read} of {written}");
            self.met.insert(if lives { "lived" } else { "died" }.to_string());
        }
        for sock in self.held.keys().copied().collect::<Vec<_>>() {
            self.close(sock);
        }
        self.run_to(self.now.after(Net::GIVE_UP * 2));
        assert_eq!(self.net.connections(), 0, "{:?}", self.net.wires);
        assert!(self.net.attempts.is_empty());
        assert_eq!(self.net.next(), None);
    }
}

#[test]
fn whatever_fails_what_arrives_is_a_prefix_and_nothing_leaks() {
    let mut met = BTreeSet::new();
    for seed in 0..60 {
        let mut storm = Storm::new(seed);
        for _ in 0..1500 {
            storm.act();
            storm.check();
        }
        storm.settle();
        met.append(&mut storm.met);
    }
    let all = [
        "Bytes",
        "Eof",
        "Nothing",
        "Reset",
        "connection refused",
        "died",
        "full",
        "lived",
        "no route to host",
        "timed out",
        "took all",
        "write reset",
    ];
    assert_eq!(met.iter().map(String::as_str).collect::<Vec<_>>(), all, "the storm meets all");
}

#[test]
fn the_same_seed_gives_the_same_storm() {
    let log = |seed| {
        let mut storm = Storm::new(seed);
        for _ in 0..1500 {
            storm.act();
        }
        storm.log
    };
    assert!(log(1) == log(1));
    assert!(log(1) != log(2));
}
