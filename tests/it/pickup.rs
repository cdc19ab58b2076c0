//! Shards for nodes that are not there yet: the real relay, real clients, real nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::Arc;

use serde_json::Value;

use crate::kill::{Draw, arm};
use crate::site::{RUNTIMES, Site, consign, content, free_address, lines};
use crate::wait;

/// A relay with one client, and where it is reached.
pub(crate) struct Relay {
    /// The authority of its certificate, where it speaks TLS.
    ca: Option<PathBuf>,
    pub(crate) site: Site,
    pub(crate) at: SocketAddr,
    token: PathBuf,
}

impl Relay {
    /// A relay that is not served yet.
    pub(crate) fn new(runtime: &'static str, settings: &[(&str, &str)]) -> Relay {
        let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
        let mut site = Site::at(&folder, "relay", runtime);
        site.init(&[], None);
        let at = free_address();
        site.set("CONSIGN_LISTEN_PICKUP", &at.to_string());
        for (key, value) in settings {
            site.set(key, value);
        }
        let token = folder.path().join("app.token");
        Relay { ca: None, site, at, token }
    }

    /// Has it speak TLS.
    fn over_tls(&mut self) {
        self.site.set("CONSIGN_LISTEN_PICKUP_TLS", "on");
        self.ca = Some(self.site.dir.join("ca.pem"));
    }

    pub(crate) fn url(&self) -> String {
        match self.ca {
            None => format!("http://{}", self.at),
            Some(_) => format!("https://localhost:{}", self.at.port()),
        }
    }

    /// Serves it, and lets the client `app` upload.
    pub(crate) fn serve(&mut self) {
        self.site.serve();
        let said = self.site.json(&["pickup", "clients", "enrol", "app"]);
        let token = said[0]["token"].as_str().expect("a token");
        std::fs::write(&self.token, token).expect("written");
    }

    /// Makes a node's directory and lets it pick up here.
    pub(crate) fn node(&self, id: &str) -> Node {
        let dir = self.site.folder().path().join(id);
        let mut command = consign();
        command.args(["node", "init", "--json", "--id", id, "--relay", &self.url()]).arg(&dir);
        if let Some(ca) = &self.ca {
            command.arg("--ca").arg(ca);
        }
        let output = command.output().expect("the binary runs");
        assert!(output.status.success(), "{output:?}");
        let key = lines(&output.stdout)[0]["key"].as_str().expect("a key").to_owned();
        let enrolled = self.site.run(&["pickup", "nodes", "enrol", id, "--key", &key]);
        assert!(enrolled.status.success(), "{enrolled:?}");
        Node { id: id.into(), dir, child: None }
    }

    /// Uploads a file for a node.
    pub(crate) fn upload(&self, file: &Path, node: &str, shard: u64) -> Output {
        let shard = shard.to_string();
        let what = ["--file-id", "film", "--version", "1", "--shard", &shard, "--node", node];
        let mut command = consign();
        command
            .args(["pickup", "upload", "--json", "--tries", "1", "--to", &self.url()])
            .args(what);
        command.arg("--token-file").arg(&self.token).arg(file);
        if let Some(ca) = &self.ca {
            command.arg("--ca").arg(ca);
        }
        command.output().expect("the binary runs")
    }

    /// Every shard by its index, as the operator sees it.
    pub(crate) fn shards(&self) -> BTreeMap<u64, Value> {
        let rows = self.site.json(&["pickup", "shards", "ls", "--all"]);
        let rows = rows.into_iter().filter(|row| row["shard_index"].is_u64());
        rows.map(|row| (row["shard_index"].as_u64().expect("a number"), row)).collect()
    }

    pub(crate) fn state(&self, shard: u64) -> String {
        let rows = self.shards();
        let row = rows.get(&shard).unwrap_or_else(|| panic!("no shard {shard} in {rows:?}"));
        row["state"].as_str().expect("a state").to_owned()
    }

    /// A file of its own for the test.
    pub(crate) fn file(&self, name: &str, seed: u64, len: usize) -> (PathBuf, Vec<u8>) {
        let path = self.site.folder().path().join(name);
        let bytes = content(seed, len);
        std::fs::write(&path, &bytes).expect("written");
        (path, bytes)
    }
}

/// A node: its directory, and its process while it runs.
pub(crate) struct Node {
    id: String,
    dir: PathBuf,
    child: Option<Child>,
}

impl Node {
    pub(crate) fn run(&mut self) {
        self.start(&["node", "run"], Stdio::null());
    }

    /// The same, with what it tells as JSON lines.
    pub(crate) fn run_telling(&mut self, told: Stdio) {
        self.start(&["node", "run", "--json"], told);
    }

    fn start(&mut self, words: &[&str], told: Stdio) {
        let log = std::fs::File::create(self.dir.join("run.log")).expect("a log");
        let mut command = consign();
        command.args(words).arg(&self.dir);
        command.stdout(told).stderr(log);
        self.child = Some(command.spawn().expect("the binary runs"));
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may be gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// What it has stored of a shard.
    pub(crate) fn stored(&self, shard: u64) -> Option<Vec<u8>> {
        let path = self.dir.join("shards/film/1").join(shard.to_string());
        std::fs::read(path).ok()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.join("run.log")).unwrap_or_default();
            eprintln!("---- log of node {}\n{log}", self.id);
        }
    }
}

/// A shard is uploaded while its node is off; the node comes up; custody moves.
#[test]
fn a_shard_waits_for_its_node_and_custody_moves() {
    for runtime in RUNTIMES {
        let mut relay = Relay::new(runtime, &[]);
        relay.serve();
        let mut node = relay.node("n1");
        let sizes = [0, 1_000, 65_536, 65_537, 5 << 20, 20 << 20];
        let mut sent = Vec::new();
        for (shard, size) in sizes.into_iter().enumerate() {
            let (path, bytes) = relay.file(&format!("f{shard}"), shard as u64, size);
            let output = relay.upload(&path, "n1", shard as u64);
            assert!(output.status.success(), "{output:?}");
            sent.push(bytes);
        }
        for (shard, row) in relay.shards() {
            assert_eq!(row["state"], "RELAY_BUFFERED", "{shard}");
            assert!(row["buffer_id"].is_string() && row["expires_at"].is_string(), "{row}");
        }
        node.run();
        wait::until("every shard to be stored", || {
            relay.shards().values().all(|row| row["state"] == "NODE_STORED").then_some(())
        });
        for (shard, bytes) in sent.iter().enumerate() {
            assert_eq!(node.stored(shard as u64).as_ref(), Some(bytes), "{runtime} {shard}");
            assert!(relay.shards()[&(shard as u64)]["buffer_id"].is_null());
        }
        // The same again is known, and nothing is fetched twice.
        let (path, _) = relay.file("again", 1, 1_000);
        let output = relay.upload(&path, "n1", 1);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(relay.state(1), "NODE_STORED");
        let (other, _) = relay.file("other", 99, 1_000);
        assert!(!relay.upload(&other, "n1", 1).status.success(), "other bytes are refused");
        relay.site.stop();
    }
}

/// The same over TLS, where certificates are judged on the way.
#[test]
fn shards_cross_over_tls() {
    for runtime in RUNTIMES {
        let mut relay = Relay::new(runtime, &[]);
        let port = free_port();
        relay.over_tls();
        relay.at = SocketAddr::from(([127, 0, 0, 1], port));
        relay.site.set("CONSIGN_LISTEN_PICKUP", &relay.at.to_string());
        relay.serve();
        let mut node = relay.node("n1");
        node.run();
        for (shard, size) in [(0, 100), (1, 3 << 20)] {
            let (path, _) = relay.file(&format!("f{shard}"), shard, size);
            let output = relay.upload(&path, "n1", shard);
            assert!(output.status.success(), "{output:?}");
        }
        wait::until("every shard to be stored", || {
            relay.shards().values().all(|row| row["state"] == "NODE_STORED").then_some(())
        });
        assert_eq!(node.stored(1), Some(content(1, 3 << 20)), "{runtime}");
        // Another authority's word for it is not taken.
        let other = Relay::new(runtime, &[]);
        relay.ca = Some(other.site.dir.join("ca.pem"));
        let (path, _) = relay.file("f2", 2, 10);
        let output = relay.upload(&path, "n1", 2);
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(!output.status.success() && said.contains("certificate"), "{said}");
    }
}

/// A port of the loopback address by which certificates know this machine.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A node that is gone for good: its shard ends with its lease, and says so.
#[test]
fn a_lease_ends_while_the_relay_is_down_as_well() {
    let mut relay = Relay::new("smol", &[("CONSIGN_BUFFER_TTL", "2s")]);
    relay.serve();
    let _node = relay.node("n1");
    let (path, _) = relay.file("f", 1, 100_000);
    assert!(relay.upload(&path, "n1", 0).status.success());
    let began = std::time::Instant::now();
    relay.site.stop();
    wait::until("the lease to end", || (began.elapsed().as_secs() >= 3).then_some(()));
    relay.site.serve();
    wait::until("the shard to be given up", || (relay.state(0) == "RELAY_CLEANUP").then_some(()));
    wait::until("its content to go", || {
        (relay.site.status()["storage"]["used"].as_u64() == Some(0)).then_some(())
    });
}

/// SIGKILL on the relay at any call, on the node at any time: what was told to be buffered arrives, whole
/// and once.
#[test]
fn what_is_buffered_arrives_whoever_dies() {
    let mut draw = Draw::new("what_is_buffered_arrives_whoever_dies");
    let mut relay = Relay::new("smol", &[("CONSIGN_BUFFER_TRANSIT_GRACE", "2s")]);
    relay.site.on_disk();
    relay.serve();
    let mut node = relay.node("n1");
    node.run();
    let mut sent: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for shard in 0..30 {
        let size = match draw.to(4) {
            1 => 200_000 + draw.to(3_000_000) as usize,
            _ => draw.to(60_000) as usize,
        };
        let (path, bytes) = relay.file(&format!("f{shard}"), shard, size);
        if draw.to(2) == 1 {
            arm(&relay.site, draw.to(60));
        }
        if draw.to(4) == 1 {
            node.kill();
        }
        for attempt in 0.. {
            assert!(attempt < 50, "shard {shard} is never taken");
            if relay.site.has_ended() {
                relay.site.wait();
                relay.site.disk().set(crate::disk::Word::KillAt, 0);
                relay.site.start();
                assert!(relay.site.became_ready());
            }
            if relay.upload(&path, "n1", shard).status.success() {
                break;
            }
        }
        sent.insert(shard, bytes);
        if node.child.is_none() {
            node.run();
        }
    }
    // It may be about to die all the same: until it has answered and lives.
    wait::until_true("the relay to be left alive", || {
        relay.site.disk().set(crate::disk::Word::KillAt, 0);
        if relay.site.has_ended() {
            relay.site.wait();
            relay.site.start();
        }
        relay.site.became_ready() && !relay.site.has_ended()
    });
    wait::until("every shard to be stored", || {
        let shards = relay.shards();
        sent.keys().all(|shard| shards[shard]["state"] == "NODE_STORED").then_some(())
    });
    for (shard, bytes) in &sent {
        assert_eq!(node.stored(*shard).as_ref(), Some(bytes), "{shard}");
    }
    wait::until("nothing to be held any more", || {
        (relay.site.status()["storage"]["used"].as_u64() == Some(0)).then_some(())
    });
}

/// Whoever is not enrolled gets nothing, and is told so.
#[test]
fn strangers_are_refused() {
    let mut relay = Relay::new("std", &[]);
    relay.serve();
    let (path, _) = relay.file("f", 1, 10);
    let output = relay.upload(&path, "nobody", 0);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("unknown_node") || said.contains("not enrolled"), "{said}");
    let _node = relay.node("n1");
    let revoked = relay.site.run(&["pickup", "clients", "revoke", "app"]);
    assert!(revoked.status.success(), "{revoked:?}");
    let output = relay.upload(&path, "n1", 0);
    assert!(!output.status.success(), "{output:?}");
}
