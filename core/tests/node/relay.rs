//! From "queued" to "delivered", and every way an attempt can end.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::ledger::Table;
use consign_core::ledger::rows::State;
use consign_core::node::{Input, Note};
use consign_core::segment::Class;
use consign_core::session::{Outcome, Promise, SessionCommand};
use consign_core::store::StoreFault;

use crate::site::{Site, config};

#[test]
fn queued_is_said_after_the_commit_and_not_before() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let client = site.client();
    site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.turn(); // asks for the lookup
    site.turn(); // judged, staged, handed over
    assert!(site.has_batch());
    assert!(site.take_told(client).is_empty());
    site.commit();
    site.turn();
    let told = site.take_told(client);
    assert!(matches!(&told[..], [SessionCommand::Promised(_)]), "{told:?}");
    site.settle();
    site.audit();
}

#[test]
fn a_segment_goes_from_scheduled_to_acked_and_is_relayed() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Scheduled);
    let conn = site.session("beta");
    site.settle();
    let sends = site.sendings();
    assert_eq!(sends.len(), 1);
    let row = site.delivery(id, "beta").unwrap();
    assert_eq!((row.state, row.attempts, row.spent), (State::Inflight, 1, 0));
    site.outcome(conn, sends[0].1.offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Acked);
    assert!(site.segment(id).unwrap().relayed_at.is_some());
    assert!(
        site.notes
            .iter()
            .any(|n| matches!(n, Note::Relayed { condition: "all_peers", acks: 1, .. }))
    );
    assert_eq!(site.store.rows(Table::Unmet), 0);
    site.audit();
}

#[test]
fn nothing_is_sent_before_its_claim_is_durable() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    site.session("beta");
    site.turn();
    assert!(site.has_batch() && site.sendings().is_empty());
    site.commit();
    site.turn();
    assert_eq!(site.sendings().len(), 1);
}

#[test]
fn accept_and_claim_share_a_commit_when_the_peer_is_there() {
    let mut site = Site::new(&["beta"]);
    site.session("beta");
    site.settle();
    let before = site.store.commits();
    let client = site.client();
    let id = site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.settle();
    assert_eq!(site.store.commits(), before + 1);
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Inflight);
}

/// Outcome, state after it, cause, what it spends.
fn endings() -> Vec<(Outcome, State, Option<Cause>, u32)> {
    let no = Site::rejected;
    vec![
        (Outcome::Acked, State::Acked, None, 0),
        (Outcome::AckTimeout, State::Failed, Some(Cause::AckTimeout), 1),
        (Outcome::AckMismatch, State::Failed, Some(Cause::AckMismatch), 1),
        (
            Outcome::Unreadable(StoreFault::Io("eio".into())),
            State::Failed,
            Some(Cause::Unreadable),
            1,
        ),
        (
            Outcome::Unreadable(StoreFault::Missing("x".into())),
            State::Deadletter,
            Some(Cause::Missing),
            0,
        ),
        (no(Refusal::Quota), State::Failed, Some(Cause::Quota), 0),
        (no(Refusal::DiskFull), State::Failed, Some(Cause::DiskFull), 0),
        (no(Refusal::Busy), State::Failed, Some(Cause::Busy), 0),
        (no(Refusal::TooLarge), State::Deadletter, Some(Cause::TooLarge), 0),
        (no(Refusal::Expired), State::Deadletter, Some(Cause::Expired), 0),
        (no(Refusal::Invalid), State::Deadletter, Some(Cause::Invalid), 0),
        (no(Refusal::NotAddressed), State::Deadletter, Some(Cause::NotAddressed), 0),
        (no(Refusal::Mismatch), State::Failed, Some(Cause::Mismatch), 1),
        (no(Refusal::Unknown), State::Failed, Some(Cause::Refused), 1),
    ]
}

#[test]
fn every_ending_leads_to_its_state() {
    for (outcome, state, cause, spent) in endings() {
        let mut site = Site::new(&["beta"]);
        let id = site.queue("one", &["beta"]);
        let conn = site.session("beta");
        site.settle();
        let transfer = site.sendings()[0].1.offer.transfer;
        site.outcome(conn, transfer, outcome.clone());
        site.settle();
        let row = site.delivery(id, "beta").unwrap();
        assert_eq!((row.state, row.spent, row.attempts), (state, spent, 1), "{outcome:?}");
        assert_eq!(Cause::from_number(row.last_error), cause, "{outcome:?}");
        let later = row.next_attempt_after > site.now.wall.0;
        assert_eq!(later, state == State::Failed, "{outcome:?}");
        site.audit();
    }
}

#[test]
fn a_site_that_had_it_and_let_it_go_leaves_the_required_set() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta", "gamma"]);
    let beta = site.session("beta");
    site.settle();
    let transfer = site.sendings()[0].1.offer.transfer;
    site.outcome(beta, transfer, Site::rejected(Refusal::AlreadyRelayed));
    site.settle();
    assert!(site.delivery(id, "beta").is_none());
    let segment = site.segment(id).unwrap();
    assert_eq!((segment.required, segment.acked, segment.relayed_at), (1, 0, None));
    site.audit();
}

#[test]
fn a_mismatch_twice_is_a_dead_letter() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let conn = site.session("beta");
    for expected in [State::Failed, State::Deadletter] {
        site.settle();
        let transfer = site.sendings()[0].1.offer.transfer;
        site.outcome(conn, transfer, Site::rejected(Refusal::Mismatch));
        site.settle();
        assert_eq!(site.delivery(id, "beta").unwrap().state, expected);
        site.wait(Duration::from_secs(1000));
    }
    assert_eq!(site.store.rows(Table::Deadletters), 1);
}

#[test]
fn own_failures_end_among_the_dead_letters_after_max_retries() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    for n in 1..=8 {
        let transfer = site.sendings()[0].1.offer.transfer;
        site.outcome(conn, transfer, Outcome::AckTimeout);
        site.settle();
        let row = site.delivery(id, "beta").unwrap();
        assert_eq!((row.attempts, row.spent), (n, n as u32));
        assert_eq!(row.state, if n < 8 { State::Failed } else { State::Deadletter });
        site.wait(Duration::from_secs(250));
    }
    assert!(site.sendings().is_empty());
    site.audit();
}

#[test]
fn a_lost_session_spends_nothing_and_its_work_goes_on_at_once() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    for n in 1..=20 {
        let conn = site.session("beta");
        site.settle();
        assert_eq!(site.sendings().len(), 1, "session {n}");
        site.input(Input::Closed { conn, why: "reset".into() });
        site.settle();
        let row = site.delivery(id, "beta").unwrap();
        assert_eq!((row.state, row.attempts, row.spent), (State::Failed, n, 0));
        assert_eq!(row.last_error, Cause::SessionLost.number());
        site.audit();
    }
}

#[test]
fn strict_attempts_count_every_failure_as_the_source_did() {
    let mut site = Site::with(consign_core::config::Config {
        strict_attempts: true,
        max_retries: 2,
        ..config(&["beta"])
    });
    let id = site.queue("one", &["beta"]);
    for expected in [State::Failed, State::Deadletter] {
        let conn = site.session("beta");
        site.settle();
        site.input(Input::Closed { conn, why: "reset".into() });
        site.settle();
        assert_eq!(site.delivery(id, "beta").unwrap().state, expected);
    }
}

#[test]
fn an_outcome_of_a_dead_session_changes_nothing() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let old = site.session("beta");
    site.settle();
    let transfer = site.sendings()[0].1.offer.transfer;
    let new = site.session("beta"); // replaces the old one
    site.settle();
    let again = site.sendings();
    assert_eq!(again[0].0, new);
    site.outcome(old, transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Inflight);
    assert_eq!(site.delivery(id, "beta").unwrap().attempts, 2);
    site.audit();
}

#[test]
fn a_send_promised_to_a_session_that_died_meanwhile_is_not_sent() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.turn(); // claimed and handed over
    site.input(Input::Closed { conn, why: "reset".into() });
    site.turn();
    site.commit();
    site.settle();
    assert!(site.sendings().is_empty());
    assert_eq!(site.delivery(id, "beta").unwrap().state, State::Failed);
    site.audit();
}

#[test]
fn due_work_goes_in_the_order_of_time_and_segment_id() {
    let mut site = Site::new(&["beta"]);
    let mut ids: Vec<_> = (0..50).map(|i| site.queue(&format!("n{i}"), &["beta"])).collect();
    ids.sort();
    site.session("beta");
    site.settle();
    let order: Vec<_> = site.sendings().into_iter().map(|(_, s)| s.offer.id).collect();
    assert_eq!(order, ids);
}

#[test]
fn classes_share_a_peer_and_peers_take_turns() {
    let mut site = Site::new(&["beta", "gamma"]);
    let client = site.client();
    for i in 0..120u32 {
        let class = Class::ALL[(i % 4) as usize];
        site.submit(client, i + 1, &format!("n{i}"), &["beta", "gamma"], class);
    }
    site.settle();
    let (beta, gamma) = (site.connect("beta", true), site.connect("gamma", true));
    site.settle();
    site.hello(beta, "beta");
    site.hello(gamma, "gamma");
    site.settle();
    let sends = site.sendings();
    let to = |conn| sends.iter().filter(move |(c, _)| *c == conn);
    assert_eq!((to(beta).count(), to(gamma).count()), (64, 64));
    for conn in [beta, gamma] {
        let first: Vec<_> = to(conn).take(15).map(|(_, s)| s.offer.meta.class).collect();
        let count = |class| first.iter().filter(|c| **c == class).count();
        assert_eq!(Class::ALL.map(count), [8, 4, 2, 1]);
    }
}

#[test]
fn eight_full_refusals_in_a_row_hold_the_peer_back() {
    let mut site = Site::new(&["beta"]);
    for i in 0..9 {
        site.queue(&format!("n{i}"), &["beta"]);
    }
    let conn = site.session("beta");
    site.settle();
    for (_, sending) in site.sendings().into_iter().take(8) {
        site.outcome(conn, sending.offer.transfer, Site::rejected(Refusal::DiskFull));
    }
    site.settle();
    site.queue("late", &["beta"]);
    site.settle();
    assert!(site.sendings().is_empty(), "held back");
    site.wait(Duration::from_secs(2));
    assert!(!site.sendings().is_empty(), "tried again");
}

#[test]
fn known_segments_are_queued_once_and_gain_destinations() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta"]);
    let client = site.client();
    assert_eq!(site.submit(client, 1, "one", &["beta", "gamma"], Class::Normal), id);
    site.settle();
    let (_, promise) = site.promises().pop().unwrap();
    let Promise::Accepted { accepted, .. } = promise else { panic!("{promise:?}") };
    assert!(!accepted.new);
    assert_eq!((accepted.added, accepted.queued), (vec!["gamma".into()], vec!["beta".into()]));
    assert_eq!(site.segment(id).unwrap().required, 2);
    assert_eq!(site.store.parked(), 0);
    site.audit();
}

#[test]
fn an_unknown_destination_is_refused() {
    let mut site = Site::new(&["beta"]);
    let client = site.client();
    site.submit(client, 1, "one", &["delta"], Class::Normal);
    site.settle();
    let told = site.take_told(client);
    let refused =
        matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::UnknownDestination, .. }]);
    assert!(refused, "{told:?}");
    assert_eq!((site.store.parked(), site.store.rows(Table::Segments)), (0, 0));
}

#[test]
fn what_is_for_every_peer_waits_for_the_first_that_comes() {
    let mut site = Site::new(&[]);
    let id = site.queue("one", &["*"]);
    let row = site.segment(id).unwrap();
    assert_eq!((row.required, row.relayed_at), (0, None));
    assert_eq!(site.store.rows(Table::Unmet), 1);
    // It is nobody's for as long as nobody is known, however often the site starts.
    let mut site = site.restart();
    site.settle();
    assert_eq!(site.segment(id).unwrap().required, 0);
    site.config = config(&["beta", "gamma"]);
    // A crash between the start and the first commit changes nothing.
    let mut site = site.restart().restart();
    site.settle();
    for peer in ["beta", "gamma"] {
        assert_eq!(site.delivery(id, peer).unwrap().state, State::Scheduled, "{peer}");
    }
    assert_eq!((site.segment(id).unwrap().required, site.store.rows(Table::Unmet)), (2, 1));
    site.audit();
    let mut site = site.restart();
    site.settle();
    assert_eq!(site.segment(id).unwrap().required, 2, "they are added once");
    site.audit();
}

#[test]
fn quotas_refuse_with_a_code_and_keep_nothing() {
    let base = || config(&["beta"]);
    let cases = [
        (consign_core::config::Config { max_bytes: 10, ..base() }, Refusal::Quota),
        (consign_core::config::Config { max_segments: Some(0), ..base() }, Refusal::Quota),
        (consign_core::config::Config { max_segment: Some(3), ..base() }, Refusal::TooLarge),
        (consign_core::config::Config { min_free: u64::MAX, ..base() }, Refusal::DiskFull),
    ];
    for (config, expected) in cases {
        let mut site = Site::with(config);
        site.settle();
        let client = site.client();
        site.submit(client, 1, "one", &["beta"], Class::Normal);
        site.settle();
        let told = site.take_told(client);
        let [SessionCommand::Refuse { refusal, text, .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(*refusal, expected, "{text}");
        assert_eq!(site.store.parked(), 0);
        site.audit();
    }
}

#[test]
fn an_expired_segment_is_not_sent() {
    let mut site = Site::with(consign_core::config::Config {
        expire_after: Some(Duration::from_secs(60)),
        ..config(&["beta"])
    });
    let id = site.queue("one", &["beta"]);
    site.wait(Duration::from_secs(61));
    site.session("beta");
    site.settle();
    assert!(site.sendings().is_empty());
    let row = site.delivery(id, "beta").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Expired.number()));
    site.audit();
}

#[test]
fn status_tells_the_oldest_that_waits_or_is_in_flight() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    let first = site.now.wall;
    site.wait(Duration::from_secs(5));
    let conn = site.session("beta");
    site.queue("two", &["beta"]);
    let second = site.now.wall;
    let sendings = site.sendings();
    let oldest = |site: &Site| site.pump.node().status(site.now).peers[0].oldest;
    assert_eq!((sendings.len(), oldest(&site)), (2, Some(first)));
    let one = sendings.iter().find(|(_, s)| s.offer.meta.name == "one").unwrap();
    site.outcome(conn, one.1.offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(oldest(&site), Some(second));
}

#[test]
fn status_says_delivered_only_once_that_is_durable() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let transfer = site.sendings()[0].1.offer.transfer;
    site.outcome(conn, transfer, Outcome::Acked);
    site.turn();
    assert!(site.has_batch());
    let delivered = |site: &Site| {
        let status = site.pump.node().status(site.now);
        status.peers[0].counters[State::Acked as usize].count
    };
    assert_eq!(delivered(&site), 0);
    site.settle();
    assert_eq!(delivered(&site), 1);
}

#[test]
fn status_tells_since_when_a_peer_that_was_there_is_away() {
    let mut site = Site::new(&["beta"]);
    let down = |site: &Site| site.pump.node().status(site.now).peers[0].down_since;
    let close = |site: &mut Site, conn| {
        site.input(Input::Closed { conn, why: "cut".into() });
        site.settle();
    };
    // One that never became ready is no end of a session.
    let unready = site.connect("beta", true);
    close(&mut site, unready);
    assert_eq!(down(&site), None);
    let conn = site.session("beta");
    site.settle();
    assert_eq!(down(&site), None);
    site.wait(Duration::from_secs(5));
    let ended = site.now.wall;
    close(&mut site, conn);
    site.wait(Duration::from_secs(700));
    assert_eq!(down(&site), Some(ended));
    // Neither is a dial that fails: it has been away since then all the same.
    let unready = site.connect("beta", true);
    close(&mut site, unready);
    assert_eq!(down(&site), Some(ended));
    site.session("beta");
    site.settle();
    assert_eq!(down(&site), None);
}
