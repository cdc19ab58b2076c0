//! A scripted daemon for tests: a real socket, answers by hand.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use consign_core::http::{Conn, Event, Limits, Payload, Request, Response};
use consign_core::time::Now;

/// What a script answers.
pub(crate) enum Say {
    /// A whole answer.
    Answer(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// An answer of which so many bytes are announced and these are sent; then the connection ends.
    Cut(u64, Vec<u8>),
    /// Nothing: the connection ends.
    Hang,
}

impl Say {
    pub(crate) fn json(status: u16, body: impl Into<serde_json::Value>) -> Say {
        let body: serde_json::Value = body.into();
        Say::Answer(status, Vec::new(), body.to_string().into_bytes())
    }

    pub(crate) fn refuse(status: u16, code: &str, message: &str) -> Say {
        Say::json(status, serde_json::json!({"code": code, "message": message}))
    }
}

/// Called with the request and its body; with `None` at the head, where it may refuse early.
pub(crate) type Script = dyn FnMut(&Request, Option<&[u8]>) -> Option<Say> + Send;

/// A daemon that follows a script.
pub(crate) struct Daemon {
    dir: tempfile::TempDir,
}

impl Daemon {
    /// Answers each request when it is whole.
    pub(crate) fn answering(
        mut script: impl FnMut(&Request, &[u8]) -> Say + Send + 'static,
    ) -> Daemon {
        Daemon::scripted(move |request, body| body.map(|body| script(request, body)))
    }

    pub(crate) fn scripted(
        script: impl FnMut(&Request, Option<&[u8]>) -> Option<Say> + Send + 'static,
    ) -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("s")).expect("a socket");
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(script));
        // The thread ends with the process: it holds nothing but the listener.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = Arc::clone(&script);
                thread::spawn(move || serve(stream, &script));
            }
        });
        Daemon { dir }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// Serves one connection to its end.
pub(crate) fn serve(mut stream: UnixStream, script: &Mutex<Script>) {
    let now = Now::default();
    let mut conn = Conn::new(Limits::default(), now);
    let (mut request, mut body) = (None::<Box<Request>>, Vec::new());
    let mut buffer = vec![0; 64 << 10];
    let mut said = None;
    while !conn.closing() {
        let Ok(got) = stream.read(&mut buffer) else { return };
        if got == 0 {
            conn.eof();
        }
        let mut input = &buffer[..got];
        let mut out = Vec::new();
        while let Some(event) = conn.read(now, &mut input, &mut out) {
            let mut script = script.lock().expect("a script that does not panic");
            match event {
                Event::Head(head) => {
                    said = script(&head, None);
                    if said.is_none() {
                        conn.go_on(now, &mut out);
                    }
                    body.clear();
                    request = Some(head);
                }
                Event::Body(data) => body.extend_from_slice(data),
                Event::End => {
                    let head = request.as_ref().expect("a head before the end");
                    said = script(head, Some(&body));
                }
                Event::Raw(_) | Event::Fault(_) => {}
            }
            match said.take() {
                None => {}
                Some(Say::Hang) => return,
                Some(Say::Answer(status, headers, body)) => {
                    let headers: Vec<(&str, &str)> =
                        headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
                    let payload = Payload::Full(&body);
                    let response = Response { status, headers: &headers, payload };
                    conn.respond(now, &response, &mut out);
                }
                Some(Say::Cut(size, part)) => {
                    let payload = Payload::Sized(size);
                    conn.respond(now, &Response { status: 200, headers: &[], payload }, &mut out);
                    conn.send(&part, &mut out);
                    conn.abort();
                }
            }
        }
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}
