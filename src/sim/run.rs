//! One run from its first to its last step: safety, then liveness, and what it came to.

use std::time::Duration;

use consign_core::id::BlobNo;

use super::audit::{Totals, Violation};
use super::seen::SiteIx;
use super::swarm::Options;
use super::time::Micros;
use super::world::{Event, World};
use crate::exit::Failure;
use crate::record::{Header, Recording};

/// After faults have stopped, everything owed must have come to its end within this time.
pub const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// How often the auditor compares its model with everything that is stored.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often the world is asked whether it has come to rest.
const REST_EVERY: Duration = Duration::from_secs(2);

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run.
    pub options: Options,
    /// The broken promise, and when.
    pub broken: Option<(Micros, Violation)>,
    /// The last steps before it, if there was one.
    pub last_steps: Vec<String>,
    /// Simulated time.
    pub simulated: Duration,
    /// Moments at which something happened; the last of them broke the promise, if one is broken.
    pub steps: u64,
    /// What happened.
    pub totals: Totals,
    /// Deliveries still owed.
    pub owed: usize,
    /// The same for two runs only when they did the same.
    pub hash: u64,
}

/// Runs a world to its end, or to its step `until`; then the report has the last steps before it.
///
/// # Errors
/// When certificates for real TLS cannot be made.
pub fn run(options: &Options, until: Option<u64>) -> Result<Report, Failure> {
    run_telling(options, until, LINES)
}

/// The same with so many lines about the last steps.
///
/// # Errors
/// As [`run`].
pub fn run_telling(options: &Options, until: Option<u64>, lines: usize) -> Result<Report, Failure> {
    let mut run = Run::new(options)?;
    if let Some(until) = until {
        run.until = until;
        run.world.watch.story_from = until.saturating_sub(STORY * lines as u64);
        run.world.watch.keep = lines;
    }
    Ok(run.go())
}

/// Runs it and writes down what every node took in and did, for [`crate::record::replay`].
///
/// # Errors
/// As [`run`].
pub fn run_recorded(
    options: &Options,
    until: Option<u64>,
    recording: Recording,
) -> Result<Report, Failure> {
    let mut run = Run::new(options)?;
    run.until = until.unwrap_or(u64::MAX);
    run.world.recording = Some(recording);
    Ok(run.go())
}

/// What a recording of a run says about where it comes from.
#[must_use]
pub fn header(options: &Options) -> Header {
    Header::new("sim").option("options", options)
}

/// Lines about the last steps, unless told otherwise.
pub const LINES: usize = 60;
/// Steps that lead to at least one line, on average.
const STORY: u64 = 100;

/// A run under way.
pub struct Run {
    /// Its world.
    pub world: World,
    /// Its last step.
    pub until: u64,
}

impl Run {
    /// A run at its beginning: every site is about to start.
    ///
    /// # Errors
    /// When certificates for real TLS cannot be made.
    pub fn new(options: &Options) -> Result<Run, Failure> {
        let tls = options.tls_setups()?;
        let mut world = World::new(options.clone(), tls);
        let safe = Micros::ZERO.after(options.length);
        for ix in 0..world.sites.len() {
            world.queue.plan(Micros::ZERO, Event::Start(ix));
        }
        world.plan_work(safe);
        world.plan_weather(safe);
        world.queue.plan(Micros::ZERO.after(LOOK_EVERY), Event::Look);
        Ok(Run { world, until: u64::MAX })
    }

    /// Runs both phases.
    #[must_use]
    pub fn go(mut self) -> Report {
        let safe = Micros::ZERO.after(self.world.options.length);
        self.advance(safe);
        if self.goes_on() {
            self.world.heal();
            if self.world.options.knobs.full_at_end {
                self.leave_on_a_full_disk();
            }
            self.settle(self.world.now.after(PATIENCE));
        }
        self.world.into_report()
    }

    /// Whether no promise is broken and the last step is not reached.
    pub fn goes_on(&self) -> bool {
        self.world.watch.broken.is_none() && self.world.steps < self.until
    }

    /// Lets everything happen up to a moment.
    pub fn advance(&mut self, to: Micros) {
        while self.goes_on() && self.world.step(to) {}
    }

    /// Waits until everything is at rest, at most until `last`, and demands what must hold then.
    fn settle(&mut self, last: Micros) {
        while self.goes_on() {
            self.advance(self.world.now.after(REST_EVERY));
            if self.world.is_at_rest() || self.world.now >= last {
                break;
            }
        }
        if self.goes_on() {
            // A step of its own, so that a replay up to it takes this last look too.
            self.world.steps += 1;
            self.world.look(true);
            self.world.quay_rests();
        }
    }
}

impl World {
    /// Lets something planned happen.
    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Submit(ix, job) => self.client_comes(ix, job),
            Event::ClientGone(ix) => self.client_gone(ix),
            Event::Die(ix, how) => {
                if self.sites[ix].process.is_some() {
                    self.die(ix, how);
                    self.plan_start(ix);
                }
            }
            Event::Start(ix) => self.start(ix),
            Event::Stop(ix) => self.stop(ix),
            Event::Weather => {
                self.weather();
                self.come_again();
            }
            Event::Operate(ix, act) => self.operate(ix, *act),
            Event::Reload(ix) => self.reload(ix),
            Event::Pickup(ix, word, act) => self.operate_pickup_soon(ix, word, *act),
            Event::HasRoom(ix) => self.fill(ix, false),
            Event::Look => {
                self.queue.plan(self.now.after(LOOK_EVERY), Event::Look);
                self.look(false);
            }
        }
    }

    /// Whether nothing is owed, under way or left in memory anywhere.
    #[must_use]
    pub fn is_at_rest(&mut self) -> bool {
        let idle = |site: &super::world::Site| site.process.is_some() && site.store.idle();
        if self.watch.audit.owed() > 0 || !self.quay.is_at_rest() || !self.sites.iter().all(idle) {
            return false;
        }
        (0..self.sites.len()).all(|ix| {
            let files: Vec<(BlobNo, u64, bool)> = self.sites[ix].store.files().collect();
            self.watch.audit.seems_at_rest(ix, &files)
        })
    }

    // A violation ends the run: its size costs nothing.
    #[allow(clippy::result_large_err)]
    fn checked(&mut self, ix: SiteIx, at_rest: bool) -> Result<(), Violation> {
        let store = &self.sites[ix].store;
        let rows = store.snapshot();
        let files: Vec<(BlobNo, u64, bool)> = store.files().collect();
        match at_rest {
            true => self.watch.audit.at_rest(self.now, ix, &rows, &files),
            false => self.watch.audit.deep(self.now, ix, &rows, &files),
        }
    }

    /// Compares the auditor's model with what every site has stored; at the end, demands rest too.
    pub fn look(&mut self, at_rest: bool) {
        for ix in 0..self.sites.len() {
            let checked = self.checked(ix, at_rest);
            self.watch.check(self.now, checked);
        }
        let kept = self.watch.audit.nothing_is_lost();
        self.watch.check(self.now, kept);
    }

    /// What the run came to.
    #[must_use]
    pub fn into_report(self) -> Report {
        let names: Vec<String> = self.sites.iter().map(|s| s.config.name.clone()).collect();
        Report {
            last_steps: self.watch.last_steps(&names),
            simulated: self.now.since(Micros::ZERO),
            steps: self.steps,
            totals: self.watch.audit.totals(),
            owed: self.watch.audit.owed(),
            hash: self.watch.hash.value(),
            broken: self.watch.broken,
            options: self.options,
        }
    }
}
