//! A smaller run that breaks the same promise: fewer faults, crashes, segments and sites, less time.
//!
//! The seed stays, everything else only ever becomes less, and what is kept is what still breaks the
//! promise. A smaller run draws other numbers, so that a smaller run may well do what a middling one does
//! not; that is why the smallest value is tried first, and a value between only after it.

use std::time::Duration;

use super::keeping::{Keeping, Part};
use super::net::Topology;
use super::run::{Report, run};
use super::swarm::{Kind, Options};

/// How much is spent on looking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Runs at most.
    pub tries: u32,
    /// No more runs after so many times the steps of the run that was found.
    pub lengths: u64,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort { tries: 100, lengths: 30 }
    }
}

/// The smallest run found that breaks the promise that `found` breaks; `found` itself when there is none
/// smaller, or when it breaks none.
#[must_use]
pub fn shrink(found: &Report) -> Report {
    // A run that has gone on for twice as long has most likely missed it.
    let again = |options: &Options, steps: u64| run(options, Some(steps.saturating_mul(2))).ok();
    shrink_with(found, Effort::default(), again)
}

/// The same over any way to run; `again` is given the options and how many steps the best run took.
#[must_use]
pub fn shrink_with(
    found: &Report,
    effort: Effort,
    again: impl FnMut(&Options, u64) -> Option<Report>,
) -> Report {
    let (tries, steps) = (effort.tries, effort.lengths.saturating_mul(found.steps));
    let mut search = Search { best: found.clone(), tries, steps, again };
    if found.broken.is_some() {
        while search.pass() {}
    }
    search.best
}

struct Search<F> {
    best: Report,
    /// Tries that are left.
    tries: u32,
    /// Steps that are left.
    steps: u64,
    again: F,
}

impl<F: FnMut(&Options, u64) -> Option<Report>> Search<F> {
    /// Tries to reduce everything once; whether anything became less.
    fn pass(&mut self) -> bool {
        let mut less = self.end_where_it_breaks();
        less |= self.halve();
        less |= self.fewer_faults();
        less |= self.fewer(0, |o| u64::from(o.crashes), |o, n| o.crashes = n as u32);
        less |= self.fewer(1, |o| u64::from(o.segments), |o, n| o.segments = n as u32);
        less |= self.fewer(2, |o| o.sites as u64, |o, n| o.sites = n as usize);
        less |= self.fewer(0, |o| u64::from(o.large), |o, n| o.large = n as u32);
        less |= self.plainer();
        less |= self.fewer(1, |o| o.length.as_secs(), |o, n| o.length = Duration::from_secs(n));
        less | self.straighter()
    }

    /// Runs what is smaller, and keeps it if it breaks the same promise.
    fn keeps(&mut self, change: impl FnOnce(&mut Options)) -> bool {
        let mut options = self.best.options.clone();
        change(&mut options);
        if self.tries == 0 || self.steps == 0 || options == self.best.options {
            return false;
        }
        self.tries -= 1;
        let promise = |report: &Report| report.broken.as_ref().map(|(_, v)| v.invariant);
        let again = (self.again)(&options, self.best.steps);
        self.steps = self.steps.saturating_sub(again.as_ref().map_or(1, |report| report.steps));
        match again {
            Some(report) if promise(&report) == promise(&self.best) => {
                self.best = report;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Faults stop soon after the moment at which the promise is broken, with as much to do in each
    /// minute as before, or else with all that was to do.
    fn end_where_it_breaks(&mut self) -> bool {
        let Some((at, _)) = self.best.broken else { return false };
        let (end, length) = (at.0 / 1_000_000 + 1, self.best.options.length.as_secs());
        if end >= length {
            return false;
        }
        self.keeps(|o| shorten(o, end, length))
            || self.keeps(|o| o.length = Duration::from_secs(end))
    }

    /// Halves the whole run, again and again.
    fn halve(&mut self) -> bool {
        let mut less = false;
        while self.best.options.length.as_secs() > 1 && self.keeps(|o| shorten(o, 1, 2)) {
            less = true;
        }
        less
    }

    /// Drops kinds of fault: all, then halves, quarters and so on down to single ones.
    fn fewer_faults(&mut self) -> bool {
        let mut kinds: Vec<Kind> = self.best.options.rates.on().collect();
        let (mut less, mut size) = (false, kinds.len());
        while size > 0 {
            let mut from = 0;
            while from < kinds.len() {
                let some = from..kinds.len().min(from + size);
                let dropped = kinds[some.clone()].to_vec();
                if self.keeps(|o| dropped.iter().for_each(|kind| o.rates.set(*kind, 0))) {
                    kinds.drain(some);
                    less = true;
                } else {
                    from += size;
                }
            }
            size /= 2;
        }
        less
    }

    /// Makes a number less: the least there is, or else what lies between, by halves.
    fn fewer(
        &mut self,
        least: u64,
        of: impl Fn(&Options) -> u64,
        set: impl Fn(&mut Options, u64),
    ) -> bool {
        let first = of(&self.best.options);
        if first <= least {
            return false;
        }
        if self.keeps(|o| set(o, least)) {
            return true;
        }
        let (mut low, mut high) = (least, first);
        while high - low > 1 + high / 16 {
            let middle = low + (high - low) / 2;
            if self.keeps(|o| set(o, middle)) {
                high = middle;
            } else {
                low = middle;
            }
        }
        high < first
    }

    /// What sites keep and what people do becomes what it usually is: all of it, or one by one.
    fn plainer(&mut self) -> bool {
        if self.keeps(|o| o.keeping = Keeping::usual()) {
            return true;
        }
        // All are tried, whatever becomes of the first.
        let mut less = false;
        for part in Part::ALL {
            less |= self.keeps(|o| o.keeping.drop(part));
        }
        less
    }

    /// Sites in a line are easier to think about.
    fn straighter(&mut self) -> bool {
        self.keeps(|o| o.topology = Topology::Line)
    }
}

/// The same run, `of` of it cut down to `to`: its time, its segments and its crashes.
fn shorten(options: &mut Options, to: u64, of: u64) {
    let part = |n: u64| (u128::from(n) * u128::from(to) / u128::from(of.max(1))) as u64;
    options.length = Duration::from_secs(part(options.length.as_secs()).max(1));
    options.segments = part(u64::from(options.segments)).max(1) as u32;
    options.crashes = part(u64::from(options.crashes)) as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::audit::{Totals, Violation};
    use crate::sim::time::Micros;

    const MUCH: Effort = Effort { tries: 100, lengths: 1_000 };

    fn report(options: &Options, invariant: Option<&'static str>) -> Report {
        let (site, name, text) = ("a".to_owned(), String::new(), String::new());
        let violation = invariant.map(|invariant| Violation {
            invariant,
            site,
            segment: None,
            name,
            text,
            story: vec![],
        });
        Report {
            options: options.clone(),
            broken: violation.map(|violation| (Micros(95_000_000), violation)),
            last_steps: Vec::new(),
            simulated: Duration::ZERO,
            steps: 1_000,
            totals: Totals::default(),
            owed: 0,
            hash: 0,
        }
    }

    fn large_run() -> Options {
        let mut options = Options::draw(1);
        for kind in Kind::ALL {
            options.rates.set(*kind, 1_000);
        }
        (options.sites, options.topology) = (5, Topology::Mesh);
        (options.segments, options.crashes, options.large) = (1_000, 6, 100_000);
        options.length = Duration::from_secs(800);
        options
    }

    /// Breaks I3 only with a kill and a reset, 3 sites, 7 segments, 1 crash and 90 s; and I10 whenever
    /// there are but 2 sites.
    fn picky(options: &Options) -> Option<&'static str> {
        let faults = [Kind::Kill, Kind::Reset].iter().all(|kind| options.rates.of(*kind) > 0);
        let enough =
            options.segments >= 7 && options.crashes >= 1 && options.length.as_secs() >= 90;
        match options.sites {
            2 => Some("I10"),
            _ => (faults && enough).then_some("I3"),
        }
    }

    #[test]
    fn only_what_the_broken_promise_needs_is_left() {
        let options = large_run();
        let found = report(&options, Some("I3"));
        let mut runs = 0;
        let small = shrink_with(&found, MUCH, |options, steps| {
            runs += 1;
            assert_eq!(steps, 1_000);
            Some(report(options, picky(options)))
        });
        let (at, violation) = small.broken.expect("still broken");
        assert_eq!((at, violation.invariant), (Micros(95_000_000), "I3"));
        let left: Vec<Kind> = small.options.rates.on().collect();
        assert_eq!(left, [Kind::Kill, Kind::Reset]);
        let Options { sites, segments, crashes, large, length, topology, .. } = small.options;
        assert_eq!((sites, segments, crashes, large), (3, 7, 1, 0));
        assert_eq!((topology, small.options.seed), (Topology::Line, options.seed));
        assert!((90..=96).contains(&length.as_secs()), "{length:?}");
        assert!(runs < MUCH.tries, "{runs} runs");
    }

    #[test]
    fn what_any_run_breaks_is_broken_in_the_smallest_at_once() {
        let found = report(&large_run(), Some("I1"));
        let mut runs = 0;
        let small = shrink_with(&found, MUCH, |options, _| {
            runs += 1;
            Some(report(options, Some("I1")))
        });
        assert_eq!(small.options.rates.on().count(), 0);
        let Options { sites, segments, crashes, length, .. } = small.options;
        assert_eq!((sites, segments, crashes, length.as_secs()), (2, 1, 0, 1));
        assert!(runs < 15, "{runs} runs");
    }

    #[test]
    fn tries_are_bounded_and_a_run_that_breaks_nothing_smaller_stays() {
        let found = report(&large_run(), Some("I3"));
        let (few, mut runs) = (Effort { tries: 10, ..MUCH }, 0);
        let same = shrink_with(&found, few, |options, _| {
            runs += 1;
            (runs % 2 == 0).then(|| report(options, Some("I4")))
        });
        assert_eq!((runs, same.options), (10, found.options.clone()));
        let short = Effort { lengths: 3, ..MUCH };
        let mut runs = 0;
        let longest = shrink_with(&found, short, |options, _| {
            runs += 1;
            Some(report(options, None))
        });
        assert_eq!((runs, longest.options), (3, found.options.clone()));
        let clean = report(&large_run(), None);
        assert!(shrink_with(&clean, MUCH, |_, _| panic!("nothing to look for")).broken.is_none());
    }
}
