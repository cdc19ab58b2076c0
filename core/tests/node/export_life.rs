//! Drawn lives of a site with inbox rules: whatever fails or dies, everything is given out, once.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::inbox::{ExportStep, ExportTask};
use consign_core::ledger::Table;
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::rows_upkeep::{ExportRow, ExportState};
use consign_core::node::Input;
use consign_core::store::{CommitFault, Space};

use crate::export::{Folder, arrive, audit, rows, rule, with_rules, work};
use crate::site::{Site, offer_inline, to_alpha};

/// A number from a stream that a seed begins.
fn draw(state: &mut u64, most: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % most
}

/// One drawn thing: an arrival, a task done or in trouble, a commit or one that fails, time, a crash.
fn live_on(mut site: Site, folder: &mut Folder, state: &mut u64, arrivals: &mut u32) -> Site {
    match draw(state, 12) {
        0 | 1 if *arrivals < 40 => {
            // Time enough for a full disk to be looked at again.
            site.wait(Duration::from_secs(30));
            let conn = arrive(&mut site, &[]);
            *arrivals += 1;
            offer_inline(&mut site, conn, *arrivals, &format!("n{}", *arrivals % 7), to_alpha());
            site.turn();
        }
        0..=4 => {
            if let Some(job) = site.exports.pop_front() {
                let step = match draw(state, 8) {
                    0 => ExportStep::Later("no space".into()),
                    1 if matches!(job.task, ExportTask::Run { .. }) => ExportStep::Ran {
                        exit: Some(1),
                        output: Vec::new(),
                        error: "exit 1".into(),
                    },
                    _ => folder.work(&job),
                };
                site.input(Input::Export { job: job.job, step });
            }
            site.turn();
        }
        5..=7 => {
            site.turn();
            site.commit();
        }
        8 => {
            site.turn();
            if site.has_batch() {
                let space = Space { free: 1 << 40, ledger: 0, ballast_whole: true };
                let why = CommitFault::Full("no space".into());
                site.commit_by(|_, batch| Input::CommitFailed { from: batch.number, why, space });
                site.turn();
            }
        }
        9 => site.wait(Duration::from_millis(1 + draw(state, 3000))),
        10 => site = site.restart(),
        _ => site.settle(),
    }
    site
}

#[test]
fn drawn_lives_end_with_everything_given_out_once() {
    for seed in 0..60_u64 {
        let mut state = seed;
        let rules = [rule(1, Some("*"), true), rule(2, Some("n[0-3]"), false)];
        // What has been given out stays, to be counted.
        let keep = Duration::from_secs(365 * 86_400);
        let mut site = Site::with(Config { keep, ..with_rules(&rules) });
        let (mut folder, mut arrivals) = (Folder::default(), 0);
        for _ in 0..300 {
            site = live_on(site, &mut folder, &mut state, &mut arrivals);
            assert_eq!(site.halted, None, "seed {seed}");
        }
        let held = |site: &Site| site.store.rows(Table::Segments);
        for _ in 0..200 {
            site.wait(Duration::from_secs(1000));
            work(&mut site, &mut folder);
        }
        let all = rows(&site);
        let over = |row: &ExportRow| matches!(row.state, ExportState::Done);
        assert!(all.values().all(over), "seed {seed}: {all:?}");
        let first = all.keys().filter(|(rule, _)| *rule == RuleId(1)).count();
        assert_eq!(first, held(&site), "seed {seed}: the first rule takes everything");
        assert_eq!(folder.files.len(), all.len(), "seed {seed}: a file for each");
        assert_eq!(folder.placed.len(), all.len(), "seed {seed}: placed once");
        let names: std::collections::BTreeSet<&String> =
            folder.runs.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), first, "seed {seed}: every command has run");
        audit(&site);
    }
}
