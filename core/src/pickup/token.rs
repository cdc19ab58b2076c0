//! Tokens: 32 random bytes, written as 64 lower-case hex digits. Fetch tokens and bearer tokens of
//! clients alike. What is kept of one is its SHA-256.

use alloc::string::String;
use core::fmt;

use crate::http::Headers;
use crate::id::{Sha256Digest, hex, unhex};
use crate::pickup::sign::sha256;

/// Field with a fetch token.
pub const TOKEN: &str = "X-Nodus-Token";

/// A token itself. Whoever has it has what it opens: it is not printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.hash().short())
    }
}

impl Token {
    /// A token of these random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Token {
        Token(bytes)
    }

    /// Reads 64 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Token> {
        unhex_lower(text).map(Token)
    }

    /// As it is written.
    #[must_use]
    pub fn text(&self) -> String {
        hex(&self.0)
    }

    /// SHA-256 of its 32 bytes: what the ledger and the node know.
    #[must_use]
    pub fn hash(&self) -> Sha256Digest {
        sha256(&self.0)
    }
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, 2.1); `None` when there is none.
#[must_use]
pub fn bearer(headers: &Headers) -> Option<Token> {
    let (scheme, token) = headers.text("authorization")?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    Token::parse(token.trim_start_matches(' '))
}

/// Reads exactly `2 * N` hex digits in lower case: everything of pickup has one spelling.
#[must_use]
pub fn unhex_lower<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) { None } else { unhex(text) }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn one_spelling() {
        let token = Token::new([0xab; 32]);
        assert_eq!(token.text(), "ab".repeat(32));
        assert_eq!(Token::parse(&token.text()), Some(token));
        let upper = "AB".repeat(32);
        for bad in ["", "ab", &upper, &"ab".repeat(33), &"zz".repeat(32)] {
            assert_eq!(Token::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_kept_is_the_hash_of_the_bytes() {
        // SHA-256 of 32 zero bytes.
        let hash = "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925";
        let token = Token::new([0; 32]);
        assert_eq!(format!("{}", token.hash()), hash);
        assert!(!format!("{token:?}").contains(&token.text()[..16]));
    }
}
