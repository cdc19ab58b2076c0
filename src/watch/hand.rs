//! Handing in, forgetting and removing files of a watched directory.

use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use consign_core::http::encode_component;
use consign_core::id::{hex, unhex};
use consign_core::inbox::FileMark;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::WatchRule;
use super::files::Files;
use super::look::File;
use crate::admin::exports::{Done, WatchedFiles};
use crate::admin::shapes::Accepted;
use crate::below::{self, There};
use crate::client::{Api, Source};
use crate::exit::{Exit, Failure};

/// Files forgotten in one request.
const FORGET: usize = 32;

/// Why a file was not taken.
pub(super) struct Refused {
    pub(super) why: String,
    /// Whether the next one would fail alike: the site is full, or stops.
    pub(super) everybodys: bool,
}

/// What talks to the site.
pub(super) struct Hand<'a> {
    rule: &'a WatchRule,
    api: Api,
    /// Files handed in.
    pub(super) taken: u64,
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn problem(path: &[u8], why: impl std::fmt::Display) -> String {
    format!("{}: {why}", shown(path))
}

impl<'a> Hand<'a> {
    pub(super) fn new(rule: &'a WatchRule, socket: &Path) -> Hand<'a> {
        Hand { rule, api: Api::new(socket), taken: 0 }
    }

    /// Reads what was taken before.
    pub(super) fn known(&mut self, files: &mut Files) -> Result<(), String> {
        let mut after = String::new();
        loop {
            let target = format!("/v1/watched?rule={:016x}{after}", self.rule.id.0);
            let page: WatchedFiles = self.api.json("GET", &target).map_err(|f| f.message)?;
            for file in page.files {
                let Some(path) = bytes_of(&file.path) else { continue };
                let mark = FileMark { inode: file.inode, modified: file.modified };
                files.taken(path, File { mark, size: file.size });
            }
            match page.next {
                Some(next) => after = format!("&from={next}"),
                None => return Ok(()),
            }
        }
    }

    /// Has the site forget what is not there any more.
    pub(super) fn forget(&mut self, files: &mut Files, gone: &[Vec<u8>]) -> Result<(), String> {
        for some in gone.chunks(FORGET) {
            let mut target = format!("/v1/unwatch?rule={:016x}", self.rule.id.0);
            for path in some {
                target.push_str(&format!("&path={}", blake3::hash(path).to_hex()));
            }
            let done: Done = self.api.json("POST", &target).map_err(|f| f.message)?;
            if done.count < some.len() as u64 {
                // It has no room for that now; the next look asks again.
                return Ok(());
            }
            for path in some {
                files.forget(path);
            }
        }
        Ok(())
    }

    /// Hands a file in.
    pub(super) fn take(
        &mut self,
        files: &mut Files,
        path: &[u8],
        file: File,
    ) -> Result<(), Refused> {
        match self.submit(path, file) {
            Ok(()) => {
                self.taken += 1;
                files.taken(path.to_vec(), file);
                Ok(())
            }
            // It is looked at again when it is at rest.
            Err(failure) if matches!(failure.code, "CN0620" | "CN0622") => {
                files.changed(path, Instant::now());
                Ok(())
            }
            Err(failure) => {
                files.failed(path, Instant::now());
                let everybodys = matches!(failure.exit, Exit::TryLater | Exit::Unreachable);
                Err(Refused { why: problem(path, failure.message), everybodys })
            }
        }
    }

    fn submit(&mut self, path: &[u8], file: File) -> Result<(), Failure> {
        let unread =
            |why: &dyn std::fmt::Display| Failure::new(Exit::Failed, "CN0620", problem(path, why));
        let name = std::str::from_utf8(path)
            .map_err(|_| Failure::new(Exit::Failed, "CN0621", "its name is not UTF-8"))?;
        let opened = self.parent(path).and_then(|(dir, name)| below::file_in(&dir, name));
        let opened = opened.map_err(|why| unread(&io::Error::from(why)))?;
        if below::of(&opened) != Ok(There::File(file.mark, file.size)) {
            return Err(unread(&"it has changed"));
        }
        let mut target = "/v1/segments?name=".to_owned();
        encode_component(name, &mut target);
        for to in &self.rule.to {
            target.push_str("&to=");
            encode_component(to, &mut target);
        }
        let (rule, path) = (self.rule.id.0, hex(path));
        let FileMark { inode, modified } = file.mark;
        target.push_str(&format!("&watch={rule:016x}&path={path}&inode={inode}"));
        target.push_str(&format!("&size={}&modified={modified}", file.size));
        let mut whole = Unchanged { file: opened.into(), was: file, left: file.size };
        whole.check_empty().map_err(|why| unread(&why))?;
        let source = Source::Sized(file.size, &mut whole);
        let _: Accepted = self.api.submit(&target, source, &mut |_| {})?;
        Ok(())
    }

    /// The directory that a file is in, and its name there.
    fn parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Errno> {
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        let (name, dirs) = parts.split_last().ok_or(Errno::INVAL)?;
        let base = below::open(&self.rule.dir)?;
        Ok((below::walk(&base, dirs, false)?.ok_or(Errno::NOENT)?, name))
    }

    /// Removes a file that is safe here, if it is still the one that was taken.
    pub(super) fn remove(&mut self, path: &[u8], file: File) -> Result<(), String> {
        let removed = self.parent(path).and_then(|(dir, name)| {
            match below::look(&dir, name)? {
                Some(There::File(mark, size)) if (File { mark, size }) == file => {
                    rustix::fs::unlinkat(&dir, name, AtFlags::empty())
                }
                // Somebody was faster, or it is another one by now.
                _ => Ok(()),
            }
        });
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(why) => {
                let why = io::Error::from(why);
                Err(problem(path, format!("it cannot be removed: {why}")))
            }
        }
    }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| unhex::<1>(std::str::from_utf8(pair).ok()?).map(|[b]| b);
    digits.as_bytes().chunks(2).map(pair).collect()
}

/// A file that must stay what it was: its last bytes are given only if nobody wrote to it since.
struct Unchanged {
    file: fs::File,
    was: File,
    left: u64,
}

impl Unchanged {
    /// A file without bytes has no last ones.
    fn check_empty(&self) -> io::Result<()> {
        if self.left == 0 { self.check() } else { Ok(()) }
    }

    fn check(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        let same = now.len() == self.was.size && modified(&now) == self.was.mark.modified;
        if same { Ok(()) } else { Err(io::Error::other("it was written to while it was read")) }
    }
}

fn modified(there: &fs::Metadata) -> i64 {
    use std::os::unix::fs::MetadataExt;
    there.mtime().saturating_mul(1_000_000_000).saturating_add(there.mtime_nsec())
}

impl Read for Unchanged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(buffer)?;
        self.left = self.left.saturating_sub(got as u64);
        if self.left == 0 {
            self.check()?;
        }
        Ok(got)
    }
}
