//! Damaged, misplaced and newer rows are refused, each for its own reason.

use consign_core::ledger::codec::{self, RowFault};
use consign_core::ledger::{Table, rows::MetaRow};

use crate::examples::{self, Visit};

struct Damage;

fn encoded<R: minicbor::Encode<()>>(table: Table, key: &[u8], row: &R) -> Vec<u8> {
    let mut value = Vec::new();
    codec::encode(table, key, row, &mut value);
    value
}

fn with_checksum(table: Table, key: &[u8], mut body: Vec<u8>) -> Vec<u8> {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[table.number()]);
    crc.update(key);
    crc.update(&body);
    body.extend_from_slice(&crc.finalize().to_be_bytes());
    body
}

impl Visit for Damage {
    fn row<R>(&mut self, table: Table, name: &str, key: &[u8], row: &R)
    where
        R: minicbor::Encode<()> + for<'b> minicbor::Decode<'b, ()> + PartialEq + std::fmt::Debug,
    {
        let value = encoded(table, key, row);
        let read = |table: Table, key: &[u8], value: &[u8]| codec::decode::<R>(table, key, value);
        for bit in 0..value.len() * 8 {
            let mut bad = value.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(table, key, &bad), Err(RowFault::Checksum { table }), "{name} {bit}");
        }
        for bit in 0..key.len() * 8 {
            let mut other = key.to_vec();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(table, &other, &value), Err(RowFault::Checksum { table }), "{name}");
        }
        for other in Table::ALL.iter().filter(|t| **t != table) {
            let fault = RowFault::Checksum { table: *other };
            assert_eq!(read(*other, key, &value), Err(fault), "{name} moved to {other}");
        }
        for len in 0..value.len() {
            let fault = read(table, key, &value[..len]).expect_err("a cut row is no row");
            if len < 5 {
                assert_eq!(fault, RowFault::Short { table, len });
            } else {
                assert_eq!(fault, RowFault::Checksum { table }, "{name} cut to {len}");
            }
        }
        let mut newer = value[..value.len() - 4].to_vec();
        newer[0] = 2;
        let newer = with_checksum(table, key, newer);
        assert_eq!(read(table, key, &newer), Err(RowFault::Version { table, version: 2 }));
    }
}

#[test]
fn damage_is_noticed_in_every_row() {
    examples::each(&mut Damage);
}

#[test]
fn a_right_checksum_over_nonsense_is_still_refused() {
    let table = Table::Meta;
    for body in [&[1][..], &[1, 0xff], &[1, 0x80], &[1, 0xa0], &[1, 0xa1, 0x00, 0x61, b'x']] {
        let value = with_checksum(table, b"k", body.to_vec());
        let read = codec::decode::<MetaRow>(table, b"k", &value);
        assert_eq!(read, Err(RowFault::Decode { table }), "{body:?}");
    }
}

#[test]
fn a_state_number_that_does_not_exist_is_refused() {
    use consign_core::ledger::rows_pickup::TokenRow;
    let table = Table::Tokens;
    // {0: h'', 1: 0, 2: 0, 3: 0, 4: STATE, 5: 0}
    let body = |state: u8| vec![1, 0xa6, 0, 0x40, 1, 0, 2, 0, 3, 0, 4, state, 5, 0];
    for state in 0..=0x17 {
        let value = with_checksum(table, b"k", body(state));
        let read = codec::decode::<TokenRow>(table, b"k", &value);
        assert_eq!(read.is_ok(), state <= 2, "state {state}");
    }
}
