//! How promises come to the gate, and how they leave.

use alloc::vec::Vec;

use super::Node;
use super::types::Action;
use crate::gate::Waiting;
use crate::id::{BatchNo, ConnId, Seq};
use crate::plant::Plant;
use crate::session::{Promise, SessionCommand};

impl Node {
    /// Says `promise` to a connection once everything staged so far is durable: it hangs on the newest
    /// batch at the time of the decision (G2).
    pub(super) fn promise(
        &mut self,
        conn: ConnId,
        promise: Promise,
        refusal: Option<SessionCommand>,
        pins: Option<Seq>,
    ) {
        let batch = self.newest_staged();
        self.gate.promise(Waiting { batch, conn, promise, refusal, pins });
    }

    /// The newest batch that has anything in it.
    pub(super) fn newest_staged(&self) -> BatchNo {
        match (self.stage.batch.is_empty(), self.stage.committing()) {
            (false, _) => self.stage.number(),
            (true, true) => BatchNo(self.stage.number().0.saturating_sub(1)),
            (true, false) => self.gate.committed(),
        }
    }

    /// [`Node::promise`], unless `plant` is planted: then it leaves on nothing at all.
    pub(super) fn promise_unless(
        &mut self,
        plant: Plant,
        conn: ConnId,
        promise: Promise,
        refusal: Option<SessionCommand>,
        pins: Option<Seq>,
    ) {
        if self.config.planted(plant) {
            let batch = self.gate.committed();
            self.gate.unfounded(Waiting { batch, conn, promise, refusal, pins });
        } else {
            self.promise(conn, promise, refusal, pins);
        }
    }

    /// Promises that rest on nothing new leave at once.
    pub(super) fn release(&mut self, out: &mut Vec<Action>) {
        let committed = self.gate.committed();
        for (conn, command) in self.gate.committed_through(committed) {
            let (conn, command) = self.heir(conn, command);
            out.push(Action::Command(conn, command));
        }
    }
}
