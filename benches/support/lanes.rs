//! Local clients side by side, each over a connection of its own, one small segment after the other.

use std::time::Instant;

use super::Res;
use super::real::Real;

/// Bytes of a segment.
const SIZE: usize = 1_024;
/// Connections side by side.
const LANES: u64 = 128;

/// What no other segment of any round has.
#[must_use]
pub fn content(round: usize, n: u64) -> Vec<u8> {
    let mut content = vec![0; SIZE];
    content[..8].copy_from_slice(&n.to_be_bytes());
    content[8..16].copy_from_slice(&(round as u64).to_be_bytes());
    content
}

/// Has `count` segments for `peer` accepted over [`LANES`] connections; how many seconds that took.
pub fn lanes(site: &Real, peer: &str, count: u64, round: usize) -> Res<f64> {
    let begun = Instant::now();
    let socket = site.data().join("admin.sock");
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let socket = &socket;
                scope.spawn(move || -> Result<(), String> {
                    let mut api = consign::client::Api::new(socket);
                    for n in (0..count).filter(|n| n % LANES == lane) {
                        let target = format!("/v1/segments?name=r{round}/n{n}&to={peer}");
                        let content = content(round, n);
                        let source =
                            consign::client::Source::Sized(SIZE as u64, &mut content.as_slice());
                        let answer = api.submit::<serde_json::Value>(&target, source, &mut |_| {});
                        answer.map_err(|failure| failure.to_string())?;
                    }
                    Ok(())
                })
            })
            .collect();
        for lane in lanes {
            lane.join().map_err(|_| "a client panicked")??;
        }
        Ok(begun.elapsed().as_secs_f64())
    })
}
