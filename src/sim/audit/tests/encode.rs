//! Rows and keys of the hand-made world in bytes.

use consign_core::ledger::rows::{
    DeadletterRow, DigestRow, DoomedRow, IdRow, InflightRow, PeerRow,
};
use consign_core::ledger::{Table, keys, keys_pickup, keys_upkeep};
use consign_core::store::Batch;
use consign_core::time::UnixMillis;

use crate::sim::audit::rows::{Name, Row};
use crate::sim::audit::shards::{Name as Shore, Row as OnShore};

/// Where a row stands.
pub fn place(name: &Name) -> (Table, Vec<u8>) {
    let (table, key) = match name {
        Name::Peer(site) => (Table::Peers, keys::site(*site).to_vec()),
        Name::Segment(seq) => (Table::Segments, keys::seq(*seq).to_vec()),
        Name::Id(id) => (Table::Ids, keys::id(id).to_vec()),
        Name::Body(body) => (Table::Bodies, keys::body(*body).to_vec()),
        Name::Blob(blob) => (Table::Blobs, keys::blob(*blob).to_vec()),
        Name::Digest(digest) => (Table::Digests, digest.0.to_vec()),
        Name::Delivery(seq, site) => (Table::Deliveries, keys::delivery(*seq, *site).to_vec()),
        Name::Due(key) => (Table::Due, key.key().to_vec()),
        Name::Owed(site, seq) => (Table::Owed, keys::peer_seq(*site, *seq).to_vec()),
        Name::Inflight(site, seq) => (Table::Inflight, keys::peer_seq(*site, *seq).to_vec()),
        Name::Deadletter(at, seq, site) => {
            (Table::Deadletters, keys::deadletter(UnixMillis(*at), *seq, *site).to_vec())
        }
        Name::Expiry(key) => (Table::Expiry, key.clone()),
        Name::Doomed(blob) => (Table::Doomed, keys::blob(*blob).to_vec()),
        Name::Incoming(blob) => (Table::Incoming, keys::blob(*blob).to_vec()),
        Name::Counter(site, state) => (Table::Counters, keys::counter(*site, *state).to_vec()),
        Name::Unmet(at, seq) => (Table::Unmet, keys::unmet(UnixMillis(*at), *seq).to_vec()),
        Name::Owner(blob, seq) => {
            let owner = keys_upkeep::Owner::Segment(*seq);
            (Table::Owners, keys_upkeep::owner(*blob, &owner).to_vec())
        }
        Name::Source(digest, site) => (Table::Sources, keys_upkeep::source(digest, *site).to_vec()),
        Name::Audit(number) => (Table::Audit, keys::audit(*number).to_vec()),
        Name::Handed(site, seq) => (Table::Handed, keys::peer_seq(*site, *seq).to_vec()),
        Name::Receipt(seq, site) => (Table::Receipts, keys::delivery(*seq, *site).to_vec()),
        Name::PassBack(peer, seq, site) => {
            (Table::PassBack, keys::pass_back(*peer, *seq, *site).to_vec())
        }
        Name::Remembered(id) => (Table::Remembered, keys::id(id).to_vec()),
        Name::RememberedAge(at, id) => {
            (Table::RememberedAge, keys_upkeep::remembered_age(UnixMillis(*at), id).to_vec())
        }
        Name::Export(rule, seq) => (Table::Exports, keys_upkeep::export(*rule, *seq).to_vec()),
        Name::Quarantine(what) => (Table::Quarantine, what.clone()),
        Name::Meta(name) => (Table::Meta, name.key().to_vec()),
        Name::Pickup(Shore::Node(id)) => (Table::Nodes, keys_pickup::node(id).to_vec()),
        Name::Pickup(_) | Name::Foreign => panic!("no row of ours"),
    };
    (table, key)
}

/// Writes a row into a batch.
pub fn put(batch: &mut Batch, row: Row) {
    let mut write = |name: Name, value: &dyn Fn(&mut Batch, Table, &[u8])| {
        let (table, key) = place(&name);
        value(batch, table, &key);
    };
    macro_rules! row {
        ($name:expr, $row:expr) => {{
            let row = $row;
            write($name, &|batch, table, key| batch.put(table, key, &row))
        }};
        ($name:expr) => {
            write($name, &|batch, table, key| batch.put_key(table, key))
        };
    }
    match row {
        Row::Peer(site, name) => {
            row!(
                Name::Peer(site),
                PeerRow { name, pin: vec![], held: false, last_acked: None, forgotten: None }
            )
        }
        Row::Segment(seq, r) => row!(Name::Segment(seq), *r),
        Row::Id(id, seq) => row!(Name::Id(id), IdRow { seq }),
        Row::Blob(blob, r) => row!(Name::Blob(blob), r),
        Row::Digest(digest, blob) => row!(Name::Digest(digest), DigestRow { blob }),
        Row::Delivery(seq, site, r) => row!(Name::Delivery(seq, site), r),
        Row::Due(key) => row!(Name::Due(key)),
        Row::Owed(site, seq) => row!(Name::Owed(site, seq)),
        Row::Inflight(site, seq, epoch) => row!(Name::Inflight(site, seq), InflightRow { epoch }),
        Row::Deadletter(at, seq, site, cause) => {
            row!(Name::Deadletter(at, seq, site), DeadletterRow { cause })
        }
        Row::Expiry(key) => row!(Name::Expiry(key)),
        Row::Doomed(blob, r) => row!(Name::Doomed(blob), DoomedRow { ..r }),
        Row::Incoming(blob, r) => row!(Name::Incoming(blob), r),
        Row::Counter(site, state, r) => row!(Name::Counter(site, state), r),
        Row::Unmet(at, seq) => row!(Name::Unmet(at, seq)),
        Row::Owner(blob, seq) => row!(Name::Owner(blob, seq)),
        Row::Source(digest, site, r) => row!(Name::Source(digest, site), r),
        Row::Audit(number, r) => row!(Name::Audit(number), *r),
        Row::Handed(site, seq) => row!(Name::Handed(site, seq)),
        Row::Receipt(seq, site, r) => row!(Name::Receipt(seq, site), *r),
        Row::PassBack(peer, seq, site) => row!(Name::PassBack(peer, seq, site)),
        Row::Remembered(id, r) => row!(Name::Remembered(id), *r),
        Row::RememberedAge(at, id) => row!(Name::RememberedAge(at, id)),
        Row::Export(rule, seq, r) => row!(Name::Export(rule, seq), *r),
        Row::Quarantine(what, r) => row!(Name::Quarantine(what), *r),
        Row::Pickup(OnShore::Node(id, r)) => row!(Name::Pickup(Shore::Node(id)), *r),
        Row::Meta(..) | Row::Body(..) | Row::Pickup(_) | Row::Foreign => {
            panic!("written elsewhere")
        }
    }
}
