//! The commit gate: what rests on a batch leaves the node only after that batch is durable.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::id::{BatchNo, ConnId, Seq};
use crate::session::{Promise, SessionCommand};

/// A promise that the gate has released. Nothing else can make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promised(Promise);

impl Promised {
    /// The promise.
    #[must_use]
    pub fn into_inner(self) -> Promise {
        self.0
    }

    /// A promise that rests on nothing: for tests of sessions and for planted bugs only.
    #[doc(hidden)]
    #[must_use]
    pub fn for_tests(promise: Promise) -> Promised {
        Promised(promise)
    }
}

/// A promise that waits for its batch.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The batch it rests on.
    pub batch: BatchNo,
    /// Who gets it; it dies with that connection (G8).
    pub conn: ConnId,
    /// What is said when the batch is durable.
    pub promise: Promise,
    /// What is said instead when it fails (G2); `None` when the node decides anew.
    pub refusal: Option<SessionCommand>,
    /// The segment that may not be evicted or released before this has left (G1).
    pub pins: Option<Seq>,
}

/// Promises in the order of their batches.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    committed: BatchNo,
    waiting: VecDeque<Waiting>,
}

impl Gate {
    /// A gate at this committed batch.
    #[must_use]
    pub fn new(committed: BatchNo) -> Gate {
        Gate { committed, waiting: VecDeque::new() }
    }

    /// The last durable batch.
    #[must_use]
    pub fn committed(&self) -> BatchNo {
        self.committed
    }

    /// Keeps a promise until its batch is durable.
    ///
    /// # Panics
    /// When the batch is older than the newest that a promise waits for: batches only grow.
    pub fn promise(&mut self, waiting: Waiting) {
        if let Some(last) = self.waiting.back() {
            assert!(last.batch <= waiting.batch, "batch {} after {}", waiting.batch, last.batch);
        }
        self.waiting.push_back(waiting);
    }

    /// Keeps a promise as if it rested on nothing, so that it leaves at once: what planted bugs do.
    #[doc(hidden)]
    pub fn unfounded(&mut self, waiting: Waiting) {
        self.waiting.push_front(Waiting { batch: BatchNo(0), ..waiting });
    }

    /// The batches up to `through` are durable: what may leave, in order.
    pub fn committed_through(&mut self, through: BatchNo) -> Vec<(ConnId, SessionCommand)> {
        self.committed = self.committed.max(through);
        let ready = self.waiting.partition_point(|w| w.batch <= self.committed);
        self.waiting
            .drain(..ready)
            .map(|w| (w.conn, SessionCommand::Promised(Promised(w.promise))))
            .collect()
    }

    /// Every batch from `from` on failed: takes back all promises that rest on them.
    pub fn failed_from(&mut self, from: BatchNo) -> Vec<Waiting> {
        let kept = self.waiting.partition_point(|w| w.batch < from);
        self.waiting.drain(kept..).collect()
    }

    /// A connection has ended: its promises die with it (G8).
    pub fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|w| w.conn != conn);
    }

    /// Whether an unreleased promise pins this segment (G1).
    #[must_use]
    pub fn pins(&self, seq: Seq) -> bool {
        self.waiting.iter().any(|w| w.pins == Some(seq))
    }

    /// How many promises wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests;
