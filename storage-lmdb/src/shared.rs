//! What all threads of the store share, and what happens when one of them fails.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use consign_core::id::{BatchNo, ConnId, Handle};
use consign_core::node::Input;
use consign_core::store::{CommitFault, NeverMade, Sink, Space, StoreEvent};

use crate::dir::DataDir;
use crate::ledger::Ledger;
use crate::readers::Pages;
use crate::space::{self, Ballast};
use crate::writer;

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) dir: DataDir,
    pub(crate) ledger: Ledger,
    pub(crate) ballast: Ballast,
    pub(crate) writer: Sender<writer::Job>,
    parked: Mutex<BTreeMap<Handle, Bytes>>,
    /// Memory for what is read past the page cache.
    pub(crate) pages: Pages,
    /// Held by whoever makes a file, and by whoever finds none to remove.
    pub(crate) never: Mutex<NeverMade>,
    sink: OnceLock<Arc<dyn Sink>>,
    committed: AtomicU64,
    /// Bytes that were free when the disk said so last.
    free: AtomicU64,
    broken: OnceLock<String>,
    #[cfg(test)]
    pub(crate) faults: crate::tests::Faults,
}

impl Shared {
    pub(crate) fn new(
        dir: DataDir,
        ledger: Ledger,
        ballast: Ballast,
        writer: Sender<writer::Job>,
        committed: BatchNo,
    ) -> Shared {
        Shared {
            dir,
            writer,
            ledger,
            ballast,
            parked: Mutex::default(),
            pages: Pages::default(),
            never: Mutex::default(),
            sink: OnceLock::new(),
            committed: AtomicU64::new(committed.0),
            free: AtomicU64::new(u64::MAX),
            broken: OnceLock::new(),
            #[cfg(test)]
            faults: crate::tests::Faults::default(),
        }
    }

    /// Sets where answers go; the first one stays.
    pub(crate) fn set_sink(&self, sink: Arc<dyn Sink>) -> bool {
        self.sink.set(sink).is_ok()
    }

    /// Answers the node.
    pub(crate) fn node(&self, input: Input) {
        if let Some(sink) = self.sink.get() {
            sink.node(input);
        }
    }

    /// Answers a connection.
    pub(crate) fn conn(&self, conn: ConnId, event: StoreEvent) {
        if let Some(sink) = self.sink.get() {
            sink.conn(conn, event);
        }
    }

    /// Answers a connection several times, in order.
    pub(crate) fn conn_all(&self, conn: ConnId, events: Vec<StoreEvent>) {
        if let Some(sink) = self.sink.get() {
            sink.conn_all(conn, events);
        }
    }

    pub(crate) fn park(&self, handle: Handle, data: Bytes) {
        locked(&self.parked).insert(handle, data);
    }

    pub(crate) fn unpark(&self, handle: Handle) -> Option<Bytes> {
        locked(&self.parked).remove(&handle)
    }

    pub(crate) fn set_committed(&self, batch: BatchNo) {
        self.committed.store(batch.0, Ordering::Release);
    }

    /// The disk as it is.
    pub(crate) fn space(&self) -> Space {
        Space {
            // A disk that does not answer is not called full: the next write will tell.
            free: match space::free(&self.dir) {
                Some(free) => {
                    self.free.store(free, Ordering::Relaxed);
                    free
                }
                None => self.free.load(Ordering::Relaxed),
            },
            ledger: self.ledger.live_bytes(),
            ballast_whole: self.ballast.whole(),
        }
    }

    /// Why nothing is committed any more, if so.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    /// The store cannot be trusted any more: commits nothing from now on. Whether this was the first
    /// time.
    pub(crate) fn set_broken(&self, why: &str) -> bool {
        tracing::error!(why, code = "CN0566", "the store has failed");
        self.broken.set(why.to_owned()).is_ok()
    }

    /// As [`Shared::set_broken`], and has the node told outside any commit: by the writer, so that a
    /// commit that is under way is answered first, and at once when there is no writer any more.
    pub(crate) fn fail(&self, why: &str) {
        if self.set_broken(why) && self.writer.send(writer::Job::Broken).is_err() {
            self.say_broken();
        }
    }

    /// Tells the node that nothing will be committed any more.
    pub(crate) fn say_broken(&self) {
        let next = self.committed.load(Ordering::Acquire).saturating_add(1);
        let why = self.broken().unwrap_or("the store has failed").to_owned();
        self.node(Input::CommitFailed {
            from: BatchNo(next),
            why: CommitFault::Broken(why),
            space: self.space(),
        });
    }

    /// Fails the store if a read found the ledger damaged.
    pub(crate) fn fail_if_damaged(&self) {
        if let Some(damage) = self.ledger.damage() {
            self.fail(damage);
        }
    }
}

/// Locks, whatever happened to the last who had it: every critical section here leaves its data whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread. If its body panics the store fails; it is never silent.
pub(crate) fn spawn(
    shared: &Arc<Shared>,
    name: &str,
    body: impl FnOnce(&Shared) + Send + 'static,
) -> Option<JoinHandle<()>> {
    let own = Arc::clone(shared);
    let label = name.to_owned();
    let run = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&own))) {
            own.fail(&format!("thread {label} panicked: {}", message(&*panic)));
        }
    };
    match std::thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(thread) => Some(thread),
        Err(why) => {
            shared.fail(&format!("thread {name} cannot be started: {why}"));
            None
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
