//! Sites behind others: where things go, what a hop is asked, and what its ACK means.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::config::Config;
use consign_core::id::{BatchNo, Handle};
use consign_core::ledger::rows::{Body, MetaName, MetaRow, State};
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::segment::Class;
use consign_core::session::{Outcome, SessionCommand, SessionEvent};
use consign_core::store::{Batch, StoreRequest};
use consign_core::wire::ReceiptOutcome;

use crate::hop::*;
use crate::site::{Site, config, recovery};

#[test]
fn one_offer_serves_all_sites_of_a_hop_and_its_ack_is_no_delivery() {
    let mut site = origin();
    let id = site.queue("one", &["beta", "gamma", "delta"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    assert_eq!(offer.to, named(&["beta", "delta", "gamma"]));
    site.audit();
    site.outcome(beta, offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(state(&site, id, "beta"), Some(State::Acked));
    for peer in ["gamma", "delta"] {
        let row = site.delivery(id, peer).unwrap();
        assert_eq!((row.state, row.custody), (State::Inflight, Some(site.site("beta").0)));
    }
    assert_eq!(site.segment(id).unwrap().relayed_at, None, "R4");
    assert_eq!((site.store.rows(Table::Handed), site.store.rows(Table::Inflight)), (2, 0));
    site.audit();
    // Neither time nor a restart nor a lost session takes it back.
    site.wait(Duration::from_secs(3600));
    let mut site = site.restart();
    let beta = site.session("beta");
    site.settle();
    assert!(site.sendings().is_empty());
    assert_eq!(state(&site, id, "gamma"), Some(State::Inflight));
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert_eq!(state(&site, id, "gamma"), Some(State::Acked));
    assert_eq!(site.segment(id).unwrap().relayed_at, None);
    let failed = ReceiptOutcome::Failed(Cause::TooLarge.number());
    receipt(&mut site, beta, id, "delta", failed);
    site.settle();
    let row = site.delivery(id, "delta").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::TooLarge.number()));
    assert_eq!(site.said(beta), ["ok gamma", "ok delta"]);
    assert_eq!(site.store.rows(Table::Handed), 0);
    site.audit();
}

#[test]
fn a_shared_offer_that_is_refused_for_good_is_asked_again_one_by_one() {
    let mut site = origin();
    let id = site.queue("one", &["beta", "gamma", "delta"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    site.outcome(beta, offer.transfer, Site::rejected(Refusal::NotAddressed));
    site.settle();
    let sends = site.sendings();
    let mut asked: Vec<String> = sends.iter().map(|(_, s)| s.offer.to.to_string()).collect();
    asked.sort();
    assert_eq!(asked, ["beta", "delta", "gamma"]);
    for peer in ["beta", "gamma", "delta"] {
        let row = site.delivery(id, peer).unwrap();
        assert_eq!((row.state, row.attempts, row.spent), (State::Inflight, 2, 0), "{peer}");
    }
    for (conn, sending) in sends {
        let outcome = match sending.offer.to == named(&["delta"]) {
            true => Site::rejected(Refusal::NotAddressed),
            false => Outcome::Acked,
        };
        site.outcome(conn, sending.offer.transfer, outcome);
    }
    site.settle();
    let states = ["beta", "gamma", "delta"].map(|peer| state(&site, id, peer).unwrap());
    assert_eq!(states, [State::Acked, State::Inflight, State::Deadletter]);
    site.audit();
}

#[test]
fn what_was_tried_before_is_never_offered_together() {
    let mut site = origin();
    let id = site.queue("one", &["gamma", "delta"]);
    let beta = site.session("beta");
    site.settle();
    assert_eq!(sent(&mut site).1.to, named(&["delta", "gamma"]));
    site.input(Input::Closed { conn: beta, why: "reset".into() });
    site.settle();
    site.session("beta");
    site.settle();
    assert_eq!(site.sendings().len(), 2);
    for peer in ["gamma", "delta"] {
        assert_eq!(site.delivery(id, peer).unwrap().attempts, 2);
    }
    site.audit();
}

#[test]
fn a_soft_refusal_of_a_shared_offer_counts_once_for_the_hop() {
    let mut site = origin();
    let beta = site.session("beta");
    for i in 0..7 {
        site.queue(&format!("s{i}"), &["gamma", "delta"]);
        let (_, offer) = sent(&mut site);
        site.outcome(beta, offer.transfer, Site::rejected(Refusal::Quota));
        site.settle();
    }
    site.queue("eighth", &["beta"]);
    assert_eq!(site.sendings().len(), 1, "seven refusals hold nobody back");
    site.audit();
}

#[test]
fn a_routed_site_is_no_peer() {
    let mut site = origin();
    site.settle();
    assert_eq!(site.dials, ["beta"]);
    let conn = site.connect("gamma", false);
    site.settle();
    let told = site.take_told(conn);
    assert!(matches!(told[..], [SessionCommand::Close { .. }]), "{told:?}");
    let id = site.queue("one", &["*"]);
    assert_eq!(
        (state(&site, id, "beta"), state(&site, id, "gamma")),
        (Some(State::Scheduled), None)
    );
    let client = site.client();
    site.submit(client, 1, "two", &["omega"], Class::Normal);
    site.settle();
    assert_eq!(refusal(&mut site, client), Some(Refusal::UnknownDestination));
}

#[test]
fn a_number_is_kept_when_a_route_becomes_a_peer() {
    let mut site = origin();
    let id = site.queue("one", &["gamma"]);
    let number = site.site("gamma");
    site.config = config(&["gamma", "beta"]);
    let mut site = site.restart();
    let gamma = site.session("gamma");
    site.settle();
    let (conn, offer) = sent(&mut site);
    assert_eq!((conn, site.site("gamma")), (gamma, number));
    site.outcome(gamma, offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(state(&site, id, "gamma"), Some(State::Acked));
    site.audit();
}

#[test]
fn an_offer_is_an_order_for_all_its_sites_or_none() {
    let mut site = hop();
    let beta = site.session("beta");
    for to in [&["gamma", "nowhere"][..], &["alpha", "nowhere"], &["beta"], &["nowhere"]] {
        offer(&mut site, beta, 1, to, |_| ());
        assert_eq!(refusal(&mut site, beta), Some(Refusal::NotAddressed), "{to:?}");
        assert_eq!(site.store.rows(Table::Segments), 0);
    }
    let id = offer(&mut site, beta, 2, &["alpha", "gamma"], |_| ());
    assert_eq!(refusal(&mut site, beta), None);
    assert!(site.segment(id).unwrap().here);
    assert_eq!(state(&site, id, "gamma"), Some(State::Scheduled));
    // What is held is served no further than what is new.
    offer(&mut site, beta, 3, &["gamma", "nowhere"], |_| ());
    assert_eq!(refusal(&mut site, beta), Some(Refusal::NotAddressed));
}

#[test]
fn a_route_never_leads_back_to_where_it_came_from_or_began() {
    let routes = vec![route("gamma", "beta"), route("delta", "omega")];
    let mut site = Site::with(Config { routes, ..config(&["beta", "omega"]) });
    let beta = site.session("beta");
    offer(&mut site, beta, 1, &["gamma"], |o| o.origin = "elsewhere".into());
    assert_eq!(refusal(&mut site, beta), Some(Refusal::NotAddressed), "by way of the asker");
    offer(&mut site, beta, 2, &["delta"], |o| o.origin = "omega".into());
    assert_eq!(refusal(&mut site, beta), Some(Refusal::NotAddressed), "by way of the origin");
    offer(&mut site, beta, 3, &["delta"], |_| ());
    assert_eq!(refusal(&mut site, beta), None);
}

#[test]
fn a_circle_ends_where_it_closes() {
    let routes = vec![route("delta", "gamma")];
    let mut site = Site::with(Config { routes, ..config(&["beta", "gamma", "omega"]) });
    let (beta, omega) = (site.session("beta"), site.session("omega"));
    let gamma = site.session("gamma");
    let id = offer(&mut site, beta, 1, &["delta"], |_| ());
    let (_, out) = sent(&mut site);
    site.outcome(gamma, out.transfer, Outcome::Acked);
    site.settle();
    // Round it comes, with more hops behind it; once more from beta it is only a lost answer.
    offer(&mut site, omega, 1, &["delta"], |o| o.hops = 4);
    assert_eq!(refusal(&mut site, omega), Some(Refusal::AlreadyRelayed));
    offer(&mut site, beta, 2, &["delta"], |_| ());
    assert_eq!(refusal(&mut site, beta), None);
    // The peer this site relies on must not rely on this site.
    offer(&mut site, gamma, 1, &["delta"], |o| o.origin = "gamma".into());
    assert_eq!(refusal(&mut site, gamma), Some(Refusal::NotAddressed));
    // Once it is settled there is nothing to go round in circles for.
    receipt(&mut site, gamma, id, "delta", ReceiptOutcome::Delivered);
    site.settle();
    offer(&mut site, omega, 2, &["delta"], |o| o.hops = 4);
    assert_eq!(site.said(omega), ["ack", "delta: delivered"]);
    site.audit();
}

#[test]
fn a_circle_that_closes_before_the_commit_is_asked_to_come_again() {
    let routes = vec![route("delta", "gamma")];
    let mut site = Site::with(Config { routes, ..config(&["beta", "gamma", "omega"]) });
    let (beta, omega) = (site.session("beta"), site.session("omega"));
    offers(&mut site, beta, 1, &["delta"], |_| ());
    offers(&mut site, omega, 1, &["delta"], |o| o.hops = 4);
    while site.has_inputs() {
        site.turn();
    }
    assert!(site.has_batch(), "what beta brought is not durable");
    assert_eq!(refusal(&mut site, omega), Some(Refusal::Busy));
    site.settle();
    offer(&mut site, omega, 2, &["delta"], |o| o.hops = 4);
    assert_eq!(refusal(&mut site, omega), Some(Refusal::AlreadyRelayed));
    site.audit();
}

#[test]
fn the_sites_own_segment_that_comes_round_is_a_circle_too() {
    let routes = vec![route("delta", "gamma")];
    let mut site = Site::with(Config { routes, ..config(&["beta", "gamma"]) });
    let id = site.queue("one", &["delta"]);
    let body = b"content of one".to_vec();
    let beta = site.session("beta");
    let mut round = Site::make_offer("one", &body, 1, named(&["delta"]));
    (round.origin, round.hops) = ("alpha".into(), 3);
    assert_eq!(round.id, id);
    let handle = Handle { conn: beta, number: 1 };
    site.store.request(beta, StoreRequest::Park { handle, data: body.into() });
    let event = SessionEvent::Offered { offer: Box::new(round), body: Some(handle) };
    site.input(Input::Session(beta, event));
    site.settle();
    assert_eq!(refusal(&mut site, beta), Some(Refusal::AlreadyRelayed));
}

#[test]
fn a_hop_that_says_already_relayed_has_closed_a_circle() {
    let mut site = origin();
    let id = site.queue("one", &["gamma"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    site.outcome(beta, offer.transfer, Site::rejected(Refusal::AlreadyRelayed));
    site.settle();
    let row = site.delivery(id, "gamma").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Loop.number()), "R3");
    assert_eq!(recovery(&site.store).meta_value(MetaName::Unplaced), 0);
}

#[test]
fn what_was_handed_on_and_is_lost_here_waits_for_nobody() {
    let mut site = origin();
    let id = site.queue("one", &["gamma"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    site.outcome(beta, offer.transfer, Outcome::Acked);
    site.settle();
    let Body::Inline(lost) = site.segment(id).unwrap().body else { panic!() };
    let mut batch = Batch::new(BatchNo(9_000));
    batch.put(Table::Meta, b"batch", &MetaRow { value: 9_000 });
    batch.del(Table::Bodies, &keys::body(lost));
    site.store.commit(&batch);
    let mut site = site.restart();
    site.settle();
    // Its id may become another's: a receipt would find that one.
    let row = site.delivery(id, "gamma").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Missing.number()));
    site.audit();
    let beta = site.session("beta");
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert_eq!(site.said(beta), ["ok gamma"]);
}
