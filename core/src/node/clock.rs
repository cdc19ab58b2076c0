//! What is believed of the clock (DESIGN 2.5): after a step of the system clock nothing is removed for
//! its age until somebody has looked at it, or a day has passed.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use super::Node;
use super::types::{Action, Note};
use crate::ledger::rows::SegmentRow;
use crate::time::{EffectiveClock, Instant, Now, UnixMillis};

/// How long a step is doubted that nobody confirms.
const DOUBT: Duration = Duration::from_secs(24 * 3600);
/// A longer time than that since the last run is no time that has passed.
const AWAY: Duration = Duration::from_secs(30 * 24 * 3600);

/// Whether the clock is believed.
#[derive(Clone, Debug, Default)]
pub(super) struct ClockHold {
    /// Until then it is not, unless somebody confirms it.
    until: Option<Instant>,
    /// How far the system clock was ahead of effective time when that was last told.
    ahead: Duration,
    /// What is to be said about it first of all.
    text: Option<alloc::string::String>,
}

impl ClockHold {
    /// At the start: a jump from the last run's high water counts as time passed, unless it is very
    /// long.
    pub fn at_start(now: Now, high: UnixMillis) -> ClockHold {
        let away = now.wall.since(high);
        if high == UnixMillis(0) || away <= AWAY {
            return ClockHold::default();
        }
        let days = away.as_secs() / (24 * 3600);
        let text = format!(
            "the clock is {days} days after the last run: nothing expires for a day unless that is \
             confirmed"
        );
        ClockHold { until: Some(now.mono.after(DOUBT)), ahead: Duration::ZERO, text: Some(text) }
    }
}

impl Node {
    /// The system clock is so far ahead of effective time.
    pub(super) fn clock_is_ahead(&mut self, now: Now, ahead: Duration, out: &mut Vec<Action>) {
        let steps = ahead >= self.clock.ahead.saturating_add(EffectiveClock::STEP);
        self.clock.ahead = ahead;
        if ahead < EffectiveClock::STEP {
            // It went back to where it was.
            self.clock.until = None;
        } else if steps {
            self.clock.until = Some(now.mono.after(DOUBT));
            let text = format!(
                "the clock has stepped {} s ahead: nothing expires for a day unless that is confirmed",
                ahead.as_secs()
            );
            out.push(Action::Note(Note::Warn { code: "clock_step", text }));
        }
    }

    /// Says what start-up found of the clock.
    pub(super) fn tell_clock(&mut self, out: &mut Vec<Action>) {
        if let Some(text) = self.clock.text.take() {
            out.push(Action::Note(Note::Warn { code: "clock_step", text }));
        }
    }

    /// An operator says that the clock is right. Returns whether it was doubted.
    pub fn confirm_clock(&mut self) -> bool {
        self.more |= self.clock_held();
        let held = self.clock_held();
        self.clock.until = None;
        held
    }

    /// Whether a step of the clock is doubted: nothing is removed for its age.
    pub(super) fn clock_held(&self) -> bool {
        self.clock.until.is_some_and(|until| self.now.mono < until)
    }

    /// Whether the time of a segment is over, by a clock that is believed.
    pub(super) fn is_over(&self, now: Now, segment: &SegmentRow) -> bool {
        segment.meta.expires().is_some_and(|at| at <= now.wall) && !self.clock_held()
    }

    /// When the doubt ends by itself.
    pub(super) fn clock_deadline(&self) -> Option<Instant> {
        self.clock.until.filter(|until| self.now.mono < *until)
    }
}
