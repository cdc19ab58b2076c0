//! Who may: keys of nodes and tokens of clients, as long as they are enrolled.

use std::collections::BTreeMap;

use consign_core::id::Sha256Digest;
use consign_core::ledger::rows_pickup::{ClientRow, NodeRow};

use super::Desk;
use super::violation::{Check, demand};
use crate::sim::time::Micros;

/// Public keys by node, tokens by client: until when each was good, `None` while it is.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    keys: BTreeMap<(String, [u8; 32]), Option<Micros>>,
    tokens: BTreeMap<(String, Sha256Digest), Option<Micros>>,
}

/// Of what `who` has, only this is good from now on.
fn only<K: Ord + Clone>(
    of: &mut BTreeMap<(String, K), Option<Micros>>,
    at: Micros,
    who: &str,
    good: &[K],
) {
    for ((known, what), until) in of.iter_mut() {
        if known == who && until.is_none() && !good.contains(what) {
            *until = Some(at);
        }
    }
    for what in good {
        of.insert((who.to_string(), what.clone()), None);
    }
}

impl Allowed {
    /// The row of a node is on disk.
    pub fn node(&mut self, at: Micros, id: &str, row: &NodeRow) {
        let keys: Vec<[u8; 32]> = row.keys.iter().map(|key| key.public).collect();
        let good = if row.revoked_at.is_some() { &[][..] } else { &keys[..] };
        only(&mut self.keys, at, id, good);
    }

    /// The row of a client is on disk.
    pub fn client(&mut self, at: Micros, name: &str, row: &ClientRow) {
        let good = if row.revoked_at.is_some() { &[][..] } else { &[row.token][..] };
        only(&mut self.tokens, at, name, good);
    }
}

impl Desk<'_> {
    /// A request of a node that was made at `asked` is taken: its key was good at some time since.
    pub(super) fn may_sign(&self, node: &str, key: [u8; 32], asked: Micros) -> Check {
        let until = self.site.pickup.allowed.keys.get(&(node.to_string(), key));
        let good = until.is_some_and(|until| until.is_none_or(|until| until >= asked));
        demand(good || self.site.has_lost_shards(), "I13", None, || {
            format!("a request of {node} of {asked} is taken, and its key was good until {until:?}")
        })
    }

    /// The same of a client and its token.
    pub(super) fn may_upload(&self, token: Sha256Digest, asked: Micros) -> Check {
        let of = self.site.pickup.allowed.tokens.iter().filter(|((_, known), _)| *known == token);
        let mut of = of.map(|(_, until)| *until);
        let good = of.any(|until| until.is_none_or(|until| until >= asked));
        demand(good || self.site.has_lost_shards(), "I13", None, || {
            format!("an upload of {asked} is taken, and the token of its client was not good since")
        })
    }

    /// Tokens are for nodes that are not revoked.
    pub(super) fn is_served(&self, node: &str, what: &str) -> Check {
        let row = self.site.disk.pickup.nodes.get(node);
        let revoked = row.is_some_and(|row| row.revoked_at.is_some());
        demand(!revoked, "I12", None, || format!("{node} is revoked, and a token for it is {what}"))
    }
}
