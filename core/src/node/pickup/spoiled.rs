//! The content of shards compared with its digests: the second half of each pass of the scrub, and out of
//! turn what a fetch could not read. A shard whose content is wrong is given up alone, so that its client
//! sees it and brings it again; its file is set aside.
//!
//! In transit the node has the last word, for it may have the shard whole: what is found wrong then is looked
//! at again when it comes back.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::jobs::{Job, Reading};
use super::operator::name_of;
use super::overlay::{Stop, View};
use super::task::Task;
use crate::id::{ConnId, Seq};
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::read::ReadRequest;
use crate::ledger::read_scrub::{RawRow, ScrubItem};
use crate::ledger::rows::{Body, Loss, PlaceRow};
use crate::ledger::rows_pickup::{ShardRow, ShardState};
use crate::ledger::{Table, codec};
use crate::node::remove::Act;
use crate::node::tally::Tally;
use crate::node::types::{Action, Note};
use crate::node::{Asked, Node};
use crate::pickup::state::ShardEvent;
use crate::store::ScrubFault;
use crate::time::Now;

/// Shards of one page, and bytes after which no more is taken.
const PAGE: usize = 64;
const PAGE_BYTES: u64 = 8 << 20;
/// Shards that are doubted at a time; any more are found by the next pass.
const DOUBTED: usize = 1_024;
/// The first number that a shard is given: no segment has one so high.
const NUMBERS: u64 = 1 << 63;
/// Behind every key: file ids are ASCII.
const END: u8 = 0xff;

/// Where the scrub stands in the content of shards.
#[derive(Clone, Debug, Default)]
pub(in crate::node) struct ShardScrub {
    /// The last key that was looked at in this pass; empty at the beginning.
    after: Vec<u8>,
    /// The one that was written down, and how many were in this pass.
    kept: PlaceRow,
    /// The end of the page that is being looked at, and whether that is the end of the pass.
    page_end: (Vec<u8>, bool),
    /// What the store looks at, by the number that it was given.
    page: BTreeMap<Seq, (ShardKey, Body)>,
    numbers: u64,
    /// To be looked at before everything else.
    suspects: BTreeSet<ShardKey>,
    /// In transit, and found wrong.
    doubted: BTreeSet<ShardKey>,
}

impl ShardScrub {
    /// Where an earlier process has left off.
    pub fn from(after: Vec<u8>) -> ShardScrub {
        let kept = PlaceRow { value: 1, key: after.clone() };
        let kept = if after.is_empty() { PlaceRow::default() } else { kept };
        ShardScrub { after, kept, ..ShardScrub::default() }
    }

    /// A pass comes to shards.
    pub fn begin(&mut self) {
        self.after.clear();
        self.page.clear();
    }

    /// What is to be written down of where it is, if that is other than what was.
    pub fn keep(&mut self) -> Option<PlaceRow> {
        if self.kept.key == self.after {
            return None;
        }
        let value = if self.after.is_empty() { 0 } else { self.kept.value.saturating_add(1) };
        self.kept = PlaceRow { value, key: self.after.clone() };
        Some(self.kept.clone())
    }

    /// Whatever was asked is void. `page` holds suspects: they are to be looked at all the same.
    pub fn again(&mut self, suspects: bool) {
        let page = core::mem::take(&mut self.page);
        if suspects {
            page.into_values().for_each(|(shard, _)| self.suspect(shard));
        }
        self.after.clone_from(&self.kept.key);
    }

    /// A page is done; whether it was the last.
    pub fn advance(&mut self) -> bool {
        let (through, end) = core::mem::take(&mut self.page_end);
        self.after = if end { Vec::new() } else { through };
        end
    }

    pub fn is_suspicious(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Something was wrong with its content when it was read.
    pub fn suspect(&mut self, shard: ShardKey) {
        if self.suspects.len() < DOUBTED {
            self.suspects.insert(shard);
        }
    }

    /// A shard has left NODE_RECEIVING.
    pub fn moved_on(&mut self, shard: &ShardKey, to: ShardState) {
        if to != ShardState::NodeReceiving
            && self.doubted.remove(shard)
            && to == ShardState::RelayBuffered
        {
            self.suspect(shard.clone());
        }
    }

    /// What is to be looked at of a shard, if the bytes are here.
    fn item(&mut self, shard: ShardKey, row: &ShardRow) -> Option<ScrubItem> {
        let (body, size, digest) = (row.buffer?, row.size?, row.blake3?);
        let seq = Seq(NUMBERS.saturating_add(self.numbers));
        self.numbers += 1;
        self.page.insert(seq, (shard, body));
        Some(ScrubItem { seq, body, size, digest })
    }
}

impl Node {
    /// Whether there is content of shards.
    pub(in crate::node) fn has_shards(&self) -> bool {
        let here = [ShardState::RelayBuffered, ShardState::NodeReceiving];
        here.into_iter().any(|state| self.stage.shards_durable(state).count > 0)
    }

    /// Asks for the next page of shards.
    pub(in crate::node) fn ask_shards(&mut self, out: &mut Vec<Action>) {
        let mut from = self.scrub.shards.after.clone();
        if !from.is_empty() {
            from.push(0);
        }
        let (table, until) = (Table::Shards, vec![END]);
        let request = ReadRequest::Rows { table, from, until, limit: PAGE };
        self.ask(Asked::Pickup(Reading::Scrub), request, out);
    }

    /// Asks for the shards that are doubted.
    pub(in crate::node) fn ask_suspects(&mut self, out: &mut Vec<Action>) {
        let mut shards: Vec<ShardKey> = Vec::new();
        while shards.len() < PAGE
            && let Some(shard) = self.scrub.shards.suspects.pop_first()
        {
            shards.push(shard);
        }
        let places = shards.iter().map(|shard| (Table::Shards, shard.key().to_vec())).collect();
        let request = ReadRequest::Raw(places);
        self.ask(Asked::Pickup(Reading::Suspects(shards)), request, out);
    }

    pub(super) fn shards_to_scrub(
        &mut self,
        now: Now,
        rows: Vec<(RawRow, RawRow)>,
        next: Option<RawRow>,
        out: &mut Vec<Action>,
    ) {
        let (mut items, mut bytes, mut whole) = (Vec::new(), 0u64, true);
        let shards = &mut self.scrub.shards;
        let mut through = shards.after.clone();
        for (RawRow(key), RawRow(value)) in rows {
            if bytes >= PAGE_BYTES {
                whole = false;
                break;
            }
            // What cannot be read is set aside by whoever needs it.
            let row: Option<ShardRow> = codec::decode(Table::Shards, &key, &value).ok();
            let item = ShardKey::parse(&key).zip(row).and_then(|(s, row)| shards.item(s, &row));
            bytes = bytes.saturating_add(item.map_or(0, |item| item.size));
            items.extend(item);
            through = key;
        }
        shards.page_end = (through, whole && next.is_none_or(|next| next.0 >= vec![END]));
        self.hand_to_scrub(now, items, out);
    }

    pub(super) fn suspects_read(
        &mut self,
        now: Now,
        shards: Vec<ShardKey>,
        rows: Vec<Option<RawRow>>,
        out: &mut Vec<Action>,
    ) {
        let mut items = Vec::new();
        for (shard, row) in shards.into_iter().zip(rows) {
            let Some(RawRow(value)) = row else { continue };
            let row: Option<ShardRow> = codec::decode(Table::Shards, &shard.key(), &value).ok();
            items.extend(row.and_then(|row| self.scrub.shards.item(shard, &row)));
        }
        self.hand_to_scrub(now, items, out);
    }

    /// The store has looked at shards.
    pub(in crate::node) fn shards_scrubbed(&mut self, bad: Vec<(Seq, ScrubFault)>) {
        let mut page = core::mem::take(&mut self.scrub.shards.page);
        for (seq, fault) in bad {
            let Some((shard, body)) = page.remove(&seq) else { continue };
            let loss = match fault {
                ScrubFault::Corrupt => Loss::Doubted,
                ScrubFault::Missing => Loss::Gone,
            };
            self.pickup_job(ConnId::default(), Task::Spoiled { shard, body, loss });
            self.more = true;
        }
    }

    /// RELAY_CLEANUP, if it still has that content and its node is not at it.
    pub(super) fn judge_spoiled(
        &mut self,
        now: Now,
        job: &Job,
        (shard, body, loss): (&ShardKey, Body, Loss),
        view: &View,
    ) -> Result<(), Stop> {
        let row: Option<ShardRow> = self.row_of(view, Table::Shards, &shard.key())?;
        let Some(row) = row.filter(|row| row.buffer == Some(body)) else { return Ok(()) };
        if row.state != ShardState::RelayBuffered {
            let doubted = &mut self.scrub.shards.doubted;
            if doubted.len() < DOUBTED {
                doubted.insert(shard.clone());
            }
            return Ok(());
        }
        self.intend(job);
        let reason = loss.cause().word();
        let after = ShardRow { loss: Some(loss), reason: reason.to_string(), ..row.clone() };
        self.clean_up(now, shard, &row, after, ShardEvent::Spoiled);
        let subject = name_of(shard);
        let text =
            format!("content of shard {subject} is {reason}: given up, to be uploaded again");
        self.stage.note(Note::Warn { code: "shard_spoiled", text });
        self.stage.tally(Tally::Spoiled(loss));
        let (count, bytes) = (1, row.size.unwrap_or(0));
        let action = "pickup_spoiled";
        self.audit(now, Act { action, subject, reason, count, bytes, ..Act::default() });
        Ok(())
    }
}
