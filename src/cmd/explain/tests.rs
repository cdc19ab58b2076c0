//! Codes and waiting in words.

use serde_json::Value;

use super::*;
use crate::admin::shapes::{Count, Delivery, Peer};
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::{addressed, said};

const ID: &str = "3fa9c17be2040000000000000000000000000000000000000000000000000000";

fn now() -> SystemTime {
    human::moment("2026-11-30T18:44:05.000Z").unwrap()
}

fn of(what: &str) -> ExplainArgs {
    ExplainArgs { what: vec![what.into()], all: false }
}

fn peer(name: &str) -> Peer {
    Peer { name: name.into(), address: "x:1".into(), known: true, up: true, ..Peer::default() }
}

fn status(peers: Vec<Peer>) -> Status {
    Status { schema: Status::SCHEMA.into(), name: "alpha".into(), peers, ..Status::default() }
}

fn segment(deliveries: Vec<Delivery>) -> Segment {
    Segment {
        id: ID.into(),
        name: "video.mp4".into(),
        priority: "normal".into(),
        size: 1000,
        deliveries,
        ..Segment::default()
    }
}

fn delivery(state: &str, error: Option<&str>) -> Delivery {
    Delivery {
        peer: "beta".into(),
        state: state.into(),
        attempts: 3,
        spent: 2,
        next_attempt_at: Some("2026-11-30T18:44:17.000Z".into()),
        last_error: error.map(String::from),
        ..Delivery::default()
    }
}

fn whats(segment: &Segment, status: &Status) -> Vec<String> {
    let all = waits::explanation(segment, status).deliveries;
    all.into_iter().flat_map(|d| d.waits_for).map(|reason| reason.what).collect()
}

#[test]
fn a_code_says_what_it_means_and_what_to_do() {
    let (exit, said) = said(false, |s| explain(&of("CN0503"), None, s, now()));
    assert_eq!(exit, Ok(Exit::Done));
    let expected = "\
CN0503  no space: new segments are refused
  in       A running site
  do this  make room; it goes on by itself";
    assert_eq!(said.lines, [expected]);
}

#[test]
fn a_word_with_several_meanings_says_all_of_them() {
    let (_, said) = said(true, |s| explain(&of("too_large"), None, s, now()));
    let sections: Vec<Value> = said
        .lines
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["section"].take())
        .collect();
    assert_eq!(sections.len(), 3, "{sections:?}");
    assert_eq!(sections[0], "Refusals between sites");
}

#[test]
fn what_is_no_code_is_answered_with_the_nearest() {
    let (exit, _) = said(false, |s| explain(&of("too_lrage"), None, s, now()));
    let failure = exit.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::NoMatch, "CN0404"));
    assert!(failure.help.starts_with("too_large is one"), "{failure}");
    let (exit, _) = said(false, |s| explain(&of("nothing like it"), None, s, now()));
    assert_eq!(exit.unwrap_err().help, "all codes: consign explain --all");
}

#[test]
fn all_of_them_are_listed_under_their_headings() {
    let all = ExplainArgs { what: Vec::new(), all: true };
    let (_, said_text) = said(false, |s| explain(&all, None, s, now()));
    assert_eq!(said_text.lines[0], "Command line");
    assert!(said_text.lines.contains(&"\nPickup, at clients and nodes".to_string()));
    let (_, said_json) = said(true, |s| explain(&all, None, s, now()));
    assert_eq!(said_json.lines.len(), codes::all().len());
}

#[test]
fn what_nobody_is_left_to_have_names_what_decides() {
    let unplaced = Segment { unplaced: true, ..segment(Vec::new()) };
    let found = waits::explanation(&unplaced, &status(Vec::new()));
    assert!(!found.done && found.summary.contains("consign release 3fa9c17be204"), "{found:?}");
}

#[test]
fn a_peer_with_another_certificate_than_the_pinned_one_is_told_by_its_pin() {
    let wrong = "the certificate of beta has the fingerprint sha256:ab, pinned is sha256:cd";
    let beta = Peer { up: false, last_error: wrong.into(), ..peer("beta") };
    let found = waits::explanation(&segment(vec![delivery("queued", None)]), &status(vec![beta]));
    let help = &found.deliveries[0].waits_for[0].help;
    assert!(help.contains("correct `fingerprint` of [[relay.known_peers]] beta"), "{help}");
}

#[test]
fn everything_that_keeps_a_delivery_is_named() {
    let waits = segment(vec![delivery("queued", None)]);
    let of = |change: fn(&mut Peer)| {
        let mut peer = peer("beta");
        change(&mut peer);
        whats(&waits, &status(vec![peer]))
    };
    assert_eq!(of(|_| {}), ["turn"]);
    assert_eq!(of(|p| p.held = true), ["peer_held"]);
    assert_eq!(of(|p| p.up = false), ["peer_down"]);
    assert_eq!(of(|p| p.retry_at = Some("x".into())), ["peer_pause"]);
    assert_eq!(of(|p| p.opens_at = Some("x".into())), ["window"]);
    assert_eq!(of(|p| (p.needs_rekey, p.up) = (true, false)), ["needs_rekey", "peer_down"]);
    assert_eq!(of(|p| p.known = false), ["peer_unknown"]);
    assert_eq!(whats(&waits, &status(Vec::new())), ["peer_unknown"]);
    let held = Segment { held: true, ..segment(vec![delivery("held", None)]) };
    assert_eq!(whats(&held, &status(vec![peer("beta")])), ["held"]);
    let backs = segment(vec![delivery("backing off", Some("quota"))]);
    assert_eq!(whats(&backs, &status(vec![peer("beta")])), ["backoff"]);
    for state in ["delivered", "dead", "sending"] {
        let one = segment(vec![delivery(state, None)]);
        let expected: &[&str] = match state {
            "dead" => &["operator"],
            "sending" => &["transfer"],
            _ => &[],
        };
        assert_eq!(whats(&one, &status(vec![peer("beta")])), expected, "{state}");
    }
}

#[test]
fn a_site_behind_another_waits_for_what_keeps_its_hop() {
    let waits = segment(vec![delivery("queued", None)]);
    let behind = Peer { via: "hub".into(), up: false, ..peer("beta") };
    let hub = Peer { up: false, ..peer("hub") };
    assert_eq!(whats(&waits, &status(vec![behind.clone(), hub])), ["peer_down"]);
    assert_eq!(whats(&waits, &status(vec![behind.clone(), peer("hub")])), ["turn"]);
    let held = Peer { held: true, ..behind };
    assert_eq!(whats(&waits, &status(vec![held, peer("hub")])), ["peer_held"]);
    let custody = Delivery { custody: Some("hub".into()), ..delivery("sending", None) };
    assert_eq!(whats(&segment(vec![custody]), &status(Vec::new())), ["receipt"]);
}

#[test]
fn numbers_of_a_refusal_are_told_where_they_can_only_be_its_own() {
    let since = "2026-11-30T18:44:01.000Z".to_owned();
    let dead = Delivery { since: since.clone(), ..delivery("dead", Some("too_large")) };
    let text = |at: Option<String>| {
        let beta = Peer { last_error: "9 bytes".into(), last_error_at: at, ..peer("beta") };
        let told = waits::explanation(&segment(vec![dead.clone()]), &status(vec![beta]));
        words(&told, now())
    };
    assert!(text(Some(since)).contains("\n  in full   9 bytes\n"));
    for later in [None, Some("2026-11-30T18:44:02.000Z".into())] {
        assert!(!text(later).contains("9 bytes"));
    }
}

#[test]
fn a_segment_is_explained_in_words() {
    let daemon = Daemon::answering(|request, _| {
        let down = Peer {
            up: false,
            last_error: "connect: connection refused".into(),
            retry_at: Some("2026-11-30T18:44:13.000Z".into()),
            queued: Count { count: 1, bytes: 1000 },
            ..peer("beta")
        };
        let deliveries = vec![
            delivery("backing off", Some("ack_timeout")),
            Delivery { peer: "gamma".into(), ..delivery("dead", Some("too_large")) },
        ];
        let body = match request.target.as_str() {
            "/v1/status" => serde_json::to_value(status(vec![down, peer("gamma")])),
            _ => serde_json::to_value(segment(deliveries)),
        };
        Say::json(200, body.unwrap())
    });
    let mut api = Api::new(&daemon.socket());
    let (exit, text) = said(false, |s| explain(&of("3fa9c1"), Some(&mut api), s, now()));
    assert_eq!(exit, Ok(Exit::Done));
    let expected = "\
3fa9c17be204  video.mp4: 2 of 2 deliveries still to be made, 1 of them given up
beta  backing off, tried 3 times; 2 failures count against relay.max_retries
  waits     beta to be reached, it is down: connect: connection refused (in 8 s)
  do this   `consign peers flush beta` tries at once
  waits     its pause after 2 failures to end (in 12 s)
  last time ack_timeout: the peer did not acknowledge within `relay.ack_timeout` on a live connection
gamma  dead, tried 3 times; 2 failures count against relay.max_retries
  waits     an operator's decision: it is a dead letter
  do this   raise storage.max_segment at gamma, then: consign deadletter retry --peer gamma --reason too_large
  last time too_large: larger than the peer takes";
    assert_eq!(text.lines, [expected]);
    let address = Address::of(None, Some("al"), None);
    let (_, text) = addressed(address, false, |s| explain(&of("3fa9c1"), Some(&mut api), s, now()));
    assert!(text.lines[0].contains("`consign --context al peers flush beta` tries"), "{text:?}");
    assert!(text.lines[0].contains("then: consign --context al deadletter retry"), "{text:?}");
    let (_, object) = said(true, |s| explain(&of("3fa9c1"), Some(&mut api), s, now()));
    let object: Value = serde_json::from_str(&object.lines[0]).unwrap();
    assert_eq!((&object["schema"], &object["done"]), (&Explanation::SCHEMA.into(), &false.into()));
    assert_eq!(object["deliveries"][0]["waits_for"][1]["what"], "backoff");
}

#[test]
fn what_was_evicted_waits_for_nothing_and_what_never_was_is_unknown() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/assurance/3fa9c1" => Say::json(
            200,
            serde_json::to_value(Assurance {
                id: ID.into(),
                name: "old".into(),
                because: "it was relayed and evicted; beta holds it".into(),
                ..Assurance::default()
            })
            .unwrap(),
        ),
        _ => Say::refuse(404, "unknown", "no segment has an id that begins so"),
    });
    let mut api = Api::new(&daemon.socket());
    let (_, text) = said(false, |s| explain(&of("3fa9c1"), Some(&mut api), s, now()));
    let expected =
        "3fa9c17be204  old: it waits for nothing: it was relayed and evicted; beta holds it";
    assert_eq!(text.lines, [expected]);
    let (exit, _) = said(false, |s| explain(&of("abcdef"), Some(&mut api), s, now()));
    assert_eq!(exit.map_err(|e| e.code), Err("CN0612"));
}
