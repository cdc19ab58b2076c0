//! Reads over a small ledger.

use consign_core::ledger::rows::SegmentRow;
use consign_core::store::Batch;

use super::*;
use crate::admin::testing::{ledger as store, segment_row};

const NOW: UnixMillis = UnixMillis(1_000_000);

fn id(first: u8, second: u8, seq: u64) -> SegmentId {
    let mut id = [0; 32];
    id[0] = first;
    id[1] = second;
    id[24..].copy_from_slice(&seq.to_be_bytes());
    SegmentId(id)
}

fn delivery_row(state: State) -> DeliveryRow {
    DeliveryRow {
        state,
        attempts: 2,
        spent: 1,
        next_attempt_after: NOW.0 + 1,
        last_error: Cause::AckTimeout.number(),
        since: NOW.0 - 1,
        custody: None,
        held: None,
        claimed_at: Some(NOW.0 - 2),
        refused: 0,
    }
}

fn put_segment(batch: &mut Batch, seq: u64, id: SegmentId, deliveries: &[(u32, State)]) {
    let row = SegmentRow {
        id,
        accepted_at: NOW.0 - 5,
        required: deliveries.len() as u32,
        ..segment_row(seq)
    };
    batch.put(Table::Segments, &keys::seq(Seq(seq)), &row);
    batch.put(Table::Ids, &keys::id(&id), &IdRow { seq: Seq(seq) });
    for (site, state) in deliveries {
        let key = keys::delivery(Seq(seq), SiteNo(*site));
        batch.put(Table::Deliveries, &key, &delivery_row(*state));
        if matches!(state, State::Scheduled | State::Inflight | State::Failed) {
            batch.put_key(Table::Owed, &keys::peer_seq(SiteNo(*site), Seq(seq)));
        }
    }
}

fn prefix(text: &str) -> IdPrefix {
    IdPrefix::parse(text).unwrap()
}

#[test]
fn any_unique_beginning_finds_a_segment() {
    let all = [id(0x3f, 0xa9, 1), id(0x3f, 0xa9, 2), id(0x3f, 0xaa, 3), id(0xff, 0xff, 4)];
    let store = store(|batch| {
        for (i, id) in all.iter().enumerate() {
            put_segment(batch, i as u64 + 1, *id, &[]);
        }
    });
    let found = |text: &str| find(&store.snapshot(), &prefix(text)).unwrap();
    for (i, id) in all.iter().enumerate() {
        assert_eq!(found(&id.to_string()), One::Found(Seq(i as u64 + 1)));
    }
    assert_eq!(found("3faa00"), One::Found(Seq(3)));
    assert_eq!(found("3FAA000"), One::Found(Seq(3)));
    assert_eq!(found("ffff000"), One::Found(Seq(4)));
    assert_eq!(found("3fab00"), One::Missing);
    assert_eq!(found("000000"), One::Missing);
    assert_eq!(found("ffffff"), One::Missing);
    let both = vec![all[0].to_string(), all[1].to_string()];
    assert_eq!(found("3fa900"), One::Ambiguous(both));
    assert_eq!(found("3fa9000"), found("3fa900"));
}

#[test]
fn a_beginning_is_6_to_64_digits() {
    for bad in ["", "3fa9c", "3fa9cg", "+3fa9c1", &"a".repeat(65)] {
        assert_eq!(IdPrefix::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_row_that_cannot_be_read_is_said_to_be_corrupt() {
    let mut store = store(|batch| put_segment(batch, 1, id(1, 2, 1), &[]));
    assert!(store.flip(Table::Segments, &keys::seq(Seq(1)), 3));
    let shown = show(&store.snapshot(), &prefix("010200"), NOW);
    assert!(matches!(shown, Err(StoreFault::Corrupt(_))), "{shown:?}");
    assert!(store.flip(Table::Ids, &keys::id(&id(1, 2, 1)), 1));
    let found = find(&store.snapshot(), &prefix("010200"));
    assert!(matches!(found, Err(StoreFault::Corrupt(_))), "{found:?}");
    let page = list(&store.snapshot(), &Listing::default(), NOW).unwrap();
    assert_eq!(page.segments, [], "the others would be shown");
}

#[test]
fn words_for_every_state() {
    let word = |state, held, after| {
        let row = DeliveryRow { next_attempt_after: after, ..delivery_row(state) };
        Word::of(&row, held, NOW).text()
    };
    let table = [
        (State::Scheduled, false, NOW.0 + 1, "queued"),
        (State::Scheduled, true, NOW.0, "held"),
        (State::Inflight, false, NOW.0, "sending"),
        (State::Inflight, true, NOW.0, "sending"),
        (State::Acked, true, NOW.0, "delivered"),
        (State::Failed, false, NOW.0 + 1, "backing off"),
        (State::Failed, false, NOW.0, "queued"),
        (State::Failed, true, NOW.0 + 1, "held"),
        (State::Deadletter, false, NOW.0, "dead"),
    ];
    for (state, held, after, text) in table {
        assert_eq!(word(state, held, after), text, "{state:?}");
    }
    let held = DeliveryRow { held: Some(true), ..delivery_row(State::Scheduled) };
    assert_eq!(Word::of(&held, false, NOW), Word::Held);
    for word in Word::ALL {
        assert_eq!(Word::parse(&word.text().replace(' ', "-")), Some(word));
    }
}

#[test]
fn a_segment_shows_its_deliveries_by_name() {
    let deliveries = [(1, State::Failed), (2, State::Acked), (9, State::Inflight)];
    let store = store(|batch| put_segment(batch, 1, id(1, 2, 1), &deliveries));
    let One::Found(shown) = show(&store.snapshot(), &prefix("010200"), NOW).unwrap() else {
        panic!()
    };
    let states: Vec<(&str, &str)> =
        shown.deliveries.iter().map(|d| (d.peer.as_str(), d.state.as_str())).collect();
    assert_eq!(states, [("beta", "backing off"), ("gamma", "delivered"), ("site-9", "sending")]);
    let beta = &shown.deliveries[0];
    assert_eq!((beta.attempts, beta.spent), (2, 1));
    assert_eq!(beta.last_error.as_deref(), Some("ack_timeout"));
    assert_eq!(beta.next_attempt_at.as_deref(), Some("1970-01-01T00:16:40.001Z"));
    assert_eq!(shown.deliveries[1].next_attempt_at, None);
    assert_eq!(shown.accepted_at, "1970-01-01T00:16:39.995Z");
}

#[test]
fn pages_follow_each_other_and_filters_agree_with_a_full_look() {
    const COUNT: u64 = 1_000;
    let states = [State::Scheduled, State::Acked, State::Failed, State::Deadletter];
    let of = |seq: u64| states[(seq % 4) as usize];
    let store = store(|batch| {
        for seq in 1..=COUNT {
            let site = (seq % 2 + 1) as u32;
            put_segment(batch, seq, id(0, 0, seq), &[(site, of(seq)), (3, State::Acked)]);
        }
    });
    let snapshot = store.snapshot();
    let all = |state: Option<Word>, peer: Option<&str>, limit: usize| {
        let mut listing = Listing { limit, after: None, state, peer: peer.map(Into::into) };
        let mut seen = Vec::new();
        loop {
            let page = list(&snapshot, &listing, NOW).unwrap();
            assert!(page.segments.len() <= limit);
            seen.extend(page.segments.iter().map(|s| s.seq));
            match page.next {
                None => return seen,
                Some(next) => {
                    assert!(listing.after.is_none_or(|after| after.0 < next), "pages go on");
                    listing.after = Some(Seq(next));
                }
            }
        }
    };
    let wanted = |f: &dyn Fn(u64) -> bool| (1..=COUNT).filter(|s| f(*s)).collect::<Vec<_>>();
    assert_eq!(all(None, None, 1_000), wanted(&|_| true));
    assert_eq!(all(None, None, 7), wanted(&|_| true));
    assert_eq!(all(Some(Word::BackingOff), None, 10), wanted(&|s| s % 4 == 2));
    assert_eq!(all(Some(Word::Dead), Some("gamma"), 10), wanted(&|s| s % 4 == 3));
    assert_eq!(all(Some(Word::Queued), Some("beta"), 10), wanted(&|s| s % 4 == 0));
    assert_eq!(all(Some(Word::BackingOff), Some("beta"), 300), wanted(&|s| s % 4 == 2));
    assert_eq!(all(Some(Word::Queued), Some("gamma"), 10), [0u64; 0]);
    assert_eq!(all(None, Some("beta"), 10), wanted(&|s| s % 2 == 0));
    let unknown = Listing { peer: Some("delta".into()), ..Listing::default() };
    assert!(matches!(list(&snapshot, &unknown, NOW), Err(StoreFault::Missing(_))));
}

#[test]
fn a_page_looks_at_a_bounded_number_of_rows() {
    let many = PAGE_ROWS as u64 + 10;
    let store = store(|batch| {
        for seq in 1..=many {
            put_segment(batch, seq, id(0, 0, seq), &[(1, State::Scheduled)]);
        }
    });
    let none = Listing { state: Some(Word::Dead), ..Listing::default() };
    let page = list(&store.snapshot(), &none, NOW).unwrap();
    assert_eq!((page.segments.len(), page.next), (0, Some(PAGE_ROWS as u64)));
    let rest = Listing { after: page.next.map(Seq), ..none };
    assert_eq!(list(&store.snapshot(), &rest, NOW).unwrap().next, None);
}
