//! Content that is doubted, and what may become of that.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::config::Config;
use consign_core::id::{BatchNo, Seq};
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::rows::{Body, INBOUND, Loss, MetaName, SegmentRow};
use consign_core::ledger::rows_upkeep::{AuditRow, ExportRow, ExportState};
use consign_core::ledger::{Table, keys};

use super::play::{A, B, Draft, PEER, Play, config, id};
use crate::sim::audit::rows::{Inline, Name, Row};
use crate::sim::seen::{Damage, Seen, SiteIx};

const ONE: Seq = Seq(1);
const RULE: RuleId = RuleId(1);

impl Play {
    fn changed(&mut self, ix: SiteIx, change: impl FnOnce(&mut SegmentRow)) -> Row {
        let row = self.books[ix].rows.get_mut(&ONE).expect("it is the first");
        change(row);
        Row::Segment(ONE, Box::new(row.clone()))
    }

    /// The second mismatch in a row: the delivery is dead, and the content doubted, or taken for gone.
    fn mismatched(&mut self, loss: Loss) {
        self.offered("report.pdf");
        self.reject(ONE, 1, Refusal::Mismatch, 0);
        let draft = self.fail(ONE, Cause::Mismatch, 1_000).delivery(|row| row.spent = 1);
        self.books[A].deliveries.get_mut(&ONE).expect("it is owed").spent = 1;
        self.commit(A, draft);
        self.wait(1_000);
        let draft = self.claim(ONE);
        self.commit(A, draft);
        self.send_offer(ONE, 2);
        self.reject(ONE, 2, Refusal::Mismatch, 0);
        let mut draft = self.give_up(ONE, Cause::Mismatch);
        if loss == Loss::Gone {
            draft.del(Name::Id(id()));
        }
        draft.put(self.changed(A, |row| row.loss = Some(loss)));
        self.commit(A, draft);
    }

    fn rots(&mut self) {
        let Body::Inline(body) = self.books[A].rows[&ONE].body else { panic!("in the ledger") };
        let key = keys::body(body).to_vec();
        self.see(A, &Seen::Damaged(Damage::Row(Table::Bodies, key)));
    }

    /// It is doubted no more; a record may say so.
    fn clears(&mut self, recorded: bool) {
        let mut draft = Draft::default();
        draft.put(self.changed(A, |row| row.loss = None));
        if recorded {
            self.records(A, "cleared", &mut draft);
        }
        self.commit(A, draft);
    }

    fn records(&self, ix: SiteIx, action: &str, draft: &mut Draft) {
        let number = self.audit.sites[&ix].disk.audit.len() as u64 + 1;
        let row = AuditRow {
            at: self.wall(),
            who: String::new(),
            action: action.into(),
            subject: id().to_string(),
            reason: String::new(),
            count: 1,
            bytes: 15,
        };
        draft.put(Row::Audit(number, Box::new(row)));
        draft.put(Row::Meta(MetaName::AuditRows, number));
    }

    fn done(&self) -> ExportRow {
        ExportRow {
            state: ExportState::Done,
            name: "report.pdf".into(),
            since: self.wall(),
            runs: 0,
            next_attempt_after: 0,
            exit: None,
            output: Vec::new(),
            error: String::new(),
            mark: None,
            tries: 0,
        }
    }

    /// A copy at its destination, which an inbox rule may have given out, is let go.
    fn released(&mut self, given_out: bool) {
        self.offered("report.pdf");
        let draft = self.take(B, "report.pdf");
        self.commit(B, draft);
        if given_out {
            let mut draft = Draft::default();
            draft.put(Row::Export(RULE, ONE, Box::new(self.done())));
            self.commit(B, draft);
        }
        self.wait(1_000);
        let keeps = Config { keep: Duration::ZERO, ..config(B) };
        let handed = BatchNo(self.books[B].batch);
        self.see(B, &Seen::Reconfigured { config: &keeps, handed });
        let row = self.books[B].rows[&ONE].clone();
        let Body::Inline(body) = row.body else { panic!("in the ledger") };
        let inline = Inline::of(&super::play::bytes());
        let books = &mut self.books[B];
        (books.used, books.segments) = (books.used - inline.charge(), books.segments - 1);
        let inbound = books.counters.get_mut(&(PEER, INBOUND)).expect("it came from there");
        (inbound.count, inbound.bytes) = (0, 0);
        let mut draft = Draft::default();
        draft.del(Name::Body(body)).del(Name::Segment(ONE)).del(Name::Id(row.id));
        if given_out {
            draft.del(Name::Export(RULE, ONE));
        }
        draft.del(Name::Unmet(row.accepted_at, ONE));
        self.records(B, "release", &mut draft);
        self.commit(B, draft);
    }

    fn found(&mut self) -> Option<(&'static str, String)> {
        self.broken.take().map(|v| (v.invariant, v.text))
    }
}

#[test]
fn what_is_whole_is_doubted_no_more_and_a_record_says_so() {
    for recorded in [true, false] {
        let mut play = Play::new();
        play.mismatched(Loss::Doubted);
        assert_eq!(play.found(), None);
        play.clears(recorded);
        match recorded {
            true => assert_eq!(play.found(), None),
            false => {
                assert!(play.found().is_some_and(|(i, text)| i == "I2" && text.contains("record")))
            }
        }
    }
}

#[test]
fn what_was_destroyed_stays_doubted() {
    let mut play = Play::new();
    play.mismatched(Loss::Doubted);
    // It came to harm when it had been looked at already: that cannot be known.
    play.rots();
    play.clears(true);
    assert_eq!(play.found(), None);
    // By the next time it is known.
    let mut draft = Draft::default();
    draft.put(play.changed(A, |row| row.loss = Some(Loss::Doubted)));
    play.commit(A, draft);
    play.clears(true);
    let (invariant, text) = play.found().expect("it is known to be destroyed");
    assert!(invariant == "I11" && text.contains("destroyed before"), "{invariant}: {text}");
}

#[test]
fn the_word_of_a_peer_is_not_enough_to_give_up_an_identity() {
    let mut play = Play::new();
    play.mismatched(Loss::Gone);
    assert!(play.found().is_some_and(|(i, text)| i == "I1" && text.contains("given up")));
}

#[test]
fn a_copy_for_this_site_goes_once_it_was_given_out() {
    for given_out in [true, false] {
        let mut play = Play::new();
        play.released(given_out);
        match given_out {
            true => assert_eq!(play.found(), None),
            false => {
                assert!(play.found().is_some_and(|(i, t)| i == "I9" && t.contains("released")))
            }
        }
    }
}
