//! The orderly end: what has begun is finished, both ways, nothing new is begun, and it ends in time.

use std::time::Duration;

use consign_core::code::{Goodbye, Refusal};
use consign_core::id::{BlobNo, ConnId, TransferNo};
use consign_core::ledger::rows::{Body, State};
use consign_core::limits::CHECKPOINT_EVERY;
use consign_core::node::Input;
use consign_core::segment::Class;
use consign_core::session::{Outcome, Promise, SessionCommand, SessionEvent};
use consign_core::store::StoreRequest;
use consign_core::wire::Offer;

use crate::receive::{hand_in, reach_checkpoint};
use crate::site::{Site, accepted, offer_blob, offer_inline, recovery, to_alpha, write};

/// What the peer sends: more than rides with its offer.
static BODY: [u8; 100_000] = [7; 100_000];

/// A site in the middle of a transfer from beta.
fn receiving() -> (Site, ConnId, Offer, BlobNo) {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let offer = offer_blob(&mut site, conn, 1, &BODY);
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    write(&mut site, conn, blob, 0, &BODY[..50_000]);
    (site, conn, offer, blob)
}

/// The rest of it arrives, and is whole.
fn arrives(site: &mut Site, conn: ConnId, blob: BlobNo) {
    write(site, conn, blob, 50_000, &BODY[50_000..]);
    site.store.request(conn, StoreRequest::Finish { blob });
    site.input(Input::Session(conn, SessionEvent::Received { transfer: TransferNo(1), blob }));
}

/// Whether it was refused because this site is stopping.
fn told_of_the_stop(told: &[SessionCommand]) -> bool {
    matches!(told, [SessionCommand::Refuse { refusal: Refusal::Busy, text, .. }]
        if &**text == "this site is stopping")
}

#[test]
fn a_drain_waits_for_what_is_in_flight_and_takes_nothing_new() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let transfer = site.sendings()[0].1.offer.transfer;
    site.input(Input::Stop);
    site.settle();
    assert!(!site.drained);
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], consign_core::segment::Class::Normal);
    site.settle();
    let told = site.take_told(client);
    assert!(matches!(&told[..], [SessionCommand::Refuse { .. }]), "{told:?}");
    site.outcome(conn, transfer, Outcome::Acked);
    site.settle();
    assert!(site.drained);
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Acked);
    let told = site.take_told(conn);
    assert!(
        matches!(&told[..], [SessionCommand::Close { why: Goodbye::Stopping, .. }]),
        "{told:?}"
    );
}

#[test]
fn a_drain_ends_in_time_even_when_a_peer_never_answers() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    site.session("beta");
    site.settle();
    site.input(Input::Stop);
    site.settle();
    assert!(!site.drained);
    site.wait(Duration::from_secs(31));
    assert!(site.drained);
}

/// Content on its way in is finished like content on its way out; what is offered meanwhile is not begun.
#[test]
fn a_drain_waits_for_what_is_on_its_way_in() {
    let (mut site, conn, offer, blob) = receiving();
    site.input(Input::Stop);
    site.settle();
    assert!(!site.drained);
    offer_inline(&mut site, conn, 2, "small", to_alpha());
    offer_blob(&mut site, conn, 3, &[8; 90_000]);
    site.settle();
    let told = site.take_told(conn);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.chunks(1).all(told_of_the_stop), "{told:?}");
    assert!(!site.drained && site.promises().is_empty());
    arrives(&mut site, conn, blob);
    site.settle();
    assert!(site.drained);
    assert!(matches!(site.promises()[..], [(_, Promise::Ack { .. })]));
    assert_eq!(site.segment(offer.id).unwrap().body, Body::Blob(blob));
    site.audit();
}

/// It was whole when the stop came, and waited to be judged.
#[test]
fn what_is_whole_when_the_stop_comes_is_kept() {
    let (mut site, conn, offer, blob) = receiving();
    arrives(&mut site, conn, blob);
    site.input(Input::Stop);
    site.settle();
    assert!(site.drained);
    assert_eq!(site.segment(offer.id).unwrap().body, Body::Blob(blob));
    site.audit();
}

#[test]
fn a_local_client_that_has_begun_may_hand_it_in() {
    let mut site = Site::new(&["beta"]);
    let (client, late) = (site.client(), site.client());
    let reserve = |ticket| SessionEvent::Reserve { ticket: TransferNo(ticket), size: None };
    site.input(Input::Session(client, reserve(1)));
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    site.input(Input::Stop);
    site.input(Input::Session(late, reserve(2)));
    site.submit(late, 3, "parked", &["beta"], Class::Normal);
    // It is longer than was thought.
    let extend = SessionEvent::Extend { ticket: TransferNo(1), blob };
    site.input(Input::Session(client, extend));
    site.settle();
    let told = site.take_told(late);
    assert!(told.len() == 2 && told.chunks(1).all(told_of_the_stop), "{told:?}");
    assert!(!site.drained);
    site.promises();
    let id = hand_in(&mut site, client, blob, ("big", &BODY));
    assert!(site.drained);
    assert!(site.promises().iter().any(|(_, p)| matches!(p, Promise::Accepted { .. })));
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Scheduled);
    site.audit();
}

/// Whoever begins and sends nothing more holds no stop up for ever, and goes on at its checkpoint later.
#[test]
fn what_does_not_arrive_in_time_goes_on_at_its_checkpoint_after_the_start() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let body = vec![5; usize::try_from(CHECKPOINT_EVERY).unwrap() + 1_000];
    offer_blob(&mut site, conn, 1, &body);
    site.settle();
    let (blob, _, _) = accepted(&mut site);
    site.input(Input::Stop);
    let chain = reach_checkpoint(&mut site, conn, blob, &body);
    assert!(!site.drained);
    site.wait(Duration::from_secs(31));
    assert!(site.drained);
    assert_eq!(recovery(&site.store).incoming.len(), 1);
    let mut site = site.restart();
    let conn = site.session("beta");
    site.settle();
    offer_blob(&mut site, conn, 1, &body);
    site.settle();
    assert_eq!(accepted(&mut site), (blob, CHECKPOINT_EVERY, chain));
}
