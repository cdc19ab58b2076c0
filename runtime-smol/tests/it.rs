//! A whole node on real sockets: the tests of the other runtime, word for word.

use consign_runtime_smol as runtime;

#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;

#[path = "../../runtime-std/tests/shared/ends.rs"]
mod ends;
#[path = "../../runtime-std/tests/shared/relay.rs"]
mod relay;
#[path = "../../runtime-std/tests/shared/strangers.rs"]
mod strangers;
#[path = "../../runtime-std/tests/shared/streams.rs"]
mod streams;
