//! The serving side against a small application.

mod refusals;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use core::time::Duration;

use super::*;
use crate::http::{Held, Length};
use crate::time::UnixMillis;

/// A small application: `/echo` answers with the length of the body, `/early` refuses at the head,
/// `/late` waits for [`App::answer`], `/stream` answers in chunks, `/sized` in pieces.
struct App {
    conn: Conn,
    held: Held,
    now: Now,
    out: Vec<u8>,
    log: Vec<String>,
    target: String,
    body: u64,
}

impl App {
    fn new() -> App {
        let now = Now { mono: Instant::ZERO, wall: UnixMillis(0) };
        App {
            conn: Conn::new(Limits::default(), now),
            held: Held::default(),
            now,
            out: Vec::new(),
            log: Vec::new(),
            target: String::new(),
            body: 0,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut held = core::mem::take(&mut self.held);
        let mut input = held.join(bytes);
        while let Some(event) = self.conn.read(self.now, &mut input, &mut self.out) {
            self.event(event);
        }
        let rest = input.len();
        held.keep(bytes, rest);
        self.held = held;
    }

    fn eof(&mut self) {
        self.conn.eof();
        self.feed(&[]);
    }

    fn pass(&mut self, seconds: u64) {
        self.now.mono = self.now.mono.after(Duration::from_secs(seconds));
        if let Some(event) = self.conn.timer(self.now, &mut self.out) {
            self.event(event);
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Head(request) => {
                self.log.push(format!("{} {}", request.method, request.target));
                self.target = request.target.clone();
                self.body = 0;
                if self.target == "/early" {
                    self.respond(413, Payload::Full(b"no"));
                } else if self.target == "/go" {
                    self.conn.go_on(self.now, &mut self.out);
                }
            }
            Event::Body(data) => self.body += data.len() as u64,
            Event::End => {
                self.log.push(format!("end {}", self.body));
                if self.conn.awaits_answer() && self.target != "/late" {
                    self.answer();
                }
            }
            Event::Raw(data) => self.log.push(format!("raw {}", data.escape_ascii())),
            Event::Fault(fault) => self.log.push(format!("fault {}", fault.status())),
        }
    }

    fn answer(&mut self) {
        match self.target.as_str() {
            "/stream" => {
                self.respond(200, Payload::Chunked);
                self.conn.send(b"0123456789abcdef-", &mut self.out);
                self.conn.send(b"", &mut self.out);
                self.conn.send(b"x", &mut self.out);
                self.conn.finish(self.now, &mut self.out);
            }
            "/sized" => {
                self.respond(200, Payload::Sized(5));
                self.conn.send(b"abc", &mut self.out);
                self.conn.send(b"de", &mut self.out);
                self.conn.finish(self.now, &mut self.out);
            }
            "/cut" => {
                self.respond(200, Payload::Sized(5));
                self.conn.send(b"abc", &mut self.out);
                self.conn.abort();
            }
            "/empty" => self.respond(204, Payload::Empty),
            "/upgrade" => {
                self.conn.upgrade(self.now, &[("Upgrade", "websocket")], &mut self.out);
            }
            _ => self.respond(200, Payload::Full(self.body.to_string().as_bytes())),
        }
    }

    fn respond(&mut self, status: u16, payload: Payload<'_>) {
        let response = Response { status, headers: &[("X-App", "yes")], payload };
        self.conn.respond(self.now, &response, &mut self.out);
    }

    fn text(&self) -> String {
        String::from_utf8(self.out.clone())
            .unwrap()
            .replace("Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "")
    }

    /// The statuses of everything that was answered.
    fn statuses(&self) -> Vec<u16> {
        let text = self.text();
        text.split("HTTP/1.1 ").skip(1).map(|t| t[..3].parse().unwrap()).collect()
    }
}

fn run(input: &[u8]) -> App {
    let mut app = App::new();
    app.feed(input);
    app
}

const OK: &str = "HTTP/1.1 200 OK\r\nX-App: yes\r\n";

#[test]
fn a_request_and_its_answer_to_the_byte() {
    let app = run(b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(app.log, ["GET /echo", "end 0"]);
    assert_eq!(app.text(), format!("{OK}Content-Length: 1\r\n\r\n0"));
    assert!(!app.conn.closing() && app.conn.is_idle());
}

fn get(fields: &str) -> String {
    format!("GET /echo HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

fn post(fields: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

#[test]
fn bodies_of_every_kind() {
    let chunked = post("Transfer-Encoding: Chunked\r\n");
    let table = [
        (post("Content-Length: 5\r\n") + "hello", 5),
        (post(""), 0),
        (get("Content-Length: 3\r\n") + "abc", 3),
        (chunked.clone() + "5\r\nhello\r\n0\r\n\r\n", 5),
        (chunked.clone() + "005\r\nhello\r\nA\r\n0123456789\r\n000\r\n\r\n", 15),
        (chunked.clone() + "5;a=b;c=\"d e\"\r\nhello\r\n0;x\r\n\r\n", 5),
        (chunked.clone() + "0\r\nTrailer: value\r\n\r\n", 0),
        (chunked + "1\r\n\n\r\n2\r\n\r\n\r\n0\r\n\r\n", 3),
    ];
    for (input, length) in table {
        // The next request on the same connection shows that the end was found.
        let app = run(format!("{input}{}", get("")).as_bytes());
        let end = format!("end {length}");
        assert_eq!(app.log[1..], [end.as_str(), "GET /echo", "end 0"], "{input}");
        assert_eq!(app.statuses(), [200, 200], "{input}");
    }
}

#[test]
fn pipelined_requests_are_answered_one_by_one_in_order() {
    let late = "GET /late HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut app = run(format!("{late}{}{late}", get("")).as_bytes());
    assert_eq!(app.log, ["GET /late", "end 0"]);
    assert!(app.out.is_empty());
    app.answer();
    assert_eq!(app.statuses(), [200]);
    app.feed(b"");
    assert_eq!(app.log.len(), 6, "{:?}", app.log);
    app.answer();
    assert_eq!(app.statuses(), [200, 200, 200]);
    app.feed(b"");
    assert!(app.held.is_empty() && app.conn.is_idle() && !app.conn.closing());
}

#[test]
fn requests_before_a_half_close_are_all_answered() {
    let late = "GET /late HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut app = run(format!("{late}{late}").as_bytes());
    app.eof();
    assert!(!app.conn.closing());
    app.answer();
    app.feed(b"");
    app.answer();
    app.feed(b"");
    assert_eq!(app.statuses(), [200, 200]);
    assert!(app.conn.closing());
}

#[test]
fn connections_are_kept_as_both_sides_wish() {
    let table = [
        ("GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", true, "Connection: close"),
        (
            "GET /echo HTTP/1.1\r\nHost: h\r\nConnection: x, CLOSE\r\n\r\n",
            true,
            "Connection: close",
        ),
        ("GET /echo HTTP/1.0\r\n\r\n", true, "Connection: close"),
        ("GET /echo HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", false, "Connection: keep-alive"),
        ("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true, "Connection: close"),
    ];
    for (input, closing, says) in table {
        let app = run(input.as_bytes());
        assert_eq!(app.conn.closing(), closing, "{input}");
        assert!(app.text().contains(says), "{input}");
    }
}

#[test]
fn answers_of_every_kind() {
    let chunks = "11\r\n0123456789abcdef-\r\n1\r\nx\r\n0\r\n\r\n";
    let table = [
        ("GET /stream", format!("{OK}Transfer-Encoding: chunked\r\n\r\n{chunks}"), false),
        ("HEAD /stream", format!("{OK}Transfer-Encoding: chunked\r\n\r\n"), false),
        ("GET /sized", format!("{OK}Content-Length: 5\r\n\r\nabcde"), false),
        ("HEAD /sized", format!("{OK}Content-Length: 5\r\n\r\n"), false),
        ("HEAD /echo", format!("{OK}Content-Length: 1\r\n\r\n"), false),
        ("GET /cut", format!("{OK}Content-Length: 5\r\n\r\nabc"), true),
        ("GET /empty", "HTTP/1.1 204 No Content\r\nX-App: yes\r\n\r\n".into(), false),
    ];
    for (request, answer, closing) in table {
        let app = run(format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(app.text(), answer);
        assert_eq!(app.conn.closing(), closing, "{request}");
    }
    let app = run(b"GET /stream HTTP/1.0\r\n\r\n");
    assert_eq!(app.text(), format!("{OK}Connection: close\r\n\r\n0123456789abcdef-x"));
}

#[test]
fn a_client_is_told_to_go_on_once_and_only_if_it_waits() {
    let expecting =
        "POST /go HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let mut app = run(expecting.as_bytes());
    assert_eq!(app.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    app.feed(b"ab");
    assert_eq!(app.statuses(), [100, 200]);
    let app = run(b"POST /go HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(app.statuses(), [200]);
    let app = run(b"POST /go HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab");
    assert_eq!(app.statuses(), [200]);
}

#[test]
fn a_client_that_waits_and_is_refused_is_closed_at_once() {
    let app = run(
        b"POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(app.statuses(), [413]);
    assert!(app.conn.closing());
}

#[test]
fn an_answer_at_the_head_of_a_request_without_a_body_keeps_the_connection() {
    let app = run(b"GET /early HTTP/1.1\r\nHost: h\r\n\r\nGET /echo HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(app.statuses(), [413, 200]);
    assert!(!app.conn.closing());
}

#[test]
fn an_upgraded_connection_passes_everything_on() {
    let mut app = run(b"GET /upgrade HTTP/1.1\r\nHost: h\r\n\r\n\x81\x00");
    app.feed(b"GET / HTTP/1.1\r\n");
    let head =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    assert_eq!(app.text(), head);
    assert_eq!(app.log[2..], ["raw \\x81\\x00", "raw GET / HTTP/1.1\\r\\n"]);
    assert_eq!(app.conn.next_deadline(), None);
}

#[test]
fn what_an_application_says_cannot_break_out_of_its_field() {
    let mut app = run(b"GET /late HTTP/1.1\r\nHost: h\r\n\r\n");
    let headers = [("X-Name", "a\r\nX-Evil: b\0")];
    let response = Response { status: 200, headers: &headers, payload: Payload::Empty };
    app.conn.respond(app.now, &response, &mut app.out);
    assert!(app.text().contains("X-Name: a??X-Evil: b?\r\n"));
}

#[test]
fn the_length_is_told_before_the_body_is_read() {
    let mut conn = Conn::new(Limits::default(), Now::default());
    let mut input =
        &b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n"[..];
    match conn.read(Now::default(), &mut input, &mut Vec::new()) {
        Some(Event::Head(request)) => assert_eq!(request.length, Length::Sized(u64::MAX)),
        other => panic!("{other:?}"),
    }
}

/// Pieces that are put together at random: whole requests of every kind, and things that break.
const PIECES: &[&str] = &[
    "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
    "\r\nGET /stream HTTP/1.1\r\nhost: h\r\nA: b\r\n\r\n",
    "HEAD /sized HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\nhello world",
    "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\na;x=y\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
    "POST /go HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd",
    "GET /cut HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /upgrade HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
    "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
    "GET / HTTP/1.1\nHost: h\n\n",
    "GET /a//b HTTP/1.1\r\nHost: h\r\n\r\n",
    "\r\n",
    "GET /",
];

#[test]
fn any_split_of_the_input_gives_the_same_output() {
    fn same(pieces: Vec<u8>, cuts: Vec<u16>) -> bool {
        let input: String = pieces.iter().map(|p| PIECES[usize::from(*p) % PIECES.len()]).collect();
        let mut whole = run(input.as_bytes());
        let mut split = App::new();
        let mut rest = input.as_bytes();
        for cut in cuts {
            let (piece, behind) = rest.split_at(usize::from(cut % 64).min(rest.len()));
            split.feed(piece);
            rest = behind;
        }
        for byte in rest {
            split.feed(&[*byte]);
        }
        whole.eof();
        split.eof();
        // Raw bytes are passed on as they come; everything else must be alike.
        let raw =
            |app: &App| app.log.iter().filter_map(|l| l.strip_prefix("raw ")).collect::<String>();
        let log = |app: &App| {
            app.log.iter().filter(|l| !l.starts_with("raw")).cloned().collect::<Vec<_>>()
        };
        whole.out == split.out
            && raw(&whole) == raw(&split)
            && log(&whole) == log(&split)
            && whole.conn.closing() == split.conn.closing()
            && whole.held.len() == split.held.len()
    }
    quickcheck::QuickCheck::new().tests(500).quickcheck(same as fn(Vec<u8>, Vec<u16>) -> bool);
}

#[test]
fn noise_never_panics_and_always_ends_or_waits() {
    fn holds(noise: Vec<u8>, front: u8) -> bool {
        let mut app = App::new();
        app.feed(PIECES[usize::from(front) % PIECES.len()].as_bytes());
        app.feed(&noise);
        app.eof();
        app.conn.closing() || app.log.iter().any(|l| l == "GET /upgrade")
    }
    quickcheck::QuickCheck::new().tests(500).quickcheck(holds as fn(Vec<u8>, u8) -> bool);
}
