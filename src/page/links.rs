//! One-time codes in links, and the tokens of pages that were opened by one. A pure machine: time and
//! randomness are handed in.
//!
//! ```text
//!            issue              enter (once, within 10 min)            12 h, or 64 newer ones
//! consign page ───▶ code in a link ──────────────────────▶ token ──────────────────────────▶ nothing
//!                        │ 10 min, or 16 newer ones         user: whose acts they are
//!                        ▼
//!                     nothing
//! ```
//!
//! What is kept of either is its SHA-256, in memory only: a restart ends them all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consign_core::id::Sha256Digest;
use consign_core::pickup::token::Token;
use consign_core::time::Instant;
use subtle::ConstantTimeEq;

/// How long a link is good.
pub const CODE_LIFE: Duration = Duration::from_secs(600);
/// How long a page may act.
pub const TOKEN_LIFE: Duration = Duration::from_secs(12 * 3600);
/// Links that are good at a time; the oldest gives way.
pub const CODES_MAX: usize = 16;
/// Pages that may act at a time; the oldest gives way.
pub const TOKENS_MAX: usize = 64;

/// Field that carries a code or a token. Browsers ask before they send a field of its name anywhere
/// but home, and nobody answers them.
pub const FIELD: &str = "X-Consign-Token";

#[derive(Debug)]
struct Pass {
    hash: Sha256Digest,
    /// Who asked for the link.
    uid: u32,
    until: Instant,
}

#[derive(Debug, Default)]
struct Book {
    codes: VecDeque<Pass>,
    tokens: VecDeque<Pass>,
}

/// The codes and tokens of a site.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<Book>>);

impl Links {
    /// A link for this user: `code` is in it.
    pub fn issue(&self, now: Instant, uid: u32, code: &Token) {
        let until = now.after(CODE_LIFE);
        add(&mut self.book(now).codes, CODES_MAX, Pass { hash: code.hash(), uid, until });
    }

    /// A page that was opened by a link: its code is used up, and `token` is good from now on. Says
    /// whose link it was, or `None` when there is no such code, or not any more.
    pub fn enter(&self, now: Instant, code: &Token, token: &Token) -> Option<u32> {
        let mut book = self.book(now);
        let at = find(&book.codes, code)?;
        let uid = book.codes.remove(at)?.uid;
        let until = now.after(TOKEN_LIFE);
        add(&mut book.tokens, TOKENS_MAX, Pass { hash: token.hash(), uid, until });
        Some(uid)
    }

    /// Whose page this is; `None` when there is no such token, or not any more.
    #[must_use]
    pub fn user(&self, now: Instant, token: &Token) -> Option<u32> {
        let book = self.book(now);
        find(&book.tokens, token).and_then(|at| book.tokens.get(at)).map(|pass| pass.uid)
    }

    /// What is still good.
    fn book(&self, now: Instant) -> MutexGuard<'_, Book> {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.codes.retain(|pass| now < pass.until);
        book.tokens.retain(|pass| now < pass.until);
        book
    }
}

/// At most so many: the oldest gives way.
fn add(passes: &mut VecDeque<Pass>, most: usize, pass: Pass) {
    while passes.len() >= most {
        passes.pop_front();
    }
    passes.push_back(pass);
}

/// Where it is. Every pass is looked at whole, so that time tells nothing of how near a guess was.
fn find(passes: &VecDeque<Pass>, shown: &Token) -> Option<usize> {
    let hash = shown.hash();
    let mut found = None;
    for (at, pass) in passes.iter().enumerate() {
        if bool::from(pass.hash.0.ct_eq(&hash.0)) {
            found = Some(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    fn secret(n: u64) -> Token {
        let mut bytes = [0; 32];
        bytes[24..].copy_from_slice(&n.to_be_bytes());
        Token::new(bytes)
    }

    /// What may have been done with a secret before.
    #[derive(Clone, Copy, Debug)]
    enum State {
        Nothing,
        Code,
        OldCode,
        UsedCode,
        PushedOutCode,
        Token,
        OldToken,
        PushedOutToken,
    }

    /// The moment of the event, and what came before it: secret 1 is what is shown then.
    fn brought_to(state: State) -> (Links, Instant) {
        let (links, one) = (Links::default(), secret(1));
        let enter = |code: u64, token: u64| {
            links.issue(at(0), 1000, &secret(code));
            assert_eq!(links.enter(at(0), &secret(code), &secret(token)), Some(1000));
        };
        match state {
            State::Nothing => {}
            State::Code | State::OldCode => links.issue(at(0), 1000, &one),
            State::UsedCode => enter(1, 2),
            State::PushedOutCode => {
                links.issue(at(0), 1000, &one);
                (0..CODES_MAX as u64).for_each(|n| links.issue(at(0), 0, &secret(100 + n)));
            }
            State::Token | State::OldToken => enter(2, 1),
            State::PushedOutToken => {
                enter(2, 1);
                (0..TOKENS_MAX as u64).for_each(|n| enter(100 + n, 1000 + n));
            }
        }
        let time = match state {
            State::OldCode => CODE_LIFE.as_secs(),
            State::Code => CODE_LIFE.as_secs() - 1,
            State::OldToken => TOKEN_LIFE.as_secs(),
            State::Token => TOKEN_LIFE.as_secs() - 1,
            _ => 1,
        };
        (links, at(time))
    }

    #[test]
    fn every_state_with_every_event() {
        // State, whose it is when it is shown as a code, and when it is shown as a token.
        let table = [
            (State::Nothing, None, None),
            (State::Code, Some(1000), None),
            (State::OldCode, None, None),
            (State::UsedCode, None, None),
            (State::PushedOutCode, None, None),
            (State::Token, None, Some(1000)),
            (State::OldToken, None, None),
            (State::PushedOutToken, None, None),
        ];
        for (state, as_code, as_token) in table {
            let (links, now) = brought_to(state);
            assert_eq!(links.user(now, &secret(1)), as_token, "{state:?} as a token");
            assert_eq!(links.enter(now, &secret(1), &secret(3)), as_code, "{state:?} as a code");
            assert_eq!(links.user(now, &secret(3)), as_code, "{state:?}: the token");
            assert_eq!(links.enter(now, &secret(1), &secret(4)), None, "{state:?}: once");
            assert_eq!(links.user(now, &secret(4)), None, "{state:?}: nothing for nothing");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_restart_ends_it() {
        let links = Links::default();
        for n in 0..1000 {
            links.issue(at(0), 7, &secret(n));
            links.enter(at(0), &secret(n), &secret(10_000 + n));
            links.issue(at(0), 7, &secret(20_000 + n));
        }
        let book = links.book(at(0));
        assert_eq!((book.codes.len(), book.tokens.len()), (CODES_MAX, TOKENS_MAX));
        drop(book);
        let same = links.clone();
        assert_eq!(same.user(at(0), &secret(10_999)), Some(7), "sessions share it");
        assert_eq!(Links::default().user(at(0), &secret(10_999)), None);
        let book = links.book(at(12 * 3600));
        assert_eq!((book.codes.len(), book.tokens.len()), (0, 0), "nothing old is kept");
    }
}
