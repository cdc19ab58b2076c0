//! What goes wrong, and when: every few seconds chance decides, at the rates of the run.

use std::time::Duration;

use super::rng::Rng;
use super::seen::{Death, SiteIx};
use super::swarm::Kind;
use super::time::Micros;
use super::world::{Event, World};

/// How often chance decides; rates are per minute.
const EVERY: Duration = Duration::from_secs(5);
const PER_MINUTE: u32 = 12;
const SECOND: u64 = 1_000_000;

impl World {
    /// Plans the weather and what is certain to go wrong.
    pub fn plan_weather(&mut self, until: Micros) {
        self.queue.plan(Micros::ZERO.after(EVERY), Event::Weather);
        for _ in 0..self.options.crashes {
            let at = Micros(self.rng.between(5 * SECOND, until.0.max(6 * SECOND)));
            let ix = self.some_site();
            let how = if self.rng.chance(500_000) { Death::PowerCut } else { Death::Killed };
            self.queue.plan(at, Event::Die(ix, how));
        }
        self.set_rates();
    }

    /// Hands the rates to those who draw by themselves.
    pub fn set_rates(&mut self) {
        let rates = self.rates.clone();
        self.net.faults = rates.net();
        self.quay.net.faults = rates.net();
        for site in &mut self.sites {
            site.store.faults = rates.store();
        }
    }

    fn some_site(&mut self) -> SiteIx {
        self.rng.below(self.sites.len() as u64) as SiteIx
    }

    /// Something that happens per minute happens now.
    fn strikes(&mut self, kind: Kind) -> bool {
        let rate = self.rates.of(kind) / PER_MINUTE;
        self.rng.chance(rate)
    }

    /// Chance decides.
    pub fn weather(&mut self) {
        self.queue.plan(self.now.after(EVERY), Event::Weather);
        for ix in 0..self.sites.len() {
            self.site_weather(ix);
            self.people_act(ix, PER_MINUTE);
            self.reload_weather(ix, PER_MINUTE);
        }
        self.quay_weather(PER_MINUTE);
    }

    fn site_weather(&mut self, ix: SiteIx) {
        let soon = |rng: &mut Rng, now: Micros| now.plus(rng.below(5 * SECOND));
        for (kind, event) in [
            (Kind::PowerCut, Event::Die(ix, Death::PowerCut)),
            (Kind::Kill, Event::Die(ix, Death::Killed)),
            (Kind::Stop, Event::Stop(ix)),
        ] {
            if self.strikes(kind) {
                let at = soon(&mut self.rng, self.now);
                self.queue.plan(at, event);
            }
        }
        if self.strikes(Kind::Freeze) {
            // Short ones more often.
            let long = self.rng.between(1, 600).min(self.rng.between(1, 600));
            self.freeze(ix, long * SECOND);
        }
        if self.strikes(Kind::Suspend) {
            let long = self.rng.between(1, 600) * SECOND;
            self.freeze(ix, long);
            self.sites[ix].clocks.sleep(long);
        }
        if self.strikes(Kind::ClockStep) {
            self.step_clock(ix);
        }
        if self.strikes(Kind::Full) {
            self.fill(ix, true);
            let long = self.rng.between(1, 60) * SECOND;
            self.queue.plan(self.now.plus(long), Event::HasRoom(ix));
        }
    }

    /// A process gets no time for so many microseconds.
    pub fn freeze(&mut self, ix: SiteIx, micros: u64) {
        let site = &mut self.sites[ix];
        site.frozen_until = site.frozen_until.max(self.now.plus(micros));
        self.watch.say(self.now, ix, || format!("freezes for {} s", micros / SECOND));
    }

    fn step_clock(&mut self, ix: SiteIx) {
        const HOUR: i64 = 3_600_000;
        const YEAR: i64 = 365 * 24 * HOUR;
        let step = match self.rng.below(6) {
            0 => 10 * YEAR,
            1 => -10 * YEAR,
            _ => self.rng.between(0, 2 * HOUR as u64).cast_signed() - HOUR,
        };
        self.sites[ix].clocks.step(step);
        self.watch.say(self.now, ix, || format!("its clock is set by {} s", step / 1000));
    }

    /// Others fill the disk of a site, or give it back.
    pub fn fill(&mut self, ix: SiteIx, full: bool) {
        self.watch.say(self.now, ix, || format!("its disk is full: {full}"));
        if !full {
            return self.sites[ix].store.set_outside(0);
        }
        // Others leave some room, or none; some of them also take what the site frees.
        let (left, taken) = *self.rng.pick(&[(64 << 10, 0), (4 << 10, 0), (0, 0), (0, 2 << 20)]);
        self.sites[ix].store.fill(left, taken);
    }

    /// Others fill the disk of a site to the last byte beside its ballast.
    pub fn fill_up(&mut self, ix: SiteIx) {
        self.watch.say(self.now, ix, || "its disk stays full".to_owned());
        self.sites[ix].store.fill(0, 0);
    }

    /// Nothing goes wrong any more: every disk has room, every link is up, every site runs.
    pub fn heal(&mut self) {
        self.rates = super::swarm::Rates::none();
        self.set_rates();
        self.net.heal(self.now);
        self.quay.behave(self.now);
        self.watch.audit.calm(self.now);
        // A ferry stays: a dial that waits for a quarter of an hour may miss a contact of a minute for
        // ever, and nobody is to blame.
        for (a, b) in self.options.topology.links(self.sites.len()) {
            self.net.contacts(a, b, None);
        }
        self.queue.retain(|event| matches!(event, Event::Start(_)));
        self.come_home();
        self.watch.unsent.clear();
        for ix in 0..self.sites.len() {
            self.fill(ix, false);
            let site = &mut self.sites[ix];
            site.frozen_until = Micros::ZERO;
            if site.process.is_none() && !site.starting {
                self.plan_start(ix);
            }
            self.open_up(ix);
            self.let_loose(ix);
        }
    }

    /// Plans the start of a site that is down.
    pub fn plan_start(&mut self, ix: SiteIx) {
        self.sites[ix].starting = true;
        let long = self.rng.below(*self.rng.clone().pick(&[1, 5, 60]) * SECOND);
        self.queue.plan(self.now.plus(long), Event::Start(ix));
        // Sometimes it dies again while it starts, up to three times.
        for _ in 0..3 {
            if !self.rng.chance(self.rates.of(Kind::Kill) / 4) {
                return;
            }
            let again = self.now.plus(long + self.rng.below(50_000));
            self.queue.plan(again, Event::Die(ix, Death::Killed));
        }
    }
}
