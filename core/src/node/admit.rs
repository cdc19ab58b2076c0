//! Admission: what may come in, how much of it, and where it goes from here (DESIGN 3.4, 3.5).

use alloc::format;
use alloc::string::{String, ToString};

use super::accept::No;
use super::{Mode, Node};
use crate::code::Refusal;
use crate::id::SiteNo;
use crate::limits::HOPS_MAX;
use crate::plant::Plant;
use crate::segment::{Destinations, Meta};
use crate::time::Now;
use crate::wire::Offer;

impl Node {
    /// Admission of an offer, apart from space (`AllowSegment`).
    pub(super) fn admit_offer(&self, now: Now, offer: &Offer, source: SiteNo) -> Result<(), No> {
        self.admit(now, &offer.meta, offer.size)?;
        if offer.hops > HOPS_MAX {
            let text = format!("{} sites have handed it on, {HOPS_MAX} are the limit", offer.hops);
            return Err((Refusal::Invalid, 0, text));
        }
        if let Destinations::Named(names) = &offer.to {
            // Whoever asks for several sites is told of one that cannot be served by a refusal of the
            // whole offer, and asks for each by itself: an ACK is a promise for all of them.
            let served = |name: &&String| {
                **name == self.config.name || self.usable(name, source, &offer.origin).is_some()
            };
            if let Some(name) = names.iter().find(|name| !served(name)) {
                return Err(self.no_way_to(name));
            }
        }
        Ok(())
    }

    pub(super) fn admit(&self, now: Now, meta: &Meta, size: u64) -> Result<(), No> {
        if self.stopping {
            return Err((Refusal::Busy, 1_000, "this site is stopping".to_string()));
        }
        if let Some(limit) = self.config.max_segment.filter(|limit| size > *limit) {
            let text = format!("{size} bytes are more than storage.max_segment, {limit}");
            return Err((Refusal::TooLarge, 0, text));
        }
        if let Some(at) = meta.expires().filter(|at| *at <= now.wall) {
            let text = format!("it expired {} s ago", now.wall.since(at).as_secs());
            return Err((Refusal::Expired, 0, text));
        }
        Ok(())
    }

    /// Whether so many bytes more may be kept; `segment` when they bring a new segment row.
    pub(super) fn admit_bytes(&mut self, bytes: u64, segment: bool) -> Result<(), No> {
        let meta = &self.stage.meta;
        if !matches!(self.mode, Mode::Normal) {
            let text = "the disk is full; nothing new is taken until space is back";
            return Err((Refusal::DiskFull, 10_000, text.to_string()));
        }
        if meta.used.saturating_add(bytes) > self.config.max_bytes {
            let (used, limit) = (meta.used, self.config.max_bytes);
            let text =
                format!("{bytes} bytes on top of {used} are more than storage.max_bytes, {limit}");
            return Err((Refusal::Quota, 30_000, text));
        }
        if let Some(limit) =
            self.config.max_segments.filter(|limit| segment && meta.segments >= *limit)
        {
            let text =
                format!("{} segments are held, storage.max_segments is {limit}", meta.segments);
            return Err((Refusal::Quota, 30_000, text));
        }
        if self.space.ledger.saturating_add(bytes.min(1 << 20)) > self.config.ledger_max {
            let text =
                format!("the ledger has reached storage.ledger_max, {}", self.config.ledger_max);
            return Err((Refusal::Quota, 30_000, text));
        }
        let claimed = self.unwritten().saturating_add(bytes).saturating_add(self.min_free());
        if claimed > self.space.free {
            self.lacks(claimed);
            let (free, min) = (self.space.free, self.config.min_free);
            let text =
                format!("{bytes} bytes do not fit: {free} are free, storage.min_free is {min}");
            return Err((Refusal::DiskFull, 10_000, text));
        }
        Ok(())
    }

    /// What must stay free on the disk (`storage.min_free`). It must not stand in for the ballast where
    /// that rule is dropped.
    pub(super) fn min_free(&self) -> u64 {
        if self.config.planted(Plant::G5) { 0 } else { self.config.min_free }
    }
}
