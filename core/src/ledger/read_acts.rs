//! Reads behind an operator's acts: dead letters in order, what a site is owed, segments in order, and
//! segments by the beginning of their id. Each is bounded; the act asks again behind `next`.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::keys::{self, DeadKey};
use super::read::{Held, decode, held, lenient, pair};
use super::rows::{DeadletterRow, DeliveryRow, IdRow, SegmentRow};
use super::{Table, codec};
use crate::act::IdPrefix;
use crate::code::Cause;
use crate::id::{SegmentId, Seq, SiteNo};
use crate::store::{Snapshot, StoreFault};
use crate::time::UnixMillis;

/// Index keys looked at for one answer, whatever the filter lets through.
const KEYS: usize = 8_192;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Dead letters behind `after`, oldest first.
    Dead {
        /// Not this one and none before it.
        after: Option<DeadKey>,
        /// Which.
        only: Dead,
        /// At most so many.
        limit: usize,
    },
    /// Deliveries to one site that wait or are under way, in accept order.
    Owed {
        /// The site.
        peer: SiteNo,
        /// Behind this segment.
        after: Option<Seq>,
        /// At most so many.
        limit: usize,
    },
    /// Segments behind `after`, with their deliveries.
    Segments {
        /// Not this one and none before it.
        after: Option<Seq>,
        /// At most so many.
        limit: usize,
    },
    /// Segments by the beginning of their ids.
    Named(Vec<IdPrefix>),
}

/// Which dead letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dead {
    /// Given up at this time at the latest.
    pub until: UnixMillis,
    /// To this site.
    pub peer: Option<SiteNo>,
    /// For this reason.
    pub cause: Option<Cause>,
}

impl Dead {
    /// Whether this is one of them.
    #[must_use]
    pub fn has(&self, at: UnixMillis, site: SiteNo, cause: u8) -> bool {
        at <= self.until
            && self.peer.is_none_or(|peer| peer == site)
            && self.cause.is_none_or(|wanted| wanted.number() == cause)
    }
}

/// A delivery with its segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Row {
    /// The segment.
    pub seq: Seq,
    /// The destination.
    pub site: SiteNo,
    /// The segment's row.
    pub segment: SegmentRow,
    /// The delivery's row.
    pub delivery: DeliveryRow,
}

/// Where a page ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Cursor {
    /// At this dead letter.
    Dead(DeadKey),
    /// At this segment.
    Seq(Seq),
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Picked {
    /// To [`Pick::Dead`] and [`Pick::Owed`]. Rows that cannot be read are left out.
    Rows {
        /// In order.
        rows: Vec<Row>,
        /// Where to go on; `None` is the end.
        next: Option<Cursor>,
    },
    /// To [`Pick::Segments`].
    Segments {
        /// In order.
        held: Vec<Held>,
        /// Where to go on; `None` is the end.
        next: Option<Seq>,
    },
    /// To [`Pick::Named`], in the order asked.
    Named(Vec<Named>),
}

/// What one beginning of an id leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Named {
    /// One segment; more than one row only where earlier content of it was lost.
    Found(Vec<Held>),
    /// Nothing.
    Missing,
    /// Several segments; some of them.
    Ambiguous(Vec<SegmentId>),
}

/// Answers from a snapshot.
///
/// # Errors
/// When the store cannot be read.
pub fn picked(snapshot: &dyn Snapshot, pick: &Pick) -> Result<Picked, StoreFault> {
    match pick {
        Pick::Dead { after, only, limit } => dead(snapshot, *after, only, *limit),
        Pick::Owed { peer, after, limit } => owed(snapshot, *peer, *after, *limit),
        Pick::Segments { after, limit } => segments(snapshot, *after, *limit),
        Pick::Named(prefixes) => named(snapshot, prefixes),
    }
}

/// Keys of dead letters with their causes, and where the next page begins if there is one.
pub type DeadKeys = (Vec<(DeadKey, u8)>, Option<DeadKey>);

/// Keys of dead letters behind `after` that are wanted, and where to go on.
///
/// # Errors
/// When the store cannot be read.
pub fn dead_keys(
    snapshot: &dyn Snapshot,
    after: Option<DeadKey>,
    only: &Dead,
    limit: usize,
) -> Result<DeadKeys, StoreFault> {
    let from = after.map(|key| key.key());
    let from = from.as_deref().unwrap_or_default();
    let (mut keys, mut seen, mut last, mut next) = (Vec::new(), 0, after, None);
    snapshot.scan(Table::Deadletters, from, &mut |key, value| {
        let Some(parsed) = keys::parse_deadletter(key).filter(|k| Some(*k) != after) else {
            return true;
        };
        if parsed.at > only.until {
            return false;
        }
        if keys.len() == limit || seen == KEYS {
            next = last;
            return false;
        }
        seen += 1;
        last = Some(parsed);
        let row = decode::<DeadletterRow>(Table::Deadletters, key, value);
        // A row that cannot be read has no reason; it is still a dead letter.
        let cause = row.map_or(0, |row| row.cause);
        if only.has(parsed.at, parsed.site, cause) {
            keys.push((parsed, cause));
        }
        true
    })?;
    Ok((keys, next))
}

fn dead(
    snapshot: &dyn Snapshot,
    after: Option<DeadKey>,
    only: &Dead,
    limit: usize,
) -> Result<Picked, StoreFault> {
    let (keys, next) = dead_keys(snapshot, after, only, limit)?;
    let mut rows = Vec::with_capacity(keys.len());
    for (key, _) in keys {
        rows.extend(row(snapshot, key.seq, key.site)?);
    }
    Ok(Picked::Rows { rows, next: next.map(Cursor::Dead) })
}

fn row(snapshot: &dyn Snapshot, seq: Seq, site: SiteNo) -> Result<Option<Row>, StoreFault> {
    let rows = pair(snapshot, seq, site)?;
    Ok(rows.map(|(segment, delivery)| Row { seq, site, segment, delivery }))
}

fn owed(
    snapshot: &dyn Snapshot,
    peer: SiteNo,
    after: Option<Seq>,
    limit: usize,
) -> Result<Picked, StoreFault> {
    let from = after.map_or(Seq(0), |seq| Seq(seq.0.saturating_add(1)));
    let (mut seqs, mut next) = (Vec::new(), None);
    snapshot.scan(Table::Owed, &keys::peer_seq(peer, from), &mut |key, _| {
        let Some((_, seq)) = keys::parse_peer_seq(key).filter(|(site, _)| *site == peer) else {
            return false;
        };
        if seqs.len() == limit {
            next = seqs.last().copied();
            return false;
        }
        seqs.push(seq);
        true
    })?;
    let mut rows = Vec::with_capacity(seqs.len());
    for seq in seqs {
        rows.extend(row(snapshot, seq, peer)?);
    }
    Ok(Picked::Rows { rows, next: next.map(Cursor::Seq) })
}

fn segments(
    snapshot: &dyn Snapshot,
    after: Option<Seq>,
    limit: usize,
) -> Result<Picked, StoreFault> {
    let from = after.map_or(Seq(0), |seq| Seq(seq.0.saturating_add(1)));
    let (mut seqs, mut next) = (Vec::new(), None);
    snapshot.scan(Table::Segments, &keys::seq(from), &mut |key, _| {
        if seqs.len() == limit {
            next = seqs.last().copied();
            return false;
        }
        seqs.extend(keys::parse_u64(key).map(Seq));
        true
    })?;
    let mut found = Vec::with_capacity(seqs.len());
    for seq in seqs {
        found.extend(held(snapshot, seq)?);
    }
    Ok(Picked::Segments { held: found, next })
}

fn named(snapshot: &dyn Snapshot, prefixes: &[IdPrefix]) -> Result<Picked, StoreFault> {
    let mut all = Vec::with_capacity(prefixes.len());
    for prefix in prefixes {
        all.push(by_id(snapshot, prefix)?);
    }
    let missing: Vec<IdPrefix> = all
        .iter()
        .zip(prefixes)
        .filter(|(found, _)| matches!(found, Named::Missing))
        .map(|(_, prefix)| *prefix)
        .collect();
    if !missing.is_empty() {
        let lost = lost(snapshot, &missing)?;
        let named = all.iter_mut().filter(|found| matches!(found, Named::Missing));
        for (named, prefix) in named.zip(&missing) {
            *named = among(&lost, prefix);
        }
    }
    Ok(Picked::Named(all))
}

fn by_id(snapshot: &dyn Snapshot, prefix: &IdPrefix) -> Result<Named, StoreFault> {
    let mut found: Vec<(SegmentId, Option<Seq>)> = Vec::new();
    snapshot.scan(Table::Ids, &prefix.first().0, &mut |key, value| {
        let Some(id) = <[u8; 32]>::try_from(key).ok().map(SegmentId) else { return true };
        if !prefix.begins(&id) {
            return false;
        }
        let row: Option<IdRow> = codec::decode(Table::Ids, key, value).ok();
        found.push((id, row.map(|row| row.seq)));
        found.len() < 5
    })?;
    match found.as_slice() {
        [] => Ok(Named::Missing),
        [(_, seq)] => match seq.map(|seq| held(snapshot, seq)).transpose()?.flatten() {
            Some(held) => Ok(Named::Found(alloc::vec![held])),
            None => Ok(Named::Missing),
        },
        several => Ok(Named::Ambiguous(several.iter().map(|(id, _)| *id).collect())),
    }
}

/// Segments whose content was lost are led to by no id any more: they are found among the dead letters.
fn lost(snapshot: &dyn Snapshot, prefixes: &[IdPrefix]) -> Result<Vec<Held>, StoreFault> {
    let mut seqs = BTreeSet::new();
    snapshot.scan(Table::Deadletters, &[], &mut |key, _| {
        seqs.extend(keys::parse_deadletter(key).map(|key| key.seq));
        true
    })?;
    let mut found = Vec::new();
    for seq in seqs {
        let row: Option<SegmentRow> = lenient(snapshot, Table::Segments, &keys::seq(seq))?;
        let mine = row.is_some_and(|row| prefixes.iter().any(|p| p.begins(&row.id)));
        if mine {
            found.extend(held(snapshot, seq)?);
        }
    }
    Ok(found)
}

fn among(lost: &[Held], prefix: &IdPrefix) -> Named {
    let mine: Vec<&Held> = lost.iter().filter(|held| prefix.begins(&held.row.id)).collect();
    let ids: BTreeSet<SegmentId> = mine.iter().map(|held| held.row.id).collect();
    match ids.len() {
        0 => Named::Missing,
        1 => Named::Found(mine.into_iter().cloned().collect()),
        _ => Named::Ambiguous(ids.into_iter().collect()),
    }
}
