//! Rows may gain fields: old bytes are read by newer structs, newer bytes by older ones.

use consign_core::ledger::{Table, codec, rows::CounterRow};
use minicbor::{Decode, Encode};

use crate::examples::{self, Visit};

/// `CounterRow` as a later version might have it.
#[derive(Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
struct LaterCounterRow {
    #[n(0)]
    count: u64,
    #[n(1)]
    bytes: u64,
    #[n(2)]
    oldest: Option<u64>,
}

#[test]
fn old_bytes_are_read_by_a_struct_with_an_added_field() {
    let mut value = Vec::new();
    codec::encode(Table::Counters, b"k", &CounterRow { count: 3, bytes: 9 }, &mut value);
    let later: LaterCounterRow = codec::decode(Table::Counters, b"k", &value).unwrap();
    assert_eq!(later, LaterCounterRow { count: 3, bytes: 9, oldest: None });
}

#[test]
fn newer_bytes_are_read_by_the_old_struct() {
    let later = LaterCounterRow { count: 3, bytes: 9, oldest: Some(1) };
    let mut value = Vec::new();
    codec::encode(Table::Counters, b"k", &later, &mut value);
    let old: CounterRow = codec::decode(Table::Counters, b"k", &value).unwrap();
    assert_eq!(old, CounterRow { count: 3, bytes: 9 });
}

/// A row that keeps the CBOR it was given.
struct Raw(Vec<u8>);

impl<C> Encode<C> for Raw {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.writer_mut().write_all(&self.0).map_err(minicbor::encode::Error::write)
    }
}

struct Added;

impl Visit for Added {
    fn row<R>(&mut self, table: Table, name: &str, key: &[u8], row: &R)
    where
        R: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + std::fmt::Debug,
    {
        let cbor = minicbor::to_vec(row).unwrap();
        let mut old = minicbor::Decoder::new(&cbor);
        let fields = old.map().unwrap().expect("rows are maps of definite length");
        let mut new = minicbor::Encoder::new(Vec::new());
        new.map(fields + 1).unwrap();
        let mut bytes = new.into_writer();
        bytes.extend_from_slice(&cbor[old.position()..]);
        let mut tail = minicbor::Encoder::new(bytes);
        tail.u32(200).unwrap().array(2).unwrap().str("later").unwrap().u8(7).unwrap();
        let mut value = Vec::new();
        codec::encode(table, key, &Raw(tail.into_writer()), &mut value);
        let read: R = codec::decode(table, key, &value).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(&read, row);
    }
}

#[test]
fn every_row_steps_over_a_field_it_does_not_know() {
    examples::each(&mut Added);
}
