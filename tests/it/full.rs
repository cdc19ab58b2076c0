//! Full and failing disks: what cannot be kept is refused, what was accepted is not lost, and with room
//! the site goes on by itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::disk::Word;
use crate::http;
use crate::site::{RUNTIMES, Site, content, lines, make_file, pair};
use crate::wait;

fn files(count: u64, len: usize) -> Vec<(String, Vec<u8>)> {
    (0..count).map(|i| (format!("f{len}-{i}"), content(i, len))).collect()
}

/// Sends until the site says that it is full; which were accepted.
fn fill(site: &Site, files: &[(String, Vec<u8>)]) -> BTreeSet<String> {
    let mut accepted = BTreeSet::new();
    let mut refused = 0;
    for (name, bytes) in files {
        let reply = site.submit(name, bytes).expect("it lives and answers");
        let said: Value = serde_json::from_slice(&reply.body).expect("JSON");
        match reply.status {
            201 => drop(accepted.insert(name.clone())),
            507 => {
                refused += 1;
                assert_eq!(said["code"], "disk_full", "{said}");
            }
            other => panic!("{name}: {other} {said}"),
        }
    }
    assert!(!accepted.is_empty() && refused > 0, "{} accepted, {refused} refused", accepted.len());
    accepted
}

/// With room again everything is accepted, and what was accepted before is known.
fn recover(alpha: &Site, beta: &Site, files: &[(String, Vec<u8>)], accepted: &BTreeSet<String>) {
    alpha.disk().unlimited();
    wait::until_true("room again", || {
        let status = alpha.status();
        status["storage"]["full"] == false && status["ledger"]["ballast_whole"] == true
    });
    for (name, bytes) in files {
        // Right after a start the disk is still known as it was then: one may be told to try later.
        let said: Value = wait::until("it to be accepted", || {
            let reply = alpha.submit(name, bytes).expect("it answers");
            assert!(matches!(reply.status, 200 | 201 | 507), "{}", reply.status);
            let said = serde_json::from_slice(&reply.body).expect("JSON");
            (reply.status != 507).then_some(said)
        });
        assert_eq!(said["new"], !accepted.contains(name), "{name}: {said}");
    }
    let counts = alpha.settled("beta");
    assert_eq!((counts.delivered, counts.dead), (files.len() as u64, 0));
    assert_eq!(beta.segments().len(), files.len());
    for segment in beta.segments() {
        let content = beta.content(segment["id"].as_str().unwrap());
        assert_eq!(segment["digest"], blake3::hash(&content).to_hex().as_str());
    }
}

fn accepting(runtime: &'static str, len: usize, room: u64, min_free: &str) {
    let (mut alpha, mut beta) = pair(runtime);
    alpha.set("CONSIGN_STORAGE_MIN_FREE", min_free);
    alpha.expects_errors = true;
    alpha.on_disk();
    alpha.serve();
    beta.serve();
    let files = files(60, len);
    alpha.disk().fill_up_to(room);
    let accepted = fill(&alpha, &files);
    // It lives, it answers, and what it accepted goes out although nothing can come in.
    let counts = alpha.settled("beta");
    assert_eq!(counts.delivered, accepted.len() as u64);
    assert_eq!(beta.segments().len(), accepted.len());
    recover(&alpha, &beta, &files, &accepted);
}

#[test]
fn a_full_disk_refuses_content_files() {
    for runtime in RUNTIMES {
        accepting(runtime, 200_000, 4 << 20, "1B");
    }
}

#[test]
fn a_full_disk_refuses_inline_content() {
    for runtime in RUNTIMES {
        accepting(runtime, 60_000, 1 << 20, "1B");
    }
}

#[test]
fn a_full_site_is_told_to_the_user_as_try_later() {
    let (mut alpha, _beta) = pair("smol");
    alpha.expects_errors = true;
    alpha.on_disk();
    alpha.serve();
    alpha.disk().fill_up_to(0);
    let file = alpha.dir.join("file");
    make_file(&file, 1, 2 << 20);
    let output = alpha.run(&["send", file.to_str().unwrap(), "--to", "beta", "--json"]);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    let said = lines(&output.stderr);
    let failure = said.iter().find(|v| v["code"].is_string()).expect("a failure with a code");
    assert!(failure.to_string().contains("disk_full"), "{failure}");
    assert!(alpha.segments().is_empty());
}

#[test]
fn what_is_to_stay_free_stays_free() {
    let room = 6 << 20;
    accepting("smol", 200_000, room, "4MiB");
}

#[test]
fn what_was_accepted_before_a_full_disk_survives_a_kill() {
    let (mut alpha, mut beta) = pair("std");
    alpha.set("CONSIGN_STORAGE_MIN_FREE", "1B");
    alpha.expects_errors = true;
    alpha.on_disk();
    alpha.serve();
    let files = files(60, 200_000);
    alpha.disk().fill_up_to(4 << 20);
    let accepted = fill(&alpha, &files);
    alpha.kill();
    // It starts on the full disk.
    alpha.serve();
    assert_eq!(alpha.segments().len(), accepted.len());
    beta.serve();
    assert_eq!(alpha.settled("beta").delivered, accepted.len() as u64);
    recover(&alpha, &beta, &files, &accepted);
}

#[test]
fn a_full_receiver_is_waited_for() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        beta.set("CONSIGN_STORAGE_MIN_FREE", "1B");
        beta.expects_errors = true;
        beta.on_disk();
        alpha.serve();
        beta.serve();
        let files = files(30, 200_000);
        beta.disk().fill_up_to(2 << 20);
        for (name, bytes) in &files {
            alpha.accepted(name, bytes);
        }
        wait::until_true("a refusal", || {
            let segments = alpha.segments();
            segments.iter().any(|s| s["deliveries"][0]["last_error"] == "disk_full")
        });
        assert!(beta.segments().len() < files.len());
        beta.disk().unlimited();
        let counts = alpha.settled("beta");
        assert_eq!((counts.delivered, counts.dead), (files.len() as u64, 0));
        for segment in alpha.segments() {
            assert_eq!(segment["deliveries"][0]["spent"], 0, "a full disk is not its fault");
        }
        assert_eq!(beta.segments().len(), files.len());
    }
}

#[test]
fn a_disk_that_fills_during_a_transfer_leaves_nothing_half_done() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        beta.set("CONSIGN_STORAGE_MIN_FREE", "1B");
        beta.expects_errors = true;
        beta.on_disk();
        alpha.serve();
        beta.serve();
        let bytes = content(5, 96 << 20);
        let id = alpha.accepted("large", &bytes);
        // Others take what was reserved.
        let disk = beta.disk();
        wait::until_true("the transfer to begin", || disk.get(Word::Bytes) > 8 << 20);
        beta.disk().fill_up_to(4 << 20);
        wait::until_true("a refusal", || {
            alpha.segments()[0]["deliveries"][0]["last_error"] == "disk_full"
        });
        assert!(beta.segments().is_empty());
        assert_eq!(alpha.counts("beta").delivered, 0);
        beta.kill();
        beta.disk().unlimited();
        beta.serve();
        assert!(beta.arrival(&id) == bytes);
        let counts = alpha.settled("beta");
        assert_eq!((counts.delivered, counts.dead), (1, 0));
        assert_eq!(alpha.segments()[0]["deliveries"][0]["spent"], 0);
        // What is charged is what is held: nothing of the first attempt is left.
        wait::until_true("the rest of the first attempt to go", || {
            beta.status()["storage"]["used"] == bytes.len()
        });
        assert_eq!(files_in(&beta.dir.join("data/blobs")), 1);
    }
}

fn files_in(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { files_in(&e.path()) } else { 1 }).sum()
}

#[test]
fn a_sync_that_fails_stops_the_site_and_loses_nothing() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.expects_errors = true;
        alpha.on_disk();
        alpha.serve();
        let files = files(4, 1_000);
        alpha.accepted(&files[0].0, &files[0].1);
        let disk = alpha.disk();
        disk.set(Word::BreakSync, disk.get(Word::Syncs) + 1);
        let reply = alpha.submit(&files[1].0, &files[1].1);
        let accepted = reply.is_ok_and(|r| matches!(r.status, 200 | 201));
        assert!(!accepted, "not durable, so not accepted");
        assert_eq!(alpha.wait().code(), Some(70), "a disk that cannot be trusted ends the process");
        alpha.disk().set(Word::BreakSync, 0);
        alpha.serve();
        beta.serve();
        for (name, bytes) in &files {
            alpha.accepted(name, bytes);
        }
        assert_eq!(alpha.settled("beta").delivered, files.len() as u64);
        assert_eq!(beta.segments().len(), files.len());
    }
}

/// Hands in so many small segments at a time until all of them are refused; how many were accepted.
fn fill_small(site: &Site) -> u64 {
    const AT_ONCE: u64 = 512;
    let mut accepted = 0;
    for round in 0..200 {
        let mut body = Vec::new();
        for n in 0..AT_ONCE {
            let content = format!("item {round} {n}");
            let head = serde_json::json!({ "name": content, "size": content.len() });
            body.extend_from_slice(format!("{head}\n{content}").as_bytes());
        }
        let reply = http::post(&site.socket(), "/v1/segments/batch?to=beta", &body);
        let answers = lines(&reply.expect("it answers").body);
        let taken = answers.iter().filter(|a| a["schema"] == "consign.accepted/1").count();
        let full = answers.iter().filter(|a| a["code"] == "disk_full").count();
        assert_eq!((taken + full) as u64, AT_ONCE, "{answers:?}");
        accepted += taken as u64;
        if taken == 0 {
            return accepted;
        }
    }
    panic!("the disk is never full");
}

/// A small segment leaves more in the ledger than it takes away when it goes, and the ballast is the least that there
/// may be: the site takes no more than it can hand on.
#[test]
fn small_segments_leave_a_full_disk_over_the_smallest_ballast() {
    let (mut alpha, mut beta) = pair("smol");
    for (key, value) in [
        ("CONSIGN_STORAGE_MIN_FREE", "1B"),
        ("CONSIGN_RELAY_EVICT_ON_RELAY", "true"),
        ("CONSIGN_LIMITS_BALLAST", "1MiB"),
    ] {
        alpha.set(key, value);
    }
    alpha.expects_errors = true;
    alpha.on_disk();
    alpha.serve();
    alpha.disk().fill_up_to(7 << 20);
    let accepted = fill_small(&alpha);
    assert!(accepted > 2_000, "{accepted}");
    beta.serve();
    assert_eq!(alpha.settled("beta").dead, 0);
    assert_eq!(beta.segments().len() as u64, accepted);
    wait::until_true("all of it to go", || alpha.segments().is_empty());
    assert!(!alpha.has_ended());
}
