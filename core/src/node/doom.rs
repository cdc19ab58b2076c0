//! Content files that are to go: charged until they are gone (B5).

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use super::stage::Intent;
use super::types::{Action, Note};
use super::{Mode, Node};
use crate::id::{BlobNo, SiteNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::rows::DoomedRow;
use crate::plant::Plant;
use crate::store::{Errand, StoreFault};
use crate::time::Instant;

/// How long a file that could not be removed is left alone.
const UNLINK_AGAIN: Duration = Duration::from_secs(60);

impl Node {
    /// A content file is to be unlinked once this batch is durable; it stays charged until it is gone.
    pub(super) fn doom(&mut self, blob: BlobNo, row: DoomedRow) {
        if !self.config.planted(Plant::B5) {
            self.stage.batch.put(Table::Doomed, &keys::blob(blob), &row);
        }
        self.incoming.doomed.insert(blob, row);
        self.incoming.unlinks.push_back((self.stage.number(), blob));
    }

    /// Bytes of files that are still to be unlinked.
    pub(super) fn doomed_bytes(&self) -> u64 {
        self.incoming.doomed.values().map(|row| row.size).fold(0, u64::saturating_add)
    }

    /// When a file that could not be removed is tried again.
    pub(super) fn stuck_deadline(&self) -> Option<Instant> {
        self.incoming.stuck.front().map(|(at, _)| *at)
    }

    /// Files whose doom is durable are removed.
    pub(super) fn unlink(&mut self, out: &mut Vec<Action>) {
        while self.stuck_deadline().is_some_and(|at| at <= self.now.mono) {
            let Some((_, blob)) = self.incoming.stuck.pop_front() else { break };
            out.push(Action::Errand(self.away(blob)));
        }
        let committed = self.gate.committed();
        let early = self.config.planted(Plant::EvictBeforeRecord);
        while self.incoming.unlinks.front().is_some_and(|(at, _)| early || *at <= committed) {
            let Some((_, blob)) = self.incoming.unlinks.pop_front() else { return };
            out.push(Action::Errand(self.away(blob)));
        }
    }

    /// How its file leaves its place.
    fn away(&self, blob: BlobNo) -> Errand {
        let row = self.incoming.doomed.get(&blob);
        match row.and_then(|row| row.aside) {
            Some(true) => Errand::SetAside(blob),
            Some(false) | None => Errand::Unlink(blob),
        }
    }

    pub(super) fn unlinked(
        &mut self,
        blob: BlobNo,
        result: Result<(), StoreFault>,
        out: &mut Vec<Action>,
    ) {
        match result {
            Ok(()) if matches!(self.mode, Mode::Rejudge(_)) || !self.stage.room(2) => {
                // Its row stays for a moment; unlinking again does no harm.
                self.incoming.unlinks.push_back((self.stage.number(), blob));
            }
            Ok(()) => {
                self.stage.intend(Intent::Gone { blob });
                self.drop_doomed(blob);
                self.summary.doomed += 1;
            }
            Err(fault) => {
                // Its row stays, and its bytes stay charged, until it is gone.
                self.incoming.stuck.push_back((self.now.mono.after(UNLINK_AGAIN), blob));
                out.push(Action::Note(Note::Warn {
                    code: "unlink_failed",
                    text: format!("content file {blob} could not be removed: {fault}"),
                }));
            }
        }
    }

    pub(super) fn drop_doomed(&mut self, blob: BlobNo) {
        let Some(row) = self.incoming.doomed.remove(&blob) else { return };
        self.stage.batch.del(Table::Doomed, &keys::blob(blob));
        if !self.config.planted(Plant::QuotaKept) {
            self.stage.uncharge(SiteNo(row.owner), row.size);
        }
    }
}
