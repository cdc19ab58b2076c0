//! Uploads that stop and go on: exact offsets, checkpoints, and what is read again.

use super::*;
use crate::pickup::{BrokenUpload, UploadKind, digest};

const EVERY: u64 = 4_096;

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.session.every = EVERY;
    bench
}

fn head(method: &str, more: &str) -> String {
    format!("{method} /buffer/upload HTTP/1.1\r\n{}{more}\r\n", fields())
}

fn cut(bench: &mut Bench) -> (u64, Vec<u8>) {
    loop {
        match bench.event() {
            Event::Broken { why: BrokenUpload::Cut { offset, chain }, .. } => {
                return (offset, chain);
            }
            Event::Checkpoint { .. } | Event::Upload { .. } | Event::Extend { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The session after one that broke off when `at` bytes of the body were there: with its files, the offset
/// and the chain that it told.
fn after(body: &[u8], at: usize) -> (Bench, u64, Vec<u8>) {
    let mut bench = bench();
    bench.feed(head("POST", &format!("Content-Length: {}\r\n", body.len())));
    bench.grant(1, 5, 0, &[], body.len() as u64);
    bench.feed(&body[..at]);
    bench.eof();
    let (offset, chain) = cut(&mut bench);
    (Bench { files: bench.files, ..self::bench() }, offset, chain)
}

#[test]
fn checkpoints_are_told_once_they_are_durable() {
    let body = content(20_000);
    let mut bench = bench();
    bench.feed(head("POST", "Content-Length: 20000\r\n"));
    bench.grant(1, 5, 0, &[], 20_000);
    bench.event();
    bench.hold_store = true;
    bench.feed(&body[..9_000]);
    assert!(bench.events.is_empty());
    bench.hold_store = false;
    bench.settle();
    for at in [4_096, 8_192] {
        match bench.event() {
            Event::Checkpoint { ticket: TransferNo(1), blob: BlobNo(5), offset, chain } => {
                assert_eq!(offset, at);
                let resumed = digester::Digester::resume(&chain, EVERY).unwrap();
                assert_eq!(resumed.offset(), at);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(bench.events.is_empty());
}

#[test]
fn a_broken_connection_tells_the_exact_durable_offset() {
    let body = content(20_000);
    for at in [1, 4_095, 4_096, 4_097, 9_000, 19_999] {
        let mut bench = bench();
        bench.feed(head("POST", "Content-Length: 20000\r\n"));
        bench.grant(1, 5, 0, &[], 20_000);
        bench.feed(&body[..at]);
        bench.hold_store = true;
        bench.eof();
        assert!(!bench.closed, "not before what arrived is durable");
        bench.hold_store = false;
        bench.settle();
        let (offset, chain) = cut(&mut bench);
        assert_eq!(offset, at as u64);
        assert_eq!(bench.files[&5].data, body[..at]);
        assert!(!bench.files[&5].open && bench.closed);
        let bare = match digester::unseal(&chain) {
            Some((seal, bare)) => {
                assert_eq!(seal, digests(&body[..at]).0);
                bare
            }
            None => &chain[..],
        };
        let resumed = digester::Digester::resume(bare, EVERY).unwrap();
        assert_eq!(resumed.offset(), offset / EVERY * EVERY);
        assert_eq!(chain == bare, at == 4_096, "what is behind a checkpoint has a seal");
        assert_eq!(bench.status().0, 400, "the body is shorter than declared");
    }
    // Nothing came: there is no file.
    let mut bench = bench();
    bench.feed(head("POST", "Content-Length: 20000\r\n"));
    bench.grant(1, 5, 0, &[], 20_000);
    bench.eof();
    assert_eq!(cut(&mut bench), (0, Vec::new()));
    assert!(bench.requests.is_empty() && bench.closed);
}

#[test]
fn a_body_that_is_not_the_last_is_answered_with_its_offset() {
    let mut bench = bench();
    let body = content(10_000);
    let more = "Content-Length: 10000\r\nUpload-Complete: ?0\r\nUpload-Length: 30000\r\n";
    bench.feed(head("POST", more));
    let Event::Upload { ask, .. } = bench.event() else { panic!("an upload") };
    assert_eq!((ask.complete, ask.size, ask.body), (false, Some(30_000), Some(10_000)));
    bench.grant(1, 5, 0, &[], 30_000);
    bench.feed(&body);
    let (offset, _) = cut(&mut bench);
    assert_eq!(offset, 10_000);
    assert!(bench.out.is_empty(), "not before it is committed");
    bench.answer(Answer::Offset {
        ticket: TransferNo(1),
        offset,
        complete: false,
        state: ShardState::Uploading,
        loss: None,
    });
    let (status, text) = bench.status();
    assert_eq!(status, 204);
    assert!(text.contains("\r\nUpload-Offset: 10000\r\nUpload-Complete: ?0\r\n"), "{text}");
    assert!(!bench.closed);
}

#[test]
fn it_goes_on_where_it_stopped() {
    let body = content(30_000);
    let (sha256, blake3) = digests(&body);
    for at in [1, 4_096, 5_000, 8_192, 20_001, 29_999] {
        let (mut next, offset, chain) = after(&body, at);
        let length = body.len() - at;
        let more = format!(
            "Content-Length: {length}\r\nUpload-Offset: {offset}\r\nExpect: 100-continue\r\n\
             Repr-Digest: {}\r\n",
            digest::field(&sha256, &blake3)
        );
        next.feed(head("PATCH", &more));
        let Event::Upload { ask, .. } = next.event() else { panic!("an upload") };
        assert_eq!((ask.kind, ask.size), (UploadKind::Patch { offset }, Some(30_000)));
        next.hold_store = true;
        next.grant(1, 5, offset, &chain, 30_000);
        let reads = offset % EVERY > 0;
        assert_eq!(next.out.is_empty(), reads, "what was durable is hashed first");
        next.hold_store = false;
        next.settle();
        assert_eq!(next.text(), "HTTP/1.1 100 Continue\r\n\r\n");
        next.feed(&body[at..]);
        while let Some(Event::Checkpoint { .. }) = next.events.front() {
            next.events.pop_front();
        }
        let size = 30_000;
        let (ticket, blob) = (TransferNo(1), BlobNo(5));
        assert_eq!(next.event(), Event::Whole { ticket, blob, size, sha256, blake3 });
        assert!(next.files[&5].data == body);
        let read = next.requests.iter().filter(|r| r.starts_with("Read")).count();
        assert_eq!(read, usize::from(reads), "at most what follows a checkpoint is read again");
    }
}

/// What stands behind the last checkpoint is hashed when an upload goes on: digests of what the disk
/// made of it would make it look right to everybody.
#[test]
fn what_has_changed_since_it_was_written_is_not_gone_on_with() {
    let body = content(30_000);
    for (at, harmed) in [(1, 0), (5_000, 4_096), (5_000, 4_999), (20_001, 20_000)] {
        let (mut next, offset, chain) = after(&body, at);
        next.files.get_mut(&5).unwrap().data[harmed] ^= 4;
        next.feed(head("PATCH", &format!("Content-Length: 9\r\nUpload-Offset: {offset}\r\n")));
        next.event();
        next.grant(1, 5, offset, &chain, 30_000);
        let Event::Broken { why: BrokenUpload::Store(StoreFault::Corrupt(text)), .. } =
            next.event()
        else {
            panic!("a fault")
        };
        assert_eq!(text, format!("its first {at} bytes are not what was written"));
        assert!(!next.requests.iter().any(|r| r.starts_with("Create")), "{:?}", next.requests);
    }
}

/// More has come, and been hashed, than room is reserved for: no digest tells what is durable behind
/// the last checkpoint, so it goes on there.
#[test]
fn what_has_no_seal_goes_on_at_its_checkpoint() {
    let body = content(30_000);
    for (reserved, from) in [(9_000, 8_192), (8_192, 8_192), (4_000, 0)] {
        let mut bench = bench();
        bench.feed(head("POST", "Content-Length: 30000\r\n"));
        bench.grant(1, 5, 0, &[], reserved);
        bench.feed(&body[..20_000]);
        assert_eq!(bench.files[&5].data.len() as u64, reserved, "the rest waits");
        bench.eof();
        let (offset, chain) = cut(&mut bench);
        let resumed = digester::Digester::resume(&chain, EVERY).unwrap();
        assert_eq!((offset, resumed.offset()), (from, from));
    }
}

#[test]
fn pieces_add_up_whatever_they_are() {
    fn adds_up(sizes: Vec<u16>, chunks: Vec<u16>) -> bool {
        let sizes: Vec<usize> = sizes.iter().map(|s| usize::from(*s) % 10_000).collect();
        let body = content(sizes.iter().sum());
        let (mut at, mut files, mut chain) = (0, BTreeMap::new(), Vec::new());
        for (i, size) in sizes.iter().enumerate() {
            let mut bench = bench();
            bench.files = files;
            let last = i + 1 == sizes.len();
            let mark = if last { "?1" } else { "?0" };
            let more = format!(
                "Content-Length: {size}\r\nUpload-Offset: {at}\r\nUpload-Complete: {mark}\r\n\
                 Upload-Length: {}\r\n",
                body.len()
            );
            bench.feed(head("PATCH", &more));
            bench.grant(1, 5, at as u64, &chain, body.len() as u64);
            let mut piece = &body[at..at + size];
            for chunk in &chunks {
                let (now, rest) = piece.split_at(usize::from(*chunk).min(piece.len()));
                bench.feed(now);
                piece = rest;
            }
            bench.feed(piece);
            at += size;
            if last {
                let Some(Event::Whole { size, sha256, blake3, .. }) = bench.events.pop_back()
                else {
                    return false;
                };
                let right = (sha256, blake3) == digests(&body);
                return right && size == body.len() as u64 && bench.files[&5].data == body;
            }
            let offset;
            (offset, chain) = cut(&mut bench);
            if offset != at as u64 {
                return false;
            }
            files = bench.files;
        }
        true
    }
    quickcheck::quickcheck(adds_up as fn(Vec<u16>, Vec<u16>) -> bool);
}

#[test]
fn a_digest_of_the_piece_is_checked() {
    let body = content(2_000);
    let (sha256, blake3) = digests(&body);
    for (blake3, good) in [(blake3, true), (BlobDigest([0; 32]), false)] {
        let mut bench = bench();
        let more = format!(
            "Content-Length: 2000\r\nUpload-Offset: 0\r\nUpload-Complete: ?0\r\n\
             Content-Digest: {}\r\n",
            digest::field(&sha256, &blake3)
        );
        bench.feed(head("PATCH", &more));
        let Event::Upload { ask, .. } = bench.event() else { panic!("an upload") };
        assert_eq!((ask.sha256, ask.blake3), (None, None), "it says nothing of the whole");
        bench.grant(1, 5, 0, &[], 2_000);
        bench.feed(&body);
        let Event::Broken { why, .. } = bench.event() else { panic!("an end") };
        assert_eq!(why == BrokenUpload::Mismatch, !good);
    }
}

#[test]
fn digests_given_before_hold_for_what_comes_later() {
    let body = content(2_000);
    let (sha256, _) = digests(&body);
    for (given, good) in [(sha256, true), (Sha256Digest([0; 32]), false)] {
        let mut bench = bench();
        bench.feed(head("PATCH", "Content-Length: 2000\r\nUpload-Offset: 0\r\n"));
        bench.event();
        bench.answer(Answer::Granted {
            ticket: TransferNo(1),
            blob: BlobNo(5),
            offset: 0,
            chain: Vec::new(),
            reserved: 2_000,
            size: Some(2_000),
            sha256: Some(given),
            blake3: None,
        });
        bench.feed(&body);
        match bench.event() {
            Event::Whole { .. } => assert!(good),
            Event::Broken { why, .. } => assert!(!good && why == BrokenUpload::Mismatch),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_length_that_does_not_fit_is_400_and_loses_nothing() {
    let mut bench = bench();
    bench.feed(head("PATCH", "Content-Length: 2000\r\nUpload-Offset: 0\r\n"));
    bench.event();
    bench.answer(Answer::Granted {
        ticket: TransferNo(1),
        blob: BlobNo(5),
        offset: 0,
        chain: Vec::new(),
        reserved: 3_000,
        size: Some(3_000),
        sha256: None,
        blake3: None,
    });
    assert_eq!(bench.status().0, 400);
    assert_eq!(cut(&mut bench), (0, Vec::new()));
    assert!(bench.requests.is_empty());
}

#[test]
fn a_wrong_offset_is_answered_with_the_right_one() {
    let mut bench = bench();
    bench.feed(head("PATCH", "Content-Length: 0\r\nUpload-Offset: 9\r\nUpload-Complete: ?0\r\n"));
    bench.event();
    bench.refuse(1, PickupRefusal::WrongOffset, Some(7));
    let (status, text) = bench.status();
    assert!(status == 409 && text.contains("\r\nUpload-Offset: 7\r\n"), "{text}");
}

#[test]
fn what_cannot_be_read_again_is_told() {
    let mut bench = bench();
    bench.feed(head("PATCH", "Content-Length: 10\r\nUpload-Offset: 100\r\n"));
    bench.event();
    bench.grant(1, 5, 100, &[], 110);
    let Event::Broken { why: BrokenUpload::Store(fault), .. } = bench.event() else {
        panic!("a fault")
    };
    assert!(matches!(fault, StoreFault::Missing(_)));
    bench.refuse(1, PickupRefusal::Corrupt, None);
    assert_eq!(bench.status().0, 500);
}

#[test]
fn what_cannot_be_read_just_now_is_not_lost() {
    let mut bench = bench();
    bench.feed(head("PATCH", "Content-Length: 10\r\nUpload-Offset: 100\r\n"));
    bench.event();
    bench.hold_store = true;
    bench.grant(1, 5, 100, b"", 110);
    bench.answers.clear();
    let (ticket, offset, data) = (TransferNo(1), 0, Err(StoreFault::Crowded));
    bench.step(SessionInput::Store(StoreEvent::Content { ticket, offset, data }));
    assert_eq!(cut(&mut bench), (100, Vec::new()));
    assert_eq!(bench.status().0, 503);
}

#[test]
fn a_stopping_site_keeps_what_arrived() {
    let mut bench = bench();
    bench.feed(head("POST", "Content-Length: 20000\r\n"));
    bench.grant(1, 5, 0, &[], 20_000);
    bench.feed(content(5_000));
    let text = "this site is stopping".into();
    let close = SessionCommand::Close { why: Goodbye::Stopping, text };
    bench.step(SessionInput::Command(close));
    assert!(!bench.closed);
    bench.settle();
    assert_eq!(cut(&mut bench).0, 5_000);
    assert!(bench.closed && bench.status().0 == 503);
}
