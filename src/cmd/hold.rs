//! `consign hold`, `unhold` and `release`: segments held back, let loose, let go.

use std::path::Path;

use clap::Args;

use super::acts::{self, Chosen};
use super::screen::standard;
use crate::admin::acts::ActRequest;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};

/// Which segments are held, or let loose.
#[derive(Args, Clone, Debug, Default)]
pub struct HoldArgs {
    #[command(flatten)]
    chosen: Chosen,
}

/// Which segments are let go.
#[derive(Args, Clone, Debug, Default)]
pub struct ReleaseArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Also those that are still owed to others: these deliveries are given up for good
    #[arg(long)]
    force: bool,
}

/// Holds segments.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn hold(args: HoldArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    change(&args.chosen, "hold", false, global, socket)
}

/// Lets segments loose.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn unhold(args: HoldArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    change(&args.chosen, "unhold", false, global, socket)
}

/// Lets segments go.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn release(args: ReleaseArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    change(&args.chosen, "release", args.force, global, socket)
}

fn change(
    chosen: &Chosen,
    action: &str,
    force: bool,
    global: &Global,
    socket: &Path,
) -> Result<Exit, Failure> {
    standard(global, |screen| {
        let request = chosen.request(action, None, &mut std::io::stdin().lock())?;
        if chosen.is_nothing(&request) {
            screen.note("no ids on standard input");
            return Ok(Exit::NoMatch);
        }
        let request = ActRequest { force, ..request };
        let acted = acts::act(&mut Api::new(socket), &request, screen)?;
        acts::told(&acted, screen)
    })
}
