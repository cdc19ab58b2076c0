//! What commands print with `--json` and put together themselves, as their readers see it.

use std::collections::BTreeMap;

use schemars::JsonSchema;

use crate::admin::shapes::Delivery;

macro_rules! shapes {
    ($($(#[doc = $about:literal])* $name:ident { $($(#[$more:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[doc = $about])*
        #[derive(JsonSchema)]
        #[expect(dead_code, reason = "it only describes")]
        pub(super) struct $name { $($(#[$more])* $field: $kind,)* }
    )*};
}

shapes! {
    /// A configuration that is good.
    ConfigChecked {
        /// `consign.config-check/1`
        schema: String,
        /// The file.
        file: String,
        /// Name of the site.
        node: String,
        /// Known peers.
        peers: u64,
        /// Whether certificates and key were judged, too.
        files_checked: bool,
        /// What is wrong and may be right later.
        warnings: Vec<String>,
    }
    /// A configuration that was put in order, or was in order.
    ConfigLaid {
        /// `consign.config-fmt/1`
        schema: String,
        /// The file.
        file: String,
        /// Whether it was changed.
        changed: bool,
    }
    /// What a site goes by.
    Config {
        /// `consign.config/1`
        schema: String,
        /// The file.
        file: String,
        /// Every key, those of sections that stand there more than once with their number.
        keys: Vec<ConfigValue>,
    }
    /// A key and what stands for it.
    ConfigValue {
        /// Dotted path.
        key: String,
        /// Its value; null when nothing stands for it.
        value: Option<String>,
        /// `file`, `env`, `flag` or `default`.
        origin: String,
        /// Line of the file, from 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<u64>,
        /// The variable or flag.
        #[serde(skip_serializing_if = "Option::is_none")]
        given: Option<String>,
    }
    /// What a key of the configuration means.
    ConfigKey {
        /// `consign.config-key/1`
        schema: String,
        /// Dotted path.
        key: String,
        /// What it means.
        meaning: String,
        /// What it takes.
        takes: String,
        /// Its bounds, if it has any.
        bounds: Option<String>,
        /// Whether it must be there.
        required: bool,
        /// What stands for it when it is left out; null when nothing does.
        default: Option<String>,
        /// The variable that wins over the file; null when there is none.
        variable: Option<String>,
        /// `reload` or `restart`.
        change: String,
    }
    /// A published schema.
    SchemaEntry {
        /// `consign.schema_entry/1`
        schema: String,
        /// What objects say under `schema`.
        id: String,
        /// Commands that print it.
        commands: Vec<String>,
    }
    /// A site that was made.
    Init {
        /// `consign.init/1`
        schema: String,
        /// Its name.
        name: String,
        /// Its directory.
        dir: String,
        /// Its configuration; null with `--no-config`.
        config: Option<String>,
        /// Whether an authority was made for it.
        authority_made: bool,
        /// When its certificate ends; null when that is yet to come.
        certificate_expires_at: Option<String>,
        /// The card by which others join it.
        card: Option<String>,
        /// The request for its certificate, where another's authority is to sign.
        request: Option<String>,
        /// Peers it knows.
        peers: Vec<Named>,
        /// Whether the other site learnt of it.
        introduced: bool,
        /// The section that makes it known to others.
        known_peer_lines: String,
        /// With `--demo`: the name that was saved for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        context: Option<String>,
    }
    /// A peer.
    Named {
        /// Its name.
        name: String,
        /// Where it is dialled.
        address: String,
    }
    /// Content that was fetched.
    Fetched {
        /// `consign.fetched/1`
        schema: String,
        /// The segment, 64 hex digits.
        id: String,
        /// Its name.
        name: String,
        /// The file.
        file: String,
        /// Its length in bytes.
        size: u64,
        /// BLAKE3 of it.
        digest: String,
        /// With `--release`: whether this site may remove it now.
        #[serde(skip_serializing_if = "Option::is_none")]
        released: Option<bool>,
    }
    /// A segment at the end of a wait.
    Outcome {
        /// `consign.outcome/1`
        schema: String,
        /// The segment, 64 hex digits.
        id: String,
        /// Its name.
        name: String,
        /// `delivered`, `dead` or `queued`.
        state: String,
        /// Its deliveries.
        deliveries: Vec<Delivery>,
    }
    /// A client that may upload shards.
    ClientToken {
        /// `consign.client_token/1`
        schema: String,
        /// Its name.
        name: String,
        /// Its bearer token, which is not shown again.
        token: String,
    }
    /// A shard that was uploaded.
    Uploaded {
        /// `consign.uploaded/1`
        schema: String,
        /// The file it is a part of.
        file_id: String,
        /// Version of that file.
        version_number: u64,
        /// Which part it is.
        shard_index: u64,
        /// The node it is for.
        node_id: String,
        /// Whether the relay had it before.
        known: bool,
        /// Connections beyond the first.
        again: u32,
        /// Set exactly while the relay has the content.
        buffer_id: Option<String>,
        /// Its state at the relay.
        state: String,
        /// Its length in bytes.
        size: u64,
        /// Its digests.
        digest: BTreeMap<String, String>,
        /// When the relay gives it up; null once it is stored.
        expires_at: Option<String>,
    }
    /// A node that was made.
    NodeMade {
        /// `consign.node_made/1`
        schema: String,
        /// Its id.
        id: String,
        /// Its public key, base64.
        key: String,
        /// Its directory.
        dir: String,
        /// The command by which the relay's operator enrols it.
        enrol: String,
    }
    /// A shard that a node keeps.
    Stored {
        /// `consign.stored/1`
        schema: String,
        /// The file it is a part of.
        file_id: String,
        /// Version of that file.
        version_number: u64,
        /// Which part it is.
        shard_index: u64,
        /// Its length in bytes.
        size: u64,
        /// SHA-256 of it.
        #[serde(rename = "sha-256")]
        sha256: String,
        /// Below the node's directory.
        path: String,
        /// Whether it was here before.
        known: bool,
    }
    /// Something that is wrong with a ledger.
    Finding {
        /// `consign.finding/1`
        schema: String,
        /// Stable code.
        code: String,
        /// The rule that does not hold.
        rule: String,
        /// The table.
        table: String,
        /// Key of the row, hex digits.
        key: String,
        /// A sentence.
        text: String,
        /// Whether `--repair` mends it.
        mendable: bool,
    }
    /// How a check of a data directory ended.
    Fsck {
        /// `consign.fsck/1`
        schema: String,
        /// Whether nothing is wrong (any more).
        clean: bool,
        /// Segments that are there.
        segments: u64,
        /// Deliveries that are there.
        deliveries: u64,
        /// Bytes charged.
        used_bytes: u64,
        /// Segments that are there though their content is damaged or gone.
        content_lost: u64,
        /// Pieces of content that were looked at.
        content: u64,
        /// Bytes of them that were read.
        content_bytes_read: u64,
        /// How often each code was found.
        found: BTreeMap<String, u64>,
        /// How much was mended.
        mended: u64,
        /// Files that were set aside.
        files_set_aside: u64,
        /// Rows in quarantine.
        rows_in_quarantine: u64,
        /// Names of what was in quarantine before.
        files_in_quarantine: Vec<String>,
        /// Whether counters have jumped.
        restored: bool,
        /// Bytes of the ledger before it was made smaller.
        ledger_bytes_before: Option<u64>,
        /// Bytes of it afterwards.
        ledger_bytes_after: Option<u64>,
    }    /// A shard that a rule of a node gave out.
    Given {
        /// `consign.given/1`
        schema: String,
        /// The file it is a part of.
        file_id: String,
        /// Version of that file.
        version_number: u64,
        /// Which part it is.
        shard_index: u64,
        /// The file that was made.
        path: String,
    }
    /// What became of a demonstration.
    Demo {
        /// `consign.demo/1`
        schema: String,
        /// Where the two sites are.
        dir: String,
        /// Whether everything arrived as it was.
        good: bool,
        /// Both ways between the sites.
        directions: Vec<Direction>,
        /// The shard that a node picked up.
        shard: DemoShard,
    }
    /// One way between two sites.
    Direction {
        /// The site that sent.
        from: String,
        /// The other one.
        to: String,
        /// Their runtimes.
        runtimes: String,
        /// Segments.
        segments: u64,
        /// Their bytes.
        bytes: u64,
        /// How long it took.
        seconds: f64,
        /// How fast that was.
        bytes_per_second: u64,
        /// How many of them have arrived with the digest they had.
        equal: u64,
    }
    /// A shard of a demonstration.
    DemoShard {
        /// The node.
        node: String,
        /// Length.
        bytes: u64,
        /// The states it went through.
        states: Vec<String>,
        /// How long it took.
        seconds: f64,
        /// Whether the digests are equal.
        equal: bool,
    }
    /// A relay that was measured.
    Bench {
        /// `consign.bench/1`
        schema: String,
        /// Whether each site had a process of its own.
        processes: bool,
        /// What the machine does without any relay.
        raw: Raw,
        /// One for each runtime and size.
        rows: Vec<BenchRow>,
    }
    /// What the machine does without any relay.
    Raw {
        /// TLS over loopback.
        tls_bytes_per_second: f64,
        /// Writing and syncing, by size.
        synced: Vec<Synced>,
        /// The same while as much is read, past the page cache: 64 MiB and larger.
        copied: Vec<Synced>,
    }
    /// Writing and syncing.
    Synced {
        /// Bytes of one file.
        size: u64,
        /// How fast.
        bytes_per_second: f64,
    }
    /// Segments of one size on one runtime.
    BenchRow {
        /// `smol` or `std`.
        runtime: String,
        /// Bytes of one segment.
        size: u64,
        /// Segments.
        count: u64,
        /// How long it took.
        seconds: f64,
        /// How fast that was.
        segments_per_second: f64,
        /// The same in bytes.
        bytes_per_second: f64,
        /// As a part of TLS alone.
        ratio_to_tls: f64,
        /// As a part of writing and syncing alone.
        ratio_to_synced: f64,
        /// As a part of writing while as much is read; large segments only.
        ratio_to_copied: Option<f64>,
        /// Rows of a commit.
        rows_per_commit: PerCommit,
        /// How long handing in took.
        queue_seconds: f64,
        /// Processor time of both sites.
        processor_seconds: f64,
        /// Most anonymous memory of each process, in bytes.
        peak_rss_anon: Vec<u64>,
    }
    /// Rows of a commit, on average.
    PerCommit {
        /// At the site that sends.
        sender: f64,
        /// At the other one.
        receiver: f64,
    }
    /// One segment at a time on an idle pair.
    BenchLatency {
        /// `consign.bench_latency/1`
        schema: String,
        /// `smol` or `std`.
        runtime: String,
        /// Segments.
        count: u64,
        /// Until a segment was accepted.
        accepted_seconds: Parts,
        /// Until it was acked.
        acked_seconds: Parts,
        /// A sync of the bare machine.
        raw_sync_seconds: Parts,
        /// A round trip of it.
        raw_trip_seconds: Parts,
        /// What no relay could be faster than here.
        bound_seconds: f64,
        /// How many times that the median is.
        ratio_to_bound: f64,
    }
    /// Parts of a distribution.
    Parts {
        /// Half are below it.
        p50: f64,
        /// Nine of ten are below it.
        p90: f64,
        /// 99 of 100 are below it.
        p99: f64,
    }
    /// A recording that was replayed.
    Replay {
        /// `consign.replay/1`
        schema: String,
        /// Whether every effect was the same.
        identical: bool,
        /// Whether the recording has its last line.
        whole: bool,
        /// How it ends: `whole`, or an object `cut` or `left` with the line.
        ending: serde_json::Value,
        /// What made it: `consign_recording`, `version`, `commit`, `source`, `options`.
        recorded: BTreeMap<String, serde_json::Value>,
        /// How much was replayed: `lines`, `nodes`, `lives`, `inputs`, `turns`, `effects`.
        totals: BTreeMap<String, u64>,
        /// The first effect that differs, with its line and the inputs before it.
        difference: Option<BTreeMap<String, serde_json::Value>>,
        /// The line over which the core of this build panics, and its message.
        panicked: Option<BTreeMap<String, serde_json::Value>>,
    }
    /// Networks that lived and failed on virtual time.
    Sim {
        /// `consign.sim/1`
        schema: String,
        /// Version of the program.
        version: String,
        /// The first seed.
        first_seed: u64,
        /// Seeds.
        seeds: u64,
        /// Those of them with 10 minutes, 200 segments and 3 crashes.
        full_seeds: u64,
        /// Whether a promise was broken.
        failed: bool,
        /// Virtual time in seconds.
        simulated: u64,
        /// Real time.
        seconds: f64,
        /// Processor time.
        processor_seconds: f64,
        /// Steps.
        steps: u64,
        /// Crashes.
        crashes: u64,
        /// Segments that were queued.
        queued: u64,
        /// Deliveries.
        delivered: u64,
        /// Dead letters.
        dead: u64,
        /// Refusals.
        refused: u64,
        /// Shards that were kept for nodes.
        shards_kept: u64,
        /// Shards that nodes have stored.
        shards_stored: u64,
        /// How much faster than real time.
        simulated_seconds_per_second: f64,
        /// Deliveries in a minute of real time.
        delivered_per_minute: f64,
        /// Over all traces, hex digits.
        hash: String,
    }
}
