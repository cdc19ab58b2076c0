//! Depth first through everything that may happen: each distinct world once.

use std::collections::BTreeMap;
use std::fmt;

use super::check::Broken;
use super::ops::{Choice, Op};
use super::world::{Rules, World};

/// How far a workload is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How finely the world is taken apart, and how much may befall it.
    pub rules: Rules,
    /// How often another choice may be taken than the one that is next when nothing races; `None`
    /// is as often as there is a choice. Crashes do not count.
    pub turns: Option<u32>,
    /// Whether both sites start with an empty store instead of a session between them.
    pub cold: bool,
    /// Whether one path to each end is walked again with the auditor looking on.
    pub audited: bool,
}

/// What was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Workloads.
    pub workloads: u64,
    /// Distinct worlds.
    pub states: u64,
    /// Steps taken between them.
    pub steps: u64,
    /// Worlds in which nothing more can happen, run to rest and judged.
    pub ends: u64,
    /// Most steps on one path.
    pub longest: usize,
}

impl Report {
    /// Adds what another exploration found.
    pub fn add(&mut self, other: Report) {
        self.workloads += other.workloads;
        self.states += other.states;
        self.steps += other.steps;
        self.ends += other.ends;
        self.longest = self.longest.max(other.longest);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { workloads, states, steps, ends, longest } = self;
        write!(f, "{workloads} workloads, {states} states, {steps} steps, {ends} ends, ")?;
        write!(f, "longest path {longest}")
    }
}

/// A path on which a promise was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The workload.
    pub workload: Vec<Op>,
    /// Under which bounds.
    pub bounds: Bounds,
    /// Every step, the last being the one that broke it.
    pub path: Vec<Choice>,
    /// The promise.
    pub broken: Broken,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n  workload:", self.broken)?;
        self.workload.iter().try_for_each(|op| writeln!(f, "    {op}"))?;
        writeln!(f, "  steps:")?;
        self.path.iter().enumerate().try_for_each(|(i, step)| writeln!(f, "{i:6}  {step}"))?;
        let Failure { workload, bounds, path, .. } = self;
        writeln!(f, "  again: small::replay(&vec!{workload:?}, &{bounds:?}, &vec!{path:?})")
    }
}

/// A world on the way, and which of its choices are still to be tried.
struct Frame {
    world: World,
    choices: Vec<Choice>,
    next: usize,
    turns: u32,
}

struct Explorer {
    workload: Vec<Op>,
    bounds: Bounds,
    /// Worlds that were seen, with the turns that were left there at most.
    seen: BTreeMap<u128, u32>,
    stack: Vec<Frame>,
    report: Report,
}

fn begin(workload: &[Op], bounds: &Bounds, watched: bool) -> Result<World, Broken> {
    let world = World::cold(if bounds.cold { workload } else { &[] }, bounds.rules);
    let world = if watched { world.watched()? } else { world };
    if bounds.cold { Ok(world) } else { world.warmed(workload) }
}

/// Explores a workload.
///
/// # Errors
/// The first path on which a promise is broken.
pub fn explore(workload: &[Op], bounds: Bounds) -> Result<Report, Box<Failure>> {
    let mut explorer = Explorer {
        workload: workload.to_vec(),
        bounds,
        seen: BTreeMap::new(),
        stack: Vec::new(),
        report: Report { workloads: 1, ..Report::default() },
    };
    match begin(workload, &bounds, false) {
        Ok(world) => explorer.visit(world, bounds.turns.unwrap_or(u32::MAX))?,
        Err(broken) => return Err(explorer.failure(&[], broken)),
    }
    while let Some(frame) = explorer.stack.last_mut() {
        let Some(choice) = frame.choices.get(frame.next).copied() else {
            explorer.stack.pop();
            continue;
        };
        // What is next when nothing races is free, and so are faults: they have a count of their
        // own.
        let costs = bounds.turns.is_some() && frame.next > 0 && !choice.is_fault();
        frame.next += 1;
        let Some(turns) = frame.turns.checked_sub(u32::from(costs)) else { continue };
        let mut world = frame.world.clone();
        explorer.report.steps += 1;
        if let Err(broken) = world.take(choice) {
            return Err(explorer.failure(&[], broken));
        }
        explorer.visit(world, turns)?;
    }
    Ok(explorer.report)
}

impl Explorer {
    /// A world was reached: if it is new, or was seen with fewer turns left, it is gone into.
    fn visit(&mut self, world: World, turns: u32) -> Result<(), Box<Failure>> {
        let print = world.print();
        let seen = self.seen.get(&print).copied();
        if seen.is_some_and(|before| before >= turns) {
            return Ok(());
        }
        self.seen.insert(print, turns);
        self.report.states += u64::from(seen.is_none());
        self.report.longest = self.report.longest.max(self.stack.len());
        let choices = world.choices();
        if choices.iter().all(|choice| choice.is_fault()) {
            self.report.ends += 1;
            let mut path = Vec::new();
            if let Err(broken) = world.clone().rest(&mut path) {
                return Err(self.failure(&path, broken));
            }
            if self.bounds.audited {
                self.audit(&path)?;
            }
        }
        self.stack.push(Frame { world, choices, next: 0, turns });
        Ok(())
    }

    /// Walks the path to where the explorer is, and `more`, with the auditor looking on.
    fn audit(&self, more: &[Choice]) -> Result<(), Box<Failure>> {
        let walk = || {
            let mut world = begin(&self.workload, &self.bounds, true)?;
            self.taken().chain(more).try_for_each(|choice| world.take(*choice))?;
            world.settled()
        };
        walk().map_err(|broken| self.failure(more, broken))
    }

    fn taken(&self) -> impl Iterator<Item = &Choice> {
        self.stack.iter().filter_map(|f| f.choices.get(f.next.checked_sub(1)?))
    }

    /// The path to where the explorer is, and `more`.
    fn failure(&self, more: &[Choice], broken: Broken) -> Box<Failure> {
        let path = self.taken().chain(more).copied().collect();
        Box::new(Failure { workload: self.workload.clone(), bounds: self.bounds, path, broken })
    }
}

/// Takes exactly these steps. Steps that are not possible any more are taken as nothing.
///
/// # Errors
/// The promise that is broken on the way, with the steps up to there.
pub fn replay(workload: &[Op], bounds: &Bounds, path: &[Choice]) -> Result<World, Box<Failure>> {
    let failure = |steps: usize, broken: Broken| {
        let path = path.iter().take(steps).copied().collect();
        Box::new(Failure { workload: workload.to_vec(), bounds: *bounds, path, broken })
    };
    let mut world = begin(workload, bounds, false).map_err(|broken| failure(0, broken))?;
    for (i, choice) in path.iter().enumerate() {
        world.take(*choice).map_err(|broken| failure(i + 1, broken))?;
    }
    Ok(world)
}
