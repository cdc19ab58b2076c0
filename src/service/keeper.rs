//! What is said to a service manager, and when. No clock, no socket: times are since the start of the process.
//!
//! ```text
//! Starting ──ready──▶ Running ──reloading──▶ Reloading ──reloaded──▶ Running ──stopping──▶ Stopping
//!  EXTEND while work goes on   WATCHDOG while the loop turns                 EXTEND while it does either
//! ```

use std::time::Duration;

/// Least time between two sentences.
const STATUS_EVERY: Duration = Duration::from_secs(2);
/// How often a start or an end that gets somewhere asks for more time.
const EXTEND_EVERY: Duration = Duration::from_secs(10);
/// How much it asks for.
const EXTEND_BY: Duration = Duration::from_secs(60);
/// How often there is nothing to be said but it is looked whether there is.
const IDLE: Duration = Duration::from_secs(3_600);
/// A process that works uses more than this part of its time.
const IDLE_PART: u32 = 100;

/// What a process has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Processor time in microseconds.
    pub(super) processor: u64,
    /// Bytes that went to and came from disks.
    pub(super) bytes: u64,
}

impl Work {
    /// Of this process, as far as the system tells.
    pub(super) fn of_this_process() -> Work {
        let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        Work { processor: super::line::processor(), bytes: disk_bytes(&text) }
    }

    /// Whether it has got somewhere since `before`, `passed` ago. The thread that asks costs next to nothing, which
    /// must not count; a process that hangs on a disk does neither.
    pub(super) fn since(self, before: Work, passed: Duration) -> bool {
        let used = Duration::from_micros(self.processor.saturating_sub(before.processor));
        self.bytes > before.bytes || used > passed / IDLE_PART
    }
}

/// The bytes read and written, of the text of `/proc/self/io`.
fn disk_bytes(text: &str) -> u64 {
    let of = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        matches!(name, "read_bytes" | "write_bytes").then(|| value.trim().parse::<u64>().ok())?
    };
    text.lines().filter_map(of).fold(0, u64::saturating_add)
}

/// How often the manager wants a sign of life: `$WATCHDOG_USEC`, if `$WATCHDOG_PID` names nobody else.
pub(super) fn watchdog(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    let usec = usec?.parse().ok().filter(|usec| *usec > 0)?;
    Some(Duration::from_micros(usec))
}

/// What was seen at a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sight {
    /// Turns of the node's loop, once it runs; each look asks for another.
    pub(super) turns: Option<u64>,
    /// What the process has done.
    pub(super) work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Reloading,
    Stopping,
}

/// Decides.
#[derive(Debug)]
pub(super) struct Keeper {
    phase: Phase,
    watchdog: Option<Duration>,
    /// Turns when the watchdog was told last, and when that was.
    fed: (u64, Duration),
    /// Whether it was due and there had been no turn; how long ago the last one was, until that is told.
    starving: bool,
    stuck: Option<Duration>,
    /// When more time was asked for last, or not, and what had been seen then.
    extended: (Duration, Sight),
    status: String,
    told: String,
    told_at: Option<Duration>,
    /// To be said at once.
    urgent: Vec<String>,
    looked: Duration,
}

impl Keeper {
    pub(super) fn new(watchdog: Option<Duration>) -> Keeper {
        Keeper {
            phase: Phase::Starting,
            watchdog,
            fed: (0, Duration::ZERO),
            starving: false,
            stuck: None,
            extended: (Duration::ZERO, Sight::default()),
            status: String::new(),
            told: String::new(),
            told_at: None,
            urgent: Vec::new(),
            looked: Duration::ZERO,
        }
    }

    /// Another sentence; it is told when the last one is old enough.
    pub(super) fn status(&mut self, text: &str) {
        if self.phase != Phase::Stopping {
            self.status = text.replace(['\n', '\r'], " ");
        }
    }

    pub(super) fn ready(&mut self, now: Duration, turns: u64, text: &str) {
        self.phase = Phase::Running;
        self.fed = (turns, now);
        self.at_once("READY=1", text);
    }

    /// `monotonic` is the manager's clock in microseconds. Only a site that runs reloads.
    pub(super) fn reloading(&mut self, monotonic: u64) {
        if self.phase == Phase::Running {
            self.phase = Phase::Reloading;
            let what = format!("RELOADING=1\nMONOTONIC_USEC={monotonic}");
            self.at_once(&what, "reading the configuration again");
        }
    }

    pub(super) fn reloaded(&mut self, text: &str) {
        if self.phase == Phase::Reloading {
            self.phase = Phase::Running;
            self.at_once("READY=1", text);
        }
    }

    pub(super) fn stopping(&mut self, now: Duration) {
        if self.phase != Phase::Stopping {
            self.phase = Phase::Stopping;
            self.extended.0 = now;
            self.at_once("STOPPING=1", "stopping: what is in flight is finished first");
        }
    }

    fn at_once(&mut self, what: &str, text: &str) {
        self.status = text.to_owned();
        self.told = text.to_owned();
        self.urgent.push(format!("{what}\nSTATUS={text}"));
    }

    /// What cannot wait.
    pub(super) fn urgent(&mut self, now: Duration) -> Vec<String> {
        if !self.urgent.is_empty() {
            self.told_at = Some(now);
        }
        std::mem::take(&mut self.urgent)
    }

    /// What is to be said now.
    pub(super) fn look(&mut self, now: Duration, seen: Sight) -> Vec<String> {
        self.looked = now;
        let mut said = self.urgent(now);
        if self.status != self.told && now >= self.status_at() {
            self.told.clone_from(&self.status);
            self.told_at = Some(now);
            said.push(format!("STATUS={}", self.status));
        }
        said.extend(self.watch(now, seen));
        match self.extend_at() {
            Some(_) => said.extend(self.extend(now, seen)),
            None => self.extended = (now, seen),
        }
        said
    }

    /// How long the loop has been still, once for each time.
    pub(super) fn stuck(&mut self) -> Option<Duration> {
        self.stuck.take()
    }

    fn watch(&mut self, now: Duration, seen: Sight) -> Option<String> {
        let (Some(at), Some(turns)) = (self.watchdog_at(), seen.turns) else { return None };
        if now < at {
            return None;
        }
        if turns == self.fed.0 {
            let told = std::mem::replace(&mut self.starving, true);
            // At the end of a stop the loop has ended, as it should.
            if !told && self.phase != Phase::Stopping {
                self.stuck = Some(now.saturating_sub(self.fed.1));
            }
            return None;
        }
        self.starving = false;
        self.fed = (turns, now);
        Some("WATCHDOG=1".to_owned())
    }

    fn extend(&mut self, now: Duration, seen: Sight) -> Option<String> {
        if self.extend_at().is_none_or(|at| now < at) {
            return None;
        }
        let (asked, before) = std::mem::replace(&mut self.extended, (now, seen));
        let turned = self.phase == Phase::Stopping && seen.turns > before.turns;
        let works = seen.work.since(before.work, now.saturating_sub(asked));
        (turned || works).then(|| format!("EXTEND_TIMEOUT_USEC={}", EXTEND_BY.as_micros()))
    }

    /// When to look again, at the latest.
    pub(super) fn next(&self) -> Duration {
        if !self.urgent.is_empty() {
            return Duration::ZERO;
        }
        let status = (self.status != self.told).then(|| self.status_at());
        let watchdog = self.watchdog_at().map(|at| match (self.starving, self.watchdog) {
            // It is looked more often, so that a turn that comes late still counts.
            (true, Some(every)) => self.looked + every / 20,
            _ => at,
        });
        let soonest = status.into_iter().chain(watchdog).chain(self.extend_at()).min();
        soonest.unwrap_or(self.looked + IDLE)
    }

    fn status_at(&self) -> Duration {
        self.told_at.map_or(Duration::ZERO, |at| at + STATUS_EVERY)
    }

    /// Half of what the manager allows since it was told last. It watches from READY on.
    fn watchdog_at(&self) -> Option<Duration> {
        if self.phase == Phase::Starting {
            return None;
        }
        self.watchdog.map(|every| self.fed.1 + every / 2)
    }

    fn extend_at(&self) -> Option<Duration> {
        let wanted = matches!(self.phase, Phase::Starting | Phase::Stopping);
        wanted.then(|| self.extended.0 + EXTEND_EVERY)
    }
}
