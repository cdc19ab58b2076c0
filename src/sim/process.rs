//! The process of a site while it is up: the pump, its connections, its local clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use consign_core::act::Act;
use consign_core::config::Config;
use consign_core::conn::{Begin, Conn, Role};
use consign_core::driver::MakeSession;
use consign_core::driver::PickupTls;
use consign_core::id::{BatchNo, ConnId, SiteNo, TransferNo};
use consign_core::ledger::read::Recovery;
use consign_core::limits::{SESSION_INFLIGHT, TURN_INPUTS};
use consign_core::link::Timeouts;
use consign_core::node::{Action, Input, Node, RecoverError};
use consign_core::pickup::{PickupContext, PickupSession};
use consign_core::pump::{Outbox, Pump, Tap};
use consign_core::session::peer::PeerSession;
use consign_core::session::{Identity, Promise, SessionCommand, SessionConfig, SessionEvent};
use consign_core::store::StoreEvent;
use consign_core::time::{Instant, Now};
use consign_core::tls::TlsSetup;

use crate::record::Recorder;

use super::client::{Client, Job, Told, Wishes};
use super::net::Sock;
use super::pickup::fill;
use super::rng::Rng;
use super::seen::{Seen, SiteIx};
use super::time::Micros;
use super::wire::{Around, Mail, Port, Wire};

/// What a turn leaves for the world to do.
#[derive(Debug, Default)]
pub struct Asked {
    /// Peers to dial, and where.
    pub dials: Vec<(SiteNo, String, String)>,
    /// What the site goes by from now on.
    pub config: Option<Box<Config>>,
    /// The drain is over.
    pub drained: bool,
    /// The store cannot be trusted.
    pub halted: Option<String>,
}

/// A running site.
pub struct Process {
    pump: Pump,
    /// When the node's loop runs next, for its inbox.
    pub turn_at: Micros,
    /// When it runs for its clock.
    pub timer_at: Micros,
    deadline: Instant,
    make: MakeSession,
    quay: MakeSession,
    wires: BTreeMap<ConnId, Wire>,
    socks: BTreeMap<(Port, Sock), ConnId>,
    /// Dials under way, by attempt.
    pub dials: BTreeMap<u64, (SiteNo, String)>,
    clients: BTreeMap<ConnId, Client>,
    /// Operators who wait for what becomes of their acts.
    operators: BTreeSet<ConnId>,
    generation: u32,
    /// What sessions are made with beside the configuration.
    made_with: (u64, u64),
    /// The last batch that was handed to the store.
    handed: BatchNo,
    /// Whether a stop was asked for.
    pub stopping: bool,
}

impl Process {
    /// A process on what its store holds; its sessions with nodes draw their tokens from the seed.
    ///
    /// # Errors
    /// As [`Node::recover`].
    pub fn start(
        config: &Config,
        (checkpoint_every, seed): (u64, u64),
        recovery: Recovery,
        at: Micros,
        now: Now,
    ) -> Result<Process, RecoverError> {
        let node = Node::recover(config.clone(), recovery, now)?;
        Ok(Process {
            pump: Pump::new(node),
            turn_at: at,
            timer_at: Micros::FAR,
            deadline: Instant::ZERO,
            make: sessions(config, checkpoint_every),
            quay: pickup_sessions(config, checkpoint_every, seed),
            wires: BTreeMap::new(),
            socks: BTreeMap::new(),
            dials: BTreeMap::new(),
            clients: BTreeMap::new(),
            operators: BTreeSet::new(),
            generation: 0,
            made_with: (checkpoint_every, seed),
            handed: BatchNo(0),
            stopping: false,
        })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Node {
        self.pump.node()
    }

    /// Has everything written down that goes into the node and comes out.
    pub fn record(&mut self, recorder: Option<Recorder>) {
        self.pump.set_tap(recorder.map(|tap| Box::new(tap) as Box<dyn Tap + Send>));
    }

    /// When the node wants to be woken by its clock.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When the first connection wants to run.
    #[must_use]
    pub fn next_wire(&self) -> Option<(Micros, ConnId)> {
        self.wires.iter().map(|(conn, wire)| (wire.wake, *conn)).min()
    }

    fn next_conn(&mut self, slot: u32) -> ConnId {
        self.generation += 1;
        ConnId { slot, generation: self.generation }
    }

    /// The node's loop goes round once.
    pub fn turn(&mut self, around: &mut Around<'_>, waiting: &mut Vec<Input>) -> Asked {
        let now = around.now;
        self.turn_at = Micros::FAR;
        let mut outbox = Outbox::default();
        let timer = (self.deadline <= now.mono).then_some(Input::Timer);
        let mut taken = usize::from(timer.is_some());
        waiting.clear();
        let room = TURN_INPUTS - taken;
        waiting.extend(around.inbox.drain(..around.inbox.len().min(room)));
        taken += waiting.len();
        let config = self.reconfigured(waiting, around);
        let mut inputs = timer.into_iter().chain(waiting.drain(..));
        self.deadline = self.pump.turn(now, &mut inputs, &mut outbox).unwrap_or(Instant::FAR);
        drop(inputs);
        if !around.inbox.is_empty() {
            self.turn_at = around.soon();
        }
        let footprint = self.pump.node().footprint();
        let turned = Seen::Turned { now, inputs: taken, footprint };
        around.watch.see(around.at, around.site, &turned);
        if let Some(batch) = outbox.batch {
            self.handed = batch.number;
            around.store.commit(around.at, batch);
        }
        let mut asked = Asked { config, ..Asked::default() };
        for action in outbox.actions {
            self.act(action, around, &mut asked);
        }
        asked
    }

    /// Another configuration is among what the node takes: new sessions are made by it too.
    fn reconfigured(&mut self, waiting: &[Input], around: &mut Around<'_>) -> Option<Box<Config>> {
        let new = waiting.iter().rev().find_map(|input| match input {
            Input::Reconfigure { config, .. } => config.clone(),
            _ => None,
        })?;
        let (every, seed) = self.made_with;
        self.make = sessions(&new, every);
        self.quay = pickup_sessions(&new, every, seed);
        let seen = Seen::Reconfigured { config: &new, handed: self.handed };
        around.watch.see(around.at, around.site, &seen);
        Some(new)
    }

    fn act(&mut self, action: Action, around: &mut Around<'_>, asked: &mut Asked) {
        match action {
            Action::Command(conn, command) => {
                if let SessionCommand::Promised(promised) = &command
                    && let Promise::Ack { transfer, id } = promised.clone().into_inner()
                {
                    let seen = Seen::AckLetGo { conn, transfer, id };
                    around.watch.see(around.at, around.site, &seen);
                }
                if let Some(wire) = self.wires.get_mut(&conn) {
                    around.is_served(conn, &command);
                    wire.post(Mail::Command(command));
                    wire.wake = wire.wake.min(around.soon());
                } else if let Some(client) = self.clients.get_mut(&conn) {
                    let mut wishes = Wishes::default();
                    client.command(command, &mut wishes);
                    self.serve(conn, wishes, around);
                } else if self.operators.remove(&conn) {
                    around.inbox.push_back(Input::Closed { conn, why: String::new() });
                    self.turn_at = self.turn_at.min(around.soon());
                }
            }
            Action::Read(number, request) => around.store.read(around.at, number, request),
            Action::Errand(errand) => around.store.errand(around.at, errand),
            Action::Dial { site, name, address } => asked.dials.push((site, name, address)),
            // No site of the simulator has an inbox rule.
            Action::Reload(_) | Action::Export(_) => {}
            Action::Note(note) => around.watch.see(around.at, around.site, &Seen::Note(&note)),
            Action::Drained => asked.drained = true,
            Action::Halt(why) => asked.halted = Some(why),
        }
    }

    /// The store's answer to a connection.
    pub fn answered(&mut self, conn: ConnId, event: StoreEvent, around: &mut Around<'_>) {
        if let Some(wire) = self.wires.get_mut(&conn) {
            wire.post(Mail::Store(event));
            wire.wake = wire.wake.min(around.soon());
        } else if let Some(client) = self.clients.get_mut(&conn) {
            let mut wishes = Wishes::default();
            client.store_event(event, &mut wishes);
            self.serve(conn, wishes, around);
        }
    }

    /// A local client connects and begins.
    pub fn submit(&mut self, job: Job, inline_max: u64, declared: bool, around: &mut Around<'_>) {
        let conn = self.next_conn(1);
        let Job { id, digest, body, meta, to } = &job;
        let (id, digest, size) = (*id, *digest, body.len() as u64);
        let seen = Seen::Submitted { id, digest, size, meta, to };
        around.watch.see(around.at, around.site, &seen);
        let mut client = Client::new(conn, job, inline_max, declared);
        let mut wishes = Wishes::default();
        around.inbox.push_back(Input::Opened { conn });
        client.open(&mut wishes);
        self.clients.insert(conn, client);
        self.serve(conn, wishes, around);
    }

    /// An operator connects and acts.
    pub fn operate(&mut self, act: Act, around: &mut Around<'_>) {
        let event = SessionEvent::Act { ticket: TransferNo(1), act: Box::new(act) };
        self.act_as_operator(event, around);
    }

    /// Carries out what a client wants; tells the world's books how it ended.
    fn serve(&mut self, conn: ConnId, wishes: Wishes, around: &mut Around<'_>) {
        for request in wishes.requests {
            around.store.request(around.at, conn, request);
        }
        around.inbox.extend(wishes.events.into_iter().map(|event| Input::Session(conn, event)));
        self.turn_at = self.turn_at.min(around.soon());
        let Some(told) = wishes.told else { return };
        let Some(client) = self.clients.remove(&conn) else { return };
        match &told {
            Told::Queued(accepted) => {
                around.watch.see(around.at, around.site, &Seen::Queued(accepted));
            }
            Told::Refused(code, again) => {
                let id = client.job().id;
                around.watch.see(around.at, around.site, &Seen::Refused { id, code });
                if *again {
                    around.watch.unsent.push((around.site, client.job().clone()));
                }
            }
        }
        self.close_client(conn, around);
    }

    fn close_client(&mut self, conn: ConnId, around: &mut Around<'_>) {
        around.store.conn_ended(around.at, conn);
        around.inbox.push_back(Input::Closed { conn, why: String::new() });
    }

    /// A client goes away without waiting for its answer.
    pub fn client_gone(&mut self, around: &mut Around<'_>) {
        let Some((conn, mut client)) = self.clients.pop_first() else { return };
        let mut wishes = Wishes::default();
        client.leave(&mut wishes);
        for request in wishes.requests {
            around.store.request(around.at, conn, request);
        }
        around.inbox.extend(wishes.events.into_iter().map(|event| Input::Session(conn, event)));
        self.close_client(conn, around);
        self.turn_at = self.turn_at.min(around.soon());
    }

    /// The clients lose their connections: the process has ended.
    pub fn unanswered(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.clients).into_values().map(|client| client.job().clone()).collect()
    }

    /// A socket is connected to a peer.
    pub fn attach(&mut self, end: End<'_>, around: &mut Around<'_>) {
        let id = self.next_conn(0);
        let begin = Begin { id, now: around.now, timeouts: Timeouts::default(), make: &self.make };
        let End { sock, peer, name, fingerprint, role, tls } = end;
        around.watch.see(around.at, around.site, &Seen::Opened(id));
        let remote = name.to_string();
        let conn = match (tls, role) {
            (Some(setup), Role::Dialled { site, name }) => {
                Conn::dialled(begin, remote, site, name, setup)
            }
            (Some(setup), Role::Accepted | Role::Local { .. }) => {
                Conn::accepted(begin, remote, setup)
            }
            (None, role) => {
                let not_after = around.now.wall.after(Duration::from_secs(40 * 365 * 86_400)).0;
                let name = name.to_string();
                let identity = Identity { name, fingerprint, not_after };
                Conn::simulated(begin, remote, role, identity)
            }
        };
        self.wires.insert(id, Wire::new(conn, sock, peer, around.at));
        self.socks.insert((Port::Peers, sock), id);
    }

    /// Somebody on the quay has connected.
    pub fn land(
        &mut self,
        sock: Sock,
        from: usize,
        tls: Option<&PickupTls>,
        around: &mut Around<'_>,
    ) {
        let id = self.next_conn(2);
        let begin = Begin { id, now: around.now, timeouts: Timeouts::default(), make: &self.quay };
        let conn = Conn::pickup(begin, format!("host {from}"), tls);
        self.wires.insert(id, Wire::quay(conn, sock, around.at));
        self.socks.insert((Port::Quay, sock), id);
    }

    /// An operator connects and says this.
    pub fn act_as_operator(&mut self, event: SessionEvent, around: &mut Around<'_>) {
        let conn = self.next_conn(1);
        self.operators.insert(conn);
        around.inbox.push_back(Input::Opened { conn });
        around.inbox.push_back(Input::Session(conn, event));
        self.turn_at = self.turn_at.min(around.soon());
    }

    /// Something happened on a socket.
    pub fn sock_ready(&mut self, sock: Sock, soon: Micros) {
        self.ready((Port::Peers, sock), soon);
    }

    /// The same on the quay.
    pub fn quay_ready(&mut self, sock: Sock, soon: Micros) {
        self.ready((Port::Quay, sock), soon);
    }

    fn ready(&mut self, sock: (Port, Sock), soon: Micros) {
        if let Some(wire) = self.socks.get(&sock).and_then(|conn| self.wires.get_mut(conn)) {
            wire.ready();
            wire.wake = wire.wake.min(soon);
        }
    }

    /// A connection's thread runs; `when` turns its deadline into true time.
    pub fn run_wire(
        &mut self,
        conn: ConnId,
        around: &mut Around<'_>,
        when: &dyn Fn(Instant) -> Micros,
    ) {
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        let over = wire.run(around);
        wire.wake = wire.deadline().map_or(Micros::FAR, when);
        if !around.inbox.is_empty() {
            self.turn_at = self.turn_at.min(around.soon());
        }
        if over {
            let sock = wire.sock();
            self.wires.remove(&conn);
            self.socks.remove(&sock);
        }
    }

    /// Every connection is told to say goodbye.
    pub fn goodbye(&mut self, at: Micros, now: Now) {
        for wire in self.wires.values_mut() {
            wire.stop(now);
            wire.wake = at;
        }
    }
}

/// A socket with what is known of its other end.
pub struct End<'a> {
    /// The socket.
    pub sock: Sock,
    /// The other site.
    pub peer: SiteIx,
    /// Its name.
    pub name: &'a str,
    /// What its certificate is known by, where TLS is not real.
    pub fingerprint: [u8; 32],
    /// How the connection came to be.
    pub role: Role,
    /// How peers are met, where TLS is real.
    pub tls: Option<&'a TlsSetup>,
}

fn sessions(config: &Config, checkpoint_every: u64) -> MakeSession {
    let config = SessionConfig {
        name: config.name.clone(),
        ack_timeout: config.ack_timeout,
        max_segment: config.max_segment,
        max_offers: u32::try_from(SESSION_INFLIGHT).unwrap_or(u32::MAX),
        hello_timeout: Duration::from_secs(10),
        ping_after: Duration::from_secs(20),
        dead_after: Duration::from_secs(60),
        plant: config.plant,
    };
    Arc::new(move |info| {
        Box::new(PeerSession::with_checkpoints(info, config.clone(), checkpoint_every))
    })
}

fn pickup_sessions(config: &Config, checkpoint_every: u64, seed: u64) -> MakeSession {
    let max_upload = config.buffer.max_upload.unwrap_or(u64::MAX);
    let context = PickupContext {
        notify_window: config.buffer.notify_window as usize,
        ..PickupContext::new(vec![config.name.clone()], config.inline_max, max_upload)
    };
    let context = Arc::new(context);
    Arc::new(move |info| {
        let mut rng = Rng::stream(seed, u64::from(info.conn.generation));
        let random = Box::new(move |bytes: &mut [u8]| fill(&mut rng, bytes));
        let session = PickupSession::new(context.clone(), info.clone(), random);
        Box::new(session.with_checkpoints(checkpoint_every))
    })
}
