//! What an attempt costs: whose fault counts, when the peer itself waits, and what strictness changes.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::config::Config;
use consign_core::id::SegmentId;
use consign_core::ledger::rows::{Loss, State};
use consign_core::node::Input;
use consign_core::session::Outcome;
use consign_core::store::StoreFault;

use crate::site::{Site, config};

/// How an attempt may end without success: by the peer's word, or with its session.
#[derive(Clone, Debug)]
enum End {
    Says(Outcome),
    Leaves,
}

/// Ends that are nobody's fault here, with what the row says then.
fn soft() -> Vec<(End, Cause)> {
    vec![
        (End::Says(Site::rejected(Refusal::Quota)), Cause::Quota),
        (End::Says(Site::rejected(Refusal::DiskFull)), Cause::DiskFull),
        (End::Says(Site::rejected(Refusal::Busy)), Cause::Busy),
        (End::Leaves, Cause::SessionLost),
    ]
}

/// Ends that are the segment's own fault.
fn own() -> Vec<(End, Cause)> {
    vec![
        (End::Says(Outcome::AckTimeout), Cause::AckTimeout),
        (End::Says(Outcome::AckMismatch), Cause::AckMismatch),
        (End::Says(Outcome::Unreadable(StoreFault::Io("eio".into()))), Cause::Unreadable),
        (End::Says(Site::rejected(Refusal::Unknown)), Cause::Refused),
    ]
}

/// Lets one attempt after the other end so, until there have been `times` or it is dead.
fn suffer(strict: bool, end: &End, times: u32) -> (Site, State, u64, u32) {
    let config = Config { strict_attempts: strict, max_retries: 5, ..config(&["beta"]) };
    let mut site = Site::with(config);
    let id = site.queue("one", &["beta"]);
    site.session("beta");
    for _ in 0..times {
        site.settle();
        // Longer than any backoff, shorter than a session's life in all.
        for _ in 0..50 {
            if site.delivery(id, "beta").unwrap().state == State::Inflight {
                break;
            }
            site.wait(Duration::from_secs(20));
        }
        let row = site.delivery(id, "beta").unwrap();
        if row.state == State::Deadletter {
            break;
        }
        assert_eq!(row.state, State::Inflight, "{end:?}");
        let sends = site.sendings();
        let (conn, sending) = sends.last().expect("it is offered");
        match end {
            End::Says(outcome) => {
                site.outcome(*conn, sending.offer.transfer, outcome.clone());
                // A session of its own for each attempt: none grows old.
                site.settle();
                site.input(Input::Closed { conn: *conn, why: String::new() });
            }
            End::Leaves => site.input(Input::Closed { conn: *conn, why: "cable".into() }),
        }
        site.settle();
        site.session("beta");
    }
    let row = site.delivery(id, "beta").unwrap();
    (site, row.state, row.attempts, row.spent)
}

#[test]
fn what_is_nobodys_fault_here_spends_nothing_however_often() {
    for (end, cause) in soft() {
        let (site, state, attempts, spent) = suffer(false, &end, 20);
        assert_ne!(state, State::Deadletter, "{cause}");
        assert_eq!((attempts >= 20, spent), (true, 0), "{cause}");
        site.audit();
    }
}

#[test]
fn the_segments_own_faults_are_counted_and_the_last_one_is_the_reason() {
    for (end, cause) in own() {
        let (site, state, attempts, spent) = suffer(false, &end, 20);
        assert_eq!((state, attempts, spent), (State::Deadletter, 5, 5), "{cause}");
        site.audit();
    }
}

#[test]
fn strictness_counts_every_failed_attempt() {
    for (end, cause) in soft().into_iter().chain(own()) {
        let (site, state, attempts, spent) = suffer(true, &end, 20);
        assert_eq!((state, attempts, spent), (State::Deadletter, 5, 5), "{cause}");
        site.audit();
    }
}

/// Refuses `times` segments one after the other; whether another one is offered at once then.
fn offered_after(refusal: Refusal, times: usize, ack_before_last: bool) -> bool {
    let mut site = Site::new(&["beta"]);
    site.session("beta");
    for n in 0..times {
        if ack_before_last && n + 1 == times {
            site.queue("good", &["beta"]);
            let (conn, sending) = site.sendings().remove(0);
            site.outcome(conn, sending.offer.transfer, Outcome::Acked);
            site.settle();
        }
        site.queue(&format!("n{n}"), &["beta"]);
        let sends = site.sendings();
        let (conn, sending) = sends.first().expect("it is offered");
        site.outcome(*conn, sending.offer.transfer, Site::rejected(refusal));
        site.settle();
    }
    site.queue("next", &["beta"]);
    let offered = !site.sendings().is_empty();
    if !offered {
        site.wait(Duration::from_secs(30));
        assert!(!site.sendings().is_empty(), "the peer's wait ends");
    }
    site.audit();
    offered
}

#[test]
fn eight_refusals_for_want_of_space_in_a_row_also_hold_back_the_peer() {
    for refusal in [Refusal::Quota, Refusal::DiskFull] {
        assert!(offered_after(refusal, 7, false), "{refusal}");
        assert!(!offered_after(refusal, 8, false), "{refusal}");
        assert!(offered_after(refusal, 8, true), "{refusal}: an ack between");
    }
    assert!(offered_after(Refusal::Busy, 20, false));
}

/// A peer refuses what it gets so often as a mismatch, and the last time with nothing left of the budget.
fn mismatched(times: u32, hold_scrubs: bool) -> (Site, SegmentId) {
    let mut site = Site::with(Config { max_retries: times, ..config(&["beta", "gamma"]) });
    site.hold_scrubs = hold_scrubs;
    let id = site.queue("one", &["beta", "gamma"]);
    let beta = site.session("beta");
    for _ in 0..times {
        site.settle();
        let (_, sending) = site.sendings().pop().expect("it is offered");
        site.outcome(beta, sending.offer.transfer, Site::rejected(Refusal::Mismatch));
        site.settle();
        site.wait(Duration::from_secs(20));
    }
    let row = site.delivery(id, "beta").unwrap();
    let cause = Cause::from_number(row.last_error);
    assert_eq!((row.state, cause), (State::Deadletter, Some(Cause::Mismatch)));
    (site, id)
}

#[test]
fn one_mismatch_on_the_last_attempt_says_nothing_against_the_content() {
    let (mut site, id) = mismatched(1, false);
    assert_eq!(site.segment(id).unwrap().loss, None);
    let gamma = site.session("gamma");
    site.settle();
    let (_, sending) = site.sendings().pop().expect("gamma is offered it all the same");
    site.outcome(gamma, sending.offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.delivery(id, "gamma").unwrap().state, State::Acked);
    site.audit();
}

#[test]
fn two_mismatches_in_a_row_are_the_word_of_one_peer_and_harm_no_other() {
    let (mut site, id) = mismatched(2, true);
    assert_eq!(site.segment(id).unwrap().loss, Some(Loss::Doubted));
    assert_eq!(site.delivery(id, "gamma").unwrap().state, State::Scheduled);
    site.audit();
    // This site has looked, and what it keeps is whole.
    site.let_go();
    site.settle();
    assert_eq!(site.segment(id).unwrap().loss, None);
    let gamma = site.session("gamma");
    site.settle();
    let (_, sending) = site.sendings().pop().expect("gamma is offered it");
    site.outcome(gamma, sending.offer.transfer, Outcome::Acked);
    site.settle();
    assert_eq!(site.delivery(id, "gamma").unwrap().state, State::Acked);
    site.audit();
}
