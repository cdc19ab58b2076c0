//! A small run for real: both runtimes, inline content and a file.

use super::*;

#[test]
fn a_small_run_delivers_everything_on_both_runtimes() {
    let plan = Plan {
        runtimes: vec![Runtime::Smol, Runtime::Std],
        loads: vec![Load { size: 1 << 10, count: 40 }, Load { size: 300 << 10, count: 2 }],
        dir: None,
        program: None,
        rounds: 1,
    };
    let report = run(&plan, &|_| {}).expect("both sites come up and get on");
    let shape: Vec<_> = report.rows.iter().map(|r| (r.runtime, r.size, r.count)).collect();
    let expected = [
        (Runtime::Smol, 1 << 10, 40),
        (Runtime::Smol, 300 << 10, 2),
        (Runtime::Std, 1 << 10, 40),
        (Runtime::Std, 300 << 10, 2),
    ];
    assert_eq!(shape, expected);
    for row in &report.rows {
        assert!(row.seconds > 0.0 && row.queued > 0.0, "{row:?}");
        assert!(row.batch_out >= 1.0 && row.batch_in >= 1.0, "{row:?}");
        assert_eq!(row.rss_anon.len(), 1, "one process has both");
    }
    assert!(report.raw.tls > 0.0 && report.raw.synced(1 << 10) > 0.0);
}

#[test]
fn the_sites_are_gone_afterwards() {
    let scratch = Scratch::new(None).expect("a directory");
    let path = scratch.path().to_path_buf();
    assert!(path.is_dir());
    drop(scratch);
    assert!(!path.exists());
}
