//! Contact windows: the hours of the week at which a peer is sent to (`window`).
//!
//! ```text
//! window  = days [hours] [zone] | hours [zone]
//! days    = day ["-" day] {"," day ["-" day]}        Mon Tue Wed Thu Fri Sat Sun
//! hours   = HH:MM "-" HH:MM                          past midnight if the end is not after the start
//! zone    = "UTC" | ("+" | "-") HH:MM                UTC when none is given
//! ```
//!
//! Hours past midnight belong to the day they begin on: `Fri 22:00-06:00` ends on Saturday morning.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::time::UnixMillis;

const DAY: u32 = 24 * 60;
const WEEK: u32 = 7 * DAY;
const MINUTE_MS: u64 = 60_000;
/// 1970-01-01 was a Thursday; weeks here begin on Monday.
const EPOCH_MINUTE: u64 = 3 * DAY as u64;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Why a window cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} in window {text:?}: {problem}")]
pub struct ContactFault {
    /// The window as it was written.
    pub text: String,
    /// The part of it that is wrong; empty when something is left out.
    pub word: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// The minutes of the week that are open, as spans from Monday 00:00 UTC; empty is always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    /// Begin (inclusive) and end (exclusive), in order, apart from each other.
    spans: Vec<(u32, u32)>,
}

impl Contact {
    /// The hours in any of `windows`; none at all is always.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn parse<T: AsRef<str>>(windows: &[T]) -> Result<Contact, ContactFault> {
        let mut spans = Vec::new();
        for window in windows {
            spans.extend(read(window.as_ref())?);
        }
        Ok(Contact { spans: joined(spans) })
    }

    /// Whether it is always open.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.spans.is_empty() || *self.spans == [(0, WEEK)]
    }

    /// Whether it is open at this time.
    #[must_use]
    pub fn is_open(&self, at: UnixMillis) -> bool {
        let minute = minute_of_week(at);
        self.is_always() || self.spans.iter().any(|(from, to)| (*from..*to).contains(&minute))
    }

    /// When it opens next, if it is closed at this time.
    #[must_use]
    pub fn opens_at(&self, at: UnixMillis) -> Option<UnixMillis> {
        if self.is_open(at) {
            return None;
        }
        let minute = minute_of_week(at);
        let next = self.spans.iter().map(|(from, _)| *from).find(|from| *from > minute);
        let first = self.spans.first().map(|(from, _)| from.saturating_add(WEEK))?;
        let minutes = u64::from(next.unwrap_or(first) - minute);
        let whole = at.0 - at.0 % MINUTE_MS;
        Some(UnixMillis(whole.saturating_add(minutes * MINUTE_MS)))
    }
}

fn minute_of_week(at: UnixMillis) -> u32 {
    let minutes = (at.0 / MINUTE_MS).wrapping_add(EPOCH_MINUTE) % u64::from(WEEK);
    u32::try_from(minutes).unwrap_or(0)
}

/// Sorts spans and joins those that touch.
fn joined(mut spans: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    spans.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::with_capacity(spans.len());
    for (from, to) in spans {
        match joined.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            Some(_) | None => joined.push((from, to)),
        }
    }
    joined
}

/// The spans of one window.
fn read(text: &str) -> Result<Vec<(u32, u32)>, ContactFault> {
    let fault = |word: &str, problem| {
        Err(ContactFault { text: text.to_string(), word: word.to_string(), problem })
    };
    let mut words = text.split_whitespace().peekable();
    let mut days = alloc::vec![true; 7];
    let is_days = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    let named = words.next_if(|w| is_days(w) && !is_utc(w));
    if let Some(word) = named {
        days = match read_days(word) {
            Ok(days) => days,
            Err((word, problem)) => return fault(word, problem),
        };
    }
    let (mut from, mut to) = (0, DAY);
    let is_hours = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let hours = words.next_if(|w| is_hours(w));
    if let Some(word) = hours {
        (from, to) = match read_hours(word) {
            Ok(hours) => hours,
            Err(problem) => return fault(word, problem),
        };
    }
    if named.is_none() && hours.is_none() {
        return fault("", "days such as Mon-Fri, hours such as 22:00-06:00, or both are missing");
    }
    let offset = match words.next().map(|word| (word, read_zone(word))) {
        None => 0,
        Some((_, Some(offset))) => offset,
        Some((word, None)) => return fault(word, "not a zone: UTC, or an offset such as +02:00"),
    };
    if let Some(word) = words.next() {
        return fault(word, "one too many: days, hours and zone stand in this order, once each");
    }
    let chosen = days.iter().zip(0u32..).filter(|(chosen, _)| **chosen).map(|(_, day)| day);
    Ok(chosen.flat_map(|day| spans_of(day * DAY + from, to - from, offset)).collect())
}

/// `len` minutes from a minute of the local week, in minutes of the UTC week: two spans when the week's
/// end lies between.
fn spans_of(local: u32, len: u32, offset: i32) -> Vec<(u32, u32)> {
    let week = WEEK.cast_signed();
    let from = (local.cast_signed() - offset).rem_euclid(week).unsigned_abs();
    let end = from + len;
    if end <= WEEK { alloc::vec![(from, end)] } else { alloc::vec![(from, WEEK), (0, end - WEEK)] }
}

fn is_utc(word: &str) -> bool {
    word.eq_ignore_ascii_case("utc")
}

fn read_days(word: &str) -> Result<Vec<bool>, (&str, &'static str)> {
    let mut days = alloc::vec![false; 7];
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = read_day(first).ok_or((first, DAY_RULE))?;
        let last = read_day(last).ok_or((last, DAY_RULE))?;
        // Sat-Mon goes over the week's end.
        let count = (last + 7 - first) % 7;
        for day in first..=first + count {
            if let Some(chosen) = days.get_mut(day % 7) {
                *chosen = true;
            }
        }
    }
    Ok(days)
}

const DAY_RULE: &str = "not a day: Mon Tue Wed Thu Fri Sat Sun";

fn read_day(word: &str) -> Option<usize> {
    DAYS.iter().position(|day| day.eq_ignore_ascii_case(word))
}

/// Begin and end in minutes of the day the window begins on; the end may lie on the next.
fn read_hours(word: &str) -> Result<(u32, u32), &'static str> {
    const RULE: &str = "not hours: HH:MM-HH:MM, from 00:00 to 24:00";
    let (from, to) = word.split_once('-').ok_or(RULE)?;
    let (from, to) = (read_time(from).ok_or(RULE)?, read_time(to).ok_or(RULE)?);
    if from == DAY {
        return Err("the start is the end of the day: write 00:00");
    }
    match to {
        _ if to == from => Err("start and end are the same; leave the hours out for the whole day"),
        _ if to < from => Ok((from, to + DAY)),
        _ => Ok((from, to)),
    }
}

fn read_time(word: &str) -> Option<u32> {
    let (hours, minutes) = word.split_once(':')?;
    let number = |text: &str| {
        let digits = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| digits)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let time = hours * 60 + minutes;
    (minutes < 60 && time <= DAY).then_some(time)
}

/// Minutes that the zone is ahead of UTC.
fn read_zone(word: &str) -> Option<i32> {
    if is_utc(word) {
        return Some(0);
    }
    let (sign, time) = match (word.strip_prefix('+'), word.strip_prefix('-')) {
        (Some(time), _) => (1, time),
        (None, Some(time)) => (-1, time),
        (None, None) => return None,
    };
    let minutes = read_time(time).filter(|minutes| *minutes <= 14 * 60)?;
    Some(sign * minutes.cast_signed())
}

#[cfg(test)]
mod tests;
