//! What is known of the room on the disk, and when it is looked at again.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::full::{RETRY, Tight};
use super::types::{Action, Answer, Note};
use super::width::Width;
use super::{Mode, Node};
use crate::id::{ConnId, TransferNo};
use crate::plant::Plant;
use crate::session::SessionCommand;
use crate::store::{Errand, Space};
use crate::time::{Instant, Now};

/// Something was refused because the disk, as last seen, has no room for it. No commit may come that
/// tells of room, so the disk is looked at until it fits or nobody has asked for a while.
#[derive(Clone, Debug)]
pub(super) struct Short {
    /// Bytes that were to be written, beside what is to stay free.
    need: u64,
    probe_at: Instant,
    /// Looks since the last refusal.
    looks: u32,
}

/// When the disk was looked at last, and who waits to hear how it stands.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    at: Instant,
    asking: Vec<(ConnId, TransferNo)>,
}

impl Seen {
    /// As a start has found it.
    pub fn at(at: Instant) -> Seen {
        Seen { at, asking: Vec::new() }
    }
}

/// Whoever asks how the site is hears of a disk that was looked at within this time: others fill it and
/// make room on it, and commits alone do not tell of that where nothing happens.
const FRESH: Duration = Duration::from_secs(1);

/// Pause between looks at a disk without room.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Looks after the last refusal.
const LOOKS: u32 = 60;

/// What is told where no commit has failed yet.
const NOT_WHOLE: &str = "the ballast is not whole";

impl Node {
    /// A start on a ballast that is not whole: nothing grows until it is (G5).
    pub(super) fn full_at_start(&mut self) {
        if !self.space.ballast_whole && !self.config.planted(Plant::G5) {
            self.stage.width.short();
            let mut tight = Tight::new(0, self.now.mono);
            tight.untold = true;
            self.mode = Mode::Tight(tight);
        }
    }

    /// So many bytes were to be written, and there was no room for them beside what is to stay free.
    pub(super) fn lacks(&mut self, need: u64) {
        let probe_at = self.short.as_ref().map_or(self.now.mono, |short| short.probe_at);
        self.short = Some(Short { need, probe_at, looks: 0 });
    }

    /// Looks at the disk from time to time while space is short.
    pub(super) fn probe(&mut self, now: Now, out: &mut Vec<Action>) {
        let Mode::Tight(tight) = &mut self.mode else {
            if let Some(short) = self.short.as_mut().filter(|short| now.mono >= short.probe_at) {
                short.probe_at = now.mono.after(LOOK_EVERY);
                short.looks += 1;
                out.push(Action::Errand(Errand::Probe));
            }
            return;
        };
        if core::mem::take(&mut tight.untold) {
            out.push(Action::Note(Note::Full { why: NOT_WHOLE.into() }));
        }
        if now.mono >= tight.probe_at {
            tight.probes += 1;
            tight.probe_at = now.mono.after(RETRY.delay(tight.probes + 3, 0));
            out.push(Action::Errand(Errand::Probe));
        }
    }

    /// The site at a glance, for whoever asks.
    pub(super) fn status_asked(
        &mut self,
        now: Now,
        conn: ConnId,
        ticket: TransferNo,
        out: &mut Vec<Action>,
    ) {
        if self.drained || now.mono.since(self.seen.at) <= FRESH {
            let answer = Arc::new(Answer::Status(Box::new(self.status(now))));
            return out.push(Action::Command(conn, SessionCommand::Answer { ticket, answer }));
        }
        if self.seen.asking.is_empty() {
            out.push(Action::Errand(Errand::Look));
        }
        self.seen.asking.push((conn, ticket));
    }

    /// Whoever asked is gone.
    pub(super) fn asks_no_more(&mut self, conn: ConnId) {
        self.seen.asking.retain(|(asking, _)| *asking != conn);
    }

    /// What was seen of the disk; whoever waits for that hears it.
    pub(super) fn saw(&mut self, space: Space, out: &mut Vec<Action>) {
        self.space = space;
        self.seen.at = self.now.mono;
        for (conn, ticket) in core::mem::take(&mut self.seen.asking) {
            self.status_asked(self.now, conn, ticket, out);
        }
    }

    /// The disk as it is now: growth goes on when the ballast is whole again (G5).
    pub(super) fn space_is(&mut self, space: Space, out: &mut Vec<Action>) {
        self.saw(space, out);
        let left = space.free.checked_sub(self.stays_free());
        if self.short.as_ref().is_some_and(|s| left >= Some(s.need) || s.looks >= LOOKS) {
            self.short = None;
        }
        if matches!(self.mode, Mode::Normal)
            && !space.ballast_whole
            && !self.config.planted(Plant::G5)
        {
            // A run before this one has used it: it is made whole before anything grows (G5).
            let probe_at = self.now.mono;
            self.mode = Mode::Tight(Tight::new(0, probe_at));
            out.push(Action::Note(Note::Full { why: NOT_WHOLE.into() }));
        }
        let whole = space.ballast_whole || self.config.planted(Plant::G5);
        let roomy = whole && space.free >= self.min_free();
        let settled = match &self.mode {
            Mode::Tight(tight) => tight.rest.is_empty() && tight.reading.is_empty(),
            Mode::Normal | Mode::Rejudge(_) | Mode::Halted => false,
        };
        if settled && roomy && !self.stage.committing() {
            self.mode = Mode::Normal;
            self.stage.width = Width::USUAL;
            out.push(Action::Note(Note::RoomAgain));
        }
    }

    pub(super) fn full_deadline(&self) -> Option<Instant> {
        match &self.mode {
            Mode::Normal => self.short.as_ref().map(|short| short.probe_at),
            Mode::Rejudge(rejudge) => (!rejudge.asked).then_some(rejudge.not_before),
            Mode::Tight(tight) => Some(tight.probe_at),
            Mode::Halted => None,
        }
    }
}
