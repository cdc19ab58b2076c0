//! The demo's second half: a shard is uploaded for a node that is off, waits at the relay, and is the
//! node's once that is there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use consign_core::id::hex;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::pickup::sign::sha256;
use consign_core::pickup::token::Token;
use serde_json::json;

use super::watch::LOOK;
use crate::admin::pickup::lists::ShardShown;
use crate::admin::pickup::shard_text;
use crate::client::Api;
use crate::cmd::pickup::{Why, act};
use crate::daemon::Daemon;
use crate::exit::{Exit, Failure};
use crate::human;
use crate::pickup::http::Target;
use crate::pickup::node::config::{self, NodeConfig};
use crate::pickup::node::{Node, Stop};
use crate::pickup::random;
use crate::pickup::source::FileSource;
use crate::pickup::upload::Upload;
use crate::pickup::url::Relay;

/// The node's id and the shard's file.
const NODE: &str = "edge";
const FILE: &str = "film";
/// Length of the shard.
const SIZE: usize = 8 << 20;
/// It has failed when custody has not moved after so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the shard fared.
pub(super) struct PickedUp {
    /// States in which it was seen, in order.
    states: Vec<String>,
    took: Duration,
    equal: bool,
}

fn failed(what: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "CN0531", format!("{what}: {why}"))
}

/// Has a shard uploaded at a site while its node is off, and the node come.
pub(super) fn perform(
    site: &Daemon,
    dir: &Path,
    interrupted: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<PickedUp, Failure> {
    let address = site.ready().pickup.ok_or_else(|| failed("pickup", &"it is not listened for"))?;
    let relay = Relay::parse(&format!("http://{address}")).map_err(|e| failed("pickup", &e))?;
    let mut api = Api::new(site.admin());
    let token = Token::new(random()?);
    let why = Why::default();
    act(&mut api, "enrol_client", "demo", &why, |act| {
        act.token_sha256 = Some(hex(&token.hash().0))
    })?;
    let home = dir.join(NODE);
    let key = config::init(&home, NODE, &relay, None)?;
    act(&mut api, "enrol_node", NODE, &why, |act| act.key = Some(key))?;
    let shard = ShardKey::new(FILE, 1, 0, NODE).map_err(|e| failed("the shard", &e))?;
    let name = shard_text(&shard);

    let mut content = vec![0; SIZE];
    blake3::Hasher::new().update(FILE.as_bytes()).finalize_xof().fill(&mut content);
    let file = home.join("shard.bin");
    std::fs::write(&file, &content).map_err(|e| failed("the shard", &e))?;
    let source = FileSource::open(&file, &mut |_| {}).map_err(|e| failed("the shard", &e))?;
    let mut source = source.ok_or_else(|| failed("the shard", &"it is no file"))?;
    let began = Instant::now();
    Upload::new(Target::new(relay, None)?, shard, token).run(&mut source, &mut |_| {})?;
    let size = human::bytes(SIZE as u64);
    let mut states = vec![state(&mut api, &name)?];
    let last = states.last().map_or("", String::as_str);
    say(&format!("uploaded {name}, {size}, while {NODE} is off: {last}"));

    let node = Node::open(&NodeConfig::read(&home).map_err(|faults| faults.failure())?)?;
    let (stop, bell) = Stop::new().map_err(|e| failed("the node", &e))?;
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| node.run(&bell, &mut |_| {}));
        let moved = watch(&mut api, &name, &mut states, interrupted, say);
        stop.stop();
        let ran = runs.join().map_err(|_| failed("the node", &"it crashed"))?;
        moved.and(ran)
    })?;
    let took = began.elapsed();
    let arrived = std::fs::read(home.join("shards").join(FILE).join("1").join("0"));
    let arrived = arrived.map_err(|e| failed("the node's copy", &e))?;
    Ok(PickedUp { states, took, equal: sha256(&arrived) == sha256(&content) })
}

/// Waits until custody has moved, and notes every state that is seen on the way.
fn watch(
    api: &mut Api,
    name: &str,
    states: &mut Vec<String>,
    interrupted: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        let now = state(api, name)?;
        if states.last() != Some(&now) {
            say(&format!("{NODE} is there: {now}"));
            states.push(now);
        }
        match states.last().map(String::as_str) {
            Some("NODE_STORED") => return Ok(()),
            Some("RELAY_CLEANUP") => return Err(failed(name, &"it was given up")),
            _ if interrupted.load(Ordering::Relaxed) => {
                return Err(Failure::new(Exit::Failed, "CN0532", "interrupted"));
            }
            _ if Instant::now() > until => return Err(failed(name, &"nobody picked it up")),
            _ => std::thread::sleep(LOOK),
        }
    }
}

fn state(api: &mut Api, name: &str) -> Result<String, Failure> {
    let mut target = String::from("/v1/pickup/shard?key=");
    consign_core::http::encode_component(name, &mut target);
    let shown: ShardShown = api.json("GET", &target)?;
    Ok(shown.shard.state)
}

impl PickedUp {
    /// Whether the node has what was uploaded.
    pub(super) fn is_good(&self) -> bool {
        self.equal && self.states.last().is_some_and(|state| state == "NODE_STORED")
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "node": NODE,
            "bytes": SIZE,
            "states": self.states,
            "seconds": self.took.as_secs_f64(),
            "equal": self.equal,
        })
    }

    /// One line.
    pub(super) fn text(&self) -> String {
        let equal = if self.equal { "digests equal" } else { "digests differ" };
        let (states, seconds) = (self.states.join(" -> "), self.took.as_secs_f64());
        format!("Shard for {NODE}: {states}, {seconds:.2} s, {equal}")
    }
}
