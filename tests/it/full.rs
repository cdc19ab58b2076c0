//! Full and failing disks: what cannot be kept is refused, what was accepted is not lost, and with room
//! the site goes on by itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::disk::Word;
use crate::site::{RUNTIMES, Site, lines, make_file, pair};
use crate::wait;

/// Hands in one file; the exit code and what was said.
fn send(site: &Site, file: &str) -> (i32, Vec<Value>) {
    let output = site.run(&["send", file, "--to", "beta", "--json"]);
    let code = output.status.code().expect("send is not killed");
    let said = if code == 0 { lines(&output.stdout) } else { lines(&output.stderr) };
    (code, said)
}

fn files(site: &Site, count: u64, len: usize) -> Vec<PathBuf> {
    let folder = site.dir.join("files");
    fs::create_dir_all(&folder).unwrap();
    let paths = (0..count).map(|i| folder.join(format!("f{len}-{i}")));
    paths
        .enumerate()
        .inspect(|(i, path)| drop(make_file(path, *i as u64, len)))
        .map(|p| p.1)
        .collect()
}

/// Sends until the site says that it is full; which were accepted.
fn fill(site: &Site, files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut accepted = BTreeSet::new();
    let mut refused = 0;
    for file in files {
        match send(site, file.to_str().unwrap()) {
            (0, _) => drop(accepted.insert(file.clone())),
            (75, said) => {
                refused += 1;
                let text = said[0].to_string();
                assert!(said[0]["code"].as_str().is_some_and(|c| !c.is_empty()), "{text}");
                assert!(text.contains("space") || text.contains("disk_full"), "{text}");
            }
            other => panic!("{file:?}: {other:?}"),
        }
    }
    assert!(!accepted.is_empty() && refused > 0, "{} accepted, {refused} refused", accepted.len());
    accepted
}

/// With room again everything is accepted, and what was accepted before is known.
fn recover(alpha: &Site, beta: &Site, files: &[PathBuf], accepted: &BTreeSet<PathBuf>) {
    alpha.disk().unlimited();
    wait::until_true("room again", || {
        let status = alpha.status();
        status["storage"]["full"] == false && status["ledger"]["ballast_whole"] == true
    });
    for file in files {
        let (code, said) = send(alpha, file.to_str().unwrap());
        assert_eq!(code, 0, "{said:?}");
        let new = said.iter().find_map(|v| v["new"].as_bool()).expect("what became of it");
        assert_eq!(new, !accepted.contains(file), "{file:?}");
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
    let files = files(&alpha, 60, len);
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
    let files = files(&alpha, 60, 200_000);
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
        let files = files(&alpha, 30, 200_000);
        beta.disk().fill_up_to(2 << 20);
        for file in &files {
            assert_eq!(send(&alpha, file.to_str().unwrap()).0, 0);
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
fn a_sync_that_fails_stops_the_site_and_loses_nothing() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.expects_errors = true;
        alpha.on_disk();
        alpha.serve();
        let files = files(&alpha, 4, 1_000);
        let (first, rest) = files.split_first().unwrap();
        assert_eq!(send(&alpha, first.to_str().unwrap()).0, 0);
        let disk = alpha.disk();
        disk.set(Word::BreakSync, disk.get(Word::Syncs) + 1);
        let (code, said) = send(&alpha, rest[0].to_str().unwrap());
        assert_ne!(code, 0, "not durable, so not accepted: {said:?}");
        assert_eq!(alpha.wait().code(), Some(70), "a disk that cannot be trusted ends the process");
        alpha.disk().set(Word::BreakSync, 0);
        alpha.serve();
        beta.serve();
        for file in &files {
            assert_eq!(send(&alpha, file.to_str().unwrap()).0, 0);
        }
        assert_eq!(alpha.settled("beta").delivered, files.len() as u64);
        assert_eq!(beta.segments().len(), files.len());
    }
}
