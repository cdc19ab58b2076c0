//! Content of a segment that came to harm where it was acknowledged, and is mended there later.

use consign_core::id::{BodyNo, Seq};
use consign_core::ledger::rows::{Body, INBOUND, Loss, MetaName, SegmentRow};
use consign_core::ledger::rows_upkeep::AuditRow;
use consign_core::ledger::{Table, keys};
use consign_core::segment::Destinations;

use super::play::{A, B, Draft, Line, PEER, Play, bytes, digest, id, meta};
use crate::sim::audit::rows::{Name, Row};
use crate::sim::seen::{Damage, Seen};

const ONE: Seq = Seq(1);
const OLD: BodyNo = BodyNo(1);

impl Play {
    /// Beta keeps an accept of its own for itself, and its content is destroyed.
    fn harmed(&mut self) {
        let (meta, to) = (meta("report.pdf"), Destinations::Named(vec!["beta".into()]));
        let (id, digest, size) = (id(), digest(), bytes().len() as u64);
        self.see(B, &Seen::Submitted { id, digest, size, meta: &meta, to: &to });
        let draft = self.take(B, "report.pdf");
        self.books[B].counters.remove(&(PEER, INBOUND));
        self.kept(|row| {
            (row.from, row.to, row.hops) = (0, to.clone(), 0);
            (row.origin, row.origin_seq) = (String::new(), 0);
        });
        let row = self.books[B].rows[&ONE].clone();
        let draft = draft.segment(|new| *new = row.clone());
        self.commit(B, draft);
        let damage = Damage::Row(Table::Bodies, keys::body(OLD).to_vec());
        self.see(B, &Seen::Damaged(damage));
    }

    fn kept(&mut self, change: impl FnOnce(&mut SegmentRow)) -> Row {
        let row = self.books[B].rows.get_mut(&ONE).expect("it is the first");
        change(row);
        Row::Segment(ONE, Box::new(row.clone()))
    }

    /// Beta finds out.
    fn doubts(&mut self) {
        let mut draft = Draft::default();
        draft.put(self.kept(|row| row.loss = Some(Loss::Doubted)));
        self.commit(B, draft);
    }

    /// Other content takes the place of what was destroyed.
    fn mends(&mut self) {
        let new = BodyNo(self.books[B].next[2]);
        self.books[B].next[2] += 1;
        let mut draft = Draft(vec![Line::Body(new, bytes())]);
        draft.put(self.kept(|row| (row.loss, row.body) = (None, Body::Inline(new))));
        let row = AuditRow {
            at: self.wall(),
            who: String::new(),
            action: "repaired".into(),
            subject: id().to_string(),
            reason: "want".into(),
            count: 1,
            bytes: 15,
        };
        draft.del(Name::Body(OLD)).put(Row::Audit(1, Box::new(row)));
        draft.put(Row::Meta(MetaName::AuditRows, 1));
        self.commit(B, draft);
    }

    fn acknowledged(&mut self) {
        let ack = self.ack(ONE, 1);
        self.frame(B, &ack);
        let draft = self.acked(ONE);
        self.commit(A, draft);
    }

    fn missed(&mut self) -> Option<(&'static str, String)> {
        let nothing = self.audit.nothing_is_lost().err();
        self.broken.take().or(nothing).map(|v| (v.invariant, v.text))
    }
}

#[test]
fn what_nobody_knew_to_be_harmed_has_arrived_once_it_is_acknowledged() {
    let mut play = Play::new();
    play.harmed();
    play.offered("report.pdf");
    play.acknowledged();
    assert_eq!(play.missed(), None);
    play.doubts();
    assert_eq!(play.missed(), None);
    play.mends();
    assert_eq!(play.missed(), None, "it is where it was to be brought");
}

#[test]
fn nothing_is_acknowledged_on_the_strength_of_what_is_doubted() {
    for mended in [true, false] {
        let mut play = Play::new();
        play.harmed();
        play.doubts();
        play.offered("report.pdf");
        if mended {
            play.mends();
        }
        play.acknowledged();
        let found = play.missed();
        match mended {
            true => assert_eq!(found, None),
            false => assert!(found.is_some_and(|(i, text)| i == "I1" && text.contains("doubted"))),
        }
    }
}

/// What was let go before the node ended a session may still leave it.
#[test]
fn an_offer_that_leaves_a_session_after_its_end_is_for_nothing() {
    for over in [true, false] {
        let mut play = Play::new();
        let seq = play.accepted("report.pdf");
        if over {
            play.lose_session(A);
        }
        play.send_offer(seq, 1);
        assert_eq!(play.broken.map(|v| v.invariant), (!over).then_some("I7"));
    }
}
