//! What is in a watched directory: regular files, by their paths below it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

use consign_core::inbox::FileMark;
use rustix::fs::Dir;
use rustix::io::Errno;

use crate::below::{self, There};

/// Most files of one directory that are kept in mind.
const FILES_MAX: usize = 1_000_000;
/// Most directories that are gone down.
const DEPTH_MAX: usize = 32;

/// A file as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// By what it is known again.
    pub(super) mark: FileMark,
    /// Its length.
    pub(super) size: u64,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) files: BTreeMap<Vec<u8>, File>,
    /// Whether everything was seen: what was not is gone.
    pub(super) whole: bool,
    /// What could not be looked at; empty when there was nothing.
    pub(super) trouble: String,
}

/// Looks through a directory and those below it. Links are not followed; hidden names, and those that
/// programs give to what is not whole, are passed over.
pub(super) fn look(dir: &Path) -> Result<Seen, String> {
    let base = below::open(dir).map_err(|why| problem(dir.display(), why))?;
    let mut seen = Seen { whole: true, ..Seen::default() };
    look_into(&base, &mut Vec::new(), 0, &mut seen);
    Ok(seen)
}

fn problem(what: impl std::fmt::Display, why: Errno) -> String {
    format!("{what}: {}", std::io::Error::from(why))
}

fn look_into(dir: &OwnedFd, path: &mut Vec<u8>, depth: usize, seen: &mut Seen) {
    let entries = match Dir::read_from(dir) {
        Ok(entries) => entries,
        Err(why) => return seen.fault(path, why),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(why) => return seen.fault(path, why),
        };
        let name = entry.file_name().to_bytes();
        if is_passed_over(name) {
            continue;
        }
        if seen.files.len() >= FILES_MAX {
            seen.whole = false;
            seen.trouble = format!("there are more than {FILES_MAX} files");
            return;
        }
        let before = path.len();
        if depth > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        match below::look(dir, name) {
            Ok(Some(There::File(mark, size))) => {
                seen.files.insert(path.clone(), File { mark, size });
            }
            Ok(Some(There::Directory)) if depth < DEPTH_MAX => match below::enter(dir, name) {
                Ok(next) => look_into(&next, path, depth + 1, seen),
                // It was a directory a moment ago.
                Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
                Err(why) => seen.fault(path, why),
            },
            Ok(_) => {}
            Err(why) => seen.fault(path, why),
        }
        path.truncate(before);
    }
}

impl Seen {
    fn fault(&mut self, path: &[u8], why: Errno) {
        self.whole = false;
        self.trouble = problem(String::from_utf8_lossy(path), why);
    }
}

/// Names of what is not there to be sent.
pub(super) fn is_passed_over(name: &[u8]) -> bool {
    let unfinished: [&[u8]; 7] =
        [b"~", b".tmp", b".temp", b".part", b".partial", b".filepart", b".crdownload"];
    let lower = name.to_ascii_lowercase();
    name.starts_with(b".") || unfinished.iter().any(|end| lower.ends_with(end))
}
