//! Every key of the configuration: what it takes, its default and what it means. Parser, `init`'s template and the reference page read this one table.

use consign_core::limits::{BALLAST_MIN, CREDIT_START};

use super::value::Kind;

/// What stands for a key that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It may not be left out.
    Required,
    /// Nothing.
    Absent,
    /// This, as it would stand in the file.
    Is(&'static str),
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted section.
    pub section: &'static str,
    /// Its name in that section.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What stands for it when it is left out.
    pub default: Fallback,
    /// One line for people.
    pub meaning: &'static str,
}

/// A section.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Dotted name.
    pub name: &'static str,
    /// Whether it may stand more than once, as `[[name]]`.
    pub many: bool,
    /// One line for people.
    pub meaning: &'static str,
}

/// When another value of a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// From the next reload on.
    Reload,
    /// From the next start on.
    Restart,
}

/// Sections and keys whose values hold from the next start on; all others from a reload on.
const RESTART: &[&str] = &[
    "node",
    "listen",
    "route",
    "inbox",
    "watch",
    "storage.inline_max",
    "limits.connections",
    "limits.header_timeout",
    "limits.min_body_rate",
    "limits.drain_timeout",
    "limits.ballast",
    "log.format",
];

impl Change {
    /// The word for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Change::Reload => "reload",
            Change::Restart => "restart",
        }
    }

    /// For people.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Change::Reload => "holds from the next reload on (`consign reload`, SIGHUP)",
            Change::Restart => {
                "holds from the next start on: a reload leaves it as it is, and says so"
            }
        }
    }
}

const fn section(name: &'static str, meaning: &'static str) -> Section {
    Section { name, many: false, meaning }
}

/// Every section, in the order of the template.
pub const SECTIONS: &[Section] = &[
    section("node", "this site"),
    section("listen", "where this site is reached"),
    section("tls", "how this site proves who it is, and whom it believes"),
    section("storage", "what this site keeps"),
    section("relay", "how segments are passed on"),
    Section {
        name: "relay.known_peers",
        many: true,
        meaning: "a site that segments are exchanged with; one such section for each",
    },
    Section {
        name: "route",
        many: true,
        meaning: "a site behind a known peer; one such section for each",
    },
    Section {
        name: "inbox",
        many: true,
        meaning: "segments for this site as files; one such section for each kind",
    },
    Section {
        name: "watch",
        many: true,
        meaning: "a directory whose files are sent; one such section for each",
    },
    section("limits", "bounds on memory, connections and time"),
    section("buffer", "shards kept for nodes that are away"),
    section("log", "what is written to standard error"),
];

/// A second, in milliseconds.
const S: u64 = 1_000;
/// A day, in milliseconds.
const D: u64 = 86_400 * S;
/// Longest duration that makes sense: a hundred years.
const LONG: u64 = 36_500 * D;
/// Largest size that makes sense: one EiB.
const HUGE: u64 = 1 << 60;

const fn time(min: u64, max: u64) -> Kind {
    Kind::Time { min, max, none: false }
}
const fn size(min: u64) -> Kind {
    Kind::Size { min, max: HUGE, none: false }
}
const SIZE_OR_NONE: Kind = Kind::Size { min: 1, max: HUGE, none: true };
const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

use self::Fallback::{Absent, Is, Required};

const fn key(
    path: (&'static str, &'static str),
    kind: Kind,
    default: Fallback,
    meaning: &'static str,
) -> Key {
    Key { section: path.0, name: path.1, kind, default, meaning }
}

/// Every key, by section in the order of the template.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key(("node", "name"), Kind::Site, Required,
        "name of this site, as in its certificate"),
    key(("node", "data_dir"), Kind::Path, Required,
        "where ledger and content are kept; relative paths start at this file's directory"),
    key(("node", "runtime"), Kind::Word(&["smol", "std"]),
        Is(if cfg!(feature = "runtime-smol") { "\"smol\"" } else { "\"std\"" }),
        "smol: a task per connection; std: a thread per connection"),

    key(("listen", "peers"), Kind::Listen, Is("[\"0.0.0.0:7400\"]"),
        "where peers connect (mutual TLS); [] only dials"),
    key(("listen", "pickup"), Kind::Pickup, Absent,
        "where clients and nodes connect (HTTP and WebSocket); left out or \"off\": nowhere"),
    key(("listen", "pickup_tls"), Kind::Word(&["auto", "on", "off"]), Is("\"auto\""),
        "auto: off on loopback only"),
    key(("listen", "pickup_names"), Kind::Texts, Is("[]"),
        "host names that pickup answers to; [] takes the bound addresses and the certificate's names"),
    key(("listen", "admin"), Kind::Socket, Absent,
        "socket of the command line; default: admin.sock in the data directory"),
    key(("listen", "web"), Kind::Web, Is("\"127.0.0.1:7411\""),
        "the page, health and metrics, on this machine only; \"off\" for none"),

    key(("tls", "ca"), Kind::Credential, Required,
        "certificates of the authorities that may sign sites (PEM)"),
    key(("tls", "cert"), Kind::Credential, Required,
        "certificate of this site and its chain (PEM)"),
    key(("tls", "key"), Kind::Credential, Required,
        "its private key (PEM, not readable by others), or credential:NAME"),

    key(("storage", "max_bytes"), size(1), Is("\"100GiB\""),
        "most bytes of content; when reached, new segments are refused"),
    key(("storage", "max_segments"), Kind::CountOrNone, Is("\"none\""),
        "most segments"),
    key(("storage", "max_segment"), SIZE_OR_NONE, Is("\"none\""),
        "largest segment"),
    key(("storage", "min_free"), size(1), Is("\"1GiB\""),
        "new segments are refused before the disk has less room than this"),
    key(("storage", "ledger_max"), size(1 << 20), Is("\"64GiB\""),
        "largest ledger"),
    key(("storage", "inline_max"), Kind::Size { min: 0, max: 64 << 10, none: false },
        Is("\"64KiB\""),
        "content up to this size is kept in the ledger, larger content in files"),
    key(("storage", "keep"), time(S, LONG), Is("\"24h\""),
        "how long a copy in transit is kept after its last delivery"),
    key(("storage", "scrub_rate"), size(1), Is("\"20MiB\""),
        "how fast stored content is read again and compared, per second"),

    key(("relay", "success_condition"), Kind::Word(&["one_peer", "all_peers"]),
        Is("\"all_peers\""),
        "when a segment for every peer counts as relayed; named destinations are all required"),
    key(("relay", "evict_on_relay"), Kind::Switch, Is("false"),
        "whether a segment is removed here once it is relayed"),
    key(("relay", "keep_relayed"), time(0, LONG), Is("\"0s\""),
        "how long after that"),
    key(("relay", "remember_for"), time(S, LONG), Is("\"7d\""),
        "how long removed segments are remembered"),
    key(("relay", "remember_max"), count(1, 1 << 32), Is("1000000"),
        "most removed segments that are remembered"),
    key(("relay", "max_retries"), count(1, u32::MAX as u64), Is("8"),
        "failures of a segment's own at one peer before it becomes a dead letter there"),
    key(("relay", "strict_attempts"), Kind::Switch, Is("false"),
        "whether lost connections and busy peers count as such failures too"),
    key(("relay", "backoff_initial"), time(1, LONG), Is("\"1s\""),
        "first pause after a failure; it doubles up to backoff_max"),
    key(("relay", "backoff_max"), time(1, LONG), Is("\"15m\""),
        "longest pause"),
    key(("relay", "ack_timeout"), time(S, D), Is("\"60s\""),
        "how long a peer may take to acknowledge after the last byte"),
    key(("relay", "expire_after"), Kind::Time { min: S, max: LONG, none: true }, Is("\"none\""),
        "segments without an expiry of their own expire after this"),
    key(("relay", "keep_deadletter"), time(S, LONG), Is("\"30d\""),
        "how long dead letters are kept"),
    key(("relay", "keep_receipts"), time(S, LONG), Is("\"30d\""),
        "how long receipts are kept"),
    key(("relay", "session_max_age"), time(60 * S, LONG), Is("\"1h\""),
        "a session is renewed at this age"),

    key(("relay.known_peers", "name"), Kind::Site, Required,
        "its name, as in its certificate"),
    key(("relay.known_peers", "address"), Kind::Address, Required,
        "where it is dialled"),
    key(("relay.known_peers", "fingerprint"), Kind::Pin, Absent,
        "its certificate must have this SHA-256 fingerprint, or one of these: the present one and the next"),
    key(("relay.known_peers", "inbound_quota"), SIZE_OR_NONE, Is("\"none\""),
        "most bytes taken from it"),
    key(("relay.known_peers", "rate_limit"), SIZE_OR_NONE, Is("\"none\""),
        "most bytes sent to it per second"),
    key(("relay.known_peers", "window"), Kind::Windows, Is("[]"),
        "when it is sent to, in UTC, such as [\"Mon-Fri 22:00-06:00\", \"Sat +02:00\"]; [] is always"),

    key(("route", "to"), Kind::Site, Required,
        "name of a site that is not a known peer"),
    key(("route", "via"), Kind::Site, Required,
        "the known peer that hands on to it"),

    key(("inbox", "from"), Kind::Text, Absent,
        "pattern of the site where it began: * ? [a-z]; every site if left out"),
    key(("inbox", "label"), Kind::Text, Absent,
        "a label it has, KEY or KEY=VALUE"),
    key(("inbox", "name"), Kind::Text, Absent,
        "pattern of its name, such as \"*.csv\""),
    key(("inbox", "dir"), Kind::Path, Required,
        "directory its files appear in; its own .consign is kept for what is not whole yet"),
    key(("inbox", "command"), Kind::Texts, Is("[]"),
        "program and arguments to be run on each file, which is $CONSIGN_FILE"),
    key(("inbox", "timeout"), time(S, D), Is("\"60s\""),
        "how long the command may take"),

    key(("watch", "dir"), Kind::Path, Required,
        "directory whose files are sent, those in its subdirectories too"),
    key(("watch", "to"), Kind::Texts, Is("[]"),
        "where to; every known peer if left out"),
    key(("watch", "quiet"), time(1, D), Is("\"2s\""),
        "how long a file must not have changed"),
    key(("watch", "remove"), Kind::Switch, Is("false"),
        "whether a file is removed once it is safe here"),

    key(("limits", "buffered_bytes"), size(CREDIT_START), Is("\"32MiB\""),
        "most bytes of arriving content in memory, all sessions together"),
    key(("limits", "session_bytes"), size(CREDIT_START), Is("\"4MiB\""),
        "the same for one session"),
    key(("limits", "connections"), count(8, 1 << 20), Is("10000"),
        "most connections of all kinds"),
    key(("limits", "peer_sessions"), count(1, 1 << 20), Is("256"),
        "most sessions with peers"),
    key(("limits", "header_timeout"), time(S, 3600 * S), Is("\"10s\""),
        "how long a client may take to send the head of a request"),
    key(("limits", "min_body_rate"), size(1), Is("\"8KiB\""),
        "slowest body of a request, per second"),
    key(("limits", "drain_timeout"), time(S, 3600 * S), Is("\"30s\""),
        "how long a stop waits for what is in flight"),
    key(("limits", "partial_ttl"), time(60 * S, LONG), Is("\"7d\""),
        "how long half-received content is kept"),
    key(("limits", "audit_max"), count(1, 1 << 32), Is("1000000"),
        "most audit records"),
    key(("limits", "nonces_per_key"), count(1, 1 << 32), Is("10000"),
        "most nonces remembered per key"),
    key(("limits", "ballast"), Kind::Size { min: BALLAST_MIN, max: 1 << 40, none: false },
        Is("\"64MiB\""),
        "size of the file that is given up so that a full disk can still be cleaned up"),

    key(("buffer", "max_bytes"), size(1), Is("\"10GiB\""),
        "most bytes of shards"),
    key(("buffer", "max_upload"), SIZE_OR_NONE, Is("\"none\""),
        "largest shard"),
    key(("buffer", "ttl"), time(S, LONG), Is("\"72h\""),
        "how long a shard waits for its node"),
    key(("buffer", "upload_grace"), time(S, LONG), Is("\"1h\""),
        "how long an upload may stand still"),
    key(("buffer", "transit_grace"), time(S, LONG), Is("\"30m\""),
        "how long a pickup may stand still"),
    key(("buffer", "slot_ttl"), time(S, LONG), Is("\"1h\""),
        "how long a reserved slot is kept"),
    key(("buffer", "token_ttl"), time(S, D), Is("\"5m\""),
        "how long a fetch token is good"),
    key(("buffer", "notify_window"), count(1, 1 << 16), Is("32"),
        "most unanswered notifications per node"),
    key(("buffer", "max_pickups"), count(1, 1 << 16), Is("20"),
        "failed pickups before a shard is given up"),
    key(("buffer", "keep_history"), time(S, LONG), Is("\"30d\""),
        "how long finished shards are shown"),

    key(("log", "level"), Kind::Word(&["error", "warn", "info", "debug", "trace"]),
        Is("\"info\""),
        "how much is written"),
    key(("log", "format"), Kind::Word(&["auto", "text", "json"]), Is("\"auto\""),
        "auto: text on a terminal, JSON lines otherwise"),
];

/// The section of that dotted name.
#[must_use]
pub fn find_section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|s| s.name == name)
}

/// The key of that section and name.
#[must_use]
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.section == section && k.name == name)
}

/// The keys of a section.
pub fn of_section(section: &str) -> impl Iterator<Item = &'static Key> + '_ {
    KEYS.iter().filter(move |k| k.section == section)
}

impl Section {
    /// Its header in the file.
    #[must_use]
    pub fn header(&self) -> String {
        if self.many { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }
}

impl Key {
    /// When another value of it holds.
    #[must_use]
    pub fn change(&self) -> Change {
        let restarts = RESTART.contains(&self.section) || RESTART.contains(&&*self.path());
        if restarts { Change::Restart } else { Change::Reload }
    }

    /// Its dotted path.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}
