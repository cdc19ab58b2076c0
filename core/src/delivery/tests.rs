//! Every (state, event) pair against the table of DESIGN 3.2, written out.

use super::{Event, IllegalEdge, next};
use crate::ledger::rows::State;

const STATES: [State; 5] =
    [State::Scheduled, State::Inflight, State::Acked, State::Failed, State::Deadletter];

/// Columns: Claim, Ack, Fail, Due, GiveUp, Retry, Remove. S I A F D as states, x removed, - illegal.
const TABLE: [(&str, State); 5] = [
    ("I---D-x", State::Scheduled),
    ("-AF-D-x", State::Inflight),
    ("------x", State::Acked),
    ("---SD-x", State::Failed),
    ("-----Sx", State::Deadletter),
];

fn letter(state: State) -> char {
    match state {
        State::Scheduled => 'S',
        State::Inflight => 'I',
        State::Acked => 'A',
        State::Failed => 'F',
        State::Deadletter => 'D',
    }
}

#[test]
fn every_pair_is_as_the_table_says() {
    for (row, state) in TABLE {
        for (event, expected) in Event::ALL.into_iter().zip(row.chars()) {
            let got = match next(state, event) {
                Ok(Some(to)) => letter(to),
                Ok(None) => 'x',
                Err(IllegalEdge { state: s, event: e }) => {
                    assert_eq!((s, e), (state, event));
                    '-'
                }
            };
            assert_eq!(got, expected, "{state:?} {event:?}");
        }
    }
}

#[test]
fn acked_is_final_but_for_removal() {
    for event in Event::ALL {
        let leaves = next(State::Acked, event).is_ok();
        assert_eq!(leaves, event == Event::Remove);
    }
}

#[test]
fn only_an_operator_leaves_the_dead_letters() {
    let ways: alloc::vec::Vec<Event> =
        Event::ALL.into_iter().filter(|e| next(State::Deadletter, *e).is_ok()).collect();
    assert_eq!(ways, [Event::Retry, Event::Remove]);
    assert_eq!(STATES.len(), TABLE.len());
}
