//! What the process counts beside the node: bytes of sessions with peers, requests and how long they took,
//! and contradictions found. Everything begins at 0 with the process.

pub mod process;
mod served;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_core::driver::MakeSession;
use consign_core::http::{Answered, Target, Tell};
use consign_core::node::Note;
use consign_core::session::{ConnInfo, Session, SessionInput, SessionOut};
use consign_core::time::{Instant, Now, UnixMillis};

pub use served::{HTTP, Row, Served};

/// Shared by everything that counts.
#[derive(Clone, Debug, Default)]
pub struct Meters(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    traffic: Mutex<BTreeMap<String, Arc<Traffic>>>,
    rpc: Mutex<Served>,
    http: Mutex<Served>,
    violations: AtomicU64,
}

/// Bytes of all sessions with one peer, as protocol 1 has them: before TLS.
#[derive(Debug, Default)]
struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
    /// When bytes came last (ms since the Unix epoch); 0 before the first.
    heard_at: AtomicU64,
}

impl Meters {
    /// Bytes sent to a peer and received from it.
    #[must_use]
    pub fn traffic(&self, peer: &str) -> (u64, u64) {
        let all = lock(&self.0.traffic);
        all.get(peer).map_or((0, 0), |t| (t.sent.load(Relaxed), t.received.load(Relaxed)))
    }

    /// When a peer said something last, be it the answer to a PING; `None` before the first in this run.
    #[must_use]
    pub fn heard_at(&self, peer: &str) -> Option<UnixMillis> {
        let all = lock(&self.0.traffic);
        let at = all.get(peer).map_or(0, |traffic| traffic.heard_at.load(Relaxed));
        (at != 0).then_some(UnixMillis(at))
    }

    /// The same sessions, counting their bytes. Handshakes let in only peers of the configuration, so their
    /// number is bounded.
    #[must_use]
    pub fn counting(&self, make: MakeSession) -> MakeSession {
        let meters = self.clone();
        Arc::new(move |info: &ConnInfo| {
            let session = make(info);
            let Some(identity) = &info.identity else { return session };
            let mut all = lock(&meters.0.traffic);
            let traffic = Arc::clone(all.entry(identity.name.clone()).or_default());
            Box::new(Counting { session, traffic })
        })
    }

    /// Told of answers of the local interface, whose requests are these.
    #[must_use]
    pub fn rpc(&self, rows: &'static [Row]) -> Tell {
        let meters = self.clone();
        Tell::new(move |answered| {
            let at = served::row_of(rows, answered);
            lock(&meters.0.rpc).count(at, answered);
        })
    }

    /// Told of answers of pickup at a site; refusals are logged with who got them.
    #[must_use]
    pub fn http(&self, node: &str) -> Tell {
        let (meters, node) = (self.clone(), node.to_owned());
        Tell::new(move |answered| {
            let at = served::row_of(HTTP, answered);
            lock(&meters.0.http).count(at, answered);
            if answered.status >= 400 {
                refused(&node, answered);
            }
        })
    }

    /// What the local interface and pickup have answered so far.
    #[must_use]
    pub fn served(&self) -> (Served, Served) {
        (lock(&self.0.rpc).clone(), lock(&self.0.http).clone())
    }

    /// Counts what a note says of the ledger or the content contradicting itself.
    pub fn heard(&self, note: &Note) {
        let found = match note {
            Note::Quarantined { .. } => 1,
            Note::Reconciled(summary) => summary.missing,
            Note::Warn { code: "shard_unreadable" | "shard_spoiled" | "partial_lost", .. } => 1,
            _ => 0,
        };
        self.0.violations.fetch_add(found, Relaxed);
    }

    /// How many such contradictions there were.
    #[must_use]
    pub fn violations(&self) -> u64 {
        self.0.violations.load(Relaxed)
    }
}

fn refused(node: &str, answered: &Answered<'_>) {
    let Answered { method, target, status, remote, took } = answered;
    let (method, route) = (method.name(), Target::of(target).path);
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let text = "a request of pickup was refused";
    tracing::info!(
        node,
        remote,
        method,
        route,
        status,
        duration_ms,
        "{text}: {status} to {remote}"
    );
}

/// A session whose bytes are counted.
struct Counting {
    session: Box<dyn Session>,
    traffic: Arc<Traffic>,
}

impl Session for Counting {
    fn step(&mut self, now: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        if let SessionInput::Bytes(bytes) = &input {
            self.traffic.received.fetch_add(bytes.len() as u64, Relaxed);
            self.traffic.heard_at.store(now.wall.0, Relaxed);
        }
        let before = out.said();
        self.session.step(now, input, out);
        let said = out.said().saturating_sub(before);
        if said > 0 {
            self.traffic.sent.fetch_add(said as u64, Relaxed);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.session.next_deadline()
    }

    fn wants_read(&self) -> bool {
        self.session.wants_read()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
