//! Numbers and words that are written down: unique, stable, and each the other's inverse.

use std::collections::BTreeSet;

use consign_core::code::{Cause, Goodbye, Refusal};
use consign_core::ledger::Table;
use consign_core::ledger::keys_upkeep::ExpiryKind;
use consign_core::ledger::rows::{MetaName, State};
use consign_core::ledger::rows_pickup::{AckStatus, ShardState, TokenState};
use consign_core::ledger::rows_upkeep::ExportState;
use consign_core::segment::Class;

use crate::snapshot;

macro_rules! list {
    ($lines:ident: $($code:ident),*) => {$({
        let mut numbers = BTreeSet::new();
        let mut words = BTreeSet::new();
        for code in $code::ALL {
            assert!(numbers.insert(code.number()), "{} {} twice", stringify!($code), code.number());
            assert!(words.insert(code.word()), "{} {} twice", stringify!($code), code.word());
            assert_eq!($code::from_number(code.number()), Some(*code));
            assert_eq!($code::from_word(code.word()), Some(*code));
            assert_eq!(code.to_string(), code.word());
            $lines.push(format!("{} {} {}", stringify!($code), code.number(), code.word()));
        }
        assert!($code::ALL.is_sorted(), "{} in the order of numbers", stringify!($code));
        for number in 0..=255 {
            assert_eq!($code::from_number(number).is_some(), numbers.contains(&number));
        }
        assert_eq!($code::from_word(""), None);
        assert_eq!($code::from_word("no such word"), None);
    })*};
}

#[test]
fn numbers_and_words_are_the_same_for_ever() {
    let mut lines = Vec::new();
    list!(lines: Table, Refusal, Cause, Goodbye, ExpiryKind, ShardState, AckStatus, TokenState);
    for class in Class::ALL {
        lines.push(format!("Class {} {class:?}", class as u8));
    }
    for state in [State::Scheduled, State::Inflight, State::Acked, State::Failed, State::Deadletter]
    {
        lines.push(format!("State {} {state:?}", state as u8));
    }
    for state in [ExportState::Intent, ExportState::Placed, ExportState::Done, ExportState::Failed]
    {
        lines.push(format!("ExportState {} {state:?}", state as u8));
    }
    for name in MetaName::ALL {
        lines.push(format!("MetaName {}", String::from_utf8_lossy(name.key())));
    }
    snapshot::check("codes.txt", &lines);
}

#[test]
fn names_in_meta_are_told_apart() {
    let names: BTreeSet<&[u8]> = MetaName::ALL.iter().map(|n| n.key()).collect();
    assert_eq!(names.len(), MetaName::ALL.len());
}

#[test]
fn number_zero_means_none_in_rows() {
    // `last_error` 0, receipt cause 0 and GOODBYE 0 say "nothing": no code may take it.
    assert_eq!(Cause::from_number(0), None);
    assert_eq!(Refusal::from_number(0), None);
    assert_eq!(Goodbye::from_number(0), None);
}

#[test]
fn only_lack_of_room_is_worth_a_retry() {
    let retry: Vec<_> = Refusal::ALL.iter().filter(|r| r.is_retry()).collect();
    assert_eq!(retry, [&Refusal::Quota, &Refusal::DiskFull, &Refusal::Busy]);
}
