//! `consign serve --demo`: both sites of `consign init --demo` in one process, until each was told to stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::pair::{self, Pair, SITES};
use crate::admin::shapes::Ping;
use crate::cli::{self, Trouble};
use crate::client::Api;
use crate::cmd::{init, serve};
use crate::config::FILE_NAME;
use crate::daemon::Daemon;
use crate::daemon::signals::Caught;
use crate::exit::{Exit, Failure, Global};
use crate::{log, out};

/// How long the line about beta waits for its session with alpha.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Runs both.
///
/// # Errors
/// When there is no demo in the directory, one of the sites cannot start, or a store fails.
pub(crate) fn run(global: &Global) -> Result<Exit, Trouble> {
    if let Some(name) = &global.context {
        let message = format!("--demo runs both sites, --context {name} names one of them");
        return Err(Failure::new(Exit::Usage, "CN0002", message).into());
    }
    let dir = global.config.clone().unwrap_or_else(|| PathBuf::from(init::DEMO_DIR));
    there(&dir)?;
    let layers = || cli::layers(&serve::flags(None, global));
    let settings = pair::read(&dir, SITES[0].0, &layers())?;
    let thread = |e: std::io::Error| {
        Failure::new(Exit::Failed, "CN0514", format!("a thread cannot be started: {e}"))
    };
    let _logging = log::start(settings.log).map_err(thread)?;
    if super::in_memory(&dir) {
        let text = "which forgets everything; a real site refuses such a place, the demo forces it";
        out::note(&format!("{} is in memory (tmpfs), {text}", dir.display()));
    }
    let signals = Caught::catch().map_err(thread)?;
    let both = Pair::start(&dir, [layers(), layers()])?;
    let stopping = Arc::new(AtomicBool::new(false));
    let asked = stopping.clone();
    let stoppers = [both.alpha.stopper(), both.beta.stopper()];
    let stop = move || {
        asked.store(true, Ordering::SeqCst);
        out::note("stopping: what is in flight is finished first, a second signal cuts it");
        stoppers.iter().for_each(|site| site.stop());
    };
    signals.on_stop(stop);
    let rereaders = [both.alpha.rereader(), both.beta.rereader()];
    let reread = move || rereaders.iter().for_each(|rereader| rereader.ask());
    signals.on_reload(reread);
    out::note(&line(&both.alpha));
    let session = session(&both.beta, SITES[0].0);
    out::note(&format!("{}{session}", line(&both.beta)));
    let ended = both.wait(&|name, ended, last| match ended {
        Err(failure) => out::failure(failure, global.json),
        Ok(_) if last || stopping.load(Ordering::SeqCst) => {}
        Ok(_) => out::note(&format!("{name} has stopped; the other goes on until Ctrl-C")),
    });
    // A failure was told when it happened.
    Ok(ended.map_or_else(|failure| failure.exit, |()| Exit::Done))
}

/// Whether `init --demo` has been here.
fn there(dir: &Path) -> Result<(), Failure> {
    let missing = SITES.iter().find(|(name, _)| !dir.join(name).join(FILE_NAME).is_file());
    let Some((name, _)) = missing else { return Ok(()) };
    let message = format!("there is no demo at {}: no {name}/{FILE_NAME}", dir.display());
    let help = "`consign init --demo` makes one here; `-c DIR` names one elsewhere";
    Err(Failure::new(Exit::Config, "CN0594", message).help(help))
}

/// The line of a site that takes work; names and runtimes of both are as wide.
fn line(site: &Daemon) -> String {
    let line = site.ready().line();
    let (name, runtime) = (&site.ready().name, site.ready().runtime.word());
    let rest = line.strip_prefix(name.as_str()).unwrap_or(&line);
    format!("{name:<5}{rest}")
        .replace(&format!("runtime={runtime} "), &format!("runtime={runtime:<4} "))
}

/// What is to be said of its session with the other; nothing if there is none yet.
fn session(site: &Daemon, with: &str) -> String {
    let (mut api, until) = (Api::new(site.admin()), Instant::now() + PATIENCE);
    while Instant::now() < until {
        let ping = api.json::<Ping>("POST", &format!("/v1/peers/{with}/ping?wait=1"));
        if let Some(seconds) = ping.ok().and_then(|ping| ping.rtt_seconds) {
            return format!("  (peer {with} connected, tls=1.3, rtt={:.1}ms)", seconds * 1000.0);
        }
        std::thread::sleep(LOOK);
    }
    String::new()
}
