//! The client against a scripted daemon.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::testing::{Daemon, Say, serve};
use super::*;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn questions_are_asked_over_one_connection() {
    let daemon = Daemon::answering(|request, _| {
        Say::json(200, json!({"target": request.target, "method": request.method.name()}))
    });
    let mut api = Api::new(&daemon.socket());
    for _ in 0..3 {
        let got: Value = api.json("GET", "/v1/status").unwrap();
        assert_eq!(got, json!({"target": "/v1/status", "method": "GET"}));
        assert!(api.link.is_some(), "the connection is kept");
    }
}

#[test]
fn a_connected_stream_will_do() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let script = |_: &_, body: Option<&[u8]>| body.map(|b| Say::json(200, json!({"len": b.len()})));
    let server = std::thread::spawn(move || serve(theirs, &Mutex::new(script)));
    let mut api = Api::over(ours).unwrap();
    let got: Value = api.submit("/x", Source::Sized(3, &mut &b"abc"[..]), &mut |_| {}).unwrap();
    assert_eq!(got, json!({"len": 3}));
    drop(api);
    server.join().unwrap();
}

#[test]
fn content_of_every_size_arrives_whole() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let daemon = Daemon::answering(move |_, body| {
        keep.lock().unwrap().push(body.to_vec());
        Say::json(201, json!({}))
    });
    let mut api = Api::new(&daemon.socket());
    for len in [0, 1, 65_536, 262_144, 262_145, 3_000_000] {
        let body = content(len);
        let mut told = 0;
        let source = Source::Sized(len as u64, &mut body.as_slice());
        let _: Value = api.submit("/v1/segments?name=x", source, &mut |n| told += n).unwrap();
        assert_eq!(told, len as u64);
        let mut reader = body.as_slice();
        let _: Value =
            api.submit("/v1/segments?name=x", Source::Stream(&mut reader), &mut |_| {}).unwrap();
        let mut seen = seen.lock().unwrap();
        assert!(seen.len() == 2 && seen.iter().all(|got| *got == body), "{len}");
        seen.clear();
    }
}

#[test]
fn refusals_are_what_they_mean() {
    let table = [
        (507, "quota", Exit::TryLater, "CN0610"),
        (507, "disk_full", Exit::TryLater, "CN0610"),
        (503, "busy", Exit::TryLater, "CN0610"),
        (403, "not_permitted", Exit::NotPermitted, "CN0602"),
        (404, "unknown", Exit::NoMatch, "CN0612"),
        (409, "ambiguous", Exit::Usage, "CN0613"),
        (404, "unknown_destination", Exit::Failed, "CN0614"),
        (413, "too_large", Exit::Failed, "CN0611"),
        (400, "invalid", Exit::Failed, "CN0611"),
        (500, "store_failed", Exit::Failed, "CN0611"),
    ];
    let mut rows = table.into_iter();
    let daemon = Daemon::answering(move |_, _| {
        let (status, code, _, _) = rows.next().unwrap();
        Say::refuse(status, code, "because")
    });
    let mut api = Api::new(&daemon.socket());
    for (status, code, exit, number) in table {
        let failure = api.json::<Value>("GET", "/x").unwrap_err();
        assert_eq!((failure.exit, failure.code), (exit, number), "{status} {code}");
        assert!(failure.message.contains("because"));
        // Waiting makes no room where nothing may go.
        let waits = failure.help.starts_with("try again in");
        assert_eq!(waits, code == "busy", "{code}: {}", failure.help);
        assert_eq!(failure.help.contains("consign release ID"), status == 507, "{code}");
    }
}

#[test]
fn large_content_that_is_refused_is_not_sent() {
    let daemon = Daemon::scripted(|_, body| match body {
        None => Some(Say::refuse(507, "quota", "no room")),
        Some(_) => Some(Say::json(201, json!({}))),
    });
    let mut asked = 0;
    let mut endless = io::repeat(7);
    let mut source = endless.by_ref().inspect_reads(&mut asked);
    let failure = Api::new(&daemon.socket())
        .submit::<Value>("/x", Source::Sized(1 << 40, &mut source), &mut |_| {})
        .unwrap_err();
    assert_eq!(failure.exit, Exit::TryLater);
    assert_eq!(asked, 0, "it was asked before anything was read");
}

/// Counts what is read.
struct Inspect<'a, R>(R, &'a mut u64);

trait InspectReads: Read + Sized {
    fn inspect_reads(self, count: &mut u64) -> Inspect<'_, Self> {
        Inspect(self, count)
    }
}
impl<R: Read> InspectReads for R {}

impl<R: Read> Read for Inspect<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.0.read(buffer)?;
        *self.1 += got as u64;
        Ok(got)
    }
}

#[test]
fn a_stream_that_is_refused_in_the_middle_says_why() {
    // An answer at the head, while an endless stream is on its way without asking.
    let daemon = Daemon::scripted(|_, _| Some(Say::refuse(413, "too_large", "no more")));
    let failure = Api::new(&daemon.socket())
        .submit::<Value>("/x", Source::Stream(&mut io::repeat(7)), &mut |_| {})
        .unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0611"));
}

#[test]
fn a_source_that_fails_or_ends_early_breaks_the_request_off() {
    let ended = Arc::new(Mutex::new(0));
    let count = Arc::clone(&ended);
    let daemon = Daemon::answering(move |_, _| {
        *count.lock().unwrap() += 1;
        Say::json(201, json!({}))
    });
    let mut api = Api::new(&daemon.socket());
    let short = Source::Sized(5, &mut &b"abc"[..]);
    let failure = api.submit::<Value>("/x", short, &mut |_| {}).unwrap_err();
    assert_eq!(failure.code, "CN0622");
    assert!(failure.message.contains("2 bytes shorter"), "{}", failure.message);
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("bad sector"))
        }
    }
    let failure = api.submit::<Value>("/x", Source::Stream(&mut Broken), &mut |_| {}).unwrap_err();
    assert_eq!((failure.code, failure.message.as_str()), ("CN0620", "bad sector"));
    // Another request shows that the daemon saw the end of both connections and took neither.
    let _: Value = api.json("GET", "/x").unwrap();
    assert_eq!(*ended.lock().unwrap(), 1);
}

#[test]
fn nobody_there_is_69_and_a_closed_door_77() {
    let dir = tempfile::tempdir().unwrap();
    let failure = Api::new(&dir.path().join("none")).json::<Value>("GET", "/x").unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Unreachable, "CN0601"));
    let stale = dir.path().join("stale");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let failure = Api::new(&stale).json::<Value>("GET", "/x").unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Unreachable, "CN0601"));
    let long = dir.path().join("x".repeat(200));
    let failure = Api::new(&long).json::<Value>("GET", "/x").unwrap_err();
    assert_eq!(failure.exit, Exit::Unreachable);
}

#[test]
fn an_answer_that_is_cut_is_no_answer() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/hang" => Say::Hang,
        _ => Say::Cut(10, b"{\"a\":1}".to_vec()),
    });
    let mut api = Api::new(&daemon.socket());
    for target in ["/hang", "/cut"] {
        let failure = api.json::<Value>("GET", target).unwrap_err();
        assert_eq!((failure.exit, failure.code), (Exit::Unreachable, "CN0603"), "{target}");
    }
    let mut came = Vec::new();
    let failure = api.fetch("/cut", &mut |_, data| {
        came.extend_from_slice(data);
        Ok(())
    });
    assert_eq!(failure.unwrap_err().code, "CN0603");
    assert_eq!(came, b"{\"a\":1}");
}

#[test]
fn a_daemon_that_was_restarted_is_asked_again() {
    let mut asked = 0;
    let daemon = Daemon::answering(move |_, _| {
        asked += 1;
        if asked == 2 { Say::Hang } else { Say::json(200, json!(asked)) }
    });
    let mut api = Api::new(&daemon.socket());
    assert_eq!(api.json::<Value>("GET", "/x").unwrap(), json!(1));
    assert_eq!(api.json::<Value>("GET", "/x").unwrap(), json!(3));
}

#[test]
fn what_is_not_http_or_not_json_is_not_understood() {
    let daemon = Daemon::answering(|_, _| Say::Answer(200, Vec::new(), b"hello".to_vec()));
    let failure = Api::new(&daemon.socket()).json::<Value>("GET", "/x").unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0604"));
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").unwrap();
    let failure = Api::over(ours).unwrap().json::<Value>("GET", "/x").unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0604"));
}

#[test]
fn content_is_fetched_in_pieces() {
    let body = content(1_000_000);
    let served = body.clone();
    let daemon = Daemon::answering(move |_, _| {
        Say::Answer(200, vec![("Repr-Digest", "blake3=:x:".into())], served.clone())
    });
    let (mut came, mut pieces) = (Vec::new(), 0);
    let answer = Api::new(&daemon.socket())
        .fetch("/x", &mut |headers, data| {
            assert_eq!(headers.text("repr-digest"), Some("blake3=:x:"));
            came.extend_from_slice(data);
            pieces += 1;
            Ok(())
        })
        .unwrap();
    assert!(came == body && pieces > 1 && answer.body.is_empty());
}
