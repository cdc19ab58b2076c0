//! Every rule about the ledger sees what it is for, and what can be mended is: on a ledger that a node
//! has made, each row is damaged or taken away in turn.

use std::collections::BTreeSet;
use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::id::{BatchNo, BlobNo, Seq, SiteNo};
use consign_core::ledger::check::{self, Finding, Mender, Rule, Watch};
use consign_core::ledger::rows::*;
use consign_core::ledger::{Table, codec, keys};
use consign_core::mem::MemStore;
use consign_core::node::Input;
use consign_core::session::{Broken, Outcome, SessionEvent};
use consign_core::store::{Batch, Snapshot, StoreRequest};
use consign_core::time::UnixMillis;
use quickcheck::{Arbitrary, Gen, QuickCheck};

use crate::site::{self, Site, findings};

/// A ledger with something in every table that a node fills, at rest.
fn rich() -> Site {
    let mut site = Site::new(&["beta", "gamma", "delta"]);
    site.settle();
    let beta = site.session("beta");
    site.settle();
    let acked = site.queue("acked", &["beta"]);
    let dead = site.queue("dead", &["beta", "gamma"]);
    let failed = site.queue("failed", &["beta", "delta"]);
    let flying = site.queue("flying", &["beta"]);
    site.queue("waiting", &["gamma", "delta"]);
    site.queue("everywhere", &["*"]);
    for (conn, sending) in site.sendings() {
        let (transfer, id) = (sending.offer.transfer, sending.offer.id);
        let outcome = match id {
            id if id == acked => Outcome::Acked,
            id if id == dead => Site::rejected(Refusal::TooLarge),
            id if id == failed => Site::rejected(Refusal::Busy),
            _ => continue,
        };
        site.outcome(conn, transfer, outcome);
    }
    site.settle();
    // A large one from beta, shared by nobody; one whose source is at a checkpoint; one that failed.
    site::offer_blob(&mut site, beta, 1, b"large content");
    site.settle();
    let (blob, ..) = site::accepted(&mut site);
    site::write(&mut site, beta, blob, 0, b"large content");
    site.store.request(beta, StoreRequest::Finish { blob });
    let transfer = consign_core::id::TransferNo(1);
    site.input(Input::Session(beta, SessionEvent::Received { transfer, blob }));
    site.settle();
    site::offer_blob(&mut site, beta, 2, b"half a content");
    site.settle();
    let (blob, ..) = site::accepted(&mut site);
    let (transfer, offset) = (consign_core::id::TransferNo(2), 16 << 20);
    let chain = vec![7; 32];
    site.input(Input::Session(beta, SessionEvent::Checkpoint { transfer, blob, offset, chain }));
    site.settle();
    site::offer_blob(&mut site, beta, 3, b"wrong content");
    site.settle();
    let (blob, ..) = site::accepted(&mut site);
    site::write(&mut site, beta, blob, 0, b"other content");
    site.fail_unlinks = 1;
    let (transfer, why) = (consign_core::id::TransferNo(3), Broken::Mismatch);
    site.input(Input::Session(beta, SessionEvent::Broken { transfer, blob, why }));
    site.settle();
    assert_eq!(site.delivery(flying, "beta").unwrap().state, State::Inflight);
    assert_eq!(findings(&site.store), []);
    site
}

/// Every row of the ledger.
fn rows(store: &MemStore) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let snapshot = store.snapshot();
    let mut all = Vec::new();
    for table in Table::ALL {
        let mut visit = |key: &[u8], value: &[u8]| {
            all.push((*table, key.to_vec(), value.to_vec()));
            true
        };
        snapshot.scan(*table, &[], &mut visit).unwrap();
    }
    all
}

/// Changes rows behind the node's back.
fn change(store: &mut MemStore, change: impl FnOnce(&mut Batch)) {
    let number = store.snapshot().as_of().0 + 1;
    let mut batch = Batch::new(BatchNo(number));
    let batch_row = store.snapshot().get(Table::Meta, MetaName::Batch.key()).unwrap().is_some();
    batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: number });
    change(&mut batch);
    assert!(batch_row);
    assert!(matches!(store.commit(&batch), Input::Committed { .. }));
}

struct Fixer {
    mender: Mender,
    batches: Vec<Batch>,
    found: usize,
}

impl Watch for Fixer {
    fn found(&mut self, finding: Finding) {
        self.found += 1;
        self.batches.extend(self.mender.add(&finding));
    }
    fn read(&mut self, _: Table, _: u64) {}
}

const AT: UnixMillis = UnixMillis(site::START + 5_000_000);

/// One pass: the batches that mend what it finds.
fn pass(store: &MemStore) -> (usize, Vec<Batch>) {
    let mender = Mender::after(store.snapshot().as_of());
    let mut fixer = Fixer { mender, batches: Vec::new(), found: 0 };
    let names = ["beta", "gamma", "delta"].map(String::from);
    check::check(&store.snapshot(), AT, &names, &mut fixer).unwrap();
    fixer.batches.extend(fixer.mender.take());
    (fixer.found, fixer.batches)
}

/// Repairs until nothing is found.
fn repair(store: &mut MemStore) {
    for _ in 0..8 {
        let (found, batches) = pass(store);
        if found == 0 {
            return;
        }
        for batch in batches {
            assert!(matches!(store.commit(&batch), Input::Committed { .. }));
        }
    }
    panic!("not mended: {:#?}", findings(store));
}

/// What is owed: (segment, site).
fn owed(store: &MemStore) -> BTreeSet<(Seq, SiteNo)> {
    let mut owed = BTreeSet::new();
    for (table, key, value) in rows(store) {
        if table != Table::Deliveries {
            continue;
        }
        let row: Result<DeliveryRow, _> = codec::decode(table, &key, &value);
        let Ok(row) = row else { continue };
        if matches!(row.state, State::Scheduled | State::Inflight | State::Failed) {
            owed.insert(keys::parse_delivery(&key).unwrap());
        }
    }
    owed
}

/// Segments whose row can be read.
fn segments(store: &MemStore) -> BTreeSet<Seq> {
    let all = rows(store).into_iter().filter(|(table, ..)| *table == Table::Segments);
    let readable = all.filter(|(t, k, v)| codec::decode::<SegmentRow>(*t, k, v).is_ok());
    readable.map(|(_, key, _)| Seq(keys::parse_u64(&key).unwrap())).collect()
}

/// After a repair: clean, nothing owed lost but of segments that are gone, and a node lives on it.
fn mended(before: &Site, mut store: MemStore, what: &str) {
    let damaged = segments(&store);
    repair(&mut store);
    let now = owed(&store);
    for (seq, peer) in owed(&before.store) {
        if !damaged.contains(&seq) {
            continue;
        }
        let key = keys::delivery(seq, peer);
        let row: DeliveryRow =
            consign_core::ledger::read::row(&store.snapshot(), Table::Deliveries, &key)
                .unwrap()
                .unwrap_or_else(|| panic!("{what}: segment {seq} is not owed to {peer} any more"));
        let dead = row.state == State::Deadletter && row.last_error == Cause::Missing.number();
        assert!(now.contains(&(seq, peer)) || dead, "{what}: {seq} to {peer} is {row:?}");
    }
    let mut site = Site::on(store, before.config.clone(), before.now);
    site.settle();
    site.wait(Duration::from_secs(3600));
    assert_eq!(site.halted, None, "{what}");
    assert_eq!(findings(&site.store), [], "{what}");
}

/// Rows whose absence nothing tells.
fn unnoticed(table: Table, key: &[u8], value: &[u8]) -> bool {
    let counter =
        || codec::decode::<CounterRow>(table, key, value).unwrap() == CounterRow::default();
    let source = || codec::decode::<SourceRow>(table, key, value).unwrap().blob.is_none();
    match table {
        Table::Counters => counter(),
        Table::Sources => source(),
        // What counts nothing may be missing, and so may numbers that nobody has asked for.
        Table::Meta => [
            MetaName::NextRedemption,
            MetaName::NextAudit,
            MetaName::Remembered,
            MetaName::AuditRows,
            MetaName::Unplaced,
            MetaName::ScrubNext,
            MetaName::ScrubDone,
            MetaName::ScrubShard,
            // Without it they are counted at the next start.
            MetaName::HeldCounted,
        ]
        .iter()
        .any(|name| key == name.key()),
        Table::Audit | Table::Peers => true,
        _ => false,
    }
}

#[test]
fn the_ledger_of_these_tests_has_every_table_of_the_relay() {
    let site = rich();
    let tables: BTreeSet<Table> = rows(&site.store).into_iter().map(|(table, ..)| table).collect();
    for table in [
        Table::Meta,
        Table::Segments,
        Table::Ids,
        Table::Bodies,
        Table::Blobs,
        Table::Digests,
        Table::Deliveries,
        Table::Due,
        Table::Owed,
        Table::Inflight,
        Table::Deadletters,
        Table::Doomed,
        Table::Incoming,
        Table::Counters,
        Table::Unmet,
        Table::Owners,
        Table::Sources,
        Table::Peers,
    ] {
        assert!(tables.contains(&table), "{table}");
    }
}

#[test]
fn a_row_that_is_gone_is_found_and_mended() {
    let site = rich();
    for (table, key, value) in rows(&site.store) {
        let mut store = site.store.clone();
        if (table, key.as_slice()) == (Table::Meta, MetaName::Batch.key()) {
            continue;
        }
        change(&mut store, |batch| batch.del(table, &key));
        let what = format!("{table} {key:?} is gone");
        assert!(!findings(&store).is_empty() || unnoticed(table, &key, &value), "{what}");
        mended(&site, store, &what);
    }
}

#[test]
fn a_flipped_bit_is_found_set_aside_and_mended() {
    let site = rich();
    for (table, key, value) in rows(&site.store) {
        if value.is_empty() || table == Table::Bodies {
            continue;
        }
        for at in [0, value.len() / 2, value.len() - 1] {
            let mut store = site.store.clone();
            assert!(store.flip(table, &key, at));
            let what = format!("byte {at} of {table} {key:?}");
            let bad: Vec<Finding> = findings(&store)
                .into_iter()
                .filter(|f| f.rule == Rule::Unreadable && f.table == table && f.key == key)
                .collect();
            assert_eq!(bad.len(), 1, "{what}: {:#?}", findings(&store));
            mended(&site, store, &what);
        }
    }
}

#[test]
fn a_row_under_another_key_is_found_and_mended() {
    let site = rich();
    for (table, key, value) in rows(&site.store) {
        for at in 0..key.len() {
            let mut other = key.clone();
            other[at] ^= 1;
            let snapshot = site.store.snapshot();
            if snapshot.get(table, &other).unwrap().is_some() || table == Table::Meta {
                continue;
            }
            let mut store = site.store.clone();
            change(&mut store, |batch| {
                batch.del(table, &key);
                batch.put_raw(table, &other, &value);
            });
            let what = format!("{table} {key:?} stands under {other:?}");
            assert!(!findings(&store).is_empty(), "{what}");
            mended(&site, store, &what);
        }
    }
}

#[test]
fn each_rule_sees_what_it_is_for() {
    let site = rich();
    let first = |table: Table| {
        rows(&site.store).into_iter().find(|(t, ..)| *t == table).map(|(_, k, v)| (k, v)).unwrap()
    };
    let (blob, blob_row) = first(Table::Blobs);
    let blob_row: BlobRow = codec::decode(Table::Blobs, &blob, &blob_row).unwrap();
    let meta = |name: MetaName, value: u64| {
        move |batch: &mut Batch| batch.put(Table::Meta, name.key(), &MetaRow { value })
    };
    type Change<'c> = Box<dyn Fn(&mut Batch) + 'c>;
    let cases: Vec<(Rule, Change<'_>)> = vec![
        (Rule::Key, Box::new(|b| b.put_raw(Table::Owed, b"short", b""))),
        (Rule::Key, Box::new(|b| b.put_raw(Table::Owed, &first(Table::Owed).0, b"value"))),
        (Rule::IndexMissing, Box::new(|b| b.del(Table::Due, &first(Table::Due).0))),
        (Rule::IndexMissing, Box::new(|b| b.del(Table::Owners, &first(Table::Owners).0))),
        (Rule::IndexMissing, Box::new(|b| b.del(Table::Blobs, &blob))),
        (Rule::IndexAstray, Box::new(|b| b.put_key(Table::Unmet, &[0; 16]))),
        (
            Rule::DeliveryLost,
            Box::new(|b| b.del(Table::Deliveries, &first(Table::Deliveries).0[..])),
        ),
        (Rule::SegmentLost, Box::new(|b| b.del(Table::Segments, &first(Table::Segments).0))),
        (Rule::Counter, Box::new(|b| b.del(Table::Counters, &keys::counter(SiteNo(1), 2)))),
        (Rule::Usage, Box::new(meta(MetaName::UsedBytes, 5))),
        (Rule::Usage, Box::new(meta(MetaName::Segments, 5))),
        (Rule::Number, Box::new(meta(MetaName::NextSeq, 1))),
        (Rule::Number, Box::new(meta(MetaName::NextBlob, 1))),
        (Rule::Number, Box::new(meta(MetaName::NextBody, 1))),
        (Rule::Number, Box::new(meta(MetaName::NextSite, 1))),
        (Rule::Format, Box::new(meta(MetaName::Format, 9))),
        (
            Rule::References,
            Box::new(|b| b.put(Table::Blobs, &blob, &BlobRow { refs: 4, ..blob_row })),
        ),
        (Rule::ContentLost, Box::new(|b| b.del(Table::Bodies, &first(Table::Bodies).0))),
        (Rule::Unowned, Box::new(|b| b.put_raw(Table::Bodies, &keys::seq(Seq(999)), b"whose?"))),
        (
            Rule::Unowned,
            Box::new(|b| {
                b.put(Table::Blobs, &keys::blob(BlobNo(0)), &BlobRow { refs: 0, ..blob_row })
            }),
        ),
        (Rule::Twice, Box::new(|b| b.put(Table::Doomed, &blob, &DoomedRow::new(0, 0)))),
        (Rule::Peer, Box::new(|b| b.del(Table::Peers, &keys::site(SiteNo(2))))),
    ];
    for (at, (rule, damage)) in cases.iter().enumerate() {
        let mut store = site.store.clone();
        change(&mut store, damage);
        let found = findings(&store);
        let seen = found.iter().any(|f| f.rule == *rule)
            // Acked, so no index row names it: its segment misses it.
            || (*rule == Rule::DeliveryLost && found.iter().any(|f| f.rule == Rule::SegmentCounts));
        assert!(seen, "case {at}, {rule}: {found:#?}");
        if *rule != Rule::Format {
            repair(&mut store);
        }
    }
}

/// Damage in several places.
#[derive(Clone, Debug)]
struct Damage(Vec<(usize, u8)>);

impl Arbitrary for Damage {
    fn arbitrary(g: &mut Gen) -> Damage {
        let count = 1 + usize::arbitrary(g) % 12;
        Damage((0..count).map(|_| (usize::arbitrary(g), u8::arbitrary(g))).collect())
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Damage>> {
        Box::new(self.0.shrink().filter(|d| !d.is_empty()).map(Damage))
    }
}

#[test]
fn whatever_is_damaged_a_repair_ends_clean_even_when_it_is_cut_off() {
    fn holds(damage: Damage) {
        let before = rich();
        let mut store = before.store.clone();
        for (row, kind) in &damage.0 {
            let all = rows(&store);
            let (table, key, value) = &all[row % all.len()];
            // The next batch has to bear a number; that row's loss has a test of its own.
            if *table == Table::Meta && key == MetaName::Batch.key() {
                continue;
            }
            match kind % 3 {
                0 => change(&mut store, |batch| batch.del(*table, key)),
                1 if *table != Table::Bodies && !value.is_empty() => {
                    store.flip(*table, key, usize::from(*kind) % value.len());
                }
                _ => change(&mut store, |batch| {
                    let mut other = key.clone();
                    let at = usize::from(*kind) % other.len();
                    other[at] ^= 1 << (kind % 8);
                    batch.put_raw(*table, &other, value);
                }),
            }
        }
        // A first run gets through only some of its batches.
        let (_, batches) = pass(&store);
        for batch in batches.iter().take(damage.0.len() % 2) {
            assert!(matches!(store.commit(batch), Input::Committed { .. }));
        }
        repair(&mut store);
        let mut site = Site::on(store, before.config.clone(), before.now);
        site.settle();
        assert_eq!(site.halted, None);
        assert_eq!(findings(&site.store), []);
    }
    QuickCheck::new().tests(150).quickcheck(holds as fn(Damage));
}

#[test]
fn a_batch_number_that_is_gone_is_written_by_the_repair() {
    let site = rich();
    let mut store = site.store.clone();
    assert!(store.flip(Table::Meta, MetaName::Batch.key(), 3));
    assert!(findings(&store).iter().any(|f| f.rule == Rule::Unreadable));
    repair(&mut store);
    assert!(store.snapshot().as_of().0 > 0);
}
