//! PINGs that somebody asked for, and how long the peer took to answer.

use core::time::Duration;

use crate::time::Instant;

/// Least time between two PINGs: peers end sessions with more than ten a second.
const APART: Duration = Duration::from_millis(250);
/// Begins the payload, and makes it longer than those of signs of life.
const MARK: &[u8; 8] = b"operator";

/// What to do about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Send a PING with this payload.
    Send([u8; 16]),
    /// One is out: its answer is this one's, too.
    Wait,
    /// One was answered a moment ago, after so many microseconds.
    Known(u64),
}

/// The PINGs of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe {
    sent: u64,
    /// When the last one left; its answer is still to come.
    out: Option<Instant>,
    /// When the last one left that was answered, and after how many microseconds.
    last: Option<(Instant, u64)>,
}

impl Probe {
    pub(super) fn ask(&mut self, now: Instant) -> Ask {
        if self.out.is_some() {
            return Ask::Wait;
        }
        if let Some((_, micros)) = self.last.filter(|(at, _)| now < at.after(APART)) {
            return Ask::Known(micros);
        }
        self.sent = self.sent.wrapping_add(1);
        self.out = Some(now);
        Ask::Send(payload(self.sent))
    }

    /// After how many microseconds the peer answered, if this is the answer that is waited for.
    pub(super) fn pong(&mut self, now: Instant, answer: &[u8]) -> Option<u64> {
        let at = self.out.filter(|_| answer == payload(self.sent))?;
        let micros = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
        (self.out, self.last) = (None, Some((at, micros)));
        Some(micros)
    }
}

fn payload(number: u64) -> [u8; 16] {
    let mut payload = [0; 16];
    let (mark, rest) = payload.split_at_mut(MARK.len());
    mark.copy_from_slice(MARK);
    rest.copy_from_slice(&number.to_be_bytes());
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_out_at_a_time_and_only_its_own_answer_counts() {
        let mut probe = Probe::default();
        let at = |ms: u64| Instant::ZERO.after(Duration::from_millis(ms));
        let Ask::Send(first) = probe.ask(at(1_000)) else { panic!("none is out") };
        assert_eq!(probe.ask(at(1_010)), Ask::Wait);
        assert_eq!(probe.pong(at(1_020), &1_u64.to_be_bytes()), None, "of a sign of life");
        assert_eq!(probe.pong(at(1_030), &first), Some(30_000));
        assert_eq!(probe.pong(at(1_031), &first), None, "answered before");
        // However often is asked, a peer hears of at most four a second.
        assert_eq!(probe.ask(at(1_249)), Ask::Known(30_000));
        let Ask::Send(second) = probe.ask(at(1_250)) else { panic!("long enough ago") };
        assert_ne!(first, second);
        assert_eq!(probe.pong(at(1_251), &first), None, "of the one before");
        assert_eq!(probe.pong(at(1_251), &second), Some(1_000));
    }
}
