//! Jobs of sessions: who is served next, and in which order answers come.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};

use consign_core::id::{ConnId, TransferNo};
use consign_core::ledger::rows::Body;
use consign_core::store::Query;

use crate::shared::locked;
use crate::store::READERS;

/// Bodies that one round reads at most …
const ROUND: usize = 64;
/// … and their bytes, but for the last.
const ROUND_BYTES: usize = 256 << 10;
/// Pieces of one file that are read at a time.
const BESIDE: u64 = 2;

/// What a session asks of a reader.
pub(crate) enum Ask {
    /// Content.
    Read {
        /// Where it is.
        body: Body,
        /// First byte.
        offset: u64,
        /// How many.
        len: usize,
    },
    /// A question to the ledger.
    Query(Query),
}

impl Ask {
    /// How much is read of one row of the ledger; `None` is something else.
    fn row_bytes(&self) -> Option<usize> {
        match self {
            Ask::Read { body: Body::Inline(_), len, .. } => Some(*len),
            Ask::Read { body: Body::Blob(_), .. } | Ask::Query(_) => None,
        }
    }

    /// Whether it is a piece of a file.
    fn is_piece(&self) -> bool {
        match self {
            Ask::Read { body: Body::Blob(_), .. } => true,
            Ask::Read { body: Body::Inline(_), .. } | Ask::Query(_) => false,
        }
    }
}

/// Whose job it is; jobs of one owner are served one after the other.
pub(crate) type Owner = (ConnId, TransferNo);

/// Jobs of sessions.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// For those who have read what is to be answered behind something else.
    turned: Condvar,
}

/// An owner's jobs that are being served.
#[derive(Default)]
struct Serving {
    taken: u64,
    answered: u64,
    /// Whether they are pieces of a file: several may be read at a time.
    pieces: bool,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<(Owner, Ask)>,
    serving: BTreeMap<Owner, Serving>,
    /// Threads that wait and have not been woken; a few too many after they woke by themselves.
    waiting: usize,
    stopping: bool,
}

impl State {
    /// Takes the first job that may be served, and those behind it that are read from the ledger with it. How many
    /// of its owner's are to be answered before.
    fn take(&mut self, round: &mut Vec<(Owner, Ask)>) -> u64 {
        let first = (0..self.jobs.len()).find(|at| self.may_serve(*at));
        let Some((at, job)) = first.and_then(|at| Some((at, self.jobs.remove(at)?))) else {
            return 0;
        };
        let mut bytes = job.1.row_bytes();
        let turn = self.serve(job.0, job.1.is_piece());
        round.push(job);
        // The other readers have something to do, too.
        let most = (self.jobs.len() / READERS).min(ROUND);
        while let Some(sum) = bytes.filter(|sum| *sum <= ROUND_BYTES && round.len() < most) {
            let Some((owner, ask)) = self.jobs.get(at) else { break };
            let Some(more) = ask.row_bytes().filter(|_| !self.serving.contains_key(owner)) else {
                break;
            };
            bytes = Some(sum.saturating_add(more));
            self.serve(*owner, false);
            round.extend(self.jobs.remove(at));
        }
        turn
    }

    /// Whether nothing has to be answered before this job can be begun.
    fn may_serve(&self, at: usize) -> bool {
        let Some((owner, ask)) = self.jobs.get(at) else { return false };
        let Some(serving) = self.serving.get(owner) else { return true };
        let beside = serving.pieces && ask.is_piece() && serving.under_way() < BESIDE;
        beside && self.jobs.iter().take(at).all(|(other, _)| other != owner)
    }

    /// Notes that a job is served; how many of its owner's were before.
    fn serve(&mut self, owner: Owner, piece: bool) -> u64 {
        let serving = self.serving.entry(owner).or_default();
        serving.pieces = piece;
        let before = serving.taken;
        serving.taken += 1;
        before
    }

    /// Notes that the first of an owner's jobs that are served is answered.
    fn answered(&mut self, owner: Owner) {
        if let Some(serving) = self.serving.get_mut(&owner) {
            serving.answered += 1;
            if serving.under_way() == 0 {
                self.serving.remove(&owner);
            }
        }
    }
}

impl Serving {
    fn under_way(&self) -> u64 {
        self.taken.saturating_sub(self.answered)
    }
}

/// Whose jobs one reader serves now. Dropped, even by a panic, they are done.
pub(super) struct Round<'q> {
    queue: &'q Queue,
    owners: Vec<Owner>,
    turn: u64,
}

impl Round<'_> {
    /// Waits until everything is answered that has to be before.
    pub(super) fn await_turn(&self) {
        let Some(owner) = self.owners.first().filter(|_| self.turn > 0) else { return };
        let mut state = locked(&self.queue.state);
        let later = |state: &State| {
            state.serving.get(owner).is_some_and(|serving| serving.answered < self.turn)
        };
        while later(&state) {
            state = self.queue.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.queue.done(&self.owners);
    }
}

impl Queue {
    /// Adds a job; gives it back when the queue is closed.
    pub(crate) fn push(&self, owner: Owner, ask: Ask) -> Result<(), Ask> {
        let mut state = locked(&self.state);
        if state.stopping {
            return Err(ask);
        }
        state.jobs.push_back((owner, ask));
        self.wake_one(&mut state);
        Ok(())
    }

    /// Drops what a connection has asked and not got yet.
    pub(crate) fn forget(&self, conn: ConnId) {
        locked(&self.state).jobs.retain(|((owner, _), _)| *owner != conn);
    }

    /// Takes no more jobs; those that are there are served.
    pub(crate) fn stop(&self) {
        locked(&self.state).stopping = true;
        self.changed.notify_all();
    }

    /// Waits for something to do; `None` when there will be nothing more.
    pub(super) fn take(&self) -> Option<(Vec<(Owner, Ask)>, Round<'_>)> {
        let mut jobs = Vec::new();
        let mut state = locked(&self.state);
        loop {
            let turn = state.take(&mut jobs);
            if !jobs.is_empty() {
                let owners = jobs.iter().map(|(owner, _)| *owner).collect();
                return Some((jobs, Round { queue: self, owners, turn }));
            }
            if state.stopping && state.jobs.is_empty() {
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, owners: &[Owner]) {
        let mut state = locked(&self.state);
        let mut pieces = false;
        for owner in owners {
            pieces |= state.serving.get(owner).is_some_and(|serving| serving.under_way() > 1);
            state.answered(*owner);
        }
        if pieces {
            self.turned.notify_all();
        }
        if state.stopping {
            self.changed.notify_all();
        } else if !state.jobs.is_empty() {
            // Somebody may wait for just these owners.
            self.wake_one(&mut state);
        }
    }

    /// Wakes somebody who waits: where nobody does, that would be a system call for nothing.
    fn wake_one(&self, state: &mut State) {
        if state.waiting > 0 {
            state.waiting -= 1;
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
