//! Signals: the first SIGTERM or SIGINT drains, a second one ends the process at once.

use std::io;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `stop` at the first SIGTERM or SIGINT; the next one ends the process, as a shell expects it
/// to (128 + the signal). What was in flight is recovered at the next start.
///
/// # Errors
/// When the signals cannot be caught.
pub fn on_stop(stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut arrived = signals.forever();
        if arrived.next().is_some() {
            stop();
        }
        if let Some(signal) = arrived.next() {
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// Calls `reload` at every SIGHUP.
///
/// # Errors
/// When the signal cannot be caught.
pub fn on_reload(reload: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    std::thread::Builder::new().name("sighup".into()).spawn(move || {
        for _ in signals.forever() {
            reload();
        }
    })?;
    Ok(())
}
