//! The states of a delivery and the only legal edges between them (DESIGN 3.2).
//!
//! ```text
//!                    ┌────────────────────── Retry (operator) ─────────────────────┐
//!                    ▼                                                              │
//!  Accept ──► Scheduled ──Claim──► Inflight ──Ack──► Acked                          │
//!                 ▲  │                │ │ └──GiveUp──────────────────────► Deadletter
//!                 │  └──GiveUp────────┼─┼──────────────────────────────────►   ▲
//!                Due                  │Fail                                     │
//!                 └──── Failed ◄──────┘  └ Failed ──GiveUp──────────────────────┘
//! ```

use crate::ledger::rows::State;

#[cfg(test)]
mod tests;

/// What happens to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A live session takes it: compare-and-swap, attempts + 1.
    Claim,
    /// The matching ACK of this session's epoch.
    Ack,
    /// A failure, refusal, timeout, session loss, or found in flight at start-up.
    Fail,
    /// Its time has come again.
    Due,
    /// Permanent refusal, retries used up, segment gone or expired.
    GiveUp,
    /// An operator gives it a fresh allowance.
    Retry,
    /// It leaves the required set: eviction, forget, purge, settled by `already_relayed`.
    Remove,
}

impl Event {
    /// Every event.
    pub const ALL: [Event; 7] = [
        Event::Claim,
        Event::Ack,
        Event::Fail,
        Event::Due,
        Event::GiveUp,
        Event::Retry,
        Event::Remove,
    ];
}

/// An edge that DESIGN 3.2 does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a delivery that is {state:?} cannot take {event:?}")]
pub struct IllegalEdge {
    /// The state it is in.
    pub state: State,
    /// What was asked.
    pub event: Event,
}

/// The state after `event`; `None` is removed.
///
/// # Errors
/// [`IllegalEdge`] when there is no such edge; nothing changes then.
pub fn next(state: State, event: Event) -> Result<Option<State>, IllegalEdge> {
    use Event::{Ack, Claim, Due, Fail, GiveUp, Remove, Retry};
    use State::{Acked, Deadletter, Failed, Inflight, Scheduled};
    let to = match (state, event) {
        (Scheduled, Claim) => Inflight,
        (Inflight, Ack) => Acked,
        (Inflight, Fail) => Failed,
        (Failed, Due) => Scheduled,
        (Scheduled | Inflight | Failed, GiveUp) => Deadletter,
        (Deadletter, Retry) => Scheduled,
        (Scheduled | Inflight | Failed | Deadletter | Acked, Remove) => return Ok(None),
        (Scheduled, Ack | Fail | Due | Retry)
        | (Inflight, Claim | Due | Retry)
        | (Acked, Claim | Ack | Fail | Due | GiveUp | Retry)
        | (Failed, Claim | Ack | Fail | Retry)
        | (Deadletter, Claim | Ack | Fail | Due | GiveUp) => {
            return Err(IllegalEdge { state, event });
        }
    };
    Ok(Some(to))
}
