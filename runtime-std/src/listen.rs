//! Listening and dialling.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consign_core::conn::Conn;
use consign_core::driver::{LocalListener, MakeSession, PickupParts, PickupTls};
use consign_core::id::SiteNo;
use consign_core::node::Input;
use consign_core::time::Instant;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_error, socket_peercred};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::Context;
use crate::conn::{Socket, serve};
use crate::queue::{Ending, Entry, Mailbox};
use crate::table::Kind;
use crate::wake::{Wake, wait};

/// How long accepting pauses when there is no room or no file descriptor.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a full table or a want of file descriptors is logged.
const COMPLAIN_EVERY: Duration = Duration::from_secs(5);

/// A listener and what serves it.
pub(crate) enum Listener {
    /// Peers, over TLS.
    Peers(TcpListener),
    /// Pickup clients and nodes, over TLS or without.
    Pickup(TcpListener, Option<PickupTls>, MakeSession),
    /// Local clients on loopback.
    Tcp(TcpListener, MakeSession),
    /// Local clients on a Unix socket.
    Unix(UnixListener, MakeSession),
}

impl Listener {
    /// Listeners for pickup.
    pub(crate) fn pickup(parts: PickupParts) -> impl Iterator<Item = Listener> {
        let PickupParts { listeners, tls, session } = parts;
        listeners.into_iter().map(move |tcp| Listener::Pickup(tcp, tls.clone(), session.clone()))
    }

    /// A listener for local clients.
    pub(crate) fn local(listener: LocalListener, make: MakeSession) -> Listener {
        match listener {
            LocalListener::Tcp(tcp) => Listener::Tcp(tcp, make),
            LocalListener::Unix(unix) => Listener::Unix(unix, make),
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Peers(tcp) | Listener::Pickup(tcp, ..) | Listener::Tcp(tcp, _) => {
                tcp.set_nonblocking(true)
            }
            Listener::Unix(unix, _) => unix.set_nonblocking(true),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Listener::Peers(_) | Listener::Pickup(..) => Kind::Peer,
            Listener::Tcp(..) | Listener::Unix(..) => Kind::Own,
        }
    }

    /// Takes the next connection.
    fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Peers(tcp) | Listener::Pickup(tcp, ..) | Listener::Tcp(tcp, _) => {
                tcp.accept().map(|(stream, remote)| Accepted::Tcp(stream, remote))
            }
            Listener::Unix(unix, _) => unix.accept().map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}

/// A connection as the system hands it over.
enum Accepted {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Accepted {
    /// Where it comes from, when it comes from outside this machine's own clients.
    fn address(&self) -> Option<IpAddr> {
        match self {
            Accepted::Tcp(_, remote) => Some(remote.ip()),
            Accepted::Unix(..) => None,
        }
    }

    /// The socket, the other side for people, and its user id.
    fn prepare(self) -> io::Result<(Socket, String, Option<u32>)> {
        match self {
            Accepted::Tcp(stream, remote) => Ok((Socket::tcp(stream)?, remote.to_string(), None)),
            Accepted::Unix(stream) => {
                let uid = socket_peercred(&stream)?.uid.as_raw();
                Ok((Socket::unix(stream)?, format!("uid {uid}"), Some(uid)))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Peers(tcp) | Listener::Pickup(tcp, ..) | Listener::Tcp(tcp, _) => tcp.as_fd(),
            Listener::Unix(unix, _) => unix.as_fd(),
        }
    }
}

/// Accepts until `stop` is awake.
pub(crate) fn accept(context: &Arc<Context>, listener: &Listener, stop: &Wake) {
    let mut reserve = Reserve::new();
    let mut complaint = Complaint::default();
    loop {
        let full = !context.table.has_room(listener.kind());
        if full {
            complaint.say(context, "no room for more connections", &context.table.live());
        }
        let interest = (!full).then(|| (listener.as_fd(), PollFlags::IN));
        match wait(stop, interest, full.then_some(PAUSE)) {
            Ok(found) if found.woken => return,
            Ok(found) if !found.readable => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, code = "CN0553", "cannot wait for connections");
                return;
            }
        }
        let trouble = match listener.accept() {
            Ok(accepted) => {
                let from = accepted.address().filter(|_| listener.kind() == Kind::Peer);
                if let Some(crowded) = from.filter(|from| !context.table.has_room_from(*from)) {
                    // Closed at once, and nobody else waits for it.
                    complaint.say(context, "too many connections from one address", &crowded);
                    continue;
                }
                match accepted.prepare() {
                    Ok(new) => begin(context, listener, from, new).err(),
                    // The other side was gone again.
                    Err(_) => None,
                }
            }
            Err(error) if is_passing(&error) => None,
            Err(error) => {
                // Whoever waits is told by a close rather than left hanging.
                reserve.shed(listener);
                Some(error)
            }
        };
        if let Some(error) = trouble {
            complaint.say(context, "cannot take a connection", &error);
            if wait(stop, None, Some(PAUSE)).is_ok_and(|found| found.woken) {
                return;
            }
        }
    }
}

/// What a new connection's thread must know of its listener.
enum Served {
    Peer,
    Pickup(Option<PickupTls>, MakeSession),
    Local(MakeSession),
}

impl Served {
    fn by(listener: &Listener) -> Served {
        match listener {
            Listener::Peers(_) => Served::Peer,
            Listener::Pickup(_, tls, make) => Served::Pickup(tls.clone(), make.clone()),
            Listener::Tcp(_, make) | Listener::Unix(_, make) => Served::Local(make.clone()),
        }
    }
}

/// Gives a new connection its number and its thread.
fn begin(
    context: &Arc<Context>,
    listener: &Listener,
    from: Option<IpAddr>,
    (socket, remote, uid): (Socket, String, Option<u32>),
) -> io::Result<()> {
    let mailbox = context.table.admit(listener.kind(), from)?;
    let id = mailbox.id();
    let started = context.threads.spawn(format!("conn-{id}"), {
        let (context, mailbox) = (context.clone(), mailbox);
        let served = Served::by(listener);
        move || {
            let conn = match &served {
                Served::Peer => {
                    let begin = context.begin(&mailbox, &context.peer_session);
                    Conn::accepted(begin, remote, &context.tls)
                }
                Served::Pickup(tls, make) => {
                    Conn::pickup(context.begin(&mailbox, make), remote, tls.as_ref())
                }
                Served::Local(make) => Conn::local(context.begin(&mailbox, make), remote, uid),
            };
            serve(&context, &mailbox, socket, conn);
        }
    });
    if started.is_err() {
        context.table.remove(id);
    }
    started
}

/// Whether there was merely nothing to accept. Everything else (no file descriptors, no memory) lasts.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

/// A file descriptor kept back, to accept and close a connection when there is no other left.
struct Reserve(Option<File>);

impl Reserve {
    fn new() -> Reserve {
        Reserve(File::open("/dev/null").ok())
    }

    fn shed(&mut self, listener: &Listener) {
        self.0 = None;
        // Dropped at once; if that fails too, the pause must do.
        drop(listener.accept());
        *self = Reserve::new();
    }
}

/// A log line, at most every [`COMPLAIN_EVERY`].
#[derive(Default)]
struct Complaint(Option<Instant>);

impl Complaint {
    fn say(&mut self, context: &Context, what: &str, why: &dyn std::fmt::Display) {
        let now = context.clock.now().mono;
        if self.0.is_none_or(|last| now.since(last) >= COMPLAIN_EVERY) {
            self.0 = Some(now);
            tracing::warn!(%why, code = "CN0550", "{what}");
        }
    }
}

/// Dials a peer on a thread of its own; whatever comes of it reaches the node.
pub(crate) fn dial(context: &Arc<Context>, site: SiteNo, name: String, address: String) {
    let result = context.table.admit(Kind::Own, None).and_then(|mailbox| {
        let id = mailbox.id();
        let started = context.threads.spawn(format!("dial-{id}"), {
            let context = context.clone();
            move || dialled(&context, &mailbox, site, name, &address)
        });
        started.inspect_err(|_| context.table.remove(id))
    });
    if let Err(error) = result {
        failed(context, site, error.to_string());
    }
}

fn failed(context: &Context, site: SiteNo, why: String) {
    context.inbox.push([Entry::Input(Input::DialFailed { site, why, reached: false }, None)]);
}

fn dialled(
    context: &Arc<Context>,
    mailbox: &Arc<Mailbox>,
    site: SiteNo,
    name: String,
    address: &str,
) {
    match reach(context, mailbox, address).and_then(Socket::tcp) {
        Ok(socket) => {
            let begin = context.begin(mailbox, &context.peer_session);
            let conn = Conn::dialled(begin, address.to_string(), site, name, &context.tls);
            serve(context, mailbox, socket, conn);
        }
        Err(error) => {
            failed(context, site, format!("{address}: {error}"));
            context.table.remove(mailbox.id());
        }
    }
}

/// Looks the address up and connects to the first of its meanings that answers.
fn reach(context: &Context, mailbox: &Arc<Mailbox>, address: &str) -> io::Result<TcpStream> {
    let until = context.clock.now().mono.after(context.timeouts.connect);
    let addresses = resolve(context, mailbox, address, until)?;
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for (i, candidate) in addresses.iter().enumerate() {
        let shares = u32::try_from(addresses.len() - i).unwrap_or(u32::MAX);
        let share = context.clock.until(until) / shares;
        let attempt_until = context.clock.now().mono.after(share);
        match connect_to(context, mailbox, candidate, attempt_until) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The addresses of `host:port`. A name is looked up on a thread that ends with the look-up, for
/// nothing can cut that short.
fn resolve(
    context: &Context,
    mailbox: &Arc<Mailbox>,
    address: &str,
    until: Instant,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(literal) = address.parse() {
        return Ok(vec![literal]);
    }
    let answer: Arc<Mutex<Option<io::Result<Vec<SocketAddr>>>>> = Arc::default();
    let (told, asker, asked) = (answer.clone(), mailbox.clone(), address.to_string());
    std::thread::Builder::new().name("resolve".to_string()).spawn(move || {
        let found = asked.to_socket_addrs().map(Vec::from_iter);
        *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        asker.nudge();
    })?;
    loop {
        if let Some(found) = answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return found;
        }
        pause(context, mailbox, None, until)?;
    }
}

/// Waits until the mailbox is nudged or the socket can be written to, whichever is first; whether it
/// can be written to.
fn pause(
    context: &Context,
    mailbox: &Mailbox,
    socket: Option<BorrowedFd<'_>>,
    until: Instant,
) -> io::Result<bool> {
    let left = context.clock.until(until);
    if left.is_zero() {
        return Err(io::Error::new(ErrorKind::TimedOut, "no answer in time"));
    }
    if mailbox.take().1 != Ending::No {
        return Err(io::Error::new(ErrorKind::ConnectionAborted, "this site is stopping"));
    }
    if !mailbox.park() {
        return Ok(false);
    }
    let found = wait(mailbox.wake(), socket.map(|fd| (fd, PollFlags::OUT)), Some(left));
    mailbox.unpark(found.as_ref().is_ok_and(|found| found.woken));
    Ok(found?.writable)
}

fn connect_to(
    context: &Context,
    mailbox: &Mailbox,
    address: &SocketAddr,
    until: Instant,
) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, address) {
        Ok(()) => return Ok(TcpStream::from(socket)),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    while !pause(context, mailbox, Some(socket.as_fd()), until)? {}
    socket_error(&socket)??;
    Ok(TcpStream::from(socket))
}
