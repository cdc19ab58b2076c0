//! One local connection: requests in, answers out, one at a time and in order.

mod admit;
mod answer;
mod begin;
mod events;
mod heard;
mod lost;
mod page;
mod pickup;
mod ping;

use std::sync::Arc;

use bytes::Bytes;

use consign_core::code::Goodbye;
use consign_core::http::{Conn, Event, Held, Length, Method, Request};
use consign_core::id::{BlobNo, Handle, Seq, TransferNo};
use consign_core::node::{self, Question};
use consign_core::session::{ConnInfo, Session, SessionEvent, SessionInput, SessionOut, Spoken};
use consign_core::store::{StoreEvent, StoreFault};
use consign_core::time::{Instant, Now};

use self::admit::{Asker, limits};
use self::answer::{found, located, stopping};
use self::events::Waiting;
use self::ping::Ping;
use super::AdminContext;
use super::acts;
use super::assurance::Assurance;
use super::batch::{Batch, random_instance};
use super::download::{Download, Step};
use super::ledger::Located;
use super::pickup::acts::PickupRequest;
use super::refusal::No;
use super::route::pickup::PickupRoute;
use super::route::{self, Route, Submit};
use super::shapes::Segment;
use super::upload::Upload;

/// Bytes of further requests that may wait behind the present one.
const HELD_MAX: usize = 64 << 10;

/// What the present request waits for.
#[derive(Debug)]
enum Task {
    /// Nothing: there is none, or it is answered.
    Idle,
    /// The end of the request; then it is begun.
    Wait(Route),
    /// The node's word: status, readiness, or that it stops.
    Ask(TransferNo, Route),
    /// The ledger.
    Query(TransferNo, Route),
    /// The ledger, on what the node has in memory of peers only.
    Oldest(TransferNo, Route, Box<node::Status>),
    /// The node's word on how far a segment is.
    Progress(TransferNo, Box<Segment>),
    /// The body of an act on its way in, and whether it is about pickup.
    Body(bool, Vec<u8>),
    /// The node's word on what became of an act.
    Act(TransferNo),
    /// The same, about pickup.
    PickupAct(TransferNo, Box<PickupRequest>),
    /// An event behind the one that was named, for a while.
    Events(Waiting),
    /// A sign of life of a peer, for a while.
    Ping(TransferNo, Ping),
    /// Content on its way in.
    Upload(Box<Upload>),
    /// Many small segments on their way in.
    Batch(Box<Batch>),
    /// Content on its way out.
    Download(Box<Download>),
}

/// The machine of one local connection.
#[derive(Debug)]
pub(super) struct AdminSession {
    context: Arc<AdminContext>,
    info: ConnInfo,
    conn: Conn,
    held: Held,
    tickets: u32,
    spoken: Spoken,
    head_only: bool,
    task: Task,
    /// Who sent the present request.
    asker: Asker,
    /// The node wants the connection to end after the present request.
    ending: Option<Goodbye>,
}

impl AdminSession {
    pub(super) fn new(context: Arc<AdminContext>, info: ConnInfo) -> AdminSession {
        AdminSession {
            conn: Conn::new(limits(&context, &info), Now::default()),
            context,
            info,
            held: Held::default(),
            tickets: 0,
            spoken: Spoken::default(),
            head_only: false,
            task: Task::Idle,
            asker: Asker::Anybody,
            ending: None,
        }
    }

    fn ticket(&mut self) -> TransferNo {
        self.tickets += 1;
        TransferNo(self.tickets)
    }

    /// Reads what waits and what is new, as far as it goes before an answer is due.
    fn bytes(&mut self, now: Now, new: &[u8], out: &mut SessionOut) {
        let mut held = std::mem::take(&mut self.held);
        let mut input = held.join(new);
        while !self.is_unread(out)
            && let Some(event) = self.conn.read(now, &mut input, &mut out.bytes)
        {
            self.event(now, event, out);
        }
        let rest = input.len();
        held.keep(new, rest);
        self.held = held;
    }

    /// Whether so much of earlier answers waits for the client that the next request has to wait, too.
    fn is_unread(&self, out: &SessionOut) -> bool {
        matches!(self.task, Task::Idle) && self.spoken.is_crowded(&out.bytes)
    }

    fn event(&mut self, now: Now, event: Event<'_>, out: &mut SessionOut) {
        match event {
            Event::Head(request) => self.head(now, &request, out),
            Event::Body(data) => {
                // Content nobody asked for is read and dropped.
                match &mut self.task {
                    Task::Upload(upload) => upload.body(data, out),
                    Task::Batch(batch) => {
                        batch.body(now, data, out);
                        self.tickets = batch.last_ticket();
                    }
                    Task::Body(_, body) if body.len() + data.len() > self.asker.body_max() => {
                        self.task = Task::Idle;
                        let text = format!("an act of more than {} bytes", self.asker.body_max());
                        self.refuse(now, &No::new(413, "too_large", text), out);
                    }
                    Task::Body(_, body) => body.extend_from_slice(data),
                    _ => {}
                }
            }
            Event::End => match std::mem::replace(&mut self.task, Task::Idle) {
                Task::Wait(route) => self.begin(now, route, out),
                Task::Body(false, body) => self.act(now, &body, out),
                Task::Body(true, body) => self.pickup_act(now, &body, out),
                Task::Upload(mut upload) => {
                    upload.end(out);
                    self.task = Task::Upload(upload);
                }
                Task::Batch(batch) => self.batch_ended(now, batch, out),
                other => self.task = other,
            },
            Event::Raw(_) => {}
            Event::Fault(_) => self.drop_task(out),
        }
    }

    /// The request under way is over without an answer from here.
    fn drop_task(&mut self, out: &mut SessionOut) {
        if let Task::Upload(mut upload) = std::mem::replace(&mut self.task, Task::Idle) {
            upload.give_up(out);
        }
    }

    fn head(&mut self, now: Now, request: &Request, out: &mut SessionOut) {
        self.head_only = request.method == Method::Head;
        let admitted = self.admit(now, request).and_then(|asker| {
            self.asker = asker;
            route::route(request)
        });
        match admitted {
            Err(no) => self.refuse(now, &no, out),
            Ok(Route::Submit(submit)) => match self.upload(now, *submit, request.length) {
                Err(no) => self.refuse(now, &no, out),
                Ok(mut upload) => {
                    upload.begin(now, &mut self.conn, out);
                    self.task = Task::Upload(upload);
                }
            },
            Ok(Route::Batch(_)) if matches!(self.ending, Some(Goodbye::Stopping)) => {
                self.refuse(now, &stopping(), out);
            }
            Ok(route) => {
                self.conn.go_on(now, &mut out.bytes);
                self.task = match route {
                    Route::Batch(submit) => {
                        let (conn, inline_max) = (self.info.conn, self.context.inline_max);
                        Task::Batch(Box::new(Batch::new(conn, *submit, inline_max, self.tickets)))
                    }
                    Route::Act => Task::Body(false, Vec::new()),
                    Route::Pickup(PickupRoute::Act) => Task::Body(true, Vec::new()),
                    route => Task::Wait(route),
                };
            }
        }
    }

    fn upload(&mut self, now: Now, submit: Submit, length: Length) -> Result<Box<Upload>, No> {
        if let Some(Goodbye::Stopping) = self.ending {
            return Err(stopping());
        }
        let mut meta = submit.meta;
        if submit.random {
            meta.instance = random_instance()?;
        }
        meta.expires_at = submit.expires.map(|d| now.wall.after(d).0);
        let declared = match length {
            Length::None => Some(0),
            Length::Sized(size) => Some(size),
            Length::Chunked | Length::UntilEof => None,
        };
        let ticket = self.ticket();
        let handle = Handle { conn: self.info.conn, number: ticket.0 };
        let inline_max = self.context.inline_max;
        let upload = Upload::new(ticket, handle, (meta, submit.to), declared, inline_max);
        Ok(Box::new(upload.of_watched(submit.watched)))
    }

    /// The body of an act is whole: the node judges it.
    fn act(&mut self, now: Now, body: &[u8], out: &mut SessionOut) {
        match acts::read(body, self.asker.who()).and_then(|act| self.asker.may(act)) {
            Err(no) => self.refuse(now, &no, out),
            Ok(act) => {
                let ticket = self.ticket();
                out.events.push(SessionEvent::Act { ticket, act: Box::new(act) });
                self.task = Task::Act(ticket);
            }
        }
    }

    fn store(&mut self, now: Now, event: StoreEvent, out: &mut SessionOut) {
        match event {
            StoreEvent::Queried { ticket, answer } => self.queried(now, ticket, answer, out),
            StoreEvent::Content { ticket, data, .. } => self.content(now, ticket, data, out),
            StoreEvent::Written { blob, bytes } => {
                if let Some(upload) = self.writes(blob) {
                    upload.written(bytes);
                }
            }
            StoreEvent::Finished { blob, size } => {
                if let Some(upload) = self.writes(blob)
                    && let Err(no) = upload.finished(blob, size, out)
                {
                    self.task = Task::Idle;
                    self.refuse(now, &no, out);
                }
            }
            StoreEvent::WriteFailed { blob, fault } => {
                if let Some(upload) = self.writes(blob) {
                    let no = upload.write_failed(blob, fault, out);
                    self.task = Task::Idle;
                    self.refuse(now, &no, out);
                }
            }
            StoreEvent::Synced { .. } => {}
        }
    }

    fn writes(&mut self, blob: BlobNo) -> Option<&mut Upload> {
        match &mut self.task {
            Task::Upload(upload) if upload.writes(blob) => Some(upload),
            _ => None,
        }
    }

    fn queried(
        &mut self,
        now: Now,
        ticket: TransferNo,
        answer: Result<Vec<u8>, StoreFault>,
        out: &mut SessionOut,
    ) {
        let route = match std::mem::replace(&mut self.task, Task::Idle) {
            Task::Query(asked, route) if asked == ticket => route,
            Task::Oldest(asked, route, status) if asked == ticket => {
                return self.status_read(now, &route, *status, answer, out);
            }
            other => {
                self.task = other;
                return;
            }
        };
        let Some((route, bytes)) = self.last_word(now, route, answer, out) else { return };
        match route {
            Route::Show(_) => match found::<Segment>(&bytes) {
                Err(no) => self.refuse(now, &no, out),
                Ok(segment) => {
                    let (ticket, seq) = (self.ticket(), Seq(segment.seq));
                    let question = Question::Progress(seq);
                    out.events.push(SessionEvent::Ask { ticket, question });
                    self.task = Task::Progress(ticket, Box::new(segment));
                }
            },
            Route::Content(_) => match found::<Located>(&bytes).and_then(located) {
                Err(no) => self.refuse(now, &no, out),
                Ok((located, body)) => {
                    let mut download = Box::new(Download::new(self.ticket(), located, body));
                    let step = download.begin(now, self.head_only, &mut self.conn, out);
                    self.task = Task::Download(download);
                    self.downloaded(now, step, out);
                }
            },
            Route::ExportRetry(_) => match found::<u64>(&bytes) {
                Err(no) => self.refuse(now, &no, out),
                Ok(seq) => {
                    let (ticket, question) = (self.ticket(), Question::InboxRetry(Seq(seq)));
                    out.events.push(SessionEvent::Ask { ticket, question });
                    self.task = Task::Ask(ticket, Route::ExportRun);
                }
            },
            Route::Assured(_) => match found::<Assurance>(&bytes) {
                Err(no) => self.refuse(now, &no, out),
                Ok(assurance) => self.shape(now, 200, &[], &assurance, out),
            },
            Route::Pickup(PickupRoute::Shard(_)) => match pickup::shown(&bytes) {
                Err(no) => self.refuse(now, &no, out),
                Ok(()) => self.body(now, 200, &[], &bytes, out),
            },
            Route::List(_)
            | Route::Page
            | Route::Link
            | Route::Enter(_)
            | Route::Assurances(_)
            | Route::Shape(_)
            | Route::Pickup(_)
            | Route::Dead(_)
            | Route::Groups(_)
            | Route::Audit(_)
            | Route::Peers
            | Route::Metrics
            | Route::Act
            | Route::Events(..)
            | Route::Exports(_)
            | Route::Watched(_)
            | Route::ExportRun
            | Route::Unwatch(..)
            | Route::Health
            | Route::Ready
            | Route::Status
            | Route::ConfirmClock
            | Route::Reload
            | Route::Log
            | Route::SetLog(_)
            | Route::Ping(..)
            | Route::Pending
            | Route::Config
            | Route::Stop
            | Route::Batch(_)
            | Route::Submit(_) => self.body(now, 200, &[], &bytes, out),
        }
    }

    fn content(
        &mut self,
        now: Now,
        ticket: TransferNo,
        data: Result<Bytes, StoreFault>,
        out: &mut SessionOut,
    ) {
        if let Task::Download(download) = &mut self.task
            && download.ticket() == ticket
        {
            let step = download.content(now, data, &mut self.conn, out);
            self.downloaded(now, step, out);
        }
    }

    fn downloaded(&mut self, now: Now, step: Step, out: &mut SessionOut) {
        match step {
            Step::More => {}
            Step::Done => self.task = Task::Idle,
            Step::Refuse(no) => {
                self.task = Task::Idle;
                self.refuse(now, &no, out);
            }
        }
    }

    /// The node ends the connection. What is submitted still gets its answer; the driver cuts the
    /// connection if that takes too long.
    fn end(&mut self, now: Now, why: Goodbye, out: &mut SessionOut) {
        self.ending = Some(why);
        if let Task::Batch(batch) = &mut self.task {
            batch.stop();
            return self.batch_done(now, out);
        }
        let waits = match &self.task {
            Task::Upload(upload) => upload.is_submitted(),
            Task::Download(_)
            | Task::Ask(..)
            | Task::Query(..)
            | Task::Oldest(..)
            | Task::Progress(..)
            | Task::Ping(..)
            | Task::Act(_)
            | Task::PickupAct(..) => true,
            Task::Idle | Task::Wait(_) | Task::Body(..) | Task::Events(_) | Task::Batch(_) => false,
        };
        if !waits {
            self.drop_task(out);
            if self.conn.awaits_answer() {
                self.refuse(now, &stopping(), out);
            }
        }
    }
}

impl Session for AdminSession {
    fn step(&mut self, now: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        self.spoken.begin(&out.bytes);
        match input {
            SessionInput::Open => {
                let conn = Conn::new(limits(&self.context, &self.info), now);
                self.conn =
                    conn.telling(Some(self.context.meters.rpc(route::rpc())), &self.info.remote);
            }
            SessionInput::Bytes(bytes) => self.bytes(now, bytes, out),
            SessionInput::Eof => self.conn.eof(),
            SessionInput::Room(room) => {
                if let Task::Download(download) = &mut self.task
                    && download.has_begun()
                {
                    let step = download.pump(now, room, &mut self.conn, out);
                    self.downloaded(now, step, out);
                }
            }
            SessionInput::Handed(bytes) => self.spoken.handed(bytes),
            SessionInput::Timer => {
                if let Some(event) = self.conn.timer(now, &mut out.bytes) {
                    self.event(now, event, out);
                }
                self.look_for_events(now, out);
                self.look_for_pong(now, out);
            }
            SessionInput::Command(command) => self.command(now, command, out),
            SessionInput::Store(event) => self.store(now, event, out),
        }
        // Whoever has gone, or says that nothing more comes, is not waited with.
        if self.conn.is_eof() {
            self.wait_no_longer(now, out);
        }
        // An answer may have made way for the next request, or for the end.
        self.bytes(now, &[], out);
        if self.ending.is_some() && matches!(self.task, Task::Idle) && !self.conn.awaits_answer() {
            self.conn.abort();
        }
        self.conn.reading(now, self.wants_read());
        self.spoken.end(&out.bytes);
        out.close |= self.conn.closing();
    }

    fn next_deadline(&self) -> Option<Instant> {
        let looks = match &self.task {
            Task::Events(waiting) => Some(waiting.look),
            Task::Ping(_, ping) => Some(ping.until),
            _ => None,
        };
        self.conn.next_deadline().into_iter().chain(looks).min()
    }

    fn wants_read(&self) -> bool {
        let placed = match &self.task {
            Task::Upload(upload) => upload.wants_read(),
            Task::Idle
            | Task::Wait(_)
            | Task::Body(..)
            | Task::Act(_)
            | Task::PickupAct(..)
            | Task::Ask(..)
            | Task::Query(..)
            | Task::Oldest(..)
            | Task::Progress(..)
            | Task::Ping(..)
            | Task::Events(_)
            | Task::Batch(_)
            | Task::Download(_) => true,
        };
        placed && self.held.len() < HELD_MAX
    }
}

#[cfg(test)]
mod tests;
