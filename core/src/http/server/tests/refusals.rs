//! Bad input and slow clients: every row of the table of bad input that concerns HTTP.

use super::*;
use crate::http::HEAD_MAX;

#[test]
fn bad_heads_are_refused_and_nothing_is_executed() {
    let long = |n: usize| "x".repeat(n);
    let fields = |n: usize| (0..n).map(|i| format!("f{i}: v\r\n")).collect::<String>();
    let table: Vec<(&str, String, u16)> = vec![
        ("CL and TE", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400),
        ("TE and CL", post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400),
        ("two CLs", post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400),
        ("two equal CLs", post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400),
        ("a list of CLs", post("Content-Length: 5, 5\r\n"), 400),
        ("+5", post("Content-Length: +5\r\n"), 400),
        ("-5", post("Content-Length: -5\r\n"), 400),
        (" 5", post("Content-Length:  5\r\n"), 400),
        ("tab 5", post("Content-Length:\t5\r\n"), 400),
        ("5 blank", post("Content-Length: 5 \r\n"), 400),
        ("CL blank colon", post("Content-Length : 5\r\n"), 400),
        ("2^64", post("Content-Length: 18446744073709551616\r\n"), 400),
        ("2^64 twice over", post("Content-Length: 99999999999999999999999999\r\n"), 400),
        ("hex", post("Content-Length: 0x5\r\n"), 400),
        ("no number", post("Content-Length: five\r\n"), 400),
        ("empty CL", post("Content-Length:\r\n"), 400),
        ("leading zero", post("Content-Length: 05\r\n"), 400),
        ("TE gzip", post("Transfer-Encoding: gzip\r\n"), 400),
        ("TE xchunked", post("Transfer-Encoding: xchunked\r\n"), 400),
        ("TE list", post("Transfer-Encoding: gzip, chunked\r\n"), 400),
        ("TE twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
        ("TE behind blanks", post("Transfer-Encoding:  chunked\r\n"), 400),
        ("TE in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), 400),
        ("obs-fold", get("A: b\r\n c\r\n"), 400),
        ("obs-fold by tab", get("A: b\r\n\tc\r\n"), 400),
        ("blank before the first field", "GET / HTTP/1.1\r\n Host: h\r\n\r\n".into(), 400),
        ("bare LF", "GET / HTTP/1.1\nHost: h\n\n".into(), 400),
        ("bare LF in a field", get("A: b\nB: c\r\n"), 400),
        ("bare LF at the end", "GET / HTTP/1.1\r\nHost: h\r\n\n".into(), 400),
        ("bare CR", get("A: b\rc\r\n"), 400),
        ("NUL", get("A: b\0c\r\n"), 400),
        ("DEL in a name", get("A\x7f: b\r\n"), 400),
        ("a name with a blank", get("A b: c\r\n"), 400),
        ("no colon", get("Abc\r\n"), 400),
        ("an empty name", get(": c\r\n"), 400),
        ("no Host", "GET / HTTP/1.1\r\n\r\n".into(), 400),
        ("two Hosts", get("Host: h\r\n"), 400),
        ("two Hosts in 1.0", "GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n".into(), 400),
        ("an empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), 400),
        ("a Host with a path", "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n".into(), 400),
        ("a Host with a user", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n".into(), 400),
        ("HTTP/2", "GET / HTTP/2.0\r\nHost: h\r\n\r\n".into(), 505),
        ("HTTP/0.9", "GET /\r\n\r\n".into(), 400),
        ("no version", "GET / \r\nHost: h\r\n\r\n".into(), 505),
        ("two blanks", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("a tab in the request line", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("two empty lines in front", "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("noise", "\x16\x03\x01\x02".into(), 400),
        ("a proxy's target", "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("asterisk", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("CONNECT", "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("%2e", "GET /a/%2e%2e/b HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("%2F", "GET /a%2Fb HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("//", "GET //a HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
        ("Expect", get("Expect: 200-ok\r\n"), 417),
        ("65 fields", get(&fields(64)), 431),
        ("a header of 16 KiB", get(&format!("A: {}\r\n", long(HEAD_MAX))), 431),
        ("a header of 17 KiB without end", format!("GET / HTTP/1.1\r\nA: {}", long(17 << 10)), 431),
        ("a target of 4097", format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", long(4096)), 414),
        ("a target without end", format!("GET /{}", long(5000)), 414),
        ("a method of 33", format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", long(33)), 400),
    ];
    for (name, input, status) in table {
        // What stands behind the refused head must not be read as a request.
        let app = run(format!("{input}GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(app.statuses(), [status], "{name}");
        assert_eq!(app.log, [format!("fault {status}")], "{name}");
        assert!(app.conn.closing() && app.text().contains("\r\nConnection: close\r\n"), "{name}");
    }
}

#[test]
fn heads_at_the_limits_are_taken() {
    let fields = (0..63).map(|i| format!("f{i}: v\r\n")).collect::<String>();
    let frame = get("A: \r\n").len();
    let table = [
        get(&fields),
        get(&format!("A: {}\r\n", "x".repeat(HEAD_MAX - frame))),
        format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(4095)),
        format!("\r\n{}", get("")),
        get("A:\r\nB: \t b \t\r\n"),
        get("Expect: 100-Continue\r\n"),
        post("Content-Length: 0\r\n"),
        post("content-length:0\r\n"),
        "GET /echo HTTP/1.1\r\nHost: [::1]:7411\r\n\r\n".into(),
    ];
    for input in table {
        let app = run(input.as_bytes());
        assert_eq!(app.statuses(), [200], "{}", input.escape_debug());
        assert!(!app.conn.closing(), "{}", input.escape_debug());
    }
}

#[test]
fn bad_chunks_are_refused_and_never_whole() {
    let table = [
        ("no digits", "\r\nabc"),
        ("not hex", "g\r\n"),
        ("sign", "+5\r\nhello\r\n0\r\n\r\n"),
        ("blank in front", " 5\r\nhello\r\n0\r\n\r\n"),
        ("blank behind", "5 \r\nhello\r\n0\r\n\r\n"),
        ("0x", "0x5\r\nhello\r\n0\r\n\r\n"),
        ("2^64", "10000000000000000\r\n"),
        ("bare LF behind the size", "5\nhello\r\n0\r\n\r\n"),
        ("CR and no LF", "5\rxhello\r\n0\r\n\r\n"),
        ("no CRLF behind the data", "5\r\nhello0\r\n\r\n"),
        ("bare LF behind the data", "5\r\nhello\n0\r\n\r\n"),
        ("longer than it says", "5\r\nhello!\r\n0\r\n\r\n"),
        ("a control character in an extension", "5;a\x01\r\nhello\r\n0\r\n\r\n"),
        ("a bare LF in an extension", "5;a\nhello\r\n0\r\n\r\n"),
        ("a bare LF in the trailer", "0\r\nA: b\n\r\n"),
        ("a folded trailer", "0\r\nA: b\r\n c\r\n\r\n"),
        ("a trailer without a colon", "0\r\nAb\r\n\r\n"),
    ];
    let chunked = post("Transfer-Encoding: chunked\r\n");
    for (name, body) in table {
        let app = run(format!("{chunked}{body}{chunked}").as_bytes());
        assert_eq!(app.statuses(), [400], "{name}");
        assert_eq!(app.log, ["POST /echo", "fault 400"], "{name}");
        assert!(app.conn.closing(), "{name}");
    }
    let long = format!("{chunked}5;{}\r\nhello\r\n0\r\n\r\n", "e".repeat(1025));
    assert_eq!(run(long.as_bytes()).statuses(), [400]);
    let many = "1;eeee\r\nx\r\n".repeat(300);
    assert_eq!(run(format!("{chunked}{many}0\r\n\r\n").as_bytes()).statuses(), [400]);
    let trailers = (0..65).map(|i| format!("f{i}: v\r\n")).collect::<String>();
    assert_eq!(run(format!("{chunked}0\r\n{trailers}\r\n").as_bytes()).statuses(), [431]);
}

#[test]
fn behind_an_early_answer_a_little_is_dropped_and_nothing_is_parsed() {
    let early = "POST /early HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n";
    let smuggled = "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";

    let mut app = run(early.as_bytes());
    assert_eq!(app.statuses(), [413]);
    assert!(app.text().contains("Connection: close"));
    assert!(!app.conn.closing(), "the client gets to read the answer");
    app.feed(&[b'x'; 65_535]);
    assert!(!app.conn.closing());
    app.feed(b"x");
    assert!(app.conn.closing(), "64 KiB are dropped and no more");
    app.feed(smuggled.as_bytes());
    assert_eq!(app.log, ["POST /early"]);

    let mut app = run(early.as_bytes());
    app.pass(1);
    assert!(!app.conn.closing());
    app.pass(1);
    assert!(app.conn.closing(), "2 s and no longer");

    let mut app = run(early.as_bytes());
    app.eof();
    assert!(app.conn.closing());

    let short = early.replace("100000", "3");
    let app = run(format!("{short}abc{smuggled}").as_bytes());
    assert_eq!((app.statuses(), app.conn.closing()), (vec![413], true));
    assert_eq!(app.log, ["POST /early"]);
}

#[test]
fn the_header_deadline_is_absolute() {
    let mut app = App::new();
    for _ in 0..9 {
        app.feed(b"G");
        app.pass(1);
    }
    assert!(app.out.is_empty());
    app.feed(b"G");
    app.pass(1);
    assert_eq!(app.statuses(), [408]);
    assert!(app.conn.closing());

    let mut silent = App::new();
    silent.pass(10);
    assert_eq!(silent.statuses(), [408]);
}

#[test]
fn a_kept_connection_may_be_idle_for_longer_but_not_inside_a_head() {
    let mut app = run(get("").as_bytes());
    app.pass(59);
    assert!(!app.conn.closing());
    app.feed(b"GET");
    app.pass(9);
    assert!(!app.conn.closing());
    app.pass(1);
    assert_eq!(app.statuses(), [200, 408]);

    let mut app = run(get("").as_bytes());
    app.pass(60);
    assert!(app.conn.closing());
    assert_eq!(app.statuses(), [200], "an idle connection ends without a word");
}

#[test]
fn a_body_must_keep_its_rate() {
    let head = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n";
    let enough = vec![b'x'; 8 << 10];
    let mut app = run(head.as_bytes());
    for _ in 0..60 {
        app.feed(&enough);
        app.pass(1);
    }
    assert!(app.out.is_empty(), "8 KiB a second are enough");
    for _ in 0..29 {
        app.feed(&enough[1..]);
        app.pass(1);
    }
    assert!(app.out.is_empty(), "the rate is judged over 30 s");
    app.feed(&enough[1..]);
    app.pass(1);
    assert_eq!(app.statuses(), [408]);
    assert!(app.conn.closing());
}

#[test]
fn a_client_is_not_blamed_while_nobody_reads_or_before_it_may_send() {
    let mut app = run(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
    app.conn.reading(app.now, false);
    assert_eq!(app.conn.next_deadline(), None);
    app.pass(1000);
    app.conn.reading(app.now, true);
    app.pass(29);
    assert!(app.out.is_empty());
    app.pass(1);
    assert_eq!(app.statuses(), [408]);

    let waits =
        "POST /late HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    let mut app = run(waits.as_bytes());
    assert_eq!(app.conn.next_deadline(), None);
    app.conn.go_on(app.now, &mut app.out);
    app.pass(30);
    assert_eq!(app.statuses(), [100, 408]);
}

#[test]
fn a_message_that_is_cut_is_never_whole() {
    let table = [
        ("GET / HT", "fault 400"),
        ("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhell", "fault 400"),
        (
            "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "fault 400",
        ),
        ("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "fault 400"),
    ];
    for (input, last) in table {
        let mut app = run(input.as_bytes());
        app.eof();
        assert_eq!(app.log.last().unwrap(), last, "{input}");
        assert!(!app.log.iter().any(|l| l.starts_with("end")), "{input}");
        assert!(app.conn.closing());
    }
    let mut app = App::new();
    app.eof();
    assert!(app.conn.closing() && app.out.is_empty(), "a connection that ends between requests");
}

#[test]
fn a_head_of_twenty_megabytes_is_dropped_at_sixteen_kib() {
    let mut app = run(b"GET / HTTP/1.1\r\n");
    let piece = [b'x'; 4096];
    let mut taken = 0;
    for _ in 0..5000 {
        if app.conn.closing() {
            break;
        }
        app.feed(&piece);
        taken += piece.len();
    }
    assert_eq!(app.statuses(), [431]);
    assert!(taken <= HEAD_MAX + piece.len(), "{taken} bytes were looked at");
}
