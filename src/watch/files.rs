//! What is known of each file of a watched directory, and what is to be done next.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::look::File;

/// First pause after a failure; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug)]
enum State {
    /// As it is since then.
    Since(Instant),
    /// It failed so often, and is tried again then.
    Failed(u32, Instant),
    /// Handed in as it is.
    Taken,
}

/// The files of a directory.
#[derive(Debug)]
pub(super) struct Files {
    quiet: Duration,
    files: BTreeMap<Vec<u8>, (File, State)>,
}

impl Files {
    pub(super) fn new(quiet: Duration) -> Files {
        Files { quiet, files: BTreeMap::new() }
    }

    /// A file was taken as it was then.
    pub(super) fn taken(&mut self, path: Vec<u8>, file: File) {
        self.files.insert(path, (file, State::Taken));
    }

    /// What is there now; `now` is both clocks, the second one in nanoseconds since the Unix epoch.
    /// Returns what was taken once and is not there any more.
    pub(super) fn see(
        &mut self,
        seen: &BTreeMap<Vec<u8>, File>,
        (now, wall): (Instant, i64),
    ) -> Vec<Vec<u8>> {
        let mut gone = Vec::new();
        self.files.retain(|path, (_, state)| {
            let there = seen.contains_key(path);
            let taken = matches!(state, State::Taken);
            if !there && taken {
                gone.push(path.clone());
            }
            // Until that is written down, it is remembered.
            there || taken
        });
        for (path, file) in seen {
            let known = self.files.get(path);
            if known.is_some_and(|(known, _)| known == file) {
                continue;
            }
            // One that nobody has written to for a while was put there whole; one that changes under
            // our eyes has to come to rest first.
            let age = u64::try_from(wall.saturating_sub(file.mark.modified)).unwrap_or_default();
            let age = if known.is_none() { Duration::from_nanos(age) } else { Duration::ZERO };
            let since = now.checked_sub(age.min(self.quiet)).unwrap_or(now);
            self.files.insert(path.clone(), (*file, State::Since(since)));
        }
        gone
    }

    /// Something that was taken is forgotten.
    pub(super) fn forget(&mut self, path: &[u8]) {
        self.files.remove(path);
    }

    /// Files that are whole and not taken.
    pub(super) fn due(&self, now: Instant) -> Vec<(Vec<u8>, File)> {
        let due = |state: &State| match state {
            State::Since(since) => now.saturating_duration_since(*since) >= self.quiet,
            State::Failed(_, until) => now >= *until,
            State::Taken => false,
        };
        let found = self.files.iter().filter(|(_, (_, state))| due(state));
        found.map(|(path, (file, _))| (path.clone(), *file)).collect()
    }

    /// It changed while it was read: it has to come to rest again.
    pub(super) fn changed(&mut self, path: &[u8], now: Instant) {
        if let Some((_, state)) = self.files.get_mut(path) {
            *state = State::Since(now);
        }
    }

    /// It could not be handed in.
    pub(super) fn failed(&mut self, path: &[u8], now: Instant) {
        if let Some((_, state)) = self.files.get_mut(path) {
            let times = match state {
                State::Failed(times, _) => times.saturating_add(1),
                State::Since(_) | State::Taken => 1,
            };
            let pause = PAUSE.saturating_mul(1 << times.saturating_sub(1).min(16)).min(PAUSE_MAX);
            *state = State::Failed(times, now + pause);
        }
    }

    /// Files that were taken as they are.
    pub(super) fn to_remove(&self) -> Vec<(Vec<u8>, File)> {
        let taken = self.files.iter().filter(|(_, (_, state))| matches!(state, State::Taken));
        taken.map(|(path, (file, _))| (path.clone(), *file)).collect()
    }

    /// How many are not taken.
    pub(super) fn waiting(&self) -> u64 {
        let waits = |(_, state): &&(File, State)| !matches!(state, State::Taken);
        self.files.values().filter(waits).count() as u64
    }
}
