//! What happens at a site, followed from outside; and what helps when something is wrong.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::site::{RUNTIMES, Site, consign, pair};
use crate::{http, wait};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

#[test]
fn events_come_as_they_happen_and_are_numbered_without_gaps() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        let mut command = alpha.command(&["events", "--since", "0", "--json"]);
        let mut follower = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(follower.stdout.take().unwrap()).lines();
        beta.serve();
        let id = alpha.accepted("n", b"content");
        let mut seen: Vec<Value> = Vec::new();
        while !(kinds(&seen).contains(&"delivered") && kinds(&seen).contains(&"relayed")) {
            let line = told.next().expect("the stream goes on").unwrap();
            seen.push(serde_json::from_str(&line).unwrap());
        }
        follower.kill().unwrap();
        follower.wait().unwrap();
        let ids: Vec<u64> = seen.iter().map(|event| event["id"].as_u64().unwrap()).collect();
        let expected: Vec<u64> = (1..=seen.len() as u64).collect();
        assert_eq!(ids, expected);
        let accepted = seen.iter().find(|event| event["kind"] == "accepted").unwrap();
        assert_eq!(
            (&accepted["schema"], &accepted["segment"]),
            (&"consign.event/1".into(), &id.as_str().into())
        );
        assert!(kinds(&seen).contains(&"session_up"), "{seen:?}");

        let once = alpha.run(&["events", "--once", "--since", "0"]);
        assert_eq!(once.status.code(), Some(0), "{once:?}");
        let words = format!("{} delivered to beta\n", &id[..12]);
        assert!(text(&once.stdout).contains(&words), "{once:?}");
        let top = alpha.run(&["top"]);
        assert_eq!(top.status.code(), Some(2), "no terminal: {top:?}");
    }
}

/// Descriptors that a site has open.
fn descriptors(site: &Site) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", site.pid())).unwrap().count()
}

#[test]
fn whoever_goes_away_while_waiting_leaves_no_descriptor_behind() {
    for runtime in RUNTIMES {
        let (mut alpha, _beta) = pair(runtime);
        alpha.serve();
        let last = http::get(&alpha.socket(), "/v1/events?limit=1").unwrap();
        let last: Value = serde_json::from_slice(&last.body).unwrap();
        let since = last["last"].as_u64().unwrap() + 1_000;
        let before = descriptors(&alpha);
        let wait = |_| {
            let mut stream = UnixStream::connect(alpha.socket()).unwrap();
            let head = format!("GET /v1/events?since={since}&wait=50 HTTP/1.1");
            write!(stream, "{head}\r\nHost: localhost\r\n\r\n").unwrap();
            stream
        };
        let mut waiting: Vec<UnixStream> = (0..20).map(wait).collect();
        // What the site opens of itself meanwhile, and closes, is a few.
        wait::until_true("everybody to wait", || descriptors(&alpha) >= before + 15);
        let peak = descriptors(&alpha);
        let gone = Instant::now();
        // One closes its side only: it gets what there is.
        let mut half = waiting.pop().unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        half.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        drop((waiting, half));
        wait::until_true("their descriptors to be free", || descriptors(&alpha) + 10 <= peak);
        assert!(gone.elapsed() < Duration::from_secs(30), "{:?}", gone.elapsed());
    }
}

fn checks(site: &Site, code: i32) -> Vec<Value> {
    let output = site.run(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["schema"], "consign.doctor/1");
    found["checks"].as_array().unwrap().clone()
}

fn result<'v>(checks: &'v [Value], check: &str) -> &'v str {
    let found = checks.iter().find(|found| found["check"] == check);
    found.unwrap_or_else(|| panic!("{check}: {checks:?}"))["result"].as_str().unwrap()
}

#[test]
fn the_doctor_finds_what_is_wrong_and_packs_it_without_secrets() {
    let (mut alpha, mut beta) = pair("smol");
    let asleep = checks(&alpha, 0);
    assert_eq!((result(&asleep, "site"), result(&asleep, "certificate")), ("warning", "ok"));
    alpha.serve();
    beta.serve();
    wait::until_true("a session", || alpha.status()["peers"][0]["up"] == true);
    let well = checks(&alpha, 0);
    for check in
        ["configuration", "certificate", "data_dir", "clock", "disk", "site", "ledger", "peer"]
    {
        assert_eq!(result(&well, check), "ok", "{well:?}");
    }
    let bundle = alpha.folder().path().join("bundle.tar.gz");
    let path = bundle.to_str().unwrap();
    let output = alpha.run(&["doctor", "--bundle", path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(&bundle).unwrap()));
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        names.push(entry.path().unwrap().display().to_string());
        let mut content = String::new();
        std::io::Read::read_to_string(&mut entry, &mut content).unwrap();
        assert!(!content.contains("PRIVATE KEY"), "{names:?}");
        assert!(!content.contains("not to be had"), "{names:?}: {content}");
    }
    assert_eq!(names.len(), 7, "{names:?}");
    let again = alpha.run(&["doctor", "--bundle", path]);
    assert_eq!(again.status.code(), Some(1), "it overwrites nothing");

    // A key that others can read is wrong, and so is a configuration that is none.
    use std::os::unix::fs::PermissionsExt;
    let key = alpha.dir.join("node.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(result(&checks(&alpha, 1), "certificate"), "wrong");
    std::fs::write(alpha.config(), "[node]\nnam = 1\n").unwrap();
    assert_eq!(result(&checks(&alpha, 1), "configuration"), "wrong");
}

#[test]
fn shells_manuals_and_schemas_come_from_the_binary() {
    for shell in ["bash", "zsh", "fish"] {
        let output = consign().args(["completions", shell]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(text(&output.stdout).contains("deadletter"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = consign().arg("man").arg(folder.path().join("man1")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).lines().count() > 40, "{output:?}");
    let output = consign().args(["schema", "status"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["title"], "consign.status/1");
    let output = consign().args(["schema", "nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}
