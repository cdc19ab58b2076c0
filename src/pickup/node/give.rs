//! `[[inbox]]` rules of a node: what it stores is given out as files under directories and to commands.
//!
//! ```text
//!   owed: a record, synced before the shard counts as stored
//!    │ written aside, synced              │ renamed, its directory synced        │ the command ended well
//!    ▼                                    ▼                                      ▼
//!  Named{name, mark} ──────────────────▶ Placed ──────────────────────────────▶ no record any more
//!    ▲        │ Lost                      │ ended badly: again later, 8 times at most
//!    └────────┘                           └──▶ given up: again when the node starts next
//! ```
//!
//! The record is written down before every step that cannot be told from outside whether it was done, so
//! that a kill leaves no file half, no name twice, and no command unrun. The shelf keeps its own copy.

mod source;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use consign_core::id::{BlobNo, SegmentId, Seq};
use consign_core::inbox::{ExportJob, ExportStep, ExportTask, FileMark, glob};
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::rows::Body;
use consign_core::pickup::sign::sha256;
use consign_core::segment::Meta;
use serde::{Deserialize, Serialize};

use self::source::OneFile;
use super::shelf::{OWN, Record, Shelf, name_of};
use super::{Stop, Tell, records};
use crate::exit::{Exit, Failure};
use crate::inbox::{Giver, InboxDir, Left};
use crate::pickup::pause;

/// Runs of a command on one file, as of a site's rules.
const RUNS_MAX: u32 = 8;
/// Pause before the second try, doubled each time.
const AGAIN: Duration = Duration::from_secs(1);
/// Who may read what is owed.
const MODE: u32 = 0o600;
/// How often a stop is looked for while nothing is to be done.
const LOOK: Duration = Duration::from_millis(200);

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Pattern of file ids; `None` is every file.
    pub file: Option<String>,
    /// Where its files go, and what is run on them.
    pub dir: InboxDir,
}

impl Rule {
    fn picks(&self, shard: &ShardKey) -> bool {
        self.file.as_ref().is_none_or(|pattern| glob(pattern, shard.file_id()))
    }
}

/// A shard that was given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The file.
    pub file_id: String,
    /// Its version.
    pub version_number: u64,
    /// Which part.
    pub shard_index: u64,
    /// Where it lies now.
    pub path: String,
}

/// What a rule still owes for one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owed {
    shard: Record,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    named: Option<(String, FileMark)>,
    #[serde(default)]
    placed: bool,
    #[serde(default)]
    runs: u32,
}

/// Everything that the rules' threads share.
#[derive(Debug)]
struct Shared {
    records: OwnedFd,
    shelf: Arc<Shelf>,
    node: String,
    stop: Stop,
    told: Mutex<Sender<Tell>>,
}

/// Remembers where the rules give out, in the node's own directory, and finds those that are no more.
pub(super) fn remember(dir: &Path, rules: &[Rule]) -> Left {
    let rules: Vec<InboxDir> = rules.iter().map(|rule| rule.dir.clone()).collect();
    Left::begin(&dir.join(OWN), &rules)
}

/// The rules at work.
#[derive(Debug)]
pub(super) struct Giving {
    shared: Arc<Shared>,
    rules: Vec<(Rule, Sender<String>)>,
    told: Receiver<Tell>,
    threads: Vec<JoinHandle<()>>,
}

fn unusable(e: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "CN0828", format!("the records of inbox rules: {e}"))
}

impl Giving {
    /// Starts a thread for each rule, with what a former process left.
    ///
    /// # Errors
    /// When records cannot be read, or a thread cannot be started.
    pub(super) fn start(
        rules: &[Rule],
        shelf: &Arc<Shelf>,
        node: &str,
        stop: &Stop,
    ) -> Result<Giving, Failure> {
        let (said, told) = channel();
        let shared = Arc::new(Shared {
            records: shelf.own("give").map_err(unusable)?,
            shelf: shelf.clone(),
            node: node.into(),
            stop: stop.clone(),
            told: Mutex::new(said),
        });
        let mut left = records::names(&shared.records).map_err(unusable)?;
        let mut giving =
            Giving { shared: shared.clone(), rules: Vec::new(), told, threads: Vec::new() };
        for rule in rules {
            let (sender, receiver) = channel();
            let mine = of_rule(rule.dir.id);
            for name in left.extract_if(.., |name| name.starts_with(&mine)) {
                // The thread below takes it.
                let _ = sender.send(name);
            }
            let worker = Worker {
                shared: shared.clone(),
                rule: rule.dir.clone(),
                giver: Giver::default(),
                waiting: BTreeMap::new(),
            };
            let thread = std::thread::Builder::new().name("give".into());
            giving.threads.push(thread.spawn(move || worker.work(&receiver)).map_err(unusable)?);
            giving.rules.push((rule.clone(), sender));
        }
        shared.strangers(left.len());
        Ok(giving)
    }

    /// What was told since.
    pub(super) fn told(&self) -> impl Iterator<Item = Tell> + '_ {
        self.told.try_iter()
    }

    /// The part of it that threads which fetch need.
    pub(super) fn owing(&self) -> Owing {
        Owing { shared: self.shared.clone(), rules: self.rules.clone() }
    }

    /// Waits for what is under way; a command that runs is ended.
    pub(super) fn end(&mut self) {
        self.shared.stop.stop();
        self.rules.clear();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(code = "CN0547", "a thread of an inbox rule panicked");
            }
        }
    }
}

impl Drop for Giving {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes down what is owed.
#[derive(Clone, Debug)]
pub(super) struct Owing {
    shared: Arc<Shared>,
    rules: Vec<(Rule, Sender<String>)>,
}

impl Owing {
    /// Writes down, durably, what the rules will owe once the shard is on the shelf.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn owe(&self, shard: &ShardKey, record: &Record) -> io::Result<()> {
        for (rule, _) in self.rules.iter().filter(|(rule, _)| rule.picks(shard)) {
            let owed = Owed { shard: record.clone(), named: None, placed: false, runs: 0 };
            self.shared.write(&named(rule.dir.id, shard, record), &owed)?;
        }
        Ok(())
    }

    /// The shard is on the shelf: what is owed is given out.
    pub(super) fn begin(&self, shard: &ShardKey, record: &Record) {
        for (rule, sender) in self.rules.iter().filter(|(rule, _)| rule.picks(shard)) {
            // A node that is ending gives out the rest when it starts next.
            let _ = sender.send(named(rule.dir.id, shard, record));
        }
    }
}

/// The name of a record. Content that comes under the same key once the relay has forgotten the former is
/// another debt.
fn named(rule: RuleId, shard: &ShardKey, record: &Record) -> String {
    format!("{}{}-{}", of_rule(rule), name_of(shard), record.digest.blake3.short())
}

/// What the names of a rule's records begin with.
fn of_rule(rule: RuleId) -> String {
    format!("{:016x}-", rule.0)
}

impl Shared {
    fn write(&self, name: &str, owed: &Owed) -> io::Result<()> {
        records::put(&self.records, name, owed, MODE)
    }

    fn read(&self, name: &str) -> io::Result<Option<Owed>> {
        let text = records::get(&self.records, name)?;
        text.map(|text| serde_json::from_slice(&text).map_err(io::Error::other)).transpose()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        records::unlink(&self.records, name)?;
        Ok(rustix::fs::fsync(&self.records)?)
    }

    /// There are records of rules that are not there any more: nobody works them off.
    fn strangers(&self, count: usize) {
        if count > 0 {
            let text = format!(
                "{} not given out: their `[[inbox]]` rules are not in node.toml any more, or have \
                 another file or dir; the shards are on the shelf",
                crate::human::count(count as u64, "shard")
            );
            self.tell(Tell::Failed(Failure::new(Exit::Failed, "CN0830", text)));
        }
    }

    fn stops(&self) -> bool {
        self.stop.0.stops.load(Ordering::SeqCst)
    }

    fn tell(&self, said: Tell) {
        // Nobody listens any more once the node has ended.
        let _ = self.told.lock().unwrap_or_else(PoisonError::into_inner).send(said);
        self.stop.ring();
    }
}

/// What is to be done next about a record.
enum Next {
    Again(Owed),
    Done(String),
    Later(String),
    GivenUp(String),
    /// The shard is not on the shelf: its fetch goes on, or it is fetched again.
    NotHere,
}

/// One rule's thread.
struct Worker {
    shared: Arc<Shared>,
    rule: InboxDir,
    giver: Giver,
    /// Records, with tries so far and when they are looked at next.
    waiting: BTreeMap<String, (u32, Instant)>,
}

impl Worker {
    fn work(mut self, new: &Receiver<String>) {
        while !self.shared.stops() {
            let next = self.waiting.values().map(|(_, at)| *at).min();
            let wait = next.map_or(LOOK, |at| at.saturating_duration_since(Instant::now()));
            match new.recv_timeout(wait.min(LOOK)) {
                Ok(name) => drop(self.waiting.insert(name, (0, Instant::now()))),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            let due = self.waiting.iter().find(|(_, (_, at))| *at <= now);
            if let Some(name) = due.map(|(name, _)| name.clone()) {
                self.go_on(&name);
            }
        }
    }

    /// As far as it goes now.
    fn go_on(&mut self, name: &str) {
        let (tries, _) = self.waiting.remove(name).unwrap_or((0, Instant::now()));
        let again = match self.given(name) {
            Ok(true) => None,
            Ok(false) => return,
            Err(e) => Some(e.to_string()),
        };
        if let Some(why) = again {
            let wait = pause(AGAIN, tries, u8::MAX);
            self.waiting.insert(name.into(), (tries.saturating_add(1), Instant::now() + wait));
            self.fails(&format!("{why}; again in {}", crate::human::duration(wait)));
        }
    }

    /// Whether it is given out; otherwise it is left as it is. An error is tried again.
    fn given(&self, name: &str) -> io::Result<bool> {
        let Some(mut owed) = self.shared.read(name)? else { return Ok(false) };
        loop {
            match self.step(name, &owed)? {
                Next::Again(after) => {
                    self.shared.write(name, &after)?;
                    owed = after;
                }
                Next::Done(file) => {
                    self.shared.remove(name)?;
                    self.shared.tell(Tell::Given(Box::new(Given {
                        file_id: owed.shard.file_id,
                        version_number: owed.shard.version_number,
                        shard_index: owed.shard.shard_index,
                        path: self.rule.dir.join(file).display().to_string(),
                    })));
                    return Ok(true);
                }
                Next::Later(_) if self.shared.stops() => return Ok(false),
                Next::Later(why) => {
                    let shard = title(&owed.shard);
                    return Err(io::Error::other(format!("{shard}: {why}")));
                }
                Next::GivenUp(why) => {
                    let shard = title(&owed.shard);
                    self.fails(&format!("{shard}: {why}; not before the node starts again"));
                    return Ok(false);
                }
                Next::NotHere => return Ok(false),
            }
        }
    }

    fn step(&self, name: &str, owed: &Owed) -> io::Result<Next> {
        let shard = &owed.shard;
        let (version, index) = (shard.version_number, shard.shard_index);
        let key = ShardKey::new(shard.file_id.as_str(), version, index, self.shared.node.as_str());
        let Ok(key) = key else {
            return Ok(Next::GivenUp("the record names no shard".into()));
        };
        let task = match &owed.named {
            None => ExportTask::Write,
            Some((name, mark)) if !owed.placed => {
                ExportTask::Place { name: name.clone(), mark: *mark }
            }
            Some((name, _)) => ExportTask::Run { name: name.clone(), run: owed.runs + 1 },
        };
        if let (ExportTask::Run { name, .. }, true) = (&task, self.rule.command.is_empty()) {
            return Ok(Next::Done(name.clone()));
        }
        if task == ExportTask::Write && !self.shared.shelf.has(&key, shard.size, &shard.digest)? {
            return Ok(Next::NotHere);
        }
        let source = match self.shared.shelf.content(&key)? {
            Some(file) => OneFile(file),
            None if task == ExportTask::Write => return Ok(Next::NotHere),
            // Its content is aside or in its place already.
            None => OneFile(File::open("/dev/null")?),
        };
        let job = self.job(&key, shard, task);
        let done = self.giver.work(&self.rule, &job, &source, &|| self.shared.stops());
        Ok(self.after(name, owed, done))
    }

    fn job(&self, key: &ShardKey, shard: &Record, task: ExportTask) -> ExportJob {
        let (version, index) = (shard.version_number.to_string(), shard.shard_index.to_string());
        let name = format!("{}/{version}/{index}", shard.file_id);
        let labels = [
            ("file_id", shard.file_id.clone()),
            ("node_id", shard.node_id.clone()),
            ("shard_index", index),
            ("version_number", version),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
        // What a command knows an export by: the same in every run, whatever process.
        let what = [&*key.key(), &shard.digest.sha256.0].concat();
        let number = sha256(&what).0.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        ExportJob {
            job: 0,
            rule: self.rule.id,
            seq: Seq(number),
            id: SegmentId([0; 32]),
            digest: shard.digest.blake3,
            size: shard.size,
            body: Body::Blob(BlobNo(0)),
            meta: Meta { name, labels, ..Meta::default() },
            origin: String::new(),
            task,
        }
    }

    fn after(&self, name: &str, owed: &Owed, done: Option<ExportStep>) -> Next {
        let again = |change: fn(&mut Owed)| {
            let mut after = owed.clone();
            change(&mut after);
            Next::Again(after)
        };
        match done {
            None => again(|_| {}),
            Some(ExportStep::Named { name, mark }) => {
                Next::Again(Owed { named: Some((name, mark)), ..owed.clone() })
            }
            Some(ExportStep::Lost(_)) => again(|owed| owed.named = None),
            Some(ExportStep::Placed) => again(|owed| owed.placed = true),
            Some(ExportStep::Ran { exit: Some(0), error, .. }) if error.is_empty() => {
                Next::Done(owed.named.clone().map_or_else(String::new, |(name, _)| name))
            }
            Some(ExportStep::Ran { output, error, .. }) => {
                let words = String::from_utf8_lossy(&output);
                let last = words.lines().last().unwrap_or_default();
                let why = if last.is_empty() { error } else { format!("{error}: {last}") };
                self.ran_badly(name, owed, why)
            }
            Some(ExportStep::Later(why)) => Next::Later(why),
            Some(ExportStep::Never(why) | ExportStep::Corrupt(why)) => Next::GivenUp(why),
        }
    }

    /// The run is counted; the next start has eight again.
    fn ran_badly(&self, name: &str, owed: &Owed, why: String) -> Next {
        let runs = owed.runs + 1;
        let over = runs >= RUNS_MAX;
        let kept = if over { 0 } else { runs };
        match self.shared.write(name, &Owed { runs: kept, ..owed.clone() }) {
            Err(e) => Next::Later(e.to_string()),
            Ok(()) if over => Next::GivenUp(format!("{why} ({runs} runs)")),
            Ok(()) => Next::Later(why),
        }
    }

    fn fails(&self, why: &str) {
        let text = format!("inbox rule for {}: {why}", self.rule.dir.display());
        self.shared.tell(Tell::Failed(Failure::new(Exit::Failed, "CN0830", text)));
    }
}

fn title(shard: &Record) -> String {
    format!("{}/{}/{}", shard.file_id, shard.version_number, shard.shard_index)
}

#[cfg(test)]
mod tests;
