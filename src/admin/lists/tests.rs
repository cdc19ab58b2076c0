//! Lists over a small ledger.

use consign_core::id::{BatchNo, SegmentId};
use consign_core::ledger::rows::{DeadletterRow, MetaName, MetaRow, State};
use consign_core::mem::MemStore;
use consign_core::store::Batch;
use quickcheck::quickcheck;

use super::*;
use crate::admin::testing::{ledger, segment_row};

const NOW: UnixMillis = UnixMillis(10_000_000);

fn segment(seq: u64) -> SegmentRow {
    SegmentRow {
        id: SegmentId([seq as u8; 32]),
        size: 1 << seq.min(40),
        accepted_at: 5,
        ..segment_row(seq)
    }
}

/// Dead letters: (seq, site, when, why).
fn store(dead: &[(u64, u32, u64, Cause)]) -> MemStore {
    ledger(|batch| {
        for (seq, site, at, cause) in dead {
            let (seq, site) = (Seq(*seq), SiteNo(*site));
            let row = DeliveryRow {
                state: State::Deadletter,
                attempts: 3,
                spent: 1,
                next_attempt_after: 0,
                last_error: cause.number(),
                since: *at,
                custody: None,
                held: None,
                claimed_at: None,
                refused: 0,
            };
            batch.put(Table::Segments, &keys::seq(seq), &segment(seq.0));
            batch.put(Table::Deliveries, &keys::delivery(seq, site), &row);
            let key = keys::deadletter(UnixMillis(*at), seq, site);
            batch.put(Table::Deadletters, &key, &DeadletterRow { cause: cause.number() });
        }
    })
}

fn listing(limit: usize) -> DeadListing {
    DeadListing { limit, ..DeadListing::default() }
}

#[test]
fn dead_letters_come_oldest_first_page_by_page() {
    let dead_letters = [
        (1, 1, 500, Cause::TooLarge),
        (2, 2, 400, Cause::Loop),
        (3, 1, 300, Cause::TooLarge),
        (3, 2, 300, Cause::Expired),
    ];
    let store = store(&dead_letters);
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let listing = DeadListing { after, ..listing(1) };
        let page = dead(&store.snapshot(), &listing, NOW).unwrap();
        assert!(page.deadletters.len() <= 1);
        found.extend(page.deadletters.into_iter().map(|d| (d.seq, d.peer, d.reason)));
        let Some(next) = page.next else { break };
        after = Some(parse_after(&next).unwrap());
    }
    let found: Vec<_> = found.iter().map(|(s, p, r)| (*s, p.as_str(), r.as_str())).collect();
    let expected = [
        (3, "beta", "too_large"),
        (3, "gamma", "expired"),
        (2, "gamma", "loop"),
        (1, "beta", "too_large"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn filters_and_groups() {
    let dead_letters = [
        (1, 1, 500, Cause::TooLarge),
        (2, 2, 400, Cause::Loop),
        (3, 1, 300, Cause::TooLarge),
        (3, 2, 9_999_000, Cause::TooLarge),
    ];
    let store = store(&dead_letters);
    let snapshot = store.snapshot();
    let count = |only: DeadListing| dead(&snapshot, &only, NOW).unwrap().deadletters.len();
    assert_eq!(count(listing(9)), 4);
    assert_eq!(count(DeadListing { peer: Some("beta".into()), ..listing(9) }), 2);
    assert_eq!(count(DeadListing { reason: Some(Cause::Loop), ..listing(9) }), 1);
    assert_eq!(count(DeadListing { older: Some(Duration::from_secs(60)), ..listing(9) }), 3);
    let nobody = dead(&snapshot, &DeadListing { peer: Some("x".into()), ..listing(9) }, NOW);
    assert!(matches!(nobody, Err(StoreFault::Missing(_))));
    let page = groups(&snapshot, &listing(0), NOW).unwrap();
    let all: Vec<_> = page
        .groups
        .iter()
        .map(|g| (g.reason.as_str(), g.peer.as_str(), g.count, g.bytes, g.oldest.as_str()))
        .collect();
    let (first, second) = ("1970-01-01T00:00:00.300Z", "1970-01-01T00:00:00.400Z");
    let third = "1970-01-01T02:46:39.000Z";
    assert_eq!(
        all,
        [
            ("loop", "gamma", 1, 4, second),
            ("too_large", "beta", 2, 10, first),
            ("too_large", "gamma", 1, 8, third),
        ]
    );
    assert_eq!(page.next, None);
}

#[test]
fn every_reason_has_a_hint_that_names_the_peer_or_a_command() {
    for cause in Cause::ALL {
        let hint = hint(Some(*cause), "gamma");
        assert!(hint.contains("consign deadletter"), "{cause}: {hint}");
        assert!(hint.ends_with(&format!("--peer gamma --reason {cause}")), "{cause}: {hint}");
    }
}

#[test]
fn the_audit_comes_page_by_page_and_since_a_time() {
    let mut batch = Batch::new(BatchNo(1));
    for number in 1..=5_u64 {
        let row = AuditRow {
            at: number * 1000,
            who: "uid:1".into(),
            action: "retry".into(),
            subject: "all".into(),
            reason: String::new(),
            count: number,
            bytes: 0,
        };
        batch.put(Table::Audit, &keys::audit(number), &row);
    }
    batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: 1 });
    let mut store = MemStore::new();
    store.set_capacity(1 << 40);
    store.commit(&batch);
    let snapshot = store.snapshot();
    let numbers = |listing: &AuditListing| {
        let page = audit(&snapshot, listing).unwrap();
        (page.records.iter().map(|r| r.number).collect::<Vec<_>>(), page.next)
    };
    let all = AuditListing { limit: 9, ..AuditListing::default() };
    assert_eq!(numbers(&all), (vec![1, 2, 3, 4, 5], None));
    assert_eq!(numbers(&AuditListing { limit: 2, ..all.clone() }), (vec![1, 2], Some(2)));
    let rest = AuditListing { limit: 3, after: Some(2), ..all.clone() };
    assert_eq!(numbers(&rest), (vec![3, 4, 5], None));
    assert_eq!(
        numbers(&AuditListing { since: Some(UnixMillis(4_000)), ..all }),
        (vec![4, 5], None)
    );
}

quickcheck! {
    /// Where a page ended is read back as it was written.
    fn a_place_is_read_back(at: u64, seq: u64, site: u32) -> bool {
        let key = DeadKey { at: UnixMillis(at), seq: Seq(seq), site: SiteNo(site) };
        parse_after(&after_text(key)) == Some(key)
    }

    /// Pages of any size, put together, are the whole in order.
    fn pages_are_the_whole(letters: Vec<(u8, bool, u8)>, limit: usize) -> bool {
        let letters: Vec<(u64, u32, u64, Cause)> = letters
            .into_iter()
            .map(|(seq, beta, at)| (seq.into(), 1 + u32::from(beta), at.into(), Cause::Loop))
            .collect();
        let store = store(&letters);
        let whole = dead(&store.snapshot(), &listing(10_000), NOW).unwrap().deadletters;
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let listing = DeadListing { after, ..listing(1 + limit % 5) };
            let page = dead(&store.snapshot(), &listing, NOW).unwrap();
            found.extend(page.deadletters);
            match page.next {
                Some(next) => after = parse_after(&next),
                None => return found == whole,
            }
        }
    }
}
