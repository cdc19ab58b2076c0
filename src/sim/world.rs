//! A network of sites on one clock.
//!
//! The world's turn: find the earliest moment at which anything happens, then let happen what is due,
//! always in the same order: planned events, sockets, and site by site the store's answers, the
//! connections, the node. Threads that are woken get their turn a little later, by chance, so that
//! what races in a runtime races here.

use std::collections::VecDeque;
use std::time::Duration;

use consign_core::act::Act;
use consign_core::config::Config;
use consign_core::conn::Role;
use consign_core::id::{SegmentId, SiteNo};
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::pickup::OperatorAct;
use consign_core::store::Snapshot;
use consign_core::time::Instant;
use consign_core::tls::TlsSetup;

use crate::caught::caught;
use crate::record::Recording;

use super::audit::Violation;
use super::client::Job;
use super::clocks::Clocks;
use super::net::{Net, NetEvent, Sock};
use super::pickup::Quay;
use super::process::{Asked, End, Process};
use super::queue::Queue;
use super::reload::Face;
use super::rng::Rng;
use super::seen::{Death, Seen, SiteIx};
use super::setup::Tls;
use super::store::{Done, Fact, SimStore};
use super::swarm::{Kind, Options, Rates};
use super::time::Micros;
use super::watch::Watch;
use super::wire::Around;

/// Names of sites, in order.
pub const NAMES: [&str; 8] = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"];

/// Something the world plans.
#[derive(Debug)]
pub enum Event {
    /// A client at a site hands something in: this, or something new.
    Submit(SiteIx, Option<Box<Job>>),
    /// Clients of a site go away.
    ClientGone(SiteIx),
    /// A process ends.
    Die(SiteIx, Death),
    /// A process is started.
    Start(SiteIx),
    /// A process is asked to stop.
    Stop(SiteIx),
    /// Draws of chance: what goes wrong in the next seconds.
    Weather,
    /// A disk that was full has room again.
    HasRoom(SiteIx),
    /// An operator acts.
    Operate(SiteIx, Box<Act>),
    /// A site reads its configuration again.
    Reload(SiteIx),
    /// An operator does something about pickup: its word, and what.
    Pickup(SiteIx, &'static str, Box<OperatorAct>),
    /// A look at everything.
    Look,
}

/// A site: its store and clocks, and its process while it is up.
pub struct Site {
    /// What it goes by.
    pub config: Config,
    /// Its disk.
    pub store: SimStore,
    /// Its clocks.
    pub clocks: Clocks,
    /// `None` while it is down.
    pub process: Option<Process>,
    /// It does not run before this.
    pub frozen_until: Micros,
    /// Relief went through on the ballast, which has not been whole since.
    pub on_ballast: bool,
    /// Whether a start is planned.
    pub starting: bool,
    /// What it goes by from its next start on, if that has changed.
    pub next: Option<Config>,
    /// How often it has moved, and how often its key was changed.
    pub face: Face,
    pub(super) inbox: VecDeque<Input>,
    rng: Rng,
}

/// Everything there is.
pub struct World {
    /// What the run is.
    pub options: Options,
    /// True time.
    pub now: Micros,
    /// The sites.
    pub sites: Vec<Site>,
    /// The network.
    pub net: Net,
    /// Pickup's clients and nodes.
    pub quay: Quay,
    /// Whoever watches.
    pub watch: Watch,
    /// What is planned.
    pub queue: Queue<Event>,
    /// The world's chance.
    pub rng: Rng,
    /// Chance in what people do and hand in beyond that.
    pub deeds: Rng,
    /// Chance in configurations that change while sites run.
    pub reloading: Rng,
    /// Faults as they are now.
    pub rates: Rates,
    /// What clients have handed in of late, to be handed in again.
    pub recent: VecDeque<Job>,
    /// How many jobs were made.
    pub jobs: u64,
    /// Real TLS, by site.
    pub tls: Vec<TlsSetup>,
    /// Turns of the world.
    pub steps: u64,
    /// Where every node's inputs and effects are written, if anywhere.
    pub recording: Option<Recording>,
    waiting: Vec<Input>,
}

impl World {
    /// A world in which nothing runs yet.
    #[must_use]
    pub fn new(options: Options, tls: Tls) -> World {
        let seed = options.seed;
        let mut rng = Rng::stream(seed, 2);
        let links = options.topology.links(options.sites);
        let mut watch = Watch::default();
        watch.taps = tls.peers.is_empty();
        let mut sites = Vec::new();
        for ix in 0..options.sites {
            let config = options.config(ix, &links);
            watch.see(Micros::ZERO, ix, &Seen::Born { config: &config });
            let skew = rng.between(0, 1_200_000).cast_signed() - 600_000;
            let stream = |part: u64| Rng::stream(seed, 100 * (ix as u64 + 1) + part);
            sites.push(Site {
                config,
                store: SimStore::new(stream(1), options.store()),
                clocks: Clocks::new(skew),
                process: None,
                frozen_until: Micros::ZERO,
                on_ballast: false,
                starting: false,
                next: None,
                face: Face::default(),
                inbox: VecDeque::new(),
                rng: stream(2),
            });
        }
        let mut net = Net::new(Rng::stream(seed, 3), options.sites);
        let (stay, sail) = (Duration::from_secs(45), Duration::from_secs(30));
        for (a, b, contacts) in options.topology.contacts(options.sites, stay, sail) {
            net.contacts(a, b, Some(contacts));
        }
        World {
            rates: options.rates.clone(),
            quay: Quay::new(&options, tls.quay),
            options,
            now: Micros::ZERO,
            sites,
            net,
            watch,
            queue: Queue::default(),
            rng,
            deeds: Rng::stream(seed, 6),
            reloading: Rng::stream(seed, 11),
            recent: VecDeque::new(),
            jobs: 0,
            tls: tls.peers,
            steps: 0,
            recording: None,
            waiting: Vec::new(),
        }
    }

    /// Index of a site by its name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<SiteIx> {
        self.sites.iter().position(|site| site.config.name == name)
    }

    /// Whether a site holds a segment durably.
    #[must_use]
    pub fn holds(&self, ix: SiteIx, id: &SegmentId) -> bool {
        let rows = self.sites[ix].store.snapshot();
        matches!(rows.get(Table::Ids, &keys::id(id)), Ok(Some(_)))
    }

    /// When something happens next.
    #[must_use]
    pub fn next(&self) -> Micros {
        let first = self.queue.next().into_iter().chain(self.net.next()).chain([self.quay.next()]);
        first.chain(self.sites.iter().map(Site::next)).min().unwrap_or(Micros::FAR)
    }

    /// Goes to the next moment at which something happens, and lets it; false when that is after
    /// `until`, which it then is.
    pub fn step(&mut self, until: Micros) -> bool {
        let next = self.next();
        if next > until {
            self.now = self.now.max(until);
            return false;
        }
        self.steps += 1;
        self.watch.step = self.steps;
        self.now = self.now.max(next);
        while let Some(event) = self.queue.take(self.now) {
            self.happen(event);
        }
        while let Some(event) = self.net.take(self.now) {
            self.net_event(event);
        }
        if self.quay.is_on() {
            self.run_quay();
        }
        for ix in 0..self.sites.len() {
            self.run_site(ix);
        }
        true
    }

    /// What a process works with, and the process.
    pub(super) fn split(
        &mut self,
        ix: SiteIx,
    ) -> Option<(&mut Process, Around<'_>, Reckon, &mut Vec<Input>)> {
        let site = self.sites.get_mut(ix)?;
        let process = site.process.as_mut()?;
        let now = site.clocks.now(self.now);
        let around = Around {
            at: self.now,
            now,
            site: ix,
            net: &mut self.net,
            quay: &mut self.quay.net,
            store: &mut site.store,
            inbox: &mut site.inbox,
            watch: &mut self.watch,
            rng: &mut site.rng,
            forged: self.rates.of(Kind::Forged),
            panics: self.rates.of(Kind::Panic),
            starved: self.rates.of(Kind::Starved),
        };
        Some((process, around, Reckon(site.clocks.clone()), &mut self.waiting))
    }

    /// A running process, with what it works with.
    pub fn process(&mut self, ix: SiteIx) -> Option<(&mut Process, Around<'_>)> {
        self.split(ix).map(|(process, around, ..)| (process, around))
    }

    fn run_site(&mut self, ix: SiteIx) {
        let site = &mut self.sites[ix];
        if site.frozen_until > self.now {
            return;
        }
        if site.store.next().is_some_and(|at| at <= self.now) {
            self.take_answers(ix);
        }
        if self.quay.is_on() && self.quay.options.is_at(ix) && self.sites[ix].process.is_some() {
            let skew = self.sites[ix].clocks.skew();
            skew.into_iter().for_each(|ahead| self.input(ix, Input::Skew { ahead }));
        }
        let at = self.now;
        let late = self.rates.of(Kind::LateTimer);
        let Some((process, mut around, reckon, waiting)) = self.split(ix) else { return };
        let turned = caught(|| {
            while let Some((_, conn)) = process.next_wire().filter(|(wake, _)| *wake <= at) {
                process.run_wire(conn, &mut around, &|deadline| reckon.when(deadline));
            }
            let due = process.turn_at <= at || process.timer_at <= at;
            due.then(|| process.turn(&mut around, waiting))
        });
        let asked = match turned {
            Ok(Some(asked)) => asked,
            Ok(None) => return self.facts(ix),
            Err(text) => {
                let violation = Violation::panicked(self.sites[ix].config.name.clone(), text);
                return self.watch.check(at, Err(violation));
            }
        };
        let due = reckon.when(process.deadline()).max(at.plus(1));
        let lag = if around.rng.chance(late) { around.rng.below(2_000_000) } else { 0 };
        process.timer_at = due.plus(lag);
        self.facts(ix);
        self.carry_out(ix, asked);
    }

    /// What the store has done since, and whom it answers.
    fn take_answers(&mut self, ix: SiteIx) {
        loop {
            let done = self.sites[ix].store.take(self.now);
            self.facts(ix);
            let Some(done) = done else { return };
            let Some((process, mut around, ..)) = self.split(ix) else { continue };
            match done {
                Done::Node(input) => {
                    around.inbox.push_back(input);
                    process.turn_at = process.turn_at.min(around.soon());
                }
                Done::Conn(conn, event) => process.answered(conn, event, &mut around),
            }
        }
    }

    pub(super) fn facts(&mut self, ix: SiteIx) {
        for fact in self.sites[ix].store.facts() {
            let seen = match &fact {
                Fact::Durable { batch, bodies } => Seen::Durable { batch, bodies },
                Fact::FileWhole { blob, size, digest } => {
                    Seen::FileWhole { blob: *blob, size: *size, digest: *digest }
                }
                Fact::FileGone(blob) => Seen::FileGone(*blob),
                Fact::Damaged(damage) => Seen::Damaged(damage.clone()),
            };
            self.watch.see(self.now, ix, &seen);
            if let Fact::Durable { batch, .. } = &fact {
                self.relief_keeps_its_room(ix, batch);
            }
        }
    }

    fn carry_out(&mut self, ix: SiteIx, asked: Asked) {
        if let Some(config) = asked.config {
            self.sites[ix].config = *config;
        }
        for (site, name, address) in asked.dials {
            self.dial(ix, site, name, &address);
        }
        if let Some(why) = asked.halted {
            self.watch.say(self.now, ix, || format!("halts: {why}"));
            self.die(ix, Death::Halted);
            self.plan_start(ix);
        } else if asked.drained {
            self.die(ix, Death::Stopped);
            self.plan_start(ix);
        }
    }

    fn dial(&mut self, ix: SiteIx, site: SiteNo, name: String, address: &str) {
        let Some(peer) = self.index(&name) else { return };
        if self.sites[peer].face.address(&name) != address {
            let why = format!("nobody answers at {address} any more");
            return self.input(ix, Input::DialFailed { site, why, reached: false });
        }
        let attempt = self.net.dial(self.now, ix, peer);
        if let Some(process) = &mut self.sites[ix].process {
            process.dials.insert(attempt, (site, name));
        }
    }

    fn net_event(&mut self, event: NetEvent) {
        match event {
            NetEvent::Connected { site, attempt, sock } => {
                let process = self.sites[site].process.as_mut();
                let Some((number, name)) = process.and_then(|p| p.dials.remove(&attempt)) else {
                    return self.net.close(self.now, sock);
                };
                if self.is_refused(site, &name) {
                    self.net.close(self.now, sock);
                    let why = "its certificate is not the pinned one".to_owned();
                    return self
                        .input(site, Input::DialFailed { site: number, why, reached: true });
                }
                let role = Role::Dialled { site: number, name: name.clone() };
                self.attach(site, sock, &name, role);
            }
            NetEvent::DialFailed { site, attempt, why } => {
                let process = self.sites[site].process.as_mut();
                let Some((number, _)) = process.and_then(|p| p.dials.remove(&attempt)) else {
                    return;
                };
                self.input(
                    site,
                    Input::DialFailed { site: number, why: why.to_string(), reached: false },
                );
            }
            NetEvent::Accepted { site, from, sock } => {
                let stopping = self.sites[site].process.as_ref().is_none_or(|p| p.stopping);
                let name = self.sites[from].config.name.clone();
                if stopping || self.is_refused(site, &name) {
                    return self.net.close(self.now, sock);
                }
                self.attach(site, sock, &name, Role::Accepted);
            }
            NetEvent::Ready { site, sock } => {
                if let Some((process, mut around, ..)) = self.split(site) {
                    process.sock_ready(sock, around.soon());
                }
            }
        }
    }

    fn attach(&mut self, ix: SiteIx, sock: Sock, name: &str, role: Role) {
        let peer = self.index(name).unwrap_or(ix);
        let setup = self.tls.get(ix).cloned();
        let fingerprint = self.sites[peer].face.fingerprint(peer);
        if let Some((process, mut around, ..)) = self.split(ix) {
            let end = End { sock, peer, name, fingerprint, role, tls: setup.as_ref() };
            process.attach(end, &mut around);
        }
    }

    /// Puts something into a node's inbox.
    pub fn input(&mut self, ix: SiteIx, input: Input) {
        if let Some((process, mut around, ..)) = self.split(ix) {
            around.inbox.push_back(input);
            process.turn_at = process.turn_at.min(around.soon());
        }
    }

    /// A client hands in a job; false when nobody is there to take it.
    pub fn submit(&mut self, ix: SiteIx, job: Job, declared: bool) -> bool {
        let inline_max = self.sites[ix].config.inline_max;
        let Some((process, mut around, ..)) = self.split(ix) else { return false };
        if process.stopping {
            return false;
        }
        process.submit(job, inline_max, declared, &mut around);
        self.facts(ix);
        true
    }

    /// The oldest client of a site goes away.
    pub fn client_gone(&mut self, ix: SiteIx) {
        if let Some((process, mut around, ..)) = self.split(ix) {
            process.client_gone(&mut around);
        }
    }
}

impl Site {
    fn next(&self) -> Micros {
        let store = self.store.next().unwrap_or(Micros::FAR);
        let Some(process) = &self.process else { return store };
        let wire = process.next_wire().map_or(Micros::FAR, |(wake, _)| wake);
        store.min(wire).min(process.turn_at).min(process.timer_at).max(self.frozen_until)
    }
}

/// Turns a process's instants into true time.
pub(super) struct Reckon(Clocks);

impl Reckon {
    pub(super) fn when(&self, at: Instant) -> Micros {
        self.0.when(at)
    }
}
