//! `consign assurance`: who holds what, by what evidence, and whether the copy here may go.

use std::path::Path;
use std::time::SystemTime;

use clap::Args;
use consign_core::http::encode_component;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::complete;
use super::screen::{Progress, Screen, standard};
use crate::admin::assurance::{Assurance, Assurances};
use crate::admin::shapes::{Count, Status};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Segments of a page that is asked for.
const PAGE: u64 = 500;

/// Says how many of the required sites hold segments, and whether the copies here may be deleted.
#[derive(Args, Clone, Debug, Default)]
pub struct AssuranceArgs {
    /// Segments by their ids, or the first 6 digits or more; evicted ones too
    #[arg(value_name = "ID", value_parser = super::id, required_unless_present_any = ["all", "peer", "unmet"])]
    #[arg(add = complete::segments())]
    pub ids: Vec<String>,
    /// Every segment with a delivery to this peer
    #[arg(long, value_name = "PEER", conflicts_with = "ids", add = complete::peers())]
    pub peer: Option<String>,
    /// Every segment
    #[arg(short, long, conflicts_with = "ids")]
    pub all: bool,
    /// Only those that not enough sites hold, oldest first
    #[arg(long, conflicts_with = "ids")]
    pub unmet: bool,
    /// Shows at most so many of a selection; all of it is counted, and told with --json
    #[arg(short = 'n', long, value_name = "N", default_value = "20")]
    pub limit: u64,
}

/// A selection in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Total {
    /// `consign.assurance_total/1`
    pub schema: String,
    /// Segments asked about.
    pub segments: u64,
    /// How many of them enough sites hold.
    pub met: u64,
    /// How many not.
    pub unmet: u64,
    /// Those of which nothing is required here, because this site hands them on to nobody; neither met nor unmet.
    #[serde(default)]
    pub nothing_required: u64,
    /// When the oldest of those was accepted.
    pub oldest_unmet: Option<String>,
    /// Those whose copy here may be deleted, with their bytes.
    pub safe_to_delete: Count,
    /// Those that no other site has confirmed, with their bytes.
    pub only_here: Count,
    /// Those with damaged content.
    pub damaged: u64,
    /// Those of which only receipts are left.
    pub evicted: u64,
    /// Dead letters of the whole site.
    pub dead: u64,
    /// When the last pass over all content ended.
    pub last_scrub: Option<String>,
    /// What passes have found wrong since the start of the site.
    pub corrupt: u64,
    /// Rows in quarantine.
    pub quarantined: u64,
}

impl Total {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.assurance_total/1";

    fn add(&mut self, one: &Assurance) {
        self.segments += 1;
        if one.met {
            self.met += 1;
        } else if is_free(one) {
            self.nothing_required += 1;
        } else {
            self.unmet += 1;
            if self.oldest_unmet.as_ref().is_none_or(|oldest| one.since < *oldest) {
                self.oldest_unmet = Some(one.since.clone());
            }
        }
        let held = one.copy != "evicted";
        let add = |count: &mut Count| {
            count.count += 1;
            count.bytes = count.bytes.saturating_add(one.size);
        };
        if one.safe_to_delete && held {
            add(&mut self.safe_to_delete);
        }
        if one.holders.is_empty() && held {
            add(&mut self.only_here);
        }
        self.damaged += u64::from(one.copy == "damaged");
        self.evicted += u64::from(!held);
    }

    fn finish(&mut self, status: &Status) {
        self.schema = Total::SCHEMA.into();
        self.dead = status.peers.iter().map(|peer| peer.dead.count).sum();
        self.last_scrub.clone_from(&status.scrub.last);
        self.corrupt = status.scrub.corrupt;
        self.quarantined = status.quarantined;
    }
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached, or an id is that of no segment, or of several.
pub fn run(args: AssuranceArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| assure(&args, &mut Api::new(socket), screen, SystemTime::now()))
}

fn assure(
    args: &AssuranceArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let mut total = Total::default();
    if args.ids.is_empty() {
        selection(args, api, screen, &mut total)?;
        if total.segments == 0 {
            screen.note("no segment matches");
            return Ok(Exit::NoMatch);
        }
    } else {
        for (i, id) in args.ids.iter().enumerate() {
            let one: Assurance = api.json("GET", &format!("/v1/assurance/{id}"))?;
            total.add(&one);
            if screen.is_json() {
                screen.object(&one)?;
            } else {
                let blank = if i > 0 { "\n" } else { "" };
                screen.line(&format!("{blank}{}", text(&one)));
            }
        }
    }
    if args.ids.len() != 1 {
        total.finish(&api.json("GET", "/v1/status")?);
        if screen.is_json() {
            screen.object(&total)?;
        } else {
            screen.line(&format!("\n{}", totals(&total, now)));
        }
    }
    Ok(Exit::Done)
}

fn selection(
    args: &AssuranceArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    total: &mut Total,
) -> Result<(), Failure> {
    let (mut after, mut rows) = (None, Vec::new());
    let mut progress = Progress::new(screen, "Listing", None);
    loop {
        let page: Assurances = api.json("GET", &target(args, after.as_deref()))?;
        for one in &page.assurances {
            total.add(one);
            if screen.is_json() {
                screen.object(one)?;
            } else if total.segments <= args.limit {
                rows.push(row(one));
            }
        }
        progress.show(screen, 0, (total.segments, 0));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    progress.done();
    if !rows.is_empty() {
        screen.line(human::table(&HEAD, &rows).trim_end());
    }
    let more = total.segments.saturating_sub(args.limit);
    if more > 0 && args.limit > 0 {
        screen.note(&format!("{} more are counted below: -n shows more", human::thousands(more)));
    }
    Ok(())
}

fn target(args: &AssuranceArgs, after: Option<&str>) -> String {
    let mut target = format!("/v1/assurance?limit={PAGE}");
    if args.unmet {
        target.push_str("&unmet=1");
    }
    for (key, value) in [("peer", args.peer.as_deref()), ("after", after)] {
        if let Some(value) = value {
            target.push_str(&format!("&{key}="));
            encode_component(value, &mut target);
        }
    }
    target
}

const HEAD: [(&str, Align); 7] = [
    ("ID", Align::Left),
    ("NAME", Align::Left),
    ("SIZE", Align::Right),
    ("HELD BY", Align::Right),
    ("MET", Align::Left),
    ("DELETE HERE", Align::Left),
    ("BECAUSE", Align::Left),
];

fn row(one: &Assurance) -> Vec<String> {
    vec![
        super::ls::short(&one.id),
        one.name.clone(),
        human::bytes(one.size),
        if is_free(one) { "–".into() } else { format!("{} of {}", one.holding, one.required) },
        if is_free(one) { "nothing required" } else { yes(one.met) }.into(),
        yes(one.safe_to_delete).into(),
        one.because.clone(),
    ]
}

/// Whether no other site has to hold it: nothing can be met or missed.
fn is_free(one: &Assurance) -> bool {
    one.required == 0 && !one.met
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

fn text(one: &Assurance) -> String {
    let mut text =
        format!("{}  {}  {}", super::ls::short(&one.id), one.name, human::bytes(one.size));
    let mut field = |name: &str, value: String| text.push_str(&format!("\n  {name:<9} {value}"));
    field("here", format!("{} since {}", one.copy, one.since));
    let met = match (&one.met_at, one.met) {
        (Some(at), true) => format!("met {at}"),
        (None, true) => "met".into(),
        (_, false) => "not met".into(),
    };
    let needed = format!("{} of {} required ({})", one.holding, one.required, one.condition);
    match is_free(one) {
        true => field("held by", "nothing required here".into()),
        false => field("held by", format!("{needed}: {met}")),
    }
    for holder in &one.holders {
        let until = holder.until.as_ref().map(|at| format!(", kept until {at}"));
        field(
            "",
            format!("{}  {} {}{}", holder.site, holder.by, holder.at, until.unwrap_or_default()),
        );
    }
    for owed in &one.owed {
        let error = owed.last_error.as_ref().map(|error| format!(" ({error})"));
        field("owed", format!("{}  {}{}", owed.site, owed.state, error.unwrap_or_default()));
    }
    let word = if one.copy == "evicted" { "deleted" } else { yes(one.safe_to_delete) };
    field("delete", format!("{word}: {}", one.because));
    text
}

fn totals(total: &Total, now: SystemTime) -> String {
    let sized = |count: Count| match count.count {
        0 => "0".to_string(),
        n => format!("{} ({})", human::thousands(n), human::bytes(count.bytes)),
    };
    let oldest = total.oldest_unmet.as_ref();
    let oldest = oldest.map(|at| format!(", the oldest accepted {}", human::ago(at, now)));
    let scrub = total.last_scrub.as_ref().map_or("never yet".into(), |at| human::ago(at, now));
    let lines = [
        ("segments", human::thousands(total.segments)),
        ("met", human::thousands(total.met)),
        ("not met", human::thousands(total.unmet) + &oldest.unwrap_or_default()),
        ("may be deleted here", sized(total.safe_to_delete)),
        ("confirmed nowhere else", sized(total.only_here)),
        ("damaged here", human::thousands(total.damaged)),
        ("dead letters of the site", human::thousands(total.dead)),
        ("all content compared", format!("{scrub}; {} found wrong", total.corrupt)),
        ("rows in quarantine", human::thousands(total.quarantined)),
    ];
    let free = (total.nothing_required > 0)
        .then(|| ("nothing required", human::thousands(total.nothing_required)));
    let (first, rest) = lines.split_at(3);
    let lines: Vec<String> = first
        .iter()
        .chain(&free)
        .chain(rest)
        .map(|(name, value)| format!("{name:<25} {value}"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
