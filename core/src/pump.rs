//! One turn of the driver's loop, shared by both runtimes, the simulator and tests.
//!
//! Group commit needs no timer: the staged batch is handed over whenever no commit is under way, so a
//! batch is one row when idle and grows under load (DESIGN 2.2).

use alloc::vec::Vec;

use crate::limits::TURN_INPUTS;
use crate::node::{Action, Input, Node};
use crate::store::Batch;
use crate::time::{Instant, Now};

/// What the loop needs of its surroundings.
pub trait Host {
    /// Carries out an action. Must not block.
    fn act(&mut self, action: Action);
    /// Hands a batch to the store; the answer comes back as an input.
    fn commit(&mut self, batch: Batch);
}

/// A node and whether a commit is under way.
#[derive(Clone, Debug)]
pub struct Pump {
    node: Node,
    committing: bool,
    actions: Vec<Action>,
}

impl Pump {
    /// A pump around a node.
    #[must_use]
    pub fn new(node: Node) -> Pump {
        Pump { node, committing: false, actions: Vec::new() }
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Takes at most [`TURN_INPUTS`] inputs, lets the node work in bulk, releases its actions and
    /// hands over its batch if none is under way. Returns when to come again if no input arrives
    /// before; [`Instant::ZERO`] means at once.
    pub fn turn(
        &mut self,
        now: Now,
        inputs: &mut dyn Iterator<Item = Input>,
        host: &mut dyn Host,
    ) -> Option<Instant> {
        for input in inputs.take(TURN_INPUTS) {
            if matches!(input, Input::Committed { .. } | Input::CommitFailed { .. }) {
                self.committing = false;
            }
            self.node.step(now, input, &mut self.actions);
            self.release(host);
        }
        self.node.step(now, Input::Turn, &mut self.actions);
        self.release(host);
        if !self.committing
            && let Some(batch) = self.node.take_batch()
        {
            self.committing = true;
            host.commit(batch);
        }
        self.node.next_deadline()
    }

    fn release(&mut self, host: &mut dyn Host) {
        for action in self.actions.drain(..) {
            host.act(action);
        }
    }
}
