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
