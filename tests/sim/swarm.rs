//! Drawn runs: clean, the same twice, and told so that they can be seen again.

use std::time::Duration;

use consign::sim::run::{PATIENCE, Report, run};
use consign::sim::swarm::Options;
use consign::sim::time::Micros;
use consign_core::plant::Plant;

/// Fixed seeds; `SEEDS=n` runs n more, from `SEED` on.
const FIXED: std::ops::Range<u64> = 1..13;

fn report(options: &Options) -> Report {
    run(options, None).expect("no certificates are made")
}

fn demand_clean(report: &Report) {
    if let Some((at, violation)) = &report.broken {
        let options = &report.options;
        panic!(
            "{at} step {}: {violation}\noptions: {options}\nreplay: consign sim --seed {}",
            report.steps, options.seed
        );
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn fixed_seeds_keep_every_promise() {
    let more = number("SEED").unwrap_or(1_000);
    let seeds = FIXED.chain(more..more + number("SEEDS").unwrap_or(0));
    for seed in seeds {
        let report = report(&Options::draw(seed));
        demand_clean(&report);
        assert!(report.totals.queued >= 100, "seed {seed}: {:?}", report.totals);
        assert!(report.totals.delivered >= 50, "seed {seed}: {:?}", report.totals);
        assert!(report.totals.crashes >= 3, "seed {seed}: {:?}", report.totals);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 7] {
        let (one, two) = (report(&Options::draw(seed)), report(&Options::draw(seed)));
        assert_eq!((one.hash, one.steps), (two.hash, two.steps));
        assert_ne!(one.hash, report(&Options::draw(seed + 100)).hash);
    }
}

#[test]
fn a_run_stopped_at_a_step_tells_the_steps_before_it() {
    let options = Options::draw(5);
    let stopped = run(&options, Some(3_000)).expect("no certificates are made");
    assert_eq!(stopped.steps, 3_000);
    assert!(stopped.last_steps.len() > 20, "{:?}", stopped.last_steps);
    let again = run(&options, Some(3_000)).expect("no certificates are made");
    assert_eq!(stopped.last_steps, again.last_steps);
}

#[test]
fn a_calm_world_delivers_everything_and_gives_nothing_up() {
    for seed in 1..4 {
        let mut options = Options::draw(seed).calm();
        options.knobs = consign::sim::swarm::Knobs::usual();
        let report = report(&options);
        demand_clean(&report);
        assert_eq!(report.owed, 0);
        assert!(report.totals.delivered >= report.totals.queued / 2, "{:?}", report.totals);
    }
}

#[test]
fn shards_that_clients_were_promised_are_handed_over_to_their_nodes() {
    let with_shards = |seed: &u64| Options::draw(*seed).keeping.pickup.sites != 0;
    for seed in (1..).filter(with_shards).take(3) {
        let report = report(&Options::draw(seed));
        demand_clean(&report);
        let totals = report.totals;
        assert!(totals.kept >= 20 && totals.stored >= 20, "seed {seed}: {totals:?}");
    }
}

#[test]
fn configurations_change_while_sites_run() {
    let changes = |seed: &u64| Options::draw(*seed).keeping.reloads > 0;
    for seed in (1..).filter(changes).take(3) {
        let report = report(&Options::draw(seed));
        demand_clean(&report);
        assert!(report.totals.reloads >= 5, "seed {seed}: {:?}", report.totals);
    }
}

#[test]
fn real_tls_keeps_the_same_promises() {
    for seed in [11, 12] {
        let mut options = Options::draw(seed);
        options.tls = true;
        options.segments = 100;
        demand_clean(&report(&options));
    }
}

#[test]
fn a_promise_broken_at_the_last_look_is_broken_again_when_replayed() {
    // Credit that leaks shows when nothing moves any more: hours after the faults have stopped.
    let with_leak = |seed| Options { plant: Some(Plant::CreditLeak), ..Options::draw(seed) };
    let at_the_end = |report: &Report| {
        let at = report.broken.as_ref().map_or(Duration::ZERO, |(at, _)| at.since(Micros::ZERO));
        at >= report.options.length + PATIENCE
    };
    let found = (1..200).map(|seed| report(&with_leak(seed))).find(at_the_end);
    let found = found.expect("a leak that shows at the end");
    let again = run(&found.options, Some(found.steps)).expect("no certificates are made");
    assert_eq!((again.broken, again.steps), (found.broken, found.steps));
}
