//! `consign stop`: the daemon finishes what is in flight and ends.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::screen::{Progress, Screen, standard};
use crate::admin::shapes::{Status, Stopping};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};

/// Stops the site: no new segments, what is in flight is finished.
#[derive(Args, Clone, Debug, Default)]
pub struct StopArgs {
    /// Waits until it has stopped
    #[arg(short, long)]
    pub wait: bool,
    /// Waits no longer than this [default: 60s]
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration, requires = "wait")]
    pub timeout: Option<Duration>,
}

/// Time between two looks whether it still answers.
const LOOK: Duration = Duration::from_millis(20);
/// How long the process may live on after it has ceased to answer: it may be home to other sites, or the
/// number that it goes by here may be somebody else's.
const AFTERLIFE: Duration = Duration::from_secs(10);

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses, or has not stopped in time.
pub fn run(args: StopArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| {
        let stopping = stop(&mut Api::new(socket), screen)?;
        if args.wait {
            let timeout = args.timeout.unwrap_or(Duration::from_secs(60));
            let mut progress = Progress::new(screen, "Stopping", None);
            let waited = wait(&stopping, Instant::now() + timeout, || {
                progress.show(screen, 0, (0, 0));
                Api::new(socket).json::<Status>("GET", "/v1/status").map(drop)
            });
            progress.done();
            waited?;
            screen.note("Stopped");
        }
        Ok(Exit::Done)
    })
}

fn stop(api: &mut Api, screen: &mut Screen<'_>) -> Result<Stopping, Failure> {
    let stopping: Stopping = api.json("POST", "/v1/stop")?;
    if screen.is_json() {
        screen.object(&stopping)?;
    } else {
        screen.line("Stopping  (what is in flight is finished first)");
    }
    Ok(stopping)
}

/// Waits until nobody answers any more, and then for the end of the process, which lets go of the data.
fn wait(
    stopping: &Stopping,
    until: Instant,
    mut asks: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let process = process(stopping.pid);
    loop {
        match asks() {
            Err(failure) if failure.exit == Exit::Unreachable => break,
            Ok(()) | Err(_) if Instant::now() >= until => {
                let text = "it is still running when the wait ran out";
                return Err(Failure::new(Exit::Failed, "CN0606", text));
            }
            Ok(()) | Err(_) => thread::sleep(LOOK),
        }
    }
    if let Some(process) = process {
        let left = until.saturating_duration_since(Instant::now()).min(AFTERLIFE);
        let time =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        // However this ends, the site is gone.
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&time));
    }
    Ok(())
}

/// A handle on a process, which stays that process's; `None` when it has ended or cannot be watched.
fn process(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(test)]
mod tests;
