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
    // The file is there before the commit that says so.
    wait::until_true("the two others", || beta.json(&["inbox", "ls"]).len() == 2);
    let waits = beta.json(&["inbox", "ls"]);
    assert!(waits.iter().all(|e| e["state"] == "waiting"), "{waits:?}");
    wait::until_true("the trouble to be shown", || {
        let waits = beta.json(&["inbox", "ls"]);
        waits.iter().all(|e| e["error"].as_str().is_some_and(|error| error.contains("blocked")))
    });
    fs::remove_file(beta.dir.join("blocked")).expect("removed");
    wait::until_true("the others", || files(&beta.dir.join("blocked")).len() == 2);
}

/// What stands for a rule in `status`.
fn rule(site: &Site) -> serde_json::Value {
    site.status()["inbox"][0].clone()
}

#[test]
fn what_a_rule_owes_follows_its_directory_over_a_restart_and_not_over_a_reload() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        configure(&beta, "[[inbox]]\ndir = \"in\"\n");
        let (old, new) = (beta.dir.join("in"), beta.dir.join("elsewhere"));
        alpha.serve();
        beta.expects_errors = true;
        beta.serve();
        let send = |alpha: &Site, name: &str| {
            let file = alpha.dir.join(name);
            fs::write(&file, name).expect("written");
            let file = file.to_str().expect("a path");
            assert!(alpha.run(&["send", file, "--to", "beta", "--wait"]).status.success());
        };
        send(&alpha, "first");
        wait::until_true("the first file", || files(&old).len() == 1);
        // Nothing can be written there any more.
        fs::remove_dir_all(&old).expect("removed");
        fs::write(&old, "in the way").expect("written");
        send(&alpha, "second");
        wait::until_true("trouble to be seen", || {
            rule(&beta)["error"].as_str().is_some_and(|error| error.ends_with("is no directory"))
        });
        let text = fs::read_to_string(beta.config()).expect("there");
        fs::write(beta.config(), text.replace("dir = \"in\"", "dir = \"elsewhere\""))
            .expect("written");
        let reloaded = beta.run(&["reload"]);
        let said = String::from_utf8_lossy(&reloaded.stdout).into_owned();
        assert!(said.contains("needs restart: inbox"), "{reloaded:?}");
        assert_eq!(beta.json(&["inbox", "ls"])[0]["dir"], old.to_str().expect("a path"));
        beta.stop();
        beta.serve();
        wait::until_true("the second file", || files(&new).len() == 1);
        let all = wait::until("the export to be done", || {
            let all = beta.json(&["inbox", "ls", "--all"]);
            all.iter().all(|export| export["state"] == "done").then_some(all)
        });
        assert_eq!(all.len(), 1, "the first one was given out by a rule that is gone: {all:?}");
        assert_eq!(all[0]["dir"], new.to_str().expect("a path"));
        assert!(alpha.stop().success() && beta.stop().success());
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_seen_everywhere_until_it_can() {
    let (_alpha, mut beta) = pair("std");
    configure(&beta, "[[inbox]]\ndir = \"in\"\n[[watch]]\ndir = \"out\"\n");
    let (into, out) = (beta.dir.join("in"), beta.dir.join("out"));
    for dir in [&into, &out] {
        fs::write(dir, "in the way").expect("written");
    }
    beta.expects_errors = true;
    beta.serve();
    wait::until_true("both to be seen", || {
        let status = beta.status();
        let bad = |part: &str| status[part][0]["error"].as_str().is_some_and(|e| !e.is_empty());
        bad("inbox") && bad("watch")
    });
    let text = String::from_utf8_lossy(&beta.run(&["status"]).stdout).into_owned();
    let line = format!("inbox {0}      {0} is no directory, for ", into.display());
    assert!(text.contains(&line), "{text}");
    let check = beta.run(&["check", "--json"]);
    let check: serde_json::Value = serde_json::from_slice(&check.stdout).expect("an object");
    let verdict = |what: &str| {
        let checks = check["checks"].as_array().expect("checks");
        checks.iter().find(|c| c["check"] == what).map(|c| c["verdict"].clone())
    };
    assert_eq!(
        [verdict("inbox"), verdict("watch")],
        [Some("warning".into()), Some("warning".into())]
    );
    let doctor = String::from_utf8_lossy(&beta.run(&["doctor"]).stdout).into_owned();
    assert!(doctor.contains("it goes on by itself once that is over"), "{doctor}");
    let metrics = |value: u8| {
        let reply = crate::http::get(&beta.socket(), "/metrics").expect("it answers");
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        let has = |name: &str, dir: &Path| {
            text.contains(&format!("{name}{{dir=\"{}\"}} {value}\n", dir.display()))
        };
        has("consign_inbox_well", &into) && has("consign_watch_well", &out)
    };
    assert!(metrics(0));
    let ready = crate::http::get(&beta.socket(), "/readyz").expect("it answers");
    assert_eq!(ready.status, 200, "it takes segments all the same");
    for dir in [&into, &out] {
        fs::remove_file(dir).expect("removed");
    }
    fs::create_dir(&out).expect("made");
    wait::until_true("both to be well", || metrics(1));
    assert_eq!(rule(&beta)["since"], serde_json::Value::Null);
    let events = beta.json(&["events", "--once", "--since", "0"]);
    let of = |kind: &str, code: Option<&str>| {
        let is = |e: &&serde_json::Value| e["kind"] == kind && e["code"].as_str() == code;
        events.iter().filter(is).count()
    };
    assert_eq!([of("warning", Some("CN0626")), of("warning", Some("CN0540"))], [1, 1]);
    assert_eq!(of("recovered", None), 2, "{events:?}");
    assert_eq!(beta.log().matches("CN0626").count(), 1, "once, not at every look");
    assert!(beta.stop().success());
}

#[test]
fn what_was_half_written_goes_from_a_directory_that_a_rule_has_left() {
    let (_, mut beta) = pair("std");
    configure(&beta, "[[inbox]]\ndir = \"old\"\n");
    beta.serve();
    beta.stop();
    let remembered = fs::read_to_string(beta.dir.join("data/inbox-dirs.json")).expect("remembered");
    let known: serde_json::Value = serde_json::from_str(&remembered).expect("JSON");
    let rule = known[0]["rule"].as_str().expect("its number");
    let aside = beta.dir.join("old/.consign");
    let half = aside.join(format!("{rule}-9"));
    fs::create_dir_all(&aside).expect("a directory");
    for path in [half.clone(), aside.join("mine"), beta.dir.join("old/whole")] {
        fs::write(path, b"x").expect("written");
    }
    let text = fs::read_to_string(beta.config()).expect("a file");
    fs::write(beta.config(), text.replace("dir = \"old\"", "dir = \"new\"")).expect("written");
    beta.serve();
    wait::until("the old directory to be forgotten", || {
        let known = fs::read_to_string(beta.dir.join("data/inbox-dirs.json")).expect("remembered");
        (known.contains("new\"") && !known.contains("old\"")).then_some(())
    });
    assert!(!half.exists());
    assert!(aside.join("mine").exists() && beta.dir.join("old/whole").exists());
    beta.stop();
}
