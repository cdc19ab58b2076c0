//! What idle connections cost: memory, and CPU time while nothing happens.

use std::time::Duration;

use crate::shared::support::{Beta, Setting, round_trip};

const COUNT: usize = 2_000;

/// Anonymous resident memory of this process, in bytes.
fn rss_anon() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap()
}

/// Measures and prints.
pub fn run(name: &str) {
    let beta = Beta::start(Setting { max_connections: 10_000, ..Setting::default() });
    // Whatever is allocated once is allocated now.
    let warm: Vec<_> = (0..20).map(|_| beta.plain()).collect();
    for mut stream in warm {
        round_trip(&mut stream, &[1; 100_000]);
    }
    let before = rss_anon();
    let mut idle: Vec<_> = (0..COUNT).map(|_| beta.plain()).collect();
    for stream in &mut idle {
        round_trip(stream, &[1; 10_000]);
    }
    let each = rss_anon().saturating_sub(before) / COUNT;
    println!("{name}: {COUNT} idle connections without TLS: {each} B of RssAnon each");
    let before = cpu();
    std::thread::sleep(Duration::from_secs(5));
    let used = (cpu() - before).as_secs_f64() / 5.0 * 100.0;
    println!("{name}: {used:.2} % of a core while they are idle");
}
