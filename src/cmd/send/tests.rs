//! The whole command against a scripted daemon.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};

use clap::Parser;
use consign_core::http::{Method, Request};
use serde_json::{Value, json};

use super::walk::{Found, Walk};
use super::*;
use crate::admin::shapes::Accepted;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::{Said, said};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: SendArgs,
}

fn parse(words: &[&str]) -> Result<SendArgs, clap::Error> {
    Line::try_parse_from(["send"].iter().chain(words)).map(|line| line.args)
}

/// What was handed in: target and content.
type Seen = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

fn name(target: &str) -> String {
    let name = target.split("name=").nth(1).unwrap_or_default();
    name.split('&').next().unwrap_or_default().into()
}

/// A daemon that takes everything that `refuse` does not refuse.
fn daemon(refuse: impl Fn(&str) -> Option<Say> + Send + 'static) -> (Daemon, Seen) {
    let seen = Seen::default();
    let keep = Arc::clone(&seen);
    let daemon = Daemon::answering(move |request: &Request, body: &[u8]| {
        if request.method == Method::Get {
            return Say::json(200, serde_json::to_value(Status::default()).unwrap());
        }
        let take = |target: &str, body: &[u8]| {
            if let Some(no) = refuse(&name(target)) {
                return no;
            }
            keep.lock().unwrap().push((target.to_string(), body.to_vec()));
            let accepted = Accepted {
                schema: Accepted::SCHEMA.into(),
                id: blake3::hash(body).to_hex().to_string(),
                name: name(target),
                new: true,
                added: vec!["beta".into()],
                size: body.len() as u64,
                ..Accepted::default()
            };
            Say::json(201, serde_json::to_value(accepted).unwrap())
        };
        match request.target.strip_prefix("/v1/segments/batch") {
            Some(shared) => batch(shared, body, take),
            None => take(&request.target, body),
        }
    });
    (daemon, seen)
}

/// Takes a batch apart; `take` is asked about each item as if it had come alone.
fn batch(shared: &str, mut body: &[u8], take: impl Fn(&str, &[u8]) -> Say) -> Say {
    let mut lines = Vec::new();
    while let Some(end) = body.iter().position(|b| *b == b'\n') {
        let line: Value = serde_json::from_slice(&body[..end]).unwrap();
        let size = line["size"].as_u64().unwrap() as usize;
        let content = &body[end + 1..end + 1 + size];
        body = &body[end + 1 + size..];
        let name = line["name"].as_str().unwrap();
        let target = format!("/v1/segments?name={name}{}", shared.replacen('?', "&", 1));
        let Say::Answer(status, _, answer) = take(&target, content) else { panic!() };
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        if status >= 400 {
            answer["schema"] = json!("consign.refused/1");
            answer["name"] = json!(name);
            answer["status"] = json!(status);
        }
        lines.push(answer.to_string());
    }
    Say::Answer(200, Vec::new(), (lines.join("\n") + "\n").into_bytes())
}

#[test]
fn what_would_be_sent_is_said_and_nothing_is_handed_in() {
    let (daemon, seen) = daemon(|_| None);
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    for (name, len) in [("a", 3), ("b", 2048)] {
        fs::write(dir.path().join("d").join(name), vec![0; len]).unwrap();
    }
    let (path, gone) = (dir.path().join("d"), dir.path().join("gone"));
    let (path, gone) = (path.to_str().unwrap(), gone.to_str().unwrap());
    let (exit, heard) = sent(&daemon, &["-n", path], false);
    assert_eq!(
        (exit, heard.lines.as_slice()),
        (Ok(Exit::Done), &["a      3 B".into(), "b  2.0 KiB".into()][..])
    );
    assert_eq!(
        heard.notes,
        ["Would send 2 segments (2.0 KiB) to every known peer. Nothing was sent."]
    );
    let (exit, heard) = sent(&daemon, &["-n", "--name", "x", "-"], true);
    assert_eq!(exit, Ok(Exit::Done));
    assert!(heard.lines[0].contains("\"file\":null,\"size\":null,\"to\":[\"*\"]"), "{heard:?}");
    let (exit, _) = sent(&daemon, &["-n", path, gone], true);
    assert_eq!(exit, Ok(Exit::Partly));
    let (exit, _) = sent(&daemon, &["-n", gone], true);
    assert_eq!(exit, Ok(Exit::Failed));
    let (exit, _) = sent(&daemon, &["-n", "--to", "nobody", path], true);
    assert_eq!(exit.unwrap_err().code, "CN0614");
    assert_eq!(seen.lock().unwrap().len(), 0);
}

#[test]
fn what_is_sent_at_a_rate_arrives_whole() {
    let (daemon, seen) = daemon(|_| None);
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for name in ["a", "b"] {
        fs::write(dir.path().join(name), &content).unwrap();
    }
    let path = dir.path().to_str().unwrap();
    assert_eq!(sent(&daemon, &["--limit", "100MiB", path], true).0, Ok(Exit::Done));
    let seen = seen.lock().unwrap();
    assert!(seen.len() == 2 && seen.iter().all(|(_, body)| *body == content));
    for wrong in ["1KiB", "fast", "0"] {
        assert!(parse(&["--limit", wrong, "x"]).is_err(), "{wrong}");
    }
}

fn sent(daemon: &Daemon, words: &[&str], json: bool) -> (Result<Exit, Failure>, Said) {
    let args = parse(words).unwrap();
    check(&args).unwrap();
    said(json, |screen| send(&args, &daemon.socket(), screen))
}

#[test]
fn a_file_with_everything_that_can_be_said_of_it() {
    let (daemon, seen) = daemon(|_| None);
    let path = daemon.dir().join("a b.txt");
    fs::write(&path, "hello").unwrap();
    let path = path.to_str().unwrap();
    let words = [
        path,
        "--to",
        "beta,gamma",
        "--to",
        "delta",
        "--label",
        "k=v w",
        "--type",
        "text/plain",
        "--priority",
        "0",
        "--expires",
        "2h",
        "--again",
    ];
    let (exit, said) = sent(&daemon, &words, false);
    assert_eq!(exit, Ok(Exit::Done));
    let seen = seen.lock().unwrap();
    let (target, instance) = seen[0].0.split_once("&instance=").unwrap();
    assert_eq!(
        target,
        "/v1/segments?name=a%20b.txt&to=beta&to=gamma&to=delta&label=k%3Dv%20w&type=text%2Fplain\
         &priority=urgent&expires=7200"
    );
    assert_eq!((instance.len(), seen[0].1.as_slice()), (32, &b"hello"[..]));
    assert!(said.lines[0].starts_with("Queued "), "{:?}", said.lines);
}

#[test]
fn many_files_are_handed_in_side_by_side_and_told_in_order() {
    let (daemon, seen) = daemon(|_| None);
    let dir = daemon.dir().join("d");
    fs::create_dir(&dir).unwrap();
    let names: Vec<String> = (0..300).map(|i| format!("f{i:03}")).collect();
    for name in &names {
        fs::write(dir.join(name), name).unwrap();
    }
    let (exit, said) = sent(&daemon, &[dir.to_str().unwrap()], true);
    assert_eq!(exit, Ok(Exit::Done));
    let told: Vec<String> =
        said.lines.iter().map(|l| serde_json::from_str::<Accepted>(l).unwrap().name).collect();
    assert_eq!(told, names);
    let seen: BTreeSet<String> = seen.lock().unwrap().iter().map(|(t, _)| name(t)).collect();
    assert_eq!(seen.len(), 300);
}

#[test]
fn small_files_go_together_and_large_ones_alone() {
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&asked);
    let daemon = Daemon::answering(move |request: &Request, body: &[u8]| {
        if request.method == Method::Get {
            return Say::json(200, serde_json::to_value(Status::default()).unwrap());
        }
        let path = request.target.split('?').next().unwrap().to_string();
        if path == "/v1/segments/batch" {
            seen.lock().unwrap().insert(format!("{path} {}", request.target.contains("to=beta")));
            // One it knows nothing of, and one that is too large for a batch of this daemon.
            let no = json!({"schema": "consign.refused/1", "name": "b", "status": 413,
                "code": "not_small", "message": "", "retry_after_seconds": null});
            return Say::Answer(200, Vec::new(), format!("{no}\n").into_bytes());
        }
        seen.lock().unwrap().insert(format!("{} {}", name(&request.target), body.len()));
        let accepted = Accepted { schema: Accepted::SCHEMA.into(), ..Accepted::default() };
        Say::json(201, serde_json::to_value(accepted).unwrap())
    });
    let dir = daemon.dir().join("d");
    fs::create_dir(&dir).unwrap();
    for (name, size) in [("a", 70_000), ("b", 3), ("c", 4)] {
        fs::write(dir.join(name), vec![b'x'; size]).unwrap();
    }
    let (exit, _) = sent(&daemon, &[dir.to_str().unwrap(), "--to", "beta"], true);
    assert_eq!(exit, Ok(Exit::Done));
    let asked = asked.lock().unwrap();
    for alone in ["a 70000", "b 3", "c 4"] {
        assert!(asked.contains(alone), "{asked:?}");
    }
}

/// Whoever writes to a pipe is cut off when it is closed, however soon it is opened again.
#[test]
fn a_pipe_is_opened_once() {
    let (daemon, seen) = daemon(|_| None);
    let path = daemon.dir().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let other = daemon.dir().join("other");
    fs::write(&other, "x").unwrap();
    let writes = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut pipe = fs::File::options().write(true).open(path)?;
            // More than a pipe holds: it does not end before somebody has read.
            std::io::Write::write_all(&mut pipe, &vec![7; 200_000])
        }
    });
    let paths = [&path, &other].map(|path| path.to_str().unwrap());
    let (exit, said) = sent(&daemon, &paths, true);
    assert_eq!(exit, Ok(Exit::Done), "{said:?}");
    assert!(writes.join().unwrap().is_ok());
    assert!(seen.lock().unwrap().iter().any(|(_, body)| *body == [7; 200_000]));
}

#[test]
fn some_fail_and_the_others_are_sent() {
    let (daemon, seen) = daemon(|name| {
        (name == "b").then(|| Say::refuse(413, "too_large", "it is larger than 4 bytes"))
    });
    for name in ["a", "b", "c"] {
        fs::write(daemon.dir().join(name), "12345").unwrap();
    }
    let paths = ["a", "b", "missing", "c"].map(|n| daemon.dir().join(n).display().to_string());
    let (exit, said) = sent(&daemon, &paths.each_ref().map(String::as_str), false);
    assert_eq!(exit, Ok(Exit::Partly));
    assert_eq!((said.lines.len(), said.notes.len()), (2, 2));
    assert!(said.notes[0].contains("too_large"), "{:?}", said.notes);
    assert!(said.notes[1].starts_with("error[CN0620]"), "{:?}", said.notes);
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[test]
fn the_only_thing_that_fails_is_the_commands_failure() {
    let (daemon, _) = daemon(|_| Some(Say::refuse(507, "quota", "no room")));
    fs::write(daemon.dir().join("a"), "1").unwrap();
    let path = daemon.dir().join("a").display().to_string();
    let (result, said) = sent(&daemon, &[&path], false);
    let failure = result.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::TryLater, "CN0610"));
    assert_eq!(said, Said::default(), "main tells it");
    let (exit, said) = sent(&daemon, &[&path, &path], true);
    assert_eq!(exit, Ok(Exit::TryLater));
    let object: Value = serde_json::from_str(&said.notes[0]).unwrap();
    assert_eq!((&object["schema"], &object["code"]), (&json!("consign.error/1"), &json!("CN0610")));
}

#[test]
fn a_destination_that_does_not_exist_stops_everything() {
    let (daemon, _) = daemon(|_| Some(Say::refuse(404, "unknown_destination", "no site delta")));
    let dir = daemon.dir().join("d");
    fs::create_dir(&dir).unwrap();
    for i in 0..200 {
        fs::write(dir.join(i.to_string()), "x").unwrap();
    }
    let (exit, said) = sent(&daemon, &[dir.to_str().unwrap()], false);
    assert_eq!(exit, Ok(Exit::Failed));
    assert!((1..=8).contains(&said.notes.len()), "{} failures", said.notes.len());
    assert!(said.notes[0].contains("this site has no peers"), "{:?}", said.notes[0]);
}

#[test]
fn nothing_to_send_and_nobody_to_send_to() {
    let (daemon, _) = daemon(|_| None);
    let dir = daemon.dir().join("empty");
    fs::create_dir(&dir).unwrap();
    let (result, _) = sent(&daemon, &[dir.to_str().unwrap()], false);
    assert_eq!(result.unwrap_err().exit, Exit::NoMatch);
    let args = parse(&["x"]).unwrap();
    let (result, _) = said(false, |screen| send(&args, &daemon.dir().join("none"), screen));
    assert_eq!(result.unwrap_err().exit, Exit::Unreachable);
    let stopping = Daemon::answering(|_, _| {
        let status = Status { stopping: true, ..Status::default() };
        Say::json(200, serde_json::to_value(status).unwrap())
    });
    let (result, _) = sent(&stopping, &["x"], false);
    assert_eq!(result.unwrap_err().exit, Exit::TryLater);
}

#[test]
fn wrong_command_lines() {
    for words in [
        &[][..],
        &["x", "--timeout", "3s"],
        &["x", "--to", "a b"],
        &["x", "--to", ""],
        &["x", "--label", "novalue"],
        &["x", "--label", "=v"],
        &["x", "--priority", "soon"],
        &["x", "--expires", "1ms"],
        &["x", "-w", "--timeout", "soon"],
    ] {
        assert!(parse(words).is_err(), "{words:?}");
    }
    for words in
        [&["-"][..], &["-", "-", "--name", "x"], &["a", "b", "--name", "x"], &["/", "--name", "x"]]
    {
        let failure = check(&parse(words).unwrap()).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{words:?}");
    }
    for words in [&["a", "-w", "--timeout", "3s"][..], &["-", "--name", "x"], &["a", "--to", "*"]] {
        assert_eq!(check(&parse(words).unwrap()), Ok(()), "{words:?}");
    }
}

#[test]
fn what_was_given_up_before_is_no_success() {
    let (daemon, _) = daemon(|name| {
        let accepted = Accepted {
            schema: Accepted::SCHEMA.into(),
            id: "0".repeat(64),
            name: name.into(),
            dead: vec!["beta".into()],
            ..Accepted::default()
        };
        Some(Say::json(200, serde_json::to_value(accepted).unwrap()))
    });
    fs::write(daemon.dir().join("a"), "1").unwrap();
    let path = daemon.dir().join("a").display().to_string();
    let (exit, said) = sent(&daemon, &[&path], false);
    assert_eq!(exit, Ok(Exit::Failed));
    assert!(said.lines[0].starts_with("Dead"), "{:?}", said.lines);
}

/// Somebody else may write to a directory while it is sent: what was a file when it was found is one when it is
/// opened, or it is not sent. Nothing is followed and nothing is waited for.
#[test]
fn what_a_file_has_become_since_it_was_found_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let secret = dir.path().join("secret");
    fs::create_dir_all(&secret).unwrap();
    fs::write(secret.join("a"), "elsewhere").unwrap();
    let file = root.join("sub/a");
    type Change = fn(&Path, &Path);
    let changes: [(Change, &str); 5] = [
        (|file, secret| std::os::unix::fs::symlink(secret.join("a"), file).unwrap(), "symbolic"),
        (|file, _| std::os::unix::fs::symlink("/dev/zero", file).unwrap(), "symbolic"),
        (
            |file, _| {
                let mode = rustix::fs::Mode::RWXU;
                rustix::fs::mkfifoat(rustix::fs::CWD, file, mode).unwrap();
            },
            "no regular file",
        ),
        (|file, _| fs::create_dir(file).unwrap(), "no regular file"),
        (
            |file, secret| {
                let sub = file.parent().unwrap();
                fs::remove_dir(sub).unwrap();
                std::os::unix::fs::symlink(secret, sub).unwrap();
            },
            "symbolic",
        ),
    ];
    for (change, why) in changes {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "here").unwrap();
        let found: Vec<Found> = Walk::new(std::slice::from_ref(&root), None).collect();
        let [Found::Item(item)] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(item.name, "sub/a");
        assert!(feed::open(item).is_ok());
        fs::remove_file(&file).unwrap();
        change(&file, &secret);
        let failure = feed::open(item).err().expect("it is not opened");
        assert_eq!(failure.code, "CN0620");
        assert!(failure.message.contains(why), "{}", failure.message);
        fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn a_pipe_without_a_writer_is_told_of_and_then_sent() {
    let (daemon, seen) = daemon(|_| None);
    let path = daemon.dir().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let text = format!("waiting for the first byte of {}", path.display());
    let notes = std::sync::Mutex::new(Vec::new());
    let exit = {
        let mut line = |_: &str| {};
        let mut note = |said: &str| {
            notes.lock().unwrap().push(said.to_owned());
            // It is told: now somebody writes.
            let path = path.clone();
            std::thread::spawn(move || fs::write(path, "late"));
        };
        let global = Global { verbose: 1, ..Global::default() };
        let mut screen = Screen::new(&mut line, &mut note, &global);
        let args = parse(&[path.to_str().unwrap()]).unwrap();
        send(&args, &daemon.socket(), &mut screen)
    };
    assert_eq!(exit, Ok(Exit::Done));
    assert_eq!(*notes.lock().unwrap(), [text]);
    assert!(seen.lock().unwrap().iter().any(|(_, body)| body == b"late"));
}

#[test]
fn a_device_without_an_end_is_refused_and_says_what_to_do() {
    let (daemon, seen) = daemon(|_| None);
    let (exit, _) = sent(&daemon, &["/dev/zero"], false);
    let failure = exit.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0621"));
    assert!(failure.message.contains("/dev/zero is not sent: it is a device"), "{failure}");
    assert!(failure.message.contains("consign send - --name NAME"), "{failure}");
    assert!(seen.lock().unwrap().is_empty());
}
