//! Signals: the first SIGTERM or SIGINT drains, a second one ends the process at once; SIGHUP has the
//! configuration read again.
//!
//! ```text
//!            act known              signal
//!   waiting ───────────▶ armed ───────────────▶ act
//!      │ signal                                  ▲
//!      └───────▶ came ───────────────────────────┘ act known
//! ```

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What a signal is to do, which may be known only after it has come.
#[derive(Clone, Default)]
struct Act(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    came: bool,
    act: Option<Box<dyn Fn() + Send>>,
}

impl Act {
    /// The signal has come.
    fn come(&self) {
        self.change(|state| state.came = true);
    }

    /// From now on the act is known.
    fn is(&self, act: impl Fn() + Send + 'static) {
        self.change(|state| state.act = Some(Box::new(act)));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if let State { came: came @ true, act: Some(act) } = &mut *state {
            *came = false;
            act();
        }
    }
}

/// Signals that are caught before there is anything to stop: one that comes while the site starts is kept until it
/// has started, so that it never ends by a signal what already takes work.
pub struct Caught {
    stop: Act,
    reload: Act,
}

impl Caught {
    /// Catches SIGTERM, SIGINT and SIGHUP from now on. The second of the first two ends the process, as a
    /// shell expects it to (128 + the signal), whether it has started or not; what was in flight is recovered
    /// at the next start.
    ///
    /// # Errors
    /// When the signals cannot be caught.
    pub fn catch() -> io::Result<Caught> {
        let caught = Caught { stop: stopping()?, reload: Act::default() };
        let (mut signals, reload) = (Signals::new([SIGHUP])?, caught.reload.clone());
        std::thread::Builder::new().name("sighup".into()).spawn(move || {
            for _ in signals.forever() {
                reload.come();
            }
        })?;
        Ok(caught)
    }

    /// Calls `stop` at the first SIGTERM or SIGINT, at once if it has come.
    pub fn on_stop(&self, stop: impl Fn() + Send + 'static) {
        self.stop.is(stop);
    }

    /// Calls `reload` at every SIGHUP, at once if one has come.
    pub fn on_reload(&self, reload: impl Fn() + Send + 'static) {
        self.reload.is(reload);
    }
}

/// Calls `stop` at the first SIGTERM or SIGINT; the next one ends the process, as [`Caught::catch`] says.
///
/// # Errors
/// When the signals cannot be caught.
pub fn on_stop(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    stopping()?.is(stop);
    Ok(())
}

fn stopping() -> io::Result<Act> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let act = Act::default();
    let stop = act.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            stop.come();
        }
        if let Some(signal) = arrived.next() {
            std::process::exit(128 + signal);
        }
    })?;
    Ok(act)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_signal_is_kept_until_it_is_known_what_it_is_for() {
        let (act, done) = (Act::default(), Arc::new(AtomicUsize::new(0)));
        act.come();
        act.come();
        let count = done.clone();
        act.is(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 1, "what came twice before is done once");
        act.come();
        assert_eq!(done.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn nothing_is_done_before_a_signal_comes() {
        let (act, done) = (Act::default(), Arc::new(AtomicUsize::new(0)));
        let count = done.clone();
        act.is(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.load(Ordering::Relaxed), 0);
        act.come();
        assert_eq!(done.load(Ordering::Relaxed), 1);
    }
}
