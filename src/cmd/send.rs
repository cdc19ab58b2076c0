//! `consign send`: files, directories or standard input into the daemon, and the wait for their arrival.

mod batch;
mod dry;
mod feed;
mod hands;
mod pace;
mod wait;
mod waits;
mod walk;
mod words;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use consign_core::segment::{Class, is_site_name};

pub use dry::WouldSend;

use super::complete;
use super::screen::{Screen, standard};
use crate::admin::shapes::Status;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};

/// Hands segments in; they are safe on disk when it says "Queued".
#[derive(Args, Clone, Debug, Default)]
pub struct SendArgs {
    /// Files, directories (every file below, named by its path there), or - for standard input
    #[arg(required = true, value_name = "PATH|-")]
    pub paths: Vec<PathBuf>,
    /// Where to; may be repeated or a list with commas [default: every known peer]
    #[arg(long, value_name = "PEER", value_delimiter = ',', value_parser = peer, add = complete::destinations())]
    pub to: Vec<String>,
    /// Waits until everything has arrived
    #[arg(short, long)]
    pub wait: bool,
    /// Waits no longer than this
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration, requires = "wait")]
    pub timeout: Option<Duration>,
    /// Name of the segment [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = label)]
    pub labels: Vec<String>,
    /// Media type, such as image/png
    #[arg(long = "type", value_name = "TYPE")]
    pub content_type: Option<String>,
    /// urgent, high, normal or bulk
    #[arg(long, value_name = "CLASS", value_parser = class)]
    pub priority: Option<String>,
    /// Not worth delivering after this, such as 2d
    #[arg(long, value_name = "D", value_parser = expiry)]
    pub expires: Option<Duration>,
    /// Sends it once more although it was sent before
    #[arg(long)]
    pub again: bool,
    /// Hands in no faster than this a second, such as 2MiB; at least 16KiB. Only the way to this site: what
    /// the site then sends is bounded by `rate_limit` of a peer
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub limit: Option<u64>,
    /// Says what would be sent and sends nothing
    #[arg(short = 'n', long, conflicts_with_all = ["wait", "limit"])]
    pub dry_run: bool,
}

fn rate(text: &str) -> Result<u64, String> {
    let rate = crate::config::units::parse_size(text)?;
    let slowest = "it is slower than 16KiB a second, at which a site may give up waiting";
    if rate < pace::SLOWEST { Err(slowest.into()) } else { Ok(rate) }
}

fn peer(text: &str) -> Result<String, String> {
    if text == "*" || is_site_name(text) {
        Ok(text.into())
    } else {
        Err("no site has such a name".into())
    }
}

fn label(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.into()),
        Some(_) | None => Err("it is not KEY=VALUE".into()),
    }
}

fn class(text: &str) -> Result<String, String> {
    let class = Class::from_word(text).ok_or("it is urgent, high, normal or bulk")?;
    Ok(class.word().into())
}

fn expiry(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_secs(1) { Err("it is shorter than 1s".into()) } else { Ok(time) }
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached, and when the only thing to be sent is refused. With several things
/// failures are told one by one and the exit code says that something failed.
pub fn run(args: SendArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    check(&args)?;
    standard(global, |screen| send(&args, socket, screen))
}

fn check(args: &SendArgs) -> Result<(), Failure> {
    let usage = |text: &str| Err(Failure::new(Exit::Usage, "CN0624", text));
    let inputs = args.paths.iter().filter(|p| p.as_os_str() == "-").count();
    if inputs > 1 {
        return usage("standard input can be sent once only");
    }
    if args.name.is_some() && args.paths.len() > 1 {
        return usage("--name is for one thing; several were given");
    }
    if args.name.is_some() && args.paths.iter().any(|p| p.is_dir()) {
        return usage("--name is for one thing; a directory was given");
    }
    if inputs == 1 && args.name.is_none() {
        return usage("standard input needs a name: --name NAME");
    }
    Ok(())
}

fn send(args: &SendArgs, socket: &Path, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let mut api = Api::new(socket);
    let status: Status = api.json("GET", "/v1/status")?;
    if status.stopping {
        let text = format!("{} is stopping and takes nothing more", status.name);
        return Err(Failure::new(Exit::TryLater, "CN0610", text));
    }
    if args.dry_run {
        return dry::run(args, &status, screen);
    }
    let mut tally = hands::hand_in(args, socket, &status, screen)?;
    if tally.accepted == 0 && tally.failed == 0 {
        return Err(Failure::new(Exit::NoMatch, "CN0623", "there is nothing to send"));
    }
    if args.wait {
        let until = args.timeout.map(|time| Instant::now() + time);
        let waited = wait::all(&mut api, std::mem::take(&mut tally.waiting), until, screen)?;
        tally.failed += waited.dead;
        tally.accepted -= waited.dead.min(tally.accepted);
        if waited.still_queued > 0 {
            return Ok(Exit::StillQueued);
        }
    }
    Ok(match (tally.accepted, tally.failed) {
        (_, 0) => Exit::Done,
        (0, _) => tally.exit,
        _ => Exit::Partly,
    })
}

#[cfg(test)]
mod tests;
