//! Heads: what is refused before the node hears of it, and in which order.

use super::*;

/// What a request is answered without the node.
fn refused(request: &str) -> (u16, String) {
    let mut bench = Bench::new();
    bench.feed(request);
    assert!(bench.events.is_empty(), "{request}: {:?}", bench.events);
    bench.status()
}

fn post(change: impl Fn(String) -> String) -> String {
    let head = format!("POST /buffer/upload HTTP/1.1\r\n{}Content-Length: 0\r\n", fields());
    change(head) + "\r\n"
}

#[test]
fn a_missing_or_bad_field_is_400() {
    let names = ["X-Nodus-File-Id", "X-Nodus-Version", "X-Nodus-Shard-Index", "X-Nodus-Node-Id"];
    for name in names {
        let (status, text) = refused(&post(|head| head.replace(name, "X-Other")));
        assert_eq!(status, 400, "{name}: {text}");
        assert!(text.contains("{\"code\":\"bad_header\",\"message\":"), "{text}");
        let (status, _) = refused(&post(|head| head + name + ": 2\r\n"));
        assert_eq!(status, 400, "{name} twice");
    }
    for (from, to) in [
        ("Version: 2", "Version: +2"),
        ("Version: 2", "Version: 02"),
        ("Version: 2", "Version: 9007199254740992"),
        ("Index: 3", "Index: -3"),
        ("Id: f/1", "Id: f 1"),
        ("Node-Id: n", "Node-Id: n/1"),
    ] {
        assert_eq!(refused(&post(|head| head.replace(from, to))).0, 400, "{to}");
    }
    for more in [
        "Upload-Complete: 1\r\n",
        "Upload-Length: x\r\n",
        "Upload-Length: 1\r\n",
        "Content-Digest: sha-256=:AAAA:\r\n",
        "Content-Digest: sha-256\r\n",
        "Repr-Digest: blake3=x\r\n",
    ] {
        assert_eq!(refused(&post(|head| head + more)).0, 400, "{more}");
    }
    let patch = post(|head| head.replace("POST", "PATCH"));
    assert_eq!(refused(&patch).0, 400, "no Upload-Offset");
    let slot = post(|head| head.replace("POST /buffer/upload", "PUT /buffer/slot"));
    assert_eq!(refused(&slot).0, 400, "no Upload-Length");
}

#[test]
fn no_token_is_401_and_comes_behind_400() {
    for bearer in ["Authorization: Basic x", "Authorization: Bearer x", "X-Other: x"] {
        let without =
            |head: String| head.replace(&format!("Authorization: Bearer {BEARER}"), bearer);
        let (status, text) = refused(&post(without));
        assert_eq!(status, 401, "{bearer}");
        assert!(text.contains("\r\nWWW-Authenticate: Bearer"), "{text}");
        assert!(text.contains("{\"code\":\"unauthorized\""), "{text}");
        let both = |head| without(head).replace("Version: 2", "Version: x");
        assert_eq!(refused(&post(both)).0, 400);
    }
}

#[test]
fn other_paths_methods_hosts_and_queries() {
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: relay.example\r\n\r\n");
    assert_eq!(refused(&get("/")).0, 404);
    assert_eq!(refused(&get("/buffer/upload/")).0, 404);
    for (target, allow) in [("/buffer/upload", "HEAD, PATCH, POST"), ("/buffer/slot", "PUT")] {
        let (status, text) = refused(&get(target));
        assert_eq!(status, 405);
        assert!(text.contains(&format!("\r\nAllow: {allow}\r\n")), "{text}");
    }
    for target in ["/buffer/fetch", "/ws"] {
        let (status, text) = refused(&get(target).replace("GET", "DELETE"));
        assert_eq!(status, 405);
        assert!(text.contains("\r\nAllow: GET\r\n"), "{text}");
    }
    let (status, text) = refused(&get("/ws").replace("relay.example", "other.example"));
    assert_eq!(status, 421);
    assert!(text.contains("misdirected"), "{text}");
    for target in ["/buffer/fetch?token=x", "/ws?X-Nodus-Signature=x", "/buffer/upload?", "/?a=1"] {
        let (status, text) = refused(&get(target));
        assert_eq!(status, 400, "{target}");
        assert!(!text.contains("token=x"), "nothing of it is repeated");
    }
    // Rows of the codec: spelling, framing, size.
    assert_eq!(refused(&get("/buffer/%66etch")).0, 400);
    assert_eq!(refused(&get("/buffer//fetch")).0, 400);
    assert_eq!(refused(&get(&format!("/{}", "x".repeat(5_000)))).0, 414);
    assert_eq!(refused(&post(|head| head + "Content-Length: 0\r\n")).0, 400);
    assert_eq!(refused(&post(|head| head + "Transfer-Encoding: chunked\r\n")).0, 400);
    assert_eq!(refused(&post(|head| head.replace("Length: 0", "Length: +5"))).0, 400);
    assert_eq!(refused(&post(|head| head + &"X: y\r\n".repeat(70))).0, 431);
    assert_eq!(refused("GET / HTTP/1.0\r\n\r\n").0, 400);
}

#[test]
fn a_head_that_does_not_come_is_408() {
    let mut bench = Bench::new();
    bench.feed("GET /buf");
    bench.pass(11);
    assert_eq!(bench.status().0, 408);
    assert!(bench.closed);
}

#[test]
fn a_bad_signature_is_401_and_never_reaches_the_node() {
    let token = format!("X-Nodus-Token: {}\r\n", "ab".repeat(32));
    let good = signed("/buffer/fetch", &token);
    let other = signed_by(&[6; 32], "/buffer/fetch", &token);
    let foreign = signed("/ws", &token).replace("/ws", "/buffer/fetch");
    let bad = [
        other,
        foreign,
        good.replace("X-Nodus-Node: n", "X-Nodus-Node: m"),
        good.replace("X-Nodus-Node: n", "X-Nodus-Node: n\r\nX-Nodus-Node: n"),
        good.replace("X-Nodus-Signature", "X-Other"),
        good.replace("X-Nodus-Timestamp: 1796064245", "X-Nodus-Timestamp: 1796064246"),
        good.replace("X-Nodus-Timestamp: 1", "X-Nodus-Timestamp: 01"),
        good.replace("X-Nodus-Nonce: 07", "X-Nodus-Nonce: 08"),
        good.replace("X-Nodus-Nonce: 07", "X-Nodus-Nonce: "),
        // The body is signed too.
        good.replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx"),
    ];
    for request in bad {
        let (status, text) = refused(&request);
        assert_eq!(status, 401, "{request}");
        assert!(text.contains("WWW-Authenticate"), "{text}");
    }
    // Case of the authority does not matter; everything else does.
    let mut bench = Bench::new();
    bench.feed(good.replace("Host: relay.example", "Host: Relay.Example"));
    assert!(matches!(bench.event(), Event::Fetch { .. }));
}

#[test]
fn freshness_is_judged_behind_the_body() {
    let token = format!("X-Nodus-Token: {}\r\n", "ab".repeat(32));
    let head = signed("/buffer/fetch", &token);
    let (head, _) = head.split_at(head.len() - 2);
    let mut bench = Bench::new();
    bench.feed(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    bench.pass(20);
    assert!(bench.events.is_empty(), "the node is asked when all of it is there");
    bench.feed("0\r\n\r\n");
    assert!(matches!(bench.event(), Event::Fetch { .. }));
}

#[test]
fn head_and_slot_are_asked_and_answered() {
    let mut bench = Bench::new();
    bench.feed(format!("HEAD /buffer/upload HTTP/1.1\r\n{}\r\n", fields()));
    let client = Some(crate::pickup::token::Token::parse(BEARER).unwrap().hash());
    assert_eq!(bench.event(), Event::Head { ticket: TransferNo(1), shard: shard(), client });
    bench.answer(Answer::Offset {
        ticket: TransferNo(1),
        offset: 5,
        complete: false,
        state: ShardState::Uploading,
        loss: None,
    });
    let (status, text) = bench.status();
    assert_eq!(status, 204);
    for field in ["Upload-Offset: 5", "Upload-Complete: ?0", "X-Nodus-State: UPLOADING"] {
        assert!(text.contains(&format!("\r\n{field}\r\n")), "{text}");
    }
    bench.feed(format!("PUT /buffer/slot HTTP/1.1\r\n{}Upload-Length: 9\r\n\r\n", fields()));
    assert_eq!(
        bench.event(),
        Event::Slot { ticket: TransferNo(2), shard: shard(), client, size: 9 }
    );
    bench.answer(Answer::Slot { ticket: TransferNo(2), new: true, expires_at: UnixMillis(0) });
    let (status, text) = bench.status();
    assert_eq!(status, 201);
    assert!(text.ends_with("{\"expires_at\":\"1970-01-01T00:00:00.000Z\"}\n"), "{text}");
    // Refusals carry what goes with them; one to a HEAD has no body.
    bench.feed(format!("HEAD /buffer/upload HTTP/1.1\r\n{}\r\n", fields()));
    bench.refuse(3, PickupRefusal::NotFound, None);
    let (status, text) = bench.status();
    assert!(status == 404 && text.ends_with("\r\n\r\n"), "{text}");
    assert!(text.contains("\r\nRetry-After: 7\r\n"), "{text}");
}

#[test]
fn every_refusal_of_the_node_has_its_status_and_code() {
    for refusal in PickupRefusal::ALL {
        let mut bench = Bench::new();
        bench.feed(format!("PUT /buffer/slot HTTP/1.1\r\n{}Upload-Length: 9\r\n\r\n", fields()));
        bench.refuse(1, *refusal, Some(11));
        let (status, text) = bench.status();
        assert_eq!(status, refusal.status());
        assert!(text.contains(&format!("{{\"code\":\"{refusal}\",\"message\":\"because\"}}")));
        assert_eq!(text.contains("Upload-Offset: 11"), status == 409, "{text}");
        assert_eq!(text.contains("Content-Range: bytes */11"), status == 416, "{text}");
        assert_eq!(text.contains("WWW-Authenticate"), status == 401, "{text}");
    }
}

#[test]
fn requests_may_follow_each_other_at_once() {
    let mut bench = Bench::new();
    let head = format!("HEAD /buffer/upload HTTP/1.1\r\n{}\r\n", fields());
    bench.feed(format!("{head}{head}{head}"));
    for ticket in 1..=3 {
        assert!(matches!(bench.event(), Event::Head { .. }));
        assert!(bench.events.is_empty(), "one at a time");
        bench.refuse(ticket, PickupRefusal::NotFound, None);
    }
    assert_eq!(bench.text().matches("404 Not Found").count(), 3);
    assert!(!bench.closed && is_small(&bench));
    bench.pass(61);
    assert!(bench.closed, "an idle connection is not kept for ever");
}

#[test]
fn a_stopping_site_finishes_what_is_asked() {
    let mut bench = Bench::new();
    bench.feed(format!("HEAD /buffer/upload HTTP/1.1\r\n{}\r\n", fields()));
    let text = "this site is stopping".into();
    let close = SessionCommand::Close { why: Goodbye::Stopping, text };
    bench.step(SessionInput::Command(close));
    assert!(!bench.closed);
    bench.refuse(1, PickupRefusal::NotFound, None);
    assert!(bench.closed && bench.status().0 == 404);
}

#[test]
fn requests_whose_answers_nobody_takes_wait() {
    let mut bench = Bench::new();
    bench.window = Some(0);
    // Refused by the session itself, so that nothing else holds the next one up.
    let one = "GET /nothing HTTP/1.1\r\nHost: relay.example\r\n\r\n";
    bench.feed(one.repeat(20_000));
    let answers =
        |bench: &Bench| String::from_utf8_lossy(&bench.out).matches("HTTP/1.1 404").count();
    let first = answers(&bench);
    assert!(first > 0 && bench.out.len() < 1 << 20, "{first} answers, {} bytes", bench.out.len());
    assert!(!bench.session.wants_read(), "and no more are read");
    bench.window = None;
    bench.settle();
    assert_eq!(answers(&bench), 20_000);
    assert!(bench.session.wants_read());
}
