//! Sites that knocked and are not known: signed by an authority that is believed here, but not among the peers, or with
//! another pin. A bounded list in memory, for an operator who may want to let one in.
//!
//! Nobody else gets into it: whoever has no certificate of ours can make up as many as he likes. Even so a certificate
//! is public; that its key was there, too, is proved only to those who are let in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::identity::{Rules, Unwelcome};

/// Most that are kept; the one that has not knocked for longest makes way.
pub const MOST: usize = 64;

/// A site that knocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The name in its certificate.
    pub name: String,
    /// SHA-256 of its certificate.
    pub fingerprint: [u8; 32],
    /// Stable code of why it was turned away: CN0305 or CN0307.
    pub code: &'static str,
    /// When it knocked first, in seconds since the Unix epoch.
    pub first: i64,
    /// When it knocked last.
    pub last: i64,
    /// How often.
    pub knocks: u64,
}

/// The list, shared by handshakes and whoever shows it.
#[derive(Clone, Debug, Default)]
pub struct Strangers(Arc<Mutex<VecDeque<Stranger>>>);

impl Strangers {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Stranger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody whom an authority of ours has signed was turned away.
    pub(super) fn knocked(&self, why: &Unwelcome, fingerprint: [u8; 32], now: i64) {
        let (Unwelcome::Unknown(name) | Unwelcome::Pin { name, .. }) = why else { return };
        let mut list = self.lock();
        let same = |s: &Stranger| s.name == *name && s.fingerprint == fingerprint;
        let before = list.iter().position(same).and_then(|at| list.remove(at));
        let first = before.as_ref().map_or(now, |stranger| stranger.first);
        let knocks = before.map_or(0, |stranger| stranger.knocks).saturating_add(1);
        list.truncate(MOST - 1);
        let (name, code) = (name.clone(), why.code());
        list.push_front(Stranger { name, fingerprint, code, first, last: now, knocks });
    }

    /// Other rules hold from now on: whom they let in is no stranger any more.
    pub(super) fn judged_by(&self, rules: &Rules) {
        self.lock().retain(|stranger| !rules.know(&stranger.name, &stranger.fingerprint));
    }

    /// All of them, who knocked last first.
    #[must_use]
    pub fn list(&self) -> Vec<Stranger> {
        self.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(name: &str) -> Unwelcome {
        Unwelcome::Unknown(name.into())
    }

    #[test]
    fn who_knocked_last_is_first_and_the_list_stays_short() {
        let strangers = Strangers::default();
        strangers.knocked(&unknown("a"), [1; 32], 10);
        strangers.knocked(&unknown("b"), [2; 32], 20);
        strangers.knocked(&unknown("a"), [1; 32], 30);
        strangers.knocked(&Unwelcome::Ourselves("me".into()), [3; 32], 40);
        let list = strangers.list();
        let seen: Vec<_> =
            list.iter().map(|s| (s.name.as_str(), s.first, s.last, s.knocks)).collect();
        assert_eq!(seen, [("a", 10, 30, 2), ("b", 20, 20, 1)]);
        assert_eq!(list[0].code, "CN0305");
        for number in 0..200_u8 {
            strangers.knocked(&unknown("many"), [number; 32], 50);
        }
        let list = strangers.list();
        assert_eq!((list.len(), list[0].fingerprint), (MOST, [199; 32]));
        assert!(!list.iter().any(|s| s.name == "a"), "the oldest made way");
    }
}
