//! Waiting for events: the ring is looked at again and again, for as long as was asked.

use std::time::Duration;

use consign_core::session::SessionOut;
use consign_core::time::{Instant, Now};

use super::{AdminSession, Task};
use crate::events::Wanted;

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(200);

/// A question that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    wanted: Wanted,
    /// When it is answered in any case.
    until: Instant,
    /// When it is looked at next.
    pub(super) look: Instant,
}

impl AdminSession {
    /// Answers with the events that are there, or waits for one.
    pub(super) fn events(
        &mut self,
        now: Now,
        wanted: Wanted,
        wait: Duration,
        out: &mut SessionOut,
    ) {
        let wait = if self.conn.is_eof() { Duration::ZERO } else { wait };
        self.task = Task::Events(Waiting { wanted, until: now.mono.after(wait), look: now.mono });
        self.look_for_events(now, out);
    }

    /// The client says nothing more and most likely is not there: what is there is its answer, and nothing keeps
    /// the connection open any more.
    pub(super) fn wait_no_longer(&mut self, now: Now, out: &mut SessionOut) {
        match &mut self.task {
            Task::Events(waiting) => {
                (waiting.until, waiting.look) = (now.mono, now.mono);
                self.look_for_events(now, out);
            }
            Task::Ping(_, ping) => {
                ping.until = now.mono;
                self.look_for_pong(now, out);
            }
            _ => {}
        }
    }

    /// Time has passed.
    pub(super) fn look_for_events(&mut self, now: Now, out: &mut SessionOut) {
        let Task::Events(waiting) = &mut self.task else { return };
        if now.mono < waiting.look {
            return;
        }
        let wanted = waiting.wanted;
        let there = wanted.since.is_none_or(|since| self.context.events.has_more(since));
        if !there && now.mono < waiting.until {
            waiting.look = now.mono.after(EVERY).min(waiting.until);
            return;
        }
        self.task = Task::Idle;
        let page = self.context.events.page(wanted);
        self.shape(now, 200, &[], &page, out);
    }
}
