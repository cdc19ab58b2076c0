//! `consign deadletter`: what was given up, by reason and peer; queued again; deleted.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use consign_core::http::encode_component;

use super::acts::{self, Chosen};
use super::complete;
use super::ls::short;
use super::screen::{Progress, Screen, standard};
use crate::admin::lists::{Deadletter, DeadletterGroups, Deadletters, Group};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Dead letters of a page that is asked for.
const PAGE: u64 = 500;

/// Lists dead letters, queues them again, deletes them.
#[derive(Subcommand, Clone, Debug)]
pub enum DeadletterCommand {
    /// Lists them, oldest first, or counts them by reason and peer
    Ls(DeadArgs),
    /// Queues them again with a fresh allowance of retries
    Retry(RetryArgs),
    /// Deletes them for good: nobody will send these to these peers any more. The content stays until
    /// `consign release`
    Purge(PurgeArgs),
}

/// Which dead letters are listed.
#[derive(Args, Clone, Debug, Default)]
pub struct DeadArgs {
    /// Counts them in groups, with what may help
    #[arg(long, value_enum, value_name = "WHAT")]
    pub by: Option<By>,
    /// Only those for this peer
    #[arg(long, value_name = "PEER", add = complete::peers())]
    pub peer: Option<String>,
    /// Only those for this reason, such as too_large
    #[arg(long, value_name = "REASON", value_parser = acts::reason)]
    pub reason: Option<String>,
    /// Only those given up longer ago than this, such as 2h
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    pub older: Option<Duration>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value = "100")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "all")]
    pub limit: u64,
    /// All of them
    #[arg(short, long)]
    pub all: bool,
}

/// What groups are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// By reason, then peer
    Reason,
    /// By peer, then reason
    Peer,
}

/// What is queued again.
#[derive(Args, Clone, Debug, Default)]
pub struct RetryArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Only those for this reason, such as too_large
    #[arg(long, value_name = "REASON", value_parser = acts::reason)]
    reason: Option<String>,
}

/// What is deleted.
#[derive(Args, Clone, Debug, Default)]
pub struct PurgeArgs {
    #[command(flatten)]
    chosen: Chosen,
    /// Only those for this reason, such as too_large
    #[arg(long, value_name = "REASON", value_parser = acts::reason)]
    reason: Option<String>,
    /// Without asking
    #[arg(short, long)]
    yes: bool,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses, or a purge is not confirmed.
pub fn run(command: DeadletterCommand, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| {
        let mut api = Api::new(socket);
        match command {
            DeadletterCommand::Ls(args) => match args.by {
                None => list(&args, &mut api, screen, SystemTime::now()),
                Some(by) => count(&args, by, &mut api, screen, SystemTime::now()),
            },
            DeadletterCommand::Retry(args) => {
                change(&args.chosen, "retry", args.reason.as_deref(), true, &mut api, screen)
            }
            DeadletterCommand::Purge(args) => {
                change(&args.chosen, "purge", args.reason.as_deref(), args.yes, &mut api, screen)
            }
        }
    })
}

fn change(
    chosen: &Chosen,
    action: &str,
    reason: Option<&str>,
    sure: bool,
    api: &mut Api,
    screen: &mut Screen<'_>,
) -> Result<Exit, Failure> {
    let request = chosen.request(action, reason, &mut std::io::stdin().lock())?;
    if chosen.is_nothing(&request) {
        screen.note("no ids on standard input");
        return Ok(Exit::NoMatch);
    }
    if !sure && request.ids.is_empty() && !request.dry_run {
        acts::confirm(api, &request, action, screen)?;
    }
    let acted = acts::act(api, &request, screen)?;
    acts::told(&acted, screen)
}

fn target(args: &DeadArgs, path: &str, limit: Option<u64>, after: Option<&str>) -> String {
    let mut target = format!("/v1/{path}");
    let mut sign = '?';
    let older = args.older.map(|older| older.as_secs().to_string());
    let limit = limit.map(|limit| limit.to_string());
    let all = [
        ("limit", limit.as_deref()),
        ("after", after),
        ("peer", args.peer.as_deref()),
        ("reason", args.reason.as_deref()),
        ("older", older.as_deref()),
    ];
    for (key, value) in all {
        if let Some(value) = value {
            target.push_str(&format!("{sign}{key}="));
            encode_component(value, &mut target);
            sign = '&';
        }
    }
    target
}

fn list(
    args: &DeadArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let most = if args.all { u64::MAX } else { args.limit };
    let (mut after, mut shown, mut rows): (Option<String>, u64, _) = (None, 0, Vec::new());
    let mut progress = Progress::new(screen, "Listing", None);
    let more = loop {
        let limit = Some((most - shown).min(PAGE));
        let page: Deadletters =
            api.json("GET", &target(args, "deadletters", limit, after.as_deref()))?;
        for dead in &page.deadletters {
            shown += 1;
            if screen.is_json() {
                screen.object(dead)?;
            } else {
                rows.push(row(dead, now));
            }
        }
        progress.show(screen, 0, (shown, 0));
        after = page.next;
        if after.is_none() || shown >= most {
            break after.is_some();
        }
    };
    progress.done();
    if !screen.is_json() && !rows.is_empty() {
        screen.line(human::table(&HEAD, &rows).trim_end());
    }
    if more {
        screen
            .note("the oldest are shown; --all shows the others as well, --by reason counts them");
    }
    Ok(ended(shown, args, screen))
}

/// None at all is good news; none of those that were asked for is not.
fn ended(shown: u64, args: &DeadArgs, screen: &mut Screen<'_>) -> Exit {
    let filtered = args.peer.is_some() || args.reason.is_some() || args.older.is_some();
    match (shown, filtered) {
        (0, true) => {
            screen.note("no dead letter matches");
            Exit::NoMatch
        }
        (0, false) => {
            screen.note("no dead letters");
            Exit::Done
        }
        _ => Exit::Done,
    }
}

const HEAD: [(&str, Align); 7] = [
    ("ID", Align::Left),
    ("NAME", Align::Left),
    ("SIZE", Align::Right),
    ("PEER", Align::Left),
    ("SINCE", Align::Right),
    ("ATTEMPTS", Align::Right),
    ("REASON", Align::Left),
];

fn row(dead: &Deadletter, now: SystemTime) -> Vec<String> {
    vec![
        short(&dead.id),
        dead.name.clone(),
        human::bytes(dead.size),
        dead.peer.clone(),
        age(&dead.since, now),
        dead.attempts.to_string(),
        words(&dead.reason),
    ]
}

fn age(time: &str, now: SystemTime) -> String {
    human::ago(time, now).trim_end_matches(" ago").into()
}

/// `rejected: too large` where the other site said no; otherwise the reason itself.
fn words(reason: &str) -> String {
    let refused =
        ["quota", "disk_full", "busy", "too_large", "invalid", "not_addressed", "mismatch"];
    let plain = reason.replace('_', " ");
    if refused.contains(&reason) { format!("rejected: {plain}") } else { plain }
}

fn count(
    args: &DeadArgs,
    by: By,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let mut all: BTreeMap<(String, String), Group> = BTreeMap::new();
    let mut after: Option<String> = None;
    let (mut progress, mut seen) = (Progress::new(screen, "Counting", None), 0);
    loop {
        let target = target(args, "deadletters/groups", None, after.as_deref());
        let page: DeadletterGroups = api.json("GET", &target)?;
        for group in page.groups {
            seen += group.count;
            let key = match by {
                By::Reason => (group.reason.clone(), group.peer.clone()),
                By::Peer => (group.peer.clone(), group.reason.clone()),
            };
            // Pages come oldest first, so the first one's oldest is the oldest of all.
            match all.get_mut(&key) {
                Some(known) => {
                    known.count += group.count;
                    known.bytes = known.bytes.saturating_add(group.bytes);
                }
                None => {
                    all.insert(key, group);
                }
            }
        }
        progress.show(screen, 0, (seen, 0));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    progress.done();
    let shown = all.values().map(|group| group.count).sum();
    if screen.is_json() {
        for group in all.values() {
            screen.object(group)?;
        }
    } else if !all.is_empty() {
        let rows: Vec<_> = all.values().map(|group| group_row(group, by, now, screen)).collect();
        screen.line(human::table(&group_head(by), &rows).trim_end());
    }
    Ok(ended(shown, args, screen))
}

fn group_head(by: By) -> [(&'static str, Align); 6] {
    let [first, second] = match by {
        By::Reason => ["REASON", "PEER"],
        By::Peer => ["PEER", "REASON"],
    };
    [
        (first, Align::Left),
        (second, Align::Left),
        ("COUNT", Align::Right),
        ("SIZE", Align::Right),
        ("OLDEST", Align::Right),
        ("TRY THIS", Align::Left),
    ]
}

fn group_row(group: &Group, by: By, now: SystemTime, screen: &Screen<'_>) -> Vec<String> {
    let (reason, peer) = (words(&group.reason), group.peer.clone());
    let [first, second] = match by {
        By::Reason => [reason, peer],
        By::Peer => [peer, reason],
    };
    vec![
        first,
        second,
        group.count.to_string(),
        human::bytes(group.bytes),
        age(&group.oldest, now),
        screen.told(&group.hint),
    ]
}

#[cfg(test)]
mod tests;
