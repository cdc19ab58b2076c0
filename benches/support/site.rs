//! One site without sockets: a pump on a real ledger, and a peer that acknowledges whatever it is
//! offered. What takes time is told apart: the node's own work, reads, commits.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant as Clock};

use consign_core::config::{Config, PeerConfig};
use consign_core::id::{ConnId, TransferNo};
use consign_core::ledger::read;
use consign_core::node::{Action, Input, Node, Note};
use consign_core::pump::{Outbox, Pump};
use consign_core::session::{Identity, Outcome, PeerLimits, Promise, SessionCommand, SessionEvent};
use consign_core::store::Store;
use consign_core::time::{Instant, Now, UnixMillis};

use super::load::{BEGAN, PEER};
use super::{Disk, Res};

/// Where the time went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// In the node, turns of the pump and all.
    pub node: Duration,
    /// Inputs it took, turns included.
    pub steps: u64,
    /// Reading the ledger for it.
    pub reads: Duration,
    /// Waiting for commits.
    pub commits: Duration,
    /// How many of them.
    pub batches: u64,
    /// Their rows.
    pub rows: u64,
    /// Deliveries handed to the peer.
    pub sent: u64,
}

/// The site.
pub struct Site {
    pump: Pump,
    pub disk: Disk,
    now: Now,
    inbox: VecDeque<Input>,
    outbox: Outbox,
    conn: Option<ConnId>,
    unanswered: VecDeque<TransferNo>,
    reconciled: bool,
    pub spent: Spent,
}

/// The configuration of the site that the loader fills.
pub fn config() -> Config {
    let beta = PeerConfig::new(PEER, "beta.example:7400");
    Config { name: "alpha".into(), peers: vec![beta], min_free: 0, ..Config::default() }
}

/// Later than everything that was loaded.
pub fn start() -> Now {
    Now { mono: Instant(1), wall: UnixMillis(BEGAN + (1 << 32)) }
}

impl Site {
    /// Opens what the loader left, and lets start-up reconciliation come to its end.
    pub fn open(dir: &Path) -> Res<Site> {
        let (disk, recovery) = Disk::open(dir)?;
        let node = Node::recover(config(), recovery, start())?;
        let mut site = Site {
            pump: Pump::new(node),
            disk,
            now: start(),
            inbox: VecDeque::new(),
            outbox: Outbox::default(),
            conn: None,
            unanswered: VecDeque::new(),
            reconciled: false,
            spent: Spent::default(),
        };
        while !site.reconciled {
            site.turn()?;
            site.wait_for_store()?;
        }
        Ok(site)
    }

    /// The peer connects.
    pub fn connect(&mut self) -> Res<()> {
        let conn = ConnId { slot: 1, generation: 1 };
        let identity =
            Identity { name: PEER.into(), fingerprint: [7; 32], not_after: u64::MAX / 2 };
        self.inbox.push_back(Input::Connected { conn, identity, dialled: true });
        while self.conn.is_none() {
            self.turn()?;
        }
        let limits = PeerLimits { name: PEER.into(), max_segment: None, max_offers: 8192 };
        self.inbox.push_back(Input::Session(conn, SessionEvent::Ready(limits)));
        Ok(())
    }

    /// Delivers so many more, each acknowledged as soon as it is offered.
    pub fn deliver(&mut self, count: u64) -> Res<Spent> {
        let before = self.spent;
        let conn = self.conn.ok_or("nobody is connected")?;
        let mut idle = 0;
        while self.spent.sent - before.sent < count {
            let sent = self.spent.sent;
            self.turn()?;
            idle = if self.spent.sent == sent { idle + 1 } else { 0 };
            if idle > 10_000 {
                return Err(format!("nothing left to deliver after {sent}").into());
            }
            while let Some(transfer) = self.unanswered.pop_front() {
                let outcome = SessionEvent::Outcome { transfer, outcome: Outcome::Acked };
                self.inbox.push_back(Input::Session(conn, outcome));
            }
        }
        let after = self.spent;
        Ok(Spent {
            node: after.node - before.node,
            steps: after.steps - before.steps,
            reads: after.reads - before.reads,
            commits: after.commits - before.commits,
            batches: after.batches - before.batches,
            rows: after.rows - before.rows,
            sent: after.sent - before.sent,
        })
    }

    /// One turn of the pump, everything it asked for, and the commit of its batch.
    fn turn(&mut self) -> Res<()> {
        self.now.mono = self.now.mono.after(Duration::from_micros(1));
        self.inbox.extend(self.disk.inputs.try_iter());
        let begun = Clock::now();
        self.spent.steps += self.inbox.len() as u64 + 1;
        self.pump.turn(
            self.now,
            &mut std::iter::from_fn(|| self.inbox.pop_front()),
            &mut self.outbox,
        );
        self.spent.node += begun.elapsed();
        while let Some(action) = self.outbox.actions.pop_front() {
            self.act(action)?;
        }
        if let Some(batch) = self.outbox.batch.take() {
            let begun = Clock::now();
            self.spent.rows += batch.rows() as u64;
            self.spent.batches += 1;
            self.disk.store.commit(batch);
            loop {
                let input = self.disk.inputs.recv()?;
                let done = matches!(input, Input::Committed { .. } | Input::CommitFailed { .. });
                self.inbox.push_back(input);
                if done {
                    break;
                }
            }
            self.spent.commits += begun.elapsed();
        }
        Ok(())
    }

    /// Errands are carried out by the store's threads.
    fn wait_for_store(&mut self) -> Res<()> {
        if self.inbox.is_empty() && !self.reconciled {
            self.inbox.extend(self.disk.inputs.recv_timeout(Duration::from_millis(1)).ok());
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Res<()> {
        match action {
            Action::Command(conn, SessionCommand::Promised(promised)) => {
                match promised.into_inner() {
                    Promise::Start { .. } => self.conn = Some(conn),
                    Promise::Send(sending) => {
                        self.spent.sent += 1;
                        self.unanswered.push_back(sending.offer.transfer);
                    }
                    Promise::Ack { .. }
                    | Promise::Accept { .. }
                    | Promise::Accepted { .. }
                    | Promise::Receipt(_)
                    | Promise::ReceiptOk { .. }
                    | Promise::Want { .. }
                    | Promise::Pickup(_)
                    | Promise::Done { .. } => {}
                }
            }
            Action::Read(number, request) => {
                let begun = Clock::now();
                let result = self.disk.store.snapshot().and_then(|s| read::read(&s, &request));
                self.spent.reads += begun.elapsed();
                self.inbox.push_back(Input::Read(number, result));
            }
            Action::Errand(errand) => self.disk.store.errand(errand),
            Action::Note(Note::Reconciled(_)) => self.reconciled = true,
            Action::Halt(why) => return Err(why.into()),
            Action::Command(..)
            | Action::Dial { .. }
            | Action::Reload(_)
            | Action::Export(_)
            | Action::Note(_)
            | Action::Drained => {}
        }
        Ok(())
    }
}
