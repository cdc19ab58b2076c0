//! `consign serve`: runs a site in the foreground until it is told to stop.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use consign_core::driver::Ended;

use crate::cli::{self, Trouble};
use crate::config::{self, Runtime};
use crate::daemon::signals::Caught;
use crate::daemon::{Daemon, Overrides};
use crate::exit::{Exit, Failure, Global};
use crate::service::Service;
use crate::service::sockets::Sockets;
use crate::{log, out};

/// Runs this site: takes, keeps and passes on segments until SIGTERM or Ctrl-C
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// How it is carried [default: node.runtime]
    #[arg(long, value_enum, value_name = "smol|std")]
    pub runtime: Option<RuntimeArg>,
    /// Take a data directory on a file system that forgets (tmpfs) or cannot be trusted (NFS, FUSE)
    #[arg(long)]
    pub force_fs: bool,
    /// Write down all decisions, for `consign replay`: a new file, or a folder for files of its own naming
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Runs both sites of `consign init --demo`: those in ./consign-demo, or in the directory given by -c
    #[arg(long, conflicts_with_all = ["runtime", "record", "force_fs"])]
    pub demo: bool,
}

/// The runtimes, as they are given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeArg {
    /// A task per connection
    Smol,
    /// A thread per connection
    Std,
}

impl From<RuntimeArg> for Runtime {
    fn from(arg: RuntimeArg) -> Runtime {
        match arg {
            RuntimeArg::Smol => Runtime::Smol,
            RuntimeArg::Std => Runtime::Std,
        }
    }
}

/// Flags that stand above the file: (key, flag, value).
pub(super) fn flags(
    runtime: Option<RuntimeArg>,
    global: &Global,
) -> Vec<(&'static str, &'static str, String)> {
    let mut flags = Vec::new();
    if let Some(runtime) = runtime {
        flags.push(("node.runtime", "--runtime", Runtime::from(runtime).word().to_owned()));
    }
    let level = match (global.quiet, global.verbose) {
        (true, _) => Some(("-q", "warn")),
        (false, 0) => None,
        (false, 1) => Some(("-v", "debug")),
        (false, _) => Some(("-vv", "trace")),
    };
    if let Some((flag, level)) = level {
        flags.push(("log.level", flag, level.to_owned()));
    }
    flags
}

/// Runs the command.
///
/// # Errors
/// When the site cannot start, or its store fails.
pub fn run(args: &ServeArgs, global: &Global) -> Result<Exit, Trouble> {
    if args.demo {
        return super::demo::serve::run(global);
    }
    // Before anything else is opened.
    let sockets = Sockets::from_env()?;
    let flags = flags(args.runtime, global);
    let layers = cli::layers(&flags);
    let settings = config::load(&cli::file(global)?, &layers)?;
    let thread = |e: std::io::Error| {
        Failure::new(Exit::Failed, "CN0514", format!("a thread cannot be started: {e}"))
    };
    let logging = log::start(settings.log).map_err(thread)?;
    log::of_node(&settings.node.name);
    let record = args.record.clone();
    let (force_fs, service) = (args.force_fs, Service::from_env());
    let of_signals = service.clone();
    let overrides = Overrides { force_fs, observe: None, record, service, sockets, layers };
    // A signal may come as soon as anybody can see that it takes work.
    let signals = Caught::catch().map_err(thread)?;
    let daemon = Daemon::start(&settings, overrides)?;
    let stopper = daemon.stopper();
    let node = settings.node.name.clone();
    let stop = move || {
        tracing::info!(
            node,
            "stopping: what is in flight is finished first, a second signal cuts it"
        );
        stopper.stop();
        of_signals.stopping();
    };
    signals.on_stop(stop);
    let rereader = daemon.rereader();
    signals.on_reload(move || rereader.ask());
    let ready = daemon.ready();
    let listen: Vec<String> = ready.listen.iter().map(ToString::to_string).collect();
    if logging.is_json() {
        let node = ready.name.as_str();
        tracing::info!(
            node,
            duration_ms = u64::try_from(ready.took.as_millis()).unwrap_or(u64::MAX),
            runtime = ready.runtime.word(),
            peers = ready.peers,
            queued = ready.queued,
            listen = listen.join(","),
            "{}",
            ready.line()
        );
    } else {
        out::note(&ready.line());
    }
    daemon.tell_ready();
    match daemon.wait()? {
        Ended::Cut => {
            let text =
                "stopped before everything in flight was settled; the next start recovers it";
            tracing::warn!(node = settings.node.name, code = "CN0524", "{text}");
        }
        Ended::Drained => tracing::info!(node = settings.node.name, "stopped"),
        // `wait` makes it a failure.
        Ended::Halted(_) => return Ok(Exit::StoreFailed),
    }
    Ok(Exit::Done)
}
