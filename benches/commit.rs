//! What the store makes of this disk: synced commits of relayed segments of 1 KiB over batch sizes, at
//! the site that accepts them and at the one that receives them, and one large content file, each
//! beside a raw figure of the same disk and run.

mod support;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use consign_core::id::{BatchNo, BlobNo, ConnId, Seq};
use consign_core::ledger::rows::{IdRow, MetaName, MetaRow};
use consign_core::ledger::{Table as Rows, keys};
use consign_core::limits::{BATCH_ROWS, SEGMENT_MAX};
use consign_core::store::{Batch, Store, StoreEvent, StoreRequest};

use support::load::{self, Origin};
use support::table::Table;
use support::{Disk, Res, disk, is_test, is_wanted, median, syncs};

/// Content of each segment.
const SIZE: usize = 1_024;
/// Segments of a commit. A node's batch holds [`BATCH_ROWS`] rows: 585 accepted segments or 1,365
/// received ones; what lies beyond shows where the curve would go.
const BATCHES: [u64; 5] = [1, 10, 100, 1_000, 4_096];
/// Bytes of a content file that may be under way, as credit would bound them.
const CREDIT: u64 = 4 << 20;

fn main() -> Res<()> {
    if is_wanted("accept") {
        curve("accepted for one peer", Origin::Here)?;
    }
    if is_wanted("receive") {
        curve("received from a peer", Origin::Peer)?;
    }
    if is_wanted("file") {
        files()?;
    }
    Ok(())
}

/// Synced commits of every batch size, in turns.
fn curve(what: &str, origin: Origin) -> Res<()> {
    let dir = disk()?;
    let (disk, _) = Disk::open(&dir.path().join("data"))?;
    let (rounds, spell) =
        if is_test() { (1, Duration::from_millis(50)) } else { (5, Duration::from_millis(600)) };
    let (mut number, mut seq) = (0, 0);
    let mut rates = vec![Vec::new(); BATCHES.len()];
    let mut raw = Vec::new();
    for _ in 0..rounds {
        raw.push(syncs(dir.path(), spell / 2)?);
        for (size, rates) in BATCHES.iter().zip(&mut rates) {
            let begun = Instant::now();
            let mut time = Duration::ZERO;
            let mut commits = 0;
            while begun.elapsed() < spell {
                number += 1;
                let batch = batch(&disk, number, &mut seq, *size, origin);
                let begun = Instant::now();
                disk.commit(batch)?;
                time += begun.elapsed();
                commits += 1;
            }
            rates.push(f64::from(commits) / time.as_secs_f64());
        }
    }
    let raw = median(raw);
    println!("\nsynced commits of segments of 1 KiB {what}, median of {rounds}");
    println!("  raw: 4 KiB appended and fdatasync'd {raw:.0}/s");
    let mut table =
        Table::new(&["segments", "commits/s", "segments/s", "us/segment", "commits : raw"]);
    for (size, rates) in BATCHES.iter().zip(rates) {
        let rate = median(rates);
        let segments = rate * *size as f64;
        table.row(vec![
            size.to_string(),
            format!("{rate:.0}"),
            format!("{segments:.0}"),
            format!("{:.1}", 1e6 / segments),
            format!("{:.2}", rate / raw),
        ]);
    }
    table.print();
    println!("  {seq} segments held at the end; a batch of a node has at most {BATCH_ROWS} rows");
    Ok(())
}

fn batch(disk: &Disk, number: u64, seq: &mut u64, size: u64, origin: Origin) -> Batch {
    let mut batch = Batch::new(BatchNo(number));
    for _ in 0..size {
        *seq += 1;
        let id = match origin {
            Origin::Here => load::segment(disk, &mut batch, *seq, SIZE),
            Origin::Peer => load::stored(disk, &mut batch, *seq, SIZE, origin).id,
        };
        batch.put(Rows::Ids, &keys::id(&id), &IdRow { seq: Seq(*seq) });
    }
    let meta = [
        (MetaName::Batch, number),
        (MetaName::NextSeq, *seq + 1),
        (MetaName::NextBody, *seq + 1),
        (MetaName::Segments, *seq),
        (MetaName::UsedBytes, *seq * SIZE as u64),
    ];
    for (name, value) in meta {
        batch.put(Rows::Meta, name.key(), &MetaRow { value });
    }
    batch
}

/// One content file, beside a plain write and sync of the same length.
fn files() -> Res<()> {
    let dir = disk()?;
    let (disk, _) = Disk::open(&dir.path().join("data"))?;
    let (rounds, size) = if is_test() { (1, 16 << 20) } else { (5, 512 << 20) };
    let (mut ours, mut raws) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        raws.push(raw_file(dir.path(), size)?);
        ours.push(content_file(&disk, BlobNo(round + 1), size)?);
    }
    let (ours, raw) = (median(ours), median(raws));
    println!("\none content file of {} MiB, median of {rounds}", size >> 20);
    println!("  {ours:.0} MB/s, {:.2} of a plain write and fdatasync ({raw:.0} MB/s)", ours / raw);
    Ok(())
}

fn content_file(disk: &Disk, blob: BlobNo, size: u64) -> Res<f64> {
    let conn = ConnId::default();
    let piece = Bytes::from(vec![0xa5; SEGMENT_MAX]);
    let (mut sent, mut freed) = (0, 0);
    let begun = Instant::now();
    disk.store.request(conn, StoreRequest::Create { blob, offset: 0 });
    loop {
        while sent < size && sent - freed < CREDIT {
            let data = Bytes::copy_from_slice(&piece);
            disk.store.request(conn, StoreRequest::Write { blob, data });
            sent += piece.len() as u64;
            if sent == size {
                disk.store.request(conn, StoreRequest::Finish { blob });
            }
        }
        match disk.events.recv()? {
            StoreEvent::Written { bytes, .. } => freed += bytes,
            StoreEvent::Finished { .. } => break,
            other => return Err(format!("{other:?}").into()),
        }
    }
    Ok(size as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

fn raw_file(dir: &Path, size: u64) -> Res<f64> {
    let path = dir.join("raw");
    let mut file = File::create(&path)?;
    let block = vec![0xa5; 1 << 20];
    let begun = Instant::now();
    for _ in 0..size >> 20 {
        file.write_all(&block)?;
    }
    file.sync_data()?;
    let rate = size as f64 / 1e6 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}
