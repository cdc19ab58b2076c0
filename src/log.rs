//! Log lines on standard error: text on a terminal, one flat JSON object a line otherwise.
//!
//! The node's own thread logs, so no call here may wait: lines go through a bounded queue to a thread
//! of their own. When standard error is slower than the node, lines are dropped and counted.

mod json;

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use consign_core::node::LogLevel;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::config::{Log, LogFormat};

pub use json::of_node;

/// Most bytes of lines that wait to be written.
const WAITING_MAX: usize = 1 << 20;

/// Keeps the log going; what was logged is written out when it is dropped.
pub struct Logging {
    lines: Arc<Lines>,
    json: bool,
}

impl Logging {
    /// Whether lines are JSON.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.lines.flush(Duration::from_secs(2));
    }
}

/// Starts logging to standard error. A second call in one process changes nothing.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(log: Log) -> io::Result<Logging> {
    let terminal = io::stderr().is_terminal();
    let json = match log.format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let lines = Arc::new(Lines { json, ..Lines::default() });
    let for_thread = lines.clone();
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || for_thread.write_to(&mut io::stderr()))?;
    let (level, handle) = reload::Layer::new(LevelFilter::from_level(log.level));
    let format = tracing_subscriber::fmt::layer()
        .with_writer(Writer(lines.clone()))
        .with_ansi(terminal && anstream::ColorChoice::global() != anstream::ColorChoice::Never);
    let base = tracing_subscriber::registry().with(level).with(Counting);
    // An error means that somebody (a test, the demo) has set up logging before.
    let started = if json {
        base.with(format.event_format(json::Flat)).try_init()
    } else {
        base.with(format.with_target(false)).try_init()
    };
    if started.is_ok() {
        let _ = LEVEL.set(handle);
        set_level(log.level);
    }
    Ok(Logging { lines, json })
}

/// Lines since the start, in the order of [`LEVELS`].
static COUNTS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
const LEVELS: [(Level, &str); 5] = [
    (Level::ERROR, "error"),
    (Level::WARN, "warn"),
    (Level::INFO, "info"),
    (Level::DEBUG, "debug"),
    (Level::TRACE, "trace"),
];

/// Lines since the process began, by level; those below the level that is written are not counted.
pub fn counts() -> impl Iterator<Item = (&'static str, u64)> {
    LEVELS.iter().zip(&COUNTS).map(|((_, word), count)| (*word, count.load(Relaxed)))
}

/// Counts lines by level, whether standard error takes them or not.
struct Counting;

impl<S: Subscriber> Layer<S> for Counting {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let at = LEVELS.iter().position(|(level, _)| level == event.metadata().level());
        if let Some(count) = at.and_then(|at| COUNTS.get(at)) {
            count.fetch_add(1, Relaxed);
        }
    }
}

/// What lets the least level be changed, if this process's log was started here.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Which level that is.
static FLOOR: Mutex<Floor> = Mutex::new(Floor { configured: Level::INFO, asked: None });

/// The least level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Floor {
    configured: Level,
    asked: Option<Level>,
}

impl Floor {
    fn level(self) -> Level {
        self.asked.unwrap_or(self.configured)
    }
}

/// The configured level from now on. One that was asked for ([`ask_level`]) holds until whoever keeps it says otherwise.
pub fn set_level(level: Level) {
    change(|floor| floor.configured = level);
}

/// A level that holds in place of the configured one, or no longer. The log is the process's: of several sites in one the last word counts.
pub fn ask_level(level: Option<LogLevel>) {
    let asked = level.map(|level| match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    });
    change(|floor| floor.asked = asked);
}

fn change(how: impl FnOnce(&mut Floor)) {
    let mut floor = FLOOR.lock().unwrap_or_else(PoisonError::into_inner);
    how(&mut floor);
    if let Some(handle) = LEVEL.get() {
        let level = LevelFilter::from_level(floor.level());
        let _ = handle.modify(|now| *now = level);
    }
}

#[derive(Default)]
struct Lines {
    json: bool,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    /// Whether the thread is writing what it took.
    writing: bool,
    /// For tests: the thread ends when nothing waits.
    closed: bool,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.saturating_add(line.len()) > WAITING_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.to_vec());
        self.changed.notify_all();
    }

    fn write_to(&self, out: &mut dyn Write) {
        loop {
            let mut waiting = self.lock();
            while waiting.lines.is_empty() && !waiting.closed {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            if waiting.lines.is_empty() {
                return;
            }
            let lines = std::mem::take(&mut waiting.lines);
            let dropped = std::mem::take(&mut waiting.dropped);
            waiting.bytes = 0;
            waiting.writing = true;
            drop(waiting);
            // Nobody can be told that standard error is gone.
            for line in &lines {
                let _ = out.write_all(line);
            }
            if dropped > 0 {
                let text = format!("{dropped} log lines were dropped: standard error is slow");
                let _ = writeln!(out, "{}", if self.json { json::warning(&text) } else { text });
            }
            let _ = out.flush();
            self.lock().writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits until everything is written, but not longer than `patience`.
    fn flush(&self, patience: Duration) {
        let busy = |waiting: &mut Waiting| waiting.writing || !waiting.lines.is_empty();
        let _ = self.changed.wait_timeout_while(self.lock(), patience, busy);
    }
}

#[derive(Clone)]
struct Writer(Arc<Lines>);

impl Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Writer;
    fn make_writer(&'a self) -> Writer {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_at_the_levels_that_are_written() {
        let count = |word: &str| counts().find(|(w, _)| *w == word).map_or(0, |(_, count)| count);
        let subscriber = tracing_subscriber::registry().with(LevelFilter::WARN).with(Counting);
        let before = (count("warn"), count("error"), count("trace"));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(code = "CN0501", "x");
            tracing::error!(code = "CN0501", "x");
            tracing::trace!("x");
        });
        // Other tests of this process may log too.
        assert!(count("warn") > before.0 && count("error") > before.1);
        assert_eq!(count("trace"), before.2);
    }

    #[test]
    fn what_is_asked_for_holds_over_what_is_configured_until_it_is_taken_back() {
        let mut floor = Floor { configured: Level::INFO, asked: Some(Level::TRACE) };
        floor.configured = Level::WARN;
        assert_eq!(floor.level(), Level::TRACE, "a reload does not end it by itself");
        floor.asked = None;
        assert_eq!(floor.level(), Level::WARN);
    }

    /// What comes out when a line in the middle is too long to wait.
    fn overflown(json: bool) -> String {
        let lines = Lines { json, ..Lines::default() };
        lines.push(b"one\n");
        lines.push(&vec![b'x'; WAITING_MAX]);
        lines.push(b"two\n");
        lines.lock().closed = true;
        let mut out = Vec::new();
        lines.write_to(&mut out);
        lines.flush(Duration::from_secs(10));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_come_out_in_order_and_overflow_is_counted() {
        let text = overflown(false);
        assert_eq!(text, "one\ntwo\n1 log lines were dropped: standard error is slow\n");
        let text = overflown(true);
        let last = text.lines().last().expect("a line");
        let object: serde_json::Value = serde_json::from_str(last).expect("JSON");
        assert_eq!((&object["level"], &object["code"]), (&"WARN".into(), &"CN0567".into()));
    }
}
