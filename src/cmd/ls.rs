//! `consign ls`: segments and where they stand.

use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use consign_core::http::encode_component;

use super::complete;
use super::screen::{Progress, Screen, standard};
use crate::admin::ledger::Word;
use crate::admin::shapes::{Segment, Segments};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Segments of a page that is asked for.
const PAGE: u64 = 500;

/// Lists segments in the order they were accepted.
#[derive(Args, Clone, Debug, Default)]
pub struct LsArgs {
    /// Only those with a delivery to this peer
    #[arg(long, value_name = "PEER", add = complete::peers())]
    pub peer: Option<String>,
    /// Only those with a delivery in this state: queued, sending, backing-off, held, delivered, dead
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub state: Option<String>,
    /// Only those that nobody is left to have: what was owed was purged, forgotten, or refused as relayed
    #[arg(long)]
    pub unplaced: bool,
    /// Only those accepted longer ago than this, such as 2h
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    pub older: Option<Duration>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value = "100")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "all")]
    pub limit: u64,
    /// All of them
    #[arg(short, long)]
    pub all: bool,
    /// Behind the segment with this accept number
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
}

fn state(text: &str) -> Result<String, String> {
    let word =
        Word::parse(text).ok_or("it is queued, sending, backing-off, held, delivered or dead")?;
    Ok(word.text().into())
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(args: LsArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| list(&args, &mut Api::new(socket), screen, SystemTime::now()))
}

fn list(
    args: &LsArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let limit = if args.all { u64::MAX } else { args.limit };
    let (mut after, mut shown) = (args.after, 0);
    let mut rows = Vec::new();
    let (mut progress, mut seen) = (Progress::new(screen, "Listing", None), 0);
    let more = loop {
        let page: Segments = api.json("GET", &target(args, after, (limit - shown).min(PAGE)))?;
        for segment in page.segments.iter().filter(|s| fits(s, args, now)) {
            shown += 1;
            if screen.is_json() {
                screen.object(segment)?;
            } else {
                rows.push(row(segment, now));
            }
        }
        seen += page.segments.len() as u64;
        progress.show(screen, 0, (seen, 0));
        match page.next {
            None => break None,
            Some(next) if shown >= limit => break Some(next),
            Some(next) => after = Some(next),
        }
    };
    progress.done();
    if !screen.is_json() && !rows.is_empty() {
        screen.line(human::table(&HEAD, &rows).trim_end());
    }
    if let Some(next) = more {
        screen.note(&format!(
            "the oldest are shown; newer ones follow with --after {next}, or --all"
        ));
    }
    let filtered =
        args.peer.is_some() || args.state.is_some() || args.older.is_some() || args.unplaced;
    match (shown, filtered) {
        (0, true) => {
            screen.note("no segment matches");
            Ok(Exit::NoMatch)
        }
        (0, false) => {
            screen.note("no segments");
            Ok(Exit::Done)
        }
        _ => Ok(Exit::Done),
    }
}

fn target(args: &LsArgs, after: Option<u64>, limit: u64) -> String {
    let mut target = format!("/v1/segments?limit={limit}");
    if let Some(after) = after {
        target.push_str(&format!("&after={after}"));
    }
    for (key, value) in [("state", &args.state), ("peer", &args.peer)] {
        if let Some(value) = value {
            target.push_str(&format!("&{key}="));
            encode_component(value, &mut target);
        }
    }
    target
}

fn fits(segment: &Segment, args: &LsArgs, now: SystemTime) -> bool {
    (segment.unplaced || !args.unplaced) && is_older(segment, args.older, now)
}

fn is_older(segment: &Segment, older: Option<Duration>, now: SystemTime) -> bool {
    let age = human::moment(&segment.accepted_at).and_then(|at| now.duration_since(at).ok());
    older.is_none_or(|older| age.is_some_and(|age| age >= older))
}

const HEAD: [(&str, Align); 6] = [
    ("ID", Align::Left),
    ("NAME", Align::Left),
    ("SIZE", Align::Right),
    ("AGE", Align::Right),
    ("FROM", Align::Left),
    ("DELIVERIES", Align::Left),
];

fn row(segment: &Segment, now: SystemTime) -> Vec<String> {
    let age = human::ago(&segment.accepted_at, now);
    let from = if segment.origin.is_empty() { "here" } else { &segment.origin };
    vec![
        short(&segment.id),
        segment.name.clone(),
        human::bytes(segment.size),
        age.trim_end_matches(" ago").into(),
        from.into(),
        deliveries(segment),
    ]
}

/// The first 12 digits of an id.
pub(super) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// `beta delivered, gamma backing off (ack_timeout)`.
fn deliveries(segment: &Segment) -> String {
    let damaged = segment.damaged.then(|| "content damaged or gone".to_string());
    if segment.deliveries.is_empty() {
        return damaged.unwrap_or_else(|| if segment.here { "stays here" } else { "none" }.into());
    }
    let each = segment.deliveries.iter().map(|delivery| {
        let state = format!("{} {}", delivery.peer, delivery.state);
        match &delivery.last_error {
            Some(error) if delivery.state != "delivered" => format!("{state} ({error})"),
            Some(_) | None => state,
        }
    });
    damaged.into_iter().chain(each).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
