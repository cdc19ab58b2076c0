//! Custody that leads nowhere any more: another hop, a site that is gone, content that is gone.

use std::time::Duration;

use consign_core::act::Action;
use consign_core::code::Cause;
use consign_core::config::Config;
use consign_core::id::SegmentId;
use consign_core::ledger::rows::{Body, Loss, State};
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::session::Outcome;
use consign_core::store::{CommitFault, StoreFault};
use consign_core::wire::ReceiptOutcome;

use crate::acts::{act, audits, done, peer};
use crate::hop::*;
use crate::site::{Site, config};

/// What beta has for gamma.
fn handed_on() -> (Site, SegmentId) {
    let mut site = origin();
    let id = site.queue("one", &["gamma"]);
    hand_on(&mut site);
    assert_eq!(site.delivery(id, "gamma").unwrap().custody, Some(site.site("beta").0));
    (site, id)
}

fn hand_on(site: &mut Site) {
    let beta = site.session("beta");
    site.settle();
    loop {
        let sends = site.sendings();
        if sends.is_empty() {
            return;
        }
        for (_, sending) in sends {
            site.outcome(beta, sending.offer.transfer, Outcome::Acked);
        }
        site.settle();
    }
}

#[test]
fn a_route_that_leads_another_way_takes_the_delivery_along() {
    let (mut site, id) = handed_on();
    site.config = Config { routes: vec![route("gamma", "omega")], ..config(&["beta", "omega"]) };
    let mut site = site.restart();
    site.settle();
    let row = site.delivery(id, "gamma").unwrap();
    assert_eq!((row.state, row.custody, row.spent), (State::Failed, None, 0));
    assert_eq!((row.last_error, row.attempts), (Cause::Restart.number(), 1));
    assert_eq!((site.store.rows(Table::Handed), site.store.rows(Table::Due)), (0, 1));
    let audit = audits(&site).pop().unwrap();
    assert_eq!((&*audit.action, &*audit.subject, audit.count), ("reroute", "gamma", 1));
    site.audit();
    let omega = site.session("omega");
    site.settle();
    let (conn, offer) = sent(&mut site);
    assert_eq!((conn, offer.id, offer.to), (omega, id, named(&["gamma"])));
    // What the first hop says now is heard once the new one has answered.
    let beta = site.session("beta");
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert_eq!(site.said(beta), ["later gamma"]);
    site.audit();
}

/// A page that found no room was read again at once, until the commit under way was done.
#[test]
fn a_look_that_finds_no_room_waits_for_it() {
    let mut site = origin();
    for i in 0..1_000 {
        site.queue(&format!("n{i}"), &["gamma"]);
    }
    hand_on(&mut site);
    assert_eq!(site.store.rows(Table::Handed), 1_000);
    site.config = Config { routes: vec![route("gamma", "omega")], ..config(&["beta", "omega"]) };
    let mut site = site.restart();
    for _ in 0..500 {
        site.turn();
    }
    assert!(site.has_batch() && !site.has_inputs(), "it reads on and on");
    site.settle();
    assert_eq!((site.store.rows(Table::Handed), site.store.rows(Table::Due)), (0, 1_000));
    site.audit();
}

#[test]
fn a_routed_site_that_is_a_peer_now_is_sent_to_itself() {
    let (mut site, id) = handed_on();
    site.config = config(&["beta", "gamma"]);
    let mut site = site.restart();
    let gamma = site.session("gamma");
    site.settle();
    let (conn, offer) = sent(&mut site);
    assert_eq!((conn, offer.id), (gamma, id));
    site.outcome(gamma, offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(state(&site, id, "gamma"), Some(State::Acked));
    site.audit();
}

#[test]
fn more_than_a_page_is_taken_along_through_a_commit_that_fails() {
    let mut site = origin();
    let ids: Vec<SegmentId> = (0..100).map(|n| site.queue(&format!("n{n}"), &["gamma"])).collect();
    hand_on(&mut site);
    assert_eq!(site.store.rows(Table::Handed), 100);
    site.config = config(&["beta", "gamma"]);
    let mut site = site.restart();
    site.store.fail_commit(2, CommitFault::Full("no space left".into()));
    site.settle();
    site.wait(Duration::from_secs(60));
    assert!(ids.iter().all(|id| state(&site, *id, "gamma") == Some(State::Failed)));
    assert_eq!(site.store.rows(Table::Handed), 0);
    site.audit();
}

#[test]
fn the_same_hop_keeps_its_custody() {
    let (site, id) = handed_on();
    let mut site = site.restart();
    site.settle();
    assert!(site.delivery(id, "gamma").unwrap().custody.is_some());
    assert_eq!(audits(&site).len(), 0);
    site.audit();
}

/// Neither the site nor its hop is configured: nobody will tell, and `peers forget` is the way out.
#[test]
fn what_a_hop_has_for_a_site_that_is_forgotten_is_given_up() {
    for left in [&["beta"][..], &["omega"]] {
        let (mut site, id) = handed_on();
        site.config = config(left);
        let mut site = site.restart();
        site.settle();
        assert_eq!(state(&site, id, "gamma"), Some(State::Inflight));
        assert_eq!(done(&mut site, act(Action::Forget, peer("gamma"))).total().0, 1);
        assert_eq!(state(&site, id, "gamma"), None);
        assert_eq!((site.store.rows(Table::Handed), site.store.rows(Table::Owed)), (0, 0));
        assert_eq!(site.segment(id).unwrap().unplaced, Some(true));
        site.audit();
    }
}

/// The hop takes it for gamma, and the attempt for delta finds the content gone, in either order.
#[test]
fn content_that_is_found_gone_ends_what_a_hop_has_of_it() {
    for first in ["gamma", "delta"] {
        let mut site = origin();
        let id = site.queue("one", &["gamma", "delta"]);
        let beta = site.session("beta");
        site.settle();
        assert_eq!(site.sendings().len(), 1);
        // Each asks for itself from then on.
        site.input(Input::Closed { conn: beta, why: "reset".into() });
        site.session("beta");
        site.settle();
        let mut sends = site.sendings();
        assert_eq!(sends.len(), 2);
        sends.sort_by_key(|(_, sending)| sending.offer.to != named(&[first]));
        for (conn, sending) in sends {
            let gone = Outcome::Unreadable(StoreFault::Missing("gone".into()));
            let to_gamma = sending.offer.to == named(&["gamma"]);
            let outcome = if to_gamma { Outcome::Acked } else { gone };
            site.outcome(conn, sending.offer.transfer, outcome);
            site.settle();
        }
        for to in ["gamma", "delta"] {
            let row = site.delivery(id, to).unwrap();
            let dead = (State::Deadletter, Cause::Missing.number());
            assert_eq!((row.state, row.last_error), dead, "{to}, {first} first");
        }
        assert_eq!(site.store.rows(Table::Handed), 0);
        site.audit();
    }
}

#[test]
fn content_that_the_scrub_finds_gone_ends_what_a_hop_has_of_it() {
    let (mut site, id) = handed_on();
    site.wait(Duration::from_secs(25 * 3600));
    let Body::Inline(body) = site.segment(id).unwrap().body else { panic!("it is inline") };
    assert!(site.store.flip(Table::Bodies, &keys::body(body), 2));
    site.wait(Duration::from_secs(25 * 3600));
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Gone));
    let row = site.delivery(id, "gamma").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Missing.number()));
    site.audit();
}
