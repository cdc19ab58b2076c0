//! From judged values to what the parts go by, with the rules that span several keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_core::config::{BufferConfig, Config, SuccessCondition};

use super::credential::{self, Refused};
use super::fault::{At, Code, Fault};
use super::rules::{self, Around};
use super::sites::{names, peer, route, route_faults, share_a_pin, text_of};
use super::units::{duration, millis, size};
use super::value::{SOCKET_PATH_MAX, Value};
use super::walk::{Item, Items, Walked};
use crate::inbox::InboxDir;
use crate::watch::WatchRule;

/// Which runtime carries the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A task per connection.
    Smol,
    /// A thread per connection.
    Std,
}

impl Runtime {
    /// Those that this build has.
    pub const BUILT_IN: &[Runtime] = &[
        #[cfg(feature = "runtime-smol")]
        Runtime::Smol,
        #[cfg(feature = "runtime-std")]
        Runtime::Std,
    ];
    /// The word in the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Runtime::Smol => "smol",
            Runtime::Std => "std",
        }
    }
}

/// Shape of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Least level that is written.
    pub level: tracing::Level,
    /// Shape.
    pub format: LogFormat,
}

/// Where certificates and keys are; `credential:` is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities.
    pub ca: PathBuf,
    /// This site's certificate and its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Where pickup clients and nodes connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickupListen {
    /// `listen.pickup`; nowhere unless the service manager has a socket for it.
    pub address: Option<SocketAddr>,
    /// `listen.pickup_tls`; `None` is `auto`.
    pub tls: Option<bool>,
    /// `listen.pickup_names`; empty takes the bound address and the certificate's names.
    pub names: Vec<String>,
}

impl PickupListen {
    /// Whether these addresses are served with TLS: by itself wherever others can connect.
    #[must_use]
    pub fn wants_tls(&self, bound: &[SocketAddr]) -> bool {
        self.tls.unwrap_or_else(|| bound.iter().any(|address| !address.ip().is_loopback()))
    }
}

/// A configuration that was judged and found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where it was read.
    pub file: PathBuf,
    /// What the node goes by.
    pub node: Config,
    /// `node.data_dir`
    pub data_dir: PathBuf,
    /// `node.runtime`
    pub runtime: Runtime,
    /// `listen.peers`
    pub listen: Vec<SocketAddr>,
    /// `listen.admin`: path of the Unix socket.
    pub admin: PathBuf,
    /// `listen.web`
    pub web: Option<SocketAddr>,
    /// `[listen]`: where clients and nodes connect, and how.
    pub pickup: PickupListen,
    /// `[tls]`
    pub tls: TlsFiles,
    /// `limits.connections`
    pub connections: usize,
    /// `limits.header_timeout`
    pub header_timeout: Duration,
    /// `limits.min_body_rate`, bytes per second
    pub min_body_rate: u64,
    /// `limits.ballast`, bytes
    pub ballast: u64,
    /// `[log]`
    pub log: Log,
    /// `[[inbox]]`: where files go.
    pub inbox: Vec<InboxDir>,
    /// `[[watch]]`
    pub watch: Vec<WatchRule>,
}

/// Turns values into settings.
///
/// # Errors
/// Every fault, those of the single keys included.
pub(super) fn settle(
    file: &Path,
    walked: Walked,
    credentials: Option<&Path>,
) -> Result<Settings, Vec<Fault>> {
    let mut settle = Settle { file, walked, faults: Vec::new() };
    settle.faults.append(&mut settle.walked.faults);
    settle.peers_differ();
    settle.listeners_differ();
    settle.routes_lead_on();
    settle.backoff_order();
    settle.memory_order();
    let tls = ["tls.ca", "tls.cert", "tls.key"].map(|k| settle.path(k, credentials));
    let data_dir = settle.path("node.data_dir", None);
    let admin = settle.admin(&data_dir);
    let mut node = settle.node();
    let (inbox, watch) = settle.rules(&mut node, &data_dir);
    if settle.faults.is_empty() {
        settle.core_rules(&node);
    }
    if !settle.faults.is_empty() {
        return Err(settle.faults);
    }
    let [ca, cert, key] = tls;
    Ok(Settings {
        file: file.to_path_buf(),
        node,
        data_dir,
        runtime: if settle.text("node.runtime") == "std" { Runtime::Std } else { Runtime::Smol },
        listen: settle.addresses("listen.peers"),
        admin,
        web: settle.addresses("listen.web").first().copied(),
        pickup: settle.pickup(),
        tls: TlsFiles { ca, cert, key },
        connections: usize::try_from(settle.number("limits.connections")).unwrap_or(usize::MAX),
        header_timeout: duration(settle.number("limits.header_timeout")),
        min_body_rate: settle.number("limits.min_body_rate"),
        ballast: settle.number("limits.ballast"),
        log: settle.log(),
        inbox,
        watch,
    })
}

/// What certificates and key can be judged by, whatever else is wrong: their places, and who the site and its
/// peers are. None if they are not to be understood themselves.
pub(super) fn files(
    file: &Path,
    walked: Walked,
    credentials: Option<&Path>,
) -> Option<(TlsFiles, Config)> {
    let mut settle = Settle { file, walked, faults: Vec::new() };
    let keys = ["node.name", "tls.ca", "tls.cert", "tls.key"];
    if keys.iter().any(|key| settle.text(key).is_empty()) {
        return None;
    }
    let [ca, cert, key] = ["tls.ca", "tls.cert", "tls.key"].map(|k| settle.path(k, credentials));
    settle.faults.is_empty().then(|| (TlsFiles { ca, cert, key }, settle.node()))
}

struct Settle<'a> {
    file: &'a Path,
    walked: Walked,
    faults: Vec<Fault>,
}

impl Settle<'_> {
    fn value(&self, path: &str) -> Option<&Value> {
        self.walked.items.get(path).map(|item| &item.value)
    }

    fn text(&self, path: &str) -> &str {
        match self.value(path) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// The values of each section of a kind that may stand there more than once.
    fn list(&self, section: &str) -> impl Iterator<Item = &Items> {
        let lists = self.walked.lists.iter().filter(move |(name, ..)| *name == section);
        lists.map(|(_, items, _)| items)
    }

    fn addresses(&self, path: &str) -> Vec<SocketAddr> {
        match self.value(path) {
            Some(Value::Listen(addresses)) => addresses.clone(),
            _ => Vec::new(),
        }
    }

    /// A number that was judged already; 0 only after a fault.
    fn number(&self, path: &str) -> u64 {
        self.optional(path).unwrap_or_default()
    }

    fn optional(&self, path: &str) -> Option<u64> {
        match self.value(path) {
            Some(Value::Number(number)) => *number,
            _ => None,
        }
    }

    fn at(&self, path: &str) -> At {
        self.walked.items.get(path).and_then(|item| item.at.clone()).unwrap_or(At::Whole)
    }

    fn fault(&mut self, code: Code, key: &str, message: String, label: String, at: At) {
        let (key, help) = (key.to_owned(), String::new());
        self.faults.push(Fault { code, key, message, label, help, at });
    }

    fn path(&mut self, key: &str, credentials: Option<&Path>) -> PathBuf {
        let text = self.text(key).to_owned();
        let Some(name) = text.strip_prefix("credential:") else {
            let base = self.file.parent().unwrap_or(Path::new(""));
            return base.join(text);
        };
        match credential::place(name, credentials) {
            Ok(path) => return path,
            Err(Refused { problem, help }) => {
                let message = format!("`{key}` names the credential {name:?}, but {problem}");
                let (key, help, at) = (key.to_owned(), help.to_owned(), self.at(key));
                let label = String::new();
                self.faults.push(Fault { code: Code::Value, key, message, label, help, at });
            }
        }
        PathBuf::new()
    }

    fn admin(&mut self, data_dir: &Path) -> PathBuf {
        let path = match self.text("listen.admin") {
            "" => data_dir.join("admin.sock"),
            text => self.file.parent().unwrap_or(Path::new("")).join(text),
        };
        let len = path.as_os_str().len();
        if len > SOCKET_PATH_MAX {
            let at = match self.at("listen.admin") {
                At::Whole => self.at("node.data_dir"),
                at => at,
            };
            let message = format!(
                "the admin socket's path has {len} bytes; a socket may have {SOCKET_PATH_MAX}"
            );
            self.fault(Code::Range, "listen.admin", message, path.display().to_string(), at);
            if let Some(fault) = self.faults.last_mut() {
                fault.help = "set `listen.admin` to a shorter path".into();
            }
        }
        path
    }

    /// Rules for what arrives and what appears; the node gets its part of them.
    fn rules(&mut self, node: &mut Config, data_dir: &Path) -> (Vec<InboxDir>, Vec<WatchRule>) {
        let base = self.file.parent().unwrap_or(Path::new(""));
        // Those that have something wrong with them are meant all the same.
        let peers = names(self.list("relay.known_peers"), "name");
        let sites = [peers, names(self.list("route"), "to")].concat();
        // Where none is named it is the base, and that is told by itself.
        let named = !self.text("node.data_dir").is_empty();
        let data_dir = if named { data_dir } else { Path::new("") };
        let around = Around { base, data_dir, sites };
        let lists = self.walked.lists.iter().map(|(name, items, _)| (*name, items));
        let mut rules = rules::read(lists, &around);
        self.faults.append(&mut rules.faults);
        let (inbox, dirs) = rules.inbox.into_iter().unzip();
        node.inbox = inbox;
        (dirs, rules.watch)
    }

    fn peers_differ(&mut self) {
        let own = self.text("node.name").to_owned();
        let peers: Vec<Items> = self.list("relay.known_peers").cloned().collect();
        for (i, peer) in peers.iter().enumerate() {
            let Some((name, at)) = text_of(peer, "name") else { continue };
            let earlier = peers.get(..i).unwrap_or_default();
            let key = "relay.known_peers.name";
            if name == own {
                let message = format!("`{name}` is this site itself, not a peer");
                self.fault(
                    Code::Conflict,
                    key,
                    message,
                    "the same as node.name".into(),
                    at.clone(),
                );
            }
            if earlier.iter().any(|p| text_of(p, "name").is_some_and(|(n, _)| n == name)) {
                let message = format!("the peer `{name}` stands there twice");
                self.fault(Code::Double, key, message, "the second one".into(), at);
            }
            let Some(Item { value, at: Some(at) }) = peer.get("fingerprint") else { continue };
            if earlier.iter().any(|p| share_a_pin(p, value)) {
                let key = "relay.known_peers.fingerprint";
                let message = format!("the peer `{name}` has the fingerprint of another peer");
                self.fault(Code::Double, key, message, "the second one".into(), at.clone());
            }
        }
    }

    /// Every route leads to a site of its own, by way of a known peer.
    fn routes_lead_on(&mut self) {
        let own = self.text("node.name").to_owned();
        let peers: Vec<Items> = self.list("relay.known_peers").cloned().collect();
        let known = names(peers.iter(), "name");
        // A peer whose name cannot be read may be the one that is meant.
        let all = known.len() == peers.len();
        let routes: Vec<Items> = self.list("route").cloned().collect();
        for fault in route_faults(&routes, &own, &known, all) {
            self.faults.push(fault);
        }
    }

    fn backoff_order(&mut self) {
        let (first, most) = ("relay.backoff_initial", "relay.backoff_max");
        let (Some(a), Some(b)) = (self.optional(first), self.optional(most)) else { return };
        if a > b {
            let message = format!("`{first}` is larger than `{most}`");
            self.fault(
                Code::Conflict,
                first,
                message,
                format!("{} > {}", millis(a), millis(b)),
                self.either(first, most),
            );
        }
    }

    fn memory_order(&mut self) {
        let (one, all) = ("limits.session_bytes", "limits.buffered_bytes");
        let (Some(a), Some(b)) = (self.optional(one), self.optional(all)) else { return };
        if a > b {
            let message = format!("`{one}` is larger than `{all}`");
            self.fault(
                Code::Conflict,
                one,
                message,
                format!("{} > {}", size(a), size(b)),
                self.either(one, all),
            );
        }
    }

    /// Where the first of two keys stands, or else the second.
    fn either(&self, first: &str, second: &str) -> At {
        match self.at(first) {
            At::Whole => self.at(second),
            at => at,
        }
    }

    fn node(&self) -> Config {
        let condition = match self.text("relay.success_condition") {
            "one_peer" => SuccessCondition::OnePeer,
            _ => SuccessCondition::AllPeers,
        };
        let time = |path| duration(self.number(path));
        Config {
            name: self.text("node.name").to_owned(),
            peers: self.list("relay.known_peers").filter_map(peer).collect(),
            routes: self.list("route").filter_map(route).collect(),
            success_condition: condition,
            evict_on_relay: self.value("relay.evict_on_relay") == Some(&Value::Switch(true)),
            keep_relayed: time("relay.keep_relayed"),
            remember_for: time("relay.remember_for"),
            remember_max: self.number("relay.remember_max"),
            keep_deadletter: time("relay.keep_deadletter"),
            keep_receipts: time("relay.keep_receipts"),
            keep: time("storage.keep"),
            scrub_rate: self.number("storage.scrub_rate"),
            audit_max: self.number("limits.audit_max"),
            max_retries: u32::try_from(self.number("relay.max_retries")).unwrap_or(u32::MAX),
            strict_attempts: self.value("relay.strict_attempts") == Some(&Value::Switch(true)),
            backoff_initial: time("relay.backoff_initial"),
            backoff_max: time("relay.backoff_max"),
            ack_timeout: time("relay.ack_timeout"),
            expire_after: self.optional("relay.expire_after").map(duration),
            session_max_age: time("relay.session_max_age"),
            max_bytes: self.number("storage.max_bytes"),
            max_segments: self.optional("storage.max_segments"),
            max_segment: self.optional("storage.max_segment"),
            min_free: self.number("storage.min_free"),
            ledger_max: self.number("storage.ledger_max"),
            inline_max: self.number("storage.inline_max"),
            buffered_bytes: self.number("limits.buffered_bytes"),
            session_bytes: self.number("limits.session_bytes"),
            peer_sessions: u32::try_from(self.number("limits.peer_sessions")).unwrap_or(u32::MAX),
            partial_ttl: time("limits.partial_ttl"),
            drain_timeout: time("limits.drain_timeout"),
            buffer: self.buffer(),
            ..Config::default()
        }
    }

    fn buffer(&self) -> BufferConfig {
        let time = |path| duration(self.number(path));
        let count = |path| u32::try_from(self.number(path)).unwrap_or(u32::MAX);
        BufferConfig {
            max_bytes: self.number("buffer.max_bytes"),
            max_upload: self.optional("buffer.max_upload"),
            ttl: time("buffer.ttl"),
            upload_grace: time("buffer.upload_grace"),
            transit_grace: time("buffer.transit_grace"),
            slot_ttl: time("buffer.slot_ttl"),
            token_ttl: time("buffer.token_ttl"),
            notify_window: count("buffer.notify_window"),
            max_pickups: count("buffer.max_pickups"),
            keep_history: time("buffer.keep_history"),
            nonces_per_key: self.number("limits.nonces_per_key"),
        }
    }

    /// Two listeners of one site cannot have one address.
    fn listeners_differ(&mut self) {
        let mut seen = Vec::new();
        for key in ["listen.peers", "listen.web", "listen.pickup"] {
            for address in self.addresses(key) {
                if address.port() != 0 && seen.contains(&address) {
                    let message = format!("`{key}` is {address}, where this site listens already");
                    self.fault(Code::Conflict, key, message, "the second one".into(), self.at(key));
                }
                seen.push(address);
            }
        }
    }

    fn pickup(&self) -> PickupListen {
        let address = self.addresses("listen.pickup").first().copied();
        let tls = match self.text("listen.pickup_tls") {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        };
        let names = match self.value("listen.pickup_names") {
            Some(Value::Texts(names)) => names.clone(),
            _ => Vec::new(),
        };
        PickupListen { address, tls, names }
    }

    /// The core's own rules, as far as they are not told better above.
    fn core_rules(&mut self, node: &Config) {
        for rule in node.faults() {
            let message = format!("`{}` {}", rule.key, rule.problem);
            self.fault(Code::Conflict, rule.key, message, String::new(), self.at(rule.key));
        }
    }

    fn log(&self) -> Log {
        let level = match self.text("log.level") {
            "error" => tracing::Level::ERROR,
            "warn" => tracing::Level::WARN,
            "debug" => tracing::Level::DEBUG,
            "trace" => tracing::Level::TRACE,
            _ => tracing::Level::INFO,
        };
        let format = match self.text("log.format") {
            "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            _ => LogFormat::Auto,
        };
        Log { level, format }
    }
}
