//! Who holds what, judged on a small ledger.

use consign_core::code::Cause;
use consign_core::id::BlobDigest;
use consign_core::ledger::rows::{IdRow, Loss};
use consign_core::store::Batch;

use super::*;
use crate::admin::testing::{ledger as store, segment_row};

const NOW: UnixMillis = UnixMillis(1_000_000);
const RULE: RuleId = RuleId(5);

fn id(first: u8) -> SegmentId {
    let mut id = [0; 32];
    id[0] = first;
    SegmentId(id)
}

fn rules(success: SuccessCondition) -> Rules {
    Rules { success, inbox: vec![RULE] }
}

fn segment(first: u8, seq: u64) -> SegmentRow {
    SegmentRow { id: id(first), accepted_at: NOW.0 - 100 + seq, required: 0, ..segment_row(seq) }
}

fn delivery(state: State) -> DeliveryRow {
    DeliveryRow {
        state,
        attempts: 1,
        spent: 1,
        next_attempt_after: NOW.0 + 1,
        last_error: Cause::AckTimeout.number(),
        since: NOW.0 - 1,
        custody: None,
        held: None,
        claimed_at: None,
        refused: 0,
    }
}

fn put(batch: &mut Batch, seq: u64, mut row: SegmentRow, deliveries: &[(u32, State)]) {
    row.required = deliveries.len() as u32;
    row.acked = deliveries.iter().filter(|(_, state)| *state == State::Acked).count() as u32;
    if row.acked > 0 && row.acked == row.required {
        row.relayed_at = Some(NOW.0 - 1);
    } else {
        batch.put_key(Table::Unmet, &keys::unmet(UnixMillis(row.accepted_at), Seq(seq)));
    }
    batch.put(Table::Ids, &keys::id(&row.id), &IdRow { seq: Seq(seq) });
    batch.put(Table::Segments, &keys::seq(Seq(seq)), &row);
    for (site, state) in deliveries {
        let key = keys::delivery(Seq(seq), SiteNo(*site));
        batch.put(Table::Deliveries, &key, &delivery(*state));
    }
}

/// The assurance of the one segment of a ledger.
fn one(row: SegmentRow, deliveries: &[(u32, State)], fill: impl FnOnce(&mut Batch)) -> Assurance {
    let prefix = IdPrefix::parse(&row.id.to_string()).unwrap();
    let store = store(|batch| {
        put(batch, 1, row, deliveries);
        fill(batch);
    });
    match of(&store.snapshot(), &prefix, &rules(SuccessCondition::AllPeers), NOW).unwrap() {
        One::Found(found) => found,
        other => panic!("{other:?}"),
    }
}

fn verdict(row: SegmentRow, deliveries: &[(u32, State)]) -> (bool, String) {
    let one = one(row, deliveries, |_| {});
    (one.safe_to_delete, one.because)
}

fn receipt(site: &str, first: u8, cause: u8) -> ReceiptRow {
    ReceiptRow {
        id: id(first),
        site: site.into(),
        when: NOW.0 - 7,
        cause,
        back: 0,
        pending: false,
        name: "old".into(),
        size: 99,
        digest: BlobDigest([7; 32]),
        expires_at: NOW.0 + 1000,
        more: Vec::new(),
    }
}

/// Deliveries, whether the copy may go, and why.
type Row = (&'static [(u32, State)], bool, &'static str);

#[test]
fn a_copy_may_go_once_everybody_who_is_owed_it_holds_it() {
    use State::{Acked, Deadletter, Failed, Inflight, Scheduled};
    let table: [Row; 7] = [
        (&[(1, Acked), (2, Acked)], true, "all 2 sites hold it, durably and verified"),
        (&[(1, Acked)], true, "beta holds it, durably and verified"),
        (&[(1, Acked), (2, Scheduled)], false, "it is still owed to gamma"),
        (&[(1, Failed), (2, Inflight)], false, "it is still owed to beta, and 1 more"),
        (&[(1, Acked), (2, Deadletter)], false, "it lies among the dead letters for gamma"),
        (&[(1, Inflight)], false, "it is still owed to beta"),
        (&[], false, "no other site has confirmed that it holds it"),
    ];
    for (deliveries, safe, because) in table {
        let expected = (safe, because.to_string());
        assert_eq!(verdict(segment(9, 1), deliveries), expected, "{deliveries:?}");
    }
}

#[test]
fn a_copy_that_is_asked_for_here_or_damaged_stays() {
    let acked: &[(u32, State)] = &[(1, State::Acked)];
    let here = SegmentRow { here: true, ..segment(9, 1) };
    let (safe, because) = verdict(here.clone(), acked);
    assert!(!safe && because.starts_with("this site is a destination"), "{because}");
    let let_go = SegmentRow { let_go: Some(5), ..here.clone() };
    assert!(verdict(let_go, acked).0, "an operator has released it");
    let damaged = SegmentRow { loss: Some(Loss::Gone), ..segment(9, 1) };
    let one_damaged = one(damaged, acked, |_| {});
    assert_eq!((one_damaged.copy.as_str(), one_damaged.safe_to_delete), ("damaged", false));
    let unplaced = SegmentRow { unplaced: Some(true), ..segment(9, 1) };
    assert!(verdict(unplaced, &[]).1.starts_with("nobody is left to have it"));
    for (state, safe) in [(ExportState::Done, true), (ExportState::Failed, false)] {
        let row = ExportRow {
            state,
            name: String::new(),
            since: 0,
            runs: 0,
            next_attempt_after: 0,
            exit: None,
            output: Vec::new(),
            error: String::new(),
            mark: None,
            tries: 0,
        };
        let given = one(here.clone(), &[], |batch| {
            batch.put(Table::Exports, &export(RULE, Seq(1)), &row);
        });
        assert_eq!(given.safe_to_delete, safe, "{given:?}");
    }
}

#[test]
fn figures_follow_the_condition_and_receipts_win_over_acknowledgements() {
    let deliveries = [(1, State::Acked), (2, State::Failed)];
    let all = one(segment(9, 1), &deliveries, |batch| {
        let key = keys::delivery(Seq(1), SiteNo(1));
        batch.put(Table::Receipts, &key, &receipt("beta", 9, 0));
    });
    assert_eq!((all.sites, all.required, all.holding, all.met), (2, 2, 1, false));
    assert_eq!(all.holders[0].by, "receipt");
    assert_eq!(all.holders[0].at, time(NOW.0 - 7));
    let owed = Owed {
        site: "gamma".into(),
        state: "backing off".into(),
        last_error: Some("ack_timeout".into()),
    };
    assert_eq!(all.owed, [owed]);
    let store = store(|batch| put(batch, 1, segment(9, 1), &deliveries));
    let prefix = IdPrefix::parse(&id(9).to_string()).unwrap();
    let single = of(&store.snapshot(), &prefix, &rules(SuccessCondition::OnePeer), NOW).unwrap();
    let One::Found(single) = single else { panic!("{single:?}") };
    assert_eq!((single.required, single.condition.as_str()), (1, "one_peer"));
    let named = Destinations::named(vec!["beta".into(), "gamma".into()]).unwrap();
    assert_eq!(condition(&named, SuccessCondition::OnePeer), SuccessCondition::AllPeers);
}

#[test]
fn what_was_evicted_is_answered_from_its_receipts() {
    let store = store(|batch| {
        let row = RememberedRow {
            evicted_at: NOW.0 - 3,
            origin: String::new(),
            origin_seq: 4,
            seq: Seq(4),
        };
        batch.put(Table::Remembered, &keys::id(&id(9)), &row);
        let rows = [("beta", 9, 0), ("gamma", 9, Cause::Expired.number()), ("delta", 8, 0)];
        for (site, (name, first, cause)) in (1..).zip(rows) {
            let key = keys::delivery(Seq(4), SiteNo(site));
            batch.put(Table::Receipts, &key, &receipt(name, first, cause));
        }
    });
    let prefix = IdPrefix::parse("0900000").unwrap();
    let found = of(&store.snapshot(), &prefix, &rules(SuccessCondition::AllPeers), NOW).unwrap();
    let One::Found(found) = found else { panic!("{found:?}") };
    assert_eq!((found.copy.as_str(), found.name.as_str(), found.size), ("evicted", "old", 99));
    let holders: Vec<&str> = found.holders.iter().map(|h| h.site.as_str()).collect();
    assert_eq!(holders, ["beta"], "a receipt of another segment with that number is not its own");
    assert_eq!((found.owed[0].site.as_str(), found.owed[0].state.as_str()), ("gamma", "given up"));
    assert!(found.met && found.safe_to_delete);
    let other = IdPrefix::parse("0a00000").unwrap();
    let missing = of(&store.snapshot(), &other, &rules(SuccessCondition::AllPeers), NOW).unwrap();
    assert_eq!(missing, One::Missing);
}

#[test]
fn pages_follow_each_other_and_filters_hold() {
    let store = store(|batch| {
        for seq in 1..=5 {
            let gamma = if seq == 3 { State::Scheduled } else { State::Acked };
            let row = segment(seq as u8, seq);
            match seq {
                4 => put(batch, seq, row, &[(1, State::Acked)]),
                _ => put(batch, seq, row, &[(1, State::Acked), (2, gamma)]),
            }
        }
    });
    let rules = rules(SuccessCondition::AllPeers);
    let seqs = |selection: &Selection| {
        let page = list(&store.snapshot(), selection, &rules, NOW).unwrap();
        (page.assurances.iter().map(|a| a.seq).collect::<Vec<_>>(), page.next)
    };
    let all = Selection { limit: 3, ..Selection::default() };
    let (first, next) = seqs(&all);
    assert_eq!((first, next.as_deref()), (vec![1, 2, 3], Some("0-3")));
    let second = Selection { after: parse_after("0-3"), ..all.clone() };
    assert_eq!(seqs(&second), (vec![4, 5], None));
    let gamma = Selection { peer: Some("gamma".into()), limit: 9, ..all.clone() };
    assert_eq!(seqs(&gamma), (vec![1, 2, 3, 5], None));
    let unmet = Selection { unmet: true, ..all.clone() };
    assert_eq!(seqs(&unmet), (vec![3], None));
    let behind = Selection { unmet: true, after: Some((NOW.0 - 97, Seq(3))), ..all.clone() };
    assert_eq!(seqs(&behind), (Vec::new(), None));
    let nobody = Selection { peer: Some("omega".into()), ..all };
    assert!(matches!(list(&store.snapshot(), &nobody, &rules, NOW), Err(StoreFault::Missing(_))));
    assert_eq!(parse_after("7"), None);
}
