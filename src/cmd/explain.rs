//! `consign explain`: what a code means, and what a segment waits for.

mod waits;

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::complete;
use super::screen::{Screen, standard};
use crate::admin::assurance::Assurance;
use crate::admin::ledger::IdPrefix;
use crate::admin::shapes::{Segment, Status};
use crate::advice::Address;
use crate::cli::Trouble;
use crate::client::Api;
use crate::codes::{self, Entry};
use crate::exit::{Exit, Failure, Global};
use crate::human;

/// Explains a code, or what a segment waits for.
#[derive(Args, Clone, Debug, Default)]
pub struct ExplainArgs {
    /// Codes such as CN0503 or quota, or the first 6 digits or more of segments' ids
    #[arg(value_name = "CODE|ID", required_unless_present = "all", conflicts_with = "all")]
    #[arg(add = complete::explained())]
    pub what: Vec<String>,
    /// Every code there is
    #[arg(short, long)]
    pub all: bool,
}

/// What a segment waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// `consign.explanation/1`
    pub schema: String,
    /// The segment, 64 hex digits.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether everything it is owed is done.
    pub done: bool,
    /// How it stands, in one sentence.
    pub summary: String,
    /// How each of its deliveries stands.
    pub deliveries: Vec<Waiting>,
}

impl Explanation {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.explanation/1";
}

/// What a delivery waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// The site.
    pub peer: String,
    /// `queued`, `sending`, `backing off`, `held`, `delivered` or `dead`.
    pub state: String,
    /// Attempts so far.
    pub attempts: u64,
    /// Failures of its own.
    pub spent: u32,
    /// When it is tried next, as far as it is up to this delivery.
    pub next_attempt_at: Option<String>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// What that means.
    pub last_error_means: Option<String>,
    /// What the peer said of it, with the numbers, as long as that is the last trouble with it.
    #[serde(default)]
    pub last_error_text: Option<String>,
    /// What it waits for: what holds it longest comes first. Empty when it is done.
    pub waits_for: Vec<Reason>,
}

/// One thing that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Stable word, such as `peer_down`.
    pub what: String,
    /// A sentence.
    pub text: String,
    /// Until when, if that is known.
    pub until: Option<String>,
    /// What to do about it; empty when nothing is to be done.
    pub help: String,
}

/// Runs it; `at` finds the socket, which codes do not need.
///
/// # Errors
/// When nothing has such a code or id, or the daemon cannot be reached.
pub fn run(
    args: ExplainArgs,
    global: &Global,
    at: impl FnOnce() -> Result<PathBuf, crate::config::Faults>,
) -> Result<Exit, Trouble> {
    let asks = args.what.iter().any(|what| is_id(what));
    let mut api = if asks { Some(Api::new(&at()?)) } else { None };
    let done = standard(global, |screen| explain(&args, api.as_mut(), screen, SystemTime::now()));
    Ok(done?)
}

/// Whether it can only be an id: no code consists of hex digits alone.
fn is_id(what: &str) -> bool {
    IdPrefix::parse(what).is_some() && codes::find(what).is_empty()
}

fn explain(
    args: &ExplainArgs,
    mut api: Option<&mut Api>,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    if args.all {
        every(screen)?;
        return Ok(Exit::Done);
    }
    for (i, what) in args.what.iter().enumerate() {
        if i > 0 && !screen.is_json() {
            screen.line("");
        }
        match api.as_deref_mut().filter(|_| is_id(what)) {
            Some(api) => segment(what, api, screen, now)?,
            None => code(what, screen)?,
        }
    }
    Ok(Exit::Done)
}

fn every(screen: &mut Screen<'_>) -> Result<(), Failure> {
    let mut section = String::new();
    for entry in codes::all() {
        if screen.is_json() {
            screen.object(&entry)?;
            continue;
        }
        if entry.section != section {
            let blank = if section.is_empty() { "" } else { "\n" };
            screen.line(&format!("{blank}{}", entry.section));
            section.clone_from(&entry.section);
        }
        screen.line(&format!("  {:<22} {}", entry.code, entry.means));
    }
    Ok(())
}

fn code(what: &str, screen: &mut Screen<'_>) -> Result<(), Failure> {
    let found = codes::find(what);
    if found.is_empty() {
        let message = format!("{what:?} is neither a code nor the beginning of an id");
        let help = match nearest(what) {
            Some(code) => format!("{code} is one; all of them: consign explain --all"),
            None => "all codes: consign explain --all".into(),
        };
        return Err(Failure::new(Exit::NoMatch, "CN0404", message).help(help));
    }
    for entry in &found {
        if screen.is_json() {
            screen.object(entry)?;
        } else {
            screen.advise(&text(entry));
        }
    }
    Ok(())
}

fn text(entry: &Entry) -> String {
    let mut text = format!("{}  {}\n  in       {}", entry.code, entry.means, entry.section);
    if !entry.help.is_empty() {
        text.push_str(&format!("\n  do this  {}", entry.help));
    }
    text
}

/// The code that was probably meant.
fn nearest(what: &str) -> Option<String> {
    let close = |entry: &Entry| strsim::damerau_levenshtein(&entry.code, &what.to_lowercase());
    let found = codes::all().into_iter().min_by_key(close)?;
    (close(&found) <= 2).then_some(found.code)
}

fn segment(
    id: &str,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<(), Failure> {
    let segment = match api.json::<Segment>("GET", &format!("/v1/segments/{id}")) {
        Ok(segment) => segment,
        Err(why) if why.exit == Exit::NoMatch => {
            // What is not held may have been evicted; if not, the first answer says it best.
            let assurance = api.json::<Assurance>("GET", &format!("/v1/assurance/{id}"));
            return show(&gone(&assurance.map_err(|_| why)?), screen, now);
        }
        Err(why) => return Err(why),
    };
    let status: Status = api.json("GET", "/v1/status")?;
    show(&waits::explanation(&segment, &status), screen, now)
}

fn gone(assurance: &Assurance) -> Explanation {
    Explanation {
        schema: Explanation::SCHEMA.into(),
        id: assurance.id.clone(),
        name: assurance.name.clone(),
        done: true,
        summary: format!("it waits for nothing: {}", assurance.because),
        deliveries: Vec::new(),
    }
}

fn show(
    explanation: &Explanation,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<(), Failure> {
    if screen.is_json() {
        return screen.object(explanation);
    }
    let told = told(explanation, screen.address());
    screen.line(words(&told, now).trim_end());
    Ok(())
}

/// The same with its commands as the reader called this one.
fn told(explanation: &Explanation, address: &Address) -> Explanation {
    let mut told = explanation.clone();
    told.summary = address.tell(&told.summary);
    for reason in told.deliveries.iter_mut().flat_map(|delivery| &mut delivery.waits_for) {
        reason.help = address.tell(&reason.help);
    }
    told
}

fn words(explanation: &Explanation, now: SystemTime) -> String {
    let short = super::ls::short(&explanation.id);
    let mut text = format!("{short}  {}: {}\n", explanation.name, explanation.summary);
    for delivery in &explanation.deliveries {
        let (peer, state) = (&delivery.peer, &delivery.state);
        text.push_str(&format!("{peer}  {state}, {}\n", tried(delivery)));
        for reason in &delivery.waits_for {
            text.push_str(&format!("  waits     {}", reason.text));
            if let Some(until) = &reason.until {
                text.push_str(&format!(" ({})", human::until(until, now)));
            }
            text.push('\n');
            if !reason.help.is_empty() {
                text.push_str(&format!("  do this   {}\n", reason.help));
            }
        }
        let cause = delivery.last_error.as_ref().filter(|_| delivery.state != "delivered");
        if let Some(cause) = cause {
            let means =
                delivery.last_error_means.as_deref().unwrap_or("no such code is known here");
            text.push_str(&format!("  last time {cause}: {means}\n"));
            if let Some(said) = &delivery.last_error_text {
                text.push_str(&format!("  {:<9} {said}\n", "in full"));
            }
        }
    }
    text
}

/// How often it was tried, and what of that uses its retries up.
fn tried(delivery: &Waiting) -> String {
    let times = match delivery.attempts {
        0 => "not tried yet".into(),
        1 => "tried once".into(),
        n => format!("tried {} times", human::thousands(n)),
    };
    match (delivery.spent, delivery.state.as_str()) {
        (0, _) | (_, "delivered") => times,
        (1, _) => format!("{times}; 1 failure counts against relay.max_retries"),
        (n, _) => format!("{times}; {n} failures count against relay.max_retries"),
    }
}

#[cfg(test)]
mod tests;
