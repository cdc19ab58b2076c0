//! What clients hand in: new segments, the same again, the same content under another name.

use bytes::Bytes;
use consign_core::segment::{Class, Destinations, Meta};

use super::client::{Job, content};
use super::keeping::GHOST;
use super::seen::SiteIx;
use super::swarm::Kind;
use super::time::Micros;
use super::world::{Event, World};

const SECOND: u64 = 1_000_000;
/// Jobs that may come again.
const RECENT: usize = 64;

impl World {
    /// Spreads the run's segments over its safety phase, singly and in bursts.
    pub fn plan_work(&mut self, until: Micros) {
        let mut left = u64::from(self.options.segments);
        while left > 0 {
            let burst = if self.rng.chance(100_000) { self.rng.between(10, 100) } else { 1 };
            let burst = burst.min(left);
            left -= burst;
            let at = Micros(self.rng.between(0, until.0));
            let ix = self.rng.below(self.sites.len() as u64) as SiteIx;
            for _ in 0..burst {
                let at = at.plus(self.rng.below(20_000));
                self.queue.plan(at, Event::Submit(ix, None));
            }
        }
    }

    /// A client comes to a site, with this job or a new one.
    pub fn client_comes(&mut self, ix: SiteIx, job: Option<Box<Job>>) {
        let job = match job {
            Some(job) => *job,
            None => self.make_job(ix),
        };
        let declared = self.rng.chance(700_000);
        let gone = self.rng.chance(self.rates.of(Kind::ClientGone));
        if self.submit(ix, job.clone(), declared) {
            if gone {
                let at = self.now.plus(self.rng.below(20_000));
                self.queue.plan(at, Event::ClientGone(ix));
            }
            // What goes round in a circle is handed in once: entered at several sites it would be waited
            // for by everybody in it.
            if goes_round(&job.to) {
                return;
            }
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.comes_later(ix, &job);
            self.recent.push_back(job);
        } else {
            let at = self.now.plus(self.rng.between(1, 20) * SECOND);
            self.queue.plan(at, Event::Submit(ix, Some(Box::new(job))));
        }
    }

    /// The same comes again seconds to minutes later, there or elsewhere: by then it may be delivered,
    /// given up, or gone.
    fn comes_later(&mut self, ix: SiteIx, job: &Job) {
        let keeping = &self.options.keeping;
        let (later, again) = (self.deeds.chance(keeping.later), self.deeds.chance(keeping.again));
        let (wait, there) = (self.deeds.between(1, 300), self.deeds.chance(800_000));
        let other = self.deeds.below(self.sites.len() as u64) as SiteIx;
        let instance = std::array::from_fn(|_| self.deeds.below(256) as u8);
        let job = match (later, again) {
            (_, true) => job.again(instance),
            (true, false) => job.clone(),
            (false, false) => return,
        };
        let at = self.now.plus(wait * SECOND);
        let ix = if there { ix } else { other };
        let job = if there { job } else { Job { to: real(self.destinations(ix)), ..job } };
        self.queue.plan(at, Event::Submit(ix, Some(Box::new(job))));
    }

    /// Clients that were refused for now, or lost their connection, may come again.
    pub fn come_again(&mut self) {
        for (ix, job) in std::mem::take(&mut self.watch.unsent) {
            if self.rng.chance(700_000) {
                let at = self.now.plus(self.rng.between(1, 30) * SECOND);
                self.queue.plan(at, Event::Submit(ix, Some(Box::new(job))));
            }
        }
    }

    fn make_job(&mut self, ix: SiteIx) -> Job {
        self.jobs += 1;
        let number = self.jobs;
        let old = (!self.recent.is_empty() && self.rng.chance(100_000)).then(|| {
            let at = self.rng.below(self.recent.len() as u64) as usize;
            self.recent[at].clone()
        });
        let to = self.destinations(ix);
        match old {
            Some(old) if self.rng.chance(500_000) => Job { to: real(to), ..old },
            Some(old) => {
                let meta = Meta { name: format!("again-{number}"), ..old.meta };
                Job::new(meta, to, old.body)
            }
            None => {
                let meta = self.meta(ix, number);
                let body = self.body(number);
                Job::new(meta, to, body)
            }
        }
    }

    fn meta(&mut self, ix: SiteIx, number: u64) -> Meta {
        let class = *self.rng.pick(&Class::ALL);
        let expires = self.rng.chance(20_000);
        let expires = self.deeds.chance(self.options.keeping.expires) || expires;
        let wall = self.sites[ix].clocks.now(self.now).wall.0;
        let expires_at = expires.then(|| wall + self.rng.between(1, 300) * 1000);
        Meta { name: format!("s{number}"), class, expires_at, ..Meta::default() }
    }

    fn body(&mut self, number: u64) -> Bytes {
        let large = self.rng.chance(self.options.large);
        let len = match self.rng.below(10) {
            _ if large => self.rng.between(65_537, self.options.longest.max(65_538)),
            0..5 => self.rng.between(1, 200),
            5..9 => self.rng.between(200, 4_096),
            _ => self.rng.between(4_096, 65_536),
        };
        content(self.options.seed ^ number << 20, len as usize)
    }

    fn destinations(&mut self, ix: SiteIx) -> Destinations {
        let peers = &self.sites[ix].config.peers;
        if peers.is_empty() || self.rng.chance(300_000) {
            return Destinations::All;
        }
        let mut names: Vec<String> = Vec::new();
        for peer in peers {
            if self.rng.chance(500_000) {
                names.push(peer.name.clone());
            }
        }
        if names.is_empty() {
            names.push(self.rng.pick(peers).name.clone());
        }
        if self.rng.chance(5_000) {
            names.push("nowhere".to_string());
        }
        // What has no way from here any more is refused, and the client says so.
        for route in &self.sites[ix].config.routes {
            let share = if route.to == GHOST { 20_000 } else { 400_000 };
            if self.deeds.chance(share) {
                names.push(route.to.clone());
            }
        }
        Destinations::named(names).unwrap_or(Destinations::All)
    }
}

/// Whether it is for the name that exists nowhere.
fn goes_round(to: &Destinations) -> bool {
    matches!(to, Destinations::Named(names) if names.iter().any(|name| name == GHOST))
}

/// Without the name that exists nowhere: a segment that is on its way already and is then sent round in a
/// circle as well is waited for by everybody in it, for ever.
fn real(to: Destinations) -> Destinations {
    match to {
        Destinations::All => Destinations::All,
        Destinations::Named(names) => {
            let names = names.into_iter().filter(|name| name != GHOST).collect();
            Destinations::named(names).unwrap_or(Destinations::All)
        }
    }
}
