//! Small worlds to the last: every order and every crash point within stated bounds, and every
//! store call failing once.

use std::time::Instant;

use consign::sim::small::{
    ALWAYS, Bounds, FULL, Fault, Op, Plan, Report, Rules, Story, What, explore, fail_each, replay,
    workloads,
};
use consign_core::plant::Plant;

/// Explores plans and says what that came to.
fn explore_all(plans: &[Plan]) -> Report {
    let mut all = Report::default();
    for plan in plans {
        let (begun, mut report) = (Instant::now(), Report::default());
        for workload in plan.workloads() {
            report
                .add(explore(&workload, plan.bounds).unwrap_or_else(|failure| panic!("{failure}")));
        }
        println!("{}: {report}, {:.1} s", plan.name, begun.elapsed().as_secs_f64());
        all.add(report);
    }
    all
}

#[test]
fn no_order_and_no_crash_of_a_small_workload_breaks_a_promise() {
    let report = explore_all(&ALWAYS);
    // Fewer would mean that something is not explored any more.
    assert!(report.workloads == 339 && report.states > 150_000, "{report}");
    if std::env::var("EXHAUST").is_ok_and(|how| how == "full") {
        println!("{}", explore_all(&FULL));
    }
}

#[test]
fn every_store_call_may_fail_once_and_nothing_promised_is_lost() {
    for story in Story::ALL {
        for fault in Fault::ALL {
            let calls = fail_each(story, fault).unwrap_or_else(|failure| panic!("{failure}"));
            println!("{story:?}, {fault:?}: {} of {} calls failed", calls.failed, calls.calls);
            let every = matches!(fault, Fault::Before | Fault::After);
            let enough = if every { calls.calls } else { 5 };
            assert!(calls.calls > 20 && calls.failed >= enough, "{story:?} {fault:?}: {calls:?}");
        }
    }
}

/// Bugs on purpose, the shortest workload that shows each, the bounds, and the promise they break.
const PLANTED: [(Plant, usize, u8, u32, &str); 12] = [
    (Plant::AckBeforeCommit, 1, 0, 0, "(I1)"),
    (Plant::AttemptsReset, 1, 1, 0, "(I6)"),
    (Plant::B2, 2, 0, 0, "(I16)"),
    (Plant::B3, 1, 1, 1, "(I16)"),
    (Plant::B5, 1, 1, 0, "(I10)"),
    (Plant::BudgetOnUnreachable, 1, 1, 0, "(I6)"),
    (Plant::EvictBeforeRecord, 1, 1, 2, "(I16)"),
    (Plant::G2, 2, 0, 1, "(I1)"),
    (Plant::G8, 2, 0, 1, "(I7, I8)"),
    (Plant::QuotaKept, 1, 1, 0, "(I10)"),
    (Plant::ResumePastDurable, 1, 1, 1, "(I16)"),
    (Plant::W3, 2, 0, 2, "(I28)"),
];

#[test]
fn planted_bugs_are_found_and_their_paths_replay() {
    for (plant, len, crashes, turns, promise) in PLANTED {
        let rules = Rules { fine: false, crashes, waits: 1, plant: Some(plant) };
        let bounds = Bounds { rules, turns: Some(turns), cold: false, audited: false };
        let found = workloads(&Op::ALL, len).iter().find_map(|w| explore(w, bounds).err());
        let Some(found) = found else { panic!("{plant:?} is not found") };
        assert!(found.broken.promise.ends_with(promise), "{plant:?}: {found}");
        let again = replay(&found.workload, &found.bounds, &found.path);
        match again {
            Err(again) => assert_eq!(again, found, "{plant:?}"),
            // What breaks only when the world is asked to come to rest needs no last step.
            Ok(mut world) => {
                assert!(world.rest(&mut Vec::new()).is_err(), "{plant:?}: {found}");
            }
        }
    }
}

#[test]
fn a_failure_says_what_was_promised_what_was_done_and_how_to_see_it_again() {
    let rules = Rules { fine: false, crashes: 0, waits: 1, plant: Some(Plant::AckBeforeCommit) };
    let bounds = Bounds { rules, turns: Some(0), cold: false, audited: false };
    let failure = explore(&[Op::Send(0, What::Small)], bounds).expect_err("it is planted");
    let text = failure.to_string();
    for part in [
        "broken promise: what a client was told is queued is durable here",
        "alpha: 4f218d221b58: no row under its id",
        "  workload:\n    alpha sends small\n  steps:\n     0  the next operation begins\n",
        "  alpha: the node takes a turn\n  again: small::replay(",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}
