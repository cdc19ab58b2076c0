//! Sockets that the service manager has opened for this site (sd_listen_fds(3)). They stand in the place of the
//! configuration's addresses, each kind for itself.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::FdFlags;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use crate::exit::{Exit, Failure};

/// The first descriptor that is handed over.
const FIRST: u32 = 3;
/// Most of them.
const MOST: u32 = 64;

/// What a socket is for: its `FileDescriptorName=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `listen.peers`
    Peers,
    /// `listen.pickup`
    Pickup,
    /// `listen.web`
    Web,
    /// `listen.admin`
    Admin,
}

impl Place {
    const ALL: [Place; 4] = [Place::Peers, Place::Pickup, Place::Web, Place::Admin];

    /// The name of a socket of this kind.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Place::Peers => "peers",
            Place::Pickup => "pickup",
            Place::Web => "web",
            Place::Admin => "admin",
        }
    }
}

/// Sockets that wait to be used. Clones share them; each is given out once.
#[derive(Clone, Debug, Default)]
pub struct Sockets(Arc<Mutex<Given>>);

#[derive(Debug, Default)]
struct Given {
    tcp: BTreeMap<Place, Vec<TcpListener>>,
    admin: Option<(UnixListener, PathBuf)>,
}

impl Sockets {
    /// Takes what the environment says was handed over. To be called once, before anything else is opened.
    ///
    /// # Errors
    /// When one of them cannot be what it is called; the message names it.
    pub fn from_env() -> Result<Sockets, Failure> {
        let var = |name: &str| std::env::var(name).ok();
        let announced = announced(&var, std::process::id()).map_err(refused)?;
        if announced.is_empty() {
            return Ok(Sockets::default());
        }
        for (fd, place) in &announced {
            is_open(*fd).map_err(|why| refused(format!("{}: {why}", named(*fd, *place))))?;
        }
        let fds = sd_listen_fds::get().map_err(|e| refused(e.to_string()))?;
        let mut given = Given::default();
        for ((fd, place), (_, owned)) in announced.into_iter().zip(fds) {
            let taken = given.take(place, owned.into_std());
            taken.map_err(|why| refused(format!("{}: {why}", named(fd, place))))?;
        }
        Ok(Sockets(Arc::new(Mutex::new(given))))
    }

    /// Those of a kind, on TCP.
    pub(crate) fn tcp(&self, place: Place) -> Vec<TcpListener> {
        self.lock().tcp.remove(&place).unwrap_or_default()
    }

    /// The admin socket, and its path.
    pub(crate) fn admin(&self) -> Option<(UnixListener, PathBuf)> {
        self.lock().admin.take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Given> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(fd: u32, place: Place) -> String {
    format!("descriptor {fd} ({})", place.word())
}

fn refused(why: String) -> Failure {
    let message = format!("a socket of the service manager cannot be used: {why}");
    let help = "FileDescriptorName= of a .socket unit is peers, pickup, web or admin; docs/SERVICE.md shows units";
    Failure::new(Exit::Config, "CN0570", message).help(help)
}

/// Which descriptors are handed over to the process `own`, and what each is for.
fn announced(var: &dyn Fn(&str) -> Option<String>, own: u32) -> Result<Vec<(u32, Place)>, String> {
    let Some(pid) = var("LISTEN_PID") else { return Ok(Vec::new()) };
    let Ok(pid) = pid.parse::<u32>() else {
        return Err(format!("LISTEN_PID is {pid:?}, which is no process number"));
    };
    // Left over from whoever started us: they are somebody else's.
    let (true, Some(count)) = (pid == own, var("LISTEN_FDS")) else { return Ok(Vec::new()) };
    let count = match count.parse::<u32>() {
        Ok(count) if count <= MOST => count,
        _ => return Err(format!("LISTEN_FDS is {count:?}, which is no number from 0 to {MOST}")),
    };
    if count == 0 {
        return Ok(Vec::new());
    }
    let names = var("LISTEN_FDNAMES").ok_or("LISTEN_FDNAMES is missing: sockets need names")?;
    let names: Vec<&str> = names.split(':').collect();
    if names.len() != count as usize {
        let have = names.len();
        return Err(format!("LISTEN_FDS says {count}, and LISTEN_FDNAMES has {have} names"));
    }
    let place = |(fd, name): (u32, &str)| match Place::ALL.into_iter().find(|p| p.word() == name) {
        Some(place) => Ok((fd, place)),
        None => Err(format!("descriptor {fd} is called {name:?}, which is no listener of a site")),
    };
    let announced: Vec<(u32, Place)> = (FIRST..).zip(names).map(place).collect::<Result<_, _>>()?;
    let admins: Vec<u32> =
        announced.iter().filter(|(_, place)| *place == Place::Admin).map(|(fd, _)| *fd).collect();
    match admins.as_slice() {
        [_, second, ..] => Err(format!("descriptor {second} is a second one called \"admin\"")),
        _ => Ok(announced),
    }
}

/// Whether a socket is open there: owning what is not open would be owning what is opened next.
fn is_open(fd: u32) -> Result<(), String> {
    match std::fs::read_link(format!("/proc/self/fd/{fd}")) {
        Ok(what) if what.as_os_str().as_bytes().starts_with(b"socket:") => Ok(()),
        Ok(what) => Err(format!("it is no socket but {}", what.display())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err("it is not open".into()),
        Err(e) => Err(format!("it cannot be looked at: {e}")),
    }
}

impl Given {
    fn take(&mut self, place: Place, socket: OwnedFd) -> Result<(), String> {
        let io = |e: &dyn std::fmt::Display| e.to_string();
        // Commands of inbox rules must not inherit it.
        rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|e| io(&e))?;
        let family = listens(&socket, place)?;
        if place == Place::Admin {
            let listener = UnixListener::from(socket);
            let address = listener.local_addr().map_err(|e| io(&e))?;
            let path = address.as_pathname().ok_or("it has no path")?.to_owned();
            let mode = path.metadata().map_err(|e| io(&e))?.permissions().mode() & 0o7777;
            if mode & 0o007 != 0 {
                return Err(format!("everybody may use it (mode {mode:04o}): set SocketMode=0660"));
            }
            self.admin = Some((listener, path));
            return Ok(());
        }
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().map_err(|e| format!("{family}: {e}"))?;
        if place == Place::Web && !address.ip().is_loopback() {
            return Err(format!("it listens on {address}; status is for this machine only"));
        }
        self.tcp.entry(place).or_default().push(listener);
        Ok(())
    }
}

/// Whether it is a stream socket of the right family that listens; which.
fn listens(socket: impl AsFd, place: Place) -> Result<&'static str, String> {
    let io = |e: rustix::io::Errno| e.to_string();
    let family = match socket_domain(&socket).map_err(io)? {
        AddressFamily::INET => "IPv4",
        AddressFamily::INET6 => "IPv6",
        AddressFamily::UNIX => "Unix",
        _ => "neither TCP nor Unix",
    };
    let wanted: &[&str] = if place == Place::Admin { &["Unix"] } else { &["IPv4", "IPv6"] };
    if !wanted.contains(&family) {
        let kind = if place == Place::Admin { "Unix" } else { "TCP" };
        return Err(format!("it is a socket of another family ({family}) than {kind}"));
    }
    if socket_type(&socket).map_err(io)? != SocketType::STREAM {
        return Err("it is no stream socket (ListenStream=)".into());
    }
    if !socket_acceptconn(&socket).map_err(io)? {
        return Err("it does not listen (Accept=no, ListenStream=)".into());
    }
    Ok(family)
}

#[cfg(test)]
mod tests;
