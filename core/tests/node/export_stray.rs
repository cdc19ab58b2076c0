//! Inbox rules that change with a start: what a rule owed goes to those that take its segment now.

use std::time::Duration;

use consign_core::act::Action;
use consign_core::config::Config;
use consign_core::id::Seq;
use consign_core::inbox::{ExportStep, ExportTask, InboxRule};
use consign_core::ledger::Table;
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::rows_upkeep::ExportState;
use consign_core::node::{Input, Question};
use consign_core::store::{CommitFault, Space};

use crate::acts::{act, all, done};
use crate::export::{Folder, arrive, audit, rows, rule, with_rules, work};
use crate::site::Site;

/// It stops and starts with other rules.
fn restart_with(mut site: Site, config: Config) -> Site {
    site.store.crash();
    Site::on(site.store, config, site.now)
}

fn tell(site: &mut Site, step: ExportStep) {
    let job = site.exports.pop_front().unwrap();
    site.input(Input::Export { job: job.job, step });
    site.settle();
}

fn known(site: &Site) -> Vec<(u64, u64, ExportState)> {
    rows(site).iter().map(|((rule, seq), row)| (rule.0, seq.0, row.state)).collect()
}

/// `a` is given out, `b` has its name, `c` has failed, `d` waits.
fn half_done(rules: &[InboxRule]) -> (Site, Folder) {
    let mut site = Site::with(with_rules(rules));
    let mut folder = Folder::default();
    arrive(&mut site, &["a"]);
    work(&mut site, &mut folder);
    arrive(&mut site, &["b"]);
    site.settle();
    let step = folder.work(&site.exports[0]);
    tell(&mut site, step);
    site.exports.clear();
    arrive(&mut site, &["c", "d"]);
    site.settle();
    tell(&mut site, ExportStep::Never("a hostile name".into()));
    tell(&mut site, ExportStep::Later("no space".into()));
    let (done, failed, waits) = (ExportState::Done, ExportState::Failed, ExportState::Intent);
    assert_eq!(known(&site), [(1, 1, done), (1, 2, waits), (1, 3, failed), (1, 4, waits)]);
    (site, folder)
}

#[test]
fn what_a_rule_owes_goes_to_its_new_directory_and_nothing_twice() {
    let (site, _) = half_done(&[rule(1, None, false)]);
    // The number of a rule is made from its directory, among others.
    let mut site = restart_with(site, with_rules(&[rule(3, None, false)]));
    let mut folder = Folder::default();
    work(&mut site, &mut folder);
    assert_eq!(folder.placed, ["b", "c", "d"]);
    let done = ExportState::Done;
    assert_eq!(known(&site), [(3, 2, done), (3, 3, done), (3, 4, done)]);
    audit(&site);
}

#[test]
fn a_rule_that_is_gone_leaves_nothing_behind() {
    let keep = Duration::from_secs(3600);
    let (site, _) = half_done(&[rule(1, None, false)]);
    let rules = with_rules(&[]);
    let mut site = restart_with(site, Config { keep, ..rules });
    site.settle();
    assert_eq!(known(&site), []);
    audit(&site);
    assert_eq!(site.store.rows(Table::Segments), 4, "the content stays for its time");
}

#[test]
fn a_rule_that_stays_keeps_what_it_owes_and_takes_over_only_what_it_does_not_know() {
    let both = [rule(1, None, false), rule(2, Some("[bd]"), false)];
    let mut site = Site::with(with_rules(&both));
    arrive(&mut site, &["b", "c"]);
    site.settle();
    let waits = ExportState::Intent;
    assert_eq!(known(&site), [(1, 1, waits), (1, 2, waits), (2, 1, waits)]);
    let mut site = restart_with(site, with_rules(&[rule(2, Some("[bd]"), false)]));
    site.settle();
    assert_eq!(known(&site), [(2, 1, waits)], "nobody takes c, and b was owed already");
    let mut folder = Folder::default();
    work(&mut site, &mut folder);
    assert_eq!(folder.placed, ["b"]);
    audit(&site);
}

#[test]
fn what_is_owed_keeps_its_content_until_it_is_seen_to_whom() {
    let keep = Duration::from_secs(3600);
    let short = |rules: &[InboxRule]| Config { keep, ..with_rules(rules) };
    let mut site = Site::with(short(&[rule(1, None, false)]));
    arrive(&mut site, &["a"]);
    site.settle();
    tell(&mut site, ExportStep::Later("no space".into()));
    // Its time is over while the site is away.
    site.now.wall = site.now.wall.after(Duration::from_secs(86_400));
    let mut site = restart_with(site, short(&[rule(3, None, false)]));
    let mut folder = Folder::default();
    work(&mut site, &mut folder);
    assert_eq!(folder.placed, ["a"]);
    audit(&site);
}

#[test]
fn many_of_them_take_several_batches_one_of_which_fails_and_a_crash_in_between() {
    let names: Vec<String> = (0..300).map(|i| format!("n{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (fails, crashes) in [(1, 2), (2, 4), (3, 1), (4, 6)] {
        let mut site = Site::with(with_rules(&[rule(1, None, false), rule(9, None, true)]));
        for some in names.chunks(50) {
            arrive(&mut site, some);
            site.settle();
        }
        site.exports.clear();
        let rules = with_rules(&[rule(5, Some("n*"), false)]);
        site = restart_with(site, rules.clone());
        for step in 0..8 {
            site.turn();
            if step == fails && site.has_batch() {
                let space = Space { free: 1 << 40, ledger: 0, ballast_whole: true };
                let why = CommitFault::Full("no space".into());
                site.commit_by(|_, batch| Input::CommitFailed { from: batch.number, why, space });
            } else if step == crashes {
                site = restart_with(site, rules.clone());
            } else if site.has_batch() {
                site.commit();
            }
        }
        let mut folder = Folder::default();
        for _ in 0..20 {
            site.wait(Duration::from_secs(30));
            work(&mut site, &mut folder);
        }
        assert_eq!(folder.placed.len(), names.len(), "{fails} {crashes}");
        assert!(rows(&site).keys().all(|(rule, _)| *rule == RuleId(5)), "{fails} {crashes}");
        assert_eq!(rows(&site).len(), names.len());
        assert!(rows(&site).contains_key(&(RuleId(5), Seq(1))));
        audit(&site);
    }
}

fn given_up(site: &Site) -> Vec<(u64, u64)> {
    let status = site.pump.node().status(site.now);
    status.given_up.iter().map(|(rule, count)| (rule.0, *count)).collect()
}

#[test]
fn what_was_given_up_is_counted_over_a_restart_until_it_is_tried_again() {
    let rules = with_rules(&[rule(1, None, false), rule(2, Some("never"), false)]);
    let mut site = Site::with(rules.clone());
    arrive(&mut site, &["a", "b", "c"]);
    site.settle();
    assert_eq!(given_up(&site), []);
    tell(&mut site, ExportStep::Never("a hostile name".into()));
    tell(&mut site, ExportStep::Never("a hostile name".into()));
    assert_eq!(given_up(&site), [(1, 2)]);
    let mut site = restart_with(site, rules);
    site.settle();
    assert_eq!(given_up(&site), [(1, 2)]);
    assert_eq!(crate::export::ask(&mut site, Question::InboxRetry(Seq(1))), 1);
    assert_eq!(given_up(&site), [(1, 1)]);
    site.exports.clear();
    assert_eq!(crate::export::ask(&mut site, Question::InboxRetry(Seq(2))), 1);
    assert_eq!(given_up(&site), []);
    audit(&site);
}

#[test]
fn what_lies_aside_for_a_segment_that_leaves_is_cleared() {
    for configured in [true, false] {
        let mut site = Site::with(with_rules(&[rule(1, None, false)]));
        let mut folder = Folder::default();
        arrive(&mut site, &["a"]);
        site.settle();
        let job = site.exports.pop_front().unwrap();
        let step = folder.work(&job);
        site.input(Input::Export { job: job.job, step });
        site.settle();
        let job = site.exports.pop_front().unwrap();
        assert!(matches!(job.task, ExportTask::Place { .. }));
        site.input(Input::Export { job: job.job, step: ExportStep::Later("no space".into()) });
        site.settle();
        if !configured {
            site.config.inbox.clear();
            site = site.restart();
        }
        let mut release = act(Action::Release, all());
        release.force = true;
        done(&mut site, release);
        site.settle();
        assert_eq!(site.store.rows(Table::Segments), 0);
        let cleared: Vec<_> = site.exports.iter().map(|j| (j.rule, j.seq, &j.task)).collect();
        let expected = (RuleId(1), Seq(1), &ExportTask::Clear);
        assert_eq!(cleared, if configured { vec![expected] } else { Vec::new() });
        audit(&site);
    }
}

/// Damaged content is looked at, and given out by itself once it is mended.
#[test]
fn what_was_found_wrong_is_given_out_once_it_is_whole() {
    let mut site = Site::with(with_rules(&[rule(1, None, false)]));
    let mut folder = Folder::default();
    arrive(&mut site, &["a"]);
    site.settle();
    let seen = site.pump.node().status(site.now).scrub.items;
    tell(&mut site, ExportStep::Corrupt("it does not match its digest".into()));
    assert_eq!(known(&site), [(1, 1, ExportState::Intent)]);
    assert_eq!(rows(&site)[&(RuleId(1), Seq(1))].error, "it does not match its digest");
    assert!(site.pump.node().status(site.now).scrub.items > seen, "it is looked at");
    site.wait(Duration::from_secs(60));
    work(&mut site, &mut folder);
    assert_eq!(folder.placed, ["a"]);
    audit(&site);
}
