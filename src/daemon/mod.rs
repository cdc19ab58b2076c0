//! One running site: everything opened in order, the node on its runtime, and the orderly end.
//!
//! The order matters: what can be judged without touching anything comes first, then the lock of the
//! data directory (taken by the store before it looks at anything else), then sockets. A second
//! instance therefore learns that the directory is in use, and changes nothing.

mod files;
mod notes;
mod open;
mod pickup;
mod record;
mod reload;
mod reread;
pub mod signals;
mod socket;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use consign_core::driver::{Ended, Parts, Running};
use consign_core::node::Note;

use crate::config::{Layers, Runtime, Settings};
use crate::exit::{Exit, Failure};
use crate::service::Service;
use crate::service::sockets::Sockets;
use crate::watch::Watchers;
pub(crate) use open::not_opened;
pub use reload::Rereader;
use socket::SocketFile;

/// Sees every note of the node; called on its thread, must be quick.
pub type Observe = Arc<dyn Fn(&Note) + Send + Sync>;

/// What is decided outside the configuration.
#[derive(Clone, Default)]
pub struct Overrides {
    /// Take a data directory on a file system that forgets or that cannot be trusted.
    pub force_fs: bool,
    /// Somebody who wants to see the node's story, besides the log.
    pub observe: Option<Observe>,
    /// Write down everything that goes into the node and comes out of it: a file that does not exist
    /// yet, or a folder in which a new one is made.
    pub record: Option<PathBuf>,
    /// The service manager that is told how the site does.
    pub service: Service,
    /// Sockets that it has opened; they stand in the place of the configuration's addresses.
    pub sockets: Sockets,
    /// What stands above the file, for when it is read again.
    pub layers: Layers,
}

/// How a site came up.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub took: Duration,
    /// Its runtime.
    pub runtime: Runtime,
    /// How many peers it knows.
    pub peers: usize,
    /// Deliveries that wait.
    pub queued: u64,
    /// Where peers connect, with the ports that were taken.
    pub listen: Vec<SocketAddr>,
    /// Where the page, health and metrics are.
    pub web: Option<SocketAddr>,
    /// Where pickup clients and nodes connect.
    pub pickup: Option<SocketAddr>,
}

impl Ready {
    /// The line that says so.
    #[must_use]
    pub fn line(&self) -> String {
        let Ready { name, took, runtime, peers, queued, .. } = self;
        let (ms, runtime) = (took.as_millis(), runtime.word());
        format!("{name}  ready in {ms} ms  runtime={runtime}  peers={peers}  queued={queued}")
    }
}

/// What starts a site on a runtime.
type Carrier = fn(Parts) -> std::io::Result<Arc<dyn Running>>;

fn carrier(runtime: Runtime) -> Result<Carrier, Failure> {
    match runtime {
        #[cfg(feature = "runtime-smol")]
        Runtime::Smol => Ok(consign_runtime_smol::start),
        #[cfg(feature = "runtime-std")]
        Runtime::Std => Ok(consign_runtime_std::start),
        #[allow(unreachable_patterns, reason = "where every runtime is built in")]
        missing => {
            let words: Vec<&str> = Runtime::BUILT_IN.iter().map(|r| r.word()).collect();
            let text =
                format!("this build has no runtime {}, only {}", missing.word(), words.join(", "));
            let failure = Failure::new(Exit::Config, "CN0525", text);
            Err(failure.help("set node.runtime, or install a build with both"))
        }
    }
}

/// A running site.
pub struct Daemon {
    running: Arc<dyn Running>,
    ready: Ready,
    admin: PathBuf,
    watchers: Watchers,
    /// The admin socket's name, where it was made here.
    socket: Option<SocketFile>,
    rereader: Arc<Rereader>,
    service: Service,
}

impl Daemon {
    /// Opens and starts everything that the settings ask for.
    ///
    /// # Errors
    /// The first thing that does not work; nothing runs then.
    pub fn start(settings: &Settings, overrides: Overrides) -> Result<Daemon, Failure> {
        let began = Instant::now();
        let service = overrides.service.clone();
        let start = carrier(settings.runtime)?;
        let opened = open::open(settings, overrides)?;
        let open::Opened { parts, admin, socket, mut ready, watch, rereader } = opened;
        let running = start(parts).map_err(|e| {
            let message = format!("the {} runtime cannot start: {e}", settings.runtime.word());
            Failure::new(Exit::Failed, "CN0514", message)
        })?;
        let watchers = match Watchers::start(&settings.watch, &admin, &watch) {
            Ok(watchers) => watchers,
            Err(e) => {
                running.stop();
                running.wait();
                let message = format!("a directory cannot be watched: {e}");
                return Err(Failure::new(Exit::Failed, "CN0514", message));
            }
        };
        ready.took = began.elapsed();
        Ok(Daemon { running, ready, admin, watchers, socket, rereader, service })
    }

    /// How it came up.
    #[must_use]
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Path of its admin socket.
    #[must_use]
    pub fn admin(&self) -> &Path {
        &self.admin
    }

    /// What stops it from another thread.
    #[must_use]
    pub fn stopper(&self) -> Arc<dyn Running> {
        self.running.clone()
    }

    /// What has it read its configuration again from another thread.
    #[must_use]
    pub fn rereader(&self) -> Arc<Rereader> {
        self.rereader.clone()
    }

    /// Tells the service manager that it takes work.
    pub fn tell_ready(&self) {
        self.service.ready(self.running.clone(), self.ready.peers);
    }

    /// Asks it to drain and stop.
    pub fn stop(&self) {
        self.watchers.stop();
        self.running.stop();
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the store failed (exit 70).
    pub fn wait(self) -> Result<Ended, Failure> {
        let ended = self.running.wait();
        self.service.stopping();
        drop(self.watchers);
        drop(self.socket);
        match ended {
            Ended::Halted(why) => {
                let message =
                    format!("{} stopped because its store failed: {why}", self.ready.name);
                let help = "what was promised is safe; look at the disk, then start it again";
                Err(Failure::new(Exit::StoreFailed, "CN0521", message).help(help))
            }
            Ended::Drained | Ended::Cut => Ok(ended),
        }
    }
}
