//! What operators ask for: each act, each state it meets, commits that fail, and processes that die.

use std::time::Duration;

use consign_core::act::{Act, Action, IdPrefix, Report, Selection, Why};
use consign_core::code::{Cause, Refusal};
use consign_core::config::Config;
use consign_core::id::{ConnId, SegmentId};
use consign_core::ledger::rows::State;
use consign_core::ledger::rows_upkeep::AuditRow;
use consign_core::ledger::{Table, codec};
use consign_core::node::{Answer, Input, Question};
use consign_core::segment::Class;
use consign_core::session::{Outcome, Promise, SessionCommand, SessionEvent};
use consign_core::store::{CommitFault, Snapshot, StoreFault};

use crate::site::{Site, config};

pub(crate) fn all() -> Selection {
    Selection { all: true, ..Selection::default() }
}

pub(crate) fn of(ids: &[SegmentId]) -> Selection {
    Selection { ids: ids.iter().map(|id| IdPrefix::whole(*id)).collect(), ..Selection::default() }
}

pub(crate) fn peer(name: &str) -> Selection {
    Selection { peer: Some(name.into()), ..Selection::default() }
}

pub(crate) fn act(action: Action, of: Selection) -> Act {
    let (who, why) = ("uid:1000".into(), "limit raised".into());
    Act { action, of, who, why, dry_run: false, force: false, pin: None }
}

/// Hands an act in without waiting.
pub(crate) fn ask(site: &mut Site, act: Act) -> ConnId {
    let conn = site.client();
    let ticket = consign_core::id::TransferNo(1);
    site.input(Input::Session(conn, SessionEvent::Act { ticket, act: Box::new(act) }));
    conn
}

/// What a client was told of its act.
pub(crate) fn told(site: &mut Site, conn: ConnId) -> Result<Report, (Refusal, String)> {
    let mut told = site.take_told(conn);
    assert_eq!(told.len(), 1, "{told:?}");
    match told.remove(0) {
        SessionCommand::Promised(promised) => match promised.into_inner() {
            Promise::Done { report, .. } => Ok(*report),
            other => panic!("{other:?}"),
        },
        SessionCommand::Answer { answer, .. } => match &*answer {
            Answer::Acted(report) => Ok((**report).clone()),
            other => panic!("{other:?}"),
        },
        SessionCommand::Refuse { refusal, text, .. } => Err((refusal, text.into_owned())),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn done(site: &mut Site, act: Act) -> Report {
    let conn = ask(site, act);
    site.settle();
    told(site, conn).unwrap()
}

pub(crate) fn refused(site: &mut Site, act: Act) -> (Refusal, String) {
    let conn = ask(site, act);
    site.settle();
    told(site, conn).unwrap_err()
}

pub(crate) fn whys(report: &Report) -> Vec<Why> {
    report.left.iter().map(|left| left.why).collect()
}

pub(crate) fn audits(site: &Site) -> Vec<AuditRow> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        rows.push(codec::decode(Table::Audit, key, value).unwrap());
        true
    };
    site.store.snapshot().scan(Table::Audit, &[], &mut visit).unwrap();
    rows
}

/// Every attempt under way ends so.
pub(crate) fn end_all(site: &mut Site, outcome: &Outcome) {
    site.settle();
    for (conn, sending) in site.sendings() {
        site.outcome(conn, sending.offer.transfer, outcome.clone());
    }
    site.settle();
}

/// A site with dead letters for beta, given up for this reason.
pub(crate) fn with_dead(names: &[&str], refusal: Refusal) -> (Site, Vec<SegmentId>) {
    let mut site = Site::new(&["beta", "gamma"]);
    let ids = names.iter().map(|name| site.queue(name, &["beta"])).collect();
    let conn = site.session("beta");
    end_all(&mut site, &Site::rejected(refusal));
    site.input(Input::Closed { conn, why: String::new() });
    site.settle();
    site.audit();
    (site, ids)
}

#[test]
fn a_retry_queues_dead_letters_again_with_a_fresh_allowance_and_keeps_attempts() {
    let (mut site, ids) = with_dead(&["one", "two"], Refusal::TooLarge);
    assert_eq!(site.store.rows(Table::Deadletters), 2);
    let report = done(&mut site, act(Action::Retry, all()));
    assert_eq!((report.total().0, report.commits, report.left_count), (2, 1, 0));
    assert_eq!(report.done[0].peer, "beta");
    for id in &ids {
        let row = site.delivery(*id, "beta").unwrap();
        assert_eq!((row.state, row.attempts, row.spent), (State::Scheduled, 1, 0));
        assert_eq!((row.last_error, row.refused), (0, 0));
    }
    let audits = audits(&site);
    assert_eq!(audits.len(), 1);
    let bytes = report.total().1;
    let row = &audits[0];
    assert_eq!((&*row.who, &*row.action, &*row.subject), ("uid:1000", "retry", "all"));
    assert_eq!((&*row.reason, row.count, row.bytes), ("limit raised", 2, bytes));
    site.audit();
    // They are sent again, though their window was known whole before.
    site.session("beta");
    end_all(&mut site, &Outcome::Acked);
    for id in ids {
        let row = site.delivery(id, "beta").unwrap();
        assert_eq!((row.state, row.attempts), (State::Acked, 2));
    }
    site.audit();
}

#[test]
fn a_retry_with_the_session_up_is_claimed_and_sent() {
    let mut site = Site::new(&["beta"]);
    let id = site.queue("one", &["beta"]);
    site.session("beta");
    end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    let waiting = site.queue("two", &["beta"]);
    end_all(&mut site, &Site::rejected(Refusal::Busy));
    done(&mut site, act(Action::Retry, of(&[id])));
    let sends = site.sendings();
    assert_eq!(sends.len(), 1);
    assert_eq!(sends[0].1.offer.id, id);
    // What was in the window before is still known.
    site.wait(Duration::from_secs(60));
    assert_eq!(site.sendings()[0].1.offer.id, waiting);
    site.audit();
}

#[test]
fn filters_choose_by_peer_reason_and_age() {
    let mut site = Site::new(&["beta", "gamma"]);
    let old = site.queue("old", &["beta"]);
    site.session("beta");
    end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    site.wait(Duration::from_secs(3_000));
    let new = site.queue("new", &["beta"]);
    end_all(&mut site, &Site::rejected(Refusal::Invalid));
    site.queue("other", &["gamma"]);
    site.session("gamma");
    end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    let age_min = Some(Duration::from_secs(2_400));
    let beta = Some("beta".to_string());
    let table = [
        (all(), 3),
        (peer("beta"), 2),
        (peer("gamma"), 1),
        (Selection { reason: Some(Cause::TooLarge), ..Selection::default() }, 2),
        (Selection { reason: Some(Cause::Loop), ..Selection::default() }, 0),
        (Selection { reason: Some(Cause::TooLarge), peer: beta.clone(), ..all() }, 1),
        (Selection { older: age_min, ..Selection::default() }, 1),
        (Selection { older: age_min, ..of(&[new]) }, 0),
        (Selection { older: age_min, peer: beta, ..of(&[old, new]) }, 1),
    ];
    for (selection, count) in table {
        let dry = Act { dry_run: true, ..act(Action::Retry, selection.clone()) };
        assert_eq!(done(&mut site, dry).total().0, count, "{selection:?}");
    }
    let dry = Act { dry_run: true, ..act(Action::Purge, all()) };
    assert_eq!(done(&mut site, dry).total().0, 3);
    assert_eq!((site.store.rows(Table::Deadletters), audits(&site).len()), (3, 0));
    site.audit();
}

#[test]
fn every_other_state_is_told_and_left() {
    let (mut site, ids) = with_dead(&["dead"], Refusal::TooLarge);
    let queued = site.queue("queued", &["gamma"]);
    let report = done(&mut site, act(Action::Retry, of(&[ids[0], queued])));
    assert_eq!((report.total().0, whys(&report)), (1, vec![Why::NotDead]));
    assert_eq!(report.left[0].text, "not a dead letter (queued)");
    assert_eq!(report.left[0].peer, "gamma");
    site.session("gamma");
    site.settle();
    let report = done(&mut site, act(Action::Purge, of(&[queued])));
    assert_eq!(report.left[0].text, "not a dead letter (sending)");
    end_all(&mut site, &Outcome::Acked);
    let report = done(&mut site, act(Action::Retry, of(&[queued])));
    assert_eq!(report.left[0].text, "not a dead letter (delivered)");
    let unknown = Selection { ids: vec![IdPrefix::parse("000000").unwrap()], ..all() };
    let report = done(&mut site, act(Action::Retry, unknown));
    assert_eq!((report.total().0, whys(&report)), (0, vec![Why::Unknown]));
    assert_eq!(audits(&site).len(), 1, "what changed nothing is not recorded");
    site.audit();
}

#[test]
fn content_that_is_gone_and_what_has_expired_is_not_queued_again_but_may_be_purged() {
    let mut site = Site::new(&["beta"]);
    let gone = site.queue("gone", &["beta"]);
    site.session("beta");
    end_all(&mut site, &Outcome::Unreadable(StoreFault::Missing("x".into())));
    let report = done(&mut site, act(Action::Retry, of(&[gone])));
    assert_eq!((report.total().0, whys(&report)), (0, vec![Why::ContentGone]));
    let report = done(&mut site, act(Action::Purge, of(&[gone])));
    assert_eq!(report.total().0, 1);
    assert!(site.delivery(gone, "beta").is_none());

    let config = Config { expire_after: Some(Duration::from_secs(60)), ..config(&["beta"]) };
    let mut site = Site::with(config);
    let late = site.queue("late", &["beta"]);
    site.wait(Duration::from_secs(120));
    site.session("beta");
    site.settle();
    assert_eq!(site.delivery(late, "beta").unwrap().state, State::Deadletter);
    let report = done(&mut site, act(Action::Retry, all()));
    assert_eq!((report.total().0, whys(&report)), (0, vec![Why::Expired]));
    site.audit();
}

#[test]
fn a_purge_lets_the_rest_be_enough_and_an_emptied_set_never_is() {
    let mut site = Site::new(&["beta", "gamma"]);
    let both = site.queue("both", &["beta", "gamma"]);
    let beta = site.session("beta");
    end_all(&mut site, &Outcome::Acked);
    site.session("gamma");
    let alone = site.queue("alone", &["gamma"]);
    end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    assert!(site.segment(both).unwrap().relayed_at.is_none());
    site.input(Input::Closed { conn: beta, why: String::new() });
    let report = done(&mut site, act(Action::Purge, all()));
    assert_eq!((report.total().0, report.commits), (2, 1));
    let (both, alone) = (site.segment(both).unwrap(), site.segment(alone).unwrap());
    assert!(both.relayed_at.is_some() && both.required == 1);
    assert!(alone.relayed_at.is_none() && alone.required == 0);
    assert_eq!(audits(&site)[0].action, "purge");
    site.audit();
}

/// A full disk under the commit of an act.
fn fails(action: Action) {
    let (mut site, ids) = with_dead(&["one", "two"], Refusal::TooLarge);
    let before = site.store.snapshot();
    let conn = ask(&mut site, act(action, all()));
    while !site.has_batch() {
        site.turn();
    }
    assert!(site.take_told(conn).is_empty(), "said before it was durable");
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    site.settle();
    let (refusal, text) = told(&mut site, conn).unwrap_err();
    assert_eq!(refusal, Refusal::DiskFull);
    assert!(text.contains("nothing is done"), "{text}");
    assert_eq!(site.store.rows(Table::Deadletters), 2);
    assert_eq!(site.store.rows(Table::Audit), 0);
    for id in ids {
        assert_eq!(site.delivery(id, "beta").unwrap().state, State::Deadletter);
    }
    drop(before);
    site.audit();
    site.wait(Duration::from_secs(30));
    assert_eq!(done(&mut site, act(action, all())).total().0, 2);
    site.audit();
}

#[test]
fn an_act_whose_commit_fails_is_refused_and_changes_nothing() {
    fails(Action::Retry);
    fails(Action::Purge);
}

#[test]
fn a_process_that_dies_has_done_an_act_whole_or_not_at_all() {
    for committed in [false, true] {
        let (mut site, ids) = with_dead(&["one", "two"], Refusal::TooLarge);
        let conn = ask(&mut site, act(Action::Retry, all()));
        while !site.has_batch() {
            site.turn();
        }
        if committed {
            site.commit();
        }
        assert!(site.take_told(conn).is_empty());
        let mut site = site.restart();
        site.settle();
        let state = if committed { State::Scheduled } else { State::Deadletter };
        for id in ids {
            assert_eq!(site.delivery(id, "beta").unwrap().state, state);
        }
        assert_eq!(audits(&site).len(), usize::from(committed));
        site.audit();
    }
}

#[test]
fn thousands_of_dead_letters_are_queued_again_in_one_commit() {
    const COUNT: usize = 5_000;
    let mut site = Site::with(Config { window: 64, ..config(&["beta"]) });
    for n in 0..COUNT {
        let client = site.client();
        site.submit(client, 1, &format!("n{n}"), &["beta"], Class::Normal);
        if n % 256 == 0 {
            site.settle();
        }
    }
    site.settle();
    site.session("beta");
    site.settle();
    while site.store.rows(Table::Deadletters) < COUNT {
        end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    }
    let busy = site.queue("busy", &["beta"]);
    end_all(&mut site, &Site::rejected(Refusal::Busy));
    let footprint = site.pump.node().footprint();
    let conn = ask(&mut site, act(Action::Retry, all()));
    while !site.has_batch() {
        site.turn();
    }
    let before = site.store.commits();
    site.commit();
    assert_eq!(site.store.commits(), before + 1);
    assert_eq!(site.store.rows(Table::Deadletters), 0);
    site.turn();
    let report = told(&mut site, conn).unwrap();
    assert_eq!((report.total().0, report.commits), (COUNT as u64, 1));
    site.settle();
    let after = site.pump.node().footprint();
    assert!(after.0 < footprint.0 + 1_000, "{footprint:?} grew to {after:?}");
    site.audit();
    // Not one of them was lost on the way into the window.
    for _ in 0..COUNT {
        if site.store.rows(Table::Owed) == 0 {
            break;
        }
        end_all(&mut site, &Outcome::Acked);
        site.wait(Duration::from_secs(5));
    }
    assert_eq!(site.store.rows(Table::Owed), 0);
    assert_eq!(site.delivery(busy, "beta").unwrap().state, State::Acked);
    site.audit();
}

#[test]
fn a_scan_that_is_open_during_a_retry_brings_nothing_twice_and_loses_nothing() {
    let mut site = Site::with(Config { window: 4, ..config(&["beta"]) });
    let mut ids: Vec<_> = (0..6).map(|n| site.queue(&format!("d{n}"), &["beta"])).collect();
    let conn = site.session("beta");
    while site.store.rows(Table::Deadletters) < 6 {
        end_all(&mut site, &Site::rejected(Refusal::TooLarge));
    }
    site.input(Input::Closed { conn, why: String::new() });
    site.settle();
    ids.extend((0..9).map(|n| site.queue(&format!("q{n}"), &["beta"])));
    let mut site = site.restart();
    site.hold_due = true;
    site.settle();
    let conn = ask(&mut site, act(Action::Retry, all()));
    site.settle();
    assert_eq!(told(&mut site, conn).unwrap().total().0, 6);
    site.let_go();
    site.settle();
    site.session("beta");
    let mut sent = Vec::new();
    for _ in 0..20 {
        site.settle();
        for (conn, sending) in site.sendings() {
            sent.push(sending.offer.id);
            site.outcome(conn, sending.offer.transfer, Outcome::Acked);
        }
    }
    sent.sort();
    ids.sort();
    assert_eq!(sent, ids);
    site.audit();
}

#[test]
fn acts_that_say_nothing_or_too_much_are_refused() {
    let mut site = Site::new(&["beta"]);
    let none = refused(&mut site, act(Action::Purge, Selection::default()));
    assert_eq!(none.0, Refusal::Invalid);
    let nobody = refused(&mut site, act(Action::Retry, peer("delta")));
    assert_eq!(nobody, (Refusal::Unknown, "no peer is called \"delta\"".into()));
    let long = Act { why: "x".repeat(2_000), ..act(Action::Retry, all()) };
    assert_eq!(refused(&mut site, long).0, Refusal::Invalid);
    let status = site.pump.node().status(site.now);
    let unknown = Refusal::ALL.iter().position(|r| *r == Refusal::Unknown).unwrap();
    assert_eq!(status.refusals[unknown], 1);
    site.input(Input::Stop);
    site.settle();
    let conn = ask(&mut site, act(Action::Retry, all()));
    site.turn();
    let told = site.take_told(conn);
    assert!(!told.iter().any(|t| matches!(t, SessionCommand::Promised(_))), "{told:?}");
}

#[test]
fn acts_are_counted_when_they_end() {
    let (mut site, _) = with_dead(&["one"], Refusal::TooLarge);
    done(&mut site, act(Action::Retry, all()));
    done(&mut site, act(Action::HoldPeer, peer("beta")));
    done(&mut site, act(Action::HoldPeer, peer("beta")));
    let counts = site.pump.node().status(site.now).acts;
    let of = |action| counts[Action::ALL.iter().position(|a| *a == action).unwrap()];
    assert_eq!((of(Action::Retry), of(Action::HoldPeer), of(Action::Purge)), (1, 2, 0));
    let conn = site.client();
    let question = Question::Status;
    let ticket = consign_core::id::TransferNo(1);
    site.input(Input::Session(conn, SessionEvent::Ask { ticket, question }));
    site.settle();
    assert_eq!(site.take_told(conn).len(), 1);
}
