//! A node against a small relay: fetches, breaks, wrong content, restarts.

mod relay;

use std::collections::VecDeque;
use std::path::Path;

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::ShardState;
use consign_core::pickup::message::{Digests, PendingNotify};
use consign_core::pickup::sign;
use consign_core::pickup::token::Token;
use consign_core::time::UnixMillis;

pub(super) use self::relay::{Relay, Shard};
use self::relay::{State, digests};
use super::shelf::{Record, Step};
use super::*;
use crate::pickup::url;

const SECRET: [u8; 32] = [11; 32];

pub(super) fn content(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8 ^ seed).collect()
}

pub(super) fn relay(shards: impl IntoIterator<Item = Shard>) -> Relay {
    let shards = (0..).zip(shards).collect();
    Relay::new(State { public: sign::public_key(&SECRET), shards, ..State::default() })
}

/// A node that runs while `work` does; what it told.
fn while_it_runs(relay: &Relay, dir: &Path, work: impl FnOnce()) -> Vec<Tell> {
    with_rules(relay, dir, &[], work)
}

/// The same with inbox rules.
pub(super) fn with_rules(
    relay: &Relay,
    dir: &Path,
    rules: &[give::Rule],
    work: impl FnOnce(),
) -> Vec<Tell> {
    let url = url::Relay::parse(&format!("http://{}", relay.address)).unwrap();
    let node = Node {
        target: Target::new(url, None).unwrap(),
        signer: Signer { node: "edge-7".into(), secret: SECRET },
        fetches: 4,
        shelf: Arc::new(Shelf::open(dir).unwrap()),
        rules: rules.to_vec(),
        pause: Duration::from_millis(1),
    };
    let (stop, bell) = Stop::new().unwrap();
    let mut told = Vec::new();
    thread::scope(|scope| {
        let running = scope.spawn(|| node.run(&bell, &mut |said| told.push(said)));
        work();
        stop.stop();
        running.join().unwrap().unwrap();
    });
    told
}

pub(super) fn all_stored(state: &State) -> bool {
    state.shards.values().all(|shard| shard.state == ShardState::NodeStored)
}

pub(super) fn read(dir: &Path, index: u64) -> Vec<u8> {
    std::fs::read(dir.join(format!("a%2Fb/3/{index}"))).unwrap()
}

#[test]
fn everything_is_fetched_verified_kept_and_acked_a_few_at_a_time() {
    let sizes = [0, 1, 100, 70_000, 1 << 20];
    let shards = (0..40).map(|i| Shard::new(content(sizes[i % 5], i as u8)));
    let relay = relay(shards);
    let dir = tempfile::tempdir().unwrap();
    let told = while_it_runs(&relay, dir.path(), || relay.until("all are stored", all_stored));
    for (index, shard) in &relay.state().shards {
        assert_eq!(read(dir.path(), *index), shard.content);
        assert_eq!(shard.redemption, 1);
    }
    assert!((1..=4).contains(&relay.state().most_fetching));
    assert_eq!(told.iter().filter(|said| matches!(said, Tell::Stored(_))).count(), 40);
    assert!(told.contains(&Tell::Registered(1, 40)));
    assert!(!told.iter().any(|said| matches!(said, Tell::Failed(_) | Tell::Lost(..))), "{told:?}");
    // Nothing is left to be acked, and what is held is not fetched again.
    let shelf = Shelf::open(dir.path()).unwrap();
    assert!(shelf.unanswered().unwrap().is_empty());
}

#[test]
fn a_fetch_that_breaks_goes_on_with_the_next_token() {
    let mut shard = Shard::new(content(500_000, 1));
    shard.cuts = VecDeque::from([200_000, 0, 100_000]);
    let relay = relay([shard]);
    let dir = tempfile::tempdir().unwrap();
    while_it_runs(&relay, dir.path(), || relay.until("it is stored", all_stored));
    assert_eq!(read(dir.path(), 0), content(500_000, 1));
    let ranges: Vec<_> = relay.state().ranges.iter().map(|(_, range)| range.clone()).collect();
    assert_eq!((ranges.len(), &ranges[0]), (4, &None));
    assert_eq!(
        ranges[1..].to_vec(),
        ["bytes=200000-", "bytes=200000-", "bytes=300000-"].map(|r| Some(r.into()))
    );
}

#[test]
fn wrong_content_is_not_kept_and_is_said_to_have_failed() {
    let right = digests(&content(1000, 1));
    for wrong in [
        Digests { sha256: Sha256Digest([0; 32]), ..right },
        Digests { blake3: consign_core::id::BlobDigest([0; 32]), ..right },
    ] {
        let mut shard = Shard::new(content(1000, 1));
        shard.digest = wrong;
        let relay = relay([shard]);
        let dir = tempfile::tempdir().unwrap();
        let told = while_it_runs(&relay, dir.path(), || relay.until("it is stored", all_stored));
        let shard = relay.state().shards[&0].clone();
        assert_eq!((shard.redemption, shard.reasons.len()), (2, 1));
        assert!(shard.reasons[0].contains("digest"), "{:?}", shard.reasons);
        let codes: Vec<_> = told
            .iter()
            .filter_map(
                |said| if let Tell::Failed(failure) = said { Some(failure.code) } else { None },
            )
            .collect();
        assert_eq!(codes, ["CN0827"]);
        assert_eq!(relay.state().ranges, [(0, None), (0, None)]);
    }
}

/// A notify as the shelf needs it.
pub(super) fn notify(content: &[u8], redemption: u64) -> PendingNotify {
    PendingNotify {
        file_id: "a/b".into(),
        version_number: 3,
        shard_index: 0,
        buffer_id: "blob-1".into(),
        size: content.len() as u64,
        digest: digests(content),
        token: Token::new([0; 32]),
        token_expires_at: UnixMillis(0),
        redemption,
    }
}

#[test]
fn a_node_that_was_killed_at_any_point_fetches_no_byte_twice() {
    let all = content(300_000, 7);
    for (step, by_ack) in [(Step::Verified, false), (Step::Placed, false), (Step::Recorded, true)] {
        let mut shard = Shard::new(all.clone());
        shard.redemption = 1;
        if by_ack {
            // The relay still waits for the ack of the fetch that was whole.
            shard.state = ShardState::NodeReceiving;
        }
        let relay = relay([shard]);
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path()).unwrap();
        let key = ShardKey::new("a/b", 3, 0, "edge-7").unwrap();
        let notify = notify(&all, 1);
        let mut partial = shelf.partial(&key, notify.size, &notify.digest).unwrap();
        partial.write(&all).unwrap();
        let killed = shelf.keep(&key, &mut partial, &Record::of(&notify, "edge-7"), &mut |done| {
            if done == step { Err(std::io::Error::other("killed")) } else { Ok(()) }
        });
        assert!(killed.is_err());
        drop((partial, shelf));
        while_it_runs(&relay, dir.path(), || relay.until("it is stored", all_stored));
        assert_eq!(read(dir.path(), 0), all);
        let ranges = relay.state().ranges.clone();
        match by_ack {
            true => assert_eq!(ranges, [], "{step:?}"),
            false => assert_eq!(ranges, [(0, Some("bytes=300000-".into()))], "{step:?}"),
        }
    }
}

#[test]
fn a_lost_session_is_made_anew_and_its_acks_are_said_again() {
    let relay = relay([Shard::new(content(1000, 1)), Shard::new(content(2000, 2))]);
    relay.state().ends = [(1, 1001), (2, 4001)].into();
    let dir = tempfile::tempdir().unwrap();
    let told = while_it_runs(&relay, dir.path(), || relay.until("all are stored", all_stored));
    assert_eq!(relay.state().sessions, 3);
    let lost: Vec<_> = told
        .iter()
        .filter_map(
            |said| if let Tell::Lost(failure, _) = said { Some(failure.code) } else { None },
        )
        .collect();
    assert_eq!(lost, ["CN0825", "CN0829"]);
    // An answer that does not come: the ack is said again in the next process.
    let relay = self::relay([Shard::new(content(1000, 3))]);
    relay.state().swallows = 1;
    let dir = tempfile::tempdir().unwrap();
    while_it_runs(&relay, dir.path(), || relay.until("it was acked", |state| state.swallows == 0));
    assert_eq!(relay.state().shards[&0].state, ShardState::NodeReceiving);
    while_it_runs(&relay, dir.path(), || relay.until("it is stored", all_stored));
    assert_eq!(relay.state().ranges.len(), 1);
}

#[test]
fn a_node_without_a_relay_stops_when_it_is_told() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relay = relay([]);
    let relay = Relay { address: gone, ..relay };
    let dir = tempfile::tempdir().unwrap();
    while_it_runs(&relay, dir.path(), || {});
}
