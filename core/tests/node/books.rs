//! What must add up in the ledger of a site, at any time.

use std::collections::BTreeMap;

use consign_core::id::{Seq, SiteNo};
use consign_core::ledger::check::{self, Finding, Watch};
use consign_core::ledger::rows::{CounterRow, DeliveryRow, MetaName, SegmentRow, State};
use consign_core::ledger::rows_upkeep::ReceiptRow;
use consign_core::ledger::{Table, codec, keys};
use consign_core::mem::MemStore;
use consign_core::store::Snapshot;
use consign_core::time::UnixMillis;

use super::{START, Site, recovery};

impl Site {
    /// How many keys of `pass_back` the receipts call for; each must be there.
    fn owed_receipts(&self) -> usize {
        let (snapshot, mut owed) = (self.store.snapshot(), 0);
        let mut visit = |key: &[u8], value: &[u8]| {
            let row: ReceiptRow = codec::decode(Table::Receipts, key, value).unwrap();
            let (seq, site) = keys::parse_delivery(key).unwrap();
            for peer in row.owed_to() {
                let key = keys::pass_back(peer, seq, site);
                assert!(snapshot.get(Table::PassBack, &key).unwrap().is_some(), "{row:?}");
                owed += 1;
            }
            true
        };
        snapshot.scan(Table::Receipts, &[], &mut visit).unwrap();
        owed
    }

    /// Every count in the ledger adds up with the rows it counts, indexes with their rows.
    pub fn audit(&self) {
        let snapshot = self.store.snapshot();
        let mut counters = BTreeMap::<(SiteNo, u8), CounterRow>::new();
        let (mut due, mut owed, mut inflight, mut handed) = (0, 0, 0, 0);
        let mut sizes = BTreeMap::new();
        snapshot
            .scan(Table::Segments, &[], &mut |key, value| {
                let row: SegmentRow = codec::decode(Table::Segments, key, value).unwrap();
                sizes.insert(Seq(keys::parse_u64(key).unwrap()), row);
                true
            })
            .unwrap();
        let mut acked = BTreeMap::<Seq, u32>::new();
        snapshot
            .scan(Table::Deliveries, &[], &mut |key, value| {
                let row: DeliveryRow = codec::decode(Table::Deliveries, key, value).unwrap();
                let (seq, site) = keys::parse_delivery(key).unwrap();
                let segment = &sizes[&seq];
                let counter = counters.entry((site, row.state as u8)).or_default();
                counter.count += 1;
                counter.bytes += segment.size;
                match row.state {
                    State::Scheduled | State::Failed => {
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
                    State::Acked => *acked.entry(seq).or_default() += 1,
                    State::Deadletter => {}
                }
                true
            })
            .unwrap();
        for (seq, row) in &sizes {
            assert_eq!(row.acked, acked.get(seq).copied().unwrap_or(0), "acks of {seq}");
            assert_eq!(row.relayed_at.is_some(), row.required > 0 && row.acked == row.required);
        }
        assert_eq!(self.store.rows(Table::Due), due, "due");
        assert_eq!(self.store.rows(Table::Owed), owed, "owed");
        assert_eq!(self.store.rows(Table::Inflight), inflight, "inflight");
        assert_eq!(self.store.rows(Table::Handed), handed, "handed");
        assert_eq!(self.store.rows(Table::PassBack), self.owed_receipts(), "pass_back");
        let recovery = recovery(&self.store);
        for (site, state, row) in &recovery.counters {
            let counted = counters.remove(&(*site, *state)).unwrap_or_default();
            assert_eq!(*row, counted, "counter of {site} {state}");
        }
        assert!(counters.is_empty(), "not counted: {counters:?}");
        let segments = recovery.meta_value(MetaName::Segments);
        assert_eq!(segments, sizes.len() as u64);
        assert_eq!(findings(&self.store), []);
    }
}

/// What `fsck` finds in the ledger.
pub fn findings(store: &MemStore) -> Vec<Finding> {
    struct All(Vec<Finding>);
    impl Watch for All {
        fn found(&mut self, finding: Finding) {
            self.0.push(finding);
        }
        fn read(&mut self, _: Table, _: u64) {}
    }
    let mut all = All(Vec::new());
    check::check(&store.snapshot(), UnixMillis(START), &[], &mut all).unwrap();
    all.0
}
