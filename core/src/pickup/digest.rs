//! Digests as fields write them (RFC 9530): `sha-256=:BASE64:, blake3=:BASE64:`.

use alloc::format;
use alloc::string::String;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::http::Headers;
use crate::id::{BlobDigest, Sha256Digest};

/// Field about the body of one message.
pub const CONTENT_DIGEST: &str = "Content-Digest";
/// Field about the whole of what is uploaded or fetched.
pub const REPR_DIGEST: &str = "Repr-Digest";

/// What a digest field says, of the algorithms that are known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `sha-256`.
    pub sha256: Option<Sha256Digest>,
    /// `blake3`.
    pub blake3: Option<BlobDigest>,
}

impl Given {
    /// Reads every field of that name. Unknown algorithms are skipped.
    ///
    /// # Errors
    /// What is wrong: grammar, length, or an algorithm that is there twice.
    pub fn of(headers: &Headers, name: &str) -> Result<Given, &'static str> {
        let mut given = Given::default();
        for value in headers.all(name) {
            let value = core::str::from_utf8(value).map_err(|_| "is not ASCII")?;
            for member in value.split(',') {
                given.take(member.trim_matches([' ', '\t']))?;
            }
        }
        Ok(given)
    }

    fn take(&mut self, member: &str) -> Result<(), &'static str> {
        let (key, value) = member.split_once('=').ok_or("is not a list of ALGORITHM=:BASE64:")?;
        let known = matches!(key, "sha-256" | "blake3");
        // Parameters of a member mean nothing here (RFC 8941, 3.1.2).
        let value = value.split(';').next().unwrap_or_default().trim_end_matches(' ');
        let inner = value.strip_prefix(':').and_then(|v| v.strip_suffix(':'));
        if !known {
            return Ok(());
        }
        let bytes = inner
            .and_then(|text| STANDARD.decode(text).ok())
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .ok_or("has a value that is not 32 bytes of base64 between colons")?;
        let twice = match key {
            "sha-256" => self.sha256.replace(Sha256Digest(bytes)).is_some(),
            _ => self.blake3.replace(BlobDigest(bytes)).is_some(),
        };
        if twice { Err("names an algorithm twice") } else { Ok(()) }
    }

    /// Whether nothing known is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sha256.is_none() && self.blake3.is_none()
    }

    /// Whether everything given is so.
    #[must_use]
    pub fn fits(&self, sha256: &Sha256Digest, blake3: &BlobDigest) -> bool {
        self.sha256.is_none_or(|given| given == *sha256)
            && self.blake3.is_none_or(|given| given == *blake3)
    }

    /// Both together; `None` when they contradict each other.
    #[must_use]
    pub fn and(&self, other: &Given) -> Option<Given> {
        let sha256 = both(self.sha256, other.sha256)?;
        Some(Given { sha256, blake3: both(self.blake3, other.blake3)? })
    }
}

fn both<T: Copy + PartialEq>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        (Some(a), _) => Some(Some(a)),
        (None, b) => Some(b),
    }
}

/// BLAKE3 alone as a field's value.
#[must_use]
pub fn blake3_field(blake3: &BlobDigest) -> String {
    format!("blake3=:{}:", STANDARD.encode(blake3.0))
}

/// Both digests as a field's value.
#[must_use]
pub fn field(sha256: &Sha256Digest, blake3: &BlobDigest) -> String {
    format!("sha-256=:{}:, blake3=:{}:", STANDARD.encode(sha256.0), STANDARD.encode(blake3.0))
}
