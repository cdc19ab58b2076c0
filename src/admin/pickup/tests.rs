//! Keys as people write them, acts as they are read, lists over a small ledger.

use consign_core::id::{BlobDigest, BlobNo, Sha256Digest};
use consign_core::ledger::Table;
use consign_core::ledger::keys_pickup::{self as keys, ShardKey};
use consign_core::ledger::rows::Body;
use consign_core::ledger::rows_pickup::{ClientRow, NodeKey, NodeRow, ShardRow, ShardState};
use consign_core::mem::MemStore;
use consign_core::pickup::{OperatorAct, PickupRefusal};
use serde_json::json;

use super::acts::{PickupRequest, read, refusal};
use super::lists::{NameListing, ShardListing, clients, nodes, shard, shards};
use super::*;
use crate::admin::testing::filled as store;

const KEY: &str = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

fn key(file: &str, version: u64, index: u64, node: &str) -> ShardKey {
    ShardKey::new(file, version, index, node).unwrap()
}

#[test]
fn a_shard_is_read_as_it_is_written() {
    for shard in [
        key("a", 0, 0, "n"),
        key("a/b@c/7/8@d", 12, 3, "node-1.x_y"),
        key("//@@", (1 << 53) - 1, (1 << 53) - 1, "-"),
        key("1/2", 1, 2, "n"),
    ] {
        assert_eq!(parse_shard(&shard_text(&shard)), Ok(shard));
    }
    let bad = [
        "",
        "a",
        "a/1/2",
        "a/1@n",
        "/1/2@n",
        "a/1/2@",
        "a/01/2@n",
        "a/1/+2@n",
        "a/1/-2@n",
        "a/x/2@n",
        "a b/1/2@n",
        "a/1/2@n n",
        "a/9007199254740992/0@n",
        "é/1/2@n",
    ];
    for text in bad {
        assert!(parse_shard(text).is_err(), "{text:?}");
    }
}

fn reads(body: &serde_json::Value) -> Result<OperatorAct, &'static str> {
    let body = body.to_string();
    read(body.as_bytes(), 1000).map(|(_, operator)| operator.act).map_err(|no| no.code)
}

#[test]
fn acts_are_read_whole_or_not_at_all() {
    let (_, operator) = read(
        json!({"action": "enrol_node", "subject": "n1", "key": KEY, "why": "new site"})
            .to_string()
            .as_bytes(),
        1000,
    )
    .unwrap();
    assert_eq!((operator.who.as_str(), operator.why.as_str()), ("uid:1000", "new site"));
    let OperatorAct::EnrolNode { id, key } = operator.act else { panic!() };
    assert_eq!((id.as_str(), key[..2].to_vec()), ("n1", vec![3, 0xa1]));
    let hash = "ab".repeat(32);
    let fine = [
        json!({"action": "revoke_node", "subject": "n1"}),
        json!({"action": "revoke_node", "subject": "n1", "key": KEY}),
        json!({"action": "enrol_client", "subject": "c", "token_sha256": hash}),
        json!({"action": "revoke_client", "subject": "c"}),
        json!({"action": "retry_shard", "subject": "f/1/2@n1"}),
        json!({"action": "abandon_shard", "subject": "f/1/2@n1"}),
    ];
    for body in &fine {
        assert!(reads(body).is_ok(), "{body}");
    }
    let bad = [
        json!([]),
        json!({"action": "enrol_node", "subject": "n1"}),
        json!({"action": "enrol_node", "subject": "n 1", "key": KEY}),
        json!({"action": "enrol_node", "subject": "", "key": KEY}),
        json!({"action": "enrol_node", "subject": "n1", "key": "AAAA"}),
        json!({"action": "enrol_node", "subject": "n1", "key": &KEY[..43]}),
        json!({"action": "enrol_node", "subject": "n1", "key": KEY, "token_sha256": hash}),
        json!({"action": "enrol_client", "subject": "c"}),
        json!({"action": "enrol_client", "subject": "c", "token_sha256": "ab"}),
        json!({"action": "revoke_client", "subject": "c", "key": KEY}),
        json!({"action": "retry_shard", "subject": "f/1@n1"}),
        json!({"action": "retry_shard", "subject": "f/1/2@n1", "key": KEY}),
        json!({"action": "explode", "subject": "n1"}),
        json!({"action": "revoke_node", "subject": "n1", "extra": 1}),
        json!({"action": "revoke_node", "subject": "n1", "why": "x".repeat(1025)}),
    ];
    for body in &bad {
        assert_eq!(reads(body), Err("invalid"), "{body}");
    }
}

#[test]
fn what_is_written_is_what_is_read() {
    let request = PickupRequest {
        action: "revoke_node".into(),
        subject: "n1".into(),
        key: Some(KEY.into()),
        token_sha256: None,
        why: "lost".into(),
    };
    let bytes = serde_json::to_vec(&request).unwrap();
    assert_eq!(read(&bytes, 0).unwrap().0, request);
}

#[test]
fn every_refusal_keeps_its_status_and_waits_where_waiting_helps() {
    for no in PickupRefusal::ALL {
        let said = refusal(*no, 0, String::new());
        assert_eq!(said.status, no.status());
        assert_eq!(said.retry_after.is_some(), matches!(said.status, 503 | 507), "{no}");
    }
    assert_eq!(refusal(PickupRefusal::NotFound, 0, "no f".into()).code, "unknown");
    assert_eq!(refusal(PickupRefusal::TooManyKeys, 0, "x".into()).code, "too_many_keys");
    assert_eq!(refusal(PickupRefusal::Unavailable, 7, "x".into()).retry_after, Some(7));
}

fn row(state: ShardState) -> ShardRow {
    ShardRow {
        generation: 2,
        state,
        buffer: (state == ShardState::RelayBuffered).then_some(Body::Blob(BlobNo(9))),
        incoming: None,
        size: Some(7),
        sha256: Some(Sha256Digest([1; 32])),
        blake3: Some(BlobDigest([2; 32])),
        client: "c".into(),
        since: 1_000,
        deadline: 0,
        slot_expires_at: None,
        buffered_at: Some(1_000),
        expires_at: Some(60_000),
        progress_at: 1_000,
        entries: 1,
        notify_after: 0,
        redemption: 4,
        token: None,
        failed_acks: 3,
        waits: 0,
        acked_redemption: 0,
        acked_status: None,
        reason: "disk full".into(),
        reserved: 0,
        loss: None,
    }
}

fn small_ledger() -> MemStore {
    let all = [
        (key("a", 1, 0, "n1"), ShardState::RelayBuffered),
        (key("a", 1, 0, "n2"), ShardState::NodeStored),
        (key("a", 1, 10, "n1"), ShardState::NodeStored),
        (key("a", 1, 9, "n1"), ShardState::RelayBuffered),
        (key("b/1", 0, 0, "n1"), ShardState::RelayCleanup),
    ];
    store(|batch| {
        for (shard, state) in &all {
            batch.put(Table::Shards, &shard.key(), &row(*state));
            batch.put_key(Table::ByNode, &keys::by_node(shard));
        }
    })
}

/// Every shard of a list, asked for page by page.
fn pages(store: &MemStore, only: &ShardListing) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = shards(&store.snapshot(), &ShardListing { after, ..only.clone() }).unwrap();
        assert!(page.shards.len() <= only.limit);
        found.extend(page.shards.iter().map(|s| {
            format!("{}/{}/{}@{}", s.file_id, s.version_number, s.shard_index, s.node_id)
        }));
        let Some(next) = page.next else { return found };
        after = Some(parse_shard(&next).unwrap());
    }
}

#[test]
fn shards_come_in_key_order_page_by_page() {
    let store = small_ledger();
    let everything = ["a/1/0@n1", "a/1/0@n2", "a/1/9@n1", "a/1/10@n1", "b/1/0/0@n1"];
    let mine = ["a/1/0@n1", "a/1/9@n1", "a/1/10@n1", "b/1/0/0@n1"];
    for limit in 1..7 {
        let listing = ShardListing { limit, ..ShardListing::default() };
        assert_eq!(pages(&store, &listing), everything, "{limit}");
        let listing = ShardListing { node: Some("n1".into()), ..listing };
        assert_eq!(pages(&store, &listing), mine, "{limit}");
        let listing = ShardListing { state: Some(ShardState::RelayBuffered), ..listing };
        assert_eq!(pages(&store, &listing), ["a/1/0@n1", "a/1/9@n1"], "{limit}");
        let listing = ShardListing { node: Some("n".into()), ..listing };
        assert_eq!(pages(&store, &listing), [""; 0], "{limit}");
    }
}

#[test]
fn a_shard_has_the_members_that_the_document_names() {
    let store = small_ledger();
    let listing = ShardListing { limit: 1, ..ShardListing::default() };
    let page = shards(&store.snapshot(), &listing).unwrap();
    let expected = json!({
        "file_id": "a", "version_number": 1, "shard_index": 0, "node_id": "n1", "generation": 2,
        "state": "RELAY_BUFFERED", "buffer_id": page.shards[0].buffer_id, "size": 7, "redemption": 4,
        "failed_acks": 3, "expires_at": "1970-01-01T00:01:00.000Z",
    });
    assert_eq!(serde_json::to_value(&page.shards[0]).unwrap(), expected);
    assert!(page.shards[0].buffer_id.is_some());
    let shown = shard(&store.snapshot(), &key("a", 1, 10, "n1")).unwrap().unwrap();
    assert_eq!((shown.shard.buffer_id, shown.reason.as_str()), (None, "disk full"));
    assert_eq!(shown.digest.sha256, Some("01".repeat(32)));
    assert_eq!(shard(&store.snapshot(), &key("a", 1, 11, "n1")), Ok(None));
}

#[test]
fn nodes_and_clients_come_by_name_page_by_page() {
    let node = |revoked_at| NodeRow {
        keys: vec![NodeKey { public: [3; 32], enrolled_at: 1_000 }],
        enrolled_at: 1_000,
        revoked_at,
        registered_at: None,
        tokens_from: None,
    };
    let client =
        ClientRow { token: Sha256Digest([0; 32]), enrolled_at: 1_000, revoked_at: Some(2_000) };
    let store = store(|batch| {
        for id in ["n1", "n10", "n2"] {
            batch.put(Table::Nodes, &keys::node(id), &node((id == "n2").then_some(5_000)));
            batch.put(Table::Clients, &keys::node(&format!("c-{id}")), &client);
        }
    });
    for limit in 1..4 {
        let (mut ids, mut names) = (Vec::new(), Vec::new());
        let mut listing = NameListing { limit, after: None };
        loop {
            let page = nodes(&store.snapshot(), &listing).unwrap();
            ids.extend(page.nodes.iter().map(|n| (n.id.clone(), n.revoked_at.is_some())));
            listing.after = page.next;
            if listing.after.is_none() {
                break;
            }
        }
        loop {
            let page = clients(&store.snapshot(), &listing).unwrap();
            names.extend(page.clients.iter().map(|c| c.name.clone()));
            listing.after = page.next;
            if listing.after.is_none() {
                break;
            }
        }
        let expected = [("n1", false), ("n10", false), ("n2", true)];
        assert_eq!(ids, expected.map(|(id, revoked)| (id.to_owned(), revoked)));
        assert_eq!(names, ["c-n1", "c-n10", "c-n2"]);
    }
}
