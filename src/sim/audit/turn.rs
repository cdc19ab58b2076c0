//! What a turn of a node's loop shows: its clocks, its memory, whether it gets anywhere; and what the
//! node says.

use std::time::Duration;

use consign_core::id::{BlobNo, Epoch, Seq, SiteNo};
use consign_core::ledger::rows::{MetaName, State};
use consign_core::limits::{BATCH_ROWS, CLASSES, SESSION_INFLIGHT, TURN_INPUTS, WINDOW};
use consign_core::node::{Note, ReconcileSummary};
use consign_core::time::{Instant, Now};

use super::Desk;
use super::fetches::Fetches;
use super::site::{Holds, Site};
use super::violation::{Check, demand};
use crate::sim::seen::Death;
use crate::sim::time::Micros;

/// Turns without progress in one second: due times have a grain of a millisecond, so a thousand of
/// them may pass without anything else to see.
const IDLE_PER_SECOND: u32 = 2_000;
/// Turns without progress at one moment.
const IDLE_AT_ONCE: u32 = 200;

/// Turns after the end of a drain: the stop itself may still have been waiting to be taken.
const OVERTIME: u32 = 2;

/// A day in milliseconds.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// What a site's clocks last showed, and how long its loop has been going round for nothing.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub now: Now,
    /// Whether it has turned since it started.
    turned: bool,
    /// Whether anything was seen of the site since its last turn.
    pub stirred: bool,
    /// Until then it does not believe its clock, which was too far on when it started.
    pub doubted_until: Option<Instant>,
    /// Entries in memory at the last turn: overlay, windows, promises.
    pub footprint: (usize, usize, usize),
    second: (u64, u32),
    moment: (Micros, u32),
}

impl Clock {
    /// Counts a turn without progress; the most there were in one second and at one moment.
    fn idle(&mut self, at: Micros) -> (u32, u32) {
        let second = at.0 / 1_000_000;
        let count = if self.second.0 == second { self.second.1 + 1 } else { 1 };
        self.second = (second, count);
        let count = if self.moment.0 == at { self.moment.1 + 1 } else { 1 };
        self.moment = (at, count);
        (self.second.1, self.moment.1)
    }
}

impl Desk<'_> {
    pub(super) fn started(&mut self, boot: u64) -> Check {
        let before = self.site.disk.meta(MetaName::Boot);
        let life = &mut self.site.life;
        let first = life.boot == 0;
        demand(boot > before, "I8", None, || format!("boot {boot} after boot {before}"))?;
        demand(!life.running, "I30", None, || "it starts while it runs".into())?;
        *life = super::site::Life {
            running: true,
            boot,
            found: self.site.disk.inflight.len() as u64,
            below: BlobNo(self.site.disk.meta(MetaName::NextBlob)),
            ..super::site::Life::default()
        };
        self.site.starts();
        self.site.clock = Clock::default();
        self.site.links.clear();
        self.site.unsaid.clear();
        self.site.short = false;
        self.site.pickup.fetches = Fetches::default();
        // What D holds of content on its way in is what a new life may go on from.
        let Site { reached, disk, .. } = &mut *self.site;
        reached.clear();
        for row in disk.incoming.values() {
            let reached = reached.entry((row.digest, SiteNo(row.source))).or_default();
            *reached = (*reached).max(row.offset);
        }
        self.world.totals.restarts += u64::from(!first);
        self.tell_of_site(format!("starts, boot {boot}"));
        Ok(())
    }

    pub(super) fn died(&mut self, death: Death) -> Check {
        self.site.life.running = false;
        self.site.life.live.clear();
        self.site.links.clear();
        let totals = &mut self.world.totals;
        let what = match death {
            Death::Killed => {
                totals.crashes += 1;
                "is killed"
            }
            Death::PowerCut => {
                totals.crashes += 1;
                "loses its power"
            }
            Death::Halted => {
                totals.halts += 1;
                "halts"
            }
            Death::Stopped => {
                totals.stops += 1;
                "has drained and stops"
            }
        };
        self.tell_of_site(what.to_string());
        Ok(())
    }

    pub(super) fn turned(
        &mut self,
        now: Now,
        inputs: usize,
        footprint: (usize, usize, usize),
    ) -> Check {
        let at = self.at;
        let high = self.site.disk.meta(MetaName::TimeHigh);
        let peers = self.site.config.peers.len().max(self.site.disk.peers.len());
        self.world.totals.turns += 1;
        let clock = &mut self.site.clock;
        let before = clock.now;
        if clock.turned {
            demand(now.mono >= before.mono, "I18", None, || {
                format!("the monotonic clock goes from {} to {} ns", before.mono.0, now.mono.0)
            })?;
            demand(now.wall >= before.wall, "I18", None, || {
                format!("effective time goes from {} to {}", before.wall, now.wall)
            })?;
        } else {
            demand(now.wall.0 >= high, "I18", None, || {
                format!("effective time starts at {}, its high water is {high} ms", now.wall)
            })?;
            // Nobody believes that it was away for so long: for a day nothing expires.
            let away = now.wall.0.saturating_sub(high);
            let doubted = high > 0 && away > 30 * DAY_MS;
            clock.doubted_until = doubted.then(|| now.mono.after(Duration::from_millis(DAY_MS)));
        }
        (clock.now, clock.turned, clock.footprint) = (now, true, footprint);
        let life = &mut self.site.life;
        if life.stopping {
            // It stops in this turn or a later one: from then on its time runs.
            let end = life.stop_at.get_or_insert(now).mono.after(self.site.config.drain_timeout);
            life.overtime += u32::from(now.mono >= end);
            let turns = life.overtime;
            demand(turns <= OVERTIME, "I30", None, || {
                format!("its drain is over, and it has turned {turns} times since")
            })?;
        }
        let clock = &mut self.site.clock;
        let idle = inputs <= 1 && !clock.stirred;
        clock.stirred = false;
        if idle {
            let (second, moment) = clock.idle(at);
            demand(second <= IDLE_PER_SECOND && moment <= IDLE_AT_ONCE, "I23", None, || {
                format!("{second} turns in this second, {moment} of them now, changed nothing")
            })?;
        }
        demand(inputs <= TURN_INPUTS, "I19", None, || {
            format!("{inputs} inputs in one turn, {TURN_INPUTS} are the limit")
        })?;
        // Windows and flights of all peers, what their changes lay over it, and batches of a stalled disk.
        let most = peers * 2 * (CLASSES * WINDOW + SESSION_INFLIGHT) + 16 * BATCH_ROWS;
        let windows = peers * CLASSES * WINDOW;
        demand(
            footprint.0 <= most && footprint.1 <= windows && footprint.2 <= most,
            "I19",
            None,
            || {
                format!(
                    "{footprint:?} entries in memory, ({most}, {windows}, {most}) are the limit"
                )
            },
        )
    }

    /// The node says something: nobody is told what is not durable.
    pub(super) fn note(&mut self, note: &Note) -> Check {
        match note {
            Note::SessionUp { peer, epoch, .. } => self.session_up(peer, *epoch),
            Note::SessionDown { peer, .. } => {
                self.site.life.live.remove(peer);
                Ok(())
            }
            Note::Accepted { id, seq, .. } => {
                let row = self.site.disk.segments.get(seq).is_some_and(|row| row.id == *id);
                let gone = self.site.removed.contains_key(id);
                demand(row || gone || self.site.is_harmed(*seq), "I1", Some(*id), || {
                    format!("it is said to be accepted as number {seq}, which is not on disk")
                })
            }
            Note::Delivery { id, peer, to: Some(State::Acked), .. } => {
                let site = &*self.site;
                let no = site.disk.number_of(peer);
                let acked = no.is_some_and(|no| {
                    let is = |seq: Seq| {
                        let row = site.disk.deliveries.get(&(seq, no));
                        row.is_some_and(|row| row.state == State::Acked) || site.excuses(seq, no)
                    };
                    // Once in a while an identity was given up and came back under a new number.
                    let older = || site.disk.segments.iter().any(|(s, r)| r.id == *id && is(*s));
                    site.newest.get(id).is_some_and(|seq| is(*seq)) || older()
                });
                // It may have gone its way between its commit and the word, or within one commit.
                let gone = self.site.removed.contains_key(id) || self.site.replaced.contains(id);
                demand(acked || gone, "I1", Some(*id), || {
                    format!("it is said to be delivered to {peer}, which is not on disk")
                })
            }
            Note::Reconciled(summary) => self.reconciled(summary),
            Note::Refused { code: "quota" | "disk_full", .. } => {
                self.site.short = true;
                Ok(())
            }
            Note::Quarantined { what } => {
                self.site.told.insert(what.clone());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn session_up(&mut self, peer: &str, epoch: Epoch) -> Check {
        let boot = self.site.life.boot;
        demand(epoch.boot == boot, "I8", None, || {
            format!("a session of epoch {epoch} is up in boot {boot}")
        })?;
        self.site.life.up.insert(epoch.session);
        self.site.life.live.insert(peer.to_string(), epoch);
        Ok(())
    }

    fn reconciled(&mut self, summary: &ReconcileSummary) -> Check {
        let site = &mut self.site;
        demand(!site.life.reconciled, "I17", None, || "start-up ends twice".into())?;
        site.life.reconciled = true;
        let found = site.life.found;
        demand(summary.inflight <= found, "I17", None, || {
            format!("{} were in flight, {found} is what the ledger held", summary.inflight)
        })?;
        if summary.missing == 0 {
            return Ok(());
        }
        let gone = |holds: Holds| holds != Holds::Yes;
        let missing = site.disk.segments.values().filter(|row| gone(site.content(row))).count();
        let harmed = !site.harm.files.is_empty() || !site.harm.rows.is_empty();
        demand(missing > 0 || harmed, "I17", None, || {
            format!("{} segments count as missing, and all content is there", summary.missing)
        })
    }
}
