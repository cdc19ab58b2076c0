//! Signatures of nodes: Ed25519 (RFC 8032) over a few lines that name one request to one relay.
//!
//! ```text
//! consign-sig-v1
//! GET                                     method
//! relay.example:7443                      authority: the Host field, lower-cased
//! /buffer/fetch                           target as it stands in the request line
//! 1796064245                              unix seconds
//! 000102030405060708090a0b0c0d0e0f        nonce
//! e3b0c442…                               SHA-256 of the body
//! ```
//!
//! Lines are joined by one line feed each, with none at the end. Token and Range are not covered on
//! purpose: what a token opens is bound to its node anyway.

use alloc::format;
use alloc::string::String;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

use crate::http::Headers;
use crate::id::{Sha256Digest, hex};
use crate::ledger::keys_pickup::is_node_id;
use crate::pickup::token::unhex_lower;

/// First line of what is signed.
pub const SCHEME: &str = "consign-sig-v1";
/// Field with the node's id.
pub const NODE: &str = "X-Nodus-Node";
/// Field with the time in unix seconds.
pub const TIMESTAMP: &str = "X-Nodus-Timestamp";
/// Field with the nonce.
pub const NONCE: &str = "X-Nodus-Nonce";
/// Field with the signature in base64.
pub const SIGNATURE: &str = "X-Nodus-Signature";

/// What a signature is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signable<'a> {
    /// Method as it stands in the request line.
    pub method: &'a str,
    /// The Host field; it is lower-cased here.
    pub authority: &'a str,
    /// Target as it stands in the request line.
    pub target: &'a str,
    /// Unix seconds.
    pub timestamp: u64,
    /// Never used before.
    pub nonce: [u8; 16],
    /// SHA-256 of the body; see [`no_body`].
    pub body: Sha256Digest,
}

impl Signable<'_> {
    /// The lines that are signed.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "{SCHEME}\n{}\n{}\n{}\n{}\n{}\n{}",
            self.method,
            self.authority.to_ascii_lowercase(),
            self.target,
            self.timestamp,
            hex(&self.nonce),
            self.body,
        )
    }

    /// Signs with a private key of 32 bytes (the seed of RFC 8032).
    #[must_use]
    pub fn sign(&self, secret: &[u8; 32]) -> [u8; 64] {
        use ed25519_dalek::Signer;
        SigningKey::from_bytes(secret).sign(self.text().as_bytes()).to_bytes()
    }

    /// Whether this key made this signature. Keys and points of small order, for which one signature
    /// fits many texts, are refused.
    #[must_use]
    pub fn is_signed(&self, public: &[u8; 32], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        VerifyingKey::from_bytes(public)
            .is_ok_and(|key| key.verify_strict(self.text().as_bytes(), &signature).is_ok())
    }
}

/// SHA-256 of a request without a body.
#[must_use]
pub fn no_body() -> Sha256Digest {
    sha256(b"")
}

/// SHA-256 of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest(Sha256::digest(bytes).into())
}

/// The public key of a private key.
#[must_use]
pub fn public_key(secret: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(secret).verifying_key().to_bytes()
}

/// Whether `public` is the key of a pair at all, and not one that fits many signatures.
#[must_use]
pub fn is_public_key(public: &[u8; 32]) -> bool {
    VerifyingKey::from_bytes(public).is_ok_and(|key| !key.is_weak())
}

/// Who a request says has signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The node.
    pub node: String,
    /// Unix seconds.
    pub timestamp: u64,
    /// The nonce.
    pub nonce: [u8; 16],
    /// The signature.
    pub signature: [u8; 64],
}

impl Claim {
    /// Reads the four fields; `None` when one is missing, there twice or malformed. Whatever is wrong
    /// with them, the request is not signed.
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Claim> {
        let node = headers.text(NODE).filter(|id| is_node_id(id))?;
        let timestamp = decimal(headers.text(TIMESTAMP)?)?;
        let nonce = unhex_lower(headers.text(NONCE)?)?;
        let signature = STANDARD.decode(headers.text(SIGNATURE)?).ok()?.try_into().ok()?;
        Some(Claim { node: node.into(), timestamp, nonce, signature })
    }

    /// The four fields as a client writes them.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, String); 4] {
        [
            (NODE, self.node.clone()),
            (TIMESTAMP, format!("{}", self.timestamp)),
            (NONCE, hex(&self.nonce)),
            (SIGNATURE, STANDARD.encode(self.signature)),
        ]
    }
}

/// A plain decimal number below 2^64: digits only, no sign, no leading zero.
#[must_use]
pub fn decimal(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain = digits && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::unhex;

    fn request() -> Signable<'static> {
        Signable {
            method: "GET",
            authority: "Relay.Example:7443",
            target: "/buffer/fetch",
            timestamp: 1_796_064_245,
            nonce: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
            body: no_body(),
        }
    }

    fn secret() -> [u8; 32] {
        core::array::from_fn(|i| i as u8)
    }

    /// The vector that docs/PICKUP.md prints.
    #[test]
    fn the_vector_of_the_document() {
        let text = "consign-sig-v1\nGET\nrelay.example:7443\n/buffer/fetch\n1796064245\n\
                    000102030405060708090a0b0c0d0e0f\n\
                    e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(request().text(), text);
        let public = public_key(&secret());
        assert_eq!(
            hex(&public),
            "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
        );
        let signature = request().sign(&secret());
        assert_eq!(STANDARD.encode(signature), VECTOR);
        assert!(request().is_signed(&public, &signature));
    }

    const VECTOR: &str =
        "MKUHY+GBIBt8YqLaAI84gs12gJPbExijWncP7gGLSzTI8Un1/xHQyIoTb+OLC7ejCiaRFm0mGqN8BD3R7aAlCQ==";

    /// RFC 8032, 7.1, TEST 2: the primitive itself.
    #[test]
    fn the_vector_of_the_standard() {
        use ed25519_dalek::Signer;
        let secret =
            unhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb").unwrap();
        let signature = SigningKey::from_bytes(&secret).sign(&[0x72]).to_bytes();
        assert_eq!(
            hex(&signature),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        );
    }

    #[test]
    fn a_signature_is_good_for_nothing_else() {
        let public = public_key(&secret());
        let signature = request().sign(&secret());
        let others = [
            Signable { method: "POST", ..request() },
            Signable { authority: "relay.example", ..request() },
            Signable { target: "/ws", ..request() },
            Signable { timestamp: 1_796_064_246, ..request() },
            Signable { nonce: [7; 16], ..request() },
            Signable { body: sha256(b"x"), ..request() },
        ];
        for other in others {
            assert!(!other.is_signed(&public, &signature), "{other:?}");
        }
        assert!(!request().is_signed(&public_key(&[9; 32]), &signature));
        for bit in [0, 100, 300, 511] {
            let mut flipped = signature;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!request().is_signed(&public, &flipped));
        }
        // The neutral point as key and zeros as signature fit every text without the strict check.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let mut zeros = [0; 64];
        zeros[0] = 1;
        assert!(!request().is_signed(&neutral, &zeros) && !is_public_key(&neutral));
        assert!(is_public_key(&public));
    }

    #[test]
    fn numbers_are_plain() {
        for (text, number) in [("0", Some(0)), ("18446744073709551615", Some(u64::MAX))] {
            assert_eq!(decimal(text), number);
        }
        for bad in ["", "+1", "-1", "01", "1 ", "0x1", "18446744073709551616", "1.0"] {
            assert_eq!(decimal(bad), None, "{bad:?}");
        }
    }
}
