//! `consign stop`: the daemon finishes what is in flight and ends.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use super::screen::{Screen, standard};
use crate::admin::shapes::{Status, Stopping};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};

/// Stops the daemon: no new segments, what is in flight is finished.
#[derive(Args, Clone, Debug, Default)]
pub struct StopArgs {
    /// Waits until it has stopped
    #[arg(short, long)]
    pub wait: bool,
    /// Waits no longer than this [default: 60s]
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration, requires = "wait")]
    pub timeout: Option<Duration>,
}

/// Time between two looks whether it is still there.
const LOOK: Duration = Duration::from_millis(50);

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses, or has not stopped in time.
pub fn run(args: StopArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| {
        let mut api = Api::new(socket);
        stop(&mut api, screen)?;
        drop(api);
        if !args.wait {
            return Ok(Exit::Done);
        }
        let until = Instant::now() + args.timeout.unwrap_or(Duration::from_secs(60));
        loop {
            match Api::new(socket).json::<Status>("GET", "/v1/status") {
                Err(failure) if failure.exit == Exit::Unreachable => {
                    screen.note("Stopped");
                    return Ok(Exit::Done);
                }
                Ok(_) | Err(_) if Instant::now() >= until => {
                    let text = "it is still running when the wait ran out";
                    return Err(Failure::new(Exit::Failed, "CN0606", text));
                }
                Ok(_) | Err(_) => std::thread::sleep(LOOK),
            }
        }
    })
}

fn stop(api: &mut Api, screen: &mut Screen<'_>) -> Result<(), Failure> {
    let stopping: Stopping = api.json("POST", "/v1/stop")?;
    if screen.is_json() {
        screen.object(&stopping)
    } else {
        screen.line("Stopping  (what is in flight is finished first)");
        Ok(())
    }
}
