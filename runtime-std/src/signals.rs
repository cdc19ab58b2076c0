//! Stopping on SIGTERM and SIGINT.

use std::io;
use std::sync::Arc;

use consign_core::driver::Running;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Asks `running` to drain and stop at the first SIGTERM or SIGINT; the second ends the process.
///
/// # Errors
/// When the signals cannot be caught.
pub fn stop_on_signals(running: Arc<dyn Running>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        let mut asked = false;
        for signal in &mut signals {
            if asked {
                // What was in flight is recovered at the next start.
                std::process::exit(128 + signal);
            }
            asked = true;
            running.stop();
        }
    })?;
    Ok(())
}
