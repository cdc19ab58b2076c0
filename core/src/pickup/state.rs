//! The lifecycle of a shard (DESIGN 4.1): which state follows which event, and nothing else.
//!
//! ```text
//!        Reserved             Begun               Whole
//!   –  ───────────▶ CREATED ─────────▶ UPLOADING ────────▶ RELAY_BUFFERED ◀─────────┐
//!   │                  │                 ▲   │              │         │ Redeemed    │ Returned
//!   └──────────────────┼──── Begun ──────┘   │              │         ▼             │ Silent
//!                      │ SlotOver            │ Stalled      │   NODE_RECEIVING ─────┤
//!                      │                     │     LeaseOver│         │ Verified    │
//!                      ▼                     ▼     GivenUp  │         ▼             │ Silent
//!                    RELAY_CLEANUP  ◀──────────────────────◀┘   NODE_VERIFIED ──────┘
//!                      (Abandoned by an operator: where                │ Finished
//!                       the relay waits for nobody;                    ▼
//!                       Spoiled: in RELAY_BUFFERED)               NODE_STORED
//! ```
//! RELAY_CLEANUP and NODE_STORED are final. What follows a final row under the same key is another
//! generation and begins at `–`.

use crate::ledger::rows_pickup::ShardState;

/// What happens to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardEvent {
    /// A slot is reserved ahead.
    Reserved,
    /// An upload begins.
    Begun,
    /// The body is whole, right and durable.
    Whole,
    /// A token is redeemed.
    Redeemed,
    /// The node has it, and it is right.
    Verified,
    /// The relay has let go of its copy.
    Finished,
    /// The node could not use it, or its own fetch broke off (P4).
    Returned,
    /// The node was silent for `buffer.transit_grace`.
    Silent,
    /// `buffer.slot_ttl` is over.
    SlotOver,
    /// No durable progress for `buffer.upload_grace`.
    Stalled,
    /// The lease is over.
    LeaseOver,
    /// `buffer.max_pickups` acks said `failed` (P2).
    GivenUp,
    /// An operator gives it up.
    Abandoned,
    /// Its content was compared with its digest here, and is not what was uploaded, or is gone.
    Spoiled,
}

impl ShardEvent {
    /// Every event.
    pub const ALL: &'static [ShardEvent] = &[
        ShardEvent::Reserved,
        ShardEvent::Begun,
        ShardEvent::Whole,
        ShardEvent::Redeemed,
        ShardEvent::Verified,
        ShardEvent::Finished,
        ShardEvent::Returned,
        ShardEvent::Silent,
        ShardEvent::SlotOver,
        ShardEvent::Stalled,
        ShardEvent::LeaseOver,
        ShardEvent::GivenUp,
        ShardEvent::Abandoned,
        ShardEvent::Spoiled,
    ];
}

/// An event that means nothing in that state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} means nothing in state {from:?}")]
pub struct Illegal {
    /// The state; `None` is no row.
    pub from: Option<ShardState>,
    /// The event.
    pub event: ShardEvent,
}

/// The state after `event`; `None` is no row, or a final one of an earlier generation.
///
/// # Errors
/// [`Illegal`] where no edge leads on.
pub const fn next(from: Option<ShardState>, event: ShardEvent) -> Result<ShardState, Illegal> {
    use ShardEvent as E;
    use ShardState as S;
    let illegal = Err(Illegal { from, event });
    match (from, event) {
        (None, E::Reserved) => Ok(S::Created),
        (None | Some(S::Created), E::Begun) => Ok(S::Uploading),
        (Some(S::Uploading), E::Whole) => Ok(S::RelayBuffered),
        (Some(S::RelayBuffered), E::Redeemed) => Ok(S::NodeReceiving),
        (Some(S::NodeReceiving), E::Verified) => Ok(S::NodeVerified),
        (Some(S::NodeVerified), E::Finished) => Ok(S::NodeStored),
        (Some(S::NodeReceiving), E::Returned | E::Silent) => Ok(S::RelayBuffered),
        (Some(S::NodeVerified), E::Silent) => Ok(S::RelayBuffered),
        (Some(S::Created), E::SlotOver | E::Abandoned) => Ok(S::RelayCleanup),
        (Some(S::Uploading), E::Stalled | E::Abandoned) => Ok(S::RelayCleanup),
        (Some(S::RelayBuffered), E::LeaseOver | E::GivenUp | E::Abandoned | E::Spoiled) => {
            Ok(S::RelayCleanup)
        }
        (
            None,
            E::Whole
            | E::Redeemed
            | E::Verified
            | E::Finished
            | E::Returned
            | E::Silent
            | E::SlotOver
            | E::Stalled
            | E::LeaseOver
            | E::GivenUp
            | E::Abandoned
            | E::Spoiled,
        )
        | (
            Some(S::Created),
            E::Reserved
            | E::Whole
            | E::Redeemed
            | E::Verified
            | E::Finished
            | E::Returned
            | E::Silent
            | E::Stalled
            | E::LeaseOver
            | E::GivenUp
            | E::Spoiled,
        )
        | (
            Some(S::Uploading),
            E::Reserved
            | E::Begun
            | E::Redeemed
            | E::Verified
            | E::Finished
            | E::Returned
            | E::Silent
            | E::SlotOver
            | E::LeaseOver
            | E::GivenUp
            | E::Spoiled,
        )
        | (
            Some(S::RelayBuffered),
            E::Reserved
            | E::Begun
            | E::Whole
            | E::Verified
            | E::Finished
            | E::Returned
            | E::Silent
            | E::SlotOver
            | E::Stalled,
        )
        | (
            Some(S::NodeReceiving),
            E::Reserved
            | E::Begun
            | E::Whole
            | E::Redeemed
            | E::Finished
            | E::SlotOver
            | E::Stalled
            | E::LeaseOver
            | E::GivenUp
            | E::Abandoned
            | E::Spoiled,
        )
        | (
            Some(S::NodeVerified),
            E::Reserved
            | E::Begun
            | E::Whole
            | E::Redeemed
            | E::Verified
            | E::Returned
            | E::SlotOver
            | E::Stalled
            | E::LeaseOver
            | E::GivenUp
            | E::Abandoned
            | E::Spoiled,
        )
        | (
            Some(S::NodeStored | S::RelayCleanup),
            E::Reserved
            | E::Begun
            | E::Whole
            | E::Redeemed
            | E::Verified
            | E::Finished
            | E::Returned
            | E::Silent
            | E::SlotOver
            | E::Stalled
            | E::LeaseOver
            | E::GivenUp
            | E::Abandoned
            | E::Spoiled,
        ) => illegal,
    }
}

/// Whether nothing leads out of a state.
#[must_use]
pub const fn is_final(state: ShardState) -> bool {
    match state {
        ShardState::NodeStored | ShardState::RelayCleanup => true,
        ShardState::Created
        | ShardState::Uploading
        | ShardState::RelayBuffered
        | ShardState::NodeReceiving
        | ShardState::NodeVerified => false,
    }
}

/// Whether the relay owns the bytes: `buffer_id` is set exactly then.
#[must_use]
pub const fn owns_bytes(state: ShardState) -> bool {
    match state {
        ShardState::RelayBuffered | ShardState::NodeReceiving | ShardState::NodeVerified => true,
        ShardState::Created
        | ShardState::Uploading
        | ShardState::NodeStored
        | ShardState::RelayCleanup => false,
    }
}

#[cfg(test)]
mod tests;
