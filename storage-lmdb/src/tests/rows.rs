//! Rows and commits: what errors mean.

use bytes::Bytes;
use consign_core::id::{BatchNo, BodyNo, Handle, Seq, TransferNo};
use consign_core::ledger::read::{Answer, ReadRequest};
use consign_core::ledger::rows::{MetaName, MetaRow, PeerRow};
use consign_core::ledger::{Table, keys, read};
use consign_core::mem::contract::{Subject, conn, pattern};
use consign_core::node::Input;
use consign_core::store::{CommitFault, Errand, Store, StoreEvent, StoreFault, StoreRequest};

use super::{Lmdb, as_of, memory, numbered, options, refused};
use crate::OpenError;
use crate::shared::locked;

#[test]
fn a_commit_that_took_effect_though_it_failed_is_committed() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    *locked(&store.store.shared.faults.after) = Some(libc::EIO);
    let mut batch = numbered(1);
    batch.put_raw(Table::Segments, &[1], b"x");
    assert_eq!(store.commit(batch), Ok(()));
    assert_eq!(store.commit(numbered(2)), Ok(()));
    assert_eq!(as_of(&store), BatchNo(2));
}

#[test]
fn an_error_that_the_disk_does_not_explain_stops_everything() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    assert_eq!(store.commit(numbered(1)), Ok(()));
    *locked(&store.store.shared.faults.before) = Some(libc::EIO);
    assert!(matches!(store.commit(numbered(2)), Err(CommitFault::Broken(_))));
    assert_eq!(as_of(&store), BatchNo(1));
    // For good: what follows is not tried.
    assert!(matches!(store.commit(numbered(3)), Err(CommitFault::Broken(_))));
    assert_eq!(as_of(&store), BatchNo(1));
    assert!(!dir.path().join("probe").exists());
}

#[test]
fn no_space_left_is_full_and_the_store_goes_on() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        *locked(&store.store.shared.faults.before) = Some(errno);
        assert!(matches!(store.commit(numbered(1)), Err(CommitFault::Full(_))));
        assert_eq!(as_of(&store), BatchNo(0));
    }
    assert_eq!(store.commit(numbered(1)), Ok(()));
}

#[test]
fn a_full_map_is_full_and_deletions_make_room() {
    let dir = memory();
    let mut small = options(dir.path());
    small.map_bytes = 2 << 20;
    let (store, _) = Lmdb::open(&small);
    let mut number = 0;
    loop {
        number += 1;
        let mut batch = numbered(number);
        batch.put_raw(Table::Bodies, &keys::body(BodyNo(number)), &pattern(number, 100_000));
        match store.commit(batch) {
            Ok(()) => assert!(number < 100, "the map never fills"),
            Err(CommitFault::Full(_)) => break,
            Err(why) => panic!("{why}"),
        }
    }
    assert_eq!(as_of(&store), BatchNo(number - 1));
    let mut relief = numbered(number + 1);
    for body in 1..number {
        relief.del(Table::Bodies, &keys::body(BodyNo(body)));
    }
    assert_eq!(store.commit(relief), Ok(()));
    // LMDB takes pages again once no reader can see them, from the second commit on.
    assert_eq!(store.commit(numbered(number + 2)), Ok(()));
    let mut again = numbered(number + 3);
    again.put_raw(Table::Bodies, &keys::body(BodyNo(1)), &pattern(1, 100_000));
    assert_eq!(store.commit(again), Ok(()));
}

#[test]
fn the_bodies_of_a_failed_batch_are_freed() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    let handle = Handle { conn: conn(1), number: 1 };
    store.request(conn(1), StoreRequest::Park { handle, data: pattern(0, 10) });
    *locked(&store.store.shared.faults.before) = Some(libc::ENOSPC);
    let mut batch = numbered(1);
    batch.put_body(BodyNo(1), handle, 10);
    assert!(matches!(store.commit(batch), Err(CommitFault::Full(_))));
    assert_eq!(store.store.shared.unpark(handle), None);
}

#[test]
fn live_pages_are_counted_and_free_ones_are_not() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    let (_, before) = store.try_commit(numbered(1));
    let mut batch = numbered(2);
    batch.put_raw(Table::Bodies, &keys::body(BodyNo(1)), &pattern(0, 1 << 20));
    let (_, with) = store.try_commit(batch);
    assert!(with.ledger >= before.ledger + (1 << 20), "{before:?} {with:?}");
    let mut batch = numbered(3);
    batch.del(Table::Bodies, &keys::body(BodyNo(1)));
    let (_, after) = store.try_commit(batch);
    assert!(after.ledger <= before.ledger + (64 << 10), "{before:?} {after:?}");
    assert!(after.free > 0 && after.ballast_whole);
}

#[test]
fn bodies_fill_their_pages() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    let (_, before) = store.try_commit(numbered(1));
    let mut batch = numbered(2);
    let bodies = 3000;
    for number in 1..=bodies {
        let handle = Handle { conn: conn(1), number };
        store.request(conn(1), StoreRequest::Park { handle, data: pattern(0, 1024) });
        batch.put_body(BodyNo(u64::from(number)), handle, 1024);
    }
    let (committed, after) = store.try_commit(batch);
    assert_eq!(committed, Ok(()));
    let each = (after.ledger - before.ledger) / u64::from(bodies);
    assert!(each < 1400, "{each} bytes a body");
    // Out of order is slower and as good.
    let handle = Handle { conn: conn(1), number: 1 };
    store.request(conn(1), StoreRequest::Park { handle, data: pattern(0, 10) });
    let mut batch = numbered(3);
    batch.put_body(BodyNo(7), handle, 10);
    assert_eq!(store.commit(batch), Ok(()));
    let body = consign_core::mem::contract::inline(7);
    assert_eq!(consign_core::mem::contract::content(&store, body, 0, 99), Ok(pattern(0, 10)));
}

#[test]
fn a_flipped_bit_is_found_in_its_row_alone() {
    let dir = memory();
    {
        let store = Lmdb::at(dir.path());
        let mut batch = numbered(1);
        for (at, name) in ["alpha-marker", "beta-marker"].into_iter().enumerate() {
            let row = PeerRow {
                name: name.into(),
                pin: Vec::new(),
                held: false,
                last_acked: None,
                forgotten: None,
            };
            batch.put(Table::Peers, &[0, 0, 0, at as u8], &row);
        }
        assert_eq!(store.commit(batch), Ok(()));
    }
    let file = dir.path().join("ledger/data.mdb");
    let mut bytes = std::fs::read(&file).expect("the ledger");
    // Copies on pages that are no longer in use do not matter.
    let found: Vec<usize> = bytes
        .windows(12)
        .enumerate()
        .filter(|(_, w)| w == b"alpha-marker")
        .map(|(at, _)| at)
        .collect();
    assert!(!found.is_empty());
    for at in found {
        bytes[at] ^= 0x20;
    }
    std::fs::write(&file, bytes).expect("the ledger");

    // Everything rests on the peers, so the directory is refused; other rows are read as they are.
    assert!(matches!(refused(dir.path()), OpenError::RowsUnreadable { .. }));
    let env = crate::ledger::Ledger::open_env(&dir.path().join("ledger"), 1 << 30);
    let ledger = crate::ledger::Ledger::open(env.expect("it opens")).expect("it opens");
    ledger.load_lag().expect("it can be read");
    let snapshot = ledger.snapshot().expect("it can be read");
    let alpha = read::row::<PeerRow>(&snapshot, Table::Peers, &[0, 0, 0, 0]);
    assert!(matches!(alpha, Err(StoreFault::Corrupt(_))), "{alpha:?}");
    let beta = read::row::<PeerRow>(&snapshot, Table::Peers, &[0, 0, 0, 1]);
    assert_eq!(beta.expect("it can be read").expect("it is there").name, "beta-marker");
    let meta = read::row::<MetaRow>(&snapshot, Table::Meta, MetaName::Batch.key());
    assert_eq!(meta, Ok(Some(MetaRow { value: 1 })));
}

#[test]
fn a_corrupt_segment_is_told_apart_in_the_answer() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    let mut batch = numbered(1);
    batch.put_raw(Table::Segments, &keys::seq(Seq(4)), b"\x01no segment at all");
    assert_eq!(store.commit(batch), Ok(()));
    let answer = store.read(ReadRequest::Segments { after: None, limit: 10 });
    let answer = answer.expect("the rest can be read");
    assert_eq!(answer.body, Answer::Segments { rows: vec![(Seq(4), None)], end: true });
}

#[test]
fn a_panic_in_a_thread_stops_the_store() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    assert_eq!(store.commit(numbered(1)), Ok(()));
    let query = Box::new(|_: &dyn consign_core::store::Snapshot| panic!("a planted panic"));
    store.request(conn(1), StoreRequest::Query { ticket: TransferNo(1), query });
    match store.answer() {
        Input::CommitFailed { from, why: CommitFault::Broken(why), .. } => {
            assert_eq!(from, BatchNo(2));
            assert!(why.contains("a planted panic"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(store.commit(numbered(2)), Err(CommitFault::Broken(_))));
}

#[test]
fn a_store_that_has_stopped_answers_and_keeps_nothing() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    store.store.stop();
    assert!(matches!(store.commit(numbered(1)), Err(CommitFault::Broken(_))));
    assert!(store.read(ReadRequest::Recovery).is_err());
    let ticket = TransferNo(1);
    let body = consign_core::mem::contract::inline(1);
    store.request(conn(1), StoreRequest::Read { ticket, body, offset: 0, len: 1 });
    assert!(matches!(store.next().1, StoreEvent::Content { data: Err(_), .. }));
    store.request(conn(1), StoreRequest::Finish { blob: consign_core::id::BlobNo(1) });
    assert!(matches!(store.next().1, StoreEvent::WriteFailed { .. }));
    let unlink = Errand::Unlink(consign_core::id::BlobNo(1));
    assert!(matches!(store.errand(unlink), Input::Unlinked { result: Err(_), .. }));
    store.store.stop();
}

#[test]
fn every_body_that_is_asked_for_is_answered_once_and_one_that_is_missing_alone() {
    let dir = memory();
    let store = Lmdb::at(dir.path());
    let mut batch = numbered(1);
    for number in 1..=200u8 {
        let handle = Handle { conn: conn(9), number: number.into() };
        let data = Bytes::from(vec![number; 100]);
        store.request(conn(9), StoreRequest::Park { handle, data });
        if number != 77 {
            batch.put_body(BodyNo(number.into()), handle, 100);
        }
    }
    store.commit(batch).expect("it is committed");
    for number in 1..=200u8 {
        let body = consign_core::mem::contract::inline(number.into());
        for at in [1, 2] {
            let ticket = TransferNo(number.into());
            store.request(conn(at), StoreRequest::Read { ticket, body, offset: 90, len: 20 });
        }
    }
    let mut came = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..400 {
        let (conn, event) = store.next();
        let StoreEvent::Content { ticket, offset: 90, data } = event else { panic!("{event:?}") };
        match data {
            Ok(data) => assert_eq!(data, vec![ticket.0 as u8; 10]),
            Err(fault) => assert_eq!((ticket.0, fault.to_string().contains("77")), (77, true)),
        }
        came[conn.generation as usize].push(ticket.0);
    }
    for tickets in &mut came[1..] {
        tickets.sort_unstable();
        assert_eq!(*tickets, (1..=200).collect::<Vec<_>>());
    }
}

#[test]
fn what_was_handed_in_before_the_start_and_before_the_stop_is_done() {
    let dir = memory();
    {
        let store = Lmdb::at(dir.path());
        for number in 1..=20 {
            store.store.commit(numbered(number));
        }
        store.store.stop();
        let committed = std::iter::from_fn(|| store.node.try_recv().ok()).count();
        assert_eq!(committed, 20);
    }
    assert_eq!(as_of(&Lmdb::at(dir.path())), BatchNo(20));
}
