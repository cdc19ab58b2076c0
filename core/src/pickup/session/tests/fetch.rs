//! Fetches: what is answered, what is verified, and how their end is told.

use super::*;
use crate::pickup::{FetchAsk, FetchEnd, Signed, digest};

const TOKEN: [u8; 32] = [0xab; 32];

fn request(more: &str) -> String {
    let token = Token::new(TOKEN).text();
    signed("/buffer/fetch", &format!("X-Nodus-Token: {token}\r\n{more}"))
}

fn ask(bench: &mut Bench) -> (TransferNo, FetchAsk) {
    match bench.event() {
        Event::Fetch { ticket, ask } => (ticket, *ask),
        other => panic!("{other:?}"),
    }
}

/// A session that was asked for `data` and is to serve it.
fn serving(data: &[u8], stored: &[u8], more: &str, window: Option<u64>) -> Bench {
    let mut bench = Bench::new();
    bench.window = window;
    bench.files.insert(17, File { data: stored.to_vec(), open: false });
    bench.feed(request(more));
    let (ticket, _) = ask(&mut bench);
    let (sha256, blake3) = digests(data);
    let (body, size) = (Body::Blob(BlobNo(17)), data.len() as u64);
    let serve = Box::new(Serve { shard: shard(), redemption: 44, body, size, sha256, blake3 });
    bench.answer(Answer::Serve { ticket, serve });
    bench
}

/// Head and body of the answer.
fn parts(bench: &Bench) -> (String, Vec<u8>) {
    let end = bench.out.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8(bench.out[..end].to_vec()).unwrap(), bench.out[end..].to_vec())
}

fn ended(bench: &mut Bench) -> FetchEnd {
    loop {
        match bench.event() {
            Event::FetchEnded { redemption: 44, end } => return end,
            Event::FetchMoved { redemption: 44 } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_node_is_asked_with_what_was_signed() {
    let mut bench = Bench::new();
    bench.feed(request("Range: bytes=12-\r\n"));
    let (ticket, ask) = ask(&mut bench);
    let signed = Signed {
        node: "n".into(),
        key: sign::public_key(&SECRET),
        timestamp: 1_796_064_245,
        nonce: [7; 16],
    };
    let token = Some(Token::new(TOKEN).hash());
    assert_eq!(ask, FetchAsk { signed, token, from: Some(12) });
    for (refusal, status) in [
        (PickupRefusal::TokenUsed, 409),
        (PickupRefusal::Forbidden, 403),
        (PickupRefusal::TokenExpired, 410),
    ] {
        let mut bench = Bench::new();
        bench.feed(request(""));
        bench.refuse(ticket.0, refusal, None);
        assert_eq!(bench.status().0, status);
    }
    bench.refuse(ticket.0, PickupRefusal::Range, Some(10));
    let (status, text) = bench.status();
    assert!(status == 416 && text.contains("\r\nContent-Range: bytes */10\r\n"), "{text}");
}

#[test]
fn what_is_no_token_is_told_apart_by_nobody() {
    for token in ["x", &"AB".repeat(32), &"ab".repeat(31)] {
        let mut bench = Bench::new();
        bench.feed(signed("/buffer/fetch", &format!("X-Nodus-Token: {token}\r\n")));
        assert_eq!(ask(&mut bench).1.token, None, "the node answers as to an unknown one");
    }
    let mut bench = Bench::new();
    bench.feed(signed("/buffer/fetch", ""));
    assert_eq!(bench.status().0, 400);
}

#[test]
fn a_range_that_is_not_understood_spends_nothing() {
    for range in [
        "bytes=0-1",
        "bytes=-5",
        "bytes=",
        "bytes=-",
        "bytes=1-,2-",
        "bytes=+1-",
        "bytes=01-",
        "items=1-",
        "bytes=18446744073709551616-",
        "bytes =1-",
        "Bytes=1-",
    ] {
        let mut bench = Bench::new();
        bench.feed(request(&format!("Range: {range}\r\n")));
        assert_eq!(bench.status().0, 400, "{range}");
        assert!(bench.events.is_empty());
    }
    let mut bench = Bench::new();
    bench.feed(request("Range: bytes=1-\r\nRange: bytes=2-\r\n"));
    assert_eq!(bench.status().0, 400);
}

#[test]
fn whole_content_is_served_verified_and_its_end_told() {
    for len in [0, 1, 262_144, 262_145, 1_000_000] {
        let data = content(len);
        let (sha256, blake3) = digests(&data);
        let mut bench = serving(&data, &data, "", None);
        let (head, body) = parts(&bench);
        assert!(body == data, "{len}");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
        let digests = digest::field(&sha256, &blake3);
        for field in [
            format!("Content-Length: {len}"),
            format!("Content-Digest: {digests}"),
            format!("Repr-Digest: {digests}"),
            "Accept-Ranges: bytes".into(),
            "X-Nodus-File-Id: f/1".into(),
            "X-Nodus-Version: 2".into(),
            "X-Nodus-Shard-Index: 3".into(),
            "X-Nodus-Redemption: 44".into(),
        ] {
            assert!(head.contains(&format!("\r\n{field}\r\n")), "{field} in {head}");
        }
        assert_eq!(ended(&mut bench), FetchEnd::Whole);
        assert!(bench.events.is_empty() && !bench.closed && is_small(&bench));
    }
}

#[test]
fn a_part_is_served_from_where_it_is_wanted() {
    let data = content(700_000);
    for (from, range) in [
        (0, "bytes 0-699999/700000"),
        (1, "bytes 1-699999/700000"),
        (699_999, "bytes 699999-699999/700000"),
        (700_000, "bytes */700000"),
    ] {
        let mut bench = serving(&data, &data, &format!("Range: bytes={from}-\r\n"), None);
        let (head, body) = parts(&bench);
        assert!(body == data[from..]);
        assert!(head.starts_with("HTTP/1.1 206 Partial Content\r\n"));
        assert!(head.contains(&format!("\r\nContent-Range: {range}\r\n")), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", 700_000 - from)));
        assert!(head.contains("\r\nRepr-Digest: ") && !head.contains("Content-Digest"));
        assert_eq!(ended(&mut bench), FetchEnd::Whole);
    }
}

#[test]
fn it_is_whole_when_the_kernel_has_the_last_byte() {
    let data = content(50_000);
    let mut bench = serving(&data, &data, "", Some(10_000));
    let (head, _) = parts(&bench);
    let total = head.len() as u64 + 50_000;
    assert!(bench.events.is_empty());
    // The next request waits.
    bench.feed(request(""));
    bench.window = Some(total - 1);
    bench.settle();
    assert!(bench.events.is_empty());
    bench.window = Some(total);
    bench.settle();
    assert_eq!(ended(&mut bench), FetchEnd::Whole);
    assert!(matches!(bench.event(), Event::Fetch { .. }));
}

#[test]
fn progress_is_told_four_times_a_second_and_never_kept_back() {
    let data = content(1 << 20);
    let mut bench = serving(&data, &data, "", Some(1_000));
    let moved = |bench: &Bench| {
        bench.events.iter().filter(|e| matches!(e, Event::FetchMoved { .. })).count()
    };
    for step in 1..=22u64 {
        bench.now.mono = bench.now.mono.after(Duration::from_millis(50));
        bench.window = Some(1_000 + step * 1_000);
        bench.settle();
    }
    assert_eq!((moved(&bench), bench.events.len()), (4, 4), "for 1100 ms");
    // What has moved since is told although nothing moves any more, and once.
    bench.pass(1);
    assert_eq!(moved(&bench), 5);
    bench.pass(5);
    assert_eq!(moved(&bench), 5);
}

#[test]
fn a_node_that_takes_nothing_is_left_after_30_s() {
    let data = content(1 << 20);
    let mut bench = serving(&data, &data, "", Some(1_000));
    let (head, _) = parts(&bench);
    bench.pass(29);
    assert!(bench.events.is_empty());
    bench.window = Some(5_000);
    bench.settle();
    bench.pass(29);
    assert!(!bench.closed);
    bench.pass(1);
    assert!(bench.closed);
    assert!(bench.cut, "what waits for the kernel is dropped: it could be all the rest");
    let moved = 5_000 - head.len() as u64;
    assert_eq!(ended(&mut bench), FetchEnd::Broken { moved });
    assert!(bench.out.len() < 400_000, "what is read ahead is bounded");
}

#[test]
fn content_that_is_not_what_was_stored_is_never_received_whole() {
    let data = content(600_000);
    let mut flipped = data.clone();
    flipped[10] ^= 1;
    let mut bench = serving(&data, &flipped, "", None);
    assert!(matches!(ended(&mut bench), FetchEnd::Unreadable(StoreFault::Corrupt(_))));
    let (head, body) = parts(&bench);
    assert!(head.contains("Content-Length: 600000") && body.len() < 600_000);
    assert!(bench.closed);
    // Small or short or gone: known before anything is said.
    for (data, stored) in [(&data[..100], &flipped[..100]), (&data[..100], &data[..99])] {
        let mut bench = serving(data, stored, "", None);
        assert!(matches!(ended(&mut bench), FetchEnd::Unreadable(StoreFault::Corrupt(_))));
        let (status, text) = bench.status();
        assert!(status == 500 && text.contains("\"corrupt\""), "{text}");
        assert!(!bench.closed);
    }
    let mut bench = Bench::new();
    bench.feed(request(""));
    let (ticket, _) = ask(&mut bench);
    let (sha256, blake3) = digests(b"x");
    let (body, size) = (Body::Blob(BlobNo(99)), 1);
    let serve = Box::new(Serve { shard: shard(), redemption: 44, body, size, sha256, blake3 });
    bench.answer(Answer::Serve { ticket, serve });
    assert!(matches!(ended(&mut bench), FetchEnd::Unreadable(StoreFault::Missing(_))));
    assert_eq!(bench.status().0, 500);
    // A file that becomes shorter on the way.
    let mut bench = serving(&data, &data[..500_000], "Range: bytes=100-\r\n", None);
    assert!(matches!(ended(&mut bench), FetchEnd::Unreadable(_)));
    assert!(bench.closed);
}

#[test]
fn a_fetch_that_lost_its_right_is_reset() {
    let data = content(1 << 20);
    let mut bench = serving(&data, &data, "", Some(1_000));
    bench.command(Command::ResetFetch { redemption: 43 });
    assert!(!bench.closed, "another one");
    bench.command(Command::ResetFetch { redemption: 44 });
    assert!(bench.closed);
    assert!(matches!(ended(&mut bench), FetchEnd::Broken { .. }));
}

#[test]
fn a_node_that_half_closes_still_gets_all_of_it() {
    let data = content(400_000);
    let mut bench = serving(&data, &data, "", Some(1_000));
    bench.eof();
    bench.window = None;
    bench.settle();
    assert_eq!(ended(&mut bench), FetchEnd::Whole);
    assert!(bench.closed && parts(&bench).1 == data);
}
