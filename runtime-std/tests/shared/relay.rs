//! Two sites with real peer sessions: segments go from one to the other and are acknowledged.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use consign_core::driver::MakeSession;
use consign_core::gate::Promised;
use consign_core::id::{BlobDigest, ConnId, Handle, TransferNo};
use consign_core::ledger::rows::State;
use consign_core::limits::{INLINE_MAX, SESSION_INFLIGHT};
use consign_core::node::Note;
use consign_core::segment::{Destinations, Meta, segment_id};
use consign_core::session::peer::PeerSession;
use consign_core::session::{
    Content, Promise, Session, SessionCommand, SessionConfig, SessionEvent, SessionInput,
    SessionOut, Submission,
};
use consign_core::store::{StoreEvent, StoreRequest};
use consign_core::time::{Instant as CoreInstant, Now};

use crate::shared::pki::Ca;
use crate::shared::sessions::pattern;
use crate::shared::support::{Beta, Setting};

/// Submissions under way at a time.
const WINDOW: u32 = 4_096;

fn peer_session(name: &str) -> MakeSession {
    let config = SessionConfig {
        name: name.to_string(),
        ack_timeout: Duration::from_secs(60),
        max_segment: None,
        max_offers: SESSION_INFLIGHT as u32,
        hello_timeout: Duration::from_secs(10),
        ping_after: Duration::from_secs(20),
        dead_after: Duration::from_secs(60),
        plant: None,
    };
    Arc::new(move |info| Box::new(PeerSession::new(info, config.clone())))
}

/// Hands in `count` segments of `size` bytes for everybody, as fast as they are taken.
struct Submitter {
    conn: ConnId,
    count: u32,
    size: usize,
    next: u32,
    accepted: u32,
}

impl Submitter {
    fn content(&self, ticket: u32) -> Vec<u8> {
        (0..self.size as u64).map(|at| pattern(at + u64::from(ticket))).collect()
    }

    fn go_on(&mut self, out: &mut SessionOut) {
        while self.next < self.count && self.next - self.accepted < WINDOW {
            self.next += 1;
            let ticket = TransferNo(self.next);
            if self.size <= INLINE_MAX {
                let handle = Handle { conn: self.conn, number: self.next };
                let data = Bytes::from(self.content(self.next));
                out.requests.push(StoreRequest::Park { handle, data });
                self.submit(ticket, Content::Parked(handle), out);
            } else {
                out.events.push(SessionEvent::Reserve { ticket, size: Some(self.size as u64) });
            }
        }
    }

    fn submit(&self, ticket: TransferNo, content: Content, out: &mut SessionOut) {
        let bytes = self.content(ticket.0);
        let digest = BlobDigest(*blake3::hash(&bytes).as_bytes());
        let meta = Meta { name: format!("segment-{ticket}"), ..Meta::default() };
        let (id, size) = (segment_id(&meta, &digest), self.size as u64);
        let submission =
            Submission { meta, to: Destinations::All, id, digest, size, content, watched: None };
        let submission = Box::new(submission);
        out.events.push(SessionEvent::Submit { ticket, submission });
    }

    fn promised(&mut self, promised: Promised, out: &mut SessionOut) {
        match promised.into_inner() {
            Promise::Accepted { .. } => self.accepted += 1,
            Promise::Accept { transfer, blob, offset, .. } => {
                out.requests.push(StoreRequest::Create { blob, offset });
                for piece in self.content(transfer.0).chunks(1 << 20) {
                    let data = Bytes::copy_from_slice(piece);
                    out.requests.push(StoreRequest::Write { blob, data });
                }
                out.requests.push(StoreRequest::Finish { blob });
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Session for Submitter {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        match input {
            SessionInput::Command(SessionCommand::Promised(promised)) => {
                self.promised(promised, out);
            }
            SessionInput::Command(SessionCommand::Close { .. }) => out.close = true,
            SessionInput::Command(SessionCommand::Refuse { text, .. }) => panic!("{text}"),
            // One large segment at a time is asked for, so the blob is the last ticket's.
            SessionInput::Store(StoreEvent::Finished { blob, .. }) => {
                self.submit(TransferNo(self.next), Content::Blob(blob), out);
            }
            _ => {}
        }
        self.go_on(out);
    }
    fn next_deadline(&self) -> Option<CoreInstant> {
        None
    }
    fn wants_read(&self) -> bool {
        true
    }
}

/// CPU seconds of this process so far, by the names of its threads.
pub fn cpu() -> Vec<(String, f64)> {
    let mut by_name = std::collections::BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        // A thread may end while it is looked at.
        let Ok(stat) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
        let Ok(name) = std::fs::read_to_string(task.path().join("comm")) else { continue };
        let nanos: f64 = stat.split(' ').next().unwrap().parse().unwrap();
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        *by_name.entry(name.to_string()).or_insert(0.0) += nanos / 1e9;
    }
    by_name.into_iter().collect()
}

/// Two sites, `alpha` dialling `beta`.
pub struct Two {
    pub alpha: Beta,
    pub beta: Beta,
}

impl Two {
    /// Alpha's local clients hand in `count` segments of `size` bytes as soon as they connect.
    pub fn start(count: u32, size: usize) -> Two {
        let ca = Arc::new(Ca::new());
        let session = peer_session("beta");
        let beta = Beta::start(Setting { ca: ca.clone(), session, ..Setting::default() });
        let local_session: MakeSession = Arc::new(move |info| {
            let conn = info.conn;
            Box::new(Submitter { conn, count, size, next: 0, accepted: 0 })
        });
        let alpha = Beta::start(Setting {
            ca,
            name: "alpha",
            session: peer_session("alpha"),
            local_session,
            dials: beta.peers.to_string(),
            ..Setting::default()
        });
        Two { alpha, beta }
    }

    /// Hands them in; how long it took until all were acknowledged.
    pub fn relay(&self, count: u32) -> Duration {
        self.alpha.notes.wait(|note| matches!(note, Note::SessionUp { .. }).then_some(()));
        let began = Instant::now();
        let _client = self.alpha.plain();
        self.alpha.notes.wait_for(count as usize, |note| match note {
            Note::Delivery { to, peer, .. } => *to == Some(State::Acked) && **peer == *"beta",
            _ => false,
        });
        began.elapsed()
    }
}

#[test]
fn small_segments_cross_and_are_acknowledged() {
    let two = Two::start(2_000, 1_024);
    two.relay(2_000);
    let mut ids = Vec::new();
    two.beta.notes.all(|note| {
        if let Note::Accepted { id, size, from, .. } = note {
            assert_eq!((*size, &**from), (1_024, "alpha"));
            ids.push(*id);
        }
    });
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2_000);
}

#[test]
fn a_large_segment_crosses_whole() {
    const SIZE: usize = 20 << 20;
    let two = Two::start(1, SIZE);
    two.relay(1);
    let files = |site: &Beta| {
        let store = site.store.mem();
        store.files().map(|(_, file)| blake3::hash(&file.data)).collect::<Vec<_>>()
    };
    let (sent, got) = (files(&two.alpha), files(&two.beta));
    assert_eq!((sent.len(), &sent), (1, &got));
}

#[test]
fn a_stop_in_the_middle_settles_what_is_in_flight() {
    let two = Two::start(50_000, 1_024);
    let acked = |note: &Note| match note {
        Note::Delivery { to: Some(State::Acked), peer, .. } if **peer == *"beta" => Some(()),
        _ => None,
    };
    two.alpha.notes.wait(|note| matches!(note, Note::SessionUp { .. }).then_some(()));
    let _client = two.alpha.plain();
    two.alpha.notes.wait(acked);
    two.alpha.running.stop();
    assert_eq!(two.alpha.running.wait(), consign_core::driver::Ended::Drained);
    two.beta.running.stop();
    assert_eq!(two.beta.running.wait(), consign_core::driver::Ended::Drained);
    // Nothing was acknowledged that the receiver does not hold.
    let (mut sent, mut got) = (0, 0);
    two.alpha.notes.all(|note| sent += usize::from(acked(note).is_some()));
    two.beta.notes.all(|note| got += usize::from(matches!(note, Note::Accepted { .. })));
    assert!(sent > 0 && got >= sent, "{sent} acknowledged, {got} held");
}
