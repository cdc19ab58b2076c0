//! How single values stand in JSON, and the bodies of answers.

use alloc::string::String;

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};

use super::Digests;
use crate::http::{parse_rfc3339, rfc3339};
use crate::ledger::keys_pickup::NUMBER_END;
use crate::ledger::rows_pickup::ShardState;
use crate::texted::Text;
use crate::time::UnixMillis;

/// The body of every refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Stable code.
    pub code: String,
    /// For people.
    pub message: String,
}

/// The answer to an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uploaded {
    /// Where the relay keeps it; null once it does not.
    pub buffer_id: Option<String>,
    /// State.
    #[serde(with = "state")]
    pub state: ShardState,
    /// Length in bytes.
    pub size: u64,
    /// Its digests.
    pub digest: Digests,
    /// When the lease is over; null once stored.
    #[serde(with = "maybe_time")]
    pub expires_at: Option<UnixMillis>,
}

/// The answer to `PUT /buffer/slot`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// When it runs out.
    #[serde(with = "time")]
    pub expires_at: UnixMillis,
}

macro_rules! as_text {
    ($name:ident, $type:ty, $expected:literal, $write:expr, $read:expr) => {
        pub(super) mod $name {
            use super::*;

            pub(in super::super) fn serialize<S: Serializer>(
                value: &$type,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                let write: fn(&$type) -> String = $write;
                to.serialize_str(&write(value))
            }

            pub(in super::super) fn deserialize<'a, D: Deserializer<'a>>(
                from: D,
            ) -> Result<$type, D::Error> {
                from.deserialize_str(Text { read: $read, expected: $expected })
            }
        }
    };
}

as_text!(
    sha256,
    crate::id::Sha256Digest,
    "64 lower-case hex digits",
    |d| crate::id::hex(&d.0),
    |text| crate::pickup::token::unhex_lower(text).map(crate::id::Sha256Digest)
);
as_text!(
    blake3,
    crate::id::BlobDigest,
    "64 lower-case hex digits",
    |d| crate::id::hex(&d.0),
    |text| crate::pickup::token::unhex_lower(text).map(crate::id::BlobDigest)
);
as_text!(
    token,
    crate::pickup::token::Token,
    "64 lower-case hex digits",
    |t| t.text(),
    crate::pickup::token::Token::parse
);
as_text!(
    status,
    crate::ledger::rows_pickup::AckStatus,
    "\"verified\" or \"failed\"",
    |s| s.word().into(),
    crate::ledger::rows_pickup::AckStatus::from_word
);
as_text!(state, ShardState, "a state of a shard", |s| s.word().into(), ShardState::from_word);
as_text!(time, UnixMillis, "a time in UTC", |t| rfc3339(*t), parse_rfc3339);

pub(super) mod maybe_time {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        value: &Option<UnixMillis>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(rfc3339).serialize(to)
    }

    pub(in super::super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<UnixMillis>, D::Error> {
        match Option::<String>::deserialize(from)? {
            None => Ok(None),
            Some(text) => parse_rfc3339(&text)
                .map(Some)
                .ok_or_else(|| D::Error::custom("not a time in UTC with milliseconds")),
        }
    }
}

/// Whole numbers below 2^53, so that every reader of JSON has them whole.
pub(super) mod number {
    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        value: &u64,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_u64(*value)
    }

    pub(in super::super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
        let number = u64::deserialize(from)?;
        if number >= NUMBER_END {
            return Err(D::Error::custom("a number of 2^53 or more"));
        }
        Ok(number)
    }
}
