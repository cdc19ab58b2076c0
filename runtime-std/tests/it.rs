//! A whole node on real sockets.

use consign_runtime_std as runtime;

mod shared;

#[path = "shared/ends.rs"]
mod ends;
#[path = "shared/relay.rs"]
mod relay;
#[path = "shared/strangers.rs"]
mod strangers;
#[path = "shared/streams.rs"]
mod streams;
