//! Receipts: passed back until they are kept, and what comes twice or too early.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::Config;
use consign_core::id::{Handle, SegmentId};
use consign_core::ledger::Table;
use consign_core::ledger::rows::State;
use consign_core::node::Input;
use consign_core::segment::Class;
use consign_core::session::{Outcome, SessionEvent};
use consign_core::store::{Batch, CommitFault, Space, StoreRequest};
use consign_core::time::Now;
use consign_core::wire::ReceiptOutcome;

use crate::hop::*;
use crate::site::{Site, config};

#[test]
fn the_last_receipt_meets_the_condition() {
    let mut site = origin();
    let id = site.queue("one", &["gamma"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    assert_eq!(offer.to, named(&["gamma"]));
    site.outcome(beta, offer.transfer, Outcome::Acked);
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert!(site.segment(id).unwrap().relayed_at.is_some());
    assert_eq!(site.said(beta), ["ok gamma"]);
    // Whatever comes twice changes nothing and is answered.
    for of in ["gamma", "nobody"] {
        receipt(&mut site, beta, id, of, ReceiptOutcome::Failed(1));
        site.settle();
        assert_eq!(site.said(beta), [format!("ok {of}")]);
    }
    receipt(&mut site, beta, SegmentId([9; 32]), "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert_eq!(site.said(beta), ["ok gamma"]);
    assert_eq!(state(&site, id, "gamma"), Some(State::Acked));
    site.audit();
}

#[test]
fn a_hop_passes_the_receipt_back_until_it_is_kept() {
    let (mut site, beta, _, id) = passed_on();
    assert_eq!(site.said(beta), ["gamma: delivered"]);
    let row = site.receipt(id, "gamma").unwrap();
    assert_eq!((row.cause, row.back, row.pending), (0, site.site("beta").0, true));
    site.audit();
    site.input(Input::Closed { conn: beta, why: "reset".into() });
    site.settle();
    let mut site = site.restart();
    let beta = site.session("beta");
    site.settle();
    assert_eq!(site.said(beta), ["gamma: delivered"]);
    answer(&mut site, beta, id, "gamma", true);
    site.settle();
    assert!(site.said(beta).is_empty(), "later is later");
    assert_eq!(site.store.rows(Table::PassBack), 1);
    site.input(Input::Closed { conn: beta, why: "reset".into() });
    let beta = site.session("beta");
    site.settle();
    assert_eq!(site.said(beta), ["gamma: delivered"]);
    answer(&mut site, beta, id, "gamma", false);
    answer(&mut site, beta, id, "gamma", false);
    site.settle();
    assert_eq!(site.store.rows(Table::PassBack), 0);
    assert!(!site.receipt(id, "gamma").unwrap().pending);
    site.audit();
    let mut site = site.restart();
    let beta = site.session("beta");
    site.settle();
    assert!(site.said(beta).is_empty());
}

#[test]
fn a_dead_letter_at_the_hop_is_told_too() {
    let mut site = hop();
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    let id = offer(&mut site, beta, 1, &["gamma"], |_| ());
    let (_, offer) = sent(&mut site);
    site.outcome(gamma, offer.transfer, Site::rejected(Refusal::TooLarge));
    site.settle();
    assert_eq!(site.said(beta), ["gamma: too_large"]);
    assert_eq!(state(&site, id, "gamma"), Some(State::Deadletter));
    site.audit();
}

#[test]
fn who_asks_for_what_is_settled_gets_ack_and_receipt() {
    let (mut site, beta, _, id) = passed_on();
    site.said(beta);
    answer(&mut site, beta, id, "gamma", false);
    let omega = site.session("omega");
    site.settle();
    for (conn, transfer) in [(beta, 2), (omega, 1)] {
        offer(&mut site, conn, transfer, &["gamma"], |_| ());
        assert_eq!(site.said(conn), ["ack", "gamma: delivered"]);
        site.audit();
    }
    assert_eq!(site.store.rows(Table::PassBack), 2);
    answer(&mut site, omega, id, "gamma", false);
    site.settle();
    let row = site.receipt(id, "gamma").unwrap();
    assert!(row.pending && row.more.is_empty(), "beta has not said that it keeps it");
    answer(&mut site, beta, id, "gamma", false);
    site.settle();
    site.audit();
    assert_eq!(site.store.rows(Table::PassBack), 0);
}

/// A power cut between the two left the asker to wait for ever.
#[test]
fn the_ack_for_what_is_settled_rests_on_the_receipt_behind_it() {
    for evicts in [false, true] {
        let peers = ["beta", "gamma", "omega"];
        let mut site = Site::with(Config { evict_on_relay: evicts, ..config(&peers) });
        let (beta, gamma) = (site.session("beta"), site.session("gamma"));
        let id = offer(&mut site, beta, 1, &["gamma"], |_| ());
        let (_, out) = sent(&mut site);
        site.outcome(gamma, out.transfer, Outcome::Acked);
        site.settle();
        answer(&mut site, beta, id, "gamma", false);
        site.settle();
        assert_eq!(site.segment(id).is_none(), evicts);
        let omega = site.session("omega");
        site.settle();
        for (conn, transfer) in [(beta, 2), (omega, 1)] {
            site.said(conn);
            offers(&mut site, conn, transfer, &["gamma"], |_| ());
            while !site.has_batch() {
                site.turn();
            }
            site.turn();
            let told = site.told.len();
            assert_eq!(told, 0, "evicts: {evicts}, and nothing of it is durable");
            site.settle();
            assert_eq!(site.said(conn), ["ack", "gamma: delivered"]);
            site.audit();
        }
        assert_eq!(site.store.rows(Table::PassBack), 2);
    }
}

/// It was judged as it had been read.
#[test]
fn a_receipt_that_is_asked_for_while_its_time_ends_stays_until_it_is_told() {
    let keep_receipts = Duration::from_secs(60);
    let mut site = Site::with(Config { keep_receipts, ..config(&["beta", "gamma"]) });
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    let id = offer(&mut site, beta, 1, &["gamma"], |_| ());
    let (_, out) = sent(&mut site);
    site.outcome(gamma, out.transfer, Outcome::Acked);
    site.settle();
    answer(&mut site, beta, id, "gamma", false);
    site.settle();
    site.said(beta);
    // Its end is read together with what is known of the offer.
    site.now =
        Now { mono: site.now.mono.after(keep_receipts), wall: site.now.wall.after(keep_receipts) };
    offer(&mut site, beta, 2, &["gamma"], |_| ());
    assert_eq!(site.said(beta), ["ack", "gamma: delivered"]);
    assert!(site.receipt(id, "gamma").is_some_and(|row| row.pending));
    site.audit();
    let mut site = site.restart();
    let beta = site.session("beta");
    site.settle();
    assert_eq!(site.said(beta), ["gamma: delivered"]);
}

#[test]
fn an_answer_to_what_was_said_before_does_not_count_for_what_is_said_now() {
    let (mut site, beta, _, id) = passed_on();
    offer(&mut site, beta, 2, &["gamma"], |_| ());
    assert_eq!(site.said(beta), ["gamma: delivered", "ack", "gamma: delivered"]);
    answer(&mut site, beta, id, "gamma", false);
    site.settle();
    assert_eq!(site.store.rows(Table::PassBack), 1);
    answer(&mut site, beta, id, "gamma", false);
    site.settle();
    assert_eq!(site.store.rows(Table::PassBack), 0);
    site.audit();
}

#[test]
fn everybody_who_asked_hears_of_it() {
    let mut site = hop();
    let (beta, omega) = (site.session("beta"), site.session("omega"));
    let id = offer(&mut site, beta, 1, &["gamma"], |_| ());
    // Another origin, by way of the same hop.
    offer(&mut site, omega, 1, &["gamma"], |o| o.origin = "omega".into());
    let told = site.told.clone();
    assert_eq!(site.said(beta), ["ack"]);
    site.told = told;
    assert_eq!(site.said(omega), ["ack"]);
    // The same once more after its answer was lost.
    offer(&mut site, omega, 2, &["gamma"], |o| o.origin = "omega".into());
    assert_eq!(site.said(omega), ["ack"]);
    assert_eq!(site.segment(id).unwrap().askers.len(), 1);
    let mut site = site.restart();
    let (beta, omega) = (site.session("beta"), site.session("omega"));
    let gamma = site.session("gamma");
    site.settle();
    let (_, out) = sent(&mut site);
    site.outcome(gamma, out.transfer, Outcome::Acked);
    site.settle();
    let told = site.told.clone();
    assert_eq!(site.said(beta), ["gamma: delivered"]);
    site.told = told;
    assert_eq!(site.said(omega), ["gamma: delivered"]);
    answer(&mut site, beta, id, "gamma", false);
    answer(&mut site, omega, id, "gamma", false);
    site.settle();
    assert_eq!(site.store.rows(Table::PassBack), 0);
    site.audit();
}

#[test]
fn a_receipt_that_comes_too_early_is_said_again() {
    let mut site = origin();
    let id = site.queue("one", &["gamma"]);
    let beta = site.session("beta");
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert!(matches!(state(&site, id, "gamma"), Some(State::Inflight)));
    let told = site.told.clone();
    assert_eq!(site.said(beta), ["later gamma"]);
    site.told = told;
    let (_, offer) = sent(&mut site);
    site.outcome(beta, offer.transfer, Outcome::Acked);
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert_eq!(site.said(beta), ["ok gamma"]);
    assert_eq!(state(&site, id, "gamma"), Some(State::Acked));
    site.audit();
}

#[test]
fn only_who_has_custody_is_believed() {
    let routes = vec![route("gamma", "beta")];
    let mut site = Site::with(Config { routes, ..config(&["beta", "omega"]) });
    let (beta, omega) = (site.session("beta"), site.session("omega"));
    site.settle();
    let client = site.client();
    let id = site.submit(client, 1, "one", &["gamma"], Class::Normal);
    site.settle();
    let (_, offer) = sent(&mut site);
    site.outcome(beta, offer.transfer, Outcome::Acked);
    receipt(&mut site, omega, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert_eq!(site.said(omega), ["ok gamma"]);
    assert_eq!(state(&site, id, "gamma"), Some(State::Inflight));
}

#[test]
fn receipts_are_told_a_page_at_a_time() {
    let mut site = hop();
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    let mut ids = Vec::new();
    for i in 0..300_u32 {
        let body = i.to_be_bytes();
        let offer = Site::make_offer(&format!("s{i}"), &body, i + 1, named(&["gamma"]));
        let handle = Handle { conn: beta, number: i };
        site.store.request(beta, StoreRequest::Park { handle, data: body.to_vec().into() });
        ids.push(offer.id);
        let event = SessionEvent::Offered { offer: Box::new(offer), body: Some(handle) };
        site.input(Input::Session(beta, event));
    }
    site.input(Input::Closed { conn: beta, why: "reset".into() });
    site.settle();
    // The connection was gone before anything was judged: nothing is kept of it.
    assert_eq!(site.store.rows(Table::Segments), 0);
    let beta = site.session("beta");
    for (i, id) in ids.iter().enumerate() {
        let (number, body) = (i as u32 + 1, (i as u32).to_be_bytes());
        let offer = Site::make_offer(&format!("s{i}"), &body, number, named(&["gamma"]));
        assert_eq!(offer.id, *id);
        let handle = Handle { conn: beta, number };
        site.store.request(beta, StoreRequest::Park { handle, data: body.to_vec().into() });
        let event = SessionEvent::Offered { offer: Box::new(offer), body: Some(handle) };
        site.input(Input::Session(beta, event));
    }
    site.settle();
    site.input(Input::Closed { conn: beta, why: "reset".into() });
    loop {
        let sends = site.sendings();
        if sends.is_empty() {
            break;
        }
        for (_, sending) in sends {
            site.outcome(gamma, sending.offer.transfer, Outcome::Acked);
        }
        site.settle();
    }
    assert_eq!(site.store.rows(Table::PassBack), 300);
    let beta = site.session("beta");
    site.settle();
    assert_eq!(site.said(beta).len(), 256);
    for id in &ids {
        answer(&mut site, beta, *id, "gamma", false);
    }
    site.settle();
    assert_eq!(site.said(beta).len(), 44);
    for id in &ids {
        answer(&mut site, beta, *id, "gamma", false);
    }
    site.settle();
    assert_eq!(site.store.rows(Table::PassBack), 0);
    site.audit();
}

#[test]
fn a_full_disk_takes_no_receipt_back_and_forgets_none() {
    let full = |batch: &Batch| Input::CommitFailed {
        from: batch.number,
        why: CommitFault::Full("no space".into()),
        space: Space { free: 1 << 40, ledger: 0, ballast_whole: true },
    };
    let mut site = origin();
    let id = site.queue("one", &["gamma"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    site.outcome(beta, offer.transfer, Outcome::Acked);
    site.settle();
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    while !site.has_batch() {
        site.turn();
    }
    site.commit_by(|_, batch| full(batch));
    site.settle();
    assert_eq!(site.said(beta), ["ok gamma"]);
    assert_eq!(state(&site, id, "gamma"), Some(State::Acked));
    site.audit();
    // The same at a hop: what was staged to be told is told once it is durable.
    let mut site = hop();
    let (beta, gamma) = (site.session("beta"), site.session("gamma"));
    let id = crate::hop::offer(&mut site, beta, 1, &["gamma"], |_| ());
    let (_, offer) = sent(&mut site);
    site.outcome(gamma, offer.transfer, Outcome::Acked);
    while !site.has_batch() {
        site.turn();
    }
    site.commit_by(|_, batch| full(batch));
    site.settle();
    assert_eq!(site.said(beta), ["gamma: delivered"]);
    // An answer that is lost with its batch is asked for once more.
    answer(&mut site, beta, id, "gamma", false);
    while !site.has_batch() {
        site.turn();
    }
    site.commit_by(|_, batch| full(batch));
    site.settle();
    assert_eq!(site.store.rows(Table::PassBack), 1);
    assert_eq!(site.said(beta), ["gamma: delivered"]);
    answer(&mut site, beta, id, "gamma", false);
    site.settle();
    assert_eq!(site.store.rows(Table::PassBack), 0);
    site.audit();
}

#[test]
fn an_expired_segment_at_the_hop_is_told_back() {
    let mut site = hop();
    let beta = site.session("beta");
    let until = site.now.wall.0 + 1_000;
    let id = offer(&mut site, beta, 1, &["gamma"], |o| o.meta.expires_at = Some(until));
    site.said(beta);
    // Nobody has to come for it.
    site.wait(Duration::from_secs(2));
    assert_eq!(state(&site, id, "gamma"), Some(State::Deadletter));
    assert_eq!(site.said(beta), ["gamma: expired"]);
    site.audit();
}

#[test]
fn a_copy_whose_last_receipt_has_come_is_let_go() {
    let routes = vec![route("gamma", "beta")];
    let mut site = Site::with(Config { routes, evict_on_relay: true, ..config(&["beta"]) });
    let id = site.queue("one", &["gamma"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    site.outcome(beta, offer.transfer, Outcome::Acked);
    site.settle();
    assert!(site.segment(id).is_some(), "only a hop has it");
    receipt(&mut site, beta, id, "gamma", ReceiptOutcome::Delivered);
    site.settle();
    assert!(site.segment(id).is_none());
    site.audit();
}
