//! Two sites: a real [`PeerSession`] each, over a stub of a store and a wire that delivers when
//! told.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use consign_core::code::Goodbye;
use consign_core::gate::Promised;
use consign_core::id::{BlobDigest, BlobNo, BodyNo, ConnId, Epoch, Handle, Seq, TransferNo};
use consign_core::ledger::rows::Body;
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::session::peer::PeerSession;
use consign_core::session::{
    ConnInfo, Identity, Promise, Sending, Session, SessionCommand, SessionConfig, SessionInput,
    SessionOut,
};
use consign_core::store::{StoreEvent, StoreFault, StoreRequest};
use consign_core::time::{Instant, Now, UnixMillis};
use consign_core::wire::Offer;

/// Distance of checkpoints in the traces.
pub(crate) const EVERY: u64 = 128 << 10;

/// Content that is told from other content by its seed.
pub(crate) fn content(seed: u64, size: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size as usize + 8);
    while (bytes.len() as u64) < size {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(size as usize);
    bytes
}

/// An offer of that content.
pub(crate) fn offer(transfer: u32, seed: u64, size: u64, origin: &str) -> Offer {
    let digest = BlobDigest(*blake3::hash(&content(seed, size)).as_bytes());
    let meta = Meta { name: format!("f{seed}"), ..Meta::default() };
    Offer {
        transfer: TransferNo(transfer),
        id: segment_id(&meta, &digest),
        digest,
        size,
        to: Destinations::All,
        origin: origin.to_owned(),
        origin_seq: seed,
        hops: 0,
        meta,
    }
}

fn config(name: &str) -> SessionConfig {
    SessionConfig {
        name: name.to_owned(),
        ack_timeout: Duration::from_secs(60),
        max_segment: None,
        max_offers: 16,
        hello_timeout: Duration::from_secs(10),
        ping_after: Duration::from_secs(20),
        dead_after: Duration::from_secs(60),
        plant: None,
    }
}

/// An answer a stub of a store owes; content is read when it is given.
pub(crate) enum Owed {
    Event(StoreEvent),
    Content { ticket: TransferNo, number: u64, offset: u64, len: usize },
}

/// What a stub of a store keeps and owes.
#[derive(Default)]
pub(crate) struct StoreStub {
    /// What can be read.
    pub(crate) readable: BTreeMap<u64, Vec<u8>>,
    pub(crate) parked: BTreeMap<Handle, Bytes>,
    pub(crate) files: BTreeMap<BlobNo, Vec<u8>>,
    /// Files that are finished.
    pub(crate) finished: BTreeMap<BlobNo, Vec<u8>>,
    pub(crate) owed: VecDeque<Owed>,
    /// Bytes handed in for writing that have not been answered.
    pub(crate) unwritten: u64,
}

impl StoreStub {
    pub(crate) fn request(&mut self, request: StoreRequest) {
        match request {
            StoreRequest::Park { handle, data } => {
                assert!(self.parked.insert(handle, data).is_none(), "{handle:?} parked twice");
            }
            StoreRequest::Create { blob, offset } => {
                if let Some(file) = self.finished.remove(&blob) {
                    self.files.insert(blob, file);
                }
                let file = self.files.entry(blob).or_default();
                assert!(file.len() as u64 >= offset, "blob {blob} cut beyond its end");
                file.truncate(offset as usize);
            }
            StoreRequest::Write { blob, data } => {
                let bytes = data.len() as u64;
                self.files.get_mut(&blob).expect("created").extend_from_slice(&data);
                self.unwritten += bytes;
                self.owe(StoreEvent::Written { blob, bytes });
            }
            StoreRequest::Sync { blob } => {
                let offset = self.files[&blob].len() as u64;
                self.owe(StoreEvent::Synced { blob, offset });
            }
            StoreRequest::Finish { blob } => {
                let size = self.files[&blob].len() as u64;
                self.owe(StoreEvent::Finished { blob, size });
            }
            StoreRequest::Abandon { blob } => self.forget(blob),
            StoreRequest::Read { ticket, body, offset, len } => {
                let (Body::Inline(BodyNo(number)) | Body::Blob(BlobNo(number))) = body;
                self.owed.push_back(Owed::Content { ticket, number, offset, len });
            }
            StoreRequest::Query { .. } => panic!("a peer session asks nothing of the ledger"),
        }
    }

    fn owe(&mut self, event: StoreEvent) {
        self.owed.push_back(Owed::Event(event));
    }

    /// The next answer.
    pub(crate) fn answer(&mut self) -> Option<StoreEvent> {
        let event = match self.owed.pop_front()? {
            Owed::Event(event) => event,
            Owed::Content { ticket, number, offset, len } => {
                let data = match self.readable.get(&number) {
                    None => Err(StoreFault::Missing(format!("{number}"))),
                    Some(data) => {
                        let end = (offset as usize + len).min(data.len());
                        Ok(Bytes::copy_from_slice(&data[offset as usize..end]))
                    }
                };
                StoreEvent::Content { ticket, offset, data }
            }
        };
        match &event {
            StoreEvent::Written { bytes, .. } => self.unwritten -= bytes,
            StoreEvent::Finished { blob, .. } => {
                let file = self.files.remove(blob).expect("created");
                self.finished.insert(*blob, file);
            }
            StoreEvent::Synced { .. }
            | StoreEvent::WriteFailed { .. }
            | StoreEvent::Content { .. }
            | StoreEvent::Queried { .. } => {}
        }
        Some(event)
    }

    /// Owes no answer for that blob any more.
    pub(crate) fn forget(&mut self, blob: BlobNo) {
        self.owed.retain(|owed| {
            let Owed::Event(event) = owed else { return true };
            match event {
                StoreEvent::Written { blob: b, bytes } if *b == blob => {
                    self.unwritten -= bytes;
                    false
                }
                StoreEvent::Synced { blob: b, .. } | StoreEvent::Finished { blob: b, .. } => {
                    *b != blob
                }
                StoreEvent::Written { .. }
                | StoreEvent::WriteFailed { .. }
                | StoreEvent::Content { .. }
                | StoreEvent::Queried { .. } => true,
            }
        });
    }

    /// The connection ends: what was owed to it is dropped.
    pub(crate) fn end(&mut self) {
        self.owed.clear();
        self.unwritten = 0;
        self.parked.clear();
    }
}

/// One end.
pub(crate) struct Site {
    pub(crate) session: PeerSession,
    pub(crate) store: StoreStub,
    /// What it has said that the other end has not got.
    pub(crate) said: Vec<u8>,
    pub(crate) closed: bool,
}

impl Site {
    fn new(name: &str, peer: &str, slot: u32, every: u64) -> Site {
        let identity =
            Identity { name: peer.to_owned(), fingerprint: [0; 32], not_after: u64::MAX };
        let info = ConnInfo {
            conn: ConnId { slot, generation: 1 },
            remote: "test".to_owned(),
            uid: None,
            identity: Some(identity),
        };
        Site {
            session: PeerSession::with_checkpoints(&info, config(name), every),
            store: StoreStub::default(),
            said: Vec::new(),
            closed: false,
        }
    }

    /// One step; requests go to the store, bytes to the wire, and all of it is returned too.
    pub(crate) fn step(&mut self, now: Now, input: SessionInput<'_>) -> Stepped {
        let mut out = SessionOut::default();
        self.session.step(now, input, &mut out);
        let mut requests = Vec::new();
        for request in std::mem::take(&mut out.requests) {
            requests.push(crate::show::request(&request));
            self.store.request(request);
        }
        let bytes: Vec<u8> = out.pieces().collect::<Vec<_>>().concat();
        self.said.extend_from_slice(&bytes);
        self.closed |= out.close;
        Stepped { requests, events: out.events, bytes, close: out.close }
    }

    /// Has the session offer content that its store holds.
    pub(crate) fn send(&mut self, now: Now, offer: Offer, seed: u64, inline: bool) -> Stepped {
        let number = u64::from(offer.transfer.0);
        self.store.readable.entry(number).or_insert_with(|| content(seed, offer.size));
        let body = if inline { Body::Inline(BodyNo(number)) } else { Body::Blob(BlobNo(number)) };
        let sending = Sending { seq: Seq(seed), offer, body };
        self.promise(now, Promise::Send(Box::new(sending)))
    }

    pub(crate) fn promise(&mut self, now: Now, promise: Promise) -> Stepped {
        let command = SessionCommand::Promised(Promised::for_tests(promise));
        self.step(now, SessionInput::Command(command))
    }

    pub(crate) fn close(&mut self, now: Now, why: Goodbye) -> Stepped {
        let text = "as asked".to_owned();
        self.step(now, SessionInput::Command(SessionCommand::Close { why, text }))
    }
}

/// What a step did.
#[derive(Default)]
pub(crate) struct Stepped {
    pub(crate) requests: Vec<String>,
    pub(crate) events: Vec<consign_core::session::SessionEvent>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) close: bool,
}

impl Stepped {
    pub(crate) fn add(&mut self, more: Stepped) {
        self.requests.extend(more.requests);
        self.events.extend(more.events);
        self.bytes.extend(more.bytes);
        self.close |= more.close;
    }
}

/// Both ends and a clock.
pub(crate) struct World {
    pub(crate) now: Now,
    pub(crate) sites: [Site; 2],
}

impl World {
    /// Two sites that checkpoint content every `every` bytes.
    pub(crate) fn new(every: u64) -> World {
        World {
            now: Now { mono: Instant(1_000_000_000), wall: UnixMillis(1_700_000_000_000) },
            sites: [Site::new("a", "b", 0, every), Site::new("b", "a", 1, every)],
        }
    }

    /// What one end has said reaches the other, at most `max` bytes of it.
    pub(crate) fn deliver(&mut self, to: usize, max: usize) -> Option<Stepped> {
        let from = &mut self.sites[1 - to];
        let len = from.said.len().min(max);
        if len == 0 {
            return None;
        }
        let bytes: Vec<u8> = from.said.drain(..len).collect();
        Some(self.sites[to].step(self.now, SessionInput::Bytes(&bytes)))
    }
}

/// The epoch of a site in these tests.
pub(crate) fn epoch(site: usize) -> Epoch {
    Epoch { boot: site as u64 + 1, session: 1 }
}
