//! Shards, tokens and nonces in a batch, at its end, and at rest.
//!
//! The edges of a shard are written down here a second time (I5), with what must be true when one is
//! taken. Rows in between need not be seen: what becomes NODE_VERIFIED and NODE_STORED in one commit is
//! one step here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consign_core::config::BufferConfig;
use consign_core::id::{BlobNo, BodyNo, Sha256Digest, SiteNo};
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows::{Body, IncomingRow, SHARDS};
use consign_core::ledger::rows_pickup::{ShardRow, ShardState};

use super::Desk;
use super::allowed::Allowed;
use super::batch::Touched;
use super::fetches::Fetches;
use super::rows::Name as Whole;
use super::shards::{Name, Nonce, Row, ended, owns};
use super::violation::{Check, demand};
use crate::sim::time::Micros;

/// A token's row is kept so much longer than its time.
const TOKEN_KEPT: u64 = 24 * 3600 * 1000;

/// What a batch does to shards.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Shards it touches.
    shards: BTreeSet<ShardKey>,
    /// Shards that become NODE_RECEIVING, with their redemption.
    received: Vec<(ShardKey, u64)>,
    /// Tokens that are redeemed: shard and redemption.
    pub redeemed: Vec<(ShardKey, u64)>,
    /// Nonces that are spent.
    pub nonces: Vec<Nonce>,
    /// Bodies that shards let go of.
    pub let_go: Vec<BodyNo>,
    /// The next redemption number before it, if a token is minted.
    pub next: Option<u64>,
    counters: bool,
}

/// What is known of a site's shards beside their rows.
#[derive(Debug, Default)]
pub(super) struct Shards {
    /// The shard whose partial content a file is.
    of: BTreeMap<BlobNo, ShardKey>,
    /// The furthest that content of a shard was ever durable.
    pub reached: BTreeMap<ShardKey, u64>,
    /// Content that was ever durable as that of a shard.
    pub kept: BTreeSet<(ShardKey, Sha256Digest)>,
    /// Redemptions that have ended a shard.
    pub ends: BTreeMap<u64, ShardState>,
    /// Redemption numbers that were ever given.
    pub given: BTreeSet<u64>,
    /// Those whose tokens were used.
    pub used: BTreeSet<u64>,
    /// Nonces that were ever spent.
    pub spent: BTreeSet<Nonce>,
    /// Who may.
    pub allowed: Allowed,
    /// Fetches on the wire.
    pub fetches: Fetches,
    /// When shards have become RELAY_BUFFERED last.
    pub owed_since: BTreeMap<ShardKey, Micros>,
}

impl Shards {
    /// Partial content of a file is durable.
    pub fn arrives(&mut self, blob: BlobNo, row: &IncomingRow) {
        if row.shard.is_some()
            && let Some(shard) = self.of.get(&blob)
        {
            let reached = self.reached.entry(shard.clone()).or_default();
            *reached = (*reached).max(row.offset);
        }
    }
}

/// Whether shards rest on a row.
pub(super) fn is_of_shards(name: &Whole) -> bool {
    match name {
        Whole::Pickup(_) | Whole::Body(_) | Whole::Blob(_) | Whole::Incoming(_) => true,
        Whole::Doomed(_) | Whole::Meta(_) | Whole::Expiry(_) => true,
        Whole::Counter(_, state) => *state >= SHARDS,
        _ => false,
    }
}

pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// Whether an edge leads from one state to another; `None` is no row.
fn is_edge(from: Option<ShardState>, to: Option<ShardState>) -> bool {
    use ShardState as S;
    match (from, to) {
        (None, Some(S::Created | S::Uploading | S::RelayBuffered)) => true,
        (Some(S::Created), Some(S::Created | S::Uploading | S::RelayBuffered)) => true,
        // What was discarded is a slot again, or nothing.
        (Some(S::Uploading), Some(S::Uploading | S::RelayBuffered | S::Created) | None) => true,
        (Some(S::Created | S::Uploading), Some(S::RelayCleanup)) => true,
        (Some(S::RelayBuffered), Some(S::RelayBuffered | S::NodeReceiving)) => true,
        (Some(S::RelayBuffered), Some(S::RelayCleanup)) => true,
        (Some(S::NodeReceiving), Some(S::NodeReceiving | S::RelayBuffered)) => true,
        (Some(S::NodeReceiving), Some(S::NodeVerified | S::NodeStored | S::RelayCleanup)) => true,
        (Some(S::NodeVerified), Some(S::NodeVerified | S::NodeStored | S::RelayBuffered)) => true,
        (Some(S::NodeStored), Some(S::NodeStored) | None) => true,
        // The next generation, or the end of its history.
        (Some(S::RelayCleanup), Some(S::RelayCleanup | S::Uploading | S::RelayBuffered) | None) => {
            true
        }
        (_, _) => false,
    }
}

impl Desk<'_> {
    pub(super) fn put_pickup(&mut self, row: Row, t: &mut Touched) -> Check {
        match &row {
            Row::Shard(shard, row) => self.put_shard(shard, row, t)?,
            Row::ByNode(shard) | Row::Deadline(_, shard) => {
                t.pickup.shards.insert(shard.clone());
            }
            Row::Owner(blob, shard) => {
                t.blobs.push(*blob);
                t.pickup.shards.insert(shard.clone());
            }
            Row::Token(hash, row) => self.put_token(hash, row, t)?,
            Row::Nonce(nonce, row) => self.put_nonce(nonce, row, t)?,
            Row::Node(id, row) => self.site.pickup.allowed.node(self.at, id, row),
            Row::Client(name, row) => self.site.pickup.allowed.client(self.at, name, row),
        }
        self.site.disk.pickup.set(row);
        Ok(())
    }

    pub(super) fn del_pickup(&mut self, name: &Name, t: &mut Touched) -> Check {
        match name {
            Name::Shard(shard) => {
                let old = self.site.disk.pickup.shards.get(shard).cloned();
                if let Some(old) = old {
                    self.site.charged -= i128::from(old.reserved);
                    self.shard_gone(shard, &old, t)?;
                }
                t.pickup.shards.insert(shard.clone());
            }
            Name::ByNode(shard) | Name::Deadline(_, shard) => {
                t.pickup.shards.insert(shard.clone());
            }
            Name::Owner(blob, _) => t.blobs.push(*blob),
            Name::Token(hash) => {
                let until = self.site.disk.pickup.tokens.get(hash).map_or(0, |row| row.expires_at);
                let now = self.site.clock.now.wall.0;
                let over = until.saturating_add(TOKEN_KEPT) <= now || self.site.has_lost_shards();
                demand(over, "I12", None, || {
                    format!("the row of a token goes at {now}, its time ends at {until}")
                })?;
            }
            Name::Nonce(_) | Name::Node(_) | Name::Client(_) => {}
        }
        Ok(())
    }

    fn shard_gone(&mut self, shard: &ShardKey, old: &ShardRow, t: &mut Touched) -> Check {
        t.pickup.counters = true;
        if self.site.has_lost_shards() {
            return Ok(());
        }
        demand(is_edge(Some(old.state), None), "I5", None, || {
            format!("{} is removed in state {}", show(shard), old.state)
        })?;
        let keep = self.site.least(|config| millis(config.buffer.keep_history));
        let (now, until) = (self.site.clock.now.wall.0, old.since.saturating_add(keep));
        demand(!ended(old.state) || until <= now, "I5", None, || {
            format!("the history of {} goes at {now}, and is to be kept until {until}", show(shard))
        })
    }

    fn put_shard(&mut self, shard: &ShardKey, new: &ShardRow, t: &mut Touched) -> Check {
        t.pickup.counters = true;
        t.pickup.shards.insert(shard.clone());
        let old = self.site.disk.pickup.shards.get(shard).cloned();
        let before = old.as_ref().map_or(0, |row| row.reserved);
        self.site.charged += i128::from(new.reserved) - i128::from(before);
        if let Some(Body::Inline(body)) = old.as_ref().and_then(|row| row.buffer)
            && new.buffer.is_none()
        {
            t.pickup.let_go.push(body);
        }
        if let Some(blob) = new.incoming {
            self.site.pickup.of.insert(blob, shard.clone());
            self.site.pickup.reached.entry(shard.clone()).or_default();
        }
        if self.site.has_lost_shards() {
            return Ok(());
        }
        let from = old.as_ref().map(|row| row.state);
        demand(is_edge(from, Some(new.state)), "I5", None, || {
            format!("{} goes from {from:?} to {}", show(shard), new.state)
        })?;
        demand(new.buffer.is_some() == owns(new.state), "I5", None, || {
            format!("{} is {}, its buffer_id is {:?}", show(shard), new.state, new.buffer)
        })?;
        self.same_generation(shard, old.as_ref(), new)?;
        let now = self.site.clock.now.wall.0;
        demand(new.since <= now, "I18", None, || {
            format!("{} is {} since {}, and it is {now}", show(shard), new.state, new.since)
        })?;
        if from == Some(new.state) {
            return Ok(());
        }
        let old = old.as_ref();
        match new.state {
            ShardState::NodeReceiving => {
                t.pickup.received.push((shard.clone(), new.redemption));
                Ok(())
            }
            ShardState::NodeStored | ShardState::NodeVerified => self.may_end(shard, old, new),
            ShardState::RelayCleanup => self.may_give_up(shard, old, new),
            ShardState::RelayBuffered => self.becomes_owed(shard, old, new),
            ShardState::Created | ShardState::Uploading => Ok(()),
        }
    }

    /// What a shard is stays what it is, until an upload begins it anew.
    fn same_generation(&self, shard: &ShardKey, old: Option<&ShardRow>, new: &ShardRow) -> Check {
        let Some(old) = old else {
            return demand(new.generation == 0, "I5", None, || {
                format!("{} begins with generation {}", show(shard), new.generation)
            });
        };
        let anew = old.state == ShardState::RelayCleanup && new.state != ShardState::RelayCleanup;
        let next = old.generation + u64::from(anew);
        demand(new.generation == next, "I5", None, || {
            format!("{} is of generation {} after {}", show(shard), new.generation, old.generation)
        })?;
        if ended(old.state) && !anew {
            let same = ShardRow { token: new.token, ..old.clone() } == *new;
            return demand(same, "I5", None, || {
                format!("{} has ended as {old:?} and becomes {new:?}", show(shard))
            });
        }
        if anew {
            return Ok(());
        }
        let number = new.redemption >= old.redemption && new.failed_acks <= old.failed_acks + 1;
        let content = (old.size, old.sha256, old.blake3) == (new.size, new.sha256, new.blake3);
        let lease = (old.buffered_at, old.expires_at) == (new.buffered_at, new.expires_at);
        let place = old.buffer == new.buffer || new.buffer.is_none();
        let same = !owns(old.state) || (content && lease && place);
        demand(number && same, "I5", None, || format!("{}: {old:?} becomes {new:?}", show(shard)))
    }

    /// Custody moves only to a node that has it, durably and right, and has said so.
    fn may_end(&mut self, shard: &ShardKey, old: Option<&ShardRow>, new: &ShardRow) -> Check {
        let Some(old) = old else { return Ok(()) };
        let redemption = old.redemption;
        let acked = self.world.quay.has_acked(self.ix, redemption, true);
        let has = new.sha256.is_some_and(|sha| self.world.quay.has_stored(self.ix, shard, sha));
        demand(acked && has, "I1", None, || {
            let name = show(shard);
            format!("{name} becomes {}: its node has it: {has}, has said so: {acked}", new.state)
        })?;
        if new.state == ShardState::NodeStored {
            self.world.totals.stored += 1;
            self.site.pickup.ends.insert(redemption, ShardState::NodeStored);
        }
        Ok(())
    }

    /// What a client was promised is given up only when its time is over, or after so many pickups.
    fn may_give_up(&mut self, shard: &ShardKey, old: Option<&ShardRow>, new: &ShardRow) -> Check {
        let Some(old) = old else { return Ok(()) };
        let rules = |of: fn(&BufferConfig) -> u64| self.site.least(|config| of(&config.buffer));
        let grace = rules(|buffer| millis(buffer.upload_grace));
        let pickups = rules(|buffer| u64::from(buffer.max_pickups));
        let over = match old.state {
            ShardState::Created => old.slot_expires_at.is_some_and(|at| at <= new.since),
            ShardState::Uploading => old.progress_at.saturating_add(grace) <= new.since,
            ShardState::RelayBuffered => old.expires_at.is_some_and(|at| at <= new.since),
            ShardState::NodeReceiving => {
                u64::from(new.failed_acks) >= pickups
                    && self.world.quay.has_acked(self.ix, old.redemption, false)
            }
            ShardState::NodeVerified | ShardState::NodeStored | ShardState::RelayCleanup => false,
        };
        if new.loss.is_some() {
            // Only what was destroyed, and not while its node may have it.
            let spoiled = old.state == ShardState::RelayBuffered && self.site.lost_content(old);
            return demand(spoiled, "I1", None, || {
                format!("{} is given up as {:?}: {old:?}", show(shard), new.loss)
            });
        }
        let asked = self.site.acts.contains("pickup_abandon");
        demand(over || asked, "I1", None, || {
            format!("{} is given up at {}: {old:?}", show(shard), new.since)
        })?;
        let clock = &self.site.clock;
        let doubted = clock.doubted_until.is_some_and(|until| clock.now.mono < until);
        let by_time = old.state != ShardState::NodeReceiving;
        demand(!(doubted && by_time) || asked, "I18", None, || {
            format!("{} is given up while the clock is doubted", show(shard))
        })?;
        if old.state == ShardState::NodeReceiving {
            self.site.pickup.ends.insert(old.redemption, ShardState::RelayCleanup);
        }
        if old.state == ShardState::RelayBuffered {
            self.is_notified(shard, old)?;
        }
        Ok(())
    }

    fn becomes_owed(&mut self, shard: &ShardKey, old: Option<&ShardRow>, new: &ShardRow) -> Check {
        self.site.pickup.owed_since.insert(shard.clone(), self.at);
        let was = old.filter(|old| owns(old.state));
        let entries = was.map_or(new.entries, |old| old.entries + 1);
        demand(new.entries == entries, "I5", None, || {
            format!("{} has come back for the {}th time", show(shard), new.entries)
        })?;
        if let Some(old) = was {
            return self.taken_back(shard, old, new);
        }
        let handed = new.sha256.is_some_and(|sha| self.world.quay.was_handed(self.ix, shard, sha));
        demand(handed, "I11", None, || {
            format!("{} is kept as {new:?}, which nobody has handed in", show(shard))
        })?;
        let lease = |ttl: Duration| Some(new.since.saturating_add(millis(ttl)));
        let right = self.site.rules().any(|config| new.expires_at == lease(config.buffer.ttl));
        demand(right, "I18", None, || {
            format!("the lease of {} from {} ends at {:?}", show(shard), new.since, new.expires_at)
        })?;
        self.site.pickup.kept.extend(new.sha256.map(|sha| (shard.clone(), sha)));
        Ok(())
    }

    /// The end of a batch.
    pub(super) fn settle_pickup(&self, t: &Touched) -> Check {
        let moves = &t.pickup;
        if self.site.has_lost_shards() {
            return Ok(());
        }
        for shard in &moves.shards {
            self.shard(shard)?;
        }
        for received in &moves.received {
            demand(moves.redeemed.contains(received), "I12", None, || {
                format!("{} is received under {}, without a token", show(&received.0), received.1)
            })?;
        }
        for (shard, redemption) in &moves.redeemed {
            let is = moves.received.iter().any(|(of, number)| (of, number) == (shard, redemption));
            demand(is, "I12", None, || {
                format!("the token {redemption} of {} is used for nothing", show(shard))
            })?;
            let used = moves.redeemed.iter().filter(|(of, _)| of.node() == shard.node()).count();
            let signed = moves.nonces.iter().filter(|(node, _)| node == shard.node()).count();
            demand(signed >= used, "I12", None, || {
                let node = shard.node();
                format!("{used} tokens of {node} are used on {signed} of its signatures")
            })?;
        }
        if moves.counters {
            for state in ShardState::ALL {
                self.shards_counted((SiteNo(0), SHARDS + state.number()))?;
            }
        }
        Ok(())
    }

    /// A shard, its content and its indexes.
    fn shard(&self, shard: &ShardKey) -> Check {
        let disk = &self.site.disk.pickup;
        let row = disk.shards.get(shard);
        let owed = row.is_some_and(|row| row.state == ShardState::RelayBuffered);
        demand(disk.by_node.contains(shard) == owed, "I5", None, || {
            format!("{} is {:?}, owed by by_node: {}", show(shard), row, !owed)
        })?;
        let mine = disk.deadlines.iter().filter(|(_, of)| of == shard);
        let deadlines: Vec<u64> = mine.map(|(at, _)| *at).collect();
        let deadline = row.map(|row| row.deadline).filter(|at| *at != 0);
        demand(deadlines == Vec::from_iter(deadline), "I5", None, || {
            format!("deadlines of {} are {deadlines:?}, its row says {deadline:?}", show(shard))
        })?;
        let Some(row) = row else { return Ok(()) };
        demand(row.state != ShardState::NodeVerified, "I5", None, || {
            format!("{} is verified and not finished (P3)", show(shard))
        })?;
        demand(ended(row.state) == (row.deadline == 0), "I5", None, || {
            format!("{} is {}, its deadline is {}", show(shard), row.state, row.deadline)
        })?;
        if let Some(blob) = row.incoming {
            let there = self.site.disk.incoming.contains_key(&blob);
            let right = there && row.state == ShardState::Uploading;
            demand(right, "I16", None, || {
                format!("{} arrives in file {blob}, which is not reserved", show(shard))
            })?;
        }
        self.keeps_shard(shard, row)
    }

    /// The content of a shard is durable, byte for byte.
    fn keeps_shard(&self, shard: &ShardKey, row: &ShardRow) -> Check {
        let Some(body) = row.buffer else { return Ok(()) };
        if self.site.lost_content(row) {
            return Ok(());
        }
        let found = match body {
            Body::Inline(body) => {
                self.site.disk.bodies.get(&body).map(|inline| (inline.size, inline.digest))
            }
            Body::Blob(blob) => {
                let owned = self.site.disk.pickup.owners.contains(&(blob, shard.clone()));
                let row = self.site.disk.blobs.contains_key(&blob) && owned;
                self.site.files.get(&blob).copied().filter(|_| row)
            }
        };
        let right =
            found.map(|(size, digest)| (Some(size), Some(digest))) == Some((row.size, row.blake3));
        demand(right, "I11", None, || {
            format!("{} is {row:?}, and on disk is {found:?}", show(shard))
        })
    }

    /// Shards in a state are as many as `counters` says.
    pub(super) fn shards_counted(&self, key: (SiteNo, u8)) -> Check {
        let state = ShardState::from_number(key.1.wrapping_sub(SHARDS));
        let Some(state) = state.filter(|_| !self.site.has_lost_shards()) else { return Ok(()) };
        let disk = &self.site.disk;
        let (count, mut bytes) = disk.pickup.counted(state);
        if state == ShardState::Uploading {
            let partial = disk.incoming.values().filter(|row| row.shard.is_some());
            bytes += partial.map(|row| row.reserved).sum::<u64>();
        }
        let told = disk.counters.get(&key).copied().unwrap_or_default();
        demand((told.count, told.bytes) == (count, bytes), "I10", None, || {
            format!("{state}: {told:?} by the counters, {count} with {bytes} bytes by the rows")
        })
    }

    /// Every shard in a deep check.
    pub(super) fn every_shard(&self) -> Check {
        if self.site.has_lost_shards() {
            return Ok(());
        }
        let disk = &self.site.disk.pickup;
        for (shard, row) in &disk.shards {
            self.shard(shard)?;
            if row.state == ShardState::RelayBuffered {
                self.is_notified(shard, row)?;
            }
        }
        let owners = disk.owners.iter().find(|(blob, shard)| {
            disk.shards.get(shard).is_none_or(|row| row.buffer != Some(Body::Blob(*blob)))
        });
        demand(owners.is_none(), "I16", None, || format!("{owners:?} owns what it does not have"))
    }

    /// At rest everything has come to its end.
    pub(super) fn shards_rest(&self) -> Check {
        if self.site.has_lost_shards() {
            return Ok(());
        }
        // What has come whole is found out by the fetch, and has its end in RELAY_CLEANUP.
        let open = |row: &ShardRow| {
            !ended(row.state) && (row.buffer.is_some() || !self.site.lost_content(row))
        };
        let left = self.site.disk.pickup.shards.iter().find(|(_, row)| open(row));
        demand(left.is_none(), "I28", None, || match left {
            Some((shard, row)) => format!("{} is still {row:?}", show(shard)),
            None => String::new(),
        })
    }
}

/// A shard, for people.
pub(super) fn show(shard: &ShardKey) -> String {
    let (file, version, index) = (shard.file_id(), shard.version(), shard.index());
    format!("shard {file}/{version}/{index} for {}", shard.node())
}
