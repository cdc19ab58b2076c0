//! `consign fsck`: checks a data directory that no site runs on, and mends it.
//!
//! LMDB touches pages through a map, and a damaged one can end the process that reads it. So the work is
//! done in a process of its own, and its end is a report like any other.

mod codes;
mod mend;
mod tell;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use consign_storage_lmdb::{Offline, OpenError, OpenOptions};
use rustix::process::Signal;

use super::screen::standard;
use crate::cli::{self, Trouble};
use crate::config::{self, Settings};
use crate::daemon::not_opened;
use crate::exit::{Exit, Failure, Global};
use mend::Work;

/// Checks a data directory and says what is wrong. Changes nothing unless asked to: a copy on a read-only
/// file system will do. The site must not run meanwhile.
#[derive(Args, Clone, Debug, Default)]
pub struct FsckArgs {
    /// The data directory, or that of a site with its consign.toml [default: node.data_dir of the
    /// configuration]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Mends what can be mended; what cannot be read is set aside, nothing that may be the only copy of
    /// something is deleted
    #[arg(long)]
    pub repair: bool,
    /// The ledger is an older copy: lets all its counters jump and sets newer files aside
    #[arg(long)]
    pub restored: bool,
    /// Writes the ledger anew without its free pages
    #[arg(long)]
    pub compact: bool,
    /// Reads all content and compares it with its digests
    #[arg(long)]
    pub content: bool,
    /// Takes a data directory on a file system that cannot keep a ledger
    #[arg(long)]
    pub force_fs: bool,
    /// How many findings are told one by one
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub show: u64,
    /// The process that does it
    #[arg(long, hide = true)]
    pub in_process: bool,
}

impl FsckArgs {
    fn changes(&self) -> bool {
        self.repair || self.restored || self.compact
    }
}

/// Runs it.
///
/// # Errors
/// When the directory cannot be opened, is in use, or cannot be read any further.
pub fn run(args: &FsckArgs, global: &Global) -> Result<Exit, Trouble> {
    if !args.in_process {
        return Ok(in_a_child()?);
    }
    // Whoever is asked to stop means both: a repair that goes on unseen would hold the lock.
    if let Err(why) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        tracing::debug!(%why, "this process cannot end with the one that asked");
    }
    let (dir, names) = place(args, global)?;
    let mut options = OpenOptions::new(&dir);
    options.force_fs = args.force_fs;
    let opened = match args.changes() {
        true => Offline::to_repair(&options),
        false => Offline::to_read(&options),
    };
    let store = opened.map_err(|why| refused(&why))?;
    Ok(standard(global, |screen| Work::new(args, store, names).run(screen))?)
}

/// The directory, and the names of the sites that its configuration knows.
fn place(args: &FsckArgs, global: &Global) -> Result<(PathBuf, Vec<String>), Trouble> {
    match (&args.dir, &global.config) {
        // A directory on its own: a copy needs no configuration.
        (Some(dir), None) if global.context.is_none() => match of_site(dir) {
            Some(file) => {
                let settings = config::load(&file, &cli::layers(&[]))?;
                within(dir, &settings.data_dir)?;
                Ok((settings.data_dir.clone(), names(&settings)))
            }
            None => Ok((dir.clone(), Vec::new())),
        },
        (dir, _) => {
            let settings = cli::settings(global, &[])?;
            let names = names(&settings);
            Ok((dir.clone().unwrap_or(settings.data_dir), names))
        }
    }
}

fn names(settings: &Settings) -> Vec<String> {
    settings.node.peers.iter().map(|peer| peer.name.clone()).collect()
}

/// The configuration of a site whose directory was named instead of its data directory, as `-c` takes it.
fn of_site(dir: &Path) -> Option<PathBuf> {
    let file = dir.join("consign.toml");
    (!dir.join("ledger").exists() && file.is_file()).then_some(file)
}

/// A copy of a site must not lead to the site itself: what is checked lies in what was named.
fn within(dir: &Path, data_dir: &Path) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.into());
    if real(data_dir).starts_with(real(dir)) {
        return Ok(());
    }
    let (dir, data) = (dir.display(), data_dir.display());
    let message = format!("{dir} is the directory of a site whose data is elsewhere: {data}");
    let help = format!("name that one: consign fsck {data}");
    Err(Failure::new(Exit::Config, "CN0520", message).help(help))
}

/// Runs the same command line once more, to do the work.
fn in_a_child() -> Result<Exit, Failure> {
    let failed = |why: std::io::Error| {
        let message = format!("the process that checks cannot be started: {why}");
        Failure::new(Exit::Failed, "CN0931", message)
    };
    let program = std::env::current_exe().map_err(failed)?;
    let args = std::env::args_os().skip(1);
    let status = Command::new(program).args(args).arg("--in-process").status().map_err(failed)?;
    // A page that cannot be read ends it by a signal of its own; these come from outside.
    let outside = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::KILL, Signal::TERM];
    let signal = status.signal();
    if let Some(signal) = signal.filter(|ended| outside.iter().any(|s| s.as_raw() == *ended)) {
        let message = format!("the process that checks was ended from outside, by signal {signal}");
        let help = "run it once more: a repair that was cut off is gone on with";
        return Err(Failure::new(Exit::Failed, "CN0931", message).help(help));
    }
    if let Some(signal) = signal {
        let message = format!(
            "pages of the ledger cannot be read: the process that read them ended by signal {signal}"
        );
        let help = "put a copy of the ledger back, then: consign fsck --restored";
        return Err(Failure::new(Exit::Failed, codes::PAGES, message).help(help));
    }
    let known = [
        Exit::Done,
        Exit::Usage,
        Exit::Partly,
        Exit::StoreFailed,
        Exit::TryLater,
        Exit::NotPermitted,
        Exit::Config,
    ];
    let exit = known.into_iter().find(|exit| status.code() == Some(i32::from(*exit as u8)));
    Ok(exit.unwrap_or(Exit::Failed))
}

fn refused(why: &OpenError) -> Failure {
    let failure = not_opened(why);
    match why {
        OpenError::Locked { .. } => Failure { exit: Exit::TryLater, ..failure }
            .help("`consign stop` it first; while it runs it checks its content by itself"),
        OpenError::FileSystem { .. } => failure.help("`--force-fs` takes it all the same"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_site_stands_for_its_data_directory() {
        let root = tempfile::tempdir().unwrap();
        let (site, data) = (root.path().join("site"), root.path().join("site/data"));
        std::fs::create_dir_all(data.join("ledger")).unwrap();
        assert_eq!(of_site(&site), None, "no configuration");
        std::fs::write(site.join("consign.toml"), "").unwrap();
        assert_eq!(of_site(&site), Some(site.join("consign.toml")));
        std::fs::write(data.join("consign.toml"), "").unwrap();
        assert_eq!(of_site(&data), None, "it is a data directory itself");
        assert_eq!(within(&site, &data), Ok(()));
        let elsewhere = within(&site, root.path()).unwrap_err();
        assert_eq!((elsewhere.exit, elsewhere.code), (Exit::Config, "CN0520"));
        assert!(elsewhere.help.starts_with("name that one: consign fsck "), "{elsewhere}");
    }
}
