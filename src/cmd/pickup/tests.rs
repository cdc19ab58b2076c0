//! Verbs of operators against a scripted daemon.

use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::{Said, said};
use crate::human;

const KEY: &str = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

#[derive(Parser, Debug)]
struct Line {
    #[command(subcommand)]
    command: PickupCommand,
}

fn parse(line: &str) -> Result<PickupCommand, clap::error::ErrorKind> {
    let words = std::iter::once("pickup").chain(line.split(' '));
    Line::try_parse_from(words).map(|line| line.command).map_err(|e| e.kind())
}

/// Runs a command line against a daemon, at one minute past 1970.
fn runs(line: &str, daemon: &Daemon, json: bool) -> (Result<Exit, Failure>, Said) {
    let command = parse(line).expect("a good command line");
    said(json, |screen| {
        let mut api = Api::new(&daemon.socket());
        let now = human::moment("1970-01-01T00:01:00Z").unwrap();
        match command {
            PickupCommand::Upload(_) => panic!("no verb of operators"),
            PickupCommand::Nodes(command) => nodes::run(&command, &mut api, screen, now),
            PickupCommand::Clients(command) => clients::run(&command, &mut api, screen, now),
            PickupCommand::Shards(command) => shards::run(&command, &mut api, screen, now),
        }
    })
}

/// A daemon that does every act and says so in these words.
fn doing(changed: bool, text: &'static str, wanted: Value) -> Daemon {
    Daemon::answering(move |request, body| {
        assert_eq!((request.method.name(), request.target.as_str()), ("POST", "/v1/pickup/acts"));
        let asked: Value = serde_json::from_slice(body).unwrap();
        for (member, value) in wanted.as_object().unwrap() {
            assert_eq!(asked.get(member), Some(value));
        }
        Say::json(
            200,
            json!({"schema": "consign.pickup_act/1", "action": asked["action"],
                   "subject": asked["subject"], "changed": changed, "text": text}),
        )
    })
}

#[test]
fn command_lines() {
    let fine = [
        "nodes ls".to_owned(),
        format!("nodes enrol n1 --key {KEY} --why x"),
        "nodes revoke n1".into(),
        format!("nodes revoke n1 --key {KEY}"),
        "clients enrol backup".into(),
        "clients ls".into(),
        "clients revoke backup".into(),
        "shards ls --state relay-buffered --node n1 --limit 3 --after f/1/2@n1".into(),
        "shards show f/1/2@n1".into(),
        "shards retry f/x@y/1/2@n1".into(),
        "shards abandon f/1/2@n1 --why gone".into(),
    ];
    for line in &fine {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
    }
    let bad = [
        "nodes",
        "nodes enrol n1",
        "nodes enrol n1 --key AAAA",
        "nodes enrol n/1 --key A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
        "clients enrol",
        "shards ls --state lost",
        "shards ls --limit 0",
        "shards ls --all --limit 3",
        "shards show f/1/2",
        "shards retry",
    ];
    for line in bad {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn the_sites_own_words_come_first() {
    let wanted = json!({"action": "enrol_node", "subject": "n1", "key": KEY, "why": "new"});
    let line = format!("nodes enrol n1 --key {KEY} --why new");
    let daemon = doing(true, "n1 has 2 keys now", wanted.clone());
    let (exit, said) = runs(&line, &daemon, false);
    assert_eq!(
        (exit, said.lines.as_slice()),
        (Ok(Exit::Done), &["n1 has 2 keys now".to_owned()][..])
    );
    let (_, said) = runs(&line, &doing(true, "", wanted.clone()), false);
    assert_eq!(said.lines, ["n1 is enrolled"]);
    let (_, said) = runs(&line, &doing(false, "", wanted), true);
    let object: Value = serde_json::from_str(&said.lines[0]).unwrap();
    assert_eq!(
        (&object["changed"], &object["schema"]),
        (&json!(false), &json!("consign.pickup_act/1"))
    );
    let wanted = json!({"action": "abandon_shard", "subject": "f/1/2@n1"});
    let (_, said) = runs("shards abandon f/1/2@n1", &doing(true, "", wanted), false);
    assert_eq!(said.lines, ["f/1/2@n1 is given up"]);
}

#[test]
fn a_clients_token_is_printed_and_only_its_hash_is_told() {
    use std::sync::{Arc, Mutex};
    let told = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&told);
    let daemon = Daemon::answering(move |_, body| {
        let asked: Value = serde_json::from_slice(body).unwrap();
        *seen.lock().unwrap() = asked["token_sha256"].as_str().unwrap().into();
        let acted = json!({"schema": "consign.pickup_act/1", "action": "enrol_client",
                           "subject": "backup", "changed": true, "text": "backup is enrolled"});
        Say::json(200, acted)
    });
    for json in [false, true] {
        let (exit, said) = runs("clients enrol backup", &daemon, json);
        assert_eq!((exit, said.lines.len()), (Ok(Exit::Done), 1));
        let token = match json {
            false => said.lines[0].clone(),
            true => serde_json::from_str::<Value>(&said.lines[0]).unwrap()["token"]
                .as_str()
                .unwrap()
                .into(),
        };
        let bytes = consign_core::id::unhex::<32>(&token).unwrap();
        let hash = consign_core::id::hex(&crate::tls::sha256(&bytes));
        assert_eq!((token.len(), told.lock().unwrap().as_str()), (64, hash.as_str()));
    }
    let refuses = Daemon::answering(|_, _| Say::refuse(507, "disk_full", "no space left"));
    let (exit, said) = runs("clients enrol backup", &refuses, false);
    let failure = exit.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::TryLater, "CN0610"));
    assert!(said.lines.is_empty(), "no token without its row");
}

fn shard(index: u64, state: &str) -> Value {
    json!({
        "file_id": "f", "version_number": 1, "shard_index": index, "node_id": "n1", "generation": 0,
        "state": state, "buffer_id": "b9", "size": 2048, "redemption": 4, "failed_acks": 3,
        "expires_at": "1970-01-04T00:01:00.000Z",
    })
}

#[test]
fn shards_are_listed_page_by_page() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/pickup/shards?limit=100" => Say::json(
            200,
            json!({"schema": "consign.shards/1", "shards": [shard(0, "RELAY_BUFFERED")],
                   "next": "f/1/0@n1"}),
        ),
        "/v1/pickup/shards?limit=99&after=f%2F1%2F0%40n1" => Say::json(
            200,
            json!({"schema": "consign.shards/1", "shards": [shard(1, "NODE_STORED")], "next": null}),
        ),
        "/v1/pickup/shards?limit=1" => Say::json(
            200,
            json!({"schema": "consign.shards/1", "shards": [shard(0, "RELAY_BUFFERED")],
                   "next": "f/1/0@n1"}),
        ),
        other => Say::refuse(400, "invalid", other),
    });
    let (exit, said) = runs("shards ls", &daemon, false);
    assert_eq!(exit, Ok(Exit::Done));
    let expected = "\
FILE  VERSION  SHARD  NODE  STATE              SIZE  FAILED  LEASE ENDS
f           1      0  n1    RELAY_BUFFERED  2.0 KiB       3  in 3 d
f           1      1  n1    NODE_STORED     2.0 KiB       3  in 3 d";
    assert_eq!(said.lines, [expected]);
    let (_, said) = runs("shards ls", &daemon, true);
    let objects: Vec<Value> =
        said.lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = |mut shard: Value| {
        shard["schema"] = "consign.shard_row/1".into();
        shard
    };
    assert_eq!(objects, [shard(0, "RELAY_BUFFERED"), shard(1, "NODE_STORED")].map(row));
    let (_, said) = runs("shards ls --limit 1", &daemon, false);
    assert_eq!(said.notes, ["more follow with --after 'f/1/0@n1', or --all"]);
}

#[test]
fn none_that_matches_is_not_none_at_all() {
    let daemon = Daemon::answering(|request, _| {
        let of = request.target["/v1/pickup/".len()..].split('?').next().unwrap();
        Say::json(200, json!({"schema": format!("consign.{of}/1"), of: [], "next": null}))
    });
    for (line, exit, note) in [
        ("shards ls", Exit::Done, "no shards"),
        ("shards ls --node n9", Exit::NoMatch, "no shard matches"),
        ("nodes ls", Exit::Done, "no nodes are enrolled"),
        ("clients ls", Exit::Done, "no clients are enrolled"),
    ] {
        let (ended, said) = runs(line, &daemon, false);
        assert_eq!((ended, said.notes), (Ok(exit), vec![note.to_owned()]), "{line}");
    }
    let unknown = Daemon::answering(|_, _| Say::refuse(404, "unknown", "there is no such shard"));
    let (exit, _) = runs("shards show f/1/2@n1", &unknown, false);
    let failure = exit.unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::NoMatch, "CN0612"));
}

#[test]
fn a_shard_is_shown_and_its_reason_moves_no_cursor() {
    let mut shown = shard(2, "RELAY_BUFFERED");
    let more = json!({
        "schema": "consign.shard/1", "client": "backup", "digest": {"sha-256": "01", "blake3": null},
        "since": "1970-01-01T00:00:50.000Z", "buffered_at": "1970-01-01T00:00:50.000Z",
        "progress_at": null, "entries": 4, "notify_after": null, "deadline": null,
        "reason": "\u{1b}[2Jdisk full",
    });
    shown.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = shown.clone();
    let daemon = Daemon::answering(move |request, _| {
        assert_eq!(request.target, "/v1/pickup/shard?key=f%2F1%2F2%40n1");
        Say::json(200, answer.clone())
    });
    let (_, said) = runs("shards show f/1/2@n1", &daemon, false);
    assert!(said.lines.contains(&"state         RELAY_BUFFERED for 10 s".into()), "{said:?}");
    assert!(said.lines.contains(&"pickups       3 failed, last redemption 4".into()), "{said:?}");
    assert!(said.lines.contains(&"failed for    \u{fffd}[2Jdisk full".into()), "{said:?}");
    let (_, said) = runs("shards show f/1/2@n1", &daemon, true);
    assert_eq!(serde_json::from_str::<Value>(&said.lines[0]).unwrap(), shown);
}

#[test]
fn nodes_and_clients_are_listed() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/pickup/nodes?limit=500" => Say::json(
            200,
            json!({"schema": "consign.nodes/1", "next": null, "nodes": [
                {"schema": "consign.node/1", "id": "n1", "enrolled_at": "1970-01-01T00:00:30.000Z",
                 "revoked_at": null, "registered_at": "1970-01-01T00:00:55.000Z", "keys": [
                    {"key": "K1", "enrolled_at": "1970-01-01T00:00:30.000Z"},
                    {"key": "K2", "enrolled_at": "1970-01-01T00:00:40.000Z"}]}]}),
        ),
        _ => Say::json(
            200,
            json!({"schema": "consign.clients/1", "next": null, "clients": [
                {"schema": "consign.client/1", "name": "backup",
                 "enrolled_at": "1970-01-01T00:00:30.000Z", "revoked_at": null}]}),
        ),
    });
    let (_, said) = runs("nodes ls", &daemon, false);
    let expected = "\
NODE  STATE     KEY  ENROLLED  LAST REGISTERED
n1    enrolled  K1   30 s ago  5.0 s ago
n1    enrolled  K2   20 s ago  5.0 s ago";
    assert_eq!(said.lines, [expected]);
    let (_, said) = runs("clients ls", &daemon, false);
    assert_eq!(said.lines, ["CLIENT  STATE     ENROLLED\nbackup  enrolled  30 s ago"]);
}
