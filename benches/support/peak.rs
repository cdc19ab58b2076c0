//! The most anonymous memory that processes had while something went on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::real::rss_anon;

/// Looks at a process every few milliseconds.
pub struct Peak {
    over: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Peak {
    /// Begins to look.
    pub fn of(pid: u32) -> Peak {
        let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, high) = (Arc::clone(&over), Arc::clone(&most));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                high.fetch_max(rss_anon(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Peak { over, most, thread: Some(thread) }
    }

    /// The most so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
