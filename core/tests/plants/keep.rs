//! What is let go, and on whose word something counts as delivered.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::{Config, Route};
use consign_core::id::{ConnId, Handle};
use consign_core::ledger::rows::State;
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::segment::Destinations;
use consign_core::session::{Outcome, SessionEvent};
use consign_core::store::StoreRequest;

use crate::site::{Site, config, offer_inline};
use crate::story::{End, promise};

/// A site that lets go what it has handed on.
fn evicting(plant: Option<Plant>) -> Site {
    let peers = ["beta", "gamma"];
    Site::with(Config { plant, evict_on_relay: true, ..config(&peers) })
}

fn to_gamma() -> Destinations {
    Destinations::named(vec!["gamma".into()]).unwrap()
}

/// A peer acknowledges everything that it is sent.
fn deliver(site: &mut Site, name: &str) -> ConnId {
    let conn = site.session(name);
    site.settle();
    for (to, sending) in site.sendings() {
        if to == conn {
            site.outcome(conn, sending.offer.transfer, Outcome::Acked);
        }
    }
    site.settle();
    conn
}

/// (R1) A segment for everybody comes, is kept here, and is handed on.
pub fn for_everybody(plant: Option<Plant>) -> End {
    let mut site = evicting(plant);
    let beta = site.session("beta");
    site.settle();
    let offer = offer_inline(&mut site, beta, 1, "one", Destinations::All);
    site.settle();
    deliver(&mut site, "gamma");
    site.wait(Duration::from_secs(60));
    promise(site.segment(offer.id).is_some(), || {
        "a segment that is for this site too is not kept any more".into()
    })
}

/// (R2) A segment that was handed on and let go is accepted once more at its origin.
pub fn accepted_anew(plant: Option<Plant>) -> End {
    let mut site = evicting(plant);
    let beta = site.session("beta");
    site.settle();
    offer_inline(&mut site, beta, 1, "one", to_gamma());
    site.settle();
    deliver(&mut site, "gamma");
    let mut offer = Site::make_offer("one", b"one", 2, to_gamma());
    assert!(site.segment(offer.id).is_none(), "it is let go");
    offer.origin_seq += 1;
    let handle = Handle { conn: beta, number: 2 };
    site.store.request(beta, StoreRequest::Park { handle, data: b"one".to_vec().into() });
    let id = offer.id;
    let event = SessionEvent::Offered { offer: Box::new(offer), body: Some(handle) };
    site.input(Input::Session(beta, event));
    site.settle();
    promise(site.segment(id).is_some(), || "what was accepted anew is not taken".into())
}

/// A segment for a site behind beta, offered to beta.
fn routed(plant: Option<Plant>) -> (Site, ConnId, consign_core::id::SegmentId) {
    let routes = vec![Route { to: "gamma".into(), via: "beta".into() }];
    let mut site = Site::with(Config { plant, routes, ..config(&["beta"]) });
    let id = site.queue("one", &["gamma"]);
    let beta = site.session("beta");
    site.settle();
    (site, beta, id)
}

/// (R3) A circle of routes: the next site says that it had the segment before.
pub fn closed_circle(plant: Option<Plant>) -> End {
    let (mut site, beta, id) = routed(plant);
    let (_, sending) = site.sendings().pop().expect("offered");
    let no = Site::rejected(Refusal::AlreadyRelayed);
    site.outcome(beta, sending.offer.transfer, no);
    site.settle();
    let state = site.delivery(id, "gamma").map(|row| row.state);
    promise(state == Some(State::Deadletter), || {
        format!("it goes round in a circle, and its delivery is {state:?}")
    })
}

/// (R4) A hop says that it has the segment; what becomes of it there nobody knows yet.
pub fn word_of_a_hop(plant: Option<Plant>) -> End {
    let (mut site, beta, id) = routed(plant);
    let (_, sending) = site.sendings().pop().expect("offered");
    site.outcome(beta, sending.offer.transfer, Outcome::Acked);
    site.settle();
    let state = site.delivery(id, "gamma").map(|row| row.state);
    promise(state != Some(State::Acked), || "it counts as delivered, and only a hop has it".into())
}
