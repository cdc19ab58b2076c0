//! The node: one per process; it decides everything and touches nothing.

mod types;

pub use types::{
    Action, Addressed, Answer, Input, Note, PeerStatus, Question, ReconcileSummary, Shared, Status,
};

use alloc::vec::Vec;

use crate::config::Config;
use crate::ledger::read::Recovery;
use crate::store::Batch;
use crate::time::{Instant, Now};

/// Why a node cannot begin with what the ledger holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The configuration breaks rules.
    #[error("{0:?}")]
    Config(Vec<crate::config::ConfigFault>),
    /// The ledger is of another format.
    #[error("the ledger has format {found}, this build reads {reads}")]
    Format {
        /// In the ledger.
        found: u64,
        /// In this build.
        reads: u16,
    },
}

/// The node.
#[derive(Debug)]
pub struct Node {}

impl Node {
    /// A node that goes on where the ledger stopped. An empty `recovery` is a new ledger.
    ///
    /// # Errors
    /// See [`RecoverError`].
    pub fn recover(_config: Config, _recovery: Recovery, _now: Now) -> Result<Node, RecoverError> {
        Ok(Node {})
    }
    /// Takes one input.
    pub fn step(&mut self, _now: Now, _input: Input, _out: &mut Vec<Action>) {}
    /// Takes the staged batch.
    pub fn take_batch(&mut self) -> Option<Batch> {
        None
    }
    /// When to come again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }
}
