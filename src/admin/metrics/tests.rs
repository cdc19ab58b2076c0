//! Every series is there from the start, under its family, and docs/METRICS.md tells each family.

use std::collections::{BTreeMap, BTreeSet};

use consign_core::code::Cause;
use consign_core::config::Config;
use consign_core::histogram::Histogram;
use consign_core::id::Epoch;
use consign_core::ledger::rows::CounterRow;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::node::{Ending, PeerStatus};
use consign_core::pickup::PickupRefusal;
use consign_core::time::UnixMillis;

use super::page::Seconds;
use super::*;
use crate::admin::testing::context;

fn status() -> Status {
    let peer = |name: &str| PeerStatus { name: name.into(), ..PeerStatus::default() };
    Status { peers: vec![peer("beta"), peer("gamma")], ..Status::default() }
}

fn has(text: &str, series: &str) {
    assert!(text.contains(&format!("{series}\n")), "{series}");
}

#[test]
fn every_series_is_there_from_the_start() {
    let text = text(&status(), &context());
    for refusal in Refusal::ALL {
        has(&text, &format!("consign_refusals_total{{code=\"{refusal}\"}} 0"));
    }
    for action in Action::ALL {
        has(&text, &format!("consign_acts_total{{action=\"{action}\"}} 0"));
    }
    for refusal in PickupRefusal::ALL {
        has(&text, &format!("consign_pickup_refusals_total{{code=\"{refusal}\"}} 0"));
    }
    for state in ShardState::ALL {
        has(&text, &format!("consign_shards{{state=\"{state}\"}} 0"));
        has(&text, &format!("consign_shard_transitions_total{{to=\"{state}\"}} 0"));
    }
    for source in ["local", "peer", "watch"] {
        has(&text, &format!("consign_segments_accepted_total{{source=\"{source}\"}} 0"));
    }
    for outcome in ["ok", "reused", "expired", "unknown"] {
        has(&text, &format!("consign_fetch_tokens_redeemed_total{{outcome=\"{outcome}\"}} 0"));
    }
    for peer in ["beta", "gamma"] {
        for state in ["queued", "sending", "backoff", "held", "deadletter"] {
            let labels = format!("{{peer=\"{peer}\",state=\"{state}\"}}");
            has(&text, &format!("consign_peer_queue_segments{labels} 0"));
            has(&text, &format!("consign_peer_queue_bytes{labels} 0"));
        }
        for ending in Ending::ALL {
            let labels = format!("{{peer=\"{peer}\",outcome=\"{ending}\"}}");
            has(&text, &format!("consign_delivery_attempts_total{labels} 0"));
        }
        for cause in Cause::ALL {
            let labels = format!("{{peer=\"{peer}\",reason=\"{cause}\"}}");
            has(&text, &format!("consign_delivery_failures_total{labels} 0"));
        }
        has(&text, &format!("consign_peer_oldest_pending_timestamp_seconds{{peer=\"{peer}\"}} 0"));
        has(&text, &format!("consign_peer_sent_bytes_total{{peer=\"{peer}\"}} 0"));
    }
    has(&text, "consign_delivery_latency_seconds_bucket{le=\"86400\"} 0");
    has(&text, "consign_rpc_requests_total{method=\"status\",code=\"200\"} 0");
    let upload = "{route=\"/buffer/upload\",method=\"POST\",code=\"200\"} 0";
    has(&text, &format!("consign_http_request_duration_seconds_count{upload}"));
    has(&text, "consign_build_info{version=\"0.1.0\",revision=\"\",runtime=\"smol\"} 1");
}

#[test]
fn what_the_node_tells_comes_out_under_its_labels() {
    let mut status = status();
    let beta = &mut status.peers[0];
    beta.session = Some(Epoch { boot: 1, session: 1 });
    beta.oldest = Some(consign_core::time::UnixMillis(7_500));
    for (at, row) in beta.counters.iter_mut().enumerate() {
        *row = CounterRow { count: at as u64 + 1, bytes: 10 };
    }
    beta.tallied.attempts[Ending::Dead as usize] = 3;
    status.tallied.latency.observe_ms(20);
    status.tallied.accepted[Source::Watch as usize] = CounterRow { count: 4, bytes: 44 };
    let text = text(&status, &context());
    has(&text, "consign_peer_up{peer=\"beta\"} 1");
    has(&text, "consign_peer_heartbeat_timestamp_seconds{peer=\"beta\"} 0");
    has(&text, "consign_peer_oldest_pending_timestamp_seconds{peer=\"beta\"} 7");
    for (state, count) in
        [("queued", 1), ("sending", 2), ("backoff", 4), ("held", 0), ("deadletter", 5)]
    {
        let labels = format!("{{peer=\"beta\",state=\"{state}\"}}");
        has(&text, &format!("consign_peer_queue_segments{labels} {count}"));
    }
    has(&text, "consign_peer_delivered_segments{peer=\"beta\"} 3");
    has(&text, "consign_delivery_attempts_total{peer=\"beta\",outcome=\"dead\"} 3");
    has(&text, "consign_segments_accepted_bytes_total{source=\"watch\"} 44");
    has(&text, "consign_delivery_latency_seconds_bucket{le=\"0.01\"} 0");
    has(&text, "consign_delivery_latency_seconds_bucket{le=\"0.025\"} 1");
    has(&text, "consign_delivery_latency_seconds_sum 0.02");
}

#[test]
fn what_waits_for_a_held_peer_is_held() {
    let mut status = status();
    let beta = &mut status.peers[0];
    beta.held = true;
    beta.counters[0] = CounterRow { count: 2, bytes: 20 };
    beta.counters[3] = CounterRow { count: 1, bytes: 5 };
    let text = text(&status, &context());
    has(&text, "consign_peer_queue_segments{peer=\"beta\",state=\"queued\"} 0");
    has(&text, "consign_peer_queue_bytes{peer=\"beta\",state=\"held\"} 25");
}

#[test]
fn what_waits_in_held_segments_is_held_and_counts_once() {
    let mut status = status();
    let beta = &mut status.peers[0];
    beta.counters[0] = CounterRow { count: 7, bytes: 70 };
    beta.counters[3] = CounterRow { count: 5, bytes: 50 };
    beta.held_back = [CounterRow { count: 2, bytes: 20 }, CounterRow { count: 4, bytes: 40 }];
    for (held, counts) in [(false, [5, 1, 6]), (true, [0, 0, 12])] {
        status.peers[0].held = held;
        let text = text(&status, &context());
        for (state, count) in ["queued", "backoff", "held"].iter().zip(counts) {
            let labels = format!("{{peer=\"beta\",state=\"{state}\"}}");
            has(&text, &format!("consign_peer_queue_segments{labels} {count}"));
            has(&text, &format!("consign_peer_queue_bytes{labels} {}", count * 10));
        }
    }
}

/// A peer with something of everything.
fn busy_peer() -> PeerStatus {
    let row = CounterRow { count: 7, bytes: 70 };
    let mut beta = PeerStatus {
        name: "beta".into(),
        known: true,
        held: true,
        needs_rekey: true,
        session: Some(Epoch { boot: 1, session: 1 }),
        counters: [row; 5],
        inbound: row,
        inbound_quota: Some(700),
        oldest: Some(UnixMillis(7_000)),
        last_acked: Some(UnixMillis(9_000)),
        ..PeerStatus::default()
    };
    beta.tallied.attempts.fill(3);
    beta.tallied.failures.fill(4);
    beta
}

/// A node with something of everything.
fn busy() -> Status {
    let row = CounterRow { count: 7, bytes: 70 };
    let more = [CounterRow { count: 9, bytes: 90 }; 5];
    let gamma = PeerStatus { name: "gamma".into(), counters: more, ..busy_peer() };
    let gamma = PeerStatus { held: false, held_back: [row; 2], ..gamma };
    let mut status = Status { peers: vec![busy_peer(), gamma], ..Status::default() };
    (status.boot, status.segments, status.unplaced, status.quarantined) = (2, 3, 4, 5);
    (status.used, status.limit, status.commits) = (6, 7, (8, 9));
    (status.full, status.reconciling, status.clock_held) = (true, true, true);
    (status.space.free, status.space.ledger, status.space.ballast_whole) = (10, 11, true);
    (status.scrub.last, status.scrub.bytes, status.scrub.corrupt) =
        (Some(UnixMillis(12_000)), 13, 14);
    status.refusals.fill(1);
    status.acts.fill(1);
    let tallied = &mut status.tallied;
    (tallied.accepted, tallied.deadletters) = ([row; 3], [1; 2]);
    (tallied.shards, tallied.spoiled) = ([1; ShardState::ALL.len()], [1; 2]);
    let timed = [&mut tallied.commits, &mut tallied.attempts, &mut tallied.latency];
    timed.into_iter().chain([&mut tallied.pickup_wait]).for_each(|h| h.observe_ms(20));
    let pickup = &mut status.pickup;
    (pickup.shards, pickup.refusals) =
        ([row; ShardState::ALL.len()], [1; PickupRefusal::ALL.len()]);
    (pickup.used, pickup.limit, pickup.clients, pickup.sessions) = (1, 2, 3, 4);
    (pickup.uploads, pickup.fetches, pickup.unanswered, pickup.stored) = (5, 6, 7, 8);
    (pickup.notified, pickup.redeemed, pickup.unused, pickup.broken) = (9, 10, 11, 12);
    (pickup.acks, pickup.bad_tokens, pickup.lost_uploads) = ((1, 2), [3, 4, 5], (6, 7));
    status
}

#[test]
fn every_series_moves_when_what_it_tells_of_does() {
    let busy_context = context();
    let config = Config { ledger_max: 1 << 30, ..Config::default() };
    busy_context.reloads.taken(UnixMillis(15_000), &config, &[]);
    busy_context.reloads.files_are("the key is not that of the certificate");
    let (idle, busy) = (text(&status(), &context()), text(&busy(), &busy_context));
    let idle: BTreeSet<&str> = idle.lines().collect();
    // What others than the node count has tests of its own; a held peer has nothing but `held`, and bounds of histograms may
    // be below or above what they have seen.
    let others = ["consign_rpc", "consign_http", "consign_log", "consign_build", "process_"];
    let other = |line: &&str| {
        others.iter().any(|name| line.starts_with(name))
            || line.contains("_bucket{")
            || ["sent", "received", "heartbeat"]
                .iter()
                .any(|what| line.starts_with(&format!("consign_peer_{what}")))
            || line.contains("peer=\"beta\",state=\"queued\"")
            || line.contains("peer=\"beta\",state=\"backoff\"")
    };
    let samples = busy.lines().filter(|line| !line.starts_with('#') && !other(line));
    let still: Vec<&str> = samples.filter(|line| idle.contains(line)).collect();
    // Nobody holds gamma.
    assert_eq!(still, ["consign_peer_held{peer=\"gamma\"} 0"]);
}

#[test]
fn every_sample_follows_its_family_and_no_series_stands_twice() {
    let text = text(&status(), &context());
    let (mut family, mut kind) = ("", "");
    let (mut series, mut families) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(families.insert(name), "{name} twice");
            assert!(!help.is_empty());
            family = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert_eq!(of == "counter", name.ends_with("_total"), "{name}");
            kind = of;
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let of = name.split('{').next().unwrap();
            let rest = of.strip_prefix(family).expect("it is of its family");
            let parts: &[&str] =
                if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(parts.contains(&rest), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(series.insert(name), "{name} twice");
        }
    }
    assert!(families.len() > 70, "{}", families.len());
}

/// Families of the page with their types.
fn exported(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Rows of docs/METRICS.md: name, type, labels.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let page = include_str!("../../../docs/METRICS.md");
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let labels = cells[3].split('`').skip(1).step_by(2).map(String::from).collect();
        let name = cells[1].trim_matches('`').to_owned();
        let twice = rows.insert(name, (cells[2].to_owned(), labels));
        assert_eq!(twice, None, "{line}");
    }
    rows
}

#[test]
fn the_documented_families_are_those_of_the_page_with_their_types_and_labels() {
    let text = text(&status(), &context());
    let documented = documented();
    let types: BTreeMap<String, String> =
        documented.iter().map(|(name, (kind, _))| (name.clone(), kind.clone())).collect();
    assert_eq!(exported(&text), types);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let ends = ["_bucket", "_sum", "_count"];
        let base = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let labels: BTreeSet<String> = rest
            .split("\",")
            .filter_map(|pair| pair.trim_start_matches(['{', ',']).split_once('='))
            .map(|(label, _)| label.to_owned())
            .filter(|label| label != "le")
            .collect();
        assert_eq!(labels, documented[base].1, "{line}");
    }
}

#[test]
fn labels_are_escaped_and_seconds_are_decimal() {
    let mut page = Page::default();
    page.sample("x", &[("peer", "a\"b\\c\nd")], 1);
    assert_eq!(page.into_text(), "x{peer=\"a\\\"b\\\\c\\nd\"} 1\n");
    for (micros, text) in [(0, "0"), (2_500, "0.0025"), (1_000_000, "1"), (1_500_001, "1.500001")] {
        assert_eq!(Seconds(micros).to_string(), text);
    }
}

#[test]
fn a_histogram_adds_up_whatever_bounds_are_told() {
    let mut histogram = Histogram::default();
    histogram.observe(1);
    histogram.observe(3_000_000);
    let mut page = Page::default();
    page.histogram("x", &[("a", "b")], &histogram, |bound| bound == 1_000_000);
    let text = "x_bucket{a=\"b\",le=\"1\"} 1\nx_bucket{a=\"b\",le=\"+Inf\"} 2\n\
                x_sum{a=\"b\"} 3.000001\nx_count{a=\"b\"} 2\n";
    assert_eq!(page.into_text(), text);
}

/// Metric names in a text: words that begin as one of ours, without the parts of histograms.
fn named(text: &str, exported: &BTreeMap<String, String>) -> BTreeSet<String> {
    let inner = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let ours = |word: &&str| word.starts_with("consign_") || word.starts_with("process_");
    let base = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        let base = ends.iter().find_map(|end| word.strip_suffix(end));
        let histogram = base.filter(|base| exported.get(*base).is_some_and(|k| k == "histogram"));
        histogram.unwrap_or(word).to_owned()
    };
    text.split(inner).filter(ours).map(base).collect()
}

#[test]
fn rules_and_dashboard_name_only_what_the_page_has() {
    let exported = exported(&text(&status(), &context()));
    let files = [
        include_str!("../../../contrib/prometheus/alerts.yml"),
        include_str!("../../../contrib/prometheus/alerts.test.yml"),
        include_str!("../../../contrib/grafana/consign.json"),
    ];
    for text in files {
        let named = named(text, &exported);
        assert!(named.len() > 5, "{named:?}");
        let gone: Vec<_> = named.iter().filter(|name| !exported.contains_key(*name)).collect();
        assert!(gone.is_empty(), "{gone:?}");
    }
    let made_up = named("rate(consign_made_up_total[5m])", &exported);
    assert!(made_up.iter().all(|name| !exported.contains_key(name)) && made_up.len() == 1);
}

#[test]
fn the_dashboard_is_bound_to_no_data_source_of_somebodys() {
    let text = include_str!("../../../contrib/grafana/consign.json");
    let board: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let variables = board["templating"]["list"].as_array().expect("variables");
    let names: Vec<_> = variables.iter().filter_map(|v| v["name"].as_str()).collect();
    assert_eq!(names, ["datasource", "instance", "peer"]);
    assert_eq!((&board["uid"], &board["id"]), (&serde_json::Value::Null, &serde_json::Value::Null));
    for (at, _) in text.match_indices("\"uid\":") {
        let rest = text[at + 6..].trim_start();
        assert!(rest.starts_with("\"${datasource}\"") || rest.starts_with("null"), "{rest:.40}");
    }
    let panels = board["panels"].as_array().expect("panels");
    let rows = panels.iter().filter(|p| p["type"] == "row").filter_map(|p| p["title"].as_str());
    let rows: Vec<_> = rows.collect();
    let wanted = ["Is it delivering?", "Queues", "Throughput", "Store", "Pickup", "Process"];
    assert_eq!(rows, wanted);
}
