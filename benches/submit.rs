//! How fast a local client gets segments accepted, each answer behind a synced commit, and how fast what
//! waited for a site arrives once that site listens.
//!
//! `directory`: `consign send DIR` with many files of 1 KiB, by batches. `lanes`: as many one by one, over
//! separate connections side by side. `waiting`: segments queued for a site that is down, from its first
//! accepted connection to the last acknowledgement, whichever side dials.

mod support;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::lanes::{content, lanes};
use support::real::{Real, free_address, until};
use support::table::Table;
use support::{Res, disk, is_test, is_wanted, median, syncs};

const RUNTIMES: [&str; 2] = ["smol", "std"];
const SETTINGS: [(&str, &str); 1] = [("CONSIGN_STORAGE_MIN_FREE", "64MiB")];

fn main() -> Res<()> {
    let (count, waiting, rounds) = if is_test() { (300, 200, 1) } else { (50_000, 5_000, 5) };
    let place = disk()?;
    let raw = syncs(place.path(), Duration::from_millis(if is_test() { 50 } else { 1_000 }))?;
    println!("raw: {raw:.0} synced pages/s");
    for (name, bar) in [("directory", 50_000.0), ("lanes", 20_000.0)] {
        if is_wanted(name) {
            accepted(place.path(), name, count, rounds, (raw, bar))?;
        }
    }
    if is_wanted("waiting") {
        arrives(place.path(), waiting, rounds)?;
    }
    Ok(())
}

/// Segments accepted per second.
fn accepted(
    place: &Path,
    name: &str,
    count: u64,
    rounds: usize,
    (raw, bar): (f64, f64),
) -> Res<()> {
    println!("\n{name}: {count} segments of 1 KiB");
    let mut table = Table::new(&["runtime", "segments/s", ": raw syncs", "rows/commit", "bar"]);
    for runtime in RUNTIMES {
        let dir = place.join(format!("{name}-{runtime}"));
        std::fs::create_dir(&dir)?;
        let at = free_address()?;
        let mut site = Real::init(&dir, "alpha", at, &[("beta", free_address()?)], None)?;
        site.serve(at, &[&SETTINGS[..], &[("CONSIGN_NODE_RUNTIME", runtime)]].concat())?;
        let (mut rates, mut batches) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let before = commits(&site)?;
            let seconds = match name {
                "directory" => directory(&site, &dir.join(format!("files-{round}")), count, round)?,
                _ => lanes(&site, "beta", count, round)?,
            };
            let after = commits(&site)?;
            rates.push(count as f64 / seconds);
            batches.push((after[1] - before[1]) / (after[0] - before[0]).max(1.0));
        }
        let rate = median(rates);
        let (ratio, met) = (rate / raw, if rate >= bar { "met" } else { "MISSED" });
        table.row(vec![
            runtime.into(),
            format!("{rate:.0}"),
            format!("{ratio:.1}"),
            format!("{:.0}", median(batches)),
            format!(">= {bar:.0}: {met}"),
        ]);
    }
    table.print();
    Ok(())
}

/// Commits and their rows so far.
fn commits(site: &Real) -> Res<[f64; 2]> {
    let status = site.status()?;
    let of = |key: &str| status["ledger"][key].as_f64().unwrap_or(0.0);
    Ok([of("commits"), of("rows")])
}

fn directory(site: &Real, dir: &Path, count: u64, round: usize) -> Res<f64> {
    for n in 0..count {
        let below = dir.join((n / 1_000).to_string());
        if n % 1_000 == 0 {
            std::fs::create_dir_all(&below)?;
        }
        std::fs::write(below.join(n.to_string()), content(round, n))?;
    }
    let mut command = site.command(&["send", "--to", "beta"]);
    command.arg(dir).stdout(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let seconds = begun.elapsed().as_secs_f64();
    std::fs::remove_dir_all(dir)?;
    if status.success() { Ok(seconds) } else { Err(format!("send ended: {status}").into()) }
}

/// How long what waits takes once the far site listens.
fn arrives(place: &Path, count: u64, rounds: usize) -> Res<()> {
    println!("\nwaiting: {count} segments of 1 KiB for a site that was down");
    let mut table = Table::new(&["runtime", "who dials", "seconds", "bar"]);
    for runtime in RUNTIMES {
        for dials in ["sender", "receiver"] {
            let dir = place.join(format!("waiting-{runtime}-{dials}"));
            std::fs::create_dir(&dir)?;
            let seconds = median(pair(&dir, runtime, dials, count, rounds)?);
            let met = if seconds < 1.0 { "met" } else { "MISSED" };
            let bar = format!("< 1 s: {met}");
            table.row(vec![runtime.into(), dials.into(), format!("{seconds:.3}"), bar]);
        }
    }
    table.print();
    Ok(())
}

fn pair(dir: &Path, runtime: &str, dials: &str, count: u64, rounds: usize) -> Res<Vec<f64>> {
    let (at, far) = (free_address()?, free_address()?);
    // Nobody listens where the one that is to be dialled is believed to be.
    let nowhere = free_address()?;
    let (to_far, to_at): (SocketAddr, SocketAddr) =
        if dials == "sender" { (far, nowhere) } else { (nowhere, at) };
    let mut alpha = Real::init(dir, "alpha", at, &[("beta", to_far)], None)?;
    let mut beta = Real::init(dir, "beta", far, &[("alpha", to_at)], Some(&alpha))?;
    let settings = [&SETTINGS[..], &[("CONSIGN_NODE_RUNTIME", runtime)]].concat();
    alpha.serve(at, &settings)?;
    let mut spells = Vec::new();
    for round in 0..rounds {
        lanes(&alpha, "beta", count, round)?;
        let before = alpha.count("beta", "delivered")?;
        let spawned = Instant::now();
        let [listening, _] = beta.serve(far, &settings)?;
        let begun = spawned + listening;
        let spell = until("everything to arrive", || {
            let there = alpha.count("beta", "delivered")? - before;
            Ok((there >= count).then(|| begun.elapsed()))
        })?;
        spells.push(spell.as_secs_f64());
        beta.kill()?;
    }
    Ok(spells)
}
