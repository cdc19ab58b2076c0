//! What a node has to do, across sessions, and one session after the other.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::AckStatus;
use consign_core::pickup::message::{
    FromNode, FromRelay, PendingNotify, REASON_MAX, Register, ShardAck,
};
use consign_core::pickup::ws::GOING_AWAY;

use super::fetch::{Fetched, Job, Outcome};
use super::give::Giving;
use super::shelf::{Record, path_of};
use super::ws::{Came, Ws};
use super::{Bell, Kept, Node, Tell, spawn};
use crate::exit::{Exit, Failure};
use crate::pickup::http::Http;

/// Notifications that may wait here; a relay sends 32.
const QUEUE_MAX: usize = 4_096;
/// Once it stops: how long answers to acks, and fetches that end, are waited for.
const FAREWELL: Duration = Duration::from_secs(5);
/// A round of the loop ends after so long at the latest.
const ROUND: Duration = Duration::from_secs(5);

/// How a session ended.
pub(super) enum Ended {
    Stopped,
    Lost(Failure),
}

/// An ack that is not answered.
struct Ack {
    said: ShardAck,
    /// The connection of a fetch that is to break off only after the relay knows why.
    _open: Option<Box<Http>>,
}

/// Everything that outlives a session.
pub(super) struct Desk<'n> {
    node: &'n Node,
    bell: &'n Bell,
    done: (Sender<Fetched>, Receiver<Fetched>),
    /// Fetches under way.
    running: BTreeMap<ShardKey, u64>,
    /// Notified and not begun.
    waiting: VecDeque<(ShardKey, PendingNotify)>,
    acks: BTreeMap<ShardKey, Ack>,
    idle: Vec<Http>,
    giving: Giving,
}

fn ack(shard: &ShardKey, redemption: u64, reason: Option<&Failure>) -> ShardAck {
    let reason = reason.map(|failure| {
        let mut end = failure.message.len().min(REASON_MAX);
        while !failure.message.is_char_boundary(end) {
            end -= 1;
        }
        failure.message.get(..end).unwrap_or_default().to_owned()
    });
    ShardAck {
        file_id: shard.file_id().into(),
        version_number: shard.version(),
        shard_index: shard.index(),
        redemption,
        status: if reason.is_some() { AckStatus::Failed } else { AckStatus::Verified },
        reason,
    }
}

impl<'n> Desk<'n> {
    /// With the acks that a former process was not answered.
    pub(super) fn new(node: &'n Node, bell: &'n Bell) -> Result<Desk<'n>, Failure> {
        let unanswered = node.shelf.unanswered().map_err(|e| {
            let text = format!("{} cannot be read: {e}", node.shelf.dir().display());
            Failure::new(Exit::Failed, "CN0828", text)
        })?;
        let mine = unanswered.into_iter().filter(|(shard, _)| shard.node() == node.signer.node);
        let acks = mine.map(|(shard, record)| {
            let said = ack(&shard, record.redemption, None);
            (shard, Ack { said, _open: None })
        });
        Ok(Desk {
            node,
            bell,
            done: channel(),
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
            acks: acks.collect(),
            idle: Vec::new(),
            giving: Giving::start(&node.rules, &node.shelf, &node.signer.node, &bell.stop)?,
        })
    }

    /// One session, from its connection to its end.
    pub(super) fn session(&mut self, tell: &mut dyn FnMut(Tell)) -> Result<Ended, Failure> {
        // The register of a session replaces the tokens of the last one.
        self.waiting.clear();
        let mut ws = match Ws::open(&self.node.target, &self.node.signer) {
            Ok(ws) => ws,
            Err(failure) => return Ok(Ended::Lost(failure)),
        };
        let register = Register { node_id: self.node.signer.node.clone() };
        ws.say(&FromNode::Register(register))?;
        let (mut registered, mut farewell) = (false, None);
        loop {
            if let Err(failure) = self.read(&mut ws, &mut registered, tell) {
                return Ok(Ended::Lost(failure));
            }
            for shard in self.collect(tell) {
                if registered && let Some(ack) = self.acks.get(&shard) {
                    ws.say(&FromNode::ShardAck(ack.said.clone()))?;
                }
            }
            let now = Instant::now();
            if self.bell.stops() {
                let until = *farewell.get_or_insert(now + FAREWELL);
                let quiet = self.running.is_empty() && (self.acks.is_empty() || !registered);
                if quiet || now >= until {
                    ws.close(GOING_AWAY);
                    return Ok(Ended::Stopped);
                }
            } else {
                self.begin(tell);
            }
            let until = farewell.unwrap_or(now + ROUND).min(now + ROUND);
            if let Err(failure) = ws.pump(until, self.bell.rings.as_fd()) {
                return Ok(Ended::Lost(failure));
            }
            self.bell.hush();
        }
    }

    /// Takes everything that has arrived.
    fn read(
        &mut self,
        ws: &mut Ws,
        registered: &mut bool,
        tell: &mut dyn FnMut(Tell),
    ) -> Result<(), Failure> {
        loop {
            let message = match ws.next()? {
                Came::Nothing => return Ok(()),
                // A newer relay may say more than is understood here.
                Came::Strange(fault) => {
                    let text = format!("the relay is not understood: {fault}");
                    tell(Tell::Failed(Failure::new(Exit::Failed, "CN0805", text)));
                    continue;
                }
                Came::Message(message) => message,
            };
            match *message {
                FromRelay::Registered(said) => {
                    *registered = true;
                    tell(Tell::Registered(said.session, said.owed));
                    for ack in self.acks.values() {
                        ws.say(&FromNode::ShardAck(ack.said.clone()))?;
                    }
                }
                FromRelay::PendingNotify(notify) => self.notified(notify),
                FromRelay::ShardState(said) => {
                    let (file, version) = (said.file_id, said.version_number);
                    self.answered(Some(file), version, said.shard_index, said.redemption);
                }
                FromRelay::Error(said) => match (said.version_number, said.shard_index) {
                    (Some(version), Some(index)) => {
                        let redemption = said.redemption.unwrap_or_default();
                        self.answered(said.file_id, version, index, redemption);
                    }
                    _ => {
                        let text = format!("{} ({})", said.message, said.code);
                        tell(Tell::Failed(Failure::new(Exit::Failed, "CN0811", text)));
                    }
                },
            }
        }
    }

    fn notified(&mut self, notify: PendingNotify) {
        let (version, index) = (notify.version_number, notify.shard_index);
        let node = self.node.signer.node.as_str();
        let Ok(shard) = ShardKey::new(notify.file_id.as_str(), version, index, node) else {
            return;
        };
        // What was said of an older redemption is of no use any more.
        if self.acks.get(&shard).is_some_and(|ack| ack.said.redemption < notify.redemption) {
            self.acks.remove(&shard);
        }
        self.waiting.retain(|(waits, _)| *waits != shard);
        if self.waiting.len() < QUEUE_MAX {
            self.waiting.push_back((shard, notify));
        }
    }

    /// An ack is answered, one way or the other: it is not repeated.
    fn answered(&mut self, file: Option<String>, version: u64, index: u64, redemption: u64) {
        let node = self.node.signer.node.as_str();
        let shard = ShardKey::new(file.unwrap_or_default(), version, index, node);
        let Ok(shard) = shard else { return };
        let Some(ack) = self.acks.get(&shard).filter(|ack| ack.said.redemption == redemption)
        else {
            return;
        };
        if ack.said.status == AckStatus::Verified {
            // If this fails it is acked once more after a restart, and answered once more.
            let _ = self.node.shelf.answered(&shard);
        }
        self.acks.remove(&shard);
    }

    /// Begins as many fetches as there may be.
    fn begin(&mut self, tell: &mut dyn FnMut(Tell)) {
        while self.running.len() < self.node.fetches {
            let free = |(shard, _): &(ShardKey, PendingNotify)| !self.running.contains_key(shard);
            let Some(at) = self.waiting.iter().position(free) else { return };
            let Some((shard, notify)) = self.waiting.remove(at) else { return };
            let redemption = notify.redemption;
            let job = Job {
                target: self.node.target.clone(),
                signer: self.node.signer.clone(),
                shelf: self.node.shelf.clone(),
                stop: self.bell.stop.clone(),
                owing: self.giving.owing(),
                shard: shard.clone(),
                notify,
            };
            let (http, done, stop) = (self.idle.pop(), self.done.0.clone(), job.stop.clone());
            let work = move || {
                // Nobody listens any more once the node has ended.
                let _ = done.send(job.run(http));
                stop.ring();
            };
            match spawn(work) {
                Ok(()) => {
                    self.running.insert(shard, redemption);
                }
                Err(e) => {
                    // The relay notifies again once the token's time is over.
                    let text = format!("no thread can be started: {e}");
                    tell(Tell::Failed(Failure::new(Exit::Failed, "CN0514", text)));
                    return;
                }
            }
        }
    }

    /// Takes what fetches have come to; says what is to be acked.
    fn collect(&mut self, tell: &mut dyn FnMut(Tell)) -> Vec<ShardKey> {
        let mut acked = Vec::new();
        self.giving.told().for_each(&mut *tell);
        while let Ok(Fetched { shard, redemption, outcome, http }) = self.done.1.try_recv() {
            self.running.remove(&shard);
            self.idle.extend(http.filter(|_| self.idle.len() < self.node.fetches));
            let (said, open) = match outcome {
                Outcome::Verified(record, known) => {
                    tell(Tell::Stored(Box::new(kept(&shard, &record, known))));
                    (ack(&shard, redemption, None), None)
                }
                Outcome::Failed(failure, open) => {
                    let said = ack(&shard, redemption, Some(&failure));
                    tell(Tell::Failed(failure));
                    (said, open)
                }
                Outcome::Dropped(failure) => {
                    if let Some(failure) = failure {
                        tell(Tell::Failed(failure));
                    }
                    continue;
                }
            };
            self.acks.insert(shard.clone(), Ack { said, _open: open });
            acked.push(shard);
        }
        acked
    }

    /// Nothing more is begun: waits a little for fetches that are breaking off.
    pub(super) fn close(&mut self, tell: &mut dyn FnMut(Tell)) {
        let until = Instant::now() + FAREWELL;
        self.bell.stop.stop();
        while !self.running.is_empty() && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            if let Ok(fetched) = self.done.1.recv_timeout(left) {
                let _ = self.done.0.send(fetched);
                self.collect(tell);
            }
        }
        self.giving.end();
        self.giving.told().for_each(tell);
    }
}

fn kept(shard: &ShardKey, record: &Record, known: bool) -> Kept {
    Kept {
        path: path_of(shard).join("/"),
        file_id: shard.file_id().into(),
        version_number: shard.version(),
        shard_index: shard.index(),
        size: record.size,
        sha256: record.digest.sha256.to_string(),
        known,
    }
}
