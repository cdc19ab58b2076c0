//! Acts, lists and metrics over a local connection.

use consign_core::store::CommitFault;
use serde_json::{Value, json};

use crate::admin::make;
use crate::admin::testing::{Got, Site, UID, config, context};

fn act(site: &mut Site, body: &Value) -> Got {
    site.ask("POST", "/v1/acts", body.to_string().as_bytes())
}

fn held(site: &mut Site) -> String {
    let got = site.ask("POST", "/v1/segments?name=a&to=beta", b"hello");
    got.json()["id"].as_str().unwrap().into()
}

#[test]
fn a_hold_is_reported_listed_and_recorded() {
    let mut site = Site::new();
    let id = held(&mut site);
    let hold = json!({"action": "hold", "ids": [id[..8]], "why": "embargo"});
    let got = act(&mut site, &hold);
    assert_eq!(got.status, 200);
    let expected = json!({
        "schema": "consign.act/1", "action": "hold", "dry_run": false, "count": 1, "bytes": 5,
        "commits": 1, "done": [{"peer": "", "count": 1, "bytes": 5}], "left": [], "left_count": 0,
    });
    assert_eq!(got.json(), expected);
    let listed = site.ask("GET", "/v1/segments?state=held", b"").json();
    assert_eq!(listed["segments"][0]["id"], id);
    let again = act(&mut site, &hold).json();
    assert_eq!((&again["count"], &again["left"][0]["code"]), (&json!(0), &json!("already")));
    let audit = site.ask("GET", "/v1/audit", b"").json();
    assert_eq!(audit["schema"], "consign.audit/1");
    let record = &audit["records"][0];
    assert_eq!(record["who"], format!("uid:{UID}"));
    assert_eq!((&record["action"], &record["reason"]), (&json!("hold"), &json!("embargo")));
    assert_eq!(audit["records"].as_array().unwrap().len(), 1);
}

#[test]
fn a_peer_is_held_and_shown_so() {
    let mut site = Site::new();
    assert_eq!(act(&mut site, &json!({"action": "hold_peer", "peer": "beta"})).status, 200);
    let peers = site.ask("GET", "/v1/peers", b"").json();
    assert_eq!(peers["schema"], "consign.peers/1");
    assert_eq!(
        (&peers["peers"][0]["name"], &peers["peers"][0]["held"]),
        (&json!("beta"), &json!(true))
    );
    let status = site.ask("GET", "/v1/status", b"").json();
    assert_eq!((&status["acts"]["hold_peer"], &status["acts"]["purge"]), (&json!(1), &json!(0)));
    assert_eq!(status["refusals"]["too_large"], 0);
    let metrics = site.ask("GET", "/metrics", b"");
    assert_eq!(metrics.status, 200);
    assert!(metrics.headers.contains("text/plain; version=0.0.4"), "{}", metrics.headers);
    let text = String::from_utf8(metrics.body).unwrap();
    assert!(text.contains("consign_peer_held{peer=\"beta\"} 1\n"), "{text}");
}

#[test]
fn acts_that_cannot_be_are_refused_with_their_status() {
    let mut site = Site::new();
    let table = [
        (json!({"action": "retry"}), 400, "invalid"),
        (json!({"action": "retry", "peer": "delta"}), 404, "unknown"),
        (json!({"action": "flush"}), 400, "invalid"),
        (json!({"action": "forget", "peer": "beta"}), 400, "invalid"),
        (json!({"action": "hold", "ids": ["xyz"]}), 400, "invalid_id"),
        (json!(["retry"]), 400, "invalid"),
    ];
    for (body, status, code) in table {
        let got = act(&mut site, &body);
        assert_eq!((got.status, got.code()), (status, code.into()), "{body}");
    }
    assert_eq!(site.ask("GET", "/v1/acts", b"").status, 405);
    let large = vec![b' '; 3 << 20];
    assert_eq!(site.ask("POST", "/v1/acts", &large).status, 413);
}

#[test]
fn an_act_is_reported_behind_its_commit_or_refused() {
    let mut site = Site::new();
    held(&mut site);
    site.store.fail_commit(1, CommitFault::Full("no space left on device".into()));
    let got = act(&mut site, &json!({"action": "hold", "all": true}));
    assert_eq!((got.status, got.code()), (507, "disk_full".into()));
    let listed = site.ask("GET", "/v1/segments?state=held", b"").json();
    assert_eq!(listed["segments"], json!([]));
}

#[test]
fn dead_letters_are_listed_with_what_is_wrong_in_the_question() {
    let mut site = Site::new();
    let list = site.ask("GET", "/v1/deadletters", b"").json();
    let none = json!({"schema": "consign.deadletters/1", "deadletters": [], "next": null});
    assert_eq!(list, none);
    let groups = site.ask("GET", "/v1/deadletters/groups?reason=loop&peer=beta", b"").json();
    let none = json!({"schema": "consign.deadletter_groups/1", "groups": [], "next": null});
    assert_eq!(groups, none);
    let bad = ["limit=0", "limit=1001", "after=1", "after=a-b-c", "reason=whim", "older=x", "x=1"];
    for query in bad {
        let got = site.ask("GET", &format!("/v1/deadletters?{query}"), b"");
        assert_eq!(got.status, 400, "{query}");
    }
    assert_eq!(site.ask("GET", "/v1/deadletters?peer=delta", b"").status, 404);
    assert_eq!(site.ask("GET", "/v1/audit?since=yesterday", b"").status, 400);
    assert_eq!(site.ask("POST", "/v1/deadletters", b"").status, 405);
}

#[test]
fn over_tcp_there_are_metrics_and_no_acts_without_a_page() {
    let mut site = Site::with(config(), &make(context()), None);
    assert_eq!(site.ask("GET", "/metrics", b"").status, 200);
    let mut site = Site::with(config(), &make(context()), None);
    let got = act(&mut site, &json!({"action": "hold_peer", "peer": "beta"}));
    assert_eq!((got.status, got.code()), (403, "cross_origin".into()));
    for target in ["/v1/shape", "/v1/deadletters", "/v1/audit"] {
        let mut site = Site::with(config(), &make(context()), None);
        assert_eq!(site.ask("GET", target, b"").status, 403, "{target}");
    }
}
