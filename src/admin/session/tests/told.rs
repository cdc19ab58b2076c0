//! Events, assurance and shape over a local connection.

use consign_core::id::Seq;
use consign_core::ledger::rows::Loss;
use consign_core::ledger::{Table, keys};
use consign_core::node::Note;
use serde_json::json;

use crate::admin::make;
use crate::admin::testing::{Site, UID, config, context, ledger, segment_row};
use crate::events::Events;

fn followed() -> (Site, Events) {
    let context = context();
    let events = context.events.clone();
    (Site::with(config(), &make(context), Some(UID)), events)
}

#[test]
fn a_question_waits_for_an_event_and_no_longer_than_it_said() {
    let (mut site, events) = followed();
    assert_eq!(site.ask("GET", "/v1/events?since=0&wait=30", b"").status, 0, "it waits");
    site.pass(1);
    assert!(site.out.is_empty(), "nothing has happened yet");
    events.record(Note::RoomAgain);
    site.pass(1);
    let got = site.got("GET");
    assert_eq!((got.status, got.json()["events"][0]["kind"].clone()), (200, json!("room_again")));
    // What is there already is told at once, and the time that was named ends the wait.
    assert_eq!(site.ask("GET", "/v1/events?since=0&wait=30", b"").json()["last"], 1);
    assert_eq!(site.ask("GET", "/v1/events?since=1&wait=2", b"").status, 0);
    site.pass(1);
    assert!(site.out.is_empty());
    site.pass(1);
    assert_eq!(site.got("GET").json()["events"], json!([]));
    // Without a wait it is answered at once.
    assert_eq!(site.ask("GET", "/v1/events?since=1", b"").json()["events"], json!([]));
    for bad in ["since=x", "wait=51", "limit=0", "what=1"] {
        assert_eq!(site.ask("GET", &format!("/v1/events?{bad}"), b"").status, 400, "{bad}");
    }
}

#[test]
fn the_level_of_the_log_is_told_changed_and_given_back() {
    let context = context();
    context.reloads.logs_at(tracing::Level::INFO);
    let mut site = Site::with(config(), &make(context), Some(UID));
    let configured = json!({
        "schema": "consign.log_level/1", "level": "info", "configured": "info", "asked": false,
        "until": null, "who": "",
    });
    assert_eq!(site.ask("GET", "/v1/log-level", b"").json(), configured);
    let got = site.ask("POST", "/v1/log-level?level=debug&for=2", b"").json();
    assert_eq!((&got["level"], &got["who"]), (&json!("debug"), &json!(format!("uid:{UID}"))));
    assert!(got["until"].is_string(), "{got}");
    let status = site.ask("GET", "/v1/status", b"").json();
    assert_eq!(
        (&status["log"]["level"], &status["log"]["until"]),
        (&json!("debug"), &got["until"])
    );
    site.pass(2);
    assert_eq!(site.ask("GET", "/v1/log-level", b"").json(), configured);
    let got = site.ask("POST", "/v1/log-level?level=error", b"").json();
    assert_eq!((&got["asked"], &got["until"]), (&json!(true), &json!(null)));
    assert_eq!(site.ask("POST", "/v1/log-level?level=configured", b"").json(), configured);
    let records = site.ask("GET", "/v1/audit", b"").json();
    let subjects: Vec<_> = records["records"].as_array().unwrap().iter().collect();
    let subjects: Vec<_> = subjects.iter().map(|r| r["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["debug", "configured", "error", "configured"]);
}

#[test]
fn whoever_says_nothing_more_is_not_waited_with() {
    let (mut site, _) = followed();
    assert_eq!(site.ask("GET", "/v1/events?since=0&wait=50", b"").status, 0);
    site.eof();
    let got = site.got("GET");
    assert_eq!((got.status, got.json()["events"].clone()), (200, json!([])));
    // Also when that was known before the question was.
    let (mut site, _) = followed();
    let question = b"GET /v1/events?since=0&wait=50 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    site.feed(question);
    site.feed(question);
    assert!(site.out.is_empty());
    site.eof();
    assert_eq!(String::from_utf8_lossy(&site.out).matches("HTTP/1.1 200 ").count(), 2);
}

#[test]
fn a_site_that_stops_lets_nobody_wait() {
    let (mut site, _) = followed();
    assert_eq!(site.ask("GET", "/v1/events?since=0&wait=30", b"").status, 0);
    site.stop();
    let got = site.got("GET");
    assert_eq!((got.status, got.code()), (503, "busy".into()));
}

#[test]
fn assurance_is_asked_by_id_and_by_selection() {
    let (mut site, _) = followed();
    let id = site.ask("POST", "/v1/segments?name=a&to=beta", b"hello").json()["id"].clone();
    let id = id.as_str().unwrap().to_string();
    let one = site.ask("GET", &format!("/v1/assurance/{}", &id[..8]), b"").json();
    assert_eq!((&one["id"], &one["safe_to_delete"]), (&json!(id), &json!(false)));
    assert_eq!(one["owed"], json!([{"site": "beta", "state": "queued", "last_error": null}]));
    for (target, count) in [("", 1), ("?peer=beta", 1), ("?peer=gamma", 0), ("?unmet=1", 1)] {
        let page = site.ask("GET", &format!("/v1/assurance{target}"), b"").json();
        assert_eq!(page["assurances"].as_array().unwrap().len(), count, "{target}");
    }
    let shape = site.ask("GET", "/v1/shape", b"").json();
    assert_eq!(shape["peers"][0]["counts"], json!([1, 0, 0, 0, 0, 0, 0]));
    for (target, status) in [
        ("/v1/assurance/ffffff", 404),
        ("/v1/assurance/x", 400),
        ("/v1/assurance?peer=nobody", 404),
        ("/v1/assurance?after=x", 400),
        ("/v1/shape?after=x", 400),
    ] {
        assert_eq!(site.ask("GET", target, b"").status, status, "{target}");
    }
    assert_eq!(site.ask("POST", "/v1/shape", b"").status, 405);
}

#[test]
fn an_id_that_leads_nowhere_is_looked_for_among_all_only_where_content_is_lost() {
    let queries = |site: &Site| site.log.iter().filter(|line| line.contains("Query")).count();
    let targets =
        |id: &str| [("GET", format!("/v1/segments/{id}")), ("GET", format!("/v1/assurance/{id}"))];
    let mut well = Site::new();
    for (method, target) in targets("ffffff") {
        let before = queries(&well);
        assert_eq!(well.ask(method, &target, b"").status, 404, "{target}");
        assert_eq!(queries(&well) - before, 1, "{target}: nothing more is read");
    }
    let mut row = segment_row(1);
    row.loss = Some(Loss::Gone);
    let id = row.id.to_string();
    let store = ledger(|batch| batch.put(Table::Segments, &keys::seq(Seq(1)), &row));
    let mut lossy = Site::on(store, config(), &make(context()), Some(UID));
    assert_eq!(lossy.ask("GET", "/v1/status", b"").json()["scrub"]["damaged"], 1);
    for (method, target) in targets(&id[..8]) {
        let before = queries(&lossy);
        let got = lossy.ask(method, &target, b"");
        assert_eq!((got.status, &got.json()["id"]), (200, &json!(id)), "{target}");
        assert_eq!(queries(&lossy) - before, 2, "{target}");
    }
    assert_eq!(lossy.ask("GET", "/v1/segments/ffffff", b"").status, 404);
}
