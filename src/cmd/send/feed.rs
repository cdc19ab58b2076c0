//! One thing at a time from a file or a pipe to the daemon.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use consign_core::limits::INLINE_MAX;
use rustix::io::Errno;

use super::pace::{Pace, Paced};
use super::waits::{First, Waits};
use super::walk::{Item, unreadable};
use crate::admin::shapes::Accepted;
use crate::client::{Api, Source};
use crate::exit::{Exit, Failure};

/// A stream that ends within so many bytes is sent with its length.
const SHORT: u64 = 64 << 10;

/// What a thing holds, opened once: a pipe that is closed again ends for whoever writes to it.
pub(super) enum Content<'a> {
    Stdin,
    File(File, Metadata),
    /// It was read before.
    Read(&'a [u8]),
}

/// Opens a thing.
pub(super) fn open(item: &Item) -> Result<Content<'static>, Failure> {
    let Some(path) = &item.path else { return Ok(Content::Stdin) };
    if let Some(root) = &item.below {
        return below(path, root, &item.name);
    }
    let file = File::open(path).map_err(|e| unreadable(path, e))?;
    let there = file.metadata().map_err(|e| unreadable(path, e))?;
    if there.is_dir() {
        return Err(unreadable(path, "it has become a directory"));
    }
    Ok(Content::File(file, there))
}

/// Opens what was a file below a directory when that was read: what it has become since is neither followed
/// nor waited for.
fn below(path: &Path, root: &Path, name: &str) -> Result<Content<'static>, Failure> {
    let opened = crate::below::file(root, Path::new(name)).map_err(|why| match why {
        Errno::LOOP | Errno::NOTDIR => unreadable(path, "it has become a symbolic link"),
        why => unreadable(path, io::Error::from(why)),
    })?;
    let file = File::from(opened);
    let there = file.metadata().map_err(|e| unreadable(path, e))?;
    if !there.is_file() {
        return Err(unreadable(path, "it is no regular file any more"));
    }
    Ok(Content::File(file, there))
}

/// Hands one thing in, no faster than its pace. `sent` is told of bytes as they leave, `waits` of the first one
/// of what others write.
pub(super) fn submit(
    api: &mut Api,
    item: &Item,
    content: Content<'_>,
    target: &str,
    pace: Option<&mut Pace>,
    sent: &mut dyn FnMut(u64),
    (waits, i): (&Waits, usize),
) -> Result<Accepted, Failure> {
    let accepted = match content {
        Content::Stdin => {
            let mut first = First { from: &mut io::stdin().lock(), waits, i };
            stream(api, target, &mut Paced { from: &mut first, pace }, sent)
        }
        Content::Read(mut data) => {
            api.submit(target, Source::Sized(data.len() as u64, &mut data), sent)
        }
        Content::File(mut file, there) if there.is_file() => {
            let len = there.len();
            let mut whole = Whole { left: len, there, file: &mut file };
            whole.check_empty().map_err(|e| unreadable(item.shown(), e))?;
            let mut paced = Paced { from: &mut whole, pace };
            api.submit(target, Source::Sized(len, &mut paced), sent)
        }
        Content::File(mut file, _) => {
            let mut first = First { from: &mut file, waits, i };
            stream(api, target, &mut Paced { from: &mut first, pace }, sent)
        }
    };
    accepted.map_err(|failure| told(item, failure))
}

/// All of a file that fits in a row of the ledger: it is better sent together with others. Anything else
/// comes back as it is.
pub(super) fn small(
    item: &Item,
    content: Content<'static>,
) -> Result<Result<Vec<u8>, Content<'static>>, Failure> {
    let (mut file, there) = match content {
        Content::File(file, there) if there.is_file() && there.len() <= INLINE_MAX as u64 => {
            (file, there)
        }
        other => return Ok(Err(other)),
    };
    let len = there.len();
    let mut data = Vec::with_capacity(len as usize);
    let mut whole = Whole { file: &mut file, there, left: len };
    let read =
        whole.check_empty().and_then(|()| Read::take(&mut whole, len).read_to_end(&mut data));
    let short = len - read.map_err(|e| unreadable(item.shown(), e))? as u64;
    if short > 0 {
        let text = format!("it became {short} bytes shorter while it was read");
        return Err(told(item, Failure::new(Exit::Failed, "CN0622", text)));
    }
    Ok(Ok(data))
}

/// Says of which file a failure of the source speaks.
pub(super) fn told(item: &Item, failure: Failure) -> Failure {
    let Some(path) = &item.path else { return failure };
    match failure.code {
        "CN0620" | "CN0622" => {
            let text = format!("{} cannot be read: {}", path.display(), failure.message);
            Failure { message: text, ..failure }
                .help("nothing of it is queued; send a copy that nobody writes to")
        }
        "CN0611" => {
            Failure { message: format!("{}: {}", path.display(), failure.message), ..failure }
        }
        _ => failure,
    }
}

fn stream(
    api: &mut Api,
    target: &str,
    source: &mut dyn Read,
    sent: &mut dyn FnMut(u64),
) -> Result<Accepted, Failure> {
    let mut start = Vec::new();
    let got = Read::take(&mut *source, SHORT).read_to_end(&mut start);
    got.map_err(|e| {
        Failure::new(Exit::Failed, "CN0620", format!("the input cannot be read: {e}"))
    })?;
    let len = start.len() as u64;
    if len < SHORT {
        return api.submit(target, Source::Sized(len, &mut start.as_slice()), sent);
    }
    let mut whole = start.as_slice().chain(source);
    api.submit(target, Source::Stream(&mut whole), sent)
}

/// A file that must stay what it was: its last bytes are given only if nobody wrote to it since.
struct Whole<'a> {
    file: &'a mut File,
    there: Metadata,
    left: u64,
}

impl Whole<'_> {
    /// A file without bytes has no last ones.
    fn check_empty(&self) -> io::Result<()> {
        if self.left == 0 { self.check() } else { Ok(()) }
    }

    fn check(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        let same =
            now.len() == self.there.len() && now.modified().ok() == self.there.modified().ok();
        if same { Ok(()) } else { Err(io::Error::other("it was written to while it was read")) }
    }
}

impl Read for Whole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(buffer)?;
        self.left = self.left.saturating_sub(got as u64);
        if self.left == 0 {
            self.check()?;
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn whole(path: &Path) -> (File, Metadata) {
        let file = File::open(path).unwrap();
        let there = file.metadata().unwrap();
        (file, there)
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_not_given_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "0123456789").unwrap();
        let read = |change: &dyn Fn()| {
            let (mut file, there) = whole(&path);
            let mut whole = Whole { left: there.len(), there, file: &mut file };
            let mut buffer = [0; 6];
            assert_eq!(whole.read(&mut buffer).unwrap(), 6);
            change();
            whole.read(&mut buffer[..4]).map_err(|e| e.to_string())
        };
        assert_eq!(read(&|| {}), Ok(4));
        let grown = read(&|| {
            let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(b"more").unwrap();
        });
        assert_eq!(grown, Err("it was written to while it was read".into()));
    }
}
