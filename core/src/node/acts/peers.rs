//! Peers: held and let loose, dialled now, forgotten, given a new pin.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Doing;
use crate::act::{self, Act, Report};
use crate::code::{Goodbye, Refusal};
use crate::id::{ConnId, SiteNo, TransferNo};
use crate::ledger::Table;
use crate::ledger::keys;
use crate::ledger::rows::PeerRow;
use crate::node::Node;
use crate::node::types::Action;
use crate::time::Now;

impl Node {
    /// Whether this can be done to that peer at all.
    pub(super) fn may_act_on(&self, site: SiteNo, act: &Act) -> Result<(), (Refusal, String)> {
        let Some(peer) = self.peers.get(&site) else { return Ok(()) };
        if act.action == act::Action::Forget && (peer.known || peer.via.is_some()) {
            let place = if peer.known { "is among relay.known_peers" } else { "has a [[route]]" };
            let text = format!("{} {place}: take it out of the configuration first", peer.name);
            return Err((Refusal::Invalid, text));
        }
        if act.action == act::Action::Forget && self.reconcile.is_settling() {
            return Err((Refusal::Busy, "start-up is not far enough".into()));
        }
        if act.action == act::Action::Flush && !peer.known {
            let text = format!("{} is not among relay.known_peers", peer.name);
            return Err((Refusal::Invalid, text));
        }
        Ok(())
    }

    pub(super) fn act_on_peer(
        &mut self,
        now: Now,
        conn: ConnId,
        ticket: TransferNo,
        act: &Act,
        site: SiteNo,
        out: &mut Vec<Action>,
    ) {
        let mut report = Box::new(Report::new(act));
        let name = self.name_of(site);
        if self.peer_changes(site, act) {
            report.add(&name, 0);
        }
        let changes = report.total().0 > 0 && !act.dry_run;
        if changes {
            self.change_peer(now, site, act, out);
            self.audit_act(now, act, 1, 0);
            report.commits = 1;
        }
        self.report(conn, ticket, report, changes, out);
    }

    /// Whether the act would change anything about the peer.
    fn peer_changes(&self, site: SiteNo, act: &Act) -> bool {
        let Some(peer) = self.peers.get(&site) else { return false };
        if act.action == act::Action::Rekey {
            return peer.rekey || peer.pin != self.new_pin(&peer.name, act);
        }
        let holds = act.action == act::Action::HoldPeer;
        let releases = act.action == act::Action::ReleasePeer;
        !(holds && peer.held || releases && !peer.held)
    }

    /// The pin that a `rekey` gives.
    fn new_pin(&self, name: &str, act: &Act) -> Vec<u8> {
        let configured = || self.config.peers.iter().find(|p| p.name == name).and_then(|p| p.pin);
        act.pin.or_else(configured).map(|pin| pin.to_vec()).unwrap_or_default()
    }

    fn change_peer(&mut self, now: Now, site: SiteNo, act: &Act, out: &mut Vec<Action>) {
        let name = self.name_of(site);
        let pin = self.new_pin(&name, act);
        let configured = self.config.peers.iter().find(|p| p.name == name);
        let taken = configured.is_none_or(|p| p.takes(&pin));
        let Some(peer) = self.peers.get_mut(&site) else { return };
        if act.action == act::Action::Flush {
            peer.is_alive();
            peer.claim_at = crate::time::Instant::ZERO;
            peer.full_streak = 0;
            return;
        }
        if act.action == act::Action::Rekey {
            peer.rekey = !taken;
            peer.pin = pin;
            if !peer.rekey {
                peer.is_alive();
                peer.last_error.clear();
            }
        } else {
            peer.held = act.action == act::Action::HoldPeer;
        }
        let old = peer.session.filter(|_| act.action == act::Action::Rekey && peer.rekey);
        self.put_peer(site);
        if let Some(conn) = old {
            self.end_session(now, conn, Goodbye::UnknownPeer, "it has a new pin", out);
        }
    }

    /// Writes a peer's row as it stands now.
    pub(in crate::node) fn put_peer(&mut self, site: SiteNo) {
        let Some(peer) = self.peers.get(&site) else { return };
        let row = PeerRow {
            name: peer.name.clone(),
            pin: peer.pin.clone(),
            held: peer.held,
            last_acked: peer.last_acked.map(|at| at.0),
            forgotten: peer.forgotten.then_some(true),
        };
        self.stage.batch.put(Table::Peers, &keys::site(site), &row);
    }

    /// Nothing is owed to the peer any more. Its number stays its own: delivered segments refer to it.
    /// Says whether that is staged.
    pub(super) fn forgotten(&mut self, now: Now, doing: &mut Doing) -> bool {
        let Some(site) = doing.only.peer else { return false };
        if doing.report.left_count > 0 {
            return false;
        }
        let Some(peer) = self.peers.get_mut(&site).filter(|p| !p.forgotten) else { return false };
        peer.forgotten = true;
        self.put_peer(site);
        if doing.report.commits == 0 {
            self.audit_act(now, &doing.act, 0, 0);
            doing.report.commits = 1;
        }
        true
    }
}
