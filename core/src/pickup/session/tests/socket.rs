//! The WebSocket: upgrade, registration, notifications, acks, and everything that ends it.

use super::*;
use crate::ledger::rows_pickup::AckStatus;
use crate::pickup::ws::{Message, Reader, Side};
use crate::pickup::{AckAsk, Notify, Signed};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const MASK: Option<[u8; 4]> = Some([9, 8, 7, 6]);
const REGISTER: &str = r#"{"type":"register","node_id":"n"}"#;

fn upgrade(more: &str) -> String {
    signed(
        "/ws",
        &format!(
            "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{more}"
        ),
    )
}

/// A session that is upgraded.
fn upgraded() -> Bench {
    let mut bench = Bench::new();
    bench.feed(upgrade("Sec-WebSocket-Extensions: permessage-deflate\r\n"));
    let Event::Subscribe { ticket, signed } = bench.event() else { panic!("an upgrade") };
    let key = sign::public_key(&SECRET);
    let (node, timestamp, nonce) = ("n".into(), 1_796_064_245, [7; 16]);
    assert_eq!(signed, Signed { node, key, timestamp, nonce });
    assert!(bench.out.is_empty(), "not before the nonce is spent");
    bench.answer(Answer::Upgraded { ticket });
    let text = bench.text();
    assert!(text.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{text}");
    assert!(text.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{text}");
    assert!(!text.contains("Extensions"), "nothing is negotiated");
    bench
}

fn registered() -> Bench {
    let mut bench = upgraded();
    say(&mut bench, REGISTER);
    let Event::Register { tokens } = bench.event() else { panic!("a registration") };
    assert!((32..40).contains(&tokens.len()));
    assert!(bench.out.is_empty());
    bench.answer(Answer::Registered { session: 6, owed: 1 });
    assert_eq!(texts(&mut bench), [r#"{"type":"registered","node_id":"n","session":6,"owed":1}"#]);
    bench
}

fn say(bench: &mut Bench, text: &str) {
    let mut frame = Vec::new();
    ws::text(text, MASK, &mut frame);
    bench.feed(frame);
}

fn heard(bench: &mut Bench) -> Vec<Message> {
    let mut reader = Reader::new(Side::Client);
    let out = core::mem::take(&mut bench.out);
    let mut input = out.as_slice();
    let mut messages = Vec::new();
    while let Some(message) = reader.read(&mut input).unwrap() {
        messages.push(message);
    }
    messages
}

fn texts(bench: &mut Bench) -> Vec<String> {
    let text = |message| match message {
        Message::Text(text) => text,
        other => panic!("{other:?}"),
    };
    heard(bench).into_iter().map(text).collect()
}

/// The code it was closed with, if it was.
fn code(bench: &mut Bench) -> Option<u16> {
    match heard(bench).pop() {
        Some(Message::Close(code, _)) => {
            assert!(bench.closed);
            code
        }
        _ => None,
    }
}

fn notify(handle: u64) -> Answer {
    let (sha256, blake3) = digests(b"x");
    Answer::Notify(Box::new(Notify {
        shard: shard(),
        buffer: Body::Blob(BlobNo(17)),
        size: 6,
        sha256,
        blake3,
        handle,
        token_expires_at: UnixMillis(0),
        redemption: 4,
    }))
}

const ACK: &str = r#"{"type":"shard_ack","file_id":"f/1","version_number":2,"shard_index":3,"redemption":4,"status":"failed","reason":"r"}"#;

fn ack() -> AckAsk {
    AckAsk { shard: shard(), redemption: 4, status: AckStatus::Failed, reason: "r".into() }
}

#[test]
fn a_bad_upgrade_is_refused() {
    let table = [
        ("Upgrade: WebSocket", "Upgrade: h2c", 426),
        ("keep-alive, Upgrade", "keep-alive", 426),
        ("Version: 13", "Version: 8", 426),
        (KEY, "short", 400),
        ("Sec-WebSocket-Key", "X-Key", 400),
        ("X-Nodus-Signature", "X-Signature", 401),
        ("X-Nodus-Nonce: 07", "X-Nodus-Nonce: 08", 401),
    ];
    for (from, to, expected) in table {
        let mut bench = Bench::new();
        bench.feed(upgrade("").replace(from, to));
        assert_eq!(bench.status().0, expected, "{to}");
        assert!(bench.events.is_empty());
    }
    let mut bench = Bench::new();
    bench.feed(upgrade("Origin: https://relay.example\r\n"));
    assert_eq!(bench.status().0, 403, "nothing here is for browsers");
    let mut bench = Bench::new();
    bench.feed(upgrade(""));
    let Event::Subscribe { ticket, .. } = bench.event() else { panic!("an upgrade") };
    bench.refuse(ticket.0, PickupRefusal::Unauthorized, None);
    assert_eq!(bench.status().0, 401, "a replayed nonce");
}

#[test]
fn register_comes_first() {
    let mut bench = upgraded();
    for text in [ACK, "{}", r#"{"type":"x"}"#] {
        say(&mut bench, text);
        let said = texts(&mut bench);
        assert!(said[0].contains(r#""code":"not_registered""#), "{said:?}");
    }
    say(&mut bench, r#"{"type":"register","node_id":"m"}"#);
    let said = heard(&mut bench);
    assert!(matches!(&said[0], Message::Text(text) if text.contains("wrong_node")));
    assert!(matches!(&said[1], Message::Close(Some(1008), _)));
    assert!(bench.closed && bench.events.is_empty());
}

#[test]
fn notifications_carry_tokens_that_only_the_session_knows() {
    let mut bench = upgraded();
    say(&mut bench, REGISTER);
    let Event::Register { tokens } = bench.event() else { panic!("a registration") };
    bench.answer(Answer::Registered { session: 6, owed: 1 });
    texts(&mut bench);
    let offer = tokens[1];
    bench.answer(notify(offer.handle));
    let said = texts(&mut bench);
    let token = Token::new([2; 32]);
    assert_eq!(token.hash(), offer.hash);
    assert!(said[0].contains(&format!("\"token\":\"{}\"", token.text())), "{said:?}");
    assert!(said[0].contains(r#""buffer_id":"blob-17","size":6,"#), "{said:?}");
    let Event::Tokens(more) = bench.event() else { panic!("more tokens") };
    assert_eq!(more.len(), 1);
    assert!(tokens.iter().all(|t| t.handle != more[0].handle && t.hash != more[0].hash));
    // A token goes out once.
    bench.answer(notify(offer.handle));
    assert!(bench.out.is_empty() && bench.events.is_empty());
    assert!(!format!("{:?}", bench.session).contains(&token.text()), "and into no log");
}

#[test]
fn every_ack_gets_one_answer() {
    let mut bench = registered();
    say(&mut bench, ACK);
    assert_eq!(bench.event(), Event::Ack(Box::new(ack())));
    bench.answer(Answer::State { shard: shard(), redemption: 4, state: ShardState::RelayBuffered });
    let state = r#"{"type":"shard_state","file_id":"f/1","version_number":2,"shard_index":3,"redemption":4,"state":"RELAY_BUFFERED"}"#;
    assert_eq!(texts(&mut bench), [state]);
    let (refusal, text) = (PickupRefusal::StaleAck, "old".into());
    bench.command(Command::AckRefused { ack: Box::new(ack()), refusal, text });
    let error = r#"{"type":"error","code":"stale_ack","message":"old","file_id":"f/1","version_number":2,"shard_index":3,"redemption":4}"#;
    assert_eq!(texts(&mut bench), [error]);
}

#[test]
fn what_is_not_understood_is_answered_and_changes_nothing() {
    let mut bench = registered();
    let deep = "[".repeat(60_000);
    let long = ACK.replace("\"r\"", &format!("\"{}\"", "x".repeat(257)));
    for (text, code) in [
        ("", "bad_message"),
        ("7", "bad_message"),
        (&deep, "bad_message"),
        (&long, "bad_message"),
        (&ACK.replace("f/1", "f 1"), "bad_message"),
        (&ACK.replace(":4", ":\"4\""), "bad_message"),
        (r#"{"type":"hello"}"#, "unknown_type"),
        (REGISTER, "already_registered"),
    ] {
        say(&mut bench, text);
        let said = texts(&mut bench);
        assert!(said[0].contains(&format!("\"code\":\"{code}\"")), "{said:?}");
        assert!(bench.events.is_empty() && !bench.closed);
    }
    say(&mut bench, ACK);
    assert!(matches!(bench.event(), Event::Ack(_)));
}

#[test]
fn faults_of_framing_close_with_their_code() {
    let raw = |first: u8, payload: &[u8]| {
        let mut frame = Vec::new();
        ws::ping(payload, MASK, &mut frame);
        frame[0] = first;
        frame
    };
    let mut unmasked = Vec::new();
    ws::text("x", None, &mut unmasked);
    let table = [
        (unmasked, 1002),
        (raw(0xc1, b"x"), 1002),
        (raw(0x09, b"x"), 1002),
        (raw(0x82, b"x"), 1003),
        (raw(0x81, b"\xff"), 1007),
        ([&[0x81, 0xff, 0x7f][..], &[0xff; 7]].concat(), 1009),
    ];
    for (frame, expected) in table {
        let mut bench = registered();
        bench.feed(&frame);
        assert_eq!(code(&mut bench), Some(expected));
        assert!(bench.events.is_empty());
    }
    for (sent, expected) in [(1000, 1000), (4001, 4001)] {
        let mut bench = registered();
        let mut frame = Vec::new();
        ws::close(sent, "bye", MASK, &mut frame);
        bench.feed(&frame);
        assert_eq!(code(&mut bench), Some(expected), "a goodbye is answered in kind");
    }
}

#[test]
fn pings_are_answered_up_to_a_rate() {
    let mut ping = Vec::new();
    ws::ping(b"hi", MASK, &mut ping);
    let mut bench = registered();
    for _ in 0..10 {
        bench.feed(ping.repeat(100));
        assert_eq!(heard(&mut bench), vec![Message::Pong(b"hi".to_vec()); 100]);
        bench.pass(10);
        heard(&mut bench);
    }
    bench.feed(ping.repeat(101));
    assert_eq!(code(&mut bench), Some(1008));
}

#[test]
fn silence_is_asked_after_20_s_and_ends_after_60() {
    let mut bench = registered();
    bench.pass(19);
    assert!(bench.out.is_empty());
    bench.pass(1);
    assert_eq!(heard(&mut bench), [Message::Ping(Vec::new())]);
    bench.pass(20);
    assert_eq!(heard(&mut bench), [Message::Ping(Vec::new())]);
    bench.pass(19);
    assert!(!bench.closed);
    bench.pass(1);
    assert!(bench.closed);
    // A node that answers lives.
    let mut bench = registered();
    let mut pong = Vec::new();
    ws::pong(b"", MASK, &mut pong);
    for _ in 0..20 {
        bench.pass(20);
        assert_eq!(heard(&mut bench), [Message::Ping(Vec::new())]);
        bench.feed(&pong);
    }
    assert!(!bench.closed && is_small(&bench));
}

#[test]
fn a_node_that_does_not_read_is_left() {
    let mut bench = registered();
    bench.window = Some(0);
    let mut sent = 0;
    while !bench.closed {
        say(&mut bench, "{}");
        sent += 1;
        assert!(sent < 10_000);
    }
    assert!((100_000..200_000).contains(&bench.out.len()), "{}", bench.out.len());
}

#[test]
fn acks_are_not_taken_without_end() {
    let mut bench = registered();
    let mut sent = 0;
    while bench.session.wants_read() {
        say(&mut bench, ACK);
        sent += 1;
    }
    assert_eq!(sent, 256);
    let (shard, redemption, state) = (shard(), 4, ShardState::RelayBuffered);
    bench.answer(Answer::State { shard, redemption, state });
    assert!(bench.session.wants_read());
}

#[test]
fn the_node_ends_it_with_its_code() {
    for (sent, reason) in [(4001, "replaced"), (1008, "revoked"), (1001, "stopping")] {
        let mut bench = registered();
        bench.command(Command::CloseWs { code: sent, text: reason.into() });
        assert_eq!(code(&mut bench), Some(sent));
    }
    let mut bench = registered();
    let (why, text) = (Goodbye::Stopping, "this site is stopping".into());
    bench.step(SessionInput::Command(SessionCommand::Close { why, text }));
    assert_eq!(code(&mut bench), Some(1001));
    let mut bench = registered();
    bench.eof();
    assert!(bench.closed);
}

#[test]
fn an_idle_node_costs_little() {
    let mut bench = registered();
    for _ in 0..100 {
        say(&mut bench, ACK);
        bench.event();
        let (shard, redemption, state) = (shard(), 4, ShardState::RelayBuffered);
        bench.answer(Answer::State { shard, redemption, state });
    }
    assert!(bench.session.held.is_empty());
    assert!(core::mem::size_of::<PickupSession>() < 2_048);
    assert!(core::mem::size_of::<Socket>() < 512);
}
