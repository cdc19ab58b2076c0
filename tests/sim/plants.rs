//! The simulator is trusted because it finds bugs that are known to be there: each planted one with the
//! seed that shows it, and with any seeds at all when searched for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use consign::sim::keeping::Part;
use consign::sim::run::run;
use consign::sim::swarm::{Kind, Options};
use consign_core::config::SuccessCondition;
use consign_core::plant::Plant;

/// Seeds within which each plant must be found when it is searched for.
const WITHIN: u64 = 200;

/// A seed that shows each plant. When the simulator draws otherwise than before, search for new
/// ones: `PLANTS=all cargo test --test sim planted -- --nocapture`.
const SHOWN_BY: &[(Plant, u64)] = &[
    (Plant::G2, 1),
    (Plant::G3, 3),
    (Plant::G4, 42),
    (Plant::G5, 7),
    (Plant::G6, 6),
    (Plant::G7, 15),
    (Plant::G8, 5),
    (Plant::W2, 5),
    (Plant::W3, 7),
    (Plant::B1, 103),
    (Plant::B2, 4),
    (Plant::B3, 2),
    (Plant::B5, 2),
    (Plant::AckBeforeCommit, 1),
    (Plant::EvictBeforeRecord, 2),
    (Plant::AttemptsReset, 2),
    (Plant::CreditLeak, 3),
    (Plant::StaleEpoch, 18),
    (Plant::OrderByArrival, 1),
    (Plant::QuotaKept, 2),
    (Plant::ResumePastDurable, 29),
    (Plant::BudgetOnUnreachable, 2),
    (Plant::SharedCounter, 2),
    (Plant::R1, 1),
    (Plant::R2, 35),
    (Plant::R3, 8),
    (Plant::R4, 1),
    (Plant::G1, 47),
    (Plant::P1, 13),
    (Plant::P2, 6),
    (Plant::P3, 5),
    (Plant::P4, 22),
    (Plant::StrangerServed, 2),
];

/// What no run of the first 200 seeds has shown yet: their stories are those of the core (`core/tests/plants`).
const BY_STORIES: &[Plant] = &[Plant::StagedReliefLost, Plant::W1, Plant::P5];

/// Whether a rule is about shards: only then are there any.
fn is_of_shards(plant: Plant) -> bool {
    matches!(plant, Plant::P1 | Plant::P2 | Plant::P3 | Plant::P4 | Plant::P5)
}

/// What happens more often, with and without the plant, where most runs never come near its rule.
fn closer(plant: Plant, options: &mut Options) {
    match plant {
        // A commit that reports an error after it took effect.
        Plant::G7 => options.rates.set(Kind::AfterEffect, 20_000),
        // Long content under way while the power goes.
        Plant::ResumePastDurable => {
            (options.large, options.longest) = (300_000, 1 << 20);
            options.knobs.checkpoint_every = 64 << 10;
            options.rates.set(Kind::PowerCut, 2_000_000);
        }
        // Content that goes as soon as one site has it, and much of it.
        Plant::G1 => {
            (options.keeping.evict, options.keeping.keep_relayed) = (true, Duration::ZERO);
            options.knobs.success = SuccessCondition::OnePeer;
            options.segments = options.segments.max(1_000);
        }
        // Content that goes as soon as it is handed on, so that its id is remembered when it comes anew.
        Plant::R2 => (options.keeping.evict, options.keeping.keep_relayed) = (true, Duration::ZERO),
        _ => {}
    }
}

/// The run of a seed, with a plant or only as close to its rule.
fn options(plant: Plant, planted: bool, seed: u64) -> Options {
    let mut options = Options { plant: planted.then_some(plant), ..Options::draw(seed) };
    closer(plant, &mut options);
    if !is_of_shards(plant) {
        options.keeping.drop(Part::Pickup);
    }
    if plant != Plant::StrangerServed {
        options.keeping.drop(Part::Reloads);
    }
    options.keeping.drop(Part::Revokes);
    options
}

/// What is broken in a run.
fn broken(options: &Options) -> Option<String> {
    let report = run(options, None).expect("no certificates are made");
    report.broken.map(|(at, violation)| {
        format!("{at}: {} {}: {}", violation.invariant, violation.site, violation.text)
    })
}

/// The first seed that breaks a promise with the plant and keeps all of them without it.
fn search(plant: Plant, from: u64) -> Option<(u64, String)> {
    // A seed that draws no shards has nothing to show of their rules, and one that never reloads nothing of a reload.
    let shows = |seed: &u64| {
        let drawn = Options::draw(*seed).keeping;
        let reloads = plant != Plant::StrangerServed || drawn.reloads > 0;
        reloads && (!is_of_shards(plant) || drawn.pickup.sites != 0)
    };
    (from..from + WITHIN).filter(shows).find_map(|seed| {
        let found = broken(&options(plant, true, seed))?;
        broken(&options(plant, false, seed)).is_none().then_some((seed, found))
    })
}

/// What is broken in each of these runs, on as many threads as there are processors: the longest test of all
/// else runs on, on one, when the others are done.
fn broken_in(runs: &[Options]) -> Vec<Option<String>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![None; runs.len()]));
    let work = || {
        while let Some((at, options)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            runs.get(at).map(|options| (at, options))
        } {
            let broken = broken(options);
            found.lock().expect("no run panicked")[at] = broken;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    found.into_inner().expect("no run panicked")
}

#[test]
fn each_planted_bug_is_found_by_its_seed() {
    let planted: Vec<Options> =
        SHOWN_BY.iter().map(|(plant, seed)| options(*plant, true, *seed)).collect();
    // Many plants share a seed, whose run without any of them is the same.
    let mut without: Vec<Options> = Vec::new();
    for (plant, seed) in SHOWN_BY {
        let options = options(*plant, false, *seed);
        if !without.contains(&options) {
            without.push(options);
        }
    }
    let all: Vec<Options> = without.iter().chain(&planted).cloned().collect();
    let found = broken_in(&all);
    let (clean, shown) = found.split_at(without.len());
    let mut wrong = Vec::new();
    for (options, found) in without.iter().zip(clean) {
        if let Some(violation) = found {
            wrong.push(format!("seed {} breaks without a plant: {violation}", options.seed));
        }
    }
    for ((plant, seed), found) in SHOWN_BY.iter().zip(shown) {
        if found.is_none() {
            wrong.push(format!("{plant:?} is not found by seed {seed}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut named: Vec<Plant> = SHOWN_BY.iter().map(|(plant, _)| *plant).collect();
    named.extend(BY_STORIES);
    named.sort();
    assert_eq!(named, Plant::ALL, "each is there once");
}

/// `PLANTS=all`, or words with commas; from seed `SEED` on.
#[test]
fn planted_bugs_are_found_by_seeds_that_nobody_chose() {
    let Ok(wanted) = std::env::var("PLANTS") else { return };
    let from = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"));
    let is_wanted = |plant: &Plant| wanted == "all" || wanted.split(',').any(|w| w == plant.word());
    let mut escaped = Vec::new();
    for plant in Plant::ALL.iter().copied().filter(is_wanted) {
        match search(plant, from) {
            Some((seed, found)) => println!("{plant:?}: seed {seed}, {found}"),
            None => escaped.push(plant),
        }
    }
    assert!(escaped.is_empty(), "{WITHIN} seeds do not find {escaped:?}");
}
