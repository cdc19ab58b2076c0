//! Prints what an idle connection costs this runtime, TLS apart:
//! `cargo run --release -p consign-runtime-smol --example idle_smol`.

use consign_runtime_smol as runtime;

#[path = "../../runtime-std/tests/shared/idle.rs"]
mod idle;
#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;

fn main() {
    idle::run("smol");
}
