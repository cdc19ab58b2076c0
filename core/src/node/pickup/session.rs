//! Nodes that are there: their WebSockets, and which of them speaks for a node.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::jobs::{Job, Reading};
use super::overlay::{Stop, View};
use super::pager::{Open, Pager};
use crate::id::{ConnId, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_pickup::{self, ShardKey};
use crate::ledger::read::ReadRequest;
use crate::ledger::rows_pickup::NodeRow;
use crate::node::types::Action;
use crate::node::{Asked, Node};
use crate::pickup::{Answer, Command, Notify, PickupRefusal, Signed, TokenOffer};
use crate::session::SessionCommand;
use crate::time::{Now, UnixMillis};

/// Most tokens that a session may have waiting.
const TOKENS_MAX: usize = 1_024;

/// A WebSocket: who signed for it, with which key.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    pub node: String,
    pub key: [u8; 32],
}

/// The session that is notified of a node's shards.
#[derive(Clone, Debug)]
pub(super) struct NodeSession {
    pub conn: ConnId,
    /// Its number among all that there were.
    pub number: u64,
    /// When it registered.
    pub since: UnixMillis,
    /// The first redemption number that could be its own.
    pub tokens_from: u64,
    pub tokens: VecDeque<TokenOffer>,
    /// Notifications without an answer.
    pub open: BTreeMap<ShardKey, Open>,
    pub pager: Pager,
    /// When it is looked at next: its place in [`super::Pickup::wakes`].
    pub wake: Option<UnixMillis>,
}

impl NodeSession {
    pub fn unanswered(&self) -> u64 {
        self.open.len() as u64
    }
}

impl super::Pickup {
    /// Nobody speaks for a node any more, or somebody else does.
    fn session_over(&mut self, node: &str) {
        if let Some(at) = self.nodes.remove(node).and_then(|session| session.wake) {
            self.wakes.remove(&(at, node.to_string()));
        }
        self.busy.remove(node);
    }
}

impl Node {
    /// `GET /ws`: upgraded once the nonce is spent.
    pub(super) fn judge_subscribe(
        &mut self,
        now: Now,
        job: &Job,
        ticket: TransferNo,
        signed: &Signed,
        view: &View,
    ) -> Result<(), Stop> {
        let (node, nonce) = self.signed_rows(signed, view)?;
        self.spend_nonce(now, signed, node, nonce)?;
        self.intend(job);
        let subscriber = Subscriber { node: signed.node.clone(), key: signed.key };
        self.pickup.subscribers.insert(job.conn, subscriber);
        self.pickup_promise(job.conn, Answer::Upgraded { ticket }, None);
        Ok(())
    }

    /// `register`: how much there is for it is counted first, for whoever reads its answer.
    pub(super) fn register_came(
        &mut self,
        conn: ConnId,
        tokens: Vec<TokenOffer>,
        out: &mut Vec<Action>,
    ) {
        let Some(node) = self.pickup.subscribers.get(&conn).map(|s| s.node.clone()) else {
            return self.close_ws(conn, 1008, "register before the upgrade", out);
        };
        let from = keys_pickup::by_node_prefix(&node).to_vec();
        let request =
            ReadRequest::Count { table: Table::ByNode, until: behind_prefix(&node), from };
        self.ask(Asked::Pickup(Reading::Owed(conn, node, tokens)), request, out);
    }

    pub(super) fn judge_register(
        &mut self,
        now: Now,
        job: &Job,
        (node, tokens, owed): (&str, &[TokenOffer], u64),
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        let place = keys_pickup::node(node);
        let row: Option<NodeRow> = self.row_of(view, Table::Nodes, &place)?;
        let subscriber = self.pickup.subscribers.get(&job.conn);
        let good = |row: &NodeRow| {
            let key = subscriber.map(|s| s.key);
            row.revoked_at.is_none() && row.keys.iter().any(|k| Some(k.public) == key)
        };
        let Some(row) = row.filter(good) else {
            let text = "the key is not enrolled for this node";
            return Err(super::No::new(PickupRefusal::Unauthorized, text).into());
        };
        // A register that comes back after a failed commit takes the place it has.
        let old = self.pickup.nodes.get(node).map(|session| session.conn);
        if let Some(old) = old.filter(|old| *old != job.conn) {
            self.close_ws(old, 4001, "a newer session of this node took its place", out);
        }
        self.intend(job);
        let tokens_from = self.stage.meta.next_redemption.max(1);
        let (registered_at, from) = (Some(now.wall.0), Some(tokens_from));
        let row = NodeRow { registered_at, tokens_from: from, ..row };
        self.put_row(Table::Nodes, &place, &row);
        self.pickup.sessions += 1;
        let session = NodeSession {
            conn: job.conn,
            number: self.pickup.sessions,
            since: now.wall,
            tokens_from,
            tokens: tokens.iter().take(TOKENS_MAX).copied().collect(),
            open: BTreeMap::new(),
            pager: Pager::at_start(self.newest_staged()),
            wake: None,
        };
        let number = session.number;
        self.pickup.session_over(node);
        self.pickup.nodes.insert(node.to_string(), session);
        self.pickup.busy.insert(node.to_string());
        self.pickup_promise(job.conn, Answer::Registered { session: number, owed }, None);
        Ok(())
    }

    pub(super) fn tokens_came(&mut self, conn: ConnId, tokens: Vec<TokenOffer>) {
        let Some(node) = self.pickup.subscribers.get(&conn).map(|s| s.node.clone()) else { return };
        if let Some(session) = self.pickup.nodes.get_mut(&node).filter(|s| s.conn == conn) {
            session.tokens.extend(tokens);
            session.tokens.truncate(TOKENS_MAX);
            self.pickup.busy.insert(node);
        }
    }

    /// The connection is gone: nobody is notified on it any more. No token is void by that.
    pub(super) fn node_gone(&mut self, conn: ConnId) {
        let Some(subscriber) = self.pickup.subscribers.remove(&conn) else { return };
        let node = subscriber.node;
        if self.pickup.nodes.get(&node).is_some_and(|session| session.conn == conn) {
            self.pickup.session_over(&node);
        }
    }

    /// Ends a WebSocket. Whatever it still says of acks counts until it is gone.
    pub(super) fn close_ws(&mut self, conn: ConnId, code: u16, text: &str, out: &mut Vec<Action>) {
        let node = self.pickup.subscribers.get(&conn).map(|s| s.node.clone());
        if let Some(node) = node
            && self.pickup.nodes.get(&node).is_some_and(|session| session.conn == conn)
        {
            self.pickup.session_over(&node);
        }
        if self.conns.contains_key(&conn) {
            let command = Command::CloseWs { code, text: text.to_string() };
            out.push(Action::Command(conn, SessionCommand::Pickup(Box::new(command))));
        }
    }

    /// A node is revoked, or one key of it: whoever signed with that is sent away.
    pub(super) fn revoke_sessions(
        &mut self,
        node: &str,
        key: Option<[u8; 32]>,
        out: &mut Vec<Action>,
    ) {
        let hit = |s: &Subscriber| s.node == node && key.is_none_or(|key| key == s.key);
        let all = self.pickup.subscribers.iter().filter(|(_, s)| hit(s));
        let all: Vec<ConnId> = all.map(|(conn, _)| *conn).collect();
        for conn in all {
            self.close_ws(conn, 1008, "revoked", out);
            self.pickup.subscribers.remove(&conn);
        }
    }

    /// A notification whose commit failed: its token is still the session's own.
    pub(super) fn not_notified(&mut self, conn: ConnId, notify: &Notify) {
        let node = notify.shard.node();
        let Some(session) = self.pickup.nodes.get_mut(node).filter(|s| s.conn == conn) else {
            return;
        };
        if let Some(open) = session.open.remove(&notify.shard) {
            session.tokens.push_front(open.offer);
        }
        self.owed(&notify.shard);
    }
}

/// The first key behind all of a node in `by_node`.
pub(super) fn behind_prefix(node: &str) -> Vec<u8> {
    keys_pickup::node(node).and(&[1]).to_vec()
}
