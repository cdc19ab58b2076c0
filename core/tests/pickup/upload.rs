//! Uploads that begin: small ones, slots, what is there already, who may.

use consign_core::config::{BufferConfig, Config};
use consign_core::id::{BlobDigest, Sha256Digest};
use consign_core::ledger::Table;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows::Body;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::pickup::{OperatorAct, PickupRefusal};

use crate::relay::{MIB, Relay, shard, token_of, with};

#[test]
fn a_small_body_is_buffered_in_one_commit() {
    let mut relay = Relay::new();
    let conn = relay.site.client();
    let ask = relay.small(conn, &shard("a", 0), b"content");
    let before = relay.site.store.commits();
    let (new, view) = relay.upload_on(conn, ask).unwrap();
    assert!(new && relay.site.store.commits() == before + 1);
    assert!(matches!(view.buffer, Some(Body::Inline(_))));
    assert_eq!((view.state, view.size), (ShardState::RelayBuffered, 7));
    let ttl = relay.site.config.buffer.ttl;
    assert_eq!(view.expires_at, Some(relay.site.now.wall.after(ttl)));
    let row = relay.row(&shard("a", 0)).unwrap();
    assert_eq!((row.generation, row.entries, row.client.as_str()), (0, 1, "cam"));
    assert_eq!(relay.status().shards[2].count, 1);
    assert_eq!(relay.site.store.parked(), 0);
    relay.audit();
}

#[test]
fn the_same_bytes_again_are_fine_and_others_are_not() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let first = relay.put(&key, b"content");
    let conn = relay.site.client();
    let again = relay.small(conn, &key, b"content");
    assert_eq!(relay.upload_on(conn, again), Ok((false, first)));
    let other = relay.small(conn, &key, b"another");
    assert_eq!(relay.upload_on(conn, other), Err(PickupRefusal::Conflict));
    // Any client that brings the same bytes is told so.
    let mut eve = relay.small(conn, &key, b"content");
    eve.client = Some(token_of("eve"));
    assert!(!relay.upload_on(conn, eve).unwrap().0);
    // A size that differs, or a digest, is enough before the body is read.
    let ask = relay.ask_of(&key, Some(9));
    assert_eq!(relay.upload(ask), Err(PickupRefusal::Conflict));
    let mut ask = relay.ask_of(&key, Some(7));
    ask.blake3 = Some(BlobDigest([9; 32]));
    assert_eq!(relay.upload(ask), Err(PickupRefusal::Conflict));
    assert_eq!(relay.site.store.parked(), 0);
    relay.audit();
}

#[test]
fn who_may_upload_and_for_whom() {
    let mut relay = Relay::new();
    let mut ask = relay.ask_of(&shard("a", 0), Some(10));
    for client in [None, Some(token_of("nobody"))] {
        ask.client = client;
        assert_eq!(relay.upload(ask.clone()), Err(PickupRefusal::Unauthorized));
    }
    ask.shard = ShardKey::new("a", 1, 0, "stranger").unwrap();
    assert_eq!(relay.upload(ask.clone()), Err(PickupRefusal::Unauthorized), "401 before 404");
    ask.client = Some(token_of("cam"));
    assert_eq!(relay.upload(ask.clone()), Err(PickupRefusal::UnknownNode));
    relay.act(OperatorAct::RevokeNode { id: "n1".into(), key: None }).unwrap();
    ask.shard = shard("a", 0);
    assert_eq!(relay.upload(ask.clone()), Err(PickupRefusal::UnknownNode));
    relay.act(OperatorAct::RevokeClient { name: "cam".into() }).unwrap();
    assert_eq!(relay.upload(ask), Err(PickupRefusal::Unauthorized));
    assert_eq!(relay.site.store.rows(Table::Shards), 0);
}

#[test]
fn a_digest_that_was_given_is_compared() {
    let mut relay = Relay::new();
    let conn = relay.site.client();
    let mut ask = relay.small(conn, &shard("a", 0), b"content");
    ask.sha256 = Some(Sha256Digest([3; 32]));
    assert_eq!(relay.upload_on(conn, ask), Err(PickupRefusal::DigestMismatch));
    assert_eq!(relay.state(&shard("a", 0)), None);
    assert_eq!((relay.site.store.parked(), relay.used()), (0, 0));
    relay.audit();
}

#[test]
fn what_is_too_large_or_too_much_is_refused_and_changes_nothing() {
    let buffer =
        BufferConfig { max_bytes: 10 * MIB, max_upload: Some(6 * MIB), ..BufferConfig::default() };
    let mut relay = Relay::with(with(buffer));
    let ask = relay.ask_of(&shard("a", 0), Some(6 * MIB + 1));
    assert_eq!(relay.upload(ask), Err(PickupRefusal::TooLarge));
    assert_eq!(relay.slot(&shard("a", 0), "cam", 7 * MIB), Err(PickupRefusal::TooLarge));
    relay.slot(&shard("a", 0), "cam", 6 * MIB).unwrap();
    let ask = relay.ask_of(&shard("a", 1), Some(5 * MIB));
    assert_eq!(relay.upload(ask), Err(PickupRefusal::Quota));
    let ask = relay.ask_of(&shard("a", 1), Some(4 * MIB));
    relay.begin(ask).unwrap();
    assert_eq!(relay.slot(&shard("a", 2), "cam", 1), Err(PickupRefusal::Quota));
    assert_eq!((relay.status().used, relay.status().limit), (10 * MIB, 10 * MIB));
    assert_eq!(relay.status().refusals[9], 2, "too_large is counted");
    relay.audit();
}

#[test]
fn a_slot_is_reserved_once_and_taken_by_who_reserved_it() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    let (new, expires_at) = relay.slot(&key, "cam", 100).unwrap();
    assert!(new);
    assert_eq!(relay.state(&key), Some(ShardState::Created));
    assert_eq!(relay.used(), 100);
    relay.wait(std::time::Duration::from_secs(5));
    assert_eq!(relay.slot(&key, "cam", 100), Ok((false, expires_at)));
    assert_eq!(relay.slot(&key, "cam", 101), Err(PickupRefusal::Conflict));
    assert_eq!(relay.slot(&key, "eve", 100), Err(PickupRefusal::Conflict));
    assert_eq!(relay.head(&key, "cam"), Ok((0, false, ShardState::Created)));
    assert_eq!(relay.head(&key, "eve"), Err(PickupRefusal::NotFound));
    // Another client, another size.
    let conn = relay.site.client();
    let mut ask = relay.small(conn, &key, &[5; 100]);
    ask.client = Some(token_of("eve"));
    assert_eq!(relay.upload_on(conn, ask), Err(PickupRefusal::Conflict));
    let ask = relay.small(conn, &key, &[5; 99]);
    assert_eq!(relay.upload_on(conn, ask), Err(PickupRefusal::Conflict));
    relay.audit();
    let view = relay.put(&key, &[5; 100]);
    assert_eq!(view.state, ShardState::RelayBuffered);
    assert_eq!(relay.slot(&key, "cam", 100), Err(PickupRefusal::Conflict), "a later state");
    relay.audit();
}

#[test]
fn an_upload_onto_a_final_row_opens_the_next_generation_or_is_known() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"one");
    relay.act(OperatorAct::AbandonShard { shard: key.clone() }).unwrap();
    assert_eq!(relay.state(&key), Some(ShardState::RelayCleanup));
    assert_eq!(relay.head(&key, "cam"), Ok((0, false, ShardState::RelayCleanup)));
    assert_eq!(relay.used(), 0);
    relay.put(&key, b"two");
    let row = relay.row(&key).unwrap();
    assert_eq!((row.generation, row.state), (1, ShardState::RelayBuffered));
    let ws = relay.node("n1", crate::relay::KEY);
    let (_, serve) = relay.pick_up(ws);
    let verified = consign_core::ledger::rows_pickup::AckStatus::Verified;
    relay.ack(ws, &key, serve.redemption, verified).unwrap();
    let conn = relay.site.client();
    let ask = relay.small(conn, &key, b"two");
    let (new, view) = relay.upload_on(conn, ask).unwrap();
    assert!(!new && view.buffer.is_none() && view.expires_at.is_none());
    assert_eq!(view.state, ShardState::NodeStored);
    let ask = relay.small(conn, &key, b"three");
    assert_eq!(relay.upload_on(conn, ask), Err(PickupRefusal::Conflict));
    relay.audit();
}

#[test]
fn small_content_is_admitted_as_it_is_charged() {
    let config = Config { max_bytes: 4_095, ..with(BufferConfig::default()) };
    let mut relay = Relay::with(config);
    let conn = relay.site.client();
    // 3,000 bytes take a page of 4,096.
    let ask = relay.small(conn, &shard("a", 0), &[1; 3_000]);
    assert_eq!(relay.upload_on(conn, ask), Err(PickupRefusal::Quota));
    let ask = relay.small(conn, &shard("a", 0), &[1; 1_000]);
    relay.upload_on(conn, ask).unwrap();
    relay.audit();
}
