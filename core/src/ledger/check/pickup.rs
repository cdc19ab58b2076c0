//! Shards: their indexes, their content, and the tokens for them.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Check, Fix, Look, Rule};
use crate::id::BlobNo;
use crate::ledger::keys_pickup::{self, ShardKey, parse_by_node, parse_shard_deadline};
use crate::ledger::keys_upkeep::{self, ExpiryKind, Owner};
use crate::ledger::read;
use crate::ledger::rows::{BlobRow, Body, IncomingRow, Loss, MetaName};
use crate::ledger::rows_pickup::{ShardRow, ShardState, TokenRow};
use crate::ledger::{Table, keys};
use crate::pickup::state::{is_final, owns_bytes};
use crate::store::{Snapshot, StoreFault};
use crate::time::UnixMillis;

/// How much longer than its time a token's row is kept.
const TOKEN_KEPT: Duration = Duration::from_secs(24 * 3600);

impl Check<'_> {
    pub(super) fn shards(&mut self) {
        self.each(Table::Shards, &[], &mut |check, key, value| {
            let Some(row) = check.readable::<ShardRow>(Table::Shards, key, value) else { return };
            let Some(shard) = ShardKey::parse(key) else { return };
            check.sums.gives(MetaName::NextRedemption, row.redemption);
            check.sums.charge(0, row.reserved);
            let held = if owns_bytes(row.state) { row.size.unwrap_or(0) } else { row.reserved };
            check.sums.shard(row.state, 1, held);
            check.buffer(row.buffer, row.size.unwrap_or(0));
            if let Some(blob) = row.incoming {
                check.partials.insert(blob.0);
            }
            check.its_indexes(&shard, &row);
            if let Some(what) = check.unlike_its_state(&shard, &row) {
                let text = format!("a shard in state {} {what}", row.state);
                let fixes = given_up(check.at, &shard, &row);
                check.found(Rule::Shard, Table::Shards, key, text, fixes);
            }
        });
        self.each(Table::ByNode, &[], &mut |check, key, value| {
            if !check.key_is_good(Table::ByNode, key, value) {
                return;
            }
            let row = parse_by_node(key).and_then(|shard| check.shard(&shard));
            if row.is_none_or(|row| row.state != ShardState::RelayBuffered) {
                check.leads_astray(
                    Table::ByNode,
                    key,
                    "a node is not owed a shard that it has here",
                );
            }
        });
        self.each(Table::ShardDeadlines, &[], &mut |check, key, value| {
            if !check.key_is_good(Table::ShardDeadlines, key, value) {
                return;
            }
            let Some((at, shard)) = parse_shard_deadline(key) else { return };
            if check.shard(&shard).is_none_or(|row| row.deadline != at.0) {
                check.leads_astray(Table::ShardDeadlines, key, "a deadline is not its shard's");
            }
        });
        self.tokens();
    }

    fn tokens(&mut self) {
        self.each(Table::Tokens, &[], &mut |check, key, value| {
            let Some(row) = check.readable::<TokenRow>(Table::Tokens, key, value) else { return };
            check.sums.gives(MetaName::NextRedemption, row.redemption);
            let at = UnixMillis(row.expires_at).after(TOKEN_KEPT);
            let expiry = keys_upkeep::expiry(at, ExpiryKind::Token, key);
            check.need(Table::Expiry, &expiry, "a token");
        });
    }

    fn shard(&mut self, shard: &ShardKey) -> Option<ShardRow> {
        self.look::<ShardRow>(Table::Shards, &shard.key()).row()
    }

    fn leads_astray(&mut self, table: Table, key: &[u8], text: &str) {
        self.found(Rule::IndexAstray, table, key, text.into(), vec![Fix::del(table, key)]);
    }

    fn its_indexes(&mut self, shard: &ShardKey, row: &ShardRow) {
        if row.state == ShardState::RelayBuffered {
            self.need(Table::ByNode, &keys_pickup::by_node(shard), "a shard that is owed");
        }
        if row.deadline != 0 {
            let key = keys_pickup::shard_deadline(UnixMillis(row.deadline), shard);
            self.need(Table::ShardDeadlines, &key, "a shard with a deadline");
        }
        if let Some(Body::Blob(blob)) = row.buffer {
            let owner = keys_upkeep::owner(blob, &Owner::Shard(shard.clone()));
            self.need(Table::Owners, &owner, "a shard with a file");
        }
    }

    /// What of the row does not fit its state; what can be made again is found on the way.
    fn unlike_its_state(&mut self, shard: &ShardKey, row: &ShardRow) -> Option<String> {
        let owns = owns_bytes(row.state);
        if owns != row.buffer.is_some() {
            return Some(if owns { "has no content" } else { "still has its content" }.into());
        }
        if (row.deadline == 0) != is_final(row.state) {
            return Some(if row.deadline == 0 { "has no deadline" } else { "has one" }.into());
        }
        let uploads = row.state == ShardState::Uploading;
        if uploads != row.incoming.is_some() {
            return Some(format!("has incoming content {:?}", row.incoming));
        }
        if let Some(blob) = row.incoming {
            let partial = self.look::<IncomingRow>(Table::Incoming, &keys::blob(blob));
            if matches!(partial, Look::Nothing) {
                return Some(format!("has partial content {blob}, which is not there"));
            }
        }
        match row.buffer {
            None => None,
            Some(Body::Inline(number)) => {
                self.sums.gives(MetaName::NextBody, number.0);
                let snapshot = self.snapshot;
                let body = self.failed(snapshot.get(Table::Bodies, &keys::body(number))).flatten();
                let len = body.map(|body| body.len() as u64);
                (len != row.size).then(|| format!("has body {number} with length {len:?}"))
            }
            Some(Body::Blob(blob)) => self.its_file(shard, row, blob),
        }
    }

    fn its_file(&mut self, shard: &ShardKey, row: &ShardRow, blob: BlobNo) -> Option<String> {
        let key = keys::blob(blob);
        let (Some(size), Some(digest)) = (row.size, row.blake3) else {
            return Some("has a file and no digest".into());
        };
        match self.look::<BlobRow>(Table::Blobs, &key) {
            Look::Row(found) if found.digest == digest && found.size == size => None,
            Look::Row(_) => Some(format!("has blob {blob}, which is something else")),
            Look::Nothing | Look::Bad => {
                let made = BlobRow { digest, size, refs: 1, owner: None };
                let text = format!("blob {blob}, content of shard {}, has no row", shard.file_id());
                let fixes = vec![Fix::put(Table::Blobs, &key, &made)];
                self.found(Rule::IndexMissing, Table::Blobs, &key, text, fixes);
                None
            }
        }
    }
}

/// The content of a shard is wrong or gone: given up as the node does when it finds that out, so that it is
/// uploaded again. What it had is found as nobody's by the next look at rows. Nothing for a shard that does
/// not have this content any more, or that its node has.
///
/// # Errors
/// When the store cannot be read.
pub fn lose_shard(
    snapshot: &dyn Snapshot,
    shard: &ShardKey,
    body: Body,
    loss: Loss,
    at: UnixMillis,
) -> Result<Vec<Fix>, StoreFault> {
    let row: Option<ShardRow> = read::lenient(snapshot, Table::Shards, &shard.key())?;
    let waits = |row: &ShardRow| {
        matches!(row.state, ShardState::RelayBuffered | ShardState::NodeReceiving)
            && row.buffer == Some(body)
    };
    let Some(row) = row.filter(waits) else { return Ok(Vec::new()) };
    let reason = loss.cause().word().into();
    Ok(given_up(at, shard, &ShardRow { loss: Some(loss), reason, since: at.0, ..row }))
}

/// It cannot be what it says: RELAY_CLEANUP, so that it is sent again. What it had is found as
/// nobody's by the next look.
fn given_up(at: UnixMillis, shard: &ShardKey, row: &ShardRow) -> Vec<Fix> {
    let mut fixes = vec![Fix::del(Table::ByNode, &keys_pickup::by_node(shard))];
    if row.deadline != 0 {
        let key = keys_pickup::shard_deadline(UnixMillis(row.deadline), shard);
        fixes.push(Fix::del(Table::ShardDeadlines, &key));
    }
    if let Some(Body::Blob(blob)) = row.buffer {
        let owner = keys_upkeep::owner(blob, &Owner::Shard(shard.clone()));
        fixes.push(Fix::del(Table::Owners, &owner));
    }
    let stored = row.state == ShardState::NodeStored;
    let state = if stored { row.state } else { ShardState::RelayCleanup };
    let after =
        ShardRow { state, buffer: None, incoming: None, deadline: 0, reserved: 0, ..row.clone() };
    fixes.push(Fix::put(Table::Shards, &shard.key(), &after));
    // Upkeep asks the row how long it is kept.
    let expiry = keys_upkeep::expiry(at, ExpiryKind::Shard, &shard.key());
    fixes.push(Fix::index(Table::Expiry, &expiry));
    fixes
}
