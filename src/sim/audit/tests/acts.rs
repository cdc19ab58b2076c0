//! What operators do in the batch in which something else happens too.

use consign_core::code::{Cause, Refusal};
use consign_core::id::Seq;
use consign_core::ledger::keys_upkeep::ExpiryKind;
use consign_core::ledger::rows::{Body, MetaName, State};
use consign_core::ledger::rows_upkeep::AuditRow;
use consign_core::ledger::{Table, keys, keys_upkeep};
use consign_core::session::Accepted;
use consign_core::time::UnixMillis;

use super::play::{A, Draft, Line, NAMES, PEER, Play, START, id, id_of};
use crate::sim::audit::disk::due_key;
use crate::sim::audit::rows::{Inline, Name, Row};
use crate::sim::seen::{Damage, Seen};

const ONE: Seq = Seq(1);
/// When its time is over.
const END: u64 = START + 7;

fn end() -> Vec<u8> {
    keys_upkeep::expiry(UnixMillis(END), ExpiryKind::Segment, &keys::seq(ONE)).to_vec()
}

impl Play {
    /// A segment at A that its destination refused for good, and that has expired since.
    fn dead(&mut self) {
        self.submit("report.pdf");
        let mut draft = self.take(A, "report.pdf").segment(|row| row.meta.expires_at = Some(END));
        draft.put(Row::Expiry(end()));
        let row = self.books[A].rows.get_mut(&ONE);
        row.expect("it is the first").meta.expires_at = Some(END);
        self.commit(A, draft);
        self.queued(ONE, "report.pdf");
        let draft = self.claim(ONE);
        self.commit(A, draft);
        self.send_offer(ONE, 1);
        self.reject(ONE, 1, Refusal::TooLarge, 0);
        let draft = self.give_up(ONE, Cause::TooLarge);
        self.commit(A, draft);
        self.wait(10);
    }

    /// A record of an act.
    fn record(&self, number: u64, who: &str, action: &str, draft: &mut Draft) {
        let row = AuditRow {
            at: self.wall(),
            who: who.into(),
            action: action.into(),
            subject: id().to_string(),
            reason: String::new(),
            count: 1,
            bytes: 1,
        };
        draft.put(Row::Audit(number, Box::new(row)));
        draft.put(Row::Meta(MetaName::AuditRows, number));
    }

    /// The rows of a dead letter that is queued again.
    fn retried(&mut self) -> Draft {
        let mut row = self.books[A].deliveries[&ONE].clone();
        let segment = self.books[A].rows[&ONE].clone();
        self.count(A, Some(State::Deadletter), Some(State::Scheduled), segment.size);
        let mut draft = Draft::default();
        draft.del(Name::Deadletter(row.since, ONE, PEER)).put(Row::Owed(PEER, ONE));
        (row.state, row.since, row.last_error) = (State::Scheduled, self.wall(), 0);
        row.next_attempt_after = row.since;
        let key = due_key(PEER, ONE, row.next_attempt_after, &segment);
        self.books[A].deliveries.insert(ONE, row.clone());
        draft.put(Row::Delivery(ONE, PEER, row)).put(Row::Due(key));
        self.record(1, "uid:1000", "retry", &mut draft);
        draft
    }

    /// A client that hands it in once more is told that its delivery was given up.
    fn told_dead(&mut self) {
        let accepted = Accepted {
            id: id_of("report.pdf"),
            seq: ONE,
            new: false,
            added: Vec::new(),
            queued: Vec::new(),
            delivered: Vec::new(),
            dead: vec![NAMES[1].into()],
            raised: false,
        };
        self.see(A, &Seen::Queued(&accepted));
    }

    /// The rows of a segment that goes because its time is over, after an operator has given up what
    /// was dead, or without that.
    fn expired(&mut self, asked: bool) -> Draft {
        let row = self.books[A].deliveries[&ONE].clone();
        let mut segment = self.books[A].rows[&ONE].clone();
        let inline = Inline::of(&super::play::bytes());
        self.count(A, Some(State::Deadletter), None, segment.size);
        let books = &mut self.books[A];
        (books.used, books.segments) = (books.used - inline.charge(), books.segments - 1);
        let mut draft = Draft::default();
        draft.del(Name::Delivery(ONE, PEER)).del(Name::Deadletter(row.since, ONE, PEER));
        if asked {
            (segment.required, segment.let_go) = (0, Some(START));
            draft.put(Row::Segment(ONE, Box::new(segment.clone())));
            self.record(1, "uid:1000", "release", &mut draft);
        }
        let Body::Inline(body) = segment.body else { panic!("it is in the ledger") };
        draft.del(Name::Body(body)).del(Name::Segment(ONE)).del(Name::Id(segment.id));
        draft.del(Name::Unmet(segment.accepted_at, ONE)).del(Name::Expiry(end()));
        self.record(1 + u64::from(asked), "", "expire", &mut draft);
        draft
    }
}

#[test]
fn a_client_may_hear_of_a_dead_letter_that_the_same_batch_queues_again() {
    let mut play = Play::new();
    play.dead();
    play.told_dead();
    play.see(A, &Seen::Operated("retry"));
    let draft = play.retried();
    play.commit(A, draft);
    play.told_dead();
    assert_eq!(play.broken.take().map(|v| v.to_string()), None);
    // That was a batch ago.
    play.commit(A, Draft::default());
    play.told_dead();
    assert_eq!(play.broken.map(|v| v.invariant), Some("I1"));
}

#[test]
fn what_an_operator_gives_up_may_expire_in_the_same_batch() {
    for asked in [true, false] {
        let mut play = Play::new();
        play.dead();
        play.see(A, &Seen::Operated("release"));
        let draft = play.expired(asked);
        play.commit(A, draft);
        let broken = play.broken.map(|v| (v.invariant, v.text));
        match asked {
            true => assert_eq!(broken, None),
            false => assert!(
                broken.is_some_and(|(i, text)| i == "I2" && text.contains("nothing says so"))
            ),
        }
    }
}

#[test]
fn a_delivery_is_left_behind_only_where_its_row_was_destroyed() {
    for destroyed in [true, false] {
        let mut play = Play::new();
        play.dead();
        if destroyed {
            let key = keys::delivery(ONE, PEER).to_vec();
            play.see(A, &Seen::Damaged(Damage::Row(Table::Deliveries, key)));
        }
        play.see(A, &Seen::Operated("release"));
        let delivery = |line: &Line| matches!(line, Line::Del(Name::Delivery(..)));
        let draft = play.expired(true).without(delivery);
        // It is counted as before.
        play.count(A, None, Some(State::Deadletter), play.books[A].rows[&ONE].size);
        play.commit(A, draft);
        let broken = play.broken.map(|v| (v.invariant, v.text));
        match destroyed {
            true => assert_eq!(broken, None),
            false => {
                assert!(broken.is_some_and(|(i, text)| i == "I2" && text.contains("not kept")))
            }
        }
    }
}
