//! How many small segments two sites relay with a store in memory.

use crate::relay::{Two, cpu};

const COUNT: u32 = 100_000;

/// Measures and prints.
pub fn run(name: &str) {
    for round in 1..=3 {
        let took = Two::start(COUNT, 1_024).relay(COUNT);
        let rate = f64::from(COUNT) / took.as_secs_f64();
        println!(
            "{name}, round {round}: {COUNT} segments of 1 KiB, {rate:.0} a second; CPU by thread:"
        );
        for (thread, seconds) in cpu() {
            println!("  {thread:12} {:6.1} us a segment", seconds * 1e6 / f64::from(COUNT));
        }
    }
}
