//! `consign watch`: how watched directories are doing.

use std::path::Path;

use clap::{Args, Subcommand};
use serde_json::json;

use super::screen::{Screen, standard};
use crate::admin::shapes::{Status, Watch};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Shows watched directories.
#[derive(Args, Clone, Debug)]
pub struct WatchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Lists watched directories: files taken since the start, files that wait, last errors
    Ls,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(args: WatchArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    let What::Ls = args.what;
    standard(global, |screen| {
        let status: Status = Api::new(socket).json("GET", "/v1/status")?;
        list(&status.watch, screen)
    })
}

fn list(watch: &[Watch], screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    if screen.is_json() {
        for dir in watch {
            screen.object(&json!({
                "schema": "consign.watch/1", "dir": dir.dir, "to": dir.to, "taken": dir.taken,
                "waiting": dir.waiting, "error": dir.error,
            }))?;
        }
    } else if watch.is_empty() {
        screen.note("no directory is watched");
    } else {
        screen.line(table(watch).trim_end());
    }
    Ok(Exit::Done)
}

/// The directories as a table.
pub(super) fn table(watch: &[Watch]) -> String {
    let head = [
        ("WATCHED", Align::Left),
        ("TO", Align::Left),
        ("TAKEN", Align::Right),
        ("WAITING", Align::Right),
        ("LAST ERROR", Align::Left),
    ];
    let row = |dir: &Watch| {
        let to = if dir.to.is_empty() { "*".to_owned() } else { dir.to.join(", ") };
        vec![dir.dir.clone(), to, dir.taken.to_string(), dir.waiting.to_string(), dir.error.clone()]
    };
    let rows: Vec<Vec<String>> = watch.iter().map(row).collect();
    human::table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::screen::said;

    #[test]
    fn a_line_for_each_directory() {
        let dir = Watch { dir: "out".into(), taken: 3, waiting: 1, ..Watch::default() };
        let (exit, said) = said(false, |screen| list(&[dir], screen));
        assert_eq!(exit.map_err(|f| f.message), Ok(Exit::Done));
        let words: Vec<&str> = said.lines[0].split_whitespace().collect();
        assert_eq!(
            words,
            ["WATCHED", "TO", "TAKEN", "WAITING", "LAST", "ERROR", "out", "*", "3", "1"]
        );
    }
}
