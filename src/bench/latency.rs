//! How long one small segment takes on an idle pair of sites: until it is accepted, and until its
//! delivery is acked.
//!
//! One after the other, so that nothing shares a commit. An accept is one synced commit; the claim may
//! ride along with it, the receiver's is the second, the settlement of the acknowledgement the third.
//! Between them are two trips over the wire. That sum, measured on the bare machine in the same run, is
//! what the time to *acked* stands beside.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use consign_core::ledger::rows::State;
use consign_core::node::Note;
use serde_json::{Value, json};

use super::pair::Pair;
use super::{Load, STUCK, Scratch, failed};
use crate::config::Runtime;
use crate::exit::Failure;

/// Length of each segment in bytes.
const SIZE: u64 = 1_024;
/// Segments before the clock counts.
const WARM: u64 = 16;
/// Bytes of a page, as a commit writes it.
const PAGE: usize = 4_096;
/// Flushes of one commit of LMDB: its pages, then its head.
const FLUSHES: f64 = 2.0;
/// Longest bar of the histogram.
const BAR: usize = 40;

/// Durations in seconds, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(Vec<f64>);

impl Times {
    fn new(mut times: Vec<f64>) -> Times {
        times.sort_by(f64::total_cmp);
        Times(times)
    }

    /// The time that this part of them, 0 to 1, took at most.
    #[must_use]
    pub fn at(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = (part * last as f64).round() as usize;
        self.0.get(index.min(last)).copied().unwrap_or_default()
    }

    /// How many lie in each interval between powers of the square root of two microseconds, from the
    /// first that has any to the last: upper bound in seconds, count.
    fn buckets(&self) -> Vec<(f64, usize)> {
        let index = |time: &f64| (2.0 * (time * 1e6).max(1.0).log2()).floor() as i32;
        let (Some(first), Some(last)) = (self.0.first().map(index), self.0.last().map(index))
        else {
            return Vec::new();
        };
        let upper = |at: i32| 2_f64.powf(f64::from(at + 1) / 2.0) / 1e6;
        let count = |at: i32| self.0.iter().filter(|time| index(time) == at).count();
        (first..=last).map(|at| (upper(at), count(at))).collect()
    }
}

/// What one runtime came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// Runtime of both sites.
    pub runtime: Runtime,
    /// From handing in to the answer that says it is safe.
    pub accepted: Times,
    /// From handing in to the commit of the acknowledgement.
    pub acked: Times,
    /// A page appended and synced, on the bare machine in the same run.
    pub sync: Times,
    /// A segment's bytes there and back over loopback, in the same run.
    pub trip: Times,
}

impl Latency {
    /// Seconds of three synced commits and two round trips on the bare machine.
    #[must_use]
    pub fn bound(&self) -> f64 {
        3.0 * FLUSHES * self.sync.at(0.5) + 2.0 * self.trip.at(0.5)
    }

    /// The figures, with a histogram.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let word = self.runtime.word();
        let _ = writeln!(out, "{word}: {} segments of 1 KiB, one at a time", self.acked.0.len());
        for (name, times) in [
            ("accepted", &self.accepted),
            ("acked", &self.acked),
            ("raw sync", &self.sync),
            ("raw trip", &self.trip),
        ] {
            let [half, most, all] = [0.5, 0.9, 0.99].map(|part| micros(times.at(part)));
            let _ = writeln!(out, "  {name:<9} p50 {half:>9}  p90 {most:>9}  p99 {all:>9}");
        }
        let (bound, half) = (self.bound(), self.acked.at(0.5));
        let _ = writeln!(
            out,
            "  three commits of two syncs and two trips: {}; acked p50 is {:.2} of it",
            micros(bound),
            half / bound
        );
        let buckets = self.acked.buckets();
        let most = buckets.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        for (upper, count) in buckets {
            let bar = "#".repeat((count * BAR).div_ceil(most));
            let _ = writeln!(out, "  up to {:>9} {count:>6} {bar}", micros(upper));
        }
        out
    }

    /// The same as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let parts = |times: &Times| json!({ "p50": times.at(0.5), "p90": times.at(0.9), "p99": times.at(0.99) });
        json!({
            "runtime": self.runtime.word(),
            "count": self.acked.0.len(),
            "accepted_seconds": parts(&self.accepted),
            "acked_seconds": parts(&self.acked),
            "raw_sync_seconds": parts(&self.sync),
            "raw_trip_seconds": parts(&self.trip),
            "bound_seconds": self.bound(),
            "ratio_to_bound": self.acked.at(0.5) / self.bound(),
        })
    }
}

fn micros(seconds: f64) -> String {
    match seconds * 1e6 {
        us if us >= 10_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{us:.0} us"),
    }
}

/// Measures `count` segments on one runtime, both sites in this process.
///
/// # Errors
/// When a site does not come up, a segment is refused, or one is not acked within two minutes.
pub fn measure(dir: Option<&Path>, runtime: Runtime, count: u64) -> Result<Latency, Failure> {
    let scratch = Scratch::new(dir)?;
    let (tell, told) = channel();
    let observe = Arc::new(move |note: &Note| {
        if matches!(note, Note::Delivery { to: Some(State::Acked), .. }) {
            // Nobody listens any more when the measurement has failed.
            let _ = tell.send(Instant::now());
        }
    });
    let place = scratch.path().join(runtime.word());
    let mut pair = Pair::new(&place, runtime, None, Some(observe))?;
    pair.start_receiver()?;
    let (mut accepted, mut acked) = (Vec::new(), Vec::new());
    let (mut sync, mut trip) = (Vec::new(), Vec::new());
    let mut bare = Bare::new(scratch.path()).map_err(|e| failed("the bare machine", e))?;
    for number in 0..WARM + count {
        let (safe, there) = one(&mut pair, number, &told)?;
        let (synced, back) = bare.once().map_err(|e| failed("the bare machine", e))?;
        if number >= WARM {
            accepted.push(safe);
            acked.push(there);
            sync.push(synced);
            trip.push(back);
        }
    }
    pair.stop()?;
    let (accepted, acked) = (Times::new(accepted), Times::new(acked));
    Ok(Latency { runtime, accepted, acked, sync: Times::new(sync), trip: Times::new(trip) })
}

/// Seconds until one segment is accepted, and until it is acked.
fn one(pair: &mut Pair, number: u64, told: &Receiver<Instant>) -> Result<(f64, f64), Failure> {
    let begun = Instant::now();
    pair.sender().submit(Load { size: SIZE, count: 1 }, &format!("latency-{number}"))?;
    let safe = begun.elapsed();
    let acked = told.recv_timeout(STUCK).map_err(|why| match why {
        RecvTimeoutError::Timeout => failed("a segment", "is not acked after two minutes"),
        RecvTimeoutError::Disconnected => failed("the sender", "has ended"),
    })?;
    Ok((safe.as_secs_f64(), acked.duration_since(begun).as_secs_f64()))
}

/// The machine without any relay: a file that is synced, and somebody who sends back what comes.
struct Bare {
    file: File,
    socket: TcpStream,
    page: Vec<u8>,
    piece: Vec<u8>,
}

impl Bare {
    fn new(dir: &Path) -> io::Result<Bare> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = TcpStream::connect(listener.local_addr()?)?;
        let (mut other, _) = listener.accept()?;
        for end in [&socket, &other] {
            end.set_nodelay(true)?;
        }
        std::thread::spawn(move || {
            let mut piece = vec![0; SIZE as usize];
            while other.read_exact(&mut piece).and_then(|()| other.write_all(&piece)).is_ok() {}
        });
        let file = File::create(dir.join("raw-sync"))?;
        Ok(Bare { file, socket, page: vec![0xa5; PAGE], piece: vec![0x5a; SIZE as usize] })
    }

    /// Seconds of one sync, and of one trip there and back.
    fn once(&mut self) -> io::Result<(f64, f64)> {
        let begun = Instant::now();
        self.file.write_all(&self.page)?;
        self.file.sync_data()?;
        let synced = begun.elapsed();
        let begun = Instant::now();
        self.socket.write_all(&self.piece)?;
        self.socket.read_exact(&mut self.piece)?;
        Ok((synced.as_secs_f64(), begun.elapsed().as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_of_the_sorted_times() {
        let times = Times::new((1..=101).rev().map(f64::from).collect());
        assert_eq!([0.0, 0.5, 0.9, 1.0].map(|part| times.at(part)), [1.0, 51.0, 91.0, 101.0]);
        assert_eq!(Times::default().at(0.5), 0.0);
    }

    #[test]
    fn every_time_is_in_one_bucket_below_its_bound() {
        let times = Times::new(vec![3e-6, 1e-3, 1.01e-3, 4e-3]);
        let buckets = times.buckets();
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<usize>(), 4);
        let below = |bound: f64| buckets.iter().filter(move |(upper, _)| *upper <= bound);
        assert_eq!(below(2e-3).map(|(_, count)| count).sum::<usize>(), 3);
        assert!(Times::default().buckets().is_empty());
    }

    #[test]
    fn the_bound_is_three_commits_of_two_syncs_and_two_trips() {
        let flat = |time: f64| Times::new(vec![time; 5]);
        let latency = Latency {
            runtime: Runtime::Smol,
            accepted: flat(500e-6),
            acked: flat(1_000e-6),
            sync: flat(200e-6),
            trip: flat(50e-6),
        };
        assert!((latency.bound() - 1_300e-6).abs() < 1e-9);
        let text = latency.text();
        assert!(text.contains("acked p50 is 0.77 of it"), "{text}");
        assert!(text.contains("5 ########"), "{text}");
        assert_eq!(latency.json()["count"], 5);
    }

    #[test]
    fn a_real_pair_is_measured() {
        let latency = measure(None, Runtime::Std, 3).expect("a pair");
        assert_eq!((latency.accepted.0.len(), latency.acked.0.len()), (3, 3));
        assert!(latency.acked.at(1.0) >= latency.accepted.at(0.0));
    }
}
