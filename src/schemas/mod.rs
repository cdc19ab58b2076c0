//! JSON Schemas of what the local interface answers and `--json` prints: made from the shapes themselves,
//! kept in docs/schemas, where a test compares them. Within a number members are only ever added, so
//! readers ignore those they do not know.

mod commands;
mod plain;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use crate::admin::{acts, assurance, exports, lists, log_level, pickup, reloads, shape, shapes};
use crate::cmd;
use crate::codes;
use crate::events;

/// A schema that others may rely on.
pub struct Published {
    /// What objects say under `schema`.
    pub id: &'static str,
    /// Commands that say it with `--json`.
    pub commands: &'static [&'static str],
    make: fn(SchemaGenerator) -> Schema,
}

macro_rules! published {
    ($($id:literal, [$($command:literal),*], $shape:ty;)*) => {
        /// All of them, by the order of their subjects.
        pub const ALL: &[Published] = &[$(Published {
            id: $id,
            commands: &[$($command),*],
            make: schema_of::<$shape>,
        },)*];
    };
}

fn schema_of<T: JsonSchema>(generator: SchemaGenerator) -> Schema {
    generator.into_root_schema_for::<T>()
}

published! {
    "consign.accepted/1", ["send"], shapes::Accepted;
    "consign.segment/1", ["ls", "show"], shapes::Segment;
    "consign.segments/1", [], shapes::Segments;
    "consign.status/1", ["status", "top"], shapes::Status;
    "consign.peers/1", ["peers ls"], shapes::Peers;
    "consign.code/1", ["explain"], codes::Entry;
    "consign.explanation/1", ["explain"], cmd::explain::Explanation;
    "consign.assurance/1", ["assurance"], assurance::Assurance;
    "consign.assurances/1", [], assurance::Assurances;
    "consign.assurance_total/1", ["assurance"], cmd::assurance::Total;
    "consign.shape/1", ["shape"], shape::Shape;
    "consign.quota/1", ["quota"], cmd::quota::Quotas;
    "consign.storage/1", ["storage"], cmd::storage::Stored;
    "consign.event/1", ["events"], events::Event;
    "consign.events/1", [], events::EventPage;
    "consign.deadletter/1", ["deadletter ls"], lists::Deadletter;
    "consign.deadletters/1", [], lists::Deadletters;
    "consign.deadletter_group/1", ["deadletter ls"], lists::Group;
    "consign.deadletter_groups/1", [], lists::DeadletterGroups;
    "consign.act/1", ["deadletter retry", "deadletter purge", "hold", "unhold", "release", "peers hold",
        "peers release", "peers flush", "peers forget", "peers rekey"], acts::Acted;
    "consign.audit_record/1", ["audit"], lists::Record;
    "consign.audit/1", [], lists::Audit;
    "consign.export/1", ["inbox ls"], exports::Export;
    "consign.exports/1", [], exports::Exports;
    "consign.done/1", ["inbox retry", "inbox run"], exports::Done;
    "consign.watch/1", ["watch ls"], plain::Watch;
    "consign.watched/1", [], exports::WatchedFiles;
    "consign.clock/1", ["clock confirm"], shapes::Clock;
    "consign.certificates/1", ["cert show"], cmd::cert::Certificates;
    "consign.cert_done/1", ["cert renew", "cert request", "cert sign", "cert install"], cmd::cert::CertDone;
    "consign.reload/1", ["reload"], reloads::Reloaded;
    "consign.log_level/1", ["log-level"], log_level::LogShown;
    "consign.pending_peers/1", ["peers ls"], shapes::PendingPeers;
    "consign.ping/1", ["peers ping"], shapes::Ping;
    "consign.known_peer/1", ["peers export"], cmd::peers::export::KnownPeer;
    "consign.peers_imported/1", ["peers import"], cmd::peers::import::Imported;
    "consign.page/1", ["page"], shapes::PageLink;
    "consign.page_session/1", [], shapes::PageEntered;
    "consign.stopping/1", ["stop"], shapes::Stopping;
    "consign.node/1", ["pickup nodes ls"], pickup::lists::Node;
    "consign.client/1", ["pickup clients ls"], pickup::lists::Client;
    "consign.nodes/1", [], pickup::lists::Nodes;
    "consign.clients/1", [], pickup::lists::Clients;
    "consign.shards/1", [], pickup::lists::Shards;
    "consign.shard_row/1", ["pickup shards ls"], cmd::pickup::shards::ShardRow;
    "consign.shard/1", ["pickup shards show"], pickup::lists::ShardShown;
    "consign.pickup_act/1", ["pickup nodes", "pickup clients", "pickup shards"], pickup::acts::PickupActed;
    "consign.check/1", ["check"], cmd::check::Checked;
    "consign.doctor/1", ["doctor"], cmd::doctor::Findings;
    "consign.written/1", ["man", "schema"], cmd::pages::Written;
    "consign.schema_entry/1", ["schema"], commands::SchemaEntry;
    "consign.init/1", ["init"], commands::Init;
    "consign.config/1", ["config show"], commands::Config;
    "consign.config-check/1", ["config check"], commands::ConfigChecked;
    "consign.config-key/1", ["config explain"], commands::ConfigKey;
    "consign.config-fmt/1", ["config fmt"], commands::ConfigLaid;
    "consign.outcome/1", ["send"], commands::Outcome;
    "consign.fetched/1", ["get"], commands::Fetched;
    "consign.client_token/1", ["pickup clients enrol"], commands::ClientToken;
    "consign.uploaded/1", ["pickup upload"], commands::Uploaded;
    "consign.node_made/1", ["node init"], commands::NodeMade;
    "consign.stored/1", ["node run"], commands::Stored;
    "consign.given/1", ["node run"], commands::Given;
    "consign.finding/1", ["fsck"], commands::Finding;
    "consign.fsck/1", ["fsck"], commands::Fsck;
    "consign.demo/1", ["demo"], commands::Demo;
    "consign.bench/1", ["bench"], commands::Bench;
    "consign.bench_latency/1", ["bench"], commands::BenchLatency;
    "consign.replay/1", ["replay"], commands::Replay;
    "consign.sim/1", ["sim"], commands::Sim;
    "consign.error/1", ["every command, on standard error"], plain::Failed;
    "consign.progress/1", ["send", "get", "on standard error"], plain::Progress;
}

impl Published {
    /// The schema (draft 2020-12).
    #[must_use]
    pub fn schema(&self) -> Value {
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let mut schema = (self.make)(settings.into_generator()).to_value();
        if let Some(name) = schema.pointer_mut("/properties/schema") {
            *name = json!({ "const": self.id });
        }
        schema["title"] = self.id.into();
        schema
    }

    /// The same as text, as it is in its file.
    #[must_use]
    pub fn text(&self) -> String {
        // What was made from a value is always JSON.
        serde_json::to_string_pretty(&self.schema()).unwrap_or_default() + "\n"
    }

    /// The name of its file.
    #[must_use]
    pub fn file(&self) -> String {
        self.id.replace('/', "-") + ".json"
    }
}

/// The schemas of a command, or the one of that name.
pub fn of(what: &str) -> impl Iterator<Item = &'static Published> {
    let what = what.to_string();
    ALL.iter().filter(move |published| {
        let begins = |command: &&str| {
            let rest = command.strip_prefix(what.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        published.id == what || published.commands.iter().any(begins)
    })
}

#[cfg(test)]
pub(crate) mod tests;
