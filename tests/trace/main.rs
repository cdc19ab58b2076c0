//! One scripted scenario gives the same ledger transitions on smol, on std and stepped by hand: per
//! (segment, peer) the sequence of (from, to, cause, attempt), times removed.

#[path = "../../core/tests/pair/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign::client::{Api, Source};
use consign::config::{self, Layers, Settings};
use consign::daemon::{Daemon, Overrides};
use consign::pki::Authority;
use consign_core::ledger::rows::State;
use consign_core::node::Note;
use serde_json::Value;

/// Transitions by (segment name, peer), in order.
type Trace = BTreeMap<(String, String), Vec<String>>;

/// What beta takes at most.
const MAX_SEGMENT: usize = 1 << 20;

fn content(name: &str) -> Vec<u8> {
    let n = match name {
        "one" | "two" => 1_000,
        "edge" => 65_536,
        "blob" => 300_000,
        "late" => 70_000,
        "huge" => MAX_SEGMENT + 1,
        other => panic!("no content for {other}"),
    };
    name.bytes().cycle().take(n).collect()
}

fn word(state: Option<State>) -> String {
    state.map_or("none".into(), |s| format!("{s:?}"))
}

/// The scenario by hand, in a world without sockets.
fn by_hand() -> Trace {
    let beta = consign_core::config::Config {
        max_segment: Some(MAX_SEGMENT as u64),
        ..world::config("beta", &["alpha"])
    };
    let mut world = world::World::new(vec![world::config("alpha", &["beta"]), beta]);
    world.start("alpha");
    for name in ["one", "two", "blob"] {
        world.send("alpha", name, &content(name), &["beta"]).unwrap();
    }
    world.start("beta");
    for name in ["edge", "huge", "late", "one"] {
        world.send("alpha", name, &content(name), &["beta"]).unwrap();
        world.wait(Duration::from_secs(3));
    }
    let mut trace = Trace::new();
    for line in world.take_trace() {
        let (head, transition) = line.split_once(": ").unwrap();
        let [_, name, peer] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        trace.entry((name.into(), peer.into())).or_default().push(transition.into());
    }
    trace
}

/// A site of the real thing.
struct Site {
    daemon: Daemon,
    notes: Receiver<Note>,
}

fn settings(dir: &Path, authority: &Authority, name: &str, runtime: &str, extra: &str) -> Settings {
    let pair = authority.site(name, &[], Duration::from_secs(86_400)).unwrap();
    let home = dir.join(name);
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("ca.pem"), authority.certificate()).unwrap();
    std::fs::write(home.join("node.pem"), &pair.certificate).unwrap();
    std::fs::write(home.join("node.key"), &pair.key).unwrap();
    use std::os::unix::fs::PermissionsExt;
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(home.join("node.key"), private).unwrap();
    let text = format!(
        "[node]\nname = \"{name}\"\ndata_dir = \"data\"\nruntime = \"{runtime}\"\n\
         [tls]\nca = \"ca.pem\"\ncert = \"node.pem\"\nkey = \"node.key\"\n\
         [limits]\nballast = \"1MiB\"\n{extra}"
    );
    config::parse(&home.join("consign.toml"), &text, &Layers::default())
        .unwrap_or_else(|faults| panic!("{faults}"))
}

impl Site {
    fn start(settings: &Settings) -> Site {
        let (tell, notes): (Sender<Note>, _) = channel();
        let tell = Mutex::new(tell);
        let observe = Arc::new(move |note: &Note| {
            // The receiver is gone once the test is over.
            let _ = tell.lock().unwrap().send(note.clone());
        });
        let overrides =
            Overrides { force_fs: true, observe: Some(observe), ..Overrides::default() };
        let daemon = Daemon::start(settings, overrides).unwrap_or_else(|e| panic!("{e}"));
        Site { daemon, notes }
    }

    fn send(&self, name: &str) {
        let body = content(name);
        let target = format!("/v1/segments?name={name}&to=beta");
        let source = Source::Sized(body.len() as u64, &mut &body[..]);
        let answer: Value = Api::new(self.daemon.admin())
            .submit(&target, source, &mut |_| {})
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(answer["name"], name);
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The scenario on two daemons with real sockets, TLS and LMDB.
fn on(runtime: &str) -> Trace {
    let dir = tempfile::tempdir().unwrap();
    let (authority, _) = Authority::new().unwrap();
    let (a, b) = (free_port(), free_port());
    let listen = |port: u16, peer: &str, at: u16, more: &str| {
        format!(
            "[listen]\npeers = [\"127.0.0.1:{port}\"]\nweb = \"off\"\n[storage]\nmin_free = \"1MiB\"\n{more}\n\
             [relay]\nbackoff_initial = \"200ms\"\n[[relay.known_peers]]\nname = \"{peer}\"\n\
             address = \"127.0.0.1:{at}\"\n"
        )
    };
    let alpha = settings(dir.path(), &authority, "alpha", runtime, &listen(a, "beta", b, ""));
    let limit = "max_segment = \"1MiB\"";
    let beta = settings(dir.path(), &authority, "beta", runtime, &listen(b, "alpha", a, limit));
    let alpha = Site::start(&alpha);
    for name in ["one", "two", "blob"] {
        alpha.send(name);
    }
    let mut seen = Seen::default();
    let beta = Site::start(&beta);
    seen.until(&alpha, 3);
    for name in ["edge", "huge", "late", "one"] {
        alpha.send(name);
        if name != "one" {
            seen.until(&alpha, 1);
        }
    }
    for site in [alpha, beta] {
        site.daemon.stop();
        site.daemon.wait().unwrap_or_else(|e| panic!("{e}"));
        while let Ok(note) = site.notes.try_recv() {
            seen.note(note);
        }
    }
    seen.trace()
}

#[derive(Default)]
struct Seen {
    by_id: BTreeMap<(consign_core::id::SegmentId, String), Vec<String>>,
    ended: usize,
}

impl Seen {
    fn note(&mut self, note: Note) {
        let Note::Delivery { id, peer, from, to, cause, attempts, .. } = note else { return };
        let cause = cause.map_or(String::new(), |c| format!(" ({c})"));
        let line = format!("{} -> {} #{attempts}{cause}", word(from), word(to));
        self.ended += usize::from(matches!(to, Some(State::Acked | State::Deadletter)));
        self.by_id.entry((id, peer.to_string())).or_default().push(line);
    }

    /// Waits until so many deliveries more have come to their end.
    fn until(&mut self, site: &Site, more: usize) {
        let wanted = self.ended + more;
        while self.ended < wanted {
            let note = site.notes.recv_timeout(Duration::from_secs(60));
            self.note(note.expect("a delivery comes to its end"));
        }
    }

    fn trace(self) -> Trace {
        let names = ["one", "two", "blob", "edge", "huge", "late"];
        let named = |id: &consign_core::id::SegmentId| {
            let name = names.iter().find(|name| {
                let digest = consign_core::id::BlobDigest(*blake3::hash(&content(name)).as_bytes());
                let meta =
                    consign_core::segment::Meta { name: name.to_string(), ..Default::default() };
                consign_core::segment::segment_id(&meta, &digest) == *id
            });
            name.expect("a segment of the scenario").to_string()
        };
        self.by_id.into_iter().map(|((id, peer), lines)| ((named(&id), peer), lines)).collect()
    }
}

#[test]
fn one_scenario_gives_the_same_transitions_everywhere() {
    let expected = by_hand();
    let acked = ["none -> Scheduled #0", "Scheduled -> Inflight #1", "Inflight -> Acked #1"]
        .map(String::from);
    assert_eq!(expected[&("one".into(), "beta".into())], acked);
    assert_eq!(
        expected[&("huge".into(), "beta".into())][2],
        "Inflight -> Deadletter #1 (too_large)"
    );
    assert_eq!(expected.len(), 6);
    for runtime in ["smol", "std"] {
        assert_eq!(on(runtime), expected, "{runtime}");
    }
}
