//! Two sources with the same content: one at a time, and a slow one gives way.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::hash::Hasher;
use consign_core::id::{BlobNo, ConnId, TransferNo};
use consign_core::ledger::rows::Body;
use consign_core::limits::CHECKPOINT_EVERY;
use consign_core::node::Input;
use consign_core::session::{Broken, Promise, SessionCommand, SessionEvent};
use consign_core::store::StoreRequest;

use crate::site::{Site, accepted, offer_blob, recovery, write};

const EVERY: usize = CHECKPOINT_EVERY as usize;

fn body() -> Vec<u8> {
    (0..EVERY + 1000).map(|i| (i % 251) as u8).collect()
}

/// Two peers are connected, and the first sends up to its first checkpoint.
fn slow() -> (Site, ConnId, ConnId, BlobNo) {
    let mut site = Site::new(&["beta", "gamma"]);
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    site.settle();
    offer_blob(&mut site, beta, 1, &body());
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    write(&mut site, beta, blob, 0, &body()[..EVERY]);
    checkpoint(&mut site, beta, blob);
    (site, beta, gamma, blob)
}

fn checkpoint(site: &mut Site, conn: ConnId, blob: BlobNo) {
    site.store.request(conn, StoreRequest::Sync { blob });
    let mut hasher = Hasher::new();
    hasher.update(&body()[..EVERY]);
    let chain = hasher.checkpoint().expect("at a checkpoint").encode();
    let transfer = TransferNo(1);
    let event = SessionEvent::Checkpoint { transfer, blob, offset: CHECKPOINT_EVERY, chain };
    site.input(Input::Session(conn, event));
    site.settle();
}

/// The refusals a connection was told.
fn refusals(site: &mut Site, conn: ConnId) -> Vec<(TransferNo, Refusal)> {
    let told = site.take_told(conn).into_iter().filter_map(|command| match command {
        SessionCommand::Refuse { transfer, refusal, .. } => Some((transfer, refusal)),
        _ => None,
    });
    told.collect()
}

fn arrived(site: &mut Site, conn: ConnId, blob: BlobNo) {
    site.input(Input::Session(conn, SessionEvent::Arrived { transfer: TransferNo(1), blob }));
    site.settle();
}

#[test]
fn a_second_source_is_busy_while_the_first_keeps_its_pace() {
    let (mut site, beta, gamma, blob) = slow();
    for transfer in 1..=5 {
        site.wait(Duration::from_millis(9_900));
        offer_blob(&mut site, gamma, transfer, &body());
        site.settle();
        assert_eq!(refusals(&mut site, gamma), [(TransferNo(transfer), Refusal::Busy)]);
        arrived(&mut site, beta, blob);
    }
    assert!(refusals(&mut site, beta).is_empty());
    assert_eq!(recovery(&site.store).incoming.len(), 1);
}

#[test]
fn a_source_that_falls_behind_gives_way_and_keeps_its_checkpoint() {
    let (mut site, beta, gamma, blob) = slow();
    arrived(&mut site, beta, blob);
    site.wait(Duration::from_secs(10));
    let offer = offer_blob(&mut site, gamma, 1, &body());
    site.settle();
    assert_eq!(refusals(&mut site, beta), [(TransferNo(1), Refusal::Busy)]);
    let (newer, offset, _) = accepted(&mut site);
    assert!(newer != blob && offset == 0, "the newcomer begins its own");
    site.store.request(beta, StoreRequest::Abandon { blob });
    let held: Vec<(BlobNo, u64)> =
        recovery(&site.store).incoming.iter().map(|(b, row)| (*b, row.offset)).collect();
    assert_eq!(held, [(blob, CHECKPOINT_EVERY), (newer, 0)]);
    // What the slow one's session had still said changes nothing.
    site.input(Input::Session(beta, SessionEvent::Received { transfer: TransferNo(1), blob }));
    checkpoint(&mut site, beta, blob);
    // Now it is the slow one that is busy.
    offer_blob(&mut site, beta, 2, &body());
    site.settle();
    assert_eq!(refusals(&mut site, beta), [(TransferNo(2), Refusal::Busy)]);
    // The newcomer breaks off: the slow one goes on where it was.
    site.store.request(gamma, StoreRequest::Abandon { blob: newer });
    let (transfer, why) = (TransferNo(1), Broken::Cut);
    site.input(Input::Session(gamma, SessionEvent::Broken { transfer, blob: newer, why }));
    offer_blob(&mut site, beta, 3, &body());
    site.settle();
    let (resumed, offset, _) = accepted(&mut site);
    assert_eq!((resumed, offset), (blob, CHECKPOINT_EVERY));
    write(&mut site, beta, blob, offset, &body()[EVERY..]);
    site.store.request(beta, StoreRequest::Finish { blob });
    site.input(Input::Session(beta, SessionEvent::Received { transfer: TransferNo(3), blob }));
    site.settle();
    assert_eq!(site.segment(offer.id).unwrap().body, Body::Blob(blob));
    assert_eq!(site.store.files().count(), 1);
    site.audit();
}

#[test]
fn a_source_without_a_checkpoint_gives_way_with_nothing_left() {
    let mut site = Site::new(&["beta", "gamma"]);
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    site.settle();
    offer_blob(&mut site, beta, 1, &body());
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    write(&mut site, beta, blob, 0, &body()[..1000]);
    site.wait(Duration::from_secs(10));
    offer_blob(&mut site, gamma, 1, &body());
    site.settle();
    let (newer, _, _) = accepted(&mut site);
    site.store.request(beta, StoreRequest::Abandon { blob });
    site.settle();
    let held: Vec<BlobNo> = recovery(&site.store).incoming.iter().map(|(b, _)| *b).collect();
    assert_eq!(held, [newer]);
    let size = body().len() as u64;
    assert_eq!(site.pump.node().status(site.now).used, size, "one reservation");
}

/// Once the content is held, what another source had begun of it is given up at its next offer.
#[test]
fn a_partial_goes_once_its_content_is_held() {
    let (mut site, beta, gamma, blob) = slow();
    site.wait(Duration::from_secs(10));
    offer_blob(&mut site, gamma, 1, &body());
    site.settle();
    let (newer, _, _) = accepted(&mut site);
    site.store.request(beta, StoreRequest::Abandon { blob });
    write(&mut site, gamma, newer, 0, &body());
    site.store.request(gamma, StoreRequest::Finish { blob: newer });
    let transfer = TransferNo(1);
    site.input(Input::Session(gamma, SessionEvent::Received { transfer, blob: newer }));
    site.settle();
    site.promises();
    let offer = offer_blob(&mut site, beta, 2, &body());
    site.settle();
    let told = site.promises();
    let ack = Promise::Ack { transfer: TransferNo(2), id: offer.id };
    assert!(told.contains(&(beta, ack)), "{told:?}");
    let recovery = recovery(&site.store);
    assert!(recovery.incoming.is_empty() && recovery.doomed.is_empty());
    assert_eq!(site.store.files().count(), 1);
    assert_eq!(site.pump.node().status(site.now).used, body().len() as u64);
    site.audit();
}

/// A mismatch takes away what its own source had begun, nothing of another's.
#[test]
fn a_mismatch_costs_its_own_source_alone() {
    let (mut site, beta, gamma, blob) = slow();
    site.wait(Duration::from_secs(10));
    offer_blob(&mut site, gamma, 1, &body());
    site.settle();
    let (newer, _, _) = accepted(&mut site);
    site.store.request(beta, StoreRequest::Abandon { blob });
    write(&mut site, gamma, newer, 0, &vec![9; body().len()]);
    site.store.request(gamma, StoreRequest::Abandon { blob: newer });
    let (transfer, why) = (TransferNo(1), Broken::Mismatch);
    site.input(Input::Session(gamma, SessionEvent::Broken { transfer, blob: newer, why }));
    site.settle();
    assert_eq!(refusals(&mut site, gamma), [(TransferNo(1), Refusal::Mismatch)]);
    let held: Vec<BlobNo> = recovery(&site.store).incoming.iter().map(|(b, _)| *b).collect();
    assert_eq!(held, [blob]);
    site.audit();
}

#[test]
fn a_partial_expires_when_nobody_comes_back_for_it() {
    let (mut site, beta, _, blob) = slow();
    site.store.request(beta, StoreRequest::Abandon { blob });
    site.input(Input::Closed { conn: beta, why: "reset".into() });
    site.settle();
    let ttl = site.config.partial_ttl;
    site.wait(ttl - Duration::from_secs(1));
    assert_eq!(recovery(&site.store).incoming.len(), 1);
    site.wait(Duration::from_secs(2));
    site.settle();
    assert!(recovery(&site.store).incoming.is_empty());
    assert_eq!(site.store.files().count(), 0);
    assert_eq!(site.pump.node().status(site.now).used, 0);
}

/// What is whole and waits to be judged gives way to nobody: its file would be given up and owned.
#[test]
fn content_that_is_whole_is_not_taken_over() {
    let mut site = Site::new(&["beta", "gamma"]);
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    site.settle();
    let body: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
    offer_blob(&mut site, beta, 1, &body);
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    write(&mut site, beta, blob, 0, &body);
    site.store.request(beta, StoreRequest::Finish { blob });
    site.wait(Duration::from_secs(11));
    offer_blob(&mut site, gamma, 1, &body);
    site.input(Input::Session(beta, SessionEvent::Received { transfer: TransferNo(1), blob }));
    site.settle();
    assert!(refusals(&mut site, beta).is_empty());
    let left = recovery(&site.store);
    assert!(left.doomed.is_empty() && left.incoming.is_empty(), "{left:?}");
    site.audit();
}
