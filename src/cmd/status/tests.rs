//! A node in words.

use super::*;
use crate::admin::shapes::{Ledger, Storage};

fn now() -> SystemTime {
    human::moment("2026-11-30T18:44:05.000Z").unwrap()
}

fn status() -> Status {
    let count = |count, bytes| Count { count, bytes };
    let beta = Peer {
        name: "beta".into(),
        address: "beta.example:7400".into(),
        queued: count(1, 88 << 20),
        backing_off: count(2, 0),
        delivered: count(10, 1 << 20),
        dead: count(3, 9),
        oldest: Some("2026-11-30T18:43:53.000Z".into()),
        retry_at: Some("2026-11-30T18:44:13.000Z".into()),
        last_error: "connect: connection refused".into(),
        ..Peer::default()
    };
    let gamma = Peer {
        name: "gamma".into(),
        address: "g:1".into(),
        up: true,
        sending: count(4, 1 << 10),
        ..Peer::default()
    };
    let gone = Peer { name: "gone".into(), ..Peer::default() };
    Status {
        schema: Status::SCHEMA.into(),
        name: "alpha".into(),
        version: "0.1.0".into(),
        runtime: "smol".into(),
        up_seconds: 360,
        segments: 14,
        storage: Storage { used: 1_395_864_371, limit: 200 << 30, free: 1, ..Storage::default() },
        ledger: Ledger {
            used: 70_000_000,
            limit: 64 << 30,
            ballast_whole: true,
            ..Ledger::default()
        },
        peers: vec![beta, gamma, gone],
        ..Status::default()
    }
}

#[test]
fn the_node_and_its_peers() {
    let expected = "\
alpha  0.1.0  smol  up 6 min      14 segments in 1.3 GiB of 200 GiB      ledger 0.1 %
PEER   LINK              QUEUED        SENDING      OLDEST  DEAD  DELIVERED  NEXT TRY  LAST ERROR
beta   ▼ down            3 (88.0 MiB)  0            12 s       3         10  in 8 s    connect: connection refused
gamma  ● up              0             4 (1.0 KiB)             0          0
gone   – not configured  0             0                       0          0
";
    assert_eq!(text(&status(), None, now(), &Address::default()), expected);
}

#[test]
fn what_keeps_a_peer_from_being_sent_to_is_said() {
    let mut status = status();
    status.peers[0].needs_rekey = true;
    status.peers[1].held = true;
    let text = text(&status, None, now(), &Address::default());
    assert!(text.contains("beta   ✕ needs rekey "), "{text}");
    assert!(text.contains("gamma  ● up, held "), "{text}");
}

#[test]
fn what_waits_in_held_segments_is_told_as_that() {
    let mut status = status();
    status.peers[0].held_back.count = 2;
    let some = text(&status, None, now(), &Address::default());
    assert!(some.contains("3 (88.0 MiB), 2 held  ") && some.contains("in 8 s"), "{some}");
    status.peers[0].held_back.count = 3;
    let all = text(&status, None, now(), &Address::default());
    assert!(all.contains("3 (88.0 MiB), 3 held  ") && !all.contains("in 8 s"), "{all}");
    assert!(all.contains("held: consign ls --state held"), "{all}");
}

#[test]
fn the_last_error_of_a_peer_that_is_connected_has_an_age() {
    let mut status = status();
    for peer in &mut status.peers {
        peer.last_error = "too much".into();
        peer.last_error_at = Some("2026-11-30T18:43:53.000Z".into());
    }
    let text = text(&status, None, now(), &Address::default());
    let told: Vec<bool> = text.lines().map(|line| line.ends_with("too much (12 s ago)")).collect();
    assert_eq!(told, [false, false, false, true, false], "{text}");
}

#[test]
fn a_closed_window_is_told_and_when_it_opens() {
    let mut status = status();
    status.peers[0].opens_at = Some("2026-11-30T22:00:00.000Z".into());
    let text = text(&status, None, now(), &Address::default());
    assert!(text.contains("window opens in 3 h"), "{text}");
}

#[test]
fn progress_of_the_check_is_told() {
    let mut status = status();
    (status.reconciling, status.reconciled) = (true, (3_211_264, 10_000_000));
    let text = text(&status, None, now(), &Address::default());
    assert!(text.contains("checking what is stored: 3,211,264 of 10,000,000"), "{text}");
}

#[test]
fn what_is_not_as_it_should_be_is_said() {
    let mut status = status();
    status.peers.clear();
    (status.stopping, status.reconciling, status.storage.full) = (true, true, true);
    status.ledger.ballast_whole = false;
    let text = text(&status, None, now(), &Address::default());
    for word in ["stopping", "checking what is stored", "full: new segments", "ballast", "no peers"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn what_nobody_is_left_to_have_is_told_with_the_command_that_lists_it() {
    let mut status = status();
    status.unplaced = 2;
    let text = text(&status, None, now(), &Address::default());
    assert!(text.contains("      2 segments unplaced: consign ls --unplaced"), "{text}");
}

#[test]
fn a_second_look_tells_the_rate() {
    let (before, mut after) = (status(), status());
    after.peers[0].delivered.bytes += 10 << 20;
    after.peers[0].sent = 2 << 20;
    let text = text(&after, Some((&before, Duration::from_secs(2))), now(), &Address::default());
    assert!(text.lines().nth(1).unwrap().contains("RATE"), "{text}");
    assert!(text.lines().nth(2).unwrap().contains("6.0 MiB/s"), "{text}");
}

#[test]
fn intervals_have_a_floor() {
    assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
    assert!(interval("1ms").is_err() && interval("soon").is_err());
}

#[test]
fn shards_have_a_line_where_pickup_is_used() {
    assert!(!text(&status(), None, now(), &Address::default()).contains("pickup"));
    let mut used = status();
    used.pickup.clients = 1;
    used.pickup.limit = 10 << 30;
    assert!(
        text(&used, None, now(), &Address::default())
            .contains("pickup  0 B of 10.0 GiB      0 waiting      0 nodes here\n")
    );
    let count = Count { count: 1_200, bytes: 3 << 20 };
    used.pickup.shards.insert("RELAY_BUFFERED".into(), count);
    used.pickup.shards.insert("NODE_STORED".into(), count);
    (used.pickup.used, used.pickup.sessions) = (3 << 20, 1);
    let line = "pickup  3.0 MiB of 10.0 GiB      1,200 waiting, 1,200 stored      1 node here\n";
    assert!(
        text(&used, None, now(), &Address::default()).contains(line),
        "{}",
        text(&used, None, now(), &Address::default())
    );
}

#[test]
fn a_reload_that_was_refused_and_files_that_do_not_fit_are_said() {
    let mut status = status();
    status.reload.at = Some("2026-11-30T18:44:05.000Z".into());
    status.certificate_files = "CN0314: the private key does not belong to the certificate".into();
    let said = text(&status, None, now(), &Address::default());
    for word in ["the last reload was refused: consign config check", "CN0314: the private key"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    (status.reload.ok, status.certificate_files) = (true, String::new());
    let said = text(&status, None, now(), &Address::default());
    assert!(!said.contains("reload") && !said.contains("CN0314"), "{said}");
    status.reload.restart = vec!["listen.web".into(), "route".into()];
    assert!(
        text(&status, None, now(), &Address::default())
            .contains("      needs restart: listen.web, route\n")
    );
}
