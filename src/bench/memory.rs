//! Peak anonymous memory of processes: what the page cache cannot take back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the processes are looked at.
const EVERY: Duration = Duration::from_millis(10);

/// A look at processes again and again, until it is stopped.
pub(super) struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Watch {
    /// Begins. `pids` gives the processes as they are at the time.
    pub(super) fn start(pids: super::pair::Pids) -> Watch {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut peaks = Vec::new();
            loop {
                let last = ends.load(Ordering::Acquire);
                let now = pids.now();
                peaks.resize(now.len().max(peaks.len()), 0);
                for (peak, pid) in peaks.iter_mut().zip(now) {
                    *peak = anon(pid).max(*peak);
                }
                if last {
                    return peaks;
                }
                std::thread::sleep(EVERY);
            }
        });
        Watch { over, thread }
    }

    /// Ends; the peak of each process in bytes.
    pub(super) fn stop(self) -> Vec<u64> {
        self.over.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}

/// `RssAnon` of a process in bytes; 0 when it is gone.
fn anon(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_and_a_dead_one_none() {
        assert!(anon(std::process::id()) > 64 << 10);
        assert_eq!(anon(u32::MAX), 0);
    }
}
