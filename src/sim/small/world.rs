//! A small world: two sites and what is between them, and every step it may take from where it is.

use std::rc::Rc;
use std::time::Duration;

use consign_core::id::ConnId;
use consign_core::ledger::Table;
use consign_core::ledger::read::{Answer, ReadRequest};
use consign_core::ledger::rows::MetaName;
use consign_core::node::{Action, Input, Node};
use consign_core::plant::Plant;

use consign_core::pump::{Outbox, Pump};
use consign_core::segment::Destinations;
use consign_core::session::{Session, SessionCommand};
use consign_core::store::Errand;
use consign_core::time::{Instant, Now, UnixMillis};

use super::check::{Check, Checked, broken};
use super::nth::{Call, Hit, Nth};
use super::ops::{CHECKPOINT, Choice, Op, What, other};
use super::site::{Heard, Site, Sites, print};
use super::watch::Watch;
use crate::sim::seen::{Death, Seen, SiteIx};

/// When a small world begins: any time after the epoch would do.
pub(super) const BEGIN: UnixMillis = UnixMillis(1_800_000_000_000);
/// Steps after which a world that has not come to rest never will.
const STEPS_MAX: usize = 20_000;

const UP: &str = "a node stops only when its store fails";
const ENDS: &str = "once faults stop, the world comes to rest (I28)";

/// How finely a world is taken apart, and how much may befall it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether commits, reads and what nodes tell sessions take two steps instead of one: happening
    /// and being heard of.
    pub fine: bool,
    /// Crashes that may befall it at any point, beside those of its workload.
    pub crashes: u8,
    /// Times that time may pass while anything can still befall it.
    pub waits: u8,
    /// A rule that its nodes and sessions drop, to prove that this would be noticed.
    #[doc(hidden)]
    pub plant: Option<Plant>,
}

/// A small world.
#[derive(Clone)]
pub struct World {
    pub(super) sites: Sites,
    pub(super) now: Now,
    /// What was said so far; copied when it changes.
    pub(super) check: Check,
    workload: Rc<[Op]>,
    next: usize,
    rules: Rules,
    /// Whoever looks on.
    pub(super) watch: Watch,
    /// Set when store calls are to fail.
    pub(super) nth: Option<Nth>,
}

impl World {
    /// Both sites down, stores empty.
    #[must_use]
    pub fn cold(workload: &[Op], rules: Rules) -> World {
        World {
            sites: Sites::new(rules.plant),
            now: Now { mono: Instant(1), wall: BEGIN },
            check: Check::default(),
            workload: workload.into(),
            next: 0,
            rules,
            watch: Watch::default(),
            nth: None,
        }
    }

    /// Both sites up, with a session between them, and nothing to do but the workload.
    ///
    /// # Errors
    /// When a promise is broken on the way there.
    pub fn warm(workload: &[Op], rules: Rules) -> Result<World, super::Broken> {
        World::cold(&[], rules).warmed(workload)
    }

    /// The auditor looks on from the beginning, until the world is dropped.
    pub(super) fn watched(mut self) -> Result<World, super::Broken> {
        self.watch.begin(self.now, &self.sites)?;
        Ok(self)
    }

    /// Up, with a session, and with this workload before it.
    pub(super) fn warmed(self, workload: &[Op]) -> Result<World, super::Broken> {
        let (rules, mut world) = (self.rules, self);
        world.rest(&mut Vec::new())?;
        Ok(World { workload: workload.into(), rules, ..world })
    }

    /// Every choice there is now: first what the world does by itself, in the order in which it
    /// would be done if nothing raced, then what may befall it.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        let mut all = self.steps();
        if self.may_begin() {
            all.push(Choice::Next);
        }
        if all.is_empty() && self.rules.waits > 0 && self.unfinished() {
            all.push(Choice::Wait);
        }
        if self.rules.crashes > 0 {
            for (site, state) in self.sites.iter().enumerate().filter(|(_, s)| s.pump.is_some()) {
                if state.store.files().any(|(_, f)| !f.named || f.synced < f.data.len()) {
                    all.push(Choice::Kill(site));
                }
                all.push(Choice::PowerCut(site));
            }
        }
        all
    }

    /// What the world does by itself.
    pub(super) fn steps(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        for (i, site) in self.sites.iter().enumerate() {
            if site.pump.is_none() {
                all.push(Choice::Start(i));
            }
            all.extend(site.batch.as_ref().map(|_| Choice::Durable(i)));
            all.extend(site.told.as_ref().map(|_| Choice::Told(i)));
            if self.rules.fine {
                let step = |seen: bool| if seen { Choice::Answer } else { Choice::Look };
                let reads = site.reads.iter();
                all.extend(reads.map(|(number, (_, seen))| step(seen.is_some())(i, *number)));
            } else if !site.reads.is_empty() {
                all.push(Choice::Answers(i));
            }
            if !site.unlinks.is_empty() {
                all.push(Choice::Unlink(i));
            }
            for (conn, client) in &site.clients {
                all.extend((!client.calls.is_empty()).then_some(Choice::File(i, *conn)));
            }
            for (conn, end) in &site.ends {
                all.extend((!end.words.is_empty()).then_some(Choice::Word(i, *conn)));
                all.extend((!end.calls.is_empty()).then_some(Choice::File(i, *conn)));
                all.extend((!end.air.is_empty()).then_some(Choice::Arrive(i, *conn)));
                let long = end.air.len() as u64 > CHECKPOINT;
                all.extend(long.then_some(Choice::Half(i, *conn)));
                let gone = end.other.is_none() && end.air.is_empty();
                all.extend(gone.then_some(Choice::Notice(i, *conn)));
            }
            let due = site.due.is_some_and(|at| at <= self.now.mono);
            if site.pump.is_some() && (due || !site.inbox.is_empty()) {
                all.push(Choice::Turn(i));
            }
            all.extend((!site.dials.is_empty()).then_some(Choice::Dial(i)));
        }
        all
    }

    fn may_begin(&self) -> bool {
        let up = |site: SiteIx| self.sites[site].pump.is_some();
        match self.workload.get(self.next) {
            Some(Op::Send(site, _) | Op::Crash(site)) => up(*site),
            Some(Op::Cut) => self.connected(),
            None => false,
        }
    }

    fn connected(&self) -> bool {
        self.sites.iter().any(|s| s.ends.values().any(|end| end.other.is_some()))
    }

    /// Whether anything is left that time may have to pass for.
    pub(super) fn unfinished(&self) -> bool {
        let waits = [Table::Owed, Table::Incoming, Table::Doomed];
        let busy = |s: &Site| s.pump.is_none() || waits.iter().any(|t| s.store.rows(*t) > 0);
        self.next < self.workload.len() || !self.connected() || self.sites.iter().any(busy)
    }

    /// Goes on without anything befalling it until everything owed has come to its end, and checks
    /// that it has. `path` gets the choices that were made.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn rest(&mut self, path: &mut Vec<Choice>) -> Checked {
        self.rules = Rules { crashes: 0, waits: u8::MAX, ..self.rules };
        let mut steps = 0;
        while let Some(choice) = self.first() {
            path.push(choice);
            self.take(choice)?;
            steps += 1;
            if steps > STEPS_MAX {
                return broken(ENDS, format!("not after {STEPS_MAX} steps"));
            }
        }
        self.settled()
    }

    /// Nothing happens any more: everything must have come to its end, and nothing stay in memory.
    ///
    /// # Errors
    /// What has not.
    pub(super) fn settled(&self) -> Checked {
        for (i, site) in self.sites.iter().enumerate() {
            self.check.at_rest(i, &site.store)?;
            self.watch.at_rest(self.now, i, &site.store)?;
            let held = site.pump.as_ref().map(|pump| pump.node().footprint());
            if held != Some((0, 0, 0)) {
                return broken(ENDS, format!("{} holds {held:?}", super::NAMES[i]));
            }
        }
        Ok(())
    }

    /// How many operations of the workload have begun.
    pub(super) fn begun(&self) -> usize {
        self.next
    }

    /// Whether there are any clients without a good answer.
    pub(super) fn is_refused(&self) -> bool {
        self.sites.iter().any(|site| !site.unanswered.is_empty())
    }

    /// Clients that got no good answer come again. Returns whether there are any.
    pub(super) fn ask_again(&mut self) -> Result<bool, super::Broken> {
        let mut any = false;
        for i in 0..2 {
            let (up, waiting) = (self.sites[i].pump.is_some(), &self.sites[i].unanswered);
            if !up || waiting.is_empty() {
                continue;
            }
            for what in std::mem::take(&mut self.sites[i].unanswered) {
                self.submit(i, what)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// A local client comes with a segment.
    fn submit(&mut self, i: SiteIx, what: What) -> Checked {
        if self.watch.is_on() {
            let (id, digest, meta) = (what.id(), what.digest(), what.meta());
            let to = Destinations::Named(vec![super::NAMES[other(i)].to_string()]);
            let size = what.content().len() as u64;
            let seen = Seen::Submitted { id, digest, size, meta: &meta, to: &to };
            self.watch.see(self.now, i, &seen)?;
        }
        self.sites[i].client(i, what);
        Ok(())
    }

    /// What happens next when nothing races and nothing befalls it.
    pub(super) fn first(&self) -> Option<Choice> {
        self.steps().first().copied().or_else(|| {
            let wait = || self.unfinished().then_some(Choice::Wait);
            if self.may_begin() { Some(Choice::Next) } else { wait() }
        })
    }

    /// Takes one step.
    ///
    /// # Errors
    /// The first promise that it breaks.
    pub fn take(&mut self, choice: Choice) -> Checked {
        match choice {
            Choice::Start(i) => self.start(i),
            Choice::Notice(i, conn) => self.notice(i, conn),
            Choice::File(i, conn) => self.file(i, conn),
            Choice::Durable(i) => self.commit(i),
            Choice::Told(i) => {
                let site = &mut self.sites[i];
                site.inbox.extend(site.told.take());
                Ok(())
            }
            Choice::Look(i, number) | Choice::Answer(i, number) => self.read(i, number),
            Choice::Answers(i) => self.answer_all(i),
            Choice::Arrive(i, conn) => self.arrive(i, conn, usize::MAX),
            Choice::Half(i, conn) => {
                let half = self.sites[i].ends.get(&conn).map_or(0, |end| end.air.len() / 2);
                self.arrive(i, conn, half)
            }
            Choice::Word(i, conn) => self.word(i, conn),
            Choice::Dial(i) => self.dial(i),
            Choice::Unlink(i) => self.unlink(i),
            Choice::Turn(i) => self.turn(i),
            Choice::Next => self.begin(),
            Choice::Wait => self.wait(),
            Choice::Kill(i) => self.befall(i, Death::Killed),
            Choice::PowerCut(i) => self.befall(i, Death::PowerCut),
        }
    }

    fn begin(&mut self) -> Checked {
        let Some(op) = self.workload.get(self.next).copied() else { return Ok(()) };
        self.next += 1;
        match op {
            Op::Send(site, what) => self.submit(site, what),
            Op::Cut => {
                self.cut();
                Ok(())
            }
            Op::Crash(site) => self.crash(site, Death::PowerCut),
        }
    }

    /// Whether happening and being heard of are two steps.
    pub(super) fn fine(&self) -> bool {
        self.rules.fine
    }

    fn befall(&mut self, i: SiteIx, how: Death) -> Checked {
        self.rules.crashes = self.rules.crashes.saturating_sub(1);
        self.crash(i, how)
    }

    /// A process dies. What it had sent and has not arrived is lost; that some of it did arrive is
    /// the same world with those steps taken before.
    pub(super) fn crash(&mut self, i: SiteIx, how: Death) -> Checked {
        self.sites[i].die(how == Death::PowerCut);
        self.break_ends(other(i));
        self.watch.see(self.now, i, &Seen::Died(how))?;
        self.check.durable(i, &self.sites[i].store)
    }

    fn break_ends(&mut self, i: SiteIx) {
        for end in self.sites[i].ends.values_mut() {
            end.other = None;
            end.air.clear();
        }
    }

    fn cut(&mut self) {
        self.break_ends(0);
        self.break_ends(1);
    }

    fn start(&mut self, i: SiteIx) -> Checked {
        let site = &mut self.sites[i];
        let recovery = match site.store.read(&ReadRequest::Recovery).map(|answer| answer.body) {
            Ok(Answer::Recovery(recovery)) => *recovery,
            other => return broken(UP, format!("{}: start-up read {other:?}", super::NAMES[i])),
        };
        let boot = recovery.meta_value(MetaName::Boot) + 1;
        let node = match Node::recover((*site.config).clone(), recovery, self.now) {
            Ok(node) => node,
            Err(why) => return broken(UP, format!("{}: {why}", super::NAMES[i])),
        };
        site.pump = Some(Rc::new(Pump::new(node)));
        site.due = Some(Instant::ZERO);
        site.print_pump();
        self.watch.see(self.now, i, &Seen::Started { boot })
    }

    fn turn(&mut self, i: SiteIx) -> Checked {
        let mut inputs = std::mem::take(&mut self.sites[i].inbox);
        let (now, taken) = (self.now, inputs.len());
        loop {
            let mut outbox = Outbox::default();
            let site = &mut self.sites[i];
            let Some(pump) = &mut site.pump else { return Ok(()) };
            let pump = Rc::make_mut(pump);
            site.due = pump.turn(self.now, &mut inputs.drain(..), &mut outbox);
            site.batch = outbox.batch.or(site.batch.take());
            for action in outbox.actions {
                if let Some(swept) = self.act(i, action)? {
                    inputs.push(swept);
                }
            }
            // A sweep takes a turn for each folder; nothing comes between them here.
            if inputs.is_empty() || self.sites[i].pump.is_none() {
                break;
            }
        }
        if let Some(pump) = &self.sites[i].pump {
            let footprint = pump.node().footprint();
            self.watch.see(now, i, &Seen::Turned { now, inputs: taken, footprint })?;
        }
        self.sites[i].print_pump();
        Ok(())
    }

    /// Carries out an action; what is swept at once goes into the same turn.
    fn act(&mut self, i: SiteIx, action: Action) -> Result<Option<Input>, super::Broken> {
        let site = &mut self.sites[i];
        match action {
            Action::Command(conn, command) if site.clients.contains_key(&conn) => {
                self.tell_client(i, conn, command)?;
            }
            Action::Command(conn, command) => {
                if let Some(end) = site.ends.get_mut(&conn) {
                    end.words.push_back(command);
                    if !self.rules.fine {
                        self.word(i, conn)?;
                    }
                }
            }
            Action::Read(number, request) => {
                site.reads.insert(number, (request, None));
            }
            Action::Errand(errand) => return self.errand(i, errand),
            Action::Dial { site: to, .. } => site.dials.push_back(to),
            // No site of these worlds has an inbox rule.
            Action::Reload(_) | Action::Export(_) => {}
            Action::Note(note) => self.watch.see(self.now, i, &Seen::Note(&note))?,
            Action::Drained => {}
            Action::Halt(_) if self.nth.is_some() => self.crash(i, Death::Halted)?,
            Action::Halt(why) => return broken(UP, format!("{}: {why}", super::NAMES[i])),
        }
        Ok(None)
    }

    fn errand(&mut self, i: SiteIx, errand: Errand) -> Result<Option<Input>, super::Broken> {
        let swept = matches!(errand, Errand::Sweep { .. });
        let hit = match &errand {
            Errand::Check(_) => self.hit(Call::Check),
            Errand::Sweep { folder: 0, .. } => self.hit(Call::Sweep),
            Errand::Sweep { .. }
            | Errand::Unpark(_)
            | Errand::Unlink(_)
            | Errand::SetAside(_)
            | Errand::Probe
            | Errand::Look
            | Errand::Scrub { .. } => Hit::No,
        };
        let site = &mut self.sites[i];
        let end = self.watch.is_on();
        let answer = if hit == Hit::Before { None } else { site.errand(errand, end) };
        if hit != Hit::No {
            self.crash(i, Death::PowerCut)?;
            return Ok(None);
        }
        let Some(answer) = answer else { return Ok(None) };
        let site = &mut self.sites[i];
        if swept {
            self.check.durable(i, &site.store)?;
            return Ok(Some(answer));
        }
        site.inbox.push(answer);
        Ok(None)
    }

    fn tell_client(&mut self, i: SiteIx, conn: ConnId, command: SessionCommand) -> Checked {
        let site = &mut self.sites[i];
        let Some(what) = site.clients.get(&conn).map(|client| client.what) else { return Ok(()) };
        match site.tell_client(conn, command) {
            Heard::Nothing => Ok(()),
            Heard::Safe(accepted) => {
                site.client_gone(conn);
                self.watch.see(self.now, i, &Seen::Queued(&accepted))?;
                let site = &self.sites[i];
                self.check.told_safe(i, what.id(), &site.store)
            }
            Heard::No(code) => {
                site.unanswered.insert(what);
                site.client_gone(conn);
                self.watch.see(self.now, i, &Seen::Refused { id: what.id(), code })
            }
        }
    }

    /// Time passes to the next deadline, and every session whose deadline that is has a look.
    fn wait(&mut self) -> Checked {
        self.rules.waits = self.rules.waits.saturating_sub(u8::from(self.rules.waits < u8::MAX));
        let sessions = self.sites.iter().flat_map(|s| s.ends.values());
        let deadlines = sessions.filter_map(|end| end.session.next_deadline());
        let next = deadlines.chain(self.sites.iter().filter_map(|s| s.due)).min();
        let Some(next) = next.filter(|at| *at > self.now.mono) else {
            return broken(ENDS, "nothing is left to wait for".to_string());
        };
        let millis = next.since(self.now.mono).as_nanos().div_ceil(1_000_000);
        let passed = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        self.now = Now { mono: self.now.mono.after(passed), wall: self.now.wall.after(passed) };
        self.ring()
    }

    /// A fingerprint of everything that decides how the world goes on.
    ///
    /// Nodes and sessions are compared by their debug output, which shows everything but the inside
    /// of a hasher, and that follows from how much of which content it has seen; stores by their
    /// rows and files. Equal worlds go on equally, so that each is explored once.
    #[must_use]
    pub fn print(&self) -> u128 {
        let World { sites, now, check, workload: _, next, rules, watch: _, nth: _ } = self;
        let text = format!("{:?}{now:?}{}{next}{rules:?}", sites.prints(), check.print());
        print(&text)
    }
}
