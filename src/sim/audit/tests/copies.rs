//! Two copies of one identity: the first has lost its content, the second has come since.

use consign_core::config::Config;
use consign_core::id::{BatchNo, Seq, TransferNo};
use consign_core::ledger::rows::{Body, Loss, MetaName, State};
use consign_core::ledger::rows_upkeep::{AuditRow, ReceiptRow, RememberedRow};
use consign_core::ledger::{Table, keys};
use consign_core::segment::Destinations;
use consign_core::wire::{Frame, Offer};

use super::play::{A, B, Draft, Line, NAMES, PEER, Play, config, digest, id, meta};
use crate::sim::audit::rows::{Inline, Name, Row};
use crate::sim::seen::{Damage, Seen};

const FIRST: Seq = Seq(1);
const SECOND: Seq = Seq(2);

impl Play {
    /// A site that evicts has delivered a segment of its own, and lost its content.
    fn lost(&mut self) {
        let evicts = Config { evict_on_relay: true, ..config(A) };
        let handed = BatchNo(self.books[A].batch);
        self.see(A, &Seen::Reconfigured { config: &evicts, handed });
        self.delivered("report.pdf");
        let mut row = self.books[A].rows[&FIRST].clone();
        let Body::Inline(body) = row.body else { panic!("it is in the ledger") };
        let key = keys::body(body).to_vec();
        self.see(A, &Seen::Damaged(Damage::Row(Table::Bodies, key)));
        row.loss = Some(Loss::Gone);
        self.books[A].rows.insert(FIRST, row.clone());
        let mut draft = Draft::default();
        draft.del(Name::Id(row.id)).put(Row::Segment(FIRST, Box::new(row)));
        self.commit(A, draft);
    }

    /// The other site brings the same segment, as one of its own and for this site.
    fn brought(&mut self) {
        let inline = Inline::of(&super::play::bytes());
        let (id, transfer, to) = (id(), TransferNo(7), Destinations::All);
        let (size, meta, origin) = (inline.size, meta("report.pdf"), NAMES[B].to_string());
        self.see(B, &Seen::Submitted { id, digest: digest(), size, meta: &meta, to: &to });
        let (origin_seq, hops) = (9, 1);
        let digest = digest();
        let offer = Offer { transfer, id, digest, size, to, origin, origin_seq, hops, meta };
        self.arrives(A, &Frame::Offer(offer, None));
        let waits = |line: &Line| {
            matches!(
                line,
                Line::Put(Row::Delivery(..) | Row::Due(_) | Row::Owed(..) | Row::Unmet(..))
            )
        };
        let draft = self.take(A, "report.pdf").without(waits).segment(|row| {
            (row.here, row.from, row.required) = (true, PEER.0, 0);
            (row.origin, row.origin_seq, row.hops) = (NAMES[B].into(), 9, 1);
        });
        self.count(A, Some(State::Scheduled), None, inline.size);
        self.books[A].comes_in(1, inline.charge());
        self.commit(A, draft);
        let epoch = self.epoch(B);
        self.frame(A, &Frame::Ack { transfer, id, epoch });
    }

    /// The rows of the first copy's eviction.
    fn evicted(&mut self) -> Draft {
        let (now, row) = (self.wall(), self.books[A].rows[&FIRST].clone());
        let Body::Inline(body) = row.body else { panic!("it is in the ledger") };
        let inline = Inline::of(&super::play::bytes());
        self.count(A, Some(State::Acked), None, row.size);
        let books = &mut self.books[A];
        (books.used, books.segments) = (books.used - inline.charge(), books.segments - 1);
        let receipt = ReceiptRow {
            id: row.id,
            site: NAMES[B].into(),
            when: now,
            cause: 0,
            back: 0,
            pending: false,
            name: row.meta.name.clone(),
            size: row.size,
            digest: row.digest,
            expires_at: now + 1,
            more: Vec::new(),
        };
        let remembered =
            RememberedRow { evicted_at: now, origin: String::new(), origin_seq: 1, seq: FIRST };
        let record = AuditRow {
            at: now,
            who: String::new(),
            action: "evict".into(),
            subject: row.id.to_string(),
            reason: "relayed".into(),
            count: 1,
            bytes: row.size,
        };
        let mut draft = Draft::default();
        draft.del(Name::Delivery(FIRST, PEER)).del(Name::Body(body)).del(Name::Segment(FIRST));
        draft.put(Row::Receipt(FIRST, PEER, Box::new(receipt)));
        draft.put(Row::Remembered(row.id, Box::new(remembered)));
        draft.put(Row::RememberedAge(now, row.id)).put(Row::Meta(MetaName::Remembered, 1));
        draft.put(Row::Audit(1, Box::new(record))).put(Row::Meta(MetaName::AuditRows, 1));
        draft
    }
}

#[test]
fn what_was_said_of_a_later_copy_does_not_bind_the_one_before() {
    let mut play = Play::new();
    play.lost();
    play.brought();
    let addressed = &play.audit.sites[&A].addressed;
    assert_eq!(addressed.iter().collect::<Vec<_>>(), [&SECOND], "its ACK speaks of it alone");
    let draft = play.evicted();
    play.commit(A, draft);
    assert_eq!(play.broken.as_ref().map(|v| v.to_string()), None);
    assert!(play.audit.sites[&A].addressed.contains(&SECOND), "it binds the later one still");
}
