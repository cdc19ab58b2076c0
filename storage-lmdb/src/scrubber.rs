//! The scrubber: compares content with its digest on a thread of its own, at a bounded rate, and without
//! pushing out of the page cache what others read.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use consign_core::id::{BlobNo, Seq};
use consign_core::ledger::read_scrub::ScrubItem;
use consign_core::ledger::rows::Body;
use consign_core::ledger::{Table, keys};
use consign_core::node::Input;
use consign_core::store::{ScrubFault, Snapshot};
use rustix::fs::Advice;
use rustix::io::Errno;

use crate::shared::Shared;

/// What the scrubber is given.
pub(crate) enum Job {
    /// Content, and at most so many bytes a second.
    Scrub(Vec<ScrubItem>, u64),
    /// The end.
    Stop,
}

/// How much is read at a time.
const PIECE: usize = 256 << 10;
/// Pauses shorter than this are saved up.
const SHORT: Duration = Duration::from_millis(20);
/// How much less than others this thread asks of the processor.
const NICE: i32 = 10;

/// Serves jobs until told to stop.
pub(crate) fn run(shared: &Shared, jobs: &Receiver<Job>) {
    // SAFETY: this changes the priority of the calling thread and touches no memory.
    let nice = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    if nice != 0 {
        tracing::debug!("the scrubber keeps the usual priority");
    }
    while let Ok(Job::Scrub(items, rate)) = jobs.recv() {
        let mut pace = Pace { jobs, rate: rate.max(1), began: Instant::now(), bytes: 0 };
        let Some((bad, unread)) = scrub(shared, &items, &mut pace) else { return };
        let (seen, bytes) = (items.len() as u64, pace.bytes);
        shared.node(Input::Scrubbed { seen, bytes, bad, unread });
        shared.fail_if_damaged();
    }
}

/// What is wrong among some content, and what could not be read.
type Scrubbed = (Vec<(Seq, ScrubFault)>, Vec<Seq>);

/// Looks at it; `None` when it was told to stop.
fn scrub(shared: &Shared, items: &[ScrubItem], pace: &mut Pace<'_>) -> Option<Scrubbed> {
    let (mut bad, mut unread) = (Vec::new(), Vec::new());
    for item in items {
        let found = match item.body {
            Body::Inline(number) => inline(shared, &keys::body(number), item, pace)?,
            Body::Blob(blob) => file(shared, blob, item, pace)?,
        };
        match found {
            Found::Whole => {}
            Found::Wrong(fault) => bad.push((item.seq, fault)),
            Found::Unread => unread.push(item.seq),
        }
    }
    Some((bad, unread))
}

/// What an item comes to.
enum Found {
    Whole,
    Wrong(ScrubFault),
    /// Nothing is known of it: the error may pass.
    Unread,
}

/// … or the end of everything.
type Verdict = Option<Found>;

fn inline(shared: &Shared, key: &[u8], item: &ScrubItem, pace: &mut Pace<'_>) -> Verdict {
    let body = shared.ledger.snapshot().and_then(|snapshot| {
        let body = snapshot.get(Table::Bodies, key)?;
        Ok(body.map(<[u8]>::to_vec))
    });
    match body {
        Ok(Some(body)) => {
            let right = *blake3::hash(&body).as_bytes() == item.digest.0;
            pace.read(body.len())?;
            Some(if right { Found::Whole } else { Found::Wrong(ScrubFault::Corrupt) })
        }
        Ok(None) => Some(Found::Wrong(ScrubFault::Missing)),
        Err(why) => {
            tracing::warn!(%why, code = "CN0556", "content cannot be checked now");
            Some(Found::Unread)
        }
    }
}

/// An error that may pass is no verdict: the content is looked at again in the next pass.
fn file(shared: &Shared, blob: BlobNo, item: &ScrubItem, pace: &mut Pace<'_>) -> Verdict {
    let passing = |why: Errno| {
        tracing::warn!(blob = blob.0, %why, code = "CN0556", "content cannot be checked now");
        Some(Found::Unread)
    };
    let (file, size) = match shared.dir.open_blob(blob) {
        Ok(open) => open,
        Err(Errno::NOENT) => return Some(Found::Wrong(ScrubFault::Missing)),
        Err(why) => return passing(why),
    };
    if size != item.size {
        return Some(Found::Wrong(ScrubFault::Corrupt));
    }
    // What was misread once is read again from the disk before anything is given up for it.
    for _ in 0..2 {
        match hash(&file, pace)? {
            Ok(digest) if digest == item.digest.0 => return Some(Found::Whole),
            Ok(_) => {}
            Err(why) => return passing(why),
        }
    }
    Some(Found::Wrong(ScrubFault::Corrupt))
}

/// The digest of a file; the outer `None` is the end of everything.
fn hash(file: &OwnedFd, pace: &mut Pace<'_>) -> Option<Result<[u8; 32], Errno>> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0u64;
    loop {
        match rustix::io::pread(file, &mut piece[..], at) {
            Ok(0) => return Some(Ok(*hasher.finalize().as_bytes())),
            Ok(len) => {
                hasher.update(piece.get(..len).unwrap_or_default());
                forget(file, at, len);
                at = at.saturating_add(len as u64);
                pace.read(len)?;
            }
            Err(Errno::INTR) => {}
            Err(why) => return Some(Err(why)),
        }
    }
}

/// Content is read once here: it is not to push out what others read.
fn forget(file: &OwnedFd, at: u64, len: usize) {
    // Only a hint.
    let _ = rustix::fs::fadvise(file, at, NonZero::new(len as u64), Advice::DontNeed);
}

/// Keeps to a rate by pauses between pieces.
struct Pace<'p> {
    jobs: &'p Receiver<Job>,
    rate: u64,
    began: Instant,
    bytes: u64,
}

impl Pace<'_> {
    /// So many bytes more were read. `None` when it is told to stop.
    fn read(&mut self, len: usize) -> Option<()> {
        self.bytes = self.bytes.saturating_add(len as u64);
        let due = micros(self.bytes, self.rate);
        let ahead = due.saturating_sub(self.began.elapsed());
        if ahead < SHORT {
            return Some(());
        }
        match self.jobs.recv_timeout(ahead) {
            Err(RecvTimeoutError::Timeout) => Some(()),
            // The node has one job under way at a time: this is the end.
            Ok(_) | Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

/// How long so many bytes take at a rate.
fn micros(bytes: u64, rate: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_to_however_large_the_numbers_are() {
        assert_eq!(micros(20 << 20, 20 << 20), Duration::from_secs(1));
        assert_eq!(micros(1, u64::MAX), Duration::ZERO);
        assert_eq!(micros(u64::MAX, 1), Duration::from_micros(u64::MAX));
    }
}
