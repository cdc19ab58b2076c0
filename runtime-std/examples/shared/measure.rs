//! Which part of a runtime is measured.

use crate::{idle, rounds, throughput};

/// Measures what the command line names.
pub fn run(name: &str) {
    match std::env::args().nth(1).as_deref() {
        Some("idle") => idle::run(name),
        Some("relay") => rounds::run(name),
        Some("throughput") => throughput::run(name),
        _ => {
            eprintln!("say what: idle, relay or throughput");
            std::process::exit(64);
        }
    }
}
