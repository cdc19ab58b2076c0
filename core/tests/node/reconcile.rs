//! Start-up reconciliation over several slices: behind live traffic, cut off by a stop, killed in its
//! midst.

use consign_core::code::Cause;
use consign_core::id::{BatchNo, SegmentId};
use consign_core::ledger::rows::{Body, MetaRow, State};
use consign_core::ledger::{Table, keys};
use consign_core::limits::SLICE_ROWS;
use consign_core::node::{Input, Note, ReconcileSummary};
use consign_core::segment::Class;
use consign_core::session::Outcome;
use consign_core::store::Batch;

use crate::site::Site;

const SLICES: usize = 4;
const ALL: usize = SLICES * SLICE_ROWS - 100;

/// A site with so many queued segments, two of which have lost their content.
fn queued() -> (Site, Vec<SegmentId>) {
    let mut site = Site::new(&["beta"]);
    site.settle();
    let client = site.client();
    let all = 1..=ALL as u32;
    let ids: Vec<SegmentId> =
        all.map(|n| site.submit(client, n, &format!("n{n}"), &["beta"], Class::Normal)).collect();
    site.settle();
    let lost = vec![ids[5], ids[SLICE_ROWS * 2 + 7]];
    let number = 1 << 20;
    let mut batch = Batch::new(BatchNo(number));
    batch.put(Table::Meta, b"batch", &MetaRow { value: number });
    for id in &lost {
        let Body::Inline(body) = site.segment(*id).unwrap().body else { panic!("it is inline") };
        batch.del(Table::Bodies, &keys::body(body));
    }
    assert!(matches!(site.store.commit(&batch), Input::Committed { .. }));
    (site, lost)
}

fn summary(site: &Site) -> Option<ReconcileSummary> {
    site.notes.iter().find_map(|note| match note {
        Note::Reconciled(summary) => Some(*summary),
        _ => None,
    })
}

/// Whether every slice of segments has been looked at; the folders come after that.
fn is_past_slices(site: &Site) -> bool {
    site.pump.node().status(site.now).reconciled.0 == ALL as u64
}

fn is_pruned(site: &Site, lost: &[SegmentId]) -> bool {
    lost.iter().all(|id| {
        let row = site.delivery(*id, "beta").unwrap();
        (row.state, row.last_error) == (State::Deadletter, Cause::Missing.number())
    })
}

#[test]
fn it_says_how_far_it_has_come() {
    let (site, lost) = queued();
    let mut site = site.restart();
    let mut seen = Vec::new();
    while summary(&site).is_none() {
        site.turn();
        site.commit();
        let status = site.pump.node().status(site.now);
        assert_eq!(status.reconciled.1, ALL as u64);
        seen.push(status.reconciled.0);
    }
    seen.dedup();
    let slices: Vec<u64> = (0..=SLICES).map(|n| (n * SLICE_ROWS).min(ALL) as u64).collect();
    assert_eq!(seen, slices);
    assert!(!site.pump.node().status(site.now).reconciling);
    assert!(is_pruned(&site, &lost));
    site.audit();
}

/// Deliveries are claimed and settled while slices are under way.
#[test]
fn live_traffic_goes_on_before_it_is_done() {
    let (site, _) = queued();
    let mut site = site.restart();
    let conn = site.connect("beta", true);
    let mut acked = 0;
    while summary(&site).is_none() {
        site.turn();
        site.commit();
        for (conn, promise) in site.promises() {
            match promise {
                consign_core::session::Promise::Start { .. } => site.hello(conn, "beta"),
                consign_core::session::Promise::Send(sending) => {
                    acked += 1;
                    site.outcome(conn, sending.offer.transfer, Outcome::Acked);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(acked > 64, "{acked} segments left before the last slice");
    site.input(Input::Closed { conn, why: String::new() });
    site.settle();
    site.audit();
}

/// A stop ends it between two slices, wherever it is; the next start does what is left.
#[test]
fn a_stop_is_honoured_in_every_slice() {
    for turns in 0..24 {
        let (site, lost) = queued();
        let mut site = site.restart();
        for _ in 0..turns {
            site.turn();
            site.commit();
        }
        if is_past_slices(&site) {
            assert!(turns > SLICES, "{turns}");
            return;
        }
        let before = site.pump.node().status(site.now).reconciled.0;
        site.input(Input::Stop);
        site.settle();
        assert!(site.drained, "after {turns} turns");
        let after = site.pump.node().status(site.now).reconciled.0;
        assert!(after <= before + SLICE_ROWS as u64, "{before} to {after}");
        let mut site = site.restart();
        site.settle();
        assert!(summary(&site).is_some() && is_pruned(&site, &lost));
        site.audit();
    }
    panic!("it is never done");
}

/// Killed after each of its steps, it comes to the same end.
#[test]
fn it_may_be_killed_after_every_step() {
    for turns in 1..24 {
        let (site, lost) = queued();
        let mut site = site.restart();
        let mut is_done = false;
        for _ in 0..3 {
            for _ in 0..turns {
                site.turn();
                site.commit();
            }
            is_done |= is_past_slices(&site);
            site = site.restart();
        }
        site.settle();
        assert!(is_pruned(&site, &lost), "killed after {turns} turns");
        assert_eq!(site.store.rows(Table::Segments), ALL);
        assert_eq!(site.store.rows(Table::Due), ALL - lost.len());
        assert_eq!(site.store.rows(Table::Deadletters), lost.len());
        site.audit();
        if is_done {
            return;
        }
    }
    panic!("it is never done");
}
