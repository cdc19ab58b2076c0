//! The asking side, alone and wired to the serving side.

use alloc::format;
use alloc::string::{String, ToString};

use super::*;
use crate::http::{Conn, Event, Limits, Response};
use crate::time::Now;

fn asked(method: &str) -> Client {
    let mut client = Client::new();
    let mut out = Vec::new();
    client.request(&outgoing(method, Payload::Empty), &mut out);
    client
}

fn outgoing<'a>(method: &'a str, payload: Payload<'a>) -> Outgoing<'a> {
    Outgoing { method, target: "/x", host: "h", headers: &[], payload, expect_continue: false }
}

/// What comes of these bytes: status, body, and how it ended.
fn outcome(client: &mut Client, pieces: &[&[u8]], eof: bool) -> (Option<u16>, Vec<u8>, String) {
    let (mut status, mut body, mut end) = (None, Vec::new(), "waits".to_string());
    let mut take = |reply: Result<Option<Reply<'_>>, Fault>| match reply {
        Ok(None) => false,
        Ok(Some(Reply::Continue)) => true,
        Ok(Some(Reply::Head(head))) => {
            status = Some(head.status);
            true
        }
        Ok(Some(Reply::Body(data))) => {
            body.extend_from_slice(data);
            true
        }
        Ok(Some(Reply::End)) => {
            end = "end".into();
            false
        }
        Err(fault) => {
            end = fault.code().into();
            false
        }
    };
    for piece in pieces {
        let mut input = *piece;
        while take(client.read(&mut input)) {}
    }
    if eof {
        take(client.eof());
    }
    (status, body, end)
}

#[test]
fn answers_are_read_to_their_end_and_not_beyond() {
    type Row<'a> = (&'a str, &'a str, bool, Option<u16>, &'a str, &'a str);
    let table: &[Row<'_>] = &[
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", false, Some(200), "hi", "end"),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", false, Some(200), "hi", "waits"),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
            true,
            Some(200),
            "hi",
            "body_cut",
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, Some(200), "", "end"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", false, Some(204), "", "end"),
        ("GET", "HTTP/1.1 200 OK\r\n\r\nhi", true, Some(200), "hi", "end"),
        ("GET", "HTTP/1.1 200 OK\r\n\r\nhi", false, Some(200), "hi", "waits"),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            false,
            Some(200),
            "hi",
            "end",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
            true,
            Some(200),
            "hi",
            "body_cut",
        ),
        (
            "GET",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 F\r\nContent-Length: 0\r\n\r\n",
            false,
            Some(403),
            "",
            "end",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            false,
            None,
            "",
            "bad_framing",
        ),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
            false,
            None,
            "",
            "bad_framing",
        ),
        ("GET", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", false, None, "", "bad_request"),
        ("GET", "HTTP/1.1 099 OK\r\n\r\n", false, None, "", "bad_request"),
        ("GET", "SSH-2.0-OpenSSH\r\n\r\n", false, None, "", "bad_version"),
        ("GET", "", true, None, "", "body_cut"),
        ("GET", "HTTP/1.1 20", true, None, "", "body_cut"),
    ];
    for (method, input, eof, status, body, end) in table {
        let got = outcome(&mut asked(method), &[input.as_bytes()], *eof);
        assert_eq!(got, (*status, body.as_bytes().to_vec(), (*end).to_string()), "{input:?}");
        let bytes: Vec<&[u8]> = input.as_bytes().chunks(1).collect();
        assert_eq!(outcome(&mut asked(method), &bytes, *eof), got, "{input:?} byte by byte");
    }
}

#[test]
fn a_connection_is_used_again_only_when_both_sides_are_done() {
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut client = asked("GET");
    outcome(&mut client, &[ok], false);
    assert!(client.is_idle());
    let mut client = asked("GET");
    outcome(
        &mut client,
        &[b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"],
        false,
    );
    assert!(!client.is_idle());
    let mut client = Client::new();
    client.request(&outgoing("POST", Payload::Sized(3)), &mut Vec::new());
    outcome(&mut client, &[ok], false);
    assert!(!client.is_idle(), "answered before the body was whole");
}

#[test]
fn an_answer_nobody_asked_for_is_a_fault() {
    let mut client = Client::new();
    let mut input = &b"HTTP/1.1 200 OK\r\n\r\n"[..];
    assert!(client.read(&mut input).is_err());
    assert!(!client.is_idle());
}

/// Both machines wired together: what one writes the other reads.
fn exchange(method: &str, body: &[u8], cut: usize, chunked: bool) -> (String, Vec<u8>) {
    let (mut client, mut conn) = (Client::new(), Conn::new(Limits::default(), Now::default()));
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let payload = if chunked { Payload::Chunked } else { Payload::Sized(body.len() as u64) };
    client.request(&outgoing(method, payload), &mut up);
    for piece in body.chunks(cut) {
        client.send(piece, &mut up);
    }
    client.finish(&mut up);
    let (mut log, mut seen) = (String::new(), Vec::new());
    let mut input = up.as_slice();
    while let Some(event) = conn.read(Now::default(), &mut input, &mut down) {
        match event {
            Event::Head(request) => log = format!("{} {}", request.method, request.target),
            Event::Body(data) => seen.extend_from_slice(data),
            Event::End => {
                let payload =
                    if chunked { Payload::Chunked } else { Payload::Sized(seen.len() as u64) };
                let response = Response { status: 200, headers: &[], payload };
                conn.respond(Now::default(), &response, &mut down);
                for piece in seen.chunks(cut) {
                    conn.send(piece, &mut down);
                }
                conn.finish(Now::default(), &mut down);
            }
            Event::Raw(_) | Event::Fault(_) => panic!("{event:?}"),
        }
    }
    assert!(input.is_empty() && conn.is_idle());
    let (status, echoed, end) = outcome(&mut client, &[&down], false);
    assert_eq!((status, end.as_str()), (Some(200), "end"));
    assert!(client.is_idle());
    (log, echoed)
}

#[test]
fn what_one_side_writes_the_other_reads() {
    fn survives(body: Vec<u8>, cut: u8, chunked: bool) -> bool {
        let (log, echoed) = exchange("POST", &body, usize::from(cut) + 1, chunked);
        log == "POST /x" && echoed == body
    }
    quickcheck::quickcheck(survives as fn(Vec<u8>, u8, bool) -> bool);
}
