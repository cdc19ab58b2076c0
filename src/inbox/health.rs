//! How inbox rules are doing: a directory or program that cannot be used, and exports that fail one after the other.
//!
//! Both are looked at before anything arrives and while nothing does; what a task says counts when several in a
//! row say it, since one that fails is tried again anyway. What can be used again ends what it caused; for
//! everything else the next export that comes through does.

use std::path::PathBuf;

use consign_core::inbox::{ExportStep, ExportTask};
use consign_core::ledger::keys_upkeep::RuleId;

use super::InboxDir;
use crate::config::outside;
use crate::trouble::{States, Tell, Trouble, now};

/// Failures in a row that are trouble.
const ROW: u32 = 3;
/// Code of it.
const CODE: &str = "CN0626";

/// How an inbox rule is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InboxState {
    /// Which rule it is.
    pub id: RuleId,
    /// Where its files go.
    pub dir: PathBuf,
    /// What it picks, for people.
    pub picks: String,
    /// What is wrong with it.
    pub trouble: Trouble,
    /// Whether that is its directory or program.
    by_look: bool,
    /// Failures since the last export that came through.
    row: u32,
}

impl InboxState {
    fn becomes(&mut self, text: String) -> Option<consign_core::node::Note> {
        let what = format!("inbox {}", self.dir.display());
        self.trouble.becomes(&what, text, CODE, now())
    }

    /// Its directory and its program were looked at.
    fn looks(&mut self, wrong: Option<String>) -> Option<consign_core::node::Note> {
        match wrong {
            Some(text) => {
                self.by_look = true;
                self.becomes(text)
            }
            None if std::mem::take(&mut self.by_look) => {
                self.row = 0;
                self.becomes(String::new())
            }
            None => None,
        }
    }

    fn failed(&mut self, why: &str) -> Option<consign_core::node::Note> {
        self.row = self.row.saturating_add(1);
        let told = self.row >= ROW && !self.by_look;
        if told { self.becomes(why.to_owned()) } else { None }
    }

    fn done(&mut self) -> Option<consign_core::node::Note> {
        (self.row, self.by_look) = (0, false);
        self.becomes(String::new())
    }
}

/// The states of all inbox rules, for whoever shows them.
#[derive(Clone, Debug, Default)]
pub struct InboxStates(States<InboxState>);

impl InboxStates {
    /// States of these rules before anything was looked at; who is told of trouble that begins or ends.
    #[must_use]
    pub fn new(rules: &[InboxDir], tell: Tell) -> InboxStates {
        let state = |rule: &InboxDir| InboxState {
            id: rule.id,
            dir: rule.dir.clone(),
            picks: rule.picks.clone(),
            ..InboxState::default()
        };
        InboxStates(States::new(rules.iter().map(state).collect(), tell))
    }

    /// All of them, in the order of the configuration.
    #[must_use]
    pub fn all(&self) -> Vec<InboxState> {
        self.0.all()
    }

    /// Looks at a rule's directory and program.
    pub(super) fn look(&self, at: usize, rule: &InboxDir) {
        let program = || outside::no_program(&rule.command, &rule.dir);
        let wrong = outside::closed(&rule.dir).or_else(program);
        self.0.change(at, |state| state.looks(wrong));
    }

    /// What became of a task of a rule.
    pub(super) fn heard(&self, at: usize, rule: &InboxDir, task: &ExportTask, step: &ExportStep) {
        let failed = match step {
            ExportStep::Later(why) | ExportStep::Lost(why) => why,
            ExportStep::Ran { exit: Some(0), .. } => return self.0.change(at, InboxState::done),
            ExportStep::Ran { error, .. } => error,
            ExportStep::Placed if rule.command.is_empty() => {
                return self.0.change(at, InboxState::done);
            }
            ExportStep::Placed
            | ExportStep::Named { .. }
            | ExportStep::Never(_)
            | ExportStep::Corrupt(_) => return,
        };
        if !matches!(task, ExportTask::Run { .. }) {
            self.look(at, rule);
        }
        self.0.change(at, |state| state.failed(failed));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use consign_core::inbox::FileMark;
    use consign_core::node::Note;

    use super::*;

    struct Room {
        dir: tempfile::TempDir,
        rule: InboxDir,
        states: InboxStates,
        told: Arc<Mutex<Vec<Note>>>,
    }

    fn room(command: &[&str]) -> Room {
        let dir = tempfile::tempdir().unwrap();
        let rule = InboxDir {
            id: RuleId(7),
            picks: "everything".into(),
            dir: dir.path().join("in"),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: Duration::from_secs(1),
        };
        let told = Arc::new(Mutex::new(Vec::new()));
        let ear = told.clone();
        let states = InboxStates::new(
            std::slice::from_ref(&rule),
            Arc::new(move |note| ear.lock().unwrap().push(note)),
        );
        Room { dir, rule, states, told }
    }

    impl Room {
        fn hear(&self, task: &ExportTask, step: ExportStep) -> String {
            self.states.heard(0, &self.rule, task, &step);
            self.states.all()[0].trouble.text.clone()
        }

        fn told(&self) -> usize {
            self.told.lock().unwrap().len()
        }
    }

    fn place() -> ExportTask {
        ExportTask::Place { name: "a".into(), mark: FileMark::default() }
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_told_once_and_so_is_its_return() {
        let room = room(&[]);
        room.states.look(0, &room.rule);
        assert_eq!(room.told(), 0, "it will be made");
        fs::write(&room.rule.dir, "in the way").unwrap();
        for _ in 0..3 {
            room.states.look(0, &room.rule);
            let text = room.hear(&ExportTask::Write, ExportStep::Later("not a directory".into()));
            assert!(text.ends_with("in is no directory"), "{text}");
        }
        assert_eq!(room.told(), 1);
        fs::remove_file(&room.rule.dir).unwrap();
        room.states.look(0, &room.rule);
        assert_eq!(room.states.all()[0].trouble, Trouble::default());
        let told = room.told.lock().unwrap();
        assert!(matches!(&told[..], [Note::Warn { code: CODE, .. }, Note::Recovered { .. }]));
    }

    #[test]
    fn a_program_that_is_not_there_is_told_before_anything_arrives() {
        let mut room = room(&["/no/such/import"]);
        room.states.look(0, &room.rule);
        let text = room.states.all()[0].trouble.text.clone();
        assert_eq!(text, "`inbox.command`: /no/such/import is no program to be run");
        room.rule.command = vec!["/bin/sh".into()];
        room.states.look(0, &room.rule);
        assert_eq!((room.states.all()[0].trouble.clone(), room.told()), (Trouble::default(), 2));
    }

    #[test]
    fn failures_in_a_row_are_trouble_until_one_comes_through() {
        let room = room(&[]);
        let later = || ExportStep::Later("no space".into());
        assert_eq!([room.hear(&place(), later()), room.hear(&place(), later())], ["", ""]);
        assert_eq!(room.hear(&place(), ExportStep::Placed), "");
        for expected in ["", "", "no space", "no space"] {
            assert_eq!(room.hear(&ExportTask::Write, later()), expected);
        }
        room.states.look(0, &room.rule);
        assert_eq!(room.states.all()[0].trouble.text, "no space", "it is not the directory");
        assert_eq!(room.hear(&place(), ExportStep::Placed), "");
        assert_eq!(room.told(), 2);
        assert!(room.dir.path().exists());
    }

    #[test]
    fn a_command_that_fails_is_not_well_because_files_appear() {
        let room = room(&["/bin/sh"]);
        let run = ExportTask::Run { name: "a".into(), run: 1 };
        let ran =
            |exit, error: &str| ExportStep::Ran { exit, output: Vec::new(), error: error.into() };
        for expected in ["", "", "exit status: 3"] {
            assert_eq!(room.hear(&place(), ExportStep::Placed), "");
            assert_eq!(room.hear(&run, ran(Some(3), "exit status: 3")), expected);
        }
        assert_eq!(room.hear(&place(), ExportStep::Placed), "exit status: 3");
        assert_eq!(room.hear(&run, ran(Some(0), "")), "");
        assert_eq!(room.told(), 2);
    }
}
