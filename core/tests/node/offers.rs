//! What a peer offers and sends, as its session would tell the node.

use consign_core::id::{BlobNo, ConnId, Handle};
use consign_core::node::Input;
use consign_core::segment::Destinations;
use consign_core::session::{Promise, SessionEvent};
use consign_core::store::StoreRequest;
use consign_core::wire::Offer;

use super::Site;

pub fn to_alpha() -> Destinations {
    Destinations::named(vec!["alpha".into()]).unwrap()
}

pub fn offer_inline(
    site: &mut Site,
    conn: ConnId,
    transfer: u32,
    name: &str,
    to: Destinations,
) -> Offer {
    let body = name.as_bytes();
    let offer = Site::make_offer(name, body, transfer, to);
    let handle = Handle { conn, number: transfer };
    site.store.request(conn, StoreRequest::Park { handle, data: body.to_vec().into() });
    let event = SessionEvent::Offered { offer: Box::new(offer.clone()), body: Some(handle) };
    site.input(Input::Session(conn, event));
    offer
}

pub fn offer_blob(site: &mut Site, conn: ConnId, transfer: u32, body: &[u8]) -> Offer {
    let offer = Site::make_offer("big", body, transfer, to_alpha());
    let event = SessionEvent::Offered { offer: Box::new(offer.clone()), body: None };
    site.input(Input::Session(conn, event));
    offer
}

pub fn accepted(site: &mut Site) -> (BlobNo, u64, Vec<u8>) {
    match site.promises().pop() {
        Some((_, Promise::Accept { blob, offset, chain, .. })) => (blob, offset, chain),
        other => panic!("{other:?}"),
    }
}

/// Writes a file the way a session would, up to but without its end.
pub fn write(site: &mut Site, conn: ConnId, blob: BlobNo, offset: u64, data: &[u8]) {
    assert_eq!(site.store.request(conn, StoreRequest::Create { blob, offset }), None);
    site.store.request(conn, StoreRequest::Write { blob, data: data.to_vec().into() });
}
