//! What a runtime is given and what it gives back (feature `std`). Types only: the sockets, clocks and
//! threads are the runtimes'.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use crate::inbox::ExportJob;
use crate::node::{Input, Node, Note};
use crate::pump::Tap;
use crate::session::{ConnInfo, Session};
use crate::store::{Sink, Store};
use crate::time::UnixMillis;
pub use crate::tls::PickupTls;
use crate::tls::TlsSetup;

/// Makes the session of a new connection.
pub type MakeSession = Arc<dyn Fn(&ConnInfo) -> Box<dyn Session> + Send + Sync>;

/// Where local clients connect. Without TLS.
#[derive(Debug)]
pub enum LocalListener {
    /// The admin socket; the peer's uid goes into [`ConnInfo::uid`].
    Unix(UnixListener),
    /// Loopback HTTP.
    Tcp(TcpListener),
}

/// Who gives out what inbox rules take: files, names, commands. No call blocks.
pub trait Exporter: Send + Sync {
    /// Starts; every task is answered to `sink` by [`crate::node::Input::Export`], except where it says so.
    fn start(&self, sink: Arc<dyn Sink>);
    /// Takes a task. The node gives a bounded number of them at a time.
    fn export(&self, job: ExportJob);
    /// Ends what is under way as soon as it can be ended, commands that run included, and its threads.
    fn stop(&self);
}

/// Who reads the configuration again. No call blocks.
pub trait Reloader: Send + Sync {
    /// Starts; every reload is answered to `sink` by [`crate::node::Input::Reconfigure`] with its number.
    fn start(&self, sink: Arc<dyn Sink>);
    /// A client of the node has asked.
    fn reload(&self, number: u64);
    /// Ends its threads.
    fn stop(&self);
}

/// For a node whose configuration comes from nowhere: asked, it changes nothing.
#[derive(Debug, Default)]
pub struct NoReloader(std::sync::OnceLock<Given>);

/// Where answers go.
struct Given(Arc<dyn Sink>);

impl core::fmt::Debug for Given {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Given")
    }
}

impl Reloader for NoReloader {
    fn start(&self, sink: Arc<dyn Sink>) {
        let _ = self.0.set(Given(sink));
    }

    fn reload(&self, number: u64) {
        if let Some(Given(sink)) = self.0.get() {
            sink.node(Input::Reconfigure {
                reload: number,
                config: None,
                renew: false,
                reading: None,
            });
        }
    }

    fn stop(&self) {}
}

/// For a node without inbox rules: it gives no task.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoExporter;

impl Exporter for NoExporter {
    fn start(&self, _sink: Arc<dyn Sink>) {}

    fn export(&self, _job: ExportJob) {}

    fn stop(&self) {}
}

/// Where pickup clients and nodes connect, and what serves them.
pub struct PickupParts {
    /// Bound.
    pub listeners: Vec<TcpListener>,
    /// How they are met; `None` is without TLS.
    pub tls: Option<PickupTls>,
    /// Makes the session of a connection.
    pub session: MakeSession,
}

/// Everything a runtime needs to run one node. Listeners are bound and hand over no connection before
/// the runtime starts.
pub struct Parts {
    /// The node, recovered from its ledger.
    pub node: Node,
    /// Its store, not yet started.
    pub store: Arc<dyn Store>,
    /// Gives out what the node's inbox rules take.
    pub exporter: Arc<dyn Exporter>,
    /// Reads its configuration again.
    pub reloader: Arc<dyn Reloader>,
    /// How peers are met.
    pub tls: TlsSetup,
    /// Where peers connect.
    pub peers: Vec<TcpListener>,
    /// Makes the session of a peer.
    pub peer_session: MakeSession,
    /// Where local clients connect, and what serves them.
    pub locals: Vec<(LocalListener, MakeSession)>,
    /// Pickup, where it is on.
    pub pickup: Option<PickupParts>,
    /// High water of effective time in the ledger: the clock starts no earlier.
    pub time_high: UnixMillis,
    /// Sees every note of the node; called on the node's thread, must be quick.
    pub observe: Arc<dyn Fn(Note) + Send + Sync>,
    /// Sees what goes into the node and comes out of it (recordings).
    pub tap: Option<Box<dyn Tap + Send>>,
    /// Most connections at a time, of all kinds.
    pub max_connections: usize,
    /// How long a drain may take before connections are cut, in milliseconds.
    pub drain_ms: u64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything in flight was settled.
    Drained,
    /// The drain took too long; what was in flight is recovered at the next start.
    Cut,
    /// The store failed (exit 70).
    Halted(String),
}

/// A node that is running.
pub trait Running: Send + Sync {
    /// Asks it to drain and stop. May be called more than once and from any thread.
    fn stop(&self);
    /// How many turns the node's loop has made; and asks it for another, so that a node with nothing to do is
    /// told from one that is stuck. Does not wait. When the node has ended, the number stays as it is.
    fn pulse(&self) -> u64;
    /// Waits for its end. The store is stopped by then.
    fn wait(&self) -> Ended;
}
