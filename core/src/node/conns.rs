//! Connections: who may stay, when they start, when they end, when a peer is dialled.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::peer::Peer;
use super::receipt::Passing;
use super::types::{Action, Note};
use super::{Node, Verdict};
use crate::code::{Cause, Goodbye};
use crate::gate::Promised;
use crate::id::{BlobNo, ConnId, Epoch, Seq, SiteNo, TransferNo};
use crate::ledger::rows::State;
use crate::limits::{CREDIT_START, REDIAL, REDIAL_PEERS};
use crate::plant::Plant;
use crate::schedule::Ahead;
use crate::segment::Destinations;
use crate::session::{Identity, PeerLimits, Promise, SessionCommand};
use crate::time::{Instant, Now, UnixMillis};

/// New segments are not started on a session this long before its certificate ends (RELIABILITY 5.14).
const CERTIFICATE_MARGIN: Duration = Duration::from_secs(60);

/// A session with a peer.
#[derive(Clone, Debug)]
pub(super) struct PeerConn {
    pub site: SiteNo,
    pub epoch: Epoch,
    pub dialled: bool,
    /// Of its certificate.
    pub fingerprint: [u8; 32],
    /// What its HELLO said; no offers before.
    pub ready: Option<PeerLimits>,
    /// When it said so.
    pub ready_at: Instant,
    pub next_transfer: u32,
    /// Offers without an answer, each with the sites it serves.
    pub transfers: BTreeMap<TransferNo, (Seq, Vec<SiteNo>)>,
    /// Receipts that are passed back to it.
    pub passing: Passing,
    /// What is claimed ahead of it.
    pub ahead: Ahead,
    /// No new claims from then on.
    pub retires_at: Instant,
    /// Closed then at the latest.
    pub ends_at: Instant,
    /// What it did wrong, if anything: its session closes itself, and the peer is not dialled at once.
    pub fault: Option<String>,
}

/// What the node keeps of a connection.
#[derive(Clone, Debug)]
pub(super) struct Conn {
    /// `None` for a local client.
    pub peer: Option<PeerConn>,
    /// Bytes of received content it may have in memory.
    pub allowance: u64,
    /// Content it is sending us.
    pub incoming: BTreeSet<BlobNo>,
}

/// A session that ends in good order this soon after it was up is not followed at once by another.
const BRIEF: Duration = Duration::from_secs(1);
/// What is said of it.
const BRIEFLY: &str = "the peer ended the session within a second: does another process use this \
    site's certificate, or a copy of its directory?";

impl Node {
    pub(super) fn connected(
        &mut self,
        now: Now,
        conn: ConnId,
        identity: &Identity,
        dialled: bool,
        out: &mut Vec<Action>,
    ) {
        let known = self.sites.get(&identity.name).copied();
        let mut peer = known.and_then(|site| self.peers.get_mut(&site));
        if let Some(peer) = peer.as_mut().filter(|_| dialled) {
            // Also of one that has left the configuration while it was dialled: it may come back.
            peer.dialling = false;
        }
        let Some(peer) = peer.filter(|p| p.known) else {
            return self.turn_away(conn, &identity.name, Goodbye::UnknownPeer, out);
        };
        let site = peer.site;
        if peer.rekey {
            peer.dialling = false;
            return self.turn_away(conn, &identity.name, Goodbye::UnknownPeer, out);
        }
        // When we dialled it is no sign of life yet: our handshake is done before the other side has judged us.
        if !dialled {
            peer.is_alive();
        }
        if self.stopping {
            return self.turn_away(conn, &identity.name, Goodbye::Stopping, out);
        }
        if let Some(old) = peer.session {
            let old_dialled =
                self.conns.get(&old).and_then(|c| c.peer.as_ref()).is_some_and(|p| p.dialled);
            // The session dialled by the lexically smaller name stays; a newer one from the same
            // dialler replaces the older (DESIGN 3.4).
            let ours_first = self.config.name < identity.name;
            if old_dialled != dialled && old_dialled == ours_first {
                return self.turn_away(conn, &identity.name, Goodbye::Replaced, out);
            }
            self.end_session(now, old, Goodbye::Replaced, "a newer session took its place", out);
        }
        let sessions = self.peers.values().filter(|p| p.session.is_some()).count();
        let granted = self.granted();
        if sessions >= self.config.peer_sessions as usize
            || granted.saturating_add(CREDIT_START) > self.config.buffered_bytes
        {
            return self.turn_away(conn, &identity.name, Goodbye::Crowded, out);
        }
        self.sessions += 1;
        let epoch = Epoch { boot: self.stage.meta.boot, session: self.sessions };
        let certificate_ends = now.instant_of(UnixMillis(identity.not_after));
        let retires = now.mono.after(self.config.session_max_age);
        let margin = now
            .instant_of(UnixMillis(identity.not_after))
            .0
            .saturating_sub(CERTIFICATE_MARGIN.as_nanos() as u64);
        let peer_conn = PeerConn {
            site,
            epoch,
            dialled,
            fingerprint: identity.fingerprint,
            ready: None,
            ready_at: Instant::ZERO,
            next_transfer: 1,
            transfers: BTreeMap::new(),
            passing: Passing::default(),
            ahead: Ahead::new(self.peers.get(&site).and_then(|p| p.rate)),
            retires_at: retires.min(Instant(margin)),
            ends_at: retires.after(CERTIFICATE_MARGIN).min(certificate_ends),
            fault: None,
        };
        let conn_state =
            Conn { peer: Some(peer_conn), allowance: CREDIT_START, incoming: BTreeSet::new() };
        self.conns.insert(conn, conn_state);
        self.bind_to(site, identity);
        if let Some(peer) = self.peers.get_mut(&site) {
            peer.begins(conn);
            if let Some(rate) = peer.rate {
                out.push(Action::Command(conn, SessionCommand::Pace(rate)));
            }
        }
        // The boot counter behind the epoch is in the first batch of this run; while start-up still
        // has rows in flight of the last run to settle, nobody starts.
        if self.may_start() {
            self.start_session(conn, epoch);
        } else {
            self.unstarted.push((conn, epoch));
        }
    }

    /// Of several pins the one it has shown last is what it is known by, so that an older one may leave the configuration.
    fn bind_to(&mut self, site: SiteNo, identity: &Identity) {
        let configured = self.config.peers.iter().find(|p| p.name == identity.name);
        let listed = configured.is_some_and(|p| p.pins().any(|pin| *pin == identity.fingerprint));
        let Some(peer) = self.peers.get_mut(&site).filter(|_| listed) else { return };
        if peer.pin != identity.fingerprint {
            peer.pin = identity.fingerprint.to_vec();
            self.put_peer(site);
        }
    }

    pub(super) fn start_session(&mut self, conn: ConnId, epoch: Epoch) {
        let promise = Promise::Start { epoch, allowance: CREDIT_START };
        self.promise(conn, promise, None, None);
    }

    /// Sessions that came while start-up was not far enough.
    pub(super) fn start_waiting(&mut self) {
        if self.unstarted.is_empty() || !self.may_start() {
            return;
        }
        for (conn, epoch) in core::mem::take(&mut self.unstarted) {
            if self.conns.contains_key(&conn) {
                self.start_session(conn, epoch);
            }
        }
    }

    fn turn_away(&mut self, conn: ConnId, name: &str, why: Goodbye, out: &mut Vec<Action>) {
        let text = match why {
            Goodbye::UnknownPeer => format!("{name} is not among relay.known_peers"),
            Goodbye::Crowded => format!("{} sessions are the limit", self.config.peer_sessions),
            Goodbye::Stopping => "this site is stopping".to_string(),
            Goodbye::Replaced => "another session of this pair stays".to_string(),
            Goodbye::Protocol | Goodbye::Version | Goodbye::Age | Goodbye::Silent => String::new(),
        };
        if matches!(why, Goodbye::UnknownPeer | Goodbye::Crowded) {
            out.push(Action::Note(Note::Unwelcome { name: name.to_string(), why: text.clone() }));
        }
        out.push(Action::Command(conn, SessionCommand::Close { why, text }));
    }

    /// Ends a session from this side; what was in flight on it fails at once, and whatever it still
    /// sends is dropped with its number.
    pub(super) fn end_session(
        &mut self,
        now: Now,
        conn: ConnId,
        why: Goodbye,
        text: &str,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::Command(conn, SessionCommand::Close { why, text: text.to_string() }));
        self.conn_gone(now, conn, text, out);
    }

    pub(super) fn closed(&mut self, now: Now, conn: ConnId, why: &str, out: &mut Vec<Action>) {
        self.conn_gone(now, conn, why, out);
    }

    fn conn_gone(&mut self, now: Now, conn: ConnId, why: &str, out: &mut Vec<Action>) {
        let Some(gone) = self.conns.remove(&conn) else { return };
        if !self.config.planted(Plant::G8) {
            self.gate.forget(conn);
        }
        self.unstarted.retain(|(c, _)| *c != conn);
        self.forget_pending(conn, out);
        self.forget_acts(conn);
        self.reloads.forget(conn);
        self.pings_gone(conn, why, out);
        self.asks_no_more(conn);
        self.pickup_gone(conn);
        for blob in gone.incoming {
            self.incoming_cut(now, blob);
        }
        let Some(peer_conn) = gone.peer else { return };
        let why = peer_conn.fault.as_deref().filter(|_| why.is_empty()).unwrap_or(why);
        let verdict = Verdict::Failed {
            cause: Cause::SessionLost,
            spends: self.config.planted(Plant::BudgetOnUnreachable),
            retry_at: now.wall,
            refused: false,
        };
        let (site, was_up) = (peer_conn.site, peer_conn.ready.is_some());
        let (cut, flew) = (was_up && peer_conn.fault.is_none(), !peer_conn.transfers.is_empty());
        for (seq, sites) in peer_conn.transfers.into_values() {
            for site in sites {
                self.settle_later(site, seq, peer_conn.epoch, verdict);
            }
        }
        let backoff = self.backoff();
        let Some(peer) = self.peers.get_mut(&peer_conn.site) else { return };
        if peer.session == Some(conn) {
            peer.session = None;
        }
        let name = peer.name.clone();
        let broke = peer_conn.ready.is_none() || !why.is_empty();
        if broke && peer.session.is_none() {
            // A session that never became ready, or broke, counts like a dial that failed.
            let unsaid = "closed by the peer before its HELLO: does it know this site?";
            let why = if why.is_empty() { unsaid } else { why };
            peer.backs_off(now, backoff, why.to_string());
            // What cut it may be over by now: that says no more against the peer than a closed port.
            peer.unanswered = cut;
        } else if was_up && peer.session.is_none() && now.mono.since(peer_conn.ready_at) < BRIEF {
            // What ended it would end the next one too: two processes that share a certificate take
            // each other's place as fast as they can dial.
            peer.dial_at = peer.dial_at.max(now.mono.after(BRIEF));
            peer.errs(now, BRIEFLY.to_string());
        }
        if was_up {
            peer.down_since = Some(now.wall);
            out.push(Action::Note(Note::SessionDown { peer: name, why: why.to_string() }));
        }
        if flew || self.is_waited_for(site) {
            self.hurry(now, site);
        }
    }

    /// Where a released command goes: to its connection. With (G8) dropped, a promise to send whose
    /// session is over goes to the session that took its place.
    pub(super) fn heir(
        &mut self,
        conn: ConnId,
        command: SessionCommand,
    ) -> (ConnId, SessionCommand) {
        if !self.config.planted(Plant::G8) || self.conns.contains_key(&conn) {
            return (conn, command);
        }
        let SessionCommand::Promised(promised) = command else { return (conn, command) };
        let mut promise = promised.into_inner();
        let mut to = conn;
        if let Promise::Send(sending) = &mut promise {
            // What is for everybody does not say whom it was for.
            let peer = self.peers.values().find(|p| match &sending.offer.to {
                Destinations::Named(names) => names.contains(&p.name),
                Destinations::All => false,
            });
            let heir = peer.and_then(|p| p.session);
            let session = heir.and_then(|c| self.conns.get_mut(&c)).and_then(|c| c.peer.as_mut());
            if let (Some(heir), Some(session)) = (heir, session) {
                sending.offer.transfer = TransferNo(session.next_transfer);
                session.next_transfer = session.next_transfer.saturating_add(1);
                to = heir;
            }
        }
        (to, SessionCommand::Promised(Promised::for_tests(promise)))
    }

    pub(super) fn ready(&mut self, conn: ConnId, limits: PeerLimits, out: &mut Vec<Action>) {
        let Some(peer_conn) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) else {
            return;
        };
        let (site, epoch, dialled) = (peer_conn.site, peer_conn.epoch, peer_conn.dialled);
        peer_conn.ready = Some(limits);
        peer_conn.ready_at = self.now.mono;
        peer_conn.passing.start_over();
        if let Some(peer) = self.peers.get_mut(&site) {
            peer.is_alive();
            peer.last_error.clear();
            let peer = peer.name.clone();
            out.push(Action::Note(Note::SessionUp { peer, epoch, dialled }));
        }
    }

    /// The peer broke the protocol, went silent, or left with a complaint.
    pub(super) fn faulted(&mut self, conn: ConnId, text: String, out: &mut Vec<Action>) {
        if let Some(peer) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) {
            peer.fault = Some(text.clone());
        }
        out.push(Action::Note(Note::Warn { code: "protocol", text }));
    }

    /// `reached` says whether somebody answered and the handshake failed.
    pub(super) fn dial_failed(&mut self, now: Now, site: SiteNo, why: String, reached: bool) {
        let backoff = self.backoff();
        if let Some(peer) = self.peers.get_mut(&site) {
            peer.dialling = false;
            peer.unanswered = !reached;
            if peer.session.is_none() {
                peer.backs_off(now, backoff, why);
            }
        }
        if self.is_waited_for(site) {
            self.hurry(now, site);
        }
    }

    /// Whether something waits for a peer, or for what is reached through it.
    fn is_waited_for(&self, site: SiteNo) -> bool {
        let waits = |peer: &Peer| {
            let states = [State::Scheduled, State::Failed];
            states.iter().any(|state| self.stage.staged(peer.site, *state) > 0)
        };
        self.peers.values().any(|peer| peer.hop() == site && waits(peer))
    }

    /// Something waits for a peer: if nobody answered there, or its session was cut, it is tried again soon.
    pub(super) fn hurry(&mut self, now: Now, site: SiteNo) {
        // Every segment that is taken asks; the peers are counted only where it matters.
        if self.peers.get(&site).is_none_or(|peer| !peer.may_hurry(now, REDIAL)) {
            return;
        }
        let down = self.peers.values().filter(|peer| peer.unanswered).count();
        let crowd = u32::try_from(down).unwrap_or(u32::MAX).div_ceil(REDIAL_PEERS);
        if let Some(peer) = self.peers.get_mut(&site) {
            peer.hurries(now, REDIAL.saturating_mul(crowd.max(1)));
        }
    }

    /// Dials every known peer that has no session and is not backing off.
    pub(super) fn dial(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.stopping {
            return;
        }
        for peer in self.peers.values_mut() {
            let wanted = peer.known && !peer.rekey && !peer.address.is_empty();
            if wanted && peer.session.is_none() && !peer.dialling && peer.dial_at <= now.mono {
                peer.dialling = true;
                out.push(Action::Dial {
                    site: peer.site,
                    name: peer.name.clone(),
                    address: peer.address.clone(),
                });
            }
        }
    }

    /// Sessions with peers. Of other connections there may be thousands that every turn would look at.
    fn peer_conns(&self) -> impl Iterator<Item = (ConnId, &Conn, &PeerConn)> {
        let sessions = self.peers.values().filter_map(|p| p.session);
        sessions.filter_map(|id| {
            let conn = self.conns.get(&id)?;
            Some((id, conn, conn.peer.as_ref()?))
        })
    }

    /// Bytes of received content that sessions may have in memory together.
    fn granted(&self) -> u64 {
        self.peer_conns().map(|(_, conn, _)| conn.allowance).sum()
    }

    /// Grows a session's window in turns, while the sum of grants stays within
    /// `limits.buffered_bytes`.
    pub(super) fn wants_allowance(&mut self, conn: ConnId, out: &mut Vec<Action>) {
        let left = self.config.buffered_bytes.saturating_sub(self.granted());
        let Some(state) = self.conns.get_mut(&conn) else { return };
        let doubled = state.allowance.saturating_mul(2).min(self.config.session_bytes);
        let grown = doubled.min(state.allowance.saturating_add(left));
        if grown > state.allowance {
            state.allowance = grown;
            out.push(Action::Command(conn, SessionCommand::Allowance(grown)));
        }
    }

    /// Ends sessions that are too old, or whose certificate is, once nothing is in flight on them.
    pub(super) fn retire(&mut self, now: Now, out: &mut Vec<Action>) {
        let over = self.peer_conns().filter(|(_, conn, peer)| {
            let idle = peer.transfers.is_empty() && conn.incoming.is_empty();
            now.mono >= peer.ends_at || (idle && now.mono >= peer.retires_at)
        });
        let over: BTreeSet<ConnId> = over.map(|(id, ..)| id).collect();
        for conn in over {
            self.end_session(now, conn, Goodbye::Age, "", out);
        }
    }

    /// The next time any connection or dial needs a look.
    pub(super) fn conns_deadline(&self) -> Option<Instant> {
        let dials = self.peers.values().filter(|p| {
            let wanted = p.known && !p.rekey && !p.address.is_empty();
            wanted && p.session.is_none() && !p.dialling && !self.stopping
        });
        let ends = self.peer_conns().map(|(_, conn, peer)| {
            let idle = peer.transfers.is_empty() && conn.incoming.is_empty();
            if idle { peer.retires_at.min(peer.ends_at) } else { peer.ends_at }
        });
        dials.map(|p| p.dial_at).chain(ends).min()
    }
}
