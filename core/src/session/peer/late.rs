//! When an answer is late: `ack_timeout` after the last byte that asks for it is in the kernel's hands
//! (DESIGN 3.4). What a slow link still holds on this side is nobody's fault.
//!
//! ```text
//!   ask ─▶ Fresh ── the step ends ─▶ Unhanded ── the kernel has it ─▶ Due ── time ─▶ late
//! ```

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::id::TransferNo;
use crate::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Put out by the present step.
    Fresh,
    /// The kernel has it once it has taken so many bytes.
    Unhanded(u64),
    /// Late from then on.
    Due(Instant),
}

/// Answers that are waited for.
#[derive(Clone, Debug)]
pub(super) struct Late {
    timeout: Duration,
    waits: BTreeMap<TransferNo, Wait>,
    fresh: Vec<TransferNo>,
    /// In the order they were put out; entries whose wait has changed since mean nothing.
    unhanded: VecDeque<(u64, TransferNo)>,
    due: BTreeSet<(Instant, TransferNo)>,
    /// Bytes the kernel has.
    handed: u64,
}

impl Late {
    pub(super) fn new(timeout: Duration) -> Late {
        Late {
            timeout,
            waits: BTreeMap::new(),
            fresh: Vec::new(),
            unhanded: VecDeque::new(),
            due: BTreeSet::new(),
            handed: 0,
        }
    }

    /// Once the last byte put out by this step is in the kernel's hands, an answer is due.
    pub(super) fn ask(&mut self, transfer: TransferNo) {
        self.forget(transfer);
        self.waits.insert(transfer, Wait::Fresh);
        self.fresh.push(transfer);
    }

    /// From now on an answer is due.
    pub(super) fn begin(&mut self, now: Instant, transfer: TransferNo) {
        self.forget(transfer);
        let at = now.after(self.timeout);
        self.waits.insert(transfer, Wait::Due(at));
        self.due.insert((at, transfer));
    }

    /// No answer is due any more.
    pub(super) fn forget(&mut self, transfer: TransferNo) {
        if let Some(Wait::Due(at)) = self.waits.remove(&transfer) {
            self.due.remove(&(at, transfer));
        }
    }

    /// A step has ended; `said` bytes have been put out so far.
    pub(super) fn put_out(&mut self, said: u64) {
        for transfer in self.fresh.drain(..) {
            if let Some(wait @ Wait::Fresh) = self.waits.get_mut(&transfer) {
                *wait = Wait::Unhanded(said);
                self.unhanded.push_back((said, transfer));
            }
        }
    }

    /// The first `bytes` of what was put out are in the kernel's hands.
    /// Whether that is more than before.
    pub(super) fn handed(&mut self, now: Instant, bytes: u64) -> bool {
        while let Some((at, transfer)) = self.unhanded.front().copied().filter(|u| u.0 <= bytes) {
            self.unhanded.pop_front();
            if self.waits.get(&transfer) == Some(&Wait::Unhanded(at)) {
                self.begin(now, transfer);
            }
        }
        let more = bytes > self.handed;
        self.handed = self.handed.max(bytes);
        more
    }

    /// Whether something waits for the kernel.
    pub(super) fn is_held_up(&self) -> bool {
        !self.unhanded.is_empty()
    }

    /// The answer that is late first.
    pub(super) fn first(&self) -> Option<(Instant, TransferNo)> {
        self.due.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn late() -> Late {
        Late::new(Duration::from_secs(2))
    }

    #[test]
    fn time_runs_from_when_the_kernel_has_the_last_byte() {
        let mut late = late();
        let (one, two) = (TransferNo(1), TransferNo(2));
        late.ask(one);
        late.put_out(100);
        late.ask(two);
        late.put_out(250);
        assert!(late.is_held_up() && late.first().is_none());
        late.handed(Instant(5 * S), 249);
        assert_eq!(late.first(), Some((Instant(7 * S), one)));
        late.handed(Instant(6 * S), 250);
        assert!(!late.is_held_up());
        late.forget(one);
        assert_eq!(late.first(), Some((Instant(8 * S), two)));
    }

    #[test]
    fn what_is_answered_or_asked_again_before_does_not_count() {
        let mut late = late();
        let (one, two) = (TransferNo(1), TransferNo(2));
        late.ask(one);
        late.forget(one);
        late.ask(two);
        late.put_out(10);
        late.ask(two);
        late.put_out(20);
        late.handed(Instant(S), 10);
        assert_eq!(late.first(), None);
        late.handed(Instant(2 * S), 20);
        assert_eq!(late.first(), Some((Instant(4 * S), two)));
        late.begin(Instant(9 * S), two);
        assert_eq!(late.first(), Some((Instant(11 * S), two)));
    }
}
