//! What is kept for a while and then removed: token rows, nonces, history.
//!
//! Upkeep finds their keys in `expiry` and hands them over here, a few at a time.

use alloc::vec::Vec;
use core::time::Duration;

use super::jobs::Job;
use super::overlay::{Stop, View};
use super::pager::TOKEN_KEPT;
use super::task::Task;
use crate::id::ConnId;
use crate::ledger::Table;
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::keys_upkeep::{ExpiryKind, parse_expiry};
use crate::ledger::read::Expiring;
use crate::ledger::rows_pickup::{NonceRow, ShardRow, TokenRow};
use crate::node::Node;
use crate::pickup::state::is_final;
use crate::time::{Now, UnixMillis};

/// A nonce is removed so much later than its signature could be good.
pub(super) const NONCE_AGAIN: Duration = Duration::from_secs(1);
/// Jobs that may wait before upkeep does.
const WAITING: usize = 1_024;
/// Pause between looks for nonces while nothing else expires.
const HELD: Duration = Duration::from_secs(10);

/// The table of what expires here; `None` is another's.
pub(super) fn table_of(kind: ExpiryKind) -> Option<Table> {
    match kind {
        ExpiryKind::Token => Some(Table::Tokens),
        ExpiryKind::Nonce => Some(Table::Nonces),
        ExpiryKind::Shard => Some(Table::Shards),
        ExpiryKind::Segment
        | ExpiryKind::Keep
        | ExpiryKind::Remembered
        | ExpiryKind::Incoming
        | ExpiryKind::Receipt
        | ExpiryKind::PassBack
        | ExpiryKind::Export
        | ExpiryKind::Quarantine => None,
    }
}

impl Node {
    /// Whether upkeep may hand over more.
    pub(in crate::node) fn pickup_has_room(&self) -> bool {
        self.pickup.waiting.len() < WAITING
    }

    /// A key of `expiry` is due: whether it is one of pickup's.
    pub(in crate::node) fn pickup_expires(&mut self, expiry: &[u8]) -> bool {
        let Some((_, kind, key)) = parse_expiry(expiry) else { return false };
        if table_of(kind).is_none() {
            return false;
        }
        let (expiry, key) = (expiry.to_vec(), key.to_vec());
        self.pickup_job(ConnId::default(), Task::Expire { kind, expiry, key });
        true
    }

    pub(super) fn old_nonces_read(&mut self, now: Now, rows: Vec<Expiring>, more: Option<Vec<u8>>) {
        self.pickup.nonces.held_reading = false;
        // What is left over is found by the next look.
        let wait = if more.is_some() && rows.is_empty() { Duration::ZERO } else { HELD };
        self.pickup.nonces.held_at = now.mono.after(wait);
        for row in rows {
            self.pickup_expires(&row.key);
        }
        self.more = true;
    }

    pub(super) fn judge_expire(
        &mut self,
        now: Now,
        job: &Job,
        kind: ExpiryKind,
        expiry: &[u8],
        key: &[u8],
        view: &View,
    ) -> Result<(), Stop> {
        let later = match kind {
            ExpiryKind::Token => self.expire_token(now, key, view)?,
            ExpiryKind::Nonce => self.expire_nonce(now, key, view)?,
            ExpiryKind::Shard => self.expire_shard(now, key, view)?,
            ExpiryKind::Segment
            | ExpiryKind::Keep
            | ExpiryKind::Remembered
            | ExpiryKind::Incoming
            | ExpiryKind::Receipt
            | ExpiryKind::PassBack
            | ExpiryKind::Export
            | ExpiryKind::Quarantine => return Ok(()),
        };
        self.intend(job);
        self.stage.batch.del(Table::Expiry, expiry);
        if let Some(at) = later {
            self.expire_at(at, kind, key);
        }
        Ok(())
    }

    /// When it is looked at again, if it does not go now.
    fn expire_token(
        &mut self,
        now: Now,
        key: &[u8],
        view: &View,
    ) -> Result<Option<UnixMillis>, Stop> {
        let Some(token) = self.row_of::<TokenRow>(view, Table::Tokens, key)? else {
            return Ok(None);
        };
        let over = UnixMillis(token.expires_at).after(TOKEN_KEPT);
        if over > now.wall {
            return Ok(Some(over));
        }
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &token.shard)?;
        self.del_row(Table::Tokens, key);
        let newest = row.filter(|row| row.token.is_some_and(|hash| hash.0 == *key));
        if let (Some(row), Some(shard)) = (newest, ShardKey::parse(&token.shard)) {
            let after = ShardRow { token: None, ..row.clone() };
            self.put_shard(now, &shard, Some(&row), after);
        }
        Ok(None)
    }

    fn expire_nonce(
        &mut self,
        now: Now,
        key: &[u8],
        view: &View,
    ) -> Result<Option<UnixMillis>, Stop> {
        let Some(row) = self.row_of::<NonceRow>(view, Table::Nonces, key)? else {
            return Ok(None);
        };
        if let Err(at) = self.nonce_over(now, &row) {
            return Ok(Some(at));
        }
        self.del_row(Table::Nonces, key);
        self.pickup.nonces.gone(row.key);
        Ok(None)
    }

    fn expire_shard(
        &mut self,
        now: Now,
        key: &[u8],
        view: &View,
    ) -> Result<Option<UnixMillis>, Stop> {
        let row = self.row_of::<ShardRow>(view, Table::Shards, key)?;
        let Some((row, shard)) = row.filter(|row| is_final(row.state)).zip(ShardKey::parse(key))
        else {
            return Ok(None);
        };
        let over = UnixMillis(row.since).after(self.config.buffer.keep_history);
        if over > now.wall {
            return Ok(Some(over));
        }
        self.remove_shard(&shard, &row);
        Ok(None)
    }
}
