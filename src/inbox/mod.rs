//! The exporter: gives out content by `[[inbox]]` rules, as files under a directory and to a command.
//!
//! The node says what is to be done, one task at a time, and writes down what came of it; see
//! [`consign_core::inbox`]. Each rule has threads of its own, so that a directory that is full or a
//! command that hangs holds up no other rule.
//!
//! | file | holds |
//! |---|---|
//! | `name` | names of segments as paths below a directory |
//! | `place` | content written aside, and its name given to it without replacing anything |
//! | `command` | the command, its time and its output |
//! | `health` | how rules are doing: trouble that lasts |
//! | `left` | what rules that are no more have left half written |

mod command;
mod health;
mod left;
mod name;
mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use consign_core::driver::Exporter;
use consign_core::id::BlobNo;
use consign_core::inbox::{ExportJob, ExportStep, ExportTask};
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::rows::Body;
use consign_core::node::Input;
use consign_core::store::{Sink, StoreFault};

pub use health::{InboxState, InboxStates};
pub use left::Left;
use place::Place;

/// Threads of one rule.
const THREADS: usize = 2;
/// How often a directory is looked at while nothing is to be done.
const IDLE: Duration = Duration::from_secs(5);

/// An `[[inbox]]` rule, as far as the exporter goes by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxDir {
    /// Which rule it is.
    pub id: RuleId,
    /// What it picks, for people.
    pub picks: String,
    /// Where files go.
    pub dir: PathBuf,
    /// Program and arguments to be run on each file; empty for none.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// Where the content of segments is read.
pub trait Source: Send + Sync {
    /// Up to `len` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, body: Body, offset: u64, len: usize) -> Result<Bytes, StoreFault>;
    /// The file of a blob, to be cloned; `None` where there are no files.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&self, blob: BlobNo) -> Result<Option<std::os::fd::OwnedFd>, StoreFault>;
}

impl Source for consign_storage_lmdb::Content {
    fn read(&self, body: Body, offset: u64, len: usize) -> Result<Bytes, StoreFault> {
        consign_storage_lmdb::Content::read(self, body, offset, len)
    }

    fn open(&self, blob: BlobNo) -> Result<Option<std::os::fd::OwnedFd>, StoreFault> {
        consign_storage_lmdb::Content::open(self, blob).map(|(file, _)| Some(file))
    }
}

/// The exporter.
pub struct Inbox {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// What it clears away when it starts.
    left: Mutex<Option<Left>>,
}

struct Shared {
    rules: Vec<Rule>,
    source: Box<dyn Source>,
    giver: Giver,
    states: InboxStates,
    stopping: AtomicBool,
}

/// Carries single tasks out.
#[derive(Debug, Default)]
pub(crate) struct Giver {
    place: Place,
}

impl Giver {
    /// What became of the task; `None` for one that is not answered.
    pub(crate) fn work(
        &self,
        rule: &InboxDir,
        job: &ExportJob,
        source: &dyn Source,
        stopping: &dyn Fn() -> bool,
    ) -> Option<ExportStep> {
        Some(match &job.task {
            ExportTask::Write => self.place.write(rule, job, source),
            ExportTask::Place { name, mark } => self.place.place(rule, job, name, *mark),
            ExportTask::Run { name, run } => command::run(rule, job, name, *run, stopping),
            ExportTask::Clear => {
                self.place.clear(rule, job);
                return None;
            }
        })
    }
}

/// What a thread does next.
enum Next {
    Job(Box<ExportJob>),
    /// Nothing was to be done for a while.
    Look,
    End,
}

struct Rule {
    dir: InboxDir,
    tasks: Mutex<VecDeque<ExportJob>>,
    waiting: Condvar,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// An exporter by these rules, whose states it keeps; its threads begin with [`Exporter::start`].
    #[must_use]
    pub fn new(rules: &[InboxDir], source: Box<dyn Source>, states: InboxStates) -> Inbox {
        let rule = |dir: &InboxDir| Rule {
            dir: dir.clone(),
            tasks: Mutex::default(),
            waiting: Condvar::new(),
        };
        let shared = Arc::new(Shared {
            rules: rules.iter().map(rule).collect(),
            source,
            giver: Giver::default(),
            states,
            stopping: AtomicBool::new(false),
        });
        Inbox { shared, threads: Mutex::default(), left: Mutex::default() }
    }

    /// Has it clear away what rules left that are no more.
    #[must_use]
    pub fn clearing(self, left: Left) -> Inbox {
        *locked(&self.left) = Some(left);
        self
    }
}

impl Exporter for Inbox {
    fn start(&self, sink: Arc<dyn Sink>) {
        if let Some(left) = locked(&self.left).take() {
            left.sweep();
        }
        let mut threads = locked(&self.threads);
        for at in 0..self.shared.rules.len() * THREADS {
            let (shared, sink) = (self.shared.clone(), sink.clone());
            let work = move || shared.serve(at / THREADS, at % THREADS == 0, sink.as_ref());
            let name = format!("inbox-{}", at / THREADS);
            match std::thread::Builder::new().name(name).spawn(work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::error!(%error, code = "CN0514", "an inbox thread is missing")
                }
            }
        }
    }

    fn export(&self, job: ExportJob) {
        let Some(rule) = self.shared.rules.iter().find(|rule| rule.dir.id == job.rule) else {
            tracing::error!(
                rule = job.rule.0,
                code = "CN0546",
                "a task for an inbox rule that does not exist"
            );
            return;
        };
        locked(&rule.tasks).push_back(job);
        rule.waiting.notify_one();
    }

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for rule in &self.shared.rules {
            // Under its lock, so that nobody is between looking and waiting.
            let _tasks = locked(&rule.tasks);
            rule.waiting.notify_all();
        }
        for thread in std::mem::take(&mut *locked(&self.threads)) {
            if thread.join().is_err() {
                tracing::error!(code = "CN0547", "an inbox thread panicked");
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rules: Vec<&InboxDir> = self.shared.rules.iter().map(|rule| &rule.dir).collect();
        f.debug_struct("Inbox").field("rules", &rules).finish_non_exhaustive()
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Carries tasks of a rule out; one of its threads looks at its directory as well.
    fn serve(&self, at: usize, looks: bool, sink: &dyn Sink) {
        let Some(rule) = self.rules.get(at) else { return };
        let mut next = Next::Look;
        loop {
            match next {
                Next::Job(job) => self.work(at, &job, sink),
                // No lock is held: a directory may be on a disk that does not answer.
                Next::Look if looks => self.states.look(at, &rule.dir),
                Next::Look => {}
                Next::End => return,
            }
            next = self.next(rule);
        }
    }

    fn work(&self, at: usize, job: &ExportJob, sink: &dyn Sink) {
        let Some(rule) = self.rules.get(at) else { return };
        let stopping = || self.is_stopping();
        let step = self.giver.work(&rule.dir, job, self.source.as_ref(), &stopping);
        let Some(step) = step else { return };
        // A command that is cut off by the end of the site says nothing of the rule.
        if !self.is_stopping() {
            self.states.heard(at, &rule.dir, &job.task, &step);
        }
        sink.node(Input::Export { job: job.job, step });
    }

    /// What is to be done next.
    fn next(&self, rule: &Rule) -> Next {
        let mut tasks = locked(&rule.tasks);
        loop {
            if self.is_stopping() {
                return Next::End;
            }
            if let Some(job) = tasks.pop_front() {
                return Next::Job(Box::new(job));
            }
            let waited = rule.waiting.wait_timeout(tasks, IDLE);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            tasks = guard;
            if timeout.timed_out() && tasks.is_empty() && !self.is_stopping() {
                return Next::Look;
            }
        }
    }
}

/// The exports of a map by rule, for people: `RuleId` to what it picks and where it goes.
#[must_use]
pub fn described(rules: &[InboxDir]) -> BTreeMap<RuleId, (String, String)> {
    let entry = |rule: &InboxDir| (rule.id, (rule.picks.clone(), rule.dir.display().to_string()));
    rules.iter().map(entry).collect()
}
