//! Pickup in the node: what is decided about shards, tokens, nonces, nodes and clients (DESIGN 4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Node;
use super::types::Action;
use crate::id::ConnId;
use crate::pickup;
use crate::time::Now;

impl Node {
    /// An event of a pickup session, or of an operator about pickup.
    pub(super) fn pickup_event(
        &mut self,
        _now: Now,
        _conn: ConnId,
        _event: Box<pickup::Event>,
        _out: &mut Vec<Action>,
    ) {
    }

    /// A promise of pickup rests on a batch that failed.
    pub(super) fn pickup_taken_back(&mut self, _conn: ConnId, _answer: Box<pickup::Answer>) {}
}
