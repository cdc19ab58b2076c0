//! What operators see and do: dead letters from refusal to delivery, holds, peers, the audit, metrics.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::site::{RUNTIMES, Site, content, lines, pair};
use crate::{http, wait};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What a command prints, and how it ends.
fn says(site: &Site, args: &[&str]) -> (Option<i32>, String) {
    let output = site.run(args);
    (output.status.code(), text(&output.stdout))
}

/// A command with something on its standard input.
fn fed(site: &Site, args: &[&str], input: &str) -> Output {
    let mut command = site.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn metrics(site: &Site) -> String {
    let reply = http::get(&site.socket(), "/metrics").unwrap();
    assert_eq!(reply.status, 200);
    text(&reply.body)
}

/// A site whose peer takes nothing large, and three segments that it refused.
fn refused(runtime: &'static str) -> (Site, Site, Vec<String>) {
    let (mut alpha, mut beta) = pair(runtime);
    beta.set("CONSIGN_STORAGE_MAX_SEGMENT", "10KiB");
    alpha.serve();
    beta.serve();
    let ids: Vec<String> =
        (0..3).map(|n| alpha.accepted(&format!("n{n}"), &content(n, 20 << 10))).collect();
    wait::until_true("three dead letters", || alpha.counts("beta").dead == 3);
    (alpha, beta, ids)
}

#[test]
fn dead_letters_are_counted_tried_dry_queued_again_and_delivered() {
    for runtime in RUNTIMES {
        let (alpha, mut beta, ids) = refused(runtime);
        let (code, table) = says(&alpha, &["deadletter", "ls", "--by", "reason"]);
        assert_eq!(code, Some(0));
        let mut rows = table.lines();
        let head: Vec<&str> = rows.next().unwrap().split("  ").filter(|c| !c.is_empty()).collect();
        let head: Vec<&str> = head.iter().map(|c| c.trim()).collect();
        assert_eq!(head, ["REASON", "PEER", "COUNT", "SIZE", "OLDEST", "TRY THIS"]);
        let row = rows.next().unwrap();
        assert!(row.starts_with("rejected: too large  beta      3  60.0 KiB"), "{row}");
        let help = format!(
            "raise storage.max_segment at beta, then: consign -c {} deadletter retry --peer beta --reason too_large",
            alpha.config().display()
        );
        assert!(row.ends_with(&help), "{row}");
        assert_eq!(rows.next(), None);

        let retry = ["deadletter", "retry", "--peer", "beta", "--reason", "too_large"];
        let dry = [&retry[..], &["-n"]].concat();
        let would = "Would queue 3 deliveries (60.0 KiB) to beta again. Nothing changed.\n";
        assert_eq!(says(&alpha, &dry), (Some(0), would.into()));
        assert_eq!(alpha.counts("beta").dead, 3);
        assert_eq!(alpha.json(&["audit"]), Vec::<Value>::new());

        assert!(beta.stop().success());
        beta.set("CONSIGN_STORAGE_MAX_SEGMENT", "1MiB");
        beta.serve();
        let why = [&retry[..], &["--why", "limit raised"]].concat();
        let done = "Queued 3 deliveries (60.0 KiB) to beta again.\n";
        assert_eq!(says(&alpha, &why), (Some(0), done.into()));
        for (n, id) in ids.iter().enumerate() {
            assert!(beta.arrival(id) == content(n as u64, 20 << 10));
        }
        wait::until_true("three deliveries", || alpha.counts("beta").delivered == 3);

        let audit = alpha.json(&["audit"]);
        assert_eq!(audit.len(), 1);
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(audit[0]["who"], format!("uid:{uid}"));
        assert_eq!(
            (&audit[0]["action"], &audit[0]["reason"]),
            (&"retry".into(), &"limit raised".into())
        );
        assert_eq!((&audit[0]["count"], &audit[0]["bytes"]), (&3.into(), &61_440.into()));
        let again = alpha.run(&["deadletter", "retry", &ids[0]]);
        assert_eq!(again.status.code(), Some(1));
        let said = text(&again.stderr);
        assert!(said.contains("for beta: not a dead letter (delivered)"), "{said}");
        assert_eq!(says(&alpha, &["deadletter", "retry", "--all"]).0, Some(4));
        assert_eq!(says(&alpha, &["deadletter", "retry"]).0, Some(2));
        assert_eq!(alpha.status()["acts"]["retry"], 4);
        let text = metrics(&alpha);
        assert!(text.contains("consign_acts_total{action=\"retry\"} 4\n"), "{text}");
        assert!(text.contains("consign_peer_delivered_segments{peer=\"beta\"} 3\n"));
        assert!(metrics(&beta).contains("consign_refusals_total{code=\"too_large\"} 0\n"));
    }
}

#[test]
fn a_purge_takes_what_was_named_and_asks_before_it_takes_all() {
    let (alpha, beta, ids) = refused("smol");
    // Once each, and once more for what was offered on a session that another took the place of.
    let page = metrics(&beta);
    let series = "consign_refusals_total{code=\"too_large\"} ";
    let refusals = page.lines().find_map(|line| line.strip_prefix(series)?.parse::<u64>().ok());
    assert!(refusals >= Some(3), "{page}");
    let unsure = alpha.run(&["deadletter", "purge", "--all"]);
    assert_eq!(unsure.status.code(), Some(2));
    let expected = "error[CN0401]: purge deletes 3 deliveries for good; \
                    repeat with --yes, or pass ids\n";
    assert_eq!(text(&unsure.stderr), expected);
    assert_eq!(alpha.counts("beta").dead, 3);

    // One row of the list goes straight into the next command.
    let listed = alpha.run(&["deadletter", "ls", "--json", "-n", "1"]);
    let output = fed(&alpha, &["deadletter", "purge", "-"], &text(&listed.stdout));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "Deleted 1 delivery (20.0 KiB) to beta.\n");
    assert_eq!(alpha.counts("beta").dead, 2);
    let nothing = fed(&alpha, &["deadletter", "purge", "-"], "");
    assert_eq!(nothing.status.code(), Some(4), "{nothing:?}");
    let some = fed(&alpha, &["deadletter", "purge", "-"], &format!("{}\nffffffffffff\n", ids[1]));
    assert_eq!(some.status.code(), Some(3), "{some:?}");
    let all = alpha.run(&["deadletter", "purge", "--all", "--yes", "--json"]);
    let report = &lines(&all.stdout)[0];
    assert_eq!((&report["schema"], &report["count"]), (&"consign.act/1".into(), &1.into()));
    assert_eq!(alpha.counts("beta").dead, 0);
    let actions = alpha.json(&["audit"]);
    assert!(actions.len() == 3 && actions.iter().all(|a| a["action"] == "purge"));
}

#[test]
fn what_is_held_waits_and_goes_once_it_is_let_loose() {
    let (mut alpha, mut beta) = pair("std");
    alpha.serve();
    let held = alpha.accepted("held", b"not yet");
    let (code, said) = says(&alpha, &["hold", &held[..12], "--why", "embargo"]);
    assert_eq!((code, &*said), (Some(0), "Held 1 segment (7 B).\n"));
    beta.serve();
    let free = alpha.accepted("free", b"at once");
    assert_eq!(beta.arrival(&free), b"at once");
    let listed = alpha.json(&["ls", "--state", "held"]);
    assert!(listed.len() == 1 && listed[0]["id"] == *held);
    let (code, _) = says(&alpha, &["unhold", "--all"]);
    assert_eq!(code, Some(0));
    assert_eq!(beta.arrival(&held), b"not yet");

    assert_eq!(says(&alpha, &["peers", "hold", "beta"]).0, Some(0));
    let later = alpha.accepted("later", b"after the hold");
    let (_, table) = says(&alpha, &["peers", "ls"]);
    assert!(table.lines().any(|l| l.contains("beta") && l.contains("up, held")), "{table}");
    assert!(alpha.stop().success());
    alpha.serve();
    assert_eq!(alpha.json(&["peers", "ls"])[0]["peers"][0]["held"], true);
    assert_eq!(alpha.counts("beta").queued, 1);
    assert_eq!(says(&alpha, &["peers", "release", "beta"]).0, Some(0));
    assert_eq!(beta.arrival(&later), b"after the hold");
    assert_eq!(says(&alpha, &["peers", "flush", "beta"]).0, Some(0));
    assert_eq!(says(&alpha, &["peers", "flush", "nobody"]).0, Some(4));
    assert_eq!(says(&alpha, &["peers", "forget", "beta", "--yes"]).0, Some(1));
}
