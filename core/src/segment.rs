//! What a segment is: metadata, destinations, identity.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use minicbor::{Decode, Encode};

use crate::id::{BlobDigest, SegmentId};
use crate::limits::{DESTINATIONS_MAX, LABELS_MAX, META_MAX, NAME_MAX, SITE_NAME_MAX, TYPE_MAX};
use crate::time::UnixMillis;

/// Class of priority; classes share a peer 8:4:2:1 and none starves (DESIGN 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
#[repr(u8)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Class {
    /// Before everything else.
    #[n(0)]
    Urgent = 0,
    /// Before normal.
    #[n(1)]
    High = 1,
    /// The default.
    #[default]
    #[n(2)]
    Normal = 2,
    /// When nothing else waits.
    #[n(3)]
    Bulk = 3,
}

impl Class {
    /// All classes, most urgent first.
    pub const ALL: [Class; 4] = [Class::Urgent, Class::High, Class::Normal, Class::Bulk];

    /// The word in the CLI and in `--json`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Class::Urgent => "urgent",
            Class::High => "high",
            Class::Normal => "normal",
            Class::Bulk => "bulk",
        }
    }

    /// The class of a word or of the digits 0 to 3.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|c| c.word() == word || word.parse() == Ok(*c as u8))
    }

    /// The class of the byte in a key.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Class> {
        Class::ALL.into_iter().find(|c| *c as u8 == number)
    }
}

/// Where a segment is to go.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Destinations {
    /// Every known peer (`*`).
    #[n(0)]
    All,
    /// These sites, sorted, without doubles, never empty.
    #[n(1)]
    Named(#[n(0)] Vec<String>),
}

impl Destinations {
    /// Whether the site of that name is addressed.
    #[must_use]
    pub fn addresses(&self, site: &str) -> bool {
        match self {
            Destinations::All => true,
            Destinations::Named(names) => names.binary_search_by(|n| n.as_str().cmp(site)).is_ok(),
        }
    }

    /// A sorted set of names without doubles; `None` when empty or too long.
    #[must_use]
    pub fn named(mut names: Vec<String>) -> Option<Destinations> {
        names.sort();
        names.dedup();
        let ok = !names.is_empty()
            && names.len() <= DESTINATIONS_MAX
            && names.iter().all(|n| is_site_name(n));
        ok.then_some(Destinations::Named(names))
    }
}

/// What describes a segment besides its content; part of the OFFER and of the segment row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Meta {
    /// Name, 1 to 1,024 bytes: parts between single slashes, none of them empty, `.` or `..`; no control
    /// characters.
    #[n(0)]
    pub name: String,
    /// Media type, at most 256 bytes; may be empty.
    #[n(1)]
    pub content_type: String,
    /// Labels, sorted by key, keys unique.
    #[n(2)]
    pub labels: Vec<(String, String)>,
    /// 16 random bytes of `send --again`; otherwise empty.
    #[cbor(n(3), with = "minicbor::bytes")]
    #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
    pub instance: Vec<u8>,
    /// Class of priority.
    #[n(4)]
    pub class: Class,
    /// When it was accepted at its origin.
    #[n(5)]
    pub accepted_at: u64,
    /// After this it is not worth delivering any more.
    #[n(6)]
    pub expires_at: Option<u64>,
}

impl Meta {
    /// Judges every limit on names, labels and sizes.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), MetaFault> {
        check_name(&self.name)?;
        if self.content_type.len() > TYPE_MAX
            || self.content_type.bytes().any(|b| b.is_ascii_control())
        {
            return Err(MetaFault::Type { len: self.content_type.len() });
        }
        if self.labels.len() > LABELS_MAX {
            return Err(MetaFault::Labels { count: self.labels.len() });
        }
        if !self.labels.is_sorted_by(|a, b| a.0 < b.0)
            || self.labels.iter().any(|(k, _)| k.is_empty())
        {
            return Err(MetaFault::LabelOrder);
        }
        if !self.instance.is_empty() && self.instance.len() != 16 {
            return Err(MetaFault::Instance { len: self.instance.len() });
        }
        let size = self.labels.iter().fold(self.name.len(), |n, (k, v)| n + k.len() + v.len() + 8);
        if size > META_MAX {
            return Err(MetaFault::Size { len: size });
        }
        Ok(())
    }

    /// When it expires, if ever.
    #[must_use]
    pub fn expires(&self) -> Option<UnixMillis> {
        self.expires_at.map(UnixMillis)
    }
}

/// A rule on metadata that is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaFault {
    /// Empty, too long, or with characters a name may not have.
    #[error(
        "the name {0:?} is longer than 1024 bytes, has a control character, or a part of it between slashes is empty, `.` or `..`"
    )]
    Name(String),
    /// The content type is too long or has control characters.
    #[error("a content type of {len} bytes is longer than 256 or has a control character")]
    Type {
        /// Its length in bytes.
        len: usize,
    },
    /// Too many labels.
    #[error("{count} labels are more than 64")]
    Labels {
        /// How many there are.
        count: usize,
    },
    /// Labels out of order, doubled, or with an empty key.
    #[error("label keys must be non-empty, unique and sorted")]
    LabelOrder,
    /// An instance that is neither empty nor 16 bytes.
    #[error("an instance of {len} bytes is neither empty nor 16 bytes long")]
    Instance {
        /// Its length in bytes.
        len: usize,
    },
    /// Everything together is too large.
    #[error("metadata of {len} bytes exceeds the limit of 16384")]
    Size {
        /// Its size in bytes.
        len: usize,
    },
}

fn check_name(name: &str) -> Result<(), MetaFault> {
    let bad = name.len() > NAME_MAX
        || name.split('/').any(|part| matches!(part, "" | "." | ".."))
        || name.chars().any(char::is_control);
    if bad { Err(MetaFault::Name(name.chars().take(64).collect())) } else { Ok(()) }
}

/// Whether `name` can name a site: 1 to 128 bytes of `[A-Za-z0-9._-]`, not starting with `.` or `-`.
#[must_use]
pub fn is_site_name(name: &str) -> bool {
    let ok = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=SITE_NAME_MAX).contains(&name.len())
        && name.bytes().all(ok)
        && !name.starts_with(['.', '-'])
}

/// The identity of a segment (DESIGN 3.1): BLAKE3 over a domain tag and the length-prefixed name,
/// content type, labels, content digest and instance. Class and times are not part of it.
#[must_use]
pub fn segment_id(meta: &Meta, digest: &BlobDigest) -> SegmentId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"consign segment id 1\n");
    let mut field = |bytes: &[u8]| {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        hasher.update(&len.to_be_bytes());
        hasher.update(bytes);
    };
    field(meta.name.as_bytes());
    field(meta.content_type.as_bytes());
    let count = u32::try_from(meta.labels.len()).unwrap_or(u32::MAX);
    field(&count.to_be_bytes());
    for (key, value) in &meta.labels {
        field(key.as_bytes());
        field(value.as_bytes());
    }
    field(&digest.0);
    field(&meta.instance);
    SegmentId(*hasher.finalize().as_bytes())
}

impl fmt::Display for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Destinations::All => f.write_str("*"),
            Destinations::Named(names) => f.write_str(&names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
