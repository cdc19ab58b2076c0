//! Shards: custody moves once, to a node that has them, and every one has its turn.

use std::time::Duration;

use consign_core::config::{BufferConfig, Config};
use consign_core::ledger::rows_pickup::{AckStatus, ShardState};
use consign_core::pickup::{FetchEnd, OperatorAct, PickupRefusal};
use consign_core::plant::Plant;

use crate::relay::{KEY, Relay, shard, with};
use crate::story::{End, promise};

fn relay(plant: Option<Plant>, buffer: BufferConfig) -> Relay {
    Relay::with(Config { plant, ..with(buffer) })
}

/// (P1) A shard is given up after a fetch, and uploaded anew with other bytes; then the ack of that fetch
/// comes.
pub fn late_ack(plant: Option<Plant>) -> End {
    let mut relay = relay(plant, BufferConfig::default());
    let key = shard("a", 0);
    relay.put(&key, b"first");
    let ws = relay.node("n1", KEY);
    let (conn, old) = relay.pick_up(ws);
    // Not a byte has moved: it is not notified of again at once.
    relay.fetched(conn, old.redemption, FetchEnd::Broken { moved: 0 });
    relay.act(OperatorAct::AbandonShard { shard: key.clone() }).unwrap();
    relay.put(&key, b"second");
    relay.pick_up(ws);
    let answer = relay.ack(ws, &key, old.redemption, AckStatus::Verified);
    promise(answer == Err(PickupRefusal::StaleAck), || {
        format!("an ack of the first generation is answered {answer:?} for the second")
    })
}

/// (P2) The link is so bad that more fetches break off than acks may say `failed`.
pub fn broken_fetches(plant: Option<Plant>) -> End {
    let mut relay = relay(plant, BufferConfig { max_pickups: 2, ..BufferConfig::default() });
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    for _ in 0..4 {
        let Some(notify) = relay.notified(ws).pop() else { break };
        let hash = relay.hash(ws, &notify);
        let (conn, serve) = relay.redeem(hash).unwrap();
        relay.fetched(conn, serve.redemption, FetchEnd::Broken { moved: 3 });
    }
    let state = relay.state(&key);
    promise(state == Some(ShardState::RelayBuffered), || {
        format!("nobody has said `failed`, and the shard is {state:?}")
    })
}

/// (P3) A node has a shard and says so; then the graces pass.
pub fn said_so(plant: Option<Plant>) -> End {
    let mut relay = relay(plant, BufferConfig::default());
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let (_, serve) = relay.pick_up(ws);
    relay.ack(ws, &key, serve.redemption, AckStatus::Verified).unwrap();
    relay.wait(Duration::from_secs(3600));
    let again = relay.notified(ws).len();
    promise(again == 0, || "what the node has said that it has is given out once more".into())
}

/// (P4) A fetch stands still until its shard is taken back; the next one is under way when the old
/// connection ends.
pub fn old_connection(plant: Option<Plant>) -> End {
    let mut relay = relay(plant, BufferConfig::default());
    let key = shard("a", 0);
    relay.put(&key, b"content");
    let ws = relay.node("n1", KEY);
    let (old, _) = relay.pick_up(ws);
    relay.wait(Duration::from_secs(1801));
    relay.pick_up(ws);
    relay.close(old);
    relay.site.settle();
    let state = relay.state(&key);
    promise(state == Some(ShardState::NodeReceiving), || {
        format!("the end of an old connection has made it {state:?}")
    })
}

/// (P5) A node ignores the first shard that it is notified of, one at a time.
pub fn ignored(plant: Option<Plant>) -> End {
    let mut relay = relay(plant, BufferConfig { notify_window: 1, ..BufferConfig::default() });
    for i in 0..3 {
        relay.put(&shard("a", i), b"content");
    }
    let ws = relay.node("n1", KEY);
    let mut heard = Vec::new();
    for _ in 0..6 {
        heard.extend(relay.notified(ws).into_iter().map(|notify| notify.shard.index()));
        relay.wait(Duration::from_secs(301));
    }
    let mut told = heard.clone();
    told.sort_unstable();
    told.dedup();
    promise(told == [0, 1, 2], || format!("it hears of {heard:?} only"))
}
