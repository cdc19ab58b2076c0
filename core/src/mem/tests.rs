//! The store in memory: the contract suite, and its switches.

extern crate std;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;

use bytes::Bytes;

use super::MemStore;
use super::contract::{self, Subject};
use crate::id::{BatchNo, BlobNo, BodyNo, ConnId, Handle};
use crate::ledger::read::ReadRequest;
use crate::ledger::rows::{MetaName, MetaRow};
use crate::ledger::{Table, keys};
use crate::node::Input;
use crate::store::{Batch, CommitFault, Errand, ReadResult, Snapshot, StoreEvent, StoreRequest};

use contract::numbered as batch;

#[derive(Default)]
struct Mem {
    store: RefCell<MemStore>,
    events: RefCell<VecDeque<(ConnId, StoreEvent)>>,
}

impl Subject for Mem {
    fn commit(&self, batch: Batch) -> Result<(), CommitFault> {
        match self.store.borrow_mut().commit(&batch) {
            Input::Committed { through, .. } => {
                assert_eq!(through, batch.number);
                Ok(())
            }
            Input::CommitFailed { from, why, .. } => {
                assert_eq!(from, batch.number);
                Err(why)
            }
            other => panic!("{other:?}"),
        }
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(self.store.borrow().snapshot())
    }

    fn read(&self, request: ReadRequest) -> ReadResult {
        self.store.borrow().read(&request)
    }

    fn request(&self, conn: ConnId, request: StoreRequest) {
        let event = self.store.borrow_mut().request(conn, request);
        self.events.borrow_mut().extend(event.map(|event| (conn, event)));
    }

    fn next(&self) -> (ConnId, StoreEvent) {
        self.events.borrow_mut().pop_front().expect("an answer is there")
    }

    fn errand(&self, errand: Errand) -> Input {
        self.store.borrow_mut().errand(errand).expect("the errand is answered")
    }

    fn unpark(&self, handle: Handle) {
        assert_eq!(self.store.borrow_mut().errand(Errand::Unpark(handle)), None);
    }

    fn conn_ended(&self, conn: ConnId) {
        self.store.borrow_mut().conn_ended(conn);
    }

    fn plant(&self, blob: BlobNo, data: &[u8]) {
        self.store.borrow_mut().plant_file(blob, data);
    }

    fn files(&self) -> Vec<BlobNo> {
        self.store.borrow().files().map(|(blob, _)| blob).collect()
    }
}

#[test]
fn passes_the_contract_suite() {
    for (what, case) in contract::cases() {
        std::println!("{what}");
        let store = Mem::default();
        case(&store);
        assert_eq!(store.events.borrow().len(), 0, "{what}: an answer too many");
    }
}

fn committed(input: &Input) -> bool {
    matches!(input, Input::Committed { .. })
}

#[test]
fn the_named_commit_fails_and_leaves_nothing() {
    let mut store = MemStore::new();
    store.fail_commit(2, CommitFault::Full("test".into()));
    assert!(committed(&store.commit(&batch(1))));
    let mut second = batch(2);
    second.put_raw(Table::Segments, &[1], b"x");
    assert!(matches!(
        store.commit(&second),
        Input::CommitFailed { from: BatchNo(2), why: CommitFault::Full(_), .. }
    ));
    assert_eq!(store.snapshot().as_of(), BatchNo(1));
    assert_eq!(store.rows(Table::Segments), 0);
    assert!(committed(&store.commit(&second)));
    assert_eq!(store.snapshot().as_of(), BatchNo(2));
}

#[test]
fn a_full_disk_takes_relief_once_the_ballast_is_freed_and_makes_it_whole_again() {
    let mut store = MemStore::new();
    store.set_ballast(4096, true);
    store.set_capacity(2 << 20);
    let mut fill = batch(1);
    fill.put_raw(Table::Segments, &[1], &[7; 4096]);
    assert!(committed(&store.commit(&fill)));
    store.set_outside((2 << 20) - 4096 - store.space().ledger);
    assert_eq!(store.space().free, 0);

    let mut relief = batch(2);
    relief.del(Table::Segments, &[1]);
    assert!(!committed(&store.commit(&relief)));
    relief.free_ballast = true;
    assert!(committed(&store.commit(&relief)));
    assert!(!store.space().ballast_whole);

    store.set_outside(0);
    assert!(committed(&store.commit(&batch(3))));
    assert!(store.space().ballast_whole);
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let conn = ConnId::default();
    let mut store = MemStore::new();
    let blob = BlobNo(3);
    let write = |data: &'static [u8]| StoreRequest::Write { blob, data: Bytes::from_static(data) };
    store.request(conn, StoreRequest::Create { blob, offset: 0 });
    store.request(conn, write(b"durable"));
    store.request(conn, StoreRequest::Sync { blob });
    store.request(conn, write(b" not"));
    store.request(conn, StoreRequest::Create { blob: BlobNo(4), offset: 0 });
    let handle = Handle { conn, number: 1 };
    store.request(conn, StoreRequest::Park { handle, data: Bytes::from_static(b"body") });
    store.crash();
    assert_eq!(store.parked(), 0);
    let files: Vec<_> = store.files().map(|(blob, file)| (blob, file.data.clone())).collect();
    assert_eq!(files, [(blob, b"durable".to_vec())]);
}

#[test]
fn a_batch_that_names_no_number_or_an_unknown_body_is_refused() {
    let mut store = MemStore::new();
    let mut nameless = Batch::new(BatchNo(1));
    nameless.put_raw(Table::Segments, &[1], b"x");
    assert!(matches!(
        store.commit(&nameless),
        Input::CommitFailed { why: CommitFault::Broken(_), .. }
    ));
    let mut bodiless = batch(1);
    bodiless.put_body(BodyNo(1), Handle { conn: ConnId::default(), number: 9 }, 4);
    assert!(!committed(&store.commit(&bodiless)));
    assert_eq!(store.rows(Table::Meta), 0);
}

#[test]
fn a_flipped_bit_is_noticed_in_that_row_alone() {
    let mut store = MemStore::new();
    store.commit(&batch(1));
    let snapshot = store.snapshot();
    assert!(store.flip(Table::Meta, MetaName::Batch.key(), 2));
    assert_eq!(snapshot.as_of(), BatchNo(1));
    let now = store.snapshot();
    let row = crate::ledger::read::row::<MetaRow>(&now, Table::Meta, MetaName::Batch.key());
    assert!(matches!(row, Err(crate::store::StoreFault::Corrupt(_))));
    assert!(matches!(now.get(Table::Bodies, &keys::body(BodyNo(1))), Ok(None)));
}

#[test]
fn a_named_file_request_fails_and_what_follows_is_swallowed() {
    let conn = ConnId::default();
    let mut store = MemStore::new();
    let blob = BlobNo(1);
    store.fail_file(2, crate::store::StoreFault::Io("test".into()));
    assert_eq!(store.request(conn, StoreRequest::Create { blob, offset: 0 }), None);
    let write = || StoreRequest::Write { blob, data: Bytes::from_static(b"x") };
    assert!(matches!(store.request(conn, write()), Some(StoreEvent::WriteFailed { .. })));
    assert_eq!(store.request(conn, write()), None);
    assert_eq!(store.request(conn, StoreRequest::Finish { blob }), None);
}

#[test]
fn an_older_copy_is_put_back_with_what_it_takes_of_the_disk() {
    let mut store = MemStore::new();
    store.commit(&batch(1));
    let (copy, ledger) = (store.snapshot(), store.space().ledger);
    let mut second = batch(2);
    second.put_raw(Table::Segments, &[1], b"x");
    store.commit(&second);
    assert_eq!(store.nth_key(Table::Segments, 0), Some(&[1][..]));
    assert!(store.space().ledger > ledger);
    store.put_back(copy);
    assert_eq!((store.ledger().as_of(), store.space().ledger), (BatchNo(1), ledger));
    assert_eq!(store.nth_key(Table::Segments, 0), None);
}

#[test]
fn a_body_that_was_taken_out_is_parked_no_more() {
    let mut store = MemStore::new();
    let handle = Handle { conn: ConnId::default(), number: 1 };
    store.request(handle.conn, StoreRequest::Park { handle, data: Bytes::from_static(b"body") });
    assert_eq!(store.take_parked(handle), Some(Bytes::from_static(b"body")));
    assert_eq!((store.take_parked(handle), store.parked()), (None, 0));
}

#[test]
fn keys_of_any_length_keep_their_order() {
    let mut store = MemStore::new();
    let mut first = batch(1);
    let keys: Vec<Vec<u8>> = (1..=80).map(|len| [7].repeat(len)).collect();
    for key in keys.iter().rev() {
        first.put_raw(Table::Audit, key, b"x");
    }
    assert!(committed(&store.commit(&first)));
    let rows = contract::scan(store.ledger(), Table::Audit, &[]);
    assert!(rows.iter().map(|(key, _)| key).eq(&keys));
    let mut second = batch(2);
    for key in &keys {
        second.del(Table::Audit, key);
    }
    let before = store.snapshot();
    assert!(committed(&store.commit(&second)));
    assert_eq!(
        (store.rows(Table::Audit), contract::scan(&before, Table::Audit, &[]).len()),
        (0, 80)
    );
}
