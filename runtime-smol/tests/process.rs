//! A node and the process it runs in: the tests of the other runtime, word for word.

use consign_runtime_smol as runtime;

#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;

#[path = "../../runtime-std/tests/shared/process.rs"]
mod process;
