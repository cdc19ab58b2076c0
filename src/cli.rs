//! The command line: flags that every command takes, and what each command is given.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};

use clap_complete::engine::ArgValueCandidates;

use crate::advice::Address;
use crate::cmd;
use crate::config::{self, Faults, Layers, Settings};
use crate::contexts::{self, Said};
use crate::exit::{Exit, Failure, Global};
use crate::out;

/// Version, with the commit where it is known.
pub const VERSION: &str = env!("CONSIGN_VERSION");

const EXITS: &str = "Exit codes: 0 done, 1 failed, 2 usage, 3 partly done, 4 nothing matched, \
5 still queued when the wait ran out, 69 daemon unreachable, 70 storage failed, 75 full or over quota: \
try later, 77 not permitted, 78 configuration";

/// Gets segments from where they are made to where they belong, over links that go away.
#[derive(Parser, Debug)]
#[command(name = "consign", version = VERSION, after_help = EXITS, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Everywhere")]
struct Flags {
    /// Configuration file, or its directory [default: $CONSIGN_CONFIG, ./consign.toml, the used context, /etc/consign]
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of a configuration, as `consign context` keeps it [default: $CONSIGN_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", add = ArgValueCandidates::new(contexts::candidates))]
    context: Option<String>,
    /// Socket of the running site [default: listen.admin of the configuration]
    #[arg(long, global = true, value_name = "PATH", env = "CONSIGN_SOCKET")]
    socket: Option<PathBuf>,
    /// Answers as JSON, one object or one a line
    #[arg(long, global = true)]
    json: bool,
    /// Says more; twice even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// Shows no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    color: Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Color {
    /// On terminals, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Makes a site: keys, certificate, configuration, next step
    Init(cmd::init::InitArgs),
    /// Runs a site until SIGTERM or Ctrl-C
    Serve(cmd::serve::ServeArgs),
    /// Hands segments in; they are safe on disk when it says "Queued"
    #[command(visible_alias = "put")]
    Send(cmd::send::SendArgs),
    /// Lists segments in the order they were accepted
    #[command(visible_alias = "index")]
    Ls(cmd::ls::LsArgs),
    /// Shows a segment: what it is, where it goes and what it waits for
    Show(cmd::show::ShowArgs),
    /// Shows the site and its peers: links, queues, dead letters, last errors
    Status(cmd::status::StatusArgs),
    /// Explains a code, or what a segment waits for
    Explain(cmd::explain::ExplainArgs),
    /// Says who holds segments, and whether the copies here may be deleted
    Assurance(cmd::assurance::AssuranceArgs),
    /// Shows how old what waits is, by peer
    Shape(cmd::shape::ShapeArgs),
    /// Shows every quota and what is used of it
    Quota(cmd::quota::QuotaArgs),
    /// Shows what is stored, in what room and condition
    Storage(cmd::storage::StorageArgs),
    /// Shows what happens at the site, as it happens
    Events(cmd::events::EventsArgs),
    /// Says whether the site is well, against thresholds: for Nagios, Prometheus and scripts
    Check(cmd::check::CheckArgs),
    /// Shows the site on the whole terminal, again and again
    Top(cmd::top::TopArgs),
    /// Prints a link to the web page that may retry dead letters; it opens once
    Page,
    /// Fetches the content of a segment
    Get(cmd::get::GetArgs),
    /// Lists dead letters, queues them again, deletes them
    #[command(subcommand)]
    Deadletter(cmd::deadletter::DeadletterCommand),
    /// Keeps segments from being sent until `unhold`
    Hold(cmd::hold::HoldArgs),
    /// Lets held segments be sent again
    Unhold(cmd::hold::HoldArgs),
    /// Gives content up here once nobody is owed it any more
    Release(cmd::hold::ReleaseArgs),
    /// Lists peers, pings, holds, flushes and forgets them, hands them on to other sites
    #[command(subcommand)]
    Peers(cmd::peers::PeersCommand),
    /// Shards for nodes that are away: who may upload, who picks up, how they stand
    #[command(subcommand)]
    Pickup(cmd::pickup::PickupCommand),
    /// Picks shards up from a relay: the other end of `pickup`
    #[command(subcommand)]
    Node(cmd::node::NodeCommand),
    /// Shows who did what and why, and what the site removed by itself
    Audit(cmd::audit::AuditArgs),
    /// Shows what inbox rules give out, and tries again
    Inbox(cmd::inbox::InboxArgs),
    /// Shows watched directories
    Watch(cmd::watch::WatchArgs),
    /// Says that the clock is right after a step of it
    #[command(subcommand)]
    Clock(cmd::clock::ClockCommand),
    /// Checks, shows, explains and tidies the configuration
    #[command(subcommand)]
    Config(cmd::config::ConfigCommand),
    /// Names configurations, so that `--context NAME` stands for `-c FILE`
    #[command(subcommand)]
    Context(cmd::context::ContextCommand),
    /// Shows this site's certificate, renews it; has one signed without a key leaving its machine
    #[command(subcommand)]
    Cert(cmd::cert::CertCommand),
    /// Has the running site read its configuration again: all of it holds from then on, or nothing changes
    Reload,
    /// Shows how much the running site logs, or changes it for a while
    LogLevel(cmd::log_level::LogLevelArgs),
    /// Stops the site: no new segments, what is in flight is finished
    Stop(cmd::stop::StopArgs),
    /// Checks a data directory that no site runs on, and mends it
    Fsck(cmd::fsck::FsckArgs),
    /// Looks at everything around a site that can be wrong, and packs it for others
    Doctor(cmd::doctor::DoctorArgs),
    /// Shows two sites at work in this process
    Demo(cmd::demo::DemoArgs),
    /// Measures a relay between two sites on this machine
    Bench(cmd::bench::BenchArgs),
    /// Steps this build's core over a recording and shows the first effect that differs
    Replay(cmd::replay::ReplayArgs),
    /// Lets networks live and fail on virtual time, from a seed, and checks every promise
    Sim(cmd::sim::SimArgs),
    /// Prints the JSON Schema of what a command says with --json
    Schema(cmd::schema::SchemaArgs),
    /// Prints what a shell needs to complete commands and flags
    Completions(cmd::pages::CompletionsArgs),
    /// Writes manual pages
    Man(cmd::pages::ManArgs),
}

/// The command line as clap knows it, for completions and manual pages.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Answers a shell that asks what may come next on a command line, and ends; returns where none does.
pub fn complete() {
    clap_complete::CompleteEnv::with_factory(command)
        .var(cmd::pages::ASKED)
        .bin("consign")
        .complete();
}

/// What can go wrong with a command.
pub enum Trouble {
    /// Anything but the configuration.
    Failure(Failure),
    /// The configuration.
    Faults(Faults),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failure(failure)
    }
}

impl From<Faults> for Trouble {
    fn from(faults: Faults) -> Trouble {
        Trouble::Faults(faults)
    }
}

/// Runs the command line `args`, the program's name first, and says how the process ends.
pub fn run(args: Vec<OsString>) -> Exit {
    let wants_json = args.iter().any(|a| a == "--json");
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, wants_json),
    };
    match cli.flags.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    let Flags { config, context, socket, json, verbose, quiet, .. } = cli.flags;
    if let (Some(config), Some(context)) = (&config, &context) {
        let failure = two_named(config, context);
        out::failure(&failure, json);
        return failure.exit;
    }
    // A socket of the environment is the next command's, too.
    let flagged =
        socket.as_deref().filter(|s| std::env::var_os("CONSIGN_SOCKET").is_none_or(|v| v != *s));
    let address = Address::of(config.as_deref(), context.as_deref(), flagged);
    let global = Global { config, context, json, quiet, verbose, address };
    match dispatch(cli.command, &global, socket) {
        Ok(exit) => exit,
        Err(Trouble::Failure(failure)) => {
            let exit = failure.exit;
            out::failure(&failure.told(&global.address), global.json);
            exit
        }
        Err(Trouble::Faults(faults)) => {
            out::faults(&faults.told(&global.address), global.json);
            Exit::Config
        }
    }
}

/// `-c` and `--context` at once: neither is passed over silently. Flags may stand before and behind the
/// command, so clap does not see it.
fn two_named(config: &Path, context: &str) -> Failure {
    let config = config.display();
    let message = format!("-c {config} and --context {context} each name a configuration");
    Failure::new(Exit::Usage, "CN0001", message).help("leave one of them out")
}

/// Help and versions are answers; everything else clap says is a wrong command line.
fn usage(error: &clap::Error, json: bool) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            out::line(error.render().ansi().to_string().trim_end());
            Exit::Done
        }
        _ if json => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            let message = first.strip_prefix("error: ").unwrap_or(first);
            let help = text.lines().skip(1).map(str::trim).filter(|l| !l.is_empty());
            let help = help.collect::<Vec<_>>().join("; ");
            out::failure(&Failure::new(Exit::Usage, "CN0001", message).help(help), true);
            Exit::Usage
        }
        _ => {
            out::note(error.render().ansi().to_string().trim_end());
            Exit::Usage
        }
    }
}

fn dispatch(command: Command, global: &Global, socket: Option<PathBuf>) -> Result<Exit, Trouble> {
    let command = match command {
        // It has to go on where others end: without a configuration.
        Command::Doctor(args) => return Ok(cmd::doctor::run(args, global, socket)?),
        other => other,
    };
    let command = match command {
        // A socket is of use to it only where the site runs.
        Command::Cert(command) => return cmd::cert::run(&command, global, socket),
        other => other,
    };
    let at = || reached(global, socket);
    Ok(match command {
        Command::Init(args) => {
            cmd::init::run(&args, global)?;
            Exit::Done
        }
        Command::Serve(args) => cmd::serve::run(&args, global)?,
        Command::Send(args) => cmd::send::run(args, global, &at()?)?,
        Command::Ls(args) => cmd::ls::run(args, global, &at()?)?,
        Command::Show(args) => cmd::show::run(args, global, &at()?)?,
        Command::Status(args) => cmd::status::run(args, global, &at()?)?,
        Command::Explain(args) => cmd::explain::run(args, global, at)?,
        Command::Assurance(args) => cmd::assurance::run(args, global, &at()?)?,
        Command::Shape(args) => cmd::shape::run(args, global, &at()?)?,
        Command::Quota(args) => cmd::quota::run(args, global, &at()?)?,
        Command::Storage(args) => cmd::storage::run(args, global, &at()?)?,
        Command::Check(args) => cmd::check::run(&args, global, at())?,
        Command::Events(args) => cmd::events::run(args, global, &at()?)?,
        Command::Top(args) => cmd::top::run(args, global, &at()?)?,
        Command::Page => cmd::page::run(global, &at()?)?,
        Command::Get(args) => cmd::get::run(args, global, &at()?)?,
        Command::Deadletter(command) => cmd::deadletter::run(command, global, &at()?)?,
        Command::Hold(args) => cmd::hold::hold(args, global, &at()?)?,
        Command::Unhold(args) => cmd::hold::unhold(args, global, &at()?)?,
        Command::Release(args) => cmd::hold::release(args, global, &at()?)?,
        Command::Peers(command) => cmd::peers::run(command, global, at)?,
        Command::Pickup(command) => cmd::pickup::run(command, global, at)?,
        Command::Node(command) => cmd::node::run(command, global)?,
        Command::Audit(args) => cmd::audit::run(args, global, &at()?)?,
        Command::Inbox(args) => cmd::inbox::run(args, global, &at()?)?,
        Command::Watch(args) => cmd::watch::run(args, global, &at()?)?,
        Command::Clock(command) => cmd::clock::run(command, global, &at()?)?,
        Command::Config(command) => cmd::config::run(&command, global, at)?,
        Command::Context(command) => cmd::context::run(&command, global)?,
        Command::Reload => cmd::reload::run(global, &at()?)?,
        Command::LogLevel(args) => cmd::log_level::run(&args, global, &at()?)?,
        Command::Stop(args) => cmd::stop::run(args, global, &at()?)?,
        Command::Fsck(args) => cmd::fsck::run(&args, global)?,
        Command::Doctor(_) | Command::Cert(_) => unreachable!("they are run above"),
        Command::Demo(args) => cmd::demo::run(&args, global)?,
        Command::Bench(args) => cmd::bench::run(&args, global)?,
        Command::Replay(args) => cmd::replay::run(&args, global)?,
        Command::Sim(args) => cmd::sim::run(&args, global)?,
        Command::Schema(args) => cmd::schema::run(&args, global)?,
        Command::Completions(args) => cmd::pages::completions(&args, global, self::command())?,
        Command::Man(args) => cmd::pages::man(&args, global, self::command())?,
    })
}

/// The socket of the running site: the one that was given, or the configuration's.
fn reached(global: &Global, socket: Option<PathBuf>) -> Result<PathBuf, Faults> {
    if let Some(socket) = socket {
        return Ok(socket);
    }
    let faults = match config::load(&file(global)?, &layers(&[])) {
        Ok(settings) => return Ok(settings.admin),
        Err(faults) => faults,
    };
    // A site that runs goes by what it has read before.
    let Some(socket) = faults.socket() else { return Err(faults) };
    if !global.quiet {
        let code = faults.failure().code;
        let text = format!("The configuration has faults ({code}: consign config check)");
        let text = global.address.tell(&text);
        out::note(&format!("{text}; the site at {} is asked.", socket.display()));
    }
    Ok(socket)
}

/// Finds and reads the configuration, with the environment and these flags (key, flag, value) above it.
///
/// # Errors
/// Everything that is wrong with it.
pub fn settings(global: &Global, flags: &[(&str, &str, String)]) -> Result<Settings, Faults> {
    config::load(&file(global)?, &layers(flags))
}

/// Finds the configuration file.
///
/// # Errors
/// When there is none.
pub fn file(global: &Global) -> Result<PathBuf, Faults> {
    said(global).choose().map(|chosen| chosen.file)
}

/// What was said about the configuration to go by.
#[must_use]
pub fn said(global: &Global) -> Said {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    Said {
        config: global.config.clone(),
        context: global.context.clone(),
        config_variable: var("CONSIGN_CONFIG").map(PathBuf::from),
        context_variable: var("CONSIGN_CONTEXT").map(|v| v.to_string_lossy().into_owned()),
        contexts: contexts::file(),
        here: PathBuf::new(),
    }
}

/// What is said outside the file: the environment, and above it these flags (key, flag, value).
#[must_use]
pub fn layers(flags: &[(&str, &str, String)]) -> Layers {
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v)));
    let vars = vars.map(|(k, v)| (k, v.to_string_lossy().into_owned()));
    let mut layers = Layers::from_env(vars);
    for (key, flag, value) in flags {
        layers.flag(key, flag, value.clone());
    }
    layers
}
