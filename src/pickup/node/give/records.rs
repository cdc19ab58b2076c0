//! What rules owe, as files: a record for each rule and shard.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Owed, Rule, Shared};
use crate::exit::{Exit, Failure};
use crate::pickup::node::Tell;

impl Shared {
    /// Names of a rule's records.
    pub(super) fn left(&self, rule: &Rule) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let mine = format!("{:016x}-", rule.dir.id.0);
        for entry in rustix::fs::Dir::read_from(&self.records)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if name.starts_with(&mine) && !name.ends_with(".new") {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Says so when there are records of rules that are not there any more: nobody works them off.
    pub(super) fn strangers(&self, rules: &[Rule]) -> io::Result<()> {
        let mut all = 0;
        for entry in rustix::fs::Dir::read_from(&self.records)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            all += u64::from(!name.starts_with('.') && !name.ends_with(".new"));
        }
        let known = rules.iter().map(|rule| self.left(rule).map(|names| names.len() as u64));
        let known = known.sum::<io::Result<u64>>()?;
        if all > known {
            let text = format!(
                "{} not given out: their `[[inbox]]` rules are not in node.toml any more, or have \
                 another file or dir; the shards are on the shelf",
                crate::human::count(all - known, "shard")
            );
            self.tell(Tell::Failed(Failure::new(Exit::Failed, "CN0830", text)));
        }
        Ok(())
    }

    fn open(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.records, name, flags, Mode::from_raw_mode(0o600)).map(File::from)
    }

    pub(super) fn write(&self, name: &str, owed: &Owed) -> io::Result<()> {
        let beside = format!("{name}.new");
        let text = serde_json::to_vec(owed).map_err(io::Error::other)?;
        let mut file = self.open(&beside, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(&text)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.records, &beside, &self.records, name)?;
        Ok(rustix::fs::fsync(&self.records)?)
    }

    pub(super) fn read(&self, name: &str) -> io::Result<Option<Owed>> {
        let mut file = match self.open(name, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        serde_json::from_slice(&text).map(Some).map_err(io::Error::other)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.records, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(rustix::fs::fsync(&self.records)?),
            Err(e) => Err(e.into()),
        }
    }
}
