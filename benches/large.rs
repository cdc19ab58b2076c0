//! One very large segment from a pipe, through a link that is cut ten times: memory of both sites, and
//! how much is sent again for each cut.
//!
//! `CONSIGN_BIG` says how large, with a unit (64MiB by default, 20GiB by hand; both sites keep a copy).

mod support;

use std::io::Write;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consign::meters::process::rss_anon;
use support::real::{Real, free_address, proxy, until};
use support::{Res, disk, size_of};

/// How often the link is cut.
const CUTS: u64 = 10;
/// What TLS records (22 bytes in 16 KiB) and frames (some 20 in 64 KiB) add to content.
const OVERHEAD: f64 = 1.0 + 22.0 / 16_384.0 + 20.0 / 65_536.0;

fn main() -> Res<()> {
    let text = std::env::var("CONSIGN_BIG").unwrap_or_else(|_| "64MiB".into());
    let size = size_of("CONSIGN_BIG", &text)?;
    let place = disk()?;
    let (at, own, far) = (free_address()?, free_address()?, free_address()?);
    let mut alpha = Real::init(place.path(), "alpha", at, &[("beta", far)], None)?;
    // Only alpha dials, through the proxy.
    let nowhere = free_address()?;
    let mut beta = Real::init(place.path(), "beta", own, &[("alpha", nowhere)], Some(&alpha))?;
    let rules = proxy(far, own)?;
    let settings =
        [("CONSIGN_RELAY_BACKOFF_INITIAL", "100ms"), ("CONSIGN_RELAY_BACKOFF_MAX", "1s")];
    alpha.serve(at, &settings)?;
    let peaks = [AtomicU64::new(0), AtomicU64::new(0)];
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let digest = hand_in(&alpha, size, &peaks[0])?;
    println!("{text} accepted from a pipe in {:.1} s", begun.elapsed().as_secs_f64());
    beta.serve(own, &settings)?;
    let begun = Instant::now();
    std::thread::scope(|scope| -> Res<()> {
        let (pids, peaks, over) = ([alpha.pid(), beta.pid()], &peaks, &over);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for (pid, peak) in pids.iter().zip(peaks) {
                    peak.fetch_max(rss_anon(*pid), Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let cut = || -> Res<()> {
            for n in 1..=CUTS {
                let passes = size / (CUTS + 1) * n;
                until("the next cut", || {
                    Ok((rules.passed.load(Ordering::Relaxed) >= passes).then_some(()))
                })?;
                rules.cuts.fetch_add(1, Ordering::Relaxed);
            }
            until("the end", || Ok((alpha.count("beta", "delivered")? == 1).then_some(())))
        };
        let result = cut();
        over.store(true, Ordering::Relaxed);
        result
    })?;
    let took = begun.elapsed().as_secs_f64();
    let list: serde_json::Value = serde_json::from_slice(&beta.get("/v1/segments")?.1)?;
    let held = list["segments"][0]["digest"].as_str().unwrap_or_default();
    assert_eq!(held, digest, "what arrived is what was handed in");
    let passed = rules.passed.load(Ordering::Relaxed) as f64;
    let again = (passed - size as f64 * OVERHEAD).max(0.0) / CUTS as f64 / f64::from(1 << 20);
    println!("relayed in {took:.1} s, cut {CUTS} times: {:.0} MiB/s", passed / took / 1048576.0);
    println!("  sent again for each cut: {again:.1} MiB; bar: <= 32: {}", verdict(again <= 32.0));
    for (name, peak) in ["alpha", "beta"].iter().zip(&peaks) {
        let peak = peak.load(Ordering::Relaxed) >> 20;
        println!("  peak of RssAnon at {name}: {peak} MiB; bar: < 64: {}", verdict(peak < 64));
    }
    Ok(())
}

/// `consign send -` from a pipe; the digest of what went in.
fn hand_in(alpha: &Real, size: u64, peak: &AtomicU64) -> Res<String> {
    let mut command = alpha.command(&["send", "-", "--name", "big", "--to", "beta"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let mut pipe = child.stdin.take().ok_or("no pipe")?;
    let mut hasher = blake3::Hasher::new();
    let mut stream = blake3::Hasher::new().update(b"big").finalize_xof();
    let mut block = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let len = usize::try_from(left.min(block.len() as u64))?;
        let piece = block.get_mut(..len).unwrap_or_default();
        stream.fill(piece);
        hasher.update(piece);
        pipe.write_all(piece)?;
        peak.fetch_max(alpha.rss_anon(), Ordering::Relaxed);
        left -= len as u64;
    }
    drop(pipe);
    if !child.wait()?.success() {
        return Err("the segment was not accepted".into());
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}
