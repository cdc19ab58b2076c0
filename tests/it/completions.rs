//! What a shell offers while words are typed: the real script in a real bash, which asks a real site.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::site::{Site, consign};
use crate::wait;

/// What bash offers for the last of these words; `None` where there is no bash.
fn offered(words: &[&str]) -> Option<Vec<String>> {
    const ASK: &str = r#"
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
_clap_complete_consign consign "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;
    let folder = tempfile::tempdir().expect("a directory");
    let script = folder.path().join("script");
    let output = consign().args(["completions", "bash", "--live"]).output().expect("it runs");
    fs::write(&script, output.stdout).expect("written");
    let binary = Path::new(env!("CARGO_BIN_EXE_consign")).parent().expect("its directory");
    let found = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([binary.into()].into_iter().chain(std::env::split_paths(&found)));
    let mut bash = Command::new("bash");
    bash.env_clear().env("PATH", path.expect("a path")).env("HOME", folder.path());
    bash.args(["--norc", "--noprofile", "-c", ASK, "bash"]).arg(&script).arg("consign").args(words);
    let output = match bash.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no bash to ask");
            return None;
        }
        output => output.expect("it runs"),
    };
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    Some(said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// Waits until bash offers exactly this; a site that is slow to answer is not waited for by the shell.
fn becomes(words: &[&str], expected: &[&str]) {
    wait::until(&format!("{words:?} to be {expected:?}"), || {
        (offered(words)? == expected).then_some(())
    });
}

#[test]
fn bash_offers_what_the_running_site_knows() {
    if offered(&["sta"]).is_none() {
        return;
    }
    let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let mut alpha = Site::at(&folder, "alpha", "std");
    let others = ["beta", "gamma"].map(|name| Site::at(&folder, name, "std"));
    alpha.init(&others.each_ref(), None);
    let config = alpha.config();
    let at = |words: &[&'static str]| -> Vec<String> {
        let begun = ["-c", config.to_str().expect("a path")];
        begun.iter().chain(words).map(|word| (*word).to_owned()).collect()
    };
    let offers = |words: &[&'static str], expected: &[&str]| {
        let words = at(words);
        becomes(&words.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    };
    // Nobody answers: names of peers stand in the configuration, nothing else does.
    offers(&["send", "--to", ""], &["beta", "gamma"]);
    offers(&["send", "--to", "beta,g"], &["beta,gamma"]);
    offers(&["show", "a"], &[]);
    offers(&["pickup", "nodes", "revoke", "n"], &[]);
    alpha.serve();
    let file = folder.path().join("a");
    fs::write(&file, b"a").expect("written");
    let output = alpha.run(&["send", file.to_str().expect("a path"), "--to", "gamma"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let id = alpha.segments()[0]["id"].as_str().expect("an id")[..12].to_owned();
    let half: &'static str = id[..7].to_owned().leak();
    for words in
        [["show", half], ["get", half], ["hold", half], ["explain", half], ["assurance", half]]
    {
        offers(&words, &[&id]);
    }
    offers(&["inbox", "retry", half], &[&id]);
    offers(&["deadletter", "retry", half], &[]);
    offers(&["peers", "hold", "g"], &["gamma"]);
    offers(&["ls", "--peer", "be"], &["beta"]);
    // What is offered is taken.
    assert_eq!(alpha.run(&["show", &id]).status.code(), Some(0));
    alpha.stop();
    offers(&["explain", "CN0601"], &["CN0601"]);
    offers(&["show", half], &[]);
}
