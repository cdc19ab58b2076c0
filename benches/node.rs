//! What a node costs as its backlog grows: picking and claiming deliveries with 10 thousand and with a
//! million of them queued, and coming up with a million queued.
//!
//! Both bars are printed at the end; `README.md` beside this file says how to read them.

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use consign_core::node::Node;
use consign_storage_lmdb::LmdbStore;

use support::load::{self, Load};
use support::site::{self, Site, Spent};
use support::table::Table;
use support::{Disk, Res, disk, is_test, is_wanted, median, options};

/// Deliveries of one measurement, at least: a turn claims up to 1,024 more at a time.
const ROUND: u64 = 768;
/// Bytes of each segment's content: picking does not look at it.
const SIZE: usize = 64;

fn main() -> Res<()> {
    let (few, many, rounds) = if is_test() { (4_096, 8_192, 1) } else { (10_000, many()?, 4) };
    let dir = disk()?;
    let (small, large) = (dir.path().join("few"), dir.path().join("many"));
    let begun = Instant::now();
    fill(&small, few)?;
    fill(&large, many)?;
    println!("queued {few} and {many} deliveries in {:.1} s", begun.elapsed().as_secs_f64());
    if is_wanted("start") {
        starts(&[(few, &small), (many, &large)])?;
    }
    if is_wanted("pick") {
        picks([(few, &small), (many, &large)], rounds)?;
    }
    Ok(())
}

/// A million, or what `CONSIGN_BACKLOG` says.
fn many() -> Res<u64> {
    Ok(std::env::var("CONSIGN_BACKLOG").map_or(Ok(1_000_000), |count| count.parse())?)
}

fn fill(dir: &Path, count: u64) -> Res<()> {
    let (disk, _) = Disk::open(dir)?;
    load::queue(&disk, Load { count, size: SIZE })
}

/// Opening the ledger, recovering the node, binding a listener.
fn starts(ledgers: &[(u64, &Path)]) -> Res<()> {
    println!("\nstart to listening, median of 7 (ms)");
    let mut table = Table::new(&["queued", "open + recovery", "node", "listen", "sum", "bar"]);
    for (count, dir) in ledgers {
        let (mut opens, mut nodes, mut binds, mut sums) = (vec![], vec![], vec![], vec![]);
        for _ in 0..if is_test() { 1 } else { 7 } {
            let begun = Instant::now();
            let (store, recovery) = LmdbStore::open(&options(dir))?;
            let opened = begun.elapsed();
            let node = Node::recover(site::config(), recovery, site::start())?;
            let recovered = begun.elapsed();
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let listening = begun.elapsed();
            opens.push(ms(opened));
            nodes.push(ms(recovered - opened));
            binds.push(ms(listening - recovered));
            sums.push(ms(listening));
            drop((store, node, listener));
        }
        let sum = median(sums);
        let mut row = vec![count.to_string()];
        row.extend([opens, nodes, binds].map(|ms| format!("{:.2}", median(ms))));
        row.extend([format!("{sum:.2}"), verdict(sum < 1_000.0, "< 1000")]);
        table.row(row);
    }
    table.print();
    Ok(())
}

/// The same work on both ledgers, in turns.
fn picks(ledgers: [(u64, &Path); 2], rounds: usize) -> Res<()> {
    let mut sites = Vec::new();
    for (count, dir) in ledgers {
        let begun = Instant::now();
        let mut site = Site::open(dir)?;
        println!("\n{count} queued: start-up check done in {:.2} s", begun.elapsed().as_secs_f64());
        site.connect()?;
        sites.push((count, site, Vec::new()));
    }
    for round in 0..=rounds {
        for (_, site, spent) in &mut sites {
            let now = site.deliver(ROUND)?;
            // The first round warms up.
            if round > 0 || is_test() {
                spent.push(now);
            }
        }
    }
    println!("\npick, claim and settle, median of {rounds} rounds of {ROUND} (us per delivery)");
    let mut table = Table::new(&[
        "queued",
        "node",
        "reads",
        "pick",
        "commit",
        "all",
        "steps/s",
        "deliveries/s",
        "rows/commit",
    ]);
    let mut costs = Vec::new();
    for (count, _, spent) in &sites {
        let of = |part: fn(&Spent) -> f64| median(spent.iter().map(part).collect());
        let node = of(|s| per(s, s.node));
        let reads = of(|s| per(s, s.reads));
        let pick = of(|s| per(s, s.node + s.reads));
        let commit = of(|s| per(s, s.commits));
        let all = of(|s| per(s, s.node + s.reads + s.commits));
        costs.push((pick, all));
        let mut row = vec![count.to_string()];
        row.extend([node, reads, pick, commit, all].map(|us| format!("{us:.2}")));
        row.push(format!("{:.0}", of(|s| s.steps as f64 / s.node.as_secs_f64())));
        row.push(format!("{:.0}", 1e6 / all));
        row.push(format!("{:.0}", of(|s| s.rows as f64 / s.batches as f64)));
        table.row(row);
    }
    table.print();
    if let [(few, few_all), (many, many_all)] = costs[..] {
        let (pick, all) = (many / few, many_all / few_all);
        println!(
            "  ratio: pick {pick:.2} ({}), with commits {all:.2}",
            verdict(pick < 1.5, "< 1.5")
        );
    }
    Ok(())
}

fn per(spent: &Spent, time: Duration) -> f64 {
    time.as_secs_f64() * 1e6 / spent.sent as f64
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn verdict(met: bool, bar: &str) -> String {
    format!("{bar}: {}", if met { "met" } else { "MISSED" })
}
