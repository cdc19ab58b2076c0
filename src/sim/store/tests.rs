//! Tests of the simulated store: the contract suite, its orders, and what each end leaves.

mod cuts;
mod disk;
mod faults;
mod plants;
mod promises;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bytes::Bytes;
use consign_core::id::{BatchNo, BlobNo, BodyNo, ConnId, Handle, ReadNo, Seq, TransferNo};
use consign_core::ledger::read::ReadRequest;
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::mem::contract::{self, Subject, pattern};
use consign_core::node::Input;
use consign_core::store::{
    Batch, CommitFault, Errand, ReadResult, Snapshot, StoreEvent, StoreRequest,
};

use super::{Done, Fact, SimStore, StoreConfig};
use crate::sim::rng::Rng;
use crate::sim::time::Micros;

/// A store that is driven to the answer one waits for.
struct Driven {
    store: RefCell<SimStore>,
    now: Cell<Micros>,
    node: RefCell<VecDeque<Input>>,
    conn: RefCell<VecDeque<(ConnId, StoreEvent)>>,
}

impl Driven {
    fn new(seed: u64) -> Driven {
        Driven::on(seed, StoreConfig::default())
    }

    fn on(seed: u64, config: StoreConfig) -> Driven {
        Driven {
            store: RefCell::new(SimStore::new(Rng::new(seed), config)),
            now: Cell::default(),
            node: RefCell::default(),
            conn: RefCell::default(),
        }
    }

    /// Goes to the next moment at which anything happens; whether there is one.
    fn go(&self) -> bool {
        let mut store = self.store.borrow_mut();
        let Some(at) = store.next() else { return false };
        assert!(at >= self.now.get(), "time goes on");
        self.now.set(at);
        while let Some(done) = store.take(at) {
            match done {
                Done::Node(input) => self.node.borrow_mut().push_back(input),
                Done::Conn(conn, event) => self.conn.borrow_mut().push_back((conn, event)),
            }
        }
        true
    }

    fn rest(&self) {
        while self.go() {}
        assert!(self.store.borrow().idle(), "nothing comes any more, so nothing is in flight");
    }

    fn answer(&self) -> Input {
        loop {
            if let Some(input) = self.node.borrow_mut().pop_front() {
                return input;
            }
            assert!(self.go(), "an answer is there");
        }
    }

    fn begin(&self, batch: Batch) {
        self.store.borrow_mut().commit(self.now.get(), batch);
    }

    fn give(&self, errand: Errand) {
        self.store.borrow_mut().errand(self.now.get(), errand);
    }

    fn facts(&self) -> Vec<Fact> {
        self.store.borrow_mut().facts()
    }
}

impl Subject for Driven {
    fn commit(&self, batch: Batch) -> Result<(), CommitFault> {
        let number = batch.number;
        self.begin(batch);
        match self.answer() {
            Input::Committed { through, .. } => {
                assert_eq!(through, number);
                Ok(())
            }
            Input::CommitFailed { from, why, .. } => {
                assert_eq!(from, number);
                Err(why)
            }
            other => panic!("{other:?}"),
        }
    }

    fn snapshot(&self) -> Box<dyn Snapshot + '_> {
        Box::new(self.store.borrow().snapshot())
    }

    fn read(&self, request: ReadRequest) -> ReadResult {
        self.store.borrow_mut().read(self.now.get(), ReadNo(5), request);
        match self.answer() {
            Input::Read(ReadNo(5), answer) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn request(&self, conn: ConnId, request: StoreRequest) {
        self.store.borrow_mut().request(self.now.get(), conn, request);
    }

    fn next(&self) -> (ConnId, StoreEvent) {
        loop {
            if let Some(event) = self.conn.borrow_mut().pop_front() {
                return event;
            }
            assert!(self.go(), "an answer is there");
        }
    }

    fn errand(&self, errand: Errand) -> Input {
        self.give(errand);
        self.answer()
    }

    fn unpark(&self, handle: Handle) {
        self.give(Errand::Unpark(handle));
    }

    fn conn_ended(&self, conn: ConnId) {
        self.store.borrow_mut().conn_ended(self.now.get(), conn);
    }

    fn plant(&self, blob: BlobNo, data: &[u8]) {
        self.store.borrow_mut().plant_file(blob, data);
    }

    fn files(&self) -> Vec<BlobNo> {
        let mut files: Vec<BlobNo> = self.store.borrow().files().map(|(blob, ..)| blob).collect();
        files.sort();
        files
    }
}

fn conn(generation: u32) -> ConnId {
    contract::conn(generation)
}

/// A batch that bears its number and writes one row.
fn batch(number: u64) -> Batch {
    let mut batch = contract::numbered(number);
    batch.put_raw(Table::Segments, &keys::seq(Seq(number)), b"a row");
    batch
}

/// Writes a file and finishes it.
fn file(store: &Driven, blob: u64, data: &Bytes) {
    let blob = BlobNo(blob);
    store.request(conn(1), StoreRequest::Create { blob, offset: 0 });
    store.request(conn(1), StoreRequest::Write { blob, data: data.clone() });
    store.request(conn(1), StoreRequest::Finish { blob });
    let finished = StoreEvent::Finished { blob, size: data.len() as u64 };
    while store.next().1 != finished {}
}

#[test]
fn passes_the_contract_suite() {
    for seed in 0..3 {
        for (what, case) in contract::cases() {
            println!("{what}");
            let store = Driven::new(seed);
            case(&store);
            store.rest();
            let left = (store.node.borrow().len(), store.conn.borrow().len());
            assert_eq!(left, (0, 0), "{what}: an answer too many");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_answers_at_the_same_moments() {
    let run = |seed| {
        let store = Driven::new(seed);
        file(&store, 7, &pattern(0, 9000));
        assert_eq!(store.commit(batch(1)), Ok(()));
        store.now.get()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// What comes back first when both are asked at once, over many seeds.
fn orders<T: Ord>(ask: impl Fn(&Driven), what: impl Fn(&Driven) -> T) -> Vec<T> {
    let mut seen: Vec<T> = (0..200)
        .map(|seed| {
            let store = Driven::new(seed);
            ask(&store);
            store.rest();
            what(&store)
        })
        .collect();
    seen.sort();
    seen.dedup();
    seen
}

fn read_numbers(store: &Driven) -> Vec<u64> {
    let node = store.node.borrow();
    let number = |input: &Input| match input {
        Input::Read(number, _) => Some(number.0),
        Input::Committed { .. } => Some(0),
        _ => None,
    };
    node.iter().filter_map(number).collect()
}

#[test]
fn reads_of_the_node_are_answered_in_order_and_on_either_side_of_a_commit() {
    let ask = |store: &Driven| {
        store.begin(batch(1));
        for number in [1, 2] {
            let request = ReadRequest::Segments { after: None, limit: 9 };
            store.store.borrow_mut().read(store.now.get(), ReadNo(number), request);
        }
    };
    // Latencies that overlap, so that every order can be drawn.
    let ask = |store: &Driven| {
        let (read, commit) = (super::Latency::new(0, 900), super::Latency::new(0, 1000));
        let faults = super::StoreFaults { read, commit, ..Default::default() };
        store.store.borrow_mut().faults = faults;
        ask(store);
    };
    let seen = orders(ask, read_numbers);
    assert_eq!(seen, [vec![0, 1, 2], vec![1, 0, 2], vec![1, 2, 0]]);
    // What a read that was asked before the answer saw: the batch or not.
    let as_of = |store: &Driven| {
        let node = store.node.borrow();
        let mut reads = node.iter().filter_map(|input| match input {
            Input::Read(_, Ok(answer)) => Some(answer.as_of),
            _ => None,
        });
        reads.next()
    };
    assert_eq!(orders(ask, as_of), [Some(BatchNo(0)), Some(BatchNo(1))]);
}

fn tickets(store: &Driven) -> Vec<u32> {
    let conns = store.conn.borrow();
    let ticket = |(_, event): &(ConnId, StoreEvent)| match event {
        StoreEvent::Content { ticket, offset, .. } => Some(ticket.0 * 10 + *offset as u32),
        _ => None,
    };
    conns.iter().filter_map(ticket).collect()
}

#[test]
fn reads_of_sessions_overtake_each_other_but_not_within_a_ticket() {
    let ask = |store: &Driven| {
        store.plant(BlobNo(1), &pattern(0, 100));
        for (ticket, offset) in [(1, 0), (1, 1), (2, 0)] {
            let (ticket, body) = (TransferNo(ticket), Body::Blob(BlobNo(1)));
            store.request(conn(1), StoreRequest::Read { ticket, body, offset, len: 10 });
        }
    };
    let seen = orders(ask, tickets);
    assert_eq!(seen, [vec![10, 11, 20], vec![10, 20, 11], vec![20, 10, 11]]);
}

#[test]
fn what_a_connection_asked_is_forgotten_with_it() {
    let store = Driven::new(3);
    store.plant(BlobNo(1), &pattern(0, 100));
    for ticket in 1..=4 {
        let (ticket, body) = (TransferNo(ticket), Body::Blob(BlobNo(1)));
        store.request(conn(1), StoreRequest::Read { ticket, body, offset: 0, len: 10 });
    }
    store.conn_ended(conn(1));
    store.rest();
    assert_eq!(tickets(&store).len(), 2, "two were being served");
}

#[test]
fn facts_tell_what_is_durable_and_with_what_in_it() {
    let store = Driven::new(4);
    let (data, body) = (pattern(0, 5000), Bytes::from_static(b"inline"));
    file(&store, 3, &data);
    let handle = Handle { conn: conn(1), number: 1 };
    store.request(conn(1), StoreRequest::Park { handle, data: body.clone() });
    let mut first = batch(1);
    first.put_body(BodyNo(9), handle, body.len());
    assert_eq!(store.commit(first), Ok(()));
    assert!(matches!(store.errand(Errand::Unlink(BlobNo(3))), Input::Unlinked { .. }));
    let facts = store.facts();
    let [Fact::FileWhole { blob, size, digest }, durable, Fact::FileGone(gone)] = &facts[..] else {
        panic!("{facts:?}")
    };
    assert_eq!((*blob, *size, *gone), (BlobNo(3), 5000, BlobNo(3)));
    assert_eq!(digest.0, *blake3::hash(&data).as_bytes());
    let Fact::Durable { batch, bodies } = durable else { panic!("{durable:?}") };
    assert_eq!((batch.number, bodies.as_slice()), (BatchNo(1), &[(BodyNo(9), body)][..]));
    assert_eq!(store.facts().len(), 0);
}
