//! Directories that inbox rules have used, so that a rule which is no more leaves nothing half written in its own.
//!
//! A rule is known by a number that leads to no directory. So a small file in the data directory remembers both, before
//! the rule gives anything out. A start that finds a rule in it which is configured no more, or has another directory,
//! removes what lies aside for it there, `DIR/.consign/RULE-SEQ`, and forgets it. What it still owed others give out anew,
//! from the store. Files under any other name are not this site's and stay, and so does what has got its name.
//!
//! A node does the same for its own rules, in the `.consign` of its directory.
//!
//! A directory without a `.consign` is remembered on: its disk may not be there now. Nothing here keeps a site from
//! starting, and nothing waits for a disk that does not answer.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use consign_core::id::Seq;
use consign_core::ledger::keys_upkeep::RuleId;
use rustix::fs::{AtFlags, Dir};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::InboxDir;
use super::place::{ASIDE, aside_name};
use crate::below::{self, There};
use crate::replace::{self, New, Reader};

/// The file, in the data directory of a site or the own one of a node.
const FILE: &str = "inbox-dirs.json";
/// Rules that are no more and are remembered; beyond them the oldest are forgotten.
const GONE_MOST: usize = 256;

/// A rule and where it gave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    /// Its number, 16 hex digits.
    rule: String,
    /// Its directory, absolute.
    dir: PathBuf,
}

impl Used {
    /// `None` for what the file cannot say.
    fn of(rule: &InboxDir) -> Option<Used> {
        let dir = std::path::absolute(&rule.dir).ok()?;
        dir.to_str()?;
        Some(Used { rule: format!("{:016x}", rule.id.0), dir })
    }

    /// Whether a file has a name that this rule gives to what is not whole yet.
    fn is_mine(&self, name: &[u8]) -> bool {
        let Ok(rule) = u64::from_str_radix(&self.rule, 16) else { return false };
        let seq = std::str::from_utf8(name).ok().and_then(|name| name.rsplit('-').next());
        let seq = seq.and_then(|seq| seq.parse().ok()).map(Seq);
        seq.is_some_and(|seq| aside_name(RuleId(rule), seq).as_bytes() == name)
    }
}

/// What rules that are no more may have left.
#[derive(Debug)]
pub struct Left {
    file: PathBuf,
    rules: Vec<Used>,
    gone: Vec<Used>,
}

impl Left {
    /// Remembers the rules there are now, and finds those that are no more.
    #[must_use]
    pub fn begin(data: &Path, rules: &[InboxDir]) -> Left {
        let file = data.join(FILE);
        let known = read(&file);
        let rules: Vec<Used> = rules.iter().filter_map(Used::of).collect();
        let gone = known.iter().filter(|used| !rules.contains(used)).cloned();
        let mut left = Left { file, gone: gone.collect(), rules };
        left.gone.drain(..left.gone.len().saturating_sub(GONE_MOST));
        left.write(&known);
        left
    }

    /// Removes what they have left, in a thread of its own: a directory may be on a disk that does not answer.
    pub(crate) fn sweep(mut self) {
        if self.gone.is_empty() {
            return;
        }
        let spawned = std::thread::Builder::new().name("inbox-left".into()).spawn(move || {
            self.swept();
        });
        if let Err(error) = spawned {
            tracing::error!(%error, code = "CN0514", "an inbox thread is missing");
        }
    }

    /// Removes what can be removed now, and forgets where nothing is left.
    pub(crate) fn swept(&mut self) {
        let known = self.all();
        let rules = &self.rules;
        self.gone.retain(|used| {
            let shared = rules.iter().any(|rule| rule.dir == used.dir);
            match clear(used, shared) {
                Ok(None) => true,
                Ok(Some(files)) => {
                    if files > 0 {
                        let dir = used.dir.display();
                        tracing::info!(files, %dir, "unfinished files of an inbox rule that is no more are removed");
                    }
                    false
                }
                Err(why) => {
                    let dir = used.dir.join(ASIDE);
                    let dir = dir.display();
                    tracing::warn!(%why, %dir, code = "CN0545", "what lies aside cannot be removed");
                    true
                }
            }
        });
        self.write(&known);
    }

    /// Directories in which rules that are no more may still have something half written: for who looks and changes nothing.
    #[must_use]
    pub fn unfinished(data: &Path, rules: &[InboxDir]) -> Vec<PathBuf> {
        let rules: Vec<Used> = rules.iter().filter_map(Used::of).collect();
        let gone = read(&data.join(FILE)).into_iter().filter(|used| !rules.contains(used));
        gone.map(|used| used.dir.join(ASIDE)).collect()
    }

    fn all(&self) -> Vec<Used> {
        [self.gone.as_slice(), &self.rules].concat()
    }

    /// Replaces the file where that changes it.
    fn write(&self, known: &[Used]) {
        let all = self.all();
        if all == known {
            return;
        }
        let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string());
        let written = text.and_then(|text| {
            let new = New { path: &self.file, text: &text, reader: Reader::Owner };
            replace::replace(&[new]).map_err(|why| why.error.to_string())
        });
        if let Err(why) = written {
            let file = self.file.display();
            tracing::warn!(%why, %file, code = "CN0545", "directories of inbox rules are not remembered");
        }
    }
}

/// What is remembered; nothing where it cannot be read.
fn read(file: &Path) -> Vec<Used> {
    let why = match std::fs::read(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => error.to_string(),
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(known) => return known,
            Err(error) => error.to_string(),
        },
    };
    let file = file.display();
    tracing::warn!(%why, %file, code = "CN0545", "directories of inbox rules are not remembered");
    Vec::new()
}

/// Removes what lies aside for a rule; `None` where no rule has written anything, as far as can be seen. The
/// folder goes too if it is empty and nobody here uses it.
fn clear(used: &Used, shared: bool) -> Result<Option<usize>, Errno> {
    let Some(base) = below::found(&used.dir)? else { return Ok(None) };
    let aside = match below::enter(&base, ASIDE.as_bytes()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let mut files = 0;
    for name in names(&aside, used)? {
        if matches!(below::look(&aside, &name)?, Some(There::File(..))) {
            rustix::fs::unlinkat(&aside, name.as_slice(), AtFlags::empty())?;
            files += 1;
        }
    }
    rustix::fs::fsync(&aside)?;
    if !shared {
        // Whatever else is in it keeps it.
        let _ = rustix::fs::unlinkat(&base, ASIDE, AtFlags::REMOVEDIR);
    }
    Ok(Some(files))
}

/// Names in a directory that a rule gives to what is not whole yet.
fn names(aside: &OwnedFd, used: &Used) -> Result<Vec<Vec<u8>>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(aside.as_fd())? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if used.is_mine(name) {
            found.push(name.to_vec());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    struct Room(tempfile::TempDir);

    impl Room {
        fn rule(&self, id: u64, dir: &str) -> InboxDir {
            let (dir, timeout) = (self.0.path().join(dir), Duration::from_secs(1));
            InboxDir { id: RuleId(id), picks: String::new(), dir, command: Vec::new(), timeout }
        }

        fn put(&self, path: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"x").unwrap();
        }

        fn is(&self, path: &str) -> bool {
            self.0.path().join(path).symlink_metadata().is_ok()
        }

        /// A start with these rules; says how many that are no more are remembered behind it.
        fn start(&self, rules: &[InboxDir]) -> usize {
            let mut left = Left::begin(self.0.path(), rules);
            assert_eq!(read(&self.0.path().join(FILE)), left.all(), "before anything is given out");
            let gone =
                |left: &Left| left.gone.iter().map(|used| used.dir.join(ASIDE)).collect::<Vec<_>>();
            assert_eq!(Left::unfinished(self.0.path(), rules), gone(&left));
            left.swept();
            assert_eq!(Left::unfinished(self.0.path(), rules), gone(&left));
            assert_eq!(read(&self.0.path().join(FILE)), left.all());
            left.gone.len()
        }
    }

    fn room() -> Room {
        Room(tempfile::tempdir().unwrap())
    }

    /// What rule 7 names the content of segment 5.
    const HALF: &str = "0000000000000007-5";

    #[test]
    fn a_rule_that_is_no_more_leaves_nothing_half_written_and_nothing_else_is_touched() {
        let room = room();
        let (old, new) = (room.rule(7, "old"), room.rule(8, "new"));
        assert_eq!(room.start(std::slice::from_ref(&old)), 0);
        let stay = [
            "old/.consign/mine.txt",
            "old/.consign/0000000000000008-5",
            "old/.consign/0000000000000007-x",
            "old/.consign/0000000000000007-05",
            "old/.consign/0000000000000007-5.txt",
            "old/0000000000000007-5",
            "old/a.txt",
            "new/.consign/0000000000000007-5",
        ];
        stay.iter().for_each(|path| room.put(path));
        let half = format!("old/.consign/{HALF}");
        room.put(&half);
        fs::create_dir(room.0.path().join("old/.consign/0000000000000007-6")).unwrap();
        std::os::unix::fs::symlink(
            "mine.txt",
            room.0.path().join("old/.consign/0000000000000007-7"),
        )
        .unwrap();
        assert_eq!(room.start(std::slice::from_ref(&old)), 0);
        assert!(room.is(&half), "its rule is there and will go on with it");
        assert_eq!(room.start(&[new]), 0);
        assert!(!room.is(&half));
        for path in stay {
            assert!(room.is(path), "{path}");
        }
        assert!(
            room.is("old/.consign/0000000000000007-6")
                && room.is("old/.consign/0000000000000007-7")
        );
    }

    #[test]
    fn the_folder_goes_when_it_is_empty_unless_another_rule_uses_it() {
        let room = room();
        let (gone, stays) = (room.rule(7, "in"), room.rule(8, "in"));
        for (after, kept) in [(vec![stays], true), (vec![], false)] {
            room.start(std::slice::from_ref(&gone));
            room.put(&format!("in/.consign/{HALF}"));
            room.start(&after);
            assert!(!room.is(&format!("in/.consign/{HALF}")));
            assert_eq!(room.is("in/.consign"), kept);
        }
        assert!(room.is("in"), "the directory is its owner's");
    }

    #[test]
    fn a_directory_that_is_not_there_now_is_looked_at_by_a_later_start() {
        let room = room();
        room.start(&[room.rule(7, "disk/in")]);
        assert_eq!(room.start(&[]), 1);
        assert!(!room.is("disk"), "nothing is made for it");
        fs::create_dir_all(room.0.path().join("disk/in")).unwrap();
        assert_eq!(room.start(&[]), 1, "its disk may be away");
        room.put(&format!("disk/in/.consign/{HALF}"));
        assert_eq!(room.start(&[]), 0);
        assert!(!room.is("disk/in/.consign"));
    }

    #[test]
    fn a_rule_whose_directory_moved_with_its_configuration_is_swept_where_it_was() {
        let room = room();
        room.start(&[room.rule(7, "a/in")]);
        room.put(&format!("a/in/.consign/{HALF}"));
        room.put(&format!("b/in/.consign/{HALF}"));
        assert_eq!(room.start(&[room.rule(7, "b/in")]), 0);
        assert!(!room.is("a/in/.consign") && room.is(&format!("b/in/.consign/{HALF}")));
    }

    #[test]
    fn what_cannot_be_removed_is_remembered_and_a_file_of_nonsense_is_begun_anew() {
        let room = room();
        room.start(&[room.rule(7, "in")]);
        fs::create_dir_all(room.0.path().join("in")).unwrap();
        room.put("elsewhere/0000000000000007-5");
        std::os::unix::fs::symlink("../elsewhere", room.0.path().join("in/.consign")).unwrap();
        assert_eq!(room.start(&[]), 1, "no link is followed");
        assert!(room.is("elsewhere/0000000000000007-5"));
        fs::write(room.0.path().join(FILE), "[").unwrap();
        assert_eq!(room.start(&[room.rule(8, "in")]), 0);
        let many: Vec<Used> = (0..300)
            .map(|n| Used { rule: format!("{n:016x}"), dir: room.0.path().join(n.to_string()) })
            .collect();
        fs::write(room.0.path().join(FILE), serde_json::to_string(&many).unwrap()).unwrap();
        assert_eq!(room.start(&[]), GONE_MOST);
    }
}
