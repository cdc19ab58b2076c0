//! Everything the node keeps in memory, read at its start and after a commit that found no space.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use minicbor::Decode;

use super::Table;
use super::keys;
use super::read::{Answer, InflightFound, decode, pair, row};
use super::rows::{
    CounterRow, DeliveryRow, DoomedRow, IncomingRow, InflightRow, MetaName, MetaRow, PeerRow,
    PlaceRow, SegmentRow, counts_held,
};
use super::rows_pickup::ClientRow;
use crate::id::{BlobNo, Seq, SiteNo};
use crate::store::{Snapshot, Space, StoreFault};

/// Everything the node keeps in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Recovery {
    /// Counters of `meta`; missing ones are 0.
    pub meta: Vec<(MetaName, u64)>,
    /// Peers by number.
    pub peers: Vec<(SiteNo, PeerRow)>,
    /// Counters by (site, state number).
    pub counters: Vec<(SiteNo, u8, CounterRow)>,
    /// Deliveries in flight.
    pub inflight: Vec<InflightFound>,
    /// Files to be removed.
    pub doomed: Vec<(BlobNo, DoomedRow)>,
    /// Content being received.
    pub incoming: Vec<(BlobNo, IncomingRow)>,
    /// How many rows are in quarantine.
    #[cfg_attr(feature = "serde", serde(default))]
    pub quarantined: u64,
    /// Clients of pickup by name.
    #[cfg_attr(feature = "serde", serde(default))]
    pub clients: Vec<(String, ClientRow)>,
    /// Where the scrub is among shards; empty when it is not.
    #[cfg_attr(feature = "serde", serde(default, with = "crate::hexed::bytes"))]
    pub scrub_shard: Vec<u8>,
    /// The disk at the start; `None` where nobody has looked.
    #[cfg_attr(feature = "serde", serde(default))]
    pub space: Option<Space>,
}

/// Everything the node keeps in memory.
///
/// # Errors
/// When the store cannot be read, or one of these rows is corrupt.
pub fn recovery(snapshot: &dyn Snapshot) -> Result<Recovery, StoreFault> {
    let mut all = Recovery::default();
    for name in MetaName::ALL {
        let row: Option<MetaRow> = row(snapshot, Table::Meta, name.key())?;
        all.meta.push((name, row.map_or(0, |r| r.value)));
    }
    let place: Option<PlaceRow> = row(snapshot, Table::Meta, MetaName::ScrubShard.key())?;
    all.scrub_shard = place.unwrap_or_default().key;
    each(snapshot, Table::Peers, &mut |key, row: PeerRow| {
        if let Ok(number) = <[u8; 4]>::try_from(key) {
            all.peers.push((SiteNo(u32::from_be_bytes(number)), row));
        }
    })?;
    each(snapshot, Table::Counters, &mut |key, row: CounterRow| {
        let mut rest = key;
        if let (Some(site), [state]) = (keys::take(&mut rest), rest) {
            all.counters.push((SiteNo(u32::from_be_bytes(site)), *state, row));
        }
    })?;
    if all.meta_value(MetaName::HeldCounted) == 0 {
        count_held(snapshot, &mut all.counters)?;
    }
    each(snapshot, Table::Inflight, &mut |key, epoch: InflightRow| {
        if let Some((peer, seq)) = keys::parse_peer_seq(key) {
            all.inflight.push(InflightFound { peer, seq, epoch, rows: None });
        }
    })?;
    for found in &mut all.inflight {
        found.rows = pair(snapshot, found.seq, found.peer)?;
    }
    each(snapshot, Table::Doomed, &mut |key, row: DoomedRow| {
        all.doomed.extend(keys::parse_u64(key).map(|n| (BlobNo(n), row)));
    })?;
    each(snapshot, Table::Incoming, &mut |key, row: IncomingRow| {
        all.incoming.extend(keys::parse_u64(key).map(|n| (BlobNo(n), row.clone())));
    })?;
    snapshot.scan(Table::Clients, &[], &mut |key, value| {
        // One that cannot be read is no client; `fsck` tells of it.
        let row = decode::<ClientRow>(Table::Clients, key, value).ok();
        let name = core::str::from_utf8(key).ok();
        all.clients.extend(name.zip(row).map(|(name, row)| (name.to_string(), row)));
        true
    })?;
    snapshot.scan(Table::Quarantine, &[], &mut |_, _| {
        all.quarantined += 1;
        true
    })?;
    Ok(all)
}

/// What an operator holds, in a ledger of a node that did not count it yet: every delivery is looked at, once,
/// since the first batch that is committed makes the counters rows. What cannot be read is not counted; `fsck` tells of it.
fn count_held(
    snapshot: &dyn Snapshot,
    counters: &mut Vec<(SiteNo, u8, CounterRow)>,
) -> Result<(), StoreFault> {
    let mut held = Vec::new();
    snapshot.scan(Table::Deliveries, &[], &mut |key, value| {
        let state = decode::<DeliveryRow>(Table::Deliveries, key, value).ok();
        let state = state.and_then(|row| row.counted_held());
        held.extend(keys::parse_delivery(key).zip(state));
        true
    })?;
    counters.retain(|(_, state, _)| !counts_held(*state));
    let mut sums: BTreeMap<(SiteNo, u8), CounterRow> = BTreeMap::new();
    for ((seq, site), state) in held {
        let segment: Result<Option<SegmentRow>, _> =
            row(snapshot, Table::Segments, &keys::seq(seq));
        if let Ok(Some(segment)) = segment {
            let sum = sums.entry((site, state)).or_default();
            sum.count += 1;
            sum.bytes += segment.size;
        }
    }
    counters.extend(sums.into_iter().map(|((site, state), row)| (site, state, row)));
    Ok(())
}

/// A slice of segments, for the look through all of them behind a start.
pub(super) fn segments(
    snapshot: &dyn Snapshot,
    after: Option<Seq>,
    limit: usize,
) -> Result<Answer, StoreFault> {
    let from = after.map_or(Seq(0), |seq| Seq(seq.0.saturating_add(1)));
    let mut rows = Vec::new();
    let mut end = true;
    snapshot.scan(Table::Segments, &keys::seq(from), &mut |key, value| {
        if rows.len() == limit {
            end = false;
            return false;
        }
        if let Some(seq) = keys::parse_u64(key) {
            rows.push((Seq(seq), decode(Table::Segments, key, value).ok()));
        }
        true
    })?;
    Ok(Answer::Segments { rows, end })
}

fn each<R>(
    snapshot: &dyn Snapshot,
    table: Table,
    visit: &mut dyn FnMut(&[u8], R),
) -> Result<(), StoreFault>
where
    R: for<'b> Decode<'b, ()>,
{
    let mut fault = None;
    snapshot.scan(table, &[], &mut |key, value| match decode(table, key, value) {
        Ok(row) => {
            visit(key, row);
            true
        }
        Err(why) => {
            fault = Some(why);
            false
        }
    })?;
    fault.map_or(Ok(()), Err)
}

impl Recovery {
    /// A counter of `meta`; 0 when there is none.
    #[must_use]
    pub fn meta_value(&self, name: MetaName) -> u64 {
        self.meta.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| *value)
    }
}
