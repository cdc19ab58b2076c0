//! Uploads: small and large, digests, reservations, refusals.

use super::*;
use crate::http::rfc3339;
use crate::pickup::{BrokenUpload, UploadAsk, UploadKind, digest};
use crate::session::Content;

fn post(more: &str, body: &[u8]) -> Vec<u8> {
    let length = format!("Content-Length: {}\r\n", body.len());
    let head = format!("POST /buffer/upload HTTP/1.1\r\n{}{length}{more}\r\n", fields());
    [head.as_bytes(), body].concat()
}

fn ask(bench: &mut Bench) -> UploadAsk {
    match bench.event() {
        Event::Upload { ask, .. } => *ask,
        other => panic!("{other:?}"),
    }
}

fn broken(bench: &mut Bench) -> BrokenUpload {
    match bench.event() {
        Event::Broken { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn small_content_is_parked_hashed_and_asked_at_once() {
    for len in [0, 1, 1_000] {
        let body = content(len);
        let (sha256, blake3) = digests(&body);
        let mut bench = Bench::new();
        bench.feed(post("Expect: 100-continue\r\n", b"").replace_body(&body));
        let asked = ask(&mut bench);
        let handle = Handle { conn: ConnId { slot: 3, generation: 7 }, number: 1 };
        let whole = Some((Content::Parked(handle), len as u64, sha256, blake3));
        assert_eq!((asked.whole, asked.size), (whole, Some(len as u64)));
        assert_eq!((asked.kind, asked.complete, asked.shard), (UploadKind::Post, true, shard()));
        assert_eq!(asked.client, crate::pickup::token::Token::parse(BEARER).map(|t| t.hash()));
        assert!(bench.parked.len() == 1 && bench.parked[0] == body);
        assert_eq!(bench.text(), "HTTP/1.1 100 Continue\r\n\r\n");
        bench.answer(Answer::Buffered { ticket: TransferNo(1), new: true, view: view(&body) });
        let (status, text) = bench.status();
        let expected = format!(
            "{{\"buffer_id\":\"blob-17\",\"state\":\"RELAY_BUFFERED\",\"size\":{len},\"digest\":\
             {{\"sha-256\":\"{sha256}\",\"blake3\":\"{blake3}\"}},\"expires_at\":\"{}\"}}\n",
            rfc3339(UnixMillis(1_796_064_245_123))
        );
        assert_eq!(status, 201);
        assert!(text.ends_with(&expected), "{text}");
        assert!(!bench.closed && is_small(&bench));
    }
}

trait ReplaceBody {
    fn replace_body(self, body: &[u8]) -> Vec<u8>;
}

impl ReplaceBody for Vec<u8> {
    fn replace_body(self, body: &[u8]) -> Vec<u8> {
        let head = String::from_utf8(self).unwrap();
        let length = format!("Content-Length: {}\r\n", body.len());
        [head.replace("Content-Length: 0\r\n", &length).as_bytes(), body].concat()
    }
}

#[test]
fn digests_that_are_given_are_checked() {
    let body = b"hello";
    let (sha256, blake3) = digests(body);
    let good = digest::field(&sha256, &blake3);
    let (one, two) = good.split_once(", ").unwrap();
    let bad = digest::field(&sha256, &BlobDigest([0; 32]));
    for name in ["Content-Digest", "Repr-Digest"] {
        for value in [good.as_str(), one, two, "md5=:AAAA:", &format!("{two};x=1, md5=:AAAA:")] {
            let mut bench = Bench::new();
            bench.feed(post(&format!("{name}: {value}\r\n"), body));
            let asked = ask(&mut bench);
            assert!(asked.whole.is_some());
            assert_eq!(asked.sha256.is_some(), value.contains("sha-256"), "{value}");
        }
        let mut bench = Bench::new();
        bench.feed(post(&format!("{name}: {bad}\r\n"), body));
        let (status, text) = bench.status();
        assert_eq!((status, bench.events.len(), bench.parked.len()), (400, 0, 0), "{text}");
        assert!(text.contains("digest_mismatch"));
        assert!(!bench.closed, "the body is whole: the connection goes on");
    }
    let mut bench = Bench::new();
    bench.feed(post(&format!("Content-Digest: {good}\r\nRepr-Digest: {bad}\r\n"), body));
    assert_eq!(bench.status().0, 400);
}

#[test]
fn large_content_is_not_read_before_it_is_granted() {
    let body = content(10_000);
    let (sha256, blake3) = digests(&body);
    let mut bench = Bench::new();
    bench.feed(post("Expect: 100-continue\r\n", b"").replace_head(10_000));
    let asked = ask(&mut bench);
    assert_eq!((asked.whole, asked.size, asked.body), (None, Some(10_000), Some(10_000)));
    assert!(bench.out.is_empty() && !bench.session.wants_read());
    bench.grant(1, 5, 0, &[], 10_000);
    assert_eq!(bench.text(), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(bench.session.wants_read() && bench.requests.is_empty(), "no file yet");
    bench.feed(&body[..4_000]);
    bench.feed(&body[4_000..]);
    let whole =
        Event::Whole { ticket: TransferNo(1), blob: BlobNo(5), size: 10_000, sha256, blake3 };
    assert_eq!(bench.event(), whole);
    assert_eq!(bench.files[&5].data, body);
    assert_eq!(bench.requests, ["Create(5, 0)", "Write(5, 10000 B)", "Finish(5)"]);
    bench.answer(Answer::Buffered { ticket: TransferNo(1), new: false, view: view(&body) });
    assert_eq!(bench.status().0, 200);
}

trait ReplaceHead {
    fn replace_head(self, len: usize) -> Vec<u8>;
}

impl ReplaceHead for Vec<u8> {
    fn replace_head(self, len: usize) -> Vec<u8> {
        let head = String::from_utf8(self).unwrap();
        head.replace("Content-Length: 0\r\n", &format!("Content-Length: {len}\r\n")).into_bytes()
    }
}

#[test]
fn a_refused_upload_is_answered_at_once_and_its_body_never_parsed() {
    let mut bench = Bench::new();
    bench.feed(post("", b"").replace_head(100_000));
    ask(&mut bench);
    bench.refuse(1, PickupRefusal::Quota, None);
    let (status, text) = bench.status();
    assert_eq!(status, 507);
    assert!(text.contains("\r\nConnection: close\r\n") && text.contains("Retry-After: 7"));
    assert!(!bench.closed, "what arrives is dropped for a while");
    let evil = format!("HEAD /buffer/upload HTTP/1.1\r\n{}\r\n", fields());
    bench.feed(vec![b'x'; 60_000]);
    bench.feed(evil.as_bytes());
    assert!(bench.events.is_empty() && bench.out.is_empty());
    bench.feed(vec![b'x'; 10_000]);
    assert!(bench.closed, "64 KiB are enough");
    let mut bench = Bench::new();
    bench.feed(post("", b"").replace_head(100_000));
    bench.refuse(1, PickupRefusal::Quota, None);
    bench.pass(2);
    assert!(bench.closed, "and so are 2 s");
    // A client that waits for 100 sends no body.
    let mut bench = Bench::new();
    bench.feed(post("Expect: 100-continue\r\n", b"").replace_head(100_000));
    bench.refuse(1, PickupRefusal::Conflict, None);
    assert!(bench.closed && bench.status().0 == 409);
}

#[test]
fn large_content_that_is_not_right_is_given_up() {
    let body = content(5_000);
    let wrong = digest::field(&Sha256Digest([1; 32]), &digests(&body).1);
    let mut bench = Bench::new();
    bench.feed(post(&format!("Repr-Digest: {wrong}\r\n"), b"").replace_head(5_000));
    bench.grant(1, 5, 0, &[], 5_000);
    assert_eq!(ask(&mut bench).sha256, Some(Sha256Digest([1; 32])));
    bench.feed(&body);
    assert_eq!(broken(&mut bench), BrokenUpload::Mismatch);
    assert!(bench.out.is_empty(), "the node has the last word");
    bench.refuse(1, PickupRefusal::DigestMismatch, None);
    let (status, text) = bench.status();
    assert!(status == 400 && text.contains("digest_mismatch"));
    assert!(!bench.files.get(&5).is_some_and(|file| file.open) && !bench.closed);
}

fn chunk(data: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat()
}

fn chunked(more: &str) -> String {
    let head = format!("POST /buffer/upload HTTP/1.1\r\n{}", fields());
    format!("{head}Transfer-Encoding: chunked\r\n{more}\r\n")
}

#[test]
fn chunked_content_is_gathered_while_it_is_small() {
    let mut bench = Bench::new();
    bench.feed(chunked(""));
    bench.feed([chunk(&content(900)), b"0\r\n\r\n".to_vec()].concat());
    let asked = ask(&mut bench);
    assert_eq!((asked.body, asked.size), (None, Some(900)));
    assert!(asked.whole.is_some());
}

#[test]
fn chunked_content_reserves_as_it_goes() {
    let body = content(40_000_000);
    let mut bench = Bench::new();
    bench.feed(chunked(""));
    bench.feed(chunk(&body[..2_000]));
    let asked = ask(&mut bench);
    assert_eq!((asked.body, asked.size, asked.whole), (None, None, None));
    assert!(!bench.session.wants_read());
    bench.grant(1, 5, 0, &[], 16 << 20);
    let mut reserved = 16u64 << 20;
    for piece in body[2_000..].chunks(500_000) {
        assert!(bench.session.wants_read());
        bench.feed(chunk(piece));
        while let Some(event) = bench.events.pop_front() {
            match event {
                Event::Extend { ticket: TransferNo(1), blob: BlobNo(5) } => {
                    reserved += 16 << 20;
                    bench.grant(1, 5, 0, &[], reserved);
                }
                Event::Checkpoint { offset, .. } => assert_eq!(offset % (16 << 20), 0),
                other => panic!("{other:?}"),
            }
        }
        assert!(bench.files.get(&5).is_none_or(|file| file.data.len() as u64 <= reserved));
    }
    bench.feed(b"0\r\n\r\n");
    assert!(matches!(bench.event(), Event::Whole { size: 40_000_000, .. }));
    assert!(bench.files[&5].data == body);
}

#[test]
fn nothing_is_written_beyond_what_is_reserved() {
    let body = content(5_000_000);
    let mut bench = Bench::new();
    bench.feed(chunked(""));
    bench.feed(chunk(&body[..2_000_000]));
    ask(&mut bench);
    bench.grant(1, 5, 0, &[], 1_500_000);
    assert!(matches!(bench.event(), Event::Extend { .. }));
    bench.feed(chunk(&body[2_000_000..]));
    bench.feed(b"0\r\n\r\n");
    assert_eq!(bench.files[&5].data.len(), 1_500_000);
    assert!(bench.events.is_empty());
    bench.grant(1, 5, 0, &[], 3_000_000);
    assert!(matches!(bench.event(), Event::Extend { .. }), "asked again until it is enough");
    assert_eq!(bench.files[&5].data.len(), 3_000_000);
    bench.grant(1, 5, 0, &[], 5_000_000);
    assert!(matches!(bench.event(), Event::Whole { size: 5_000_000, .. }));
}

#[test]
fn an_extension_that_is_refused_keeps_what_arrived() {
    let body = content(3_000_000);
    let mut bench = Bench::new();
    bench.session.every = 1 << 20;
    bench.feed(chunked(""));
    bench.feed(chunk(&body));
    ask(&mut bench);
    bench.grant(1, 5, 0, &[], 2 << 20);
    let Some(Event::Checkpoint { chain, .. }) = bench.events.back().cloned() else {
        panic!("{:?}", bench.events)
    };
    bench.events.retain(|event| !matches!(event, Event::Checkpoint { .. }));
    assert!(matches!(bench.event(), Event::Extend { .. }));
    bench.refuse(1, PickupRefusal::Quota, None);
    assert_eq!(bench.status().0, 507);
    assert_eq!(broken(&mut bench), BrokenUpload::Cut { offset: 2 << 20, chain });
    assert_eq!(bench.requests.last().unwrap(), "Abandon(5)");
}

#[test]
fn content_of_unknown_length_has_an_end() {
    let mut bench = Bench::with(PickupContext { max_upload: 5_000, ..context() });
    bench.feed(chunked(""));
    bench.feed(chunk(&content(4_000)));
    bench.grant(1, 5, 0, &[], 5_000);
    ask(&mut bench);
    assert!(bench.events.is_empty());
    bench.feed(chunk(&content(1_001)));
    let (status, text) = bench.status();
    assert!(status == 413 && text.contains("too_large"), "{text}");
    let BrokenUpload::Cut { offset, chain } = broken(&mut bench) else { panic!("a cut") };
    let seal = digests(&content(4_000)).0;
    assert_eq!((offset, digester::unseal(&chain)), (4_000, Some((seal, &[][..]))));
}

#[test]
fn a_slow_disk_stops_the_socket() {
    let mut bench = Bench::new();
    bench.feed(post("", b"").replace_head(50_000_000));
    bench.grant(1, 5, 0, &[], 50_000_000);
    bench.hold_store = true;
    let mut fed = 0;
    while bench.session.wants_read() {
        bench.feed(content(300_000));
        fed += 300_000;
    }
    assert!((4 << 20..5 << 20).contains(&fed), "{fed}");
    bench.pass(100);
    assert!(bench.out.is_empty(), "nobody is blamed for a slow disk");
    bench.hold_store = false;
    bench.settle();
    assert!(bench.session.wants_read());
    bench.pass(31);
    assert_eq!(bench.status().0, 408, "now the client is slow");
    ask(&mut bench);
    assert!(matches!(broken(&mut bench), BrokenUpload::Cut { offset, .. } if offset == fed));
    assert!(bench.closed);
}

#[test]
fn a_disk_that_fails_is_told() {
    let mut bench = Bench::new();
    bench.feed(post("", b"").replace_head(5_000));
    bench.grant(1, 5, 0, &[], 5_000);
    ask(&mut bench);
    bench.fail_writes = Some(StoreFault::Full("the disk".into()));
    bench.feed(content(5_000));
    let fault = StoreFault::Full("the disk".into());
    assert_eq!(broken(&mut bench), BrokenUpload::Store(fault));
    bench.refuse(1, PickupRefusal::DiskFull, None);
    assert_eq!(bench.status().0, 507);
}

#[test]
fn the_same_bytes_again_are_not_read_again() {
    let body = content(5_000);
    let mut bench = Bench::new();
    bench.feed(post("Expect: 100-continue\r\n", b"").replace_head(5_000));
    ask(&mut bench);
    bench.answer(Answer::Buffered { ticket: TransferNo(1), new: false, view: view(&body) });
    assert_eq!(bench.status().0, 200);
    assert!(bench.closed && bench.requests.is_empty());
}
