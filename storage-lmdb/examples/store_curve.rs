//! What the store can do on this disk: synced commits of relayed segments at several batch sizes, and
//! one large content file, each beside a raw figure of the same disk.
//!
//! ```text
//! cargo run --release -p consign-storage-lmdb --example store_curve [DIR]
//! ```

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use consign_core::id::{
    BatchNo, BlobDigest, BlobNo, BodyNo, ConnId, Handle, SegmentId, Seq, SiteNo,
};
use consign_core::ledger::Table;
use consign_core::ledger::keys::{self, DueKey};
use consign_core::ledger::rows::{Body, CounterRow, DeliveryRow, IdRow, MetaName, MetaRow};
use consign_core::ledger::rows::{SegmentRow, State};
use consign_core::limits::SEGMENT_MAX;
use consign_core::node::Input;
use consign_core::segment::{Class, Destinations, Meta};
use consign_core::store::{Batch, Sink, Store, StoreEvent, StoreRequest};
use consign_core::time::UnixMillis;
use consign_storage_lmdb::{LmdbStore, OpenOptions};

/// How long each batch size is measured.
const SPELL: Duration = Duration::from_secs(2);
/// Length of the content file.
const LARGE: u64 = 2 << 30;
/// Bytes a session may have under way, as credit would bound them.
const CREDIT: u64 = 4 << 20;

struct Answers(Sender<Input>, OnceLock<Sender<StoreEvent>>);

impl Sink for Answers {
    fn node(&self, input: Input) {
        let _ = self.0.send(input);
    }

    fn conn(&self, _: ConnId, event: StoreEvent) {
        if let Some(conn) = self.1.get() {
            let _ = conn.send(event);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = match std::env::args_os().nth(1) {
        Some(parent) => tempfile::tempdir_in(parent)?,
        None => tempfile::tempdir()?,
    };
    let mut options = OpenOptions::new(dir.path().join("data"));
    options.force_fs = true;
    let (store, _) = LmdbStore::open(&options)?;
    let (node, inputs) = channel();
    let (conn, events) = channel();
    store.start(Arc::new(Answers(node, OnceLock::from(conn))));
    println!("raw fdatasync of 4 KiB appended: {:.0}/s", raw_syncs(dir.path())?);
    println!("{:>8} {:>10} {:>12} {:>12}", "batch", "commits/s", "segments/s", "us/segment");
    let (mut number, mut seq) = (0, 0);
    for size in [1, 10, 100, 1000, 4096 / 7] {
        curve(&store, &inputs, size, &mut number, &mut seq)?;
    }
    println!("{seq} segments held, ledger file {} MiB", ledger_size(dir.path())? >> 20);
    let raw = raw_write(dir.path())?;
    let (rate, anon) = large(&store, &events)?;
    println!(
        "one file of {} MiB: {rate:.0} MB/s, {:.2} of a plain write and sync",
        LARGE >> 20,
        rate / raw
    );
    println!("anonymous memory at most {anon} KiB");
    store.stop();
    Ok(())
}

fn curve(
    store: &LmdbStore,
    inputs: &Receiver<Input>,
    size: u64,
    number: &mut u64,
    seq: &mut u64,
) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let (mut commits, mut segments) = (0u32, 0u32);
    while begun.elapsed() < SPELL {
        *number += 1;
        let mut batch = Batch::new(BatchNo(*number));
        for _ in 0..size {
            *seq += 1;
            accept(store, &mut batch, *seq);
        }
        batch.put(Table::Meta, MetaName::NextSeq.key(), &MetaRow { value: *seq + 1 });
        batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: *number });
        let counter = CounterRow { count: *seq, bytes: *seq * 1024 };
        batch.put(Table::Counters, &keys::counter(SiteNo(1), 0), &counter);
        store.commit(batch);
        match inputs.recv()? {
            Input::Committed { .. } => commits += 1,
            other => return Err(format!("{other:?}").into()),
        }
        segments += u32::try_from(size)?;
    }
    let took = begun.elapsed().as_secs_f64();
    println!(
        "{size:>8} {:>10.0} {:>12.0} {:>12.1}",
        f64::from(commits) / took,
        f64::from(segments) / took,
        took * 1e6 / f64::from(segments)
    );
    Ok(())
}

/// Rows of a segment of 1 KiB accepted for one peer.
fn accept(store: &LmdbStore, batch: &mut Batch, seq: u64) {
    let conn = ConnId::default();
    let handle = Handle { conn, number: seq as u32 };
    let mut hash = [0u8; 32];
    for (at, part) in hash.chunks_exact_mut(8).enumerate() {
        let mixed = (seq + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        part.copy_from_slice(&mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9).to_be_bytes());
    }
    store.request(conn, StoreRequest::Park { handle, data: Bytes::from(vec![seq as u8; 1024]) });
    let (id, peer, at) = (SegmentId(hash), SiteNo(1), 1_790_000_000_000 + seq);
    let meta = Meta { name: format!("reading-{seq}.json"), accepted_at: at, ..Meta::default() };
    let segment = SegmentRow {
        id,
        digest: BlobDigest(hash),
        size: 1024,
        body: Body::Inline(BodyNo(seq)),
        meta,
        to: Destinations::All,
        here: false,
        origin: String::new(),
        origin_seq: seq,
        hops: 0,
        accepted_at: at,
        required: 1,
        acked: 0,
        relayed_at: None,
        held: false,
        from: 0,
    };
    let delivery = DeliveryRow {
        state: State::Scheduled,
        attempts: 0,
        spent: 0,
        next_attempt_after: at,
        last_error: 0,
        since: at,
        custody: None,
        held: None,
        claimed_at: None,
        refused: 0,
    };
    let due = DueKey {
        peer,
        class: Class::Normal,
        at: UnixMillis(at),
        id8: keys::id8(&id),
        seq: Seq(seq),
    };
    batch.put(Table::Segments, &keys::seq(Seq(seq)), &segment);
    batch.put(Table::Ids, &keys::id(&id), &IdRow { seq: Seq(seq) });
    batch.put_body(BodyNo(seq), handle, 1024);
    batch.put(Table::Deliveries, &keys::delivery(Seq(seq), peer), &delivery);
    batch.put_key(Table::Due, &due.key());
    batch.put_key(Table::Owed, &keys::peer_seq(peer, Seq(seq)));
    batch.put_key(Table::Unmet, &keys::unmet(UnixMillis(at), Seq(seq)));
}

/// Writes one large file as a session would; MB/s, and anonymous memory in KiB.
fn large(store: &LmdbStore, events: &Receiver<StoreEvent>) -> Result<(f64, u64), Box<dyn Error>> {
    let (conn, blob) = (ConnId::default(), BlobNo(1));
    let piece = Bytes::from(vec![0xa5; SEGMENT_MAX]);
    let (mut sent, mut freed, mut anon) = (0, 0, 0);
    let begun = Instant::now();
    store.request(conn, StoreRequest::Create { blob, offset: 0 });
    loop {
        while sent < LARGE && sent - freed < CREDIT {
            store.request(conn, StoreRequest::Write { blob, data: Bytes::copy_from_slice(&piece) });
            sent += piece.len() as u64;
            if sent == LARGE {
                store.request(conn, StoreRequest::Finish { blob });
            }
        }
        match events.recv()? {
            StoreEvent::Written { bytes, .. } => freed += bytes,
            StoreEvent::Finished { .. } => break,
            other => return Err(format!("{other:?}").into()),
        }
        anon = anon.max(rss_anon());
    }
    Ok((LARGE as f64 / 1e6 / begun.elapsed().as_secs_f64(), anon))
}

fn rss_anon() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn ledger_size(dir: &Path) -> std::io::Result<u64> {
    Ok(std::fs::metadata(dir.join("data/ledger/data.mdb"))?.len())
}

fn raw_syncs(dir: &Path) -> std::io::Result<f64> {
    let mut file = File::create(dir.join("raw"))?;
    let (begun, mut count) = (Instant::now(), 0u32);
    while begun.elapsed() < SPELL / 2 {
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

/// A plain write of the same length through the page cache, and its sync; MB/s.
fn raw_write(dir: &Path) -> std::io::Result<f64> {
    let mut file = File::create(dir.join("raw"))?;
    let block = vec![0xa5; 1 << 20];
    let begun = Instant::now();
    for _ in 0..LARGE >> 20 {
        file.write_all(&block)?;
    }
    file.sync_data()?;
    let rate = LARGE as f64 / 1e6 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(dir.join("raw"))?;
    Ok(rate)
}
