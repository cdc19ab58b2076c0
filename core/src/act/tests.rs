//! Ids, selections and reports.

use alloc::string::ToString;
use alloc::vec;
use core::time::Duration;

use quickcheck::quickcheck;

use super::*;

fn id(bytes: &[u8]) -> SegmentId {
    let mut whole = [0; 32];
    for (to, from) in whole.iter_mut().zip(bytes) {
        *to = *from;
    }
    SegmentId(whole)
}

#[test]
fn the_beginning_of_an_id_has_6_to_64_hex_digits() {
    let hex64 = "0".repeat(64);
    let hex65 = "0".repeat(65);
    let table = [
        ("3fa9c1", true),
        ("3FA9C1", true),
        ("3fa9c17", true),
        ("3fa9c", false),
        ("3fa9cg", false),
        ("", false),
        ("äöüäöü", false),
        (&*hex64, true),
        (&*hex65, false),
    ];
    for (text, good) in table {
        assert_eq!(IdPrefix::parse(text).is_some(), good, "{text}");
    }
    assert_eq!(IdPrefix::parse("3FA9C17").unwrap().to_string(), "3fa9c17");
}

#[test]
fn a_selection_in_words() {
    let none = Selection::default();
    assert!(none.is_empty());
    let all = Selection { all: true, ..none.clone() };
    assert!(!all.is_empty());
    let prefix = IdPrefix::parse("3fa9c17").unwrap();
    let combined = Selection {
        ids: vec![prefix, prefix, prefix],
        all: false,
        peer: Some("gamma".into()),
        reason: Some(Cause::TooLarge),
        older: Some(Duration::from_secs(3600)),
    };
    let table = [
        (all, "all"),
        (Selection { ids: vec![prefix], ..none.clone() }, "3fa9c17"),
        (Selection { peer: Some("gamma".into()), ..none }, "peer=gamma"),
        (combined, "3fa9c17 and 2 more peer=gamma reason=too_large older=3600s"),
    ];
    for (selection, words) in table {
        assert_eq!(selection.words(), words);
    }
}

#[test]
fn a_report_names_a_bounded_number_of_what_was_left() {
    let act = Act {
        action: Action::Retry,
        of: Selection::default(),
        who: "uid:1".into(),
        why: "".into(),
        dry_run: true,
        force: false,
        pin: None,
    };
    let mut report = Report::new(&act);
    for n in 0..150u64 {
        let left = Left { id: n.to_string(), peer: "".into(), why: Why::Unknown, text: "".into() };
        report.leave(left);
        report.add(if n % 2 == 0 { "beta" } else { "gamma" }, n);
    }
    assert_eq!((report.left.len(), report.left_count), (Report::LEFT_MAX, 150));
    assert_eq!(report.done.len(), 2);
    assert_eq!(report.total(), (150, 149 * 150 / 2));
}

quickcheck! {
    /// An id begins with a text of digits exactly when its own digits do.
    fn a_prefix_begins_what_its_digits_begin(bytes: Vec<u8>, other: Vec<u8>, digits: u8) -> bool {
        let digits = 6 + usize::from(digits) % 59;
        let (mine, other) = (id(&bytes), id(&other));
        let text = mine.to_string();
        let prefix = IdPrefix::parse(&text[..digits]).unwrap();
        prefix.begins(&mine)
            && prefix.first() <= &mine
            && prefix.begins(&other) == other.to_string().starts_with(&text[..digits])
            && prefix.to_string() == text[..digits]
    }
}
