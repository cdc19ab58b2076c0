//! `consign inbox`: what inbox rules have given out, what they have still to do, and trying again.

use std::path::Path;
use std::time::SystemTime;

use clap::{Args, Subcommand};

use super::complete;
use super::ls::short;
use super::screen::{Progress, Screen, standard};
use crate::admin::exports::{Done, Export, Exports};
use crate::admin::shapes::{Inbox, Status};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Shows and steers what inbox rules give out.
#[derive(Args, Clone, Debug)]
pub struct InboxArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Lists what has still to be given out, and what failed
    Ls {
        /// What is done too
        #[arg(short, long)]
        all: bool,
    },
    /// Tries the exports of a segment again that failed or wait
    Retry {
        /// Its id, or the first 6 digits or more
        #[arg(value_name = "ID", value_parser = super::id, add = complete::segments())]
        id: String,
    },
    /// Gives out what is here already too: rules begin by themselves only with what arrives
    Run,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(args: InboxArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| {
        let mut api = Api::new(socket);
        match args.what {
            What::Ls { all } => list(all, &mut api, screen, SystemTime::now()),
            What::Retry { id } => {
                let target = format!("/v1/segments/{id}/exports/retry");
                act(&target, "tried again", &mut api, screen)
            }
            What::Run => act("/v1/exports/run", "begun", &mut api, screen),
        }
    })
}

const NO_RULES: &str = "this site has no [[inbox]] rules: what arrives stays in its store, where `consign ls` and `consign get` find it; \
                        `consign config explain inbox` tells what a rule takes";

/// What is wrong with a rule, and what to do about it.
pub(super) fn troubles(rule: &Inbox, now: SystemTime) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    if !rule.error.is_empty() {
        let since = rule.since.as_ref().map(|at| format!(", for {}", human::ago(at, now)));
        let since = since.as_deref().unwrap_or_default().trim_end_matches(" ago");
        let help = "it goes on by itself once that is over; `consign inbox ls` shows what waits";
        found.push((format!("{}{since}", rule.error), help));
    }
    if rule.failed > 0 {
        let help = "`consign inbox ls`, then `consign inbox retry ID`";
        found.push((format!("{} given up", human::count(rule.failed, "export")), help));
    }
    found
}

fn act(target: &str, word: &str, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let done: Done = api.json("POST", target)?;
    if screen.is_json() {
        screen.object(&done)?;
    } else if done.count > 0 {
        screen.line(&format!("{} {word}", human::count(done.count, "export")));
    } else {
        screen.note("there is nothing to do");
    }
    Ok(if done.count > 0 { Exit::Done } else { Exit::NoMatch })
}

const HEAD: [(&str, Align); 7] = [
    ("ID", Align::Left),
    ("NAME", Align::Left),
    ("DIR", Align::Left),
    ("STATE", Align::Left),
    ("RUNS", Align::Right),
    ("NEXT TRY", Align::Left),
    ("LAST ERROR", Align::Left),
];

fn list(
    all: bool,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    let (mut from, mut shown) = (None::<String>, 0_u64);
    let mut progress = Progress::new(screen, "Listing", None);
    loop {
        let mut target = "/v1/exports?".to_owned();
        if all {
            target.push_str("all=1&");
        }
        if let Some(from) = &from {
            target.push_str(&format!("from={from}"));
        }
        let page: Exports = api.json("GET", target.trim_end_matches(['?', '&']))?;
        for export in &page.exports {
            shown += 1;
            if screen.is_json() {
                screen.object(export)?;
            } else {
                rows.push(row(export, now));
            }
        }
        progress.show(screen, 0, (shown, 0));
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    progress.done();
    if !rows.is_empty() {
        screen.line(human::table(&HEAD, &rows).trim_end());
    }
    if shown == 0 {
        let status: Status = api.json("GET", "/v1/status")?;
        screen.note(match (status.inbox.is_empty(), all) {
            (true, _) => NO_RULES,
            (false, true) => "nothing was given out yet",
            (false, false) => "everything is given out; --all shows what",
        });
    }
    Ok(Exit::Done)
}

fn row(export: &Export, now: SystemTime) -> Vec<String> {
    let id = if export.id.is_empty() { "gone".into() } else { short(&export.id) };
    let name = if export.file.is_empty() { &export.name } else { &export.file };
    let dir = if export.dir.is_empty() { "no such rule" } else { &export.dir };
    // The last line that a command printed says more than its exit status.
    let printed = export.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let error = match (export.error.as_str(), printed) {
        ("", _) => String::new(),
        (error, "") => error.to_owned(),
        (error, printed) => format!("{error}: {printed}"),
    };
    let next = export.next_attempt_at.as_ref().map(|at| human::until(at, now));
    let (state, runs) = (export.state.clone(), export.runs.to_string());
    vec![id, name.clone(), dir.to_owned(), state, runs, next.unwrap_or_default(), error]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_of_a_rule_say_since_when_and_what_helps() {
        let now = human::moment("2026-11-30T18:44:05.000Z").unwrap();
        assert_eq!(troubles(&Inbox::default(), now), []);
        let rule = Inbox {
            error: "no space".into(),
            since: Some("2026-11-30T18:43:53.000Z".into()),
            failed: 1,
            ..Inbox::default()
        };
        let said: Vec<String> = troubles(&rule, now).into_iter().map(|(text, _)| text).collect();
        assert_eq!(said, ["no space, for 12 s", "1 export given up"]);
    }

    #[test]
    fn a_line_says_what_failed_and_what_the_command_said_last() {
        let export = Export {
            id: "ab".repeat(32),
            name: "a.csv".into(),
            dir: "in".into(),
            state: "failed".into(),
            runs: 8,
            exit: Some(3),
            output: "first\nno such table\n\n".into(),
            error: "the command ended with exit status: 3".into(),
            ..Export::default()
        };
        let cells = row(&export, SystemTime::UNIX_EPOCH);
        let error = "the command ended with exit status: 3: no such table";
        assert_eq!(cells, ["abababababab", "a.csv", "in", "failed", "8", "", error]);
    }
}
