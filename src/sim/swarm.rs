//! What one run is: drawn from the seed, each part open to being overruled. Every seed has other
//! sites, other sizes and other faults; half of all kinds of fault are off in any one seed, so that
//! what a frequent fault hides shows in another.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use consign_core::config::SuccessCondition;
use consign_core::limits::WINDOW;
use consign_core::plant::Plant;

use super::keeping::{Keeping, Part};
use super::net::{NetFaults, Topology};
use super::rng::Rng;
use super::store::{Latency, StoreFaults};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $most:literal;)*) => {
        /// A kind of fault. The numbers F1 to F42 are those of the fault table (RELIABILITY 4).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// Its word on the command line.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Kind::$name => $word,)* }
            }

            /// The highest rate a seed draws.
            #[must_use]
            pub const fn most(self) -> u32 {
                match self { $(Kind::$name => $most,)* }
            }
        }
    };
}

kinds! {
    /// Power cuts, per virtual minute and site, per million; what was not synced is kept, lost or
    /// torn (F1 to F4).
    PowerCut = "power-cut", 400_000;
    /// Kills, per virtual minute and site, also while it starts (F30).
    Kill = "kill", 400_000;
    /// Stop requests, per virtual minute and site (F33).
    Stop = "stop", 100_000;
    /// Freezes of 1 to 600 s, per virtual minute and site (F31).
    Freeze = "freeze", 30_000;
    /// Suspends: the monotonic clock stands still too, per virtual minute and site (F35).
    Suspend = "suspend", 20_000;
    /// Steps of the system clock by up to an hour or ten years, per virtual minute and site (F34).
    ClockStep = "clock-step", 20_000;
    /// Timers that fire up to 2 s late, per timer (F36).
    LateTimer = "late-timer", 50_000;
    /// Threads that get no turn for up to 100 ms, per wake-up (F36).
    Starved = "starved", 20_000;
    /// A session that panics, per run of its thread (F32).
    Panic = "panic", 20;
    /// A commit or a read of the ledger that fails otherwise than by a full disk: the process
    /// halts, per call (F5, F8).
    Broken = "ledger-broken", 50;
    /// A commit or a call on a file that reports an error after it took effect, per call (F6).
    AfterEffect = "after-effect", 1_000;
    /// Episodes of a full disk, per virtual minute and site (F7).
    Full = "disk-full", 100_000;
    /// Single calls that find no space, per call (F7, F14).
    NoSpace = "no-space", 1_000;
    /// Reads of content that fail, per read (F8, F14).
    ReadError = "read-error", 1_000;
    /// Calls on content files that fail, per call (F5, F13).
    FileError = "file-error", 1_000;
    /// Bits that flip on the way from the disk, per read (F9).
    FlipRead = "flip-read", 200;
    /// Bits of files and rows that flip for good, per read (F9).
    Rot = "rot", 50;
    /// Reads and writes that hit another place, and writes that never land, per call (F10).
    Misdirected = "misdirected", 50;
    /// Calls that take 1 to 60 s, per call (F12).
    Stall = "stall", 300;
    /// Reads of the ledger that take up to so many microseconds, instead of 100 (F12).
    SlowRead = "slow-read", 1_000_000;
    /// Commits that take up to so many microseconds, instead of 2,000 (F12).
    SlowCommit = "slow-commit", 3_000_000;
    /// Content files that are gone or have changed places, per start (F17).
    LostFile = "lost-file", 10_000;
    /// Dials that are refused, unanswered or find no route, per dial (F21).
    Refused = "refused", 50_000;
    /// Connections that are reset at some byte, per direction of a connection (F22).
    Reset = "reset", 200_000;
    /// Connections that go half-open, per direction of a connection (F23).
    HalfOpen = "half-open", 50_000;
    /// Links that are cut one way or both, per virtual minute and link (F24).
    Cut = "cut", 200_000;
    /// Links clogged one by one and opened in another order, per virtual minute (F24).
    Clog = "clog", 200_000;
    /// Bursts of latency, per virtual minute and link; packets sent again, per flight (F25).
    Latency = "latency", 300_000;
    /// Directions of connections that carry a byte a second, per connection (F27).
    Slow = "slow", 20_000;
    /// Frames that the peer never should have sent: answers doubled, late, of another epoch, for
    /// another segment, per frame (F26, F37).
    Forged = "forged", 2_000;
    /// Segments that their destination always refuses, where this occurs at all (F38).
    Poison = "poison", 10_000;
    /// Local clients that go away half-way, per submission (F22).
    ClientGone = "client-gone", 20_000;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Kind, String> {
        let found = Kind::ALL.iter().copied().find(|kind| kind.word() == word);
        found.ok_or_else(|| {
            let words: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
            let parts = Part::ALL.map(Part::word).join(", ");
            format!("{word:?} is no kind of fault; there are {}, and {parts}", words.join(", "))
        })
    }
}

/// Rates of all kinds of fault, per million of what each is counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates([u32; Kind::ALL.len()]);

impl Rates {
    /// A perfect world.
    #[must_use]
    pub fn none() -> Rates {
        Rates([0; Kind::ALL.len()])
    }

    /// Half of all kinds, each at a rate between nothing and its highest.
    fn draw(rng: &mut Rng) -> Rates {
        let mut rates = Rates::none();
        for kind in Kind::ALL {
            let (on, rate) = (rng.chance(500_000), rng.between(1, u64::from(kind.most())));
            rates.set(*kind, if on { rate as u32 } else { 0 });
        }
        // Without a crash there is little to see.
        let least = if rates.of(Kind::PowerCut) > 0 { Kind::PowerCut } else { Kind::Kill };
        rates.set(least, rates.of(least).max(100_000));
        rates
    }

    /// The rate of a kind.
    #[must_use]
    pub fn of(&self, kind: Kind) -> u32 {
        self.0[kind as usize]
    }

    /// Sets the rate of a kind.
    pub fn set(&mut self, kind: Kind, per_million: u32) {
        self.0[kind as usize] = per_million;
    }

    /// What the network draws by itself.
    #[must_use]
    pub fn net(&self) -> NetFaults {
        let refused = self.of(Kind::Refused) / 3;
        NetFaults {
            refused,
            unanswered: refused,
            unroutable: refused,
            resets: self.of(Kind::Reset),
            reset_drops: if self.of(Kind::Reset) > 0 { 500_000 } else { 0 },
            silences: self.of(Kind::HalfOpen),
            cuts: self.of(Kind::Cut),
            clogs: self.of(Kind::Clog),
            bursts: self.of(Kind::Latency),
            losses: self.of(Kind::Latency) / 15,
            drips: self.of(Kind::Slow),
        }
    }

    /// What a disk draws by itself.
    #[must_use]
    pub fn store(&self) -> StoreFaults {
        let usual = StoreFaults::default();
        let up_to = |kind: Kind, usual: Latency| {
            Latency::new(usual.low, u64::from(self.of(kind)).max(usual.high))
        };
        StoreFaults {
            read: up_to(Kind::SlowRead, usual.read),
            commit: up_to(Kind::SlowCommit, usual.commit),
            stall: self.of(Kind::Stall),
            commit_eio: self.of(Kind::Broken),
            ledger_eio: self.of(Kind::Broken),
            commit_after: self.of(Kind::AfterEffect),
            file_after: self.of(Kind::AfterEffect),
            commit_full: self.of(Kind::NoSpace),
            file_full: self.of(Kind::NoSpace),
            fill: self.of(Kind::NoSpace) / 10,
            content_eio: self.of(Kind::ReadError),
            crowded: self.of(Kind::ReadError),
            file_eio: self.of(Kind::FileError),
            flip_read: self.of(Kind::FlipRead),
            flip_file: self.of(Kind::Rot),
            flip_row: self.of(Kind::Rot) / 10,
            misdirected_read: self.of(Kind::Misdirected),
            misdirected_write: self.of(Kind::Misdirected),
            lost_write: self.of(Kind::Misdirected),
            restart_lost: self.of(Kind::LostFile),
            restart_swapped: self.of(Kind::LostFile),
            // An older copy of the ledger loses what was accepted since; nothing repairs that yet.
            restart_rollback: 0,
            ..usual
        }
    }

    /// The kinds that occur.
    pub fn on(&self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(|kind| self.of(*kind) > 0)
    }
}

/// Everything one run is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number everything else is drawn from.
    pub seed: u64,
    /// Sites, 2 to 8.
    pub sites: usize,
    /// Which of them know each other.
    pub topology: Topology,
    /// Length of the safety phase.
    pub length: Duration,
    /// Segments that clients hand in.
    pub segments: u32,
    /// Kills and power cuts that happen in any case.
    pub crashes: u32,
    /// Faults of the safety phase.
    pub rates: Rates,
    /// Real TLS on every connection. Its randomness is its own: runs differ in their bytes.
    pub tls: bool,
    /// Of a million segments, so many are kept in files.
    pub large: u32,
    /// Longest content in bytes.
    pub longest: u64,
    /// What the sites go by.
    pub knobs: Knobs,
    /// What they keep, by way of whom they send, and what people do.
    pub keeping: Keeping,
    /// A rule that every site drops on purpose.
    pub plant: Option<Plant>,
}

/// Values of the sites' configuration that differ from seed to seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// `relay.success_condition`
    pub success: SuccessCondition,
    /// `relay.max_retries`
    pub max_retries: u32,
    /// `relay.strict_attempts`
    pub strict_attempts: bool,
    /// `relay.backoff_initial`
    pub backoff_initial: Duration,
    /// `relay.backoff_max`
    pub backoff_max: Duration,
    /// `relay.ack_timeout`
    pub ack_timeout: Duration,
    /// `storage.max_bytes`
    pub max_bytes: u64,
    /// `storage.inline_max`
    pub inline_max: u64,
    /// Distance of checkpoints in content files; 16 MiB outside the simulator.
    pub checkpoint_every: u64,
    /// `limits.session_bytes`
    pub session_bytes: u64,
    /// Entries of a window of due deliveries; with few, little has to wait for paging.
    pub window: usize,
    /// Whether one disk stays full for a while after everything else goes well again.
    pub full_at_end: bool,
}

impl Options {
    /// The run of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Options {
        let mut rng = Rng::stream(seed, 1);
        let sites = *rng.pick(&[2, 3, 3, 3, 3, 4, 5]);
        let topology = *rng.pick(&Topology::ALL);
        let length = Duration::from_secs(rng.between(600, 900));
        let segments = rng.between(200, *rng.clone().pick(&[300, 400, 600, 1_200])) as u32;
        let rates = Rates::draw(&mut rng);
        let large = if rng.chance(500_000) { 0 } else { rng.below(150_000) as u32 };
        Options {
            seed,
            sites,
            topology,
            length,
            segments,
            crashes: 3 + rng.below(4) as u32,
            rates,
            tls: false,
            large,
            longest: *rng.pick(&[100 << 10, 300 << 10, 1 << 20]),
            knobs: Knobs::draw(&mut rng),
            keeping: Keeping::draw(seed),
            plant: None,
        }
    }

    /// The same run without any fault.
    #[must_use]
    pub fn calm(mut self) -> Options {
        self.rates = Rates::none();
        self.crashes = 0;
        self
    }
}

impl Knobs {
    /// The product's defaults.
    #[must_use]
    pub fn usual() -> Knobs {
        Knobs {
            success: SuccessCondition::AllPeers,
            max_retries: 8,
            strict_attempts: false,
            backoff_initial: Duration::from_secs(1),
            backoff_max: Duration::from_secs(900),
            ack_timeout: Duration::from_secs(60),
            max_bytes: 100 << 30,
            inline_max: 64 << 10,
            checkpoint_every: 16 << 20,
            session_bytes: 4 << 20,
            window: WINDOW,
            full_at_end: false,
        }
    }

    fn draw(rng: &mut Rng) -> Knobs {
        let one = SuccessCondition::OnePeer;
        Knobs {
            success: *rng.pick(&[SuccessCondition::AllPeers, SuccessCondition::AllPeers, one]),
            max_retries: *rng.pick(&[8, 8, 3, 20]),
            strict_attempts: rng.chance(100_000),
            backoff_initial: Duration::from_millis(rng.between(100, 2_000)),
            backoff_max: Duration::from_secs(*rng.pick(&[10, 60, 900])),
            ack_timeout: Duration::from_secs(*rng.pick(&[2, 10, 60])),
            max_bytes: *rng.pick(&[100 << 30, 100 << 30, 64 << 20, 16 << 20]),
            inline_max: *rng.pick(&[64 << 10, 64 << 10, 4 << 10, 0]),
            checkpoint_every: *rng.pick(&[16 << 20, 128 << 10, 64 << 10]),
            session_bytes: *rng.pick(&[4 << 20, 128 << 10]),
            window: *rng.pick(&[WINDOW, 4, 8, 32]),
            full_at_end: rng.chance(125_000),
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { seed, sites, topology, length, segments, crashes, large, longest, .. } = self;
        let mode = if self.tls { " tls" } else { "" };
        write!(f, "seed={seed} sites={sites} topology={topology} length={}s", length.as_secs())?;
        write!(
            f,
            " segments={segments} crashes={crashes} large={large}ppm longest={longest}{mode}"
        )?;
        let k = &self.knobs;
        write!(f, " success={} retries={}", k.success.word(), k.max_retries)?;
        write!(
            f,
            " strict={} backoff={:?}..{:?}",
            k.strict_attempts, k.backoff_initial, k.backoff_max
        )?;
        write!(f, " ack_timeout={:?} max_bytes={}", k.ack_timeout, k.max_bytes)?;
        write!(f, " inline_max={} checkpoint={}", k.inline_max, k.checkpoint_every)?;
        write!(f, " session_bytes={} window={}", k.session_bytes, k.window)?;
        write!(f, " full_at_end={} {} faults=", k.full_at_end, self.keeping)?;
        let rates: Vec<String> =
            self.rates.on().map(|kind| format!("{kind}:{}", self.rates.of(kind))).collect();
        f.write_str(&rates.join(","))?;
        match self.plant {
            Some(plant) => write!(f, " plant={plant:?}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same_run_and_its_faults_differ_from_others() {
        assert_eq!(Options::draw(1), Options::draw(1));
        let on = |seed| Options::draw(seed).rates.on().count();
        assert!((0..20).any(|seed| on(seed) != on(0)));
        for kind in Kind::ALL {
            assert!((0..50).any(|seed| Options::draw(seed).rates.of(*kind) > 0), "{kind} never");
            assert!((0..50).any(|seed| Options::draw(seed).rates.of(*kind) == 0), "{kind} always");
        }
    }

    #[test]
    fn every_kind_is_known_by_its_word() {
        for kind in Kind::ALL {
            assert_eq!(kind.word().parse(), Ok(*kind));
        }
        assert!("rain".parse::<Kind>().unwrap_err().contains("power-cut"));
    }
}
