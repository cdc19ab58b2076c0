//! The window against a ledger that pages: every interleaving of changes, scans and overflow that
//! chance finds must leave exactly the due rows, in order.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::window::{ScanEnd, Through, Window};
use crate::id::{ReadNo, Seq, SiteNo};
use crate::ledger::keys::DueKey;
use crate::ledger::rows::{DeliveryRow, State};
use crate::segment::Class;
use crate::time::UnixMillis;

fn key(at: u8, seq: u16) -> DueKey {
    DueKey {
        peer: SiteNo(1),
        class: Class::Normal,
        at: UnixMillis(at.into()),
        id8: 0,
        seq: Seq(seq.into()),
    }
}

fn row() -> DeliveryRow {
    DeliveryRow {
        state: State::Scheduled,
        attempts: 0,
        spent: 0,
        next_attempt_after: 0,
        last_error: 0,
        since: 0,
        custody: None,
        held: None,
        claimed_at: None,
        refused: 0,
    }
}

/// A ledger without batches: a scan reads when it is answered, so nothing has to be applied on top.
#[derive(Default)]
struct Ledger(BTreeMap<DueKey, ()>);

impl Ledger {
    fn answer(&self, window: &mut Window, read: ReadNo, limit: usize) {
        let start = window.through();
        if window.scan_closed(read) != ScanEnd::Fits {
            return;
        }
        let behind = |k: &&DueKey| start.key().is_none_or(|s| **k > s);
        let rows: Vec<DueKey> = self.0.keys().filter(behind).take(limit).copied().collect();
        let end = self.0.keys().filter(behind).count() == rows.len();
        let through = match (end, rows.last()) {
            (true, _) => Through::End,
            (false, Some(last)) => Through::Key(*last),
            (false, None) => start,
        };
        window.extend(through);
        for key in rows {
            window.insert(key, row());
        }
    }
}

quickcheck! {
    fn everything_due_comes_out_once_and_in_order(ops: Vec<(u8, u8)>) -> bool {
        let (mut window, mut ledger) = (Window::new(4), Ledger::default());
        let mut reads = 0u64;
        let mut seq = 0u16;
        let mut open: Option<(ReadNo, usize)> = None;
        for (op, at) in ops {
            match op % 4 {
                0 | 1 => {
                    seq += 1;
                    ledger.0.insert(key(at, seq), ());
                    window.insert(key(at, seq), row());
                }
                2 => {
                    if let Some((_, limit)) = window.wants_scan(crate::id::BatchNo(0)) {
                        reads += 1;
                        window.scan_opened(ReadNo(reads));
                        open = Some((ReadNo(reads), limit));
                    }
                }
                _ => {
                    if let Some((read, limit)) = open.take() {
                        ledger.answer(&mut window, read, limit);
                    } else if let Some((first, _)) = window.pop() {
                        assert_eq!(Some(&first), ledger.0.keys().next(), "not the first that is due");
                        ledger.0.remove(&first);
                    }
                }
            }
            assert!(window.len() <= 4);
        }
        if let Some((read, limit)) = open.take() {
            ledger.answer(&mut window, read, limit);
        }
        while !ledger.0.is_empty() {
            if let Some((first, _)) = window.pop() {
                assert_eq!(Some(&first), ledger.0.keys().next());
                ledger.0.remove(&first);
                continue;
            }
            let (_, limit) = window.wants_scan(crate::id::BatchNo(0)).expect("rows are left in the ledger");
            reads += 1;
            window.scan_opened(ReadNo(reads));
            ledger.answer(&mut window, ReadNo(reads), limit);
        }
        window.pop().is_none()
    }
}

#[test]
fn an_answer_that_does_not_start_where_the_window_ends_is_discarded() {
    let mut window = Window::new(2);
    window.scan_opened(ReadNo(1));
    assert_eq!(window.scan_closed(ReadNo(1)), ScanEnd::Fits);
    window.extend(Through::Key(key(9, 9)));
    window.insert(key(3, 1), row());
    window.scan_opened(ReadNo(2));
    // Overflow lowers `through` while the scan is under way [W1].
    window.insert(key(1, 2), row());
    assert_eq!(window.insert(key(2, 3), row()), (true, Some(Seq(1))));
    assert_eq!(window.through(), Through::Key(key(2, 3)));
    assert_eq!(window.scan_closed(ReadNo(2)), ScanEnd::Moved);
    assert!(window.wants_scan(crate::id::BatchNo(0)).is_none(), "it is not low");
}

#[test]
fn a_cleared_window_knows_nothing_and_expects_no_answer() {
    let mut window = Window::new(2);
    window.extend(Through::End);
    window.insert(key(1, 1), row());
    window.scan_opened(ReadNo(1));
    window.clear();
    assert_eq!(window.scan_closed(ReadNo(1)), ScanEnd::Foreign, "voided (W2)");
    assert_eq!(window.insert(key(1, 1), row()), (false, None));
    assert_eq!(window.wants_scan(crate::id::BatchNo(0)), Some((Through::Nothing, 2)));
}
