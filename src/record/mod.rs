//! Recordings of nodes: everything that went into them and came out, written down line by line, and
//! stepped again later by the core of another build (docs/RECORDING.md).
//!
//! ```text
//!   Pump ── Tap ──▶ Recorder ──┐
//!   Pump ── Tap ──▶ Recorder ──┴─▶ Recording ─▶ file ─▶ replay: a fresh Pump per life, fed with the
//!                                                        inputs, its effects compared line by line
//! ```
//!
//! A node decides everything from its configuration, what its ledger held, the time and its inputs. All of
//! these are in the recording, so the same core does the same again to the byte, and a changed core shows
//! where it first decides otherwise. Content and keys are not in it: a node never sees them.

mod effect;
mod line;
mod outcome;
mod reader;
mod replay;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cli::VERSION;
use crate::exit::{Exit, Failure};

pub use outcome::{Difference, Ending, Outcome, Panicked, Totals};
pub use reader::LINE_MAX;
pub use replay::{NODES_MAX, Replayer, replay};
pub use writer::{Memory, OnFault, Recorder, Recording};

/// Why a recording is not made; `instead` is what to do when one stands there already.
pub(crate) fn not_made(path: &Path, error: &io::Error, instead: &str) -> Failure {
    let message = format!("the recording {} cannot be made: {error}", path.display());
    let failure = Failure::new(Exit::Failed, "CN0701", message);
    match error.kind() {
        ErrorKind::AlreadyExists => {
            failure.help(format!("a recording is never overwritten: {instead}"))
        }
        _ => failure,
    }
}

/// The format of recordings that this build writes and reads.
pub const FORMAT: u64 = 1;

/// The first line of a recording: what made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The format, [`FORMAT`].
    pub consign_recording: u64,
    /// Version of the program that wrote it.
    pub version: String,
    /// Its commit; empty where that is not known.
    pub commit: String,
    /// `serve` or `sim`.
    pub source: String,
    /// How that was started: what one needs to know to do it again.
    pub options: BTreeMap<String, String>,
}

impl Header {
    /// A header of this build.
    #[must_use]
    pub fn new(source: &str) -> Header {
        let (version, commit) = VERSION.split_once('+').unwrap_or((VERSION, ""));
        Header {
            consign_recording: FORMAT,
            version: version.to_owned(),
            commit: commit.to_owned(),
            source: source.to_owned(),
            options: BTreeMap::new(),
        }
    }

    /// The same with one more option.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl ToString) -> Header {
        self.options.insert(name.to_owned(), value.to_string());
        self
    }

    /// Version and commit in one word, as `consign --version` says it.
    #[must_use]
    pub fn build(&self) -> String {
        match self.commit.as_str() {
            "" => self.version.clone(),
            commit => format!("{}+{commit}", self.version),
        }
    }
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be read.
    #[error("line {line} cannot be read: {why}")]
    Io {
        /// The line, from 1.
        line: u64,
        /// What the system says.
        why: std::io::Error,
    },
    /// Its first line is no header of a recording.
    #[error("it is no recording: {0}")]
    NoRecording(String),
    /// Another format.
    #[error("the recording has format {found}, this build reads {FORMAT}")]
    Format {
        /// Its format.
        found: u64,
    },
    /// The same format, written by another version of the program.
    #[error("the recording is of version {found}, this build is {this}")]
    Version {
        /// Version in the recording.
        found: String,
        /// Version of this build.
        this: String,
    },
    /// A line that cannot be understood.
    #[error("line {line}, column {column}: {why}")]
    Bad {
        /// The line, from 1.
        line: u64,
        /// The column, from 1; 0 when it is the line as a whole.
        column: usize,
        /// What is wrong.
        why: String,
    },
    /// A line longer than [`LINE_MAX`] bytes.
    #[error("line {line} is longer than {LINE_MAX} bytes")]
    Long {
        /// The line, from 1.
        line: u64,
    },
}
