//! What is to be sent: files, everything under directories, standard input; one after the other, so that a
//! directory of a million files costs no memory.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use consign_core::segment::Meta;

use crate::exit::{Exit, Failure};

/// One thing to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Where it is; `None` is standard input.
    pub(super) path: Option<PathBuf>,
    /// Its name as a segment.
    pub(super) name: String,
    /// The directory it was found below, under its name: there it is a regular file, or it is not sent.
    pub(super) below: Option<PathBuf>,
}

impl Item {
    /// Its place, as it is shown.
    pub(super) fn shown(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("-"))
    }
}

/// What the walk comes upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// To be sent.
    Item(Item),
    /// Passed over, and why.
    Skipped(String),
    /// Refused.
    Failed(Failure),
}

/// The walk.
pub(super) struct Walk {
    /// Arguments, then the sorted entries of directories that are open, innermost last.
    stack: Vec<VecDeque<PathBuf>>,
    /// The directory argument that is being walked: names of files are their paths below it.
    root: PathBuf,
    name: Option<String>,
}

impl Walk {
    /// Over these arguments, with a name for the only one of them.
    pub(super) fn new(paths: &[PathBuf], name: Option<String>) -> Walk {
        Walk { stack: vec![paths.iter().cloned().collect()], root: PathBuf::new(), name }
    }

    fn argument(&mut self, path: PathBuf) -> Found {
        if path.as_os_str() == "-" {
            let name = self.name.take().unwrap_or_default();
            return named(None, &name);
        }
        // What is named on the command line is followed, and may be a pipe.
        match fs::metadata(&path) {
            Err(e) => Found::Failed(unreadable(&path, e)),
            Ok(there) if there.is_dir() => {
                self.root.clone_from(&path);
                self.directory(&path)
            }
            Ok(there) if there.file_type().is_char_device() => {
                let why = "it is a device and may have no end; what a program reads of it can be piped in: consign send - --name NAME";
                Found::Failed(refused(&path, why))
            }
            Ok(_) => match (self.name.take(), path.file_name().map(PathBuf::from)) {
                (Some(name), _) => named(Some(path), &name),
                (None, Some(name)) => file(path, &name),
                (None, None) => {
                    let why = "it has no file name; give one with --name";
                    Found::Failed(refused(&path, why))
                }
            },
        }
    }

    fn entry(&mut self, path: PathBuf) -> Found {
        match fs::symlink_metadata(&path) {
            Err(e) => Found::Failed(unreadable(&path, e)),
            Ok(there) if there.is_dir() => self.directory(&path),
            Ok(there) if there.is_file() => {
                let name = path.strip_prefix(&self.root).unwrap_or(&path).to_path_buf();
                match file(path, &name) {
                    Found::Item(item) => {
                        Found::Item(Item { below: Some(self.root.clone()), ..item })
                    }
                    other => other,
                }
            }
            Ok(there) if there.is_symlink() => skipped(&path, "a symbolic link"),
            Ok(_) => skipped(&path, "neither a file nor a directory"),
        }
    }

    fn directory(&mut self, path: &Path) -> Found {
        let entries: Result<Vec<PathBuf>, std::io::Error> =
            fs::read_dir(path).and_then(|dir| dir.map(|e| e.map(|e| e.path())).collect());
        match entries {
            Err(e) => Found::Failed(unreadable(path, e)),
            Ok(mut entries) => {
                entries.sort();
                self.stack.push(entries.into());
                Found::Skipped(String::new())
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let depth = self.stack.len();
            let path = match self.stack.last_mut()?.pop_front() {
                Some(path) => path,
                None => {
                    self.stack.pop();
                    continue;
                }
            };
            let found = if depth == 1 { self.argument(path) } else { self.entry(path) };
            match found {
                // A directory was opened: nothing to tell.
                Found::Skipped(why) if why.is_empty() => {}
                found => return Some(found),
            }
        }
    }
}

fn file(path: PathBuf, name: &Path) -> Found {
    let name = match name.to_str() {
        Some(name) => name.to_string(),
        None => {
            return Found::Failed(refused(&path, "its name is not UTF-8; give one with --name"));
        }
    };
    named(Some(path), &name)
}

fn named(path: Option<PathBuf>, name: &str) -> Found {
    let meta = Meta { name: name.into(), ..Meta::default() };
    match (meta.check(), path) {
        (Ok(()), path) => Found::Item(Item { path, name: name.into(), below: None }),
        (Err(fault), Some(path)) => Found::Failed(refused(&path, &fault.to_string())),
        (Err(fault), None) => Found::Failed(refused(Path::new("-"), &fault.to_string())),
    }
}

fn skipped(path: &Path, why: &str) -> Found {
    Found::Skipped(format!("Skipped   {}: {why}", path.display()))
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(Exit::Failed, "CN0621", format!("{} is not sent: {why}", path.display()))
}

pub(super) fn unreadable(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "CN0620", format!("{} cannot be read: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn found(walk: Walk, root: &Path) -> Vec<String> {
        let strip = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
        walk.map(|found| match found {
            Found::Item(item) => {
                format!("{} as {}", item.path.as_deref().map_or("-".into(), strip), item.name)
            }
            Found::Skipped(why) => format!("skipped {}", why.rsplit(": ").next().unwrap()),
            Found::Failed(failure) => failure.code.into(),
        })
        .collect()
    }

    #[test]
    fn files_directories_and_what_is_neither() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("d/b/empty")).unwrap();
        for name in ["one", "d/c", "d/a", "d/b/x y", "d/z"] {
            fs::write(root.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("a", root.join("d/link")).unwrap();
        std::os::unix::fs::symlink("one", root.join("linked")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(root.join("d/socket")).unwrap());
        fs::write(root.join("d").join(OsStr::from_bytes(b"y\xff")), "").unwrap();
        fs::write(root.join("d/y\nz"), "").unwrap();
        let paths = ["d", "one", "linked", "missing"].map(|p| root.join(p));
        let expected = [
            "d/a as a",
            "d/b/x y as b/x y",
            "d/c as c",
            "skipped a symbolic link",
            "skipped neither a file nor a directory",
            "CN0621",
            "CN0621",
            "d/z as z",
            "one as one",
            "linked as linked",
            "CN0620",
        ];
        assert_eq!(found(Walk::new(&paths, None), root), expected);
    }

    #[test]
    fn names_from_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "").unwrap();
        let walk = |path: &Path, name: &str| Walk::new(&[path.into()], Some(name.into()));
        assert_eq!(found(walk(&path, "other"), dir.path()), ["x as other"]);
        assert_eq!(found(walk(Path::new("-"), "in"), dir.path()), ["- as in"]);
        assert_eq!(found(walk(Path::new("/dev/zero"), "z"), dir.path()), ["CN0621"]);
        for bad in ["", "..", "a//b", "a\0b"] {
            assert_eq!(found(walk(Path::new("-"), bad), dir.path()), ["CN0621"], "{bad:?}");
        }
    }
}
