//! A start on many exports reads them in pages, behind live traffic.

use consign_core::id::{BatchNo, Seq};
use consign_core::ledger::Table;
use consign_core::ledger::keys_upkeep::{self, RuleId};
use consign_core::ledger::read::recovery;
use consign_core::ledger::rows::{MetaName, MetaRow};
use consign_core::ledger::rows_upkeep::{ExportRow, ExportState};
use consign_core::node::Input;
use consign_core::store::Batch;

use crate::export::{rule, with_rules};
use crate::site::{Site, offer_inline, to_alpha};

/// Most rows of a page, and most exports that one turn may take away.
const PAGE: usize = 512;
const STRAYS_A_TURN: usize = 64;

fn row(state: ExportState) -> ExportRow {
    ExportRow {
        state,
        name: "a".into(),
        since: 1,
        runs: 0,
        next_attempt_after: 1,
        exit: None,
        output: Vec::new(),
        error: String::new(),
        mark: None,
        tries: 0,
    }
}

/// Puts so many in place that are done, of a rule and of one that is configured no more, behind the node's back.
fn fill(site: &mut Site, done: u64, strays: u64) {
    let number = recovery(&site.store.snapshot()).unwrap().meta_value(MetaName::Batch) + 1;
    let mut batch = Batch::new(BatchNo(number));
    batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: number });
    // Of segments that are not here any more.
    for (rule, count) in [(1, done), (9, strays)] {
        for at in 0..count {
            let key = keys_upkeep::export(RuleId(rule), Seq(1_000_000 + at));
            batch.put(Table::Exports, &key, &row(ExportState::Done));
        }
    }
    assert!(matches!(site.store.commit(&batch), Input::Committed { .. }));
}

#[test]
fn a_start_on_a_hundred_thousand_exports_reads_a_page_a_turn_behind_what_arrives() {
    for (done, strays) in [(99_000, 1_000), (1_000, 99_000)] {
        let mut site = Site::with(with_rules(&[rule(1, None, false)]));
        site.settle();
        fill(&mut site, done, strays);
        let mut site = site.restart();
        assert_eq!(site.pages, [], "nothing of it is read before the site takes work");
        let conn = site.connect("beta", true);
        turn(&mut site);
        turn(&mut site);
        site.hello(conn, "beta");
        let (mut turns, mut arrived) = (0, 0);
        while site.store.rows(Table::Exports) > done as usize + arrived {
            turn(&mut site);
            turns += 1;
            if turns % 50 == 0 {
                // What arrives meanwhile is taken at once, and is owed.
                arrived += 1;
                offer_inline(&mut site, conn, turns, &format!("n{turns}"), to_alpha());
                for _ in 0..4 {
                    turn(&mut site);
                    turns += 1;
                }
                assert_eq!(site.store.rows(Table::Segments), arrived);
            }
            assert!(turns < 10_000, "it comes to its end");
        }
        let pages = site.pages.iter().filter(|(table, _)| *table == Table::Exports);
        let (count, read) = pages.fold((0, 0), |(count, read), (_, rows)| (count + 1, read + rows));
        println!("{done} done, {strays} strays: {count} pages with {read} rows in {turns} turns");
        assert!(arrived >= 2 && count >= (done as usize).div_ceil(PAGE), "{arrived} {count}");
    }
}

/// One turn and its commit: at most a page is read, and at most so many exports of rules that are gone go.
fn turn(site: &mut Site) {
    let (before, read) = (site.store.rows(Table::Exports), site.pages.len());
    site.turn();
    let pages = site.pages[read..].iter().filter(|(table, _)| *table == Table::Exports);
    let pages: Vec<usize> = pages.map(|(_, rows)| *rows).collect();
    assert!(pages.len() <= 1 && pages.iter().all(|rows| *rows <= PAGE), "{pages:?}");
    site.commit();
    let now = site.store.rows(Table::Exports);
    assert!(before <= now + STRAYS_A_TURN, "{before} to {now}");
}
