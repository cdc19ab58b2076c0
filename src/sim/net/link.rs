//! Links: how long bytes take between two sites, and whether they get there at all.

use std::time::Duration;

use crate::sim::rng::Rng;
use crate::sim::seen::SiteIx;
use crate::sim::time::Micros;

/// Smallest flight on a slow link: one packet of an Ethernet.
const FLIGHT_MIN: u64 = 1460;
/// Largest flight on a link of finite bandwidth.
const FLIGHT_MAX: u64 = 64 << 10;
/// A link sends in flights of 1/50 s.
const FLIGHTS_PER_SECOND: u64 = 50;
/// What a lost packet costs at least.
const RESEND_MICROS: u64 = 200_000;

/// What a link is like when nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// From one site to the other, one way.
    pub latency: Duration,
    /// At most so much more, drawn for each flight. Order is kept.
    pub jitter: Duration,
    /// Bytes per second in each direction, shared by all connections; 0 is no limit.
    pub bandwidth: u64,
    /// Bytes a sender's kernel holds for one connection until they are acknowledged.
    pub send_buffer: usize,
    /// Bytes a receiver's kernel holds for one connection until they are read.
    pub window: usize,
}

impl Default for LinkSpec {
    fn default() -> LinkSpec {
        LinkSpec {
            latency: Duration::from_millis(1),
            jitter: Duration::from_micros(200),
            bandwidth: 100_000_000,
            send_buffer: 256 << 10,
            window: 256 << 10,
        }
    }
}

/// When two sites are in contact: for `window` from `first` on, and again `every` so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contacts {
    /// Begin of the first contact.
    pub first: Micros,
    /// How long a contact lasts.
    pub window: Duration,
    /// From one begin to the next.
    pub every: Duration,
}

impl Contacts {
    /// Whether the sites are in contact now.
    #[must_use]
    pub fn open(&self, now: Micros) -> bool {
        if now < self.first {
            return false;
        }
        let every = self.every.as_micros().max(1);
        now.since(self.first).as_micros() % every < self.window.as_micros()
    }
}

/// Whether something that arrives now gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Open,
    /// It waits, and comes out as soon as the clog is gone.
    Clogged,
    /// It is lost.
    Down,
}

/// A span of time, without its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub from: Micros,
    pub until: Micros,
}

impl Span {
    pub fn holds(&self, now: Micros) -> bool {
        self.from <= now && now < self.until
    }
}

/// One direction of a link.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub spec: LinkSpec,
    /// When what was sent so far has left the sender.
    free_at: Micros,
    pub cut: bool,
    pub clogged: bool,
    /// The weather's cut.
    pub cut_span: Span,
    /// The weather's clog.
    pub clog_span: Span,
    /// The weather's burst of latency: when, and microseconds more.
    pub burst: (Span, u64),
    pub contacts: Option<Contacts>,
}

impl Lane {
    pub fn passage(&self, now: Micros) -> Passage {
        let apart = self.contacts.is_some_and(|c| !c.open(now));
        if self.cut || apart || self.cut_span.holds(now) {
            Passage::Down
        } else if self.clogged || self.clog_span.holds(now) {
            Passage::Clogged
        } else {
            Passage::Open
        }
    }

    /// Ends all faults. Contacts stay: they are what the link is.
    pub fn heal(&mut self) {
        (self.cut, self.clogged) = (false, false);
        (self.cut_span, self.clog_span) = (Span::default(), Span::default());
        self.burst = (Span::default(), 0);
    }

    /// It is another link from now on: nobody waits for what the old one had still to carry.
    pub fn refit(&mut self, spec: LinkSpec) {
        (self.spec, self.free_at) = (spec, Micros::ZERO);
    }

    /// When `bytes` handed over now have left the sender.
    pub fn depart(&mut self, now: Micros, bytes: usize) -> Micros {
        if self.spec.bandwidth == 0 {
            return now;
        }
        let cost = (bytes as u64).saturating_mul(1_000_000).div_ceil(self.spec.bandwidth);
        self.free_at = self.free_at.max(now).plus(cost);
        self.free_at
    }

    /// Most bytes of one flight.
    pub fn flight_max(&self) -> usize {
        if self.spec.bandwidth == 0 {
            return usize::MAX;
        }
        (self.spec.bandwidth / FLIGHTS_PER_SECOND).clamp(FLIGHT_MIN, FLIGHT_MAX) as usize
    }

    /// How long a small packet takes that leaves now, without jitter.
    pub fn delay(&self, now: Micros) -> u64 {
        let (span, extra) = self.burst;
        let burst = if span.holds(now) { extra } else { 0 };
        self.spec.latency.as_micros() as u64 + burst
    }

    /// How long a flight takes that leaves now: with jitter, and with the time lost packets cost.
    pub fn flight_delay(&self, now: Micros, losses: u32, rng: &mut Rng) -> u64 {
        let jitter = self.spec.jitter.as_micros() as u64;
        let mut delay = self.delay(now);
        if jitter > 0 {
            delay += rng.below(jitter + 1);
        }
        let mut again = RESEND_MICROS;
        while rng.chance(losses) && again < 10 * RESEND_MICROS {
            delay += again;
            again *= 2;
        }
        delay
    }
}

/// All lanes between so many sites.
#[derive(Clone, Debug)]
pub(super) struct Roads {
    sites: usize,
    lanes: Vec<Lane>,
}

impl Roads {
    pub fn new(sites: usize) -> Roads {
        Roads { sites, lanes: vec![Lane::default(); sites * sites] }
    }

    pub fn lane(&self, from: SiteIx, to: SiteIx) -> &Lane {
        &self.lanes[from * self.sites + to]
    }

    pub fn lane_mut(&mut self, from: SiteIx, to: SiteIx) -> &mut Lane {
        &mut self.lanes[from * self.sites + to]
    }

    /// Applies `change` to both directions between two sites.
    pub fn both(&mut self, a: SiteIx, b: SiteIx, change: impl Fn(&mut Lane)) {
        change(self.lane_mut(a, b));
        change(self.lane_mut(b, a));
    }

    pub fn is_open(&self, now: Micros, from: SiteIx, to: SiteIx) -> bool {
        self.lane(from, to).passage(now) == Passage::Open
    }

    /// Every pair of sites, the lower first.
    pub fn pairs(&self) -> Vec<(SiteIx, SiteIx)> {
        (0..self.sites).flat_map(|a| (a + 1..self.sites).map(move |b| (a, b))).collect()
    }
}
