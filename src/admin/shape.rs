//! The shape of what waits: how old it is, by peer, as a histogram. Counted over the keys of `owed` alone,
//! in slices on a reader of the store: accept numbers and effective time grow together, so the age of a
//! delivery is told by its place between a few accept numbers that are looked up beforehand.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::id::{Seq, SiteNo};
use consign_core::ledger::rows::SegmentRow;
use consign_core::ledger::{Table, codec, keys};
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;

use super::ledger::Names;

/// Keys counted for one answer.
const SLICE: usize = 262_144;
/// Upper bounds of the columns in seconds; the last column has none.
pub const LIMITS: [u64; 6] = [60, 300, 900, 3_600, 21_600, 86_400];

/// How old what waits is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shape {
    /// `consign.shape/1`
    pub schema: String,
    /// Upper bounds of the columns in seconds; one more column has everything that is older.
    pub limits: Vec<u64>,
    /// By site number.
    pub peers: Vec<PeerShape>,
    /// `after` of the next slice, if there may be one: its counts are to be added to these.
    pub next: Option<String>,
}

impl Shape {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.shape/1";
}

/// The same of one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerShape {
    /// The peer.
    pub peer: String,
    /// Deliveries to it that are neither done nor dead.
    pub total: u64,
    /// How many of them are of that age, by column.
    pub counts: Vec<u64>,
}

/// `after` of a slice: site number and accept number.
pub(super) fn parse_after(text: &str) -> Option<(SiteNo, Seq)> {
    let (site, seq) = text.split_once('-')?;
    Some((SiteNo(site.parse().ok()?), Seq(seq.parse().ok()?)))
}

/// A slice.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn slice(
    snapshot: &dyn Snapshot,
    after: Option<(SiteNo, Seq)>,
    now: UnixMillis,
) -> Result<Shape, StoreFault> {
    counted(snapshot, after, now, SLICE)
}

fn counted(
    snapshot: &dyn Snapshot,
    after: Option<(SiteNo, Seq)>,
    now: UnixMillis,
    most: usize,
) -> Result<Shape, StoreFault> {
    let mut bounds = [Seq(0); LIMITS.len()];
    for (bound, limit) in bounds.iter_mut().zip(LIMITS) {
        *bound = first_younger(snapshot, now.0.saturating_sub(limit * 1000))?;
    }
    let from = after
        .map_or(keys::Key::EMPTY, |(site, seq)| keys::peer_seq(site, Seq(seq.0.saturating_add(1))));
    let mut counts: Vec<(SiteNo, [u64; LIMITS.len() + 1])> = Vec::new();
    let (mut seen, mut last) = (0, None);
    snapshot.scan(Table::Owed, &from, &mut |key, _| {
        if let Some((site, seq)) = keys::parse_peer_seq(key) {
            if counts.last().is_none_or(|(at, _)| *at != site) {
                counts.push((site, [0; LIMITS.len() + 1]));
            }
            let column = bounds.iter().position(|bound| seq >= *bound).unwrap_or(LIMITS.len());
            if let Some((_, row)) = counts.last_mut() {
                row[column] += 1;
            }
            last = Some((site, seq));
        }
        seen += 1;
        seen < most
    })?;
    let mut names = Names::default();
    let mut peers = Vec::with_capacity(counts.len());
    for (site, row) in counts {
        let peer = names.of(snapshot, site)?;
        peers.push(PeerShape { peer, total: row.iter().sum(), counts: row.to_vec() });
    }
    let next = last.filter(|_| seen == most).map(|(site, seq)| format!("{site}-{seq}"));
    Ok(Shape { schema: Shape::SCHEMA.into(), limits: LIMITS.to_vec(), peers, next })
}

/// The first accept number whose segment was accepted at `at` or later: 64 looks at most.
fn first_younger(snapshot: &dyn Snapshot, at: u64) -> Result<Seq, StoreFault> {
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        match next_accepted(snapshot, Seq(middle))? {
            Some((seq, accepted)) if accepted < at => low = seq.0.saturating_add(1),
            Some(_) | None => high = middle,
        }
    }
    Ok(Seq(low))
}

/// The first segment from `from` on whose row can be read, and when it was accepted.
fn next_accepted(snapshot: &dyn Snapshot, from: Seq) -> Result<Option<(Seq, u64)>, StoreFault> {
    let mut found = None;
    snapshot.scan(Table::Segments, &keys::seq(from), &mut |key, value| {
        let row = codec::decode::<SegmentRow>(Table::Segments, key, value);
        found = keys::parse_u64(key).zip(row.ok()).map(|(seq, row)| (Seq(seq), row.accepted_at));
        found.is_none()
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests;
