//! Identifiers: content hashes, ledger numbers, connection and transfer numbers.

use alloc::string::String;
use core::fmt;

use minicbor::{Decode, Encode};

macro_rules! hash32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
        #[cbor(transparent)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(
            #[cbor(n(0), with = "minicbor::bytes")]
            #[cfg_attr(feature = "serde", serde(with = "crate::hexed::array"))]
            pub [u8; 32],
        );

        impl $name {
            /// The first 12 hex digits: how an id is printed for people.
            #[must_use]
            pub fn short(&self) -> String {
                hex(self.0.get(..6).unwrap_or_default())
            }
            /// Reads exactly 64 hex digits, either case.
            #[must_use]
            pub fn from_hex(text: &str) -> Option<Self> {
                unhex(text).map(Self)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.short())
            }
        }
    };
}

hash32! {
    /// Identity of a segment: BLAKE3 over its name, type, labels, content digest and instance
    /// ([`crate::segment::segment_id`]).
    SegmentId
}
hash32! {
    /// BLAKE3 of a segment's content.
    BlobDigest
}
hash32! {
    /// SHA-256 of a shard's content, of a fetch token, or of a client's bearer token.
    Sha256Digest
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode,
        )]
        #[cbor(transparent)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(#[n(0)] pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// Accept number of a segment at this site: grows by one per accepted segment, never reused.
    Seq(u64)
}
number! {
    /// Number of a content file, `blobs/ab/<number>`; never reused.
    BlobNo(u64)
}
number! {
    /// Number of an inline content row in table `bodies`; never reused.
    BodyNo(u64)
}
number! {
    /// Number of a site (peer or destination); one space for both, never reused. 0 is this site.
    SiteNo(u32)
}
number! {
    /// Number of a ledger batch; written to `meta` by the batch itself, never reused.
    BatchNo(u64)
}
number! {
    /// Number of a read asked by the node.
    ReadNo(u64)
}
number! {
    /// Number of a transfer within a session, from 1, chosen by the offering side, never reused in it.
    /// Local (HTTP) sessions number their submissions the same way.
    TransferNo(u32)
}

/// A connection: the slot is reused, the generation never is, so late messages of a dead connection
/// are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ConnId {
    /// Index in the driver's table of connections.
    pub slot: u32,
    /// How many connections have used this process before; unique per process.
    pub generation: u32,
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}

/// A session's epoch: the committed boot counter and a counter of sessions since then. An ACK that
/// bears another epoch changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(array)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Epoch {
    /// The boot counter of the offering site.
    #[n(0)]
    pub boot: u64,
    /// The session counter within that boot.
    #[n(1)]
    pub session: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.boot, self.session)
    }
}

/// A body of at most [`crate::limits::INLINE_MAX`] bytes parked in the driver until the ledger writer
/// joins it to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Handle {
    /// The connection that parked it.
    pub conn: ConnId,
    /// Counter within that connection.
    pub number: u32,
}

/// Lower-case hex of `bytes`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for b in bytes {
        for nibble in [b >> 4, b & 15] {
            let digit = DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'?');
            text.push(char::from(digit));
        }
    }
    text
}

/// Reads exactly `2 * N` hex digits, either case.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != N.checked_mul(2)? || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0u8; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair = core::str::from_utf8(pair).ok()?;
        if pair.starts_with('+') {
            return None;
        }
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
