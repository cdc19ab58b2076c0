//! A small relay for tests: real sockets, core's server codec, answers from a few fields.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use consign_core::http::{Conn, Event, Limits, Method, Payload, Request, Response};
use consign_core::pickup::digest::{Given, REPR_DIGEST, field};
use consign_core::time::Now;
use serde_json::json;

use super::source::Hashes;
use super::url::Relay;

/// What the relay is, has and does.
#[derive(Default)]
pub(crate) struct State {
    /// Every request line, with the offset of a PATCH.
    pub(crate) log: Vec<String>,
    /// What arrived of the shard, while it is uploaded.
    pub(crate) partial: Option<Vec<u8>>,
    /// The shard.
    pub(crate) whole: Option<Vec<u8>>,
    /// Bodies are cut after so many bytes, one after the other.
    pub(crate) cuts: VecDeque<usize>,
    /// Bytes at the end of what arrived that a cut loses, as a kill does.
    pub(crate) loses: usize,
    /// Uploads are refused so, one after the other, before their bodies.
    pub(crate) refusals: VecDeque<(u16, &'static str)>,
    /// What it says that it has.
    pub(crate) lies: bool,
}

/// A relay on a port of its own; its threads end with the process.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) fn new(state: State) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || Serving::new(state).serve(stream));
            }
        });
        Fake { address, state }
    }

    pub(crate) fn relay(&self) -> Relay {
        Relay::parse(&format!("http://{}", self.address)).expect("a URL")
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread has panicked")
    }
}

struct Serving {
    state: Arc<Mutex<State>>,
    request: Option<Box<Request>>,
    /// Where the present body begins, and after how many bytes it is cut.
    body: Vec<u8>,
    cut: Option<usize>,
}

type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

fn refuse(status: u16, code: &str) -> Answer {
    let body = json!({"code": code, "message": format!("no: {code}")});
    (status, vec![("Retry-After", "0".into())], body.to_string().into_bytes())
}

impl Serving {
    fn new(state: Arc<Mutex<State>>) -> Serving {
        Serving { state, request: None, body: Vec::new(), cut: None }
    }

    fn serve(mut self, mut stream: TcpStream) {
        let now = Now::default();
        let mut conn = Conn::new(Limits::default(), now);
        let mut buffer = vec![0; 64 << 10];
        while !conn.closing() {
            let Ok(got) = stream.read(&mut buffer) else { return };
            if got == 0 {
                conn.eof();
            }
            let (mut input, mut out) = (&buffer[..got], Vec::new());
            while let Some(event) = conn.read(now, &mut input, &mut out) {
                let answer = match event {
                    Event::Head(request) => {
                        self.body.clear();
                        let early = self.head(&request);
                        self.request = Some(request);
                        if early.is_none() {
                            conn.go_on(now, &mut out);
                        }
                        early
                    }
                    Event::Body(data) => {
                        self.body.extend_from_slice(data);
                        if self.cut.is_some_and(|cut| self.body.len() >= cut) {
                            self.keep_part();
                            return;
                        }
                        None
                    }
                    Event::End => Some(self.whole()),
                    Event::Raw(_) | Event::Fault(_) => None,
                };
                if let Some((status, headers, body)) = answer {
                    let headers: Vec<(&str, &str)> =
                        headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
                    let payload = if status == 204 { Payload::Empty } else { Payload::Full(&body) };
                    conn.respond(now, &Response { status, headers: &headers, payload }, &mut out);
                }
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread has panicked")
    }

    fn head(&mut self, request: &Request) -> Option<Answer> {
        let method = request.method.name().to_owned();
        let offset = request.headers.text("upload-offset").unwrap_or_default();
        let mut state = self.state();
        state.log.push(format!("{method} {offset}").trim_end().to_owned());
        if request.headers.text("authorization") != Some(&format!("Bearer {}", "ab".repeat(32))) {
            return Some(refuse(401, "unauthorized"));
        }
        if request.method == Method::Head {
            return None;
        }
        if let Some((status, code)) = state.refusals.pop_front() {
            return Some(refuse(status, code));
        }
        let at = state.partial.as_ref().map_or(0, Vec::len).to_string();
        if request.method == Method::Patch && offset != at {
            let (status, mut headers, body) = refuse(409, "wrong_offset");
            headers.push(("Upload-Offset", at));
            return Some((status, headers, body));
        }
        if request.method == Method::Post {
            state.partial = None;
        }
        let cut = state.cuts.pop_front();
        drop(state);
        self.cut = cut;
        None
    }

    /// The connection ends within a body.
    fn keep_part(&mut self) {
        let body = std::mem::take(&mut self.body);
        let cut = self.cut.take().unwrap_or_default();
        let mut state = self.state();
        let loses = state.loses;
        let partial = state.partial.get_or_insert_default();
        partial.extend_from_slice(&body[..cut]);
        partial.truncate(partial.len().saturating_sub(loses));
    }

    fn whole(&mut self) -> Answer {
        let request = self.request.take().expect("a head before the end");
        let body = std::mem::take(&mut self.body);
        let mut state = self.state();
        if request.method == Method::Head {
            return match (&state.whole, &state.partial) {
                (Some(whole), _) => offset(whole.len(), true, "RELAY_BUFFERED"),
                (None, Some(partial)) => offset(partial.len(), false, "UPLOADING"),
                (None, None) => refuse(404, "not_found"),
            };
        }
        let mut all = state.partial.take().unwrap_or_default();
        all.extend_from_slice(&body);
        let given = Given::of(&request.headers, REPR_DIGEST).expect("a good field");
        let mut hashes = Hashes::default();
        hashes.update(&all);
        let (sha256, mut blake3) = hashes.finish();
        if !given.fits(&sha256, &blake3) {
            return refuse(400, "digest_mismatch");
        }
        let known = match &state.whole {
            Some(whole) if *whole != all => return refuse(409, "conflict"),
            other => other.is_some(),
        };
        if state.lies {
            blake3.0[0] ^= 1;
        }
        let uploaded = json!({
            "buffer_id": "blob-1", "state": "RELAY_BUFFERED", "size": all.len(),
            "digest": {"sha-256": sha256.to_string(), "blake3": blake3.to_string()},
            "expires_at": "2026-12-04T05:00:00.000Z",
        });
        state.whole = Some(all);
        let headers = vec![(REPR_DIGEST, field(&sha256, &blake3))];
        (if known { 200 } else { 201 }, headers, uploaded.to_string().into_bytes())
    }
}

fn offset(len: usize, complete: bool, state: &str) -> Answer {
    let complete = if complete { "?1" } else { "?0" };
    let fields = [
        ("Upload-Offset", len.to_string()),
        ("Upload-Complete", complete.to_owned()),
        ("X-Nodus-State", state.to_owned()),
    ];
    (204, fields.to_vec(), Vec::new())
}
