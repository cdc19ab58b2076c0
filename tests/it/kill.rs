//! SIGKILL on either side, at a call drawn from a printed seed: at whatever step of a commit, a content
//! file or a recovery the process dies, every segment that was accepted arrives, once.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::disk::Word;
use crate::site::{Site, content, pair};
use crate::wait;

const ROUNDS: u64 = 10;
const FILES: u64 = 50;
/// A process dies within so many calls that change its disk.
const CALLS: u64 = 150;
/// A process that starts again dies within so many, now and then.
const CALLS_IN_RECOVERY: u64 = 40;

/// Numbers from a seed.
pub(crate) struct Draw(u64);

impl Draw {
    /// From `SEED` in the environment, or a new one; printed, so that a failure names it.
    pub(crate) fn new(test: &str) -> Draw {
        let given = std::env::var("SEED").ok();
        let seed = given.map(|text| {
            let digits = text.trim_start_matches("0x");
            u64::from_str_radix(digits, 16).expect("SEED is a number in hex")
        });
        let seed = seed.unwrap_or_else(|| {
            use std::hash::{BuildHasher, Hasher};
            std::hash::RandomState::new().build_hasher().finish()
        });
        println!("reproduce: SEED={seed:#x} cargo test --test it {test}");
        Draw(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 1 to `most`.
    pub(crate) fn to(&mut self, most: u64) -> u64 {
        1 + self.next() % most
    }
}

struct Run {
    sites: [Site; 2],
    draw: Draw,
    deaths: u32,
    /// Digest by name of everything that was ever sent.
    sent: BTreeMap<String, String>,
}

/// Has a site die at its n-th call from now.
pub(crate) fn arm(site: &Site, n: u64) {
    let disk = site.disk();
    disk.set(Word::KillAt, disk.get(Word::Calls) + n);
}

impl Run {
    fn new(test: &str, runtime: &'static str) -> Run {
        let draw = Draw::new(test);
        let (mut alpha, mut beta) = pair(runtime);
        for site in [&mut alpha, &mut beta] {
            site.on_disk();
            site.serve();
        }
        Run { sites: [alpha, beta], draw, deaths: 0, sent: BTreeMap::new() }
    }

    /// Starts again whoever has died; the start may be cut short, too.
    fn tend(&mut self) {
        for site in &mut self.sites {
            while site.has_ended() {
                let status = site.wait();
                let died = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
                assert!(died, "{} ended by itself: {status}", site.name);
                self.deaths += 1;
                if self.draw.to(3) == 1 {
                    arm(site, self.draw.to(CALLS_IN_RECOVERY));
                } else {
                    site.disk().set(Word::KillAt, 0);
                }
                site.start();
                site.became_ready();
            }
        }
    }

    /// Hands content in until it is accepted, whoever dies meanwhile.
    fn send(&mut self, name: &str, bytes: &[u8]) {
        for _ in 0..100 {
            self.tend();
            // Without an answer it may have been accepted or not.
            let Ok(reply) = self.sites[0].submit(name, bytes) else {
                self.sites[0].became_ready();
                continue;
            };
            let text = String::from_utf8_lossy(&reply.body);
            if !matches!(reply.status, 200 | 201) {
                assert_eq!(reply.status, 503, "only while it starts or stops: {text}");
                continue;
            }
            let said: Value = serde_json::from_str(&text).expect("JSON");
            let digest = said["digest"].as_str().unwrap().to_string();
            assert_eq!(digest, blake3::hash(bytes).to_hex().as_str());
            assert_eq!(self.sent.insert(name.into(), digest), None);
            return;
        }
        panic!("{name} was never accepted");
    }

    /// What was answered for is there, after every death: new once, known ever after.
    fn is_known(&mut self, name: &str, bytes: &[u8]) {
        let reply = wait::until("an answer", || {
            self.tend();
            self.sites[0].submit(name, bytes).ok()
        });
        let said: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(said["new"], false, "accepted, then lost: {said}");
    }

    fn round(&mut self, round: u64) {
        let victim = (self.draw.next() % 2) as usize;
        arm(&self.sites[victim], self.draw.to(CALLS));
        for i in 0..FILES {
            // Most are kept inline, some in files.
            let most = if i % 25 == 0 { 300_000 } else { 3_000 };
            let (seed, len) = (round * FILES + i, self.draw.to(most) as usize);
            let (name, bytes) = (format!("f-{round}-{i}"), content(seed, len));
            let deaths = self.deaths;
            self.send(&name, &bytes);
            if self.deaths > deaths {
                self.is_known(&name, &bytes);
            }
        }
    }

    /// Peace: everything that was accepted arrives, and both ledgers add up.
    fn settle(mut self) {
        // Who is started again may be to die once more: until nobody is.
        loop {
            let deaths = self.deaths;
            for site in &self.sites {
                site.disk().set(Word::KillAt, 0);
            }
            self.tend();
            if deaths == self.deaths {
                break;
            }
        }
        let [alpha, beta] = &self.sites;
        let all = self.sent.len() as u64;
        wait::until_true("everything to arrive", || alpha.counts("beta").delivered == all);
        let counts = alpha.counts("beta");
        assert_eq!((counts.queued, counts.sending, counts.backing_off, counts.dead), (0, 0, 0, 0));
        for site in [alpha, beta] {
            let mut found = BTreeMap::new();
            let segments = site.segments();
            assert_eq!(site.status()["segments"], all);
            for segment in &segments {
                let text = |key: &str| segment[key].as_str().unwrap().to_string();
                assert_eq!(found.insert(text("name"), text("digest")), None, "there twice");
            }
            assert!(found == self.sent, "{} holds something else", site.name);
        }
        for segment in beta.segments() {
            let content = beta.content(segment["id"].as_str().unwrap());
            assert_eq!(segment["digest"], blake3::hash(&content).to_hex().as_str());
        }
        for segment in alpha.segments() {
            assert_eq!(segment["deliveries"][0]["spent"], 0, "a death is nobody's fault");
        }
        assert!(self.deaths >= 3, "only {} deaths: nothing was tried", self.deaths);
        println!("{} deaths", self.deaths);
    }
}

fn killed(test: &str, runtime: &'static str) {
    let mut run = Run::new(test, runtime);
    for round in 0..ROUNDS {
        run.round(round);
    }
    run.settle();
}

#[test]
fn smol_loses_nothing_when_killed() {
    killed("smol_loses_nothing_when_killed", "smol");
}

#[test]
fn std_loses_nothing_when_killed() {
    killed("std_loses_nothing_when_killed", "std");
}
