//! The two sites of a demo: how they are made, and how they run side by side in one process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_core::driver::Ended;

use crate::cli::Trouble;
use crate::cmd::init::{self, InitArgs, Plan, Report};
use crate::config::template::quote;
use crate::config::{self, FILE_NAME, Layers, Runtime, Settings};
use crate::daemon::{Daemon, Overrides};
use crate::exit::{Exit, Failure};

/// Their names, each with its runtime: one on each.
pub(crate) const SITES: [(&str, Runtime); 2] = [("alpha", Runtime::Smol), ("beta", Runtime::Std)];

/// A new or empty directory, made if need be.
///
/// # Errors
/// When it is not empty, or cannot be made.
pub(crate) fn directory(dir: &Path) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let failed = |e: &dyn std::fmt::Display| {
        Failure::new(Exit::Failed, "CN0530", format!("{} cannot be used: {e}", dir.display()))
    };
    if dir.is_dir() {
        let mut entries = std::fs::read_dir(dir).map_err(|e| failed(&e))?;
        if entries.next().is_some() {
            return Err(failed(&"it is not empty").help("give the demo a directory of its own"));
        }
    } else {
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o700).recursive(true).create(dir).map_err(|e| failed(&e))?;
    }
    std::path::absolute(dir).map_err(|e| failed(&e))
}

/// Makes both in a directory of their own, with one authority: each knows the other at its address.
///
/// # Errors
/// When one cannot be made; nothing is left of the other then.
pub(crate) fn make(
    dir: &Path,
    at: [SocketAddr; 2],
    lasts: Option<Duration>,
) -> Result<[(Plan, Report); 2], Failure> {
    let (alpha, _) = SITES[0];
    let one = |i: usize, ca: Option<PathBuf>| {
        let ((name, runtime), other) = (SITES[i], 1 - i);
        init::make(&InitArgs {
            dir: Some(dir.join(name)),
            name: Some(name.to_owned()),
            listen: Some(at[i]),
            peer: vec![format!("{}={}", SITES[other].0, at[other])],
            ca,
            lasts,
            set: settings(runtime),
            ..InitArgs::default()
        })
    };
    let first = one(0, None)?;
    let second = one(1, Some(dir.join(alpha))).inspect_err(|_| unmake(dir))?;
    Ok([first, second])
}

/// Removes what was just made, and the directory if nothing else is in it.
pub(crate) fn unmake(dir: &Path) {
    for (name, _) in SITES {
        let _ = std::fs::remove_dir_all(dir.join(name));
    }
    let _ = std::fs::remove_dir(dir);
}

/// What their configurations say besides: a demo is to run on small disks, and what it shows is not to be lost among
/// lines of the log.
fn settings(runtime: Runtime) -> Vec<(&'static str, String)> {
    vec![
        ("node.runtime", quote(runtime.word())),
        ("storage.min_free", quote("16MiB")),
        ("limits.ballast", quote("1MiB")),
        ("log.level", quote("warn")),
        ("log.format", quote("text")),
    ]
}

/// Reads the configuration of a site.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn read(dir: &Path, name: &str, layers: &Layers) -> Result<Settings, Trouble> {
    Ok(config::load(&dir.join(name).join(FILE_NAME), layers)?)
}

/// Told the name of a site that has ended, how, and whether it was the last.
pub(crate) type Tell<'t> = dyn Fn(&str, &Result<Ended, Failure>, bool) + Sync + 't;

/// Both at work.
pub(crate) struct Pair {
    /// Sends, mostly.
    pub(crate) alpha: Daemon,
    /// Gets it.
    pub(crate) beta: Daemon,
}

impl Pair {
    /// Starts both; what stands above their files is given for each.
    ///
    /// # Errors
    /// When one cannot be started; none runs then.
    pub(crate) fn start(dir: &Path, layers: [Layers; 2]) -> Result<Pair, Trouble> {
        let [of_alpha, of_beta] = layers;
        let [(alpha, _), (beta, _)] = SITES;
        let alpha = start(&read(dir, alpha, &of_alpha)?, of_alpha)?;
        let beta = match read(dir, beta, &of_beta).and_then(|read| Ok(start(&read, of_beta)?)) {
            Ok(beta) => beta,
            Err(trouble) => {
                alpha.stop();
                alpha.wait()?;
                return Err(trouble);
            }
        };
        Ok(Pair { alpha, beta })
    }

    /// One of them by its name.
    pub(crate) fn site(&self, name: &str) -> &Daemon {
        if name == SITES[0].0 { &self.alpha } else { &self.beta }
    }

    /// Asks both to drain and stop.
    pub(crate) fn stop(&self) {
        self.alpha.stop();
        self.beta.stop();
    }

    /// Waits for the end of both; each is told as soon as it has ended.
    ///
    /// # Errors
    /// The first failure of a store.
    pub(crate) fn wait(self, tell: &Tell<'_>) -> Result<(), Failure> {
        let left = std::sync::atomic::AtomicUsize::new(2);
        let one = |daemon: Daemon| {
            let name = daemon.ready().name.clone();
            let ended = daemon.wait();
            let last = left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1;
            tell(&name, &ended, last);
            ended
        };
        let Pair { alpha, beta } = self;
        let ended = std::thread::scope(|scope| {
            let first = scope.spawn(|| one(alpha));
            let second = one(beta);
            let crashed = |_| Failure::new(Exit::Failed, "CN0530", "a waiting thread crashed");
            [first.join().map_err(crashed).flatten(), second]
        });
        ended.into_iter().try_for_each(|ended| ended.map(drop))
    }
}

fn start(settings: &Settings, layers: Layers) -> Result<Daemon, Failure> {
    Daemon::start(settings, Overrides { force_fs: true, layers, ..Overrides::default() })
}
