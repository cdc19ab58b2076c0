//! `consign replay`: steps a fresh core over a recording.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use serde_json::json;

use super::screen::{during, standard};
use crate::exit::{Exit, Failure, Global};
use crate::out;
use crate::record::{Ending, Outcome, ReplayError, Replayer};

/// Steps this build's core over a recording and shows the first effect that differs. Exit codes: 0
/// identical, 1 different, 2 not to be replayed.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// A recording of `consign serve --record` or of the simulator
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Take recordings of other versions: what differs may then be what was changed in between
    #[arg(long)]
    pub any_version: bool,
}

/// Runs it.
///
/// # Errors
/// When the recording cannot be replayed.
pub fn run(args: &ReplayArgs, global: &Global) -> Result<Exit, Failure> {
    let file = File::open(&args.file).map_err(|e| {
        let message = format!("{} cannot be read: {e}", args.file.display());
        Failure::new(Exit::Usage, "CN0703", message)
    })?;
    let (total, read) = (file.metadata().ok().map(|m| m.len()), Arc::new(AtomicU64::new(0)));
    let from = Counted { file, read: read.clone() };
    let outcome = standard(global, |screen| {
        let look = || (read.load(Ordering::Relaxed), (0, 0));
        during(screen, "Replaying", total, look, || {
            replay(args, BufReader::with_capacity(1 << 16, from))
        })
    });
    let outcome = outcome.map_err(|e| failure(args, &e))?;
    if global.json {
        out::line(&object(&outcome).to_string());
    } else {
        out::line(&outcome.to_string());
    }
    Ok(if outcome.is_identical() { Exit::Done } else { Exit::Failed })
}

/// A file, and how much of it was read.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let got = self.file.read(into)?;
        self.read.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

fn replay(args: &ReplayArgs, file: BufReader<Counted>) -> Result<Outcome, ReplayError> {
    if args.any_version {
        Replayer::open_any_version(file)?.run()
    } else {
        Replayer::open(file)?.run()
    }
}

fn object(outcome: &Outcome) -> serde_json::Value {
    let Outcome { header, totals, difference, ending, panicked } = outcome;
    json!({
        "schema": "consign.replay/1",
        "identical": outcome.is_identical(),
        "whole": *ending == Ending::Whole,
        "ending": ending,
        "recorded": header,
        "totals": totals,
        "difference": difference,
        "panicked": panicked,
    })
}

fn failure(args: &ReplayArgs, error: &ReplayError) -> Failure {
    let file = args.file.display();
    let (code, help) = match error {
        ReplayError::Io { .. } => ("CN0703", ""),
        ReplayError::NoRecording(_) => {
            ("CN0704", "recordings are written by `consign serve --record`")
        }
        ReplayError::Format { .. } => ("CN0705", "replay it with the version that wrote it"),
        ReplayError::Version { .. } => (
            "CN0705",
            "replay it with that version; --any-version shows what differs between the two",
        ),
        ReplayError::Bad { .. } | ReplayError::Long { .. } => {
            ("CN0706", "what stands before that line can be replayed on its own")
        }
    };
    Failure::new(Exit::Usage, code, format!("{file}: {error}")).help(help)
}
