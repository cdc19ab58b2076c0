//! What a backlog costs a site that goes on working: segments accepted and relayed a second, beside a few queued
//! deliveries and beside many.
//!
//! The backlog waits for a site that never comes. In turns, each of two sites, one with 10,000 queued and one with
//! `CONSIGN_BACKLOG` (a million by default), gets segments of 1 KiB over 128 connections for a peer that is down, and
//! then hands them on to it, from its start to the last acknowledgement.

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use support::lanes::lanes;
use support::load::{self, Load};
use support::real::{Real, free_address, until};
use support::table::Table;
use support::{Disk, Res, disk, is_test, median};

/// Queued at the site that the other one is compared with.
const FEW: u64 = 10_000;
/// Bytes of each segment that waits.
const SIZE: usize = 64;
/// Who gets what comes meanwhile.
const NEAR: &str = "gamma";
/// What must be left of the rates.
const BAR: f64 = 0.75;
const SETTINGS: [(&str, &str); 1] = [("CONSIGN_STORAGE_MIN_FREE", "64MiB")];

/// A site with a backlog, and the peer that it can reach.
struct Pair {
    queued: u64,
    alpha: Real,
    gamma: Real,
    /// Where `gamma` listens.
    far: SocketAddr,
    accepted: Vec<f64>,
    relayed: Vec<f64>,
}

fn main() -> Res<()> {
    let (few, many, count, rounds) = if is_test() {
        (100, 1_000, 200, 1)
    } else {
        let many = std::env::var("CONSIGN_BACKLOG").map_or(Ok(1_000_000), |many| many.parse())?;
        (FEW, many, 50_000, 5)
    };
    let place = disk()?;
    let mut pairs = vec![pair(place.path(), few)?, pair(place.path(), many)?];
    for round in 0..rounds {
        for pair in &mut pairs {
            relay(pair, count, round)?;
        }
    }
    println!("\n{count} segments of 1 KiB beside a backlog, medians of {rounds} rounds in turns");
    let mut table = Table::new(&["queued", "accepted/s", "relayed/s", "MiB (RssAnon)"]);
    let mut rates = Vec::new();
    for pair in pairs {
        let (accepted, relayed) = (median(pair.accepted), median(pair.relayed));
        let memory = pair.alpha.rss_anon() >> 20;
        table.row(vec![
            pair.queued.to_string(),
            format!("{accepted:.0}"),
            format!("{relayed:.0}"),
            memory.to_string(),
        ]);
        rates.push([accepted, relayed]);
    }
    table.print();
    if let [few, many] = rates.as_slice() {
        for (what, few, many) in [("accepted", few[0], many[0]), ("relayed", few[1], many[1])] {
            let ratio = many / few;
            let met = if ratio >= BAR { "met" } else { "MISSED" };
            println!("  {what}: {ratio:.2} of the rate beside few; bar: >= {BAR}: {met}");
        }
    }
    Ok(())
}

fn pair(place: &Path, queued: u64) -> Res<Pair> {
    let dir = place.join(queued.to_string());
    std::fs::create_dir(&dir)?;
    let (at, far) = (free_address()?, free_address()?);
    let absent = free_address()?;
    let mut alpha = Real::init(&dir, "alpha", at, &[(load::PEER, absent), (NEAR, far)], None)?;
    let gamma = Real::init(&dir, NEAR, far, &[("alpha", at)], Some(&alpha))?;
    {
        let (disk, _) = Disk::open(&alpha.data())?;
        load::queue(&disk, Load { count: queued, size: SIZE })?;
    }
    println!("{queued} are queued");
    alpha.serve(at, &SETTINGS)?;
    Ok(Pair { queued, alpha, gamma, far, accepted: Vec::new(), relayed: Vec::new() })
}

fn relay(pair: &mut Pair, count: u64, round: usize) -> Res<()> {
    let rate = |seconds: f64| count as f64 / seconds;
    pair.accepted.push(rate(lanes(&pair.alpha, NEAR, count, round)?));
    let before = pair.alpha.count(NEAR, "delivered")?;
    let begun = Instant::now();
    pair.gamma.serve(pair.far, &SETTINGS)?;
    let seconds = until("everything to arrive", || {
        let there = pair.alpha.count(NEAR, "delivered")? - before;
        Ok((there >= count).then(|| begun.elapsed().as_secs_f64()))
    })?;
    pair.relayed.push(rate(seconds));
    pair.gamma.kill()
}
