//! The arena of a batch gives back what was put in, in order.

use alloc::vec;
use alloc::vec::Vec;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::ledger::rows::CounterRow;

/// An operation with its own bytes.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Row(Table, Vec<u8>, u64),
    Raw(Table, Vec<u8>, Vec<u8>),
    Key(Table, Vec<u8>),
    Del(Table, Vec<u8>),
    Body(u64, u32, u16),
}

impl Arbitrary for Owned {
    fn arbitrary(g: &mut Gen) -> Owned {
        let table = *g.choose(Table::ALL).expect("there are tables");
        let bytes = |g: &mut Gen| Vec::<u8>::arbitrary(g);
        match u8::arbitrary(g) % 5 {
            0 => Owned::Row(table, bytes(g), u64::arbitrary(g)),
            1 => Owned::Raw(table, bytes(g), bytes(g)),
            2 => Owned::Key(table, bytes(g)),
            3 => Owned::Del(table, bytes(g)),
            _ => Owned::Body(u64::arbitrary(g), u32::arbitrary(g), u16::arbitrary(g)),
        }
    }
}

fn handle(number: u32) -> Handle {
    Handle { conn: ConnId { slot: 1, generation: 2 }, number }
}

fn row(count: u64) -> CounterRow {
    CounterRow { count, bytes: 0 }
}

fn add(batch: &mut Batch, op: &Owned) {
    match op {
        Owned::Row(table, key, count) => batch.put(*table, key, &row(*count)),
        Owned::Raw(table, key, value) => batch.put_raw(*table, key, value),
        Owned::Key(table, key) => batch.put_key(*table, key),
        Owned::Del(table, key) => batch.del(*table, key),
        Owned::Body(number, at, len) => {
            batch.put_body(BodyNo(*number), handle(*at), usize::from(*len));
        }
    }
}

fn same(op: &Op<'_>, owned: &Owned) -> bool {
    match owned {
        Owned::Row(t, k, count) => match op {
            Op::Put { table, key, value } => {
                table == t && key == k && codec::decode(*t, k, value) == Ok(row(*count))
            }
            Op::Del { .. } | Op::PutBody { .. } => false,
        },
        Owned::Raw(t, k, v) => *op == Op::Put { table: *t, key: k, value: v },
        Owned::Key(t, k) => *op == Op::Put { table: *t, key: k, value: &[] },
        Owned::Del(t, k) => *op == Op::Del { table: *t, key: k },
        Owned::Body(n, at, _) => *op == Op::PutBody { number: BodyNo(*n), handle: handle(*at) },
    }
}

quickcheck! {
    fn operations_come_back_in_order(ops: Vec<Owned>) -> bool {
        let mut batch = Batch::new(BatchNo(9));
        for op in &ops {
            add(&mut batch, op);
        }
        let back: Vec<Op<'_>> = batch.ops().collect();
        batch.number == BatchNo(9)
            && batch.rows() == ops.len()
            && batch.is_empty() == ops.is_empty()
            && back.len() == ops.len()
            && back.iter().zip(&ops).all(|(op, owned)| same(op, owned))
    }

    fn bytes_are_keys_values_and_parked_bodies(ops: Vec<Owned>) -> bool {
        let mut batch = Batch::new(BatchNo(1));
        for op in &ops {
            add(&mut batch, op);
        }
        let parked: usize = ops
            .iter()
            .map(|op| if let Owned::Body(_, _, len) = op { usize::from(*len) } else { 0 })
            .sum();
        let held: usize = batch
            .ops()
            .map(|op| match op {
                Op::Put { key, value, .. } => key.len() + value.len(),
                Op::Del { key, .. } => key.len(),
                Op::PutBody { .. } => 0,
            })
            .sum();
        batch.bytes() == held + parked
    }
}

#[test]
fn a_row_decodes_under_its_own_key_only() {
    let mut batch = Batch::new(BatchNo(1));
    batch.put(Table::Counters, b"first", &row(1));
    batch.put(Table::Counters, b"second", &row(2));
    let values: Vec<&[u8]> = batch
        .ops()
        .map(|op| match op {
            Op::Put { value, .. } => value,
            Op::Del { .. } | Op::PutBody { .. } => &[],
        })
        .collect();
    assert_eq!(codec::decode(Table::Counters, b"first", values[0]), Ok(row(1)));
    assert_eq!(codec::decode(Table::Counters, b"second", values[1]), Ok(row(2)));
    assert!(codec::decode::<CounterRow>(Table::Counters, b"first", values[1]).is_err());
}

#[test]
fn a_new_batch_is_empty() {
    let batch = Batch::new(BatchNo(3));
    assert!(batch.is_empty() && !batch.free_ballast);
    assert_eq!((batch.rows(), batch.bytes(), batch.ops().count()), (0, 0, 0));
}

#[test]
fn requests_print_sizes_and_never_content() {
    let data = Bytes::from(vec![b'x'; 3]);
    let park = StoreRequest::Park { handle: handle(0), data: data.clone() };
    let write = StoreRequest::Write { blob: BlobNo(4), data };
    for (request, end) in [(park, "3 B)"), (write, "Write(4, 3 B)")] {
        let text = alloc::format!("{request:?}");
        assert!(text.ends_with(end) && !text.contains("xxx"), "{text}");
    }
}
