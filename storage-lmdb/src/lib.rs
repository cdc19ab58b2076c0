//! The Consign ledger in LMDB and its content files: group commit on one writer thread, readers, blob
//! writers past the page cache, and a remover.
//!
//! The store is dumb: it keeps rows under keys and bytes in files, commits a batch whole or not at all,
//! and says what the disk did. `docs/LEDGER.md` describes what it leaves on disk. Driving it takes no
//! runtime:
//!
//! ```
//! use std::sync::{Arc, mpsc};
//! use consign_core::{id::*, ledger::{Table, rows::*}, node::Input, store::*};
//! use consign_storage_lmdb::{LmdbStore, OpenOptions};
//!
//! struct Answers(mpsc::Sender<Input>);
//! impl Sink for Answers {
//!     fn node(&self, input: Input) { let _ = self.0.send(input); }
//!     fn conn(&self, _: ConnId, _: StoreEvent) {}
//! }
//!
//! let dir = tempfile::tempdir()?;
//! let mut options = OpenOptions::new(dir.path());
//! options.ballast_bytes = 0;
//! options.force_fs = true;
//! let (store, _recovery) = LmdbStore::open(&options)?;
//! let (send, answers) = mpsc::channel();
//! store.start(Arc::new(Answers(send)));
//! let mut batch = Batch::new(BatchNo(1));
//! batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: 1 });
//! store.commit(batch);
//! assert!(matches!(answers.recv()?, Input::Committed { through: BatchNo(1), .. }));
//! store.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blobs;
mod block;
mod cooled;
mod dir;
mod file;
mod grown;
mod lag;
mod ledger;
mod open;
mod readers;
mod remover;
mod scrubber;
mod shape;
mod shared;
mod space;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use grown::LargeFile;
pub use ledger::LmdbSnapshot;
pub use open::{
    Aside, Compacted, HowFiles, Offline, OfflineSnapshot, OpenError, OpenOptions, WatchFiles,
};
pub use store::{Content, LmdbStore};
