//! What metrics count: each step once, when it is durable, with the time it took.

use std::time::Duration;

use consign_core::act::Action;
use consign_core::code::{Cause, Refusal};
use consign_core::ledger::rows::{CounterRow, State};
use consign_core::node::{Ending, Note, Operation, PeerTallied, Source, Tallied};
use consign_core::segment::Class;
use consign_core::session::Outcome;
use consign_core::store::CommitFault;

use crate::acts::{act, all, done};
use crate::site::{Site, offer_inline, to_alpha};

fn of_site(site: &Site) -> Tallied {
    site.pump.node().status(site.now).tallied
}

fn of_beta(site: &Site) -> PeerTallied {
    let status = site.pump.node().status(site.now);
    status.peers.iter().find(|peer| peer.name == "beta").expect("beta").tallied
}

/// Attempts by what they came to: those that are not 0.
fn attempts(site: &Site) -> Vec<(&'static str, u64)> {
    let counts = Ending::ALL.iter().map(|ending| ending.word()).zip(of_beta(site).attempts);
    counts.filter(|(_, count)| *count > 0).collect()
}

fn failures(site: &Site) -> Vec<(&'static str, u64)> {
    let counts = Cause::ALL.iter().map(|cause| cause.word()).zip(of_beta(site).failures);
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Ends the one attempt that is under way.
fn ends(site: &mut Site, conn: consign_core::id::ConnId, outcome: Outcome) {
    let (_, sending) = site.sendings().pop().expect("an attempt");
    site.outcome(conn, sending.offer.transfer, outcome);
    site.settle();
}

#[test]
fn a_delivery_counts_with_the_time_from_its_accept_and_from_its_claim() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    site.wait(Duration::from_secs(40));
    let conn = site.session("beta");
    site.settle();
    assert_eq!(attempts(&site), []);
    site.wait(Duration::from_millis(300));
    ends(&mut site, conn, Outcome::Acked);
    assert_eq!((attempts(&site), failures(&site)), (vec![("delivered", 1)], vec![]));
    let told = |to: State| {
        site.notes.iter().find_map(|note| match note {
            Note::Delivery { to: Some(state), bytes, took, .. } if *state == to => {
                Some((*bytes, *took))
            }
            _ => None,
        })
    };
    let size = site.segment(id).expect("it is kept").size;
    assert_eq!(told(State::Inflight), Some((size, None)));
    assert_eq!(told(State::Acked), Some((size, Some(300))));
    let all = of_site(&site);
    assert_eq!((all.latency.count(), all.latency.sum()), (1, 40_300_000));
    assert_eq!((all.attempts.count(), all.attempts.sum()), (1, 300_000));
    assert_eq!(all.accepted[Source::Local as usize].count, 1);
    let commits = site.pump.node().status(site.now).commits.0;
    assert_eq!(all.commits.count(), commits);
}

#[test]
fn failures_count_by_their_cause_and_the_last_one_is_a_dead_letter() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    ends(&mut site, conn, Outcome::AckTimeout);
    assert_eq!((attempts(&site), failures(&site)), (vec![("failed", 1)], vec![("ack_timeout", 1)]));
    site.wait(Duration::from_secs(60));
    ends(&mut site, conn, Site::rejected(Refusal::TooLarge));
    assert_eq!(attempts(&site), [("failed", 1), ("dead", 1)]);
    assert_eq!(failures(&site), [("ack_timeout", 1), ("too_large", 1)]);
    assert_eq!(of_site(&site).latency.count(), 0);
    for (action, operation) in
        [(Action::Retry, Operation::Retry), (Action::Purge, Operation::Purge)]
    {
        done(&mut site, act(action, all()));
        assert_eq!(of_site(&site).deadletters[operation as usize], 1, "{operation}");
        if action == Action::Retry {
            ends(&mut site, conn, Site::rejected(Refusal::TooLarge));
        }
    }
    site.audit();
}

#[test]
fn what_a_failed_commit_takes_back_counts_once_when_it_is_judged_again() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let (_, sending) = site.sendings().pop().expect("an attempt");
    site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    let commits = of_site(&site).commits.count();
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.turn();
    site.commit();
    assert_eq!(attempts(&site), [], "it is not durable");
    site.settle();
    assert_eq!(attempts(&site), [("delivered", 1)]);
    assert_eq!(of_site(&site).latency.count(), 1);
    let after = of_site(&site).commits.count();
    assert!(after > commits, "{after} after {commits}");
    // An accept whose commit fails is refused, and is none.
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], Class::Normal);
    site.turn();
    site.turn();
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.commit();
    site.settle();
    assert_eq!(of_site(&site).accepted[Source::Local as usize].count, 1);
}

#[test]
fn a_restart_counts_from_nothing_and_tells_no_time_of_what_it_finds_in_flight() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    site.session("beta");
    site.settle();
    let mut site = site.restart();
    site.wait(Duration::from_secs(3_600));
    assert_eq!((attempts(&site), failures(&site)), (vec![("failed", 1)], vec![("restart", 1)]));
    let all = of_site(&site);
    assert_eq!((all.attempts.count(), all.accepted), (0, [CounterRow::default(); 3]));
}

#[test]
fn what_a_peer_brings_counts_as_its() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    offer_inline(&mut site, conn, 1, "one", to_alpha());
    site.settle();
    let row = of_site(&site).accepted[Source::Peer as usize];
    assert!(row.count == 1 && row.bytes > 0, "{row:?}");
    // What is here already is not accepted anew.
    offer_inline(&mut site, conn, 2, "one", to_alpha());
    site.settle();
    assert_eq!(of_site(&site).accepted[Source::Peer as usize], row);
}
