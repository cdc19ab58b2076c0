//! The most anonymous memory that a process had while something went on, and what it computed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use consign::meters::process::{processor, rss_anon};

/// Looks at a process every few milliseconds.
pub struct Peak {
    over: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    micros: Arc<AtomicU64>,
    before: u64,
    thread: Option<JoinHandle<()>>,
}

/// How often the threads of a process have gone to sleep so far, which is how often they were woken.
pub fn sleeps(pid: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let status =
        threads.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("status")).ok());
    let count = |status: String| {
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|text| text.trim().parse::<u64>().ok())
    };
    status.filter_map(count).sum()
}

/// Processor time of a process in microseconds.
fn micros(pid: u32) -> u64 {
    u64::try_from(processor(pid).as_micros()).unwrap_or(u64::MAX)
}

impl Peak {
    /// Begins to look.
    pub fn of(pid: u32) -> Peak {
        let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let before = micros(pid);
        let used = Arc::new(AtomicU64::new(before));
        let (ends, high, now) = (Arc::clone(&over), Arc::clone(&most), Arc::clone(&used));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                high.fetch_max(rss_anon(pid), Ordering::Relaxed);
                now.fetch_max(micros(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Peak { over, most, micros: used, before, thread: Some(thread) }
    }

    /// Seconds of processor time since it began to look.
    pub fn cpu(&self) -> f64 {
        self.micros.load(Ordering::Relaxed).saturating_sub(self.before) as f64 / 1e6
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
