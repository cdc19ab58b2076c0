//! Index rows that lead to nothing, or to a row that does not say so.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::lose::due;
use super::{Check, Fix, Look, Rule};
use crate::id::{Seq, SiteNo};
use crate::ledger::keys::{self, DueKey};
use crate::ledger::keys_upkeep::{Owner, parse_owner, parse_remembered_age};
use crate::ledger::rows::{
    BlobRow, Body, DeadletterRow, DeliveryRow, DigestRow, IdRow, InflightRow, Loss, MetaName,
    SegmentRow, State,
};
use crate::ledger::rows_pickup::ShardRow;
use crate::ledger::rows_upkeep::RememberedRow;
use crate::ledger::{Table, codec, keys_pickup};

impl Check<'_> {
    pub(super) fn indexes(&mut self) {
        self.ids();
        for table in [Table::Due, Table::Owed, Table::Inflight, Table::Handed] {
            self.each(table, &[], &mut |check, key, value| check.pointer(table, key, value));
        }
        self.dead_letters();
        self.unmet();
        self.owners();
        self.digests();
        self.remembered_ages();
    }

    fn remembered_ages(&mut self) {
        self.each(Table::RememberedAge, &[], &mut |check, key, value| {
            if !check.key_is_good(Table::RememberedAge, key, value) {
                return;
            }
            let Some((at, id)) = parse_remembered_age(key) else { return };
            let row = check.look::<RememberedRow>(Table::Remembered, &keys::id(&id)).row();
            if row.is_none_or(|row| row.evicted_at != at.0) {
                let text = format!("segment {id} is remembered by age and otherwise is not");
                check.astray(Table::RememberedAge, key, text);
            }
        });
    }

    fn astray(&mut self, table: Table, key: &[u8], text: String) {
        self.found(Rule::IndexAstray, table, key, text, vec![Fix::del(table, key)]);
    }

    fn ids(&mut self) {
        self.each(Table::Ids, &[], &mut |check, key, value| {
            let Some(id) = check.readable::<IdRow>(Table::Ids, key, value) else { return };
            let segment = check.look::<SegmentRow>(Table::Segments, &keys::seq(id.seq)).row();
            let right = segment.is_some_and(|s| s.id.0 == *key && s.loss != Some(Loss::Gone));
            if !right {
                check.astray(Table::Ids, key, format!("an id leads to segment {}", id.seq));
            }
        });
    }

    /// A row that names a delivery.
    fn pointer(&mut self, table: Table, key: &[u8], value: &[u8]) {
        let readable = self.key_is_good(table, key, value);
        if table == Table::Inflight {
            let row = codec::decode::<InflightRow>(table, key, value);
            self.sums.gives(MetaName::Boot, row.map_or(0, |row| row.epoch.boot));
        }
        let due_key = DueKey::parse(key).filter(|_| table == Table::Due);
        let pair = due_key.map(|d| (d.peer, d.seq)).or_else(|| keys::parse_peer_seq(key));
        let Some((site, seq)) = pair.filter(|_| readable) else { return };
        let segment = match self.look::<SegmentRow>(Table::Segments, &keys::seq(seq)) {
            Look::Row(segment) => segment,
            Look::Nothing | Look::Bad => {
                let text = format!("a row of {table} leads to segment {seq}, which is not there");
                return self.astray(table, key, text);
            }
        };
        match self.look::<DeliveryRow>(Table::Deliveries, &keys::delivery(seq, site)) {
            Look::Row(row) => {
                if !points_right(table, due_key, seq, site, &row, &segment) {
                    let text = format!(
                        "a row of {table} leads to the delivery of segment {seq} to site number \
                         {site}, which is not so"
                    );
                    self.astray(table, key, text);
                }
            }
            // It is found, and begins anew, where its table is read.
            Look::Bad => {}
            Look::Nothing => self.delivery_lost(table, key, seq, site, &segment),
        }
    }

    fn delivery_lost(
        &mut self,
        table: Table,
        key: &[u8],
        seq: Seq,
        site: SiteNo,
        segment: &SegmentRow,
    ) {
        self.unknown_peer(site);
        let mut fixes: Vec<Fix> = vec![Fix::del(table, key)];
        fixes.extend(self.anew(seq, site, segment));
        let text = format!("the delivery of segment {seq} to site number {site} has no row");
        self.found(Rule::DeliveryLost, table, key, text, fixes);
    }

    fn dead_letters(&mut self) {
        let table = Table::Deadletters;
        self.each(table, &[], &mut |check, key, value| {
            if check.readable::<DeadletterRow>(table, key, value).is_none() {
                return;
            }
            let mut rest = key;
            let Some(at) = keys::take(&mut rest).map(u64::from_be_bytes) else { return };
            let Some((seq, site)) = keys::parse_delivery(rest) else { return };
            let row = check.look::<DeliveryRow>(Table::Deliveries, rest).row();
            let right = row.is_some_and(|r| r.state == State::Deadletter && r.since == at);
            if !right {
                let text = format!("no dead letter of segment {seq} to site number {site} is so");
                check.astray(table, key, text);
            }
        });
    }

    fn unmet(&mut self) {
        self.each(Table::Unmet, &[], &mut |check, key, value| {
            if !check.key_is_good(Table::Unmet, key, value) {
                return;
            }
            let mut rest = key;
            let at = keys::take(&mut rest).map(u64::from_be_bytes);
            let Some(seq) = keys::parse_u64(rest).map(Seq) else { return };
            let row = check.look::<SegmentRow>(Table::Segments, rest).row();
            let right = row.is_some_and(|r| r.relayed_at.is_none() && Some(r.accepted_at) == at);
            if !right {
                check.astray(Table::Unmet, key, format!("segment {seq} is not unmet"));
            }
        });
    }

    fn owners(&mut self) {
        self.each(Table::Owners, &[], &mut |check, key, value| {
            if !check.key_is_good(Table::Owners, key, value) {
                return;
            }
            let Some((blob, owner)) = parse_owner(key) else { return };
            let own = Some(Body::Blob(blob));
            let right = match owner {
                Owner::Segment(seq) => {
                    let row = check.look::<SegmentRow>(Table::Segments, &keys::seq(seq)).row();
                    row.map(|row| row.body) == own
                }
                Owner::Shard(shard) => {
                    let key: keys_pickup::LongKey = shard.key();
                    let row = check.look::<ShardRow>(Table::Shards, &key).row();
                    row.and_then(|row| row.buffer) == own
                }
            };
            if !right {
                let text = format!("blob {blob} is not the content of an owner it names");
                check.astray(Table::Owners, key, text);
            }
        });
    }

    fn digests(&mut self) {
        self.each(Table::Digests, &[], &mut |check, key, value| {
            let Some(row) = check.readable::<DigestRow>(Table::Digests, key, value) else { return };
            let blob = check.look::<BlobRow>(Table::Blobs, &keys::blob(row.blob)).row();
            if blob.is_none_or(|blob| blob.digest.0 != *key) {
                let text = format!("a digest leads to blob {}, which is not so", row.blob);
                check.astray(Table::Digests, key, text);
            }
        });
    }
}

fn points_right(
    table: Table,
    due_key: Option<DueKey>,
    seq: Seq,
    site: SiteNo,
    row: &DeliveryRow,
    segment: &SegmentRow,
) -> bool {
    let waits = matches!(row.state, State::Scheduled | State::Failed);
    let flies = row.state == State::Inflight;
    if table == Table::Due {
        let here = due_key == Some(due(site, seq, row, segment));
        return waits && row.held != Some(true) && here;
    }
    let owed = table == Table::Owed && waits;
    let handed = table != Table::Handed || row.custody.is_some();
    owed || (flies && handed)
}
