//! `consign sim`: networks of sites that live and fail in this process, on virtual time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use consign_core::plant::Plant;

use super::screen::{during, standard};
use crate::cli::VERSION;
use crate::exit::{Exit, Failure, Global};
use crate::out;
use crate::record::{Recording, not_made};
use crate::sim::audit::Totals;
use crate::sim::keeping::Part;
use crate::sim::net::Topology;
use crate::sim::run::{LINES, Report, header, run as simulate, run_recorded, run_telling};
use crate::sim::scenario;
use crate::sim::swarm::{Kind, Options};

mod tell;

/// Lets whole networks live and fail on virtual time, and checks every promise.
///
/// Everything is drawn from the seed: the same seed, options and version give the same run, step by
/// step. When a promise is broken, the last lines say how to see it again.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// First seed: a number, 0x…, or a commit [default: drawn anew]
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub seed: Option<u64>,
    /// How many seeds, counted up from the first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// Simulated minutes with faults, instead of 10 to 15
    #[arg(long, value_name = "M", value_parser = parse_minutes)]
    pub minutes: Option<Duration>,
    /// Sites, 2 to 8, instead of 2 to 5
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=8))]
    pub sites: Option<u8>,
    /// Who knows whom: line, star, mesh, ring or ferry
    #[arg(long, value_name = "T")]
    pub topology: Option<Topology>,
    /// Segments that are handed in
    #[arg(long, value_name = "N")]
    pub segments: Option<u32>,
    /// Kills and power cuts that happen in any case
    #[arg(long, value_name = "N")]
    pub crashes: Option<u32>,
    /// Segments in files, per million
    #[arg(long, value_name = "PPM")]
    pub large: Option<u32>,
    /// Kinds of fault and parts of a run that do not happen, with commas; `all` for a calm world
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Real TLS on every connection (runs then differ in their bytes)
    #[arg(long)]
    pub tls: bool,
    /// Stop after this step, and tell the last ones before it
    #[arg(long, value_name = "STEP")]
    pub until: Option<u64>,
    /// How many of the last steps to tell
    #[arg(long, value_name = "N", default_value_t = LINES)]
    pub last: usize,
    /// Write a recording of every node, for `consign replay`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Tell one named story instead, or `list` them, or `all`
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
    /// Do not look for a smaller run that breaks the same promise
    #[arg(long)]
    pub no_shrink: bool,
    /// A rule that every site drops, in builds that have planted bugs
    #[arg(long, value_name = "RULE", hide = true, value_parser = parse_plant)]
    pub plant: Option<Plant>,
    /// Runs at a time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub jobs: Option<u8>,
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let hex = text.strip_prefix("0x").or_else(|| (text.len() == 40).then_some(text));
    match hex {
        None => text.parse().map_err(|_| "a seed is a number, 0x… or a commit".to_owned()),
        Some(hex) if !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            let hex = hex.get(..hex.len().min(16)).unwrap_or(hex);
            u64::from_str_radix(hex, 16).map_err(|e| e.to_string())
        }
        Some(_) => Err("0x is followed by hex digits".to_owned()),
    }
}

fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "minutes are a number".to_owned())?;
    if !(0.01..=100_000.0).contains(&minutes) {
        return Err("minutes are between 0.01 and 100000".to_owned());
    }
    Ok(Duration::from_secs((minutes * 60.0).round() as u64))
}

fn parse_plant(word: &str) -> Result<Plant, String> {
    // Known at compile time: a release has none of their names.
    if !Plant::G2.is_in(Some(Plant::G2)) {
        return Err("this build has no planted bugs (feature `plant`)".to_owned());
    }
    Plant::from_word(word).ok_or_else(|| format!("there are {:?}", Plant::ALL))
}

impl SimArgs {
    /// The run of a seed, as these arguments want it.
    ///
    /// # Errors
    /// A kind of fault that does not exist.
    pub fn options(&self, seed: u64) -> Result<Options, Failure> {
        let mut options = Options::draw(seed);
        options.length = self.minutes.unwrap_or(options.length);
        options.sites = self.sites.map_or(options.sites, usize::from);
        options.topology = self.topology.unwrap_or(options.topology);
        options.segments = self.segments.unwrap_or(options.segments);
        options.crashes = self.crashes.unwrap_or(options.crashes);
        options.large = self.large.unwrap_or(options.large);
        options.tls = self.tls;
        options.plant = self.plant;
        for word in &self.without {
            if word == "all" {
                options = options.calm();
                continue;
            }
            if let Some(part) = Part::ALL.into_iter().find(|part| part.word() == word) {
                options.keeping.drop(part);
                continue;
            }
            let kind: Kind =
                word.parse().map_err(|e: String| Failure::new(Exit::Usage, "CN0002", e))?;
            options.rates.set(kind, 0);
        }
        Ok(options)
    }
}

/// What all runs came to.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    full: u64,
    simulated: Duration,
    spent: Duration,
    steps: u64,
    totals: Totals,
    hashes: u64,
    failed: Option<Report>,
}

impl Sum {
    fn add(&mut self, report: Report, spent: Duration) {
        self.seeds += 1;
        let totals = &report.totals;
        let long = report.simulated >= Duration::from_secs(600);
        self.full += u64::from(long && totals.queued >= 200 && totals.crashes >= 3);
        self.simulated += report.simulated;
        self.spent += spent;
        self.steps += report.steps;
        self.totals.add(totals);
        self.hashes ^= report.hash.rotate_left((report.options.seed % 64) as u32);
        let earlier = |old: &Report| report.options.seed < old.options.seed;
        if report.broken.is_some() && self.failed.as_ref().is_none_or(earlier) {
            self.failed = Some(report);
        }
    }

    /// Simulated seconds per second of one processor.
    fn speed(&self) -> f64 {
        self.simulated.as_secs_f64() / self.spent.as_secs_f64().max(1e-9)
    }

    /// Deliveries per minute of one processor.
    fn per_minute(&self) -> f64 {
        60.0 * self.totals.delivered as f64 / self.spent.as_secs_f64().max(1e-9)
    }
}

/// Runs the command.
///
/// # Errors
/// When the arguments make no sense, or a recording cannot be written.
pub fn run(args: &SimArgs, global: &Global) -> Result<Exit, Failure> {
    if let Some(name) = &args.scenario {
        return scenarios(name, args.plant, global);
    }
    let first = match args.seed {
        Some(seed) => seed,
        None => {
            getrandom::u64().map_err(|e| {
                Failure::new(Exit::Failed, "CN0625", format!("no seed could be drawn: {e}"))
            })? >> 32
        }
    };
    let sample = args.options(first)?;
    if !global.quiet && !global.json {
        out::line(&format!("consign {VERSION} sim {sample}"));
    }
    let started = Instant::now();
    let sum = run_all(args, first, global)?;
    let took = started.elapsed();
    let mut shown = (sample, args.until);
    if let Some(failed) = &sum.failed {
        shown = tell::failure(args, failed, global)?;
    } else if args.until.is_some() && !global.json {
        tell::last_steps(&run_telling(&shown.0, args.until, args.last)?);
    }
    if let Some(file) = &args.trace {
        record(file, &shown.0, shown.1)?;
    }
    tell::summary(&sum, first, took, global);
    Ok(if sum.failed.is_some() { Exit::Failed } else { Exit::Done })
}

/// Runs it once more and writes down what every node took in and did.
fn record(file: &Path, options: &Options, until: Option<u64>) -> Result<(), Failure> {
    let instead = "give another name";
    let (tell, told) = channel();
    let path = file.to_owned();
    let on_fault = Box::new(move |e: &std::io::Error| {
        // Nobody listens any more once the run has failed otherwise.
        let _ = tell.send(not_made(&path, e, instead));
    });
    let recording = Recording::create(file, &header(options), on_fault)
        .map_err(|e| not_made(file, &e, instead))?;
    run_recorded(options, until, recording)?;
    told.try_recv().map_or(Ok(()), Err)
}

/// Tells named stories.
fn scenarios(name: &str, plant: Option<Plant>, global: &Global) -> Result<Exit, Failure> {
    let all = scenario::all();
    if name == "list" {
        for story in &all {
            out::line(&format!("{:30} {}", story.name, story.about));
        }
        return Ok(Exit::Done);
    }
    let wanted: Vec<_> = all.iter().filter(|s| name == "all" || s.name == name).collect();
    if wanted.is_empty() {
        let message = format!("there is no scenario {name:?}");
        return Err(Failure::new(Exit::Usage, "CN0002", message).help("see --scenario list"));
    }
    let mut exit = Exit::Done;
    for story in wanted {
        match scenario::tell_planted(story, plant) {
            Ok(report) if global.quiet => drop(report),
            Ok(report) => out::line(&format!(
                "ok    {:30} {} steps, {} s",
                story.name,
                report.steps,
                report.simulated.as_secs()
            )),
            Err(why) => {
                exit = Exit::Failed;
                out::line(&format!("FAIL  {:30} {why}", story.name));
            }
        }
    }
    Ok(exit)
}

/// Every seed, on as many threads as there are processors; ends early at the first broken promise.
fn run_all(args: &SimArgs, first: u64, global: &Global) -> Result<Sum, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, usize::from).min(args.seeds.try_into().unwrap_or(cores));
    let next = AtomicU64::new(0);
    let sum = Mutex::new(Sum::default());
    let work = || -> Result<(), Failure> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= args.seeds {
                return Ok(());
            }
            let begun = Instant::now();
            let options = args.options(first.wrapping_add(number));
            let ended = options.and_then(|options| simulate(&options, args.until));
            if ended.as_ref().map_or(true, |report| report.broken.is_some()) {
                // Nobody begins another.
                next.store(args.seeds, Ordering::Relaxed);
            }
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.add(ended?, begun.elapsed());
        }
    };
    let all = || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    };
    let look = || (0, (sum.lock().unwrap_or_else(PoisonError::into_inner).seeds, args.seeds));
    standard(global, |screen| during(screen, "Simulating", None, look, all))?;
    Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
}
