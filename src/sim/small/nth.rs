//! The Nth store call fails, for every N: what was promised stays, and everything recovers.
//!
//! A story is run in the order in which things happen when nothing races. Each call of a store is
//! counted, on both sites together; one of them fails. A full disk must pass by itself; a store
//! that is broken stops the process, and a new start must recover; a power cut may come right
//! before or right after a call takes effect. A client that was refused, or whose site died before
//! it answered, hands its segment in again, as a user would. In the end everything must have
//! crossed.
//!
//! Not every call can fail in every way: reads and removals know no full disk, and looking for
//! content and sweeping (one call for all folders of one start) have no way to say that they
//! failed, so only a power cut befalls them.

use std::fmt;

use consign_core::id::ConnId;
use consign_core::ledger::Table;
use consign_core::ledger::keys;
use consign_core::ledger::rows::IncomingRow;
use consign_core::mem::MemStore;
use consign_core::store::{CommitFault, StoreEvent, StoreFault};

use super::check::{Broken, broken};
use super::ops::{Choice, Op, What};
use super::site;
use super::world::{Rules, World};
use crate::sim::seen::Death;

/// How a store call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The disk is full, once.
    Full,
    /// Any other error, once.
    Io,
    /// The power goes before the call takes effect.
    Before,
    /// The power goes right after it took effect.
    After,
}

impl Fault {
    /// Every way.
    pub const ALL: [Fault; 4] = [Fault::Full, Fault::Io, Fault::Before, Fault::After];
}

/// A kind of store call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// A batch.
    Commit,
    /// A read of the node.
    Read,
    /// A file is created or opened.
    Create,
    /// Bytes are written.
    Write,
    /// A file is made durable so far.
    Sync,
    /// A file is made durable and closed.
    Finish,
    /// A file is closed as it is.
    Abandon,
    /// Content is read for a session.
    Content,
    /// A doomed file is removed.
    Unlink,
    /// Content is looked for.
    Check,
    /// Content folders are swept.
    Sweep,
}

impl Call {
    pub(super) fn of(call: &site::Call) -> Call {
        match call {
            site::Call::Create { .. } => Call::Create,
            site::Call::Write { .. } => Call::Write,
            site::Call::Sync { .. } => Call::Sync,
            site::Call::Finish { .. } => Call::Finish,
            site::Call::Abandon { .. } => Call::Abandon,
            site::Call::Read { .. } => Call::Content,
        }
    }

    /// Whether it can fail this way.
    fn fails(self, fault: Fault) -> bool {
        let power = matches!(fault, Fault::Before | Fault::After);
        match self {
            Call::Commit | Call::Create | Call::Write | Call::Sync | Call::Finish => true,
            Call::Read | Call::Content | Call::Unlink => fault != Fault::Full,
            Call::Abandon | Call::Check | Call::Sweep => power,
        }
    }
}

/// What befalls a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hit {
    No,
    Fails(Fault),
    Before,
    After,
}

impl Hit {
    /// How it fails, if the process lives on.
    pub fn fault(self) -> Option<Fault> {
        match self {
            Hit::Fails(fault) => Some(fault),
            Hit::No | Hit::Before | Hit::After => None,
        }
    }
}

/// Which call fails, and how far the count is.
#[derive(Clone, Debug)]
pub(super) struct Nth {
    at: u64,
    fault: Fault,
    seen: u64,
    hit: Option<Call>,
}

impl World {
    /// A store call is about to be made.
    pub(super) fn hit(&mut self, call: Call) -> Hit {
        let Some(nth) = &mut self.nth else { return Hit::No };
        nth.seen += 1;
        if nth.seen != nth.at || !call.fails(nth.fault) {
            return Hit::No;
        }
        nth.hit = Some(call);
        match nth.fault {
            Fault::Before => Hit::Before,
            Fault::After => Hit::After,
            fault @ (Fault::Full | Fault::Io) => Hit::Fails(fault),
        }
    }
}

pub(super) fn commit_fault(fault: Fault) -> CommitFault {
    match fault {
        Fault::Full => CommitFault::Full("this call was to find the disk full".into()),
        Fault::Io | Fault::Before | Fault::After => {
            CommitFault::Broken("this call was to fail".into())
        }
    }
}

pub(super) fn store_fault(fault: Fault) -> StoreFault {
    match fault {
        Fault::Full => StoreFault::Full("this call was to find the disk full".into()),
        Fault::Io | Fault::Before | Fault::After => StoreFault::Io("this call was to fail".into()),
    }
}

/// A file request that fails.
pub(super) fn failed_call(
    store: &mut MemStore,
    conn: ConnId,
    call: site::Call,
    fault: Fault,
) -> Option<StoreEvent> {
    if let site::Call::Read { ticket, offset, .. } = call {
        return Some(StoreEvent::Content { ticket, offset, data: Err(store_fault(fault)) });
    }
    store.fail_file(1, store_fault(fault));
    store.request(conn, call.request())
}

/// A fixed workload for failing calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// One small segment.
    Small,
    /// Every segment twice, and each content under two names.
    Dedup,
    /// Content in a file.
    File,
    /// Content in a file whose transfer is cut once it has a checkpoint.
    Resume,
    /// Small content and a file one way, small content the other way.
    BothWays,
}

impl Story {
    /// Every story.
    pub const ALL: [Story; 5] =
        [Story::Small, Story::Dedup, Story::File, Story::Resume, Story::BothWays];

    /// Its operations, in order.
    #[must_use]
    pub fn ops(self) -> Vec<Op> {
        let send = |what| Op::Send(0, what);
        match self {
            Story::Small => vec![send(What::Small)],
            Story::Dedup => {
                let all = [What::Small, What::SmallTwin, What::File, What::FileTwin];
                all.into_iter().flat_map(|what| [send(what), send(what)]).collect()
            }
            Story::File => vec![send(What::File)],
            Story::Resume => vec![send(What::File), Op::Cut],
            Story::BothWays => {
                vec![send(What::Small), Op::Send(1, What::Back), send(What::File)]
            }
        }
    }
}

/// What failing each call of a story came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Calls the story makes when none fails.
    pub calls: u64,
    /// Runs in which one did.
    pub failed: u64,
}

/// A run in which a promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NthFailure {
    /// The story.
    pub story: Story,
    /// The number of the call, from 1.
    pub nth: u64,
    /// What it was.
    pub call: Option<Call>,
    /// How it failed.
    pub fault: Fault,
    /// The promise.
    pub broken: Broken,
    /// What happened, in order.
    pub path: Vec<Choice>,
}

impl fmt::Display for NthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NthFailure { story, nth, call, fault, broken, path } = self;
        writeln!(f, "{broken}\n  story {story:?}, call {nth} ({call:?}) fails: {fault:?}")?;
        path.iter().enumerate().try_for_each(|(i, step)| writeln!(f, "{i:4}  {step}"))
    }
}

/// Runs a story again and again, with its first, second, … store call failing, until a run ends
/// before the count is reached.
///
/// # Errors
/// The first run that breaks a promise.
pub fn fail_each(story: Story, fault: Fault) -> Result<Calls, Box<NthFailure>> {
    let mut calls = Calls::default();
    for at in 1.. {
        let nth = run(story, at, fault)?;
        if nth.seen < at {
            calls.calls = nth.seen;
            break;
        }
        calls.failed += u64::from(nth.hit.is_some());
    }
    Ok(calls)
}

/// One run of a story whose call number `at` fails.
///
/// # Errors
/// The promise it breaks.
pub fn fail_at(story: Story, at: u64, fault: Fault) -> Result<(), Box<NthFailure>> {
    run(story, at, fault).map(|_| ())
}

fn run(story: Story, at: u64, fault: Fault) -> Result<Nth, Box<NthFailure>> {
    let rules = Rules { fine: false, crashes: 0, waits: u8::MAX, plant: None };
    let mut world = World::cold(&story.ops(), rules);
    world.check.spent_max = 1;
    world.nth = Some(Nth { at, fault, seen: 0, hit: None });
    let mut path = Vec::new();
    let ran = world.watch.begin(world.now, &world.sites);
    let ran = ran.and_then(|()| play(&mut world, story, &mut path));
    let nth = world.nth.take();
    let call = nth.as_ref().and_then(|nth| nth.hit);
    match (ran, nth) {
        (Ok(()), Some(nth)) => Ok(nth),
        (Err(broken), _) => Err(Box::new(NthFailure { story, nth: at, call, fault, broken, path })),
        (Ok(()), None) => unreachable!("the count was put there"),
    }
}

fn play(world: &mut World, story: Story, path: &mut Vec<Choice>) -> Result<(), Broken> {
    const LONG: &str = "once faults stop, the world comes to rest (I28)";
    let (mut restarted, mut asked) = (false, false);
    for _ in 0..5_000 {
        let first = match world.first() {
            // A cut does not wait until everything is done.
            _ if story == Story::Resume && world.begun() == 1 && has_checkpoint(world) => {
                Some(Choice::Next)
            }
            first => first,
        };
        match first {
            Some(Choice::Wait) | None if !asked && world.ask_again()? => asked = true,
            None if world.is_refused() => {
                asked = false;
                path.push(Choice::Wait);
                world.take(Choice::Wait)?;
            }
            // A file that could not be removed stays doomed, and charged, until the next start.
            Some(Choice::Wait) if unlink_failed(world) && !restarted => {
                restarted = true;
                for site in 0..2 {
                    world.crash(site, Death::Killed)?;
                }
            }
            None => return world.settled(),
            Some(choice) => {
                asked &= choice != Choice::Wait;
                path.push(choice);
                world.take(choice)?;
            }
        }
    }
    broken(LONG, "not after 5000 steps".to_string())
}

/// Whether the call that failed was the removal of a file, and nothing else is left to do.
fn unlink_failed(world: &World) -> bool {
    let unlink = world.nth.as_ref().is_some_and(|nth| nth.hit == Some(Call::Unlink));
    let owed = world.sites.iter().any(|s| s.store.rows(Table::Owed) > 0);
    unlink && !owed && world.sites.iter().any(|s| s.store.rows(Table::Doomed) > 0)
}

/// Whether the second site has a durable checkpoint of a file that is still coming.
fn has_checkpoint(world: &World) -> bool {
    let store = &world.sites[1].store;
    store.files().any(|(blob, file)| {
        let key = keys::blob(blob);
        let snapshot = store.snapshot();
        let row = consign_core::ledger::read::row::<IncomingRow>(&snapshot, Table::Incoming, &key);
        file.named && row.is_ok_and(|row| row.is_some_and(|row| row.offset > 0))
    })
}
