//! `consign reload` and SIGHUP on running sites: all of a configuration or nothing of it, and certificates that are replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use base64::Engine as _;
use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::site::{RUNTIMES, Site, consign, content, pair};
use crate::{http, wait};

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn edit(site: &Site, change: impl FnOnce(&str) -> String) {
    let text = fs::read_to_string(site.config()).expect("it is there");
    fs::write(site.config(), change(&text)).expect("written");
}

/// Sets a key whose default stands in the file as a comment.
fn set(site: &Site, key: &str, value: &str) {
    edit(site, |text| {
        let line = text.lines().find(|line| {
            let line = line.strip_prefix("# ").unwrap_or(line);
            line.starts_with(&format!("{key} = "))
        });
        text.replace(line.expect("the key is in the file"), &format!("{key} = {value}"))
    });
}

fn reload(site: &Site) -> Output {
    let socket = site.socket();
    site.run(&["--socket", socket.to_str().expect("a path"), "reload"])
}

fn metric(site: &Site, name: &str) -> u64 {
    let reply = http::get(&site.socket(), "/metrics").expect("it answers");
    let text = said(&reply.body);
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    let value = line.unwrap_or_else(|| panic!("{name}: {text}")).rsplit(' ').next();
    value.and_then(|v| v.parse().ok()).expect("a number")
}

fn peer(site: &Site, name: &str) -> Value {
    let status = site.status();
    let peers = status["peers"].as_array().expect("peers");
    peers.iter().find(|p| p["name"] == name).cloned().unwrap_or(Value::Null)
}

fn known(site: &Site) -> String {
    format!("\n[[relay.known_peers]]\nname = \"{}\"\naddress = \"{}\"\n", site.name, site.address)
}

#[test]
fn a_peer_that_is_added_gets_segments_and_one_that_is_removed_is_cut_off() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        let mut gamma = Site::at(alpha.folder(), "gamma", runtime);
        gamma.init(&[&alpha], Some(&alpha));
        for site in [&mut alpha, &mut beta, &mut gamma] {
            site.serve();
        }
        let before = fs::read_to_string(alpha.config()).expect("it is there");
        edit(&alpha, |text| format!("{text}{}", known(&gamma)));
        let output = reload(&alpha);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let line = format!("changed: relay.known_peers.gamma added, {}", gamma.address);
        assert_eq!(said(&output.stdout).trim_end(), line);
        let reply = http::post(&alpha.socket(), "/v1/segments?name=g&to=gamma", b"hello");
        let body = said(&reply.expect("it answers").body);
        let value: Value = serde_json::from_str(&body).expect("JSON");
        let id = value["id"].as_str().unwrap_or_else(|| panic!("{body}"));
        assert_eq!(gamma.arrival(id), b"hello");
        alpha.settled("gamma");
        // It leaves again: its session ends, and nothing is said to beta, whose session goes on.
        wait::until_true("a session with beta", || peer(&alpha, "beta")["up"] == true);
        let epoch = peer(&alpha, "beta")["epoch"].clone();
        fs::write(alpha.config(), before).expect("written");
        alpha.signal(Signal::HUP);
        wait::until_true("gamma to be cut off", || {
            let gamma = peer(&alpha, "gamma");
            gamma["known"] == false && gamma["up"] == false
        });
        wait::until_true("gamma to notice", || peer(&gamma, "alpha")["up"] == false);
        assert_eq!(peer(&alpha, "beta")["epoch"], epoch);
        let reply = http::post(&alpha.socket(), "/v1/segments?name=h&to=gamma", b"hello");
        assert!(reply.expect("it answers").status >= 400, "nobody there by that name");
        for mut site in [alpha, beta, gamma] {
            site.stop();
        }
    }
}

#[test]
fn a_broken_file_keeps_the_old_configuration_whole() {
    let (mut alpha, _) = pair("std");
    alpha.expects_errors = true;
    alpha.serve();
    let limit = alpha.status()["storage"]["limit"].clone();
    assert_eq!(metric(&alpha, "consign_config_last_reload_successful"), 1, "the start counts");
    set(&alpha, "max_bytes", "\"7GiB\"");
    set(&alpha, "max_retries", "0");
    edit(&alpha, |text| format!("{text}\n[extra]\nx = 1\n"));
    let output = reload(&alpha);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let checked = alpha.run(&["config", "check"]);
    assert_eq!(said(&output.stderr), said(&checked.stderr), "as `config check` shows it");
    assert!(said(&output.stderr).contains("2 errors in "), "{output:?}");
    assert_eq!(alpha.status()["storage"]["limit"], limit, "half of it would be worse");
    let status = alpha.status()["reload"].clone();
    assert_eq!(status["ok"], false, "{status}");
    assert!(status["problem"].as_str().is_some_and(|p| p.starts_with("CN0206")), "{status}");
    assert_eq!(metric(&alpha, "consign_config_last_reload_successful"), 0);
    // What does not parse at all, by signal.
    fs::write(alpha.config(), "[node\n").expect("written");
    alpha.signal(Signal::HUP);
    wait::until_true("the second refusal", || {
        alpha.status()["reload"]["problem"].as_str().is_some_and(|p| p.starts_with("CN0202"))
    });
    alpha.stop();
}

#[test]
fn a_good_file_holds_at_once_and_what_needs_a_restart_is_named_and_waits() {
    for runtime in RUNTIMES {
        let (mut alpha, _) = pair(runtime);
        alpha.serve();
        let started = metric(&alpha, "consign_config_last_reload_success_timestamp_seconds");
        assert!(started > 1_700_000_000, "{started}");
        set(&alpha, "max_bytes", "\"7GiB\"");
        set(&alpha, "ledger_max", "\"3GiB\"");
        set(&alpha, "header_timeout", "\"20s\"");
        let output = reload(&alpha);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let lines = "changed: storage.max_bytes 100GiB -> 7GiB\n\
                     changed: storage.ledger_max 64GiB -> 3GiB\n\
                     needs restart: limits.header_timeout\n";
        assert_eq!(said(&output.stdout), lines);
        let status = alpha.status();
        assert_eq!(status["storage"]["limit"], 7_u64 << 30);
        assert_eq!(status["ledger"]["limit"], 3_u64 << 30);
        assert_eq!(status["reload"]["restart"][0], "limits.header_timeout");
        let output = reload(&alpha);
        assert_eq!(said(&output.stdout), "needs restart: limits.header_timeout\n", "still");
        // The same by signal, and back.
        set(&alpha, "max_bytes", "\"8GiB\"");
        set(&alpha, "header_timeout", "\"10s\"");
        alpha.signal(Signal::HUP);
        wait::until_true("8GiB", || alpha.status()["storage"]["limit"] == 8_u64 << 30);
        assert_eq!(said(&reload(&alpha).stdout), "nothing has changed\n");
        assert!(alpha.log().contains("changed: storage.max_bytes 7GiB -> 8GiB"), "{}", alpha.log());
        alpha.stop();
    }
}

/// Every key that needs a restart and that no flag or variable of these tests stands above, with another value.
const RESTART: [(&str, &str); 13] = [
    ("name", "\"other\""),
    ("data_dir", "\"other\""),
    ("peers", "[\"127.0.0.1:1\"]"),
    ("pickup", "\"127.0.0.1:9\""),
    ("pickup_tls", "\"off\""),
    ("pickup_names", "[\"other\"]"),
    ("admin", "\"unix:/run/other.sock\""),
    ("web", "\"off\""),
    ("inline_max", "\"1KiB\""),
    ("connections", "77"),
    ("header_timeout", "\"61s\""),
    ("min_body_rate", "\"77KiB\""),
    ("drain_timeout", "\"61s\""),
];
/// What stands above the file in these tests.
const ABOVE: [&str; 3] = ["node.runtime", "limits.ballast", "log.format"];

/// What a command says with `--json`, asked of the running site.
fn asked(site: &Site, words: &[&str]) -> Vec<Value> {
    let socket = site.socket();
    site.json(&[words, &["--socket", socket.to_str().expect("a path")]].concat())
}

/// Keys with their values, as the site goes by them; of sections of which there may be several, the first.
fn running(site: &Site) -> Vec<(String, Value)> {
    let config = &asked(site, &["config", "show", "--running"])[0];
    let keys = config["keys"].as_array().expect("keys").iter();
    let keys =
        keys.map(|key| (key["key"].as_str().expect("a key").to_owned(), key["value"].clone()));
    keys.collect()
}

#[test]
fn no_key_that_needs_a_restart_is_applied_by_half() {
    let (mut alpha, _) = pair("std");
    alpha.serve();
    let before = running(&alpha);
    let plain: Vec<&str> = before.iter().map(|(key, _)| key.as_str()).collect();
    let plain = plain.into_iter().filter(|key| !key.contains('['));
    let asks: Vec<&str> = ["config", "explain"].into_iter().chain(plain).collect();
    let mut expected: Vec<String> = asked(&alpha, &asks)
        .iter()
        .filter(|key| key["change"] == "restart")
        .map(|key| key["key"].as_str().expect("a key").to_owned())
        .filter(|key| !ABOVE.contains(&key.as_str()))
        .collect();
    assert_eq!(expected.len(), RESTART.len(), "{expected:?}");
    expected.extend(["route", "inbox", "watch"].map(String::from));
    let file = fs::read_to_string(alpha.config()).expect("it is there");
    RESTART.iter().for_each(|(key, value)| set(&alpha, key, value));
    set(&alpha, "max_retries", "9");
    let more = "[[route]]\nto = \"far\"\nvia = \"beta\"\n[[inbox]]\ndir = \"in\"\n[[watch]]\ndir = \"out\"\n";
    edit(&alpha, |text| format!("{text}\n{more}"));
    let mut reloaded = asked(&alpha, &["reload"]).remove(0);
    let mut named: Vec<String> = serde_json::from_value(reloaded["restart"].take()).expect("keys");
    named.sort();
    expected.sort();
    assert_eq!(named, expected, "{reloaded:#}");
    assert_eq!(reloaded["changed"].as_array().expect("a list").len(), 1, "{reloaded:#}");
    let held: Vec<(String, Value)> = before
        .iter()
        .map(|(key, value)| match key.as_str() {
            "relay.max_retries" => (key.clone(), "9".into()),
            _ => (key.clone(), value.clone()),
        })
        .collect();
    assert_eq!(running(&alpha), held);
    let status = asked(&alpha, &["status"]).remove(0);
    assert_eq!((&status["name"], &status["peers"][0]["name"]), (&"alpha".into(), &"beta".into()));
    assert_eq!(status["reload"]["restart"].as_array().expect("keys").len(), expected.len());
    fs::write(alpha.config(), file).expect("written");
    assert_eq!(said(&reload(&alpha).stdout), "changed: relay.max_retries 9 -> 8\n");
    assert_eq!(running(&alpha), before);
    alpha.stop();
}

/// SHA-256 of the first certificate of a PEM file, as the configuration words it.
fn fingerprint(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a certificate");
    let lines = text.lines().skip_while(|l| !l.starts_with("-----BEGIN CERT")).skip(1);
    let body: String = lines.take_while(|l| !l.starts_with("-----END")).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(body).expect("base64");
    let digest: [u8; 32] = Sha256::digest(&der).into();
    format!("sha256:{}", digest.iter().map(|b| format!("{b:02x}")).collect::<String>())
}

/// Another pair for a site, signed by the authority of `authority`; where it lies.
fn renewed(site: &Site, authority: &Site, round: usize) -> std::path::PathBuf {
    let dir = site.folder().path().join(format!("{}-renewed-{round}", site.name));
    let mut command = consign();
    command.arg("init").arg(&dir).args(["--name", &site.name]).arg("--ca").arg(&authority.dir);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    dir
}

fn own(site: &Site) -> Value {
    site.status()["certificates"][0].clone()
}

#[test]
fn a_pair_is_replaced_half_by_half_without_a_gap() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        let fresh = renewed(&beta, &alpha, 0);
        let (old, new) =
            (fingerprint(&beta.dir.join("node.pem")), fingerprint(&fresh.join("node.pem")));
        assert_ne!(old, new);
        let address = format!("address = \"{}\"", beta.address);
        edit(&alpha, |text| {
            text.replace(&address, &format!("{address}\nfingerprint = [\"{old}\", \"{new}\"]"))
        });
        alpha.serve();
        beta.serve();
        let id = alpha.accepted("before", &content(1, 10_000));
        assert_eq!(beta.arrival(&id), content(1, 10_000));
        assert_eq!(own(&beta)["fingerprint"], old.as_str());
        let expires = own(&beta)["expires_seconds"].as_u64().expect("a time");
        let text = said(&http::get(&beta.socket(), "/metrics").expect("it answers").body);
        let line = format!(
            "consign_certificate_expiry_timestamp_seconds{{certificate=\"own\"}} {expires}"
        );
        assert!(text.contains(&line), "{line}: {text}");
        // The certificate first: it does not fit the key, and the old pair stays.
        fs::copy(fresh.join("node.pem"), beta.dir.join("node.pem")).expect("copied");
        wait::until_true("the half to be seen", || {
            let problem = beta.status()["certificate_files"].clone();
            problem.as_str().is_some_and(|p| p.starts_with("CN0314"))
        });
        assert_eq!(own(&beta)["fingerprint"], old.as_str());
        let key = beta.dir.join("node.key");
        fs::copy(fresh.join("node.key"), &key).expect("copied");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
        wait::until_true("the new pair", || own(&beta)["fingerprint"] == new.as_str());
        assert_eq!(beta.status()["certificate_files"], "");
        let new_pair = || beta.log().contains("certificate and key are new");
        wait::until_true("it to be logged", new_pair);
        // A session made from now on shows the new one, which alpha takes as well.
        alpha.stop();
        alpha.serve();
        let id = alpha.accepted("after", &content(2, 10_000));
        assert_eq!(beta.arrival(&id), content(2, 10_000));
        // The old pin may leave without `peers rekey`.
        edit(&alpha, |text| text.replace(&format!("\"{old}\", "), ""));
        let output = reload(&alpha);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let id = alpha.accepted("last", &content(3, 10_000));
        assert_eq!(beta.arrival(&id), content(3, 10_000));
        assert_eq!(peer(&alpha, "beta")["needs_rekey"], false);
        alpha.stop();
        beta.stop();
    }
}

#[test]
fn a_reload_at_any_moment_of_a_renewal_leaves_a_pair_that_fits() {
    let (mut alpha, mut beta) = pair("std");
    beta.expects_errors = true;
    beta.serve();
    // What is replaced first, and in how many parts of it.
    let first = [("node.pem", 1), ("node.key", 1), ("node.pem", 2)];
    for (round, (name, parts)) in first.into_iter().enumerate() {
        let fresh = renewed(&beta, &alpha, round);
        let old = own(&beta)["fingerprint"].clone();
        let whole = fs::read_to_string(fresh.join(name)).expect("a file");
        fs::write(beta.dir.join(name), &whole[..whole.len() / parts]).expect("written");
        let output = reload(&beta);
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        assert!(said(&output.stderr).contains("error[CN031"), "{output:?}");
        assert_eq!(own(&beta)["fingerprint"], old, "the last pair that fits stays");
        alpha.serve();
        let body = content(round as u64, 3_000);
        let id = alpha.accepted(&format!("between-{round}"), &body);
        assert_eq!(beta.arrival(&id), body, "handshakes go on");
        for name in ["node.pem", "node.key"] {
            let whole = fs::read_to_string(fresh.join(name)).expect("a file");
            fs::write(beta.dir.join(name), whole).expect("written");
        }
        let output = reload(&beta);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(own(&beta)["fingerprint"], fingerprint(&fresh.join("node.pem")).as_str());
        alpha.stop();
        alpha.serve();
        let body = content(10 + round as u64, 3_000);
        let id = alpha.accepted(&format!("after-{round}"), &body);
        assert_eq!(beta.arrival(&id), body, "and end on the new pair");
        alpha.stop();
    }
    beta.stop();
}

#[test]
fn sessions_are_renewed_when_an_authority_is_believed_no_longer() {
    let (mut alpha, mut beta) = pair("smol");
    let other = Site::at(alpha.folder(), "other", "smol");
    let mut command = consign();
    let output = command.arg("init").arg(&other.dir).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    alpha.serve();
    beta.serve();
    let id = alpha.accepted("before", &content(5, 5_000));
    assert_eq!(beta.arrival(&id), content(5, 5_000));
    alpha.settled("beta");
    let epoch = peer(&alpha, "beta")["epoch"].clone();
    let ca = alpha.dir.join("ca.pem");
    let ours = fs::read_to_string(&ca).expect("an authority");
    let theirs = fs::read_to_string(other.dir.join("ca.pem")).expect("an authority");
    // Whether it is the reload that sees the file or the look at it a moment earlier makes no difference.
    fs::write(&ca, format!("{ours}{theirs}")).expect("written");
    let output = reload(&alpha);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(peer(&alpha, "beta")["epoch"], epoch, "one more costs no session");
    fs::write(&ca, ours).expect("written");
    let output = reload(&alpha);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    wait::until_true("another session", || {
        let beta = peer(&alpha, "beta");
        beta["up"] == true && beta["epoch"] != epoch
    });
    let id = alpha.accepted("after", &content(4, 5_000));
    assert_eq!(beta.arrival(&id), content(4, 5_000));
    alpha.stop();
    beta.stop();
}

#[test]
fn a_recorded_run_carries_its_reloads() {
    let (mut alpha, _) = pair("std");
    let file = alpha.folder().path().join("run.jsonl");
    alpha.serve_args = vec!["--record".into(), file.clone().into()];
    alpha.serve();
    set(&alpha, "max_bytes", "\"7GiB\"");
    assert_eq!(reload(&alpha).status.code(), Some(0));
    alpha.stop();
    let text = fs::read_to_string(&file).expect("a recording");
    assert!(text.contains("{\"Reconfigure\":{\"reload\":1,"), "the input is in it");
    let output = consign().arg("replay").arg(&file).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// Records of the audit that begin with `reload`: who, action, why.
fn records(site: &Site) -> Vec<(String, String, String)> {
    let reply = http::get(&site.socket(), "/v1/audit").expect("it answers");
    let value: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let records = value["records"].as_array().expect("records").iter();
    let word = |record: &Value, name: &str| record[name].as_str().expect("a word").to_owned();
    records
        .filter(|record| word(record, "action").starts_with("reload"))
        .map(|record| (word(record, "who"), word(record, "action"), word(record, "reason")))
        .collect()
}

#[test]
fn every_reload_leaves_a_trace_and_a_refusal_is_over_when_the_file_is_put_back() {
    let (mut alpha, _) = pair("smol");
    alpha.expects_errors = true;
    alpha.serve();
    set(&alpha, "max_bytes", "\"7GiB\"");
    set(&alpha, "drain_timeout", "\"31s\"");
    assert_eq!(reload(&alpha).status.code(), Some(0));
    let good = fs::read_to_string(alpha.config()).expect("it is there");
    set(&alpha, "max_bytes", "\"1 elephant\"");
    alpha.signal(Signal::HUP);
    wait::until_true("the refusal", || alpha.status()["reload"]["ok"] == false);
    wait::until_true("both records", || records(&alpha).len() == 2);
    let found = records(&alpha);
    let uid = rustix::process::getuid().as_raw();
    assert_eq!((&found[0].0, found[0].1.as_str()), (&format!("uid:{uid}"), "reload"));
    assert!(found[0].2.contains("storage.max_bytes 100GiB -> 7GiB"), "{found:?}");
    assert_eq!((found[1].0.as_str(), found[1].1.as_str()), ("SIGHUP", "reload_refused"));
    let events = alpha.run(&["events", "--since", "0", "--once", "--json"]);
    let events = said(&events.stdout);
    assert!(events.contains("\"kind\":\"reload\"") && events.contains("\"reload_refused\""));
    // Put back, it is as if nobody had tried; without a reload that would be one more change.
    fs::write(alpha.config(), format!("{good}\n# put back\n")).expect("written");
    wait::until_true("nothing to warn of", || alpha.status()["reload"]["ok"] == true);
    let status = alpha.status()["reload"].clone();
    assert_eq!((&status["problem"], &status["at"]), (&"".into(), &status["success_at"]));
    assert_eq!(metric(&alpha, "consign_config_last_reload_successful"), 1);
    assert_eq!(records(&alpha).len(), 2, "nothing was applied");
    // Anything else in it waits for a reload: the warning stays until then.
    set(&alpha, "max_bytes", "\"1 elephant\"");
    assert_eq!(reload(&alpha).status.code(), Some(78));
    set(&alpha, "max_bytes", "\"8GiB\"");
    assert_eq!(alpha.status()["reload"]["ok"], false);
    assert_eq!(reload(&alpha).status.code(), Some(0));
    assert_eq!(alpha.status()["reload"]["ok"], true);
    alpha.stop();
}
