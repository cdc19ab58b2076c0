//! Another configuration while the node runs: one step, so that nothing is judged half by the old one and half by the new.
//!
//! A peer that is gone from it loses its session at once; what is owed to it stays where it is, orphaned and visible, as
//! it would be after a start. A peer that is new, or back, is dialled, and what is still owed to it goes out.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::Node;
use super::remove::Act;
use super::types::{Action, Answer, Note, Reading};
use crate::code::Goodbye;
use crate::config::{Config, PeerConfig};
use crate::id::{ConnId, SiteNo, TransferNo};
use crate::plant::Plant;
use crate::retention::Policy;
use crate::schedule::Ahead;
use crate::session::SessionCommand;
use crate::time::Now;

/// How long sessions may go on that were judged by authorities which are believed no longer.
const RENEWAL: Duration = Duration::from_secs(50);

/// Reloads under way whose askers have left and are remembered all the same.
const UNHEARD: usize = 64;

/// Reloads that were asked for, and who waits for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Reloads {
    last: u64,
    asked: BTreeMap<u64, Asked>,
}

/// A reload that is under way.
#[derive(Clone, Debug)]
struct Asked {
    /// Who asked, as the audit has it: known also when nobody waits any more.
    who: String,
    waits: Option<(ConnId, TransferNo)>,
}

impl Reloads {
    /// That connection is gone.
    pub fn forget(&mut self, conn: ConnId) {
        for asked in self.asked.values_mut() {
            asked.waits.take_if(|(waits, _)| *waits == conn);
        }
        // A reader that does not answer keeps nothing here for ever.
        let unheard = self.asked.iter().filter(|(_, asked)| asked.waits.is_none());
        let numbers: Vec<u64> = unheard.map(|(number, _)| *number).collect();
        for number in numbers.iter().rev().skip(UNHEARD) {
            self.asked.remove(number);
        }
    }
}

impl Node {
    /// The configuration it goes by.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A client wants the configuration to be read again.
    pub(super) fn reload(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        who: &str,
        out: &mut Vec<Action>,
    ) {
        self.reloads.last += 1;
        let asked = Asked { who: who.into(), waits: Some((conn, ticket)) };
        self.reloads.asked.insert(self.reloads.last, asked);
        out.push(Action::Reload(self.reloads.last));
    }

    /// What holds from now on; a configuration that the node cannot go by changes nothing.
    pub(super) fn reconfigure(
        &mut self,
        now: Now,
        config: Option<Box<Config>>,
        renew: bool,
        out: &mut Vec<Action>,
    ) {
        if let Some(new) = config {
            self.log_as_configured(now, "", "a reload", out);
            let new = self.config.with_live(&new);
            if new != self.config && new.faults().is_empty() {
                self.swap(now, new, out);
            }
        }
        if renew {
            self.renew_sessions(now);
        }
        self.more = true;
    }

    /// Whoever waits for a reload is answered, and what became of it is recorded and told.
    pub(super) fn reread(
        &mut self,
        now: Now,
        reload: u64,
        reading: Option<Box<Reading>>,
        out: &mut Vec<Action>,
    ) {
        let asked = self.reloads.asked.remove(&reload);
        if let Some((conn, ticket)) = asked.as_ref().and_then(|asked| asked.waits) {
            let answer = Answer::Reloaded(reload).into();
            out.push(Action::Command(conn, SessionCommand::Answer { ticket, answer }));
        }
        let Some(reading) = reading else { return };
        let who = asked.map_or_else(|| reading.who.clone(), |asked| asked.who);
        let act = Act {
            who: who.clone(),
            action: if reading.taken { "reload" } else { "reload_refused" },
            subject: reading.file.clone(),
            text: reading.text.clone(),
            count: reading.changes,
            ..Act::default()
        };
        self.record(now, act);
        out.push(Action::Note(Note::Reread { who, reading }));
    }

    fn swap(&mut self, now: Now, new: Config, out: &mut Vec<Action>) {
        let old = core::mem::replace(&mut self.config, new);
        let stays = |name: &str| self.config.peers.iter().any(|p| p.name == name);
        let gone = self.peers.values().filter(|p| p.known && !stays(&p.name));
        let gone: Vec<SiteNo> = gone.map(|p| p.site).collect();
        for site in gone {
            self.peer_leaves(now, site, out);
        }
        let first = old.peers.is_empty() && !self.config.peers.is_empty();
        let condition = old.success_condition != self.config.success_condition;
        // What was acknowledged or relayed under the old one is judged by the new one too.
        if first || condition || Policy::of(&old) != Policy::of(&self.config) {
            self.reconcile.look_again();
        }
        for known in self.config.peers.clone() {
            let before = old.peers.iter().find(|p| p.name == known.name);
            if before != Some(&known) {
                self.peer_is(now, &known, before, out);
            }
        }
    }

    fn peer_leaves(&mut self, now: Now, site: SiteNo, out: &mut Vec<Action>) {
        let Some(peer) = self.peers.get_mut(&site) else { return };
        peer.known = false;
        peer.rekey = false;
        peer.address.clear();
        peer.rate = None;
        peer.contact = Default::default();
        let session = peer.session.filter(|_| !self.config.planted(Plant::StrangerServed));
        let why = "it is not among relay.known_peers any more";
        if let Some(conn) = session {
            self.end_session(now, conn, Goodbye::UnknownPeer, why, out);
        }
    }

    /// A peer is new, back, or other than before.
    fn peer_is(
        &mut self,
        now: Now,
        known: &PeerConfig,
        before: Option<&PeerConfig>,
        out: &mut Vec<Action>,
    ) {
        let row = |node: &Node, site| {
            node.peers.get(&site).map(|p| (p.pin.clone(), p.forgotten)).unwrap_or_default()
        };
        let had = self.sites.get(&known.name).map(|site| row(self, *site));
        let stuck = self.sites.get(&known.name).and_then(|site| self.peers.get(site));
        let stuck = stuck.is_some_and(|p| p.rekey);
        let site = self.meet(known);
        if had != Some(row(self, site)) {
            self.put_peer(site);
        }
        let Some(peer) = self.peers.get_mut(&site) else { return };
        let freed = stuck && !peer.rekey;
        if freed || before.is_none_or(|b| b.address != known.address) {
            peer.is_alive();
            if !peer.rekey {
                peer.last_error.clear();
            }
        }
        let (rekey, rate) = (peer.rekey, peer.rate);
        let Some(conn) = peer.session else { return };
        let Some(session) = self.conns.get_mut(&conn).and_then(|c| c.peer.as_mut()) else {
            return;
        };
        if rekey || !known.takes(&session.fingerprint) {
            let why = "its certificate is not the pinned one any more";
            return self.end_session(now, conn, Goodbye::UnknownPeer, why, out);
        }
        if before.is_none_or(|b| b.rate_limit != rate) {
            session.ahead = Ahead::new(rate);
            // So fast that it is none.
            let pace = SessionCommand::Pace(rate.unwrap_or(u64::MAX));
            out.push(Action::Command(conn, pace));
        }
    }

    /// Every session takes nothing new on and ends within a minute; peers that are welcome still come back at once.
    fn renew_sessions(&mut self, now: Now) {
        let end = now.mono.after(RENEWAL);
        for peer in self.conns.values_mut().filter_map(|conn| conn.peer.as_mut()) {
            peer.retires_at = peer.retires_at.min(now.mono);
            peer.ends_at = peer.ends_at.min(end);
        }
    }
}
