//! The machine of one pickup connection: HTTP requests one at a time and in order, or a WebSocket.
//!
//! ```text
//!                                     Query             Fetch, Subscribe
//!  GET /buffer/fetch, /ws ─▶ Signed ─────────▶ Checked ─────────────────▶ Asked ─▶ Fetch │ Socket
//!  POST, PATCH ────────────▶ Upload
//!  HEAD, PUT ──────────────▶ Plain ──────────────────────────────────────▶ Asked ─▶ answered
//! ```
//!
//! A signature is verified here, on keys from the committed ledger, once the whole request is there;
//! then the node judges whether it is fresh and new. One that does not verify never reaches the node.

mod answer;
mod context;
mod digester;
mod fetch;
mod keys;
mod refusal;
mod route;
mod socket;
mod upload;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use sha2::{Digest, Sha256};

pub use context::{FillRandom, PickupContext};

use self::fetch::Fetch;
use self::keys::{keys, verify};
use self::refusal::No;
use self::route::{Route, Signer};
use self::socket::{Random, Socket};
use self::upload::Upload;
use super::ws;
use super::{Event, FetchAsk};
use crate::code::Goodbye;
use crate::http::{self, Conn, Held, Request};
use crate::id::{Handle, Sha256Digest, TransferNo};
use crate::limits::CHECKPOINT_EVERY;
use crate::pickup::token::Token;
use crate::session::{ConnInfo, Session, SessionEvent, SessionInput, SessionOut, Spoken};
use crate::store::StoreFault;
use crate::time::{Instant, Now};

/// Bytes of further requests that may wait behind the present one.
const HELD_MAX: usize = 64 << 10;
/// Longest body of a request that needs none.
const BODY_MAX: u64 = 64 << 10;

/// What a signed request is for.
#[derive(Debug)]
enum Wanted {
    Fetch { token: Option<Token>, from: Option<u64> },
    Ws { accept: String },
}

/// A signed request.
#[derive(Debug)]
struct Checking {
    signer: Signer,
    wanted: Wanted,
    /// Of the body so far, and its length.
    body: Sha256,
    came: u64,
}

/// What the present request waits for.
#[derive(Debug)]
enum Task {
    /// Nothing: there is none, or it is answered.
    Idle,
    /// Its end; then this is asked of the node.
    Plain(Event, u64),
    /// The end of a signed request.
    Signed(Box<Checking>),
    /// The keys of the node that says to have signed it.
    Checked(TransferNo, Box<Checking>),
    /// The node's word on this request. A fetch from here, an upgrade with this.
    Asked(TransferNo, Option<Wanted>, String),
    /// Content on its way in.
    Upload(Box<Upload>),
    /// Content on its way out.
    Fetch(Box<Fetch>),
    /// Upgraded.
    Socket(Box<Socket>),
}

/// The machine.
#[derive(Debug)]
pub struct PickupSession {
    context: Arc<PickupContext>,
    info: ConnInfo,
    conn: Conn,
    held: Held,
    tickets: u32,
    task: Task,
    random: Random,
    /// Uploads are checkpointed every so many bytes.
    every: u64,
    spoken: Spoken,
    /// The node wants the connection to end after the present request.
    ending: bool,
}

impl PickupSession {
    /// The session of a connection; tokens are drawn from `random`.
    #[must_use]
    pub fn new(context: Arc<PickupContext>, info: ConnInfo, random: FillRandom) -> PickupSession {
        PickupSession {
            conn: Conn::new(context.limits, Now::default()),
            context,
            info,
            held: Held::default(),
            tickets: 0,
            task: Task::Idle,
            random: Random(random),
            every: CHECKPOINT_EVERY,
            spoken: Spoken::default(),
            ending: false,
        }
    }

    /// The same with another distance of checkpoints: for the simulator.
    #[doc(hidden)]
    #[must_use]
    pub fn with_checkpoints(self, every: u64) -> PickupSession {
        PickupSession { every, ..self }
    }

    fn ticket(&mut self) -> TransferNo {
        self.tickets = self.tickets.saturating_add(1);
        TransferNo(self.tickets)
    }

    /// Reads what waits and what is new, as far as it goes before an answer is due.
    fn bytes(&mut self, now: Now, new: &[u8], out: &mut SessionOut) {
        let mut held = core::mem::take(&mut self.held);
        let mut input = held.join(new);
        while !self.is_winding_up()
            && !self.is_unread(out)
            && let Some(event) = self.conn.read(now, &mut input, &mut out.bytes)
        {
            self.event(now, event, out);
        }
        let rest = input.len();
        held.keep(new, rest);
        self.held = held;
    }

    /// Whether so much of earlier answers waits for the peer that the next request has to wait, too.
    fn is_unread(&self, out: &SessionOut) -> bool {
        matches!(self.task, Task::Idle) && self.spoken.is_crowded(&out.bytes)
    }

    fn event(&mut self, now: Now, event: http::Event<'_>, out: &mut SessionOut) {
        match event {
            http::Event::Head(request) => self.head(now, &request, out),
            http::Event::Body(data) => self.body(now, data, out),
            http::Event::End => self.end(now, out),
            http::Event::Raw(data) => {
                if let Task::Socket(socket) = &mut self.task {
                    socket.bytes(now, data, &self.context, &mut self.random, out);
                }
            }
            http::Event::Fault(_) => self.drop_task(out),
        }
    }

    /// The request under way is over without an answer from here.
    fn drop_task(&mut self, out: &mut SessionOut) {
        match core::mem::replace(&mut self.task, Task::Idle) {
            Task::Upload(mut upload) => {
                upload.give_up(out);
                self.task = Task::Upload(upload);
            }
            Task::Fetch(mut fetch) => fetch.break_off(&mut self.conn, out),
            Task::Idle
            | Task::Plain(..)
            | Task::Signed(_)
            | Task::Checked(..)
            | Task::Asked(..)
            | Task::Socket(_) => {}
        }
    }

    fn head(&mut self, now: Now, request: &Request, out: &mut SessionOut) {
        let route = match route::route(request, &self.context) {
            Ok(route) => route,
            Err(no) => return no.say(now, &mut self.conn, &mut out.bytes),
        };
        let ticket = self.ticket();
        let (signer, wanted) = match route {
            Route::Upload(head) => {
                let handle = Handle { conn: self.info.conn, number: ticket.0 };
                let limits = (self.context.inline_max, self.context.max_upload);
                let mut upload = Box::new(Upload::new(ticket, handle, head, limits, self.every));
                upload.begin(now, &mut self.conn, out);
                self.task = Task::Upload(upload);
                return;
            }
            Route::Head { shard, client } => {
                return self.plain(now, Event::Head { ticket, shard, client: Some(client) }, out);
            }
            Route::Slot { shard, client, size } => {
                let client = Some(client);
                return self.plain(now, Event::Slot { ticket, shard, client, size }, out);
            }
            Route::Fetch { signer, token, from } => (signer, Wanted::Fetch { token, from }),
            Route::Ws { signer, accept } => (signer, Wanted::Ws { accept }),
        };
        self.conn.go_on(now, &mut out.bytes);
        let checking = Checking { signer, wanted, body: Sha256::new(), came: 0 };
        self.task = Task::Signed(Box::new(checking));
    }

    /// A request that needs no body: it is asked once it is whole.
    fn plain(&mut self, now: Now, event: Event, out: &mut SessionOut) {
        self.conn.go_on(now, &mut out.bytes);
        self.task = Task::Plain(event, 0);
    }

    fn body(&mut self, now: Now, data: &[u8], out: &mut SessionOut) {
        let came = match &mut self.task {
            Task::Upload(upload) => {
                let result = upload.body(data, out);
                return self.uploaded(now, result, out);
            }
            Task::Plain(_, came) => came,
            Task::Signed(checking) => {
                checking.body.update(data);
                &mut checking.came
            }
            Task::Idle | Task::Checked(..) | Task::Asked(..) | Task::Fetch(_) | Task::Socket(_) => {
                return;
            }
        };
        *came = came.saturating_add(data.len() as u64);
        if *came > BODY_MAX {
            self.task = Task::Idle;
            let no = No::new(413, "too_large", "this request needs no body");
            no.say(now, &mut self.conn, &mut out.bytes);
        }
    }

    fn end(&mut self, now: Now, out: &mut SessionOut) {
        match core::mem::replace(&mut self.task, Task::Idle) {
            Task::Plain(event, _) => {
                let ticket = TransferNo(self.tickets);
                out.events.push(self::event(event));
                self.task = Task::Asked(ticket, None, String::new());
            }
            Task::Signed(checking) => {
                let ticket = self.ticket();
                keys(ticket, &checking.signer.claim.node, out);
                self.task = Task::Checked(ticket, checking);
            }
            Task::Upload(mut upload) => {
                let result = upload.end(out);
                self.task = Task::Upload(upload);
                self.uploaded(now, result, out);
            }
            other @ (Task::Idle
            | Task::Checked(..)
            | Task::Asked(..)
            | Task::Fetch(_)
            | Task::Socket(_)) => self.task = other,
        }
    }

    /// What a step of an upload came to.
    fn uploaded(&mut self, now: Now, result: Result<(), No>, out: &mut SessionOut) {
        if let (Err(no), Task::Upload(upload)) = (result, &mut self.task) {
            upload.answered();
            no.say(now, &mut self.conn, &mut out.bytes);
        }
        self.tidy_upload();
    }

    fn tidy_upload(&mut self) {
        if matches!(&self.task, Task::Upload(upload) if upload.is_over()) {
            self.task = Task::Idle;
        }
    }

    /// The keys of the node that says to have signed the request are there.
    fn checked(
        &mut self,
        now: Now,
        ticket: TransferNo,
        keys: Result<Vec<u8>, StoreFault>,
        out: &mut SessionOut,
    ) {
        if !matches!(&self.task, Task::Checked(asked, _) if *asked == ticket) {
            return;
        }
        let Task::Checked(_, checking) = core::mem::replace(&mut self.task, Task::Idle) else {
            return;
        };
        let Checking { signer, wanted, body, .. } = *checking;
        let keys = match keys {
            Ok(keys) => keys,
            Err(_) => {
                let no = No::new(503, "unavailable", "the ledger cannot be read just now");
                return no.and("Retry-After", "1").say(now, &mut self.conn, &mut out.bytes);
            }
        };
        let Some(signed) = verify(&signer, Sha256Digest(body.finalize().into()), &keys) else {
            return No::unauthorized().say(now, &mut self.conn, &mut out.bytes);
        };
        let ticket = self.ticket();
        let node = signed.node.clone();
        let event = match &wanted {
            Wanted::Fetch { token, from } => {
                let token = token.map(|token| token.hash());
                let ask = Box::new(FetchAsk { signed, token, from: *from });
                Event::Fetch { ticket, ask }
            }
            Wanted::Ws { .. } => Event::Subscribe { ticket, signed },
        };
        out.events.push(self::event(event));
        self.task = Task::Asked(ticket, Some(wanted), node);
    }

    fn is_winding_up(&self) -> bool {
        matches!(&self.task, Task::Upload(upload) if upload.is_winding_up())
    }

    fn timer(&mut self, now: Now, out: &mut SessionOut) {
        match &mut self.task {
            Task::Fetch(fetch) => {
                if fetch.timer(now, &mut self.conn, out) != fetch::Step::More {
                    self.task = Task::Idle;
                }
            }
            Task::Socket(socket) => socket.timer(now, out),
            Task::Idle
            | Task::Plain(..)
            | Task::Signed(_)
            | Task::Checked(..)
            | Task::Asked(..)
            | Task::Upload(_) => {}
        }
        if let Some(event) = self.conn.timer(now, &mut out.bytes) {
            self.event(now, event, out);
        }
    }

    /// The node ends the connection. What is judged or fetched still gets its answer; the driver cuts
    /// the connection if that takes too long.
    fn stop(&mut self, now: Now, why: Goodbye, text: &str, out: &mut SessionOut) {
        self.ending = true;
        match &mut self.task {
            Task::Upload(upload) if !upload.is_judged() => {
                upload.give_up(out);
                self.tidy_upload();
                let no = No::new(503, "unavailable", "this site is stopping");
                no.and("Retry-After", "5").say(now, &mut self.conn, &mut out.bytes);
            }
            Task::Socket(socket) => {
                let code = if why == Goodbye::Stopping { ws::GOING_AWAY } else { ws::POLICY };
                socket.close(code, text, out);
            }
            Task::Idle
            | Task::Plain(..)
            | Task::Signed(_)
            | Task::Checked(..)
            | Task::Asked(..)
            | Task::Upload(_)
            | Task::Fetch(_) => {}
        }
    }

    /// After every input.
    fn settle(&mut self, now: Now, out: &mut SessionOut) {
        self.tidy_upload();
        // An answer may have made way for the next request, or for the end.
        self.bytes(now, &[], out);
        self.tidy_upload();
        let unsent = self.spoken.unsent(&out.bytes);
        if let Task::Socket(socket) = &mut self.task {
            socket.settle(unsent, out);
            if socket.is_closed() || self.conn.is_eof() {
                self.conn.abort();
            }
        }
        if self.ending && matches!(self.task, Task::Idle) && !self.conn.awaits_answer() {
            self.conn.abort();
        }
        self.conn.reading(now, self.wants_read());
        self.spoken.end(&out.bytes);
        out.close |= self.conn.closing() && !self.is_winding_up();
    }
}

impl Session for PickupSession {
    fn step(&mut self, now: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        self.spoken.begin(&out.bytes);
        match input {
            SessionInput::Open => {
                let tell = self.context.tell.clone();
                self.conn = Conn::new(self.context.limits, now).telling(tell, &self.info.remote);
            }
            SessionInput::Bytes(bytes) => self.bytes(now, bytes, out),
            SessionInput::Eof => self.conn.eof(),
            SessionInput::Room(room) => {
                if let Task::Fetch(fetch) = &mut self.task {
                    fetch.pump(room, &mut self.conn, out);
                }
            }
            SessionInput::Handed(bytes) => {
                self.spoken.handed(bytes);
                if let Task::Fetch(fetch) = &mut self.task
                    && fetch.handed(now, bytes, &mut self.conn, out) != fetch::Step::More
                {
                    self.task = Task::Idle;
                }
            }
            SessionInput::Timer => self.timer(now, out),
            SessionInput::Command(command) => self.command(now, command, out),
            SessionInput::Store(event) => self.store(now, event, out),
        }
        self.settle(now, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let own = match &self.task {
            Task::Fetch(fetch) => Some(fetch.deadline()),
            Task::Socket(socket) => Some(socket.deadline()),
            Task::Idle
            | Task::Plain(..)
            | Task::Signed(_)
            | Task::Checked(..)
            | Task::Asked(..)
            | Task::Upload(_) => None,
        };
        let http = self.conn.next_deadline();
        own.into_iter().chain(http).min()
    }

    fn wants_read(&self) -> bool {
        let placed = match &self.task {
            Task::Upload(upload) => upload.wants_read() && !upload.is_winding_up(),
            Task::Socket(socket) => socket.wants_read(),
            Task::Idle
            | Task::Plain(..)
            | Task::Signed(_)
            | Task::Checked(..)
            | Task::Asked(..)
            | Task::Fetch(_) => true,
        };
        placed && self.held.len() < HELD_MAX
    }
}

/// An event of pickup.
fn event(event: Event) -> SessionEvent {
    SessionEvent::Pickup(Box::new(event))
}

#[cfg(test)]
mod tests;
