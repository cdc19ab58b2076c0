//! Which small worlds are tried out, and how far: in every run of the tests, and when there is
//! time.
//!
//! | | operations | crashes | another choice than the next | grain |
//! |---|---|---|---|---|
//! | always | 1, but no file | at any point, 1 | every | coarse |
//! | | 1 | at any point, 1 | up to 3 | coarse |
//! | | 2 | at any point, 1 | none | coarse |
//! | | 2 | those of the workload | up to 2 | coarse |
//! | | 3 | those of the workload | none | coarse |
//! | full | 1 | at any point, 1 | every | coarse |
//! | | 1, but no file | at any point, 1 | up to 2 | fine |
//! | | 1 | at any point, 2 | up to 1 | coarse |
//! | | 2, but no file | those of the workload | every | coarse |
//! | | 2 | at any point, 1 | up to 1 | coarse |
//! | | 3 | at any point, 1 | none | coarse |
//! | | 3 | those of the workload | up to 2 | coarse |
//!
//! "Another choice than the next" counts how often something else happens than what would if
//! nothing raced: another site moves first, an answer is overtaken, the next operation begins
//! early. Where it says *every*, nothing is left out but what follows; every other line leaves out
//! the rest, because there are too many of them.
//!
//! The auditor looks on where one path to each end is walked again, but for the lines of two
//! operations with a crash, which have too many ends; the checker of small worlds sees every step
//! of every path.
//!
//! Left out everywhere: time passes only when nothing else can happen, and at most once before the
//! world is run to its rest without further faults. Everything on its way in one direction arrives
//! together, or, if there is more of it than a checkpoint, its first half. The store does what a
//! connection asks of it in order. The coarse grain answers all reads of a site together, and lets
//! commits and what a node tells its sessions be heard of at once; in the fine grain these are
//! steps of their own, in any order.

use super::explore::Bounds;
use super::ops::{Op, What, workloads};
use super::world::Rules;

/// Workloads of one length, explored under the same bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In words.
    pub name: &'static str,
    /// Operations of a workload.
    pub len: usize,
    /// Whether files are among them.
    pub files: bool,
    /// How far each is explored.
    pub bounds: Bounds,
}

impl Plan {
    const fn new(name: &'static str, len: usize, crashes: u8, turns: Option<u32>) -> Plan {
        let rules = Rules { fine: false, crashes, waits: 1, plant: None };
        Plan { name, len, files: true, bounds: Bounds { rules, turns, cold: false, audited: true } }
    }

    /// The auditor does not look on: there are too many ends.
    const fn unaudited(mut self) -> Plan {
        self.bounds.audited = false;
        self
    }

    const fn without_files(self) -> Plan {
        Plan { files: false, ..self }
    }

    const fn fine(mut self) -> Plan {
        self.bounds.rules.fine = true;
        self
    }

    /// Its workloads.
    #[must_use]
    pub fn workloads(&self) -> Vec<Vec<Op>> {
        let file = |op: &Op| matches!(op, Op::Send(_, What::File | What::FileTwin));
        let ops: Vec<Op> = Op::ALL.into_iter().filter(|op| self.files || !file(op)).collect();
        workloads(&ops, self.len)
    }
}

/// What every run of the tests explores.
pub const ALWAYS: [Plan; 5] = [
    Plan::new("1 operation, every order, 1 crash, no file", 1, 1, None).without_files(),
    Plan::new("1 operation, 3 turns, 1 crash", 1, 1, Some(3)),
    Plan::new("2 operations, no turn, 1 crash", 2, 1, Some(0)).unaudited(),
    Plan::new("2 operations, 2 turns", 2, 0, Some(2)),
    Plan::new("3 operations, no turn", 3, 0, Some(0)),
];

/// What is explored when there is time.
pub const FULL: [Plan; 7] = [
    Plan::new("1 operation, every order, 1 crash", 1, 1, None),
    Plan::new("1 operation, 2 turns, 1 crash, fine, no file", 1, 1, Some(2)).without_files().fine(),
    Plan::new("1 operation, 1 turn, 2 crashes", 1, 2, Some(1)),
    Plan::new("2 operations, every order, no file", 2, 0, None).without_files(),
    Plan::new("2 operations, 1 turn, 1 crash", 2, 1, Some(1)).unaudited(),
    Plan::new("3 operations, no turn, 1 crash", 3, 1, Some(0)),
    Plan::new("3 operations, 2 turns", 3, 0, Some(2)),
];
