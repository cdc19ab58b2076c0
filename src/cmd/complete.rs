//! Values that only a running site knows, for a shell that asks while words are typed: peers, ids of segments, nodes,
//! clients and shards.
//!
//! Nobody is there to be told of trouble: what cannot be had is not offered. The question goes to the site that the
//! command would go to, in a thread of its own, and after [`PATIENCE`] the shell gets what came so far. Every question is
//! one page of a list; nothing is looked through for it.

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use consign_core::http::encode_component;

use super::ls::short;
use crate::admin::lists::Deadletters;
use crate::admin::pickup::lists::{Clients, Nodes, Shards};
use crate::admin::shapes::{Peers, Segments};
use crate::client::Api;
use crate::exit::{Failure, Global};
use crate::{cli, codes, config};

/// How long a shell waits.
const PATIENCE: Duration = Duration::from_millis(400);
/// Entries of a list that are asked for.
const PAGE: u64 = 200;
/// Segments that are offered, the newest ones.
const SEGMENTS: usize = 50;

/// What a word stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A site that segments can be sent to.
    Destination,
    /// A peer, known or not any more.
    Peer,
    /// A segment.
    Segment,
    /// A segment of a selection; one with a dead letter where that is what is selected.
    Chosen,
    /// A code or a segment.
    Explained,
    /// A node that picks shards up.
    Node,
    /// A client that uploads them.
    Client,
    /// A shard.
    Shard,
}

/// A value, and what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Value {
    text: String,
    help: String,
}

impl Value {
    fn new(text: impl Into<String>, help: impl Into<String>) -> Value {
        Value { text: text.into(), help: help.into() }
    }
}

/// Sites that segments can be sent to.
pub(crate) fn destinations() -> ArgValueCompleter {
    completer(Kind::Destination)
}

/// Peers, those that are not known any more too.
pub(crate) fn peers() -> ArgValueCompleter {
    completer(Kind::Peer)
}

/// Ids of segments.
pub(crate) fn segments() -> ArgValueCompleter {
    completer(Kind::Segment)
}

/// Ids of segments to select from.
pub(crate) fn chosen() -> ArgValueCompleter {
    completer(Kind::Chosen)
}

/// Codes, and ids of segments.
pub(crate) fn explained() -> ArgValueCompleter {
    completer(Kind::Explained)
}

/// Nodes that pick shards up.
pub(crate) fn nodes() -> ArgValueCompleter {
    completer(Kind::Node)
}

/// Clients that upload shards.
pub(crate) fn clients() -> ArgValueCompleter {
    completer(Kind::Client)
}

/// Keys of shards.
pub(crate) fn shards() -> ArgValueCompleter {
    completer(Kind::Shard)
}

fn completer(kind: Kind) -> ArgValueCompleter {
    ArgValueCompleter::new(move |word: &OsStr| {
        let Some(word) = word.to_str().map(str::to_owned) else { return Vec::new() };
        let line = Line::of(std::env::args_os());
        let begins = word.clone();
        let found = within(PATIENCE, move |told| tell(kind, &word, &line, told));
        let fits = found.into_iter().filter(|value| value.text.starts_with(&begins));
        let candidate = |value: Value| {
            let help = Some(value.help).filter(|help| !help.is_empty());
            CompletionCandidate::new(value.text).help(help.map(Into::into))
        };
        fits.map(candidate).collect()
    })
}

/// What `ask` has told last when it ended or the time was over.
fn within(time: Duration, ask: impl FnOnce(&Sender<Vec<Value>>) + Send + 'static) -> Vec<Value> {
    let until = Instant::now() + time;
    let (told, heard) = channel();
    // A socket whose queue is full and a disk that does not answer hold only this thread up; the process ends without it.
    let thread = std::thread::Builder::new().spawn(move || ask(&told));
    if thread.is_ok() { last(&heard, until) } else { Vec::new() }
}

fn last(heard: &Receiver<Vec<Value>>, until: Instant) -> Vec<Value> {
    let mut found = Vec::new();
    while let Ok(values) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
        found = values;
    }
    found
}

/// Tells what is known without asking, then what the site answers.
fn tell(kind: Kind, word: &str, line: &Line, told: &Sender<Vec<Value>>) {
    let site = line.site();
    // Nobody listens any more once the time is over.
    let _ = told.send(match kind {
        Kind::Destination | Kind::Peer => site.peers,
        Kind::Explained => known_codes(word),
        _ => Vec::new(),
    });
    let Some(socket) = site.socket else { return };
    if let Ok(values) = ask(kind, word, line, &mut Api::new(&socket)) {
        let _ = told.send(values);
    }
}

/// What a command line says about the site that it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    config: Option<PathBuf>,
    context: Option<String>,
    socket: Option<PathBuf>,
    /// Whether it is about dead letters.
    dead: bool,
}

/// Where a site is asked, and what its configuration says.
#[derive(Debug, Default)]
struct Found {
    socket: Option<PathBuf>,
    peers: Vec<Value>,
}

impl Line {
    /// Reads the words behind the `--` of whoever asks. Shells hand them over as they were typed, `--flag=value` in three
    /// words.
    fn of(args: impl IntoIterator<Item = OsString>) -> Line {
        let words = args.into_iter().skip_while(|word| word != "--").skip(1);
        let words: Vec<String> = words.filter_map(|word| word.into_string().ok()).collect();
        let dead = words.iter().any(|word| word == "deadletter");
        let mut line = Line { dead, ..Line::default() };
        for (at, word) in words.iter().enumerate() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => {
                    let mut next = words.iter().skip(at + 1).map(String::as_str);
                    (word.as_str(), next.find(|word| *word != "="))
                }
            };
            let Some(value) = value else { continue };
            match flag {
                "-c" | "--config" => line.config = Some(path(value)),
                "--context" => line.context = Some(value.into()),
                "--socket" => line.socket = Some(path(value)),
                _ => {}
            }
        }
        line
    }

    /// Finds the site, as a command does.
    fn site(&self) -> Found {
        let variable = || std::env::var_os("CONSIGN_SOCKET").filter(|value| !value.is_empty());
        let given = self.socket.clone().or_else(|| variable().map(PathBuf::from));
        let (config, context) = (self.config.clone(), self.context.clone());
        let global = Global { config, context, ..Global::default() };
        let file = cli::file(&global);
        match file.and_then(|file| config::load(&file, &cli::layers(&[]))) {
            Ok(settings) => {
                let node = &settings.node;
                let known = node.peers.iter().map(|peer| Value::new(&peer.name, &peer.address));
                let routes = node.routes.iter().map(|route| Value::new(&route.to, by(&route.via)));
                let peers = known.chain(routes).collect();
                Found { socket: given.or(Some(settings.admin)), peers }
            }
            Err(faults) => Found { socket: given.or_else(|| faults.socket()), peers: Vec::new() },
        }
    }
}

/// A path as it was typed: nobody has expanded the `~` yet.
fn path(typed: &str) -> PathBuf {
    match (typed.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(below), Some(home)) => PathBuf::from(home).join(below),
        _ => typed.into(),
    }
}

fn ask(kind: Kind, word: &str, line: &Line, api: &mut Api) -> Result<Vec<Value>, Failure> {
    match kind {
        Kind::Destination | Kind::Peer => asked_peers(api, kind == Kind::Peer),
        Kind::Chosen if line.dead => asked_dead(api, word),
        Kind::Segment | Kind::Chosen => newest(api, word),
        Kind::Explained => Ok([known_codes(word), newest(api, word)?].concat()),
        Kind::Node => asked_nodes(api, word),
        Kind::Client => asked_clients(api, word),
        Kind::Shard => asked_shards(api),
    }
}

/// Codes, which are more than anybody wants to see before one is typed.
fn known_codes(word: &str) -> Vec<Value> {
    let fits = |entry: &codes::Entry| !word.is_empty() && entry.code.starts_with(word);
    let mut values = Vec::new();
    for entry in codes::all().into_iter().filter(fits) {
        once(&mut values, Value::new(entry.code, entry.means));
    }
    values
}

/// A word can have several meanings, a segment several dead letters.
fn once(values: &mut Vec<Value>, value: Value) {
    if !values.iter().any(|known| known.text == value.text) {
        values.push(value);
    }
}

/// How a site is reached that is no known peer.
fn by(via: &str) -> String {
    format!("by way of {via}")
}

fn asked_peers(api: &mut Api, all: bool) -> Result<Vec<Value>, Failure> {
    let peers: Peers = api.json("GET", "/v1/peers")?;
    let peers = peers.peers.into_iter();
    let fits = peers.filter(|peer| all || peer.known || !peer.via.is_empty());
    let value = |peer: crate::admin::shapes::Peer| {
        let help = match (peer.via.as_str(), peer.up) {
            ("", true) => format!("{} up", peer.address),
            ("", false) => peer.address,
            (via, _) => by(via),
        };
        Value::new(peer.name, help)
    };
    Ok(fits.map(value).collect())
}

/// The newest segments first. Lists are in the order of acceptance, so where they end is found by halving: no question is
/// about more than one segment, and there are not many more of them than the number of the newest has bits, twice.
fn newest(api: &mut Api, word: &str) -> Result<Vec<Value>, Failure> {
    let mut listed = |after: u64, limit: u64| -> Result<Segments, Failure> {
        api.json("GET", &format!("/v1/segments?after={after}&limit={limit}"))
    };
    let (mut first, mut end) = (0, 1);
    while let Some(segment) = listed(end, 1)?.segments.first() {
        (first, end) = (segment.seq, segment.seq.max(end).saturating_mul(2));
    }
    while end.saturating_sub(first) > 1 {
        let middle = first + (end - first) / 2;
        match listed(middle, 1)?.segments.first() {
            Some(segment) => first = segment.seq,
            None => end = middle,
        }
    }
    let page = listed(end.saturating_sub(PAGE), PAGE)?;
    let newest = page.segments.iter().rev().filter(|segment| segment.id.starts_with(word));
    let newest = newest.take(SEGMENTS);
    Ok(newest.map(|segment| Value::new(offered(&segment.id, word), &segment.name)).collect())
}

/// As many digits of an id as are shown elsewhere, unless more were typed.
fn offered(id: &str, word: &str) -> String {
    if word.len() > short(id).len() { id.into() } else { short(id) }
}

fn asked_dead(api: &mut Api, word: &str) -> Result<Vec<Value>, Failure> {
    let page: Deadletters = api.json("GET", &format!("/v1/deadletters?limit={PAGE}"))?;
    let mut values = Vec::new();
    for dead in page.deadletters {
        let help = format!("{} to {}: {}", dead.name, dead.peer, dead.reason);
        once(&mut values, Value::new(offered(&dead.id, word), help));
    }
    Ok(values)
}

fn asked_nodes(api: &mut Api, word: &str) -> Result<Vec<Value>, Failure> {
    let page: Nodes = api.json("GET", &named("nodes", word))?;
    let there = page.nodes.into_iter().filter(|node| node.revoked_at.is_none());
    Ok(there.map(|node| Value::new(node.id, "")).collect())
}

fn asked_clients(api: &mut Api, word: &str) -> Result<Vec<Value>, Failure> {
    let page: Clients = api.json("GET", &named("clients", word))?;
    let there = page.clients.into_iter().filter(|client| client.revoked_at.is_none());
    Ok(there.map(|client| Value::new(client.name, "")).collect())
}

/// The page of a list of names that begins where those do that begin with a word.
fn named(list: &str, word: &str) -> String {
    let mut target = format!("/v1/pickup/{list}?limit={PAGE}");
    if let Some(before) = before(word) {
        target.push_str("&after=");
        encode_component(&before, &mut target);
    }
    target
}

/// What stands behind every name that is smaller than this one, and before this one: names have letters, digits, `.`, `_`
/// and `-`.
fn before(word: &str) -> Option<String> {
    let last = word.bytes().last().filter(u8::is_ascii_graphic)?;
    let kept = word.get(..word.len() - 1)?;
    Some(format!("{kept}{}~", char::from(last - 1)))
}

fn asked_shards(api: &mut Api) -> Result<Vec<Value>, Failure> {
    let page: Shards = api.json("GET", &format!("/v1/pickup/shards?limit={PAGE}"))?;
    let value = |shard: &crate::admin::pickup::lists::Shard| {
        let (file, version) = (&shard.file_id, shard.version_number);
        let key = format!("{file}/{version}/{}@{}", shard.shard_index, shard.node_id);
        Value::new(key, &shard.state)
    };
    Ok(page.shards.iter().map(value).collect())
}
