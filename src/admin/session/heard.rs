//! The node's word: promises, refusals and answers, and what they mean to the present request.

use consign_core::id::TransferNo;
use consign_core::node::{self, Answer};
use consign_core::session::{Promise, SessionCommand, SessionOut};
use consign_core::store::StoreFault;
use consign_core::time::{Instant, Now};

use super::answer::json;
use super::begin::query;
use super::{AdminSession, Task};
use crate::admin::acts::Acted;
use crate::admin::batch::Batch;
use crate::admin::exports::Done;
use crate::admin::log_level::LogShown;
use crate::admin::metrics;
use crate::admin::oldest::Oldest;
use crate::admin::refusal::No;
use crate::admin::reloads::Reloaded;
use crate::admin::route::Route;
use crate::admin::shapes::{Clock, Peers, Status, Stopping};

impl AdminSession {
    pub(super) fn command(&mut self, now: Now, command: SessionCommand, out: &mut SessionOut) {
        match command {
            SessionCommand::Promised(promised) => self.promised(now, promised.into_inner(), out),
            SessionCommand::Refuse { transfer, refusal, retry_after, text, .. } => {
                if let Task::Batch(batch) = &mut self.task {
                    if batch.refused(transfer, (refusal, retry_after, text.into_owned())) {
                        self.batch_done(now, out);
                    }
                    return;
                }
                let mine = match &mut self.task {
                    Task::Upload(upload) if upload.ticket() == transfer => {
                        upload.give_up(out);
                        true
                    }
                    Task::Act(ticket) => *ticket == transfer,
                    _ => false,
                };
                if mine {
                    self.task = Task::Idle;
                    self.refuse(now, &No::of_refusal(refusal, retry_after, text.into_owned()), out);
                }
            }
            SessionCommand::Answer { ticket, answer } => self.answer(now, ticket, &answer, out),
            SessionCommand::Close { why, .. } => self.end(now, why, out),
            SessionCommand::Pickup(command) => self.pickup_refused(now, *command, out),
            SessionCommand::Allowance(_) | SessionCommand::Pace(_) | SessionCommand::Ping => {}
        }
    }

    fn promised(&mut self, now: Now, promise: Promise, out: &mut SessionOut) {
        if let (Task::Act(asked), Promise::Done { ticket, report }) = (&self.task, &promise)
            && asked == ticket
        {
            self.task = Task::Idle;
            return self.shape(now, 200, &[], &Acted::of(report), out);
        }
        if let Promise::Pickup(answer) = promise {
            return self.pickup_done(now, *answer, out);
        }
        if let Task::Batch(batch) = &mut self.task {
            if let Promise::Accepted { ticket, accepted } = promise
                && batch.accepted(ticket, accepted)
            {
                self.batch_done(now, out);
            }
            return;
        }
        let Task::Upload(upload) = &mut self.task else { return };
        match promise {
            Promise::Accept { transfer, blob, reserved, .. } if upload.ticket() == transfer => {
                upload.granted(now, (blob, reserved), &mut self.conn, out);
            }
            Promise::Accepted { ticket, accepted } if upload.ticket() == ticket => {
                let answer = upload.accepted(accepted);
                self.task = Task::Idle;
                let location = format!("/v1/segments/{}", answer.id);
                let status = if answer.new { 201 } else { 200 };
                self.shape(now, status, &[("Location", &location)], &answer, out);
            }
            Promise::Accept { .. }
            | Promise::Accepted { .. }
            | Promise::Done { .. }
            | Promise::Start { .. }
            | Promise::Send(_)
            | Promise::Ack { .. }
            | Promise::Receipt(_)
            | Promise::ReceiptOk { .. }
            | Promise::Want { .. }
            | Promise::Pickup(_) => {}
        }
    }

    /// The request of a batch is whole.
    pub(super) fn batch_ended(&mut self, now: Now, mut batch: Box<Batch>, out: &mut SessionOut) {
        batch.end();
        self.task = Task::Batch(batch);
        self.batch_done(now, out);
    }

    /// Answers a batch once every item of it has its own answer.
    pub(super) fn batch_done(&mut self, now: Now, out: &mut SessionOut) {
        let Task::Batch(batch) = &self.task else { return };
        if let Some(lines) = batch.answer() {
            self.task = Task::Idle;
            if self.conn.awaits_answer() {
                self.body_of(now, 200, "application/x-ndjson", &[], &lines, out);
            }
        }
    }

    /// What the node said, and since when peers wait as the ledger has it.
    pub(super) fn status_read(
        &mut self,
        now: Now,
        route: &Route,
        mut status: node::Status,
        oldest: Result<Vec<u8>, StoreFault>,
        out: &mut SessionOut,
    ) {
        let read = |bytes: Vec<u8>| {
            serde_json::from_slice::<Oldest>(&bytes).map_err(|why| StoreFault::Io(why.to_string()))
        };
        match oldest.and_then(read) {
            Ok(oldest) => oldest.into_status(&mut status),
            Err(fault) => return self.refuse(now, &No::of_store(&fault), out),
        }
        if *route == Route::Metrics {
            let text = metrics::text(&status, &self.context);
            return self.body_of(now, 200, metrics::TYPE, &[], text.as_bytes(), out);
        }
        self.shape(now, 200, &[], &Peers::of(&status), out);
    }

    fn answer(&mut self, now: Now, ticket: TransferNo, answer: &Answer, out: &mut SessionOut) {
        match (std::mem::replace(&mut self.task, Task::Idle), answer) {
            (Task::Ask(asked, Route::Status), Answer::Status(status)) if asked == ticket => {
                let up = now.mono.since(Instant::ZERO).as_secs();
                let shape = Status::of(status, &self.context, up);
                self.shape(now, 200, &[], &shape, out);
            }
            (Task::Ask(asked, Route::Log | Route::SetLog(_)), Answer::Status(status))
                if asked == ticket =>
            {
                let shape = LogShown::of(status, &self.context);
                self.shape(now, 200, &[], &shape, out);
            }
            (Task::Ask(asked, route @ (Route::Peers | Route::Metrics)), Answer::Status(status))
                if asked == ticket =>
            {
                let ticket = self.ticket();
                query(ticket, out, |snapshot| json(&Oldest::read(snapshot)?));
                self.task = Task::Oldest(ticket, route, status.clone());
            }
            (
                Task::Ask(
                    asked,
                    route @ (Route::Show(_)
                    | Route::Content(_)
                    | Route::ExportRetry(_)
                    | Route::Assured(_)),
                ),
                Answer::Status(status),
            ) if asked == ticket => self.look_for_lost(now, route, status, out),
            (Task::Act(asked), Answer::Acted(report)) if asked == ticket => {
                self.shape(now, 200, &[], &Acted::of(report), out);
            }
            (Task::Ask(asked, Route::Ready), Answer::Status(status)) if asked == ticket => {
                let (code, word) =
                    if status.stopping { (503, "stopping\n") } else { (200, "ready\n") };
                self.text(now, code, word, out);
            }
            (Task::Ask(asked, Route::Stop), Answer::Stopping) if asked == ticket => {
                let (schema, pid) = ("consign.stopping/1".into(), std::process::id());
                let shape = Stopping { schema, stopping: true, pid };
                self.shape(now, 202, &[], &shape, out);
            }
            (Task::Ask(asked, Route::ConfirmClock), Answer::ClockConfirmed(held))
                if asked == ticket =>
            {
                let shape = Clock { schema: "consign.clock/1".into(), was_held: *held };
                self.shape(now, 200, &[], &shape, out);
            }
            (Task::Ping(asked, ping), Answer::Pinged(pinged)) if asked == ticket => {
                self.pinged(now, ping, pinged, out);
            }
            (Task::Ask(asked, Route::Reload), Answer::Reloaded(number)) if asked == ticket => {
                let shape = self.context.reloads.take(*number).unwrap_or_else(Reloaded::nobody);
                let status = if shape.ok { 200 } else { 422 };
                self.shape(now, status, &[], &shape, out);
            }
            (Task::Ask(asked, _), Answer::Exports(count) | Answer::Unwatched(count))
                if asked == ticket =>
            {
                self.shape(now, 200, &[], &Done::of(*count), out);
            }
            (Task::Progress(asked, mut segment), Answer::Progress(sent)) if asked == ticket => {
                for delivery in segment.deliveries.iter_mut().filter(|d| d.state == "sending") {
                    let mine = sent.iter().find(|(peer, _)| *peer == delivery.peer);
                    delivery.sent = mine.map(|(_, bytes)| *bytes);
                }
                self.shape(now, 200, &[], &segment, out);
            }
            (Task::Upload(mut upload), Answer::Status(status)) if upload.ticket() == ticket => {
                match upload.status(status, out) {
                    Ok(()) => self.task = Task::Upload(upload),
                    Err(no) => self.refuse(now, &no, out),
                }
            }
            (other, _) => self.task = other,
        }
    }
}
