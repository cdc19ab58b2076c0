//! The threads of a run, so that its end can wait for them.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Stack of a connection's thread, in bytes; only what is touched takes memory.
const STACK: usize = 512 << 10;

type Handles = BTreeMap<u64, JoinHandle<()>>;

/// Threads that have not ended yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Arc<Mutex<(u64, Handles)>>);

impl Threads {
    /// Starts a thread.
    ///
    /// # Errors
    /// When the system allows no more of them.
    pub(crate) fn spawn(
        &self,
        name: String,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let threads = self.clone();
        let mut inner = self.lock();
        let number = inner.0;
        inner.0 += 1;
        let handle = Builder::new().name(name).stack_size(STACK).spawn(move || {
            work();
            // Nobody need wait for the little that is left of it.
            threads.lock().1.remove(&number);
        })?;
        inner.1.insert(number, handle);
        Ok(())
    }

    /// Waits for all of them.
    pub(crate) fn join(&self) {
        let handles = std::mem::take(&mut self.lock().1);
        for handle in handles.into_values() {
            if handle.join().is_err() {
                tracing::error!(code = "CN0547", "a thread panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, Handles)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
