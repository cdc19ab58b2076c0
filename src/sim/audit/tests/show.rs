//! What a violation looks like, and that a clean story has none.

use consign_core::code::{Cause, Refusal};
use consign_core::config::PeerConfig;
use consign_core::id::{Seq, SiteNo};
use consign_core::ledger::rows_upkeep::ReceiptRow;
use consign_core::segment::Destinations;
use consign_core::wire::{Frame, Offer};

use super::play::{A, B, Draft, Line, Play, START, digest, id};
use crate::sim::audit::rows::Row;

#[test]
fn a_clean_story_breaks_nothing() {
    let mut play = Play::new();
    play.wait(5);
    play.delivered("report.pdf");
    let refused = play.offered("second.pdf");
    play.reject(refused, refused.0 as u32, Refusal::Busy, 0);
    let draft = play.fail(refused, Cause::Busy, 1_000).delivery(|row| row.refused = 1);
    play.commit(A, draft);
    play.wait(1_000);
    play.restart(A);
    play.hello();
    let draft = play.claim(refused);
    play.commit(A, draft);
    play.send_offer(refused, 7);
    play.reject(refused, 7, Refusal::TooLarge, 0);
    let draft = play.give_up(refused, Cause::TooLarge);
    play.commit(A, draft);
    let (blob, draft) = play.reserve(A, SiteNo(0), 0);
    play.commit(A, draft);
    play.file(blob);
    let draft = play.adopt(blob, "third.pdf");
    play.submit("third.pdf");
    play.commit(A, draft);
    play.deep(A, &[(blob, 15, true)]);
    play.deep(B, &[]);
    assert_eq!(play.broken.map(|v| v.to_string()), None);
    let totals = play.audit.totals();
    assert_eq!((totals.submitted, totals.queued, totals.delivered), (3, 2, 1));
    assert_eq!((totals.acks, totals.dead, totals.crashes), (1, 1, 1));
}

#[test]
fn a_violation_tells_the_story_of_its_segment() {
    let mut play = Play::new();
    play.wait(1_500);
    let seq = play.offered("report.pdf");
    play.wait(20);
    let ack = play.ack(seq, 1);
    play.frame(B, &ack);
    let violation = play.broken.expect("nothing is held over there");
    assert_eq!(violation.segment, Some(id()));
    let short = id().short();
    let expected = format!(
        "I1 is broken at beta: what is said to be kept is on disk: rows, identity and content
  segment {short} \"report.pdf\"
  it is acknowledged to alpha, and no row has its identity
  what happened before:
    0.000000 s alpha: starts, boot 1
    0.000000 s beta: starts, boot 1
    1.500000 s alpha: a local client hands it in
    1.500000 s alpha: kept as number 1
    1.500000 s alpha: for beta: nothing to Scheduled, attempts 0, spent 0
    1.500000 s alpha: the local client is told that it is safe
    1.500000 s alpha: for beta: Scheduled to Inflight, attempts 1, spent 0
    1.500000 s alpha: OFFER to beta, transfer 1
    1.500000 s beta: OFFER from alpha, transfer 1
    1.520000 s beta: ACK to alpha, transfer 1"
    );
    assert_eq!(violation.to_string(), expected);
}

#[test]
fn a_destroyed_file_is_excused_and_nothing_else() {
    let mut play = Play::new();
    let (blob, draft) = play.reserve(A, SiteNo(0), 0);
    play.commit(A, draft);
    play.file(blob);
    play.submit("report.pdf");
    let draft = play.adopt(blob, "report.pdf");
    play.commit(A, draft);
    let seq = consign_core::id::Seq(1);
    let claim = play.claim(seq);
    play.commit(A, claim);
    let damage = crate::sim::seen::Damage::File(blob);
    play.see(A, &crate::sim::seen::Seen::Damaged(damage));
    play.queued(seq, "report.pdf");
    let dead = play.give_up(seq, Cause::Missing);
    play.commit(A, dead);
    assert_eq!(play.broken.take().map(|v| v.to_string()), None);
    // What was not destroyed is still demanded.
    let other = play.accepted("second.pdf");
    let claim = play.claim(other);
    play.commit(A, claim);
    let dead = play.give_up(other, Cause::Missing);
    play.commit(A, dead);
    assert_eq!(play.broken.map(|v| v.invariant), Some("I2"));
}

#[test]
fn what_was_on_its_way_in_when_a_stop_came_may_be_taken() {
    let mut play = Play::new();
    super::more::late(&mut play);
    assert_eq!(play.broken.map(|v| v.to_string()), None);
}

#[test]
fn a_segment_that_is_offered_in_the_batch_that_takes_it_owes_nothing_back() {
    let mut play = Play::new();
    play.submit("report.pdf");
    let owed =
        |line: &Line| matches!(line, Line::Put(Row::Delivery(..) | Row::Due(_) | Row::Owed(..)));
    let draft = play.take(A, "report.pdf").without(owed);
    let mut draft = draft.without(|line| matches!(line, Line::Put(Row::Unmet(..))));
    play.books[A].counters.clear();
    draft = draft.segment(|row| row.required = 0);
    // The other site, which it is not for at first, offers it to everybody.
    let mut lines = draft.0.clone();
    lines.extend(draft.0.into_iter().filter(|l| matches!(l, Line::Put(Row::Segment(..)))));
    let first = lines.iter_mut().find_map(|line| match line {
        Line::Put(Row::Segment(_, row)) => Some(row),
        _ => None,
    });
    first.expect("a row").to = Destinations::Named(vec!["alpha".into()]);
    play.commit(A, Draft(lines));
    assert_eq!(play.broken.map(|v| v.to_string()), None);
}

#[test]
fn after_a_rollback_a_site_is_judged_by_what_is_there() {
    let mut play = Play::new();
    play.delivered("report.pdf");
    play.kill(A);
    let damage = crate::sim::seen::Damage::Rollback;
    play.see(A, &crate::sim::seen::Seen::Damaged(damage));
    // An older ledger: as if nothing had been accepted.
    let old = Play::cold();
    play.stores[A] = { old }.stores.into_iter().next().expect("a store");
    play.start(A);
    play.deep(A, &[]);
    assert_eq!(play.broken.take().map(|v| v.to_string()), None);
    assert_eq!(START, play.wall());
}

/// The one is settled by what went from here before, the other is about the copy that came since.
#[test]
fn an_ack_of_what_was_settled_before_owes_nothing_of_a_newer_copy() {
    for settled in [true, false] {
        let mut play = Play::new();
        let seq = play.offered("report.pdf");
        let gamma = SiteNo(2);
        let mut config = super::play::config(B);
        config.peers.push(PeerConfig::new("gamma", "x"));
        play.audit.configured(B, &config);
        let to = Destinations::Named(vec!["gamma".into()]);
        let offer = Offer { to: to.clone(), ..play.offer(seq, 2) };
        play.arrives(B, &Frame::Offer(offer, None));
        let beta = Destinations::Named(vec!["beta".into()]);
        let mut draft = play.take(B, "report.pdf").segment(|row| row.to = beta.clone());
        draft.put(Row::Peer(gamma, "gamma".into()));
        if settled {
            let row = ReceiptRow {
                id: id(),
                site: "gamma".into(),
                when: START,
                cause: 0,
                back: 1,
                pending: false,
                name: "report.pdf".into(),
                size: 15,
                digest: digest(),
                expires_at: START + 1_000,
                more: Vec::new(),
            };
            draft.put(Row::Receipt(Seq(99), gamma, Box::new(row)));
        }
        play.commit(B, draft);
        let ack = play.ack(seq, 2);
        play.frame(B, &ack);
        let found = play.broken.map(|v| v.invariant);
        assert_eq!(found, if settled { None } else { Some("I2") });
    }
}
