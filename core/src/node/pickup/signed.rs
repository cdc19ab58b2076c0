//! Signatures: whether the key is good, the time fresh and the nonce new; nonces that are spent, and the
//! share each key has of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::No;
use super::expire::NONCE_AGAIN;
use super::jobs::{Job, Reading};
use super::overlay::{Stop, View};
use crate::id::BatchNo;
use crate::ledger::keys_pickup;
use crate::ledger::keys_upkeep::ExpiryKind;
use crate::ledger::read::ReadRequest;
use crate::ledger::read_scrub::RawRow;
use crate::ledger::rows_pickup::{NodeRow, NonceRow};
use crate::ledger::{Table, codec};
use crate::node::types::Action;
use crate::node::{Asked, Node};
use crate::pickup::{PickupRefusal, Signed};
use crate::time::{Instant, Now, UnixMillis};

/// How far a signature's time may be from the system clock, inclusive.
const FRESH: u64 = 60_000;
/// Nonces counted in one read.
const PAGE: usize = 1_024;

/// How many nonces each key has spent that could still be used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Nonces {
    live: BTreeMap<u64, u64>,
    /// Where counting goes on; `None` when all are counted.
    from: Option<Vec<u8>>,
    /// Whether all are counted: until then none is spent and none removed.
    pub counted: bool,
    reading: bool,
    /// When those are looked for that are over, while nothing else expires.
    pub held_at: Instant,
    pub held_reading: bool,
}

impl Nonces {
    /// What is staged is void, or nothing is known yet: they are counted again.
    pub fn start_over(&mut self) {
        let held_at = self.held_at;
        *self = Nonces { held_at, ..Nonces::default() };
    }

    /// One of this key's is removed.
    pub fn gone(&mut self, key: u64) {
        if let Some(count) = self.live.get_mut(&key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.live.remove(&key);
            }
        }
    }
}

impl Node {
    /// Judges a signature, and spends its nonce when it holds: whatever the answer is.
    pub(super) fn spend_nonce(
        &mut self,
        now: Now,
        signed: &Signed,
        row: Option<NodeRow>,
        seen: Option<NonceRow>,
    ) -> Result<(), No> {
        let good = row.is_some_and(|row| {
            row.revoked_at.is_none() && row.keys.iter().any(|key| key.public == signed.key)
        });
        if !good {
            return Err(unauthorized("the key is not enrolled for this node"));
        }
        let signed_at = signed.timestamp.saturating_mul(1_000);
        let raw = self.raw_now(now);
        if raw.abs_diff(signed_at) > FRESH {
            return Err(unauthorized("the signature is too old, or from the future"));
        }
        if seen.is_some() {
            return Err(unauthorized("the nonce was used before"));
        }
        let key = share(&signed.key);
        let spent = self.pickup.nonces.live.get(&key).copied().unwrap_or(0);
        if spent >= self.config.buffer.nonces_per_key {
            let text = alloc::format!("{spent} signed requests within their time are the most");
            return Err(No::new(PickupRefusal::TooManyNonces, text).after(FRESH / 1_000));
        }
        let until = signed_at.saturating_add(FRESH);
        let place = keys_pickup::nonce(&signed.node, &signed.nonce);
        self.put_row(Table::Nonces, &place, &NonceRow { until, key });
        let left = Duration::from_millis(until.saturating_sub(raw)).saturating_add(NONCE_AGAIN);
        self.expire_at(now.wall.after(left), ExpiryKind::Nonce, &place);
        *self.pickup.nonces.live.entry(key).or_default() += 1;
        Ok(())
    }

    /// As meant before a commit that failed.
    pub(super) fn judge_spend(
        &mut self,
        now: Now,
        job: &Job,
        signed: &Signed,
        view: &View,
    ) -> Result<(), Stop> {
        let (node, nonce) = self.signed_rows(signed, view)?;
        if self.spend_nonce(now, signed, node, nonce).is_ok() {
            self.intend(job);
        }
        Ok(())
    }

    /// The rows that a signature is judged on.
    pub(super) fn signed_rows(
        &self,
        signed: &Signed,
        view: &View,
    ) -> Result<(Option<NodeRow>, Option<NonceRow>), Stop> {
        let node = self.row_of(view, Table::Nodes, &keys_pickup::node(&signed.node))?;
        let nonce = keys_pickup::nonce(&signed.node, &signed.nonce);
        Ok((node, self.row_of(view, Table::Nonces, &nonce)?))
    }

    /// Counts what is spent already, page by page, at the start and after a failed commit.
    pub(super) fn count_nonces(&mut self, out: &mut Vec<Action>) {
        let nonces = &mut self.pickup.nonces;
        if nonces.counted || nonces.reading {
            return;
        }
        nonces.reading = true;
        let from = nonces.from.clone().unwrap_or_default();
        let request =
            ReadRequest::Rows { table: Table::Nonces, from, until: [0xff].into(), limit: PAGE };
        self.ask(Asked::Pickup(Reading::Nonces), request, out);
    }

    pub(super) fn nonces_read(
        &mut self,
        as_of: BatchNo,
        rows: Vec<(RawRow, RawRow)>,
        next: Option<RawRow>,
    ) {
        self.pickup.nonces.reading = false;
        for (key, value) in rows {
            // What was staged in this run is counted where it was staged.
            if self.pickup.overlay.is_newer(Table::Nonces, &key.0, as_of) {
                continue;
            }
            let row = codec::decode::<NonceRow>(Table::Nonces, &key.0, &value.0);
            if let Ok(row) = row {
                *self.pickup.nonces.live.entry(row.key).or_default() += 1;
            }
        }
        self.pickup.nonces.counted = next.is_none();
        self.pickup.nonces.from = next.map(|key| key.0);
        self.more |= !self.pickup.nonces.counted;
    }

    /// While a step of the clock is doubted nothing expires, but nonces must: their share would fill.
    pub(super) fn old_nonces(&mut self, now: Now, after: Option<Vec<u8>>, out: &mut Vec<Action>) {
        self.pickup.nonces.held_reading = true;
        let request = ReadRequest::Expiry {
            after,
            until: now.wall,
            only: Some(ExpiryKind::Nonce),
            limit: PAGE,
        };
        self.ask(Asked::Pickup(Reading::OldNonces), request, out);
    }

    /// When that is done next.
    pub(super) fn held_deadline(&self) -> Option<Instant> {
        let waits = self.clock_held() && !self.pickup.nonces.held_reading && !self.stopping;
        waits.then_some(self.pickup.nonces.held_at)
    }

    /// How far the system clock has come, as effective time counts.
    pub(super) fn nonce_over(&self, now: Now, row: &NonceRow) -> Result<(), UnixMillis> {
        let raw = self.raw_now(now);
        if raw > row.until {
            return Ok(());
        }
        let left = Duration::from_millis(row.until - raw).saturating_add(NONCE_AGAIN);
        Err(now.wall.after(left))
    }
}

fn unauthorized(text: &str) -> No {
    No::new(PickupRefusal::Unauthorized, text)
}

/// What a key's share is counted under.
fn share(key: &[u8; 32]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *key;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
