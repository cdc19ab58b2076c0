//! Operators enrol clients and nodes where they are missing.

use consign_core::id::TransferNo;
use consign_core::ledger::rows_pickup::NodeRow;
use consign_core::ledger::{Table, codec, keys_pickup};
use consign_core::pickup::sign::public_key;
use consign_core::pickup::{Event, Operator, OperatorAct};
use consign_core::session::SessionEvent;
use consign_core::store::Snapshot;

use super::{client_name, node_id};
use crate::sim::seen::{Seen, SiteIx};
use crate::sim::world::{Event as Planned, World};

/// Of two keys that are both others, one has to go first.
fn too_many(rows: &dyn Snapshot, id: &str, key: [u8; 32]) -> Option<(&'static str, OperatorAct)> {
    let place = keys_pickup::node(id);
    let value = rows.get(Table::Nodes, &place).ok()??;
    let row: NodeRow = codec::decode(Table::Nodes, &place, value).ok()?;
    let [one, other] = row.keys.as_slice() else { return None };
    let others = row.revoked_at.is_none() && one.public != key && other.public != key;
    let id = id.to_string();
    let act = OperatorAct::RevokeNode { id, key: Some(one.public) };
    others.then_some(("pickup_revoke_node", act))
}

impl World {
    /// Everybody whom a site should know is enrolled there: who is missing, or everybody.
    pub(in crate::sim) fn enrol(&mut self, ix: SiteIx, everybody: bool) {
        let options = &self.quay.options;
        if !self.quay.is_on() || !options.is_at(ix) {
            return;
        }
        let seed = self.options.seed;
        let rows = self.sites[ix].store.snapshot();
        let missing = |table: Table, name: &str| {
            everybody || !matches!(rows.get(table, &keys_pickup::node(name)), Ok(Some(_)))
        };
        let mut acts = Vec::new();
        for number in 0..options.clients {
            let name = client_name(number);
            if missing(Table::Clients, &name) {
                let token = self.quay.bearer_of(seed, ix, number).hash();
                acts.push(("pickup_enrol_client", OperatorAct::EnrolClient { name, token }));
            }
        }
        for number in 0..options.nodes {
            let id = node_id(ix, number);
            if missing(Table::Nodes, &id) {
                let key = public_key(&self.quay.key_of(seed, ix, number));
                acts.extend(too_many(&rows, &id, key));
                acts.push(("pickup_enrol_node", OperatorAct::EnrolNode { id, key }));
            }
        }
        drop(rows);
        for (word, act) in acts {
            self.operate_pickup(ix, word, act);
        }
    }

    /// The same now, or as soon as the site runs.
    pub(in crate::sim) fn operate_pickup_soon(
        &mut self,
        ix: SiteIx,
        word: &'static str,
        act: OperatorAct,
    ) {
        if self.sites[ix].process.as_ref().is_none_or(|process| process.stopping) {
            let at = self.now.plus(5_000_000);
            return self.queue.plan(at, Planned::Pickup(ix, word, Box::new(act)));
        }
        self.operate_pickup(ix, word, act);
    }

    /// An operator does something about pickup, where the site runs.
    pub fn operate_pickup(&mut self, ix: SiteIx, word: &'static str, act: OperatorAct) {
        if self.sites[ix].process.as_ref().is_none_or(|process| process.stopping) {
            return;
        }
        self.watch.see(self.now, ix, &Seen::Operated(word));
        let operator = Operator { act, who: "uid:1000".into(), why: String::new() };
        let event = Event::Operator { ticket: TransferNo(1), act: Box::new(operator) };
        let event = SessionEvent::Pickup(Box::new(event));
        if let Some((process, mut around)) = self.process(ix) {
            process.act_as_operator(event, &mut around);
        }
    }
}
