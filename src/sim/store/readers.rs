//! Readers: the node's, and two for sessions. Each read sees the rows of one moment.

use std::fmt;

use bytes::{Bytes, BytesMut};
use consign_core::id::{ConnId, ReadNo, TransferNo};
use consign_core::ledger::read::{self, ReadRequest};
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::store::{Query, ReadResult, Snapshot, StoreEvent, StoreFault};

use super::{Done, SimStore};
use crate::sim::time::Micros;

/// What the node's reader does next.
#[derive(Debug)]
pub(super) enum NodeStep {
    /// Looks at the rows; answers at that moment.
    Look(ReadNo, ReadRequest, Micros),
    /// Answers.
    Answer(ReadNo, ReadResult),
}

/// What a session asks.
pub(super) enum Ask {
    /// Content.
    Read { body: Body, offset: u64, len: usize },
    /// A question to the ledger.
    Query(Query),
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Read { body, offset, len } => write!(f, "Read({body:?}, {offset}+{len})"),
            Ask::Query(_) => write!(f, "Query"),
        }
    }
}

/// A job and whose it is; jobs of one owner are served one after the other.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) owner: (ConnId, TransferNo),
    ask: Ask,
}

/// What a session's reader does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Looks; answers at that moment.
    Look(Asked, Micros),
    /// Answers.
    Answer((ConnId, TransferNo), StoreEvent),
}

impl Step {
    fn owner(&self) -> (ConnId, TransferNo) {
        match self {
            Step::Look(asked, _) => asked.owner,
            Step::Answer(owner, _) => *owner,
        }
    }
}

fn io(what: &str) -> StoreFault {
    StoreFault::Io(format!("{what}: input/output error"))
}

impl SimStore {
    pub(super) fn node_reader_next(&mut self, at: Micros) {
        let Some((number, request)) = self.node_reader.waiting.pop_front() else { return };
        let call = self.call(at, self.faults.read);
        self.node_reader.doing = Some((call.effect, NodeStep::Look(number, request, call.end)));
    }

    pub(super) fn node_reader_step(&mut self, at: Micros) {
        match self.node_reader.doing.take() {
            Some((_, NodeStep::Look(number, request, end))) => {
                self.rot_row();
                let answer = if self.rng.chance(self.faults.ledger_eio) {
                    Err(io("ledger"))
                } else {
                    read::read(self.mem.ledger(), &request)
                };
                self.node_reader.doing = Some((end, NodeStep::Answer(number, answer)));
            }
            Some((_, NodeStep::Answer(number, answer))) => {
                self.ready.push_back(Done::Node(Input::Read(number, answer)));
                self.node_reader_next(at);
            }
            None => {}
        }
    }

    /// Hands a session's job to the readers.
    pub(super) fn ask(&mut self, now: Micros, owner: (ConnId, TransferNo), ask: Ask) {
        self.asks.push_back(Asked { owner, ask });
        self.serve(now);
    }

    /// Gives free readers the first jobs whose owners are not being served.
    fn serve(&mut self, at: Micros) {
        for reader in 0..self.readers.len() {
            if self.readers[reader].is_some() {
                continue;
            }
            let serving = |owner| {
                self.readers
                    .iter()
                    .flatten()
                    .any(|(_, step): &(Micros, Step)| step.owner() == owner)
            };
            let free = self.asks.iter().position(|asked| !serving(asked.owner));
            let Some(asked) = free.and_then(|at| self.asks.remove(at)) else { return };
            let range = match asked.ask {
                Ask::Read { body: Body::Blob(_), .. } => self.faults.content,
                Ask::Read { body: Body::Inline(_), .. } | Ask::Query(_) => self.faults.read,
            };
            let call = self.call(at, range);
            self.readers[reader] = Some((call.effect, Step::Look(asked, call.end)));
        }
    }

    pub(super) fn reader_step(&mut self, at: Micros, reader: usize) {
        match self.readers[reader].take() {
            Some((_, Step::Look(Asked { owner, ask }, end))) => {
                let ticket = owner.1;
                let event = match ask {
                    Ask::Read { body, offset, len } => {
                        let data = self.look_up_content(body, offset, len);
                        StoreEvent::Content { ticket, offset, data }
                    }
                    Ask::Query(query) => {
                        StoreEvent::Queried { ticket, answer: self.answer_query(query) }
                    }
                };
                self.readers[reader] = Some((end, Step::Answer(owner, event)));
            }
            Some((_, Step::Answer((conn, _), event))) => {
                self.ready.push_back(Done::Conn(conn, event));
                self.serve(at);
            }
            None => {}
        }
    }

    fn answer_query(&mut self, query: Query) -> Result<Vec<u8>, StoreFault> {
        self.rot_row();
        if self.rng.chance(self.faults.crowded) {
            return Err(StoreFault::Crowded);
        }
        if self.rng.chance(self.faults.ledger_eio) {
            return Err(io("ledger"));
        }
        query(self.mem.ledger())
    }

    fn look_up_content(
        &mut self,
        body: Body,
        offset: u64,
        len: usize,
    ) -> Result<Bytes, StoreFault> {
        self.rot_file();
        if self.rng.chance(self.faults.content_eio) {
            return Err(io(&format!("{body:?}")));
        }
        let elsewhere = self.rng.chance(self.faults.misdirected_read);
        let data = match body {
            Body::Inline(_) if self.rng.chance(self.faults.crowded) => {
                return Err(StoreFault::Crowded);
            }
            Body::Inline(number) => {
                let row = self.mem.ledger().get(Table::Bodies, &keys::body(number))?;
                let row = row.ok_or_else(|| StoreFault::Missing(format!("body {number}")))?;
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(row.len());
                let to = from.saturating_add(len).min(row.len());
                Bytes::copy_from_slice(&row[from..to])
            }
            Body::Blob(blob) if elsewhere => self.read_elsewhere(blob, offset, len)?,
            Body::Blob(blob) => self.disk.read(blob, offset, len)?,
        };
        if !data.is_empty() && self.rng.chance(self.faults.flip_read) {
            let mut flipped = BytesMut::from(data.as_ref());
            let at = self.rng.below(data.len() as u64) as usize;
            flipped[at] ^= 1 << self.rng.below(8);
            return Ok(flipped.freeze());
        }
        Ok(data)
    }
}
