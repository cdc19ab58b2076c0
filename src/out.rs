//! Standard output and standard error: data goes to the one, everything else to the other.

use std::io::{ErrorKind, Write};

use crate::config::Faults;
use crate::exit::Failure;

/// Writes a line of data. When nobody reads any more the process ends with success; when it cannot be
/// written for another reason, with failure.
pub fn line(text: &str) {
    let mut out = anstream::stdout().lock();
    if let Err(e) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        ended(&e);
    }
}

/// Ends the process after standard output could not be written.
pub fn ended(e: &std::io::Error) -> ! {
    if e.kind() == ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    let _ = writeln!(std::io::stderr(), "error[CN0003]: standard output cannot be written: {e}");
    std::process::exit(1);
}

/// Writes a line for people; failures to do so do not matter.
pub fn note(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Shows a failure: as sentences, or as one JSON object.
pub fn failure(failure: &Failure, json: bool) {
    if json {
        return note(&failure.json().to_string());
    }
    let head =
        format!("\x1b[1;31merror[{}]\x1b[0m\x1b[1m: {}\x1b[0m", failure.code, failure.message);
    note(&head);
    if !failure.help.is_empty() {
        note(&format!("  \x1b[1;34m= help:\x1b[0m {}", failure.help));
    }
}

/// Shows what is wrong with a configuration.
pub fn faults(faults: &Faults, json: bool) {
    if json {
        note(&faults.json().to_string());
    } else {
        note(faults.render(true).trim_end());
    }
}
