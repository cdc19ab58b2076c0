//! Every row survives encoding, whatever is in it.

use consign_core::ledger::rows::*;
use consign_core::ledger::rows_pickup::*;
use consign_core::ledger::rows_upkeep::*;
use consign_core::ledger::{Table, codec};
use quickcheck::quickcheck;

use crate::make::Any;

macro_rules! survives {
    ($($test:ident: $row:ty;)*) => {
        quickcheck! {$(
            fn $test(row: Any<$row>, table: u8, key: Vec<u8>) -> bool {
                let table = Table::ALL[usize::from(table) % Table::ALL.len()];
                // What stands in the buffer already is none of the codec's business.
                let mut value = b"before".to_vec();
                codec::encode(table, &key, &row.0, &mut value);
                value.starts_with(b"before")
                    && codec::decode::<$row>(table, &key, &value[6..]).as_ref() == Ok(&row.0)
            }
        )*}
    };
}

survives! {
    segment: SegmentRow;
    delivery: DeliveryRow;
    inflight: InflightRow;
    id: IdRow;
    blob: BlobRow;
    digest: DigestRow;
    doomed: DoomedRow;
    incoming: IncomingRow;
    source: SourceRow;
    counter: CounterRow;
    deadletter: DeadletterRow;
    peer: PeerRow;
    meta: MetaRow;
    place: PlaceRow;
    remembered: RememberedRow;
    receipt: ReceiptRow;
    audit: AuditRow;
    quarantine: QuarantineRow;
    export: ExportRow;
    watched: WatchedRow;
    shard: ShardRow;
    token: TokenRow;
    nonce: NonceRow;
    node: NodeRow;
    client: ClientRow;
}

quickcheck! {
    /// Bytes that nobody encoded never panic.
    fn junk_is_refused(value: Vec<u8>) -> bool {
        codec::decode::<SegmentRow>(Table::Segments, b"k", &value).is_err()
    }
}

/// Values that are gathered before they are appended, that are too long for it, and that are cut by its end.
#[test]
fn a_row_of_any_length_is_what_minicbor_makes_of_it() {
    for len in 0..600 {
        let (numbers, text) = (vec![len as u64; len], "x".repeat(len));
        let mut values = [Vec::new(), Vec::new()];
        codec::encode(Table::Meta, b"key", &numbers, &mut values[0]);
        codec::encode(Table::Meta, b"key", &(text.as_str(), 7_u8, text.as_str()), &mut values[1]);
        let expected =
            [minicbor::to_vec(&numbers), minicbor::to_vec((text.as_str(), 7_u8, text.as_str()))];
        for (value, expected) in values.iter().zip(expected) {
            let cbor = expected.expect("a Vec takes everything");
            assert_eq!(value[0], 1, "the version");
            assert_eq!(value[1..value.len() - 4], cbor, "{len}");
        }
    }
}
