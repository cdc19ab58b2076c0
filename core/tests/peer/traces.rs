//! Runs the scripts in `tests/traces/peer/` and compares what comes of each command, line by line.
//! With `UPDATE_TRACES=1` the files are rewritten with what came; look at the difference before you
//! keep it.

use std::fs;
use std::path::Path;

use crate::script::Script;

/// What a file says and what it should say.
fn replay(text: &str) -> String {
    let mut script = Script::new();
    let mut replayed = String::new();
    for line in text.lines() {
        if line.starts_with("  ") {
            continue;
        }
        replayed.push_str(line);
        replayed.push('\n');
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        for outcome in script.run(line) {
            replayed.push_str("  ");
            replayed.push_str(&outcome);
            replayed.push('\n');
        }
    }
    replayed
}

#[test]
fn every_trace() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/peer");
    let update = std::env::var_os("UPDATE_TRACES").is_some();
    let mut paths: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no traces in {}", folder.display());
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let replayed = replay(&text);
        if replayed == text {
            continue;
        }
        if update {
            fs::write(&path, replayed).unwrap();
            continue;
        }
        let at = text.lines().zip(replayed.lines()).take_while(|(a, b)| a == b).count();
        let line = |of: &str| of.lines().nth(at).unwrap_or("(end)").to_owned();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        wrong.push(format!(
            "{name}:{}: expected {:?}, got {:?}",
            at + 1,
            line(&text),
            line(&replayed)
        ));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
