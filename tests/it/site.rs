//! A site: its directory, its configuration, and the real binary that serves it or talks to it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use crate::disk::Disk;
use crate::http;
use crate::wait;

/// Both runtimes.
pub(crate) const RUNTIMES: [&str; 2] = ["smol", "std"];

/// The binary under test.
pub(crate) fn consign() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consign"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

/// A loopback address that nobody else gets: the host is this process's own, the port this call's,
/// below those that the kernel takes for outgoing connections. It is even: the page of a site that `init`
/// makes is 11 above it.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | (high & 63), middle, low);
    wait::until("a free port", || {
        let address = SocketAddr::from((host, NEXT.fetch_add(2, Ordering::Relaxed)));
        TcpListener::bind(address).is_ok().then_some(address)
    })
}

/// A site.
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) address: SocketAddr,
    /// Settings that win over the file: `CONSIGN_…`.
    pub(crate) settings: BTreeMap<String, String>,
    /// What `serve` is given besides.
    pub(crate) serve_args: Vec<std::ffi::OsString>,
    runtime: &'static str,
    disk: Option<Disk>,
    child: Option<Child>,
    /// Log lines of level ERROR fail a test unless it expects them.
    pub(crate) expects_errors: bool,
    folder: Arc<TempDir>,
}

/// Two sites with one authority that know each other, not yet served.
pub(crate) fn pair(runtime: &'static str) -> (Site, Site) {
    let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let mut alpha = Site::at(&folder, "alpha", runtime);
    let mut beta = Site::at(&folder, "beta", runtime);
    alpha.init(&[&beta], None);
    beta.init(&[&alpha], Some(&alpha));
    (alpha, beta)
}

impl Site {
    /// A site in `folder` that is yet to be made.
    pub(crate) fn at(folder: &Arc<TempDir>, name: &str, runtime: &'static str) -> Site {
        let settings = [
            ("CONSIGN_LIMITS_BALLAST", "1MiB"),
            ("CONSIGN_STORAGE_MIN_FREE", "1MiB"),
            ("CONSIGN_RELAY_BACKOFF_INITIAL", "50ms"),
            ("CONSIGN_RELAY_BACKOFF_MAX", "200ms"),
            ("CONSIGN_LOG_FORMAT", "text"),
        ];
        Site {
            name: name.into(),
            dir: folder.path().join(name),
            address: free_address(),
            settings: settings.map(|(k, v)| (k.into(), v.into())).into(),
            serve_args: Vec::new(),
            runtime,
            disk: None,
            child: None,
            expects_errors: false,
            folder: Arc::clone(folder),
        }
    }

    /// The folder it shares with its peers.
    pub(crate) fn folder(&self) -> &Arc<TempDir> {
        &self.folder
    }

    /// Makes it, with these peers, signed by the authority of another site or by its own.
    pub(crate) fn init(&mut self, peers: &[&Site], authority: Option<&Site>) {
        let mut command = consign();
        command.arg("init").arg(&self.dir).args(["--name", &self.name]);
        command.args(["--listen", &self.address.to_string()]);
        if let Some(authority) = authority {
            command.arg("--ca").arg(&authority.dir);
        }
        for peer in peers {
            command.args(["--peer", &format!("{}={}", peer.name, peer.address)]);
        }
        let output = command.output().expect("the binary runs");
        assert!(output.status.success(), "init of {}: {output:?}", self.name);
    }

    /// Has it served on a disk that the test controls.
    pub(crate) fn on_disk(&mut self) -> &Disk {
        self.disk.get_or_insert_with(|| Disk::new(&self.dir.join("data")))
    }

    pub(crate) fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("on_disk was asked for")
    }

    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.settings.insert(key.into(), value.into());
    }

    /// Has it served on the other runtime from its next start on.
    pub(crate) fn use_runtime(&mut self, runtime: &'static str) {
        self.runtime = runtime;
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.join("consign.toml")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("data/admin.sock")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join("serve.log")
    }

    /// Everything it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// `consign serve` as it would be typed.
    pub(crate) fn serve_command(&self) -> Command {
        let mut command = consign();
        command.envs(&self.settings).arg("-c").arg(self.config());
        command.args(["serve", "--runtime", self.runtime]).args(&self.serve_args);
        command
    }

    /// Starts it, without waiting.
    pub(crate) fn start(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.log_file());
        let log = log.expect("a log file");
        let mut command = self.serve_command();
        if let Some(disk) = &self.disk {
            disk.under(&mut command);
        }
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.start_as(command);
    }

    /// Starts it by a command of the test's own.
    pub(crate) fn start_as(&mut self, mut command: Command) {
        assert!(self.child.is_none(), "{} is served already", self.name);
        self.child = Some(command.spawn().expect("the binary runs"));
    }

    /// Starts it and waits until it takes work.
    pub(crate) fn serve(&mut self) {
        self.start();
        assert!(self.became_ready(), "{} ended at its start:\n{}", self.name, self.log());
    }

    /// Waits until it takes work (true) or has ended (false).
    pub(crate) fn became_ready(&mut self) -> bool {
        let what = format!("{} to be ready", self.name);
        wait::until(&what, || {
            if self.has_ended() {
                return Some(false);
            }
            let reply = http::get(&self.socket(), "/readyz").ok()?;
            (reply.status == 200).then_some(true)
        })
    }

    /// Whether the process is gone; it is reaped by that.
    pub(crate) fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut().expect("it was started");
        child.try_wait().expect("a child of ours").is_some()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it was started");
        let what = format!("{} to end", self.name);
        wait::until(&what, || child.try_wait().expect("a child of ours"))
    }

    /// SIGKILL, and what is left of it.
    pub(crate) fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.wait();
    }

    /// SIGTERM, and waits for the drain.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).expect("a process number");
        rustix::process::kill_process(pid, signal).expect("a process of ours");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it was started").id()
    }

    /// Its anonymous resident memory in bytes.
    pub(crate) fn rss_anon(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("a figure");
        let kib = line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
        kib.expect("a number") * 1024
    }

    /// Runs `consign -c CONFIG ARGS`.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// `consign -c CONFIG ARGS`, to be started.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = consign();
        command.envs(&self.settings).arg("-c").arg(self.config()).args(args);
        command
    }

    /// Runs it and reads one JSON value a line from what it prints.
    pub(crate) fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Vec<Value> {
        let output = self.command(args).arg("--json").output().expect("the binary runs");
        assert!(output.status.success(), "{}: {output:?}", self.name);
        lines(&output.stdout)
    }

    /// Hands content in over the socket, and what came of it.
    ///
    /// # Errors
    /// When nobody answers, or the process dies over it: it may or may not be accepted.
    pub(crate) fn submit(&self, name: &str, content: &[u8]) -> std::io::Result<http::Reply> {
        http::post(&self.socket(), &format!("/v1/segments?name={name}&to={}", self.far()), content)
    }

    /// Hands content in, which is accepted; its id.
    pub(crate) fn accepted(&self, name: &str, content: &[u8]) -> String {
        let reply = self.submit(name, content).expect("it answers");
        let text = String::from_utf8_lossy(&reply.body);
        assert!(matches!(reply.status, 200 | 201), "{}: {} {text}", self.name, reply.status);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        value["id"].as_str().expect("an id").to_string()
    }

    /// The site that its segments are for.
    fn far(&self) -> &'static str {
        if self.name == "beta" { "alpha" } else { "beta" }
    }

    /// Waits until the segment is here, and reads it.
    pub(crate) fn arrival(&self, id: &str) -> Vec<u8> {
        let target = format!("/v1/segments/{id}/content");
        let what = format!("{id} to arrive at {}", self.name);
        wait::until(&what, || {
            let reply = http::get(&self.socket(), &target).expect("it answers");
            (reply.status == 200).then_some(reply.body)
        })
    }

    /// `status`, from the daemon's own mouth.
    pub(crate) fn status(&self) -> Value {
        let reply = http::get(&self.socket(), "/v1/status").expect("it answers");
        serde_json::from_slice(&reply.body).expect("JSON")
    }

    /// Every segment it holds, with its deliveries.
    pub(crate) fn segments(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let reply = http::get(&self.socket(), &format!("/v1/segments?limit=500{after}"));
            let reply = reply.expect("it answers");
            assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
            let page: Value = serde_json::from_slice(&reply.body).expect("JSON");
            all.extend(page["segments"].as_array().expect("segments").iter().cloned());
            match page["next"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => return all,
            }
        }
    }

    /// The content of a segment, over the socket.
    pub(crate) fn content(&self, id: &str) -> Vec<u8> {
        let reply = http::get(&self.socket(), &format!("/v1/segments/{id}/content"));
        let reply = reply.expect("it answers");
        assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
        reply.body
    }

    /// How its deliveries to `peer` stand.
    pub(crate) fn counts(&self, peer: &str) -> Counts {
        Counts::of(&self.status(), peer)
    }

    /// Waits until nothing is owed to `peer` any more and nothing is in flight.
    pub(crate) fn settled(&self, peer: &str) -> Counts {
        let what = format!("{} to owe {peer} nothing", self.name);
        wait::until(&what, || {
            let counts = self.counts(peer);
            (counts.queued + counts.sending + counts.backing_off == 0).then_some(counts)
        })
    }
}

/// Deliveries to one peer, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) queued: u64,
    pub(crate) sending: u64,
    pub(crate) backing_off: u64,
    pub(crate) dead: u64,
    pub(crate) delivered: u64,
}

impl Counts {
    fn of(status: &Value, peer: &str) -> Counts {
        let peers = status["peers"].as_array().expect("peers");
        let found = peers.iter().find(|p| p["name"] == peer);
        let found = found.unwrap_or_else(|| panic!("{peer} is not in {status}"));
        let count = |state: &str| found[state]["count"].as_u64().expect("a count");
        Counts {
            queued: count("queued"),
            sending: count("sending"),
            backing_off: count("backing_off"),
            dead: count("dead"),
            delivered: count("delivered"),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let log = self.log();
        if std::thread::panicking() {
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            eprintln!("---- log of {} ({})\n{}", self.name, self.runtime, tail.join("\n"));
            return;
        }
        assert!(!log.contains("panicked at"), "{} panicked:\n{log}", self.name);
        let error = log.lines().find(|line| line.contains("ERROR"));
        assert!(self.expects_errors || error.is_none(), "{}: {error:?}", self.name);
    }
}

/// One JSON value a line.
pub(crate) fn lines(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// The first JSON object with this schema.
pub(crate) fn with_schema<'v>(values: &'v [Value], schema: &str) -> &'v Value {
    let found = values.iter().find(|v| v["schema"] == schema);
    found.unwrap_or_else(|| panic!("nothing of {schema} in {values:?}"))
}

/// A file of `len` bytes that differs by `seed`, and its digest in hex.
pub(crate) fn make_file(path: &Path, seed: u64, len: usize) -> String {
    let content = content(seed, len);
    let file = File::create(path).expect("a file");
    std::io::Write::write_all(&mut &file, &content).expect("written");
    blake3::hash(&content).to_hex().to_string()
}

/// Bytes that look random and depend on `seed` alone.
pub(crate) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut stream = blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof();
    stream.fill(&mut bytes);
    bytes
}
