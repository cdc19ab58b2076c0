//! Bytes as lower-case hex text, for what is written down (feature `serde`).

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserializer, Serializer};

use crate::id::{hex, unhex};
use crate::texted::Text;

/// Any number of bytes.
pub(crate) mod bytes {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex(bytes))
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_str(Text { read: pairs, expected: "an even number of hex digits" })
    }

    fn pairs(text: &str) -> Option<Vec<u8>> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| unhex::<1>(core::str::from_utf8(pair).ok()?).map(|[b]| b);
        rest.is_empty().then(|| pairs.iter().map(byte).collect())?
    }
}

/// Exactly 32 bytes.
pub(crate) mod array {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex(bytes))
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<[u8; 32], D::Error> {
        from.deserialize_str(Text { read: unhex::<32>, expected: "64 hex digits" })
    }
}

/// 32 bytes, or nothing: an empty text.
pub(crate) mod maybe {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<[u8; 32]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&bytes.map_or_else(String::new, |bytes| hex(&bytes)))
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<[u8; 32]>, D::Error> {
        from.deserialize_str(Text { read, expected: "64 hex digits or none" })
    }

    fn read(text: &str) -> Option<Option<[u8; 32]>> {
        if text.is_empty() { Some(None) } else { unhex::<32>(text).map(Some) }
    }
}
