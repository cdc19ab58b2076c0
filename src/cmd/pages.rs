//! `consign completions` and `consign man`: what a shell and a reader of manuals want, from the command
//! line itself.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_complete::env::Shells;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::screen::{Screen, standard};
use crate::exit::{Exit, Failure, Global};

/// Prints what a shell needs to complete commands and flags.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
    /// Has the shell ask consign each time, so that it completes peers, ids and other names too; make it anew with each version
    #[arg(long)]
    pub live: bool,
}

/// The variable by which a shell asks what may come next.
pub(crate) const ASKED: &str = "CONSIGN_COMPLETE";

/// Writes manual pages, one for each command.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Directory in which they are written; it is made if need be
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Files that were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// `consign.written/1`
    pub schema: String,
    /// Their paths.
    pub files: Vec<String>,
}

impl Written {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.written/1";
}

/// Runs `completions`: the script itself, with and without `--json`.
///
/// # Errors
/// None but what standard output says.
pub fn completions(
    args: &CompletionsArgs,
    global: &Global,
    mut command: Command,
) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    if args.live {
        live(args.shell, &mut script)?;
    } else {
        clap_complete::generate(args.shell, &mut command, "consign", &mut script);
    }
    standard(global, |screen| screen.line(String::from_utf8_lossy(&script).trim_end()));
    Ok(Exit::Done)
}

/// What has a shell ask the `consign` that it finds.
fn live(shell: Shell, script: &mut Vec<u8>) -> Result<(), Failure> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let failed = |why: String| {
        Failure::new(Exit::Failed, "CN0406", format!("no live completion for {name}: {why}"))
    };
    let completer = shells.completer(&name).ok_or_else(|| failed("it is not known".into()))?;
    let (consign, script) = ("consign", script);
    completer
        .write_registration(ASKED, consign, consign, consign, script)
        .map_err(|e| failed(e.to_string()))
}

/// Runs `man`.
///
/// # Errors
/// When a page cannot be written.
pub fn man(args: &ManArgs, global: &Global, command: Command) -> Result<Exit, Failure> {
    standard(global, |screen| pages(&args.dir, command, screen))
}

fn pages(dir: &Path, mut command: Command, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    std::fs::create_dir_all(dir).map_err(|e| cannot(dir, &e))?;
    command.build();
    let mut written = Written { schema: Written::SCHEMA.into(), files: Vec::new() };
    page(dir, &command, "consign", &mut written)?;
    if screen.is_json() {
        screen.object(&written)?;
    } else {
        for file in &written.files {
            screen.line(file);
        }
    }
    Ok(Exit::Done)
}

/// The page of a command, and those of the commands below it.
fn page(dir: &Path, command: &Command, name: &str, written: &mut Written) -> Result<(), Failure> {
    let mut text = Vec::new();
    let path = dir.join(format!("{name}.1"));
    clap_mangen::Man::new(command.clone()).render(&mut text).map_err(|e| cannot(&path, &e))?;
    std::fs::write(&path, text).map_err(|e| cannot(&path, &e))?;
    written.files.push(path.display().to_string());
    for below in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        page(dir, below, &format!("{name}-{}", below.get_name()), written)?;
    }
    Ok(())
}

fn cannot(path: &Path, e: &std::io::Error) -> Failure {
    let message = format!("{} cannot be written: {e}", path.display());
    Failure::new(Exit::Failed, "CN0406", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::screen::said;

    #[test]
    fn every_shell_can_ask() {
        for shell in <Shell as clap::ValueEnum>::value_variants() {
            let mut script = Vec::new();
            live(*shell, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains(ASKED) && script.contains("consign"), "{shell}: {script}");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("man1");
        let (exit, text) = said(true, |s| pages(&dir, crate::cli::command(), s));
        assert_eq!(exit, Ok(Exit::Done));
        let written: Written = serde_json::from_str(&text.lines[0]).unwrap();
        let mut commands = 1;
        for command in crate::cli::command().get_subcommands() {
            let page = dir.join(format!("consign-{}.1", command.get_name()));
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{text}");
            commands += 1 + command.get_subcommands().count();
        }
        assert!(written.files.len() >= commands, "{} of {commands}", written.files.len());
        let deep = std::fs::read_to_string(dir.join("consign-deadletter-retry.1")).unwrap();
        assert!(deep.contains("consign\\-deadletter\\-retry"), "{deep}");
        let blocked = folder.path().join("file");
        std::fs::write(&blocked, b"").unwrap();
        let (exit, _) = said(true, |s| pages(&blocked, crate::cli::command(), s));
        assert_eq!(exit.map_err(|e| e.code), Err("CN0406"));
    }
}
