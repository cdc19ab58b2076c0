//! One site of a small world: a real pump and node, real peer sessions, a store in memory, and
//! everything that is between them, standing still until a choice moves it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Index, IndexMut};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use consign_core::config::{Config, PeerConfig};
use consign_core::id::{BlobNo, ConnId, Epoch, Handle, ReadNo, SiteNo, TransferNo};
use consign_core::ledger::Table;
use consign_core::ledger::read::ReadRequest;
use consign_core::ledger::rows::Body;
use consign_core::mem::MemStore;
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::pump::Pump;
use consign_core::segment::Destinations;
use consign_core::session::peer::PeerSession;
use consign_core::session::{
    Accepted, Content, Promise, SessionCommand, SessionConfig, SessionEvent, Submission,
};
use consign_core::store::{Batch, Errand, ReadResult, Snapshot, StoreRequest};
use consign_core::time::Instant;

use super::ops::{INLINE, NAMES, What, other};
use crate::sim::seen::SiteIx;

/// A file request that waits for the store. As [`StoreRequest`], without questions, and copyable.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Create { blob: BlobNo, offset: u64 },
    Write { blob: BlobNo, data: Bytes },
    Sync { blob: BlobNo },
    Finish { blob: BlobNo },
    Abandon { blob: BlobNo },
    Read { ticket: TransferNo, body: Body, offset: u64, len: usize },
}

impl Call {
    /// The request as the store takes it.
    pub fn request(self) -> StoreRequest {
        match self {
            Call::Create { blob, offset } => StoreRequest::Create { blob, offset },
            Call::Write { blob, data } => StoreRequest::Write { blob, data },
            Call::Sync { blob } => StoreRequest::Sync { blob },
            Call::Finish { blob } => StoreRequest::Finish { blob },
            Call::Abandon { blob } => StoreRequest::Abandon { blob },
            Call::Read { ticket, body, offset, len } => {
                StoreRequest::Read { ticket, body, offset, len }
            }
        }
    }

    /// The call of a request; parking is done at once and peer sessions ask no questions.
    pub fn of(request: StoreRequest) -> Call {
        match request {
            StoreRequest::Create { blob, offset } => Call::Create { blob, offset },
            StoreRequest::Write { blob, data } => Call::Write { blob, data },
            StoreRequest::Sync { blob } => Call::Sync { blob },
            StoreRequest::Finish { blob } => Call::Finish { blob },
            StoreRequest::Abandon { blob } => Call::Abandon { blob },
            StoreRequest::Read { ticket, body, offset, len } => {
                Call::Read { ticket, body, offset, len }
            }
            request @ (StoreRequest::Park { .. } | StoreRequest::Query { .. }) => {
                unreachable!("{request:?} is no file request of a peer session")
            }
        }
    }
}

/// This site's end of a connection.
#[derive(Clone)]
pub(super) struct End {
    pub session: Rc<PeerSession>,
    /// The other end; `None` once the connection is gone and this side has not learned of it.
    pub other: Option<ConnId>,
    /// Whether it went by a close of the other side, and not by a break.
    pub closed: bool,
    /// Bytes on their way to this end.
    pub air: Vec<u8>,
    /// What the node has said and the session has not heard.
    pub words: VecDeque<SessionCommand>,
    /// File requests that the store has not done.
    pub calls: VecDeque<Call>,
    /// The beginning of a frame that has arrived, for whoever looks on.
    pub heard: Vec<u8>,
    /// The epoch its HELLO bore.
    pub epoch: Option<Epoch>,
    /// Fingerprint of the session.
    pub print: u128,
}

/// A local client with one segment.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub what: What,
    pub calls: VecDeque<Call>,
    /// The file it writes.
    blob: Option<BlobNo>,
}

/// Number of a client's only request.
const TICKET: TransferNo = TransferNo(1);

impl Client {
    fn submission(&self, site: SiteIx, content: Content) -> SessionEvent {
        let what = self.what;
        let to = vec![NAMES[other(site)].to_string()];
        let submission = Submission {
            meta: what.meta(),
            to: Destinations::Named(to),
            id: what.id(),
            digest: what.digest(),
            size: what.content().len() as u64,
            content,
            watched: None,
        };
        SessionEvent::Submit { ticket: TICKET, submission: Box::new(submission) }
    }

    /// Room was granted: the content is written.
    fn write(&mut self, blob: BlobNo) {
        self.blob = Some(blob);
        let data = Bytes::from(self.what.content());
        self.calls = VecDeque::from([
            Call::Create { blob, offset: 0 },
            Call::Write { blob, data },
            Call::Finish { blob },
        ]);
    }
}

/// What a client has come to hear.
pub(super) enum Heard {
    /// It goes on.
    Nothing,
    /// Its segment is safe.
    Safe(Accepted),
    /// It was refused, with this code.
    No(&'static str),
}

/// A store that is copied when it is changed.
#[derive(Clone, Default)]
pub(super) struct Store(Rc<MemStore>);

impl std::ops::Deref for Store {
    type Target = MemStore;
    fn deref(&self) -> &MemStore {
        &self.0
    }
}

impl std::ops::DerefMut for Store {
    fn deref_mut(&mut self) -> &mut MemStore {
        Rc::make_mut(&mut self.0)
    }
}

/// Both sites. A copy shares them until one of them is changed; the fingerprint of a site is kept
/// until then too.
#[derive(Clone)]
pub(super) struct Sites([(Rc<Site>, Cell<Option<u128>>); 2]);

impl Sites {
    pub fn new(plant: Option<Plant>) -> Sites {
        Sites([0, 1].map(|site| (Rc::new(Site::new(site, plant)), Cell::new(None))))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Site> {
        self.0.iter().map(|(site, _)| &**site)
    }

    /// Their fingerprints.
    pub fn prints(&self) -> [u128; 2] {
        self.0.each_ref().map(|(site, kept)| {
            let print = kept.get().unwrap_or_else(|| site.print());
            kept.set(Some(print));
            print
        })
    }
}

impl Index<SiteIx> for Sites {
    type Output = Site;
    fn index(&self, i: SiteIx) -> &Site {
        &self.0[i].0
    }
}

impl IndexMut<SiteIx> for Sites {
    fn index_mut(&mut self, i: SiteIx) -> &mut Site {
        let (site, kept) = &mut self.0[i];
        kept.set(None);
        Rc::make_mut(site)
    }
}

/// One site.
#[derive(Clone)]
pub(super) struct Site {
    pub config: Rc<Config>,
    pub store: Store,
    /// `None` while the process is down.
    pub pump: Option<Rc<Pump>>,
    /// When the node wants to be called again.
    pub due: Option<Instant>,
    pub ends: BTreeMap<ConnId, End>,
    pub clients: BTreeMap<ConnId, Client>,
    pub inbox: Vec<Input>,
    /// A batch that is not durable yet.
    pub batch: Option<Batch>,
    /// The answer of a commit that the node has not got yet.
    pub told: Option<Input>,
    pub reads: BTreeMap<ReadNo, (ReadRequest, Option<ReadResult>)>,
    pub unlinks: VecDeque<BlobNo>,
    pub dials: VecDeque<SiteNo>,
    pub next_conn: u32,
    /// Segments that a client was refused, or whose client died with the process.
    pub unanswered: BTreeSet<What>,
    /// Fingerprints of pump and store.
    pub prints: (u128, u128),
}

/// What a site of a small world goes by.
fn config(site: SiteIx, plant: Option<Plant>) -> Config {
    let name = NAMES[other(site)].to_string();
    let peer = PeerConfig::new(name.clone(), format!("{name}:7400"));
    Config {
        name: NAMES[site].into(),
        peers: vec![peer],
        min_free: 0,
        inline_max: INLINE,
        partial_ttl: Duration::from_secs(300),
        plant,
        ..Config::default()
    }
}

/// What its sessions go by.
pub(super) fn session_config(config: &Config) -> SessionConfig {
    SessionConfig {
        name: config.name.clone(),
        ack_timeout: config.ack_timeout,
        max_segment: config.max_segment,
        max_offers: 64,
        hello_timeout: Duration::from_secs(10),
        ping_after: Duration::from_secs(20),
        dead_after: Duration::from_secs(60),
        plant: config.plant,
    }
}

impl Site {
    pub fn new(site: SiteIx, plant: Option<Plant>) -> Site {
        let mut site = Site {
            config: Rc::new(config(site, plant)),
            store: Store::default(),
            pump: None,
            due: None,
            ends: BTreeMap::new(),
            clients: BTreeMap::new(),
            inbox: Vec::new(),
            batch: None,
            told: None,
            reads: BTreeMap::new(),
            unlinks: VecDeque::new(),
            dials: VecDeque::new(),
            next_conn: 0,
            unanswered: BTreeSet::new(),
            prints: (0, 0),
        };
        site.print_store();
        site
    }

    pub fn conn(&mut self, slot: u32) -> ConnId {
        self.next_conn += 1;
        ConnId { slot, generation: self.next_conn }
    }

    /// A local client comes with a segment.
    pub fn client(&mut self, site: SiteIx, what: What) {
        let conn = self.conn(1);
        let client = Client { what, calls: VecDeque::new(), blob: None };
        self.inbox.push(Input::Opened { conn });
        let content = what.content();
        let event = if content.len() as u64 <= INLINE {
            let handle = Handle { conn, number: 1 };
            self.store.request(conn, StoreRequest::Park { handle, data: content.into() });
            self.print_store();
            client.submission(site, Content::Parked(handle))
        } else {
            SessionEvent::Reserve { ticket: TICKET, size: Some(content.len() as u64) }
        };
        self.inbox.push(Input::Session(conn, event));
        self.clients.insert(conn, client);
    }

    /// The node's word for a client.
    pub fn tell_client(&mut self, conn: ConnId, command: SessionCommand) -> Heard {
        let Some(client) = self.clients.get_mut(&conn) else { return Heard::Nothing };
        match command {
            SessionCommand::Promised(promised) => match promised.into_inner() {
                Promise::Accept { blob, .. } => {
                    client.write(blob);
                    Heard::Nothing
                }
                Promise::Accepted { accepted, .. } => Heard::Safe(accepted),
                Promise::Start { .. }
                | Promise::Send(_)
                | Promise::Ack { .. }
                | Promise::Receipt(_)
                | Promise::ReceiptOk { .. }
                | Promise::Want { .. }
                | Promise::Done { .. }
                | Promise::Pickup(_) => Heard::Nothing,
            },
            SessionCommand::Refuse { refusal, .. } => Heard::No(refusal.word()),
            SessionCommand::Close { why, .. } => Heard::No(why.word()),
            SessionCommand::Allowance(_)
            | SessionCommand::Pace(_)
            | SessionCommand::Ping
            | SessionCommand::Answer { .. }
            | SessionCommand::Pickup(_) => Heard::Nothing,
        }
    }

    /// A client's file is whole: the segment is handed in.
    pub fn client_finished(&mut self, site: SiteIx, conn: ConnId) {
        if let Some(client) = self.clients.get(&conn)
            && let Some(blob) = client.blob
        {
            let event = client.submission(site, Content::Blob(blob));
            self.inbox.push(Input::Session(conn, event));
        }
    }

    /// A client goes.
    pub fn client_gone(&mut self, conn: ConnId) {
        self.clients.remove(&conn);
        self.store.conn_ended(conn);
        self.print_store();
        self.inbox.push(Input::Closed { conn, why: String::new() });
    }

    /// Does what the node asks at once, if it is one of the errands that need no choice. Unless
    /// start-up is to come to its `end`, sweeping stops behind the folders that can hold a file,
    /// and what it leaves changes nothing.
    pub fn errand(&mut self, errand: Errand, end: bool) -> Option<Input> {
        /// Folders that files of a small world may lie in.
        const FOLDERS: u8 = 16;
        match errand {
            Errand::Unlink(blob) => {
                self.unlinks.push_back(blob);
                None
            }
            Errand::Sweep { folder, .. } if folder >= FOLDERS && !end => None,
            errand @ (Errand::Unpark(_)
            | Errand::SetAside(_)
            | Errand::Check(_)
            | Errand::Probe
            | Errand::Look
            | Errand::Scrub { .. }
            | Errand::Sweep { .. }) => {
                let answer = self.store.errand(errand);
                self.print_store();
                answer
            }
        }
    }

    /// Everything in memory is gone.
    pub fn die(&mut self, power: bool) {
        self.pump = None;
        self.due = None;
        self.ends.clear();
        let lost = std::mem::take(&mut self.clients);
        self.unanswered.extend(lost.into_values().map(|client| client.what));
        self.inbox.clear();
        self.batch = None;
        self.told = None;
        self.reads.clear();
        self.unlinks.clear();
        self.dials.clear();
        if power {
            self.store.crash()
        } else {
            self.store.kill()
        }
        self.prints.0 = 0;
        self.print_store();
    }

    /// A fingerprint of everything in it.
    fn print(&self) -> u128 {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(2048);
        // Nothing fails when it is written to a string.
        let _ = write!(text, "{:?}{:?}{:?}", self.prints, self.due, self.inbox);
        let _ = write!(text, "{:?}{:?}{:?}", self.batch, self.told, self.reads);
        let _ = write!(text, "{:?}{:?}{:?}", self.clients, self.unlinks, self.dials);
        let _ = write!(text, "{}", self.next_conn);
        for (conn, end) in &self.ends {
            let _ = write!(text, "{conn}{}{:?}{}", end.print, end.other, end.closed);
            let _ = write!(text, "{:?}{:?}{:?}", end.words, end.calls, end.epoch);
            let _ = write!(text, "{}", blake3::hash(&end.air));
        }
        print(&text)
    }

    /// Takes the pump's fingerprint anew.
    pub fn print_pump(&mut self) {
        self.prints.0 = self.pump.as_ref().map_or(0, |pump| print(&format!("{pump:?}")));
    }

    /// Takes the store's fingerprint anew.
    pub fn print_store(&mut self) {
        let mut hasher = blake3::Hasher::new();
        let snapshot = self.store.snapshot();
        for table in Table::ALL {
            hasher.update(&[table.number()]);
            // Nothing can fail in memory.
            let _ = snapshot.scan(*table, &[], &mut |key, value| {
                hasher.update(&(key.len() as u32).to_le_bytes()).update(key);
                hasher.update(&(value.len() as u32).to_le_bytes()).update(value);
                true
            });
        }
        for (blob, file) in self.store.files() {
            hasher.update(&blob.0.to_le_bytes()).update(&(file.synced as u64).to_le_bytes());
            hasher.update(&[u8::from(file.named)]).update(blake3::hash(&file.data).as_bytes());
        }
        hasher.update(format!("{:?}", self.store.volatile()).as_bytes());
        self.prints.1 = cut(hasher.finalize());
    }
}

/// 128 bits of a text. Only ever compared with prints of the same process.
pub(super) fn print(text: &str) -> u128 {
    /// The multiplier of FNV for 128 bits is sparse; this one is the golden ratio's, made odd.
    const BY: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let (whole, rest) = text.as_bytes().as_chunks::<16>();
    let mix = |print: u128, word: u128| {
        let print = (print ^ word).wrapping_mul(BY);
        print ^ (print >> 59)
    };
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let print = whole.iter().fold(BY, |print, word| mix(print, u128::from_le_bytes(*word)));
    mix(mix(print, u128::from_le_bytes(last)), text.len() as u128)
}

fn cut(hash: blake3::Hash) -> u128 {
    hash.as_bytes().iter().take(16).fold(0, |n, byte| n << 8 | u128::from(*byte))
}
