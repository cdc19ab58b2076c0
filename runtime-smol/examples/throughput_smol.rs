//! Prints how fast bytes go through this runtime over TLS, beside rustls alone:
//! `cargo run --release -p consign-runtime-smol --example throughput_smol`.

use consign_runtime_smol as runtime;

#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;
#[path = "../../runtime-std/examples/shared/throughput.rs"]
mod throughput;

fn main() {
    throughput::run("smol");
}
