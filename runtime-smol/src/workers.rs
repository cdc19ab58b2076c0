//! The executor and its threads.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use smol::{Executor, Task};

use crate::wake::Signal;

/// Threads that run tasks. TLS and sessions are the work; the disk has threads of its own.
const THREADS: usize = 2;

/// An executor with threads.
#[derive(Debug)]
pub(crate) struct Workers {
    executor: Arc<Executor<'static>>,
    over: Arc<Signal>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system allows no more of them.
    pub(crate) fn start() -> io::Result<Workers> {
        let workers = Workers {
            executor: Arc::new(Executor::new()),
            over: Arc::default(),
            threads: Mutex::default(),
        };
        for i in 0..THREADS {
            let (executor, over) = (workers.executor.clone(), workers.over.clone());
            let run = move || futures_lite::future::block_on(executor.run(over.wait()));
            match Builder::new().name(format!("worker-{i}")).spawn(run) {
                Ok(thread) => workers.lock().push(thread),
                Err(error) => {
                    workers.stop();
                    return Err(error);
                }
            }
        }
        Ok(workers)
    }

    /// Runs a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Task<()> {
        self.executor.spawn(task)
    }

    /// Ends the threads; tasks that are left are not run any more.
    pub(crate) fn stop(&self) {
        self.over.set();
        for thread in std::mem::take(&mut *self.lock()) {
            if thread.join().is_err() {
                tracing::error!(code = "CN0547", "a worker panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
