//! Content that was lost or changed at rest costs itself and nothing else.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
