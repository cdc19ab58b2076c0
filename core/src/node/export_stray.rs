//! Exports as a start finds them, looked through once, page by page behind live traffic: those of rules that are configured no more, since rules change with
//! a start, and those that were given up, which `status` counts.
//!
//! A rule whose directory was changed is another rule by its number, and so is one that picks otherwise. What such a
//! rule still owed goes to the rules that take its segment now, unless they have it already: to the new directory, for a
//! changed one. What it had done, and what nobody takes, is forgotten. Until all of it was looked at, what is owed keeps
//! its content, whoever owed it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::export::{Exports, due_key};
use super::types::Action;
use super::{Asked, Mode, Node};
use crate::id::{BatchNo, Seq};
use crate::ledger::keys_upkeep::{self, RuleId, parse_export};
use crate::ledger::read::{Kept, ReadRequest};
use crate::ledger::read_scrub::RawRow;
use crate::ledger::rows_upkeep::{ExportRow, ExportState};
use crate::ledger::{Table, codec};
use crate::time::Now;

/// Exports read at a time.
const PAGE: usize = 512;
/// Of them, those of rules that are gone, whose segments are read too.
const STRAYS: usize = 64;
/// Most exports that were given up which are kept in mind; so many or more.
const FAILED_MOST: usize = 65_536;

/// Where the look stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Strays {
    /// The first export that was not looked at; `None` once all were.
    from: Option<(RuleId, Seq)>,
    /// A page whose segments are being read, in order.
    page: Vec<Stray>,
    /// Where the next page begins.
    next: Option<(RuleId, Seq)>,
    /// A page is read once this batch is durable: it may hold what the page is judged by.
    behind: BatchNo,
    reading: bool,
}

/// One of them, as far as its row can be read.
type Stray = (RuleId, Seq, Option<ExportRow>);

impl Strays {
    /// Everything is to be looked at.
    pub(super) fn begin() -> Strays {
        Strays { from: Some((RuleId(0), Seq(0))), ..Strays::default() }
    }

    /// Whether all was looked at.
    pub(super) fn is_done(&self) -> bool {
        self.from.is_none()
    }
}

fn is_over(row: &ExportRow) -> bool {
    matches!(row.state, ExportState::Done | ExportState::Failed)
}

impl Exports {
    /// An operator has to say that it is to be tried again.
    pub(super) fn gave_up(&mut self, rule: RuleId, seq: Seq) {
        if self.failed.len() < FAILED_MOST {
            self.failed.insert((rule, seq));
        }
    }
}

impl Node {
    /// How many exports of each rule were given up; none where there is none.
    pub(super) fn exports_given_up(&self) -> BTreeMap<RuleId, u64> {
        let mut counts = BTreeMap::new();
        for (rule, _) in &self.exports.failed {
            *counts.entry(*rule).or_default() += 1;
        }
        counts
    }

    /// Asks for the next page.
    pub(super) fn look_for_strays(&mut self, out: &mut Vec<Action>) {
        let Some((rule, seq)) = self.exports.strays.from else { return };
        let idle = !self.exports.strays.reading && matches!(self.mode, Mode::Normal);
        let idle = idle && self.exports.strays.behind <= self.gate.committed();
        if !idle || !self.reconcile.is_settled() || !self.stage.growth_room(self.stray_rows()) {
            return;
        }
        self.exports.strays.reading = true;
        let (table, from) = (Table::Exports, keys_upkeep::export(rule, seq).to_vec());
        let request = ReadRequest::Rows { table, from, until: [0xff; 17].to_vec(), limit: PAGE };
        self.ask(Asked::Strays, request, out);
    }

    /// Rows that one of them may bring.
    fn stray_rows(&self) -> usize {
        self.export_rows() + 3
    }

    /// A page has come.
    pub(super) fn stray_page(
        &mut self,
        rows: &[(RawRow, RawRow)],
        next: Option<RawRow>,
        out: &mut Vec<Action>,
    ) {
        let mut next = next.and_then(|key| parse_export(&key.0));
        let mut page: Vec<Stray> = Vec::new();
        for (key, value) in rows {
            let Some((rule, seq)) = parse_export(&key.0) else { continue };
            let row: Option<ExportRow> = codec::decode(Table::Exports, &key.0, &value.0).ok();
            if self.rules().contains(&rule) {
                let failed = row.is_some_and(|row| row.state == ExportState::Failed);
                if failed && !self.book.is_gone(seq) {
                    self.exports.gave_up(rule, seq);
                }
            } else if page.len() == STRAYS {
                next = Some((rule, seq));
                break;
            } else {
                page.push((rule, seq, row));
            }
        }
        let strays = &mut self.exports.strays;
        if page.is_empty() {
            strays.reading = false;
            strays.from = next;
            self.more = true;
            return;
        }
        let seqs: BTreeSet<Seq> = page.iter().map(|(_, seq, _)| *seq).collect();
        (strays.page, strays.next) = (page, next);
        self.ask(Asked::Strays, ReadRequest::Kept(seqs.into_iter().collect()), out);
    }

    /// The segments of a page have come.
    pub(super) fn strays_found(&mut self, now: Now, kept: Vec<Option<Kept>>) {
        self.exports.strays.reading = false;
        self.more = true;
        let page = core::mem::take(&mut self.exports.strays.page);
        let found = kept.into_iter().flatten().map(|kept| (kept.held.seq, kept));
        let found: BTreeMap<Seq, Kept> = found.collect();
        // Rules that have begun with one of this very page; the next page is read behind what is staged now.
        let mut begun: BTreeSet<(RuleId, Seq)> = BTreeSet::new();
        for (rule, seq, row) in page {
            if !self.stage.growth_room(self.stray_rows()) {
                self.exports.strays.from = Some((rule, seq));
                self.exports.strays.behind = self.newest_staged();
                return;
            }
            // One that was removed since took its exports along.
            let kept = found.get(&seq).filter(|_| !self.book.is_gone(seq));
            self.end_stray(now, (rule, seq, row), kept, &mut begun);
        }
        self.exports.strays.from = self.exports.strays.next.take();
        self.exports.strays.behind = self.newest_staged();
    }

    /// One of them goes; what it owed begins elsewhere.
    fn end_stray(
        &mut self,
        now: Now,
        (rule, seq, row): Stray,
        kept: Option<&Kept>,
        begun: &mut BTreeSet<(RuleId, Seq)>,
    ) {
        self.stage.batch.del(Table::Exports, &keys_upkeep::export(rule, seq));
        if let Some(row) = row.as_ref().filter(|row| !is_over(row)) {
            self.stage.batch.del(Table::Expiry, &due_key(row.next_attempt_after, rule, seq));
        }
        let owed = row.is_none_or(|row| row.state != ExportState::Done);
        let Some(kept) = kept.filter(|_| owed) else { return };
        let mut anybody = false;
        for taker in self.rules_for(&kept.held.row) {
            anybody = true;
            let known = kept.exports.iter().any(|(known, _)| *known == taker);
            if !known && begun.insert((taker, seq)) {
                self.begin_export(now, taker, seq);
            }
        }
        if !anybody {
            // Nothing keeps it for an export any more.
            self.reconsider(now.wall, seq);
        }
    }
}
