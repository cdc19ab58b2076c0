//! Both sites as the demo watches them: states of all deliveries until they are done.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::admin::shapes::{Peer, Status};
use crate::client::Api;
use crate::exit::{Exit, Failure};
use crate::human;

/// Between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// Time between the first two lines where they cannot be written over each other; it doubles with every
/// line, so that a short demo shows its states and a long one does not fill the screen.
const LINE_FIRST: Duration = Duration::from_millis(40);
/// The longest time between two lines.
const LINE_LAST: Duration = Duration::from_secs(5);
/// Nothing moved for so long: the demo has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// One direction, seen from the sending site.
pub(super) struct Direction {
    api: Api,
    from: &'static str,
    to: &'static str,
    last: Peer,
    moved: Instant,
}

impl Direction {
    pub(super) fn new(socket: &Path, from: &'static str, to: &'static str) -> Direction {
        let (last, moved) = (Peer::default(), Instant::now());
        Direction { api: Api::new(socket), from, to, last, moved }
    }

    /// Looks once; returns how many segments are delivered.
    pub(super) fn look(&mut self) -> Result<u64, Failure> {
        let status: Status = self.api.json("GET", "/v1/status")?;
        let peer = status.peers.into_iter().find(|p| p.name == self.to).unwrap_or_default();
        if peer.dead.count > 0 {
            let (n, why) = (peer.dead.count, &peer.last_error);
            let message = format!("{n} segments to {} became dead letters: {why}", self.to);
            return Err(Failure::new(Exit::Failed, "CN0531", message));
        }
        let progress = |p: &Peer| (p.queued, p.sending, p.sent, p.delivered);
        if progress(&peer) != progress(&self.last) {
            self.moved = Instant::now();
        }
        self.last = peer;
        if self.moved.elapsed() > PATIENCE {
            let message = format!("nothing moved for {} s: {}", PATIENCE.as_secs(), self.line());
            return Err(Failure::new(Exit::Failed, "CN0531", message));
        }
        Ok(self.last.delivered.count)
    }

    /// The states in one line.
    fn line(&self) -> String {
        let Direction { from, to, last, .. } = self;
        let mut words = Vec::new();
        let states = [
            (last.queued.count, "queued"),
            (last.sending.count, "sending"),
            (last.backing_off.count, "backing off"),
            (last.delivered.count, "delivered"),
        ];
        for (count, word) in states.into_iter().filter(|(count, _)| *count > 0) {
            words.push(format!("{count} {word}"));
        }
        let bytes = last.delivered.bytes.saturating_add(last.sent);
        let all = [last.queued, last.sending, last.backing_off, last.delivered];
        let all = all.iter().fold(0u64, |sum, c| sum.saturating_add(c.bytes));
        let (bytes, all) = (human::bytes(bytes), human::bytes(all));
        format!("{from} -> {to}  {}  {bytes} of {all}", words.join(", "))
    }
}

/// Shows lines while things move: one that is written over on a terminal, a few otherwise.
pub(super) struct Live {
    on: bool,
    terminal: bool,
    shown: String,
    next: Instant,
    pause: Duration,
}

impl Live {
    pub(super) fn new(on: bool) -> Live {
        let terminal = std::io::stderr().is_terminal();
        Live { on, terminal, shown: String::new(), next: Instant::now(), pause: LINE_FIRST }
    }

    pub(super) fn show(&mut self, directions: &[Direction], last: bool) {
        let busy = directions.iter().filter(|d| {
            let counts = [d.last.queued, d.last.sending, d.last.backing_off, d.last.delivered];
            counts.iter().any(|c| c.count > 0)
        });
        let line = busy.map(Direction::line).collect::<Vec<_>>().join("   |   ");
        let early = Instant::now() < self.next;
        if !self.on || line == self.shown || line.is_empty() || (early && !self.terminal && !last) {
            return;
        }
        let mut err = std::io::stderr().lock();
        let _ = match (self.terminal, last) {
            // A line that wraps could not be written over: the terminal cuts it off instead.
            (true, false) => write!(err, "\r\x1b[K\x1b[?7l{line}\x1b[?7h"),
            (true, true) => writeln!(err, "\r\x1b[K{line}"),
            (false, _) => writeln!(err, "{line}"),
        };
        let _ = err.flush();
        self.shown = line;
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LINE_LAST);
    }
}
