//! Every pair of state and event, and what holds along every path.

use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::{ShardEvent, is_final, next, owns_bytes};
use crate::ledger::rows_pickup::ShardState;

/// The table of DESIGN 4.1, line by line; every other pair is refused.
const EDGES: &[(Option<ShardState>, ShardEvent, ShardState)] = {
    use ShardEvent as E;
    use ShardState as S;
    &[
        (None, E::Reserved, S::Created),
        (None, E::Begun, S::Uploading),
        (Some(S::Created), E::Begun, S::Uploading),
        (Some(S::Uploading), E::Whole, S::RelayBuffered),
        (Some(S::RelayBuffered), E::Redeemed, S::NodeReceiving),
        (Some(S::NodeReceiving), E::Verified, S::NodeVerified),
        (Some(S::NodeVerified), E::Finished, S::NodeStored),
        (Some(S::NodeReceiving), E::Returned, S::RelayBuffered),
        (Some(S::NodeReceiving), E::Silent, S::RelayBuffered),
        (Some(S::NodeVerified), E::Silent, S::RelayBuffered),
        (Some(S::Created), E::SlotOver, S::RelayCleanup),
        (Some(S::Uploading), E::Stalled, S::RelayCleanup),
        (Some(S::RelayBuffered), E::LeaseOver, S::RelayCleanup),
        (Some(S::RelayBuffered), E::GivenUp, S::RelayCleanup),
        (Some(S::Created), E::Abandoned, S::RelayCleanup),
        (Some(S::Uploading), E::Abandoned, S::RelayCleanup),
        (Some(S::RelayBuffered), E::Abandoned, S::RelayCleanup),
        (Some(S::RelayBuffered), E::Spoiled, S::RelayCleanup),
    ]
};

#[test]
fn every_pair_leads_where_the_table_says() {
    let states = ShardState::ALL.iter().copied().map(Some).chain([None]);
    let mut legal = 0;
    for from in states {
        for event in ShardEvent::ALL.iter().copied() {
            let wanted = EDGES.iter().find(|(f, e, _)| (*f, *e) == (from, event)).map(|e| e.2);
            assert_eq!(next(from, event).ok(), wanted, "{from:?} on {event:?}");
            legal += usize::from(wanted.is_some());
        }
    }
    assert_eq!(legal, EDGES.len());
}

quickcheck! {
    fn no_path_leaves_a_final_state_and_bytes_are_owned_in_one_stretch(path: Vec<u8>) -> bool {
        let (mut state, mut owned_before) = (None, false);
        for step in path {
            let event = ShardEvent::ALL[usize::from(step) % ShardEvent::ALL.len()];
            let Ok(after) = next(state, event) else { continue };
            assert!(!state.is_some_and(is_final), "{state:?} was left by {event:?}");
            // They come with the whole body and go with the end, and never in between.
            let begins = !state.is_some_and(owns_bytes) && owns_bytes(after);
            let ends = state.is_some_and(owns_bytes) && !owns_bytes(after);
            assert_eq!(begins, event == ShardEvent::Whole);
            assert!(!begins || !owned_before);
            assert!(!ends || is_final(after));
            owned_before |= begins;
            state = Some(after);
        }
        true
    }
}
