//! Eight peers of one site: what the five healthy ones lose when one of the others is dead, one reads a
//! byte a second and one refuses every third segment.
//!
//! Pairs of rounds, interleaved: the same segments for the healthy ones alone, and with as many for the
//! three others queued before. `CONSIGN_PAIRS` says how many pairs (9 by default, 1 with `--test`).

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use support::real::{Real, free_address, proxy, until};
use support::{Res, disk, is_test, median};

const HEALTHY: [&str; 5] = ["p1", "p2", "p3", "p4", "p5"];
const BAD: [&str; 3] = ["dead", "slow", "picky"];
/// Every third segment is this long; the picky one takes no more than half of that.
const LARGE: usize = 4_000;
const SMALL: usize = 1_000;

struct Hub {
    hub: Real,
    peers: Vec<Real>,
    number: u64,
}

fn main() -> Res<()> {
    let count = if is_test() { 60 } else { 3_000 };
    let pairs: usize = match std::env::var("CONSIGN_PAIRS") {
        Ok(pairs) => pairs.parse()?,
        Err(_) => {
            if is_test() {
                1
            } else {
                9
            }
        }
    };
    let place = disk()?;
    let mut hub = Hub::start(place.path())?;
    hub.round(count / 4, false)?;
    let (mut alone, mut among, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..pairs {
        let without = hub.round(count, false)?.as_secs_f64();
        let with = hub.round(count, true)?.as_secs_f64();
        println!("  healthy alone {without:.3} s, with the three {with:.3} s");
        alone.push(without);
        among.push(with);
        ratios.push(without / with);
    }
    let sending = hub.hub.count("slow", "sending")?;
    let (alone, among, ratio) = (median(alone), median(among), median(ratios));
    println!("\n{count} segments for each of 5 healthy peers, median of {pairs} pairs");
    println!("  alone {alone:.3} s, with three bad peers {among:.3} s, throughput kept {ratio:.2}");
    println!("  bar: >= 0.75: {}", if ratio >= 0.75 { "met" } else { "MISSED" });
    println!("  in flight to the one that reads a byte a second: {sending}");
    println!("  RssAnon of the site: {} MiB", hub.hub.rss_anon() >> 20);
    Ok(())
}

impl Hub {
    fn start(place: &Path) -> Res<Hub> {
        let at = free_address()?;
        let names: Vec<&str> = HEALTHY.iter().chain(&BAD).copied().collect();
        let own: Vec<SocketAddr> = names.iter().map(|_| free_address()).collect::<Res<_>>()?;
        let mut dialled = own.clone();
        let slow = names.iter().position(|name| *name == "slow").unwrap_or_default();
        dialled[slow] = free_address()?;
        let known: Vec<(&str, SocketAddr)> =
            names.iter().copied().zip(dialled.iter().copied()).collect();
        let mut hub = Real::init(place, "hub", at, &known, None)?;
        let rules = proxy(dialled[slow], own[slow])?;
        let mut peers = Vec::new();
        for (name, address) in names.iter().zip(&own).filter(|(name, _)| **name != "dead") {
            // Only the hub dials: the slow one must not get round its proxy.
            let nowhere = free_address()?;
            let mut peer = Real::init(place, name, *address, &[("hub", nowhere)], Some(&hub))?;
            let most = if *name == "picky" { "2000B" } else { "none" };
            peer.serve(*address, &[("CONSIGN_STORAGE_MAX_SEGMENT", most)])?;
            peers.push(peer);
        }
        hub.serve(at, &[])?;
        for name in names.iter().filter(|name| **name != "dead") {
            until("a session", || {
                let status = hub.status()?;
                let peers = status["peers"].as_array().cloned().unwrap_or_default();
                Ok(peers.iter().any(|p| p["name"] == **name && p["up"] == true).then_some(()))
            })?;
        }
        // Its session is up: from here on it reads a byte a second.
        rules.slow_after.store(1, Ordering::Relaxed);
        Ok(Hub { hub, peers, number: 0 })
    }

    /// Queues segments for every healthy peer, and for the bad ones first if they take part; how long
    /// until every healthy one has acknowledged all of its own.
    fn round(&mut self, count: u64, with_bad: bool) -> Res<Duration> {
        assert_eq!(self.peers.len(), 7);
        if with_bad {
            self.queue(count, &BAD)?;
        }
        let before = self.delivered()?;
        let begun = Instant::now();
        self.queue(count, &HEALTHY)?;
        until("the healthy ones", || {
            let now = self.delivered()?;
            let done = now.iter().zip(&before).all(|(now, before)| now - before >= count);
            Ok(done.then(|| begun.elapsed()))
        })
    }

    fn delivered(&self) -> Res<Vec<u64>> {
        let status = self.hub.status()?;
        let peers = status["peers"].as_array().ok_or("no peers")?;
        let of = |name: &str| {
            let peer = peers.iter().find(|p| p["name"] == name);
            peer.and_then(|p| p["delivered"]["count"].as_u64()).unwrap_or(0)
        };
        Ok(HEALTHY.iter().map(|name| of(name)).collect())
    }

    /// 32 clients hand in `count` segments for these peers.
    fn queue(&mut self, count: u64, to: &[&str]) -> Res<()> {
        let (first, to, hub) = (self.number, to.join(","), &self.hub);
        self.number += count;
        std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..32u64)
                .map(|lane| {
                    let to = &to;
                    scope.spawn(move || -> Result<(), String> {
                        for n in (first..first + count).filter(|n| n % 32 == lane) {
                            let len = if n % 3 == 0 { LARGE } else { SMALL };
                            let mut body = vec![0; len];
                            body[..8].copy_from_slice(&n.to_be_bytes());
                            let target = format!("/v1/segments?name=n{n}&to={to}");
                            let (status, body) =
                                hub.exchange("POST", &target, &body).map_err(|e| e.to_string())?;
                            if !matches!(status, 200 | 201) {
                                return Err(String::from_utf8_lossy(&body).into_owned());
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            for lane in lanes {
                lane.join().map_err(|_| "a client panicked")??;
            }
            Ok(())
        })
    }
}
