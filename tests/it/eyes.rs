//! What monitoring sees of running sites: `consign check`, `/metrics`, the log.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Output;

use serde_json::Value;

use crate::site::{RUNTIMES, Site, consign, free_address, lines, pair};
use crate::{http, wait};

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn metrics(site: &Site) -> String {
    said(&http::get(&site.socket(), "/metrics").expect("it answers").body)
}

/// The value of a series.
fn metric(site: &Site, series: &str) -> u64 {
    let page = metrics(site);
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{series}: {page}"))
}

fn check(site: &Site, args: &[&str]) -> Output {
    site.run(&[&["check"], args].concat())
}

#[test]
fn a_probe_tells_a_site_that_is_well_from_one_that_is_behind_or_gone() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        beta.serve();
        alpha.accepted("one", b"1");
        alpha.settled("beta");
        let well = check(&alpha, &["--format", "nagios"]);
        assert_eq!(well.status.code(), Some(0), "{well:?}");
        assert!(said(&well.stdout).starts_with("CONSIGN OK - alpha: everything is well ("));
        assert!(beta.stop().success());
        let id = alpha.accepted("two", b"22");
        let behind = check(&alpha, &["--pending", "0s,1h"]);
        assert_eq!(behind.status.code(), Some(1), "{behind:?}");
        let begins =
            |line: &str| line.split_whitespace().take(3).eq(["warning", "pending", "beta"]);
        assert!(said(&behind.stdout).lines().any(begins), "{behind:?}");
        let late = check(&alpha, &["--pending", "0s,0s", "--json"]);
        assert_eq!(late.status.code(), Some(2));
        let object = lines(&late.stdout).remove(0);
        assert_eq!(
            (&object["schema"], &object["verdict"]),
            (&"consign.check/1".into(), &"critical".into())
        );
        let unknown = check(&alpha, &["--peer", "nobody"]);
        assert_eq!(unknown.status.code(), Some(3));
        let page = said(&check(&alpha, &["--format", "prometheus", "--peer", "beta"]).stdout);
        let series =
            "consign_check_verdict{site=\"alpha\",check=\"deadletters\",subject=\"beta\"} 0\n";
        assert!(page.contains(series), "{page}");
        // Since when the peer waits is in the ledger: another process knows it too.
        let oldest = "consign_peer_oldest_pending_timestamp_seconds{peer=\"beta\"}";
        let since = metric(&alpha, oldest);
        let shown = alpha.json(&["show", &id]).remove(0);
        let accepted = shown["accepted_at"].as_str().expect("a time");
        let accepted = humantime(accepted);
        assert_eq!(since, accepted);
        assert!(alpha.stop().success());
        let gone = check(&alpha, &["--format", "nagios"]);
        assert_eq!(gone.status.code(), Some(2));
        assert!(said(&gone.stdout).starts_with("CONSIGN CRITICAL - CN0601: no daemon answers"));
        alpha.serve();
        assert_eq!(metric(&alpha, oldest), accepted);
    }
    let nowhere = consign().args(["-c", "/nowhere/consign.toml", "check"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(3), "{nowhere:?}");
    assert!(said(&nowhere.stdout).starts_with("unknown  site"), "{nowhere:?}");
}

/// Seconds since 1970 of a time in RFC 3339.
fn humantime(text: &str) -> u64 {
    let at = consign_core::http::parse_rfc3339(text).expect("a time");
    at.0 / 1000
}

#[test]
fn a_delivery_is_counted_at_both_ends() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        beta.serve();
        alpha.accepted("one", &[7; 100_000]);
        alpha.settled("beta");
        let attempts = "consign_delivery_attempts_total{peer=\"beta\",outcome=\"delivered\"}";
        assert_eq!(metric(&alpha, attempts), 1);
        assert_eq!(metric(&alpha, "consign_delivery_latency_seconds_count"), 1);
        assert_eq!(
            metric(&alpha, "consign_segments_accepted_bytes_total{source=\"local\"}"),
            100_000
        );
        assert_eq!(
            metric(&beta, "consign_segments_accepted_bytes_total{source=\"peer\"}"),
            100_000
        );
        // Bytes of one end are bytes of the other, once nothing is on its way.
        assert!(metric(&alpha, "consign_peer_sent_bytes_total{peer=\"beta\"}") > 100_000);
        assert!(metric(&beta, "consign_peer_received_bytes_total{peer=\"alpha\"}") > 100_000);
        assert_eq!(
            metric(&alpha, "consign_peer_oldest_pending_timestamp_seconds{peer=\"beta\"}"),
            0
        );
        let seen = metric(&alpha, "consign_rpc_requests_total{method=\"metrics\",code=\"200\"}");
        assert!(seen >= 5, "{seen}");
        assert!(metric(&alpha, "process_resident_memory_bytes") > 1 << 20);
        assert_eq!(metric(&alpha, "consign_invariant_violations_total"), 0);
    }
}

#[test]
fn the_log_is_flat_and_names_who_was_refused() {
    for runtime in RUNTIMES {
        let (mut alpha, _) = pair(runtime);
        let pickup = free_address();
        alpha.set("CONSIGN_LOG_FORMAT", "json");
        alpha.set("CONSIGN_LISTEN_PICKUP", &pickup.to_string());
        alpha.serve();
        let mut client = TcpStream::connect(pickup).expect("pickup listens");
        let remote = client.local_addr().expect("an address").to_string();
        let request = format!(
            "POST /buffer/upload HTTP/1.1\r\nHost: {pickup}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        client.write_all(request.as_bytes()).expect("it takes it");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        let line = wait::until("the refusal in the log", || {
            let log = alpha.log();
            let mut lines = log.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
            lines.rfind(|l| l["route"] == "/buffer/upload")
        });
        assert_eq!((&line["remote"], &line["node"]), (&remote.into(), &"alpha".into()));
        assert_eq!((&line["level"], &line["method"]), (&"INFO".into(), &"POST".into()));
        let status = line["status"].as_u64().expect("a status");
        assert!(answer.contains(&format!(" {status} ")), "{answer} {line}");
        let series = format!(
            "consign_http_request_duration_seconds_count{{route=\"/buffer/upload\",method=\"POST\",code=\"{status}\"}}"
        );
        assert_eq!(metric(&alpha, &series), 1);
        assert!(metric(&alpha, "consign_log_messages_total{level=\"info\"}") >= 1);
        for line in alpha.log().lines() {
            let object: Value =
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_eq!(object["node"], "alpha", "{line}");
            let flat = object.as_object().expect("an object").values().all(|v| !v.is_object());
            assert!(flat, "{line}");
        }
    }
}
