//! Every endpoint and every refusal, against a real node and a store in memory.

mod acts;
mod any;
mod page;
mod pickup;
mod told;

use consign_core::config::Config;
use consign_core::store::{CommitFault, StoreFault};
use serde_json::json;

use crate::admin::testing::{Got, Site, UID, config, context};
use crate::admin::{download::digest_field, make};

const MIB: usize = 1 << 20;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

fn send(site: &mut Site, query: &str, body: &[u8]) -> Got {
    site.ask("POST", &format!("/v1/segments?{query}"), body)
}

#[test]
fn small_content_is_parked_and_accepted() {
    let mut site = Site::new();
    let got = send(&mut site, "name=a.txt&to=beta", b"hello");
    assert_eq!(got.status, 201);
    let digest = blake3::hash(b"hello").to_hex().to_string();
    let id = got.json()["id"].as_str().unwrap().to_string();
    let expected = json!({
        "schema": "consign.accepted/1", "id": id, "seq": 1, "name": "a.txt", "new": true,
        "added": ["beta"], "queued": [], "delivered": [], "dead": [], "raised": false, "size": 5, "digest": digest,
    });
    assert_eq!(got.json(), expected);
    assert!(got.headers.contains(&format!("/v1/segments/{id}")), "{}", got.headers);
    assert_eq!(
        site.log,
        ["Park(Handle { conn: ConnId { slot: 3, generation: 7 }, number: 1 }, 5 B)", "Submit"]
    );

    let again = send(&mut site, "name=a.txt&to=beta,gamma", b"hello");
    assert_eq!(again.status, 200);
    let seen = again.json();
    assert_eq!(seen["new"], json!(false));
    assert_eq!((&seen["added"], &seen["queued"]), (&json!(["gamma"]), &json!(["beta"])));
}

#[test]
fn accepted_is_said_only_behind_the_commit() {
    let mut site = Site::new();
    site.hold_commits = true;
    site.feed(b"POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx");
    assert!(site.out.is_empty());
    site.hold_commits = false;
    site.settle();
    assert_eq!(site.got("POST").status, 201);
}

#[test]
fn a_failed_commit_is_never_accepted() {
    let mut site = Site::new();
    let full = CommitFault::Full("the disk".into());
    site.store.fail_commit(1, full);
    let got = send(&mut site, "name=a", b"x");
    assert_eq!((got.status, got.code().as_str()), (507, "disk_full"));
    assert!(got.headers.contains("Retry-After"), "{}", got.headers);
}

#[test]
fn empty_content_and_every_way_to_send_it() {
    for head in ["Content-Length: 0\r\n\r\n", "\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]
    {
        let mut site = Site::new();
        site.feed(format!("POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\n{head}").as_bytes());
        let got = site.got("POST");
        assert_eq!((got.status, &got.json()["size"]), (201, &json!(0)), "{head}");
    }
}

#[test]
fn large_content_is_reserved_written_and_accepted() {
    for len in [65_537, MIB, 5 * MIB + 3] {
        let body = content(len);
        let mut site = Site::new();
        let got = send(&mut site, "name=big&to=beta", &body);
        assert_eq!(got.status, 201, "{:?}", got.json());
        assert_eq!(got.json()["digest"], json!(blake3::hash(&body).to_hex().to_string()));
        let steps: Vec<&str> = site.log.iter().map(|l| l.split('(').next().unwrap()).collect();
        assert_eq!(steps[..3], ["Ask", "Reserve", "Create"], "{steps:?}");
        assert_eq!(steps[steps.len() - 2..], ["Finish", "Submit"]);
        let shown = site.ask("GET", &format!("/v1/segments/{}/content", &hex(&got)), b"");
        assert!(shown.body == body && shown.whole);
    }
}

fn hex(got: &Got) -> String {
    got.json()["id"].as_str().unwrap()[..12].into()
}

#[test]
fn large_content_is_not_read_before_there_is_room() {
    let mut site = Site::new();
    site.hold_commits = true;
    let head = "POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\
                Expect: 100-continue\r\n\r\n";
    site.feed(head.as_bytes());
    assert!(site.out.is_empty() && !site.session.wants_read());
    site.hold_commits = false;
    site.settle();
    assert_eq!(site.out, b"HTTP/1.1 100 Continue\r\n\r\n");
    assert!(site.session.wants_read());
    site.feed(&content(100_000));
    assert_eq!(site.got("POST").status, 201);
}

#[test]
fn content_of_unknown_size_grows_its_reservation_before_it_passes_it() {
    let mut site = Site::new();
    site.feed(
        b"POST /v1/segments?name=tar HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let piece = content(MIB);
    let mut hasher = blake3::Hasher::new();
    for _ in 0..70 {
        site.feed(format!("{:x}\r\n", piece.len()).as_bytes());
        site.feed(&piece);
        site.feed(b"\r\n");
        hasher.update(&piece);
    }
    site.feed(b"0\r\n\r\n");
    let got = site.got("POST");
    assert_eq!(got.status, 201);
    assert_eq!(got.json()["digest"], json!(hasher.finalize().to_hex().to_string()));
    let at = |word: &str| site.log.iter().position(|l| l == word).unwrap();
    let writes_before = site.log[..at("Extend")].iter().filter(|l| l.starts_with("Write(")).count();
    assert!((50..64).contains(&writes_before), "extended after {writes_before} MiB");
    assert_eq!(site.log.iter().filter(|l| *l == "Extend").count(), 1);
}

#[test]
fn reading_stops_while_the_disk_is_behind() {
    let mut site = Site::new();
    site.hold_writes = true;
    site.feed(b"POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\nContent-Length: 8388608\r\n\r\n");
    let piece = content(256 << 10);
    let mut fed = 0;
    while site.session.wants_read() {
        site.feed(&piece);
        fed += piece.len();
    }
    assert_eq!(fed, 4 * MIB);
    site.hold_writes = false;
    site.settle();
    assert!(site.session.wants_read());
    for _ in 0..16 {
        site.feed(&piece);
    }
    assert_eq!(site.got("POST").status, 201);
}

#[test]
fn refusals_of_the_node_have_their_status() {
    let small = || Config { max_segment: Some(70_000), max_bytes: 300_000, ..config() };
    let table: &[(&str, usize, u16, &str)] = &[
        ("name=a&to=delta", 5, 404, "unknown_destination"),
        ("name=a&to=delta", 69_000, 404, "unknown_destination"),
        ("name=a&to=beta", 70_001, 413, "too_large"),
    ];
    for (query, len, status, code) in table {
        let mut site = Site::with(small(), &make(context()), Some(UID));
        let got = send(&mut site, query, &content(*len));
        assert_eq!((got.status, got.code().as_str()), (*status, *code), "{query} {len}");
        assert!(!site.log.iter().any(|l| l.starts_with("Create")), "nothing is written");
        assert_eq!(site.store.parked(), 0, "nothing is left in memory");
    }
    let mut site = Site::with(small(), &make(context()), Some(UID));
    for i in 0..4 {
        assert_eq!(
            send(&mut site, &format!("name=a{i}&instance=random"), &content(66_000 + i)).status,
            201
        );
    }
    let got = send(&mut site, "name=b", &content(69_999));
    assert_eq!((got.status, got.code().as_str()), (507, "quota"));
    assert!(got.headers.contains("Retry-After"), "{}", got.headers);
    let small = send(&mut site, "name=b", &content(60_000));
    assert_eq!((small.status, small.code().as_str()), (507, "quota"));
}

#[test]
fn a_store_that_cannot_write_refuses_and_keeps_nothing() {
    let mut site = Site::new();
    site.store.fail_file(2, StoreFault::Full("no space".into()));
    let got = send(&mut site, "name=a", &content(3 * MIB));
    assert_eq!((got.status, got.code().as_str()), (507, "disk_full"));
    assert_eq!(site.store.files().count(), 0);
}

#[test]
fn an_upload_that_is_cut_leaves_nothing() {
    for (framing, body) in
        [("Content-Length: 3000000", ""), ("Transfer-Encoding: chunked", "200000\r\n")]
    {
        let mut site = Site::new();
        site.feed(
            format!("POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n{body}")
                .as_bytes(),
        );
        site.feed(&content(2 * MIB));
        assert_eq!(site.store.files().count(), 1);
        site.eof();
        let got = site.got("POST");
        assert_eq!((got.status, got.code().as_str()), (400, "body_cut"));
        assert!(site.closed);
        assert!(!site.log.iter().any(|l| l == "Submit"));
        assert_eq!(site.store.files().count(), 0, "{:?}", site.log);
    }
}

#[test]
fn a_small_body_that_is_cut_is_not_submitted() {
    let mut site = Site::new();
    site.feed(b"POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc");
    site.eof();
    assert_eq!(site.got("POST").status, 400);
    assert_eq!((site.store.parked(), site.log.len()), (0, 0));
}

#[test]
fn segments_are_listed_and_shown() {
    let mut site = Site::new();
    for i in 0..3 {
        assert_eq!(send(&mut site, &format!("name=n{i}&to=beta&label=k=v"), b"x").status, 201);
    }
    let got = site.ask("GET", "/v1/segments?limit=2", b"");
    assert_eq!((got.status, &got.json()["schema"]), (200, &json!("consign.segments/1")));
    assert_eq!(got.json()["segments"].as_array().unwrap().len(), 2);
    assert_eq!(got.json()["next"], json!(2));
    let got = site.ask("GET", "/v1/segments?after=2&state=queued&peer=beta", b"");
    assert_eq!(got.json()["segments"][0]["name"], json!("n2"));
    assert_eq!(got.json()["next"], json!(null));

    let id = got.json()["segments"][0]["id"].as_str().unwrap().to_string();
    let shown = site.ask("GET", &format!("/v1/segments/{}", &id[..6]), b"");
    assert_eq!(shown.status, 200);
    let shown = shown.json();
    assert_eq!((&shown["schema"], &shown["id"]), (&json!("consign.segment/1"), &json!(id)));
    assert_eq!(shown["labels"], json!({"k": "v"}));
    let delivery = &shown["deliveries"][0];
    assert_eq!((&delivery["peer"], &delivery["state"]), (&json!("beta"), &json!("queued")));

    let missing = site.ask("GET", "/v1/segments/000000", b"");
    assert_eq!((missing.status, missing.code().as_str()), (404, "unknown"));
    let missing = site.ask("GET", "/v1/segments/000000/content", b"");
    assert_eq!((missing.status, missing.code().as_str()), (404, "unknown"));
    let nobody = site.ask("GET", "/v1/segments?peer=delta", b"");
    assert_eq!(nobody.status, 404);
}

#[test]
fn content_comes_back_with_its_digest() {
    for len in [0, 1, 65_536, 65_537, MIB + 1] {
        let body = content(len);
        let mut site = Site::new();
        let sent = send(&mut site, "name=a&type=text/x", &body);
        let path = format!("/v1/segments/{}/content", hex(&sent));
        let got = site.ask("GET", &path, b"");
        assert!(got.status == 200 && got.body == body && got.whole, "{len}");
        let digest = digest_field(blake3::hash(&body).as_bytes());
        assert!(got.headers.contains(&digest) && got.headers.contains("text/x"), "{}", got.headers);
        let head = site.ask("HEAD", &path, b"");
        assert!(head.whole && head.body.is_empty() && head.headers.contains(&digest));
        assert!(!site.closed);
    }
}

#[test]
fn content_waits_for_room_and_reads_no_further_ahead() {
    let mut site = Site::new();
    let body = content(4 * MIB);
    let sent = send(&mut site, "name=a", &body);
    site.room = 0;
    site.log.clear();
    site.feed(
        format!("GET /v1/segments/{}/content HTTP/1.1\r\nHost: h\r\n\r\n", hex(&sent)).as_bytes(),
    );
    let reads = |site: &Site| site.log.iter().filter(|l| l.starts_with("Read(")).count();
    assert!(site.out.len() < 1000, "a head and no content");
    assert_eq!(reads(&site), 2);
    site.room = 1000;
    site.settle();
    let got = site.got("GET");
    assert!(got.body == body && got.whole);
}

#[test]
fn content_that_does_not_match_its_digest_is_never_whole() {
    let mut site = Site::new();
    let sent = send(&mut site, "name=a", &content(5));
    let key = consign_core::ledger::keys::body(consign_core::id::BodyNo(1));
    assert!(site.store.flip(consign_core::ledger::Table::Bodies, &key, 2));
    let got = site.ask("GET", &format!("/v1/segments/{}/content", hex(&sent)), b"");
    assert_eq!((got.status, got.code().as_str()), (500, "corrupt"));
    assert!(site.log.iter().any(|line| line == "Corrupt"), "{:?}", site.log);

    let mut site = Site::new();
    let body = content(MIB);
    let sent = send(&mut site, "name=a", &body);
    let (blob, file) = site.store.files().next().map(|(n, f)| (n, f.data.to_vec())).unwrap();
    let mut wrong = file;
    wrong[MIB / 2] ^= 1;
    site.store.plant_file(blob, &wrong);
    let got = site.ask("GET", &format!("/v1/segments/{}/content", hex(&sent)), b"");
    assert_eq!(got.status, 200);
    assert!(!got.whole && got.body.len() < MIB && site.closed, "{} bytes came", got.body.len());

    let mut site = Site::new();
    let sent = send(&mut site, "name=a", &body);
    assert!(site.store.lose_file(blob));
    let got = site.ask("GET", &format!("/v1/segments/{}/content", hex(&sent)), b"");
    assert_eq!((got.status, got.code().as_str()), (404, "missing"));
}

#[test]
fn status_is_the_nodes_memory() {
    let mut site = Site::new();
    send(&mut site, "name=a&to=beta", b"hello");
    site.pass(90);
    let got = site.ask("GET", "/v1/status", b"");
    let status = got.json();
    assert_eq!((got.status, &status["schema"]), (200, &json!("consign.status/1")));
    assert_eq!((&status["name"], &status["runtime"]), (&json!("alpha"), &json!("smol")));
    assert_eq!((&status["segments"], &status["up_seconds"]), (&json!(1), &json!(90)));
    let beta = &status["peers"][0];
    assert_eq!((&beta["name"], &beta["up"]), (&json!("beta"), &json!(false)));
    assert_eq!(beta["queued"], json!({"count": 1, "bytes": 5}));
    assert!(!site.log.iter().any(|l| l.starts_with("Query")), "status never asks the ledger");
}

#[test]
fn since_when_peers_wait_is_read_from_the_ledger() {
    let mut site = Site::new();
    send(&mut site, "name=a&to=beta", b"hello");
    site.pass(90);
    let peers = site.ask("GET", "/v1/peers", b"").json();
    let oldest = |at: usize| peers["peers"][at]["oldest"].clone();
    assert_eq!((oldest(0), oldest(1)), (json!("2026-11-30T18:44:05.000Z"), json!(null)));
    assert!(site.log.iter().any(|line| line.starts_with("Query")));
    let page = String::from_utf8(site.ask("GET", "/metrics", b"").body).unwrap();
    for (peer, at) in [("beta", 1_796_064_245), ("gamma", 0)] {
        let name = "consign_peer_oldest_pending_timestamp_seconds";
        assert!(page.contains(&format!("{name}{{peer=\"{peer}\"}} {at}\n")), "{page}");
    }
}

#[test]
fn stop_is_answered_and_then_nothing_is_taken() {
    let mut site = Site::new();
    let got = site.ask("POST", "/v1/stop", b"");
    assert_eq!((got.status, &got.json()["stopping"]), (202, &json!(true)));
    let mut late = Site::new();
    late.feed(b"POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n");
    late.stop();
    late.feed(b"abc");
    let got = late.got("POST");
    assert_eq!((got.status, got.code().as_str()), (503, "busy"));
    assert!(got.headers.contains("Retry-After"));
}

#[test]
fn only_the_daemons_user_and_root_may() {
    for (uid, status) in [(UID, 200), (0, 200), (1001, 403)] {
        let mut site = Site::with(config(), &make(context()), Some(uid));
        assert_eq!(site.ask("GET", "/v1/status", b"").status, status, "{uid}");
        let sent = send(&mut site, "name=a", b"x").status;
        assert_eq!(sent, if status == 200 { 201 } else { 403 }, "{uid}");
    }
}

#[test]
fn tcp_serves_health_to_this_machine_alone() {
    let table = [
        ("GET", "/healthz", "localhost:7411", 200),
        ("GET", "/readyz", "127.0.0.1:7411", 200),
        ("GET", "/v1/status", "[::1]:7411", 200),
        ("HEAD", "/v1/status", "RELAY.example", 200),
        ("GET", "/v1/status", "evil.example", 421),
        ("GET", "/v1/status", "localhost.evil.example", 421),
        ("GET", "/healthz", "127.0.0.1.evil.example:80", 421),
        ("GET", "/v1/segments", "localhost", 403),
        ("POST", "/v1/stop", "localhost", 403),
        ("POST", "/v1/segments?name=a", "localhost", 403),
        ("GET", "/", "localhost", 200),
        ("GET", "/", "evil.example", 421),
        ("GET", "/v1/deadletters/groups?peer=beta", "localhost", 200),
        ("GET", "/v1/peers", "localhost", 200),
        ("GET", "/v1/deadletters", "localhost", 403),
        ("GET", "/v1/audit", "localhost", 403),
        ("POST", "/", "localhost", 403),
        ("POST", "/v1/acts", "localhost", 403),
    ];
    for (method, target, host, status) in table {
        let mut site = Site::with(config(), &make(context()), None);
        site.feed(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!(site.got(method).status, status, "{method} {target} {host}");
        assert!(!site.log.iter().any(|l| l == "Submit"));
    }
    let mut site = Site::with(config(), &make(context()), None);
    site.feed(b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(site.got("GET").status, 421);
}

#[test]
fn a_slow_client_of_tcp_is_timed_out_and_a_slow_pipe_is_not() {
    let mut tcp = Site::with(config(), &make(context()), None);
    tcp.feed(b"GET /he");
    tcp.pass(10);
    assert_eq!((tcp.got("GET").status, tcp.closed), (408, true));
    let mut pipe = Site::new();
    pipe.feed(
        b"POST /v1/segments?name=a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    pipe.pass(3600);
    pipe.feed(b"1\r\nx\r\n0\r\n\r\n");
    assert_eq!(pipe.got("POST").status, 201);
}

#[test]
fn refused_uploads_are_answered_before_the_body_and_closed_behind_it() {
    let mut site = Site::new();
    site.feed(b"POST /v1/segments?name=.. HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    let got = site.got("POST");
    assert_eq!((got.status, got.code().as_str()), (400, "invalid"));
    assert!(!site.closed, "the client gets to read it");
    site.feed(&content(70_000));
    assert!(site.closed);
    assert_eq!(site.log.len(), 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut site = Site::new();
    let mut text = String::new();
    for i in 0..50 {
        text += &format!(
            "POST /v1/segments?name=n{i} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx"
        );
    }
    text += "GET /v1/nothing HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    site.feed(text.as_bytes());
    let out = String::from_utf8(site.out.clone()).unwrap();
    let names: Vec<&str> =
        out.split("\"name\":\"").skip(1).map(|t| t.split('"').next().unwrap()).collect();
    assert_eq!(names, (0..50).map(|i| format!("n{i}")).collect::<Vec<_>>());
    assert!(out.ends_with("}\n") && out.contains("404 Not Found") && site.closed);
}

#[test]
fn bodies_nobody_asked_for_are_dropped() {
    let mut site = Site::new();
    let got = site.ask("GET", "/v1/status", b"surprise");
    assert_eq!(got.status, 200);
    assert_eq!(site.ask("GET", "/healthz", b"").body, b"ok\n");
}
