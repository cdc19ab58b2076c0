//! Whatever clients, node and store do in whatever order: no panic, no request lost, and the same bytes
//! for every way to cut the input.

use super::MIB;
use crate::admin::make;
use crate::admin::testing::{Site, UID, config, context};

/// Requests of every kind, good and bad; the last ones end the connection.
const REQUESTS: [&str; 14] = [
    "GET /v1/status HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /v1/segments?limit=2 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /v1/segments/abcdef HTTP/1.1\r\nHost: h\r\n\r\n",
    "HEAD /v1/segments/abcdef/content HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST /v1/segments?name=b&to=beta HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /v1/segments?name=c&to=delta HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx",
    "GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    "DELETE /v1/segments HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /v1/segments?name=.. HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nabcd",
    "GET /readyz HTTP/1.0\r\n\r\n",
    "POST /v1/segments?name=d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "BROKEN\r\n\r\n",
];

fn text(picks: &[u8]) -> String {
    picks.iter().map(|pick| REQUESTS[usize::from(*pick) % REQUESTS.len()]).collect()
}

#[test]
fn any_cut_of_the_input_gives_the_same_bytes() {
    fn same(picks: Vec<u8>, cuts: Vec<u8>) -> bool {
        let text = text(&picks);
        let (mut whole, mut cut) = (Site::new(), Site::new());
        whole.feed(text.as_bytes());
        let mut rest = text.as_bytes();
        for at in cuts {
            let (piece, behind) = rest.split_at(usize::from(at % 50).min(rest.len()));
            cut.feed(piece);
            rest = behind;
        }
        cut.feed(rest);
        whole.eof();
        cut.eof();
        whole.out == cut.out && whole.closed == cut.closed && whole.log == cut.log
    }
    quickcheck::QuickCheck::new().tests(100).quickcheck(same as fn(Vec<u8>, Vec<u8>) -> bool);
}

#[test]
fn nothing_that_happens_in_between_makes_it_panic_or_forget_a_request() {
    fn holds(steps: Vec<(u8, u8)>, tcp: bool) -> bool {
        let uid = if tcp { None } else { Some(UID) };
        let mut site = Site::with(config(), &make(context()), uid);
        for (what, pick) in steps {
            match what % 12 {
                0 => site.hold_commits = !site.hold_commits,
                1 => site.hold_writes = !site.hold_writes,
                2 => site.room = usize::from(pick) * 100,
                3 => site.pass(u64::from(pick % 40)),
                4 if pick < 16 => site.eof(),
                5 if pick < 16 => site.stop(),
                6 => site.feed(&vec![pick; usize::from(pick) * 300]),
                7 => {
                    let head = "POST /v1/segments?name=big HTTP/1.1\r\nHost: h\r\n";
                    site.feed(format!("{head}Content-Length: 70000\r\n\r\n").as_bytes());
                    site.feed(&vec![pick; 70_000]);
                }
                _ => site.feed(text(&[pick]).as_bytes()),
            }
        }
        (site.hold_commits, site.hold_writes, site.room) = (false, false, 1 << 20);
        site.settle();
        site.eof();
        // Whatever was asked is answered or cut: the connection has come to its end.
        site.closed
    }
    // A request behind one whose commit ends the drain.
    assert!(holds(vec![(0, 0), (4, 144), (4, 144), (89, 0)], false));
    quickcheck::QuickCheck::new().tests(200).quickcheck(holds as fn(Vec<(u8, u8)>, bool) -> bool);
}

#[test]
fn requests_whose_answers_nobody_takes_wait() {
    let mut site = Site::new();
    site.reads = false;
    let requests = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2_000);
    site.feed(&requests);
    let answers = |site: &Site| String::from_utf8_lossy(&site.out).matches("HTTP/1.1 200").count();
    let first = answers(&site);
    assert!(first > 0 && site.out.len() < MIB, "{first} answers, {} bytes", site.out.len());
    assert!(!site.session.wants_read(), "and no more are read");
    site.reads = true;
    site.settle();
    assert_eq!(answers(&site), 2_000);
    assert!(site.session.wants_read());
}
