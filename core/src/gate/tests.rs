//! Nothing leaves before its batch is durable, everything leaves or is taken back exactly once.

use alloc::vec;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::id::{SegmentId, TransferNo};

fn conn(slot: u32) -> ConnId {
    ConnId { slot, generation: 1 }
}

/// A promise that is told from all others by its transfer number.
fn waiting(batch: u64, slot: u32, number: u32, pins: Option<u64>) -> Waiting {
    Waiting {
        batch: BatchNo(batch),
        conn: conn(slot),
        promise: Promise::Ack { transfer: TransferNo(number), id: SegmentId([0; 32]) },
        refusal: None,
        pins: pins.map(Seq),
    }
}

fn number(promise: &Promise) -> u32 {
    match promise {
        Promise::Ack { transfer, .. } => transfer.0,
        Promise::Start { .. }
        | Promise::Send(_)
        | Promise::Accept { .. }
        | Promise::Done { .. }
        | Promise::Receipt(_)
        | Promise::ReceiptOk { .. }
        | Promise::Want { .. }
        | Promise::Pickup(_)
        | Promise::Accepted { .. } => panic!("only acks are promised here"),
    }
}

fn released(out: &[(ConnId, SessionCommand)]) -> Vec<(u32, u32)> {
    out.iter()
        .map(|(conn, command)| match command {
            SessionCommand::Promised(promised) => {
                (conn.slot, number(&promised.clone().into_inner()))
            }
            SessionCommand::Refuse { .. }
            | SessionCommand::Allowance(_)
            | SessionCommand::Pace(_)
            | SessionCommand::Ping
            | SessionCommand::Answer { .. }
            | SessionCommand::Pickup(_)
            | SessionCommand::Close { .. } => panic!("the gate releases promises only"),
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// A promise on the newest batch plus so many.
    Promise {
        newer: u8,
        slot: u8,
        pins: u8,
    },
    /// Commit up to the committed batch plus so many.
    Commit(u8),
    /// Fail from the committed batch plus one plus so many.
    Fail(u8),
    Forget(u8),
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Step {
        let small = |g: &mut Gen| u8::arbitrary(g) % 4;
        match u8::arbitrary(g) % 8 {
            0..4 => Step::Promise { newer: small(g), slot: small(g), pins: small(g) },
            4 | 5 => Step::Commit(small(g)),
            6 => Step::Fail(small(g)),
            _ => Step::Forget(small(g)),
        }
    }
}

/// What the gate should do, written down naively.
#[derive(Default)]
struct Model {
    committed: u64,
    newest: u64,
    next: u32,
    /// (batch, slot, number, pinned)
    waiting: Vec<(u64, u32, u32, Option<u64>)>,
}

fn run(steps: &[Step]) {
    let mut gate = Gate::new(BatchNo(0));
    let mut model = Model::default();
    for step in steps {
        match *step {
            Step::Promise { newer, slot, pins } => {
                model.newest += u64::from(newer);
                model.next += 1;
                let pins = (pins > 0).then_some(u64::from(pins));
                gate.promise(waiting(model.newest, slot.into(), model.next, pins));
                model.waiting.push((model.newest, slot.into(), model.next, pins));
            }
            Step::Commit(more) => {
                let through = model.committed + u64::from(more);
                let out = released(&gate.committed_through(BatchNo(through)));
                model.committed = through;
                model.newest = model.newest.max(through);
                let (ready, rest): (Vec<_>, Vec<_>) =
                    model.waiting.drain(..).partition(|w| w.0 <= through);
                model.waiting = rest;
                let expected: Vec<_> = ready.iter().map(|w| (w.1, w.2)).collect();
                assert_eq!(out, expected, "in order, all that is ready and nothing else");
            }
            Step::Fail(more) => {
                let from = model.committed + 1 + u64::from(more);
                let back = gate.failed_from(BatchNo(from));
                let (failed, rest): (Vec<_>, Vec<_>) =
                    model.waiting.drain(..).partition(|w| w.0 >= from);
                model.waiting = rest;
                let back: Vec<_> = back.iter().map(|w| (w.batch.0, number(&w.promise))).collect();
                let expected: Vec<_> = failed.iter().map(|w| (w.0, w.2)).collect();
                assert_eq!(back, expected, "exactly the rest");
            }
            Step::Forget(slot) => {
                gate.forget(conn(slot.into()));
                model.waiting.retain(|w| w.1 != u32::from(slot));
            }
        }
        assert_eq!(gate.committed(), BatchNo(model.committed));
        assert_eq!((gate.len(), gate.is_empty()), (model.waiting.len(), model.waiting.is_empty()));
        for seq in 0..5 {
            let pinned = model.waiting.iter().any(|w| w.3 == Some(seq));
            assert_eq!(gate.pins(Seq(seq)), pinned, "segment {seq}");
        }
    }
}

quickcheck! {
    fn the_gate_does_what_the_model_does(steps: Vec<Step>) -> bool {
        run(&steps);
        true
    }
}

#[test]
fn what_rests_on_a_later_batch_stays() {
    let mut gate = Gate::new(BatchNo(10));
    gate.promise(waiting(11, 1, 1, None));
    gate.promise(waiting(12, 1, 2, None));
    assert_eq!(released(&gate.committed_through(BatchNo(10))), []);
    assert_eq!(released(&gate.committed_through(BatchNo(11))), [(1, 1)]);
    assert_eq!(gate.len(), 1);
}

#[test]
fn a_promise_on_what_is_durable_leaves_with_the_next_word() {
    // Nothing staged: the promise rests on a committed batch and needs no commit of its own.
    let mut gate = Gate::new(BatchNo(10));
    gate.promise(waiting(10, 1, 1, None));
    assert_eq!(released(&gate.committed_through(gate.committed())), [(1, 1)]);
}

#[test]
fn an_old_word_changes_nothing() {
    let mut gate = Gate::new(BatchNo(10));
    gate.promise(waiting(11, 1, 1, None));
    assert_eq!(released(&gate.committed_through(BatchNo(3))), []);
    assert_eq!(gate.committed(), BatchNo(10));
}

#[test]
fn a_connection_takes_its_promises_and_their_pins_along() {
    let mut gate = Gate::new(BatchNo(0));
    gate.promise(waiting(1, 1, 1, Some(7)));
    gate.promise(waiting(1, 2, 2, Some(7)));
    gate.forget(conn(1));
    assert!(gate.pins(Seq(7)), "the other one's pin stays");
    gate.forget(ConnId { slot: 2, generation: 2 });
    assert_eq!(gate.len(), 1, "another generation is another connection");
    assert_eq!(released(&gate.committed_through(BatchNo(1))), [(2, 2)]);
    assert!(!gate.pins(Seq(7)));
}

#[test]
fn a_refusal_comes_back_with_its_promise() {
    let mut gate = Gate::new(BatchNo(0));
    let refusal = SessionCommand::Allowance(5);
    gate.promise(Waiting { refusal: Some(refusal.clone()), ..waiting(1, 1, 1, None) });
    let back = gate.failed_from(BatchNo(1));
    assert_eq!(back.into_iter().map(|w| w.refusal).collect::<Vec<_>>(), vec![Some(refusal)]);
}

#[test]
#[should_panic(expected = "batch 4 after 5")]
fn batches_only_grow() {
    let mut gate = Gate::new(BatchNo(0));
    gate.promise(waiting(5, 1, 1, None));
    gate.promise(waiting(4, 1, 2, None));
}
