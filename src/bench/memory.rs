//! What processes use: peak anonymous memory, which the page cache cannot take back, and processor time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::meters::process::{processor, rss_anon};

/// How often the processes are looked at.
const EVERY: Duration = Duration::from_millis(10);

/// A look at processes again and again, until it is stopped.
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Used>,
}

/// What the processes used while they were watched.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    /// The peak of each process in bytes.
    pub rss_anon: Vec<u64>,
    /// Processor seconds of all together.
    pub processor: f64,
}

impl Watch {
    /// Begins. `pids` gives the processes as they are at the time.
    pub(super) fn start(pids: super::pair::Pids) -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut peaks = Vec::new();
            let mut spent: BTreeMap<u32, (Duration, Duration)> =
                pids.now().into_iter().map(|pid| (pid, (processor(pid), processor(pid)))).collect();
            loop {
                let last = ends.load(Ordering::Acquire);
                let now = pids.now();
                peaks.resize(now.len().max(peaks.len()), 0);
                for (peak, pid) in peaks.iter_mut().zip(now) {
                    *peak = rss_anon(pid).max(*peak);
                    // One that came later began at nothing.
                    spent.entry(pid).or_default().1 = processor(pid);
                }
                if last {
                    let spent = spent.values().map(|(from, to)| to.saturating_sub(*from));
                    let processor = spent.sum::<Duration>().as_secs_f64();
                    return Used { rss_anon: peaks, processor };
                }
                std::thread::sleep(EVERY);
            }
        });
        Watch { over, thread }
    }

    /// Ends; what was used.
    pub(super) fn stop(self) -> Used {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}
