//! How a delivery attempt ended, as its session has seen it.

use alloc::string::String;

use crate::store::StoreFault;

/// How a delivery attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Outcome {
    /// The peer holds it durably; transfer, segment and epoch matched.
    Acked,
    /// The peer refused it.
    Rejected {
        /// Its code as it stood on the wire.
        code: u8,
        /// How long it asks to wait, in milliseconds.
        retry_after: u64,
        /// What it says.
        text: String,
    },
    /// No ACK within `ack_timeout` after the last byte.
    AckTimeout,
    /// An ACK for this transfer named another segment.
    AckMismatch,
    /// The content could not be read here.
    Unreadable(StoreFault),
}
