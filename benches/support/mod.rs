//! What the benches share: a store on a temporary directory whose answers come back in a channel, the
//! bulk loader, and a site stepped by hand.
#![allow(dead_code, reason = "each bench uses its part of it")]

pub mod lanes;
pub mod line;
pub mod load;
pub mod peak;
pub mod real;
pub mod relay;
pub mod site;
pub mod table;

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use consign_core::id::{BatchNo, ConnId};
use consign_core::ledger::read::Recovery;
use consign_core::node::Input;
use consign_core::store::{Batch, Sink, Store, StoreEvent};
use consign_storage_lmdb::{LmdbStore, OpenOptions};

/// What goes wrong in a bench ends it.
pub type Res<T> = Result<T, Box<dyn Error>>;

/// A size with a unit, such as `64MiB`, of the environment variable `name`.
pub fn size_of(name: &str, text: &str) -> Res<u64> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let found = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = found.ok_or_else(|| format!("{name} needs a unit: KiB, MiB or GiB"))?;
    Ok(digits.trim().parse::<u64>()? << shift)
}

/// Whether everything is only to be run once, quickly (`cargo bench -- --test`).
pub fn is_test() -> bool {
    std::env::args().any(|arg| arg == "--test")
}

/// The filter on the command line, if there is one.
pub fn is_wanted(name: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| name.contains(&filter))
}

/// A directory on a real disk: `CONSIGN_BENCH_DIR`, or the target directory. The usual place for
/// temporary files may be memory, where nothing is ever synced.
pub fn disk() -> Res<tempfile::TempDir> {
    let parent = std::env::var_os("CONSIGN_BENCH_DIR").map(std::path::PathBuf::from);
    let parent = parent.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).to_path_buf());
    Ok(tempfile::Builder::new().prefix("consign-bench-").tempdir_in(parent)?)
}

/// How often a second this disk appends a page and syncs it.
pub fn syncs(dir: &Path, spell: Duration) -> Res<f64> {
    let mut file = File::create(dir.join("raw"))?;
    let (begun, mut count) = (Instant::now(), 0u32);
    while begun.elapsed() < spell {
        file.write_all(&[0x5a; 4_096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

/// An open store and its answers.
pub struct Disk {
    pub store: LmdbStore,
    pub inputs: Receiver<Input>,
    pub events: Receiver<StoreEvent>,
}

struct Answers(Mutex<(Sender<Input>, Sender<StoreEvent>)>);

impl Sink for Answers {
    fn node(&self, input: Input) {
        // The bench may have ended.
        let _ = self.0.lock().expect("no thread panics with it").0.send(input);
    }

    fn conn(&self, _: ConnId, event: StoreEvent) {
        let _ = self.0.lock().expect("no thread panics with it").1.send(event);
    }
}

/// The options that every bench opens its data directory with.
pub fn options(dir: &Path) -> OpenOptions {
    let mut options = OpenOptions::new(dir);
    options.ballast_bytes = 0;
    options.force_fs = true;
    options
}

impl Disk {
    /// Opens a data directory and starts its threads.
    pub fn open(dir: &Path) -> Res<(Disk, Recovery)> {
        let (store, recovery) = LmdbStore::open(&options(dir))?;
        Ok((Disk::start(store), recovery))
    }

    /// Starts the threads of an open store.
    pub fn start(store: LmdbStore) -> Disk {
        let (node, inputs) = channel();
        let (conn, events) = channel();
        store.start(Arc::new(Answers(Mutex::new((node, conn)))));
        Disk { store, inputs, events }
    }

    /// Commits a batch and waits until it is durable.
    pub fn commit(&self, batch: Batch) -> Res<BatchNo> {
        self.store.commit(batch);
        match self.inputs.recv()? {
            Input::Committed { through, .. } => Ok(through),
            other => Err(format!("{other:?}").into()),
        }
    }
}

/// The middle of the figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
