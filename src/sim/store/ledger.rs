//! The writer of the ledger: one batch at a time, whole or not at all.

use bytes::Bytes;
use consign_core::id::{BodyNo, Handle};
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::store::{Batch, CommitFault, Op, StoreRequest};

use super::{Done, Fact, SimStore};
use crate::sim::time::Micros;

/// The parked bodies a batch names, as they were when its commit began.
pub(super) type Bodies = Vec<(BodyNo, Handle, Option<Bytes>)>;

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Takes up a batch, which takes effect and is answered at these moments.
    Begin(Batch, Micros, Micros),
    /// Makes it durable.
    Effect(Batch, Bodies, Micros),
    /// Answers.
    Answer(Input),
}

impl SimStore {
    /// Takes the next batch, if one waits.
    pub(super) fn writer_next(&mut self, at: Micros) {
        let Some(batch) = self.writer.waiting.pop_front() else { return };
        let call = self.call(at, self.faults.commit);
        // The thread that writes wakes up some time after it was given the batch.
        let begin = at.plus(self.rng.between(0, call.effect.0.saturating_sub(at.0)));
        self.writer.doing = Some((begin, Step::Begin(batch, call.effect, call.end)));
    }

    pub(super) fn writer_step(&mut self, at: Micros) {
        let Some((_, step)) = self.writer.doing.take() else { return };
        self.writer.doing = match step {
            Step::Begin(batch, effect, end) => {
                let bodies = self.take_bodies(&batch);
                Some((effect, Step::Effect(batch, bodies, end)))
            }
            Step::Effect(batch, bodies, end) => {
                self.settle_space(at);
                let answer = self.commit_now(batch, bodies);
                if let Input::CommitFailed { why: CommitFault::Broken(why), .. } = &answer {
                    self.broken = Some(why.clone());
                }
                Some((end, Step::Answer(answer)))
            }
            Step::Answer(answer) => {
                self.ready.push_back(Done::Node(answer));
                None
            }
        };
        if self.writer.doing.is_none() {
            self.writer_next(at);
        }
    }

    fn take_bodies(&mut self, batch: &Batch) -> Bodies {
        let bodies = batch.ops().filter_map(|op| match op {
            Op::PutBody { number, handle } => Some((number, handle)),
            Op::Put { .. } | Op::Del { .. } => None,
        });
        bodies.map(|(number, handle)| (number, handle, self.mem.take_parked(handle))).collect()
    }

    /// The moment of a commit.
    fn commit_now(&mut self, batch: Batch, bodies: Bodies) -> Input {
        let from = batch.number;
        if let Some(why) = self.fault_before(&batch) {
            if let CommitFault::Broken(_) = why
                && self.broken.is_none()
            {
                self.limbo = Some((batch, bodies));
            } else if batch.free_ballast {
                // Freed before anything is written.
                self.mem.set_ballast(self.config.ballast, false);
            }
            return Input::CommitFailed { from, why, space: self.mem.space() };
        }
        let answer = self.apply(batch, bodies);
        if matches!(answer, Input::Committed { .. }) && self.rng.chance(self.faults.commit_after) {
            return self.judge_late_error(answer);
        }
        answer
    }

    /// What keeps a batch from being written at all.
    fn fault_before(&mut self, batch: &Batch) -> Option<CommitFault> {
        if let Some(why) = &self.broken {
            return Some(CommitFault::Broken(why.clone()));
        }
        if self.rng.chance(self.faults.commit_eio) {
            return Some(CommitFault::Broken("commit: input/output error".to_owned()));
        }
        if self.rng.chance(self.faults.commit_full) {
            return Some(CommitFault::Full("commit: no space".to_owned()));
        }
        let ledger = self.mem.space().ledger.saturating_add(batch.bytes() as u64);
        // Relief is let through: deleting makes room in the map for what it copies.
        (!batch.free_ballast && ledger > self.config.ledger_max).then(|| {
            let most = self.config.ledger_max;
            CommitFault::Full(format!("the map is full: {ledger} bytes of {most}"))
        })
    }

    /// The commit took effect but reported an error: its number is read back (G7).
    fn judge_late_error(&mut self, committed: Input) -> Input {
        let Input::Committed { through: from, space } = committed else { return committed };
        if self.rng.chance(self.faults.ledger_eio) {
            let why = CommitFault::Broken("commit: error, and reading back failed".to_owned());
            return Input::CommitFailed { from, why, space };
        }
        if Plant::G7.is_in(self.config.plant) {
            let why = CommitFault::Full("commit: error".to_owned());
            return Input::CommitFailed { from, why, space };
        }
        if self.committed() == from {
            return committed;
        }
        let why = CommitFault::Broken("commit: error".to_owned());
        Input::CommitFailed { from, why, space }
    }

    /// Writes a batch, and tells that it is durable.
    pub(super) fn apply(&mut self, batch: Batch, bodies: Bodies) -> Input {
        for (_, handle, data) in &bodies {
            if let Some(data) = data.clone() {
                self.mem.request(handle.conn, StoreRequest::Park { handle: *handle, data });
            }
        }
        let answer = self.mem.commit(&batch);
        if matches!(answer, Input::Committed { .. }) {
            let bodies = bodies.into_iter().filter_map(|(no, _, data)| Some((no, data?))).collect();
            self.facts.push(Fact::Durable { batch, bodies });
        }
        answer
    }

    /// The batch that the end of the process interrupts, if it had begun.
    pub(super) fn interrupted_commit(&mut self) -> Option<(Batch, Bodies)> {
        match self.writer.doing.take()?.1 {
            Step::Effect(batch, bodies, _) if self.broken.is_none() => Some((batch, bodies)),
            Step::Begin(..) | Step::Effect(..) | Step::Answer(_) => None,
        }
    }
}
