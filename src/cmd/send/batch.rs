//! Small things that are handed in together: the request's body, and what its answer says of each.

use consign_core::limits::INLINE_MAX;
use serde_json::json;

use super::walk::Item;
use crate::admin::shapes::{Accepted, Refused, RefusedItem};
use crate::client::meaning;
use crate::exit::Failure;

/// Things in one batch at most: enough to share a commit, few enough that other connections have
/// theirs on the way meanwhile.
const ITEMS: usize = 256;
/// Bytes after which a batch is full.
const BYTES: usize = 1 << 20;
const _: () = assert!(ITEMS <= crate::admin::batch::ITEMS_MAX);
const _: () = assert!((BYTES + INLINE_MAX) as u64 <= crate::admin::batch::BYTES_MAX);

/// A thing with its content and its instance.
type Small = (usize, Item, Vec<u8>, Option<String>);

/// What was gathered.
#[derive(Debug, Default)]
pub(super) struct Batch {
    items: Vec<Small>,
    body: Vec<u8>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= ITEMS || self.body.len() >= BYTES
    }

    /// Adds the thing with number `i`.
    pub(super) fn push(&mut self, i: usize, item: Item, data: Vec<u8>, instance: Option<String>) {
        let mut line = json!({"name": item.name, "size": data.len()});
        if let Some(instance) = &instance {
            line["instance"] = json!(instance);
        }
        self.body.extend_from_slice(line.to_string().as_bytes());
        self.body.push(b'\n');
        self.body.extend_from_slice(&data);
        self.items.push((i, item, data, instance));
    }

    /// The request's body.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(super) fn into_items(self) -> impl Iterator<Item = Small> {
        self.items.into_iter()
    }
}

/// What the daemon says of a thing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is taken, or refused for good.
    Done(Box<Result<Accepted, Failure>>),
    /// Not in a batch: it is to be handed in by itself.
    Alone,
}

/// The lines of an answer, as far as they can be understood.
pub(super) fn answers(lines: &[u8]) -> Vec<Answer> {
    let lines = lines.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.map_while(answer).collect()
}

fn answer(line: &[u8]) -> Option<Answer> {
    if let Ok(accepted) = serde_json::from_slice::<Accepted>(line) {
        return Some(Answer::Done(Box::new(Ok(accepted))));
    }
    let no: RefusedItem = serde_json::from_slice(line).ok()?;
    if matches!(no.code.as_str(), "not_small" | "invalid") {
        return Some(Answer::Alone);
    }
    let after = no.retry_after_seconds.map(|seconds| seconds.to_string());
    let refused = Refused { code: no.code, message: no.message };
    Some(Answer::Done(Box::new(Err(meaning(refused, no.status, after.as_deref())))))
}
