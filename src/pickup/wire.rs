//! Bytes to a relay and back, over TCP or TLS. Never blocks without a deadline: the socket is polled in
//! both directions, so that an early answer is seen while a body is still on its way out.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::url::Relay;

/// Bytes read at a time.
const PIECE: usize = 256 << 10;
/// Bytes that TLS encrypts ahead of what the kernel takes.
const SEALED: usize = 256 << 10;
/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// What has still to leave, from `at` on.
    out: Vec<u8>,
    at: usize,
    /// What arrived and was not read.
    pub(crate) input: Vec<u8>,
    /// Where bytes arrive that TLS decrypts. rustls itself would read 4 KiB at a time.
    arrived: Vec<u8>,
    /// Nothing more will arrive.
    ended: bool,
    /// It ended as it should: TLS said so, or there is no TLS.
    cleanly: bool,
}

/// What has moved while it was waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes arrived, or the end did.
    pub(crate) read: bool,
    /// Bytes left.
    pub(crate) wrote: bool,
    /// The other descriptor is ready.
    pub(crate) woken: bool,
}

fn timed_out(what: &str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, what)
}

impl Wire {
    /// Connects to the first address that answers.
    pub(crate) fn connect(relay: &Relay, tls: Option<&Arc<ClientConfig>>) -> io::Result<Wire> {
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (relay.host.as_str(), relay.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return Wire::over(stream, relay, tls),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    fn over(stream: TcpStream, relay: &Relay, tls: Option<&Arc<ClientConfig>>) -> io::Result<Wire> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let tls = match tls.filter(|_| relay.tls) {
            None => None,
            Some(config) => {
                let name = ServerName::try_from(relay.host.clone()).map_err(io::Error::other)?;
                let connection = ClientConnection::new(Arc::clone(config), name);
                let mut connection = connection.map_err(io::Error::other)?;
                connection.set_buffer_limit(Some(SEALED));
                Some(Box::new(connection))
            }
        };
        let (out, input, arrived) = (Vec::new(), Vec::new(), Vec::new());
        let mut wire =
            Wire { stream, tls, out, at: 0, input, arrived, ended: false, cleanly: true };
        let until = Instant::now() + HANDSHAKE;
        while wire.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            if wire.pump(until, None)? == Moved::default() && Instant::now() >= until {
                return Err(timed_out("the TLS handshake takes too long"));
            }
            if wire.ended {
                let text = "the connection ended within the TLS handshake";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
        }
        Ok(wire)
    }

    /// Puts bytes behind those that wait to leave.
    pub(crate) fn queue(&mut self) -> &mut Vec<u8> {
        if self.at == self.out.len() {
            self.out.clear();
            self.at = 0;
        }
        &mut self.out
    }

    /// Drops what waits to leave: nobody wants it any more.
    pub(crate) fn drop_queue(&mut self) {
        self.out.clear();
        self.at = 0;
    }

    /// Whether everything has left for the kernel.
    pub(crate) fn is_flushed(&self) -> bool {
        self.at == self.out.len() && !self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Whether nothing more will arrive, and whether that was said.
    pub(crate) fn ended(&self) -> Option<bool> {
        self.ended.then_some(self.cleanly)
    }

    /// Moves what can be moved, and waits for that until the deadline; or until `other` is readable.
    pub(crate) fn pump(
        &mut self,
        until: Instant,
        other: Option<BorrowedFd<'_>>,
    ) -> io::Result<Moved> {
        self.seal()?;
        let writes = !self.is_flushed();
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.ended);
        flags.set(PollFlags::OUT, writes);
        let left = until.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: left.as_secs().min(3_600).cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = vec![PollFd::new(&self.stream, flags)];
        fds.extend(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut fds, Some(&time)) {
            Err(rustix::io::Errno::INTR) => return Ok(Moved { woken: true, ..Moved::default() }),
            other => other?,
        };
        let ready = fds.first().map_or(PollFlags::empty(), PollFd::revents);
        let woken = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        let mut moved = Moved { woken, ..Moved::default() };
        if writes && ready.intersects(PollFlags::OUT | PollFlags::ERR | PollFlags::HUP) {
            moved.wrote = self.write()?;
        }
        if !self.ended && ready.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP) {
            moved.read = self.read()?;
        }
        Ok(moved)
    }

    /// Gives TLS what it takes of the bytes that wait.
    fn seal(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls
            && !tls.is_handshaking()
            && self.at < self.out.len()
        {
            self.at += tls.writer().write(&self.out[self.at..])?;
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<bool> {
        let result = match &mut self.tls {
            Some(tls) => tls.write_tls(&mut self.stream),
            None => self.stream.write(&self.out[self.at..]),
        };
        match result {
            Ok(n) => {
                if self.tls.is_none() {
                    self.at += n;
                }
                Ok(n > 0)
            }
            Err(e) if is_later(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Reads what is there; says whether anything was, or the end.
    fn read(&mut self) -> io::Result<bool> {
        if self.tls.is_some() {
            return self.read_tls();
        }
        let start = self.input.len();
        self.input.resize(start + PIECE, 0);
        let result = self.stream.read(&mut self.input[start..]);
        self.input.truncate(start + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(got) => {
                self.ended = got == 0;
                Ok(true)
            }
            Err(e) if is_later(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn read_tls(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        self.arrived.resize(PIECE, 0);
        let got = match self.stream.read(&mut self.arrived) {
            Err(e) if is_later(&e) => return Ok(false),
            other => other?,
        };
        let mut bytes = &self.arrived[..got];
        let mut closed = false;
        loop {
            let taken = tls.read_tls(&mut bytes)?;
            let state = match tls.process_new_packets() {
                Ok(state) => state,
                Err(why) => {
                    // The alert tells the relay why; whether it hears that does not matter.
                    let _ = tls.write_tls(&mut self.stream);
                    return Err(io::Error::new(ErrorKind::InvalidData, why));
                }
            };
            let start = self.input.len();
            self.input.resize(start + state.plaintext_bytes_to_read(), 0);
            let mut at = start;
            while at < self.input.len() {
                match tls.reader().read(&mut self.input[at..]) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => at += n,
                }
            }
            self.input.truncate(at);
            closed |= state.peer_has_closed();
            // Nothing is taken any more behind the relay's goodbye.
            if bytes.is_empty() || taken == 0 {
                break;
            }
        }
        if got == 0 || closed {
            self.ended = true;
            self.cleanly = closed;
        }
        Ok(true)
    }
}

fn is_later(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.stream);
        }
    }
}
