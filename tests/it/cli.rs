//! The command line as a person meets it: usage, pipes, the first five minutes, the demo.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use crate::site::{Site, consign, content, free_address, lines};

#[test]
fn a_wrong_command_line_is_answered_with_what_was_meant() {
    let table: [(&[&str], &str); 4] = [
        (&["sned"], "send"),
        (&["send", "--timout", "5s", "x"], "--timeout"),
        (&["init", "--listen", "here"], "--listen"),
        (&["-q", "-v", "status"], "--verbose"),
    ];
    for (args, meant) in table {
        let output = consign().args(args).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(meant), "{args:?}: {said}");
        let output = consign().args(args).arg("--json").output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one object");
        assert_eq!((&said["schema"], &said["code"]), (&"consign.error/1".into(), &"CN0001".into()));
    }
}

#[test]
fn the_words_of_operations_are_commands_too() {
    for (word, command) in [("put", "send"), ("index", "ls")] {
        let help = |word: &str| consign().args([word, "--help"]).output().expect("it runs").stdout;
        assert_eq!(help(word), help(command), "{word}");
    }
}

#[test]
fn help_and_version_are_answers() {
    for (args, words) in [(["--help"], "Exit codes"), (["--version"], env!("CARGO_PKG_VERSION"))] {
        let output = consign().args(args).output().expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(words), "{output:?}");
    }
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made = folder.path().join("alpha");
    let commands: [Vec<&str>; 2] = [vec!["--help"], vec!["init", made.to_str().expect("a path")]];
    for args in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = consign();
        let output = command.args(&args).stdout(writer).stderr(Stdio::piped()).output();
        let output = output.expect("the binary runs");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {output:?}");
    }
    assert!(made.join("consign.toml").exists(), "what it did stays done");
}

#[test]
fn the_first_five_minutes_need_no_editing() {
    let folder = std::sync::Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let mut alpha = Site::at(&folder, "alpha", "smol");
    let mut beta = Site::at(&folder, "beta", "std");
    alpha.init(&[], None);
    let mut command = consign();
    command.arg("init").arg(&beta.dir).arg("--ca").arg(&alpha.dir).arg("--introduce");
    let output = command.args(["--listen", &beta.address.to_string()]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("alpha knows beta"), "{said}");
    assert!(said.contains("consign serve -c "), "{said}");
    alpha.serve();
    beta.serve();
    let file = folder.path().join("video.mp4");
    fs::write(&file, vec![9; 150_000]).expect("a file");
    let output = alpha.run(&["send", file.to_str().expect("a path"), "--to", "beta", "--wait"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let id = beta.segments()[0]["id"].as_str().expect("an id").to_owned();
    let back = folder.path().join("back.mp4");
    let output = beta.run(&["get", &id[..12], "-o", back.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read(back).expect("it came"), fs::read(file).expect("it is there"));
    for mut site in [alpha, beta] {
        assert_eq!(site.run(&["stop", "--wait"]).status.code(), Some(0));
        assert_eq!(site.wait().code(), Some(0));
    }
}

#[test]
fn a_rate_is_kept_and_long_work_says_how_far_it_is_at_most_once_a_second() {
    let folder = std::sync::Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let mut alpha = Site::at(&folder, "alpha", "std");
    alpha.init(&[], None);
    alpha.serve();
    let file = folder.path().join("slow");
    let size = 256_000_u64;
    fs::write(&file, content(7, size as usize)).expect("a file");
    let begun = Instant::now();
    let output =
        alpha.run(&["send", "--json", "--limit", "100KiB", file.to_str().expect("a path")]);
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // 256,000 bytes at 102,400 a second.
    assert!(took >= 2.5, "{took}");
    let told = lines(&output.stderr);
    assert!(!told.is_empty() && (told.len() as f64) < took, "{told:?} in {took} s");
    let mut last = 0;
    for line in told {
        assert_eq!(
            (&line["schema"], &line["what"]),
            (&"consign.progress/1".into(), &"Queueing".into())
        );
        assert_eq!(line["total_bytes"], size);
        let bytes = line["bytes"].as_u64().expect("a number");
        assert!((last..=size).contains(&bytes), "{line}");
        last = bytes;
    }
    let id = lines(&output.stdout)[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(alpha.content(&id), content(7, size as usize));
    alpha.stop();
}

#[test]
fn the_demo_relays_and_compares() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("demo");
    let files = ["small", "large"].map(|name| folder.path().join(name));
    for (file, size) in files.iter().zip([100, 300_000]) {
        fs::write(file, vec![5; size]).expect("a file");
    }
    let output = consign().args(["--json", "demo", "--dir"]).arg(&dir).args(&files).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&said["schema"], &said["good"]), (&"consign.demo/1".into(), &true.into()));
    assert_eq!(said["directions"][0]["runtimes"], "smol -> std");
    assert_eq!(said["directions"][0]["equal"], 2);
    // Where it was can be looked at: the sites are whole.
    let mut beta = consign();
    beta.env("CONSIGN_LISTEN_PEERS", free_address().to_string());
    let output = beta.arg("-c").arg(dir.join("beta")).arg("status").output().expect("it runs");
    assert_eq!(output.status.code(), Some(69), "the configuration is good, nobody serves");
    let again = consign().args(["demo", "--dir"]).arg(&dir).output().expect("the binary runs");
    assert_eq!(again.status.code(), Some(1), "a directory in use is refused: {again:?}");
}

/// What a shell is told to offer for the last of these words.
fn offered(home: &std::path::Path, words: &[&str]) -> Vec<String> {
    let mut command = consign();
    command.env_clear().env("HOME", home).env("CONSIGN_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let output = command.arg("--").arg("consign").args(words).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn names_of_contexts_are_offered_as_they_are_typed() {
    let home = tempfile::tempdir().expect("a directory");
    let words = [&["--context", ""][..], &["context", "use", ""], &["context", "rm", ""]];
    for line in words {
        assert!(!offered(home.path(), line).iter().any(|word| word == "alpha"), "{line:?}");
    }
    for name in ["alpha", "beta"] {
        fs::create_dir(home.path().join(name)).expect("made");
        fs::write(home.path().join(name).join("consign.toml"), "").expect("written");
        let mut command = consign();
        command.env_clear().env("HOME", home.path()).args(["context", "add", name]);
        let output = command.arg(home.path().join(name)).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
    }
    for line in words {
        let found = offered(home.path(), line);
        assert!(["alpha", "beta"].iter().all(|n| found.iter().any(|w| w == n)), "{found:?}");
    }
    assert_eq!(offered(home.path(), &["--context", "al"]), ["alpha"]);
    // A file of names that cannot be read offers none, and says nothing in between.
    fs::write(home.path().join(".config/consign/contexts.toml"), "[").expect("written");
    assert!(!offered(home.path(), &["--context", "al"]).iter().any(|word| word == "alpha"));
    let output = consign().args(["completions", "bash", "--live"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("CONSIGN_COMPLETE"), "{output:?}");
}
