//! Ways to break a promise about content, files, memory and processes.

use consign_core::code::{Cause, Refusal};
use consign_core::id::{BlobNo, SiteNo, TransferNo};
use consign_core::ledger::rows::{DoomedRow, MetaName};
use consign_core::node::{Note, ReconcileSummary};
use consign_core::time::{Instant, Now, UnixMillis};
use consign_core::wire::Frame;

use super::cases::Case;
use super::play::{A, B, Draft, Line, PEER, Play, START};
use crate::sim::audit::rows::{Name, Row};
use crate::sim::seen::Seen;

pub const CONTENT: [Case; 15] = [
    ("I10", "what is charged is not what is kept", |p| {
        p.books[A].used += 1;
        p.accepted("report.pdf");
    }),
    ("I10", "more than the limit", |p| {
        p.books[A].used += 1 << 20;
        let (_, draft) = p.reserve(A, SiteNo(0), 0);
        let more = |line: Line| match line {
            Line::Put(Row::Incoming(blob, mut row)) => {
                row.reserved += 1 << 20;
                Line::Put(Row::Incoming(blob, row))
            }
            other => other,
        };
        p.commit(A, Draft(draft.0.into_iter().map(more).collect()));
    }),
    ("I11", "content is not what its digest says", |p| {
        p.submit("report.pdf");
        let wrong = |line: Line| match line {
            Line::Body(body, _) => Line::Body(body, b"nothing is loss".to_vec()),
            other => other,
        };
        let draft = p.take(A, "report.pdf");
        p.commit(A, Draft(draft.0.into_iter().map(wrong).collect()));
    }),
    ("I11", "kept, and never handed in", |p| {
        let draft = p.take(A, "report.pdf");
        p.commit(A, draft);
    }),
    ("I11", "offered under another size", |p| {
        let seq = p.accepted("report.pdf");
        let draft = p.claim(seq);
        p.commit(A, draft);
        let mut offer = p.offer(seq, 1);
        offer.size += 1;
        p.frame(A, &Frame::Offer(offer, None));
    }),
    ("I16", "a file before its row", |p| p.file(BlobNo(1))),
    ("I16", "a row without its file", |p| {
        let (blob, draft) = p.reserve(A, SiteNo(0), 0);
        p.commit(A, draft);
        p.submit("report.pdf");
        let draft = p.adopt(blob, "report.pdf");
        p.commit(A, draft);
    }),
    ("I16", "forgotten while it is on disk", |p| {
        let (blob, mut draft) = p.reserve(A, SiteNo(0), 0);
        draft.del(Name::Incoming(blob));
        draft.put(Row::Doomed(blob, DoomedRow::new(100, 0)));
        p.commit(A, draft);
        p.file(blob);
        p.books[A].used -= 100;
        let mut draft = Draft::default();
        draft.del(Name::Doomed(blob));
        p.commit(A, draft);
    }),
    ("I16", "removed before its row says so", |p| {
        let (blob, draft) = p.reserve(A, SiteNo(0), 0);
        p.commit(A, draft);
        p.file(blob);
        p.see(A, &Seen::FileGone(blob));
    }),
    ("I16", "content is asked for without a row", |p| {
        let seq = p.offered("report.pdf");
        let id = p.offer(seq, 1).id;
        p.frame(B, &Frame::Accept { transfer: TransferNo(1), id, offset: 0 });
    }),
    ("I26", "content is asked for from beyond what is there", |p| {
        let seq = p.offered("report.pdf");
        let id = p.offer(seq, 1).id;
        let (_, draft) = p.reserve(B, PEER, 10);
        p.commit(B, draft);
        p.frame(B, &Frame::Accept { transfer: TransferNo(1), id, offset: 11 });
    }),
    ("I26", "a file is shorter than its checkpoint", |p| {
        let (blob, draft) = p.reserve(A, PEER, 10);
        p.commit(A, draft);
        p.deep(A, &[(blob, 9, false)]);
    }),
    ("I17", "removed while a segment needs it", |p| {
        let (blob, draft) = p.reserve(A, SiteNo(0), 0);
        p.commit(A, draft);
        p.file(blob);
        p.submit("report.pdf");
        let draft = p.adopt(blob, "report.pdf");
        p.commit(A, draft);
        p.see(A, &Seen::FileGone(blob));
    }),
    ("I25", "kept twice", |p| {
        p.accepted("report.pdf");
        let draft = p.take(A, "report.pdf");
        p.commit(A, draft);
    }),
    ("I25", "held, and refused for good", |p| {
        let seq = p.delivered("report.pdf");
        let again = p.offer(seq, 9);
        p.arrives(B, &Frame::Offer(again, None));
        p.reject(seq, 9, Refusal::TooLarge, 0);
    }),
];

fn turn(p: &mut Play, ms: u64, inputs: usize, footprint: (usize, usize, usize)) {
    let now = Now { mono: Instant(ms * 1_000_000), wall: UnixMillis(START + ms) };
    p.see(A, &Seen::Turned { now, inputs, footprint });
}

/// Content on its way in when the stop came is taken when it is whole: nothing is wrong with that.
pub fn late(p: &mut Play) {
    let (blob, draft) = p.reserve(A, SiteNo(0), 0);
    p.commit(A, draft);
    p.file(blob);
    p.see(A, &Seen::Stopping);
    p.wait(1);
    p.wait(1);
    p.submit("report.pdf");
    let draft = p.adopt(blob, "report.pdf");
    p.commit(A, draft);
}

pub const LOOP: [Case; 18] = [
    ("I30", "taken after a stop", |p| {
        p.see(A, &Seen::Stopping);
        p.wait(1);
        p.wait(1);
        p.accepted("report.pdf");
    }),
    ("I30", "begun after a stop", |p| {
        p.see(A, &Seen::Stopping);
        p.wait(1);
        p.wait(1);
        let (_, draft) = p.reserve(A, SiteNo(0), 0);
        p.commit(A, draft);
    }),
    ("I30", "two taken after a stop, one of which had begun", |p| {
        late(p);
        p.accepted("invoice.pdf");
    }),
    ("I30", "goes on after its drain", |p| {
        p.see(A, &Seen::Stopping);
        p.wait(1);
        (0..3).for_each(|_| p.wait(30_000));
    }),
    ("I17", "start-up ends twice", |p| {
        p.see(A, &Seen::Note(&Note::Reconciled(ReconcileSummary::default())));
    }),
    ("I17", "start-up misses what is there", |p| {
        p.accepted("report.pdf");
        p.restart(A);
        let summary = ReconcileSummary { missing: 1, ..ReconcileSummary::default() };
        p.see(A, &Seen::Note(&Note::Reconciled(summary)));
    }),
    ("I18", "a clock goes back", |p| {
        turn(p, 10, 1, (0, 0, 0));
        turn(p, 9, 1, (0, 0, 0));
    }),
    ("I18", "a row lies ahead of its time", |p| {
        p.submit("report.pdf");
        let draft = p.take(A, "report.pdf").delivery(|row| row.since = START + 1);
        p.commit(A, draft);
    }),
    ("I18", "effective time starts before its high water", |p| {
        p.wait(100);
        p.commit(A, Draft::default());
        p.kill(A);
        p.ms = 0;
        p.start(A);
    }),
    ("I18", "expired before its end", |p| {
        let seq = p.accepted("report.pdf");
        let draft = p.give_up(seq, Cause::Expired);
        p.commit(A, draft);
    }),
    ("I18", "the high water goes down", |p| {
        let mut draft = Draft::default();
        draft.put(Row::Meta(MetaName::TimeHigh, START - 1));
        p.commit(A, draft);
    }),
    ("I19", "windows without bound", |p| turn(p, 0, 1, (0, 4_097, 0))),
    ("I19", "inputs without bound", |p| turn(p, 0, 4_097, (0, 0, 0))),
    ("I19", "something stays in memory", |p| {
        p.delivered("report.pdf");
        turn(p, 0, 1, (1, 0, 0));
        p.at_rest(A);
    }),
    ("I23", "round and round at one moment", |p| {
        (0..300).for_each(|_| turn(p, 0, 1, (0, 0, 0)));
    }),
    ("I28", "still in flight", |p| {
        p.offered("report.pdf");
        p.at_rest(A);
    }),
    ("I28", "still reserved", |p| {
        let (_, draft) = p.reserve(A, SiteNo(0), 0);
        p.commit(A, draft);
        p.at_rest(A);
    }),
    ("I17", "start-up never ends", |p| {
        p.restart(A);
        p.at_rest(A);
    }),
];
