//! Tests of a whole site in this process: real sockets, TLS, ledger and files.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use consign_core::driver::Ended;

use super::{Daemon, Overrides};
use crate::cmd::init::{self, InitArgs};
use crate::config::{self, Layers, Runtime, Settings};
use crate::exit::{Exit, Failure};

struct Sites {
    root: tempfile::TempDir,
}

impl Sites {
    /// Two sites that know each other, each on a port that was free.
    fn new() -> Sites {
        let root = tempfile::tempdir().expect("a directory");
        let sites = Sites { root };
        let (a, b) = (free(), free());
        let make = |name: &str, listen: SocketAddr, peer: String, ca: Option<PathBuf>| {
            let args = InitArgs {
                dir: Some(sites.dir(name)),
                listen: Some(listen),
                peer: vec![peer],
                ca,
                ..InitArgs::default()
            };
            init::make(&args).expect("made");
        };
        make("alpha", a, format!("beta={b}"), None);
        make("beta", b, format!("alpha={a}"), Some(sites.dir("alpha")));
        sites
    }

    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn settings(&self, name: &str, runtime: Runtime) -> Settings {
        let mut layers = Layers::default();
        layers.flag("listen.web", "test", "off");
        layers.flag("limits.ballast", "test", "1MiB");
        layers.flag("storage.min_free", "test", "1MiB");
        layers.flag("node.runtime", "test", runtime.word());
        config::load(&self.dir(name).join("consign.toml"), &layers).expect("good")
    }
}

/// An address that nobody listens on.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address")
}

fn start(settings: &Settings) -> Result<Daemon, Failure> {
    Daemon::start(settings, Overrides { force_fs: true, ..Overrides::default() })
}

/// One request on a connection of its own; the answer's head and body.
fn ask(socket: &Path, method: &str, target: &str, body: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let len = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {len}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Asks until the answer contains `wanted`; real sockets have no other end to wait on.
fn until(socket: &Path, target: &str, wanted: &str) -> String {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = ask(socket, "GET", target, b"");
        if answer.contains(wanted) {
            return answer;
        }
        assert!(Instant::now() < patience, "{target} never said {wanted:?}: {answer}");
        std::thread::yield_now();
    }
}

#[test]
fn a_segment_crosses_from_either_runtime_to_the_other() {
    for (a, b) in [(Runtime::Smol, Runtime::Std), (Runtime::Std, Runtime::Smol)] {
        let sites = Sites::new();
        let alpha = start(&sites.settings("alpha", a)).expect("alpha runs");
        let beta = start(&sites.settings("beta", b)).expect("beta runs");
        assert!(alpha.ready().line().starts_with("alpha  ready in "));
        let small = ask(alpha.admin(), "POST", "/v1/segments?name=s&to=beta", b"hello");
        assert!(small.starts_with("HTTP/1.1 201"), "{small}");
        let content = vec![7; 300_000];
        let large = ask(alpha.admin(), "POST", "/v1/segments?name=l&to=beta", &content);
        assert!(large.starts_with("HTTP/1.1 201"), "{large}");
        until(alpha.admin(), "/v1/status", "\"delivered\":{\"count\":2,\"bytes\":300005}");
        let listed = ask(beta.admin(), "GET", "/v1/segments", b"");
        assert!(listed.contains("\"origin\":\"alpha\""), "{listed}");
        for daemon in [alpha, beta] {
            let admin = daemon.admin().to_owned();
            daemon.stop();
            assert_eq!(daemon.wait(), Ok(Ended::Drained));
            assert!(!admin.exists(), "the socket goes away");
        }
    }
}

#[test]
fn what_was_queued_for_a_peer_that_is_away_arrives_after_a_restart() {
    let sites = Sites::new();
    let settings = sites.settings("alpha", Runtime::Std);
    let alpha = start(&settings).expect("runs");
    let answer = ask(alpha.admin(), "POST", "/v1/segments?name=s&to=beta", b"hello");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    alpha.stop();
    assert!(alpha.wait().is_ok());
    let alpha = start(&settings).expect("runs again");
    assert_eq!(alpha.ready().queued, 1);
    let beta = start(&sites.settings("beta", Runtime::Std)).expect("runs");
    until(beta.admin(), "/v1/segments", "\"origin\":\"alpha\"");
    for daemon in [alpha, beta] {
        daemon.stop();
        assert!(daemon.wait().is_ok());
    }
}

#[test]
fn a_second_instance_says_who_is_there_and_changes_nothing() {
    let sites = Sites::new();
    let settings = sites.settings("alpha", Runtime::Std);
    let alpha = start(&settings).expect("runs");
    let failure = start(&settings).map(|_| ()).expect_err("in use");
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0515"));
    assert!(failure.message.contains(&std::process::id().to_string()), "{failure}");
    let status = ask(alpha.admin(), "GET", "/v1/status", b"");
    assert!(status.starts_with("HTTP/1.1 200"), "the first one goes on: {status}");
    alpha.stop();
    assert!(alpha.wait().is_ok());
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_left_behind() {
    let sites = Sites::new();
    let mut settings = sites.settings("alpha", Runtime::Std);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    settings.listen = vec![address];
    let failure = start(&settings).map(|_| ()).expect_err("taken");
    assert_eq!(failure.code, "CN0511");
    assert!(failure.message.contains(&address.to_string()), "{failure}");
    assert!(!settings.admin.exists());
    drop(taken);
    let alpha = start(&settings).expect("the lock was given back");
    alpha.stop();
    assert!(alpha.wait().is_ok());
}

#[test]
fn bad_certificates_stop_a_site_before_it_touches_its_data() {
    let sites = Sites::new();
    let mut settings = sites.settings("alpha", Runtime::Std);
    settings.tls.key = sites.dir("beta").join("node.key");
    let failure = start(&settings).map(|_| ()).expect_err("another key");
    assert_eq!((failure.exit, failure.code), (Exit::Config, "CN0314"));
    let data = std::fs::read_dir(&settings.data_dir).expect("there");
    assert_eq!(data.count(), 0, "the data directory is as it was");
}
