//! A node: registers at a relay, fetches what waits for it, keeps it, says so; for ever.
//!
//! ```text
//! pending_notify ─▶ held already? ──no──▶ fetch aside ─▶ synced, both digests right ─▶ renamed into place
//!                        │ yes: fetch bytes=SIZE-                                              │
//!                        └────────────────────▶ shard_ack verified ◀─ record synced ◀──────────┘
//! ```
//!
//! The relay lets go of a shard when it hears `verified`: that is said after content, name and record
//! are on disk, in this order, so that a kill at any point costs a fetch at most. What `[[inbox]]` rules
//! owe for it is on disk before that too, and given out behind it ([`give`]).

pub mod config;
mod fetch;
pub mod give;
mod keeper;
mod records;
mod session;
pub mod shelf;
mod ws;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::config::NodeConfig;
use self::session::{Desk, Ended};
use self::shelf::Shelf;
use super::http::{Signer, Target};
use super::{pause, random};
use crate::exit::Failure;

/// First pause before a lost connection is made anew.
const PAUSE: Duration = Duration::from_secs(1);
/// A session that lived so long was a good one: the next pause is the first again. Two nodes of one identity
/// take each other's place much sooner, and are to become slower at it.
const GOOD: Duration = Duration::from_secs(5);

/// What is told of a node at work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    /// It is registered: number of the session, shards owed.
    Registered(u64, u64),
    /// The connection is lost or refused, and made anew after so long.
    Lost(Failure, Duration),
    /// A shard is stored and verified.
    Stored(Box<Kept>),
    /// A shard is not, or not given out.
    Failed(Failure),
    /// A rule has given a stored shard out.
    Given(Box<give::Given>),
}

/// A stored shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// File, version and index, as a path below the node's directory.
    pub path: String,
    /// The file.
    pub file_id: String,
    /// Its version.
    pub version_number: u64,
    /// Which part.
    pub shard_index: u64,
    /// Length.
    pub size: u64,
    /// SHA-256 in hex.
    pub sha256: String,
    /// Whether it was here before.
    pub known: bool,
}

/// Stops a node from outside.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stops: AtomicBool,
    wake: UnixStream,
}

/// The other end of [`Stop`] and of whoever else wakes the node.
#[derive(Debug)]
pub struct Bell {
    stop: Stop,
    rings: UnixStream,
}

impl Stop {
    /// A node may be stopped with the one and hears it with the other.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new() -> std::io::Result<(Stop, Bell)> {
        let (wake, rings) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        rings.set_nonblocking(true)?;
        let stop = Stop(Arc::new(Inner { stops: AtomicBool::new(false), wake }));
        Ok((stop.clone(), Bell { stop, rings }))
    }

    /// Asks the node to end.
    pub fn stop(&self) {
        self.0.stops.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn ring(&self) {
        // A full pipe rings already.
        let _ = std::io::Write::write(&mut &self.0.wake, &[1]);
    }
}

impl Bell {
    fn stops(&self) -> bool {
        self.stop.0.stops.load(Ordering::SeqCst)
    }

    /// Silences it until it rings again.
    fn hush(&self) {
        let mut bytes = [0; 256];
        while std::io::Read::read(&mut &self.rings, &mut bytes).is_ok_and(|n| n > 0) {}
    }

    /// Waits until it rings, at most so long.
    fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.stops() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let time = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut fds = [PollFd::from_borrowed_fd(self.rings.as_fd(), PollFlags::IN)];
            let _ = poll(&mut fds, Some(&time));
            self.hush();
        }
    }
}

/// A node and all that it needs.
#[derive(Debug)]
pub struct Node {
    target: Target,
    signer: Signer,
    fetches: usize,
    shelf: Arc<Shelf>,
    rules: Vec<give::Rule>,
    /// First pause before a lost connection is made anew.
    pause: Duration,
}

impl Node {
    /// A node with the directory that its configuration names, locked for this process.
    ///
    /// # Errors
    /// When key, authority or directory cannot be used.
    pub fn open(config: &NodeConfig) -> Result<Node, Failure> {
        let secret = config.secret()?;
        let target = Target::new(config.relay.clone(), config.ca.as_deref())?;
        let shelf = Arc::new(Shelf::open(&config.dir)?);
        let signer = Signer { node: config.id.clone(), secret };
        let rules = config.inbox.clone();
        // Before anything is written aside, so that it is found again whatever becomes of its rule.
        give::remember(&config.dir, &rules).sweep();
        Ok(Node { target, signer, fetches: config.fetches, shelf, rules, pause: PAUSE })
    }

    /// Works until it is stopped.
    ///
    /// # Errors
    /// When the system gives no randomness, or what is kept cannot be read.
    pub fn run(&self, bell: &Bell, tell: &mut dyn FnMut(Tell)) -> Result<(), Failure> {
        let mut desk = Desk::new(self, bell)?;
        let mut vain = 0;
        while !bell.stops() {
            let began = Instant::now();
            let mut registered = false;
            let ended = desk.session(&mut |said| {
                registered |= matches!(said, Tell::Registered(..));
                tell(said);
            })?;
            let why = match ended {
                Ended::Stopped => break,
                Ended::Lost(why) => why,
            };
            let good = registered && began.elapsed() >= GOOD;
            vain = if good { 0 } else { vain + 1 };
            let [chance] = random()?;
            let pause = pause(self.pause, vain, chance);
            tell(Tell::Lost(why, pause));
            bell.wait(pause);
        }
        desk.close(tell);
        Ok(())
    }
}

/// Runs `work` on a thread of its own.
fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    thread::Builder::new().name("fetch".into()).spawn(work).map(|_| ())
}

#[cfg(test)]
mod tests;
