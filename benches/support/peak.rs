//! The most anonymous memory that a process had while something went on, and what it computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::real::rss_anon;

/// Looks at a process every few milliseconds.
pub struct Peak {
    over: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    ticks: Arc<AtomicU64>,
    before: u64,
    thread: Option<JoinHandle<()>>,
}

/// Clock ticks a second in `/proc/PID/stat`.
const TICKS: f64 = 100.0;

/// Processor time of a process in ticks; 0 when it is gone.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

impl Peak {
    /// Begins to look.
    pub fn of(pid: u32) -> Peak {
        let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let before = ticks(pid);
        let used = Arc::new(AtomicU64::new(before));
        let (ends, high, now) = (Arc::clone(&over), Arc::clone(&most), Arc::clone(&used));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                high.fetch_max(rss_anon(pid), Ordering::Relaxed);
                now.fetch_max(ticks(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Peak { over, most, ticks: used, before, thread: Some(thread) }
    }

    /// Seconds of processor time since it began to look.
    pub fn cpu(&self) -> f64 {
        self.ticks.load(Ordering::Relaxed).saturating_sub(self.before) as f64 / TICKS
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
