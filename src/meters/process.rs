//! What the kernel knows of this process, read from `/proc`.

use std::fs;
use std::time::Duration;

/// Ticks of the processor times in `/proc` per second: `USER_HZ`, which is 100 wherever this builds.
const TICKS: u64 = 100;
/// Bytes of a unit of resident memory where only pages are told: `status` tells KiB.
const KIB: u64 = 1_024;

/// This process at a glance. What cannot be read is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Processor time, in microseconds.
    pub cpu_micros: u64,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Virtual memory in bytes.
    pub virtual_memory: u64,
    /// Open files.
    pub open_files: u64,
    /// How many it may have.
    pub max_files: u64,
    /// When it was started, in microseconds since 1970.
    pub started_micros: u64,
}

/// Reads it.
#[must_use]
pub fn read() -> Process {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut process = parse(
        &text("/proc/self/stat"),
        &text("/proc/self/status"),
        &text("/proc/self/limits"),
        &text("/proc/stat"),
    );
    process.open_files = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    process
}

/// Processor time of a process so far, to a hundredth of a second; none when it is gone.
#[must_use]
pub fn processor(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Duration::from_micros(processor_micros(&stat))
}

/// Anonymous resident memory of a process in bytes, which the page cache cannot take back; 0 when it is
/// gone.
#[must_use]
pub fn rss_anon(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    value_of(&status, "RssAnon:").saturating_mul(KIB)
}

fn processor_micros(stat: &str) -> u64 {
    micros(field(stat, 14).saturating_add(field(stat, 15)))
}

fn micros(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000 / TICKS)
}

/// A number of `stat`, from the third on, as proc(5) counts them. The name before them may have blanks and
/// brackets in it.
fn field(stat: &str, number: usize) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    number_of(rest.split_whitespace().nth(number - 3))
}

fn parse(stat: &str, status: &str, limits: &str, machine: &str) -> Process {
    let memory = |key: &str| value_of(status, key).saturating_mul(KIB);
    let booted = value_of(machine, "btime").saturating_mul(1_000_000);
    Process {
        cpu_micros: processor_micros(stat),
        resident: memory("VmRSS:"),
        virtual_memory: memory("VmSize:"),
        open_files: 0,
        max_files: value_of(limits, "Max open files"),
        started_micros: booted.saturating_add(micros(field(stat, 22))),
    }
}

fn number_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The first number behind a key at the beginning of a line.
fn value_of(text: &str, key: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(key));
    number_of(rest.and_then(|rest| rest.split_whitespace().next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_kernel_are_understood() {
        let stat = "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 1234 99 88";
        let status = "Name:\tx\nVmSize:\t    2000 kB\nVmRSS:\t     100 kB\n";
        let limits = "Limit  Soft  Hard\nMax open files            1024    4096    files\n";
        let process = parse(stat, status, limits, "cpu 1 2\nbtime 1000\n");
        assert_eq!(process.cpu_micros, 3_000_000);
        assert_eq!((process.resident, process.virtual_memory), (102_400, 2_048_000));
        assert_eq!((process.max_files, process.started_micros), (1024, 1_012_340_000));
        assert_eq!(parse("", "", "", ""), Process::default());
    }

    #[test]
    fn a_process_has_some_memory_and_a_dead_one_none() {
        assert!(rss_anon(std::process::id()) > 64 << 10);
        assert_eq!(rss_anon(u32::MAX), 0);
    }

    #[test]
    fn processor_time_grows_with_work_and_a_dead_one_has_none() {
        let before = processor(std::process::id());
        let mut sum = 0_u64;
        while processor(std::process::id()) < before + Duration::from_millis(10) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert_eq!(processor(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn this_process_is_there() {
        let process = read();
        assert!(process.resident > 1 << 20 && process.virtual_memory >= process.resident);
        assert!(process.open_files >= 3 && process.max_files >= process.open_files);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_micros() - u128::from(process.started_micros);
        assert!(age < 86_400 * 1_000_000, "{process:?}");
    }
}
