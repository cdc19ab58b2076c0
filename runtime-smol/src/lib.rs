//! Consign on smol and async-io: a task per connection and per listener on a small executor, and a
//! thread for the node.
//!
//! Everything that decides lives in `consign-core`; here are the sockets, the clock and the tasks. No
//! call of the store blocks, so no task here ever waits for the disk.

mod buffers;
mod clock;
mod conn;
mod listen;
mod node_loop;
mod queue;
mod sink;
mod table;
mod wake;
mod workers;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use consign_core::conn::Begin;
use consign_core::driver::{Ended, Exporter, MakeSession, Parts, Reloader, Running};
use consign_core::link::Timeouts;
use consign_core::pump::Pump;
use consign_core::store::Store;
use consign_core::tls::TlsSetup;
use smol::Task;

use clock::Clock;
use listen::Listener;
use node_loop::Observe;
use queue::{Ending, Entry, Mailbox, NodeInbox};
use sink::Answers;
use table::Table;
use wake::Signal;
use workers::Workers;

/// How long connections may take to say goodbye when the node has stopped.
const GOODBYES: Duration = Duration::from_secs(3);

/// What the tasks and threads of a run share.
pub(crate) struct Context {
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) exporter: Arc<dyn Exporter>,
    pub(crate) reloader: Arc<dyn Reloader>,
    pub(crate) tls: TlsSetup,
    pub(crate) peer_session: MakeSession,
    pub(crate) timeouts: Timeouts,
    pub(crate) inbox: Arc<NodeInbox>,
    pub(crate) table: Arc<Table>,
    /// Turns that the node's loop has made.
    pub(crate) turns: AtomicU64,
    pub(crate) workers: Workers,
    listeners: Mutex<Vec<Task<()>>>,
    closing: Arc<Signal>,
}

impl Context {
    /// What a new connection is given.
    pub(crate) fn begin<'a>(&self, mailbox: &Mailbox, make: &'a MakeSession) -> Begin<'a> {
        Begin { id: mailbox.id(), now: self.clock.now(), timeouts: self.timeouts, make }
    }

    /// Closes every listener; returns when that is done.
    pub(crate) fn close_listeners(&self) {
        self.closing.set();
        let tasks = std::mem::take(&mut *self.listeners());
        for task in tasks {
            async_io::block_on(task);
        }
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Task<()>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a node.
///
/// # Errors
/// When a thread cannot be started or a listener not be prepared; nothing runs then.
pub fn start(parts: Parts) -> io::Result<Arc<dyn Running>> {
    start_with(parts, Timeouts::default())
}

/// The same with other deadlines for connections.
///
/// # Errors
/// As [`start`].
pub fn start_with(parts: Parts, timeouts: Timeouts) -> io::Result<Arc<dyn Running>> {
    let Parts { node, store, exporter, reloader, tls, peers, peer_session, .. } = parts;
    let (locals, pickup, tap) = (parts.locals, parts.pickup, parts.tap);
    let mut pump = Pump::new(node);
    pump.set_tap(tap);
    let context = Arc::new(Context {
        clock: Clock::start(parts.time_high),
        store,
        exporter,
        reloader,
        tls,
        peer_session,
        timeouts,
        inbox: Arc::default(),
        table: Arc::new(Table::new(parts.max_connections)),
        turns: AtomicU64::new(0),
        workers: Workers::start()?,
        listeners: Mutex::default(),
        closing: Arc::default(),
    });
    let mut listeners = Vec::new();
    for listener in peers {
        listeners.push(Listener::peers(listener));
    }
    listeners.extend(pickup.into_iter().flat_map(Listener::pickup));
    for (listener, make) in locals {
        listeners.push(Listener::local(listener, make));
    }
    let listeners: io::Result<Vec<Listener>> = listeners.into_iter().collect();
    let listeners = listeners.inspect_err(|_| context.workers.stop())?;
    let (inbox, table) = (context.inbox.clone(), context.table.clone());
    let answers = Arc::new(Answers { inbox, table });
    context.store.start(answers.clone());
    context.exporter.start(answers.clone());
    context.reloader.start(answers);
    let done = Arc::new(Done::default());
    let thread = spawn_node(&context, pump, &parts.observe, parts.drain_ms, &done)?;
    for listener in listeners {
        let task = listen::accept(context.clone(), listener, context.closing.clone());
        let task = context.workers.spawn(task);
        context.listeners().push(task);
    }
    let running = Run { context, done, thread: Mutex::new(Some(thread)) };
    Ok(Arc::new(running))
}

fn spawn_node(
    context: &Arc<Context>,
    pump: Pump,
    observe: &Observe,
    drain_ms: u64,
    done: &Arc<Done>,
) -> io::Result<JoinHandle<()>> {
    let thread = {
        let (context, observe, done) = (context.clone(), observe.clone(), done.clone());
        std::thread::Builder::new().name("node".to_string()).spawn(move || {
            let drain = Duration::from_millis(drain_ms);
            let run = || node_loop::run(&context, pump, &observe, drain);
            let ended = catch_unwind(AssertUnwindSafe(run))
                .unwrap_or_else(|_| Ended::Halted("the node panicked".to_string()));
            finish(&context);
            done.set(ended);
        })
    };
    thread.inspect_err(|_| {
        context.reloader.stop();
        context.exporter.stop();
        context.store.stop();
        context.workers.stop();
    })
}

/// Ends everything that the node's end leaves behind, in order.
fn finish(context: &Context) {
    context.close_listeners();
    context.inbox.close();
    context.table.end(Ending::Stop);
    if !context.table.wait_empty(GOODBYES) {
        context.table.end(Ending::Cut);
        if !context.table.wait_empty(GOODBYES) {
            tracing::error!(left = context.table.live(), code = "CN0551", "connections do not end");
        }
    }
    context.workers.stop();
    context.reloader.stop();
    context.exporter.stop();
    context.store.stop();
}

/// The end of a run, for whoever waits for it.
#[derive(Debug, Default)]
struct Done {
    ended: Mutex<Option<Ended>>,
    told: Condvar,
}

impl Done {
    fn set(&self, ended: Ended) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.told.notify_all();
    }

    fn wait(&self) -> Ended {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(ended) = &*ended {
                return ended.clone();
            }
            ended = self.told.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct Run {
    context: Arc<Context>,
    done: Arc<Done>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running for Run {
    fn stop(&self) {
        self.context.inbox.push([Entry::Stop]);
    }

    fn pulse(&self) -> u64 {
        let turns = self.context.turns.load(Ordering::Relaxed);
        self.context.inbox.push([Entry::Pulse]);
        turns
    }

    fn wait(&self) -> Ended {
        let ended = self.done.wait();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!(code = "CN0547", "the node's thread panicked at its end");
        }
        ended
    }
}
