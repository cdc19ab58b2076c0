//! Fetches: a token is redeemed in one commit, and what moves on the wire afterwards.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::ack::{REASON_MAX, cut};
use super::jobs::Job;
use super::overlay::{Stop, View};
use super::shard::follow;
use super::task::Task;
use super::{No, PERSIST};
use crate::id::{ConnId, Sha256Digest, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys_pickup::{self, ShardKey};
use crate::ledger::rows::Body;
use crate::ledger::rows_pickup::{NodeRow, ShardRow, ShardState, TokenRow, TokenState};
use crate::node::Node;
use crate::node::types::{Action, Note};
use crate::pickup::state::ShardEvent;
use crate::pickup::{Answer, Command, FetchAsk, FetchEnd, PickupRefusal, Serve};
use crate::plant::Plant;
use crate::session::SessionCommand;
use crate::store::StoreFault;
use crate::time::{Now, UnixMillis};

/// A redeemed token whose shard is NODE_RECEIVING.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub conn: ConnId,
    pub shard: ShardKey,
    /// When the kernel took bytes last, and when that was written last.
    pub moved: UnixMillis,
    pub written: UnixMillis,
    /// Whether it has taken any.
    pub any: bool,
}

impl Node {
    pub(super) fn judge_fetch(
        &mut self,
        now: Now,
        job: &Job,
        ticket: TransferNo,
        ask: &FetchAsk,
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        // Everything is read before anything is spent.
        let (node, nonce) = self.signed_rows(&ask.signed, view)?;
        let token = match ask.token {
            Some(hash) => {
                self.row_of::<TokenRow>(view, Table::Tokens, &hash.0)?.map(|row| (hash, row))
            }
            None => None,
        };
        let row = match &token {
            Some((_, token)) => self.row_of::<ShardRow>(view, Table::Shards, &token.shard)?,
            None => None,
        };
        self.spend_nonce(now, &ask.signed, node.clone(), nonce)?;
        let good = may_redeem(now, token, row, node.as_ref(), ask);
        let Good { hash, token, shard, row, body } = match good {
            Ok(good) => {
                self.intend(job);
                good
            }
            Err(no) => {
                self.count_bad_token(no.refusal);
                // What was refused is not judged again, but its nonce is spent.
                let task = Task::Spend { signed: ask.signed.clone() };
                self.intend(&Job { task, ..job.clone() });
                return Err(no.into());
            }
        };
        let size = row.size.unwrap_or(0);
        let used = TokenRow { state: TokenState::Redeemed, since: now.wall.0, ..token.clone() };
        self.put_row(Table::Tokens, &keys_pickup::token(&hash), &used);
        let after = ShardRow {
            state: follow(Some(row.state), ShardEvent::Redeemed),
            since: now.wall.0,
            progress_at: now.wall.0,
            redemption: token.redemption,
            ..row.clone()
        };
        self.put_shard(now, &shard, Some(&row), after);
        self.reset_fetches(&shard, out);
        self.notify_redeemed(&shard, token.redemption);
        let (conn, redemption) = (job.conn, token.redemption);
        let (moved, written) = (now.wall, now.wall);
        let fetch = Fetch { conn, shard: shard.clone(), moved, written, any: false };
        self.pickup.fetches.insert(redemption, fetch);
        self.pickup.fetched.insert(shard.clone(), redemption);
        self.pickup.serving.insert((conn, redemption));
        self.pickup.told.redeemed += 1;
        let serve = Box::new(Serve {
            shard,
            redemption,
            body,
            size,
            sha256: row.sha256.unwrap_or(Sha256Digest([0; 32])),
            blake3: row.blake3.unwrap_or(crate::id::BlobDigest([0; 32])),
        });
        // If its commit fails, the job is judged again.
        self.pickup_promise(conn, Answer::Serve { ticket, serve }, None);
        Ok(())
    }

    fn count_bad_token(&mut self, refusal: PickupRefusal) {
        let [used, over, unknown] = &mut self.pickup.told.bad_tokens;
        if refusal == PickupRefusal::TokenUsed {
            *used += 1;
        } else if refusal == PickupRefusal::TokenExpired {
            *over += 1;
        } else if matches!(refusal, PickupRefusal::NotFound | PickupRefusal::Forbidden) {
            *unknown += 1;
        }
    }

    /// A fetch is not known any more; whatever it still says changes nothing.
    pub(super) fn fetch_forgotten(&mut self, redemption: u64) -> Option<Fetch> {
        let fetch = self.pickup.fetches.remove(&redemption)?;
        self.pickup.fetched.remove(&fetch.shard);
        self.pickup.serving.remove(&(fetch.conn, redemption));
        Some(fetch)
    }

    /// The fetch of a shard has no right to go on. There is one at most: a redemption begins here.
    pub(super) fn reset_fetches(&mut self, shard: &ShardKey, out: &mut Vec<Action>) {
        let Some(redemption) = self.pickup.fetched.get(shard).copied() else { return };
        let Some(fetch) = self.pickup.fetches.get(&redemption) else { return };
        let conn = fetch.conn;
        if self.pickup.serving.contains(&(conn, redemption)) && self.conns.contains_key(&conn) {
            let command = Command::ResetFetch { redemption };
            out.push(Action::Command(conn, SessionCommand::Pickup(Box::new(command))));
        }
        if !self.config.planted(Plant::P4) {
            self.fetch_forgotten(redemption);
        }
    }

    /// When the kernel took bytes of this redemption last.
    pub(super) fn moved_at(&self, redemption: u64) -> Option<UnixMillis> {
        self.pickup.fetches.get(&redemption).map(|fetch| fetch.moved)
    }

    pub(super) fn fetch_moved(&mut self, now: Now, conn: ConnId, redemption: u64) {
        let Some(fetch) = self.pickup.fetches.get_mut(&redemption) else { return };
        if fetch.conn != conn {
            return;
        }
        (fetch.moved, fetch.any) = (now.wall, true);
        if now.wall.since(fetch.written) >= PERSIST {
            fetch.written = now.wall;
            let shard = fetch.shard.clone();
            self.pickup_job(conn, Task::Moved { shard, redemption, at: now.wall });
        }
    }

    pub(super) fn judge_moved(
        &mut self,
        now: Now,
        shard: &ShardKey,
        redemption: u64,
        at: UnixMillis,
        view: &View,
    ) -> Result<(), Stop> {
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        if let Some(row) = row.filter(|row| is_of(row, redemption)) {
            let after = ShardRow { progress_at: row.progress_at.max(at.0), ..row.clone() };
            self.put_shard(now, shard, Some(&row), after);
        }
        Ok(())
    }

    /// A fetch is over on the wire.
    pub(super) fn fetch_ended(
        &mut self,
        now: Now,
        conn: ConnId,
        redemption: u64,
        end: FetchEnd,
        out: &mut Vec<Action>,
    ) {
        if !self.pickup.serving.remove(&(conn, redemption)) {
            return;
        }
        let Some(fetch) = self.pickup.fetches.get_mut(&redemption) else { return };
        let mut why = None;
        let moved = match end {
            FetchEnd::Whole => {
                // What the node says of it is waited for: that long from now.
                fetch.moved = now.wall;
                return;
            }
            FetchEnd::Broken { moved } => moved > 0 || fetch.any,
            FetchEnd::Unreadable(fault) => {
                let text = alloc::format!(
                    "shard {} {} {} for {} could not be served: {fault}",
                    fetch.shard.file_id(),
                    fetch.shard.version(),
                    fetch.shard.index(),
                    fetch.shard.node()
                );
                out.push(Action::Note(Note::Warn { code: "shard_unreadable", text }));
                if matches!(fault, StoreFault::Missing(_) | StoreFault::Corrupt(_)) {
                    // A reading may be wrong where the disk is right: the scrub has the last word.
                    self.scrub.shards.suspect(fetch.shard.clone());
                    self.more = true;
                }
                why = Some(alloc::format!("not readable at the relay: {fault}"));
                false
            }
        };
        let shard = fetch.shard.clone();
        self.pickup_job(conn, Task::FetchBroken { shard, redemption, moved, why });
    }

    /// A connection is gone: what it was served broke off.
    pub(super) fn fetches_cut(&mut self, conn: ConnId) {
        let mine = self.pickup.serving.range((conn, 0)..=(conn, u64::MAX));
        let mine: Vec<u64> = mine.map(|(_, redemption)| *redemption).collect();
        for redemption in mine {
            self.pickup.serving.remove(&(conn, redemption));
            let Some(fetch) = self.pickup.fetches.get(&redemption) else { continue };
            let (shard, moved) = (fetch.shard.clone(), fetch.any);
            let broken = Task::FetchBroken { shard, redemption, moved, why: None };
            self.pickup_job(conn, broken);
        }
    }

    /// Back to RELAY_BUFFERED, if it is still this fetch that the shard is in (P4).
    pub(super) fn judge_fetch_broken(
        &mut self,
        now: Now,
        job: &Job,
        (shard, redemption): (&ShardKey, u64),
        moved: bool,
        why: Option<&str>,
        view: &View,
    ) -> Result<(), Stop> {
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        self.fetch_forgotten(redemption);
        let any = self.config.planted(Plant::P4);
        let mine = |row: &ShardRow| {
            is_of(row, redemption) || (any && row.state == ShardState::NodeReceiving)
        };
        let Some(row) = row.filter(mine) else { return Ok(()) };
        self.intend(job);
        self.pickup.told.broken += 1;
        let mut after = row.clone();
        if !moved {
            after.waits = row.waits.saturating_add(1);
            after.notify_after = self.wait_after(now, after.waits);
        }
        if self.config.planted(Plant::P2) {
            after.failed_acks = row.failed_acks.saturating_add(1);
            if after.failed_acks >= self.config.buffer.max_pickups {
                after.state = follow(Some(row.state), ShardEvent::Returned);
                self.clean_up(now, shard, &row, after, ShardEvent::GivenUp);
                return Ok(());
            }
        }
        if let Some(why) = why {
            after.reason = cut(why, REASON_MAX).into();
        }
        self.give_back(now, shard, &row, after, ShardEvent::Returned);
        Ok(())
    }
}

/// Whether the shard is being fetched under this number.
pub(super) fn is_of(row: &ShardRow, redemption: u64) -> bool {
    row.state == ShardState::NodeReceiving && row.redemption == redemption
}

/// A token that is good, and its shard.
struct Good {
    hash: Sha256Digest,
    token: TokenRow,
    shard: ShardKey,
    row: ShardRow,
    body: Body,
}

/// Whether the token is good for its shard: judged in the order 404, 403, 409, 410, 416.
fn may_redeem(
    now: Now,
    token: Option<(Sha256Digest, TokenRow)>,
    row: Option<ShardRow>,
    node: Option<&NodeRow>,
    ask: &FetchAsk,
) -> Result<Good, No> {
    let (hash, token) = token.ok_or_else(no_token)?;
    let shard = ShardKey::parse(&token.shard).ok_or_else(no_token)?;
    let own = shard.node() == ask.signed.node;
    if token.state == TokenState::Replaced || (own && replaced(&token, node)) {
        return Err(no_token());
    }
    if !own {
        return Err(No::new(PickupRefusal::Forbidden, "the token is of another node"));
    }
    if token.state == TokenState::Redeemed {
        return Err(No::new(PickupRefusal::TokenUsed, "the token was used"));
    }
    if token.expires_at <= now.wall.0 {
        return Err(No::new(PickupRefusal::TokenExpired, "the token's time is over"));
    }
    let row = row.filter(|row| row.generation == token.generation).ok_or_else(no_token)?;
    let Some(body) = row.buffer.filter(|_| row.state == ShardState::RelayBuffered) else {
        let text = alloc::format!("the shard is {}", row.state);
        return Err(No::new(PickupRefusal::TokenUsed, text));
    };
    if row.redemption != token.redemption {
        return Err(no_token());
    }
    let size = row.size.unwrap_or(0);
    if ask.from.is_some_and(|from| from > size) {
        let text = alloc::format!("the shard has {size} bytes");
        return Err(No::new(PickupRefusal::Range, text).number(size));
    }
    Ok(Good { hash, token, shard, row, body })
}

/// Whether the node has registered since the token was minted, before its time was over.
pub(super) fn replaced(token: &TokenRow, node: Option<&NodeRow>) -> bool {
    let Some(node) = node else { return false };
    token.state == TokenState::Live
        && token.redemption < node.tokens_from.unwrap_or(0)
        && token.expires_at > node.registered_at.unwrap_or(0)
}

fn no_token() -> No {
    No::new(PickupRefusal::NotFound, "there is no such token")
}
