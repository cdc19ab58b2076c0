//! A line of a recording.

use std::borrow::Cow;

use consign_core::config::Config;
use consign_core::ledger::read::Recovery;
use consign_core::node::Input;
use consign_core::time::{Instant, Now};
use serde::{Deserialize, Serialize};

use super::effect::BatchText;

/// Every line behind the header. `node` tells the nodes of one recording apart.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line<'a> {
    /// A life of a node begins; whatever life it had before is over.
    Start(Box<Start<'a>>),
    /// The node takes an input.
    In { node: u32, now: Now, input: Cow<'a, Input> },
    /// The node works in bulk.
    Turn { node: u32, now: Now },
    /// Something left the node.
    Do { node: u32, action: Cow<'a, str> },
    /// A batch left the node.
    Batch { node: u32, batch: Cow<'a, BatchText> },
    /// The turn is over; the node wants to be woken at `next` if nothing happens before.
    Rest { node: u32, next: Option<Instant> },
    /// Something for the reader; not replayed.
    Note { text: Cow<'a, str> },
    /// The recording is whole; `lines` with the header and this one.
    End { lines: u64 },
}

/// What a life of a node begins with.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start<'a> {
    pub(super) node: u32,
    pub(super) now: Now,
    pub(super) config: Cow<'a, Config>,
    pub(super) recovery: Cow<'a, Recovery>,
}
