//! Who and what is turned away, with a stable code, at no cost to anybody else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::site::{RUNTIMES, Site, consign, content, lines, make_file, pair};
use crate::wait;

/// Names and sizes of everything in a folder.
fn tree(dir: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        if meta.is_dir() {
            found.extend(tree(&path));
        }
        found.insert(path.display().to_string(), if meta.is_file() { meta.len() } else { 0 });
    }
    found
}

/// The one object that a failed command prints with `--json`.
fn failure(output: &Output) -> Value {
    let said = lines(&output.stderr);
    let failure = said.into_iter().find(|v| v["code"].is_string());
    failure.unwrap_or_else(|| panic!("no failure with a code: {output:?}"))
}

fn delivers(from: &Site, to: &Site) {
    let bytes = content(99, 10_000);
    let id = from.accepted("honest", &bytes);
    assert!(to.arrival(&id) == bytes);
}

#[test]
fn a_second_instance_ends_before_it_touches_anything() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        beta.serve();
        let before = tree(&alpha.dir.join("data"));
        // Under its own name, and by way of a link.
        let link = alpha.folder().path().join("link");
        std::os::unix::fs::symlink(&alpha.dir, &link).unwrap();
        for dir in [&alpha.dir, &link] {
            let mut command = consign();
            command.envs(&alpha.settings).arg("-c").arg(dir.join("consign.toml"));
            let other = crate::site::free_address();
            command.env("CONSIGN_LISTEN_PEERS", other.to_string());
            command.env("CONSIGN_LISTEN_ADMIN", format!("unix:{}", dir.join("b.sock").display()));
            let output = command.args(["serve", "--json"]).output().unwrap();
            assert!(!output.status.success(), "{output:?}");
            let said = failure(&output);
            let text = said["message"].as_str().unwrap();
            assert!(text.contains("lock") || text.contains("in use"), "{said}");
        }
        assert_eq!(tree(&alpha.dir.join("data")), before);
        delivers(&alpha, &beta);
    }
}

#[test]
fn an_unknown_peer_is_turned_away_and_named() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        // Signed by the same authority, and beta has never heard of it.
        let mut gamma = Site::at(alpha.folder(), "gamma", runtime);
        gamma.init(&[&beta], Some(&alpha));
        beta.serve();
        gamma.serve();
        gamma.accepted("file", b"from a stranger");
        wait::until_true("beta to say whom it turned away", || {
            beta.log().lines().any(|l| l.contains("WARN") && l.contains("gamma"))
        });
        wait::until_true("gamma to say why nothing goes", || {
            !gamma.status()["peers"][0]["last_error"].as_str().unwrap().is_empty()
        });
        assert_eq!(beta.segments().len(), 0);
        assert_eq!(gamma.counts("beta").delivered, 0);
        let delivery = &gamma.segments()[0]["deliveries"][0];
        assert_eq!((&delivery["spent"], &delivery["attempts"]), (&0.into(), &0.into()));
        alpha.serve();
        delivers(&alpha, &beta);
    }
}

#[test]
fn a_certificate_of_another_authority_is_worth_nothing() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        // The right name, the wrong authority.
        let mut other = Site::at(alpha.folder(), "other", runtime);
        other.name = "alpha".into();
        other.init(&[&beta], None);
        beta.serve();
        other.serve();
        other.accepted("file", b"from an impostor");
        wait::until_true("the other one to say why nothing goes", || {
            !other.status()["peers"][0]["last_error"].as_str().unwrap().is_empty()
        });
        assert_eq!(beta.segments().len(), 0);
        assert_eq!(other.counts("beta").delivered, 0);
        assert_eq!(other.segments()[0]["deliveries"][0]["spent"], 0);
        alpha.serve();
        delivers(&alpha, &beta);
    }
}

#[test]
fn a_destination_that_nobody_knows_is_refused() {
    let (mut alpha, _beta) = pair("smol");
    alpha.serve();
    let file = alpha.dir.join("file");
    make_file(&file, 1, 1000);
    let output = alpha.run(&["send", file.to_str().unwrap(), "--to", "nowhere", "--json"]);
    assert!(!output.status.success());
    let said = failure(&output);
    assert!(said.to_string().contains("nowhere"), "{said}");
    assert_eq!(said["code"], "CN0614", "{said}");
    assert_eq!(alpha.segments().len(), 0);
}

#[test]
fn without_a_daemon_commands_say_so() {
    let (alpha, _beta) = pair("smol");
    let file = alpha.dir.join("file");
    make_file(&file, 1, 1000);
    let commands: [&[&str]; 5] = [
        &["status"],
        &["ls"],
        &["show", "abcdef"],
        &["get", "abcdef", "-o", "-"],
        &["send", file.to_str().unwrap(), "--to", "beta"],
    ];
    for command in commands {
        let mut args = command.to_vec();
        args.push("--json");
        let output = alpha.run(&args);
        assert_eq!(output.status.code(), Some(69), "{command:?}: {output:?}");
        assert!(failure(&output)["help"].as_str().is_some_and(|h| h.contains("serve")));
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let (mut alpha, _beta) = pair("smol");
    alpha.serve();
    for command in [&["show", "abcdef0123"][..], &["get", "abcdef0123", "-o", "-"]] {
        let output = alpha.run(command);
        assert_eq!(output.status.code(), Some(4), "nothing matched: {output:?}");
    }
    let output = alpha.run(&["show", "xyz"]);
    assert!(!output.status.success());
}

/// Serves with `text` put into the configuration in the place of `old`.
fn serve_with(alpha: &Site, old: &str, new: &str) -> Output {
    let text = fs::read_to_string(alpha.config()).unwrap();
    assert!(text.contains(old), "{old:?} is not in {text}");
    let bad = alpha.dir.join("bad.toml");
    fs::write(&bad, text.replacen(old, new, 1)).unwrap();
    consign().arg("-c").arg(&bad).arg("serve").output().unwrap()
}

#[test]
fn a_configuration_with_faults_is_not_served() {
    let (alpha, _beta) = pair("smol");
    let before = tree(&alpha.dir.join("data"));
    let cases = [
        ("[storage]", "[storage]\nmin_fre = \"5GiB\"", &["min_fre", "min_free"][..]),
        ("[relay]", "[relay]\nsuccess_condition = \"most_peers\"", &["most_peers", "one_peer"]),
        ("[relay]", "[relay]\nmax_retries = 0", &["max_retries"]),
        ("[relay]", "[relay]\nbackoff_initial = \"1h\"", &["backoff_max"]),
        ("[storage]", "[storage]\nmax_bytes = \"0\"", &["max_bytes"]),
        ("[storage]", "[storage]\nmax_bytes = 5", &["max_bytes"]),
        ("[storage]", "[storage", &["bad.toml"]),
    ];
    for (old, new, says) in cases {
        let output = serve_with(&alpha, old, new);
        assert_eq!(output.status.code(), Some(78), "{new}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("bad.toml"), "{text}");
        for word in says {
            assert!(text.contains(word), "{word:?} is not in {text}");
        }
    }
    assert_eq!(tree(&alpha.dir.join("data")), before, "nothing was begun");
}

#[test]
fn every_fault_of_a_configuration_is_shown_at_once() {
    let (alpha, _beta) = pair("smol");
    let bad = "[relay]\nsuccess_condition = \"x\"\nmax_retries = 0\nack_timeot = \"3s\"";
    let output = serve_with(&alpha, "[relay]", bad);
    let text = String::from_utf8_lossy(&output.stderr);
    for word in ["success_condition", "max_retries", "ack_timeot", "ack_timeout"] {
        assert!(text.contains(word), "{word:?} is not in {text}");
    }
}

#[test]
fn no_configuration_is_a_fault_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.toml");
    let output = consign().arg("-c").arg(&missing).arg("serve").output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("none.toml"));
}
