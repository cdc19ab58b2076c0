//! What metrics count of shards.

use std::time::Duration;

use consign_core::id::Sha256Digest;
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::node::Tallied;
use consign_core::pickup::PickupRefusal;

use crate::relay::{KEY, MIB, Relay, shard};

fn tallied(relay: &Relay) -> Tallied {
    relay.site.pump.node().status(relay.site.now).tallied
}

/// Commits that left a shard in another state, by that state: those that are not 0.
fn transitions(relay: &Relay) -> Vec<(ShardState, u64)> {
    let counts = ShardState::ALL.iter().copied().zip(tallied(relay).shards);
    counts.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_shard_counts_where_each_commit_leaves_it_and_how_long_its_node_let_it_wait() {
    let mut relay = Relay::new();
    let key = shard("a", 0);
    relay.put(&key, b"content");
    assert_eq!(transitions(&relay), [(ShardState::RelayBuffered, 1)]);
    relay.wait(Duration::from_secs(25));
    let ws = relay.node("n1", KEY);
    let (_, serve) = relay.pick_up(ws);
    relay.ack(ws, &key, serve.redemption, AckStatus::Verified).unwrap();
    // NODE_VERIFIED is passed within one commit.
    let want = [ShardState::RelayBuffered, ShardState::NodeReceiving, ShardState::NodeStored];
    assert_eq!(transitions(&relay), want.map(|state| (state, 1)));
    let wait = tallied(&relay).pickup_wait;
    assert_eq!((wait.count(), wait.sum()), (1, 25_000_000));
}

#[test]
fn tokens_count_by_what_they_were_good_for() {
    let mut relay = Relay::new();
    relay.put(&shard("a", 0), b"content");
    let ws = relay.node("n1", KEY);
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    relay.redeem(hash).unwrap();
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::TokenUsed);
    assert_eq!(relay.redeem(Sha256Digest([9; 32])).unwrap_err(), PickupRefusal::NotFound);
    let status = relay.status();
    assert_eq!((status.redeemed, status.bad_tokens), (1, [1, 0, 1]));
    relay.put(&shard("b", 0), b"content");
    let notify = relay.notified(ws).pop().unwrap();
    let hash = relay.hash(ws, &notify);
    relay.wait(Duration::from_secs(600));
    assert_eq!(relay.redeem(hash).unwrap_err(), PickupRefusal::TokenExpired);
    assert_eq!(relay.status().bad_tokens, [1, 1, 1]);
}

#[test]
fn uploads_count_by_how_they_ended() {
    let mut relay = Relay::new();
    let size = Some(MIB);
    relay.put_file(&shard("a", 0), &vec![1; 1 << 20]);
    let writer = relay.begin(relay.ask_of(&shard("b", 0), size)).unwrap();
    relay.write(&writer, b"some");
    relay.cut(&writer, 0).unwrap();
    let writer = relay.begin(relay.ask_of(&shard("c", 0), size)).unwrap();
    relay.close(writer.conn);
    relay.site.settle();
    let stranger = consign_core::pickup::UploadAsk {
        client: Some(Sha256Digest([9; 32])),
        ..relay.ask_of(&shard("d", 0), size)
    };
    assert_eq!(relay.begin(stranger).err(), Some(PickupRefusal::Unauthorized));
    let status = relay.status();
    assert_eq!((status.stored, status.lost_uploads), (1, (2, 1)));
}
