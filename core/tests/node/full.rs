//! A full disk: growth is refused with its code, relief gets through, and everything adds up after.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::config::Config;
use consign_core::id::{ConnId, TransferNo};
use consign_core::ledger::Table;
use consign_core::ledger::rows::State;
use consign_core::node::{Input, Note};
use consign_core::segment::Class;
use consign_core::session::{Outcome, Promise, SessionCommand};
use consign_core::store::CommitFault;

use crate::site::{Site, config};

fn full() -> CommitFault {
    CommitFault::Full("no space left on device".into())
}

#[test]
fn an_accept_whose_commit_finds_no_space_is_refused_and_leaves_nothing() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let client = site.client();
    site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.turn();
    site.turn();
    site.store.fail_commit(1, full());
    site.store.set_ballast(64 << 20, false);
    site.store.set_capacity(0);
    site.commit();
    site.settle();
    let told = site.take_told(client);
    let refused = matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::DiskFull, .. }]);
    assert!(refused, "{told:?}");
    assert_eq!((site.store.rows(Table::Segments), site.store.parked()), (0, 0));
    assert!(site.halted.is_none());
    // While space is short the next one is refused before anything is staged.
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], Class::Normal);
    site.settle();
    let told = site.take_told(client);
    assert!(matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::DiskFull, .. }]));
    // Space comes back: it goes on by itself.
    site.store.set_capacity(u64::MAX);
    site.store.set_ballast(64 << 20, true);
    for _ in 0..5 {
        site.wait(Duration::from_secs(10));
    }
    assert!(site.notes.contains(&Note::RoomAgain));
    let id = site.queue("three", &["beta"]);
    assert!(site.delivery(id, "beta").is_some());
    site.audit();
}

#[test]
fn acks_of_a_failed_batch_are_judged_again_and_kept() {
    let mut site = Site::new(&["beta"]);
    let ids: Vec<_> = (0..5).map(|i| site.queue(&format!("n{i}"), &["beta"])).collect();
    let conn = site.session("beta");
    site.settle();
    let sends = site.sendings();
    for (_, sending) in &sends[..2] {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    }
    site.turn(); // both acks are in the batch under way
    site.outcome(conn, sends[2].1.offer.transfer, Outcome::Acked);
    site.turn(); // and one is staged behind it
    site.store.fail_commit(1, full());
    site.commit();
    site.settle();
    let mut acked = 0;
    for id in &ids {
        acked += usize::from(site.delivery(*id, "beta").unwrap().state == State::Acked);
    }
    assert_eq!(acked, 3);
    // The others are still in flight on the live session and end as usual.
    for (_, sending) in &sends[3..] {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    }
    site.settle();
    site.audit();
    assert_eq!(site.store.rows(Table::Inflight), 0);
}

#[test]
fn a_claim_of_a_failed_batch_is_not_sent_and_is_claimed_again() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let conn = site.connect("beta", true);
    site.settle();
    site.hello(conn, "beta");
    site.turn();
    site.store.fail_commit(1, full());
    site.commit();
    site.turn();
    assert!(site.sendings().is_empty());
    site.settle();
    assert_eq!(site.sendings().len(), 1);
    assert_eq!(site.delivery(id, "beta").unwrap().attempts, 1);
    site.audit();
}

#[test]
fn ten_full_commits_in_a_row_stop_the_process() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    site.queue("two", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let sends = site.sendings();
    for n in 1..=12 {
        site.store.fail_commit(n, full());
    }
    site.outcome(conn, sends[0].1.offer.transfer, Outcome::Acked);
    for _ in 0..40 {
        site.wait(Duration::from_secs(1));
        if site.halted.is_some() {
            return commits_nothing(&mut site, conn, sends[1].1.offer.transfer);
        }
    }
    panic!("relief that finds no space was tried without end");
}

/// What is staged rests on counters that are void: whatever comes, none of it is handed over.
fn commits_nothing(site: &mut Site, conn: ConnId, transfer: TransferNo) {
    let before = site.store.commits();
    site.outcome(conn, transfer, Outcome::Acked);
    for _ in 0..5 {
        site.turn();
        assert!(!site.has_batch(), "a batch after the end");
        site.wait(Duration::from_secs(10));
    }
    assert_eq!(site.store.commits(), before);
}

/// Time passes until a batch is handed over.
fn until_batch(site: &mut Site) {
    while !site.has_batch() {
        site.now.mono = site.now.mono.after(Duration::from_secs(6));
        site.input(Input::Timer);
        site.turn();
    }
}

#[test]
fn relief_that_finds_no_room_is_tried_in_smaller_batches_and_all_of_it_comes_through() {
    let peers = ["beta", "gamma", "delta", "epsilon"];
    let mut site = Site::new(&peers);
    let queued: Vec<_> =
        (0..1_000).map(|n| (site.queue(&format!("n{n}"), &[peers[n % 4]]), peers[n % 4])).collect();
    for peer in peers {
        let conn = site.connect(peer, true);
        site.hello_with(conn, peer, 256);
    }
    site.settle();
    let sends = site.sendings();
    assert_eq!(sends.len(), queued.len(), "all of them are in flight");
    // Half of the ACKs are in a batch that fails, the others come while it is under way.
    let (first, second) = sends.split_at(500);
    first.iter().for_each(|(to, s)| site.outcome(*to, s.offer.transfer, Outcome::Acked));
    site.turn();
    second.iter().for_each(|(to, s)| site.outcome(*to, s.offer.transfer, Outcome::Acked));
    site.turn();
    let mut rows = Vec::new();
    for _ in 0..6 {
        until_batch(&mut site);
        site.commit_by(|store, batch| {
            rows.push(batch.rows());
            store.fail_commit(1, full());
            store.commit(batch)
        });
        site.turn();
    }
    assert!(rows[0] > 1_000 && rows[1..].iter().all(|n| *n <= 64), "{rows:?}");
    assert!(site.halted.is_none());
    for _ in 0..20 {
        site.wait(Duration::from_secs(10));
    }
    for (id, peer) in &queued {
        let row = site.delivery(*id, peer).unwrap();
        assert_eq!((row.state, row.attempts), (State::Acked, 1));
    }
    site.audit();
}

/// Dead letters are due to be looked at, and a batch that was halved has no room for a slice of them:
/// that waits for a commit, not for the next moment.
#[test]
fn a_node_without_room_for_upkeep_waits_for_a_commit() {
    let mut site = Site::new(&["beta"]);
    let conn = site.connect("beta", true);
    site.hello_with(conn, "beta", 256);
    for n in 0..400 {
        site.queue(&format!("n{n}"), &["beta"]);
    }
    site.settle();
    let sends = site.sendings();
    assert_eq!(sends.len(), 256);
    sends.iter().for_each(|(to, s)| site.outcome(*to, s.offer.transfer, Outcome::Acked));
    site.turn();
    for _ in 0..6 {
        until_batch(&mut site);
        site.commit_by(|store, batch| {
            store.fail_commit(1, full());
            store.commit(batch)
        });
        site.turn();
    }
    until_batch(&mut site);
    // The disk takes its time: until it is done, nothing is there to be done.
    for _ in 0..20 {
        let Some(at) = site.turn() else { continue };
        if site.has_inputs() {
            continue;
        }
        assert!(at > site.now.mono, "it comes again at once, for nothing");
        site.now.mono = at;
        site.input(Input::Timer);
    }
    site.settle();
    site.audit();
}

#[test]
fn any_other_commit_error_stops_the_process_at_once() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let client = site.client();
    site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.turn();
    site.turn();
    site.store.fail_commit(1, CommitFault::Broken("input/output error".into()));
    site.commit();
    site.turn();
    assert_eq!(site.halted.as_deref(), Some("input/output error"));
    assert!(site.take_told(client).is_empty(), "nothing is promised");
    site.submit(client, 2, "two", &["beta"], Class::Normal);
    for _ in 0..5 {
        site.turn();
        assert!(!site.has_batch(), "a batch after the end");
    }
}

#[test]
fn nothing_is_promised_once_the_process_is_to_end() {
    for first_stays in [true, false] {
        let mut site = Site::new(&["beta"]);
        site.settle();
        let [first, second] = [site.client(), site.client()];
        site.submit(first, 1, "one", &["beta"], Class::Normal);
        site.turn();
        site.turn();
        assert!(site.has_batch());
        if !first_stays {
            site.input(Input::Closed { conn: first, why: "gone".into() });
        }
        // The node knows it, from a batch that never becomes durable.
        site.submit(second, 1, "one", &["beta"], Class::Normal);
        site.turn();
        site.store.fail_commit(1, CommitFault::Broken("input/output error".into()));
        site.commit();
        assert_eq!(site.turn(), None, "there is nothing to come again for");
        assert!(site.halted.is_some());
        assert!(site.take_told(second).is_empty(), "it is accepted by nobody");
        let beta = site.connect("beta", true);
        site.turn();
        assert!(site.take_told(beta).is_empty(), "a session is made after the end");
    }
}

#[test]
fn the_very_first_commit_may_find_no_space() {
    let mut site = Site::new(&["beta"]);
    let conn = site.connect("beta", true);
    site.turn();
    site.store.fail_commit(1, full());
    site.commit();
    site.settle();
    let started = site.promises();
    assert_eq!(started.len(), 1, "{started:?}");
    site.hello(conn, "beta");
    let id = site.queue("one", &["beta"]);
    assert_eq!(site.delivery(id, "beta").unwrap().attempts, 1);
    site.audit();
}

#[test]
fn a_session_that_ends_while_relief_is_judged_again_loses_nothing() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    let other = site.queue("two", &["beta"]);
    let conn = site.session("beta");
    site.settle();
    let sends = site.sendings();
    site.outcome(conn, sends[0].1.offer.transfer, Outcome::Acked);
    site.turn();
    site.store.fail_commit(1, full());
    site.commit();
    site.turn(); // rows are asked for again
    site.input(Input::Closed { conn, why: "reset".into() });
    site.settle();
    let states = [id, other].map(|id| site.delivery(id, "beta").unwrap().state);
    assert!(states.contains(&State::Acked) && states.contains(&State::Failed), "{states:?}");
    site.audit();
}

/// What failed was judged, claimed anew in the same session and failed again, all in one commit that found
/// no space: the second failure is of an attempt that never was.
#[test]
fn an_outcome_of_a_claim_that_did_not_become_durable_ends_no_later_one() {
    let mut site = Site::new(&["beta"]);
    let queued: Vec<_> = (0..24).map(|n| site.queue(&format!("n{n}"), &["beta"])).collect();
    let conn = site.session("beta");
    site.settle();
    for (conn, sending) in site.sendings() {
        site.outcome(conn, sending.offer.transfer, Outcome::AckTimeout);
    }
    site.turn();
    assert!(site.has_batch());
    site.now.mono = site.now.mono.after(Duration::from_secs(3));
    site.now.wall = site.now.wall.after(Duration::from_secs(3));
    site.input(Input::Timer);
    site.turn();
    site.input(Input::Closed { conn, why: "reset".into() });
    site.turn();
    site.store.fail_commit(1, full());
    site.commit();
    site.turn();
    let conn = site.connect("beta", true);
    site.hello(conn, "beta");
    // Time passes while relief comes through piece by piece, so that it is tried again in between.
    for _ in 0..100 {
        site.now.mono = site.now.mono.after(Duration::from_millis(500));
        site.now.wall = site.now.wall.after(Duration::from_millis(500));
        site.input(Input::Timer);
        site.turn();
        site.commit();
        let promised = site.promises();
        if promised.iter().any(|(_, promise)| matches!(promise, Promise::Start { .. })) {
            site.hello(conn, "beta");
        }
    }
    site.settle();
    for id in queued {
        let row = site.delivery(id, "beta").unwrap();
        let is = (row.state, row.attempts, Cause::from_number(row.last_error));
        assert_eq!(is, (State::Inflight, 2, Some(Cause::AckTimeout)));
    }
    site.audit();
}

const DISK: u64 = 1 << 40;

/// A site that knows of a disk with less room than is to stay free, although no commit failed.
fn short_of_room() -> Site {
    let mut site = Site::with(Config { min_free: 10 << 20, ..config(&["beta"]) });
    site.store.set_capacity(DISK);
    site.settle();
    site.store.set_outside(DISK - site.store.space().ledger - (69 << 20)); // 64 of them ballast
    // Its commit is what tells of the disk.
    site.queue("zero", &["beta"]);
    let client = site.client();
    site.submit(client, 1, "one", &["beta"], Class::Normal);
    site.settle();
    let told = site.take_told(client);
    let refused = matches!(&told[..], [SessionCommand::Refuse { refusal: Refusal::DiskFull, .. }]);
    assert!(refused, "{told:?}");
    assert!(is_full(&site), "status says so");
    site
}

fn is_full(site: &Site) -> bool {
    site.pump.node().status(site.now).full
}

#[test]
fn a_refusal_for_want_of_room_has_the_disk_looked_at_again() {
    let mut site = short_of_room();
    // Others make room, and nothing else happens: no commit will say so.
    site.store.set_outside(0);
    site.wait(Duration::from_secs(2));
    assert!(!is_full(&site));
    let id = site.queue("one", &["beta"]);
    assert!(site.delivery(id, "beta").is_some());
    site.audit();
}

#[test]
fn looks_at_the_disk_end_when_nobody_asks_any_more() {
    let mut site = short_of_room();
    for _ in 0..120 {
        site.wait(Duration::from_secs(1));
    }
    let looks = site.looks;
    assert!(looks > 10, "{looks}");
    assert!(site.turn().is_none_or(|at| at > site.now.mono.after(Duration::from_secs(1))));
    for _ in 0..60 {
        site.wait(Duration::from_secs(1));
    }
    assert_eq!(site.looks, looks);
}

/// The ballast is whole, and beside it there is not one free byte: that is no room, even where nothing
/// has to stay free.
#[test]
fn a_ballast_that_was_not_needed_yet_is_not_taken_for_room() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    site.store.set_ballast(1 << 20, true);
    site.store.set_capacity(DISK);
    site.store.set_outside(DISK - site.store.space().ledger - (1 << 20));
    let client = site.client();
    site.submit(client, 1, "two", &["beta"], Class::Normal);
    site.settle();
    site.wait(Duration::from_secs(1));
    let before = site.store.commits();
    site.session("beta");
    for _ in 0..100 {
        site.turn();
        site.commit();
    }
    // The claim finds no space, and goes through on the ballast.
    assert_eq!(site.store.commits() - before, 2);
    assert_eq!(site.sendings().len(), 1);
    assert!(is_full(&site));
    site.audit();
}
