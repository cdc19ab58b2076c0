//! `consign demo`: two real sites in this process, one on each runtime, with their own authority, real
//! sockets, mutual TLS, ledgers and files. Content goes from alpha to beta and some of it back, is
//! watched until it is delivered, then fetched at the far end and compared. Then a shard is uploaded to
//! alpha for a node that is off, and picked up when the node comes.

mod items;
pub(crate) mod pair;
pub(crate) mod serve;
mod shard;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use consign_core::id::BlobDigest;
use serde_json::json;

use super::screen::{during, standard};
use crate::admin::shapes::Accepted;
use crate::cli::Trouble;
use crate::client::{Api, Source};
use crate::config::{Layers, Log, LogFormat};
use crate::daemon::{Daemon, signals};
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};
use crate::{log, out};
use items::Item;
use pair::Pair;
use watch::{Direction, LOOK, Live};

/// Shows two sites at work: files go from one to the other and are compared there
#[derive(Args, Clone, Debug, Default)]
pub struct DemoArgs {
    /// Where to make the two sites: a new or empty directory [default: a temporary one]
    #[arg(long, value_name = "D")]
    pub dir: Option<PathBuf>,
    /// What to send [default: generated content of 0 bytes to 64 MiB]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// File system type of tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// Runs the command.
///
/// # Errors
/// When anything does not arrive.
pub fn run(args: &DemoArgs, global: &Global) -> Result<Exit, Trouble> {
    let level = if global.verbose > 0 { tracing::Level::DEBUG } else { tracing::Level::WARN };
    let _logging = log::start(Log { level, format: LogFormat::Text }).map_err(|e| {
        Failure::new(Exit::Failed, "CN0514", format!("a thread cannot be started: {e}"))
    })?;
    // For people, what it says is its progress.
    let report = match global.json {
        false => perform(args, !global.quiet)?,
        true => standard(global, |screen| {
            during(screen, "Relaying", None, || (0, (0, 0)), || perform(args, false))
        })?,
    };
    if global.json {
        out::line(&report.json().to_string());
    } else {
        out::line(report.text().trim_end());
    }
    Ok(if report.is_good() { Exit::Done } else { Exit::Failed })
}

fn perform(args: &DemoArgs, talk: bool) -> Result<Report, Trouble> {
    let there = if args.files.is_empty() { items::generated() } else { items::named(&args.files)? };
    let dir = directory(args.dir.as_deref())?;
    let say = |text: &str| {
        if talk {
            out::note(text);
        }
    };
    if in_memory(&dir) {
        let text = "which forgets everything; a real site refuses such a place, the demo forces it";
        say(&format!("{} is in memory (tmpfs), {text}", dir.display()));
    }
    let lots = [Lot::new("alpha", "beta", there)?, Lot::new("beta", "alpha", items::returned())?];
    let sites = Sites::start(&dir)?;
    for daemon in [&sites.pair.alpha, &sites.pair.beta] {
        let ready = daemon.ready();
        let listen = ready.listen.first().map_or_else(String::new, ToString::to_string);
        say(&format!("{}  peers at {listen}", ready.line()));
    }
    let results = sites.relay(&lots, Live::new(talk), &say).and_then(|results| {
        let picked = shard::perform(&sites.pair.alpha, &dir, &sites.interrupted, &say)?;
        Ok((results, picked))
    });
    sites.stop()?;
    let (results, picked) = results?;
    Ok(Report { dir, lots, results, picked })
}

/// A new or empty directory: the one that was given, or a temporary one.
fn directory(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let own = || std::env::temp_dir().join(format!("consign-demo-{}", std::process::id()));
    pair::directory(&given.map_or_else(own, Path::to_path_buf))
}

fn in_memory(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|t| t == TMPFS))
}

/// An address of this machine that nobody listens on.
fn free_address() -> Result<SocketAddr, Failure> {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| {
        Failure::new(Exit::Failed, "CN0511", format!("no port is free on 127.0.0.1: {e}"))
    })
}

/// The two sites.
struct Sites {
    pair: Pair,
    interrupted: Arc<AtomicBool>,
}

impl Sites {
    fn start(dir: &Path) -> Result<Sites, Trouble> {
        pair::make(dir, [free_address()?, free_address()?], None)?;
        let pair = Pair::start(dir, [layers("127.0.0.1:0"), layers("off")])?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = interrupted.clone();
        // Without it Ctrl-C ends the demo at once, which is no harm.
        let _ = signals::on_stop(move || flag.store(true, Ordering::Relaxed));
        Ok(Sites { pair, interrupted })
    }

    fn site(&self, name: &str) -> &Daemon {
        self.pair.site(name)
    }

    fn runtime(&self, name: &str) -> &'static str {
        self.site(name).ready().runtime.word()
    }

    fn stop(self) -> Result<(), Failure> {
        self.pair.stop();
        self.pair.wait(&|_, _, _| {})
    }

    /// Sends both lots, watches them arrive, compares.
    fn relay(
        &self,
        lots: &[Lot; 2],
        mut live: Live,
        say: &dyn Fn(&str),
    ) -> Result<Vec<Outcome>, Failure> {
        let began = Instant::now();
        for lot in lots {
            let (count, bytes) = (lot.items.len() as u64, human::bytes(lot.bytes()));
            let count = human::count(count, "segment");
            say(&format!("sending {count}, {bytes}, from {} to {}", lot.from, lot.to));
        }
        let sent = std::thread::scope(|scope| {
            let threads = lots.each_ref().map(|lot| {
                let socket = self.site(lot.from).admin();
                scope.spawn(move || lot.send(socket, &self.interrupted))
            });
            let done = || threads.iter().all(std::thread::ScopedJoinHandle::is_finished);
            let took = self.watch(lots, &mut live, began, &done);
            if took.is_err() {
                self.interrupted.store(true, Ordering::Relaxed);
            }
            let sent = threads.map(|thread| {
                let crashed = |_| Failure::new(Exit::Failed, "CN0530", "a sending thread crashed");
                thread.join().map_err(crashed).flatten()
            });
            // What a sender says is nearer to the cause than that nothing arrived.
            let [first, second] = sent;
            let sent = [first?, second?];
            took.map(|took| (sent, took))
        });
        let (sent, took) = sent?;
        say("fetching everything at the far end and comparing digests");
        let results = lots.iter().zip(sent).zip(took).map(|((lot, ids), took)| {
            let equal = lot.compare(self.site(lot.to).admin(), &ids)?;
            let runtimes = format!("{} -> {}", self.runtime(lot.from), self.runtime(lot.to));
            Ok(Outcome { runtimes, took, equal })
        });
        results.collect()
    }

    /// Watches until everything is delivered; returns how long each direction took.
    fn watch(
        &self,
        lots: &[Lot; 2],
        live: &mut Live,
        began: Instant,
        all_sent: &dyn Fn() -> bool,
    ) -> Result<[Duration; 2], Failure> {
        let mut directions = lots
            .each_ref()
            .map(|lot| Direction::new(self.site(lot.from).admin(), lot.from, lot.to));
        let mut took = [None; 2];
        loop {
            for ((direction, lot), took) in directions.iter_mut().zip(lots).zip(&mut took) {
                let delivered = direction.look()?;
                if took.is_none() && delivered >= lot.distinct() {
                    *took = Some(began.elapsed());
                }
            }
            if let ([Some(there), Some(back)], true) = (took, all_sent()) {
                live.show(&directions, true);
                return Ok([there, back]);
            }
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::new(Exit::Failed, "CN0532", "interrupted"));
            }
            live.show(&directions, false);
            std::thread::sleep(LOOK);
        }
    }
}

/// Nobody looks at its page, and nobody but this process picks anything up.
fn layers(pickup: &str) -> Layers {
    let mut layers = Layers::default();
    layers.flag("listen.web", "consign demo", "off");
    layers.flag("listen.pickup", "consign demo", pickup);
    layers
}

/// What goes from one site to the other.
struct Lot {
    from: &'static str,
    to: &'static str,
    items: Vec<(Item, BlobDigest)>,
}

impl Lot {
    fn new(from: &'static str, to: &'static str, items: Vec<Item>) -> Result<Lot, Failure> {
        let items = items.into_iter().map(|item| {
            let digest = item.digest()?;
            Ok((item, digest))
        });
        Ok(Lot { from, to, items: items.collect::<Result<_, Failure>>()? })
    }

    fn bytes(&self) -> u64 {
        self.items.iter().fold(0, |sum, (item, _)| sum.saturating_add(item.size))
    }

    /// Segments that come of it: the same file named twice is one.
    fn distinct(&self) -> u64 {
        let known: BTreeMap<_, _> =
            self.items.iter().map(|(item, digest)| ((&item.name, digest), ())).collect();
        known.len() as u64
    }

    /// Hands everything in; returns the ids.
    fn send(&self, socket: &Path, interrupted: &AtomicBool) -> Result<Vec<String>, Failure> {
        let mut api = Api::new(socket);
        let mut ids = Vec::new();
        for (item, _) in &self.items {
            if interrupted.load(Ordering::Relaxed) {
                return Err(Failure::new(Exit::Failed, "CN0532", "interrupted"));
            }
            let target = format!("/v1/segments?name={}&to={}", item.encoded_name(), self.to);
            let mut content = item.open()?;
            let source = Source::Sized(item.size, &mut *content);
            let accepted: Accepted = api.submit(&target, source, &mut |_| {})?;
            ids.push(accepted.id);
        }
        Ok(ids)
    }

    /// Fetches everything at the far end; returns how many came as they were sent.
    fn compare(&self, socket: &Path, ids: &[String]) -> Result<u64, Failure> {
        let mut api = Api::new(socket);
        let mut equal = 0;
        for ((item, digest), id) in self.items.iter().zip(ids) {
            let mut hasher = blake3::Hasher::new();
            api.fetch(&format!("/v1/segments/{id}/content"), &mut |_, piece| {
                hasher.update(piece);
                Ok(())
            })?;
            if hasher.finalize().as_bytes() == &digest.0 {
                equal += 1;
            } else {
                out::note(&format!("{} is not at {} as it was sent", item.name, self.to));
            }
        }
        Ok(equal)
    }
}

/// How a lot fared.
struct Outcome {
    runtimes: String,
    took: Duration,
    equal: u64,
}

struct Report {
    dir: PathBuf,
    lots: [Lot; 2],
    results: Vec<Outcome>,
    picked: shard::PickedUp,
}

impl Report {
    fn is_good(&self) -> bool {
        let mut pairs = self.lots.iter().zip(&self.results);
        self.picked.is_good()
            && self.results.len() == self.lots.len()
            && pairs.all(|(lot, outcome)| outcome.equal == lot.items.len() as u64)
    }

    fn rate(lot: &Lot, outcome: &Outcome) -> u64 {
        let micros = outcome.took.as_micros().max(1);
        u64::try_from(u128::from(lot.bytes()) * 1_000_000 / micros).unwrap_or(u64::MAX)
    }

    fn json(&self) -> serde_json::Value {
        let lots = self.lots.iter().zip(&self.results).map(|(lot, outcome)| {
            json!({
                "from": lot.from,
                "to": lot.to,
                "runtimes": outcome.runtimes,
                "segments": lot.items.len(),
                "bytes": lot.bytes(),
                "seconds": outcome.took.as_secs_f64(),
                "bytes_per_second": Report::rate(lot, outcome),
                "equal": outcome.equal,
            })
        });
        json!({
            "schema": "consign.demo/1",
            "dir": self.dir.display().to_string(),
            "good": self.is_good(),
            "directions": lots.collect::<Vec<_>>(),
            "shard": self.picked.json(),
        })
    }

    fn text(&self) -> String {
        let head = [
            ("FROM", Align::Left),
            ("TO", Align::Left),
            ("RUNTIMES", Align::Left),
            ("SEGMENTS", Align::Right),
            ("BYTES", Align::Right),
            ("SECONDS", Align::Right),
            ("RATE", Align::Right),
            ("DIGESTS", Align::Left),
        ];
        let rows = self.lots.iter().zip(&self.results).map(|(lot, outcome)| {
            let all = lot.items.len();
            vec![
                lot.from.to_owned(),
                lot.to.to_owned(),
                outcome.runtimes.clone(),
                all.to_string(),
                human::bytes(lot.bytes()),
                format!("{:.2}", outcome.took.as_secs_f64()),
                human::rate(Report::rate(lot, outcome)),
                format!("{} of {all} equal", outcome.equal),
            ]
        });
        let table = human::table(&head, &rows.collect::<Vec<_>>());
        let dir = super::init::shown(&self.dir);
        format!(
            "\n{table}\n{}\n\nBoth sites are in {dir}. To look around, each serve in a terminal of its \
             own:\n  consign serve -c {dir}/alpha\n  consign serve -c {dir}/beta\n  \
             consign -c {dir}/beta ls\n  consign -c {dir}/alpha status\n  consign -c {dir}/alpha \
             pickup shards ls\nrm -r {dir} takes it all \
             away.\n",
            self.picked.text(),
        )
    }
}
