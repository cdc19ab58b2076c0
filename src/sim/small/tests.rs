//! What the small worlds themselves must be: found broken when they are.

use super::*;

fn plain() -> Bounds {
    Bounds {
        rules: Rules { fine: false, crashes: 0, waits: 0, plant: None },
        turns: None,
        cold: false,
    }
}

#[test]
fn a_world_without_a_workload_comes_to_rest() {
    let report = explore(&[], plain()).unwrap_or_else(|f| panic!("{f}"));
    println!("{report}");
}

#[test]
fn measure() {
    let ops: usize = std::env::var("OPS").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let crashes: u8 = std::env::var("CRASHES").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    let waits: u8 = std::env::var("WAITS").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
    let fine = std::env::var("FINE").is_ok();
    let turns: Option<u32> = std::env::var("TURNS").ok().and_then(|v| v.parse().ok());
    let bounds = Bounds {
        rules: Rules { fine, crashes, waits, plant: None },
        turns,
        cold: std::env::var("COLD").is_ok(),
    };
    let mut all = Report::default();
    let start = std::time::Instant::now();
    for w in workloads(&Op::ALL, ops) {
        let t = std::time::Instant::now();
        let report = explore(&w, bounds).unwrap_or_else(|f| panic!("{f}"));
        println!("{w:?}: {report} {:?}", t.elapsed());
        all.add(report);
    }
    println!("{all} {:?}", start.elapsed());
}
