//! What a run leaves behind, and what it does when the process runs out of file descriptors. Alone in
//! a process, one after the other, for both look at the process as a whole.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use consign_core::link::Timeouts;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::shared::support::{Beta, PATIENCE, Setting, read_to_end, round_trip};

/// How many entries a directory of /proc/self has.
fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}

#[test]
fn nothing_is_left_and_nothing_breaks() {
    two_hundred_connections_leave_nothing();
    waiting_costs_nothing();
    running_out_of_descriptors_passes();
}

fn two_hundred_connections_leave_nothing() {
    // Whatever is made once in a process is made now.
    drop(Beta::start(Setting::default()));
    let before = (count("task"), count("fd"));
    let beta = Beta::start(Setting::default());
    round_trip(&mut beta.plain(), b"warm");
    let running = (count("task"), count("fd"));
    for round in 0..10 {
        let clients: Vec<_> = (0..10).map(|_| beta.plain()).collect();
        for mut client in clients {
            round_trip(&mut client, b"hello");
        }
        for name in ["alpha", "gamma", "delta"].iter().cycle().take(10) {
            let mut client = beta.client(name);
            round_trip(&mut client, b"hello");
            if round % 2 == 0 {
                client.conn.send_close_notify();
                client.conn.complete_io(&mut client.sock).unwrap();
            }
        }
    }
    beta.settle(|| (count("task"), count("fd")) <= running);
    drop(beta);
    assert_eq!((count("task"), count("fd")), before);
}

/// Time that passes while strangers are silent in the middle of a handshake, and others are idle: what
/// spins would use all of it.
fn waiting_costs_nothing() {
    let timeouts = Timeouts { handshake: Duration::from_millis(500), ..Timeouts::default() };
    let beta = Beta::start(Setting { timeouts, ..Setting::default() });
    let mut idle: Vec<_> = (0..40).map(|_| beta.plain()).collect();
    idle.iter_mut().for_each(|stream| round_trip(stream, b"hello"));
    let mut silent: Vec<_> = (0..40).map(|_| beta.raw()).collect();
    let before = cpu();
    for stream in &mut silent {
        stream.write_all(&[0x16, 3, 1, 2, 0, 1, 0]).unwrap();
    }
    for stream in &mut silent {
        assert_eq!(read_to_end(stream).0, [0u8; 0]);
    }
    let used = cpu() - before;
    assert!(used < Duration::from_millis(250), "{used:?} of CPU time for waiting");
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

fn running_out_of_descriptors_passes() {
    let beta = Beta::start(Setting::default());
    round_trip(&mut beta.plain(), b"warm");
    beta.settle(|| beta.store.ended.lock().unwrap().len() == 1);
    let old = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: old.maximum }).unwrap();
    let mut hoard: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    // One for the client: the other end finds none left, and says so by closing.
    hoard.pop();
    let mut unlucky = TcpStream::connect(beta.local).unwrap();
    unlucky.set_read_timeout(Some(PATIENCE)).unwrap();
    match unlucky.read(&mut [0]) {
        Ok(n) => assert_eq!(n, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    drop((unlucky, hoard));
    // And goes on when there are some again.
    round_trip(&mut beta.plain(), b"again");
    round_trip(&mut beta.client("alpha"), b"again");
    setrlimit(Resource::Nofile, old).unwrap();
}
