//! Pickup at a glance, as `status` shows it.

use std::collections::BTreeMap;

use consign_core::ledger::rows_pickup::ShardState;
use consign_core::node::PickupStatus;
use consign_core::pickup::PickupRefusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::shapes::Count;

/// Pickup at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pickup {
    /// Shards by state, with the bytes that are held or reserved for them.
    pub shards: BTreeMap<String, Count>,
    /// Bytes held or reserved for shards.
    pub used: u64,
    /// `buffer.max_bytes`
    pub limit: u64,
    /// Clients that may upload.
    pub clients: u64,
    /// Nodes that are registered now.
    pub sessions: u64,
    /// Uploads under way.
    pub uploads: u64,
    /// Fetches under way.
    pub fetches: u64,
    /// Notifications without an answer.
    pub unanswered: u64,
    /// Refusals since the start, by code.
    pub refusals: BTreeMap<String, u64>,
}

impl Pickup {
    /// What the node says.
    #[must_use]
    pub fn of(node: &PickupStatus) -> Pickup {
        let count = |(state, row): (&ShardState, &consign_core::ledger::rows::CounterRow)| {
            (state.word().to_owned(), Count { count: row.count, bytes: row.bytes })
        };
        let words = PickupRefusal::ALL.iter().map(|refusal| refusal.word().to_owned());
        Pickup {
            shards: ShardState::ALL.iter().zip(&node.shards).map(count).collect(),
            used: node.used,
            limit: node.limit,
            clients: node.clients,
            sessions: node.sessions,
            uploads: node.uploads,
            fetches: node.fetches,
            unanswered: node.unanswered,
            refusals: words.zip(node.refusals).collect(),
        }
    }

    /// How many shards are in a state.
    #[must_use]
    pub fn count(&self, state: ShardState) -> u64 {
        self.shards.get(state.word()).map_or(0, |count| count.count)
    }

    /// Whether there is anything to be told of it.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.clients > 0 || self.sessions > 0 || self.shards.values().any(|count| count.count > 0)
    }
}
