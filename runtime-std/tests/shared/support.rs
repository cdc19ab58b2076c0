//! A node on real sockets for tests, and the other side of them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use consign_core::config::{Config, PeerConfig};
use consign_core::driver::{LocalListener, MakeSession, NoExporter, NoReloader, Parts, Running};
use consign_core::id::{ConnId, ReadNo};
use consign_core::ledger::read::{ReadRequest, Recovery};
use consign_core::link::Timeouts;
use consign_core::mem::MemStore;
use consign_core::node::{Node, Note};
use consign_core::session::ConnInfo;
use consign_core::store::{Batch, Errand, Sink, Store, StoreRequest};
use consign_core::time::{Instant, Now, UnixMillis};
use rustls::{ClientConnection, StreamOwned};

use super::pki::{Ca, Site};
use super::sessions::Echo;

/// The sites there are.
pub const SITES: [&str; 4] = ["alpha", "beta", "delta", "gamma"];

/// How long a test waits for something that is sure to come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The store in memory behind the interface of the runtimes.
#[derive(Default)]
pub struct TestStore {
    store: Mutex<MemStore>,
    sink: Mutex<Option<Arc<dyn Sink>>>,
    pub ended: Mutex<Vec<ConnId>>,
    pub stopped: Mutex<bool>,
    /// Commits are not answered any more.
    pub mute: AtomicBool,
}

impl TestStore {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.lock().unwrap().clone().unwrap()
    }
}

impl TestStore {
    /// The store itself.
    pub fn mem(&self) -> std::sync::MutexGuard<'_, MemStore> {
        self.store.lock().unwrap()
    }
}

impl Store for TestStore {
    fn start(&self, sink: Arc<dyn Sink>) {
        *self.sink.lock().unwrap() = Some(sink);
    }
    fn commit(&self, batch: Batch) {
        let answer = self.store.lock().unwrap().commit(&batch);
        if !self.mute.load(Ordering::Relaxed) {
            self.sink().node(answer);
        }
    }
    fn read(&self, number: ReadNo, request: ReadRequest) {
        let answer = self.store.lock().unwrap().read(&request);
        self.sink().node(consign_core::node::Input::Read(number, answer));
    }
    fn request(&self, conn: ConnId, request: StoreRequest) {
        let answer = self.store.lock().unwrap().request(conn, request);
        if let Some(event) = answer {
            self.sink().conn(conn, event);
        }
    }
    fn errand(&self, errand: Errand) {
        let answer = self.store.lock().unwrap().errand(errand);
        if let Some(input) = answer {
            self.sink().node(input);
        }
    }
    fn conn_ended(&self, conn: ConnId) {
        self.store.lock().unwrap().conn_ended(conn);
        self.ended.lock().unwrap().push(conn);
    }
    fn stop(&self) {
        *self.stopped.lock().unwrap() = true;
        *self.sink.lock().unwrap() = None;
    }
}

/// Notes as they come, to wait for.
#[derive(Default)]
pub struct Notes {
    seen: Mutex<Vec<Note>>,
    more: Condvar,
}

impl Notes {
    fn push(&self, note: Note) {
        self.seen.lock().unwrap().push(note);
        self.more.notify_all();
    }

    /// Looks at all there have been.
    pub fn all(&self, look: impl FnMut(&Note)) {
        self.seen.lock().unwrap().iter().for_each(look);
    }

    /// Waits until `count` of the notes are `wanted`.
    pub fn wait_for(&self, count: usize, wanted: impl Fn(&Note) -> bool) {
        let mut seen = self.seen.lock().unwrap();
        // Each note is looked at once.
        let (mut looked, mut found) = (0, 0);
        loop {
            found += seen[looked..].iter().filter(|note| wanted(note)).count();
            looked = seen.len();
            if found >= count {
                assert_eq!(found, count);
                return;
            }
            let (guard, timeout) = self.more.wait_timeout(seen, PATIENCE).unwrap();
            seen = guard;
            let last = seen.len().saturating_sub(5);
            assert!(!timeout.timed_out(), "{found} of {count}; last: {:#?}", &seen[last..]);
        }
    }

    /// Waits for a note that `wanted` finds something in.
    pub fn wait<T>(&self, wanted: impl Fn(&Note) -> Option<T>) -> T {
        let mut seen = self.seen.lock().unwrap();
        loop {
            if let Some(found) = seen.iter().find_map(&wanted) {
                return found;
            }
            let (guard, timeout) = self.more.wait_timeout(seen, PATIENCE).unwrap();
            seen = guard;
            assert!(!timeout.timed_out(), "not among {seen:?}");
        }
    }

    /// Waits for somebody to be turned away, and why.
    pub fn unwelcome(&self) -> String {
        self.wait(|note| match note {
            Note::Unwelcome { why, .. } => Some(why.clone()),
            _ => None,
        })
    }
}

/// How a site under test differs from the usual.
pub struct Setting {
    pub ca: Arc<Ca>,
    pub store: Arc<TestStore>,
    /// `beta`, unless two sites are to meet.
    pub name: &'static str,
    pub timeouts: Timeouts,
    pub session: MakeSession,
    pub local_session: MakeSession,
    /// Where the first other site is dialled.
    pub dials: String,
    pub max_connections: usize,
    pub drain_ms: u64,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            ca: Arc::new(Ca::new()),
            store: Arc::default(),
            name: "beta",
            timeouts: Timeouts::default(),
            session: echo(),
            local_session: echo(),
            dials: String::new(),
            max_connections: 1_000,
            drain_ms: 5_000,
        }
    }
}

pub fn echo() -> MakeSession {
    Arc::new(|_: &ConnInfo| Echo::new())
}

/// A site, which knows the others of [`SITES`], running.
pub struct Beta {
    pub ca: Arc<Ca>,
    pub running: Arc<dyn Running>,
    pub store: Arc<TestStore>,
    pub notes: Arc<Notes>,
    pub peers: SocketAddr,
    pub local: SocketAddr,
    pub unix: std::path::PathBuf,
    dir: std::path::PathBuf,
}

impl Beta {
    pub fn start(setting: Setting) -> Beta {
        let (ca, store) = (setting.ca, setting.store);
        let notes = Arc::new(Notes::default());
        let listener = listen();
        let local = listener.local_addr().unwrap();
        let dir = temp_dir();
        let unix = dir.join("admin.sock");
        let observer = notes.clone();
        let unix_listener = LocalListener::Unix(UnixListener::bind(&unix).unwrap());
        let parts = Parts {
            node: node(setting.name, &setting.dials, setting.drain_ms),
            tls: ca.setup(&ca.site(setting.name)),
            peer_session: setting.session,
            pickup: None,
            locals: vec![
                (LocalListener::Tcp(listener), setting.local_session.clone()),
                (unix_listener, setting.local_session),
            ],
            max_connections: setting.max_connections,
            drain_ms: setting.drain_ms,
            ..parts(&ca, store.clone(), Arc::new(move |note| observer.push(note)))
        };
        let peers = parts.peers[0].local_addr().unwrap();
        let running = crate::runtime::start_with(parts, setting.timeouts).unwrap();
        Beta { ca, running, store, notes, peers, local, unix, dir }
    }

    /// A client of that name that trusts the same authority.
    pub fn client(&self, name: &str) -> StreamOwned<ClientConnection, TcpStream> {
        client(self.peers, &self.ca, Some(&self.ca.site(name)), &[b"consign/1"])
    }

    pub fn plain(&self) -> TcpStream {
        connect(self.local)
    }

    /// Waits until something becomes true that only the passing of time brings.
    pub fn settle(&self, mut done: impl FnMut() -> bool) {
        let patience = std::time::Instant::now() + PATIENCE;
        while !done() {
            assert!(std::time::Instant::now() < patience, "not settled in {PATIENCE:?}");
            std::thread::yield_now();
        }
    }

    pub fn raw(&self) -> TcpStream {
        connect(self.peers)
    }
}

impl Drop for Beta {
    fn drop(&mut self) {
        self.running.stop();
        self.running.wait();
        assert!(*self.store.stopped.lock().unwrap());
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// A bare node `beta` with a peer listener.
pub fn parts(ca: &Ca, store: Arc<TestStore>, observe: Arc<dyn Fn(Note) + Send + Sync>) -> Parts {
    Parts {
        node: node("beta", "", 5_000),
        store,
        exporter: Arc::new(NoExporter),
        reloader: Arc::new(NoReloader::default()),
        tls: ca.setup(&ca.site("beta")),
        peers: vec![listen()],
        peer_session: echo(),
        pickup: None,
        locals: Vec::new(),
        time_high: UnixMillis(0),
        observe,
        tap: None,
        max_connections: 100,
        drain_ms: 5_000,
    }
}

fn node(name: &str, dials: &str, drain_ms: u64) -> Node {
    let others = SITES.iter().filter(|other| **other != name);
    let peers = others.enumerate().map(|(i, other)| {
        let address = if i == 0 { dials.to_string() } else { String::new() };
        PeerConfig::new(other.to_string(), address)
    });
    let config = Config {
        name: name.to_string(),
        peers: peers.collect(),
        backoff_initial: Duration::from_millis(10),
        drain_timeout: Duration::from_millis(drain_ms),
        ..Config::default()
    };
    let wall = UnixMillis(1_700_000_000_000);
    Node::recover(config, Recovery::default(), Now { mono: Instant::ZERO, wall }).unwrap()
}

pub fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn temp_dir() -> std::path::PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("consign-runtime-{}-{count}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir(&dir).unwrap();
    dir
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A client by rustls's own buffered connections.
pub fn client(
    address: SocketAddr,
    ca: &Ca,
    site: Option<&Site>,
    alpn: &[&[u8]],
) -> StreamOwned<ClientConnection, TcpStream> {
    let config = Arc::new(ca.client(site, alpn));
    let conn = ClientConnection::new(config, "beta".try_into().unwrap()).unwrap();
    StreamOwned::new(conn, connect(address))
}

/// Sends `bytes`, reads as many, and compares.
pub fn round_trip(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    stream.flush().unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "other bytes came back");
}

/// Reads to the end, however it comes: what was read, and whether the end was clean.
pub fn read_to_end(stream: &mut impl Read) -> (Vec<u8>, io::Result<()>) {
    let mut bytes = Vec::new();
    let result = stream.read_to_end(&mut bytes).map(drop);
    if let Err(error) = &result {
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "nothing came within {PATIENCE:?}");
    }
    (bytes, result)
}
