//! Objects that commands put together themselves, as their readers see them.

use schemars::JsonSchema;

/// A failure, as one object on standard error.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only describes")]
pub(super) struct Failed {
    /// `consign.error/1`
    schema: String,
    /// Stable code: docs/CODES.md.
    code: String,
    /// What happened.
    message: String,
    /// What to do about it; may be empty.
    help: String,
}

/// How far long work is, at most once a second, on standard error.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only describes")]
pub(super) struct Progress {
    /// `consign.progress/1`
    schema: String,
    /// What is done: `Queueing`, `Sending`, `Fetching`, `Hashing`, `Uploading`, `Listing`, `Counting`, `Changing`, `Checking`,
    /// `Compacting`, `Packing`, `Replaying`, `Simulating`, `Measuring`, `Relaying` or `Stopping`.
    what: String,
    /// Bytes done.
    bytes: u64,
    /// Bytes there are, if that is known.
    total_bytes: Option<u64>,
    /// Things done.
    done: u64,
    /// Things there are; 0 when nobody knows.
    of: u64,
    /// Since when, in seconds.
    seconds: u64,
}

/// A watched directory.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it only describes")]
pub(super) struct Watch {
    /// `consign.watch/1`
    schema: String,
    /// The directory.
    dir: String,
    /// Where its files go; empty is every known peer.
    to: Vec<String>,
    /// Files taken since the start.
    taken: u64,
    /// Files that are there and not taken.
    waiting: u64,
    /// Last trouble; empty when there is none.
    error: String,
}
