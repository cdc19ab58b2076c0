//! Content that could not be read when it was to be sent: what is kept of it is doubted, and nothing is
//! promised on the strength of it. Who brings it again brings its content too.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::id::{ConnId, Handle, SegmentId, TransferNo};
use consign_core::ledger::Table;
use consign_core::ledger::rows::{Body, Loss};
use consign_core::node::Input;
use consign_core::session::{Outcome, Promise, SessionEvent};
use consign_core::store::{CommitFault, StoreFault, StoreRequest};

use crate::hop::{named, refusal};
use crate::site::{self, Site, findings};

const BODY: &[u8] = b"content of small";

/// A segment for gamma, whose content could not be read when it was sent there, and what is kept of it.
fn doubted(site: &mut Site) -> (SegmentId, Body) {
    site.settle();
    // Before this site has looked at it itself.
    site.hold_scrubs = true;
    let id = site.queue("small", &["gamma"]);
    site.session("gamma");
    site.settle();
    let (conn, sending) = site.sendings().pop().unwrap();
    let fault = StoreFault::Io("input/output error".into());
    site.outcome(conn, sending.offer.transfer, Outcome::Unreadable(fault));
    site.settle();
    let row = site.segment(id).unwrap();
    assert_eq!((row.loss, row.here), (Some(Loss::Doubted), false));
    (id, row.body)
}

/// Beta has accepted it too, for alpha; the body may ride with its offer.
fn offered(site: &mut Site, beta: ConnId, transfer: u32, rides: bool) {
    let offer = Site::make_offer("small", BODY, transfer, named(&["alpha"]));
    let handle = Handle { conn: beta, number: transfer };
    if rides {
        site.store.request(beta, StoreRequest::Park { handle, data: BODY.into() });
    }
    let body = rides.then_some(handle);
    let event = SessionEvent::Offered { offer: Box::new(offer), body };
    site.input(Input::Session(beta, event));
    site.settle();
}

fn is_whole(site: &Site, id: SegmentId, before: Body) {
    let row = site.segment(id).unwrap();
    assert_eq!(row.loss, None, "it is mended");
    assert_ne!(row.body, before, "what is doubted went when the other came");
    assert_eq!((site.store.rows(Table::Segments), site.store.rows(Table::Audit)), (1, 1));
    assert_eq!(site.pump.node().status(site.now).scrub.damaged, 0);
    assert_eq!(findings(&site.store), []);
    site.audit();
}

#[test]
fn a_peer_that_offers_it_is_acknowledged_for_what_it_brings() {
    for rides in [true, false] {
        let mut site = Site::new(&["beta", "gamma"]);
        let (id, before) = doubted(&mut site);
        let beta = site.session("beta");
        site.settle();
        offered(&mut site, beta, 1, rides);
        let transfer = TransferNo(1);
        if !rides {
            // Beta may let its copy go once it has an ACK: there is none before the content is here.
            let (blob, ..) = site::accepted(&mut site);
            assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Doubted));
            site::write(&mut site, beta, blob, 0, BODY);
            site.store.request(beta, StoreRequest::Finish { blob });
            site.input(Input::Session(beta, SessionEvent::Received { transfer, blob }));
            site.settle();
        }
        assert_eq!(site.promises(), [(beta, Promise::Ack { transfer, id })]);
        assert!(site.segment(id).unwrap().here, "and it is kept for this site too (R1)");
        is_whole(&site, id, before);
    }
}

#[test]
fn a_client_that_hands_it_in_again_puts_it_in_place() {
    let mut site = Site::new(&["beta", "gamma"]);
    let (id, before) = doubted(&mut site);
    assert_eq!(site.queue("small", &["gamma"]), id);
    is_whole(&site, id, before);
    // It is whole again, and nothing is stored twice.
    let mended = site.segment(id).unwrap().body;
    assert_eq!(site.queue("small", &["gamma"]), id);
    assert_eq!(site.segment(id).unwrap().body, mended);
}

#[test]
fn what_does_not_become_durable_is_not_acknowledged() {
    let mut site = Site::new(&["beta", "gamma"]);
    let (id, before) = doubted(&mut site);
    let beta = site.session("beta");
    site.settle();
    site.store.fail_commit(1, CommitFault::Full("no space left".into()));
    offered(&mut site, beta, 1, true);
    assert_eq!(refusal(&mut site, beta), Some(Refusal::DiskFull));
    let row = site.segment(id).unwrap();
    assert_eq!((row.loss, row.body, row.here), (Some(Loss::Doubted), before, false));
    assert_eq!(findings(&site.store), []);
    // Nor while it is in flight to gamma: what is being read is not replaced.
    site.wait(Duration::from_secs(60));
    site.sendings();
    offered(&mut site, beta, 2, true);
    assert_eq!(refusal(&mut site, beta), Some(Refusal::Busy));
}
