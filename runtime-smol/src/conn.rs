//! One connection: a socket, a [`Conn`], and the task that carries bytes between them.
//!
//! The task waits for its socket, its mailbox or a deadline. Awake, it takes its whole mailbox, reads at
//! most one buffer, and writes everything there is to write in one call; between two waits an idle
//! connection holds no buffer.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Cx, Poll};

use async_io::{Async, Timer};
use consign_core::conn::{Conn, Outlet};
use consign_core::id::ConnId;
use consign_core::node::{Input, Note};
use consign_core::store::StoreRequest;
use consign_core::time::{Instant, Now};
use futures_lite::FutureExt;
use futures_lite::future::yield_now;

use crate::Context;
use crate::buffers::with_buffer;
use crate::queue::{Ending, Entry, Mail, Mailbox, Ticket};

/// Rounds of filling and writing before the socket is looked at for input again.
const WRITE_ROUNDS: usize = 8;

/// A stream of either family.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(Async<TcpStream>),
    Unix(Async<UnixStream>),
}

impl Socket {
    /// A TCP stream that does not wait for more to send.
    pub(crate) fn tcp(stream: Async<TcpStream>) -> io::Result<Socket> {
        stream.get_ref().set_nodelay(true)?;
        Ok(Socket::Tcp(stream))
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.get_ref().read(buffer),
            Socket::Unix(stream) => stream.get_ref().read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.get_ref().write(bytes),
            Socket::Unix(stream) => stream.get_ref().write(bytes),
        }
    }

    fn shut(&self) {
        // A socket that is gone already is shut.
        let _ = match self {
            Socket::Tcp(stream) => stream.get_ref().shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.get_ref().shutdown(Shutdown::Write),
        };
    }

    /// Whether it can be read; an error shows when it is.
    fn poll_readable(&self, cx: &mut Cx<'_>) -> bool {
        match self {
            Socket::Tcp(stream) => stream.poll_readable(cx).is_ready(),
            Socket::Unix(stream) => stream.poll_readable(cx).is_ready(),
        }
    }

    /// Whether it can be written; an error shows when it is.
    fn poll_writable(&self, cx: &mut Cx<'_>) -> bool {
        match self {
            Socket::Tcp(stream) => stream.poll_writable(cx).is_ready(),
            Socket::Unix(stream) => stream.poll_writable(cx).is_ready(),
        }
    }
}

/// Carries a connection's wishes to store and node: requests at once, the rest in one push.
struct Wishes<'a> {
    context: &'a Context,
    entries: Vec<Entry>,
}

impl Outlet for Wishes<'_> {
    fn request(&mut self, conn: ConnId, request: StoreRequest) {
        self.context.store.request(conn, request);
    }

    fn ended(&mut self, conn: ConnId) {
        self.context.store.conn_ended(conn);
    }

    fn node(&mut self, input: Input) {
        self.entries.push(Entry::Input(input, None));
    }

    fn note(&mut self, note: Note) {
        self.entries.push(Entry::Note(note));
    }
}

/// Serves a connection to its end, and removes it from the table.
pub(crate) async fn serve(
    context: Arc<Context>,
    mailbox: Arc<Mailbox>,
    socket: Socket,
    mut conn: Conn,
) {
    let (readable, writable, ending, timer) = (true, true, Ending::No, None);
    let mut carrier =
        Carrier { context: &context, mailbox: &mailbox, socket, readable, writable, ending, timer };
    let served = AssertUnwindSafe(carrier.run(&mut conn)).catch_unwind().await;
    if served.is_err() {
        // What a panicking session left behind is not looked at again.
        conn.link().broken("the session panicked".to_string());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            deliver(&context, &mailbox, &mut conn, context.clock.now());
        }));
        if ended.is_err() {
            tracing::error!(conn = %conn.id(), code = "CN0552", "a connection could not be ended");
        }
    }
    context.table.remove(mailbox.id());
}

fn deliver(context: &Context, mailbox: &Arc<Mailbox>, conn: &mut Conn, now: Now) {
    let mut wishes = Wishes { context, entries: Vec::new() };
    conn.deliver(now, &mut wishes);
    let count = wishes.entries.len();
    if let Some(Entry::Input(_, ticket)) = wishes.entries.last_mut() {
        *ticket = Some(Ticket::new(mailbox, count));
    }
    if count > 0 {
        context.inbox.push(wishes.entries);
    }
}

struct Carrier<'a> {
    context: &'a Context,
    mailbox: &'a Arc<Mailbox>,
    socket: Socket,
    readable: bool,
    writable: bool,
    ending: Ending,
    /// Fires at that time or later than that; left alone while deadlines only move away.
    timer: Option<(Instant, Timer)>,
}

impl Carrier<'_> {
    async fn run(&mut self, conn: &mut Conn) {
        loop {
            let now = self.context.clock.now();
            self.take_mail(conn, now);
            conn.link().timer(now);
            self.deliver(conn, now);
            if self.readable && self.may_read(conn) {
                self.read(conn, now);
                self.deliver(conn, now);
            }
            let more = self.write(conn, now);
            self.deliver(conn, now);
            if conn.link().wants_shutdown() {
                self.socket.shut();
                conn.link().shut(now);
            }
            if conn.link().is_over() {
                return;
            }
            let busy = more || (self.readable && self.may_read(conn));
            if busy {
                // Others have their turn.
                yield_now().await;
            } else {
                self.wait(conn).await;
            }
        }
    }

    fn take_mail(&mut self, conn: &mut Conn, now: Now) {
        let (mail, ending) = self.mailbox.take();
        for item in mail {
            match item {
                Mail::Command(command) => conn.link().command(now, command),
                Mail::Store(event) => conn.link().store_event(now, event),
            }
        }
        if ending == self.ending {
            return;
        }
        self.ending = ending;
        match ending {
            Ending::No => {}
            Ending::Stop => conn.link().stop(now),
            Ending::Cut => conn.link().broken("this site is stopping".to_string()),
        }
    }

    fn deliver(&self, conn: &mut Conn, now: Now) {
        deliver(self.context, self.mailbox, conn, now);
    }

    fn may_read(&self, conn: &mut Conn) -> bool {
        conn.link().wants_read() && !self.mailbox.is_crowded()
    }

    /// Reads one buffer at most.
    fn read(&mut self, conn: &mut Conn, now: Now) {
        with_buffer(|buffer| match self.socket.read(buffer) {
            Ok(0) => conn.link().eof(now),
            Ok(n) => {
                self.readable = n == buffer.len();
                conn.link().received(now, buffer.get_mut(..n).unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => conn.link().broken(error.to_string()),
        });
    }

    /// Fills and writes until there is nothing more or the socket takes no more; whether it stopped
    /// for another reason.
    fn write(&mut self, conn: &mut Conn, now: Now) -> bool {
        for _ in 0..WRITE_ROUNDS {
            conn.link().fill(now);
            if !self.writable || conn.link().pending().is_empty() {
                return false;
            }
            match self.socket.write(conn.link().pending()) {
                Ok(n) => {
                    self.writable = n == conn.link().pending().len();
                    conn.link().sent(n);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => conn.link().broken(error.to_string()),
            }
        }
        true
    }

    /// Waits for the socket, the mailbox or a deadline.
    async fn wait(&mut self, conn: &mut Conn) {
        conn.link().rest();
        let read = self.may_read(conn);
        let write = !conn.link().pending().is_empty();
        self.set_timer(conn.link().next_deadline());
        let Carrier { mailbox, socket, readable, writable, timer, .. } = self;
        let mut waited = false;
        poll_fn(|cx| {
            let due = match timer {
                Some((_, alarm)) => Pin::new(alarm).poll(cx).is_ready(),
                None => false,
            };
            if due {
                *timer = None;
            }
            if waited {
                // Whoever woke this task, the socket is tried: the reactor takes an event for stale that comes in
                // the round during which it was asked for, so waiting for its word can take many rounds.
                *readable |= read;
                *writable |= write;
                return Poll::Ready(());
            }
            waited = true;
            *readable |= read && socket.poll_readable(cx);
            *writable |= write && socket.poll_writable(cx);
            let mail = mailbox.poll(cx).is_ready();
            match due || mail || (read && *readable) || (write && *writable) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Sets the timer if it would fire too late.
    fn set_timer(&mut self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        if self.timer.as_ref().is_none_or(|(at, _)| *at > deadline) {
            let after = self.context.clock.until(deadline);
            self.timer = Some((deadline, Timer::after(after)));
        }
    }
}
