//! Rows as the model knows them: which row a key means, and what its value says.

use consign_core::id::{BlobDigest, BlobNo, BodyNo, Epoch, SegmentId, Seq, SiteNo};
use consign_core::ledger::keys::{DueKey, take};
use consign_core::ledger::keys_upkeep::{Owner, RuleId, parse_export, parse_owner};
use consign_core::ledger::rows::{
    BlobRow, CounterRow, DeadletterRow, DeliveryRow, DigestRow, DoomedRow, IdRow, IncomingRow,
    InflightRow, MetaName, MetaRow, PeerRow, SegmentRow, SourceRow,
};
use consign_core::ledger::rows_upkeep::{
    AuditRow, ExportRow, QuarantineRow, ReceiptRow, RememberedRow,
};
use consign_core::ledger::{Table, codec};

use super::shards;

/// What a body in the ledger holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inline {
    pub size: u64,
    pub digest: BlobDigest,
}

impl Inline {
    pub fn of(bytes: &[u8]) -> Inline {
        Inline { size: bytes.len() as u64, digest: BlobDigest(*blake3::hash(bytes).as_bytes()) }
    }

    /// What it is charged: a short value shares a page of 4 KiB with others, a longer one takes whole
    /// pages; 24 bytes are its key and header, and a value shares a page while two fit beside 32 bytes.
    pub fn charge(&self) -> u64 {
        let value = self.size + 24;
        if 2 * (value + 32) <= 4096 { value } else { 4096 * value.div_ceil(4096) }
    }
}

/// Which row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Meta(MetaName),
    Peer(SiteNo),
    Segment(Seq),
    Id(SegmentId),
    Body(BodyNo),
    Blob(BlobNo),
    Digest(BlobDigest),
    Delivery(Seq, SiteNo),
    Due(DueKey),
    Owed(SiteNo, Seq),
    Inflight(SiteNo, Seq),
    Deadletter(u64, Seq, SiteNo),
    Expiry(Vec<u8>),
    Doomed(BlobNo),
    Incoming(BlobNo),
    Counter(SiteNo, u8),
    Unmet(u64, Seq),
    Owner(BlobNo, Seq),
    Source(BlobDigest, SiteNo),
    Audit(u64),
    Handed(SiteNo, Seq),
    Receipt(Seq, SiteNo),
    PassBack(SiteNo, Seq, SiteNo),
    Remembered(SegmentId),
    RememberedAge(u64, SegmentId),
    Export(RuleId, Seq),
    Quarantine(Vec<u8>),
    Pickup(shards::Name),
    /// A row of a part that is not modelled.
    Foreign,
}

/// A row with its key.
#[derive(Clone, Debug)]
pub(super) enum Row {
    Meta(MetaName, u64),
    Peer(SiteNo, String),
    Segment(Seq, Box<SegmentRow>),
    Id(SegmentId, Seq),
    Body(BodyNo, Inline),
    Blob(BlobNo, BlobRow),
    Digest(BlobDigest, BlobNo),
    Delivery(Seq, SiteNo, DeliveryRow),
    Due(DueKey),
    Owed(SiteNo, Seq),
    Inflight(SiteNo, Seq, Epoch),
    Deadletter(u64, Seq, SiteNo, u8),
    Expiry(Vec<u8>),
    Doomed(BlobNo, DoomedRow),
    Incoming(BlobNo, IncomingRow),
    Counter(SiteNo, u8, CounterRow),
    Unmet(u64, Seq),
    Owner(BlobNo, Seq),
    Source(BlobDigest, SiteNo, SourceRow),
    Audit(u64, Box<AuditRow>),
    Handed(SiteNo, Seq),
    Receipt(Seq, SiteNo, Box<ReceiptRow>),
    PassBack(SiteNo, Seq, SiteNo),
    Remembered(SegmentId, Box<RememberedRow>),
    RememberedAge(u64, SegmentId),
    Export(RuleId, Seq, Box<ExportRow>),
    Quarantine(Vec<u8>, Box<QuarantineRow>),
    Pickup(shards::Row),
    Foreign,
}

fn number32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_be_bytes)
}

fn number64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_be_bytes)
}

/// Which row a key means.
pub(super) fn name(table: Table, key: &[u8]) -> Option<Name> {
    let mut rest = key;
    let r = &mut rest;
    let name = match table {
        Table::Meta => {
            let known = MetaName::ALL.into_iter().find(|name| name.key() == key);
            return known.map(Name::Meta);
        }
        Table::Peers => Name::Peer(SiteNo(number32(r)?)),
        Table::Segments => Name::Segment(Seq(number64(r)?)),
        Table::Ids => Name::Id(SegmentId(take(r)?)),
        Table::Bodies => Name::Body(BodyNo(number64(r)?)),
        Table::Blobs => Name::Blob(BlobNo(number64(r)?)),
        Table::Digests => Name::Digest(BlobDigest(take(r)?)),
        Table::Deliveries => Name::Delivery(Seq(number64(r)?), SiteNo(number32(r)?)),
        Table::Due => return DueKey::parse(key).map(Name::Due),
        Table::Owed => Name::Owed(SiteNo(number32(r)?), Seq(number64(r)?)),
        Table::Inflight => Name::Inflight(SiteNo(number32(r)?), Seq(number64(r)?)),
        Table::Deadletters => {
            Name::Deadletter(number64(r)?, Seq(number64(r)?), SiteNo(number32(r)?))
        }
        Table::Expiry => return Some(Name::Expiry(key.to_vec())),
        Table::Doomed => Name::Doomed(BlobNo(number64(r)?)),
        Table::Incoming => Name::Incoming(BlobNo(number64(r)?)),
        Table::Counters => {
            let site = SiteNo(number32(r)?);
            let [state] = take::<1>(r)?;
            Name::Counter(site, state)
        }
        Table::Unmet => Name::Unmet(number64(r)?, Seq(number64(r)?)),
        Table::Owners => {
            return Some(match parse_owner(key)? {
                (blob, Owner::Segment(seq)) => Name::Owner(blob, seq),
                (blob, Owner::Shard(shard)) => Name::Pickup(shards::Name::Owner(blob, shard)),
            });
        }
        Table::Sources => Name::Source(BlobDigest(take(r)?), SiteNo(number32(r)?)),
        Table::Audit => Name::Audit(number64(r)?),
        Table::Handed => Name::Handed(SiteNo(number32(r)?), Seq(number64(r)?)),
        Table::PassBack => {
            Name::PassBack(SiteNo(number32(r)?), Seq(number64(r)?), SiteNo(number32(r)?))
        }
        Table::Receipts => Name::Receipt(Seq(number64(r)?), SiteNo(number32(r)?)),
        Table::Remembered => Name::Remembered(SegmentId(take(r)?)),
        Table::RememberedAge => Name::RememberedAge(number64(r)?, SegmentId(take(r)?)),
        Table::Exports => return parse_export(key).map(|(rule, seq)| Name::Export(rule, seq)),
        Table::Quarantine => return Some(Name::Quarantine(key.to_vec())),
        Table::Shards
        | Table::ByNode
        | Table::ShardDeadlines
        | Table::Tokens
        | Table::Nonces
        | Table::Nodes
        | Table::Clients => return shards::name(table, key).map(Name::Pickup),
        Table::Watched => return Some(Name::Foreign),
    };
    rest.is_empty().then_some(name)
}

/// Reads a row.
///
/// # Errors
/// What is wrong with it, for people.
pub(super) fn row(table: Table, key: &[u8], value: &[u8]) -> Result<Row, String> {
    let name = name(table, key).ok_or_else(|| format!("{table} has a key it cannot have"))?;
    macro_rules! value {
        ($row:ty) => {
            codec::decode::<$row>(table, key, value).map_err(|fault| fault.to_string())?
        };
    }
    let row = match name {
        Name::Meta(name) => Row::Meta(name, value!(MetaRow).value),
        Name::Peer(site) => Row::Peer(site, value!(PeerRow).name),
        Name::Segment(seq) => Row::Segment(seq, Box::new(value!(SegmentRow))),
        Name::Id(id) => Row::Id(id, value!(IdRow).seq),
        Name::Body(body) => Row::Body(body, Inline::of(value)),
        Name::Blob(blob) => Row::Blob(blob, value!(BlobRow)),
        Name::Digest(digest) => Row::Digest(digest, value!(DigestRow).blob),
        Name::Delivery(seq, site) => Row::Delivery(seq, site, value!(DeliveryRow)),
        Name::Due(key) => Row::Due(key),
        Name::Owed(site, seq) => Row::Owed(site, seq),
        Name::Inflight(site, seq) => Row::Inflight(site, seq, value!(InflightRow).epoch),
        Name::Deadletter(at, seq, site) => {
            Row::Deadletter(at, seq, site, value!(DeadletterRow).cause)
        }
        Name::Expiry(key) => Row::Expiry(key),
        Name::Doomed(blob) => Row::Doomed(blob, value!(DoomedRow)),
        Name::Incoming(blob) => Row::Incoming(blob, value!(IncomingRow)),
        Name::Counter(site, state) => Row::Counter(site, state, value!(CounterRow)),
        Name::Unmet(at, seq) => Row::Unmet(at, seq),
        Name::Owner(blob, seq) => Row::Owner(blob, seq),
        Name::Source(digest, site) => Row::Source(digest, site, value!(SourceRow)),
        Name::Audit(number) => Row::Audit(number, Box::new(value!(AuditRow))),
        Name::Handed(site, seq) => Row::Handed(site, seq),
        Name::Receipt(seq, site) => Row::Receipt(seq, site, Box::new(value!(ReceiptRow))),
        Name::PassBack(peer, seq, site) => Row::PassBack(peer, seq, site),
        Name::Remembered(id) => Row::Remembered(id, Box::new(value!(RememberedRow))),
        Name::RememberedAge(at, id) => Row::RememberedAge(at, id),
        Name::Export(rule, seq) => Row::Export(rule, seq, Box::new(value!(ExportRow))),
        Name::Quarantine(what) => Row::Quarantine(what, Box::new(value!(QuarantineRow))),
        Name::Pickup(name) => Row::Pickup(shards::row(name, table, key, value)?),
        Name::Foreign => Row::Foreign,
    };
    Ok(row)
}
