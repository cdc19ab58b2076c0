//! The real binary on a ledger with a large backlog: how long until it listens, what it holds in memory,
//! what a queued delivery takes on the disk, and whether the check of what is stored finishes while a
//! peer receives.
//!
//! `CONSIGN_BACKLOG` says how many deliveries are queued: 10,000 by default; ten million take some
//! minutes to load and about 8 GiB.

mod support;

use std::time::{Duration, Instant};

use consign_core::ledger::Table as Rows;
use consign_storage_lmdb::LmdbStore;

use support::load::{self, Load};
use support::real::{Real, free_address, until};
use support::table::Table;
use support::{Disk, Res, disk, options};

/// Bytes of each segment's content.
const SIZE: usize = 64;
/// Tables whose rows a queued delivery has a share of.
const DELIVERY: [Rows; 3] = [Rows::Deliveries, Rows::Owed, Rows::Due];
/// Tables whose rows a segment has a share of.
const SEGMENT: [Rows; 2] = [Rows::Segments, Rows::Ids];

fn main() -> Res<()> {
    let count: u64 = match std::env::var("CONSIGN_BACKLOG") {
        Ok(count) => count.parse()?,
        Err(_) => 10_000,
    };
    let place = disk()?;
    let (at, far) = (free_address()?, free_address()?);
    let mut alpha = Real::init(place.path(), "alpha", at, &[(load::PEER, far)], None)?;
    let mut beta = Real::init(place.path(), load::PEER, far, &[("alpha", at)], Some(&alpha))?;
    let begun = Instant::now();
    {
        let (disk, _) = Disk::open(&alpha.data())?;
        load::queue(&disk, Load { count, size: SIZE })?;
    }
    println!("queued {count} deliveries in {:.1} s", begun.elapsed().as_secs_f64());
    sizes(&alpha, count)?;

    let [listening, ready] = alpha.serve(at, &[("CONSIGN_STORAGE_MIN_FREE", "64MiB")])?;
    let anon = alpha.rss_anon();
    let begun = Instant::now();
    println!("\nstart: listening after {} ms, ready after {} ms", ms(listening), ms(ready));
    println!("  bar: < 1000 ms: {}", verdict(listening < Duration::from_secs(1)));
    println!("memory when it is ready: {} MiB of RssAnon", anon >> 20);
    println!("  bar: < 128 MiB: {}", verdict(anon < 128 << 20));
    verbs(&alpha, "all of them queued, nobody receives")?;
    beta.serve(far, &[("CONSIGN_STORAGE_MIN_FREE", "64MiB")])?;
    let received = Instant::now();
    verbs(&alpha, "while a peer receives")?;

    let mut peak = anon;
    let mut looked = Instant::now();
    until("the check to end", || {
        peak = peak.max(alpha.rss_anon());
        if looked.elapsed() < Duration::from_millis(50) {
            return Ok(None);
        }
        looked = Instant::now();
        Ok((!alpha.status()?["reconciling"].as_bool().unwrap_or(false)).then_some(()))
    })?;
    let took = begun.elapsed().as_secs_f64();
    let delivered = alpha.count(load::PEER, "delivered")?;
    println!(
        "\nthe check of {count} segments ended after {took:.2} s: {:.0} /s",
        count as f64 / took
    );
    println!(
        "  meanwhile {delivered} deliveries were acknowledged: {:.0} /s",
        delivered as f64 / received.elapsed().as_secs_f64()
    );
    println!(
        "  peak of RssAnon: {} MiB; bar: < 128 MiB: {}",
        peak >> 20,
        verdict(peak < 128 << 20)
    );
    Ok(())
}

/// How long operators wait for an answer while what is stored is checked: whole processes, from their start to their
/// end. One that asks nobody tells what of it is the machine's.
fn verbs(site: &Real, when: &str) -> Res<()> {
    let newest = site.command(&["ls", "--json", "-n", "1"]).output()?;
    let newest: serde_json::Value = serde_json::from_slice(&newest.stdout)?;
    let id = newest["id"].as_str().ok_or("a segment")?.to_owned();
    let asked: [(&[&str], bool); 7] = [
        (&["explain", "CN0001"], false),
        (&["status"], true),
        (&["ls", "--limit", "50"], true),
        (&["explain", &id], true),
        (&["assurance", &id], true),
        (&["quota"], true),
        // Counts every delivery that waits, in slices.
        (&["shape"], false),
    ];
    println!("\nanswers, {when}: the shortest, the median and the longest of nine");
    for (args, barred) in asked {
        let mut times = Vec::new();
        for _ in 0..9 {
            let begun = Instant::now();
            let output = site.command(args).output()?;
            times.push(begun.elapsed());
            if !output.status.success() {
                return Err(format!("{args:?}: {output:?}").into());
            }
        }
        times.sort();
        let bar = match barred {
            true => format!("; bar: < 50 ms: {}", verdict(times[4] < Duration::from_millis(50))),
            false => String::new(),
        };
        let name = if args[1..] == ["CN0001"] { "a process that asks nobody" } else { args[0] };
        let [shortest, median, longest] = [0, 4, 8].map(|i| ms(times[i]));
        println!("  {name}: {shortest}, {median}, {longest} ms{bar}");
    }
    Ok(())
}

/// What each table takes, and a delivery and a segment of it.
fn sizes(site: &Real, count: u64) -> Res<()> {
    let (store, _) = LmdbStore::open(&options(&site.data()))?;
    let tables = store.table_sizes()?;
    let mut shown = Table::new(&["table", "rows", "live bytes", "a row"]);
    for (table, rows, bytes) in tables.iter().filter(|(_, rows, _)| *rows > 0) {
        let cells = [table.word().to_owned(), rows.to_string(), bytes.to_string()];
        shown.row(
            cells.into_iter().chain([format!("{:.1}", *bytes as f64 / *rows as f64)]).collect(),
        );
    }
    println!();
    shown.print();
    let share = |of: &[Rows]| {
        let sum: u64 = tables.iter().filter(|(t, ..)| of.contains(t)).map(|(.., b)| b).sum();
        sum as f64 / count as f64
    };
    let (delivery, segment) = (share(&DELIVERY), share(&SEGMENT));
    println!(
        "  a queued delivery: {delivery:.1} bytes; bar: <= 250: {}",
        verdict(delivery <= 250.0)
    );
    println!(
        "  a segment with its id: {segment:.1} bytes; bar: <= 300: {}",
        verdict(segment <= 300.0)
    );
    Ok(())
}

fn ms(time: Duration) -> u128 {
    time.as_millis()
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
