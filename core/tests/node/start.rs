//! Start-up: what was in flight, what is missing, and who may connect.

use std::time::Duration;

use consign_core::code::{Cause, Goodbye};
use consign_core::id::BlobNo;
use consign_core::ledger::Table;
use consign_core::ledger::rows::{Body, State};
use consign_core::node::{Input, Note};
use consign_core::session::{Promise, SessionCommand, SessionEvent};

use crate::site::Site;

#[test]
fn what_was_in_flight_is_failed_and_tried_again_with_its_attempts_kept() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    for attempt in 1..=3 {
        site.session("beta");
        site.settle();
        assert_eq!(site.sendings().len(), 1);
        let row = site.delivery(id, "beta").unwrap();
        assert_eq!((row.state, row.attempts, row.spent), (State::Inflight, attempt, 0));
        site = site.restart();
        site.settle();
        let row = site.delivery(id, "beta").unwrap();
        assert_eq!((row.state, row.last_error), (State::Failed, Cause::Restart.number()));
        site.audit();
    }
}

#[test]
fn no_session_starts_before_its_boot_is_durable() {
    let mut site = Site::new(&["beta"]);
    site.connect("beta", true);
    site.turn();
    assert!(site.has_batch() && site.promises().is_empty());
    site.commit();
    site.turn();
    let (_, promise) = site.promises().pop().unwrap();
    let Promise::Start { epoch, .. } = promise else { panic!("{promise:?}") };
    assert_eq!((epoch.boot, epoch.session), (1, 1));
    let mut site = site.restart();
    site.connect("beta", true);
    site.settle();
    let (_, promise) = site.promises().pop().unwrap();
    assert!(matches!(promise, Promise::Start { epoch, .. } if epoch.boot == 2));
}

#[test]
fn missing_content_goes_to_the_dead_letters_and_its_neighbours_go_on() {
    let mut site = Site::new(&["beta"]);
    let ids: Vec<_> = (0..20).map(|i| site.queue(&format!("n{i}"), &["beta"])).collect();
    let Body::Inline(lost) = site.segment(ids[7]).unwrap().body else { panic!() };
    let mut batch = consign_core::store::Batch::new(consign_core::id::BatchNo(9_000));
    let number = consign_core::ledger::rows::MetaRow { value: 9_000 };
    batch.put(Table::Meta, b"batch", &number);
    batch.del(Table::Bodies, &consign_core::ledger::keys::body(lost));
    assert!(matches!(site.store.commit(&batch), Input::Committed { .. }));
    let mut site = site.restart();
    site.settle();
    let row = site.delivery(ids[7], "beta").unwrap();
    assert_eq!((row.state, row.last_error), (State::Deadletter, Cause::Missing.number()));
    site.session("beta");
    site.settle();
    assert_eq!(site.sendings().len(), 19);
    let summary = site.notes.iter().find_map(|n| match n {
        Note::Reconciled(summary) => Some(*summary),
        _ => None,
    });
    let summary = summary.unwrap();
    assert_eq!((summary.checked, summary.missing), (20, 1));
    site.audit();
    // Who hands it in again is not told that it is held.
    assert_eq!(site.queue("n7", &["beta"]), ids[7]);
    assert_eq!(site.store.rows(Table::Segments), 21);
    assert_eq!(site.sendings().len(), 1);
    site.audit();
    // The next start finds the lost one again, and leaves alone what has taken its place.
    let mut site = site.restart();
    site.settle();
    assert!(site.notes.iter().any(|n| matches!(n, Note::Reconciled(s) if s.missing == 0)));
    assert_eq!(site.queue("n7", &["beta"]), ids[7]);
    assert_eq!(site.store.rows(Table::Segments), 21, "it is known");
    site.audit();
}

#[test]
fn files_without_rows_are_set_aside_and_never_newer_ones() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    site.store.plant_file(BlobNo(0), b"left behind");
    site.store.plant_file(BlobNo(900), b"from the future");
    let mut site = site.restart();
    site.settle();
    assert_eq!(site.store.quarantined(), [BlobNo(0)]);
}

#[test]
fn start_up_over_and_over_changes_nothing_more() {
    let mut site = Site::new(&["beta", "gamma"]);
    for i in 0..30 {
        site.queue(&format!("n{i}"), &["*"]);
    }
    site.session("beta");
    site.settle();
    site = site.restart();
    for _ in 0..3 {
        // Killed in the middle of start-up, three times.
        site.turn();
        site.commit();
        site = site.restart();
    }
    site.settle();
    site.audit();
    assert_eq!(site.store.rows(Table::Inflight), 0);
    assert_eq!(site.store.rows(Table::Due), 60);
}

#[test]
fn strangers_and_doubles_are_turned_away() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let stranger = site.connect("mallory", false);
    site.settle();
    let told = site.take_told(stranger);
    assert!(matches!(&told[..], [SessionCommand::Close { why: Goodbye::UnknownPeer, .. }]));
    // alpha < beta: the session that alpha dialled stays, whichever came first.
    let ours = site.session("beta");
    let theirs = site.connect("beta", false);
    site.settle();
    let told = site.take_told(theirs);
    assert!(matches!(&told[..], [SessionCommand::Close { why: Goodbye::Replaced, .. }]));
    assert!(site.take_told(ours).is_empty());
    let newer = site.connect("beta", true);
    site.settle();
    let told = site.take_told(ours);
    assert!(matches!(&told[..], [SessionCommand::Close { why: Goodbye::Replaced, .. }]));
    assert!(matches!(site.promises()[..], [(c, Promise::Start { .. })] if c == newer));
}

#[test]
fn a_session_the_larger_name_dialled_gives_way_to_ours() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let theirs = site.connect("beta", false);
    site.settle();
    let ours = site.connect("beta", true);
    site.settle();
    let told = site.take_told(theirs);
    assert!(
        told.iter().any(|c| matches!(c, SessionCommand::Close { why: Goodbye::Replaced, .. })),
        "{told:?}"
    );
    assert!(site.promises().iter().any(|(c, _)| *c == ours));
}

#[test]
fn a_peer_is_dialled_at_once_and_then_with_growing_waits() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    assert_eq!(site.dials, ["beta"]);
    let peer = site.site("beta");
    let mut waits = Vec::new();
    for _ in 0..6 {
        site.input(Input::DialFailed {
            site: peer,
            why: "connection refused".into(),
            reached: false,
        });
        site.settle();
        let before = site.dials.len();
        let mut waited = 0;
        while site.dials.len() == before {
            site.wait(Duration::from_millis(500));
            waited += 1;
        }
        waits.push(waited);
    }
    assert!(waits.is_sorted() && waits[0] >= 2 && waits[5] >= 60, "{waits:?}");
    // A sign of life ends the backoff.
    site.input(Input::DialFailed { site: peer, why: "connection refused".into(), reached: false });
    let conn = site.connect("beta", false);
    site.settle();
    site.hello(conn, "beta");
    site.settle();
    site.wait(Duration::from_secs(1));
    let before = site.dials.len();
    site.input(Input::Closed { conn, why: String::new() });
    site.settle();
    assert_eq!(site.dials.len(), before + 1);
}

/// What waits for a peer arrives when it is back, not when a long wait ends.
#[test]
fn a_peer_that_nobody_answers_for_is_tried_often_while_something_waits_for_it() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let beta = site.site("beta");
    let fail = |site: &mut Site, reached| {
        let why = "connection refused".into();
        site.input(Input::DialFailed { site: beta, why, reached });
        site.settle();
    };
    let next = |site: &Site| site.pump.node().next_deadline().unwrap().since(site.now.mono);
    for _ in 0..12 {
        fail(&mut site, false);
    }
    assert!(next(&site) > Duration::from_secs(60), "nothing waits: {:?}", next(&site));
    site.queue("a", &["beta"]);
    site.settle();
    assert!(next(&site) <= Duration::from_millis(500), "something waits now: {:?}", next(&site));
    for _ in 0..12 {
        fail(&mut site, false);
        assert!((250..=500).contains(&next(&site).as_millis()), "{:?}", next(&site));
    }
    // Somebody who answers and will not have us is not asked twice a second.
    fail(&mut site, true);
    assert!(next(&site) > Duration::from_secs(60), "{:?}", next(&site));
}

/// A session that is cut says no more against a peer than a closed port does.
#[test]
fn a_peer_whose_session_was_cut_is_tried_soon_if_something_waits_for_it() {
    let mut site = Site::new(&["beta"]);
    let next = |site: &Site| site.pump.node().next_deadline().unwrap().since(site.now.mono);
    let cut = |site: &mut Site, fault: Option<&str>| {
        let conn = site.session("beta");
        site.settle();
        if let Some(text) = fault {
            site.input(Input::Session(conn, SessionEvent::Fault(text.into())));
        }
        site.input(Input::Closed { conn, why: "connection reset".into() });
        site.settle();
    };
    cut(&mut site, None);
    assert!(next(&site) > Duration::from_millis(500), "nothing waits: {:?}", next(&site));
    // In flight when it is cut, or handed in after that.
    site.queue("a", &["beta"]);
    assert!((250..=500).contains(&next(&site).as_millis()), "{:?}", next(&site));
    cut(&mut site, None);
    assert!((250..=500).contains(&next(&site).as_millis()), "{:?}", next(&site));
    // A peer that broke the protocol is not asked twice a second.
    cut(&mut site, Some("a frame of unknown kind"));
    assert!(next(&site) > Duration::from_millis(500), "{:?}", next(&site));
}

/// Two processes with one certificate take each other's place: not as fast as they can dial.
#[test]
fn a_session_that_is_ended_at_once_is_not_followed_at_once_by_another() {
    let mut site = Site::new(&["beta"]);
    for (lasted, waits) in [(0, true), (900, true), (1_100, false)] {
        let conn = site.session("beta");
        site.settle();
        site.wait(Duration::from_millis(lasted));
        let before = site.dials.len();
        site.input(Input::Closed { conn, why: String::new() });
        site.settle();
        assert_eq!(site.dials.len() == before, waits, "after {lasted} ms");
        let told = site.pump.node().status(site.now).peers[0].last_error.clone();
        assert_eq!(told.contains("another process"), waits, "{told}");
        site.wait(Duration::from_secs(1));
        assert_eq!(site.dials.len(), before + 1);
    }
}

/// The handshake is done before the other side has judged our certificate: only its HELLO says that it
/// takes us.
#[test]
fn a_peer_that_closes_before_its_hello_is_dialled_with_growing_waits() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let mut waits = Vec::new();
    for _ in 0..6 {
        let conn = site.connect("beta", true);
        site.settle();
        site.input(Input::Closed { conn, why: String::new() });
        site.settle();
        let before = site.dials.len();
        let mut waited = 0;
        while site.dials.len() == before {
            site.wait(Duration::from_millis(500));
            waited += 1;
        }
        waits.push(waited);
    }
    assert!(waits.is_sorted() && waits[0] >= 2 && waits[5] >= 60, "{waits:?}");
    let status = site.pump.node().status(site.now);
    assert!(status.peers[0].last_error.contains("HELLO"), "{:?}", status.peers[0].last_error);
}

#[test]
fn old_sessions_retire_when_nothing_is_in_flight_and_later_in_any_case() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    site.wait(Duration::from_secs(3601));
    let told = site.take_told(conn);
    assert!(matches!(&told[..], [SessionCommand::Close { why: Goodbye::Age, .. }]), "{told:?}");
    let conn = site.session("beta");
    site.queue("one", &["beta"]);
    assert_eq!(site.sendings().len(), 1);
    site.wait(Duration::from_secs(3601));
    assert!(site.take_told(conn).is_empty(), "something is in flight");
    site.wait(Duration::from_secs(60));
    let told = site.take_told(conn);
    assert!(matches!(&told[..], [SessionCommand::Close { why: Goodbye::Age, .. }]), "{told:?}");
}

#[test]
fn a_peer_that_breaks_the_protocol_is_not_dialled_again_at_once() {
    let mut site = Site::new(&["beta"]);
    let conn = site.session("beta");
    site.settle();
    let before = site.dials.len();
    let fault = SessionEvent::Fault("a frame of 0 bytes".into());
    site.input(Input::Session(conn, fault));
    site.input(Input::Closed { conn, why: String::new() });
    site.settle();
    assert_eq!(site.dials.len(), before);
    site.wait(Duration::from_secs(2));
    assert_eq!(site.dials.len(), before + 1);
}
