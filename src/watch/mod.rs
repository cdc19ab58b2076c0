//! `[[watch]]`: files that appear in a directory are handed in, each once.
//!
//! A directory is looked through about once a second. A file is whole when neither its inode, its length
//! nor the time of its last change has changed for `quiet`; one that was renamed into the directory long
//! after it was written is whole at once. It is handed in over the site's own socket, like a file that
//! is sent by hand; what was taken is written into the ledger in the same commit as the segment, so that
//! it is taken once across restarts. Only then is it removed, if that is asked for.
//!
//! | file | holds |
//! |---|---|
//! | `look` | what is in the directory |
//! | `files` | what is known of each file, and what is to be done next |
//! | `hand` | handing in, forgetting and removing |

mod files;
mod hand;
mod look;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use consign_core::ledger::keys_upkeep::RuleId;

use files::Files;
use hand::Hand;

use crate::trouble::{self, States, Tell, Trouble};

/// How often a directory is looked through.
const EVERY: Duration = Duration::from_secs(1);
/// And no oftener than this, however short `quiet` is.
const LEAST: Duration = Duration::from_millis(20);
/// Looking takes at most one part in so many of the time.
const SHARE: u32 = 10;

/// A `[[watch]]` rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRule {
    /// Which rule it is.
    pub id: RuleId,
    /// The directory.
    pub dir: PathBuf,
    /// Where its files go; empty is every known peer.
    pub to: Vec<String>,
    /// How long a file must not have changed.
    pub quiet: Duration,
    /// Whether a file is removed once it is safe.
    pub remove: bool,
}

/// How a watched directory is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchState {
    /// The directory.
    pub dir: String,
    /// Where its files go; empty is every known peer.
    pub to: Vec<String>,
    /// Files taken since the start.
    pub taken: u64,
    /// Files that are there and not taken.
    pub waiting: u64,
    /// Last trouble, if there is one.
    pub trouble: Trouble,
}

/// The states of all watched directories, for whoever shows them.
#[derive(Clone, Debug, Default)]
pub struct WatchStates(States<WatchState>);

impl WatchStates {
    /// States of these rules before anything was looked at; who is told of trouble that begins or ends.
    #[must_use]
    pub fn new(rules: &[WatchRule], tell: Tell) -> WatchStates {
        let state = |rule: &WatchRule| WatchState {
            dir: rule.dir.display().to_string(),
            to: rule.to.clone(),
            ..WatchState::default()
        };
        WatchStates(States::new(rules.iter().map(state).collect(), tell))
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<WatchState> {
        self.0.all()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Default)]
struct Stop {
    stopping: Mutex<bool>,
    told: Condvar,
}

impl Stop {
    fn is_set(&self) -> bool {
        *locked(&self.stopping)
    }

    /// Waits this long, or until it is set; says whether it is.
    fn wait(&self, time: Duration) -> bool {
        let stopping = locked(&self.stopping);
        let waited = self.told.wait_timeout_while(stopping, time, |stopping| !*stopping);
        let (stopping, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *stopping
    }
}

/// The threads that watch, one for each rule.
#[derive(Debug)]
pub struct Watchers {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

impl Watchers {
    /// Begins to watch; files are handed in at `socket`.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        rules: &[WatchRule],
        socket: &Path,
        states: &WatchStates,
    ) -> std::io::Result<Watchers> {
        let mut watchers = Watchers { stop: Arc::default(), threads: Vec::new() };
        for (at, rule) in rules.iter().enumerate() {
            let (rule, socket) = (rule.clone(), socket.to_path_buf());
            let (states, stop) = (states.clone(), watchers.stop.clone());
            let work = move || watch(&rule, &socket, at, &states, &stop);
            let thread = std::thread::Builder::new().name(format!("watch-{at}")).spawn(work);
            watchers.threads.push(thread?);
        }
        Ok(watchers)
    }

    /// Asks all of them to end.
    pub fn stop(&self) {
        *locked(&self.stop.stopping) = true;
        self.stop.told.notify_all();
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(code = "CN0547", "a thread that watches a directory panicked");
            }
        }
    }
}

/// Both clocks: how long something has been so, and how old a file says it is.
fn now() -> (Instant, i64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (Instant::now(), i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

fn watch(rule: &WatchRule, socket: &Path, at: usize, states: &WatchStates, stop: &Stop) {
    let mut hand = Hand::new(rule, socket);
    let mut files = Files::new(rule.quiet);
    let every = EVERY.min(rule.quiet).max(LEAST);
    let mut known = false;
    loop {
        let began = Instant::now();
        let result = turn(rule, &mut hand, &mut files, &mut known, stop);
        let looked = Instant::now() - began;
        if stop.is_set() {
            return;
        }
        let error = result.err().unwrap_or_default();
        states.0.change(at, |state| {
            state.taken = hand.taken;
            state.waiting = files.waiting();
            let what = format!("watching {}", state.dir);
            state.trouble.becomes(&what, error, "CN0540", trouble::now())
        });
        if stop.wait(every.max(looked * SHARE)) {
            return;
        }
    }
}

/// Looks through the directory once and does what is to be done. The last trouble is the answer.
fn turn(
    rule: &WatchRule,
    hand: &mut Hand<'_>,
    files: &mut Files,
    known: &mut bool,
    stop: &Stop,
) -> Result<(), String> {
    if !*known {
        // What was taken before this start.
        hand.known(files)?;
        *known = true;
    }
    let seen = look::look(&rule.dir)?;
    let gone = files.see(&seen.files, now());
    if seen.whole {
        hand.forget(files, &gone)?;
    }
    let mut trouble = seen.trouble;
    for (path, file) in files.due(now().0) {
        if stop.is_set() {
            return Ok(());
        }
        if let Err(refused) = hand.take(files, &path, file) {
            trouble = refused.why;
            if refused.everybodys {
                break;
            }
        }
    }
    if rule.remove {
        for (path, file) in files.to_remove() {
            if let Err(why) = hand.remove(&path, file) {
                trouble = why;
            }
        }
    }
    if trouble.is_empty() { Ok(()) } else { Err(trouble) }
}
