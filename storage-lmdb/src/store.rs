//! The store: its threads, and who gets what.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use consign_core::id::{BatchNo, BlobNo, ConnId, ReadNo};
use consign_core::ledger::Table;
use consign_core::ledger::read::{ReadRequest, Recovery};
use consign_core::ledger::rows::Body;
use consign_core::node::Input;
use consign_core::store::{
    Batch, CommitFault, Errand, Sink, Snapshot, Store, StoreEvent, StoreFault, StoreRequest,
};

use crate::ledger::LmdbSnapshot;
use crate::open::{self, OpenError, OpenOptions, Opened};
use crate::readers::{self, Ask, NodeRead, Queue};
use crate::shared::{Shared, locked, spawn};
use crate::{blobs, remover, scrubber, writer};

/// Threads that serve sessions' reads.
pub(crate) const READERS: usize = 2;
/// Threads that write content files; a power of two up to 256, so that all blobs of a folder, which is
/// the low byte of their number, go to the same thread.
const BLOB_WRITERS: usize = 2;

/// A data directory that is locked and open. Threads begin with [`Store::start`]; what is handed in
/// before waits for them.
pub struct LmdbStore {
    pub(crate) shared: Arc<Shared>,
    node_reader: Sender<NodeRead>,
    queue: Arc<Queue>,
    blobs: [Sender<blobs::Job>; BLOB_WRITERS],
    remover: Sender<remover::Job>,
    scrubber: Sender<scrubber::Job>,
    waiting: Mutex<Option<Waiting>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held as long as the store is.
    _lock: OwnedFd,
}

/// The other ends, until the threads begin.
struct Waiting {
    writer: Receiver<writer::Job>,
    node_reader: Receiver<NodeRead>,
    blobs: [Receiver<blobs::Job>; BLOB_WRITERS],
    remover: Receiver<remover::Job>,
    scrubber: Receiver<scrubber::Job>,
}

impl LmdbStore {
    /// Locks and opens a data directory, making it when it is new, and reads what the node keeps in
    /// memory.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing was changed when the directory is locked by another process or on
    /// a file system that is refused.
    pub fn open(options: &OpenOptions) -> Result<(LmdbStore, Recovery), OpenError> {
        let Opened { dir, lock, ledger, ballast, mut recovery } = open::open(options)?;
        let committed = ledger.snapshot().map_or(BatchNo(0), |snapshot| snapshot.as_of());
        let (writer, writer_jobs) = channel();
        let shared = Arc::new(Shared::new(dir, ledger, ballast, writer, committed));
        recovery.space = Some(shared.space());
        let (node_reader, node_reads) = channel();
        let (blob_a, blob_a_jobs) = channel();
        let (blob_b, blob_b_jobs) = channel();
        let (remover, remover_jobs) = channel();
        let (scrubber, scrubber_jobs) = channel();
        let waiting = Waiting {
            writer: writer_jobs,
            node_reader: node_reads,
            blobs: [blob_a_jobs, blob_b_jobs],
            remover: remover_jobs,
            scrubber: scrubber_jobs,
        };
        let store = LmdbStore {
            shared,
            node_reader,
            queue: Arc::default(),
            blobs: [blob_a, blob_b],
            remover,
            scrubber,
            waiting: Mutex::new(Some(waiting)),
            threads: Mutex::default(),
            _lock: lock,
        };
        Ok((store, recovery))
    }

    /// A consistent view of the committed ledger, for whoever has the store open. Drop it soon.
    ///
    /// # Errors
    /// When the ledger cannot be read or has too many readers.
    pub fn snapshot(&self) -> Result<LmdbSnapshot<'_>, StoreFault> {
        self.shared.ledger.snapshot()
    }

    /// Rows of each table and the bytes of its live pages.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub fn table_sizes(&self) -> Result<Vec<(Table, u64, u64)>, StoreFault> {
        self.shared.ledger.table_sizes()
    }

    /// What reads content while the store is open, on the reader's own thread.
    #[must_use]
    pub fn content(&self) -> Content {
        Content { shared: Arc::clone(&self.shared) }
    }

    fn blob(&self, blob: BlobNo, job: impl FnOnce() -> blobs::Job) -> bool {
        let at = usize::try_from(blob.0 % BLOB_WRITERS as u64).unwrap_or(0);
        self.blobs.get(at).is_some_and(|writer| writer.send(job()).is_ok())
    }

    fn ask(&self, owner: readers::Owner, ask: Ask) {
        let (conn, ticket) = owner;
        let event = match self.queue.push(owner, ask) {
            Ok(()) => return,
            Err(Ask::Read { offset, .. }) => {
                StoreEvent::Content { ticket, offset, data: Err(stopped()) }
            }
            Err(Ask::Query(_)) => StoreEvent::Queried { ticket, answer: Err(stopped()) },
        };
        self.shared.conn(conn, event);
    }
}

/// Reads content on whatever thread asks; blocks on the disk.
#[derive(Clone)]
pub struct Content {
    shared: Arc<Shared>,
}

impl Content {
    /// Up to `len` bytes from `offset` on; fewer only at the end of the content.
    ///
    /// # Errors
    /// When it is missing or cannot be read.
    pub fn read(&self, body: Body, offset: u64, len: usize) -> Result<Bytes, StoreFault> {
        readers::content(&self.shared, body, offset, len)
    }

    /// The file of a blob, to be cloned, and its length. Not to be written to.
    ///
    /// # Errors
    /// When it is missing or is no regular file.
    pub fn open(&self, blob: BlobNo) -> Result<(OwnedFd, u64), StoreFault> {
        self.shared.dir.open_blob(blob).map_err(|why| readers::file_fault(blob, why))
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("dir", &self.shared.dir.path).finish()
    }
}

fn stopped() -> StoreFault {
    StoreFault::Io("the store has stopped".to_owned())
}

impl std::fmt::Debug for LmdbStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LmdbStore").field("dir", &self.shared.dir.path).finish_non_exhaustive()
    }
}

impl Store for LmdbStore {
    /// The second call changes nothing.
    fn start(&self, sink: Arc<dyn Sink>) {
        let Some(waiting) = locked(&self.waiting).take() else { return };
        self.shared.set_sink(sink);
        let mut threads = Vec::new();
        let Waiting { writer, node_reader, blobs, remover, scrubber } = waiting;
        let shared = &self.shared;
        threads.extend(spawn(shared, "ledger-writer", move |s| writer::run(s, &writer)));
        threads.extend(spawn(shared, "ledger-reader", move |s| readers::run_node(s, &node_reader)));
        threads.extend(spawn(shared, "remover", move |s| remover::run(s, &remover)));
        threads.extend(spawn(shared, "scrubber", move |s| scrubber::run(s, &scrubber)));
        for jobs in blobs {
            threads.extend(spawn(shared, "blob-writer", move |s| blobs::run(s, &jobs)));
        }
        for _ in 0..READERS {
            let queue = Arc::clone(&self.queue);
            threads.extend(spawn(shared, "reader", move |s| readers::run(s, &queue)));
        }
        locked(&self.threads).extend(threads);
    }

    fn commit(&self, batch: Batch) {
        let from = batch.number;
        if self.shared.writer.send(writer::Job::Commit(batch)).is_err() {
            let why = self.shared.broken().unwrap_or("the store has stopped");
            let why = CommitFault::Broken(why.to_owned());
            self.shared.node(Input::CommitFailed { from, why, space: self.shared.space() });
        }
    }

    fn read(&self, number: ReadNo, request: ReadRequest) {
        if self.node_reader.send(NodeRead::Read(number, request)).is_err() {
            self.shared.node(Input::Read(number, Err(stopped())));
        }
    }

    fn request(&self, conn: ConnId, request: StoreRequest) {
        let (blob, taken) = match request {
            StoreRequest::Park { handle, data } => return self.shared.park(handle, data),
            StoreRequest::Read { ticket, body, offset, len } => {
                return self.ask((conn, ticket), Ask::Read { body, offset, len });
            }
            StoreRequest::Query { ticket, query } => {
                return self.ask((conn, ticket), Ask::Query(query));
            }
            StoreRequest::Create { blob, offset } => {
                (blob, self.blob(blob, || blobs::Job::Create(conn, blob, offset)))
            }
            StoreRequest::Write { blob, data } => {
                (blob, self.blob(blob, || blobs::Job::Write(conn, blob, data)))
            }
            StoreRequest::Sync { blob } => (blob, self.blob(blob, || blobs::Job::Sync(conn, blob))),
            StoreRequest::Finish { blob } => {
                (blob, self.blob(blob, || blobs::Job::Finish(conn, blob)))
            }
            StoreRequest::Abandon { blob } => {
                self.blob(blob, || blobs::Job::Abandon(conn, blob));
                return;
            }
        };
        if !taken {
            self.shared.conn(conn, StoreEvent::WriteFailed { blob, fault: stopped() });
        }
    }

    fn errand(&self, errand: Errand) {
        let sent = match errand {
            Errand::Unpark(handle) => {
                self.shared.unpark(handle);
                return;
            }
            Errand::Unlink(blob) => self.remover.send(remover::Job::Unlink(blob)),
            Errand::SetAside(blob) => self.remover.send(remover::Job::SetAside(blob)),
            Errand::Check(wanted) => self.remover.send(remover::Job::Check(wanted)),
            Errand::Sweep { folder, below } => {
                self.remover.send(remover::Job::Sweep(folder, below))
            }
            Errand::Probe => self.remover.send(remover::Job::Probe),
            Errand::Look => {
                self.shared.node(Input::Space(self.shared.space()));
                return;
            }
            Errand::Scrub { items, rate } => {
                // A store that stops has nobody left to tell.
                let _ = self.scrubber.send(scrubber::Job::Scrub(items, rate));
                return;
            }
        };
        let Err(lost) = sent else { return };
        self.shared.node(match lost.0 {
            remover::Job::Unlink(blob) | remover::Job::SetAside(blob) => {
                Input::Unlinked { blob, result: Err(stopped()) }
            }
            remover::Job::Check(_) => Input::Checked { seen: 0, missing: Vec::new() },
            remover::Job::Sweep(folder, _) => Input::Swept { folder, quarantined: 0 },
            remover::Job::Probe | remover::Job::Stop => Input::Space(self.shared.space()),
        });
    }

    fn conn_ended(&self, conn: ConnId) {
        self.queue.forget(conn);
        for writer in &self.blobs {
            // A writer that has stopped has closed everything.
            let _ = writer.send(blobs::Job::ConnEnded(conn));
        }
    }

    fn stop(&self) {
        // A thread that is gone already needs no word.
        let _ = self.shared.writer.send(writer::Job::Stop);
        let _ = self.node_reader.send(NodeRead::Stop);
        let _ = self.remover.send(remover::Job::Stop);
        let _ = self.scrubber.send(scrubber::Job::Stop);
        for writer in &self.blobs {
            let _ = writer.send(blobs::Job::Stop);
        }
        self.queue.stop();
        let threads = std::mem::take(&mut *locked(&self.threads));
        let own = std::thread::current().id();
        // The last owner may drop the store within an answer, on one of these threads.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
            // Panics were caught and reported where they happened.
            let _ = thread.join();
        }
    }
}

impl Drop for LmdbStore {
    fn drop(&mut self) {
        self.stop();
    }
}
