//! `consign pickup shards`: how shards stand, and what an operator can do about them.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use consign_core::http::encode_component;
use consign_core::ledger::rows_pickup::ShardState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Why, act, name, told};
use crate::admin::pickup::lists::{Shard, ShardShown, Shards};
use crate::admin::pickup::parse_shard;
use crate::client::Api;
use crate::cmd::complete;
use crate::cmd::screen::{Progress, Screen};
use crate::exit::{Exit, Failure};
use crate::human::{self, Align};

/// Shards of a page that is asked for.
const PAGE: u64 = 500;

/// Lists shards, shows one, notifies its node anew, gives it up
#[derive(Subcommand, Clone, Debug)]
pub enum ShardsCommand {
    /// Lists them in the order of their keys
    Ls(ListArgs),
    /// Shows one with all that is known of it
    Show(KeyArgs),
    /// Notifies its node anew at once, with its failed pickups forgiven
    Retry(ActArgs),
    /// Gives one up now: the node will not get it
    Abandon(ActArgs),
}

/// Which shards are listed.
#[derive(Args, Clone, Debug, Default)]
pub struct ListArgs {
    /// Only those in this state, such as RELAY_BUFFERED
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<String>,
    /// Only those for this node
    #[arg(long, value_name = "ID", value_parser = name, add = complete::nodes())]
    node: Option<String>,
    /// At most so many
    #[arg(short = 'n', long, value_name = "N", default_value = "100")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "all")]
    limit: u64,
    /// All of them
    #[arg(short, long)]
    all: bool,
    /// Behind this shard
    #[arg(long, value_name = "KEY", value_parser = shard, add = complete::shards())]
    after: Option<String>,
}

/// A shard.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// The shard, as FILE_ID/VERSION/SHARD@NODE
    #[arg(value_name = "KEY", value_parser = shard, add = complete::shards())]
    key: String,
}

/// A shard that something is done about.
#[derive(Args, Clone, Debug, Default)]
pub struct ActArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    why: Why,
}

fn state(text: &str) -> Result<String, String> {
    let word = text.replace('-', "_").to_ascii_uppercase();
    let words: Vec<&str> = ShardState::ALL.iter().map(|state| state.word()).collect();
    let known = ShardState::from_word(&word).map(|state| state.word().into());
    known.ok_or_else(|| format!("it is one of {}", words.join(", ")))
}

fn shard(text: &str) -> Result<String, String> {
    parse_shard(text).map(|_| text.to_owned())
}

pub(super) fn run(
    command: &ShardsCommand,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    match command {
        ShardsCommand::Ls(args) => list(args, api, screen, now),
        ShardsCommand::Show(args) => show(args, api, screen, now),
        ShardsCommand::Retry(args) => {
            let acted = act(api, "retry_shard", &args.key.key, &args.why, |_| {})?;
            told(&acted, &format!("{} is notified anew", args.key.key), screen)
        }
        ShardsCommand::Abandon(args) => {
            let acted = act(api, "abandon_shard", &args.key.key, &args.why, |_| {})?;
            let done = match acted.changed {
                true => format!("{} is given up", args.key.key),
                false => format!("{} was given up before", args.key.key),
            };
            told(&acted, &done, screen)
        }
    }
}

/// A shard of a list, with `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShardRow {
    /// `consign.shard_row/1`
    pub schema: String,
    /// The shard.
    #[serde(flatten)]
    pub shard: Shard,
}

impl ShardRow {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.shard_row/1";
}

fn target(args: &ListArgs, after: Option<&str>, limit: u64) -> String {
    let mut target = format!("/v1/pickup/shards?limit={limit}");
    let all = [("after", after), ("state", args.state.as_deref()), ("node", args.node.as_deref())];
    for (key, value) in all {
        if let Some(value) = value {
            target.push_str(&format!("&{key}="));
            encode_component(value, &mut target);
        }
    }
    target
}

fn list(
    args: &ListArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let most = if args.all { u64::MAX } else { args.limit };
    let (mut after, mut shown, mut rows) = (args.after.clone(), 0, Vec::new());
    let mut progress = Progress::new(screen, "Listing", None);
    let more = loop {
        let limit = (most - shown).min(PAGE);
        let page: Shards = api.json("GET", &target(args, after.as_deref(), limit))?;
        for shard in &page.shards {
            shown += 1;
            if screen.is_json() {
                let schema = ShardRow::SCHEMA.into();
                screen.object(&ShardRow { schema, shard: shard.clone() })?;
            } else {
                rows.push(row(shard, now));
            }
        }
        progress.show(screen, 0, (shown, 0));
        match page.next {
            None => break None,
            Some(next) if shown >= most => break Some(next),
            Some(next) => after = Some(next),
        }
    };
    progress.done();
    if !screen.is_json() && !rows.is_empty() {
        screen.line(human::table(&HEAD, &rows).trim_end());
    }
    if let Some(next) = more {
        screen.note(&format!("more follow with --after '{next}', or --all"));
    }
    let filtered = args.state.is_some() || args.node.is_some();
    match (shown, filtered) {
        (0, true) => {
            screen.note("no shard matches");
            Ok(Exit::NoMatch)
        }
        (0, false) => {
            screen.note("no shards");
            Ok(Exit::Done)
        }
        _ => Ok(Exit::Done),
    }
}

const HEAD: [(&str, Align); 8] = [
    ("FILE", Align::Left),
    ("VERSION", Align::Right),
    ("SHARD", Align::Right),
    ("NODE", Align::Left),
    ("STATE", Align::Left),
    ("SIZE", Align::Right),
    ("FAILED", Align::Right),
    ("LEASE ENDS", Align::Left),
];

fn row(shard: &Shard, now: SystemTime) -> Vec<String> {
    vec![
        shard.file_id.clone(),
        shard.version_number.to_string(),
        shard.shard_index.to_string(),
        shard.node_id.clone(),
        shard.state.clone(),
        shard.size.map(human::bytes).unwrap_or_default(),
        shard.failed_acks.to_string(),
        shard.expires_at.as_ref().map(|at| human::until(at, now)).unwrap_or_default(),
    ]
}

fn show(
    args: &KeyArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let mut target = "/v1/pickup/shard?key=".to_owned();
    encode_component(&args.key, &mut target);
    let shown: ShardShown = api.json("GET", &target)?;
    if screen.is_json() {
        screen.object(&shown)?;
        return Ok(Exit::Done);
    }
    for (what, value) in story(&shown, now) {
        screen.line(&format!("{what:<12}  {value}"));
    }
    Ok(Exit::Done)
}

/// What there is to say of a shard, in order.
fn story(shown: &ShardShown, now: SystemTime) -> Vec<(&'static str, String)> {
    let shard = &shown.shard;
    let key = format!("{}/{}/{}", shard.file_id, shard.version_number, shard.shard_index);
    let mut story = vec![
        ("shard", key),
        ("node", shard.node_id.clone()),
        ("state", format!("{} for {}", shard.state, since(&shown.since, now))),
        ("generation", shard.generation.to_string()),
        ("client", shown.client.clone()),
    ];
    let size = shard.size.map(|size| format!("{} ({size} bytes)", human::bytes(size)));
    let pickups = match (shard.redemption, shard.failed_acks) {
        (0, _) => None,
        (_, 0) => Some(format!("last redemption {}", shard.redemption)),
        (_, n) => Some(format!("{n} failed, last redemption {}", shard.redemption)),
    };
    // A node may say anything; it is not to move this terminal's cursor.
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let reason = (!shown.reason.is_empty()).then(|| shown.reason.chars().map(plain).collect());
    let more = [
        ("size", size),
        ("sha-256", shown.digest.sha256.clone()),
        ("blake3", shown.digest.blake3.clone()),
        ("buffer", shard.buffer_id.clone()),
        ("buffered", shown.buffered_at.as_ref().map(|at| human::ago(at, now))),
        ("moved", shown.progress_at.as_ref().map(|at| human::ago(at, now))),
        ("pickups", pickups),
        ("failed for", reason),
        ("notified", shown.notify_after.as_ref().map(|at| human::until(at, now))),
        ("lease ends", shard.expires_at.as_ref().map(|at| human::until(at, now))),
        ("next step", shown.deadline.as_ref().map(|at| human::until(at, now))),
    ];
    story.extend(more.into_iter().filter_map(|(what, value)| Some((what, value?))));
    story
}

fn since(time: &str, now: SystemTime) -> String {
    human::ago(time, now).trim_end_matches(" ago").into()
}
