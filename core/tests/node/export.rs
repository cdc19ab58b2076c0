//! Exports by inbox rules: every task rests on the commit before it, a crash at any step loses nothing
//! and places nothing twice, and a rule in trouble holds up nobody else.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_core::config::Config;
use consign_core::id::{ConnId, SegmentId, Seq, TransferNo};
use consign_core::inbox::{ExportJob, ExportStep, ExportTask, FileMark, InboxRule};
use consign_core::ledger::keys_upkeep::{ExpiryKind, RuleId, parse_expiry, parse_export};
use consign_core::ledger::rows_upkeep::{ExportRow, ExportState};
use consign_core::ledger::{Table, codec};
use consign_core::node::{Answer, Input, Note, Question};
use consign_core::segment::Destinations;
use consign_core::session::{SessionCommand, SessionEvent};
use consign_core::store::{CommitFault, Snapshot, Space};

use crate::site::{Site, config, offer_inline, to_alpha};

pub fn rule(id: u64, name: Option<&str>, command: bool) -> InboxRule {
    InboxRule { id: RuleId(id), name: name.map(String::from), command, ..InboxRule::default() }
}

pub fn with_rules(rules: &[InboxRule]) -> Config {
    Config { inbox: rules.to_vec(), ..config(&["beta"]) }
}

/// A directory as the exporter sees it: files that lie aside, and those under their names.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    aside: BTreeMap<(RuleId, Seq), FileMark>,
    pub files: BTreeMap<String, (FileMark, SegmentId)>,
    inode: u64,
    /// What was placed, in order, files that were taken away since included.
    pub placed: Vec<String>,
    pub runs: Vec<(String, u32)>,
}

impl Folder {
    pub fn work(&mut self, job: &ExportJob) -> ExportStep {
        match &job.task {
            ExportTask::Write => {
                self.inode += 1;
                let mark = FileMark { inode: self.inode, modified: 5 };
                self.aside.insert((job.rule, job.seq), mark);
                let mut name = job.meta.name.clone();
                while self.files.contains_key(&name) {
                    name.push('+');
                }
                ExportStep::Named { name, mark }
            }
            ExportTask::Place { name, mark } => match self.files.get(name) {
                Some((there, _)) if there == mark => ExportStep::Placed,
                Some(_) => ExportStep::Lost("the name is taken".into()),
                None if self.aside.remove(&(job.rule, job.seq)) == Some(*mark) => {
                    self.files.insert(name.clone(), (*mark, job.id));
                    self.placed.push(name.clone());
                    ExportStep::Placed
                }
                None => ExportStep::Lost("it is gone".into()),
            },
            ExportTask::Run { name, run } => {
                self.runs.push((name.clone(), *run));
                ExportStep::Ran { exit: Some(0), output: b"ok".to_vec(), error: String::new() }
            }
            ExportTask::Clear => panic!("nothing is cleared here"),
        }
    }
}

pub fn arrive(site: &mut Site, names: &[&str]) -> ConnId {
    let conn = site.session("beta");
    site.settle();
    for (i, name) in names.iter().enumerate() {
        offer_inline(site, conn, 100 + i as u32, name, to_alpha());
    }
    conn
}

/// Works until the exporter has nothing more to do.
pub fn work(site: &mut Site, folder: &mut Folder) {
    site.settle();
    while let Some(job) = site.exports.pop_front() {
        let step = folder.work(&job);
        site.input(Input::Export { job: job.job, step });
        site.settle();
    }
}

pub fn rows(site: &Site) -> BTreeMap<(RuleId, Seq), ExportRow> {
    let mut rows = BTreeMap::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let row = codec::decode(Table::Exports, key, value).unwrap();
        rows.insert(parse_export(key).unwrap(), row);
        true
    };
    site.store.snapshot().scan(Table::Exports, &[], &mut visit).unwrap();
    rows
}

/// Keys of exports in `expiry`.
fn keys(site: &Site) -> usize {
    let mut count = 0;
    let mut visit = |key: &[u8], _: &[u8]| {
        count += usize::from(parse_expiry(key).unwrap().1 == ExpiryKind::Export);
        true
    };
    site.store.snapshot().scan(Table::Expiry, &[], &mut visit).unwrap();
    count
}

/// Every export that is not over has its key, and no other has one.
pub fn audit(site: &Site) {
    let over = |row: &ExportRow| matches!(row.state, ExportState::Done | ExportState::Failed);
    let open = rows(site).values().filter(|row| !over(row)).count();
    assert_eq!(keys(site), open, "{:?}", rows(site));
    site.audit();
}

fn states(site: &Site) -> Vec<ExportState> {
    rows(site).values().map(|row| row.state).collect()
}

fn answer(site: &mut Site, job: &ExportJob, step: ExportStep) {
    site.input(Input::Export { job: job.job, step });
    site.settle();
}

#[test]
fn what_is_for_this_site_goes_through_the_rule_that_fits() {
    let rules = [rule(1, Some("*.a"), true), rule(2, None, false), rule(3, Some("x"), false)];
    let mut site = Site::with(with_rules(&rules));
    let mut folder = Folder::default();
    arrive(&mut site, &["one.a", "two"]);
    work(&mut site, &mut folder);
    // Two rules found the same name at once; the second one finds another.
    site.wait(Duration::from_secs(2));
    work(&mut site, &mut folder);
    let done: Vec<(u64, u64)> = rows(&site).keys().map(|(r, s)| (r.0, s.0)).collect();
    assert_eq!(done, [(1, 1), (2, 1), (2, 2)]);
    assert_eq!(states(&site), [ExportState::Done; 3]);
    let mut placed = folder.placed.clone();
    placed.sort();
    assert_eq!(placed, ["one.a", "one.a+", "two"]);
    assert_eq!(folder.runs, [("one.a".to_string(), 1)]);
    let ran = &rows(&site)[&(RuleId(1), Seq(1))];
    assert_eq!((ran.exit, ran.output.as_slice(), ran.runs), (Some(0), &b"ok"[..], 1));
    let noted = site.notes.iter().filter(|n| matches!(n, Note::Exported { .. })).count();
    assert_eq!(noted, 4);
    audit(&site);
}

#[test]
fn what_only_passes_through_is_not_exported() {
    let mut site = Site::with(with_rules(&[rule(1, None, false)]));
    site.queue("mine", &["beta"]);
    site.settle();
    assert!(site.exports.is_empty() && rows(&site).is_empty());
    // Until this site is addressed too.
    let conn = site.session("beta");
    site.settle();
    let to = Destinations::named(vec!["alpha".into()]).unwrap();
    let mut offer = Site::make_offer("mine", b"content of mine", 9, to);
    offer.origin = "gamma".into();
    let event = SessionEvent::Offered { offer: Box::new(offer), body: None };
    site.input(Input::Session(conn, event));
    site.settle();
    assert_eq!(site.exports.len(), 1);
    audit(&site);
}

#[test]
fn no_task_is_given_out_before_the_row_it_rests_on_is_durable() {
    let mut site = Site::with(with_rules(&[rule(1, None, true)]));
    let mut folder = Folder::default();
    arrive(&mut site, &["a"]);
    while site.exports.is_empty() {
        site.turn();
        assert!(site.exports.is_empty() || rows(&site).len() == 1, "before its row");
        site.commit();
    }
    for state in [ExportState::Intent, ExportState::Intent, ExportState::Placed] {
        let job = site.exports.pop_front().unwrap();
        let row = &rows(&site)[&(RuleId(1), Seq(1))];
        assert_eq!(row.state, state);
        match &job.task {
            ExportTask::Write => assert!(row.name.is_empty()),
            ExportTask::Place { name, mark } => {
                assert_eq!((name, Some(*mark)), (&row.name, row.mark));
            }
            ExportTask::Run { name, .. } => assert_eq!(name, &row.name),
            ExportTask::Clear => panic!("{job:?}"),
        }
        let step = folder.work(&job);
        site.input(Input::Export { job: job.job, step });
        site.turn();
        assert!(site.exports.is_empty() && site.has_batch());
        site.commit();
        site.turn();
    }
    site.settle();
    assert_eq!(states(&site), [ExportState::Done]);
}

/// The process dies after `tasks` tasks, having heard of the last one or not, and the batch that it
/// led to is committed or not.
fn crash_after(tasks: usize, heard: bool, committed: bool) -> (Site, Folder) {
    let mut site = Site::with(with_rules(&[rule(1, None, true)]));
    let mut folder = Folder::default();
    arrive(&mut site, &["a", "b"]);
    site.settle();
    for i in 0..tasks {
        let Some(job) = site.exports.pop_front() else { break };
        let step = folder.work(&job);
        if i + 1 < tasks || heard {
            site.input(Input::Export { job: job.job, step });
        }
        if i + 1 < tasks || committed {
            site.settle();
        } else {
            site.turn();
        }
    }
    (site.restart(), folder)
}

#[test]
fn a_crash_at_any_step_loses_nothing_and_places_nothing_twice() {
    for tasks in 0..8 {
        for (heard, committed) in [(false, true), (true, false), (true, true)] {
            let (mut site, mut folder) = crash_after(tasks, heard, committed);
            work(&mut site, &mut folder);
            let at = format!("{tasks} tasks, heard {heard}, committed {committed}");
            assert_eq!(states(&site), [ExportState::Done; 2], "{at}");
            assert_eq!(folder.placed.len(), 2, "{at}: {:?}", folder.placed);
            let ran: std::collections::BTreeSet<&String> =
                folder.runs.iter().map(|(name, _)| name).collect();
            assert_eq!(ran.len(), 2, "{at}: every command runs at least once");
            audit(&site);
        }
    }
}

#[test]
fn a_file_that_was_taken_before_that_was_written_down_is_placed_again() {
    let mut site = Site::with(with_rules(&[rule(1, None, false)]));
    let mut folder = Folder::default();
    arrive(&mut site, &["a"]);
    site.settle();
    let write = site.exports.pop_front().unwrap();
    let step = folder.work(&write);
    answer(&mut site, &write, step);
    let place = site.exports.pop_front().unwrap();
    folder.work(&place);
    folder.files.clear();
    let mut site = site.restart();
    work(&mut site, &mut folder);
    site.wait(Duration::from_secs(2));
    work(&mut site, &mut folder);
    assert_eq!(folder.placed, ["a", "a"]);
    assert_eq!(states(&site), [ExportState::Done]);
}

#[test]
fn a_command_that_fails_is_run_again_and_left_to_the_operator_after_eight_runs() {
    let mut site = Site::with(with_rules(&[rule(1, None, true)]));
    let mut folder = Folder::default();
    arrive(&mut site, &["a"]);
    site.settle();
    for _ in 0..2 {
        let job = site.exports.pop_front().unwrap();
        let step = folder.work(&job);
        answer(&mut site, &job, step);
    }
    for run in 1..=8 {
        site.wait(Duration::from_secs(3600));
        let job = site.exports.pop_front().unwrap_or_else(|| panic!("run {run}"));
        assert_eq!(job.task, ExportTask::Run { name: "a".into(), run });
        let (output, error) = (vec![b'x'; 5000], "exit 3".to_string());
        answer(&mut site, &job, ExportStep::Ran { exit: Some(3), output, error });
        assert!(site.exports.is_empty(), "it waits");
        let row = &rows(&site)[&(RuleId(1), Seq(1))];
        assert_eq!((row.runs, row.exit, row.output.len()), (run, Some(3), 4096));
        audit(&site);
    }
    site.wait(Duration::from_secs(86_400));
    assert!(site.exports.is_empty());
    assert_eq!(states(&site), [ExportState::Failed]);
    assert_eq!(ask(&mut site, Question::InboxRetry(Seq(1))), 1);
    work(&mut site, &mut folder);
    assert_eq!((states(&site), folder.runs.len()), (vec![ExportState::Done], 1));
    assert_eq!(ask(&mut site, Question::InboxRetry(Seq(1))), 0);
    audit(&site);
}

/// Asks as an operator does, and waits for the answer.
pub fn ask(site: &mut Site, question: Question) -> u64 {
    let client = site.client();
    let ticket = TransferNo(7);
    site.input(Input::Session(client, SessionEvent::Ask { ticket, question }));
    site.settle();
    match &site.take_told(client)[..] {
        [SessionCommand::Answer { answer, .. }] => match &**answer {
            Answer::Exports(begun) => *begun,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn trouble_waits_longer_each_time_and_is_told() {
    let mut site = Site::with(with_rules(&[rule(1, None, false)]));
    arrive(&mut site, &["a"]);
    site.settle();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let job = site.exports.pop_front().unwrap();
        answer(&mut site, &job, ExportStep::Later("no space".into()));
        let row = &rows(&site)[&(RuleId(1), Seq(1))];
        assert_eq!((row.state, row.error.as_str()), (ExportState::Intent, "no space"));
        waits.push(row.next_attempt_after - site.now.wall.0);
        assert!(site.exports.is_empty());
        let wait = Duration::from_millis(*waits.last().unwrap());
        site.wait(wait - Duration::from_millis(1));
        assert!(site.exports.is_empty(), "it is not due yet");
        site.wait(Duration::from_millis(1));
        audit(&site);
    }
    assert!(waits.is_sorted() && waits[3] >= 8000, "{waits:?}");
    let told = site.notes.iter().filter(|n| matches!(n, Note::Exported { .. })).count();
    assert_eq!(told, 1);
}

#[test]
fn what_cannot_be_done_at_all_waits_for_the_operator() {
    let mut site = Site::with(with_rules(&[rule(1, None, false)]));
    let mut folder = Folder::default();
    arrive(&mut site, &["a"]);
    site.settle();
    let job = site.exports.pop_front().unwrap();
    answer(&mut site, &job, ExportStep::Never("a hostile name".into()));
    assert_eq!(states(&site), [ExportState::Failed]);
    audit(&site);
    let site = site.restart();
    let mut site = site;
    work(&mut site, &mut folder);
    assert!(folder.placed.is_empty());
    assert_eq!(ask(&mut site, Question::InboxRetry(Seq(1))), 1);
    work(&mut site, &mut folder);
    assert_eq!(folder.placed, ["a"]);
    audit(&site);
}

#[test]
fn a_rule_that_hangs_holds_up_no_other_and_memory_stays_bounded() {
    let mut site =
        Site::with(with_rules(&[rule(1, Some("slow*"), false), rule(2, Some("f*"), false)]));
    let mut folder = Folder::default();
    let conn = arrive(&mut site, &[]);
    for i in 0..100 {
        offer_inline(&mut site, conn, 1000 + i, &format!("slow{i}"), to_alpha());
    }
    site.settle();
    for i in 0..20 {
        offer_inline(&mut site, conn, 2000 + i, &format!("fast{i}"), to_alpha());
    }
    site.settle();
    let mut slow = Vec::new();
    while let Some(job) = site.exports.pop_front() {
        if job.rule == RuleId(1) {
            slow.push(job);
            continue;
        }
        let step = folder.work(&job);
        answer(&mut site, &job, step);
    }
    assert_eq!(slow.len(), 16, "no more than its share in memory");
    assert_eq!(folder.placed.len(), 20, "{:?}", folder.placed);
    for job in slow {
        let step = folder.work(&job);
        answer(&mut site, &job, step);
    }
    work(&mut site, &mut folder);
    assert_eq!(folder.placed.len(), 120);
    assert_eq!(states(&site), [ExportState::Done; 120]);
    audit(&site);
}

#[test]
fn a_full_disk_takes_back_what_was_not_durable_and_the_export_goes_on() {
    for failing in 0..4 {
        let mut site = Site::with(with_rules(&[rule(1, None, true)]));
        let mut folder = Folder::default();
        arrive(&mut site, &["a"]);
        site.settle();
        for step_no in 0..3 {
            let job = site.exports.pop_front().unwrap();
            let step = folder.work(&job);
            site.input(Input::Export { job: job.job, step });
            if step_no == failing {
                site.turn();
                let space = Space { free: 1 << 40, ledger: 0, ballast_whole: true };
                site.commit_by(|_, batch| Input::CommitFailed {
                    from: batch.number,
                    why: CommitFault::Full("no space".into()),
                    space,
                });
            }
            site.settle();
            site.wait(Duration::from_secs(10));
            // What was taken back is given out again, as it stands in the ledger.
            if site.exports.front().is_some_and(|next| next.task == job.task) {
                let again = site.exports.pop_front().unwrap();
                let step = folder.work(&again);
                answer(&mut site, &again, step);
                site.wait(Duration::from_secs(10));
            }
        }
        work(&mut site, &mut folder);
        assert_eq!(states(&site), [ExportState::Done], "{failing}");
        assert!(folder.files.contains_key("a"), "{failing}: {folder:?}");
        audit(&site);
    }
}

#[test]
fn rules_that_come_later_begin_with_what_arrives_and_with_the_rest_when_asked() {
    let mut site = Site::with(with_rules(&[]));
    let mut folder = Folder::default();
    let conn = arrive(&mut site, &[]);
    for i in 0..600 {
        offer_inline(&mut site, conn, 1000 + i, &format!("n{i}"), to_alpha());
        if i % 50 == 49 {
            site.settle();
        }
    }
    site.config.inbox = vec![rule(1, Some("n*"), false)];
    let mut site = site.restart();
    arrive(&mut site, &["new"]);
    work(&mut site, &mut folder);
    assert_eq!(folder.placed, ["new"]);
    assert_eq!(ask(&mut site, Question::InboxRun), 600);
    assert_eq!(ask(&mut site, Question::InboxRun), 0);
    work(&mut site, &mut folder);
    assert_eq!(folder.placed.len(), 601);
    audit(&site);
}

#[test]
fn stopping_waits_for_the_exporter_and_gives_out_nothing_new() {
    let mut site = Site::with(with_rules(&[rule(1, None, false)]));
    let mut folder = Folder::default();
    arrive(&mut site, &["a"]);
    site.settle();
    let job = site.exports.pop_front().unwrap();
    site.input(Input::Stop);
    site.settle();
    assert!(!site.drained);
    let step = folder.work(&job);
    answer(&mut site, &job, step);
    assert!(site.drained && site.exports.is_empty());
    let row = &rows(&site)[&(RuleId(1), Seq(1))];
    assert_eq!(row.name, "a", "what it said was written down");
}

#[test]
fn what_every_rule_is_done_with_is_let_go_and_nothing_before() {
    let rules = [rule(1, None, false), rule(2, Some("a"), true)];
    let mut site = Site::with(with_rules(&rules));
    let mut folder = Folder::default();
    arrive(&mut site, &["a", "b"]);
    site.settle();
    // The second rule's command does not come to its end.
    let keep = site.config.keep;
    let mut run = None;
    for _ in 0..40 {
        let Some(job) = site.exports.pop_front() else {
            site.wait(Duration::from_secs(2));
            continue;
        };
        if matches!(job.task, ExportTask::Run { .. }) {
            run = Some(job);
            continue;
        }
        let step = folder.work(&job);
        answer(&mut site, &job, step);
    }
    site.wait(keep * 2);
    let run = run.expect("the command runs");
    assert_eq!(site.store.rows(Table::Segments), 1, "the one that no rule has any more to do with");
    assert_eq!(rows(&site).keys().map(|(_, seq)| *seq).collect::<Vec<_>>(), [run.seq; 2]);
    let step = folder.work(&run);
    answer(&mut site, &run, step);
    site.wait(keep - Duration::from_secs(60));
    assert_eq!(site.store.rows(Table::Segments), 1, "it is kept for a while");
    site.wait(Duration::from_secs(120));
    assert_eq!((site.store.rows(Table::Segments), rows(&site).len()), (0, 0));
    audit(&site);
}
