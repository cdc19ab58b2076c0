//! What processes use: peak anonymous memory, which the page cache cannot take back, and processor time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

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
            let mut spent: BTreeMap<u32, (f64, f64)> =
                pids.now().into_iter().map(|pid| (pid, (processor(pid), processor(pid)))).collect();
            loop {
                let last = ends.load(Ordering::Acquire);
                let now = pids.now();
                peaks.resize(now.len().max(peaks.len()), 0);
                for (peak, pid) in peaks.iter_mut().zip(now) {
                    *peak = anon(pid).max(*peak);
                    // One that came later began at nothing.
                    spent.entry(pid).or_default().1 = processor(pid);
                }
                if last {
                    let processor = spent.values().map(|(from, to)| to - from).sum();
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

/// `RssAnon` of a process in bytes; 0 when it is gone.
fn anon(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1_024)
}

/// Processor seconds of a process so far, to a hundredth; 0 when it is gone.
fn processor(pid: u32) -> f64 {
    /// What the kernel counts in, on every architecture: `USER_HZ`.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may hold anything.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_and_a_dead_one_none() {
        assert!(anon(std::process::id()) > 64 << 10);
        assert_eq!(anon(u32::MAX), 0);
    }

    #[test]
    fn processor_time_grows_with_work_and_a_dead_one_has_none() {
        let before = processor(std::process::id());
        let mut sum = 0_u64;
        while processor(std::process::id()) < before + 0.01 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert_eq!(processor(u32::MAX), 0.0);
    }
}
