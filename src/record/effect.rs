//! What leaves a node, as text that can be compared.

use std::fmt;

use consign_core::id::hex;
use consign_core::node::Action;
use consign_core::store::{Batch, Op};
use consign_core::time::Instant;
use serde::{Deserialize, Serialize};

/// How many bytes of a value's BLAKE3 stand in the line of an operation.
const SHORT: usize = 8;

/// What left a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// An action.
    Do(String),
    /// A batch.
    Batch(BatchText),
    /// The end of a turn, and when it wants to be woken.
    Rest(Option<Instant>),
}

/// An action as text.
pub(super) fn action_text(action: &Action) -> String {
    format!("{action:?}")
}

/// A batch, told without its values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchText {
    number: u64,
    free_ballast: bool,
    rows: usize,
    bytes: usize,
    /// BLAKE3 over all operations with their values.
    digest: String,
    ops: Vec<String>,
}

impl BatchText {
    /// Tells a batch.
    pub(super) fn of(batch: &Batch) -> BatchText {
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(bytes);
        };
        let mut ops = Vec::with_capacity(batch.rows());
        for op in batch.ops() {
            let text = op_text(&op);
            part(text.as_bytes());
            if let Op::Put { value, .. } = op {
                part(value);
            }
            ops.push(text);
        }
        BatchText {
            number: batch.number.0,
            free_ballast: batch.free_ballast,
            rows: batch.rows(),
            bytes: batch.bytes(),
            digest: hasher.finalize().to_hex().to_string(),
            ops,
        }
    }

    /// What differs first between this batch and `other`, as one line of each.
    pub(super) fn first_difference(&self, other: &BatchText) -> (String, String) {
        let at = self.ops.iter().zip(&other.ops).take_while(|(a, b)| a == b).count();
        if at == self.ops.len() && at == other.ops.len() {
            return (self.to_string(), other.to_string());
        }
        let of = |batch: &BatchText| match batch.ops.get(at) {
            Some(op) => format!("{batch}, operation {}: {op}", at + 1),
            None => format!("{batch}, nothing behind operation {at}"),
        };
        (of(self), of(other))
    }
}

fn op_text(op: &Op<'_>) -> String {
    match op {
        Op::Put { table, key, value: [] } => format!("put {table} {}", hex(key)),
        Op::Put { table, key, value } => {
            let hash = blake3::hash(value);
            let short = hash.as_bytes().get(..SHORT).unwrap_or_default();
            format!("put {table} {} {}", hex(key), hex(short))
        }
        Op::Del { table, key } => format!("del {table} {}", hex(key)),
        Op::PutBody { number, handle } => {
            format!("body {number} of {}/{}", handle.conn, handle.number)
        }
    }
}

impl fmt::Display for BatchText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchText { number, free_ballast, rows, bytes, digest, .. } = self;
        let relief = if *free_ballast { " on the freed ballast" } else { "" };
        let digest = digest.get(..16).unwrap_or(digest);
        write!(f, "batch {number}{relief}: {rows} rows, {bytes} bytes, digest {digest}")
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Do(action) => f.write_str(action),
            Effect::Batch(batch) => batch.fmt(f),
            Effect::Rest(None) => f.write_str("the end of the turn, without a deadline"),
            Effect::Rest(Some(at)) => write!(f, "the end of the turn, deadline at {} ns", at.0),
        }
    }
}
