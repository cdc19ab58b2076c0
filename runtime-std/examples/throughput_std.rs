//! Prints how fast bytes go through this runtime over TLS, beside rustls alone:
//! `cargo run --release -p consign-runtime-std --example throughput_std`.

use consign_runtime_std as runtime;

#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;
#[path = "../../runtime-std/examples/shared/throughput.rs"]
mod throughput;

fn main() {
    throughput::run("std");
}
