//! What this machine can do at all, without any relay: what every other figure is a part of.
//!
//! `hash`, `wire` and `disk` are measured in turns, several rounds, and the one in the middle counts.

mod support;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use consign::bench::{Load, Raw};
use consign_core::id::BatchNo;
use consign_core::ledger::Table as Rows;
use consign_core::ledger::rows::{MetaName, MetaRow};
use consign_core::store::Batch;
use sha2::{Digest, Sha256};

use support::table::Table;
use support::{Disk, Res, disk, is_test, is_wanted, median};

/// Bytes hashed, written and read at a time.
const BLOCK: usize = 1 << 20;
/// Rows of a commit of the ledger.
const BATCHES: [u64; 4] = [1, 10, 100, 1_000];
/// Bytes of each of those rows, as a delivery's.
const ROW: usize = 100;

fn main() -> Res<()> {
    let mut table = Table::new(&["limit", "figure", "unit"]);
    let rounds = if is_test() { 1 } else { 5 };
    if is_wanted("hash") {
        hashes(rounds, &mut table);
    }
    if is_wanted("wire") {
        wire(rounds, &mut table)?;
    }
    if is_wanted("disk") {
        writes(rounds, &mut table)?;
    }
    if is_wanted("commit") {
        commits(rounds, &mut table)?;
    }
    println!("\nraw limits of this machine, median of {rounds}");
    table.print();
    Ok(())
}

/// How long each figure is measured.
fn spell() -> Duration {
    Duration::from_millis(if is_test() { 20 } else { 400 })
}

/// Does something over and over; how often a second.
fn per_second<E>(mut each: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let begun = Instant::now();
    let mut count = 0_u32;
    while count == 0 || begun.elapsed() < spell() {
        each()?;
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

fn line(table: &mut Table, what: &str, figures: Vec<f64>, unit: &str) {
    let figure = median(figures);
    let shown = if figure >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.1}") };
    table.row(vec![what.to_owned(), shown, unit.to_owned()]);
}

/// One core, in memory.
fn hashes(rounds: usize, table: &mut Table) {
    let block = vec![0xa5_u8; BLOCK];
    let (mut blake, mut sha) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let hash = || {
            std::hint::black_box(blake3::hash(std::hint::black_box(&block)));
            Ok::<(), ()>(())
        };
        blake.extend(per_second(hash).map(|n| n * BLOCK as f64 / 1e6));
        let hash = || {
            std::hint::black_box(Sha256::digest(std::hint::black_box(&block)));
            Ok::<(), ()>(())
        };
        sha.extend(per_second(hash).map(|n| n * BLOCK as f64 / 1e6));
    }
    line(table, "BLAKE3, one core", blake, "MB/s");
    line(table, "SHA-256, one core", sha, "MB/s");
}

/// One TLS stream on loopback; its other end is on the other core.
fn wire(rounds: usize, table: &mut Table) -> Res<()> {
    let dir = disk()?;
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let raw = Raw::measure(dir.path(), &[] as &[Load]).map_err(|e| e.to_string())?;
        rates.push(raw.tls / 1e6);
    }
    line(table, "TLS 1.3 stream on loopback, both ends here", rates, "MB/s");
    Ok(())
}

/// Files: small appends with a sync each, and a large one, past the page cache and through it.
fn writes(rounds: usize, table: &mut Table) -> Res<()> {
    let dir = disk()?;
    let size = if is_test() { 8 * BLOCK } else { 512 * BLOCK };
    let path = dir.path().join("file");
    let (mut syncs, mut cached, mut direct, mut both) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        syncs.push(support::syncs(dir.path(), spell())?);
        let rate = |seconds: f64| size as f64 / seconds / 1e6;
        cached.push(rate(fill(&path, size)?));
        std::fs::remove_file(&path)?;
        // The second is what a relay's disk does while it receives one segment and sends another.
        let (alone, beside) = Raw::large(dir.path(), size as u64)?;
        direct.push(alone / 1e6);
        both.push(beside / 1e6);
    }
    line(table, "4 KiB appended and synced", syncs, "per s");
    line(table, "one large file written and synced, through the page cache", cached, "MB/s");
    line(table, "the same past it (O_DIRECT)", direct, "MB/s");
    line(table, "the same while another is read", both, "MB/s");
    Ok(())
}

/// Seconds to write so many bytes through the page cache and sync them once.
fn fill(path: &Path, size: usize) -> Res<f64> {
    let block = vec![0xa5_u8; BLOCK];
    let mut file = File::create(path)?;
    let begun = Instant::now();
    for _ in 0..size / BLOCK {
        file.write_all(&block)?;
    }
    file.sync_data()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The ledger's own commits: the writer's thread, two syncs each.
fn commits(rounds: usize, table: &mut Table) -> Res<()> {
    let dir = disk()?;
    let (disk, _) = Disk::open(&dir.path().join("data"))?;
    let mut number = 0;
    let mut rates = vec![Vec::new(); BATCHES.len()];
    for _ in 0..rounds {
        for (rows, rates) in BATCHES.iter().zip(&mut rates) {
            let commit = || {
                number += 1;
                disk.commit(batch(number, *rows)).map(drop)
            };
            rates.push(per_second(commit)?);
        }
    }
    for (rows, rates) in BATCHES.iter().zip(rates) {
        let what = format!("synced commits of the ledger, {rows} rows of {ROW} B");
        line(table, &what, rates, "per s");
    }
    Ok(())
}

/// Rows in the order of their keys, as those of segments come.
fn batch(number: u64, rows: u64) -> Batch {
    let mut batch = Batch::new(BatchNo(number));
    for row in 0..rows {
        batch.put_raw(Rows::Receipts, &((number * 1_000) + row).to_be_bytes(), &[0xa5; ROW]);
    }
    batch.put(Rows::Meta, MetaName::Batch.key(), &MetaRow { value: number });
    batch
}
