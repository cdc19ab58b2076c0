//! Named stories: small worlds in which exactly what the story says goes wrong.
//!
//! A story runs on the same world, the same store and under the same auditor as a drawn run, but
//! without chance in what fails. What a drawn run once found stays here under a name.

pub mod disks;
pub mod fair;
pub mod keep;
pub mod links;
pub mod past;
pub mod pickup;
pub mod power;
pub mod reload;

use std::time::Duration;

use consign_core::id::SegmentId;
use consign_core::plant::Plant;
use consign_core::segment::{Class, Destinations, Meta};

use super::client::{Job, content};
use super::net::Topology;
use super::run::{PATIENCE, Report};
use super::seen::SiteIx;
use super::setup::Tls;
use super::swarm::Options;
use super::world::World;

/// A story.
#[derive(Clone, Copy)]
pub struct Story {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens, in a sentence.
    pub about: &'static str,
    /// Tells it; what it demands beyond the auditor's promises comes back as an error.
    pub tell: fn(&mut Stage) -> Result<(), String>,
}

/// Every story.
#[must_use]
pub fn all() -> Vec<Story> {
    let parts = [
        links::STORIES,
        disks::STORIES,
        power::STORIES,
        keep::STORIES,
        past::STORIES,
        fair::STORIES,
        pickup::STORIES,
        reload::STORIES,
    ];
    parts.into_iter().flatten().copied().collect()
}

/// Tells a story, lets its world come to rest, and says what it came to.
///
/// # Errors
/// What the story demands and did not get.
pub fn tell(story: &Story) -> Result<Report, String> {
    tell_planted(story, None)
}

/// Tells it to sites that drop a rule on purpose.
///
/// # Errors
/// As [`tell`].
pub fn tell_planted(story: &Story, plant: Option<Plant>) -> Result<Report, String> {
    let mut stage = Stage { plant, ..Stage::new() };
    (story.tell)(&mut stage)?;
    stage.finish()
}

/// Where a story is told.
pub struct Stage {
    /// Its world, once the story has made it.
    pub world: World,
    sent: u64,
    plant: Option<Plant>,
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::new()
    }
}

impl Stage {
    /// An empty stage.
    #[must_use]
    pub fn new() -> Stage {
        let mut stage = Stage { world: World::new(calm(0), Tls::default()), sent: 0, plant: None };
        stage.world.watch.story_from = 0;
        stage
    }

    /// A world of so many sites; `change` alters its options first.
    pub fn set(&mut self, sites: usize, topology: Topology, change: impl FnOnce(&mut Options)) {
        let mut options = calm(sites);
        options.topology = topology;
        change(&mut options);
        options.plant = self.plant;
        self.world = World::new(options, Tls::default());
        self.world.watch.story_from = 0;
    }

    /// Starts every site and lets them meet.
    pub fn start(&mut self) {
        for ix in 0..self.world.sites.len() {
            self.world.start(ix);
        }
        self.pass(Duration::from_secs(2));
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        let until = self.world.now.after(time);
        while self.world.watch.broken.is_none() && self.world.step(until) {}
    }

    /// Time passes until `done`.
    ///
    /// # Errors
    /// When that takes longer than `most`.
    pub fn until(
        &mut self,
        what: &str,
        most: Duration,
        done: impl Fn(&World) -> bool,
    ) -> Result<(), String> {
        let last = self.world.now.after(most);
        while !done(&self.world) {
            if self.world.watch.broken.is_some() {
                return Ok(());
            }
            if !self.world.step(last) {
                return Err(format!("{what} did not come within {most:?}"));
            }
        }
        Ok(())
    }

    /// A client at a site hands in a segment of `len` bytes for `to` (nobody named: `*`).
    pub fn send(&mut self, ix: SiteIx, len: usize, to: &[SiteIx]) -> SegmentId {
        self.sent += 1;
        let name = format!("s{}", self.sent);
        self.send_as(ix, &name, self.sent, len, to)
    }

    /// The same with a name and the number of its content.
    pub fn send_as(
        &mut self,
        ix: SiteIx,
        name: &str,
        key: u64,
        len: usize,
        to: &[SiteIx],
    ) -> SegmentId {
        let meta = Meta { name: name.to_string(), class: Class::Normal, ..Meta::default() };
        self.send_meta(ix, meta, key, len, to)
    }

    /// The same as [`Stage::send`] in a class.
    pub fn send_class(&mut self, ix: SiteIx, len: usize, to: &[SiteIx], class: Class) -> SegmentId {
        self.sent += 1;
        let meta = Meta { name: format!("s{}", self.sent), class, ..Meta::default() };
        self.send_meta(ix, meta, self.sent, len, to)
    }

    fn send_meta(
        &mut self,
        ix: SiteIx,
        meta: Meta,
        key: u64,
        len: usize,
        to: &[SiteIx],
    ) -> SegmentId {
        let names = to.iter().map(|ix| self.world.sites[*ix].config.name.clone()).collect();
        let to = Destinations::named(names).unwrap_or(Destinations::All);
        let job = Job::new(meta, to, content(key, len));
        let id = job.id;
        self.world.submit(ix, job, true);
        id
    }

    /// Everything goes well from here; the world must come to rest.
    ///
    /// # Errors
    /// The first promise that was broken, with its story.
    pub fn finish(mut self) -> Result<Report, String> {
        self.world.heal();
        let last = self.world.now.after(PATIENCE);
        while self.world.watch.broken.is_none() && self.world.now < last && !self.world.is_at_rest()
        {
            self.pass(Duration::from_secs(1));
        }
        if self.world.watch.broken.is_none() {
            self.world.look(true);
            self.world.quay_rests();
        }
        let report = self.world.into_report();
        match &report.broken {
            Some((at, violation)) => {
                let steps = report.last_steps.join("\n");
                Err(format!("{at}: {violation}\nlast steps:\n{steps}"))
            }
            None => Ok(report),
        }
    }
}

fn calm(sites: usize) -> Options {
    let mut options = Options::draw(1).calm();
    options.sites = sites;
    options.topology = Topology::Mesh;
    options.knobs = super::swarm::Knobs::usual();
    options.keeping = super::keeping::Keeping::usual();
    options.large = 0;
    options
}

/// So many seconds.
#[must_use]
pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}
