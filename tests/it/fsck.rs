//! `consign fsck` on directories that real sites have left: clean ones are clean, damage is found by its
//! code, what is repaired serves and delivers again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use consign_core::ledger::Table;
use consign_core::ledger::rows::{MetaName, MetaRow};
use consign_core::store::{Batch, Snapshot};
use consign_storage_lmdb::{Offline, OpenOptions as StoreOptions};
use serde_json::Value;

use crate::site::{Site, content, lines, pair, with_schema};
use crate::wait;

/// Every file below a directory with its bytes.
fn listing(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(listing(&path));
        } else if let Ok(bytes) = fs::read(&path) {
            found.insert(path, bytes);
        }
    }
    found
}

fn files(site: &Site) -> Vec<PathBuf> {
    listing(&site.dir.join("data/blobs")).into_keys().collect()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x40], at).expect("written");
}

/// `fsck`, how it ended, its summary and the codes it found.
fn fsck(site: &Site, args: &[&str]) -> (Option<i32>, Value, Vec<String>) {
    let args: Vec<&str> = [&["fsck", "--json"], args].concat();
    let output = site.run(&args);
    let told = lines(&output.stdout);
    assert!(!told.is_empty(), "{output:?}");
    let summary = with_schema(&told, "consign.fsck/1").clone();
    let found = told.iter().filter(|v| v["schema"] == "consign.finding/1");
    let codes = found.map(|v| v["code"].as_str().expect("a code").to_owned()).collect();
    (output.status.code(), summary, codes)
}

/// Two sites that have sent something each way and stopped: what alpha sent, by id.
fn lived() -> (Site, Site, BTreeMap<String, Vec<u8>>) {
    let (mut alpha, mut beta) = pair("smol");
    alpha.serve();
    beta.serve();
    let mut sent = BTreeMap::new();
    for i in 0..12 {
        let bytes = content(i, if i % 3 == 0 { 100_000 } else { 2_000 });
        sent.insert(alpha.accepted(&format!("f{i}"), &bytes), bytes);
    }
    beta.accepted("back", &content(99, 3_000));
    alpha.settled("beta");
    beta.settled("alpha");
    assert!(alpha.stop().success() && beta.stop().success());
    (alpha, beta, sent)
}

/// Changes rows of a ledger that nobody uses.
fn change(site: &Site, change: impl FnOnce(&dyn Snapshot, &mut Batch)) {
    let store = Offline::to_repair(&StoreOptions::new(site.dir.join("data"))).expect("it opens");
    let mut batch = Batch::default();
    {
        let snapshot = store.snapshot().expect("a snapshot");
        change(&snapshot, &mut batch);
    }
    store.commit(&batch).expect("committed");
}

fn first(snapshot: &dyn Snapshot, table: Table) -> (Vec<u8>, Vec<u8>) {
    let mut found = None;
    let mut visit = |key: &[u8], value: &[u8]| {
        found = Some((key.to_vec(), value.to_vec()));
        false
    };
    snapshot.scan(table, &[], &mut visit).expect("a scan");
    found.unwrap_or_else(|| panic!("nothing in {table}"))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_empty_directory_holds_no_site_and_nothing_is_said_to_lie_beside_it() {
    let (alpha, _) = pair("smol");
    fs::create_dir_all(alpha.dir.join("data")).expect("made");
    let output = alpha.run(&["fsck"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("error[CN0520]") && said.contains("holds no site"), "{said}");
    assert!(!said.contains("beside"), "{said}");
}

#[test]
fn what_a_site_leaves_is_clean_and_looking_changes_nothing() {
    let (alpha, beta, _) = lived();
    for site in [&alpha, &beta] {
        let before = listing(&site.dir.join("data"));
        let (exit, summary, codes) = fsck(site, &["--content"]);
        assert_eq!((exit, codes.as_slice()), (Some(0), [].as_slice()), "{summary}");
        assert_eq!(summary["clean"], true);
        assert_eq!(summary["segments"], 13);
        assert!(summary["content_bytes_read"].as_u64() > Some(400_000), "{summary}");
        assert!(before == listing(&site.dir.join("data")), "looking changed something");
    }
    // A copy needs no configuration and no lock file.
    let copy = alpha.folder().path().join("copy");
    for (path, bytes) in listing(&alpha.dir.join("data")) {
        let to = copy.join(path.strip_prefix(alpha.dir.join("data")).expect("below"));
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        if !path.ends_with("lock") && !path.ends_with("lock.mdb") {
            fs::write(to, bytes).expect("copied");
        }
    }
    let output = crate::site::consign().arg("fsck").arg(&copy).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output).contains("Clean: 13 segments"), "{output:?}");
    assert!(!copy.join("lock").exists() && !copy.join("ledger/lock.mdb").exists());
}

#[test]
fn a_directory_in_use_is_left_alone() {
    let (mut alpha, _beta) = pair("std");
    alpha.serve();
    for args in [&["fsck"][..], &["fsck", "--repair"], &["fsck", "--restored"]] {
        let output = alpha.run(args);
        assert_eq!(output.status.code(), Some(75), "{output:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("CN0515") && told.contains(" stop` it first"), "{told}");
    }
    assert!(alpha.stop().success());
    let output =
        crate::site::consign().args(["fsck", "/nowhere/at/all"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(70), "{output:?}");
}

#[test]
fn damaged_files_are_found_and_repaired_and_their_neighbours_go_on() {
    let (mut alpha, mut beta) = pair("smol");
    alpha.expects_errors = true;
    alpha.serve();
    let mut sent = BTreeMap::new();
    for i in 0..12 {
        let bytes = content(i, if i % 2 == 0 { 100_000 } else { 2_000 });
        sent.insert(alpha.accepted(&format!("f{i}"), &bytes), bytes);
    }
    assert!(alpha.stop().success());
    let blobs = files(&alpha);
    assert_eq!(blobs.len(), 6);
    fs::remove_file(&blobs[0]).expect("removed");
    OpenOptions::new().write(true).open(&blobs[1]).expect("open").set_len(5).expect("cut");
    flip(&blobs[2], 77_777);
    let orphan = blobs[3].parent().expect("a folder").join("not-a-number");
    fs::write(&orphan, b"whose?").expect("written");

    let (exit, summary, codes) = fsck(&alpha, &[]);
    assert_eq!(exit, Some(1), "{summary}");
    assert_eq!(codes, ["CN0917", "CN0918", "CN0921"]);
    let (_, _, codes) = fsck(&alpha, &["--content"]);
    assert_eq!(codes, ["CN0917", "CN0918", "CN0922", "CN0921"]);

    let (exit, summary, codes) = fsck(&alpha, &["--repair", "--content"]);
    assert_eq!(exit, Some(0), "{summary}");
    assert_eq!(codes, ["CN0917", "CN0918", "CN0922", "CN0921"], "what was found is told");
    assert_eq!(summary["files_set_aside"], 1);
    assert!(!orphan.exists());
    let (exit, summary, _) = fsck(&alpha, &["--repair", "--content"]);
    assert_eq!((exit, &summary["mended"]), (Some(0), &0.into()), "once more changes nothing");

    // Nobody has to look for what is gone: the repair says so, and so does the site as long as it is.
    assert_eq!(summary["content_lost"], 3);
    beta.serve();
    alpha.serve();
    let counts = alpha.settled("beta");
    assert_eq!((counts.delivered, counts.dead), (9, 3));
    wait::until_true("all to be looked at", || alpha.status()["scrub"]["damaged"] == 3);
    let check = alpha.run(&["check"]);
    assert_eq!(check.status.code(), Some(2), "{}", text(&check));
    assert!(text(&check).contains("3 segments damaged"), "{}", text(&check));
    let lost: Vec<Value> = alpha.segments().into_iter().filter(|s| s["damaged"] == true).collect();
    assert_eq!(lost.len(), 3);
    for segment in lost {
        let id = segment["id"].as_str().expect("an id");
        let shown = alpha.run(&["show", &id[..12]]);
        assert!(text(&shown).contains("damaged or gone here"), "{}", text(&shown));
    }
    let listed = alpha.run(&["ls"]);
    assert!(text(&listed).contains("content damaged or gone"), "{}", text(&listed));
    for segment in beta.segments() {
        let id = segment["id"].as_str().expect("an id");
        assert!(beta.content(id) == sent[id], "B24: the far side has what was accepted");
    }
    assert!(alpha.stop().success() && beta.stop().success());
    assert_eq!(fsck(&beta, &["--content"]).0, Some(0));
    assert_eq!(fsck(&alpha, &["--content"]).0, Some(0));
}

#[test]
fn damaged_rows_are_refused_at_the_start_with_the_command_that_mends_them() {
    let (mut alpha, mut beta) = pair("std");
    alpha.expects_errors = true;
    alpha.serve();
    let ids: Vec<String> =
        (0..5).map(|i| alpha.accepted(&format!("f{i}"), &content(i, 2_000))).collect();
    assert!(alpha.stop().success());
    change(&alpha, |snapshot, batch| {
        for table in [Table::Peers, Table::Deliveries, Table::Ids, Table::Counters] {
            let (key, mut value) = first(snapshot, table);
            *value.last_mut().expect("a value") ^= 1;
            batch.put_raw(table, &key, &value);
        }
        for table in [Table::Due, Table::Owed] {
            batch.del(table, &first(snapshot, table).0);
        }
        batch.put(Table::Meta, MetaName::UsedBytes.key(), &MetaRow { value: 1 });
        batch.put(Table::Meta, MetaName::NextSeq.key(), &MetaRow { value: 2 });
    });
    alpha.start();
    assert!(!alpha.became_ready(), "it started on a ledger that it cannot read");
    assert_eq!(alpha.wait().code(), Some(70));
    assert!(alpha.log().contains("consign fsck --repair"), "{}", alpha.log());

    let (exit, summary, codes) = fsck(&alpha, &[]);
    assert_eq!(exit, Some(1), "{summary}");
    for code in ["CN0901", "CN0903", "CN0908", "CN0909", "CN0910", "CN0915"] {
        assert!(codes.iter().any(|c| c == code), "{code} in {codes:?}");
    }
    // The marker goes as well; nothing but the ledger says what it is.
    fs::remove_file(alpha.dir.join("data/FORMAT")).expect("removed");
    let (exit, summary, codes) = fsck(&alpha, &["--repair"]);
    assert_eq!(exit, Some(0), "{summary}");
    assert!(codes.iter().any(|c| c == "CN0916"), "{codes:?}");
    assert!(summary["rows_in_quarantine"].as_u64() >= Some(4), "{summary}");

    beta.serve();
    alpha.serve();
    let counts = alpha.settled("beta");
    assert_eq!((counts.delivered, counts.dead), (5, 0), "nothing that was owed is lost");
    for id in ids {
        beta.arrival(&id);
    }
    assert!(alpha.stop().success() && beta.stop().success());
    assert_eq!(fsck(&alpha, &["--content"]).0, Some(0));
}

#[test]
fn an_older_copy_of_the_ledger_goes_on_beyond_what_was_given_since() {
    let (mut alpha, mut beta) = pair("smol");
    alpha.expects_errors = true;
    beta.serve();
    alpha.serve();
    let old = alpha.accepted("old", &content(1, 100_000));
    alpha.settled("beta");
    assert!(alpha.stop().success());
    let ledger = alpha.dir.join("data/ledger/data.mdb");
    let copy = fs::read(&ledger).expect("a copy");
    alpha.serve();
    let newer: Vec<String> =
        (0..3).map(|i| alpha.accepted(&format!("n{i}"), &content(50 + i, 100_000))).collect();
    alpha.settled("beta");
    assert!(alpha.stop().success());
    fs::write(&ledger, copy).expect("put back");

    let (exit, _, codes) = fsck(&alpha, &[]);
    assert_eq!((exit, codes.as_slice()), (Some(1), ["CN0920"; 3].map(String::from).as_slice()));
    let (exit, summary, _) = fsck(&alpha, &["--restored"]);
    assert_eq!(exit, Some(0), "{summary}");
    assert_eq!(summary["files_set_aside"], 3, "set aside, not deleted");
    assert_eq!(summary["files_in_quarantine"].as_array().map(Vec::len), Some(3));
    assert_eq!(files(&alpha).len(), 1);

    alpha.serve();
    let after = alpha.accepted("after", &content(77, 100_000));
    alpha.settled("beta");
    let number = alpha.segments().iter().filter_map(|s| s["seq"].as_u64()).max();
    assert!(number > Some(1 << 32), "{number:?}");
    for id in newer.iter().chain([&old, &after]) {
        beta.arrival(id);
    }
    assert!(alpha.stop().success() && beta.stop().success());
    assert_eq!(fsck(&alpha, &["--content"]).0, Some(0));
}

#[test]
fn compacting_shrinks_the_ledger_and_keeps_everything() {
    let (mut alpha, _beta) = pair("std");
    alpha.serve();
    for i in 0..200 {
        alpha.accepted(&format!("f{i}"), &content(i, 60_000));
    }
    let before = alpha.segments();
    assert!(alpha.stop().success());
    // Free pages: what was held is let go behind the site's back.
    let keep = before.len() - 150;
    change(&alpha, |snapshot, batch| {
        let mut bodies = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            bodies.push(key.to_vec());
            true
        };
        snapshot.scan(Table::Bodies, &[], &mut visit).expect("a scan");
        for key in bodies.iter().skip(keep) {
            batch.del(Table::Bodies, key);
        }
    });
    let (exit, summary, _) = fsck(&alpha, &["--repair", "--compact", "--content"]);
    assert_eq!(exit, Some(0), "{summary}");
    let size = |key: &str| summary[key].as_u64().expect("a size");
    let (old, new) = (size("ledger_bytes_before"), size("ledger_bytes_after"));
    assert!(new < old / 2, "{old} bytes before, {new} after");
    let file = fs::metadata(alpha.dir.join("data/ledger/data.mdb")).expect("the ledger").len();
    assert_eq!(file, new);
    alpha.serve();
    assert_eq!(alpha.segments().len(), 200);
    assert!(alpha.stop().success());
}

#[test]
fn pages_that_cannot_be_read_are_a_report_and_not_a_crash() {
    let (alpha, _beta, _) = lived();
    let ledger = alpha.dir.join("data/ledger/data.mdb");
    let len = fs::metadata(&ledger).expect("the ledger").len();
    let file = OpenOptions::new().write(true).open(&ledger).expect("open");
    // Everything but the meta pages becomes noise.
    file.write_all_at(&content(5, len as usize - 8192), 8192).expect("written");
    let output = alpha.run(&["fsck"]);
    let said = |bytes: &[u8], what: &str| String::from_utf8_lossy(bytes).contains(what);
    // The newest meta page may be of before the first commit: then nothing is there at all.
    let told = match output.status.code() {
        Some(1) => said(&output.stderr, "error[CN") || said(&output.stdout, "Not clean"),
        Some(70) => said(&output.stderr, "error[CN"),
        _ => false,
    };
    assert!(told, "{output:?}");
}
