//! Content written aside, and its name given to it without replacing anything.
//!
//! ```text
//! DIR/.consign/RULE-SEQ   written, synced          DIR/a/b.txt   renamed, its directory synced
//! ```
//! Below the rule's directory no link is ever followed. A file counts as this site's own when inode and
//! time of its last change are those that were written down before it got its name.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use consign_core::id::Seq;
use consign_core::inbox::{ExportJob, ExportStep, FileMark};
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::rows::Body;
use consign_core::store::StoreFault;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::name::{clean, kept, numbered};
use super::{InboxDir, Source, locked};
use crate::below::{self, There};
use crate::human;

/// Where content lies before it has its name, below the rule's directory.
pub(super) const ASIDE: &str = ".consign";
/// Bytes copied at a time.
const PIECE: usize = 1 << 20;
/// Names tried for one file.
const NUMBERS: u32 = 10_000;

/// Directories and names, and names that are given out and not in the directory yet.
#[derive(Debug, Default)]
pub(super) struct Place {
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    names: BTreeSet<(RuleDir, String)>,
    by: BTreeMap<(RuleId, Seq), (RuleDir, String)>,
}

/// Two rules may share a directory.
type RuleDir = std::path::PathBuf;

impl Given {
    fn give_back(&mut self, rule: RuleId, seq: Seq) {
        if let Some(name) = self.by.remove(&(rule, seq)) {
            self.names.remove(&name);
        }
    }

    /// Whether this is about to become a directory.
    fn leads_below(&self, (rule, name): &(RuleDir, String)) -> bool {
        let below = (rule.clone(), format!("{name}/"));
        let next = self.names.range(&below..).next();
        next.is_some_and(|(dir, name)| *dir == below.0 && name.starts_with(&below.1))
    }

    /// Directories for a name. Where a file has, or is about to get, the name of one, the directory gets another: `film` and `film/1` can both be
    /// names of segments, and the shard `film/1/0` is in the way of all shards of a file of that id.
    fn dirs(
        &self,
        rule: &RuleDir,
        base: &OwnedFd,
        dirs: &[String],
    ) -> Result<Vec<String>, Trouble> {
        let mut found: Vec<String> = Vec::with_capacity(dirs.len());
        for dir in dirs {
            let parent = below::walk(base, &found, false).map_err(failed(found.join("/")))?;
            let is_file = |part: &String| {
                let path = found.iter().chain([part]).cloned().collect::<Vec<_>>().join("/");
                let there = match &parent {
                    Some(parent) => below::look(parent, part.as_bytes()).map_err(failed(&path))?,
                    None => None,
                };
                let given = self.names.contains(&(rule.clone(), path));
                Ok(given || matches!(there, Some(There::File(..))))
            };
            let mut n = 1;
            let mut part = dir.clone();
            while is_file(&part)? {
                n += 1;
                if n > NUMBERS {
                    return Err(Trouble::Later(format!(
                        "{NUMBERS} files are called {dir} already"
                    )));
                }
                part = numbered(dir, n);
            }
            found.push(part);
        }
        Ok(found)
    }
}

/// Why a task is not done.
enum Trouble {
    Later(String),
    Never(String),
    Corrupt(String),
    Lost(String),
}

impl From<Trouble> for ExportStep {
    fn from(trouble: Trouble) -> ExportStep {
        match trouble {
            Trouble::Later(why) => ExportStep::Later(why),
            Trouble::Never(why) => ExportStep::Never(why),
            Trouble::Corrupt(why) => ExportStep::Corrupt(why),
            Trouble::Lost(why) => ExportStep::Lost(why),
        }
    }
}

/// What went wrong with which file, in words; all of it may pass.
fn failed(path: impl std::fmt::Display) -> impl FnOnce(Errno) -> Trouble {
    move |why| {
        let why = match why {
            Errno::LOOP | Errno::NOTDIR => {
                "there is a link or a file where a directory should be".to_owned()
            }
            why => std::io::Error::from(why).to_string(),
        };
        Trouble::Later(format!("{path}: {why}"))
    }
}

impl Place {
    /// Writes the content aside, durably, and finds a name for it.
    pub(super) fn write(
        &self,
        rule: &InboxDir,
        job: &ExportJob,
        source: &dyn Source,
    ) -> ExportStep {
        locked(&self.given).give_back(job.rule, job.seq);
        let done = clean(&job.meta.name)
            .map_err(|fault| Trouble::Never(format!("hostile_name: {fault}")))
            .and_then(|parts| Ok((parts, written(rule, job, source)?)))
            .and_then(|(parts, mark)| Ok((self.find_name(rule, job, &parts)?, mark)));
        match done {
            Ok((name, mark)) => ExportStep::Named { name, mark },
            Err(trouble) => trouble.into(),
        }
    }

    /// A name that nobody has and that nobody is about to get.
    fn find_name(
        &self,
        rule: &InboxDir,
        job: &ExportJob,
        parts: &[String],
    ) -> Result<String, Trouble> {
        let base = open_base(&rule.dir)?;
        let Some((last, dirs)) = parts.split_last() else {
            return Err(Trouble::Never("hostile_name: it is empty".into()));
        };
        let mut given = locked(&self.given);
        let dirs = given.dirs(&rule.dir, &base, dirs)?;
        let parent = below::walk(&base, &dirs, false).map_err(failed(dirs.join("/")))?;
        for n in 1..=NUMBERS {
            let part = numbered(last, n);
            let name = dirs.iter().chain([&part]).cloned().collect::<Vec<_>>().join("/");
            let taken = match &parent {
                Some(dir) => below::look(dir, part.as_bytes()).map_err(failed(&name))?.is_some(),
                None => false,
            };
            let entry = (rule.dir.clone(), name.clone());
            if !taken && !given.leads_below(&entry) && given.names.insert(entry.clone()) {
                given.by.insert((job.rule, job.seq), entry);
                return Ok(name);
            }
        }
        Err(Trouble::Later(format!("{NUMBERS} files are called {last} already")))
    }

    /// Gives what was written aside its name.
    pub(super) fn place(
        &self,
        rule: &InboxDir,
        job: &ExportJob,
        name: &str,
        mark: FileMark,
    ) -> ExportStep {
        let step = placed(rule, job, name, mark);
        if !matches!(step, Err(Trouble::Later(_))) {
            locked(&self.given).give_back(job.rule, job.seq);
        }
        step.map_or_else(ExportStep::from, |()| ExportStep::Placed)
    }

    /// Removes what may lie aside.
    pub(super) fn clear(&self, rule: &InboxDir, job: &ExportJob) {
        locked(&self.given).give_back(job.rule, job.seq);
        let aside = open_base(&rule.dir).and_then(|base| open_aside(&base));
        let Ok(aside) = aside else { return };
        if let Err(why) =
            rustix::fs::unlinkat(&aside, aside_name(job.rule, job.seq), AtFlags::empty())
            && why != Errno::NOENT
        {
            let dir = rule.dir.display();
            tracing::warn!(%why, %dir, code = "CN0545", "what lies aside cannot be removed");
        }
    }
}

/// The name of what lies aside for a segment.
pub(super) fn aside_name(rule: RuleId, seq: Seq) -> String {
    format!("{:016x}-{seq}", rule.0)
}

/// The rule's directory.
fn open_base(dir: &Path) -> Result<OwnedFd, Trouble> {
    below::open(dir).map_err(failed(dir.display()))
}

fn open_aside(base: &OwnedFd) -> Result<OwnedFd, Trouble> {
    match rustix::fs::mkdirat(base, ASIDE, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(why) => return Err(failed(ASIDE)(why)),
    }
    below::enter(base, ASIDE.as_bytes()).map_err(failed(ASIDE))
}

/// The mark of a regular file.
fn mark_of(there: There) -> Option<FileMark> {
    match there {
        There::File(mark, _) => Some(mark),
        There::Directory | There::Other => None,
    }
}

fn written(rule: &InboxDir, job: &ExportJob, source: &dyn Source) -> Result<FileMark, Trouble> {
    let base = open_base(&rule.dir)?;
    let aside = open_aside(&base)?;
    let name = aside_name(job.rule, job.seq);
    match rustix::fs::unlinkat(&aside, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(why) => return Err(failed(&name)(why)),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&aside, &name, flags, Mode::from_raw_mode(0o666));
    let file = file.map_err(failed(&name))?;
    let filled = fill(&file, job, source).and_then(|()| {
        rustix::fs::fsync(&file).map_err(failed(&name))?;
        mark_of(below::of(&file).map_err(failed(&name))?)
            .ok_or_else(|| Trouble::Later("what was written is no file".into()))
    });
    if filled.is_err() {
        // It would only take room; the next try begins anew in any case.
        let _ = rustix::fs::unlinkat(&aside, &name, AtFlags::empty());
    }
    filled
}

/// Brings the content into the file: by sharing its blocks where the file system can, else by copying,
/// checked against its digest. Never a link to the store's own file.
fn fill(file: &OwnedFd, job: &ExportJob, source: &dyn Source) -> Result<(), Trouble> {
    if let Body::Blob(blob) = job.body
        && let Some(content) = source.open(blob).map_err(unreadable)?
        && cloned(file, &content, job.size)
    {
        return Ok(());
    }
    rustix::fs::ftruncate(file, 0).map_err(failed("the copy"))?;
    ask_for_room(file, job.size)?;
    let (mut hasher, mut at) = (blake3::Hasher::new(), 0);
    while at < job.size {
        let len = usize::try_from(job.size - at).unwrap_or(PIECE).min(PIECE);
        let data = source.read(job.body, at, len).map_err(unreadable)?;
        if data.is_empty() {
            return Err(Trouble::Corrupt(format!("the content ends after {at} bytes")));
        }
        hasher.update(&data);
        write_all(file, &data).map_err(failed("the copy"))?;
        at += data.len() as u64;
    }
    if *hasher.finalize().as_bytes() != job.digest.0 {
        return Err(Trouble::Corrupt("the content does not match its digest any more".into()));
    }
    Ok(())
}

/// A disk without room for it says so before it is filled, again at each try.
fn ask_for_room(file: &OwnedFd, size: u64) -> Result<(), Trouble> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size) {
        Err(why @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
            Err(failed(format!("the copy, {}", human::bytes(size)))(why))
        }
        // Where a file system cannot promise room, writing tells; nothing at all needs none.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether the file shares the blocks of the content from now on, all of them.
fn cloned(file: &OwnedFd, content: &OwnedFd, size: u64) -> bool {
    let same = |fd: &OwnedFd| matches!(below::of(fd), Ok(There::File(_, len)) if len == size);
    same(content) && rustix::fs::ioctl_ficlone(file, content.as_fd()).is_ok() && same(file)
}

fn write_all(file: &OwnedFd, mut data: &[u8]) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::write(file, data) {
            Ok(n) => data = data.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

fn unreadable(fault: StoreFault) -> Trouble {
    let text = format!("the content cannot be read: {fault}");
    match fault {
        StoreFault::Missing(_) | StoreFault::Corrupt(_) => Trouble::Corrupt(text),
        _ => Trouble::Later(text),
    }
}

fn placed(rule: &InboxDir, job: &ExportJob, name: &str, mark: FileMark) -> Result<(), Trouble> {
    // It was cleaned before it was written down.
    let parts = kept(name).ok_or_else(|| Trouble::Never(format!("hostile_name: {name:?}")))?;
    let Some((last, dirs)) = parts.split_last() else {
        return Err(Trouble::Never("hostile_name: it is empty".into()));
    };
    let base = open_base(&rule.dir)?;
    let aside = open_aside(&base)?;
    let from = aside_name(job.rule, job.seq);
    let parent = below::walk(&base, dirs, true).map_err(failed(name))?;
    let parent = parent.ok_or_else(|| Trouble::Later(format!("{name}: its directory is gone")))?;
    let lies_aside = below::look(&aside, from.as_bytes()).map_err(failed(&from))?;
    let lies_aside = lies_aside.and_then(mark_of) == Some(mark);
    match below::look(&parent, last.as_bytes()).map_err(failed(name))? {
        // It got its name before a crash.
        Some(there) if mark_of(there) == Some(mark) => {
            if lies_aside {
                rustix::fs::unlinkat(&aside, &from, AtFlags::empty()).map_err(failed(&from))?;
            }
        }
        Some(_) => return Err(Trouble::Lost(format!("{name} is there by now, and not from here"))),
        None if !lies_aside => {
            return Err(Trouble::Lost(format!("what was written for {name} is gone")));
        }
        None => rename(&aside, &from, &parent, last, name)?,
    }
    rustix::fs::fsync(&parent).map_err(failed(name))
}

fn rename(
    aside: &OwnedFd,
    from: &str,
    parent: &OwnedFd,
    last: &str,
    name: &str,
) -> Result<(), Trouble> {
    let flags = RenameFlags::NOREPLACE;
    let done = match rustix::fs::renameat_with(aside, from, parent, last, flags) {
        // Not every file system knows how; a second name replaces nothing either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(aside, from, parent, last, AtFlags::empty())
                .and_then(|()| rustix::fs::unlinkat(aside, from, AtFlags::empty()))
        }
        other => other,
    };
    match done {
        Err(Errno::EXIST) => Err(Trouble::Lost(format!("{name} is there by now"))),
        other => other.map_err(failed(name)),
    }
}
