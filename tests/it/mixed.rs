//! Three sites, both runtimes, one of them short of room, and SIGKILL on any of them, over and over:
//! at the end everything that was accepted is at each of its destinations exactly once, and every site
//! charges exactly what it holds.
//!
//! `CONSIGN_KILLS` says how many must die (6 by default, which takes seconds); `SEED` repeats a run.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use serde_json::Value;

use crate::disk::Word;
use crate::http;
use crate::kill::{Draw, arm};
use crate::site::{Site, content};
use crate::wait;

/// Calls that change its disk within which a site dies that was told to.
const CALLS: u64 = 120;
/// Room of the site that is short of it, beyond what it holds.
const TIGHT: u64 = 20_000;
/// Content up to this long is kept in the ledger.
const INLINE: u64 = 64 << 10;

/// Who hands in what for whom: site, destinations.
const ROUTES: [(usize, &[usize]); 4] = [(0, &[1, 2]), (1, &[0, 2]), (0, &[2]), (1, &[2])];
/// The site whose room is short now and then.
const SHORT: usize = 2;

struct Run {
    sites: Vec<Site>,
    draw: Draw,
    deaths: u64,
    /// By name: digest, length, and the sites that must hold it.
    sent: BTreeMap<String, (String, u64, Vec<usize>)>,
    refused: u64,
}

fn sites() -> Vec<Site> {
    let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let mut alpha = Site::at(&folder, "alpha", "std");
    let mut beta = Site::at(&folder, "beta", "smol");
    let mut gamma = Site::at(&folder, "gamma", "std");
    alpha.init(&[&beta, &gamma], None);
    beta.init(&[&alpha, &gamma], Some(&alpha));
    gamma.init(&[&alpha, &beta], Some(&alpha));
    let mut sites = vec![alpha, beta, gamma];
    for site in &mut sites {
        site.on_disk();
        site.serve();
    }
    sites
}

impl Run {
    /// Starts again whoever has died, on a runtime and with room that are drawn anew.
    fn tend(&mut self) {
        for ix in 0..self.sites.len() {
            while self.sites[ix].has_ended() {
                let status = self.sites[ix].wait();
                assert_eq!(status.signal(), Some(9), "{} ended by itself", self.sites[ix].name);
                self.deaths += 1;
                self.revive(ix);
            }
        }
    }

    fn revive(&mut self, ix: usize) {
        let runtime = if self.draw.to(2) == 1 { "smol" } else { "std" };
        let tight = ix == SHORT && self.draw.to(3) > 1;
        let in_recovery = self.draw.to(4) == 1;
        let calls = self.draw.to(40);
        let held = self.held(ix).map(|(size, _)| charge(size)).sum::<u64>();
        let site = &mut self.sites[ix];
        site.use_runtime(runtime);
        let room = if tight { (held + TIGHT).to_string() + "B" } else { "10GiB".to_owned() };
        site.set("CONSIGN_STORAGE_MAX_BYTES", &room);
        site.disk().set(Word::KillAt, 0);
        if in_recovery {
            arm(site, calls);
        }
        site.start();
        site.became_ready();
    }

    /// What a site is to hold in the end, if it arrives: as a destination or as the origin.
    fn held(&self, ix: usize) -> impl Iterator<Item = (u64, &String)> {
        let holds = move |places: &Vec<usize>| places.contains(&ix);
        self.sent.iter().filter(move |(_, s)| holds(&s.2)).map(|(name, s)| (s.1, name))
    }

    /// Hands one segment in until it is accepted, whoever dies meanwhile.
    fn send(&mut self, number: u64) {
        let (from, to) = ROUTES[(self.draw.next() % 4) as usize];
        // Most are kept in the ledger, one in sixteen in a file, one in sixty-four is checkpointed.
        let most = match self.draw.to(64) {
            1 => 20 << 20,
            2..=5 => 400_000,
            _ => 6_000,
        };
        let len = self.draw.to(most);
        let (name, bytes) = (format!("m-{number}"), content(number, len as usize));
        let names: Vec<&str> = to.iter().map(|ix| self.sites[*ix].name.as_str()).collect();
        let target = format!("/v1/segments?name={name}&to={}", names.join(","));
        let digest = wait::until("it to be accepted", || {
            self.tend();
            let reply = http::post(&self.sites[from].socket(), &target, &bytes).ok()?;
            let text = String::from_utf8_lossy(&reply.body);
            // 503: it starts. What was accepted unheard is no error the second time.
            assert!(matches!(reply.status, 200 | 201 | 503), "{}: {text}", reply.status);
            let said: Value = serde_json::from_str(&text).ok()?;
            said["digest"].as_str().map(str::to_owned)
        });
        assert_eq!(digest, blake3::hash(&bytes).to_hex().as_str());
        let places = [from].iter().chain(to).copied().collect();
        assert_eq!(self.sent.insert(name, (digest, len, places)), None);
    }

    /// Peace: room for all, nobody dies.
    fn make_peace(&mut self) {
        for ix in 0..self.sites.len() {
            self.sites[ix].disk().set(Word::KillAt, 0);
            if self.sites[ix].has_ended() {
                self.sites[ix].wait();
                self.deaths += 1;
            } else {
                self.sites[ix].kill();
            }
            self.refused += refusals(&self.sites[ix].log());
            self.sites[ix].set("CONSIGN_STORAGE_MAX_BYTES", "10GiB");
            self.sites[ix].serve();
        }
    }

    fn judge(&self) {
        for (ix, name) in [(0, "gamma"), (1, "gamma"), (0, "beta"), (1, "alpha")] {
            let counts = self.sites[ix].settled(name);
            assert_eq!(counts.dead, 0, "{} to {name}", self.sites[ix].name);
        }
        for (ix, site) in self.sites.iter().enumerate() {
            let mut expected: BTreeMap<&str, &str> = BTreeMap::new();
            for (_, name) in self.held(ix) {
                expected.insert(name, &self.sent[name].0);
            }
            let segments = site.segments();
            let mut found: BTreeMap<&str, &str> = BTreeMap::new();
            for segment in &segments {
                let text = |key: &str| segment[key].as_str().expect("a text");
                let twice = found.insert(text("name"), text("digest"));
                assert_eq!(twice, None, "{} is there twice at {}", segment["name"], site.name);
                let content = site.content(text("id"));
                assert_eq!(text("digest"), blake3::hash(&content).to_hex().as_str());
            }
            assert_eq!(found, expected, "{} holds something else", site.name);
            self.adds_up(site, ix);
        }
    }

    /// What a site charges is what it holds, to the byte.
    fn adds_up(&self, site: &Site, ix: usize) {
        let due: u64 = self.held(ix).map(|(size, _)| charge(size)).sum();
        let used = || site.status()["storage"]["used"].as_u64().expect("a number");
        // What broke off is given up and goes in its own time.
        let what = format!("{} to charge {due}, not {}", site.name, used());
        wait::until_true(&what, || used() == due);
        let files = files_under(&site.dir.join("data/blobs"));
        let large = self.held(ix).filter(|(size, _)| *size > INLINE);
        let (count, bytes) = large.fold((0, 0), |(n, sum), (size, _)| (n + 1, sum + size));
        assert_eq!(files, (count, bytes), "content files of {}", site.name);
    }
}

/// What content is charged: a file its length, a body in the ledger what it takes there.
fn charge(size: u64) -> u64 {
    let value = size + 24;
    match size {
        _ if size > INLINE => size,
        _ if value <= 4096 / 2 - 32 => value,
        _ => value.div_ceil(4096) * 4096,
    }
}

/// Refusals for want of room that a log tells of.
fn refusals(log: &str) -> u64 {
    log.lines().filter(|line| line.contains("quota")).count() as u64
}

/// Files below a folder and their bytes.
fn files_under(folder: &std::path::Path) -> (u64, u64) {
    let mut sum = (0, 0);
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    for entry in entries.map(|entry| entry.expect("an entry")) {
        let kind = entry.metadata().expect("it is there");
        let (count, bytes) =
            if kind.is_dir() { files_under(&entry.path()) } else { (1, kind.len()) };
        sum = (sum.0 + count, sum.1 + bytes);
    }
    sum
}

#[test]
fn three_sites_lose_and_double_nothing_when_any_of_them_is_killed() {
    let test = "three_sites_lose_and_double_nothing_when_any_of_them_is_killed";
    let kills: u64 = std::env::var("CONSIGN_KILLS").map_or(6, |n| n.parse().expect("a number"));
    let draw = Draw::new(test);
    let mut run = Run { sites: sites(), draw, deaths: 0, sent: BTreeMap::new(), refused: 0 };
    let mut number = 0;
    while run.deaths < kills {
        let victim = (run.draw.next() % 3) as usize;
        let calls = run.draw.to(CALLS);
        arm(&run.sites[victim], calls);
        for _ in 0..run.draw.to(20) {
            number += 1;
            run.send(number);
        }
        run.tend();
    }
    run.make_peace();
    run.judge();
    assert!(kills < 50 || run.refused > 0, "the short one was never short");
    println!("{} deaths, {number} segments, {} refusals", run.deaths, run.refused);
}
