//! Listening and dialling.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use async_io::{Async, Timer};
use consign_core::conn::Conn;
use consign_core::driver::{LocalListener, MakeSession, PickupParts, PickupTls};
use consign_core::id::SiteNo;
use consign_core::node::Input;
use consign_core::time::Instant;
use futures_lite::FutureExt;
use rustix::net::sockopt::socket_peercred;

use crate::Context;
use crate::conn::{Socket, serve};
use crate::queue::{Ending, Entry, Mailbox};
use crate::table::Kind;
use crate::wake::Signal;

/// How long accepting pauses when there is no room or no file descriptor.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a full table or a want of file descriptors is logged.
const COMPLAIN_EVERY: Duration = Duration::from_secs(5);

/// A listener and what serves it.
pub(crate) enum Listener {
    /// Peers, over TLS.
    Peers(Async<TcpListener>),
    /// Pickup clients and nodes, over TLS or without.
    Pickup(Async<TcpListener>, Option<PickupTls>, MakeSession),
    /// Local clients on loopback.
    Tcp(Async<TcpListener>, MakeSession),
    /// Local clients on a Unix socket.
    Unix(Async<UnixListener>, MakeSession),
}

impl Listener {
    /// A listener for peers.
    pub(crate) fn peers(listener: TcpListener) -> io::Result<Listener> {
        Async::new(listener).map(Listener::Peers)
    }

    /// Listeners for pickup.
    pub(crate) fn pickup(parts: PickupParts) -> impl Iterator<Item = io::Result<Listener>> {
        let PickupParts { listeners, tls, session } = parts;
        listeners.into_iter().map(move |listener| {
            Async::new(listener).map(|tcp| Listener::Pickup(tcp, tls.clone(), session.clone()))
        })
    }

    /// A listener for local clients.
    pub(crate) fn local(listener: LocalListener, make: MakeSession) -> io::Result<Listener> {
        match listener {
            LocalListener::Tcp(tcp) => Async::new(tcp).map(|tcp| Listener::Tcp(tcp, make)),
            LocalListener::Unix(unix) => Async::new(unix).map(|unix| Listener::Unix(unix, make)),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Listener::Peers(_) | Listener::Pickup(..) => Kind::Peer,
            Listener::Tcp(..) | Listener::Unix(..) => Kind::Own,
        }
    }

    /// Takes the next connection.
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Listener::Peers(tcp) | Listener::Pickup(tcp, ..) | Listener::Tcp(tcp, _) => {
                tcp.accept().await.map(|(stream, remote)| Accepted::Tcp(stream, remote))
            }
            Listener::Unix(unix, _) => {
                unix.accept().await.map(|(stream, _)| Accepted::Unix(stream))
            }
        }
    }

    /// Takes a connection that waits and closes it.
    fn shed(&self) {
        // If that fails too, the pause must do.
        match self {
            Listener::Peers(tcp) | Listener::Pickup(tcp, ..) | Listener::Tcp(tcp, _) => {
                drop(tcp.get_ref().accept());
            }
            Listener::Unix(unix, _) => drop(unix.get_ref().accept()),
        }
    }
}

/// A connection as the system hands it over.
enum Accepted {
    Tcp(Async<TcpStream>, SocketAddr),
    Unix(Async<UnixStream>),
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
                Ok((Socket::Unix(stream), format!("uid {uid}"), Some(uid)))
            }
        }
    }
}

/// Accepts until `stop` is set.
pub(crate) async fn accept(context: Arc<Context>, listener: Listener, stop: Arc<Signal>) {
    let stopped = async {
        stop.wait().await;
        true
    };
    let accepting = async {
        accept_all(&context, &listener).await;
        false
    };
    stopped.or(accepting).await;
}

async fn accept_all(context: &Arc<Context>, listener: &Listener) {
    let mut reserve = Reserve::new();
    let mut complaint = Complaint::default();
    loop {
        if !context.table.has_room(listener.kind()) {
            complaint.say(context, "no room for more connections", &context.table.live());
            Timer::after(PAUSE).await;
            continue;
        }
        let trouble = match listener.accept().await {
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
            Timer::after(PAUSE).await;
        }
    }
}

/// Gives a new connection its number and its task.
fn begin(
    context: &Arc<Context>,
    listener: &Listener,
    from: Option<IpAddr>,
    (socket, remote, uid): (Socket, String, Option<u32>),
) -> io::Result<()> {
    let mailbox = context.table.admit(listener.kind(), from)?;
    let conn = match listener {
        Listener::Peers(_) => {
            let begin = context.begin(&mailbox, &context.peer_session);
            Conn::accepted(begin, remote, &context.tls)
        }
        Listener::Pickup(_, tls, make) => {
            Conn::pickup(context.begin(&mailbox, make), remote, tls.as_ref())
        }
        Listener::Tcp(_, make) | Listener::Unix(_, make) => {
            Conn::local(context.begin(&mailbox, make), remote, uid)
        }
    };
    context.workers.spawn(serve(context.clone(), mailbox, socket, conn)).detach();
    Ok(())
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
        listener.shed();
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

/// Dials a peer in a task of its own; whatever comes of it reaches the node.
pub(crate) fn dial(context: &Arc<Context>, site: SiteNo, name: String, address: String) {
    match context.table.admit(Kind::Own, None) {
        Ok(mailbox) => {
            let task = dialled(context.clone(), mailbox, site, name, address);
            context.workers.spawn(task).detach();
        }
        Err(error) => failed(context, site, error.to_string()),
    }
}

fn failed(context: &Context, site: SiteNo, why: String) {
    context.inbox.push([Entry::Input(Input::DialFailed { site, why, reached: false }, None)]);
}

async fn dialled(
    context: Arc<Context>,
    mailbox: Arc<Mailbox>,
    site: SiteNo,
    name: String,
    address: String,
) {
    let until = context.clock.now().mono.after(context.timeouts.connect);
    let late = async {
        Timer::after(context.timeouts.connect).await;
        Err(io::Error::new(ErrorKind::TimedOut, "no answer in time"))
    };
    let stopping = async {
        stopped(&mailbox).await;
        Err(io::Error::new(ErrorKind::ConnectionAborted, "this site is stopping"))
    };
    let reached = reach(&context, &address, until).or(late).or(stopping).await;
    match reached.and_then(Socket::tcp) {
        Ok(socket) => {
            let begin = context.begin(&mailbox, &context.peer_session);
            let conn = Conn::dialled(begin, address, site, name, &context.tls);
            serve(context, mailbox, socket, conn).await;
        }
        Err(error) => {
            failed(&context, site, format!("{address}: {error}"));
            context.table.remove(mailbox.id());
        }
    }
}

/// Waits until the run is stopping.
async fn stopped(mailbox: &Mailbox) {
    loop {
        std::future::poll_fn(|cx| mailbox.poll(cx)).await;
        if mailbox.take().1 != Ending::No {
            return;
        }
    }
}

/// Looks the address up and connects to the first of its meanings that answers.
async fn reach(context: &Context, address: &str, until: Instant) -> io::Result<Async<TcpStream>> {
    let addresses = resolve(address).await?;
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for (i, candidate) in addresses.iter().enumerate() {
        let shares = u32::try_from(addresses.len() - i).unwrap_or(u32::MAX);
        let share = context.clock.until(until) / shares;
        let late = async {
            Timer::after(share).await;
            Err(io::Error::new(ErrorKind::TimedOut, "no answer in time"))
        };
        match Async::<TcpStream>::connect(*candidate).or(late).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The addresses of `host:port`. A name is looked up on a thread of the blocking pool, which ends with
/// the look-up.
async fn resolve(address: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(literal) = address.parse() {
        return Ok(vec![literal]);
    }
    let asked = address.to_string();
    smol::unblock(move || asked.to_socket_addrs().map(Vec::from_iter)).await
}
