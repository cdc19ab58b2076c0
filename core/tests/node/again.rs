//! What comes again: accepted anew, remembered, unplaced.

use std::time::Duration;

use consign_core::code::Refusal;
use consign_core::config::Config;
use consign_core::id::{BatchNo, SegmentId, Seq, TransferNo};
use consign_core::ledger::rows::{CounterRow, MetaName, MetaRow, State};
use consign_core::ledger::rows_upkeep::RememberedRow;
use consign_core::ledger::{Table, keys};
use consign_core::segment::Class;
use consign_core::session::{Outcome, Promise, SessionCommand};
use consign_core::store::Batch;

use crate::hop::*;
use crate::site::{Site, config, recovery};

#[test]
fn a_segment_that_every_site_has_let_go_is_unplaced_until_somebody_wants_it() {
    let unplaced = |site: &Site| recovery(&site.store).meta_value(MetaName::Unplaced);
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    let number = offer.origin_seq;
    site.outcome(beta, offer.transfer, Site::rejected(Refusal::AlreadyRelayed));
    site.settle();
    let row = site.segment(id).unwrap();
    assert_eq!((row.required, row.relayed_at, row.unplaced), (0, None, Some(true)));
    assert_eq!((unplaced(&site), site.pump.node().status(site.now).unplaced), (1, 1));
    assert_eq!(site.store.rows(Table::Unmet), 1);
    // A local accept is never swallowed by memory of the past (R2).
    let mut site = site.restart();
    let beta = site.session("beta");
    site.queue("one", &["beta"]);
    let (_, again) = sent(&mut site);
    assert!(again.origin_seq > number, "{} after {number}", again.origin_seq);
    assert_eq!((unplaced(&site), site.segment(id).unwrap().unplaced), (0, None));
    site.outcome(beta, again.transfer, Outcome::Acked);
    site.settle();
    assert!(site.segment(id).unwrap().relayed_at.is_some());
    site.audit();
}

#[test]
fn what_is_left_of_the_required_set_decides() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta", "gamma"]);
    for (peer, outcome) in
        [("beta", Outcome::Acked), ("gamma", Site::rejected(Refusal::AlreadyRelayed))]
    {
        let conn = site.session(peer);
        site.settle();
        let (_, offer) = sent(&mut site);
        site.outcome(conn, offer.transfer, outcome);
        site.settle();
    }
    let row = site.segment(id).unwrap();
    assert!(row.relayed_at.is_some() && row.required == 1, "{row:?}");
    site.audit();
}

#[test]
fn an_answer_to_an_offer_older_than_the_accept_settles_nothing() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta"]);
    let beta = site.session("beta");
    site.settle();
    let (_, offer) = sent(&mut site);
    // While it is under way it is accepted again, for one more.
    site.queue("one", &["beta", "gamma"]);
    site.outcome(beta, offer.transfer, Site::rejected(Refusal::AlreadyRelayed));
    site.settle();
    let (_, again) = sent(&mut site);
    assert!(again.origin_seq > offer.origin_seq);
    let row = site.delivery(id, "beta").unwrap();
    assert_eq!((row.state, row.attempts, row.spent), (State::Inflight, 2, 0), "R2");
    site.audit();
}

/// A copy that began at beta, and another site's accept of the same content for everybody, or for beta
/// by name: told of its own accept, beta would not know that it is to keep it.
#[test]
fn the_origin_of_a_copy_is_told_of_the_accept_that_is_for_it() {
    for to in ["*", "beta"] {
        let mut site = Site::new(&["beta", "gamma", "delta"]);
        let (beta, gamma) = (site.session("beta"), site.session("gamma"));
        site.settle();
        offer(&mut site, beta, 1, &["*"], |o| (o.origin, o.origin_seq) = ("beta".into(), 70));
        let first = site.sendings();
        assert_eq!(first.len(), 1, "to gamma");
        assert!(first.iter().all(|(_, s)| (&*s.offer.origin, s.offer.origin_seq) == ("beta", 70)));
        offer(&mut site, gamma, 1, &[to], |o| (o.origin, o.origin_seq) = ("gamma".into(), 5));
        let (conn, again) = sent(&mut site);
        let (seq, row) = site.found(again.id).unwrap();
        assert_eq!((conn, &*row.origin, row.origin_seq), (beta, "beta", 70));
        assert_eq!((&*again.origin, again.origin_seq, again.hops), ("alpha", seq.0, 2), "R1");
        site.audit();
    }
}

/// A hop that has evicted a segment, as its ledger looks then.
fn evicted(origin: &str) -> (Site, SegmentId) {
    let (mut site, beta, _, id) = passed_on();
    answer(&mut site, beta, id, "gamma", false);
    site.settle();
    let number = recovery(&site.store).meta_value(MetaName::Batch) + 1;
    let mut batch = Batch::new(BatchNo(number));
    let (seq, gamma) = (Seq(1), site.site("gamma"));
    let origin = if origin == "alpha" { String::new() } else { origin.into() };
    let row = RememberedRow { evicted_at: 5, origin, origin_seq: 1, seq };
    batch.put(Table::Remembered, &keys::id(&id), &row);
    batch.del(Table::Ids, &keys::id(&id));
    batch.del(Table::Segments, &keys::seq(seq));
    batch.del(Table::Deliveries, &keys::delivery(seq, gamma));
    let zero = CounterRow { count: 0, bytes: 0 };
    batch.put(Table::Counters, &keys::counter(gamma, State::Acked as u8), &zero);
    let meta = MetaRow { value: 0 };
    batch.put(Table::Meta, b"segments", &meta);
    batch.put(Table::Meta, b"batch", &MetaRow { value: number });
    site.store.commit(&batch);
    let mut site = site.restart();
    site.settle();
    (site, id)
}

#[test]
fn memory_of_what_was_evicted_answers_with_receipts_or_refuses() {
    let (mut site, id) = evicted("beta");
    let omega = site.session("omega");
    site.settle();
    offer(&mut site, omega, 1, &["gamma"], |_| ());
    assert_eq!(site.said(omega), ["ack", "gamma: delivered"]);
    assert_eq!((site.store.rows(Table::Segments), site.store.rows(Table::PassBack)), (0, 1));
    // Another site than those it has a receipt for.
    offer(&mut site, omega, 2, &["beta"], |o| o.origin = "beta".into());
    assert_eq!(refusal(&mut site, omega), Some(Refusal::AlreadyRelayed));
    // Whoever is addressed takes it anew: memory is no copy (R1).
    offer(&mut site, omega, 3, &["alpha"], |_| ());
    assert_eq!(refusal(&mut site, omega), None);
    assert!(site.segment(id).unwrap().here);
}

#[test]
fn a_newer_accept_is_taken_anew_whatever_is_remembered() {
    for (origin, number, taken) in
        [("beta", 1, false), ("beta", 2, true), ("omega", 1, true), ("omega", 2, true)]
    {
        let (mut site, _) = evicted("beta");
        let omega = site.session("omega");
        site.settle();
        let to = if taken { "gamma" } else { "beta" };
        offer(&mut site, omega, 1, &[to], |o| {
            (o.origin, o.origin_seq) = (origin.into(), number);
        });
        let no = refusal(&mut site, omega);
        assert_eq!(no.is_none(), taken, "{origin} {number}: {no:?}");
        assert_eq!(site.store.rows(Table::Segments), usize::from(taken), "{origin} {number}");
    }
}

#[test]
fn the_sites_own_accept_that_comes_back_is_known_by_its_number() {
    let (mut site, _) = evicted("alpha");
    let omega = site.session("omega");
    site.settle();
    offer(&mut site, omega, 1, &["*"], |o| o.origin = "alpha".into());
    assert_eq!(refusal(&mut site, omega), Some(Refusal::AlreadyRelayed), "R2");
    // A local client is never refused for it.
    let client = site.client();
    site.submit(client, 1, "one", &["gamma"], Class::Normal);
    site.settle();
    assert_eq!(refusal(&mut site, client), None);
}

#[test]
fn a_segment_is_worth_delivering_longer_when_it_is_accepted_again() {
    let expiry = |site: &Site| site.store.rows(Table::Expiry);
    let config = Config { expire_after: Some(Duration::from_secs(60)), ..config(&["beta"]) };
    let mut site = Site::with(config);
    let id = site.queue("one", &["beta"]);
    let first = site.segment(id).unwrap().meta.expires_at.unwrap();
    site.wait(Duration::from_secs(30));
    site.queue("one", &["beta"]);
    let row = site.segment(id).unwrap();
    assert_eq!((row.meta.expires_at, expiry(&site)), (Some(first + 30_000), 1));
    assert_eq!((row.origin_seq, row.required), (0, 1), "no delivery began");
    // Never sooner.
    site.config.expire_after = Some(Duration::from_secs(1));
    let mut site = site.restart();
    site.queue("one", &["beta"]);
    assert_eq!(site.segment(id).unwrap().meta.expires_at, Some(first + 30_000));
}

/// A client hands it in for some sites, and this is what it is told.
fn hand_in(site: &mut Site, to: &[&str]) -> Vec<SessionCommand> {
    let client = site.client();
    site.submit_body(client, 1, "one", to, Class::Normal, b"one".to_vec());
    site.settle();
    site.take_told(client)
}

#[test]
fn where_a_delivery_stands_that_cannot_be_read_is_not_guessed() {
    let mut site = Site::new(&["beta", "gamma", "delta"]);
    hand_in(&mut site, &["beta", "gamma"]);
    let beta = site.session("beta");
    site.settle();
    let (_, sending) = sent(&mut site);
    let id = sending.id;
    site.outcome(beta, sending.transfer, Outcome::Acked);
    site.settle();
    let key = keys::delivery(site.found(id).unwrap().0, site.site("beta"));
    let before = site.delivery(id, "beta").unwrap();
    assert_eq!(before.state, State::Acked);
    assert!(site.store.flip(Table::Deliveries, &key, 3));

    // A client that means the site, and a peer that names it, hear that it cannot be told …
    for to in ["beta", "*"] {
        let told = hand_in(&mut site, &[to]);
        let [SessionCommand::Refuse { refusal: Refusal::Busy, text, .. }] = &told[..] else {
            panic!("{to}: {told:?}")
        };
        assert!(text.contains("its delivery to beta cannot be read at alpha"), "{text}");
    }
    let gamma = site.session("gamma");
    site.settle();
    assert_eq!(offer(&mut site, gamma, 1, &["beta"], |_| ()), id);
    assert_eq!(refusal(&mut site, gamma), Some(Refusal::Busy));
    // … those that mean others are not held up, and it is not begun anew where it may have arrived.
    let told = hand_in(&mut site, &["delta"]);
    assert!(matches!(&told[..], [SessionCommand::Promised(_)]), "{told:?}");
    offer(&mut site, gamma, 2, &["*"], |o| o.origin = "gamma".into());
    assert_eq!(site.promises(), [(gamma, Promise::Ack { transfer: TransferNo(2), id })]);
    assert!(site.delivery(id, "delta").is_some());

    // It was the reading alone that was wrong.
    assert!(site.store.flip(Table::Deliveries, &key, 3));
    let told = hand_in(&mut site, &["beta"]);
    assert!(matches!(&told[..], [SessionCommand::Promised(_)]), "{told:?}");
    assert_eq!(site.delivery(id, "beta").unwrap(), before);
    site.audit();
}

#[test]
fn a_segment_under_way_whose_row_cannot_be_read_is_not_kept_twice() {
    let mut site = Site::new(&["beta"]);
    hand_in(&mut site, &["beta"]);
    let beta = site.session("beta");
    site.settle();
    let (_, sending) = sent(&mut site);
    assert!(site.store.flip(Table::Segments, &keys::seq(Seq(1)), 3));
    let told = hand_in(&mut site, &["beta"]);
    assert!(
        matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::Busy, .. }]),
        "{told:?}"
    );
    let row = site.segment(sending.id).expect("what is known of it is written again");
    let told = hand_in(&mut site, &["beta"]);
    assert!(matches!(&told[..], [SessionCommand::Promised(_)]), "{told:?}");
    assert_eq!(site.segment(sending.id), Some(row));
    site.outcome(beta, sending.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.store.rows(Table::Segments), 1);
    assert!(site.segment(sending.id).unwrap().relayed_at.is_some());
    site.audit();
}
