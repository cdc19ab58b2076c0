//! One turn of the driver's loop, shared by both runtimes, the simulator and tests.
//!
//! Group commit needs no timer: the staged batch is handed over whenever no commit is under way, so a
//! batch is one row when idle and grows under load (DESIGN 2.2).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

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

/// A host that keeps what a turn asks for, in order, to be carried out afterwards: for drivers that step
/// by hand, as simulations and tests do.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Actions that are still to be carried out.
    pub actions: VecDeque<Action>,
    /// The batch that is still to be committed.
    pub batch: Option<Batch>,
}

impl Host for Outbox {
    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// # Panics
    /// When a batch is still there: the pump has at most one under way.
    fn commit(&mut self, batch: Batch) {
        assert!(self.batch.is_none(), "two commits under way");
        self.batch = Some(batch);
    }
}

/// Sees everything that goes into a node and comes out of it, in order. Must not block.
pub trait Tap {
    /// The node is about to take an input.
    fn input(&mut self, now: Now, input: &Input);
    /// The node is about to do what is best done in bulk.
    fn turn(&mut self, now: Now);
    /// An action is about to be carried out.
    fn action(&mut self, action: &Action);
    /// A batch is about to be handed to the store.
    fn batch(&mut self, batch: &Batch);
    /// The turn is over; the pump wants to come again at `next`.
    fn rest(&mut self, next: Option<Instant>);
}

/// A node and whether a commit is under way.
pub struct Pump {
    node: Node,
    committing: bool,
    actions: Vec<Action>,
    tap: Option<Box<dyn Tap + Send>>,
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Pump");
        shown.field("node", &self.node).field("committing", &self.committing);
        shown.field("tapped", &self.tap.is_some()).finish()
    }
}

/// A copy goes its own way from then on, and shows itself to nobody.
impl Clone for Pump {
    fn clone(&self) -> Pump {
        let (node, actions) = (self.node.clone(), self.actions.clone());
        Pump { node, committing: self.committing, actions, tap: None }
    }
}

impl Pump {
    /// A pump around a node.
    #[must_use]
    pub fn new(node: Node) -> Pump {
        Pump { node, committing: false, actions: Vec::new(), tap: None }
    }

    /// Shows everything from now on to `tap`, or to nobody.
    pub fn set_tap(&mut self, tap: Option<Box<dyn Tap + Send>>) {
        self.tap = tap;
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
            self.take(now, input, host);
        }
        self.finish(now, host)
    }

    /// The first half of a [`Pump::turn`], input by input: for who gets inputs one at a time, as a
    /// replay does. [`Pump::finish`] must follow.
    pub fn take(&mut self, now: Now, input: Input, host: &mut dyn Host) {
        if matches!(input, Input::Committed { .. } | Input::CommitFailed { .. }) {
            self.committing = false;
        }
        if let Some(tap) = &mut self.tap {
            tap.input(now, &input);
        }
        self.node.step(now, input, &mut self.actions);
        self.release(host);
    }

    /// The second half of a [`Pump::turn`]: the work in bulk, and the batch. Returns what that does.
    pub fn finish(&mut self, now: Now, host: &mut dyn Host) -> Option<Instant> {
        if let Some(tap) = &mut self.tap {
            tap.turn(now);
        }
        self.node.step(now, Input::Turn, &mut self.actions);
        self.release(host);
        if !self.committing
            && let Some(batch) = self.node.take_batch()
        {
            self.committing = true;
            if let Some(tap) = &mut self.tap {
                tap.batch(&batch);
            }
            host.commit(batch);
        }
        let next = self.node.next_deadline();
        if let Some(tap) = &mut self.tap {
            tap.rest(next);
        }
        next
    }

    fn release(&mut self, host: &mut dyn Host) {
        for action in self.actions.drain(..) {
            if let Some(tap) = &mut self.tap {
                tap.action(&action);
            }
            host.act(action);
        }
    }
}
