//! Content that was lost or changed at rest costs itself and nothing else.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::pickup::Relay;
use crate::site::{RUNTIMES, content, pair};
use crate::wait;

fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .flat_map(|e| if e.path().is_dir() { files_in(&e.path()) } else { vec![e.path()] })
        .collect();
    found.sort();
    found
}

#[test]
fn damaged_content_is_never_delivered_and_delays_nobody() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.set("CONSIGN_RELAY_MAX_RETRIES", "2");
        alpha.serve();
        alpha.expects_errors = true;
        beta.expects_errors = true;
        let mut sent = BTreeMap::new();
        for i in 0..30 {
            // Ten in files, twenty inline.
            let bytes = content(i, if i % 3 == 0 { 100_000 } else { 2_000 });
            sent.insert(alpha.accepted(&format!("f{i}"), &bytes), bytes);
        }
        assert!(alpha.stop().success());
        let files = files_in(&alpha.dir.join("data/blobs"));
        assert_eq!(files.len(), 10);
        fs::remove_file(&files[2]).unwrap();
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let short = open(&files[5]);
        short.set_len(60_000).unwrap();
        let flipped = open(&files[7]);
        let mut byte = [0];
        flipped.read_exact_at(&mut byte, 77_777).unwrap();
        flipped.write_all_at(&[byte[0] ^ 0x10], 77_777).unwrap();

        beta.serve();
        alpha.serve();
        wait::until_true("all others to arrive", || alpha.counts("beta").delivered == 27);
        let counts = alpha.settled("beta");
        assert_eq!((counts.delivered, counts.dead), (27, 3));
        let there = beta.segments();
        assert_eq!(there.len(), 27);
        for segment in there {
            let id = segment["id"].as_str().unwrap();
            assert!(beta.content(id) == sent[id]);
        }
        let mut causes: Vec<String> = alpha
            .segments()
            .iter()
            .map(|s| &s["deliveries"][0])
            .filter(|d| d["state"] == "dead")
            .map(|d| d["last_error"].as_str().unwrap().to_string())
            .collect();
        causes.sort();
        assert_eq!(causes, ["mismatch", "missing", "missing"]);
    }
}

#[test]
fn damaged_content_is_fetched_again_from_the_peer_that_gave_it() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        beta.expects_errors = true;
        alpha.serve();
        beta.serve();
        let sent: BTreeMap<String, Vec<u8>> = (0..3)
            .map(|i| (content(i, 100_000), format!("f{i}")))
            .map(|(bytes, name)| (alpha.accepted(&name, &bytes), bytes))
            .collect();
        assert_eq!(alpha.settled("beta").delivered, 3);
        let blobs = beta.dir.join("data/blobs");
        let files = files_in(&blobs);
        assert_eq!(files.len(), 3);
        // One goes while it runs: the next start sees that.
        fs::remove_file(&files[0]).unwrap();
        assert!(beta.stop().success());
        beta.serve();
        for (id, bytes) in &sent {
            assert!(beta.arrival(id) == *bytes, "every one as it was");
        }
        // Another is changed, and only whoever reads all of it sees that.
        let flipped = OpenOptions::new().read(true).write(true).open(&files[1]).unwrap();
        let mut byte = [0];
        flipped.read_exact_at(&mut byte, 77_777).unwrap();
        flipped.write_all_at(&[byte[0] ^ 0x10], 77_777).unwrap();
        assert!(beta.stop().success());
        let found = beta.run(&["fsck", "--content", "--repair"]);
        assert_eq!(found.status.code(), Some(0), "{found:?}");
        beta.serve();
        wait::until_true("the damaged file to be replaced", || !files[1].exists());
        for (id, bytes) in &sent {
            assert!(beta.arrival(id) == *bytes, "every one as it was");
        }
        assert_eq!(files_in(&blobs).len(), 3);
        let acts = String::from_utf8(beta.run(&["audit", "--json"]).stdout).unwrap();
        assert_eq!(acts.matches("\"repaired\"").count(), 2, "{acts}");
        assert!(alpha.stop().success() && beta.stop().success());
        let clean = beta.run(&["fsck", "--content"]);
        assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    }
}

/// Nobody waits for the daily look: who reads it finds it, and it comes again from where it came.
#[test]
fn what_a_client_finds_damaged_is_fetched_again_at_once() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        beta.expects_errors = true;
        alpha.serve();
        beta.serve();
        let bytes = content(4, 300_000);
        let id = alpha.accepted("f", &bytes);
        assert_eq!(alpha.settled("beta").delivered, 1);
        let files = files_in(&beta.dir.join("data/blobs"));
        flip(&files[0]);
        let got = beta.run(&["get", &id, "-o", "-"]);
        let said = String::from_utf8_lossy(&got.stderr).into_owned();
        assert!(!got.status.success() && said.contains("CN0630"), "{runtime}: {said}");
        wait::until_true("the damaged file to be replaced", || !files[0].exists());
        assert!(beta.content(&id) == bytes, "{runtime}: as it was");
        let acts = String::from_utf8(beta.run(&["audit", "--json"]).stdout).unwrap();
        assert_eq!(acts.matches("\"repaired\"").count(), 1, "{acts}");
    }
}

/// The one content file with these bytes.
fn file_with(relay: &Relay, bytes: &[u8]) -> PathBuf {
    let files = files_in(&relay.site.dir.join("data/blobs"));
    let with = |path: &PathBuf| fs::read(path).expect("content") == bytes;
    files.into_iter().find(with).expect("a file with these bytes")
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).expect("content");
    bytes[77_777] ^= 0x40;
    fs::write(path, bytes).expect("written");
}

#[test]
fn a_damaged_shard_is_given_up_alone_and_an_upload_brings_it_anew() {
    for runtime in RUNTIMES {
        let mut relay = Relay::new(runtime, &[]);
        relay.site.expects_errors = true;
        relay.serve();
        let mut node = relay.node("n1");
        let files: Vec<_> = (0..3).map(|i| relay.file(&format!("f{i}"), i, 200_000)).collect();
        let upload = |relay: &Relay, shard: usize| {
            let output = relay.upload(&files[shard].0, "n1", shard as u64);
            assert!(output.status.success(), "{output:?}");
        };
        upload(&relay, 0);
        upload(&relay, 1);
        flip(&file_with(&relay, &files[0].1));
        node.run();
        // The fetch finds it, and the scrub has the last word.
        wait::until("the damaged one to be given up", || {
            let ended = relay.state(0) == "RELAY_CLEANUP" && relay.state(1) == "NODE_STORED";
            ended.then_some(())
        });
        assert_eq!(node.stored(0), None, "{runtime}");
        let shown = relay.site.json(&["pickup", "shards", "show", "film/1/0@n1"]);
        assert_eq!(shown[0]["reason"], "corrupt", "{shown:?}");
        wait::until("its file to be set aside", || {
            (files_in(&relay.site.dir.join("data/quarantine")).len() == 1).then_some(())
        });
        upload(&relay, 0);
        wait::until("it to be stored", || (relay.state(0) == "NODE_STORED").then_some(()));
        assert_eq!(node.stored(0).as_ref(), Some(&files[0].1), "{runtime}");
        node.kill();
        // The same while no site runs.
        upload(&relay, 2);
        relay.site.stop();
        flip(&file_with(&relay, &files[2].1));
        let fsck = |args: &[&str]| relay.site.run(&[&["fsck", "--content"], args].concat());
        assert_eq!(fsck(&[]).status.code(), Some(1), "{runtime}");
        let mended = fsck(&["--repair"]);
        assert_eq!(mended.status.code(), Some(0), "{mended:?}");
        assert_eq!(fsck(&[]).status.code(), Some(0), "{runtime}");
        relay.site.serve();
        assert_eq!(relay.state(2), "RELAY_CLEANUP", "{runtime}");
        relay.site.stop();
    }
}
