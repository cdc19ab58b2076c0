//! Each fault: that it happens, what it does, and that what it destroys is told.

use std::collections::BTreeSet;

use consign_core::mem::contract::pattern;
use consign_core::store::StoreFault;

use super::super::StoreFaults;
use super::*;
use crate::sim::seen::Damage;

const ALWAYS: u32 = 1_000_000;

fn driven(seed: u64, faults: StoreFaults) -> Driven {
    let store = Driven::new(seed);
    store.store.borrow_mut().faults = faults;
    store
}

fn set(store: &Driven, faults: StoreFaults) {
    store.store.borrow_mut().faults = faults;
}

fn damages(store: &Driven) -> Vec<Damage> {
    let damage = |fact| match fact {
        Fact::Damaged(damage) => Some(damage),
        Fact::Durable { .. } | Fact::FileWhole { .. } | Fact::FileGone(_) => None,
    };
    store.facts().into_iter().filter_map(damage).collect()
}

fn restart(store: &Driven) {
    store.store.borrow_mut().kill();
    store.store.borrow_mut().recover().expect("the ledger can be read");
}

#[test]
fn a_commit_without_space_leaves_nothing_and_the_next_one_works() {
    let store = driven(1, StoreFaults { commit_full: ALWAYS, ..StoreFaults::default() });
    assert!(matches!(store.commit(batch(1)), Err(CommitFault::Full(_))));
    assert_eq!(store.snapshot().as_of(), BatchNo(0));
    set(&store, StoreFaults::default());
    assert_eq!(store.commit(batch(1)), Ok(()));
}

#[test]
fn a_broken_commit_breaks_the_store_and_is_there_or_not_at_the_next_start() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let store = driven(seed, StoreFaults { commit_eio: ALWAYS, ..StoreFaults::default() });
        assert!(matches!(store.commit(batch(1)), Err(CommitFault::Broken(_))));
        set(&store, StoreFaults::default());
        assert!(matches!(store.commit(batch(1)), Err(CommitFault::Broken(_))), "for good");
        assert_eq!(store.snapshot().as_of(), BatchNo(0));
        restart(&store);
        let as_of = store.snapshot().as_of();
        assert_eq!(store.facts().len() as u64, as_of.0, "told when it is there");
        assert_eq!(store.commit(batch(as_of.0 + 1)), Ok(()));
        seen.insert(as_of);
    }
    assert_eq!(seen, BTreeSet::from([BatchNo(0), BatchNo(1)]));
}

#[test]
fn an_error_after_the_effect_is_read_back_and_answered_as_committed() {
    let store = driven(1, StoreFaults { commit_after: ALWAYS, ..StoreFaults::default() });
    assert_eq!(store.commit(batch(1)), Ok(()));
    assert_eq!(store.snapshot().as_of(), BatchNo(1));
}

#[test]
fn a_map_that_is_full_takes_relief_alone() {
    let config = StoreConfig { ledger_max: 10_000, ..StoreConfig::default() };
    let store = Driven::on(1, config);
    let mut big = batch(1);
    big.put_raw(Table::Audit, &[1], &[7; 9000]);
    assert_eq!(store.commit(big), Ok(()));
    let mut more = batch(2);
    more.put_raw(Table::Audit, &[2], &[7; 9000]);
    assert!(matches!(store.commit(more), Err(CommitFault::Full(_))));
    let mut relief = contract::numbered(2);
    relief.free_ballast = true;
    relief.del(Table::Audit, &[1]);
    assert_eq!(store.commit(relief), Ok(()));
    assert_eq!(store.commit(batch(3)), Ok(()));
}

#[test]
fn a_disk_that_others_fill_is_full_for_a_while_and_the_ballast_helps() {
    let store = driven(1, StoreFaults { fill: ALWAYS, ..StoreFaults::default() });
    let mut big = batch(1);
    big.put_raw(Table::Audit, &[1], &[7; 100_000]);
    assert!(matches!(store.commit(big), Err(CommitFault::Full(_))));
    assert!(store.store.borrow().space().free < 64 << 10);
    let (blob, data) = (BlobNo(1), pattern(0, 100_000));
    store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
    store.request(conn(1), StoreRequest::Write { blob, data });
    let (_, event) = store.next();
    let full = matches!(event, StoreEvent::WriteFailed { fault: StoreFault::Full(_), .. });
    assert!(full, "{event:?}");
    let mut relief = batch(1);
    relief.free_ballast = true;
    assert_eq!(store.commit(relief), Ok(()));
    set(&store, StoreFaults::default());
    let Input::Space(space) = store.errand(Errand::Probe) else { panic!("a probe tells") };
    assert!(space.ballast_whole && space.free > 1 << 30, "{space:?}");
}

/// Answers to a file that is created, written, synced and finished, and what is left of it.
fn whole_story(store: &Driven) -> Vec<StoreEvent> {
    let (blob, data) = (BlobNo(2), pattern(0, 9000));
    store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
    store.request(conn(1), StoreRequest::Write { blob, data });
    store.request(conn(1), StoreRequest::Sync { blob });
    store.request(conn(1), StoreRequest::Finish { blob });
    store.rest();
    store.conn.borrow_mut().drain(..).map(|(_, event)| event).collect()
}

#[test]
fn a_file_that_fails_says_so_once_and_swallows_the_rest() {
    let rates: [(&str, StoreFaults); 3] = [
        ("eio", StoreFaults { file_eio: 200_000, ..StoreFaults::default() }),
        ("after", StoreFaults { file_after: 200_000, ..StoreFaults::default() }),
        ("full", StoreFaults { file_full: 200_000, ..StoreFaults::default() }),
    ];
    for (what, faults) in rates {
        let (mut failed, mut whole) = (0, 0);
        for seed in 0..100 {
            let store = driven(seed, faults.clone());
            let answers = whole_story(&store);
            let failures = answers.iter().filter(|e| matches!(e, StoreEvent::WriteFailed { .. }));
            let finished = answers.iter().any(|e| matches!(e, StoreEvent::Finished { .. }));
            assert_eq!(failures.count(), usize::from(!finished), "{what}: {answers:?}");
            failed += usize::from(!finished);
            let facts = store.facts();
            let told = facts.iter().any(|fact| matches!(fact, Fact::FileWhole { .. }));
            whole += usize::from(told && !finished);
            assert!(told || !finished, "{what}: finished and not whole");
        }
        assert!(failed > 20 && failed < 100, "{what}: {failed}");
        assert_eq!(whole > 0, what == "after", "{what}: whole though it failed");
    }
}

#[test]
fn a_removal_that_fails_did_nothing_or_everything() {
    for (faults, there) in [
        (StoreFaults { file_eio: ALWAYS, ..StoreFaults::default() }, true),
        (StoreFaults { file_after: ALWAYS, ..StoreFaults::default() }, false),
    ] {
        let store = driven(1, faults);
        store.plant(BlobNo(1), b"x");
        let answer = store.errand(Errand::Unlink(BlobNo(1)));
        assert!(matches!(answer, Input::Unlinked { result: Err(_), .. }), "{answer:?}");
        assert_eq!(store.files().len(), usize::from(there));
        let gone = store.facts().iter().any(|fact| matches!(fact, Fact::FileGone(_)));
        assert_eq!(gone, !there);
    }
}

#[test]
fn reads_fail_flip_and_stray_without_harm_to_what_is_stored() {
    let data = pattern(0, 5000);
    type Judge = fn(&Result<Bytes, StoreFault>, &Bytes) -> bool;
    let kinds: [(StoreFaults, Judge); 3] = [
        (StoreFaults { content_eio: ALWAYS, ..StoreFaults::default() }, |got, _| got.is_err()),
        (StoreFaults { flip_read: ALWAYS, ..StoreFaults::default() }, |got, data| {
            let Ok(got) = got else { return false };
            let bits = got.iter().zip(data).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
            got.len() == data.len() && bits == 1
        }),
        (StoreFaults { misdirected_read: ALWAYS, ..StoreFaults::default() }, |got, data| {
            got.as_ref().is_ok_and(|got| got.len() == data.len() && got != data)
        }),
    ];
    for (faults, as_wanted) in kinds {
        let store = driven(5, StoreFaults::default());
        store.plant(BlobNo(1), &data);
        store.plant(BlobNo(2), &pattern(77, 5000));
        set(&store, faults.clone());
        let wrong = (0..10).any(|_| {
            let got = contract::content(&store, Body::Blob(BlobNo(1)), 0, 9000);
            as_wanted(&got, &data)
        });
        assert!(wrong, "{faults:?}");
        set(&store, StoreFaults::default());
        assert_eq!(contract::content(&store, Body::Blob(BlobNo(1)), 0, 9000), Ok(data.clone()));
        assert_eq!(damages(&store), []);
    }
}

#[test]
fn a_session_finds_no_reader_and_a_node_cannot_read() {
    let store = driven(1, StoreFaults { crowded: ALWAYS, ..StoreFaults::default() });
    let (ticket, query) = (TransferNo(1), Box::new(|_: &dyn Snapshot| Ok(Vec::new())));
    store.request(conn(1), StoreRequest::Query { ticket, query });
    let answer = Err(StoreFault::Crowded);
    assert_eq!(store.next().1, StoreEvent::Queried { ticket, answer });
    set(&store, StoreFaults { ledger_eio: ALWAYS, ..StoreFaults::default() });
    assert!(matches!(store.read(ReadRequest::Recovery), Err(StoreFault::Io(_))));
}

#[test]
fn bits_that_rot_are_told_and_stay() {
    let store = driven(1, StoreFaults::default());
    let data = pattern(0, 5000);
    store.plant(BlobNo(1), &data);
    assert_eq!(store.commit(batch(1)), Ok(()));
    store.facts();
    let (flip_file, flip_row) = (ALWAYS, ALWAYS);
    set(&store, StoreFaults { flip_file, flip_row, ..StoreFaults::default() });
    let got = contract::content(&store, Body::Blob(BlobNo(1)), 0, 9000);
    assert_ne!(got, Ok(data.clone()));
    // Only one of the tables that may rot has a row.
    while store.facts().iter().all(|fact| !matches!(fact, Fact::Damaged(Damage::Row(..)))) {
        store.read(ReadRequest::Held(Vec::new())).expect("it can be read");
    }
    set(&store, StoreFaults::default());
    assert_eq!(contract::content(&store, Body::Blob(BlobNo(1)), 0, 9000), got);
    let row =
        store.snapshot().get(Table::Segments, &keys::seq(Seq(1))).map(|r| r.map(<[u8]>::to_vec));
    assert_ne!(row, Ok(Some(b"a row".to_vec())));
}

#[test]
fn pages_that_do_not_land_are_told_before_the_file_is_called_whole() {
    for (faults, victims) in [
        (StoreFaults { lost_write: ALWAYS, ..StoreFaults::default() }, 0),
        (StoreFaults { misdirected_write: ALWAYS, ..StoreFaults::default() }, 1),
    ] {
        let store = driven(3, faults);
        store.plant(BlobNo(8), &pattern(50, 20_000));
        file(&store, 2, &pattern(1, 9000));
        let facts = store.facts();
        let damaged = Fact::Damaged(Damage::File(BlobNo(2)));
        let first = format!("{:?}", facts.first());
        assert_eq!(first, format!("{:?}", Some(damaged)));
        assert_eq!(facts.len(), 2 + victims, "{facts:?}");
        assert!(matches!(facts.last(), Some(Fact::FileWhole { digest, .. })
            if digest.0 != *blake3::hash(&pattern(1, 9000)).as_bytes()));
    }
}

#[test]
fn a_start_may_find_an_older_ledger_and_other_files() {
    let store = driven(1, StoreFaults { restart_rollback: ALWAYS, ..StoreFaults::default() });
    assert_eq!(store.commit(batch(1)), Ok(()));
    restart(&store);
    assert_eq!(damages(&store), [], "there was no copy yet");
    assert_eq!(store.commit(batch(2)), Ok(()));
    restart(&store);
    assert_eq!(damages(&store), [Damage::Rollback]);
    assert_eq!(store.snapshot().as_of(), BatchNo(1));

    set(&store, StoreFaults { restart_lost: ALWAYS, ..StoreFaults::default() });
    store.plant(BlobNo(1), b"x");
    restart(&store);
    assert_eq!((damages(&store), store.files()), (vec![Damage::File(BlobNo(1))], vec![]));

    set(&store, StoreFaults { restart_swapped: ALWAYS, ..StoreFaults::default() });
    store.plant(BlobNo(1), b"one");
    store.plant(BlobNo(2), b"two");
    while damages(&store).is_empty() {
        restart(&store);
    }
    assert_eq!(store.store.borrow().content(BlobNo(1)), Some(&b"two"[..]));
}

#[test]
fn a_stall_holds_one_call_up_or_all_of_them() {
    let second = Micros(1_000_000);
    let mut delayed = BTreeSet::new();
    for seed in 0..30 {
        let store = driven(seed, StoreFaults { stall: ALWAYS, ..StoreFaults::default() });
        store.begin(batch(1));
        set(&store, StoreFaults::default());
        store.give(Errand::Probe);
        store.rest();
        assert!(store.now.get() >= second);
        delayed.insert(matches!(store.node.borrow()[0], Input::Committed { .. }));
    }
    assert_eq!(delayed, BTreeSet::from([false, true]));
}

#[test]
fn a_disk_that_is_full_stays_full_when_others_fill_it_again() {
    let mut store = SimStore::new(Rng::new(1), StoreConfig::default());
    store.fill(4_096, 0);
    assert_eq!(store.space().free, 4_096);
    store.fill(4_096, 0);
    assert_eq!(store.space().free, 4_096);
    store.fill(0, 100);
    assert_eq!(store.space().free, 0);
    store.set_outside(0);
    assert!(store.space().free > 1 << 30);
}
