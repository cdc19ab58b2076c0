//! What is in a bundle, and what is not.

use flate2::read::GzDecoder;

use super::*;
use crate::client::testing::{Daemon, Say};

fn unpacked(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        found.push((name, text));
    }
    found
}

#[test]
fn secrets_stay_at_home() {
    let text = "\
# a comment with a password
[node]
name = \"alpha\"
[tls]
key = \"/etc/consign/key.pem\"
[[inbox]]
dir = \"/in\"
command = [\"curl\", \"-H\", \"Authorization: Bearer abc\"]
[x]
api_token = 7
pem = [\"-----BEGIN PRIVATE KEY-----abc\"]
";
    let safe = redacted(text).unwrap();
    for kept in ["name = \"alpha\"", "/etc/consign/key.pem", "dir = \"/in\""] {
        assert!(safe.contains(kept), "{safe}");
    }
    for gone in ["Bearer", "abc", "a comment", "7"] {
        assert!(!safe.contains(gone), "{gone}: {safe}");
    }
    assert_eq!(redacted("a = "), Err("it is not TOML".into()), "no part of it is shown");
}

#[test]
fn a_bundle_has_what_can_be_had_and_says_what_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/metrics" => Say::Answer(200, Vec::new(), b"consign_boots 1\n".to_vec()),
        "/v1/shape" => Say::refuse(503, "busy", "this site is stopping"),
        _ => Say::json(200, serde_json::json!({"schema": "x"})),
    });
    let log = folder.path().join("log");
    let lines: Vec<String> = (0..LINES + 5).map(|n| format!("line {n}\n")).collect();
    std::fs::write(&log, lines.concat()).unwrap();
    let config = folder.path().join("consign.toml");
    std::fs::write(&config, "[node]\nname = \"alpha\"\n").unwrap();
    let path = folder.path().join("b.tar.gz");
    let mut api = Api::new(&daemon.socket());
    let findings = Findings { schema: Findings::SCHEMA.into(), ..Findings::default() };
    let got = AtomicU64::new(0);
    write(&path, &findings, Some(&config), Some(&mut api), Some(&log), &got).unwrap();
    let found = unpacked(&path);
    let names: Vec<&str> = found.iter().map(|(name, _)| &name["consign-bundle/".len()..]).collect();
    let expected = [
        "doctor.json",
        "consign.toml",
        "status.json",
        "metrics.txt",
        "events.json",
        "deadletters.json",
        "shape.json",
        "log.txt",
    ];
    assert_eq!(names, expected);
    assert!(found[0].1.contains("consign.doctor/1"));
    assert_eq!(found[3].1, "consign_boots 1\n");
    assert!(found[6].1.starts_with("not to be had: ") && found[6].1.contains("stopping"));
    assert!(found[7].1.starts_with("line 5\n"), "the last lines only");
    let again = write(&path, &findings, None, None, None, &got).unwrap_err();
    assert_eq!(again.code, "CN0405", "it overwrites nothing");
}
