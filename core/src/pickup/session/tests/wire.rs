//! Bytes come in any pieces: what is said and what is asked is the same.

use super::*;

/// Everything a session says and asks when `bytes` come in pieces that end at `cuts`; the node answers
/// at once, always the same.
fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Vec<String>) {
    let mut bench = Bench::new();
    let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let mut log = Vec::new();
    for pair in cuts.windows(2) {
        bench.feed(&bytes[pair[0]..pair[1]]);
        while let Some(event) = bench.events.pop_front() {
            log.push(format!("{event:?}"));
            reply(&mut bench, event);
        }
    }
    bench.eof();
    log.extend(bench.events.iter().map(|event| format!("{event:?}")));
    log.push(format!("closed {}", bench.closed));
    (bench.out, log)
}

fn reply(bench: &mut Bench, event: Event) {
    match event {
        Event::Upload { ticket, ask } if ask.whole.is_none() => {
            bench.grant(ticket.0, 5, 0, &[], 1 << 20);
            bench.files.entry(5).or_default();
        }
        Event::Upload { ticket, .. } | Event::Whole { ticket, .. } => {
            bench.answer(Answer::Buffered { ticket, new: true, view: view(b"x") });
        }
        Event::Subscribe { ticket, .. } => bench.answer(Answer::Upgraded { ticket }),
        Event::Register { .. } => bench.answer(Answer::Registered { session: 1, owed: 0 }),
        Event::Fetch { ticket, .. } | Event::Head { ticket, .. } | Event::Slot { ticket, .. } => {
            bench.refuse(ticket.0, PickupRefusal::NotFound, None);
        }
        Event::Extend { .. }
        | Event::Checkpoint { .. }
        | Event::Broken { .. }
        | Event::FetchMoved { .. }
        | Event::FetchEnded { .. }
        | Event::Tokens(_)
        | Event::Ack(_)
        | Event::Operator { .. } => {}
    }
}

/// Requests of every kind, one behind the other.
fn everything() -> Vec<u8> {
    let token = format!("X-Nodus-Token: {}\r\n", "ab".repeat(32));
    let post = |body: &[u8]| {
        let length = format!("Content-Length: {}\r\n", body.len());
        let head = format!("POST /buffer/upload HTTP/1.1\r\n{}{length}\r\n", fields());
        [head.as_bytes(), body].concat()
    };
    let chunked = format!(
        "POST /buffer/upload HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        fields()
    );
    let head = format!("HEAD /buffer/upload HTTP/1.1\r\n{}\r\n", fields());
    let ws = signed(
        "/ws",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    );
    let mut frames = Vec::new();
    let mask = Some([1, 2, 3, 4]);
    ws::ping(b"x", mask, &mut frames);
    ws::text("{", mask, &mut frames);
    // Last, since what the node is asked is answered in its own time.
    ws::text(r#"{"type":"register","node_id":"n"}"#, mask, &mut frames);
    [
        post(b"small"),
        signed("/buffer/fetch", &token).into_bytes(),
        chunked.into_bytes(),
        post(&content(1_100)),
        head.into_bytes(),
        ws.into_bytes(),
        frames,
    ]
    .concat()
}

#[test]
fn pieces_do_not_matter() {
    let bytes = everything();
    let whole = run(&bytes, &[]);
    let text = String::from_utf8_lossy(&whole.0).into_owned();
    assert_eq!(text.matches("201 Created").count(), 3, "{text}");
    assert_eq!(text.matches("404 Not Found").count(), 2, "{text}");
    assert!(text.contains("101 Switching") && text.contains("registered"), "{text}");
    let every: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(run(&bytes, &every), whole);
    for at in 0..bytes.len() {
        assert_eq!(run(&bytes, &[at]), whole, "cut at {at}");
    }
}

#[test]
fn drawn_pieces_do_not_matter() {
    fn same(cuts: Vec<usize>) -> bool {
        let bytes = everything();
        run(&bytes, &cuts) == run(&bytes, &[])
    }
    quickcheck::quickcheck(same as fn(Vec<usize>) -> bool);
}

#[test]
fn damaged_bytes_never_panic() {
    fn survives(at: usize, with: u8, end: usize, cuts: Vec<usize>) -> bool {
        let mut bytes = everything();
        let (at, end) = (at % bytes.len(), end % (bytes.len() + 1));
        bytes[at] = with;
        run(&bytes[..end], &cuts);
        true
    }
    quickcheck::quickcheck(survives as fn(usize, u8, usize, Vec<usize>) -> bool);
}
