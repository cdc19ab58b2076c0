//! What a relay between two sites costs on this machine, beside what the machine can do at all.
//!
//! Two real sites on loopback, mutual TLS between them, synced commits at both. Segments are queued
//! through the admin socket while the receiving site is not there; the clock runs from its start until
//! the sender has committed the last acknowledgement. `consign bench` and `benches/relay.rs` share
//! this. Raw figures of the same run stand beside: one TLS stream on loopback without anything else,
//! and a plain write and sync of the same sizes.

mod admin;
pub mod latency;
mod memory;
mod pair;
mod raw;
mod report;
mod scratch;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use raw::Raw;
pub use report::{Report, Row};
pub use scratch::Scratch;

use crate::config::Runtime;
use crate::exit::{Exit, Failure};
use memory::Watch;
use pair::Pair;

/// Segments of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Length of each in bytes.
    pub size: u64,
    /// How many.
    pub count: u64,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// On which runtimes, one after the other; both sites run on the same one.
    pub runtimes: Vec<Runtime>,
    /// The sizes, one after the other.
    pub loads: Vec<Load>,
    /// Where the sites are made; `None` is a directory for temporary files on a disk.
    pub dir: Option<PathBuf>,
    /// The program that runs each site as a process of its own; `None` runs both in this one.
    pub program: Option<PathBuf>,
    /// How often each load is measured; the one of median duration counts.
    pub rounds: usize,
}

/// How often the sender is asked how far it is.
const POLL: Duration = Duration::from_millis(10);
/// Nothing moves for this long: something is wrong.
const STUCK: Duration = Duration::from_secs(120);

fn failed(what: &str, e: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "CN0601", format!("{what}: {e}"))
}

/// Measures; `say` is told what is under way.
///
/// # Errors
/// When a site does not come up, a segment is refused, or nothing moves for two minutes.
pub fn run(plan: &Plan, say: &dyn Fn(&str)) -> Result<Report, Failure> {
    let scratch = Scratch::new(plan.dir.as_deref())?;
    let measure_raw = || {
        say("raw: one TLS stream on loopback, plain writes and syncs");
        Raw::measure(scratch.path(), &plan.loads)
    };
    // Between the runs, not only before them: what else the machine does changes.
    let mut raws = vec![measure_raw()?];
    let mut rows = Vec::new();
    for runtime in &plan.runtimes {
        let dir = scratch.path().join(runtime.word());
        let mut pair = Pair::new(&dir, *runtime, plan.program.as_deref(), None)?;
        relay(&mut pair, Load { size: 1_024, count: 16 }, "warm")?;
        for load in &plan.loads {
            let mut runs = Vec::new();
            for round in 0..plan.rounds.max(1) {
                say(&format!("{}: {} segments of {} bytes", runtime.word(), load.count, load.size));
                runs.push(relay(&mut pair, *load, &format!("{}-{round}", load.size))?);
            }
            runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let middle = runs.len() / 2;
            rows.extend(runs.into_iter().nth(middle));
        }
        pair.stop()?;
        raws.push(measure_raw()?);
    }
    Ok(Report { raw: Raw::median(&raws), rows, processes: plan.program.is_some() })
}

/// Queues a load while the receiver is away, lets it come, and waits until everything is acknowledged.
fn relay(pair: &mut Pair, load: Load, prefix: &str) -> Result<Row, Failure> {
    let begun = Instant::now();
    pair.sender().submit(load, prefix)?;
    let queued = begun.elapsed();
    let before = pair.sender().status()?;
    let target = delivered(&before)? + load.count;
    let watch = Watch::start(pair.pids());
    let begun = Instant::now();
    pair.start_receiver()?;
    let seconds = wait(pair, target, begun)?;
    let used = watch.stop();
    let (after, there) = (pair.sender().status()?, pair.receiver()?.status()?);
    pair.stop_receiver()?;
    let mean = |rows: u64, commits: u64| rows as f64 / commits.max(1) as f64;
    Ok(Row {
        runtime: pair.runtime(),
        size: load.size,
        count: load.count,
        queued: queued.as_secs_f64(),
        seconds,
        batch_out: mean(
            after.ledger.rows - before.ledger.rows,
            after.ledger.commits - before.ledger.commits,
        ),
        batch_in: mean(there.ledger.rows, there.ledger.commits),
        rss_anon: used.rss_anon,
        processor: used.processor,
    })
}

/// Waits until so many are delivered and nothing is left to commit; seconds until the last commit.
fn wait(pair: &mut Pair, target: u64, begun: Instant) -> Result<f64, Failure> {
    let mut moved = Instant::now();
    let mut last = (0, 0);
    let mut done = None;
    loop {
        std::thread::sleep(POLL);
        let at = begun.elapsed();
        let status = pair.sender().status()?;
        let (count, commits) = (delivered(&status)?, status.ledger.commits);
        if (count, commits) != last {
            last = (count, commits);
            moved = Instant::now();
            done = None;
        }
        if count >= target {
            // Counted when staged: durable once no commit follows.
            let seconds = *done.get_or_insert(at.as_secs_f64());
            if moved.elapsed() > Duration::from_millis(100) {
                return Ok(seconds);
            }
        } else if moved.elapsed() > STUCK {
            let what = format!("{count} of {target} deliveries, then nothing");
            return Err(failed(&what, format_args!("for {} s", STUCK.as_secs())));
        }
    }
}

fn delivered(status: &crate::admin::shapes::Status) -> Result<u64, Failure> {
    let peer = status.peers.first().ok_or_else(|| failed("the sender", "knows no peer"))?;
    if peer.dead.count > 0 {
        return Err(failed("the receiver refused segments for good", &peer.last_error));
    }
    Ok(peer.delivered.count)
}
