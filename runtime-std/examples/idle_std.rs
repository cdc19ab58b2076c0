//! Prints what an idle connection costs this runtime, TLS apart:
//! `cargo run --release -p consign-runtime-std --example idle_std`.

use consign_runtime_std as runtime;

#[path = "../../runtime-std/tests/shared/idle.rs"]
mod idle;
#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;

fn main() {
    idle::run("std");
}
