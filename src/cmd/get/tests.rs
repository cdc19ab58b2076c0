//! Content from a scripted daemon into files.

use std::fs;

use super::*;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::{Said, said};

const BODY: &[u8] = b"what was sent";

fn segment() -> Segment {
    Segment {
        schema: Segment::SCHEMA.into(),
        id: "3fa9c17be204".to_string() + &"0".repeat(52),
        name: "a b".into(),
        size: BODY.len() as u64,
        digest: blake3::hash(BODY).to_hex().to_string(),
        ..Segment::default()
    }
}

/// A daemon whose content is answered by `say`.
fn daemon(say: impl Fn() -> Say + Send + 'static) -> Daemon {
    Daemon::answering(move |request, _| {
        if request.target.ends_with("/content") {
            say()
        } else {
            Say::json(200, serde_json::to_value(segment()).unwrap())
        }
    })
}

fn good() -> Say {
    let digest = digest_field(blake3::hash(BODY).as_bytes());
    Say::Answer(200, vec![("Repr-Digest", digest)], BODY.to_vec())
}

fn got(daemon: &Daemon, output: &Path, json: bool) -> (Result<Exit, Failure>, Said) {
    got_with(daemon, output, json, false)
}

fn got_with(
    daemon: &Daemon,
    output: &Path,
    json: bool,
    release: bool,
) -> (Result<Exit, Failure>, Said) {
    let args = GetArgs { id: "3fa9c1".into(), output: output.into(), release };
    said(json, |screen| get(&args, &mut Api::new(&daemon.socket()), screen))
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn content_is_put_into_a_file_or_a_directory() {
    let (daemon, dir) = (daemon(good), tempfile::tempdir().unwrap());
    let file = dir.path().join("x");
    fs::write(&file, "what was there").unwrap();
    let (exit, said) = got(&daemon, &file, false);
    assert_eq!(exit, Ok(Exit::Done));
    assert_eq!(said.lines, [""; 0], "standard output is for data");
    assert_eq!(said.notes, [format!("Fetched   3fa9c17be204  {}  13 B", file.display())]);
    assert_eq!(fs::read(&file).unwrap(), BODY);

    let (exit, said) = got(&daemon, dir.path(), true);
    assert_eq!(exit, Ok(Exit::Done));
    assert!(said.lines[0].contains("consign.fetched/1"), "{:?}", said.lines);
    assert_eq!(entries(dir.path()), ["a b", "x"]);
}

#[test]
fn damaged_content_is_not_kept_and_what_was_there_stays() {
    let flipped = || {
        let digest = digest_field(blake3::hash(BODY).as_bytes());
        Say::Answer(200, vec![("Repr-Digest", digest)], b"what was sunt".to_vec())
    };
    let other = || {
        let digest = digest_field(blake3::hash(b"other").as_bytes());
        Say::Answer(200, vec![("Repr-Digest", digest)], b"other".to_vec())
    };
    let silent = || Say::Answer(200, Vec::new(), BODY.to_vec());
    let cut = || Say::Cut(BODY.len() as u64, BODY[..5].to_vec());
    let table: [fn() -> Say; 4] = [flipped, other, silent, cut];
    for say in table {
        let (daemon, dir) = (daemon(say), tempfile::tempdir().unwrap());
        let file = dir.path().join("x");
        fs::write(&file, "what was there").unwrap();
        let failure = got(&daemon, &file, false).0.unwrap_err();
        assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0630"), "{failure}");
        assert_eq!(fs::read(&file).unwrap(), b"what was there");
        assert_eq!(entries(dir.path()), ["x"]);
    }
}

#[test]
fn refusals_leave_nothing_behind() {
    let daemon = daemon(|| Say::refuse(404, "missing", "the file is gone"));
    let dir = tempfile::tempdir().unwrap();
    let failure = got(&daemon, &dir.path().join("x"), false).0.unwrap_err();
    assert_eq!(failure.code, "CN0611");
    assert_eq!(entries(dir.path()), [""; 0]);
}

#[test]
fn places_that_cannot_be_written() {
    let (daemon, dir) = (daemon(good), tempfile::tempdir().unwrap());
    fs::create_dir_all(dir.path().join("d/a b")).unwrap();
    for place in ["none/x", "d"] {
        let failure = got(&daemon, &dir.path().join(place), false).0.unwrap_err();
        assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0631"), "{place}");
    }
    assert_eq!(got(&daemon, Path::new("/dev/null"), false).0, Ok(Exit::Done));
}

/// A daemon that answers acts so, and says whether it was asked.
fn releasing(say: impl Fn() -> Say + Send + 'static) -> Daemon {
    Daemon::answering(move |request, _| match request.target.as_str() {
        "/v1/acts" => say(),
        target if target.ends_with("/content") => good(),
        _ => Say::json(200, serde_json::to_value(segment()).unwrap()),
    })
}

#[test]
fn what_was_fetched_is_let_go_here_if_that_may_be() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    let done = |count: u64, left: &[&str]| {
        let left: Vec<_> = left
            .iter()
            .map(|text| json!({"id": segment().id, "peer": "", "code": "still_owed", "text": text}))
            .collect();
        json!({
            "schema": "consign.act/1", "action": "release", "dry_run": false, "count": count,
            "bytes": 0, "commits": 1, "done": [], "left_count": left.len(), "left": left,
        })
    };
    let good = done(1, &[]);
    let daemon = releasing(move || Say::json(200, good.clone()));
    let (exit, said) = got_with(&daemon, &file, false, true);
    assert_eq!(exit, Ok(Exit::Done));
    assert!(said.notes[1].starts_with("Released  3fa9c17be204"), "{:?}", said.notes);
    let (_, said) = got_with(&daemon, &file, true, true);
    assert!(said.lines[0].contains("\"released\":true"), "{:?}", said.lines);

    let owed = done(0, &["gamma does not have it (queued)"]);
    let daemon = releasing(move || Say::json(200, owed.clone()));
    let (exit, said) = got_with(&daemon, &file, false, true);
    assert_eq!(exit, Ok(Exit::Partly));
    assert!(said.notes[1].contains("not released: gamma does not"), "{:?}", said.notes);

    let daemon = releasing(|| Say::refuse(503, "busy", "this site is stopping"));
    let failure = got_with(&daemon, &file, false, true).0.unwrap_err();
    assert!(failure.to_string().contains("is stopping"), "{failure}");
    assert_eq!(fs::read(&file).unwrap(), BODY, "it stays");
}

#[test]
fn what_goes_down_a_pipe_is_not_let_go() {
    let daemon = releasing(|| panic!("nothing may be released"));
    for place in ["-", "/dev/null"] {
        let failure = got_with(&daemon, Path::new(place), false, true).0.unwrap_err();
        assert_eq!((failure.exit, failure.code), (Exit::Usage, "CN0403"), "{place}");
    }
}
