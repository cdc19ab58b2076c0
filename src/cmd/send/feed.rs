//! One thing at a time from a file or a pipe to the daemon.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use consign_core::limits::INLINE_MAX;

use super::pace::{Pace, Paced};
use super::walk::{Item, unreadable};
use crate::admin::shapes::Accepted;
use crate::client::{Api, Source};
use crate::exit::{Exit, Failure};

/// A stream that ends within so many bytes is sent with its length.
const SHORT: u64 = 64 << 10;

/// Hands one thing in, no faster than its pace. `sent` is told of bytes as they leave.
pub(super) fn submit(
    api: &mut Api,
    item: &Item,
    target: &str,
    pace: Option<&mut Pace>,
    sent: &mut dyn FnMut(u64),
) -> Result<Accepted, Failure> {
    let Some(path) = &item.path else {
        let mut paced = Paced { from: &mut io::stdin().lock(), pace };
        return stream(api, target, &mut paced, sent);
    };
    let mut file = File::open(path).map_err(|e| unreadable(path, e))?;
    let there = file.metadata().map_err(|e| unreadable(path, e))?;
    if there.is_dir() {
        return Err(unreadable(path, "it has become a directory"));
    }
    let accepted = if there.is_file() {
        let mut whole = Whole { left: there.len(), there: there.clone(), file: &mut file };
        whole.check_empty().map_err(|e| unreadable(path, e))?;
        let mut paced = Paced { from: &mut whole, pace };
        api.submit(target, Source::Sized(there.len(), &mut paced), sent)
    } else {
        stream(api, target, &mut Paced { from: &mut file, pace }, sent)
    };
    accepted.map_err(|failure| told(path, failure))
}

/// The content of a thing that is better sent together with others: a file that fits in a row of the
/// ledger. `None` of anything else.
pub(super) fn small(item: &Item) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = &item.path else { return Ok(None) };
    let mut file = File::open(path).map_err(|e| unreadable(path, e))?;
    let there = file.metadata().map_err(|e| unreadable(path, e))?;
    if !there.is_file() || there.len() > INLINE_MAX as u64 {
        return Ok(None);
    }
    let mut data = Vec::with_capacity(there.len() as usize);
    let (left, most) = (there.len(), there.len());
    let mut whole = Whole { file: &mut file, there, left };
    let read =
        whole.check_empty().and_then(|()| Read::take(&mut whole, most).read_to_end(&mut data));
    let short = most - read.map_err(|e| unreadable(path, e))? as u64;
    if short > 0 {
        let text = format!("it became {short} bytes shorter while it was read");
        return Err(told(path, Failure::new(Exit::Failed, "CN0622", text)));
    }
    Ok(Some(data))
}

/// Hands in the content of a thing that was read before.
pub(super) fn bytes(
    api: &mut Api,
    item: &Item,
    target: &str,
    mut data: &[u8],
    sent: &mut dyn FnMut(u64),
) -> Result<Accepted, Failure> {
    let accepted = api.submit(target, Source::Sized(data.len() as u64, &mut data), sent);
    accepted.map_err(|failure| match &item.path {
        Some(path) => told(path, failure),
        None => failure,
    })
}

/// Says of which file a failure of the source speaks.
pub(super) fn told(path: &Path, failure: Failure) -> Failure {
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
