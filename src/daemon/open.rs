//! What a site needs before it can run, opened in order.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_core::driver::{LocalListener, MakeSession, Parts};
use consign_core::http::Limits;
use consign_core::ledger::read::Recovery;
use consign_core::ledger::rows::{MetaName, State};
use consign_core::limits::SESSION_INFLIGHT;
use consign_core::node::{Node, RecoverError};
use consign_core::session::SessionConfig;
use consign_core::session::peer::PeerSession;
use consign_core::time::{EffectiveClock, Instant, UnixMillis};
use consign_storage_lmdb::{LmdbStore, OpenError, OpenOptions};

use super::reload::{Apply, Rereader, Shared};
use super::socket::{self, SocketFile};
use super::{Observe, Overrides, Ready, files, notes, pickup, record};
use crate::admin::reloads::Reloads;
use crate::admin::{self, AdminContext};
use crate::cli::VERSION;
use crate::config::Settings;
use crate::events::Events;
use crate::exit::{Exit, Failure};
use crate::inbox::{self, Inbox, InboxStates, Left};
use crate::meters::Meters;
use crate::page::links::Links;
use crate::service::Service;
use crate::service::sockets::{Place, Sockets};
use crate::tls::Credentials;
use crate::tls::strangers::Strangers;
use crate::trouble::Tell;
use crate::watch::WatchStates;

/// How long a peer may take to say HELLO.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence after which a peer is asked for a sign of life.
const PING_AFTER: Duration = Duration::from_secs(20);
/// Silence after which it counts as gone.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// Everything opened.
pub(super) struct Opened {
    pub(super) parts: Parts,
    /// Path of the admin socket.
    pub(super) admin: PathBuf,
    /// Its name, where it was made here.
    pub(super) socket: Option<SocketFile>,
    pub(super) ready: Ready,
    /// How watched directories are doing, once they are watched.
    pub(super) watch: WatchStates,
    /// Reads the configuration again.
    pub(super) rereader: Arc<Rereader>,
}

/// Opens everything; on failure, what was opened is closed again.
pub(super) fn open(settings: &Settings, overrides: Overrides) -> Result<Opened, Failure> {
    let name = settings.node.name.clone();
    let loaded = Credentials::read(&settings.tls)?.setup(&settings.node)?;
    if let Some(warning) = &loaded.warning {
        tracing::warn!(node = name, code = "CN0309", "{warning}");
    }
    let service = overrides.service.clone();
    service.starting("opening the ledger");
    let mut options = OpenOptions::new(&settings.data_dir);
    options.ballast_bytes = settings.ballast;
    options.force_fs = overrides.force_fs;
    let (store, recovery) = LmdbStore::open(&options).map_err(|e| not_opened(&e))?;

    service.starting("reading the ledger");
    let (time_high, queued) = (time_high(&recovery), queued(&recovery));
    let recorded = overrides.record.is_some().then(|| recovery.clone());
    let now =
        EffectiveClock::start(Instant::ZERO, system(), time_high).now(Instant::ZERO, system());
    let node =
        Node::recover(settings.node.clone(), recovery, now).map_err(|e| not_recovered(&e))?;

    service.starting("binding its addresses");
    let sockets = &overrides.sockets;
    let (admin, at, socket) = admin_socket(settings, sockets)?;
    let (peers, listen) = listeners(&settings.listen, Place::Peers, sockets)?;
    let (web, web_at) = listeners(settings.web.as_slice(), Place::Web, sockets)?;
    let meters = Meters::default();
    let pickup =
        pickup::open(settings, loaded.pickup.clone(), &loaded.own.hosts, sockets, &meters)?;
    let pickup_at = pickup.as_ref().and_then(|p| p.at);
    let (pickup, pickup_session) = pickup.map(|p| (p.parts, p.apply)).unzip();
    let peer_config = Arc::new(RwLock::new(peer_config(settings)));
    let reloads = Reloads::default();
    let events = Events::default();
    let tell = teller(&name, &meters, &events, overrides.service, overrides.observe);
    let watch = WatchStates::new(&settings.watch, tell.clone());
    let exporting = InboxStates::new(&settings.inbox, tell.clone());
    let web_at = web_at.first().copied();
    let admin_session = admin_session(
        settings,
        (&watch, &exporting),
        &events,
        &reloads,
        &meters,
        web_at,
        loaded.live.strangers(),
    );
    // Before anything is written aside, so that it is found again whatever becomes of its rule.
    let left = Left::begin(&settings.data_dir, &settings.inbox);
    let exporter = Inbox::new(&settings.inbox, Box::new(store.content()), exporting);
    let exporter = Arc::new(exporter.clearing(left));
    let mut locals = vec![(LocalListener::Unix(admin), admin_session.clone())];
    locals.extend(web.into_iter().map(|l| (LocalListener::Tcp(l), admin_session.clone())));

    let ready = Ready {
        name: name.clone(),
        took: Duration::ZERO,
        runtime: settings.runtime,
        peers: settings.node.peers.len(),
        queued,
        listen,
        web: web_at,
        pickup: pickup_at,
    };
    let tap = match (&overrides.record, recorded) {
        (Some(path), Some(recovery)) => Some(record::begin(path, settings, &recovery, now)?),
        (Some(_) | None, _) => None,
    };
    let for_reloads = peer_config.clone();
    let apply: Apply = Box::new(move |settings| {
        *for_reloads.write().unwrap_or_else(PoisonError::into_inner) = self::peer_config(settings);
        if let Some(session) = &pickup_session {
            session(settings);
        }
    });
    let layers = overrides.layers;
    let rereader = Rereader::new(settings, layers, &loaded, reloads, apply, service.clone());
    let rereader = Arc::new(rereader);
    let drain = settings.node.drain_timeout.as_millis();
    let parts = Parts {
        node,
        exporter,
        reloader: rereader.clone(),
        store: Arc::new(store),
        tls: loaded.setup,
        peers,
        peer_session: meters.counting(peer_session(peer_config)),
        locals,
        pickup,
        time_high,
        tap,
        observe: tell,
        max_connections: files::allow(settings.connections),
        drain_ms: u64::try_from(drain).unwrap_or(u64::MAX),
    };
    Ok(Opened { parts, admin: at, socket, ready, watch, rereader })
}

/// Who hears what the node, and what works for it, has to tell.
fn teller(
    name: &str,
    meters: &Meters,
    events: &Events,
    service: Service,
    observe: Option<Observe>,
) -> Tell {
    let (name, meters, events) = (name.to_owned(), meters.clone(), events.clone());
    Arc::new(move |note| {
        notes::tell(&name, &note);
        meters.heard(&note);
        service.note(&note);
        if let Some(observe) = &observe {
            observe(&note);
        }
        events.record(note);
    })
}

/// What sessions with peers are made by.
fn peer_config(settings: &Settings) -> SessionConfig {
    SessionConfig {
        name: settings.node.name.clone(),
        ack_timeout: settings.node.ack_timeout,
        max_segment: settings.node.max_segment,
        max_offers: u32::try_from(SESSION_INFLIGHT).unwrap_or(u32::MAX),
        hello_timeout: HELLO_TIMEOUT,
        ping_after: PING_AFTER,
        dead_after: DEAD_AFTER,
        plant: None,
    }
}

fn peer_session(config: Shared<SessionConfig>) -> MakeSession {
    Arc::new(move |info| {
        let config = config.read().unwrap_or_else(PoisonError::into_inner).clone();
        Box::new(PeerSession::new(info, config))
    })
}

fn admin_session(
    settings: &Settings,
    (watch, exporting): (&WatchStates, &InboxStates),
    events: &Events,
    reloads: &Reloads,
    meters: &Meters,
    web: Option<SocketAddr>,
    strangers: Strangers,
) -> MakeSession {
    admin::make(AdminContext {
        version: VERSION.to_owned(),
        runtime: settings.runtime.word().to_owned(),
        uid: rustix::process::geteuid().as_raw(),
        inline_max: settings.node.inline_max,
        reloads: reloads.clone(),
        limits: Limits {
            header_timeout: settings.header_timeout,
            body_rate: Some(settings.min_body_rate),
            ..Limits::default()
        },
        inbox: inbox::described(&settings.inbox),
        watch: watch.clone(),
        exporting: exporting.clone(),
        events: events.clone(),
        meters: meters.clone(),
        // Any address of this machine may be bound, not only the usual one.
        web_names: web.map(|at| host_of(at.ip())).into_iter().collect(),
        web,
        links: Links::default(),
        strangers,
    })
}

/// An address as it stands in a Host field.
fn host_of(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The admin socket, its path, and its name where it was made here: the service manager keeps its own.
fn admin_socket(
    settings: &Settings,
    sockets: &Sockets,
) -> Result<(UnixListener, PathBuf, Option<SocketFile>), Failure> {
    let Some((listener, at)) = sockets.admin() else {
        let (listener, file) = socket::listen(&settings.admin)?;
        return Ok((listener, settings.admin.clone(), Some(file)));
    };
    let (node, shown) = (settings.node.name.as_str(), at.display());
    tracing::info!(node, "admin: listening on {shown}, opened by the service manager");
    if at != settings.admin {
        let key = settings.admin.display();
        let text = "commands look for the admin socket at listen.admin";
        tracing::warn!(node, code = "CN0573", "{text}, {key}; it is {shown}");
    }
    Ok((listener, at, None))
}

/// What the service manager has opened for a place; otherwise what the configuration names.
pub(super) fn listeners(
    addresses: &[SocketAddr],
    place: Place,
    sockets: &Sockets,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), Failure> {
    let given = sockets.tcp(place);
    let word = place.word();
    if given.is_empty() {
        return bind(addresses, &format!("listen.{word}"));
    }
    let bound: std::io::Result<Vec<SocketAddr>> =
        given.iter().map(TcpListener::local_addr).collect();
    let bound = bound.map_err(|e| {
        let message = format!("the address of a socket for {word} cannot be had: {e}");
        Failure::new(Exit::Failed, "CN0511", message)
    })?;
    for address in &bound {
        tracing::info!("{word}: listening on {address}, opened by the service manager");
    }
    Ok((given, bound))
}

fn bind(
    addresses: &[SocketAddr],
    key: &str,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), Failure> {
    let mut listeners = Vec::new();
    let mut bound = Vec::new();
    for address in addresses {
        let refused = |e: std::io::Error| {
            let message = format!("cannot listen on {address}: {e}");
            let failure = Failure::new(Exit::Failed, "CN0511", message);
            match e.kind() {
                ErrorKind::AddrInUse => {
                    let known = match key {
                        "listen.peers" => " and in the peers' relay.known_peers",
                        _ => "",
                    };
                    let help = "another process listens there; end it, or set another address";
                    failure.help(format!("{help} under {key}{known}"))
                }
                _ => failure,
            }
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        bound.push(listener.local_addr().map_err(refused)?);
        listeners.push(listener);
    }
    Ok((listeners, bound))
}

fn system() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn time_high(recovery: &Recovery) -> UnixMillis {
    UnixMillis(recovery.meta_value(MetaName::TimeHigh))
}

/// Deliveries that are neither done nor dead.
fn queued(recovery: &Recovery) -> u64 {
    let waits = |state: u8| {
        [State::Scheduled, State::Inflight, State::Failed].iter().any(|s| *s as u8 == state)
    };
    let counts = recovery.counters.iter().filter(|(_, state, _)| waits(*state));
    counts.fold(0, |sum, (_, _, row)| sum.saturating_add(row.count))
}

fn not_recovered(e: &RecoverError) -> Failure {
    Failure::new(Exit::StoreFailed, "CN0522", format!("the ledger cannot be gone on with: {e}"))
}

/// A refusal of the data directory, with its exit code.
pub(crate) fn not_opened(e: &OpenError) -> Failure {
    let (exit, code) = match e {
        OpenError::Locked { .. } => (Exit::Failed, "CN0515"),
        OpenError::FileSystem { .. } => (Exit::Config, "CN0516"),
        OpenError::NoSite { .. } => (Exit::Config, "CN0520"),
        OpenError::Io { source, .. } => match source.kind() {
            std::io::ErrorKind::PermissionDenied => (Exit::NotPermitted, "CN0517"),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                (Exit::TryLater, "CN0518")
            }
            _ => (Exit::StoreFailed, "CN0519"),
        },
        _ => (Exit::StoreFailed, "CN0520"),
    };
    let failure = Failure::new(exit, code, e.to_string());
    match e {
        OpenError::Locked { .. } => failure.help("`consign status` asks the process that runs"),
        OpenError::FileSystem { .. } => failure.help("`serve --force-fs` takes it all the same"),
        OpenError::NoSite { .. } => failure.help(
            "is node.data_dir right? `consign serve` makes a ledger there at its first start",
        ),
        _ => failure,
    }
}
