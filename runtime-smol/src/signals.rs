//! Stopping on SIGTERM and SIGINT.

use std::io;
use std::sync::Arc;

use async_signal::{Signal, Signals};
use consign_core::driver::Running;
use futures_lite::StreamExt;

/// Asks `running` to drain and stop at the first SIGTERM or SIGINT; the second ends the process.
///
/// # Errors
/// When the signals cannot be caught.
pub fn stop_on_signals(running: Arc<dyn Running>) -> io::Result<()> {
    let mut signals = Signals::new([Signal::Term, Signal::Int])?;
    let wait = async move {
        let mut asked = false;
        while let Some(signal) = signals.next().await {
            match signal {
                // What was in flight is recovered at the next start.
                Ok(signal) if asked => std::process::exit(128 + signal as i32),
                Ok(_) => running.stop(),
                Err(error) => tracing::error!(%error, "signals are lost"),
            }
            asked = true;
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_string());
    thread.spawn(move || async_io::block_on(wait))?;
    Ok(())
}
