//! Every sync point: what may be there when the process or the power ends before it, and after it.

use std::collections::BTreeSet;

use consign_core::mem::contract::pattern;

use super::*;

/// How a process ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    Cut,
}

fn end(store: &Driven, how: End) {
    match how {
        End::Kill => store.store.borrow_mut().kill(),
        End::Cut => store.store.borrow_mut().power_cut(),
    }
}

/// What is left of one story, as a word, when it is ended after every number of steps, over many
/// seeds: before its answer, and after it.
fn ends(
    how: End,
    begin: impl Fn(&Driven),
    answered: impl Fn(&Driven) -> bool,
    left: impl Fn(&Driven) -> &'static str,
) -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..200 {
        for steps in 0.. {
            let store = Driven::new(seed);
            begin(&store);
            let reached = (0..steps).all(|_| store.go());
            let seen = if answered(&store) { &mut after } else { &mut before };
            end(&store, how);
            assert!(store.store.borrow().idle());
            store.store.borrow_mut().recover().expect("the ledger can be read");
            seen.insert(left(&store));
            if !reached {
                break;
            }
        }
    }
    (before, after)
}

fn words<const N: usize>(words: [&'static str; N]) -> BTreeSet<&'static str> {
    BTreeSet::from(words)
}

#[test]
fn a_commit_is_there_whole_or_not_and_surely_once_it_is_answered() {
    let begin = |store: &Driven| {
        let handle = Handle { conn: conn(1), number: 1 };
        store.request(conn(1), StoreRequest::Park { handle, data: pattern(0, 100) });
        let mut batch = batch(1);
        batch.put_body(BodyNo(1), handle, 100);
        store.begin(batch);
    };
    let answered = |store: &Driven| !store.node.borrow().is_empty();
    let left = |store: &Driven| {
        let facts = store.facts().len();
        let snapshot = store.snapshot();
        let row = snapshot.get(Table::Segments, &keys::seq(Seq(1))).expect("it can be read");
        let body = snapshot.get(Table::Bodies, &keys::body(BodyNo(1))).expect("it can be read");
        match (snapshot.as_of(), row, body, facts) {
            (BatchNo(0), None, None, 0) => "nothing",
            (BatchNo(1), Some(_), Some(_), 1) => "all",
            other => panic!("half a batch: {other:?}"),
        }
    };
    for how in [End::Kill, End::Cut] {
        let (before, after) = ends(how, begin, answered, left);
        assert_eq!((before, after), (words(["all", "nothing"]), words(["all"])), "{how:?}");
    }
}

/// Whether what is left of file 3 is whole, its synced part, or anything else.
fn file_left(store: &Driven, data: &[u8], synced: usize) -> &'static str {
    let store = store.store.borrow();
    match store.content(BlobNo(3)) {
        None => "no name",
        Some(left) if left == data => "whole",
        Some(left) if left.get(..synced) == Some(&data[..synced]) => "synced part",
        Some(_) => "less",
    }
}

#[test]
fn a_finished_file_is_there_and_before_that_anything() {
    let data = pattern(0, 20_000);
    let begin = |store: &Driven| {
        let blob = BlobNo(3);
        store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
        store.request(conn(1), StoreRequest::Write { blob, data: data.clone() });
        store.request(conn(1), StoreRequest::Finish { blob });
    };
    let finished = |store: &Driven| {
        let conn = store.conn.borrow();
        conn.iter().any(|(_, event)| matches!(event, StoreEvent::Finished { .. }))
    };
    let left = |store: &Driven| file_left(store, &data, data.len());
    let anything = words(["less", "no name", "whole"]);
    let (before, after) = ends(End::Cut, begin, finished, left);
    assert_eq!((before, after), (anything.clone(), words(["whole"])));
    let (before, after) = ends(End::Kill, begin, finished, left);
    assert_eq!((before, after), (anything, words(["whole"])));
}

#[test]
fn a_synced_part_is_there_whatever_is_written_behind_it() {
    let data = pattern(0, 20_000);
    let begin = |store: &Driven| {
        let blob = BlobNo(3);
        store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
        store.request(conn(1), StoreRequest::Write { blob, data: data.slice(..9000) });
        store.request(conn(1), StoreRequest::Sync { blob });
        store.request(conn(1), StoreRequest::Write { blob, data: data.slice(9000..) });
    };
    let synced = |store: &Driven| {
        let conn = store.conn.borrow();
        conn.iter().any(|(_, event)| matches!(event, StoreEvent::Synced { offset: 9000, .. }))
    };
    let left = |store: &Driven| file_left(store, &data, 9000);
    let (before, after) = ends(End::Cut, begin, synced, left);
    assert_eq!(before, words(["less", "no name", "synced part"]));
    assert_eq!(after, words(["synced part", "whole"]));
}

#[test]
fn a_removed_file_is_gone_once_it_is_answered() {
    let data = pattern(0, 100);
    let begin = |store: &Driven| {
        store.plant(BlobNo(3), &data);
        store.give(Errand::Unlink(BlobNo(3)));
    };
    let answered = |store: &Driven| !store.node.borrow().is_empty();
    let left = |store: &Driven| {
        let told = store.facts().iter().any(|fact| matches!(fact, Fact::FileGone(BlobNo(3))));
        match (file_left(store, &data, data.len()), told) {
            ("no name", _) => "gone",
            ("whole", false) => "there",
            other => panic!("{other:?}"),
        }
    };
    for how in [End::Kill, End::Cut] {
        let (before, after) = ends(how, begin, answered, left);
        assert_eq!((before, after), (words(["gone", "there"]), words(["gone"])), "{how:?}");
    }
}

#[test]
fn an_orphan_is_set_aside_once_it_is_answered() {
    let begin = |store: &Driven| {
        store.plant(BlobNo(3), b"orphan");
        store.give(Errand::Sweep { folder: 3, below: BlobNo(9) });
    };
    let answered = |store: &Driven| !store.node.borrow().is_empty();
    let left = |store: &Driven| {
        let store = store.store.borrow();
        let aside = store.quarantined().count();
        match (store.content(BlobNo(3)), aside) {
            (Some(_), 0) => "in place",
            (None, 1) => "aside",
            other => panic!("{other:?}"),
        }
    };
    for how in [End::Kill, End::Cut] {
        let (before, after) = ends(how, begin, answered, left);
        assert_eq!((before, after), (words(["aside", "in place"]), words(["aside"])), "{how:?}");
    }
}

#[test]
fn a_name_that_was_made_before_a_kill_is_durable_only_with_the_next_sync() {
    let mut left = BTreeSet::new();
    for seed in 0..60 {
        let store = Driven::new(seed);
        store.request(conn(1), StoreRequest::Create { blob: BlobNo(3), offset: 0 });
        store.rest();
        store.store.borrow_mut().kill();
        assert_eq!(store.files(), [BlobNo(3)], "the system lives on");
        store.store.borrow_mut().power_cut();
        left.insert(store.files().len());
    }
    assert_eq!(left, BTreeSet::from([0, 1]));
}

#[test]
fn a_process_begins_with_nothing_parked_and_nothing_open() {
    let store = Driven::new(1);
    let (handle, blob) = (Handle { conn: conn(1), number: 1 }, BlobNo(3));
    store.request(conn(1), StoreRequest::Park { handle, data: pattern(0, 10) });
    store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
    store.rest();
    store.store.borrow_mut().kill();
    store.store.borrow_mut().recover().expect("there is nothing to be read");
    let mut first = batch(1);
    first.put_body(BodyNo(1), handle, 10);
    store.request(conn(1), StoreRequest::Write { blob, data: pattern(0, 10) });
    let (_, refused) = store.next();
    assert!(matches!(refused, StoreEvent::WriteFailed { .. }), "{refused:?}");
    assert!(matches!(store.commit(first), Err(CommitFault::Broken(_))));
}

#[test]
fn a_commit_under_way_survives_a_kill_or_not_but_no_power_cut() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        for how in [End::Kill, End::Cut] {
            let store = Driven::new(seed);
            store.begin(batch(1));
            assert!(store.go(), "the writer takes it up");
            assert_eq!(store.snapshot().as_of(), BatchNo(0), "and has not done it yet");
            end(&store, how);
            seen.insert((matches!(how, End::Kill), store.snapshot().as_of().0));
        }
    }
    assert_eq!(seen, BTreeSet::from([(false, 0), (true, 0), (true, 1)]));
}

#[test]
fn work_on_files_that_is_under_way_at_a_kill_is_done_or_not() {
    let create = |store: &Driven| {
        store.request(conn(1), StoreRequest::Create { blob: BlobNo(3), offset: 0 });
    };
    let unlink = |store: &Driven| {
        store.plant(BlobNo(3), b"to go");
        store.give(Errand::Unlink(BlobNo(3)));
    };
    let stories: [&dyn Fn(&Driven); 2] = [&create, &unlink];
    for begin in stories {
        let mut seen = BTreeSet::new();
        for seed in 0..40 {
            let store = Driven::new(seed);
            begin(&store);
            let before = store.files().len();
            end(&store, End::Kill);
            seen.insert(store.files().len() == before);
        }
        assert_eq!(seen, BTreeSet::from([false, true]));
    }
}
