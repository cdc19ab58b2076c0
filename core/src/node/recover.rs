//! A node from what its ledger holds.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use super::aside::Aside;
use super::book::Book;
use super::bounds::Bounds;
use super::clock::ClockHold;
use super::export::Exports;
use super::handed::Handed;
use super::incoming::Incoming;
use super::peer::Peer;
use super::pickup::Pickup;
use super::reconcile::Reconcile;
use super::scrub::Scrub;
use super::stage::Stage;
use super::types::{Note, ReconcileSummary};
use super::upkeep::Upkeep;
use super::want::Wants;
use super::{Mode, Node};
use crate::config::{Config, PeerConfig};
use crate::gate::Gate;
use crate::id::{BatchNo, BlobNo, ReadNo, SiteNo};
use crate::ledger::read::Recovery;
use crate::ledger::rows::{MetaName, PeerRow};
use crate::ledger::{FORMAT, Table};
use crate::schedule::Contact;
use crate::store::Space;
use crate::time::{Instant, Now, UnixMillis};

/// Why a node cannot begin with what the ledger holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The configuration breaks rules.
    #[error("{0:?}")]
    Config(Vec<crate::config::ConfigFault>),
    /// The ledger is of another format.
    #[error("the ledger has format {found}, this build reads {reads}")]
    Format {
        /// In the ledger.
        found: u64,
        /// In this build.
        reads: u16,
    },
}

/// How long the side whose session gives way waits before its first dial.
const SECOND_DIAL: Duration = Duration::from_millis(50);

/// What is taken for the disk where nobody has looked at it: a store that tells nothing refuses what it has no room for.
const UNKNOWN: Space = Space { free: u64::MAX, ledger: 0, ballast_whole: true };

impl Node {
    /// A node that goes on where the ledger stopped. An empty `recovery` is a new ledger.
    ///
    /// # Errors
    /// See [`RecoverError`].
    pub fn recover(config: Config, recovery: Recovery, now: Now) -> Result<Node, RecoverError> {
        let faults = config.faults();
        if !faults.is_empty() {
            return Err(RecoverError::Config(faults));
        }
        let found = recovery.meta_value(MetaName::Format);
        if found > u64::from(FORMAT) {
            return Err(RecoverError::Format { found, reads: FORMAT });
        }
        let mut stage = Stage::new(&recovery);
        stage.meta.boot += 1;
        let mut incoming = Incoming::default();
        incoming.load(&recovery);
        let committed = BatchNo(recovery.meta_value(MetaName::Batch));
        let below = BlobNo(stage.meta.next_blob);
        let reconcile = Reconcile::new(recovery.inflight.clone(), below, stage.meta.segments);
        let mut book = Book::default();
        book.committed(committed);
        let exports = Exports::begin(&config.inbox);
        let mut node = Node {
            config,
            exports,
            stage,
            gate: Gate::new(committed),
            book,
            mode: Mode::Normal,
            space: recovery.space.unwrap_or(UNKNOWN),
            short: None,
            seen: super::room::Seen::at(now.mono),
            sites: BTreeMap::new(),
            peers: BTreeMap::new(),
            conns: BTreeMap::new(),
            sessions: 0,
            unstarted: Vec::new(),
            pending: VecDeque::new(),
            found: VecDeque::new(),
            lookups_open: 0,
            settlements: VecDeque::new(),
            reservations: VecDeque::new(),
            incoming,
            reads: BTreeMap::new(),
            last_read: ReadNo(0),
            acts: super::acts::Acts::default(),
            refusals: [0; crate::code::Refusal::ALL.len()],
            reconcile,
            reloads: super::reconfigure::Reloads::default(),
            log_level: None,
            pings: super::ping::Pings::default(),
            scrub: Scrub::new(&recovery),
            pickup: Pickup::at_start(&recovery),
            aside: Aside::default(),
            handed: Handed::at_start(),
            wants: Wants::default(),
            summary: ReconcileSummary::default(),
            upkeep: Upkeep::new(),
            bounds: Bounds::default(),
            clock: ClockHold::at_start(now, UnixMillis(recovery.meta_value(MetaName::TimeHigh))),
            stopping: false,
            drain_by: Instant::FAR,
            drained: false,
            more: true,
            now,
        };
        node.full_at_start();
        node.aside.load(&recovery);
        node.meet_peers(&recovery);
        node.stage_identity(&recovery);
        Ok(node)
    }

    /// Peers of the ledger keep their numbers; peers of the configuration get one.
    fn meet_peers(&mut self, recovery: &Recovery) {
        for (site, row) in &recovery.peers {
            let mut peer = Peer::new(*site, row.name.clone(), self.config.window);
            peer.held = row.held;
            peer.pin = row.pin.clone();
            peer.forgotten = row.forgotten == Some(true);
            peer.last_acked = row.last_acked.map(UnixMillis);
            self.sites.insert(row.name.clone(), *site);
            self.peers.insert(*site, peer);
        }
        for known in self.config.peers.clone() {
            let site = self.meet(&known);
            if let Some(peer) = self.peers.get_mut(&site)
                && peer.name < self.config.name
            {
                // Of two sites that start together, the one whose session would stay dials first.
                peer.dial_at = self.now.mono.after(SECOND_DIAL);
            }
        }
        for route in self.config.routes.clone() {
            let hop = self.number_of(&route.via);
            let site = self.number_of(&route.to);
            if let Some(peer) = self.peers.get_mut(&site) {
                peer.via = Some(hop);
                peer.forgotten = false;
            }
        }
    }

    /// A peer of the configuration, as it stands there now.
    pub(super) fn meet(&mut self, known: &PeerConfig) -> SiteNo {
        let site = self.number_of(&known.name);
        let Some(peer) = self.peers.get_mut(&site) else { return site };
        peer.known = true;
        peer.forgotten = false;
        match known.pin {
            Some(pin) if peer.pin.is_empty() => peer.pin = pin.to_vec(),
            Some(_) | None => peer.rekey = !peer.pin.is_empty() && !known.takes(&peer.pin),
        }
        if peer.rekey {
            let text = "its pin is not the one it is known by: needs peers rekey";
            peer.last_error = text.into();
            peer.erred_at = None;
            let text = alloc::format!("{}: {text}", peer.name);
            self.stage.note(Note::Warn { code: "needs_rekey", text });
        }
        peer.address = known.address.clone();
        peer.pair = alloc::format!("{} {}", self.config.name, peer.name);
        peer.rate = known.rate_limit;
        // That they can be read was judged with the configuration.
        peer.contact = Contact::parse(&known.window).unwrap_or_default();
        site
    }

    /// A site's number; a name that is new gets one.
    fn number_of(&mut self, name: &str) -> SiteNo {
        if let Some(site) = self.sites.get(name) {
            return *site;
        }
        let site = self.stage.next_site();
        self.sites.insert(name.to_string(), site);
        self.peers.insert(site, Peer::new(site, name.to_string(), self.config.window));
        site
    }

    /// What an operator said of peers, as far as it is durable.
    pub(super) fn know_peers_again(&mut self, recovery: &Recovery) {
        for (site, row) in &recovery.peers {
            let Some(peer) = self.peers.get_mut(site) else { continue };
            let configured = self.config.peers.iter().find(|p| p.name == row.name);
            peer.held = row.held;
            peer.forgotten = row.forgotten == Some(true) && !peer.known && peer.via.is_none();
            if !row.pin.is_empty() || configured.is_none_or(|p| p.pin.is_none()) {
                peer.pin = row.pin.clone();
            }
            peer.rekey = configured.is_some_and(|p| !p.takes(&peer.pin));
        }
    }

    /// Stages what this run rests on and the ledger does not have yet: its boot counter, and the
    /// numbers of peers that are new.
    pub(super) fn stage_identity(&mut self, recovery: &Recovery) {
        let boot = self.stage.meta.boot;
        if recovery.meta_value(MetaName::Boot) != boot {
            let row = crate::ledger::rows::MetaRow { value: boot };
            self.stage.batch.put(Table::Meta, MetaName::Boot.key(), &row);
        }
        let sites: Vec<SiteNo> = self.peers.keys().copied().collect();
        for site in sites {
            let row = recovery.peers.iter().find(|(s, _)| *s == site).map(|(_, row)| row);
            let Some(peer) = self.peers.get(&site) else { continue };
            let as_known = |row: &PeerRow| {
                row.pin == peer.pin && (row.forgotten == Some(true)) == peer.forgotten
            };
            if !row.is_some_and(as_known) {
                self.put_peer(site);
            }
        }
    }
}
