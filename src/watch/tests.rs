//! When a file is whole, what is passed over, and what is forgotten.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use consign_core::inbox::FileMark;

use super::files::Files;
use super::look::{File, is_passed_over, look};
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(2);
/// A wall clock.
const WALL: i64 = 1_700_000_000_000_000_000;

fn file(inode: u64, modified: i64, size: u64) -> File {
    File { mark: FileMark { inode, modified }, size }
}

fn seen(files: &[(&str, File)]) -> BTreeMap<Vec<u8>, File> {
    files.iter().map(|(path, file)| (path.as_bytes().to_vec(), *file)).collect()
}

/// Time as the test has it.
struct Clock {
    start: Instant,
    passed: Duration,
}

impl Clock {
    fn new() -> Clock {
        // Late enough that there is a time before it.
        Clock { start: Instant::now() + Duration::from_secs(3600), passed: Duration::ZERO }
    }

    fn now(&self) -> Instant {
        self.start + self.passed
    }

    fn both(&self) -> (Instant, i64) {
        (self.now(), WALL + i64::try_from(self.passed.as_nanos()).unwrap())
    }
}

#[test]
fn a_file_is_whole_when_it_has_been_at_rest() {
    let mut clock = Clock::new();
    let mut files = Files::new(QUIET);
    let next = |files: &Files, clock: &Clock| files.due(clock.now()).pop().map(|(path, _)| path);
    // It grows, and comes to rest.
    for size in 0..5 {
        let grown = file(1, WALL + i64::try_from(size).unwrap(), size);
        files.see(&seen(&[("a", grown)]), clock.both());
        assert_eq!(next(&files, &clock), None, "{size}");
        clock.passed += SECOND;
    }
    files.see(&seen(&[("a", file(1, WALL + 4, 4))]), clock.both());
    assert_eq!(next(&files, &clock), None);
    clock.passed += SECOND;
    files.see(&seen(&[("a", file(1, WALL + 4, 4))]), clock.both());
    assert_eq!(next(&files, &clock), Some(b"a".to_vec()));
    files.taken(b"a".to_vec(), file(1, WALL + 4, 4));
    assert_eq!(next(&files, &clock), None);
    assert_eq!(files.waiting(), 0);
    // Each of inode, time and length makes it another file.
    for other in [file(2, WALL + 4, 4), file(2, WALL + 9, 4), file(2, WALL + 9, 5)] {
        files.see(&seen(&[("a", other)]), clock.both());
        assert_eq!((next(&files, &clock), files.waiting()), (None, 1));
        clock.passed += QUIET;
        assert_eq!(next(&files, &clock), Some(b"a".to_vec()));
        files.taken(b"a".to_vec(), other);
    }
}

#[test]
fn a_file_that_was_written_long_ago_and_renamed_here_is_whole_at_once() {
    let clock = Clock::new();
    let mut files = Files::new(QUIET);
    let old = WALL - 10_000_000_000;
    files.see(&seen(&[("old", file(1, old, 3)), ("new", file(2, WALL, 3))]), clock.both());
    let due: Vec<Vec<u8>> = files.due(clock.now()).into_iter().map(|(path, _)| path).collect();
    assert_eq!(due, [b"old".to_vec()]);
    files.taken(b"old".to_vec(), file(1, old, 3));
    assert!(files.due(clock.now()).is_empty());
    // A time in the future says nothing.
    files.see(&seen(&[("late", file(3, i64::MAX, 3))]), clock.both());
    assert!(files.due(clock.now()).is_empty());
}

#[test]
fn what_fails_waits_longer_each_time_and_what_changes_comes_to_rest_again() {
    let mut clock = Clock::new();
    let mut files = Files::new(QUIET);
    files.see(&seen(&[("a", file(1, 0, 1))]), clock.both());
    let mut waits = Vec::new();
    for _ in 0..12 {
        assert!(!files.due(clock.now()).is_empty());
        files.failed(b"a", clock.now());
        let mut wait = Duration::ZERO;
        while files.due(clock.now() + wait).is_empty() {
            wait += SECOND;
        }
        clock.passed += wait;
        waits.push(wait.as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    files.changed(b"a", clock.now());
    assert!(files.due(clock.now() + SECOND).is_empty());
    assert!(!files.due(clock.now() + QUIET).is_empty());
}

#[test]
fn what_is_gone_is_forgotten_once_that_is_written_down() {
    let clock = Clock::new();
    let mut files = Files::new(QUIET);
    files.taken(b"taken".to_vec(), file(1, 0, 1));
    files.see(&seen(&[("taken", file(1, 0, 1)), ("waits", file(2, 0, 1))]), clock.both());
    assert_eq!(files.to_remove().len(), 1);
    for _ in 0..2 {
        assert_eq!(files.see(&seen(&[]), clock.both()), [b"taken".to_vec()]);
    }
    files.forget(b"taken");
    assert!(files.see(&seen(&[]), clock.both()).is_empty());
    assert!(files.to_remove().is_empty() && files.waiting() == 0);
}

#[test]
fn only_regular_files_with_honest_names_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("out");
    fs::create_dir_all(root.join("sub/.git")).unwrap();
    fs::create_dir_all(root.join(".hidden")).unwrap();
    for name in ["a", "sub/b", "sub/.c", "sub/.git/x", ".hidden/x", "d.part", "e~", "f.TMP"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::write(dir.path().join("secret"), "x").unwrap();
    symlink("../secret", root.join("link")).unwrap();
    symlink("..", root.join("up")).unwrap();
    let seen = look(&root).unwrap();
    let names: Vec<String> =
        seen.files.keys().map(|path| String::from_utf8(path.clone()).unwrap()).collect();
    assert_eq!(
        (names, seen.whole, seen.trouble.as_str()),
        (vec!["a".into(), "sub/b".into()], true, "")
    );
    assert_eq!(seen.files[&b"sub/b".to_vec()].size, 5);
    for (name, passed) in [("a.tmp", true), ("tmp", false), ("x.partial", true), ("x.txt", false)] {
        assert_eq!(is_passed_over(name.as_bytes()), passed, "{name}");
    }
    // A directory that does not exist yet is made; one that cannot be is trouble.
    assert!(look(&dir.path().join("new")).unwrap().files.is_empty());
    assert!(look(&dir.path().join("no/where")).is_err());
}
