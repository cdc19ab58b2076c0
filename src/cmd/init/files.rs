//! Files that `init` makes: never over existing ones, and all of them or none.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::config::FILE_NAME;
use crate::exit::{Exit, Failure};

/// Name of the data directory.
pub(super) const DATA: &str = "data";

/// What was made so far; taken back when it is dropped before [`Made::keep`].
#[derive(Debug)]
pub(super) struct Made {
    dir: PathBuf,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    kept: bool,
}

impl Made {
    /// Makes the directories, after looking whether anything is in the way; `bare` is without configuration and data.
    pub(super) fn begin(dir: &Path, own_authority: bool, bare: bool) -> Result<Made, Failure> {
        let authority: &[&str] = if own_authority { &["ca.key"] } else { &[] };
        let names = ["ca.pem", "node.key", "node.pem"];
        let config: &[&str] = if bare { &[] } else { &[FILE_NAME] };
        let mut there: Vec<String> = names
            .iter()
            .chain(authority)
            .chain(config)
            .map(|name| dir.join(name))
            .filter(|path| path.symlink_metadata().is_ok())
            .map(|path| path.display().to_string())
            .collect();
        let data = dir.join(DATA);
        if !bare && data.symlink_metadata().is_ok() && !is_empty_dir(&data) {
            there.push(data.display().to_string());
        }
        if !there.is_empty() {
            let verb = if there.len() == 1 { "is" } else { "are" };
            let message = format!("{} {verb} already there; nothing was changed", there.join(", "));
            let help = "init never overwrites: give another directory";
            return Err(Failure::new(Exit::Failed, "CN0322", message).help(help));
        }
        let mut made =
            Made { dir: dir.to_path_buf(), files: Vec::new(), dirs: Vec::new(), kept: false };
        made.make_dir(dir, 0o755)?;
        if !bare {
            made.make_dir(&data, 0o700)?;
        }
        Ok(made)
    }

    fn make_dir(&mut self, dir: &Path, mode: u32) -> Result<(), Failure> {
        if dir.is_dir() {
            return Ok(());
        }
        if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
            self.make_dir(parent, 0o755)?;
        }
        DirBuilder::new().mode(mode).create(dir).map_err(|e| failure(dir, &e))?;
        self.dirs.push(dir.to_path_buf());
        Ok(())
    }

    /// Writes a file that everybody may read.
    pub(super) fn public(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        self.write(name, text, 0o644)
    }

    /// Writes a file that only its owner may read.
    pub(super) fn secret(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        self.write(name, text, 0o600)
    }

    fn write(&mut self, name: &str, text: &str, mode: u32) -> Result<(), Failure> {
        let path = self.dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        let mut file = file.map_err(|e| failure(&path, &e))?;
        self.files.push(path.clone());
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|e| failure(&path, &e))
    }

    /// Everything is there: nothing is taken back.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
        for dir in self.dirs.iter().rev() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

fn failure(path: &Path, e: &io::Error) -> Failure {
    let message = format!("{} could not be made: {e}; nothing was left behind", path.display());
    Failure::new(Exit::Failed, "CN0323", message)
}

fn is_empty_dir(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}
