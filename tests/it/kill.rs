//! SIGKILL on either side, at a call drawn from a printed seed: at whatever step of a commit, a content
//! file or a recovery the process dies, every segment that was accepted arrives, once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::disk::Word;
use crate::site::{Site, lines, make_file, pair};
use crate::wait;

const ROUNDS: u64 = 10;
const FILES: u64 = 50;
/// A process dies within so many calls that change its disk.
const CALLS: u64 = 150;
/// A process that starts again dies within so many, now and then.
const CALLS_IN_RECOVERY: u64 = 40;

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    /// From `SEED` in the environment, or a new one; printed, so that a failure names it.
    fn new(test: &str) -> Draw {
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

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 1 to `most`.
    fn to(&mut self, most: u64) -> u64 {
        1 + self.next() % most
    }
}

struct Run {
    sites: [Site; 2],
    draw: Draw,
    deaths: u32,
    /// Digest by name of everything that was ever sent.
    sent: BTreeMap<String, String>,
    /// Ids that were answered as new.
    accepted: BTreeSet<String>,
}

/// Has a site die at its n-th call from now.
fn arm(site: &Site, n: u64) {
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
        let (sent, accepted) = (BTreeMap::new(), BTreeSet::new());
        Run { sites: [alpha, beta], draw, deaths: 0, sent, accepted }
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

    /// Hands in the files of a folder until all of them are accepted, whoever dies meanwhile.
    fn send(&mut self, folder: &Path) {
        for _ in 0..100 {
            self.tend();
            let args = ["send", folder.to_str().unwrap(), "--to", "beta", "--json"];
            let mut command = self.sites[0].command(&args);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            wait::until_true("send to end", || {
                self.tend();
                child.try_wait().unwrap().is_some()
            });
            let output = child.wait_with_output().unwrap();
            for line in lines(&output.stdout).iter().filter(|l| l["new"] == true) {
                let id = line["id"].as_str().unwrap().to_string();
                assert!(self.accepted.insert(id), "accepted, lost and accepted again: {line}");
            }
            if output.status.success() {
                return;
            }
            let code = output.status.code().expect("send is not killed");
            assert!([1, 3, 69, 75].contains(&code), "{output:?}");
        }
        panic!("{} was never accepted whole", folder.display());
    }

    fn round(&mut self, round: u64) {
        let victim = (self.draw.next() % 2) as usize;
        arm(&self.sites[victim], self.draw.to(CALLS));
        let folder: PathBuf = self.sites[0].dir.join(format!("round-{round}"));
        fs::create_dir(&folder).unwrap();
        for i in 0..FILES {
            // Most are kept inline, some in files.
            let most = if i % 25 == 0 { 300_000 } else { 3_000 };
            let (seed, len) = (round * FILES + i, self.draw.to(most) as usize);
            let name = format!("f-{round}-{i}");
            let digest = make_file(&folder.join(&name), seed, len);
            self.sent.insert(name, digest);
        }
        self.send(&folder);
    }

    /// Peace: everything that was accepted arrives, and both ledgers add up.
    fn settle(mut self) {
        for site in &self.sites {
            site.disk().set(Word::KillAt, 0);
        }
        self.tend();
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
