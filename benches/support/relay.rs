//! A relay with many nodes: the real binary over TLS on loopback, a client that uploads, and nodes that
//! fetch, verify and ack, each a task of this process.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use consign_core::http::Payload;
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::pickup::message::{FromNode, FromRelay, PendingNotify, Register, ShardAck};
use consign_core::pickup::sign::{public_key, sha256};
use consign_core::pickup::token::{TOKEN, Token};
use serde_json::{Value, json};
use smol::Executor;
use smol::lock::Semaphore;

use super::Res;
use super::line::{Door, Http, Identity, Sent, Socket};
use super::load::content;
use super::real::{Real, free_address};

/// Threads of this process that carry nodes and uploads.
const THREADS: usize = 2;
/// Connections that are being made at a time: listeners keep 128 waiting.
const DIALS: usize = 64;
/// Source addresses: no address has more than a quarter of a relay's room for outsiders.
const ADDRESSES: usize = 16;
/// Acts of the operator at a time.
const ACTS: usize = 32;
/// Nothing has changed for so long: something is wrong.
const STUCK: Duration = Duration::from_secs(60);
/// The bearer token of the one client.
const BEARER: [u8; 32] = [0x5a; 32];

/// A relay that is served.
pub struct Relay {
    pub real: Real,
    pub at: SocketAddr,
    pub door: Door,
}

impl Relay {
    /// Makes and serves one with these settings besides.
    pub fn serve(parent: &Path, runtime: &str, settings: &[(&str, &str)]) -> Res<Relay> {
        let (listen, at) = (free_address()?, free_address()?);
        let mut real = Real::with_host(parent, &format!("relay-{runtime}"), listen, "127.0.0.1")?;
        let place = at.to_string();
        let mut all = vec![
            ("CONSIGN_NODE_RUNTIME", runtime),
            ("CONSIGN_LISTEN_PICKUP", place.as_str()),
            ("CONSIGN_LISTEN_PICKUP_TLS", "on"),
        ];
        all.extend_from_slice(settings);
        real.serve(listen, &all)?;
        let door = Door::new(at, &real.dir.join("ca.pem")).map_err(|e| e.to_string())?;
        let relay = Relay { real, at, door };
        let token = Token::new(BEARER).hash().to_string();
        relay.act(&json!({"action": "enrol_client", "subject": "app", "token_sha256": token}))?;
        Ok(relay)
    }

    /// The bearer token of its client.
    pub fn token() -> String {
        Token::new(BEARER).text()
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.at)
    }

    fn act(&self, act: &Value) -> Res<()> {
        let (status, body) =
            self.real.exchange("POST", "/v1/pickup/acts", act.to_string().as_bytes())?;
        match status {
            200 => Ok(()),
            _ => Err(format!("{act}: {status} {}", String::from_utf8_lossy(&body)).into()),
        }
    }

    /// Enrols a node by its public key.
    pub fn enrol_key(&self, id: &str, key: &str) -> Res<()> {
        self.act(&json!({"action": "enrol_node", "subject": id, "key": key}))
    }

    /// Enrols so many nodes, many at a time.
    pub fn enrol(&self, count: usize) -> Res<Vec<Arc<Identity>>> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<(), String> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let node = Identity::numbered(number);
                let key = STANDARD.encode(public_key(&node.secret));
                self.enrol_key(&node.id, &key).map_err(|e| e.to_string())?;
            }
        };
        std::thread::scope(|scope| -> Res<()> {
            let threads: Vec<_> = (0..ACTS).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                thread.join().map_err(|_| "an operator panicked")??;
            }
            Ok(())
        })?;
        Ok((0..count).map(|number| Arc::new(Identity::numbered(number))).collect())
    }

    /// How many shards are in a state, and their bytes.
    pub fn shards(&self, state: ShardState) -> Res<(u64, u64)> {
        let status = self.real.status()?;
        let count = &status["pickup"]["shards"][state.word()];
        let figure = |name: &str| count[name].as_u64().ok_or("no count of shards in the status");
        Ok((figure("count")?, figure("bytes")?))
    }

    /// The site's commits so far.
    pub fn commits(&self) -> Res<u64> {
        Ok(self.real.status()?["ledger"]["commits"].as_u64().ok_or("no count of commits")?)
    }
}

/// What is on its way, counted.
#[derive(Default)]
pub struct Counts {
    /// Nodes that are registered.
    pub registered: AtomicU64,
    /// Uploads that were answered by 201.
    pub uploaded: AtomicU64,
    /// Acks that were answered by NODE_STORED.
    pub stored: AtomicU64,
    /// The first thing that went wrong.
    failed: Mutex<Option<String>>,
}

impl Counts {
    fn fail(&self, what: &str, why: &dyn std::fmt::Display) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| format!("{what}: {why}"));
    }

    /// Waits until that many are counted; fails with the first task that does, or when nothing moves.
    pub fn wait(&self, what: &str, count: &AtomicU64, target: u64) -> Res<()> {
        let (mut seen, mut since) = (0, Instant::now());
        loop {
            if let Some(why) = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(why.into());
            }
            let now = count.load(Ordering::Relaxed);
            if now >= target {
                return Ok(());
            }
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if since.elapsed() > STUCK {
                let text = format!("{what}: nothing moves, {seen} of {target}");
                return Err(text.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Tasks of this process. Dropped, they end.
pub struct Fleet {
    executor: Option<Arc<Executor<'static>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    stop: smol::channel::Sender<()>,
    pub counts: Arc<Counts>,
    dials: Arc<Semaphore>,
    door: Door,
}

/// What a node does with its connections for fetches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fetches {
    /// One for each, as `consign node run` after a pause.
    Fresh,
    /// Kept.
    Kept,
}

impl Fleet {
    pub fn new(relay: &Relay) -> Fleet {
        let executor = Arc::new(Executor::new());
        let (stop, stopped) = smol::channel::bounded::<()>(1);
        let threads = (0..THREADS).map(|_| {
            let (executor, stopped) = (Arc::clone(&executor), stopped.clone());
            std::thread::spawn(move || {
                // Closed is what ends it.
                let _ = smol::block_on(executor.run(stopped.recv()));
            })
        });
        Fleet {
            threads: threads.collect(),
            executor: Some(executor),
            stop,
            counts: Arc::default(),
            dials: Arc::new(Semaphore::new(DIALS)),
            door: relay.door.clone(),
        }
    }

    fn spawn(&self, what: String, task: impl Future<Output = Sent<()>> + Send + 'static) {
        let counts = Arc::clone(&self.counts);
        let Some(executor) = &self.executor else { return };
        let watched = async move {
            if let Err(why) = task.await {
                counts.fail(&what, &why);
            }
        };
        executor.spawn(watched).detach();
    }

    /// Lets these nodes connect, register, and take what they are notified of until the fleet is gone.
    pub fn connect(&self, nodes: &[Arc<Identity>], fetches: Fetches) {
        for (number, identity) in nodes.iter().enumerate() {
            let worker = Worker {
                identity: Arc::clone(identity),
                from: address(number),
                door: self.door.clone(),
                dials: Arc::clone(&self.dials),
                counts: Arc::clone(&self.counts),
                fetches,
                http: None,
            };
            self.spawn(identity.id.clone(), worker.run());
        }
    }

    /// Uploads shards of that size, the n-th for the n-th node and round again, over so many
    /// connections.
    pub fn upload(&self, file: &str, nodes: &[Arc<Identity>], plan: Uploads) {
        let next = Arc::new(AtomicUsize::new(0));
        let nodes: Arc<[Arc<Identity>]> = nodes.into();
        for lane in 0..plan.connections {
            let (next, nodes) = (Arc::clone(&next), Arc::clone(&nodes));
            let (door, counts) = (self.door.clone(), Arc::clone(&self.counts));
            let dials = Arc::clone(&self.dials);
            let file = file.to_owned();
            let task = async move {
                let mut http = {
                    let _dial = dials.acquire().await;
                    Http::open(&door, address(lane)).await?
                };
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.count {
                        return Ok(());
                    }
                    let node = nodes.get(number % nodes.len()).ok_or("no nodes")?;
                    upload(&mut http, &file, number, node, plan.size).await?;
                    counts.uploaded.fetch_add(1, Ordering::Relaxed);
                }
            };
            self.spawn(format!("upload {lane}"), task);
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // The last owner: tasks go with it, and their connections.
        self.executor = None;
    }
}

/// How shards are uploaded.
#[derive(Clone, Copy)]
pub struct Uploads {
    pub count: usize,
    pub size: usize,
    pub connections: usize,
}

/// A source address.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 2 + (number % ADDRESSES) as u8)
}

/// One small shard, in one request.
async fn upload(
    http: &mut Http,
    file: &str,
    number: usize,
    node: &Identity,
    size: usize,
) -> Sent<()> {
    let bearer = format!("Bearer {}", Relay::token());
    let index = number.to_string();
    let headers = [
        ("Authorization", bearer.as_str()),
        ("X-Nodus-File-Id", file),
        ("X-Nodus-Version", "1"),
        ("X-Nodus-Shard-Index", index.as_str()),
        ("X-Nodus-Node-Id", node.id.as_str()),
    ];
    let body = content(number as u64, size);
    match http.ask("POST", "/buffer/upload", &headers, Payload::Full(&body)).await? {
        (201, _) => Ok(()),
        (status, body) => {
            Err(format!("upload: {status} {}", String::from_utf8_lossy(&body)).into())
        }
    }
}

/// A node at work.
struct Worker {
    identity: Arc<Identity>,
    from: Ipv4Addr,
    door: Door,
    dials: Arc<Semaphore>,
    counts: Arc<Counts>,
    fetches: Fetches,
    http: Option<Http>,
}

impl Worker {
    async fn run(mut self) -> Sent<()> {
        let mut socket = {
            let _dial = self.dials.acquire().await;
            Socket::open(&self.door, self.from, &self.identity).await?
        };
        let node_id = self.identity.id.clone();
        socket.say(&FromNode::Register(Register { node_id })).await?;
        loop {
            match socket.hear().await? {
                FromRelay::Registered(_) => {
                    self.counts.registered.fetch_add(1, Ordering::Relaxed);
                }
                FromRelay::PendingNotify(notify) => {
                    self.fetch(&notify).await?;
                    let said = ShardAck {
                        file_id: notify.file_id,
                        version_number: notify.version_number,
                        shard_index: notify.shard_index,
                        redemption: notify.redemption,
                        status: AckStatus::Verified,
                        reason: None,
                    };
                    socket.say(&FromNode::ShardAck(said)).await?;
                }
                FromRelay::ShardState(said) if said.state == ShardState::NodeStored => {
                    self.counts.stored.fetch_add(1, Ordering::Relaxed);
                }
                FromRelay::ShardState(said) => {
                    return Err(format!("acked, and it is {:?}", said.state).into());
                }
                FromRelay::Error(said) => {
                    return Err(format!("{}: {}", said.code, said.message).into());
                }
            }
        }
    }

    /// Fetches a shard and compares both digests.
    async fn fetch(&mut self, notify: &PendingNotify) -> Sent<()> {
        let _dial = match self.http {
            Some(_) => None,
            None => Some(self.dials.acquire().await),
        };
        let mut http = match self.http.take() {
            Some(http) => http,
            None => Http::open(&self.door, self.from).await?,
        };
        let fields = self.identity.fields(&self.door.host, "/buffer/fetch")?;
        let token = notify.token.text();
        let mut headers = vec![(TOKEN, token.as_str())];
        headers.extend(fields.iter().map(|(name, value)| (*name, value.as_str())));
        let (status, body) = http.ask("GET", "/buffer/fetch", &headers, Payload::Empty).await?;
        if status != 200 {
            let text = String::from_utf8_lossy(&body);
            return Err(format!("fetch: {status} {text}").into());
        }
        let blake3 = *blake3::hash(&body).as_bytes();
        if sha256(&body) != notify.digest.sha256 || blake3 != notify.digest.blake3.0 {
            return Err("what was fetched is not what was notified of".into());
        }
        if self.fetches == Fetches::Kept {
            self.http = Some(http);
        }
        Ok(())
    }
}
