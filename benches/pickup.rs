//! Pickup on the real binary over TLS: what connected nodes cost, whether a storm of notifications loses
//! anything, how many small shards a second go all the way, and one very large shard.
//!
//! `idle` takes `CONSIGN_NODES` (5000; a tenth on runtime std), `small` takes `CONSIGN_SHARDS` (20000),
//! `large` takes `CONSIGN_BIG` with a unit (64MiB; 8GiB by hand: it is on disk at the relay and at the node).

mod support;

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use consign::bench::{Load, Raw};
use consign::meters::process::processor;
use consign_core::ledger::rows_pickup::ShardState;
use support::peak::{self, Peak};
use support::real::{CONSIGN, until};
use support::relay::{Fetches, Fleet, Relay, Uploads};
use support::{Res, disk, is_test, is_wanted};

/// Most anonymous memory of an idle node.
const NODE_BAR: f64 = 24.0;
/// Small shards a second, all the way.
const RATE_BAR: f64 = 1_000.0;
/// Length of a small shard.
const SMALL: usize = 1 << 10;
/// Nodes that small shards go to, and connections that they come by.
const TAKERS: usize = 256;
const GIVERS: usize = 128;
/// Bytes a second of a large shard, below which something is wrong.
const SLOWEST: u64 = 4 << 20;
/// How long after the last registration memory is looked at.
const SETTLE: Duration = Duration::from_secs(3);
/// How long a relay with idle nodes is looked at, and how often it asks each of them (PICKUP.md).
const REST: Duration = Duration::from_secs(60);
const PING: Duration = Duration::from_secs(20);

fn main() -> Res<()> {
    let nodes = number("CONSIGN_NODES", 5_000, 16)?;
    let shards = number("CONSIGN_SHARDS", 20_000, 64)?;
    if is_wanted("idle") {
        idle("smol", nodes)?;
        idle("std", (nodes / 10).max(4))?;
    }
    if is_wanted("small") {
        small("smol", shards)?;
        if !is_test() {
            small("std", shards)?;
        }
    }
    if is_wanted("large") {
        let text = std::env::var("CONSIGN_BIG");
        let text = text.unwrap_or_else(|_| if is_test() { "2MiB" } else { "64MiB" }.into());
        large(&text)?;
    }
    Ok(())
}

fn number(name: &str, usual: usize, test: usize) -> Res<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|e| format!("{name}={text}: {e}").into()),
        Err(_) => Ok(if is_test() { test } else { usual }),
    }
}

fn verdict(met: bool) -> &'static str {
    match (is_test(), met) {
        (true, _) => "not judged with --test",
        (false, true) => "met",
        (false, false) => "MISSED",
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Nodes that wait, and then all get something at once.
fn idle(runtime: &str, count: usize) -> Res<()> {
    let place = disk()?;
    let room = (2 * count + 1_000).max(10_000).to_string();
    let relay = Relay::serve(place.path(), runtime, &[("CONSIGN_LIMITS_CONNECTIONS", &room)])?;
    let begun = Instant::now();
    let nodes = relay.enrol(count)?;
    let enrolled = count as f64 / begun.elapsed().as_secs_f64();
    let before = relay.real.rss_anon();
    let fleet = Fleet::new(&relay);
    let begun = Instant::now();
    fleet.connect(&nodes, Fetches::Fresh);
    fleet.counts.wait("registrations", &fleet.counts.registered, count as u64)?;
    let took = begun.elapsed().as_secs_f64();
    if !is_test() {
        std::thread::sleep(SETTLE);
    }
    let after = relay.real.rss_anon();
    let each = after.saturating_sub(before) as f64 / 1024.0 / count as f64;
    println!(
        "{count} nodes on {runtime}: {enrolled:.0} enrolled a second, connected in {took:.1} s"
    );
    let bar = match runtime {
        "smol" => format!("; bar: < {NODE_BAR:.0}: {}", verdict(each < NODE_BAR)),
        _ => String::new(),
    };
    let (low, high) = (mib(before), mib(after));
    println!(
        "  RssAnon of an idle node: {each:.1} KiB ({low:.1} MiB before, {high:.1} with them){bar}"
    );
    rest(&relay, count);
    let peak = Peak::of(relay.real.pid());
    let begun = Instant::now();
    fleet.upload("storm", &nodes, Uploads { count, size: SMALL, connections: GIVERS.min(count) });
    fleet.counts.wait("shards stored", &fleet.counts.stored, count as u64)?;
    let took = begun.elapsed().as_secs_f64();
    let (stored, _) = relay.shards(ShardState::NodeStored)?;
    let rate = count as f64 / took;
    println!(
        "  a shard for each, fetched over a connection of its own: {rate:.0}/s, {took:.1} s; \
         peak {:.1} MiB; {stored} of {count} stored: {}",
        mib(peak.bytes()),
        verdict(stored == count as u64)
    );
    Ok(())
}

/// What a relay does while nothing happens, beside asking each node now and then whether it is there.
fn rest(relay: &Relay, nodes: usize) {
    if is_test() {
        return;
    }
    let pid = relay.real.pid();
    let (sleeps, used, begun) = (peak::sleeps(pid), processor(pid), Instant::now());
    std::thread::sleep(REST);
    let seconds = begun.elapsed().as_secs_f64();
    let woken = peak::sleeps(pid).saturating_sub(sleeps) as f64 / seconds;
    let used = processor(pid).saturating_sub(used).as_secs_f64() / seconds;
    let asked = nodes as f64 / PING.as_secs_f64();
    println!(
        "  at rest: woken {woken:.1} times a second and {:.2} % of a processor, with {asked:.1} nodes asked and answering a second",
        used * 100.0
    );
}

/// Small shards all the way, with everybody connected.
fn small(runtime: &str, count: usize) -> Res<()> {
    let place = disk()?;
    let load = Load { size: SMALL as u64, count: count as u64 };
    let before = Raw::measure(place.path(), &[load])?;
    let relay = Relay::serve(place.path(), runtime, &[])?;
    let nodes = relay.enrol(TAKERS.min(count))?;
    let fleet = Fleet::new(&relay);
    fleet.connect(&nodes, Fetches::Kept);
    fleet.counts.wait("registrations", &fleet.counts.registered, nodes.len() as u64)?;
    let commits = relay.commits()?;
    let peak = Peak::of(relay.real.pid());
    let begun = Instant::now();
    fleet.upload("small", &nodes, Uploads { count, size: SMALL, connections: GIVERS.min(count) });
    fleet.counts.wait("uploads", &fleet.counts.uploaded, count as u64)?;
    let uploaded = begun.elapsed().as_secs_f64();
    fleet.counts.wait("shards stored", &fleet.counts.stored, count as u64)?;
    until("the relay to have let go of all", || {
        let buffered = relay.shards(ShardState::RelayBuffered)?.1;
        let receiving = relay.shards(ShardState::NodeReceiving)?.1;
        Ok((buffered + receiving == 0).then_some(()))
    })?;
    let took = begun.elapsed().as_secs_f64();
    let commits = relay.commits()? - commits;
    let (stored, _) = relay.shards(ShardState::NodeStored)?;
    let raw = Raw::measure(place.path(), &[load])?;
    let synced = (before.synced(load.size) + raw.synced(load.size)) / 2.0 / SMALL as f64;
    let rate = count as f64 / took;
    println!(
        "{count} shards of 1 KiB on {runtime}, {} nodes: {rate:.0}/s all the way; bar: >= {RATE_BAR:.0}: {}",
        nodes.len(),
        verdict(rate >= RATE_BAR && stored == count as u64)
    );
    println!(
        "  uploaded at {:.0}/s; {:.1} shards a commit; raw writes of 1 KiB, each synced: {synced:.0}/s; \
         peak {:.1} MiB; lost: {}",
        count as f64 / uploaded,
        count as f64 / commits.max(1) as f64,
        mib(peak.bytes()),
        count as u64 - fleet.counts.stored.load(Ordering::Relaxed)
    );
    Ok(())
}

/// A child that is killed when it is not wanted any more.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One very large shard from a pipe by `consign pickup upload`, then to `consign node run`.
fn large(text: &str) -> Res<()> {
    let size = support::size_of("CONSIGN_BIG", text)?;
    let place = disk()?;
    let load = Load { size: size.min(64 << 20), count: 1 };
    let first = Raw::measure(place.path(), &[load])?;
    let room = format!("{}MiB", (size >> 20) + 64);
    let relay = Relay::serve(place.path(), "smol", &[("CONSIGN_BUFFER_MAX_BYTES", &room)])?;
    let ca = relay.real.dir.join("ca.pem");
    let dir = place.path().join("node");
    enrol_node(&relay, &dir, &ca)?;
    let up = upload(&relay, &ca, size)?;
    let down = fetch(&relay, &dir, size)?;
    let last = Raw::measure(place.path(), &[load])?;
    let tls = (first.tls + last.tls) / 2.0;
    let synced = (first.synced(load.size) + last.synced(load.size)) / 2.0;
    let show = |bytes: f64| bytes / f64::from(1 << 20);
    println!(
        "one shard of {text}; raw on this machine: TLS on loopback {:.0} MiB/s, synced writes {:.0} MiB/s",
        show(tls),
        show(synced)
    );
    let lower = tls.min(synced);
    for (name, side, leg) in [("upload", "client", up), ("fetch", "node", down)] {
        let rate = size as f64 / leg.took;
        let (relay, other) = (mib(leg.peaks[0]), mib(leg.peaks[1]));
        let cpu = leg.cpu.map(|seconds| seconds / size as f64 * f64::from(1 << 30));
        println!(
            "  {name}: {:.0} MiB/s, {:.2} of TLS, {:.2} of synced; bar: >= 0.5 of TLS: {}, of the \
             lower one: {}",
            show(rate),
            rate / tls,
            rate / synced,
            verdict(rate >= tls / 2.0),
            verdict(rate >= lower / 2.0)
        );
        println!(
            "    processor seconds a GiB: relay {:.2}, {side} {:.2}; peaks: relay {relay:.0} MiB, \
             {side} {other:.0} MiB; bar: < 64: {}",
            cpu[0],
            cpu[1],
            verdict(relay < 64.0 && other < 64.0)
        );
    }
    Ok(())
}

/// How one way of the large shard went.
struct Leg {
    /// Seconds.
    took: f64,
    /// Most anonymous memory, of the relay and of the other side.
    peaks: [u64; 2],
    /// Seconds of processor time, of the two.
    cpu: [f64; 2],
}

impl Leg {
    fn new(took: f64, sides: [Peak; 2]) -> Leg {
        let [relay, other] = sides;
        let (peaks, cpu) = ([relay.bytes(), other.bytes()], [relay.cpu(), other.cpu()]);
        Leg { took, peaks, cpu }
    }
}

/// A node's directory for the large shard.
fn enrol_node(relay: &Relay, dir: &Path, ca: &Path) -> Res<()> {
    let mut command = Command::new(CONSIGN);
    command.args(["node", "init", "--json", "--id", "taker", "--relay", &relay.url()]);
    let output = command.arg("--ca").arg(ca).arg(dir).output()?;
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("node init: {e}: {output:?}"))?;
    relay.enrol_key("taker", said["key"].as_str().ok_or("node init said no key")?)
}

fn upload(relay: &Relay, ca: &Path, size: u64) -> Res<Leg> {
    let mut command = Command::new(CONSIGN);
    command.args(["pickup", "upload", "-", "--to", &relay.url(), "--node", "taker"]);
    command.args(["--file-id", "big", "--version", "1", "--tries", "1", "--json", "--ca"]).arg(ca);
    command.env("CONSIGN_PICKUP_TOKEN", Relay::token());
    let begun = Instant::now();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let pipe = child.stdin.take();
    let mut child = Killed(child);
    let peaks = [Peak::of(relay.real.pid()), Peak::of(child.0.id())];
    let mut pipe = pipe.ok_or("no pipe")?;
    let mut block = vec![0xa5; 1 << 20];
    let mut left = size;
    while left > 0 {
        // No two blocks are the same.
        block[..8].copy_from_slice(&left.to_le_bytes());
        let len = usize::try_from(left.min(block.len() as u64))?;
        pipe.write_all(&block[..len]).map_err(|e| format!("the upload took no more: {e}"))?;
        left -= len as u64;
    }
    drop(pipe);
    let status = child.0.wait()?;
    let took = begun.elapsed().as_secs_f64();
    if !status.success() || relay.shards(ShardState::RelayBuffered)? != (1, size) {
        return Err(format!("the large shard was not taken: {status}").into());
    }
    Ok(Leg::new(took, peaks))
}

fn fetch(relay: &Relay, dir: &Path, size: u64) -> Res<Leg> {
    let patience = Duration::from_secs(60 + size / SLOWEST);
    let mut command = Command::new(CONSIGN);
    command.args(["node", "run"]).arg(dir).stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    let mut child = Killed(command.stderr(Stdio::null()).spawn()?);
    let peaks = [Peak::of(relay.real.pid()), Peak::of(child.0.id())];
    until("the node to store it", || {
        std::thread::sleep(Duration::from_millis(5));
        if let Some(status) = child.0.try_wait()? {
            return Err(format!("the node has ended: {status}").into());
        }
        if begun.elapsed() > patience {
            return Err(format!("the large shard is not stored after {patience:?}").into());
        }
        Ok((relay.shards(ShardState::NodeStored)?.0 == 1).then_some(()))
    })?;
    Ok(Leg::new(begun.elapsed().as_secs_f64(), peaks))
}
