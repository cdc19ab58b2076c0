//! What operators ask: why does it wait, who holds it, may it go, how old is what waits, what is used.

use serde_json::Value;

use crate::site::{RUNTIMES, Site, consign, pair};
use crate::wait;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The one object that a verb answers with.
fn object(site: &Site, args: &[&str]) -> Value {
    let mut objects = site.json(args);
    assert_eq!(objects.len(), 1, "{args:?}: {objects:?}");
    objects.remove(0)
}

/// What a delivery waits for.
fn waits(site: &Site, id: &str) -> Vec<String> {
    let explained = object(site, &["explain", &id[..12]]);
    assert_eq!(explained["schema"], "consign.explanation/1");
    let reasons = explained["deliveries"][0]["waits_for"].as_array().unwrap().clone();
    reasons.iter().map(|reason| reason["what"].as_str().unwrap().to_string()).collect()
}

#[test]
fn codes_are_explained_without_a_site() {
    let output = consign().args(["explain", "CN0503", "quota"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = text(&output.stdout);
    assert!(said.starts_with("CN0503  no space: new segments are refused\n"), "{said}");
    assert!(said.contains("\nquota  the peer is over quota"), "{said}");
    let output = consign().args(["explain", "--all", "--json"]).output().unwrap();
    let codes = text(&output.stdout);
    assert!(codes.lines().count() > 200);
    assert!(codes.lines().all(|line| line.contains("\"schema\":\"consign.code/1\"")));
    let output = consign().args(["explain", "qouta"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = text(&output.stderr);
    assert!(said.starts_with("error[CN0404]") && said.contains("quota is one"), "{said}");
    assert_eq!(consign().arg("explain").output().unwrap().status.code(), Some(2));
}

#[test]
fn a_segment_is_followed_from_waiting_to_evicted() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.set("CONSIGN_RELAY_EVICT_ON_RELAY", "true");
        alpha.set("CONSIGN_RELAY_KEEP_RELAYED", "2s");
        alpha.serve();
        let id = alpha.accepted("video.mp4", &[7; 100_000]);
        let short = &id[..12];
        wait::until_true("beta to be found down", || waits(&alpha, &id) == ["peer_down"]);
        let owed = object(&alpha, &["assurance", short]);
        assert_eq!(owed["schema"], "consign.assurance/1");
        assert_eq!((&owed["met"], &owed["safe_to_delete"]), (&false.into(), &false.into()));
        assert_eq!(owed["owed"][0]["site"], "beta");
        let shape = object(&alpha, &["shape"]);
        assert_eq!(shape["peers"][0]["total"], 1);
        assert_eq!(shape["peers"][0]["counts"][0], 1);
        let unmet = alpha.json(&["assurance", "--unmet"]);
        assert_eq!((unmet.len(), &unmet[1]["unmet"]), (2, &1.into()));
        assert_eq!(unmet[1]["only_here"]["bytes"], 100_000);

        let output = alpha.run(&["hold", short]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(waits(&alpha, &id), ["held", "peer_down"]);
        assert_eq!(alpha.run(&["unhold", short]).status.code(), Some(0));
        beta.serve();
        assert!(beta.arrival(&id) == vec![7; 100_000]);
        wait::until_true("beta's acknowledgement", || {
            object(&alpha, &["assurance", short])["met"] == true
        });
        wait::until_true("its eviction", || {
            object(&alpha, &["assurance", short])["copy"] == "evicted"
        });
        let gone = object(&alpha, &["assurance", short]);
        assert_eq!((&gone["name"], &gone["size"]), (&"video.mp4".into(), &100_000.into()));
        assert_eq!(gone["holders"][0]["site"], "beta");
        let said = text(&alpha.run(&["explain", short]).stdout);
        let words = "it waits for nothing: it was relayed and evicted; beta holds it\n";
        assert!(said.ends_with(words), "{said}");

        // At its destination the copy is what was asked for.
        let there = object(&beta, &["assurance", short]);
        assert_eq!(there["safe_to_delete"], false);
        let quota = object(&beta, &["quota"]);
        let inbound = quota["quotas"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&inbound["peer"], &inbound["used"]), (&"alpha".into(), &100_000.into()));
        let stored = object(&beta, &["storage"]);
        assert_eq!((&stored["segments"], &stored["storage"]["used"]), (&1.into(), &100_000.into()));
        assert_eq!(alpha.run(&["assurance", "ffffffffffff"]).status.code(), Some(4));
        assert_eq!(alpha.run(&["shape", "--peer", "nobody"]).status.code(), Some(4));
    }
}

#[test]
fn more_is_logged_for_a_while_and_then_as_configured() {
    for runtime in RUNTIMES {
        let mut alpha = pair(runtime).0;
        alpha.serve();
        let detail = |id: &str| alpha.log().contains(&format!("accepted {}", &id[..12]));
        let quiet = alpha.accepted("a", b"a");
        let output = alpha.run(&["log-level", "debug", "--for", "1h"]);
        assert!(text(&output.stdout).starts_with("log level debug (asked by uid:"), "{output:?}");
        let status = text(&alpha.run(&["status"]).stdout);
        assert!(status.contains("log level debug"), "{status}");
        let loud = alpha.accepted("b", b"b");
        wait::until_true("its line in the log", || detail(&loud));
        assert!(!detail(&quiet), "{}", alpha.log());
        // A time that ends by itself.
        alpha.run(&["log-level", "trace", "--for", "1s"]);
        wait::until_true("the configured level", || {
            let shown = object(&alpha, &["log-level"]);
            assert_eq!(shown["configured"], "info");
            shown["asked"] == false && shown["level"] == "info"
        });
        let quiet = alpha.accepted("c", b"c");
        // And one that a reload ends; its line is behind everything that was logged before.
        alpha.run(&["log-level", "warn"]);
        assert_eq!(alpha.run(&["reload"]).status.code(), Some(0));
        wait::until_true("its line in the log", || {
            alpha.log().contains("log level as configured: a reload")
        });
        assert!(!detail(&quiet), "{}", alpha.log());
        // The line is written first, its record in the audit with the next commit.
        let records = || -> Vec<Value> {
            let all = alpha.json(&["audit"]).into_iter();
            all.filter(|r| r["action"] == "log_level").collect()
        };
        wait::until_true("the last act in the audit", || records().len() >= 5);
        let records = records();
        let subjects: Vec<_> = records.iter().map(|r| r["subject"].as_str().unwrap()).collect();
        assert_eq!(subjects, ["debug", "trace", "configured", "warn", "configured"]);
    }
}
