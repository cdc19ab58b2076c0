//! `consign clock confirm`: after a step of the system clock nothing expires until somebody says that it
//! is right, or a day of it has passed.

use std::path::Path;

use clap::Subcommand;

use super::screen::standard;
use crate::admin::shapes::Clock;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};

/// What can be said of the clock.
#[derive(Subcommand, Clone, Copy, Debug)]
pub enum ClockCommand {
    /// The clock is right: what a step of it has held expires now
    Confirm,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(command: ClockCommand, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    let ClockCommand::Confirm = command;
    standard(global, |screen| {
        let clock: Clock = Api::new(socket).json("POST", "/v1/clock/confirm")?;
        if screen.is_json() {
            screen.object(&clock)?;
        } else if clock.was_held {
            screen.line("Confirmed: what has expired goes now");
        } else {
            screen.line("No step of the clock was waiting");
        }
        // Nothing to confirm is no match.
        Ok(if clock.was_held { Exit::Done } else { Exit::NoMatch })
    })
}
