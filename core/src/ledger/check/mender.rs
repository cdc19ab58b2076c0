//! Operations of findings, gathered into batches.

use alloc::vec::Vec;
use core::mem;

use super::{Finding, Fix};
use crate::id::BatchNo;
use crate::ledger::Table;
use crate::ledger::rows::{MetaName, MetaRow};
use crate::limits::{BATCH_BYTES, BATCH_ROWS};
use crate::store::Batch;

/// Gathers what mends into batches that bear their numbers. All operations of one finding are in the
/// same batch, and batches are to be committed in the order in which they come.
#[derive(Debug)]
pub struct Mender {
    batch: Batch,
}

impl Mender {
    /// Begins behind the last batch that was committed.
    #[must_use]
    pub fn after(last: BatchNo) -> Mender {
        Mender { batch: Batch::new(BatchNo(last.0.saturating_add(1))) }
    }

    /// Takes the operations of a finding; a batch that is to be committed before it goes on.
    #[must_use = "the batch is to be committed"]
    pub fn add(&mut self, finding: &Finding) -> Option<Batch> {
        self.add_all(&finding.fixes)
    }

    /// Takes operations that belong together.
    #[must_use = "the batch is to be committed"]
    pub fn add_all(&mut self, fixes: &[Fix]) -> Option<Batch> {
        let bytes: usize = fixes.iter().map(Fix::bytes).sum();
        let fits = self.batch.rows() + fixes.len() < BATCH_ROWS
            && self.batch.bytes() + bytes < BATCH_BYTES;
        let full = if fits { None } else { self.take() };
        for fix in fixes {
            fix.stage(&mut self.batch);
        }
        full
    }

    /// What has gathered, if anything has.
    #[must_use = "the batch is to be committed"]
    pub fn take(&mut self) -> Option<Batch> {
        if self.batch.is_empty() {
            return None;
        }
        let number = self.batch.number;
        let next = Batch::new(BatchNo(number.0.saturating_add(1)));
        let mut batch = mem::replace(&mut self.batch, next);
        batch.put(Table::Meta, MetaName::Batch.key(), &MetaRow { value: number.0 });
        Some(batch)
    }
}

impl Fix {
    fn bytes(&self) -> usize {
        let len = Vec::len;
        match self {
            Fix::Put { key, value, .. } => len(key) + len(value),
            Fix::Del { key, .. } => len(key),
        }
    }
}
