//! What a service manager such as systemd tells this process and is told by it: that it is ready, what it
//! does, that it is alive, that it stops; and the sockets that were opened for it.
//!
//! Everything goes by variables of the environment, so a site that nobody supervises pays nothing: without
//! `$NOTIFY_SOCKET` every call here does nothing. What is said and when is decided by `keeper`, which is
//! pure; one thread asks it, and sends. It is the same for both runtimes, which are asked for one thing only:
//! how many turns the node's loop has made ([`Running::pulse`]).

mod keeper;
mod line;
pub mod sockets;
mod tell;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use consign_core::driver::Running;
use consign_core::node::Note;

use keeper::{Keeper, Sight, Work};
use line::Line;
use tell::Tell;

/// The service manager, where there is one. Clones speak to the same one.
#[derive(Clone, Default)]
pub struct Service(Option<Arc<Inner>>);

struct Inner {
    /// Held while something is sent.
    line: Mutex<Line>,
    began: Instant,
    state: Mutex<State>,
    changed: Condvar,
    running: OnceLock<Arc<dyn Running>>,
}

struct State {
    keeper: Keeper,
    tell: Tell,
}

impl Service {
    /// The one that the environment names, and a thread that keeps it informed. What is wrong with what it says is
    /// logged, and the site goes on without it: whether that is bad is for the manager to say.
    #[must_use]
    pub fn from_env() -> Service {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let Some(socket) = var("NOTIFY_SOCKET") else { return Service::default() };
        let line = match Line::to(&socket) {
            Ok(line) => line,
            Err(e) => {
                let text = "the service manager cannot be told anything";
                tracing::warn!(code = "CN0571", "{text}: NOTIFY_SOCKET {socket:?}: {e}");
                return Service::default();
            }
        };
        let text = |name: &str| var(name).map(|value| value.to_string_lossy().into_owned());
        let (every, pid) = (text("WATCHDOG_USEC"), text("WATCHDOG_PID"));
        let watchdog = keeper::watchdog(every.as_deref(), pid.as_deref(), std::process::id());
        Service::begin(line, watchdog)
    }

    fn begin(line: Line, watchdog: Option<Duration>) -> Service {
        let state = State { keeper: Keeper::new(watchdog), tell: Tell::default() };
        let inner = Arc::new(Inner {
            line: Mutex::new(line),
            began: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            running: OnceLock::new(),
        });
        let for_thread = inner.clone();
        let spawned =
            std::thread::Builder::new().name("service".into()).spawn(move || for_thread.run());
        if let Err(e) = spawned {
            tracing::error!(
                code = "CN0514",
                "nothing is told to the service manager: no thread: {e}"
            );
            return Service::default();
        }
        Service(Some(inner))
    }

    /// The start has got somewhere, and what it does now.
    pub fn starting(&self, what: &str) {
        self.change(|state| state.keeper.status(what));
    }

    /// Every listener is bound and the node runs.
    pub fn ready(&self, running: Arc<dyn Running>, peers: usize) {
        let Some(inner) = &self.0 else { return };
        // The first turn to be seen later is asked for now.
        let turns = running.pulse();
        let _ = inner.running.set(running);
        self.change(|state| {
            state.tell.peers = peers;
            state.keeper.ready(inner.began.elapsed(), turns, &state.tell.sentence());
        });
    }

    /// The node's story, as far as it belongs into the sentence that describes it. Never waits for the manager.
    pub fn note(&self, note: &Note) {
        let Some(inner) = &self.0 else { return };
        let mut state = inner.lock();
        if state.tell.note(note) {
            let sentence = state.tell.sentence();
            state.keeper.status(&sentence);
            drop(state);
            inner.changed.notify_all();
        }
    }

    /// The configuration is about to be read again.
    pub fn reloading(&self) {
        self.change(|state| state.keeper.reloading(line::monotonic()));
    }

    /// It was read: the number of peers where it was taken, the code of what was wrong otherwise.
    pub fn reloaded(&self, outcome: Result<usize, &str>) {
        self.change(|state| {
            match outcome {
                Ok(peers) => (state.tell.peers, state.tell.refused) = (peers, String::new()),
                Err(code) => state.tell.refused = code.to_owned(),
            }
            state.keeper.reloaded(&state.tell.sentence());
        });
    }

    /// The site has begun to stop; a second call says nothing more.
    pub fn stopping(&self) {
        let Some(inner) = &self.0 else { return };
        self.change(|state| state.keeper.stopping(inner.began.elapsed()));
    }

    /// Changes what is to be said, and sends what has to be said at once.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let Some(inner) = &self.0 else { return };
        change(&mut inner.lock());
        inner.send(|keeper, now| keeper.urgent(now));
        inner.changed.notify_all();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what `what` says, in the order in which it was decided. The state is free meanwhile, so that the node
    /// does not wait for the manager.
    fn send(&self, what: impl FnOnce(&mut Keeper, Duration) -> Vec<String>) {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, stuck) = {
            let mut state = self.lock();
            let said = what(&mut state.keeper, self.began.elapsed());
            (said, state.keeper.stuck())
        };
        if let Some(silence) = stuck {
            let text = "the node's loop has made no turn";
            tracing::error!(
                code = "CN0572",
                "{text} for {silence:?}; the watchdog hears nothing until it does"
            );
        }
        for message in said {
            line.say(&message);
        }
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = self.began.elapsed();
            let left = state.keeper.next().saturating_sub(now);
            if !left.is_zero() {
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                if state.keeper.next() > self.began.elapsed() {
                    continue;
                }
            }
            drop(state);
            let turns = self.running.get().map(|running| running.pulse());
            let seen = Sight { turns, work: Work::of_this_process() };
            self.send(|keeper, now| keeper.look(now, seen));
            state = self.lock();
        }
    }
}
