//! Every count in a ledger adds up with the rows it counts, indexes with their rows.

// Two test binaries share it, and each uses its part.
#![allow(dead_code)]

use std::collections::BTreeMap;

use consign_core::config::SuccessCondition;
use consign_core::id::{BlobNo, SegmentId, Seq, SiteNo};
use consign_core::ledger::rows::{
    BlobRow, Body, CounterRow, DeliveryRow, DoomedRow, INBOUND, IdRow, IncomingRow, MetaName,
    SegmentRow, State,
};
use consign_core::ledger::rows_upkeep::{ReceiptRow, RememberedRow};
use consign_core::ledger::{Table, codec, keys, keys_upkeep};
use consign_core::mem::MemSnapshot;
use consign_core::segment::Destinations;
use consign_core::store::Snapshot;
use consign_core::time::UnixMillis;

use crate::site::{Site, findings, recovery};

/// Rows of a table with their keys read.
fn rows<K, R>(
    snapshot: &MemSnapshot,
    table: Table,
    parse: impl Fn(&[u8]) -> Option<K>,
) -> Vec<(K, R)>
where
    R: for<'b> minicbor::Decode<'b, ()>,
{
    let mut all = Vec::new();
    snapshot
        .scan(table, &[], &mut |key, value| {
            let row = codec::decode(table, key, value).expect("a row that can be read");
            all.push((parse(key).expect("a key that can be read"), row));
            true
        })
        .unwrap();
    all
}

fn keys_of(snapshot: &MemSnapshot, table: Table) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    snapshot
        .scan(table, &[], &mut |key, _| {
            all.push(key.to_vec());
            true
        })
        .unwrap();
    all
}

fn number(key: &[u8]) -> Option<u64> {
    keys::parse_u64(key)
}

/// What an inline body is charged, written down a second time.
fn inline_charge(size: u64) -> u64 {
    match size + 24 {
        small if small <= 2016 => small,
        large => large.div_ceil(4096) * 4096,
    }
}

impl Site {
    /// Every count in the ledger adds up with the rows it counts, indexes with their rows.
    pub fn audit(&self) {
        let snapshot = self.store.snapshot();
        let segments: BTreeMap<Seq, SegmentRow> =
            rows(&snapshot, Table::Segments, |key| number(key).map(Seq)).into_iter().collect();
        self.audit_deliveries(&snapshot, &segments);
        self.audit_content(&snapshot, &segments);
        self.audit_records(&snapshot, &segments);
        assert_eq!(findings(&self.store), []);
    }

    fn audit_deliveries(&self, snapshot: &MemSnapshot, segments: &BTreeMap<Seq, SegmentRow>) {
        let mut counters = BTreeMap::<(SiteNo, u8), CounterRow>::new();
        let (mut due, mut owed, mut inflight, mut handed, mut dead) = (0, 0, 0, 0, 0);
        let mut acked = BTreeMap::<Seq, (u32, u32)>::new();
        let deliveries: Vec<((Seq, SiteNo), DeliveryRow)> =
            rows(snapshot, Table::Deliveries, keys::parse_delivery);
        for ((seq, site), row) in deliveries {
            let segment = &segments[&seq];
            for at in row.counted_as() {
                let counter = counters.entry((site, at)).or_default();
                counter.count += 1;
                counter.bytes += segment.size;
            }
            let counts = acked.entry(seq).or_default();
            counts.1 += 1;
            match row.state {
                State::Scheduled | State::Failed if row.held == Some(true) => {
                    assert!(segment.held, "held with its segment");
                    owed += 1;
                }
                State::Scheduled | State::Failed => {
                    assert!(!segment.held, "its segment is held");
                    due += 1;
                    owed += 1;
                    let key = keys::DueKey {
                        peer: site,
                        class: segment.meta.class,
                        at: UnixMillis(row.next_attempt_after),
                        id8: keys::id8(&segment.id),
                        seq,
                    };
                    assert!(snapshot.get(Table::Due, &key.key()).unwrap().is_some(), "{key:?}");
                }
                State::Inflight if row.custody.is_some() => {
                    owed += 1;
                    handed += 1;
                }
                State::Inflight => {
                    owed += 1;
                    inflight += 1;
                }
                State::Acked => counts.0 += 1,
                State::Deadletter => {
                    dead += 1;
                    let key = keys::deadletter(UnixMillis(row.since), seq, site);
                    let there = snapshot.get(Table::Deadletters, &key).unwrap();
                    assert!(there.is_some(), "dead letter of {seq} to {site}");
                }
            }
        }
        let one = self.config.success_condition == SuccessCondition::OnePeer;
        for (seq, row) in segments {
            let counts = acked.get(seq).copied().unwrap_or((0, 0));
            assert_eq!((row.acked, row.required), counts, "acks and deliveries of {seq}");
            let relayed = match row.to {
                Destinations::All if one => row.acked > 0,
                _ => row.required > 0 && row.acked == row.required,
            };
            assert_eq!(row.relayed_at.is_some(), relayed, "{seq} relayed: {row:?}");
        }
        assert_eq!(self.store.rows(Table::Due), due, "due");
        assert_eq!(self.store.rows(Table::Owed), owed, "owed");
        assert_eq!(self.store.rows(Table::Inflight), inflight, "inflight");
        assert_eq!(self.store.rows(Table::Handed), handed, "handed");
        assert_eq!(self.store.rows(Table::Deadletters), dead, "deadletters");
        assert_eq!(self.store.rows(Table::PassBack), self.owed_receipts(snapshot), "pass_back");
        for (site, state, row) in &recovery(&self.store).counters {
            if *state != INBOUND {
                let counted = counters.remove(&(*site, *state)).unwrap_or_default();
                assert_eq!(*row, counted, "counter of {site} {state}");
            }
        }
        assert!(counters.is_empty(), "not counted: {counters:?}");
    }

    /// How many keys of `pass_back` the receipts call for; each must be there.
    fn owed_receipts(&self, snapshot: &MemSnapshot) -> usize {
        let receipts: Vec<((Seq, SiteNo), ReceiptRow)> =
            rows(snapshot, Table::Receipts, keys::parse_delivery);
        let mut owed = 0;
        for ((seq, site), row) in receipts {
            for peer in row.owed_to() {
                let key = keys::pass_back(peer, seq, site);
                assert!(snapshot.get(Table::PassBack, &key).unwrap().is_some(), "{row:?}");
                owed += 1;
            }
        }
        owed
    }

    fn audit_content(&self, snapshot: &MemSnapshot, segments: &BTreeMap<Seq, SegmentRow>) {
        let mut charged = BTreeMap::<u32, CounterRow>::new();
        let mut charge = |site: u32, count: u64, bytes: u64| {
            let row = charged.entry(site).or_default();
            row.count += count;
            row.bytes += bytes;
        };
        let mut users = BTreeMap::<BlobNo, u32>::new();
        let mut inline = 0;
        for (seq, row) in segments {
            charge(row.from, 1, 0);
            match row.body {
                Body::Inline(_) => {
                    inline += 1;
                    charge(row.from, 0, inline_charge(row.size));
                }
                Body::Blob(blob) => {
                    *users.entry(blob).or_default() += 1;
                    let owner = keys_upkeep::owner(blob, &keys_upkeep::Owner::Segment(*seq));
                    let there = snapshot.get(Table::Owners, &owner).unwrap();
                    assert!(there.is_some(), "{seq} owns {blob}");
                }
            }
        }
        assert!(self.store.rows(Table::Bodies) <= inline, "bodies without segments");
        assert_eq!(self.store.rows(Table::Owners), users.values().sum::<u32>() as usize, "owners");
        let blobs: Vec<(u64, BlobRow)> = rows(snapshot, Table::Blobs, number);
        for (blob, row) in &blobs {
            assert_eq!(Some(&row.refs), users.get(&BlobNo(*blob)), "uses of {blob}");
            charge(row.owner.unwrap_or(0), 0, row.size);
        }
        assert_eq!(blobs.len(), users.len(), "content files in use");
        for (_, row) in rows::<_, IncomingRow>(snapshot, Table::Incoming, number) {
            charge(row.source, 0, row.reserved);
        }
        for (_, row) in rows::<_, DoomedRow>(snapshot, Table::Doomed, number) {
            charge(row.owner, 0, row.size);
        }
        let recovery = recovery(&self.store);
        let used = recovery.meta_value(MetaName::UsedBytes);
        assert_eq!(used, charged.values().map(|row| row.bytes).sum::<u64>(), "bytes charged");
        assert_eq!(recovery.meta_value(MetaName::Segments), segments.len() as u64);
        charged.remove(&0);
        for (site, state, row) in &recovery.counters {
            if *state == INBOUND {
                let counted = charged.remove(&site.0).unwrap_or_default();
                assert_eq!(*row, counted, "charged for {site}");
            }
        }
        charged.retain(|_, row| *row != CounterRow::default());
        assert!(charged.is_empty(), "not charged: {charged:?}");
    }

    /// What is kept beside segments: ids, memory of evicted ones, the record of acts.
    fn audit_records(&self, snapshot: &MemSnapshot, segments: &BTreeMap<Seq, SegmentRow>) {
        let id = |key: &[u8]| <[u8; 32]>::try_from(key).ok().map(SegmentId);
        for (id, IdRow { seq }) in rows(snapshot, Table::Ids, id) {
            let leads = segments.get(&seq).map(|row| row.id);
            assert_eq!(leads, Some(id), "where the id of {seq} leads");
        }
        let unmet = segments.iter().filter(|(_, row)| row.relayed_at.is_none());
        let mut unmet: Vec<Vec<u8>> = unmet
            .map(|(seq, row)| keys::unmet(UnixMillis(row.accepted_at), *seq).to_vec())
            .collect();
        unmet.sort();
        for key in keys_of(snapshot, Table::Unmet) {
            assert!(unmet.contains(&key), "an unmet entry of nothing");
        }
        let remembered: Vec<(SegmentId, RememberedRow)> = rows(snapshot, Table::Remembered, id);
        let mut ages: Vec<Vec<u8>> = remembered
            .iter()
            .map(|(id, row)| keys_upkeep::remembered_age(UnixMillis(row.evicted_at), id).to_vec())
            .collect();
        ages.sort();
        assert_eq!(keys_of(snapshot, Table::RememberedAge), ages, "remembered by age");
        let recovery = recovery(&self.store);
        assert_eq!(recovery.meta_value(MetaName::Remembered), ages.len() as u64, "remembered");
        let audit = self.store.rows(Table::Audit) as u64;
        assert_eq!(recovery.meta_value(MetaName::AuditRows), audit, "audit records");
    }
}
