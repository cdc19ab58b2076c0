//! What operators do: enrolment and revocation of nodes and clients, shards tried again or given up.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::No;
use super::jobs::Job;
use super::overlay::{Stop, View};
use crate::id::{Sha256Digest, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_pickup::{self, ShardKey, is_node_id};
use crate::ledger::rows_pickup::{ClientRow, NodeKey, NodeRow, ShardRow, ShardState};
use crate::node::Node;
use crate::node::remove::Act;
use crate::node::types::Action;
use crate::pickup::state::ShardEvent;
use crate::pickup::{Answer, Operator, OperatorAct, PickupRefusal, Report};
use crate::time::Now;

/// Most keys of a node: two, so that they rotate.
const KEYS: usize = 2;

/// What an act has come to: what is written into `audit`, and what is said.
struct Done {
    action: &'static str,
    subject: String,
    /// Whether anything was changed.
    changed: bool,
    text: String,
    bytes: u64,
}

impl Node {
    pub(super) fn judge_operator(
        &mut self,
        now: Now,
        job: &Job,
        ticket: TransferNo,
        operator: &Operator,
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        let mut grows = false;
        let done = match &operator.act {
            OperatorAct::EnrolNode { id, key } => {
                grows = true;
                self.enrol_node(now, id, *key, view)?
            }
            OperatorAct::RevokeNode { id, key } => self.revoke_node(now, id, *key, view, out)?,
            OperatorAct::EnrolClient { name, token } => {
                grows = true;
                self.enrol_client(now, name, *token)?
            }
            OperatorAct::RevokeClient { name } => self.revoke_client(now, name)?,
            OperatorAct::RetryShard { shard } => self.retry_shard(now, shard, view)?,
            OperatorAct::AbandonShard { shard } => self.abandon_shard(now, shard, view, out)?,
        };
        if done.changed {
            let act = Act {
                who: operator.who.clone(),
                action: done.action,
                subject: done.subject,
                text: operator.why.clone(),
                count: 1,
                bytes: done.bytes,
                ..Act::default()
            };
            self.audit(now, act);
        }
        // What gives something up is not lost with its commit; what grows is refused.
        let instead = grows.then(|| No::full().command(ticket));
        if !grows && done.changed {
            self.intend(job);
        }
        let report = Report { changed: done.changed, text: done.text };
        self.pickup_promise(job.conn, Answer::Done { ticket, report }, instead);
        Ok(())
    }

    fn enrol_node(&mut self, now: Now, id: &str, key: [u8; 32], view: &View) -> Result<Done, Stop> {
        if !is_node_id(id) {
            return Err(no_name("a node id").into());
        }
        let place = keys_pickup::node(id);
        let row: Option<NodeRow> = self.row_of(view, Table::Nodes, &place)?;
        let done = |changed: bool, text: String| Done {
            action: "pickup_enrol_node",
            subject: id.to_string(),
            changed,
            text,
            bytes: 0,
        };
        let new = NodeKey { public: key, enrolled_at: now.wall.0 };
        let after = match row {
            Some(row) if row.revoked_at.is_some() => {
                NodeRow { keys: vec![new], revoked_at: None, ..row }
            }
            Some(row) if row.keys.iter().any(|known| known.public == key) => {
                return Ok(done(false, format!("node {id} has this key already")));
            }
            Some(row) if row.keys.len() >= KEYS => {
                let text = format!("node {id} has {KEYS} keys: revoke one of them first");
                return Err(No::new(PickupRefusal::TooManyKeys, text).into());
            }
            Some(mut row) => {
                row.keys.push(new);
                row
            }
            None => NodeRow {
                keys: vec![new],
                enrolled_at: now.wall.0,
                revoked_at: None,
                registered_at: None,
                tokens_from: None,
            },
        };
        self.admit_growth().map_err(|_| No::full())?;
        let text = format!("node {id} is enrolled, keys: {}", after.keys.len());
        self.put_row(Table::Nodes, &place, &after);
        Ok(done(true, text))
    }

    fn revoke_node(
        &mut self,
        now: Now,
        id: &str,
        key: Option<[u8; 32]>,
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<Done, Stop> {
        let place = keys_pickup::node(id);
        let row: Option<NodeRow> = self.row_of(view, Table::Nodes, &place)?;
        let Some(mut row) = row else {
            let text = format!("node {id} is not enrolled here");
            return Err(No::new(PickupRefusal::UnknownNode, text).into());
        };
        let before = row.keys.len();
        if let Some(key) = key {
            row.keys.retain(|known| known.public != key);
            if row.keys.len() == before {
                let text = format!("node {id} does not have this key");
                return Err(No::new(PickupRefusal::NotFound, text).into());
            }
        }
        let done = |changed: bool, text: String| Done {
            action: "pickup_revoke_node",
            subject: id.to_string(),
            changed,
            text,
            bytes: 0,
        };
        if row.revoked_at.is_some() {
            return Ok(done(false, format!("node {id} was revoked before")));
        }
        let whole = key.is_none() || row.keys.is_empty();
        if whole {
            row.revoked_at = Some(now.wall.0);
        }
        self.put_row(Table::Nodes, &place, &row);
        self.revoke_sessions(id, key.filter(|_| !whole), out);
        let text = match whole {
            true => format!("node {id} is revoked; its shards stay until their leases end"),
            false => format!("one key of node {id} is revoked"),
        };
        Ok(done(true, text))
    }

    fn enrol_client(&mut self, now: Now, name: &str, token: Sha256Digest) -> Result<Done, Stop> {
        if !is_node_id(name) {
            return Err(no_name("a client's name").into());
        }
        if self.pickup.clients.iter().any(|(other, row)| other != name && row.token == token) {
            let text = "another client has this token";
            return Err(No::new(PickupRefusal::Conflict, text).into());
        }
        self.admit_growth().map_err(|_| No::full())?;
        let old = self.pickup.clients.get(name);
        let text = match old {
            Some(row) if row.revoked_at.is_none() => format!("client {name} has a new token"),
            Some(_) | None => format!("client {name} is enrolled"),
        };
        let enrolled_at = old.map_or(now.wall.0, |row| row.enrolled_at);
        self.put_client(name, ClientRow { token, enrolled_at, revoked_at: None });
        let (action, subject) = ("pickup_enrol_client", name.to_string());
        Ok(Done { action, subject, changed: true, text, bytes: 0 })
    }

    fn revoke_client(&mut self, now: Now, name: &str) -> Result<Done, Stop> {
        let Some(row) = self.pickup.clients.get(name).copied() else {
            let text = format!("no client is called {name:?}");
            return Err(No::new(PickupRefusal::NotFound, text).into());
        };
        let changed = row.revoked_at.is_none();
        let text = match changed {
            true => format!("client {name} is revoked"),
            false => format!("client {name} was revoked before"),
        };
        if changed {
            self.put_client(name, ClientRow { revoked_at: Some(now.wall.0), ..row });
        }
        let (action, subject) = ("pickup_revoke_client", name.to_string());
        Ok(Done { action, subject, changed, text, bytes: 0 })
    }

    fn put_client(&mut self, name: &str, row: ClientRow) {
        self.stage.batch.put(Table::Clients, &keys_pickup::node(name), &row);
        self.pickup.clients.insert(name.to_string(), row);
        self.pickup.know_tokens();
    }

    /// A shard that an act is about.
    fn shard_of(&self, shard: &ShardKey, view: &View) -> Result<ShardRow, Stop> {
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        let row = row.ok_or_else(|| No::new(PickupRefusal::NotFound, "there is no such shard"))?;
        if matches!(row.state, ShardState::NodeReceiving | ShardState::NodeVerified) {
            let text = "the shard is in transit: its node or buffer.transit_grace decides";
            return Err(No::new(PickupRefusal::InTransit, text).into());
        }
        Ok(row)
    }

    fn retry_shard(&mut self, now: Now, shard: &ShardKey, view: &View) -> Result<Done, Stop> {
        let row = self.shard_of(shard, view)?;
        if row.state != ShardState::RelayBuffered {
            let text = format!("a shard in state {} is not picked up", row.state);
            return Err(No::new(PickupRefusal::Conflict, text).into());
        }
        let after = ShardRow { failed_acks: 0, waits: 0, notify_after: 0, ..row.clone() };
        self.put_shard(now, shard, Some(&row), after);
        self.owed(shard);
        let text = "notified anew; failed pickups are forgiven".to_string();
        Ok(done_to(shard, "pickup_retry", true, text, &row))
    }

    fn abandon_shard(
        &mut self,
        now: Now,
        shard: &ShardKey,
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<Done, Stop> {
        let row = self.shard_of(shard, view)?;
        match row.state {
            ShardState::NodeStored => {
                let text = "the node has it";
                return Err(No::new(PickupRefusal::Conflict, text).into());
            }
            ShardState::RelayCleanup => {
                let text = "it was given up before".to_string();
                return Ok(done_to(shard, "pickup_abandon", false, text, &row));
            }
            ShardState::Created
            | ShardState::Uploading
            | ShardState::RelayBuffered
            | ShardState::NodeReceiving
            | ShardState::NodeVerified => {}
        }
        self.end_writer(shard, out);
        self.clean_up(now, shard, &row, row.clone(), ShardEvent::Abandoned);
        let text = format!("given up in state {}", row.state);
        Ok(done_to(shard, "pickup_abandon", true, text, &row))
    }
}

fn done_to(
    shard: &ShardKey,
    action: &'static str,
    changed: bool,
    text: String,
    row: &ShardRow,
) -> Done {
    let subject = name_of(shard);
    Done { action, subject, changed, text, bytes: row.size.unwrap_or(0) }
}

/// A shard in `audit`, and for people.
pub(super) fn name_of(shard: &ShardKey) -> String {
    format!(
        "{} version {} shard {} for {}",
        shard.file_id(),
        shard.version(),
        shard.index(),
        shard.node()
    )
}

fn no_name(what: &str) -> No {
    let text = format!("{what} is 1 to 128 bytes of A-Z a-z 0-9 . _ -");
    No::new(PickupRefusal::Conflict, text)
}
