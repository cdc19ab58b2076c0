//! What the verbs of operators share: ids from the command line or standard input, the question before
//! something is deleted, the words of a report, and the exit code.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use consign_core::code::Cause;
use serde::Deserialize;

use super::complete;
use super::ls::short;
use super::screen::{Screen, during};
use crate::admin::acts::{ActRequest, Acted, Tally};
use crate::admin::ledger::IdPrefix;
use crate::client::{Api, Source};
use crate::exit::{Exit, Failure};
use crate::human;

/// Ids in one request; more are handed in one after the other.
const IDS: usize = 20_000;

/// What a selection of segments or dead letters has on the command line.
#[derive(Args, Clone, Debug, Default)]
pub struct Chosen {
    /// Ids, or their first 6 digits or more; `-` reads them from standard input, one a line or as JSON
    /// lines with an "id"
    #[arg(value_name = "ID", add = complete::chosen())]
    pub ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// Only deliveries to this peer
    #[arg(long, value_name = "PEER", add = complete::peers())]
    pub peer: Option<String>,
    /// Only those that have been so for longer than this, such as 2h
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    pub older: Option<Duration>,
    /// Says what would be done, and changes nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Why: goes into the audit
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub why: String,
}

impl Chosen {
    /// The request for an act on what is chosen.
    ///
    /// # Errors
    /// When an id is none, standard input cannot be read, or nothing at all is chosen.
    pub(super) fn request(
        &self,
        action: &str,
        reason: Option<&str>,
        input: &mut dyn BufRead,
    ) -> Result<ActRequest, Failure> {
        let filters = self.peer.is_some() || self.older.is_some() || reason.is_some();
        if self.ids.is_empty() && !self.all && !filters {
            let text = format!("{action} needs ids, a filter, or --all");
            return Err(Failure::new(Exit::Usage, "CN0402", text));
        }
        Ok(ActRequest {
            action: action.into(),
            ids: ids(&self.ids, input)?,
            all: self.all,
            peer: self.peer.clone(),
            reason: reason.map(Into::into),
            older_seconds: self.older.map(|older| older.as_secs()),
            why: self.why.clone(),
            dry_run: self.dry_run,
            ..ActRequest::default()
        })
    }

    /// Whether ids were to be given and none came: then nothing is done.
    pub(super) fn is_nothing(&self, request: &ActRequest) -> bool {
        !self.ids.is_empty() && request.ids.is_empty()
    }
}

/// Reads a reason on the command line.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let words: Vec<&str> = Cause::ALL.iter().map(|cause| cause.word()).collect();
    let word = text.replace('-', "_");
    Cause::from_word(&word)
        .map(|cause| cause.word().into())
        .ok_or_else(|| format!("it is one of {}", words.join(", ")))
}

/// A line of standard input may be a whole object.
#[derive(Deserialize)]
struct Line {
    id: String,
}

fn ids(given: &[String], input: &mut dyn BufRead) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for id in given {
        if id != "-" {
            all.push(digits(id)?);
            continue;
        }
        for line in input.lines() {
            let line = line.map_err(|why| {
                let text = format!("standard input cannot be read: {why}");
                Failure::new(Exit::Failed, "CN0620", text)
            })?;
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if line.starts_with('{') {
                let line: Line = serde_json::from_str(line).map_err(|why| {
                    let text = format!("a line of standard input has no \"id\": {why}");
                    Failure::new(Exit::Usage, "CN0613", text)
                })?;
                all.push(digits(&line.id)?);
            } else {
                all.push(digits(line)?);
            }
        }
    }
    Ok(all)
}

fn digits(text: &str) -> Result<String, Failure> {
    let prefix = IdPrefix::parse(text).ok_or_else(|| {
        let text = format!("{text:?} is not 6 to 64 hex digits of an id");
        Failure::new(Exit::Usage, "CN0613", text).help("`consign ls` shows ids")
    })?;
    Ok(prefix.digits().into())
}

/// Has an act done.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub(super) fn act(
    api: &mut Api,
    request: &ActRequest,
    screen: &mut Screen<'_>,
) -> Result<Acted, Failure> {
    let (told, of) = (AtomicU64::new(0), request.ids.len() as u64);
    let look = || (0, (told.load(Ordering::Relaxed), of));
    during(screen, "Changing", None, look, || {
        if request.ids.len() <= IDS {
            return post(api, request);
        }
        let mut all: Option<Acted> = None;
        for ids in request.ids.chunks(IDS) {
            let part = post(api, &ActRequest { ids: ids.to_vec(), ..request.clone() })?;
            told.fetch_add(ids.len() as u64, Ordering::Relaxed);
            all = Some(match all {
                None => part,
                Some(all) => joined(all, part),
            });
        }
        Ok(all.unwrap_or_default())
    })
}

fn post(api: &mut Api, request: &ActRequest) -> Result<Acted, Failure> {
    let body = serde_json::to_vec(request)
        .map_err(|e| Failure::new(Exit::Failed, "CN0604", e.to_string()))?;
    let mut bytes = body.as_slice();
    let source = Source::Sized(body.len() as u64, &mut bytes);
    api.submit("/v1/acts", source, &mut |_| {})
}

fn joined(mut all: Acted, part: Acted) -> Acted {
    all.count += part.count;
    all.bytes = all.bytes.saturating_add(part.bytes);
    all.commits += part.commits;
    all.left.extend(part.left);
    all.left_count += part.left_count;
    for more in part.done {
        match all.done.iter_mut().find(|t| t.peer == more.peer) {
            Some(tally) => {
                tally.count += more.count;
                tally.bytes = tally.bytes.saturating_add(more.bytes);
            }
            None => all.done.push(more),
        }
    }
    all
}

/// Shows what became of an act, and says how the command ends.
///
/// # Errors
/// When it cannot be written as JSON.
pub(super) fn told(acted: &Acted, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if screen.is_json() {
        screen.object(acted)?;
    } else {
        for tally in &acted.done {
            screen.line(&sentence(acted, tally));
        }
        if strikes(acted) && acted.count > 0 {
            screen.note(
                "Only what was owed is deleted. Content that nobody else is left to have stays: `consign ls \
                 --unplaced` lists it, `consign release ID` lets it go",
            );
        }
        if acted.commits > 1 {
            screen.note(&format!("in {} commits", acted.commits));
        }
    }
    for left in &acted.left {
        let id = if left.id.len() == 64 { short(&left.id) } else { left.id.clone() };
        let peer = if left.peer.is_empty() { String::new() } else { format!(" for {}", left.peer) };
        screen.note(&format!("{id}{peer}: {}", left.text));
    }
    let named = acted.left.len() as u64;
    if acted.left_count > named {
        screen.note(&format!("and {} more were left as they were", acted.left_count - named));
    }
    if acted.count == 0 && acted.left_count == 0 {
        screen.note("nothing matches");
    }
    let unknown = acted.left.iter().all(|left| left.code == "unknown");
    Ok(match (acted.count, acted.left_count) {
        (0, 0) => Exit::NoMatch,
        (0, _) if unknown => Exit::NoMatch,
        (0, _) => Exit::Failed,
        (_, 0) => Exit::Done,
        _ => Exit::Partly,
    })
}

/// Whether it has deleted what was owed.
fn strikes(acted: &Acted) -> bool {
    matches!(acted.action.as_str(), "purge" | "forget") && !acted.dry_run
}

/// `34 deliveries (3.0 GiB)`.
pub(super) fn amount(acted: &Acted, count: u64, bytes: u64) -> String {
    let segments = matches!(acted.action.as_str(), "hold" | "unhold" | "release");
    let things = match (segments, count) {
        (true, _) => human::count(count, "segment"),
        (false, 1) => "1 delivery".into(),
        (false, n) => format!("{n} deliveries"),
    };
    format!("{things} ({})", human::bytes(bytes))
}

fn sentence(acted: &Acted, tally: &Tally) -> String {
    let amount = amount(acted, tally.count, tally.bytes);
    let to = if tally.peer.is_empty() { String::new() } else { format!(" to {}", tally.peer) };
    let (past, would, rest) = match acted.action.as_str() {
        "retry" => ("Queued", "Would queue", " again"),
        "purge" => ("Deleted", "Would delete", ""),
        "hold" => ("Held", "Would hold", ""),
        "unhold" => ("Let go on", "Would let go on", ""),
        "release" => ("Released", "Would release", ""),
        "forget" => ("Gave up", "Would give up", ""),
        _ => ("Did", "Would do", ""),
    };
    match acted.dry_run {
        true => format!("{would} {amount}{to}{rest}. Nothing changed."),
        false => format!("{past} {amount}{to}{rest}."),
    }
}

/// Asks before something is deleted that was not named: on a terminal for the number, elsewhere it is
/// refused.
///
/// # Errors
/// When it is not confirmed.
pub(super) fn confirm(
    api: &mut Api,
    request: &ActRequest,
    verb: &str,
    screen: &mut Screen<'_>,
) -> Result<(), Failure> {
    let would = act(api, &ActRequest { dry_run: true, ..request.clone() }, screen)?;
    if would.count == 0 {
        return Ok(());
    }
    let things = match would.count {
        1 => "1 delivery".into(),
        n => format!("{n} deliveries"),
    };
    let unsure = |text: String| Failure::new(Exit::Usage, "CN0401", text);
    let asks = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if screen.is_json() || !asks {
        // Who is forgotten is forgotten as a whole.
        let or = if verb == "forget" { "" } else { ", or pass ids" };
        let text = format!("{verb} deletes {things} for good; repeat with --yes{or}");
        return Err(unsure(text));
    }
    let size = human::bytes(would.bytes);
    let question =
        format!("{verb} deletes {things} ({size}) for good. To go on, type {}: ", would.count);
    let mut err = std::io::stderr().lock();
    // Whoever cannot read the question does not type the number either.
    let _ = write!(err, "{question}").and_then(|()| err.flush());
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    if line.trim() == would.count.to_string() {
        return Ok(());
    }
    Err(unsure(format!("{:?} is not {}: nothing is deleted", line.trim(), would.count)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::acts::Left;
    use crate::cmd::screen::said;

    fn chosen(ids: &[&str]) -> Chosen {
        Chosen { ids: ids.iter().map(|id| (*id).into()).collect(), ..Chosen::default() }
    }

    #[test]
    fn ids_come_from_the_command_line_and_from_lines_of_standard_input() {
        let input = "3fa9c17be204\n\n{\"id\":\"81d04e77a9c3\",\"size\":3}\n  ABCDEF  \n";
        let request = chosen(&["123456", "-"]).request("retry", None, &mut input.as_bytes());
        assert_eq!(
            request.unwrap().ids,
            ["123456", "3fa9c17be204", "81d04e77a9c3", "abcdef"].map(String::from)
        );
        for bad in ["12345\n", "{\"name\":\"x\"}\n", "{\n", "zzzzzz\n"] {
            let failure = chosen(&["-"]).request("retry", None, &mut bad.as_bytes());
            let failure = failure.unwrap_err();
            assert_eq!((failure.exit, failure.code), (Exit::Usage, "CN0613"), "{bad:?}");
        }
    }

    #[test]
    fn all_must_be_said_in_so_many_words() {
        let none = chosen(&[]).request("purge", None, &mut "".as_bytes()).unwrap_err();
        assert_eq!((none.exit, none.code), (Exit::Usage, "CN0402"));
        let all = Chosen { all: true, ..chosen(&[]) };
        assert!(all.request("purge", None, &mut "".as_bytes()).unwrap().all);
        assert!(chosen(&[]).request("purge", Some("loop"), &mut "".as_bytes()).is_ok());
        // No ids on standard input is not everything.
        let from_input = chosen(&["-"]);
        let request = from_input.request("purge", None, &mut "".as_bytes()).unwrap();
        assert!(from_input.is_nothing(&request));
    }

    fn acted(action: &str, count: u64, left: &[&str]) -> Acted {
        let tally = Tally { peer: "gamma".into(), count, bytes: 3 << 30 };
        let left: Vec<Left> = left
            .iter()
            .map(|code| Left {
                id: "3fa9c1".into(),
                peer: "gamma".into(),
                code: (*code).into(),
                text: "not a dead letter (queued)".into(),
            })
            .collect();
        Acted {
            action: action.into(),
            count,
            bytes: 3 << 30,
            done: if count > 0 { vec![tally] } else { Vec::new() },
            left_count: left.len() as u64,
            left,
            ..Acted::default()
        }
    }

    #[test]
    fn reports_in_words_and_as_exit_codes() {
        let (exit, said) = said(false, |s| {
            let dry = Acted { dry_run: true, ..acted("retry", 34, &[]) };
            [
                told(&dry, s),
                told(&acted("retry", 1, &["not_dead"]), s),
                told(&acted("purge", 0, &["not_dead"]), s),
                told(&acted("purge", 0, &["unknown"]), s),
                told(&acted("purge", 0, &[]), s),
                told(&acted("hold", 2, &[]), s),
            ]
        });
        let exits = exit.map(Result::unwrap);
        let expected =
            [Exit::Done, Exit::Partly, Exit::Failed, Exit::NoMatch, Exit::NoMatch, Exit::Done];
        assert_eq!(exits, expected);
        assert_eq!(
            said.lines,
            [
                "Would queue 34 deliveries (3.0 GiB) to gamma again. Nothing changed.",
                "Queued 1 delivery (3.0 GiB) to gamma again.",
                "Held 2 segments (3.0 GiB) to gamma.",
            ]
        );
        assert_eq!(said.notes[0], "3fa9c1 for gamma: not a dead letter (queued)");
        assert_eq!(said.notes[3], "nothing matches");
    }

    #[test]
    fn a_purge_says_that_the_content_stays() {
        for (action, stays) in [("purge", true), ("forget", true), ("retry", false)] {
            let (exit, said) = said(false, |s| told(&acted(action, 2, &[]), s));
            assert_eq!(exit, Ok(Exit::Done));
            let noted = said.notes.iter().any(|note| note.contains("consign ls --unplaced"));
            assert_eq!(noted, stays, "{action}: {:?}", said.notes);
        }
        let dry = Acted { dry_run: true, ..acted("purge", 2, &[]) };
        assert_eq!(said(false, |s| told(&dry, s)).1.notes, [""; 0]);
    }

    #[test]
    fn parts_of_a_long_list_add_up() {
        let all = joined(acted("retry", 2, &["unknown"]), acted("retry", 3, &["unknown"]));
        assert_eq!((all.count, all.left_count, all.done.len()), (5, 2, 1));
        assert_eq!((all.done[0].count, all.bytes), (5, 6 << 30));
    }

    #[test]
    fn reasons_are_the_words_of_the_code_table() {
        for cause in Cause::ALL {
            assert_eq!(reason(cause.word()), Ok(cause.word().to_string()));
            assert_eq!(reason(&cause.word().replace('_', "-")), Ok(cause.word().to_string()));
        }
        assert!(reason("whim").is_err());
    }
}
