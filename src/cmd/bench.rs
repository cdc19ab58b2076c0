//! `consign bench`: what a relay between two sites costs on this machine.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::screen::{during, standard};
use crate::bench::{self, Load, Plan};
use crate::config::Runtime;
use crate::exit::{Exit, Failure, Global};
use crate::out;

/// Measures a relay between two sites on this machine.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Measure this runtime only
    #[arg(long, value_enum)]
    pub runtime: Option<Carrier>,
    /// Size of the one large segment, or none
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub large: String,
    /// How many segments of 1 KiB; the other sizes follow [default: 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Only the large segment
    #[arg(long)]
    pub only_large: bool,
    /// Only segments of this size, as many as --count says
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["large", "only_large"])]
    pub size: Option<String>,
    /// How long one segment of 1 KiB takes on an idle pair, as a histogram; 500 of them, or as many
    /// as --count says
    #[arg(long, conflicts_with_all = ["large", "only_large", "size", "rounds", "processes"])]
    pub latency: bool,
    /// How often each size is measured; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub rounds: u8,
    /// Run each site as a process of its own, so that its memory is seen alone
    #[arg(long)]
    pub processes: bool,
    /// Where to make the sites; removed at the end [default: /var/tmp]
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// A runtime, as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Carrier {
    /// A task per connection
    Smol,
    /// A thread per connection
    Std,
}

/// Segments of 1 KiB where nothing else is said.
const COUNT: u64 = 20_000;
/// Segments whose latency is taken where nothing else is said.
const LATENCY_COUNT: u64 = 500;
/// The sizes besides the large one, and their part of the count.
const SIZES: [(u64, u64); 3] = [(1 << 10, 1), (64 << 10, 16), (8 << 20, 800)];

/// Runs the command.
///
/// # Errors
/// When a site does not come up or does not get on.
pub fn run(args: &BenchArgs, global: &Global) -> Result<Exit, Failure> {
    if args.latency {
        return latency(args, global);
    }
    let plan = plan(args)?;
    let say = |text: &str| {
        if !global.quiet && !global.json {
            out::note(text);
        }
    };
    // For people, what it says is its progress.
    let report = match global.json {
        false => bench::run(&plan, &say)?,
        true => standard(global, |screen| {
            during(screen, "Measuring", None, || (0, (0, 0)), || bench::run(&plan, &|_| {}))
        })?,
    };
    if global.json {
        out::line(&report.json().to_string());
    } else {
        out::line(report.text().trim_end());
    }
    Ok(Exit::Done)
}

/// How long one segment takes, on each runtime.
fn latency(args: &BenchArgs, global: &Global) -> Result<Exit, Failure> {
    let count = args.count.unwrap_or(LATENCY_COUNT);
    for runtime in runtimes(args) {
        let latency = standard(global, |screen| {
            let work = || bench::latency::measure(args.dir.as_deref(), runtime, count);
            during(screen, "Measuring", None, || (0, (0, 0)), work)
        })?;
        if global.json {
            let mut value = latency.json();
            value["schema"] = "consign.bench_latency/1".into();
            out::line(&value.to_string());
        } else {
            out::line(latency.text().trim_end());
        }
    }
    Ok(Exit::Done)
}

fn runtimes(args: &BenchArgs) -> Vec<Runtime> {
    match args.runtime {
        None => Runtime::BUILT_IN.to_vec(),
        Some(Carrier::Smol) => vec![Runtime::Smol],
        Some(Carrier::Std) => vec![Runtime::Std],
    }
}

fn loads(args: &BenchArgs) -> Result<Vec<Load>, Failure> {
    let count = args.count.unwrap_or(COUNT);
    if let Some(size) = &args.size {
        let size = large(size)?.unwrap_or(0);
        return Ok(vec![Load { size, count }]);
    }
    let small = SIZES.map(|(size, part)| Load { size, count: (count / part).max(1) });
    let mut loads = if args.only_large { Vec::new() } else { small.to_vec() };
    if let Some(size) = large(&args.large)? {
        loads.push(Load { size, count: 1 });
    }
    Ok(loads)
}

fn plan(args: &BenchArgs) -> Result<Plan, Failure> {
    let loads = loads(args)?;
    let program = if args.processes {
        let path = std::env::current_exe().map_err(|e| {
            Failure::new(Exit::Failed, "CN0601", format!("this program cannot be found: {e}"))
        })?;
        Some(path)
    } else {
        None
    };
    Ok(Plan {
        runtimes: runtimes(args),
        loads,
        dir: args.dir.clone(),
        program,
        rounds: args.rounds.into(),
    })
}

fn large(text: &str) -> Result<Option<u64>, Failure> {
    if text == "none" {
        return Ok(None);
    }
    let size = crate::config::units::parse_size(text).map_err(|e| {
        Failure::new(Exit::Usage, "CN0002", format!("{text:?} is not a size: {e}"))
            .help("a number with a unit, such as 2GiB, or none")
    })?;
    Ok(Some(size.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> BenchArgs {
        BenchArgs {
            runtime: None,
            large: "256MiB".into(),
            count: None,
            only_large: false,
            size: None,
            latency: false,
            rounds: 1,
            processes: false,
            dir: None,
        }
    }

    #[test]
    fn both_runtimes_and_four_sizes_unless_told_otherwise() {
        let all = plan(&args()).expect("a plan");
        assert_eq!(all.runtimes, [Runtime::Smol, Runtime::Std]);
        let counts: Vec<(u64, u64)> = all.loads.iter().map(|l| (l.size, l.count)).collect();
        let large = (256 << 20, 1);
        assert_eq!(counts, [(1 << 10, 20_000), (64 << 10, 1_250), (8 << 20, 25), large]);
        let one = BenchArgs { only_large: true, large: "2GiB".into(), ..args() };
        let one = plan(&one).expect("a plan");
        assert_eq!(one.loads, [Load { size: 2 << 30, count: 1 }]);
        let many = BenchArgs { size: Some("1KiB".into()), count: Some(100_000), ..args() };
        let many = plan(&many).expect("a plan");
        assert_eq!(many.loads, [Load { size: 1 << 10, count: 100_000 }]);
        let none = BenchArgs { large: "none".into(), ..args() };
        assert_eq!(plan(&none).expect("a plan").loads.len(), 3);
        let wrong = plan(&BenchArgs { large: "big".into(), ..args() }).expect_err("not a size");
        assert_eq!(wrong.exit, Exit::Usage);
    }
}
