//! Whether a peer answers: a PING on its session, for whoever asks.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Node;
use super::types::{Action, Answer, Pinged};
use crate::id::{ConnId, TransferNo};
use crate::session::SessionCommand;

/// Clients that wait, and on which session: at most one question for each of their connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Pings(BTreeMap<ConnId, (TransferNo, ConnId)>);

impl Pings {
    /// Takes out who waits for this session.
    fn of(&mut self, session: ConnId) -> Vec<(ConnId, TransferNo)> {
        let mine = self.0.iter().filter(|(_, (_, on))| *on == session);
        let mine: Vec<_> = mine.map(|(client, (ticket, _))| (*client, *ticket)).collect();
        for (client, _) in &mine {
            self.0.remove(client);
        }
        mine
    }
}

impl Node {
    pub(super) fn ping(
        &mut self,
        client: ConnId,
        ticket: TransferNo,
        name: &str,
        out: &mut Vec<Action>,
    ) {
        let peer = self.sites.get(name).and_then(|site| self.peers.get(site));
        let Some(peer) = peer.filter(|peer| !peer.forgotten) else {
            return pinged(client, ticket, Pinged::Unknown, out);
        };
        let is_ready = |conn: &ConnId| {
            let session = self.conns.get(conn).and_then(|conn| conn.peer.as_ref());
            session.is_some_and(|session| session.ready.is_some())
        };
        match peer.session.filter(is_ready) {
            Some(session) => {
                self.pings.0.insert(client, (ticket, session));
                out.push(Action::Command(session, SessionCommand::Ping));
            }
            None => pinged(client, ticket, Pinged::Down(peer.last_error.clone()), out),
        }
    }

    /// The peer has answered on this session.
    pub(super) fn pong(&mut self, session: ConnId, micros: u64, out: &mut Vec<Action>) {
        for (client, ticket) in self.pings.of(session) {
            pinged(client, ticket, Pinged::After(micros), out);
        }
    }

    /// That connection is gone: nobody waits there, and nothing comes from there any more.
    pub(super) fn pings_gone(&mut self, conn: ConnId, why: &str, out: &mut Vec<Action>) {
        self.pings.0.remove(&conn);
        for (client, ticket) in self.pings.of(conn) {
            pinged(client, ticket, Pinged::Down(why.into()), out);
        }
    }
}

fn pinged(client: ConnId, ticket: TransferNo, pinged: Pinged, out: &mut Vec<Action>) {
    let answer = Answer::Pinged(pinged).into();
    out.push(Action::Command(client, SessionCommand::Answer { ticket, answer }));
}
