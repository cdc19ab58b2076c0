//! The way of a job: which rows it rests on, when they are read, when it is judged.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::overlay::{Place, Stop, View};
use super::task::{Task, is_growth, needs_its_connection, touches_nonces};
use super::{Command, No, SOON};
use crate::id::{BatchNo, ConnId, ReadNo, TransferNo};
use crate::ledger::keys_pickup::ShardKey;
use crate::ledger::read::{Answer as Rows, ReadRequest};
use crate::node::stage::Intent;
use crate::node::types::{Action, Note};
use crate::node::{Asked, Node};
use crate::pickup::{AckAsk, PickupRefusal, TokenOffer};
use crate::session::{Content, SessionCommand};
use crate::store::Errand;
use crate::time::Now;

/// Jobs of one read.
const AT_ONCE: usize = 256;
/// Rows that a job stages at most.
const ROWS: usize = 24;

/// Something to be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Job {
    /// Who asked.
    pub(super) conn: ConnId,
    pub(super) keys: Vec<Place>,
    pub(super) task: Task,
}

/// What a read of pickup is for.
#[derive(Clone, Debug)]
pub(in crate::node) enum Reading {
    /// Rows of jobs.
    Jobs(Vec<Job>),
    /// Shards whose deadlines are over.
    Deadlines,
    /// Shards of a node, for the session of that number.
    Page(String, u64),
    /// How many there are, for whoever registers.
    Owed(ConnId, String, Vec<TokenOffer>),
    /// Nonces that are spent, to be counted.
    Nonces,
    /// Nonces that are over while nothing else expires.
    OldNonces,
    /// Shards whose content is compared with its digest.
    Scrub,
    /// Those whose content is doubted.
    Suspects(Vec<ShardKey>),
}

impl Node {
    pub(super) fn pickup_job(&mut self, conn: ConnId, task: Task) {
        let keys = self.keys_of(&task);
        self.pickup.waiting.push_back(Job { conn, keys, task });
    }

    /// Relief of a failed commit comes back.
    pub(in crate::node) fn pickup_again(&mut self, job: Job) {
        self.pickup.again.push_back(job);
    }

    /// If its commit fails, this is judged again.
    pub(super) fn intend(&mut self, job: &Job) {
        self.stage.intend(Intent::Pickup(Box::new(job.clone())));
    }

    /// Asks for the rows of jobs that wait, one read at a time.
    pub(super) fn read_jobs(&mut self, out: &mut Vec<Action>) {
        let idle = !self.pickup.reading && self.pickup.found.is_empty();
        if !idle || (self.pickup.waiting.is_empty() && self.pickup.again.is_empty()) {
            return;
        }
        let mut jobs: Vec<Job> = Vec::new();
        while jobs.len() < AT_ONCE {
            let next = self.pickup.again.pop_front().or_else(|| self.pickup.waiting.pop_front());
            let Some(job) = next else { break };
            jobs.push(job);
        }
        let places = jobs.iter().flat_map(|job| job.keys.clone()).collect();
        self.pickup.reading = true;
        self.ask(Asked::Pickup(Reading::Jobs(jobs)), ReadRequest::Raw(places), out);
    }

    /// A read is answered; whether the overlay is to be kept for it.
    pub(in crate::node) fn pickup_read(
        &mut self,
        now: Now,
        read: ReadNo,
        as_of: BatchNo,
        reading: Reading,
        answer: Rows,
        out: &mut Vec<Action>,
    ) -> bool {
        match (reading, answer) {
            (Reading::Jobs(jobs), Rows::Raw(rows)) => {
                self.pickup.reading = false;
                let mut rows = rows.into_iter();
                let last = jobs.len().saturating_sub(1);
                for (i, job) in jobs.into_iter().enumerate() {
                    let rows = job.keys.iter().cloned().zip(rows.by_ref()).collect();
                    let view = View { as_of, rows };
                    self.pickup.found.push_back((job, view, (i == last).then_some(read)));
                }
                return true;
            }
            (Reading::Deadlines, Rows::Rows { rows, next }) => {
                self.deadlines_read(as_of, rows, next);
            }
            (Reading::Page(node, session), Rows::Rows { rows, next }) => {
                self.page_read(&node, session, rows, next);
            }
            (Reading::Owed(conn, node, tokens), Rows::Count(owed)) => {
                self.pickup_job(conn, Task::Register { node, tokens, owed });
            }
            (Reading::Nonces, Rows::Rows { rows, next }) => self.nonces_read(as_of, rows, next),
            (Reading::OldNonces, Rows::Expiry { rows, more, .. }) => {
                self.old_nonces_read(now, rows, more);
            }
            (Reading::Scrub, Rows::Rows { rows, next }) => {
                self.shards_to_scrub(now, rows, next, out);
            }
            (Reading::Suspects(shards), Rows::Raw(rows)) => {
                self.suspects_read(now, shards, rows, out);
            }
            (reading, answer) => unreachable!("{reading:?} was answered by {answer:?}"),
        }
        false
    }

    /// A read is void.
    pub(in crate::node) fn pickup_unread(&mut self, reading: Reading) {
        match reading {
            Reading::Jobs(jobs) => {
                self.pickup.reading = false;
                for job in jobs.into_iter().rev() {
                    self.pickup.waiting.push_front(job);
                }
            }
            Reading::Page(node, session) => self.page_unread(&node, session),
            Reading::Owed(conn, node, tokens) => {
                self.pickup_job(conn, Task::Register { node, tokens, owed: 0 });
            }
            // They begin anew.
            Reading::Deadlines | Reading::Nonces | Reading::OldNonces | Reading::Scrub => {}
            Reading::Suspects(shards) => {
                shards.into_iter().for_each(|shard| self.scrub.shards.suspect(shard));
            }
        }
    }

    /// Judges what was read, as far as the batch has room.
    pub(super) fn judge_jobs(&mut self, now: Now, out: &mut Vec<Action>) {
        while let Some((job, ..)) = self.pickup.found.front() {
            let fits = match is_growth(&job.task) {
                true => self.stage.growth_room(ROWS),
                false => self.stage.room(ROWS),
            };
            if !fits || (touches_nonces(&job.task) && !self.pickup.nonces.counted) {
                return;
            }
            let Some((mut job, view, done)) = self.pickup.found.pop_front() else { return };
            match self.judge_job(now, &job, &view, out) {
                Ok(()) => {}
                Err(Stop::Row(place)) => {
                    job.keys.push(place);
                    self.pickup.again.push_back(job);
                }
                Err(Stop::No(no)) => self.job_refused(&job, no, out),
                Err(Stop::Unreadable(place)) => {
                    let text = alloc::format!("a row of {} cannot be read", place.0);
                    self.puts_aside([place]);
                    let no = No::new(PickupRefusal::Unavailable, text).after(SOON);
                    self.job_refused(&job, no, out);
                }
            }
            if let Some(read) = done {
                self.book.closed(read);
            }
        }
    }

    fn judge_job(
        &mut self,
        now: Now,
        job: &Job,
        view: &View,
        out: &mut Vec<Action>,
    ) -> Result<(), Stop> {
        let conn = job.conn;
        if needs_its_connection(&job.task) {
            if !self.conns.contains_key(&conn) {
                self.drop_parked(&job.task, out);
                return Ok(());
            }
            if self.stopping {
                return Err(No::stopping().into());
            }
        }
        match &job.task {
            Task::Upload { ticket, ask } => self.judge_upload(now, conn, *ticket, ask, view, out),
            Task::Extend { blob, .. } => self.judge_extend(conn, *blob, view),
            Task::Checkpoint { blob, offset, chain } => {
                self.judge_checkpoint(now, conn, *blob, *offset, chain, view)
            }
            Task::Whole { ticket, blob, size, sha256, blake3 } => {
                let found = (*size, *sha256, *blake3);
                self.judge_whole(now, job, *ticket, *blob, found, view)
            }
            Task::Broken { ticket, blob, why } => {
                self.judge_broken(now, job, (*ticket, *blob, why), view, out)
            }
            Task::Quit { blob } => {
                self.writer_quit(conn, *blob);
                Ok(())
            }
            Task::Discard { shard, blob } => self.judge_discard(now, job, shard, *blob, view),
            Task::Head { ticket, shard, client } => {
                self.judge_head(conn, *ticket, shard, *client, view)
            }
            Task::Slot { ticket, shard, client, size } => {
                self.judge_slot(now, conn, *ticket, (shard, *client, *size), view)
            }
            Task::Fetch { ticket, ask } => self.judge_fetch(now, job, *ticket, ask, view, out),
            Task::Moved { shard, redemption, at } => {
                self.judge_moved(now, shard, *redemption, *at, view)
            }
            Task::FetchBroken { shard, redemption, moved, why } => {
                let fetch = (shard, *redemption);
                self.judge_fetch_broken(now, job, fetch, *moved, why.as_deref(), view)
            }
            Task::Subscribe { ticket, signed } => {
                self.judge_subscribe(now, job, *ticket, signed, view)
            }
            Task::Spend { signed } => self.judge_spend(now, job, signed, view),
            Task::Register { node, tokens, owed } => {
                self.judge_register(now, job, (node, tokens, *owed), view, out)
            }
            Task::Ack(ask) => self.judge_ack(now, job, ask, view),
            Task::Operator { ticket, act } => {
                self.judge_operator(now, job, *ticket, act, view, out)
            }
            Task::Notify { shard, session } => self.judge_notify(now, shard, *session, view),
            Task::Deadline { at, shard } => self.judge_deadline(now, job, *at, shard, view, out),
            Task::Spoiled { shard, body, loss } => {
                self.judge_spoiled(now, job, (shard, *body, *loss), view)
            }
            Task::Expire { kind, expiry, key } => {
                self.judge_expire(now, job, *kind, expiry, key, view)
            }
        }
    }

    /// A job is refused: whoever asked is told, and what was parked for it is let go.
    fn job_refused(&mut self, job: &Job, no: No, out: &mut Vec<Action>) {
        self.drop_parked(&job.task, out);
        if matches!(job.task, Task::Upload { .. } | Task::Extend { .. } | Task::Whole { .. }) {
            self.pickup.told.lost_uploads.1 += 1;
        }
        let ticket = match &job.task {
            Task::Upload { ticket, .. }
            | Task::Extend { ticket, .. }
            | Task::Whole { ticket, .. }
            | Task::Broken { ticket, .. }
            | Task::Head { ticket, .. }
            | Task::Slot { ticket, .. }
            | Task::Fetch { ticket, .. }
            | Task::Subscribe { ticket, .. }
            | Task::Operator { ticket, .. } => *ticket,
            Task::Ack(ask) => return self.ack_refused(job.conn, ask, no, out),
            Task::Register { .. } => {
                return self.close_ws(job.conn, 1008, &no.text, out);
            }
            Task::Notify { shard, session } => return self.judged(shard.node(), *session),
            Task::Deadline { .. } => return self.pickup.sweep.judged(),
            Task::Checkpoint { .. }
            | Task::Quit { .. }
            | Task::Discard { .. }
            | Task::Moved { .. }
            | Task::FetchBroken { .. }
            | Task::Spend { .. }
            | Task::Spoiled { .. }
            | Task::Expire { .. } => return,
        };
        self.pickup_refuse(job.conn, ticket, no, out);
    }

    fn drop_parked(&mut self, task: &Task, out: &mut Vec<Action>) {
        if let Task::Upload { ask, .. } = task
            && let Some((Content::Parked(handle), ..)) = &ask.whole
        {
            out.push(Action::Errand(Errand::Unpark(*handle)));
        }
    }

    pub(super) fn pickup_refuse(
        &mut self,
        conn: ConnId,
        ticket: TransferNo,
        no: No,
        out: &mut Vec<Action>,
    ) {
        self.count_pickup_refusal(&no, out);
        if self.conns.contains_key(&conn) {
            out.push(Action::Command(conn, no.command(ticket)));
        }
    }

    pub(super) fn ack_refused(
        &mut self,
        conn: ConnId,
        ask: &AckAsk,
        no: No,
        out: &mut Vec<Action>,
    ) {
        self.count_pickup_refusal(&no, out);
        let (ack, refusal, text) = (Box::new(ask.clone()), no.refusal, no.text);
        let command = Command::AckRefused { ack, refusal, text };
        if self.conns.contains_key(&conn) {
            out.push(Action::Command(conn, SessionCommand::Pickup(Box::new(command))));
        }
    }

    fn count_pickup_refusal(&mut self, no: &No, out: &mut Vec<Action>) {
        no.refusal.count_in(&mut self.pickup.told.refusals);
        let (code, peer, text) = (no.refusal.word(), String::new(), no.text.clone());
        out.push(Action::Note(Note::Refused { code, peer, text }));
    }
}
