//! `[[inbox]]` and `[[watch]]` from end to end: what appears at one site appears at the other, once,
//! whoever is killed meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::site::{RUNTIMES, Site, content, make_file, pair};
use crate::wait;

/// Adds a section to a site's configuration.
fn configure(site: &Site, section: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(site.config()).expect("a file");
    write!(file, "\n{section}").expect("written");
}

/// Every file below a directory that is not hidden, with its content.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(at) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&at) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let (path, name) = (entry.path(), entry.file_name());
            if name.to_string_lossy().starts_with('.') {
                continue;
            }
            if path.is_dir() {
                dirs.push(path);
            } else if let Ok(bytes) = fs::read(&path) {
                let name = path.strip_prefix(dir).expect("it is below");
                found.insert(name.to_str().expect("UTF-8").to_owned(), bytes);
            }
        }
    }
    found
}

fn put(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    // Whole from the first moment it is seen.
    let aside = path.with_file_name(".aside");
    fs::write(&aside, bytes).expect("written");
    fs::rename(&aside, &path).expect("renamed");
}

/// Alpha watches `out`, beta gives out into `in`.
fn watched_pair(runtime: &'static str, remove: bool) -> (Site, Site, PathBuf, PathBuf) {
    let (alpha, beta) = pair(runtime);
    let (out, into) = (alpha.dir.join("out"), beta.dir.join("in"));
    let watch =
        format!("[[watch]]\ndir = \"out\"\nto = [\"beta\"]\nquiet = \"50ms\"\nremove = {remove}\n");
    configure(&alpha, &watch);
    configure(&beta, "[[inbox]]\nfrom = \"al*\"\ndir = \"in\"\n");
    fs::create_dir(&out).expect("a directory");
    (alpha, beta, out, into)
}

#[test]
fn what_appears_at_one_site_appears_at_the_other() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta, out, into) = watched_pair(runtime, true);
        alpha.serve();
        beta.serve();
        let mut expected = BTreeMap::new();
        for (i, name) in ["a.txt", "sub/b c.bin", "sub/deep/d", "empty"].iter().enumerate() {
            let bytes =
                if *name == "empty" { Vec::new() } else { content(i as u64, 1 + i * 90_000) };
            put(&out, name, &bytes);
            expected.insert((*name).to_owned(), bytes);
        }
        wait::until_true("all files to appear", || files(&into) == expected);
        wait::until_true("their sources to go", || files(&out).is_empty());
        let all = wait::until("exports to be done", || {
            let all = beta.json(&["inbox", "ls", "--all"]);
            all.iter().all(|e| e["state"] == "done").then_some(all)
        });
        assert_eq!(all.len(), expected.len(), "{all:?}");
        assert!(beta.json(&["inbox", "ls"]).is_empty());
        let watch = alpha.json(&["watch", "ls"]);
        assert_eq!((watch[0]["taken"].as_u64(), watch[0]["error"].as_str()), (Some(4), Some("")));
        assert!(alpha.stop().success() && beta.stop().success());
    }
}

#[test]
fn every_file_arrives_once_whoever_is_killed() {
    let (mut alpha, mut beta, out, into) = watched_pair("smol", false);
    alpha.serve();
    beta.serve();
    let mut expected = BTreeMap::new();
    for round in 0..6_u64 {
        for i in 0..10_u64 {
            let (name, size) = (format!("r{round}/f{i}"), 1 + (i as usize % 3) * 70_000);
            let bytes = content(round * 100 + i, size);
            put(&out, &name, &bytes);
            expected.insert(name, bytes);
        }
        // Some have arrived, some have not.
        let some = (round as usize) * 10 + 2;
        wait::until_true("some files to appear", || files(&into).len() >= some);
        let site = if round % 2 == 0 { &mut beta } else { &mut alpha };
        site.kill();
        site.serve();
    }
    wait::until_true("all files to appear", || files(&into).len() >= expected.len());
    let all = wait::until("exports to be done", || {
        let all = beta.json(&["inbox", "ls", "--all"]);
        (all.len() >= expected.len() && all.iter().all(|e| e["state"] == "done")).then_some(all)
    });
    assert_eq!(all.len(), expected.len());
    assert!(files(&into) == expected, "every file once, with its bytes");
    assert_eq!(files(&out).len(), expected.len(), "sources are left alone");
    let aside = fs::read_dir(into.join(".consign")).map_or(0, Iterator::count);
    assert_eq!(aside, 0, "nothing is left aside");
}

#[test]
fn commands_run_on_what_arrives_and_failures_can_be_tried_again() {
    let (mut alpha, mut beta) = pair("std");
    let log = beta.dir.join("ran");
    let script = beta.dir.join("import");
    let text = format!(
        "echo \"$CONSIGN_NAME $CONSIGN_ORIGIN $CONSIGN_LABEL_KIND\" >>'{}'; test -e '{}'",
        log.display(),
        beta.dir.join("works").display()
    );
    fs::write(&script, text).expect("written");
    configure(
        &beta,
        &format!(
            "[[inbox]]\nlabel = \"kind=csv\"\ndir = \"in\"\ncommand = [\"/bin/sh\", \"{}\"]\n",
            script.display()
        ),
    );
    alpha.serve();
    beta.serve();
    let path = alpha.dir.join("x.csv");
    make_file(&path, 1, 100);
    let path = path.to_str().expect("UTF-8");
    let sent = alpha.run(&["send", path, "--to", "beta", "--label", "kind=csv"]);
    assert!(sent.status.success(), "{sent:?}");
    make_file(&alpha.dir.join("y.csv"), 2, 100);
    let other = alpha.dir.join("y.csv");
    let sent = alpha.run(&["send", other.to_str().expect("UTF-8"), "--to", "beta"]);
    assert!(sent.status.success(), "{sent:?}");
    let failed = wait::until("the command to be given up", || {
        let open = beta.json(&["inbox", "ls"]);
        open.into_iter().find(|e| e["state"] == "failed")
    });
    assert_eq!((failed["runs"].as_u64(), failed["exit"].as_i64()), (Some(8), Some(1)));
    fs::write(beta.dir.join("works"), "").expect("written");
    let id = failed["id"].as_str().expect("an id");
    let done = beta.json(&["inbox", "retry", id]);
    assert_eq!(done[0]["count"], 1);
    wait::until_true("the command to succeed", || beta.json(&["inbox", "ls"]).is_empty());
    let ran = fs::read_to_string(&log).expect("it ran");
    assert_eq!(ran, "x.csv alpha csv\n".repeat(9));
    assert_eq!(files(&beta.dir.join("in")).len(), 1);
}

#[test]
fn a_rule_that_comes_later_takes_what_is_here_when_asked_and_a_full_one_holds_up_no_other() {
    let (mut alpha, mut beta) = pair("smol");
    alpha.serve();
    beta.serve();
    let id = alpha.accepted("early", b"early bytes");
    assert_eq!(beta.arrival(&id), b"early bytes");
    assert!(beta.stop().success());
    // Nothing can ever be put where a file is.
    fs::write(beta.dir.join("blocked"), "").expect("written");
    configure(&beta, "[[inbox]]\ndir = \"blocked\"\n[[inbox]]\nname = \"*\"\ndir = \"in\"\n");
    beta.serve();
    let id = alpha.accepted("late", b"late bytes");
    assert_eq!(beta.arrival(&id), b"late bytes");
    let into = beta.dir.join("in");
    wait::until_true("the late one", || files(&into).contains_key("late"));
    assert_eq!(files(&into).len(), 1);
    assert_eq!(beta.json(&["inbox", "run"])[0]["count"], 2);
    wait::until_true("the early one", || files(&into).contains_key("early"));
    let waits = beta.json(&["inbox", "ls"]);
    assert_eq!(waits.len(), 2, "{waits:?}");
    assert!(waits.iter().all(|e| e["state"] == "waiting"), "{waits:?}");
    wait::until_true("the trouble to be shown", || {
        let waits = beta.json(&["inbox", "ls"]);
        waits.iter().all(|e| e["error"].as_str().is_some_and(|error| error.contains("blocked")))
    });
    fs::remove_file(beta.dir.join("blocked")).expect("removed");
    wait::until_true("the others", || files(&beta.dir.join("blocked")).len() == 2);
}
