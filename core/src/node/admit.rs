//! Admission: what may come in, how much of it, and where it goes from here (DESIGN 3.4, 3.5).

use alloc::format;
use alloc::string::{String, ToString};

use super::accept::No;
use super::upkeep::Want;
use super::{Mode, Node};
use crate::amount::amount;
use crate::code::Refusal;
use crate::id::SiteNo;
use crate::limits::{BALLAST_MIN, END_BYTES, HOPS_MAX};
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

    /// Once this site is stopping nothing is begun; what has begun before is finished.
    pub(super) fn admit_begin(&self) -> Result<(), No> {
        if self.stopping {
            return Err((Refusal::Busy, 1_000, "this site is stopping".to_string()));
        }
        Ok(())
    }

    pub(super) fn admit(&self, now: Now, meta: &Meta, size: u64) -> Result<(), No> {
        if let Some(limit) = self.config.max_segment.filter(|limit| size > *limit) {
            let (size, limit) = (amount(size), amount(limit));
            let text = format!("{size} are more than storage.max_segment, {limit}");
            return Err((Refusal::TooLarge, 0, text));
        }
        if let Some(at) = meta.expires().filter(|at| *at <= now.wall) {
            let text = format!("it expired {} s ago", now.wall.since(at).as_secs());
            return Err((Refusal::Expired, 0, text));
        }
        Ok(())
    }

    /// Whether so many bytes more may be kept. What is refused for want of room makes room: content that
    /// may go later goes now.
    pub(super) fn admit_bytes(&mut self, want: Want) -> Result<(), No> {
        if let Err(no) = self.admit_growth() {
            self.wants_room(want);
            return Err(no);
        }
        let Some(no) = self.shortage(want, 0) else { return Ok(()) };
        self.wants_room(want);
        if no.0 == Refusal::DiskFull {
            self.lacks(self.unwritten().saturating_add(want.bytes));
        }
        Err(no)
    }

    /// Growth is refused until the ballast is whole again (G5).
    pub(super) fn admit_growth(&self) -> Result<(), No> {
        match self.mode {
            Mode::Normal => Ok(()),
            Mode::Rejudge(_) | Mode::Tight(_) | Mode::Halted => {
                let text = "the disk is full; nothing new is taken until space is back";
                Err((Refusal::DiskFull, 10_000, text.to_string()))
            }
        }
    }

    /// Whether there will be room for it once doomed files are gone.
    pub(super) fn fits(&self, want: Want) -> bool {
        self.shortage(want, self.doomed_bytes()).is_none()
    }

    /// Bytes that must be free on the disk for it.
    fn needed(&self, want: Want) -> u64 {
        self.unwritten().saturating_add(want.bytes).saturating_add(self.stays_free())
    }

    /// What there is too little of, when so many bytes are about to be freed.
    fn shortage(&self, want: Want, soon: u64) -> Option<No> {
        let Want { bytes, segment, source } = want;
        let config = &self.config;
        let used = self.stage.meta.used.saturating_sub(soon);
        if used.saturating_add(bytes) > config.max_bytes {
            let (bytes, used, limit) = (amount(bytes), amount(used), amount(config.max_bytes));
            let text = format!("{bytes} on top of {used} are more than storage.max_bytes, {limit}");
            return Some((Refusal::Quota, 30_000, text));
        }
        let segments = self.stage.meta.segments.saturating_add(self.being_received());
        if let Some(limit) = config.max_segments.filter(|limit| segment && segments >= *limit) {
            let text = format!(
                "{segments} segments are held or on their way in, storage.max_segments is {limit}"
            );
            return Some((Refusal::Quota, 30_000, text));
        }
        if self.space.ledger.saturating_add(bytes.min(1 << 20)) > config.ledger_max {
            let limit = amount(config.ledger_max);
            let text = format!("the ledger has reached storage.ledger_max, {limit}");
            return Some((Refusal::Quota, 30_000, text));
        }
        if let Some(no) = self.over_inbound(bytes, source) {
            return Some(no);
        }
        if self.needed(want) > self.space.free.saturating_add(soon) {
            let (bytes, free) = (amount(bytes), amount(self.space.free));
            let free = match self.unwritten() {
                0 => free,
                promised => format!(
                    "{free}, of which {} are promised to what is on its way in,",
                    amount(promised)
                ),
            };
            let (min, relief) = (config.min_free, self.relief());
            let text = match relief > min {
                true => format!(
                    "{bytes} do not fit: {free} are free, and handing on what is here may take {}",
                    amount(relief)
                ),
                false => format!(
                    "{bytes} do not fit: {free} are free, storage.min_free is {}",
                    amount(min)
                ),
            };
            return Some((Refusal::DiskFull, 10_000, text));
        }
        None
    }

    /// A peer whose content takes more than it may (`inbound_quota`).
    fn over_inbound(&self, bytes: u64, source: SiteNo) -> Option<No> {
        let peer = self.peers.get(&source)?;
        let config = self.config.peers.iter().find(|config| config.name == peer.name)?;
        let (limit, held) = (config.inbound_quota?, self.stage.inbound(source));
        (held.saturating_add(bytes) > limit).then(|| {
            let (name, limit) = (&peer.name, amount(limit));
            let (bytes, held) = (amount(bytes), amount(held));
            let text = format!(
                "{bytes} on top of {held} from {name} are more than its inbound_quota, {limit}"
            );
            (Refusal::Quota, 30_000, text)
        })
    }

    /// What nothing new may take.
    pub(super) fn stays_free(&self) -> u64 {
        self.min_free().max(self.relief())
    }

    /// What the ledger may grow by until everything that is owed has left: an end leaves a receipt, a record and what is
    /// remembered, which is more than the rows of a small segment that it takes away. Part of it fits into the smallest
    /// ballast. Nothing is taken for whose end there would be no room.
    fn relief(&self) -> u64 {
        self.stage.owed().saturating_mul(END_BYTES).saturating_sub(BALLAST_MIN)
    }

    /// What must stay free on the disk (`storage.min_free`). It must not stand in for the ballast where
    /// that rule is dropped.
    pub(super) fn min_free(&self) -> u64 {
        if self.config.planted(Plant::G5) { 0 } else { self.config.min_free }
    }
}
