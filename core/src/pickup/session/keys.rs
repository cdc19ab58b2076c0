//! A node's public keys, and whether one of them has signed a request.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::route::Signer;
use crate::id::{Sha256Digest, TransferNo};
use crate::ledger::rows_pickup::NodeRow;
use crate::ledger::{Table, codec, keys_pickup};
use crate::pickup::{Signed, sign};
use crate::session::SessionOut;
use crate::store::{Query, Snapshot, StoreFault, StoreRequest};

/// Asks the committed ledger for a node's public keys, one behind the other.
pub(super) fn keys(ticket: TransferNo, node: &str, out: &mut SessionOut) {
    let key = keys_pickup::node(node);
    let query: Query = Box::new(move |snapshot: &dyn Snapshot| {
        let Some(value) = snapshot.get(Table::Nodes, &key)? else { return Ok(Vec::new()) };
        let row: NodeRow = codec::decode(Table::Nodes, &key, value)
            .map_err(|why| StoreFault::Corrupt(alloc::format!("{why}")))?;
        Ok(row.keys.iter().flat_map(|key| key.public).collect())
    });
    out.requests.push(StoreRequest::Query { ticket, query });
}

/// Whether one of these keys has signed the request.
pub(super) fn verify(signer: &Signer, body: Sha256Digest, keys: &[u8]) -> Option<Signed> {
    let Signer { claim, authority, target } = signer;
    let text = sign::Signable {
        method: "GET",
        authority,
        target,
        timestamp: claim.timestamp,
        nonce: claim.nonce,
        body,
    };
    let (keys, _) = keys.as_chunks::<32>();
    let key = *keys.iter().find(|key| text.is_signed(key, &claim.signature))?;
    let node = claim.node.clone();
    Some(Signed { node, key, timestamp: claim.timestamp, nonce: claim.nonce })
}
