//! A node and the process it runs in.

use consign_runtime_std as runtime;

mod shared;

#[path = "shared/process.rs"]
mod process;
