//! One connection: a socket, a [`Conn`], and the thread that carries bytes between them.
//!
//! The thread waits in `poll` for its socket and its mailbox. Awake, it takes its whole mailbox, reads
//! at most one buffer, and writes everything there is to write in one call; between two waits an idle
//! connection holds no buffer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use consign_core::conn::{Conn, Outlet};
use consign_core::id::ConnId;
use consign_core::node::{Input, Note};
use consign_core::store::StoreRequest;
use consign_core::time::Now;
use rustix::event::PollFlags;

use crate::Context;
use crate::queue::{Ending, Entry, Mail, Mailbox, Ticket};
use crate::wake::{Ready, wait};

/// Rounds of filling and writing before the socket is looked at for input again.
const WRITE_ROUNDS: usize = 8;

/// A stream of either family, not blocking.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// A TCP stream that neither blocks nor waits for more to send.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Socket::Tcp(stream))
    }

    /// A Unix stream that does not block.
    pub(crate) fn unix(stream: UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        Ok(Socket::Unix(stream))
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(buffer),
            Socket::Unix(stream) => (&*stream).read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write(bytes),
            Socket::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn shut(&self) {
        // A socket that is gone already is shut.
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
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
pub(crate) fn serve(context: &Context, mailbox: &Arc<Mailbox>, socket: Socket, mut conn: Conn) {
    let (readable, writable, ending) = (true, true, Ending::No);
    let mut carrier = Carrier { context, mailbox, socket, readable, writable, ending };
    let served = catch_unwind(AssertUnwindSafe(|| carrier.run(&mut conn)));
    if served.is_err() {
        // What a panicking session left behind is not looked at again.
        conn.link().broken("the session panicked".to_string());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            deliver(context, mailbox, &mut conn, context.clock.now());
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
}

impl Carrier<'_> {
    fn run(&mut self, conn: &mut Conn) {
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
            if !busy && self.mailbox.park() {
                self.wait(conn);
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
        let mut buffer = self.context.buffers.lend();
        match self.socket.read(&mut buffer) {
            Ok(0) => conn.link().eof(now),
            Ok(n) => {
                self.readable = n == buffer.len();
                conn.link().received(now, buffer.get_mut(..n).unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => conn.link().broken(error.to_string()),
        }
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
    fn wait(&mut self, conn: &mut Conn) {
        conn.link().rest();
        let mut interest = PollFlags::empty();
        if self.may_read(conn) {
            interest |= PollFlags::IN;
        }
        if !conn.link().pending().is_empty() {
            interest |= PollFlags::OUT;
        }
        let timeout = conn.link().next_deadline().map(|at| self.context.clock.until(at));
        let found = wait(self.mailbox.wake(), Some((self.socket.as_fd(), interest)), timeout);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                conn.link().broken(error.to_string());
                Ready::default()
            }
        };
        self.mailbox.unpark(found.woken);
        self.readable |= found.readable;
        self.writable |= found.writable;
        if found.gone && interest.is_empty() {
            // Nobody is there any more, and nothing is wanted that would notice.
            conn.link().broken("the connection is gone".to_string());
        }
    }
}
