//! Measures parts of this runtime without the ledger, each named on the command line:
//! `cargo run --release -p consign-runtime-std --example measure_std -- idle`.
//!
//! | | |
//! |---|---|
//! | `idle` | what an idle connection costs, TLS apart |
//! | `relay` | small segments that two sites relay with a store in memory: everything but the disk |
//! | `throughput` | how fast bytes go over TLS, beside rustls alone |

use consign_runtime_std as runtime;

#[path = "../../runtime-std/examples/shared/idle.rs"]
mod idle;
#[path = "../../runtime-std/examples/shared/measure.rs"]
mod measure;
#[path = "../../runtime-std/tests/shared/relay.rs"]
mod relay;
#[path = "../../runtime-std/examples/shared/rounds.rs"]
mod rounds;
#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;
#[path = "../../runtime-std/examples/shared/throughput.rs"]
mod throughput;

fn main() {
    measure::run("std");
}
