//! Several connections hand things in side by side; one voice tells how it went.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use consign_core::http::encode_component;
use consign_core::id::hex;

use super::batch::{self, Answer, Batch};
use super::feed::Content;
use super::pace::Pace;
use super::waits::Waits;
use super::walk::{Found, Item, Walk};
use super::{SendArgs, feed, words};
use crate::admin::shapes::{Accepted, Status};
use crate::client::Api;
use crate::cmd::screen::{Progress, Screen};
use crate::exit::{Exit, Failure};

/// Connections side by side.
const HANDS: usize = 8;
/// Results that may wait for an earlier one, so that lines come in order.
const LATE_MAX: usize = 1024;
/// Things that were found and that no connection has taken yet.
const FOUND_MAX: usize = 1024;
/// How often progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// How it went.
pub(super) struct Tally {
    pub(super) accepted: u64,
    pub(super) failed: u64,
    /// How the process ends if nothing was accepted.
    pub(super) exit: Exit,
    /// What was accepted and when it was said to be, if somebody waits for it.
    pub(super) waiting: Vec<(Accepted, SystemTime)>,
}

/// What became of a thing.
enum What {
    Skipped(String),
    Done(Result<Accepted, Failure>),
}

/// Everything that is shared.
struct Work<'a> {
    args: &'a SendArgs,
    socket: &'a Path,
    /// Nothing more is begun: the others would fail alike.
    stop: AtomicBool,
    bytes: AtomicU64,
    found: AtomicU64,
    waits: Waits,
}

/// Walks, hands in and tells, side by side.
pub(super) fn hand_in(
    args: &SendArgs,
    socket: &Path,
    status: &Status,
    screen: &mut Screen<'_>,
) -> Result<Tally, Failure> {
    let mut walk = Walk::new(&args.paths, args.name.clone());
    let first: Vec<Found> = walk.by_ref().take(2).collect();
    let single = first.len() == 1;
    let work = Work {
        args,
        socket,
        stop: AtomicBool::new(false),
        bytes: AtomicU64::new(0),
        found: AtomicU64::new(0),
        waits: Waits::default(),
    };
    let total = if single { size(&first) } else { None };
    let (items, taken) = sync_channel::<(usize, Item)>(FOUND_MAX);
    let (reports, told) = sync_channel::<(usize, What)>(LATE_MAX);
    let taken = Mutex::new(taken);
    thread::scope(|scope| {
        let (work, taken) = (&work, &taken);
        // One after the other keeps a rate, and none waits so long that the site gives it up.
        for _ in 0..if single || args.limit.is_some() { 1 } else { HANDS } {
            let reports = reports.clone();
            scope.spawn(move || hand(work, taken, &reports));
        }
        scope.spawn(move || find(work, first.into_iter().chain(walk), &items, &reports));
        let mut voice = Voice::new(args, single, status, total, screen);
        let tally = voice.tell(work, told);
        if tally.is_err() {
            work.stop.store(true, Ordering::Relaxed);
        }
        tally
    })
}

fn size(found: &[Found]) -> Option<u64> {
    match found {
        [Found::Item(Item { path: Some(path), .. })] => {
            std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|m| m.len())
        }
        _ => None,
    }
}

fn find(
    work: &Work<'_>,
    walk: impl Iterator<Item = Found>,
    items: &SyncSender<(usize, Item)>,
    reports: &SyncSender<(usize, What)>,
) {
    for (i, found) in walk.enumerate() {
        if work.stop.load(Ordering::Relaxed) {
            return;
        }
        let heard = match found {
            Found::Item(item) => {
                work.found.fetch_add(1, Ordering::Relaxed);
                items.send((i, item)).is_ok()
            }
            Found::Skipped(why) => reports.send((i, What::Skipped(why))).is_ok(),
            Found::Failed(failure) => reports.send((i, What::Done(Err(failure)))).is_ok(),
        };
        if !heard {
            return;
        }
    }
}

fn hand(
    work: &Work<'_>,
    items: &Mutex<Receiver<(usize, Item)>>,
    reports: &SyncSender<(usize, What)>,
) {
    let mut hand = Hand {
        work,
        api: Api::new(work.socket),
        pace: work.args.limit.map(Pace::new),
        reports,
        batch: Batch::default(),
    };
    loop {
        let next = items.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
        let next = match next {
            Ok(item) => item,
            // Nothing is there right now: what was gathered is not kept waiting for more.
            Err(_) if !hand.batch.is_empty() => {
                hand.send_batch();
                continue;
            }
            Err(_) => match items.lock().unwrap_or_else(PoisonError::into_inner).recv() {
                Ok(item) => item,
                Err(_) => return,
            },
        };
        hand.take(next);
    }
}

/// One connection, and the small things that are gathered for it.
struct Hand<'a> {
    work: &'a Work<'a>,
    api: Api,
    /// How fast bytes may leave; what is gathered would leave at once.
    pace: Option<Pace>,
    reports: &'a SyncSender<(usize, What)>,
    batch: Batch,
}

/// An instance, and content that was read or is to be.
type Begun = (Option<String>, Result<Vec<u8>, Content<'static>>);

impl Hand<'_> {
    fn take(&mut self, (i, item): (usize, Item)) {
        // After a stop the queue is only emptied, so that the walk never waits to put something there.
        if self.work.stop.load(Ordering::Relaxed) {
            return;
        }
        self.work.waits.begin(i, &item, Instant::now());
        match self.begin(&item) {
            Err(failure) => self.report(i, Err(failure)),
            Ok((instance, Err(content))) => self.alone(i, &item, content, instance.as_deref()),
            Ok((instance, Ok(data))) => {
                self.batch.push(i, item, data, instance);
                if self.batch.is_full() {
                    self.send_batch();
                }
            }
        }
    }

    /// Its instance, and what it holds: read, if it is small and nothing bounds how fast it may leave.
    fn begin(&self, item: &Item) -> Result<Begun, Failure> {
        let instance = self.work.args.again.then(instance).transpose()?;
        let content = feed::open(item)?;
        let content = if self.pace.is_some() { Err(content) } else { feed::small(item, content)? };
        Ok((instance, content))
    }

    /// Hands one thing in by a request of its own.
    fn alone(&mut self, i: usize, item: &Item, content: Content<'_>, instance: Option<&str>) {
        let work = self.work;
        let mut sent = |bytes| {
            work.bytes.fetch_add(bytes, Ordering::Relaxed);
        };
        let target = target(work.args, &item.name, instance);
        let pace = self.pace.as_mut();
        let done =
            feed::submit(&mut self.api, item, content, &target, pace, &mut sent, (&work.waits, i));
        self.report(i, done);
    }

    fn report(&mut self, i: usize, done: Result<Accepted, Failure>) {
        self.work.waits.over(i);
        let hopeless = done.as_ref().is_err_and(is_everybodys);
        let heard = self.reports.send((i, What::Done(done))).is_ok();
        if hopeless || !heard {
            self.work.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Hands in what was gathered. What has no answer in the end is handed in by itself: that says
    /// what is wrong with it, and handing in twice is as good as once.
    fn send_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let answers = match batch.len() {
            0 | 1 => Vec::new(),
            _ => {
                let target = format!("/v1/segments/batch{}", attributes(self.work.args, '?'));
                let answer = self.api.post(&target, batch.body());
                answer.map(|lines| batch::answers(&lines)).unwrap_or_default()
            }
        };
        let mut answers = answers.into_iter();
        for (i, item, data, instance) in batch.into_items() {
            match answers.next() {
                // One voice is enough for what is the same for all.
                Some(Answer::Done(done))
                    if done.is_err() && self.work.stop.load(Ordering::Relaxed) => {}
                Some(Answer::Done(done)) => {
                    self.work.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                    self.report(i, done.map_err(|failure| feed::told(&item, failure)));
                }
                Some(Answer::Alone) | None => {
                    if !self.work.stop.load(Ordering::Relaxed) {
                        self.alone(i, &item, Content::Read(&data), instance.as_deref());
                    }
                }
            }
        }
    }
}

/// Whether the next one would fail for the same reason.
fn is_everybodys(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::Unreachable | Exit::NotPermitted) || failure.code == "CN0614"
}

/// A new instance, in hex digits.
fn instance() -> Result<String, Failure> {
    let mut instance = [0; 16];
    getrandom::fill(&mut instance)
        .map_err(|e| Failure::new(Exit::Failed, "CN0625", format!("no randomness: {e}")))?;
    Ok(hex(&instance))
}

/// The request target for a segment of that name.
fn target(args: &SendArgs, name: &str, instance: Option<&str>) -> String {
    let mut target = String::from("/v1/segments?name=");
    encode_component(name, &mut target);
    target.push_str(&attributes(args, '&'));
    if let Some(instance) = instance {
        target.push_str("&instance=");
        target.push_str(instance);
    }
    target
}

/// What all things share, as a query; `first` stands before the first of it.
fn attributes(args: &SendArgs, first: char) -> String {
    let mut query = String::new();
    let mut add = |key: &str, value: &str| {
        query.push(if query.is_empty() { first } else { '&' });
        query.push_str(key);
        query.push('=');
        encode_component(value, &mut query);
    };
    for peer in &args.to {
        add("to", peer);
    }
    for label in &args.labels {
        add("label", label);
    }
    if let Some(content_type) = &args.content_type {
        add("type", content_type);
    }
    if let Some(class) = &args.priority {
        add("priority", class);
    }
    if let Some(expires) = args.expires {
        add("expires", &expires.as_secs().to_string());
    }
    query
}

/// Tells results in the order things were found, and progress.
struct Voice<'v, 's> {
    args: &'v SendArgs,
    /// There is only one thing: its failure is the command's.
    single: bool,
    status: &'v Status,
    progress: Progress,
    screen: &'v mut Screen<'s>,
    tally: Tally,
    /// The last thing that was told to be waited for.
    waits_for: Option<usize>,
}

impl<'v, 's> Voice<'v, 's> {
    fn new(
        args: &'v SendArgs,
        single: bool,
        status: &'v Status,
        total: Option<u64>,
        screen: &'v mut Screen<'s>,
    ) -> Voice<'v, 's> {
        let progress = Progress::new(screen, "Queueing", total);
        let tally = Tally { accepted: 0, failed: 0, exit: Exit::Failed, waiting: Vec::new() };
        Voice { args, single, status, progress, screen, tally, waits_for: None }
    }

    fn tell(&mut self, work: &Work<'_>, told: Receiver<(usize, What)>) -> Result<Tally, Failure> {
        let (mut late, mut next, mut over) = (BTreeMap::new(), 0, false);
        while !over {
            match told.recv_timeout(TICK) {
                Ok((i, what)) => drop(late.insert(i, what)),
                Err(RecvTimeoutError::Disconnected) => over = true,
                Err(RecvTimeoutError::Timeout) => {
                    let things = (
                        self.tally.accepted + self.tally.failed,
                        work.found.load(Ordering::Relaxed),
                    );
                    self.waits(work.waits.long(Instant::now()));
                    self.progress.show(self.screen, work.bytes.load(Ordering::Relaxed), things);
                }
            }
            while let Some(i) = late.keys().next().copied()
                && (i <= next || over || late.len() > LATE_MAX)
                && let Some(what) = late.remove(&i)
            {
                next = next.max(i + 1);
                self.one(what)?;
            }
        }
        self.progress.done();
        let empty = Tally { accepted: 0, failed: 0, exit: Exit::Failed, waiting: Vec::new() };
        Ok(std::mem::replace(&mut self.tally, empty))
    }

    /// Says what is waited for: beside the progress, and once as a line of its own to who wants to hear more.
    fn waits(&mut self, long: Option<(usize, String)>) {
        let (i, text) = long.map_or((None, String::new()), |(i, text)| (Some(i), text));
        if i.is_some() && i != self.waits_for {
            let screen = &mut *self.screen;
            self.progress.aside(|| screen.more(&text));
        }
        self.waits_for = i.or(self.waits_for);
        self.progress.says(text);
    }

    fn one(&mut self, what: What) -> Result<(), Failure> {
        let (screen, progress) = (&mut *self.screen, &self.progress);
        let what = match what {
            What::Done(Err(failure)) if failure.code == "CN0614" => {
                What::Done(Err(failure.help(words::unknown(&self.args.to, self.status))))
            }
            what => what,
        };
        match what {
            What::Skipped(why) => progress.aside(|| screen.note(&why)),
            What::Done(Err(failure)) if self.single => {
                progress.done();
                return Err(failure);
            }
            What::Done(Err(failure)) => {
                if self.tally.failed == 0 {
                    self.tally.exit = failure.exit;
                }
                self.tally.failed += 1;
                progress.aside(|| screen.failure(&failure));
            }
            What::Done(Ok(accepted)) => {
                // Nothing is on its way to somebody for whom it was given up before: the wait, or this
                // command's end, says so.
                if !self.args.wait && !accepted.dead.is_empty() {
                    self.tally.failed += 1;
                } else {
                    self.tally.accepted += 1;
                }
                if screen.is_json() {
                    screen.object(&accepted)?;
                } else {
                    let line = words::accepted(&accepted, self.args.wait, &self.status.peers);
                    let line = screen.told(&line);
                    progress.aside(|| screen.line(&line));
                }
                if self.args.wait {
                    self.tally.waiting.push((accepted, SystemTime::now()));
                }
            }
        }
        Ok(())
    }
}
