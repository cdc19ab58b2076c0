//! Things that say nothing themselves until somebody else does: pipes nobody writes to yet, standard input, devices.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::walk::Item;

/// What takes longer is told.
const LONG: Duration = Duration::from_secs(1);

/// What is waited for, by the number of the thing.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<BTreeMap<usize, Wait>>);

#[derive(Clone, Debug)]
struct Wait {
    since: Instant,
    text: String,
    /// It stays until the thing is done: its end is what is waited for.
    to_its_end: bool,
}

impl Waits {
    /// A thing is about to be opened.
    pub(super) fn begin(&self, i: usize, item: &Item, now: Instant) {
        let Some((text, to_its_end)) = text(item) else { return };
        let wait = Wait { since: now, text, to_its_end };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(i, wait);
    }

    /// Its first byte has come.
    fn began(&self, i: usize) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.get(&i).is_some_and(|wait| !wait.to_its_end) {
            waits.remove(&i);
        }
    }

    /// It is done, or failed.
    pub(super) fn over(&self, i: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&i);
    }

    /// What has been waited for a while, first things first.
    pub(super) fn long(&self, now: Instant) -> Option<(usize, String)> {
        let waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut long = waits.iter().filter(|(_, w)| now.saturating_duration_since(w.since) >= LONG);
        long.next().map(|(i, wait)| (*i, wait.text.clone()))
    }
}

fn text(item: &Item) -> Option<(String, bool)> {
    let Some(path) = &item.path else {
        return Some(("waiting for the first byte of standard input".into(), false));
    };
    let kind = fs::metadata(path).ok()?.file_type();
    let shown = path.display();
    match kind {
        kind if kind.is_fifo() => Some((format!("waiting for the first byte of {shown}"), false)),
        kind if kind.is_file() => None,
        _ => Some((format!("{shown} is a device, it is read until it ends"), true)),
    }
}

/// A source whose first byte is told.
pub(super) struct First<'a> {
    pub(super) from: &'a mut dyn Read,
    pub(super) waits: &'a Waits,
    pub(super) i: usize,
}

impl Read for First<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(into)?;
        if got > 0 {
            self.waits.began(self.i);
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn item(path: Option<&Path>) -> Item {
        Item { path: path.map(PathBuf::from), name: "x".into(), below: None }
    }

    #[test]
    fn what_is_waited_for_is_told_after_a_second_and_until_its_first_byte() {
        let (waits, now) = (Waits::default(), Instant::now());
        let room = tempfile::tempdir().unwrap();
        let (pipe, file) = (room.path().join("pipe"), room.path().join("file"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        fs::write(&file, "x").unwrap();
        waits.begin(0, &item(Some(&file)), now);
        waits.begin(1, &item(Some(&pipe)), now);
        waits.begin(2, &item(None), now);
        assert_eq!(waits.long(now + LONG / 2), None);
        let text = format!("waiting for the first byte of {}", pipe.display());
        assert_eq!(waits.long(now + LONG), Some((1, text)), "a file is read at once");
        let mut from: &[u8] = b"ab";
        let mut first = First { from: &mut from, waits: &waits, i: 1 };
        assert_eq!(first.read(&mut [0; 8]).unwrap(), 2);
        let text = "waiting for the first byte of standard input";
        assert_eq!(waits.long(now + LONG), Some((2, text.into())));
        waits.over(2);
        assert_eq!(waits.long(now + LONG), None);
    }

    #[test]
    fn a_device_is_told_of_until_its_end() {
        let (waits, now) = (Waits::default(), Instant::now());
        waits.begin(0, &item(Some(Path::new("/dev/null"))), now);
        waits.began(0);
        let text = "/dev/null is a device, it is read until it ends";
        assert_eq!(waits.long(now + LONG), Some((0, text.into())));
        waits.over(0);
        assert_eq!(waits.long(now + LONG), None);
    }
}
