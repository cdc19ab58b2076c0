//! Segments and peers that operators hold, let go, forget or give a new pin.

use std::time::Duration;

use consign_core::act::{Act, Action, Why};
use consign_core::code::Refusal;
use consign_core::id::{BatchNo, SegmentId};
use consign_core::ledger::rows::{MetaName, MetaRow, PeerRow, State, counts_held};
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::session::{Outcome, SessionCommand};
use consign_core::store::{Batch, CommitFault};

use crate::acts::{act, all, ask, audits, done, end_all, of, peer, refused, told, whys};
use crate::site::{Site, config, findings, recovery};

/// Deliveries that are scheduled, or have failed, and wait in held segments.
fn held_back(site: &Site, peer: &str) -> [u64; 2] {
    let status = site.pump.node().status(site.now);
    let found = status.peers.into_iter().find(|p| p.name == peer);
    found.expect("the peer").held_back.map(|row| row.count)
}

#[test]
fn a_held_segment_leaves_due_and_comes_back_under_its_old_key() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta", "gamma"]);
    let other = site.queue("two", &["beta"]);
    let due = site.delivery(id, "beta").unwrap().next_attempt_after;
    let report = done(&mut site, act(Action::Hold, of(&[id])));
    assert_eq!(report.total().0, 1);
    assert!(site.segment(id).unwrap().held);
    assert_eq!((site.store.rows(Table::Due), site.store.rows(Table::Owed)), (1, 3));
    site.audit();
    assert_eq!(held_back(&site, "beta"), [1, 0]);
    let mut site = site.restart();
    assert_eq!(held_back(&site, "beta"), [1, 0]);
    site.session("beta");
    site.settle();
    let sends = site.sendings();
    assert_eq!(sends.iter().map(|s| s.1.offer.id).collect::<Vec<_>>(), [other]);
    let report = done(&mut site, act(Action::Hold, of(&[id])));
    assert_eq!(whys(&report), [Why::Already]);
    site.wait(Duration::from_secs(60));
    done(&mut site, act(Action::Unhold, of(&[id])));
    assert_eq!(site.sendings()[0].1.offer.id, id);
    assert_eq!(site.delivery(id, "gamma").unwrap().next_attempt_after, due);
    assert_eq!(audits(&site).iter().map(|a| &*a.action).collect::<Vec<_>>(), ["hold", "unhold"]);
    assert_eq!((held_back(&site, "beta"), held_back(&site, "gamma")), ([0, 0], [0, 0]));
    site.audit();
}

#[test]
fn an_attempt_under_way_is_finished_and_waits_only_if_it_fails() {
    for outcome in [Outcome::Acked, Outcome::AckTimeout] {
        let mut site = Site::new(&["beta"]);
        let id = site.queue("one", &["beta"]);
        site.session("beta");
        site.settle();
        done(&mut site, act(Action::Hold, of(&[id])));
        assert_eq!(site.delivery(id, "beta").unwrap().state, State::Inflight);
        end_all(&mut site, &outcome);
        let row = site.delivery(id, "beta").unwrap();
        let failed = outcome != Outcome::Acked;
        assert_eq!(row.held == Some(true), failed);
        assert_eq!(held_back(&site, "beta"), [0, u64::from(failed)]);
        site.wait(Duration::from_secs(600));
        assert!(site.sendings().is_empty());
        site.audit();
        done(&mut site, act(Action::Unhold, all()));
        assert_eq!(site.sendings().len(), usize::from(failed));
        site.audit();
    }
}

#[test]
fn a_destination_added_to_a_held_segment_is_held_and_so_is_a_retried_one() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta"]);
    site.session("beta");
    end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    done(&mut site, act(Action::Hold, of(&[id])));
    site.queue("one", &["beta", "gamma"]);
    assert_eq!(site.delivery(id, "gamma").unwrap().held, Some(true));
    done(&mut site, act(Action::Retry, of(&[id])));
    let row = site.delivery(id, "beta").unwrap();
    assert_eq!((row.state, row.held), (State::Scheduled, Some(true)));
    site.wait(Duration::from_secs(60));
    assert!(site.sendings().is_empty());
    site.audit();
    done(&mut site, act(Action::Unhold, of(&[id])));
    assert_eq!(site.sendings().len(), 1);
    site.audit();
}

#[test]
fn a_held_peer_gets_nothing_across_a_restart_until_it_is_released() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta"]);
    assert_eq!(done(&mut site, act(Action::HoldPeer, peer("beta"))).total().0, 1);
    let mut site = site.restart();
    site.session("beta");
    site.wait(Duration::from_secs(60));
    assert!(site.sendings().is_empty());
    assert_eq!(site.store.rows(Table::Due), 1);
    let status = site.pump.node().status(site.now);
    assert!(status.peers.iter().any(|p| p.name == "beta" && p.held));
    assert_eq!(done(&mut site, act(Action::HoldPeer, peer("beta"))).total().0, 0);
    done(&mut site, act(Action::ReleasePeer, peer("beta")));
    assert_eq!(site.sendings()[0].1.offer.id, id);
    site.audit();
}

#[test]
fn a_hold_whose_commit_fails_does_not_hold() {
    let mut site = Site::new(&["beta"]);
    site.queue("one", &["beta"]);
    let conn = ask(&mut site, act(Action::HoldPeer, peer("beta")));
    while !site.has_batch() {
        site.turn();
    }
    site.store.fail_commit(1, CommitFault::Full("full".into()));
    site.settle();
    assert_eq!(told(&mut site, conn).unwrap_err().0, Refusal::DiskFull);
    site.session("beta");
    site.settle();
    assert_eq!(site.sendings().len(), 1);
    site.audit();
}

#[test]
fn a_flush_ends_the_backoff_and_dials_at_once() {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let beta = site.site("beta");
    for _ in 0..5 {
        site.input(Input::DialFailed { site: beta, why: "refused".into(), reached: false });
        site.settle();
        site.wait(Duration::from_millis(10));
    }
    site.dials.clear();
    site.wait(Duration::from_millis(10));
    assert!(site.dials.is_empty(), "it is backing off");
    done(&mut site, act(Action::Flush, peer("beta")));
    assert_eq!(site.dials, ["beta"]);
    assert_eq!(audits(&site)[0].action, "flush");
}

/// A site whose beta is no longer configured.
fn orphaned() -> (Site, Vec<SegmentId>) {
    let mut site = Site::new(&["beta", "gamma"]);
    let dead = site.queue("dead", &["beta", "gamma"]);
    let sent = site.queue("sent", &["beta"]);
    site.session("beta");
    site.settle();
    for (conn, sending) in site.sendings() {
        let good = sending.offer.id == sent;
        let end = if good { Outcome::Acked } else { Site::rejected(Refusal::TooLarge) };
        site.outcome(conn, sending.offer.transfer, end);
    }
    site.settle();
    let owed = site.queue("owed", &["beta", "gamma"]);
    site.session("gamma");
    site.settle();
    for (conn, sending) in site.sendings() {
        site.outcome(conn, sending.offer.transfer, Outcome::Acked);
    }
    site.settle();
    site.config = config(&["gamma"]);
    let mut site = site.restart();
    site.settle();
    (site, vec![dead, sent, owed])
}

#[test]
fn a_peer_that_is_configured_cannot_be_forgotten() {
    let mut site = Site::new(&["beta"]);
    let (refusal, text) = refused(&mut site, act(Action::Forget, peer("beta")));
    assert_eq!(refusal, Refusal::Invalid);
    assert!(text.contains("take it out of the configuration"), "{text}");
    let (refusal, _) = refused(&mut site, act(Action::Forget, peer("delta")));
    assert_eq!(refusal, Refusal::Unknown);
}

#[test]
fn what_is_owed_to_a_forgotten_peer_is_removed_and_success_judged_again() {
    let (mut site, ids) = orphaned();
    let [dead, sent, owed] = ids[..] else { panic!() };
    let beta = site.site("beta");
    assert!(site.segment(owed).unwrap().relayed_at.is_none());
    let report = done(&mut site, act(Action::Forget, peer("beta")));
    assert_eq!(report.total().0, 2);
    assert!(site.delivery(dead, "beta").is_none() && site.delivery(owed, "beta").is_none());
    assert_eq!(site.delivery(sent, "beta").unwrap().state, State::Acked);
    assert!(site.segment(dead).unwrap().relayed_at.is_some());
    assert!(site.segment(owed).unwrap().relayed_at.is_some());
    assert_eq!(audits(&site).last().unwrap().action, "forget");
    let names = |site: &Site| {
        let peers = site.pump.node().status(site.now).peers;
        peers.into_iter().map(|p| p.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&site), ["gamma"]);
    site.audit();
    let mut site = site.restart();
    site.settle();
    assert_eq!(names(&site), ["gamma"]);
    // Configured again it has its number back.
    site.config = config(&["beta", "gamma"]);
    let mut site = site.restart();
    site.settle();
    assert_eq!((site.site("beta"), names(&site).len()), (beta, 2));
    site.audit();
}

#[test]
fn a_peer_with_another_pin_is_not_dialled_before_rekey() {
    let with_pin = |pin: [u8; 32]| {
        let mut config = config(&["beta"]);
        config.peers[0].pin = Some(pin);
        config
    };
    let mut site = Site::with(with_pin([7; 32]));
    let id = site.queue("one", &["beta"]);
    let beta = site.site("beta");
    site.config = with_pin([9; 32]);
    let mut site = site.restart();
    site.wait(Duration::from_secs(60));
    assert!(site.dials.is_empty());
    let conn = site.connect("beta", false);
    site.settle();
    let told = site.take_told(conn);
    assert!(matches!(&told[..], [SessionCommand::Close { .. }]), "{told:?}");
    assert!(site.pump.node().status(site.now).peers[0].needs_rekey);
    let warned = |note: &consign_core::node::Note| format!("{note:?}").contains("needs_rekey");
    assert!(site.notes.iter().any(warned));
    assert_eq!(done(&mut site, act(Action::Rekey, peer("beta"))).total().0, 1);
    site.settle();
    assert_eq!(site.dials, ["beta"]);
    site.session("beta");
    site.settle();
    assert_eq!(site.sendings()[0].1.offer.id, id);
    assert_eq!(site.site("beta"), beta, "its number is its own");
    let key = consign_core::ledger::keys::site(beta);
    let row: Option<PeerRow> =
        consign_core::ledger::read::row(&site.store.snapshot(), Table::Peers, &key).unwrap();
    assert_eq!(row.unwrap().pin, [9; 32]);
    let mut site = site.restart();
    site.settle();
    assert!(!site.pump.node().status(site.now).peers[0].needs_rekey);
}

#[test]
fn content_is_let_go_once_nobody_is_owed_it_or_by_force() {
    let mut site = Site::new(&["beta", "gamma"]);
    let id = site.queue("one", &["beta", "gamma"]);
    site.session("beta");
    end_all(&mut site, &Outcome::Acked);
    let report = done(&mut site, act(Action::Release, of(&[id])));
    assert_eq!((report.total().0, whys(&report)), (0, vec![Why::StillOwed]));
    assert_eq!(report.left[0].text, "gamma does not have it (queued)");
    let force = Act { force: true, ..act(Action::Release, of(&[id])) };
    assert!(site.segment(id).is_some());
    assert_eq!(done(&mut site, force).total().0, 1);
    // Retention takes it from there.
    assert!(site.segment(id).is_none());
    assert_eq!(site.store.rows(Table::Owed), 0);
    let mine = audits(&site).into_iter().find(|row| row.who == "uid:1000");
    assert_eq!(mine.unwrap().action, "release");
    site.audit();
}

#[test]
fn what_is_being_sent_is_not_let_go_even_by_force() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    site.session("beta");
    site.settle();
    let force = Act { force: true, ..act(Action::Release, of(&[id])) };
    let report = done(&mut site, force);
    assert_eq!(whys(&report), [Why::InFlight]);
    assert!(site.segment(id).is_some());
    end_all(&mut site, &Outcome::Acked);
    assert_eq!(done(&mut site, act(Action::Release, of(&[id]))).total().0, 1);
    assert!(site.segment(id).is_none());
    site.audit();
}

/// Takes from a ledger what counts held deliveries, as a node leaves it that did not count them.
fn before_they_were_counted(site: &mut Site) {
    let read = recovery(&site.store);
    let mut batch = Batch::new(BatchNo(read.meta_value(MetaName::Batch) + 1));
    for (no, state, _) in read.counters.iter().filter(|(_, state, _)| counts_held(*state)) {
        batch.del(Table::Counters, &keys::counter(*no, *state));
    }
    batch.del(Table::Meta, MetaName::HeldCounted.key());
    batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: batch.number.0 });
    let answer = site.store.commit(&batch);
    assert!(matches!(answer, Input::Committed { .. }), "{answer:?}");
}

#[test]
fn a_ledger_from_before_held_deliveries_were_counted_is_counted_once_at_the_start() {
    let mut site = Site::new(&["beta", "gamma"]);
    let ids: Vec<_> = (0..3).map(|n| site.queue(&format!("n{n}"), &["beta"])).collect();
    site.queue("free", &["beta"]);
    site.session("beta");
    end_all(&mut site, &Outcome::AckTimeout);
    done(&mut site, act(Action::Hold, of(&ids[..2])));
    let later = site.queue("later", &["gamma"]);
    done(&mut site, act(Action::Hold, of(&[later])));
    before_they_were_counted(&mut site);
    assert!(!findings(&site.store).is_empty(), "the counters are missing");
    let mut site = site.restart();
    // Known at once, and durable with the first commit.
    assert_eq!((held_back(&site, "beta"), held_back(&site, "gamma")), ([0, 2], [1, 0]));
    site.settle();
    site.audit();
    let kept = recovery(&site.store);
    assert_eq!(kept.meta_value(MetaName::HeldCounted), 1);
    assert_eq!(kept.counters.iter().filter(|(_, state, _)| counts_held(*state)).count(), 2);
    done(&mut site, act(Action::Unhold, of(&ids[..1])));
    assert_eq!(held_back(&site, "beta"), [0, 1]);
    let site = site.restart();
    assert_eq!((held_back(&site, "beta"), held_back(&site, "gamma")), ([0, 1], [1, 0]));
}
