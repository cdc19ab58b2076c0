//! The auditor: sees everything a world does, keeps a small obvious model of its own, and says in plain
//! words which promise is broken.
//!
//! The model of a site is its durable image D: what a crash right now would leave. It is made from what
//! becomes durable ([`Seen::Durable`], [`Seen::FileWhole`], [`Seen::FileGone`]) and from nothing else, so
//! a node that says more than its disk holds is caught at the word. Formats are shared with the core
//! (rows, keys, frames); decisions are not: edges, budgets, waits, charges and destinations are written
//! down here a second time.
//!
//! A batch costs as much as its rows, a frame as much as a look-up; only [`Audit::deep`] and
//! [`Audit::at_rest`] look at everything.
//!
//! | invariant | checked when |
//! |---|---|
//! | I1 | a client is told *queued*, the node lets an ACK go, an ACK, a RECEIPT or a RECEIPT_OK leaves, the node says *accepted* or *acked*: D has row, identity, content, or what the receipt says. Deep: the rows of the store are those that were written |
//! | I2 | each batch: required and Acked deliveries, `counters`, `segments`, `owed`, `due`, `inflight`, `handed`, `unmet`, dead letters agree; a new segment is owed to everybody it is for; what is removed may be, is recorded, and leaves its receipts. Each look, over all sites: whatever was accepted or acknowledged for a destination has arrived, is owed or dead at somebody who holds it, or was let go by a record |
//! | I3 | a delivery becomes Acked: the ACK came in the claiming epoch, and its sender held the segment then; behind a hop, its receipt came and the site itself has had it (R4); at rest, it still does, unless it let it go |
//! | I4 | each row of a delivery, against a table of edges |
//! | I5 | each row of a shard, against a table of edges with what each needs: a lease or grace that is over, an ack that was really said, the end of its own fetch (P4), a generation; `by_node`, `shard_deadlines`, `buffer_id` and content of every shard a batch touches |
//! | I6 | each row of a delivery: attempts, budget, and whether its cause has really happened; an OFFER leaves |
//! | I7 | a claim, an OFFER: one in flight, durable, of this session, for a peer that is configured, offered once; or for a WANT, to who had it before |
//! | I8 | HELLO, claims, ACKs, and every failure that blames an answer: epochs are durable and new, answers came in the claim's |
//! | I9 | each batch: the relayed marker is set by the ACK that meets the condition, never before; what is evicted was relayed, is not for this site by any offer (R1), and is remembered; what is released was delivered to everybody or given out (R3); what expires has. *already_relayed* leaves only for what is remembered of this accept or a later one, or has come round (R2) |
//! | I10 | each batch: `used_bytes` is content + reservations + doomed files, within the limits. Deep: so is what each peer is charged for |
//! | I11 | a segment becomes durable: its content has its digest and is what was handed in; an OFFER says what is kept |
//! | I12 | each row of a token: minted for a node that is not revoked, under a number never given before, used once, in its time, in one commit with its shard and a nonce of its node; whoever is served shows the token first, and is who it is for |
//! | I13 | each nonce that is written, each signed request that is answered: none twice, none forged, none with a key that was revoked before it was made; so with tokens of clients |
//! | I16 | files against `blobs`, `incoming`, `doomed`, `owners`, `digests`, `sources`; a file begins after its row and ends before it |
//! | I17 | nothing owed is removed; start-up ends once, finds what D held, and has ended at rest |
//! | I18 | no row lies after the high water of effective time, no clock goes back, nothing expires early by its own clock |
//! | I19 | each turn: windows, overlay, promises, inputs, batches; at rest nothing is left |
//! | I21 | of its part: within a peer and class, no claim passes one that was due and durable before |
//! | I22 | each failure: the wait lies within the backoff of its own count; no claim before its time |
//! | I23 | each turn: rounds that change nothing, per second and per moment |
//! | I24 | a good token is replaced only when its node has registered anew; once all goes well, whatever stays owed to a node that is there has been said in that session |
//! | I25 | an identity is kept once; a held segment is not refused for good; no second charge (by I10) |
//! | I26 | checkpoints never shrink, ACCEPT asks from no further on than they reach, a client is told of no more, files are as long |
//! | I27 | of its part: pickup's answers to clients and nodes that keep to the documents; no node and no session panics |
//! | I28 | [`Audit::at_rest`]; shards are NODE_STORED or RELAY_CLEANUP, and everybody on the quay is at the end |
//! | I30 | after a stop was asked for nothing new is begun, nothing else taken, and the loop ends with the drain; a process that does not run says nothing |
//! | I31 | dead letters, audit records, receipts and remembered ids stay as long, or as many, as they must, and no more at rest |
//!
//! I1, I10, I11 and I16 hold of shards too: what a client or node is told is on disk, and NODE_STORED only once
//! the node has it, durably and right.
//!
//! Not here: I14 and I15 (identities and certificates are the network's), I20 (LMDB's readers: a property of
//! `storage-lmdb`), I27 otherwise (parsers: their own tests), I29 (the trace hash is the run's).
//!
//! A configuration that changes while a site runs is one of a sequence (`rules`): each decision is judged by the one
//! that held when it was made, and by the two around the change where a batch may hold decisions of both.
//!
//! What the simulator itself destroys ([`Seen::Damaged`]) is excused, and only that: the content or row that
//! was hit, with what follows from it. That must be told: a dead letter, a row that is set aside. After
//! [`Damage::Rollback`] nothing of a site is judged until the next deep check, which takes the rows it finds
//! for what is known.

mod allowed;
mod batch;
mod content;
mod custody;
mod deep;
mod disk;
mod edges;
mod fetches;
mod frames;
mod keep;
mod pickup;
mod promised;
mod receipts;
mod removal;
mod repair;
mod rows;
mod rules;
mod settle;
mod shards;
mod sights;
mod site;
mod story;
#[cfg(test)]
mod tests;
mod tokens;
mod totals;
mod turn;
mod violation;

use std::collections::{BTreeMap, BTreeSet};

use consign_core::config::Config;
use consign_core::id::{BlobNo, Epoch, SegmentId, SiteNo};
use consign_core::ledger::rows::State;
use consign_core::ledger::rows_pickup::{ShardRow, ShardState};
use consign_core::store::Snapshot;
use consign_core::wire::Frame;

use custody::Custody;
use sights::Known;
pub use totals::Totals;
pub use violation::Violation;

use crate::sim::seen::{Damage, Seen, SiteIx};
use crate::sim::time::Micros;
use site::{Holds, Site};
use story::{Event, Handed, Stories};
use violation::{Broken, Check, broken};

/// An ACK that was sent while the segment was held: sender, receiver, segment, epoch.
type Ack = (SiteIx, SiteIx, SegmentId, Epoch);

/// What is known across sites.
#[derive(Debug, Default)]
struct World {
    names: BTreeMap<SiteIx, String>,
    stories: Stories,
    acks: BTreeSet<Ack>,
    held: BTreeSet<(SegmentId, SiteIx)>,
    /// What began where it is: an ACK for it says that it is there, and under TLS nobody sees that ACK.
    began: BTreeSet<(SegmentId, SiteIx)>,
    custody: Custody,
    /// What clients and nodes know.
    quay: Known,
    /// Since when nothing goes wrong any more.
    calm: Option<Micros>,
    /// Whether frames can be seen at all; under real TLS they cannot.
    taps: bool,
    totals: Totals,
}

/// The auditor of one world.
#[derive(Debug, Default)]
pub struct Audit {
    sites: BTreeMap<SiteIx, Site>,
    world: World,
}

/// One thing that is being looked at.
struct Desk<'a> {
    at: Micros,
    ix: SiteIx,
    site: &'a mut Site,
    world: &'a mut World,
}

// A violation ends the run: its size costs nothing.
#[allow(clippy::result_large_err)]
impl Audit {
    /// An auditor of a world that is about to begin.
    #[must_use]
    pub fn new() -> Audit {
        Audit::default()
    }

    /// One thing that happened at `site`.
    ///
    /// # Errors
    /// The promise that it breaks.
    ///
    /// # Panics
    /// When the site was never born.
    pub fn see(&mut self, at: Micros, site: SiteIx, seen: &Seen<'_>) -> Result<(), Violation> {
        if let Seen::Born { config } = seen {
            self.world.names.insert(site, config.name.clone());
            self.sites.insert(site, Site::new((*config).clone()));
            return Ok(());
        }
        let checked = self.desk(at, site).see(seen);
        checked.map_err(|broken| self.violation(site, *broken))
    }

    /// A site goes by another configuration from its next start on.
    ///
    /// # Panics
    /// When the site was never born.
    pub fn configured(&mut self, site: SiteIx, config: &Config) {
        let site = self.sites.get_mut(&site).expect("a site is born before anything happens there");
        site.starts_with(config.clone());
    }

    /// Compares what is known of a site with the rows and files that are there, and all rows with each
    /// other. A file is its number, its length, and whether it is whole and durable.
    ///
    /// # Errors
    /// The promise that is broken.
    ///
    /// # Panics
    /// When the site was never born.
    pub fn deep(
        &mut self,
        at: Micros,
        site: SiteIx,
        rows: &dyn Snapshot,
        files: &[(BlobNo, u64, bool)],
    ) -> Result<(), Violation> {
        let checked = self.desk(at, site).deep(rows, files);
        checked.map_err(|broken| self.violation(site, *broken))
    }

    /// After faults have stopped and time has passed: a deep check, and everything owed has come to its
    /// end, nothing is reserved, nothing temporary is left, and what is Acked is held over there.
    ///
    /// # Errors
    /// The promise that is broken.
    ///
    /// # Panics
    /// When the site was never born.
    pub fn at_rest(
        &mut self,
        at: Micros,
        site: SiteIx,
        rows: &dyn Snapshot,
        files: &[(BlobNo, u64, bool)],
    ) -> Result<(), Violation> {
        let checked = self.desk(at, site).at_rest(rows, files);
        let checked = checked.and_then(|()| self.is_over_there(site));
        checked.map_err(|broken| self.violation(site, *broken))
    }

    /// Whether a site may be at rest, as far as that can be told without looking at everything: for asking
    /// again and again before [`Audit::at_rest`].
    ///
    /// # Panics
    /// When the site was never born.
    #[must_use]
    pub fn seems_at_rest(&mut self, site: SiteIx, files: &[(BlobNo, u64, bool)]) -> bool {
        self.desk(Micros::ZERO, site).quiet(files).is_ok()
    }

    /// Nothing goes wrong from now on.
    pub fn calm(&mut self, at: Micros) {
        self.world.calm = Some(at);
    }

    /// Shards that were given up, at all sites, as far as rows say so.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        let of = |site: &Site| site.disk.pickup.counted(ShardState::RelayCleanup).0;
        self.sites.values().map(of).sum()
    }

    /// Shards whose content was destroyed and that still wait for their nodes, at all sites.
    #[must_use]
    pub fn spoiled(&self) -> usize {
        let of = |site: &Site| {
            let waits = |row: &&ShardRow| row.state == ShardState::RelayBuffered;
            let rows = site.disk.pickup.shards.values().filter(waits);
            rows.filter(|row| site.lost_content(row)).count()
        };
        self.sites.values().map(of).sum()
    }

    /// Whether rows or content of pickup were destroyed anywhere: then nobody can be sure of anything.
    #[must_use]
    pub fn has_lost_shards(&self) -> bool {
        self.sites.values().any(Site::has_lost_shards)
    }

    /// How much was seen.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.world.totals
    }

    /// Deliveries still owed at all sites, but for those whose rows were destroyed.
    #[must_use]
    pub fn owed(&self) -> usize {
        let of = |site: &Site| {
            let owed = site.disk.owed.iter();
            owed.filter(|(no, seq)| !site.excuses(*seq, *no)).count()
        };
        self.sites.values().map(of).sum()
    }

    fn desk(&mut self, at: Micros, ix: SiteIx) -> Desk<'_> {
        let site = self.sites.get_mut(&ix).expect("a site is born before anything happens there");
        Desk { at, ix, site, world: &mut self.world }
    }

    /// What is Acked is held at the other site.
    fn is_over_there(&self, ix: SiteIx) -> Check {
        let Some(site) = self.sites.get(&ix) else { return Ok(()) };
        let acked = site.disk.deliveries.iter().filter(|(_, row)| row.state == State::Acked);
        for ((seq, no), _) in acked {
            let name = site.peer(*no);
            let peer = self.sites.values().find(|other| other.config.name == name);
            let (Some(peer), Some(id)) = (peer, site.id(*seq)) else { continue };
            // By now it may have let it go, as far as its own rules allow that.
            if let (Holds::No(why), false) = (peer.holds(&id), peer.removed.contains_key(&id)) {
                let text = format!("delivery to {name} is Acked, and over there {why}");
                return Err(broken("I3", Some(id), text));
            }
        }
        Ok(())
    }

    fn violation(&self, ix: SiteIx, broken: Broken) -> Violation {
        let Broken { invariant, segment, text } = broken;
        let name = |ix: SiteIx| self.world.name(ix);
        let peer = |ix: SiteIx, no: SiteNo| {
            self.sites.get(&ix).map_or_else(|| no.to_string(), |site| site.peer(no))
        };
        Violation {
            invariant,
            site: name(ix),
            segment,
            name: segment.map_or("", |id| self.world.stories.name(&id)).to_string(),
            text,
            story: self.world.stories.of(segment.as_ref(), name, peer),
        }
    }
}

impl World {
    fn name(&self, ix: SiteIx) -> String {
        self.names.get(&ix).cloned().unwrap_or_else(|| format!("site {ix}"))
    }
}

impl Desk<'_> {
    fn see(&mut self, seen: &Seen<'_>) -> Check {
        if self.site.lost_track {
            return self.see_blindly(seen);
        }
        match seen {
            Seen::Turned { now, inputs, footprint } => {
                return self.turned(*now, *inputs, *footprint);
            }
            _ => self.site.clock.stirred = true,
        }
        match seen {
            Seen::Born { .. } | Seen::Turned { .. } => Ok(()),
            Seen::Started { boot } => self.started(*boot),
            Seen::Opened(conn) => {
                let link = self.site.links.get(*conn);
                (link.born, link.ack_timeout) = (self.at, Some(self.site.config.ack_timeout));
                Ok(())
            }
            Seen::Reconfigured { config, handed } => {
                self.world.totals.reloads += 1;
                self.site.goes_on_with(self.at, (*config).clone(), handed.0);
                self.tell_of_site("goes by another configuration from now on".into());
                Ok(())
            }
            Seen::Stopping => {
                self.site.life.stopping = true;
                self.tell_of_site("is asked to stop".into());
                Ok(())
            }
            Seen::Died(death) => self.died(*death),
            Seen::Durable { batch, bodies } => self.durable(batch, bodies),
            Seen::FileWhole { blob, size, digest } => self.file_whole(*blob, *size, *digest),
            Seen::FileGone(blob) => self.file_gone(*blob),
            Seen::Damaged(damage) => {
                self.damaged(damage);
                Ok(())
            }
            Seen::Submitted { id, digest, size, meta, .. } => {
                self.world.totals.submitted += 1;
                let handed = Handed { digest: *digest, size: *size };
                self.world.stories.handed_in(self.ix, *id, &meta.name, handed);
                self.tell(id, Event::Submitted);
                Ok(())
            }
            Seen::Queued(accepted) => self.queued(accepted),
            Seen::Refused { id, code } => {
                self.world.totals.refused += 1;
                self.tell(id, Event::Refused(code));
                Ok(())
            }
            Seen::Operated(word) => {
                self.site.acts.insert((*word).to_string());
                self.tell_of_site(format!("an operator wants: {word}"));
                Ok(())
            }
            Seen::AckLetGo { conn, transfer, id } => self.ack_let_go(*conn, *transfer, id),
            Seen::FrameSent { peer, conn, frame } => self.sent(*peer, *conn, frame),
            Seen::FrameArrived { peer, conn, frame } => self.arrived(*peer, *conn, frame),
            Seen::Note(note) => self.note(note),
            Seen::Pickup(sight) => self.sight(sight),
            Seen::Serving { conn, redemption } => {
                self.site.pickup.fetches.begins(*conn, *redemption);
                Ok(())
            }
            Seen::FetchOver { conn, end } => {
                self.site.pickup.fetches.over(*conn, *end);
                Ok(())
            }
        }
    }

    /// An older ledger was put back: what this site says cannot be judged, and what others rest on it is
    /// excused.
    fn see_blindly(&mut self, seen: &Seen<'_>) -> Check {
        match seen {
            Seen::FrameSent { peer, frame: Frame::Ack { id, epoch, .. }, .. } => {
                self.world.acks.insert((self.ix, *peer, *id, *epoch));
            }
            Seen::FileWhole { blob, size, digest } => {
                self.site.files.insert(*blob, (*size, *digest));
            }
            Seen::FileGone(blob) => drop(self.site.files.remove(blob)),
            Seen::Damaged(damage) => self.damaged(damage),
            Seen::Died(death) => return self.died(*death),
            Seen::Operated(word) => drop(self.site.acts.insert((*word).to_string())),
            Seen::Reconfigured { config, handed } => {
                self.site.goes_on_with(self.at, (*config).clone(), handed.0);
            }
            Seen::Started { boot } => {
                self.site.life.running = true;
                self.site.life.boot = *boot;
            }
            _ => {}
        }
        Ok(())
    }

    fn damaged(&mut self, damage: &Damage) {
        self.world.totals.damaged += 1;
        match damage {
            Damage::File(blob) => drop(self.site.harm.files.insert(*blob)),
            Damage::Row(table, key) => self.harm_row(*table, key),
            Damage::Rollback => {
                self.world.custody.forget_all_of(self.ix);
                self.site.lost_track = true;
                self.site.rolled_back = true;
                // Numbers are given again.
                self.site.addressed.clear();
                self.site.doubted_rightly.clear();
            }
        }
        self.tell_of_site(format!("{damage:?} is destroyed"));
    }

    fn tell(&mut self, id: &SegmentId, event: Event) {
        self.world.stories.tell(self.at, self.ix, id, event);
    }

    fn tell_of_site(&mut self, what: String) {
        self.world.stories.tell_of_site(self.at, self.ix, what);
    }

    fn name_of(&self, ix: SiteIx) -> String {
        self.world.name(ix)
    }

    /// The site that a peer's number means, if it is one of this world.
    fn ix_of(&self, no: SiteNo) -> Option<SiteIx> {
        let name = self.site.disk.peers.get(&no)?;
        self.world.names.iter().find(|(_, known)| *known == name).map(|(ix, _)| *ix)
    }
}
