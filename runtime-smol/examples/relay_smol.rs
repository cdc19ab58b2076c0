//! Prints how many small segments two sites on this runtime relay with a store in memory, which leaves
//! everything but the disk: `cargo run --release -p consign-runtime-smol --example relay_smol`.

use consign_runtime_smol as runtime;

#[path = "../../runtime-std/tests/shared/relay.rs"]
mod relay;
#[path = "../../runtime-std/tests/shared/mod.rs"]
mod shared;

fn main() {
    const COUNT: u32 = 100_000;
    for round in 1..=3 {
        let two = relay::Two::start(COUNT, 1_024);
        let took = two.relay(COUNT);
        let rate = f64::from(COUNT) / took.as_secs_f64();
        println!(
            "smol, round {round}: {COUNT} segments of 1 KiB, {rate:.0} a second; CPU by thread:"
        );
        for (name, seconds) in relay::cpu() {
            println!("  {name:12} {:6.1} us a segment", seconds * 1e6 / f64::from(COUNT));
        }
    }
}
