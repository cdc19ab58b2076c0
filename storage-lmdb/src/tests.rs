//! Tests of the store: the contract suite, its model, and what only a disk can do.

mod crash;
mod files;
mod full;
mod lag;
mod model;
mod opening;
mod page;
mod rows;

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::id::{BatchNo, BlobNo, ConnId, Handle, ReadNo};
use consign_core::ledger::read::{ReadRequest, Recovery};
use consign_core::mem::contract::{self, Subject};
use consign_core::node::Input;
use consign_core::store::{
    Batch, CommitFault, Errand, ReadResult, Sink, Snapshot, Space, Store, StoreEvent, StoreRequest,
};
use tempfile::TempDir;

use crate::dir;
use crate::shared::locked;
use crate::{LmdbStore, OpenError, OpenOptions};

/// Errors that tests put before or after the next commit, by number.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) before: Mutex<Option<i32>>,
    pub(crate) after: Mutex<Option<i32>>,
}

impl Faults {
    pub(crate) fn before_commit(&self) -> Result<(), heed::Error> {
        raise(&self.before)
    }

    pub(crate) fn after_commit(&self) -> Result<(), heed::Error> {
        raise(&self.after)
    }
}

fn raise(fault: &Mutex<Option<i32>>) -> Result<(), heed::Error> {
    let fault = locked(fault).take();
    fault.map_or(Ok(()), |errno| Err(heed::Error::Io(std::io::Error::from_raw_os_error(errno))))
}

/// How long a test waits for an answer before it fails: far longer than any disk takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Answers {
    node: Sender<Input>,
    conn: Sender<(ConnId, StoreEvent)>,
}

impl Sink for Answers {
    fn node(&self, input: Input) {
        let _ = self.node.send(input);
    }

    fn conn(&self, conn: ConnId, event: StoreEvent) {
        let _ = self.conn.send((conn, event));
    }
}

/// A running store whose answers can be waited for.
pub(crate) struct Lmdb {
    pub(crate) store: LmdbStore,
    node: Receiver<Input>,
    conn: Receiver<(ConnId, StoreEvent)>,
}

/// Options for tests: a small ballast, any file system.
pub(crate) fn options(dir: &Path) -> OpenOptions {
    let mut options = OpenOptions::new(dir);
    options.ballast_bytes = 1 << 20;
    options.force_fs = true;
    options
}

pub(crate) fn refused(dir: &Path) -> OpenError {
    LmdbStore::open(&options(dir)).expect_err("it is refused")
}

impl Lmdb {
    pub(crate) fn open(options: &OpenOptions) -> (Lmdb, Recovery) {
        let (store, recovery) = LmdbStore::open(options).expect("the store opens");
        let (node_send, node) = channel();
        let (conn_send, conn) = channel();
        store.start(Arc::new(Answers { node: node_send, conn: conn_send }));
        (Lmdb { store, node, conn }, recovery)
    }

    pub(crate) fn at(dir: &Path) -> Lmdb {
        Lmdb::open(&options(dir)).0
    }

    pub(crate) fn answer(&self) -> Input {
        self.node.recv_timeout(PATIENCE).expect("the store answers")
    }

    /// Commits, and tells of the disk too.
    pub(crate) fn try_commit(&self, batch: Batch) -> (Result<(), CommitFault>, Space) {
        let number = batch.number;
        self.store.commit(batch);
        match self.answer() {
            Input::Committed { through, space } => {
                assert_eq!(through, number);
                (Ok(()), space)
            }
            Input::CommitFailed { from, why, space } => {
                assert_eq!(from, number);
                (Err(why), space)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn no_more_answers(self) {
        self.store.stop();
        assert_eq!(self.node.try_iter().collect::<Vec<_>>(), []);
        assert_eq!(self.conn.try_iter().collect::<Vec<_>>(), []);
    }
}

impl Subject for Lmdb {
    fn commit(&self, batch: Batch) -> Result<(), CommitFault> {
        self.try_commit(batch).0
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(self.store.snapshot().expect("the ledger can be read"))
    }

    fn read(&self, request: ReadRequest) -> ReadResult {
        self.store.read(ReadNo(5), request);
        match self.answer() {
            Input::Read(ReadNo(5), answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn request(&self, conn: ConnId, request: StoreRequest) {
        self.store.request(conn, request);
    }

    fn next(&self) -> (ConnId, StoreEvent) {
        self.conn.recv_timeout(PATIENCE).expect("the store answers")
    }

    fn errand(&self, errand: Errand) -> Input {
        self.store.errand(errand);
        self.answer()
    }

    fn unpark(&self, handle: Handle) {
        self.store.errand(Errand::Unpark(handle));
    }

    fn conn_ended(&self, conn: ConnId) {
        self.store.conn_ended(conn);
    }

    fn plant(&self, blob: BlobNo, data: &[u8]) {
        let folder = self.store.shared.dir.make_folder(dir::folder_of(blob));
        folder.expect("the folder is there");
        std::fs::write(blob_path(&self.store.shared.dir.path, blob), data).expect("it is written");
    }

    fn files(&self) -> Vec<BlobNo> {
        let blobs = self.store.shared.dir.path.join(dir::name::BLOBS);
        let folders = std::fs::read_dir(blobs).expect("there are folders");
        let files = folders.flat_map(|folder| {
            std::fs::read_dir(folder.expect("an entry").path()).expect("a folder")
        });
        let name = |file: std::io::Result<std::fs::DirEntry>| {
            let name = file.expect("an entry").file_name();
            BlobNo(name.to_str().expect("a number").parse().expect("a number"))
        };
        let mut files: Vec<BlobNo> = files.map(name).collect();
        files.sort();
        files
    }
}

pub(crate) fn blob_path(dir: &Path, blob: BlobNo) -> std::path::PathBuf {
    let folder = dir::folder_name(dir::folder_of(blob));
    dir.join(dir::name::BLOBS).join(folder).join(blob.to_string())
}

/// A directory on disk, for what depends on one.
pub(crate) fn temp() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A directory in memory if there is one: syncs cost nothing there, and a killed process loses as
/// much as on disk, which is nothing.
pub(crate) fn memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| temp())
}

/// A batch that bears its number.
pub(crate) fn numbered(number: u64) -> Batch {
    contract::numbered(number)
}

pub(crate) fn as_of(store: &Lmdb) -> BatchNo {
    store.store.snapshot().expect("the ledger can be read").as_of()
}

#[test]
fn passes_the_contract_suite() {
    for (what, case) in contract::cases() {
        println!("{what}");
        let dir = temp();
        let store = Lmdb::at(dir.path());
        case(&store);
        store.no_more_answers();
    }
}

#[test]
fn passes_the_contract_suite_through_the_page_cache() {
    // Where it is a file system in memory, direct writes may be refused.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    for (at, (what, case)) in contract::cases().into_iter().enumerate() {
        println!("{what}");
        let store = Lmdb::at(&dir.path().join(at.to_string()));
        case(&store);
        store.no_more_answers();
    }
}
