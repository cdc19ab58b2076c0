//! What can be wrong with bytes on the wire.

use alloc::string::String;

use super::Kind;
use crate::limits::FRAME_MAX;
use crate::segment::MetaFault;

/// A rule of the framing that is broken. The session that meets one ends, except where
/// [`super::Frame::BadOffer`] carries it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireFault {
    /// The length in front of a frame.
    #[error("a frame of {len} bytes is outside 1 to {FRAME_MAX}")]
    Length {
        /// It.
        len: u32,
    },
    /// A frame type below 0x80 that this version does not know.
    #[error("unknown frame type {kind:#04x}")]
    Type {
        /// It.
        kind: u8,
    },
    /// A length that this type of frame cannot have.
    #[error("{frame} of {len} bytes is outside {min} to {max}")]
    Size {
        /// The type.
        frame: Kind,
        /// Type byte and body, in bytes.
        len: usize,
        /// The least it can be.
        min: usize,
        /// The most it can be.
        max: usize,
    },
    /// Not what CBOR or the layout of the frame wants at that place.
    #[error("{frame}: malformed at byte {at} of its CBOR")]
    Cbor {
        /// The type.
        frame: Kind,
        /// Where.
        at: usize,
    },
    /// A field that must be there is not.
    #[error("{frame}: field {field} is missing")]
    Missing {
        /// The type.
        frame: Kind,
        /// Number of the field.
        field: u64,
    },
    /// Field numbers do not ascend.
    #[error("{frame}: field {field} stands after field {after}")]
    Order {
        /// The type.
        frame: Kind,
        /// Number of the field.
        field: u64,
        /// Number of the one before.
        after: u64,
    },
    /// Bytes after the end of the body.
    #[error("{frame}: {left} bytes follow its end")]
    Trailing {
        /// The type.
        frame: Kind,
        /// How many.
        left: usize,
    },
    /// Something is too long or too large.
    #[error("{frame}: {what} of {len} exceeds the limit of {limit}")]
    Limit {
        /// The type.
        frame: Kind,
        /// What.
        what: &'static str,
        /// Its length, count or value.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// A number that has no meaning there.
    #[error("{frame}: {what} cannot be {value}")]
    Value {
        /// The type.
        frame: Kind,
        /// What.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// Not the name of a site.
    #[error("{frame}: {name:?} cannot name a site")]
    Site {
        /// The type.
        frame: Kind,
        /// The name, cut to 64 characters.
        name: String,
    },
    /// A set that is empty, out of order or has doubles.
    #[error("{frame}: {what} must be sorted, unique and not empty")]
    Set {
        /// The type.
        frame: Kind,
        /// What.
        what: &'static str,
    },
    /// Metadata that breaks a rule.
    #[error("OFFER: {0}")]
    Meta(#[from] MetaFault),
    /// Another protocol version.
    #[error("the peer speaks protocol version {found}, this build speaks {speaks}")]
    Version {
        /// In its HELLO.
        found: u64,
        /// Here.
        speaks: u16,
    },
}
