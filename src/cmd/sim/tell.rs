//! What `consign sim` says: the summary, and a broken promise with the way to see it again.

use std::time::Duration;

use serde_json::json;

use super::{SimArgs, Sum};
use crate::cli::VERSION;
use crate::exit::{Failure, Global};
use crate::human;
use crate::out;
use crate::sim::keeping::Part;
use crate::sim::run::{Report, run_telling};
use crate::sim::swarm::Options;

/// All runs in a few lines.
pub(super) fn summary(sum: &Sum, first: u64, took: Duration, global: &Global) {
    let totals = &sum.totals;
    if global.json {
        let object = json!({
            "schema": "consign.sim/1", "version": VERSION, "first_seed": first,
            "seeds": sum.seeds, "full_seeds": sum.full, "failed": sum.failed.is_some(),
            "simulated": sum.simulated.as_secs(), "seconds": took.as_secs_f64(),
            "processor_seconds": sum.spent.as_secs_f64(), "steps": sum.steps,
            "crashes": totals.crashes, "queued": totals.queued, "delivered": totals.delivered,
            "dead": totals.dead, "refused": totals.refused,
            "shards_kept": totals.kept, "shards_stored": totals.stored,
            "simulated_seconds_per_second": sum.speed(),
            "delivered_per_minute": sum.per_minute(), "hash": format!("{:016x}", sum.hashes),
        });
        return out::line(&object.to_string());
    }
    if global.quiet && sum.failed.is_none() {
        return;
    }
    let ok = if sum.failed.is_some() { "not clean" } else { "clean" };
    out::line(&format!(
        "{ok}: {} seeds, {} of them with 10 minutes, 200 segments and 3 crashes; trace hash {:016x}",
        sum.seeds, sum.full, sum.hashes
    ));
    out::line(&format!(
        "      {} simulated, {} steps, {} crashes, {} queued, {} delivered, {} dead, {} refused",
        human::duration(sum.simulated),
        sum.steps,
        totals.crashes,
        totals.queued,
        totals.delivered,
        totals.dead,
        totals.refused,
    ));
    if totals.kept > 0 {
        let (kept, stored) = (totals.kept, totals.stored);
        out::line(&format!("      {kept} shards kept, {stored} handed over to their nodes"));
    }
    out::line(&format!(
        "      in {:.1} s: {:.0} simulated seconds a second and {:.0} deliveries a minute, on one processor",
        took.as_secs_f64(),
        sum.speed(),
        sum.per_minute(),
    ));
}

/// The last steps of a run, oldest first.
pub(super) fn last_steps(report: &Report) {
    out::line("last steps:");
    for line in &report.last_steps {
        out::line(&format!("  {line}"));
    }
}

/// A broken promise: what, the last steps, a smaller run if there is one, and the command.
/// Gives back what was told of.
pub(super) fn failure(
    args: &SimArgs,
    failed: &Report,
    global: &Global,
) -> Result<(Options, Option<u64>), Failure> {
    let as_it_was = (failed.options.clone(), Some(failed.steps));
    let Some((at, violation)) = &failed.broken else { return Ok(as_it_was) };
    let mut shown = failed.clone();
    if !args.no_shrink && args.until.is_none() && !args.tls {
        if !global.quiet && !global.json {
            out::note("looking for a smaller run that breaks the same promise");
        }
        shown = crate::sim::shrink::shrink(failed);
    }
    let (at, violation) = shown.broken.as_ref().map_or((at, violation), |(a, v)| (a, v));
    let again = run_telling(&shown.options, Some(shown.steps), args.last)?;
    let command = command(&shown.options, shown.steps);
    if global.json {
        let object = json!({
            "schema": "consign.sim.failure/1", "seed": shown.options.seed, "step": shown.steps,
            "at": at.to_string(), "invariant": violation.invariant, "site": violation.site,
            "segment": violation.segment.map(|id| id.to_string()), "text": violation.text,
            "story": violation.story, "last_steps": again.last_steps, "command": command,
        });
        out::line(&object.to_string());
        return Ok((shown.options, Some(shown.steps)));
    }
    out::line(&format!("FAIL  seed {} step {} at {at}", shown.options.seed, shown.steps));
    out::line(&violation.to_string());
    last_steps(&again);
    out::line(&format!("replay: {command}      ({VERSION})"));
    if let Some(file) = &args.trace {
        out::line(&format!("trace:  {}", file.display()));
    }
    Ok((shown.options, Some(shown.steps)))
}

/// The command line that runs exactly this again.
#[must_use]
pub fn command(options: &Options, until: u64) -> String {
    let drawn = Options::draw(options.seed);
    let mut line = format!("consign sim --seed {}", options.seed);
    let mut flag = |name: &str, value: String, differs: bool| {
        if differs {
            line.push_str(&format!(" --{name} {value}"));
        }
    };
    let minutes = options.length.as_secs_f64() / 60.0;
    flag("minutes", format!("{minutes:.4}"), options.length != drawn.length);
    flag("sites", options.sites.to_string(), options.sites != drawn.sites);
    flag("topology", options.topology.to_string(), options.topology != drawn.topology);
    flag("segments", options.segments.to_string(), options.segments != drawn.segments);
    flag("crashes", options.crashes.to_string(), options.crashes != drawn.crashes);
    flag("large", options.large.to_string(), options.large != drawn.large);
    let dropped = |part: &Part| drawn.keeping.has(*part) && !options.keeping.has(*part);
    let parts = Part::ALL.into_iter().filter(dropped).map(Part::word);
    let off: Vec<&str> = drawn
        .rates
        .on()
        .filter(|kind| options.rates.of(*kind) == 0)
        .map(|kind| kind.word())
        .chain(parts)
        .collect();
    flag("without", off.join(","), !off.is_empty());
    if let Some(plant) = options.plant {
        line.push_str(&format!(" --plant {plant:?}"));
    }
    if options.tls {
        line.push_str(" --tls");
    }
    line.push_str(&format!(" --until {until}"));
    line
}
