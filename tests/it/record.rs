//! Recordings of real sites: replayed they are identical, changed they are not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::site::{RUNTIMES, Site, consign, content, pair};
use crate::wait;

fn replay(file: &Path, more: &[&str]) -> Output {
    let mut command = consign();
    command.arg("replay").arg(file).args(more).output().expect("the binary runs")
}

/// What a replay says, with its exit code.
fn said(file: &Path) -> (i32, Value) {
    let output = replay(file, &["--json"]);
    let value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.status.code().expect("an exit"), value)
}

fn identical(file: &Path, whole: bool) -> Value {
    let (exit, said) = said(file);
    assert_eq!((&said["identical"], exit), (&true.into(), 0), "{}: {said:#}", file.display());
    assert_eq!(said["whole"], whole, "{said:#}");
    assert_eq!(said["panicked"], Value::Null);
    said
}

/// Has the site record its next life in `file`.
fn record(site: &mut Site, file: &Path) {
    site.serve_args = vec!["--record".into(), file.into()];
}

fn send_and_stop(runtime: &'static str) -> (Site, Site, [PathBuf; 3]) {
    let (mut alpha, mut beta) = pair(runtime);
    let file = |name: &str| alpha.folder().path().join(name);
    let files = ["alpha.jsonl", "beta-1.jsonl", "beta-2.jsonl"].map(file);
    record(&mut alpha, &files[0]);
    record(&mut beta, &files[1]);
    alpha.serve();
    beta.serve();
    for (seed, len) in [0, 100, 65_536, 65_537, 20 << 20].into_iter().enumerate() {
        let id = alpha.accepted(&format!("before-{len}"), &content(seed as u64, len));
        beta.arrival(&id);
    }
    beta.kill();
    alpha.accepted("while-away", b"for later");
    record(&mut beta, &files[2]);
    beta.serve();
    beta.arrival(&alpha.accepted("after", b"at once"));
    assert_eq!(alpha.settled("beta").delivered, 7);
    beta.accepted("back", b"the other way");
    beta.settled("alpha");
    assert!(alpha.stop().success() && beta.stop().success());
    (alpha, beta, files)
}

#[test]
fn what_real_sites_did_is_done_again_to_the_byte() {
    for runtime in RUNTIMES {
        let (_alpha, _beta, files) = send_and_stop(runtime);
        let [first, killed, last] = [(0, true), (1, false), (2, true)]
            .map(|(i, whole): (usize, bool)| identical(&files[i], whole));
        assert_eq!(first["recorded"]["options"]["runtime"], runtime);
        assert_eq!(killed["recorded"]["options"]["node"], "beta");
        assert!(last["totals"]["inputs"].as_u64().expect("a count") > 10);
        let output = replay(&files[1], &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("Identical"), "{text}");
        assert!(text.contains("The recording is cut off after line "), "{text}");
        for file in &files {
            let mode = fs::metadata(file).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        a_change_is_found(&files[0]);
    }
}

/// How long the run of many lives goes on: `CONSIGN_RECORD_MINUTES`, or until each kind of end was seen twice.
fn is_long_enough(begun: Instant, rounds: u64) -> bool {
    match std::env::var("CONSIGN_RECORD_MINUTES") {
        Ok(minutes) => {
            let minutes: u64 = minutes.parse().expect("whole minutes");
            begun.elapsed() >= Duration::from_secs(minutes * 60)
        }
        Err(_) => rounds >= 8,
    }
}

/// Two sites that record each of their lives, and what is to be said of them at the end.
struct Lives {
    sites: [Site; 2],
    begun: Instant,
    lives: u64,
    inputs: u64,
    accepted: [Vec<String>; 2],
}

impl Lives {
    fn new() -> Lives {
        let (alpha, mut beta) = pair("smol");
        beta.use_runtime("std");
        let mut sites = [alpha, beta];
        for site in &mut sites {
            let folder = site.dir.join("recordings");
            fs::create_dir(&folder).expect("a folder");
            record(site, &folder);
            site.serve();
        }
        let accepted = Default::default();
        Lives { sites, begun: Instant::now(), lives: 0, inputs: 0, accepted }
    }

    /// Hands a few things in, of lengths on either side of what goes along in an offer.
    fn hand_in(&mut self, from: usize, round: u64) {
        let large = if round % 16 == 5 { 3 << 20 } else { 65_537 };
        for len in [0, 700, 65_536, large] {
            let number = self.accepted[from].len();
            let name = format!("{}-{number}", self.sites[from].name);
            let id = self.sites[from].accepted(&name, &content(number as u64, len));
            self.accepted[from].push(id);
        }
    }

    /// One of them ends, by SIGKILL or in order, with things on their way both ways; the other goes on meanwhile.
    fn round(&mut self, round: u64) {
        let (ends, killed) = ((round % 2) as usize, round % 4 < 2);
        self.hand_in(ends, round);
        self.hand_in(1 - ends, round);
        if round.is_multiple_of(3) {
            let last = self.accepted[1 - ends].last().expect("something").clone();
            self.sites[ends].arrival(&last);
        }
        self.end(ends, killed);
        self.hand_in(1 - ends, round);
        self.sites[ends].serve();
    }

    /// Ends a life; what it did is done again to the byte.
    fn end(&mut self, which: usize, killed: bool) {
        let site = &mut self.sites[which];
        if killed {
            site.kill();
        } else {
            assert!(site.stop().success());
        }
        let folder = site.dir.join("recordings");
        let files: Vec<PathBuf> = fs::read_dir(&folder)
            .expect("it is there")
            .map(|e| e.expect("an entry").path())
            .collect();
        let [file] = files.as_slice() else { panic!("one for each life: {files:?}") };
        let said = identical_or_kept(file, !killed);
        self.inputs += said["totals"]["inputs"].as_u64().expect("a count");
        self.lives += 1;
        fs::remove_file(file).expect("removed");
    }
}

/// As [`identical`]; a recording that is not is put where it outlives the test.
fn identical_or_kept(file: &Path, whole: bool) -> Value {
    let (exit, said) = said(file);
    if exit != 0 || said["whole"] != whole {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::copy(file, &kept).expect("copied");
        panic!("exit {exit}, to be whole: {whole}, kept at {}: {said:#}", kept.display());
    }
    said
}

#[test]
fn every_life_of_two_sites_that_are_killed_again_and_again_is_done_again_to_the_byte() {
    let mut lives = Lives::new();
    let mut rounds = 0;
    while !is_long_enough(lives.begun, rounds) {
        lives.round(rounds);
        rounds += 1;
    }
    for (from, to) in [(0, "beta"), (1, "alpha")] {
        let settled = lives.sites[from].settled(to);
        assert_eq!((settled.delivered, settled.dead), (lives.accepted[from].len() as u64, 0));
    }
    lives.end(0, false);
    lives.end(1, false);
    let Lives { begun, lives, inputs, .. } = &lives;
    println!(
        "{rounds} rounds, {lives} lives, {inputs} inputs in {} s: every effect equal",
        begun.elapsed().as_secs()
    );
    assert_eq!(*lives, rounds + 2);
}

fn a_change_is_found(file: &Path) {
    let text = fs::read_to_string(file).expect("text");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let fits = |line: &String| line.starts_with("{\"do\"") && line.contains("to: Some(Acked)");
    let at = lines.iter().position(fits).expect("an acknowledged delivery");
    lines[at] = lines[at].replace("to: Some(Acked)", "to: Some(Failed)");
    let changed = file.with_extension("changed");
    fs::write(&changed, lines.join("\n") + "\n").expect("written");
    let (exit, said) = said(&changed);
    assert_eq!((exit, &said["identical"]), (1, &false.into()));
    let difference = &said["difference"];
    assert_eq!(difference["line"], at as u64 + 1);
    assert_eq!(difference["name"], "alpha");
    let text = |key: &str| difference[key].as_str().expect("text").to_owned();
    assert!(text("recorded").contains("to: Some(Failed)"), "{said:#}");
    assert!(text("replayed").contains("to: Some(Acked)"), "{said:#}");
    let output = replay(&changed, &[]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.starts_with(&format!("Differs at line {}: node 0 (alpha)", at + 1)), "{shown}");
}

#[test]
fn a_recording_is_never_overwritten_and_a_folder_takes_many() {
    let (mut alpha, _beta) = pair("smol");
    let file = alpha.folder().path().join("there");
    fs::write(&file, "something dear").expect("written");
    record(&mut alpha, &file);
    alpha.start();
    assert!(!alpha.became_ready(), "it refuses to start");
    assert_eq!(alpha.wait().code(), Some(1));
    assert!(alpha.log().contains("error[CN0701]"), "{}", alpha.log());
    assert_eq!(fs::read(&file).expect("it is there"), b"something dear");
    let folder = alpha.folder().path().join("recordings");
    fs::create_dir(&folder).expect("a folder");
    record(&mut alpha, &folder);
    for lives in 1..=2 {
        alpha.serve();
        assert!(alpha.stop().success());
        let entries = fs::read_dir(&folder).expect("it is there");
        let files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
        assert_eq!(files.len(), lives, "{files:?}");
        for file in files {
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            assert!(name.starts_with("alpha-") && name.ends_with(".jsonl"), "{name}");
            identical(&file, true);
        }
    }
}

#[test]
fn a_recording_that_finds_no_room_ends_and_the_site_goes_on() {
    let (mut alpha, mut beta) = pair("std");
    let file = alpha.dir.join("data/recording.jsonl");
    alpha.expects_errors = true;
    alpha.on_disk();
    record(&mut alpha, &file);
    alpha.serve();
    beta.serve();
    beta.arrival(&alpha.accepted("before", b"there is room"));
    alpha.disk().fill_up_to(0);
    let refused = || alpha.submit("no-room", &content(1, 60_000)).expect("it answers").status;
    wait::until_true("the recording to end", || {
        assert!(matches!(refused(), 200 | 201 | 507));
        alpha.log().contains("CN0702")
    });
    alpha.disk().unlimited();
    wait::until_true("room again", || matches!(refused(), 200 | 201));
    beta.arrival(&alpha.accepted("after", b"there is room again"));
    assert!(alpha.stop().success());
    assert_eq!(alpha.log().matches("CN0702").count(), 1);
    identical(&file, false);
}

#[test]
fn what_is_no_recording_of_this_version_is_refused_with_its_code() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let header = |format: u32, version: &str| {
        format!(
            "{{\"consign_recording\":{format},\"version\":\"{version}\",\"commit\":\"\",\
             \"source\":\"serve\",\"options\":{{}}}}\n"
        )
    };
    let this = env!("CARGO_PKG_VERSION");
    let table = [
        (None, "CN0703", "cannot be read"),
        (Some(String::new()), "CN0704", "it is empty"),
        (Some("hello\n".into()), "CN0704", "not JSON"),
        (Some(header(9, this)), "CN0705", "format 9, this build reads 1"),
        (Some(header(1, "9.9.9")), "CN0705", "version 9.9.9, this build is"),
        (Some(header(1, this) + "{\"turn\":5}\n"), "CN0706", "line 2, column 9"),
    ];
    for (i, (text, code, words)) in table.into_iter().enumerate() {
        let file = folder.path().join(format!("recording-{i}"));
        if let Some(text) = text {
            fs::write(&file, text).expect("written");
        }
        let output = replay(&file, &["--json"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said: Value = serde_json::from_slice(&output.stderr).expect("one object");
        assert_eq!(said["code"], code, "{said}");
        assert!(said["message"].as_str().expect("text").contains(words), "{said}");
    }
    let other = folder.path().join("recording-4");
    let output = replay(&other, &["--any-version"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
