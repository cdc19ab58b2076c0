//! Which shards a node is notified of: all that it is owed, in key order, so many at a time, and none
//! missed.
//!
//! A lap goes through the node's part of `by_node` from the cursor to the end and from the beginning to
//! the cursor (P5). What becomes owed in the meantime is kept by name and has its turn after the lap; when
//! that is too much, another lap is made, once what was staged can be read. So whatever stands in the
//! ledger when a session registers is found by its first lap, whatever comes later is told by whoever
//! stages it, and nothing falls in between.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use super::fetch::replaced;
use super::jobs::Reading;
use super::overlay::{Stop, View};
use super::session::{NodeSession, behind_prefix};
use super::task::Task;
use crate::id::BatchNo;
use crate::ledger::Table;
use crate::ledger::keys_pickup::{self, ShardKey, parse_by_node};
use crate::ledger::keys_upkeep::ExpiryKind;
use crate::ledger::read::ReadRequest;
use crate::ledger::read_scrub::RawRow;
use crate::ledger::rows_pickup::{NodeRow, ShardRow, ShardState, TokenRow, TokenState};
use crate::node::types::Action;
use crate::node::{Asked, Node};
use crate::pickup::{Answer, Notify, TokenOffer};
use crate::plant::Plant;
use crate::time::{Now, UnixMillis};

/// Shards of one page.
const PAGE: usize = 64;
/// Shards that are kept by name between laps.
const FRESH: usize = 256;
/// How much longer than its time a token's row is kept.
pub(super) const TOKEN_KEPT: Duration = Duration::from_secs(24 * 3600);

/// A notification without an answer.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub redemption: u64,
    /// When its token's time is over, as long as that is not redeemed.
    pub until: Option<UnixMillis>,
    pub offer: TokenOffer,
}

/// A lap under way.
#[derive(Clone, Debug)]
struct Lap {
    /// The cursor when it began.
    began: Vec<u8>,
    /// It has come by the end.
    wrapped: bool,
    /// Everything is read.
    read: bool,
}

/// Where a session is in what its node is owed.
#[derive(Clone, Debug, Default)]
pub(super) struct Pager {
    /// The last key that was read; empty at the beginning.
    cursor: Vec<u8>,
    lap: Option<Lap>,
    /// Another lap is needed, or will be then.
    again: bool,
    again_at: Option<UnixMillis>,
    /// What it is needed for is durable with this batch.
    seen_from: BatchNo,
    page: VecDeque<ShardKey>,
    fresh: BTreeSet<ShardKey>,
    /// Shards that wait for their time.
    later: BTreeSet<(UnixMillis, ShardKey)>,
    reading: bool,
    /// Shards that are being judged.
    judging: usize,
}

impl Pager {
    /// A pager of a session that begins. What was staged before it by `batch` is told by nobody: the first
    /// lap reads when that is durable.
    pub fn at_start(batch: BatchNo) -> Pager {
        Pager { again: true, seen_from: batch, ..Pager::default() }
    }

    /// A shard is owed by that batch.
    fn staged(&mut self, shard: ShardKey, batch: BatchNo) {
        if self.fresh.len() < FRESH {
            self.fresh.insert(shard);
        } else {
            (self.again, self.seen_from) = (true, batch);
        }
    }

    /// A shard that was notified of, or looked at, may be so again; it stands in the ledger from `batch` on.
    /// It waits for the others to have their turn (P5).
    fn once_more(&mut self, shard: ShardKey, batch: BatchNo) {
        if self.lap.is_some() || self.fresh.len() >= FRESH {
            (self.again, self.seen_from) = (true, batch);
        } else {
            self.fresh.insert(shard);
        }
    }

    /// What is to be done next, when this much is durable.
    fn next(&mut self, committed: BatchNo) -> Next {
        if let Some(shard) = self.page.pop_front() {
            return Next::Look(shard);
        }
        if self.lap.as_ref().is_some_and(|lap| !lap.read) {
            return if self.reading { Next::Nothing } else { Next::Read };
        }
        if let Some(shard) = self.fresh.pop_first() {
            return Next::Look(shard);
        }
        self.lap = None;
        if self.again && self.seen_from <= committed {
            self.again = false;
            self.lap = Some(Lap { began: self.cursor.clone(), wrapped: false, read: false });
            return Next::Read;
        }
        if self.again { Next::Later } else { Next::Nothing }
    }
}

impl Pager {
    /// The next page of the lap.
    fn page_of(&self, node: &str) -> Option<ReadRequest> {
        let lap = self.lap.as_ref()?;
        let from = match self.cursor.is_empty() {
            true => keys_pickup::by_node_prefix(node).to_vec(),
            false => behind(&self.cursor),
        };
        let until = if lap.wrapped { behind(&lap.began) } else { behind_prefix(node) };
        Some(ReadRequest::Rows { table: Table::ByNode, from, until, limit: PAGE })
    }
}

/// What a pager does next.
enum Next {
    /// This shard is looked at.
    Look(ShardKey),
    /// The next page is read.
    Read,
    /// What it would read is not durable yet.
    Later,
    /// All is done, or waits for a page.
    Nothing,
}

impl Node {
    /// A shard has become RELAY_BUFFERED, or may be notified of again.
    pub(super) fn owed(&mut self, shard: &ShardKey) {
        let node = shard.node();
        let Some(session) = self.pickup.nodes.get_mut(node) else { return };
        session.open.remove(shard);
        session.pager.staged(shard.clone(), self.stage.number());
        self.pickup.busy.insert(node.to_string());
    }

    /// A shard has left its place for good: its notification is over.
    pub(super) fn answered(&mut self, shard: &ShardKey) {
        let node = shard.node();
        let Some(session) = self.pickup.nodes.get_mut(node) else { return };
        if session.open.remove(shard).is_some() {
            self.pickup.busy.insert(node.to_string());
        }
    }

    /// Its token is used: it is answered by an ack, or by another way out of NODE_RECEIVING.
    pub(super) fn notify_redeemed(&mut self, shard: &ShardKey, redemption: u64) {
        let session = self.pickup.nodes.get_mut(shard.node());
        let open = session.and_then(|session| session.open.get_mut(shard));
        if let Some(open) = open.filter(|open| open.redemption == redemption) {
            open.until = None;
        }
    }

    /// A shard has been judged for that session.
    pub(super) fn judged(&mut self, node: &str, number: u64) {
        let session = self.pickup.nodes.get_mut(node).filter(|s| s.number == number);
        if let Some(session) = session {
            session.pager.judging = session.pager.judging.saturating_sub(1);
            self.pickup.busy.insert(node.to_string());
        }
    }

    /// Goes on with the pagers that have something to do.
    pub(super) fn page_nodes(&mut self, now: Now, out: &mut Vec<Action>) {
        while self.pickup.wakes.first().is_some_and(|(at, _)| *at <= now.wall) {
            let Some((_, node)) = self.pickup.wakes.pop_first() else { break };
            self.wake(now, &node);
        }
        if self.stopping {
            return self.pickup.busy.clear();
        }
        for node in core::mem::take(&mut self.pickup.busy) {
            self.page_node(&node, out);
        }
    }

    /// Tokens that ran out unused free their place; shards whose wait is over are owed again.
    fn wake(&mut self, now: Now, node: &str) {
        let staged = self.newest_staged();
        let first = self.config.planted(Plant::P5);
        let Some(session) = self.pickup.nodes.get_mut(node) else { return };
        let over = |open: &Open| open.until.is_some_and(|until| until <= now.wall);
        let unused: Vec<ShardKey> =
            session.open.iter().filter(|(_, o)| over(o)).map(|(shard, _)| shard.clone()).collect();
        self.pickup.told.unused += unused.len() as u64;
        for shard in unused {
            session.open.remove(&shard);
            if first {
                session.pager.page.push_front(shard);
            } else {
                session.pager.once_more(shard, staged);
            }
        }
        if session.pager.again_at.take_if(|at| *at <= now.wall).is_some() {
            (session.pager.again, session.pager.seen_from) = (true, staged);
        }
        while session.pager.later.first().is_some_and(|(at, _)| *at <= now.wall) {
            let Some((_, shard)) = session.pager.later.pop_first() else { break };
            session.pager.once_more(shard, staged);
        }
        session.wake = None;
        let next = next_wake(session);
        self.pickup.busy.insert(node.to_string());
        self.wake_at(node, next);
    }

    /// A session is to be looked at then, if not sooner. It stands but once in what becomes due, however
    /// many notifications it has had.
    fn wake_at(&mut self, node: &str, at: Option<UnixMillis>) {
        let (Some(at), Some(session)) = (at, self.pickup.nodes.get_mut(node)) else { return };
        if session.wake.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(later) = session.wake.replace(at) {
            self.pickup.wakes.remove(&(later, node.to_string()));
        }
        self.pickup.wakes.insert((at, node.to_string()));
    }

    fn page_node(&mut self, node: &str, out: &mut Vec<Action>) {
        let window = self.config.buffer.notify_window as usize;
        let committed = self.gate.committed();
        let Some(session) = self.pickup.nodes.get_mut(node) else { return };
        let (conn, number) = (session.conn, session.number);
        let mut jobs = Vec::new();
        let mut request = None;
        while has_room(session, window) {
            match session.pager.next(committed) {
                Next::Look(shard) if session.open.contains_key(&shard) => {}
                Next::Look(shard) => {
                    session.pager.judging += 1;
                    jobs.push(Task::Notify { shard, session: number });
                }
                Next::Read => {
                    request = session.pager.page_of(node);
                    session.pager.reading = true;
                    break;
                }
                Next::Later => {
                    self.pickup.busy.insert(node.to_string());
                    break;
                }
                Next::Nothing => break,
            }
        }
        for task in jobs {
            self.pickup_job(conn, task);
            self.more = true;
        }
        if let Some(request) = request {
            let reading = Reading::Page(node.to_string(), number);
            self.ask(Asked::Pickup(reading), request, out);
        }
    }

    pub(super) fn page_read(
        &mut self,
        node: &str,
        number: u64,
        rows: Vec<(RawRow, RawRow)>,
        next: Option<RawRow>,
    ) {
        let session = self.pickup.nodes.get_mut(node).filter(|s| s.number == number);
        let Some(session) = session else { return };
        let pager = &mut session.pager;
        pager.reading = false;
        if let Some((last, _)) = rows.last() {
            pager.cursor = last.0.clone();
        }
        if let Some(lap) = &mut pager.lap {
            let end = if lap.wrapped { behind(&lap.began) } else { behind_prefix(node) };
            let over = next.is_none_or(|next| next.0 >= end);
            if over && (lap.wrapped || lap.began.is_empty()) {
                lap.read = true;
            } else if over {
                lap.wrapped = true;
                pager.cursor.clear();
            }
        }
        pager.page.extend(rows.into_iter().filter_map(|(key, _)| parse_by_node(&key.0)));
        self.pickup.busy.insert(node.to_string());
        self.more = true;
    }

    /// A page is void: it is read again.
    pub(super) fn page_unread(&mut self, node: &str, number: u64) {
        let session = self.pickup.nodes.get_mut(node).filter(|s| s.number == number);
        if let Some(session) = session {
            session.pager.reading = false;
            self.pickup.busy.insert(node.to_string());
        }
    }

    /// A shard that a session may be notified of: minted and said in one commit, if it is so.
    pub(super) fn judge_notify(
        &mut self,
        now: Now,
        shard: &ShardKey,
        number: u64,
        view: &View,
    ) -> Result<(), Stop> {
        let node = shard.node();
        let is_there = self.pickup.nodes.get(node).is_some_and(|s| s.number == number);
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        let over = |row: &ShardRow| row.expires_at.is_some_and(|at| at <= now.wall.0);
        let row = row.filter(|row| row.state == ShardState::RelayBuffered && is_there);
        let Some(row) = row.filter(|row| !over(row) || self.clock_held()) else {
            self.judged(node, number);
            return Ok(());
        };
        let old = match row.token {
            Some(hash) => {
                let old: Option<TokenRow> = self.row_of(view, Table::Tokens, &hash.0)?;
                let registered: Option<NodeRow> =
                    self.row_of(view, Table::Nodes, &keys_pickup::node(node))?;
                let good = |old: &TokenRow| {
                    let unused = old.state == TokenState::Live;
                    unused && (old.expires_at > now.wall.0 || replaced(old, registered.as_ref()))
                };
                old.filter(good).map(|old| (hash, old))
            }
            None => None,
        };
        self.judged(node, number);
        let staged = self.newest_staged();
        let Some(session) = self.pickup.nodes.get_mut(node) else { return Ok(()) };
        if session.open.contains_key(shard) {
            return Ok(());
        }
        // A session that came after the pickup that failed does not wait. Numbers tell more than times,
        // of which two may be the same.
        let was_there = row.redemption >= session.tokens_from || session.since.0 < row.since;
        if row.notify_after > now.wall.0 && was_there {
            let at = UnixMillis(row.notify_after);
            session.pager.later.insert((at, shard.clone()));
            let mut wake = Some(at);
            if session.pager.later.len() > FRESH {
                // Those that wait longest are found by another lap, when the first of them is due.
                let last = session.pager.later.pop_last().map_or(at, |(at, _)| at);
                let earlier = session.pager.again_at.is_none_or(|known| last < known);
                wake = earlier.then_some(last);
                session.pager.again_at = wake.or(session.pager.again_at);
            }
            self.wake_at(node, wake);
            return Ok(());
        }
        let Some(offer) = session.tokens.pop_front() else {
            session.pager.once_more(shard.clone(), staged);
            return Ok(());
        };
        if let Some((hash, old)) = old {
            let row = TokenRow { state: TokenState::Replaced, since: now.wall.0, ..old };
            self.put_row(Table::Tokens, &hash.0, &row);
        }
        self.mint(now, shard, row, offer);
        Ok(())
    }

    fn mint(&mut self, now: Now, shard: &ShardKey, row: ShardRow, offer: TokenOffer) {
        let node = shard.node().to_string();
        let again = self.config.planted(Plant::P1) && row.generation > 0;
        let redemption = if again { row.redemption + 1 } else { self.stage.next_redemption() };
        let until = now.wall.after(self.config.buffer.token_ttl);
        let token = TokenRow {
            shard: shard.key().to_vec(),
            generation: row.generation,
            redemption,
            expires_at: until.0,
            state: TokenState::Live,
            since: now.wall.0,
        };
        self.put_row(Table::Tokens, &offer.hash.0, &token);
        self.expire_at(until.after(TOKEN_KEPT), ExpiryKind::Token, &offer.hash.0);
        let after = ShardRow { redemption, token: Some(offer.hash), ..row.clone() };
        self.put_shard(now, shard, Some(&row), after);
        let Some(buffer) = row.buffer else { return };
        let Some(session) = self.pickup.nodes.get_mut(&node) else { return };
        let conn = session.conn;
        session.open.insert(shard.clone(), Open { redemption, until: Some(until), offer });
        self.wake_at(&node, Some(until));
        self.pickup.told.notified += 1;
        let notify = Notify {
            shard: shard.clone(),
            buffer,
            size: row.size.unwrap_or(0),
            sha256: row.sha256.unwrap_or(crate::id::Sha256Digest([0; 32])),
            blake3: row.blake3.unwrap_or(crate::id::BlobDigest([0; 32])),
            handle: offer.handle,
            token_expires_at: until,
            redemption,
        };
        let answer = Answer::Notify(alloc::boxed::Box::new(notify));
        self.pickup_promise(conn, answer, None);
    }
}

/// When a session is to be looked at next if nothing happens before.
fn next_wake(session: &NodeSession) -> Option<UnixMillis> {
    let unused = session.open.values().filter_map(|open| open.until);
    let later = session.pager.later.first().map(|(at, _)| *at);
    unused.chain(later).chain(session.pager.again_at).min()
}

/// Whether another shard may be looked at for this session.
fn has_room(session: &NodeSession, window: usize) -> bool {
    let judging = session.pager.judging;
    session.open.len() + judging < window && session.tokens.len() > judging
}

/// The first key behind another.
fn behind(key: &[u8]) -> Vec<u8> {
    let mut key = key.to_vec();
    key.push(0);
    key
}
