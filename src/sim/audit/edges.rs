//! The edges of a delivery, written down a second time: what may follow what, what each step costs, and
//! what must have happened for it.
//!
//! A step from Failed to Inflight goes by way of Scheduled; the ledger sees only its end. What is removed
//! is judged with its batch.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::config::Config;
use consign_core::id::{Seq, SiteNo};
use consign_core::ledger::rows::{DeliveryRow, MetaName, SegmentRow, State};

use super::Desk;
use super::rules::hop;
use super::site::{Answer, Claim, Holds};
use super::violation::{Check, broken, demand};
use crate::sim::time::Micros;

/// From, to; `None` is no row.
const EDGES: [(Option<State>, Option<State>); 10] = [
    (None, Some(State::Scheduled)),
    (Some(State::Scheduled), Some(State::Inflight)),
    (Some(State::Failed), Some(State::Inflight)),
    (Some(State::Inflight), Some(State::Acked)),
    (Some(State::Inflight), Some(State::Failed)),
    (Some(State::Inflight), Some(State::Deadletter)),
    (Some(State::Inflight), None),
    (Some(State::Scheduled), Some(State::Deadletter)),
    (Some(State::Failed), Some(State::Deadletter)),
    (Some(State::Deadletter), Some(State::Scheduled)),
];

/// Failures that are the segment's own: only these spend its budget.
const OWN: [Cause; 5] =
    [Cause::AckTimeout, Cause::AckMismatch, Cause::Unreadable, Cause::Mismatch, Cause::Refused];
/// Refusals that ask to come again and spend nothing.
const SOFT: [Cause; 3] = [Cause::Quota, Cause::DiskFull, Cause::Busy];
/// Failures of the way there.
const WAY: [Cause; 2] = [Cause::SessionLost, Cause::Restart];
/// Refusals that end it at once.
const FINAL: [Cause; 6] = [
    Cause::TooLarge,
    Cause::Expired,
    Cause::Invalid,
    Cause::NotAddressed,
    Cause::Mismatch,
    Cause::Loop,
];

/// A step of a delivery.
pub(super) struct Step<'a> {
    pub seq: Seq,
    pub no: SiteNo,
    pub old: Option<&'a DeliveryRow>,
    pub new: Option<&'a DeliveryRow>,
    pub segment: &'a SegmentRow,
}

/// What a wait was decided on: times in ms.
struct Decided {
    from: u64,
    claimed: u64,
    asked: u64,
    failures: u32,
    cause: Cause,
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// Refused for good, and tried again all the same: it was asked for together with others, or for an accept
/// of before, and asks once more for itself.
fn asks_alone(old: &DeliveryRow, new: &DeliveryRow, cause: Cause) -> bool {
    let unsure = cause != Cause::Mismatch || new.spent == old.spent;
    new.state == State::Failed && FINAL.contains(&cause) && unsure
}

fn is_expired(step: &Step<'_>, new: &DeliveryRow) -> bool {
    step.segment.meta.expires_at.is_some_and(|end| end <= new.since)
}

impl Desk<'_> {
    /// Judges a step: its edge, its numbers, and what must have happened before.
    pub(super) fn judge(&self, step: &Step<'_>) -> Check {
        let state = |row: Option<&DeliveryRow>| row.map(|row| row.state);
        let edge = (state(step.old), state(step.new));
        if let (Some(old), Some(new)) = (step.old, step.new)
            && old.state == new.state
        {
            if old.state == State::Inflight && new.custody.is_some() {
                return self.handed_on(step, old, new);
            }
            // Hold is a flag, not a state.
            let only_held = DeliveryRow { held: new.held, ..old.clone() } == *new;
            return self.must(only_held, "I4", step, || {
                format!("it stays {:?} and changes: {old:?} to {new:?}", old.state)
            });
        }
        self.must(EDGES.contains(&edge), "I4", step, || {
            format!("it goes from {:?} to {:?}", edge.0, edge.1)
        })?;
        self.numbers(step)?;
        match (step.old, step.new) {
            (Some(DeliveryRow { custody: Some(hop), state: State::Inflight, .. }), Some(new)) => {
                self.told(step, *hop, new)
            }
            (Some(old), Some(new)) if old.state == State::Inflight => match new.state {
                State::Acked => self.acked(step, new),
                State::Failed => self.failed(step, old, new),
                _ => self.dead_in_flight(step, old, new),
            },
            (Some(old), Some(new)) if new.state == State::Inflight => self.claimed(step, old, new),
            (Some(old), Some(_)) if old.state == State::Deadletter => self.retried(step),
            (Some(_), Some(new)) => self.dead_waiting(step, new),
            (Some(_), None) => Ok(()),
            (None, _) => Ok(()),
        }
    }

    pub(super) fn must(
        &self,
        holds: bool,
        invariant: &'static str,
        step: &Step<'_>,
        text: impl FnOnce() -> String,
    ) -> Check {
        demand(holds, invariant, Some(step.segment.id), || {
            format!("delivery to {}: {}", self.site.peer(step.no), text())
        })
    }

    /// Attempts, budget and times, whatever the step.
    fn numbers(&self, step: &Step<'_>) -> Check {
        let Some(new) = step.new else { return Ok(()) };
        let claims = u64::from(new.state == State::Inflight);
        let before = step.old.map_or(0, |old| old.attempts);
        self.must(new.attempts == before + claims, "I6", step, || {
            format!("attempts go from {before} to {} on the way to {:?}", new.attempts, new.state)
        })?;
        let max = self.site.most(|config| u64::from(config.max_retries));
        // What was spent before less was allowed is not given back.
        let before = step.old.map_or(0, |old| old.spent);
        let ends = new.state == State::Deadletter;
        let eased = self.site.past.reloaded && (new.spent <= before || ends);
        self.must(u64::from(new.spent) <= max || eased, "I6", step, || {
            format!("{} of {max} retries are spent", new.spent)
        })?;
        let ends = matches!(new.state, State::Failed | State::Deadletter);
        // An operator gives a fresh allowance.
        let dead = step.old.is_some_and(|old| old.state == State::Deadletter);
        let spent = step.old.filter(|_| !dead).map_or(0, |old| old.spent);
        self.must(ends || new.spent == spent, "I6", step, || {
            format!("spent goes from {spent} to {} on the way to {:?}", new.spent, new.state)
        })?;
        let first = step.old.is_some() || new.next_attempt_after <= new.since;
        self.must(first, "I18", step, || {
            format!("it begins at {} and is due only at {}", new.since, new.next_attempt_after)
        })
    }

    fn claimed(&self, step: &Step<'_>, old: &DeliveryRow, new: &DeliveryRow) -> Check {
        let at = new.claimed_at.unwrap_or(0);
        self.must(at == new.since, "I4", step, || {
            format!("it is Inflight since {} and was claimed at {at}", new.since)
        })?;
        self.must(old.next_attempt_after <= at, "I22", step, || {
            format!("it is claimed at {at} and was not due before {}", old.next_attempt_after)
        })?;
        let name = self.site.peer(step.no);
        let known = self.site.rules().any(|config| hop(config, &name).is_some());
        self.must(known, "I7", step, || {
            "it is claimed, and nobody has configured that peer".into()
        })?;
        let expired = step.segment.meta.expires_at.is_some_and(|end| end <= at);
        let clock = &self.site.clock;
        let doubted = clock.doubted_until.is_some_and(|until| clock.now.mono <= until);
        self.must(!expired || doubted, "I4", step, || {
            format!("it is claimed at {at} and has expired")
        })
    }

    pub(super) fn claim(&self, step: &Step<'_>) -> Result<&Claim, Box<super::violation::Broken>> {
        let claim = self.site.claims.get(&(step.no, step.seq));
        claim.ok_or_else(|| {
            let text = format!("delivery to {}: no session claimed it", self.site.peer(step.no));
            broken("I7", Some(step.segment.id), text)
        })
    }

    /// Acked: the peer held it when it said so, and said so in the epoch that claimed it.
    fn acked(&self, step: &Step<'_>, new: &DeliveryRow) -> Check {
        let name = self.site.peer(step.no);
        let direct =
            self.site.rules().any(|config| hop(config, &name).is_none_or(|hop| hop == name));
        self.must(direct, "I3", step, || "it is Acked by the word of a hop".into())?;
        let claim = self.claim(step)?;
        if !self.world.taps {
            return Ok(());
        }
        let answer = claim.answer.map(|(answer, _)| answer);
        self.must(answer == Some(Answer::Ack), "I3", step, || {
            format!("it is Acked, and in epoch {} there came {answer:?}", claim.epoch)
        })?;
        self.must(new.refused == 0, "I6", step, || {
            format!("it is Acked after {} refusals in a row", new.refused)
        })?;
        let Some(peer) = self.ix_of(step.no) else { return Ok(()) };
        let said = self.world.acks.contains(&(peer, self.ix, step.segment.id, claim.epoch));
        self.must(said, "I3", step, || {
            format!("it is Acked, and the peer never acknowledged it in epoch {}", claim.epoch)
        })
    }

    fn failed(&self, step: &Step<'_>, old: &DeliveryRow, new: &DeliveryRow) -> Check {
        let cause = Cause::from_number(new.last_error);
        // A refusal for several sites at once, or of an older offer, makes each ask again for itself.
        let known =
            cause.filter(|c| [&OWN[..], &SOFT, &WAY, &FINAL].iter().any(|set| set.contains(c)));
        let Some(cause) = known else {
            return self.must(false, "I4", step, || format!("it failed for {cause:?}"));
        };
        self.spent(step, old, new, cause)?;
        let max = self.site.most(|config| u64::from(config.max_retries));
        self.must(u64::from(new.spent) < max, "I6", step, || {
            format!("it goes on with {} of {max} retries spent", new.spent)
        })?;
        let refused = if SOFT.contains(&cause) { old.refused.saturating_add(1) } else { 0 };
        self.must(new.refused == refused, "I6", step, || {
            format!("refusals in a row go from {} to {} with {cause}", old.refused, new.refused)
        })?;
        self.happened(step, cause)?;
        self.waits(step, old, new, cause)
    }

    /// The budget is spent by the segment's own failures alone.
    fn spent(&self, step: &Step<'_>, old: &DeliveryRow, new: &DeliveryRow, cause: Cause) -> Check {
        let alone = asks_alone(old, new, cause);
        let own = OWN.contains(&cause) && !alone;
        let right = |strict: bool| old.spent.saturating_add(u32::from(own || strict));
        let mut rules = self.site.rules();
        self.must(rules.any(|c| new.spent == right(c.strict_attempts)), "I6", step, || {
            format!("{cause} takes spent from {} to {}", old.spent, new.spent)
        })
    }

    /// What must have been seen before a failure may have this cause.
    fn happened(&self, step: &Step<'_>, cause: Cause) -> Check {
        let claim = self.claim(step)?;
        let answer = claim.answer.map(|(answer, _)| answer);
        match cause {
            Cause::SessionLost => {
                let peer = self.site.peer(step.no);
                let lives = self.site.life.live.get(&peer) == Some(&claim.epoch);
                self.must(!lives, "I8", step, || {
                    format!("its session is said to be lost, and {} lives", claim.epoch)
                })
            }
            Cause::Restart => {
                let boot = self.site.life.boot;
                self.must(claim.epoch.boot < boot, "I6", step, || {
                    format!("a restart is blamed, and it was claimed in this boot, {boot}")
                })
            }
            Cause::Unreadable => Ok(()),
            // What was offered and answered cannot be seen.
            _ if !self.world.taps => Ok(()),
            Cause::AckTimeout => {
                let now = self.site.clock.now.mono;
                let waited = claim.offered.map(|(_, _, mono)| now.since(mono));
                // A session goes by what it was made with.
                let session = claim.offered.map(|(conn, ..)| conn);
                let made = session.and_then(|conn| self.site.links.ack_timeout(conn));
                let ever = self.site.rules_since(Micros::ZERO).map(|config| config.ack_timeout);
                let timeout = made.or(ever.min()).unwrap_or_default();
                let enough = waited.is_some_and(|w| w >= timeout);
                self.must(enough, "I6", step, || {
                    format!("the ACK is said to be late, and it was offered {waited:?} ago")
                })
            }
            Cause::AckMismatch => self.must(answer == Some(Answer::Other), "I8", step, || {
                format!("the ACK is said to be of another segment, and there came {answer:?}")
            }),
            Cause::Refused => {
                let odd = [Refusal::Unknown, Refusal::UnknownDestination];
                let refused = matches!(answer, Some(Answer::Reject { code, .. })
                    if Refusal::from_number(code).is_none_or(|r| odd.contains(&r)));
                self.must(refused, "I8", step, || {
                    format!("it is said to be refused oddly, and there came {answer:?}")
                })
            }
            Cause::Loop => self.refused_with(step, Refusal::AlreadyRelayed),
            _ => match Refusal::from_word(cause.word()) {
                Some(refusal) => self.refused_with(step, refusal),
                None => self.must(false, "I4", step, || format!("it failed for {cause}")),
            },
        }
    }

    fn refused_with(&self, step: &Step<'_>, refusal: Refusal) -> Check {
        let claim = self.claim(step)?;
        if !self.world.taps {
            return Ok(());
        }
        let answer = claim.answer.map(|(answer, _)| answer);
        let came = matches!(answer, Some(Answer::Reject { code, .. }) if code == refusal.number());
        self.must(came, "I8", step, || {
            format!("{refusal} is blamed, and in epoch {} there came {answer:?}", claim.epoch)
        })
    }

    /// The wait after a failure: exponential, with at most half of it on top, within its bounds.
    fn waits(&self, step: &Step<'_>, old: &DeliveryRow, new: &DeliveryRow, cause: Cause) -> Check {
        let claim = self.claim(step)?;
        let claimed = old.claimed_at.unwrap_or(old.since);
        // A late answer may come between the decision and its batch.
        let decided = ![Cause::AckTimeout, Cause::Unreadable].contains(&cause);
        let answered = claim.answer.filter(|_| decided).map_or(0, |(_, wall)| wall);
        let from = claimed.max(answered);
        let soft = SOFT.contains(&cause);
        let asked = match claim.answer {
            Some((Answer::Reject { retry_after, .. }, _)) if soft => retry_after,
            _ => 0,
        };
        let failures = if soft { old.refused } else { old.spent };
        let decided = Decided { from, claimed, asked, failures, cause };
        let mut rules = self.site.rules();
        let kept = rules.any(|config| self.is_in_bounds(&decided, config, old, new));
        self.must(kept, "I22", step, || {
            let (next, since) = (new.next_attempt_after, new.since);
            format!("{cause} at {from} to {since} ms: it waits until {next} after {failures}")
        })
    }

    /// Whether a wait is what a configuration lets it be.
    fn is_in_bounds(
        &self,
        decided: &Decided,
        config: &Config,
        old: &DeliveryRow,
        new: &DeliveryRow,
    ) -> bool {
        let Decided { from, claimed, asked, failures, cause } = *decided;
        let base = 1u64.checked_shl(failures).filter(|f| *f <= 1 << 40).unwrap_or(1 << 40);
        let max = millis(config.backoff_max);
        let first = millis(config.backoff_initial).max(1);
        let max = max.max(first);
        let doubled = first.saturating_mul(base);
        // Near the longest wait it is drawn from the last quarter below it.
        let (least, most) = if doubled > max / 2 {
            ((max - max / 4).max(first), max)
        } else {
            (doubled, doubled + doubled / 2)
        };
        let alone = asks_alone(old, new, cause);
        let (from, least, most) = if alone {
            (from, 0, most)
        } else if WAY.contains(&cause) {
            (claimed, 0, 0)
        } else {
            (from, least.max(asked), most.max(asked))
        };
        let next = new.next_attempt_after;
        let early = next < from.saturating_add(least);
        // Without frames it cannot be told how long a peer has asked for.
        let bounded = self.world.taps || !SOFT.contains(&cause);
        let late = bounded && next > new.since.saturating_add(most);
        !early && !late
    }

    fn dead_in_flight(&self, step: &Step<'_>, old: &DeliveryRow, new: &DeliveryRow) -> Check {
        let Some(cause) = Cause::from_number(new.last_error) else {
            return self.must(false, "I2", step, || "it is dead without a cause".into());
        };
        // It failed, and then its time was over.
        if cause == Cause::Expired && is_expired(step, new) {
            return self.must(new.spent <= old.spent + 1, "I6", step, || {
                format!("it expires, and spent goes from {} to {}", old.spent, new.spent)
            });
        }
        if new.spent != old.spent {
            self.spent(step, old, new, cause)?;
            self.must(self.is_used_up(new), "I6", step, || {
                format!("it is given up with {} retries spent", new.spent)
            })?;
            return self.happened(step, cause);
        }
        // Since then less is allowed than it has spent.
        if self.is_used_up(new) && !FINAL.contains(&cause) {
            return self.happened(step, cause);
        }
        if cause == Cause::Missing {
            return self.gone(step);
        }
        self.must(FINAL.contains(&cause), "I4", step, || {
            format!("it is given up for {cause}, with {} retries spent", new.spent)
        })?;
        let again = cause != Cause::Mismatch || old.last_error == cause.number();
        self.must(again, "I4", step, || "it is given up for the first mismatch".into())?;
        self.happened(step, cause)
    }

    fn is_used_up(&self, new: &DeliveryRow) -> bool {
        self.site.rules().any(|config| new.spent >= config.max_retries)
    }

    fn dead_waiting(&self, step: &Step<'_>, new: &DeliveryRow) -> Check {
        match Cause::from_number(new.last_error) {
            Some(Cause::Missing | Cause::Corrupt) => self.gone(step),
            Some(Cause::Expired) => {
                let end = step.segment.meta.expires_at;
                let over = end.is_some_and(|end| end <= new.since);
                self.must(over, "I18", step, || {
                    format!("it is said to have expired at {}, and lasts to {end:?}", new.since)
                })
            }
            cause => self.must(false, "I4", step, || format!("it is given up for {cause:?}")),
        }
    }

    /// Dead letters are queued again when somebody asks for it, and only with their content.
    fn retried(&self, step: &Step<'_>) -> Check {
        let asked = self.site.acts.contains("retry");
        self.must(asked, "I4", step, || "it is queued again, and nobody has asked for it".into())?;
        let gone = matches!(self.site.content(step.segment), Holds::No(_));
        self.must(!gone, "I4", step, || "it is queued again, and its content is gone".into())
    }

    /// What is given up as missing must be gone.
    pub(super) fn gone(&self, step: &Step<'_>) -> Check {
        let there = self.site.content(step.segment) == Holds::Yes;
        self.must(!there, "I2", step, || "its content is given up, and is there".into())
    }

    /// No time in a row lies after the high water of effective time.
    pub(super) fn in_time(&self, step_since: u64, segment: &SegmentRow, no: SiteNo) -> Check {
        let high = self.site.disk.meta(MetaName::TimeHigh);
        demand(step_since <= high, "I18", Some(segment.id), || {
            let peer = self.site.peer(no);
            format!("delivery to {peer}: it changed at {step_since}, the high water is {high} ms")
        })
    }
}
