//! Each way to break a promise, and the promise it breaks.

use consign_core::code::{Cause, Refusal};
use consign_core::id::{BlobDigest, Epoch, Seq, TransferNo};
use consign_core::ledger::rows::{CounterRow, State};
use consign_core::node::Note;
use consign_core::wire::Frame;

use super::more;
use super::play::{A, B, Draft, Line, PEER, Play, START, digest, id, id_of};
use crate::sim::audit::rows::{Name, Row};
use crate::sim::audit::violation::promise;
use crate::sim::seen::{Death, Seen};

pub type Case = (&'static str, &'static str, fn(&mut Play));

const ONE: Seq = Seq(1);

fn is_due(line: &Line) -> bool {
    matches!(line, Line::Put(Row::Due(_)))
}

const SAYING: [Case; 9] = [
    ("I1", "queued before it is on disk", |p| {
        p.submit("report.pdf");
        p.queued(ONE, "report.pdf");
    }),
    ("I1", "acknowledged before it is on disk", |p| {
        let seq = p.offered("report.pdf");
        let ack = p.ack(seq, 1);
        p.frame(B, &ack);
    }),
    ("I1", "said to be accepted before it is on disk", |p| {
        let (id, seq, from) = (id(), ONE, "".into());
        p.see(A, &Seen::Note(&Note::Accepted { id, seq, size: 1, from }));
    }),
    ("I1", "said to be delivered before it is on disk", |p| {
        p.answered("report.pdf");
        let (peer, to) = ("beta".into(), Some(State::Acked));
        let from = Some(State::Inflight);
        p.see(
            A,
            &Seen::Note(&Note::Delivery {
                id: id(),
                peer,
                from,
                to,
                cause: None,
                attempts: 1,
                bytes: 1,
                took: None,
            }),
        );
    }),
    ("I1", "told of a delivery that is not there", |p| {
        p.submit("report.pdf");
        let draft = p.take(B, "report.pdf");
        p.commit(B, draft);
        let draft = p.take(A, "report.pdf");
        p.commit(A, draft);
        p.queued(Seq(2), "report.pdf");
    }),
    ("I1", "its identity is given up, its content is there", |p| {
        p.accepted("report.pdf");
        let mut draft = Draft::default();
        draft.del(Name::Id(id()));
        p.commit(A, draft);
    }),
    ("I1", "a row is not in the store", |p| {
        p.accepted("report.pdf");
        p.stores[A] = Play::cold().stores.into_iter().next().expect("a store");
        p.deep(A, &[]);
    }),
    ("I1", "taken for others, though it is for this site", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.take(B, "report.pdf").segment(|row| row.here = false);
        p.commit(B, draft);
        let ack = p.ack(seq, 1);
        p.frame(B, &ack);
    }),
    ("I30", "told by a process that does not run", |p| {
        p.accepted("report.pdf");
        p.see(A, &Seen::Died(Death::Stopped));
        p.queued(ONE, "report.pdf");
    }),
];

const ROWS: [Case; 14] = [
    ("I2", "a counter is off by one", |p| {
        p.books[A].counters.insert((PEER, 0), CounterRow { count: 1, bytes: 0 });
        p.accepted("report.pdf");
    }),
    ("I2", "a delivery is not in due", |p| {
        p.submit("report.pdf");
        let draft = p.take(A, "report.pdf").without(is_due);
        p.commit(A, draft);
    }),
    ("I2", "a delivery is not in owed", |p| {
        p.submit("report.pdf");
        let draft = p.take(A, "report.pdf");
        p.commit(A, draft.without(|line| matches!(line, Line::Put(Row::Owed(..)))));
    }),
    ("I2", "a claimed delivery stays in due", |p| {
        let seq = p.accepted("report.pdf");
        let draft = p.claim(seq);
        p.commit(A, draft.without(|line| matches!(line, Line::Del(Name::Due(_)))));
    }),
    ("I2", "a delivery that has ended stays in flight", |p| {
        let seq = p.answered("report.pdf");
        let draft = p.acked(seq);
        p.commit(A, draft.without(|line| matches!(line, Line::Del(Name::Inflight(..)))));
    }),
    ("I2", "it requires more than it owes", |p| {
        p.submit("report.pdf");
        let draft = p.take(A, "report.pdf").segment(|row| row.required = 2);
        p.commit(A, draft);
    }),
    ("I2", "it is owed to nobody", |p| {
        p.submit("report.pdf");
        let draft = p.take(A, "report.pdf").segment(|row| row.required = 0);
        let owed = |line: &Line| {
            matches!(
                line,
                Line::Put(Row::Delivery(..) | Row::Due(_) | Row::Owed(..) | Row::Unmet(..))
            )
        };
        p.books[A].counters.clear();
        p.commit(A, draft.without(owed));
    }),
    ("I2", "a segment is removed", |p| {
        p.delivered("report.pdf");
        let mut draft = Draft::default();
        draft.del(Name::Segment(ONE));
        p.commit(A, draft);
    }),
    ("I2", "the counter of segments is off by one", |p| {
        p.books[A].segments += 1;
        p.accepted("report.pdf");
    }),
    ("I2", "a dead letter is missing", |p| {
        let seq = p.offered("report.pdf");
        p.reject(seq, 1, Refusal::TooLarge, 0);
        let draft = p.give_up(seq, Cause::TooLarge);
        p.commit(A, draft.without(|line| matches!(line, Line::Put(Row::Deadletter(..)))));
    }),
    ("I2", "it is given up as missing, and is there", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.give_up(seq, Cause::Missing);
        p.commit(A, draft);
    }),
    ("I2", "a batch has the number of an earlier one", |p| {
        p.books[A].batch -= 1;
        p.commit(A, Draft::default());
    }),
    ("I2", "a dead letter is removed and its delivery stays", |p| {
        let seq = p.offered("report.pdf");
        p.reject(seq, 1, Refusal::TooLarge, 0);
        let draft = p.give_up(seq, Cause::TooLarge);
        p.commit(A, draft);
        let mut draft = Draft::default();
        draft.del(Name::Deadletter(START, seq, PEER));
        p.commit(A, draft);
    }),
    ("I31", "an audit record is removed", |p| {
        let mut draft = Draft::default();
        draft.del(Name::Audit(3));
        p.commit(A, draft);
    }),
];

const DELIVERIES: [Case; 14] = [
    ("I3", "Acked without an ACK", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.acked(seq);
        p.commit(A, draft);
    }),
    ("I3", "Acked by an ACK that nobody sent", |p| {
        let seq = p.offered("report.pdf");
        let ack = p.ack(seq, 1);
        p.arrives(A, &ack);
        let draft = p.acked(seq);
        p.commit(A, draft);
    }),
    ("I3", "Acked by an ACK of another epoch", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.take(B, "report.pdf");
        p.commit(B, draft);
        let (transfer, id, epoch) = (TransferNo(1), id(), Epoch { boot: 1, session: 7 });
        p.arrives(A, &Frame::Ack { transfer, id, epoch });
        let draft = p.acked(seq);
        p.commit(A, draft);
    }),
    ("I4", "from Scheduled to Acked", |p| {
        let seq = p.accepted("report.pdf");
        let draft = p.acked(seq);
        p.commit(A, draft);
    }),
    ("I4", "back from Acked", |p| {
        let seq = p.delivered("report.pdf");
        let draft = p.fail(seq, Cause::AckTimeout, 1_000);
        p.commit(A, draft);
    }),
    ("I4", "back from Deadletter", |p| {
        let seq = p.offered("report.pdf");
        p.reject(seq, 1, Refusal::TooLarge, 0);
        let draft = p.give_up(seq, Cause::TooLarge);
        p.commit(A, draft);
        let draft = p.claim(seq);
        p.commit(A, draft);
    }),
    ("I4", "failed for no reason", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.fail(seq, Cause::Busy, 0).delivery(|row| row.last_error = 0);
        p.commit(A, draft);
    }),
    ("I9", "relayed before anybody has it", |p| {
        p.submit("report.pdf");
        let draft = p.take(A, "report.pdf").segment(|row| row.relayed_at = Some(START));
        p.commit(A, draft);
    }),
    ("I9", "not relayed though everybody has it", |p| {
        let seq = p.answered("report.pdf");
        let draft = p.acked(seq).segment(|row| row.relayed_at = None);
        p.commit(A, draft.without(|line| matches!(line, Line::Del(Name::Unmet(..)))));
    }),
    ("I21", "claimed before one that was due earlier", |p| {
        p.accepted("report.pdf");
        p.wait(5);
        let second = p.accepted("second.pdf");
        let draft = p.claim(second);
        p.commit(A, draft);
    }),
    ("I22", "claimed before its time", |p| {
        let seq = p.offered("report.pdf");
        p.reject(seq, 1, Refusal::Busy, 0);
        let draft = p.fail(seq, Cause::Busy, 1_000).delivery(|row| row.refused = 1);
        p.commit(A, draft);
        p.wait(999);
        let draft = p.claim(seq);
        p.commit(A, draft);
    }),
    ("I22", "a wait below the backoff", |p| {
        let seq = p.offered("report.pdf");
        p.reject(seq, 1, Refusal::Busy, 0);
        let draft = p.fail(seq, Cause::Busy, 999).delivery(|row| row.refused = 1);
        p.commit(A, draft);
    }),
    ("I22", "a wait shorter than the peer asked for", |p| {
        let seq = p.offered("report.pdf");
        p.reject(seq, 1, Refusal::Busy, 5_000);
        let draft = p.fail(seq, Cause::Busy, 1_200).delivery(|row| row.refused = 1);
        p.commit(A, draft);
    }),
    ("I22", "a wait above the backoff", |p| {
        let seq = p.offered("report.pdf");
        p.reject(seq, 1, Refusal::Busy, 0);
        let draft = p.fail(seq, Cause::Busy, 1_501).delivery(|row| row.refused = 1);
        p.commit(A, draft);
    }),
];

const ATTEMPTS: [Case; 14] = [
    ("I6", "a claim that is not counted", |p| {
        let seq = p.accepted("report.pdf");
        let draft = p.claim(seq).delivery(|row| row.attempts = 0);
        p.commit(A, draft);
    }),
    ("I6", "attempts reset at a restart", |p| {
        let seq = p.offered("report.pdf");
        p.kill(A);
        p.start(A);
        let draft = p.fail(seq, Cause::Restart, 0).delivery(|row| row.attempts = 0);
        p.commit(A, draft);
    }),
    ("I6", "a lost session spends the budget", |p| {
        let seq = p.offered("report.pdf");
        p.lose_session(A);
        let draft = p.fail(seq, Cause::SessionLost, 0).delivery(|row| row.spent = 1);
        p.commit(A, draft);
    }),
    ("I6", "it goes on with its budget spent", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.fail(seq, Cause::Unreadable, 1_000).delivery(|row| row.spent = 3);
        p.commit(A, draft);
    }),
    ("I6", "an ACK is late too early", |p| {
        let seq = p.offered("report.pdf");
        p.wait(59_999);
        let draft = p.fail(seq, Cause::AckTimeout, 1_000).delivery(|row| row.spent = 1);
        p.commit(A, draft);
    }),
    ("I6", "a restart without one", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.fail(seq, Cause::Restart, 0);
        p.commit(A, draft);
    }),
    ("I7", "offered before the claim is on disk", |p| {
        let seq = p.accepted("report.pdf");
        p.send_offer(seq, 1);
    }),
    ("I7", "offered twice", |p| {
        let seq = p.offered("report.pdf");
        p.send_offer(seq, 2);
    }),
    ("I7", "offered by the session before", |p| {
        let seq = p.accepted("report.pdf");
        let draft = p.claim(seq);
        p.commit(A, draft);
        p.hello();
        p.send_offer(seq, 1);
    }),
    ("I8", "a session is lost that lives", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.fail(seq, Cause::SessionLost, 0);
        p.commit(A, draft);
    }),
    ("I8", "a refusal that never came", |p| {
        let seq = p.offered("report.pdf");
        let draft = p.fail(seq, Cause::Busy, 1_000).delivery(|row| row.refused = 1);
        p.commit(A, draft);
    }),
    ("I8", "acknowledged without an offer", |p| {
        p.delivered("report.pdf");
        let ack = p.ack(ONE, 9);
        p.frame(B, &ack);
    }),
    ("I8", "HELLO before the boot is on disk", |p| {
        p.kill(A);
        p.start(A);
        p.books[A].session = 1;
        p.say_hello(A, p.epoch(A));
    }),
    ("I8", "an epoch that was there before", |p| {
        p.conn.generation += 1;
        p.say_hello(A, p.epoch(A));
    }),
];

#[test]
fn every_way_to_break_a_promise_is_named() {
    let all = [&SAYING[..], &ROWS, &DELIVERIES, &ATTEMPTS, &more::CONTENT, &more::LOOP].concat();
    let mut wrong = Vec::new();
    for (invariant, what, story) in &all {
        let mut play = Play::new();
        story(&mut play);
        match &play.broken {
            Some(found) if found.invariant == *invariant => {}
            Some(found) => wrong.push(format!("{what}: {invariant} expected, found\n{found}")),
            None => wrong.push(format!("{what}: {invariant} expected, nothing found")),
        }
        assert!(!promise(invariant).is_empty(), "{invariant} says nothing");
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n\n"));
    assert_ne!(digest(), BlobDigest([0; 32]));
    assert_ne!(id(), id_of("second.pdf"));
}
