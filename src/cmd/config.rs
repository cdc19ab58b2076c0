//! `consign config …`: what the configuration says and means, without a running site.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::screen::{Screen, standard};
use super::serve::{self, RuntimeArg};
use crate::cli::{self, Trouble};
use crate::client::Api;
use crate::config::explain::{self, Topic};
use crate::config::{self, Faults, Settings, effective, keys, outside, schema};
use crate::exit::{Exit, Failure, Global};
use crate::tls::Credentials;

/// What can be done with the configuration.
#[derive(Subcommand, Clone, Debug)]
pub enum ConfigCommand {
    /// Shows everything that is wrong with it in one run (exit 78), certificates and key included
    Check(CheckArgs),
    /// Shows what `serve` would go by, defaults included
    Show(ShowArgs),
    /// Says what a key or a section means, what it takes and what stands for it when it is left out
    Explain(ExplainArgs),
    /// Prints the JSON Schema of the file, for editors
    Schema,
    /// Puts the file in its usual order and spacing; comments stay with what they are about
    Fmt(FmtArgs),
}

/// Arguments of `config check`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct CheckArgs {
    /// Judges the file alone: certificates and key need not be on this machine
    #[arg(long)]
    pub no_files: bool,
}

/// Arguments of `config show`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ShowArgs {
    /// Says of each value where it came from: a line of the file, a variable, a flag, or the default
    #[arg(long)]
    pub origin: bool,
    /// As if it were given to `serve`
    #[arg(long, value_enum, value_name = "smol|std", conflicts_with = "running")]
    pub runtime: Option<RuntimeArg>,
    /// What the running site goes by, whatever the file says since
    #[arg(long)]
    pub running: bool,
}

/// Arguments of `config explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Key such as `relay.max_retries` or `max_retries`, or a section
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
}

/// Arguments of `config fmt`.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct FmtArgs {
    /// Changes nothing; exit 1 if there is something to change
    #[arg(long)]
    pub check: bool,
}

/// Runs it.
///
/// # Errors
/// What is wrong with the configuration, or why it cannot be written.
pub fn run(
    command: &ConfigCommand,
    global: &Global,
    at: impl FnOnce() -> Result<PathBuf, Faults>,
) -> Result<Exit, Trouble> {
    standard(global, |screen| match command {
        ConfigCommand::Check(args) => check(*args, global, screen),
        ConfigCommand::Show(args) if args.running => {
            Ok(running(*args, &mut Api::new(&at()?), screen)?)
        }
        ConfigCommand::Show(args) => show(*args, global, screen),
        ConfigCommand::Explain(args) => explain(args, screen),
        ConfigCommand::Schema => {
            let schema = schema::schema();
            if screen.is_json() {
                screen.document(&schema)?;
            } else {
                screen.line(&format!("{schema:#}"));
            }
            Ok(Exit::Done)
        }
        ConfigCommand::Fmt(args) => fmt(*args, global, screen),
    })
}

fn check(args: CheckArgs, global: &Global, screen: &mut Screen<'_>) -> Result<Exit, Trouble> {
    let mut layers = cli::layers(&[]);
    if args.no_files {
        // Credentials are files too, and need not be here.
        layers.credentials.get_or_insert_with(|| "credentials".into());
    }
    let file = cli::file(global)?;
    let settings = match config::load(&file, &layers) {
        Ok(settings) => settings,
        Err(mut faults) => {
            let files = config::files(&file, &faults.text, &layers).filter(|_| !args.no_files);
            faults.files =
                files.map_or_else(Vec::new, |(tls, node)| Credentials::faults(&tls, &node));
            return Err(faults.into());
        }
    };
    let warning = if args.no_files { None } else { judge_files(&settings)? };
    let unusable = if args.no_files { Vec::new() } else { outside::unusable(&settings) };
    let file = settings.file.display();
    let (name, peers) = (&settings.node.name, settings.node.peers.len());
    if screen.is_json() {
        let outside = unusable.iter().map(|unusable| &unusable.text);
        let warnings: Vec<&String> = warning.iter().chain(outside).collect();
        screen.object(&json!({
            "schema": "consign.config-check/1", "file": file.to_string(), "node": name,
            "peers": peers, "files_checked": !args.no_files, "warnings": warnings,
        }))?;
        return Ok(Exit::Done);
    }
    if let Some(warning) = warning {
        screen.note(&format!("warning[CN0309]: {warning}"));
    }
    for outside::Unusable { text, help, .. } in &unusable {
        screen.note(&format!("warning: {text}; {help}"));
    }
    let files = if args.no_files { "; certificates and key were not looked at" } else { "" };
    let peers = if peers == 1 { "1 peer".into() } else { format!("{peers} peers") };
    screen.line(&format!("{file} is good: {name}, {peers}{files}"));
    Ok(Exit::Done)
}

/// Certificates and key, as a start would judge them. What may be right later is a warning.
fn judge_files(settings: &Settings) -> Result<Option<String>, Trouble> {
    let judged = Credentials::read(&settings.tls).and_then(|read| read.setup(&settings.node));
    let first = match judged {
        Ok(loaded) => return Ok(loaded.warning),
        Err(first) => first,
    };
    let files = Credentials::faults(&settings.tls, &settings.node);
    if files.len() < 2 {
        return Err(first.into());
    }
    let (file, text, faults) = (settings.file.clone(), String::new(), Vec::new());
    Err(Faults { file, text, faults, files }.into())
}

fn show(args: ShowArgs, global: &Global, screen: &mut Screen<'_>) -> Result<Exit, Trouble> {
    let file = cli::file(global)?;
    let layers = cli::layers(&serve::flags(args.runtime, global));
    let all = effective::effective(&file, &config::read(&file)?, &layers)?;
    let name = file.display().to_string();
    if screen.is_json() {
        screen.object(&effective::json(&all, &name))?;
    } else {
        screen.line(effective::render(&all, &name, args.origin).trim_end());
    }
    Ok(Exit::Done)
}

fn running(args: ShowArgs, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let config: serde_json::Value = api.json("GET", "/v1/config")?;
    if screen.is_json() {
        screen.object(&config)?;
    } else {
        screen.line(effective::render_json(&config, args.origin).trim_end());
    }
    Ok(Exit::Done)
}

fn explain(args: &ExplainArgs, screen: &mut Screen<'_>) -> Result<Exit, Trouble> {
    let topics: Vec<Topic> =
        args.keys.iter().map(|key| explain::find(key)).collect::<Result<_, _>>()?;
    let mut parts = Vec::new();
    for topic in topics {
        match topic {
            Topic::Keys(keys) if screen.is_json() => {
                keys.iter().try_for_each(|key| screen.object(&explain::json(key)))?;
            }
            Topic::Section(section) if screen.is_json() => {
                let mut keys = keys::of_section(section.name);
                keys.try_for_each(|key| screen.object(&explain::json(key)))?;
            }
            Topic::Keys(keys) => parts.extend(keys.into_iter().map(explain::render)),
            Topic::Section(section) => parts.push(explain::render_section(section)),
        }
    }
    if !parts.is_empty() {
        screen.line(parts.join("\n").trim_end());
    }
    Ok(Exit::Done)
}

fn fmt(args: FmtArgs, global: &Global, screen: &mut Screen<'_>) -> Result<Exit, Trouble> {
    let named = cli::file(global)?;
    // A link to the file stays one.
    let file: PathBuf = named.canonicalize().unwrap_or_else(|_| named.clone());
    let text = config::read(&file)?;
    let laid = config::fmt::format(&named, &text)?;
    let (name, changed) = (named.display().to_string(), laid != text);
    if changed && args.check {
        let help = "`consign config fmt` does it";
        let message = format!("{name} is not in its usual order and spacing");
        return Err(Failure::new(Exit::Failed, "CN0213", message).help(help).into());
    }
    if changed {
        config::replace(&file, &laid).map_err(|e| {
            let message = format!("{name} cannot be written: {e}; it is as it was");
            Failure::new(Exit::Failed, "CN0214", message)
        })?;
    }
    if screen.is_json() {
        screen.object(&json!({
            "schema": "consign.config-fmt/1", "file": name, "changed": changed,
        }))?;
    } else {
        let done = if changed { "was put in order" } else { "is in order" };
        screen.line(&format!("{name} {done}"));
    }
    Ok(Exit::Done)
}
