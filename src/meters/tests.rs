//! Requests find their label, bytes their peer, contradictions their count.

use std::time::Duration;

use consign_core::http::{Answered, Method};
use consign_core::id::ConnId;
use consign_core::session::Identity;

use super::*;
use crate::admin::rpc;

fn answered<'a>(method: &'a Method, target: &'a str, status: u16) -> Answered<'a> {
    let remote = "192.0.2.7:4000";
    Answered { method, target, status, remote, took: Duration::from_millis(3) }
}

fn label(table: &'static [Row], answered: &Answered<'_>) -> (&'static str, &'static str) {
    let mut served = Served::default();
    served.count(served::row_of(table, answered), answered);
    let rows = served.rows(table, 0);
    let (&(at, status), _) = rows.iter().find(|(_, h)| h.count() == 1).expect("it is counted");
    assert_eq!(status, answered.status);
    (table[at].label, table[at].method)
}

#[test]
fn requests_have_the_label_of_their_row_and_strangers_share_one() {
    let table = [
        (Method::Get, "/v1/segments?limit=3", "index"),
        (Method::Head, "/v1/segments", "index"),
        (Method::Post, "/v1/segments?name=a", "accept"),
        (Method::Get, "/v1/segments/3fa9c1", "show"),
        (Method::Get, "/v1/segments/3fa9c1/content", "content"),
        (Method::Get, "/v1/segments/", "show"),
        (Method::Post, "/v1/log-level?level=debug", "log_level_set"),
        (Method::Get, "/v1/segments/a/b/c/d", "other"),
        (Method::Delete, "/v1/status", "other"),
        (Method::Other("BREW".into()), "/pot", "other"),
        (Method::Get, "", "other"),
    ];
    for (method, target, want) in table {
        assert_eq!(label(rpc(), &answered(&method, target, 200)).0, want, "{target}");
    }
    let head = label(HTTP, &answered(&Method::Head, "/buffer/upload", 404));
    assert_eq!(head, ("/buffer/upload", "HEAD"));
    assert_eq!(label(HTTP, &answered(&Method::Put, "/buffer/upload", 405)), ("other", "other"));
}

#[test]
fn every_request_of_the_documented_interface_has_a_row() {
    let page = include_str!("../../docs/ADMIN.md");
    let mut seen = 0;
    for line in
        page.lines().filter(|line| line.starts_with("| `GET /") || line.starts_with("| `POST /"))
    {
        let cell = line.split('|').nth(1).unwrap_or_default();
        for request in cell.split('`').filter(|text| text.contains(" /")) {
            let (method, target) = request.split_once(' ').expect("a method and a target");
            let method = if method == "GET" { Method::Get } else { Method::Post };
            let target =
                target.split([' ', '?']).next().unwrap_or_default().replace("{id}", "3fa9c1");
            assert_ne!(label(rpc(), &answered(&method, &target, 200)).0, "other", "{request}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_row_is_there_from_the_start() {
    let rows = Served::default().rows(rpc(), 200);
    assert_eq!(rows.len(), rpc().len());
    assert!(rows.values().all(|histogram| histogram.count() == 0));
}

struct Parrot;

impl Session for Parrot {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        if let SessionInput::Bytes(bytes) = input {
            out.bytes.extend_from_slice(bytes);
            out.place(bytes.to_vec().into());
        }
    }
    fn next_deadline(&self) -> Option<Instant> {
        Some(Instant(7))
    }
    fn wants_read(&self) -> bool {
        false
    }
}

#[test]
fn bytes_are_counted_for_their_peer_over_all_its_sessions() {
    let meters = Meters::default();
    let make = meters.counting(Arc::new(|_: &ConnInfo| Box::new(Parrot)));
    let identity = Identity { name: "beta".into(), fingerprint: [0; 32], not_after: 0 };
    let conn = ConnId { slot: 0, generation: 1 };
    let info = ConnInfo { conn, remote: "x".into(), uid: None, identity: Some(identity) };
    let mut out = SessionOut::default();
    for _ in 0..2 {
        let mut session = make(&info);
        session.step(Now::default(), SessionInput::Bytes(b"abc"), &mut out);
        session.step(Now::default(), SessionInput::Timer, &mut out);
        assert_eq!((session.next_deadline(), session.wants_read()), (Some(Instant(7)), false));
    }
    assert_eq!(meters.traffic("beta"), (12, 6));
    assert_eq!(meters.traffic("gamma"), (0, 0));
    let mut stranger = make(&ConnInfo { identity: None, ..info });
    stranger.step(Now::default(), SessionInput::Bytes(b"abc"), &mut out);
    assert_eq!(meters.traffic("beta"), (12, 6));
}

#[test]
fn a_peer_was_heard_when_its_bytes_came_and_not_when_something_else_did() {
    let meters = Meters::default();
    let make = meters.counting(Arc::new(|_: &ConnInfo| Box::new(Parrot)));
    let identity = Identity { name: "beta".into(), fingerprint: [0; 32], not_after: 0 };
    let conn = ConnId { slot: 0, generation: 1 };
    let mut session =
        make(&ConnInfo { conn, remote: "x".into(), uid: None, identity: Some(identity) });
    let mut out = SessionOut::default();
    let at = |ms| Now { wall: UnixMillis(ms), ..Now::default() };
    session.step(at(1_000), SessionInput::Timer, &mut out);
    assert_eq!(meters.heard_at("beta"), None);
    session.step(at(2_000), SessionInput::Bytes(b"abc"), &mut out);
    session.step(at(3_000), SessionInput::Timer, &mut out);
    assert_eq!(meters.heard_at("beta"), Some(UnixMillis(2_000)));
    assert_eq!(meters.heard_at("gamma"), None);
}

#[test]
fn only_contradictions_count_as_such() {
    let meters = Meters::default();
    meters.heard(&Note::RoomAgain);
    meters.heard(&Note::Warn { code: "protocol", text: String::new() });
    assert_eq!(meters.violations(), 0);
    meters.heard(&Note::Quarantined { what: "a row".into() });
    let summary = consign_core::node::ReconcileSummary { missing: 2, ..Default::default() };
    meters.heard(&Note::Reconciled(summary));
    meters.heard(&Note::Warn { code: "partial_lost", text: String::new() });
    assert_eq!(meters.violations(), 4);
}
