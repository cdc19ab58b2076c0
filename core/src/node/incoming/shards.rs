//! Partial content of shards: reserved, checkpointed and given up like any other, but who writes it and
//! how long it waits is the business of its shard.

use alloc::vec::Vec;

use super::{Item, UNKNOWN};
use crate::id::{BlobNo, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::rows::{DoomedRow, IncomingRow};
use crate::ledger::rows_pickup::ShardState;
use crate::node::Node;

impl Node {
    /// Reserves a file for a shard.
    pub(in crate::node) fn reserve_shard(&mut self, reserved: u64) -> BlobNo {
        let blob = self.stage.next_blob();
        let row = IncomingRow {
            digest: UNKNOWN,
            source: 0,
            reserved,
            offset: 0,
            chain: Vec::new(),
            // Its shard has a deadline of its own.
            expires_at: u64::MAX,
            shard: Some(true),
        };
        self.stage.batch.put(Table::Incoming, &keys::blob(blob), &row);
        self.stage.charge(SiteNo(0), reserved);
        self.stage.shards(ShardState::Uploading, |c| c.bytes = c.bytes.saturating_add(reserved));
        self.incoming.items.insert(blob, Item::waiting(row, 0));
        blob
    }

    /// Content on its way in.
    pub(in crate::node) fn partial(&self, blob: BlobNo) -> Option<&IncomingRow> {
        self.incoming.items.get(&blob).map(|item| &item.row)
    }

    /// More is reserved.
    pub(in crate::node) fn extend_shard(&mut self, blob: BlobNo, reserved: u64) {
        let Some(item) = self.incoming.items.get_mut(&blob) else { return };
        let more = reserved.saturating_sub(item.row.reserved);
        item.row.reserved = item.row.reserved.saturating_add(more);
        let shard = item.row.shard.is_some();
        self.stage.batch.put(Table::Incoming, &keys::blob(blob), &item.row);
        self.stage.charge(SiteNo(0), more);
        if shard {
            self.stage.shards(ShardState::Uploading, |c| c.bytes = c.bytes.saturating_add(more));
        }
    }

    /// It is durable up to here.
    pub(in crate::node) fn checkpoint_shard(&mut self, blob: BlobNo, offset: u64, chain: Vec<u8>) {
        let Some(item) = self.incoming.items.get_mut(&blob) else { return };
        if offset <= item.row.offset {
            return;
        }
        item.row.offset = offset;
        item.row.chain = chain;
        self.stage.batch.put(Table::Incoming, &keys::blob(blob), &item.row);
    }

    /// A finished file becomes a shard's content: its reservation turns into its size.
    pub(in crate::node) fn close_shard(&mut self, blob: BlobNo, size: u64) {
        if let Some(reserved) = self.forget_shard(blob) {
            self.stage.uncharge(SiteNo(0), reserved);
            self.stage.charge(SiteNo(0), size);
        }
    }

    /// It is given up: doomed, and charged until it is gone. Whoever gives it up keeps the intent.
    pub(in crate::node) fn doom_shard(&mut self, blob: BlobNo) {
        if let Some(reserved) = self.forget_shard(blob) {
            self.doom(blob, DoomedRow::new(reserved, 0));
        }
    }

    fn forget_shard(&mut self, blob: BlobNo) -> Option<u64> {
        let item = self.incoming.items.remove(&blob)?;
        self.stage.batch.del(Table::Incoming, &keys::blob(blob));
        let reserved = item.row.reserved;
        if item.row.shard.is_some() {
            self.stage.shards(ShardState::Uploading, |c| {
                c.bytes = c.bytes.saturating_sub(reserved);
            });
        }
        Some(reserved)
    }
}
