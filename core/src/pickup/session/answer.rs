//! The word of the node and of the store, and what they mean to the present request.

use alloc::string::ToString;
use alloc::vec::Vec;

use serde::Serialize;

use super::fetch::{Fetch, Step};
use super::refusal::No;
use super::socket::Socket;
use super::upload::{Granted, Upload};
use super::{PickupSession, Task, Wanted};
use crate::http::{Payload, Response};
use crate::id::{BlobNo, TransferNo};
use crate::ledger::rows::Loss;
use crate::ledger::rows_pickup::ShardState;
use crate::pickup::digest::Given;
use crate::pickup::message::{Digests, Slot, Uploaded, body_of, buffer_id};
use crate::pickup::{Answer, Command, Serve, ShardView};
use crate::session::{Promise, SessionCommand, SessionOut};
use crate::store::StoreEvent;
use crate::time::Now;

impl PickupSession {
    pub(super) fn command(&mut self, now: Now, command: SessionCommand, out: &mut SessionOut) {
        match command {
            SessionCommand::Promised(promised) => match promised.into_inner() {
                Promise::Pickup(answer) => self.answer(now, *answer, out),
                Promise::Start { .. }
                | Promise::Send(_)
                | Promise::Ack { .. }
                | Promise::Accept { .. }
                | Promise::Receipt(_)
                | Promise::ReceiptOk { .. }
                | Promise::Want { .. }
                | Promise::Accepted { .. }
                | Promise::Done { .. } => {}
            },
            SessionCommand::Pickup(command) => self.word(now, *command, out),
            SessionCommand::Close { why, text } => self.stop(now, why, &text, out),
            SessionCommand::Refuse { .. }
            | SessionCommand::Allowance(_)
            | SessionCommand::Pace(_)
            | SessionCommand::Ping
            | SessionCommand::Answer { .. } => {}
        }
    }

    fn answer(&mut self, now: Now, answer: Answer, out: &mut SessionOut) {
        match answer {
            Answer::Granted { ticket, blob, offset, chain, reserved, size, sha256, blake3 } => {
                let digests = Given { sha256, blake3 };
                let granted = Granted { blob, offset, chain, reserved, size, digests };
                if let Task::Upload(upload) = &mut self.task
                    && upload.ticket() == ticket
                {
                    let result = upload.granted(now, granted, &mut self.conn, out);
                    self.uploaded(now, result, out);
                }
            }
            Answer::Buffered { ticket, new, view } => {
                if self.takes_answer(ticket) {
                    let status = if new { 201 } else { 200 };
                    self.shape(now, status, &uploaded(&view), out);
                }
            }
            Answer::Offset { ticket, offset, complete, state, loss } => {
                if self.takes_answer(ticket) {
                    self.offset(now, offset, complete, (state, loss), out);
                }
            }
            Answer::Slot { ticket, new, expires_at } => {
                if self.takes_answer(ticket) {
                    let status = if new { 201 } else { 200 };
                    self.shape(now, status, &Slot { expires_at }, out);
                }
            }
            Answer::Serve { ticket, serve } => self.serve(now, ticket, *serve, out),
            Answer::Upgraded { ticket } => self.upgrade(now, ticket, out),
            Answer::Registered { session, owed } => {
                if let Task::Socket(socket) = &mut self.task {
                    socket.registered(session, owed, out);
                }
            }
            Answer::Notify(notify) => {
                if let Task::Socket(socket) = &mut self.task {
                    socket.notify(*notify, &mut self.random, out);
                }
            }
            Answer::State { shard, redemption, state } => {
                if let Task::Socket(socket) = &mut self.task {
                    socket.state(&shard, redemption, state, out);
                }
            }
            // Acts come by the admin socket.
            Answer::Done { .. } => {}
        }
    }

    fn word(&mut self, now: Now, command: Command, out: &mut SessionOut) {
        match command {
            Command::Refuse { ticket, refusal, retry_after, number, text } => {
                let tell = if let Some(upload) = self.upload(ticket) {
                    upload.refused(out)
                } else if matches!(&self.task, Task::Asked(asked, ..) if *asked == ticket) {
                    self.task = Task::Idle;
                    true
                } else {
                    false
                };
                if tell {
                    let no = No::of_node(refusal, retry_after, number, text);
                    no.say(now, &mut self.conn, &mut out.bytes);
                }
            }
            Command::AckRefused { ack, refusal, text } => {
                if let Task::Socket(socket) = &mut self.task {
                    socket.ack_refused(&ack, refusal, text, out);
                }
            }
            Command::ResetFetch { redemption } => {
                if let Task::Fetch(fetch) = &mut self.task
                    && fetch.redemption() == redemption
                {
                    fetch.break_off(&mut self.conn, out);
                    self.task = Task::Idle;
                }
            }
            Command::CloseWs { code, text } => {
                if let Task::Socket(socket) = &mut self.task {
                    socket.close(code, &text, out);
                }
            }
        }
    }

    /// Whether this answers the present request; if so, nothing waits for it any more.
    fn takes_answer(&mut self, ticket: TransferNo) -> bool {
        let mine = if let Some(upload) = self.upload(ticket) {
            upload.answered();
            true
        } else {
            matches!(&self.task, Task::Asked(asked, None, _) if *asked == ticket)
        };
        if mine {
            self.task = Task::Idle;
        }
        mine && self.conn.awaits_answer()
    }

    fn serve(&mut self, now: Now, ticket: TransferNo, serve: Serve, out: &mut SessionOut) {
        let Task::Asked(asked, Some(Wanted::Fetch { from, .. }), _) = &self.task else { return };
        if *asked != ticket {
            return;
        }
        let from = *from;
        let stall = self.context.fetch_stall;
        let mut fetch = Fetch::new(now, ticket, serve, from, stall);
        let spoken = self.spoken;
        fetch.begin(now, &mut self.conn, |out| spoken.position(&out.bytes), out);
        self.task = Task::Fetch(fetch.into());
    }

    fn upgrade(&mut self, now: Now, ticket: TransferNo, out: &mut SessionOut) {
        let Task::Asked(asked, Some(Wanted::Ws { accept }), node) = &mut self.task else { return };
        if *asked != ticket {
            return;
        }
        let headers = [("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accept.as_str())];
        self.conn.upgrade(now, &headers, &mut out.bytes);
        let node = core::mem::take(node);
        self.task = Task::Socket(Socket::new(now, node, &self.context).into());
    }

    fn offset(
        &mut self,
        now: Now,
        offset: u64,
        complete: bool,
        (state, loss): (ShardState, Option<Loss>),
        out: &mut SessionOut,
    ) {
        let offset = offset.to_string();
        let reason = loss.map(|loss| ("X-Nodus-Reason", loss.cause().word()));
        let headers = [
            ("Cache-Control", "no-store"),
            ("Upload-Offset", offset.as_str()),
            ("Upload-Complete", if complete { "?1" } else { "?0" }),
            ("X-Nodus-State", state.word()),
        ];
        let headers: Vec<_> = headers.into_iter().chain(reason).collect();
        let response = Response { status: 204, headers: &headers, payload: Payload::Empty };
        self.conn.respond(now, &response, &mut out.bytes);
    }

    fn shape<T: Serialize>(&mut self, now: Now, status: u16, shape: &T, out: &mut SessionOut) {
        let headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")];
        let body = body_of(shape);
        let response = Response { status, headers: &headers, payload: Payload::Full(&body) };
        self.conn.respond(now, &response, &mut out.bytes);
    }

    pub(super) fn store(&mut self, now: Now, event: StoreEvent, out: &mut SessionOut) {
        match event {
            StoreEvent::Queried { ticket, answer } => self.checked(now, ticket, answer, out),
            StoreEvent::Content { ticket, data, .. } => match &mut self.task {
                Task::Fetch(fetch) if fetch.ticket() == ticket => {
                    let spoken = self.spoken;
                    let at = |out: &SessionOut| spoken.position(&out.bytes);
                    match fetch.content(now, data, &mut self.conn, at, out) {
                        Step::More => {}
                        Step::Over => self.task = Task::Idle,
                        Step::Refuse(no) => {
                            self.task = Task::Idle;
                            no.say(now, &mut self.conn, &mut out.bytes);
                        }
                    }
                }
                Task::Upload(upload) if upload.ticket() == ticket => {
                    let result = upload.reread_came(now, data, &mut self.conn, out);
                    self.uploaded(now, result, out);
                }
                Task::Idle
                | Task::Plain(..)
                | Task::Signed(_)
                | Task::Checked(..)
                | Task::Asked(..)
                | Task::Upload(_)
                | Task::Fetch(_)
                | Task::Socket(_) => {}
            },
            StoreEvent::Written { blob, bytes } => {
                if let Some(upload) = self.writes(blob) {
                    upload.written(bytes);
                }
            }
            StoreEvent::Synced { blob, offset } => {
                if let Some(upload) = self.writes(blob) {
                    upload.synced(offset, out);
                }
            }
            StoreEvent::Finished { blob, size } => {
                if let Some(upload) = self.writes(blob) {
                    upload.finished(size, out);
                }
            }
            StoreEvent::WriteFailed { blob, fault } => {
                if let Some(upload) = self.writes(blob) {
                    upload.write_failed(fault, out);
                }
            }
        }
    }

    fn writes(&mut self, blob: BlobNo) -> Option<&mut Upload> {
        let Task::Upload(upload) = &mut self.task else { return None };
        upload.writes(blob).then_some(upload)
    }

    /// The upload under way, if it is this request.
    fn upload(&mut self, ticket: TransferNo) -> Option<&mut Upload> {
        let Task::Upload(upload) = &mut self.task else { return None };
        (upload.ticket() == ticket).then_some(upload)
    }
}

fn uploaded(view: &ShardView) -> Uploaded {
    Uploaded {
        buffer_id: view.buffer.map(buffer_id),
        state: view.state,
        size: view.size,
        digest: Digests { sha256: view.sha256, blake3: view.blake3 },
        expires_at: view.expires_at,
    }
}
