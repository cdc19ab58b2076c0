//! Two sites on loopback end to end, on each runtime, beside a raw TLS stream and raw synced writes of
//! the same run: what `consign bench` shows, with the median of several rounds.

use std::path::PathBuf;

use consign::bench::{Load, Plan, run};
use consign::config::Runtime;

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test");
    let load = |size, count| Load { size, count };
    let (loads, rounds) = if is_test {
        (vec![load(1 << 10, 64), load(64 << 10, 16), load(8 << 20, 2)], 1)
    } else {
        let large = [load(8 << 20, 32), load(256 << 20, 1)];
        let small = [load(1 << 10, 30_000), load(64 << 10, 2_000)];
        ([small, large].concat(), 5)
    };
    let dir = std::env::var_os("CONSIGN_BENCH_DIR").map(PathBuf::from);
    let dir = dir.or_else(|| Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))));
    let runtimes = vec![Runtime::Smol, Runtime::Std];
    let plan = Plan { runtimes, loads, dir, program: None, rounds };
    match run(&plan, &|text| eprintln!("{text}")) {
        Ok(report) => println!("\n{}", report.text().trim_end()),
        Err(failure) => {
            eprintln!("{failure}");
            std::process::exit(1);
        }
    }
}
