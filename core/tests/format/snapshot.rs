//! Comparison with a file under `tests/snapshots`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name)
}

fn updating() -> bool {
    std::env::var_os("UPDATE_SNAPSHOTS").is_some_and(|v| v == "1")
}

/// The snapshot of that name; `None` while it is being written anew.
///
/// # Panics
/// When there is none.
pub(crate) fn read(name: &str) -> Option<String> {
    (!updating()).then(|| std::fs::read_to_string(path(name)).expect("there is a snapshot"))
}

/// Compares `lines` with the snapshot of that name, or writes it with `UPDATE_SNAPSHOTS=1`.
///
/// # Panics
/// When they differ, with the lines that do.
pub(crate) fn check(name: &str, lines: &[String]) {
    let path = path(name);
    let mut text = lines.join("\n");
    text.push('\n');
    if updating() {
        std::fs::write(&path, &text).expect("the snapshot can be written");
        return;
    }
    let old = std::fs::read_to_string(&path)
        .unwrap_or_else(|why| panic!("{}: {why}; UPDATE_SNAPSHOTS=1 writes it", path.display()));
    if let Some(report) = difference(&old, &text) {
        panic!("{} differs:\n{report}", path.display());
    }
}

/// The lines that differ, or `None` when none does.
pub(crate) fn difference(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let mut report = String::new();
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    for line in old.iter().filter(|line| !new.contains(line)) {
        let _ = writeln!(report, "- {line}");
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        let _ = writeln!(report, "+ {line}");
    }
    if report.is_empty() {
        report.push_str("the same lines in another order or number\n");
    }
    Some(report)
}

#[test]
fn a_difference_names_its_lines() {
    assert_eq!(difference("a\nb\n", "a\nb\n"), None);
    assert_eq!(difference("a\nb\n", "a\nc\n").as_deref(), Some("- b\n+ c\n"));
    assert!(difference("a\nb\n", "b\na\n").is_some());
    assert!(difference("a\n", "a\na\n").is_some());
}
