//! Stories of sites in a row: what is handed on arrives, or everybody hears that it does not, whoever
//! dies in between.

use std::time::Duration;

use consign_core::config::{Config, Route};
use consign_core::id::SegmentId;
use consign_core::ledger::read;
use consign_core::ledger::rows::{DeliveryRow, IdRow, PeerRow, SegmentRow, State};
use consign_core::ledger::{Table, codec, keys};
use consign_core::store::Snapshot;

use crate::world::{World, config};

fn routed(name: &str, peers: &[&str], routes: &[(&str, &str)]) -> Config {
    let route = |(to, via): &(&str, &str)| Route { to: (*to).into(), via: (*via).into() };
    Config { routes: routes.iter().map(route).collect(), ..config(name, peers) }
}

/// alpha - beta - gamma.
fn chain() -> World {
    World::new(vec![
        routed("alpha", &["beta"], &[("gamma", "beta")]),
        routed("beta", &["alpha", "gamma"], &[]),
        routed("gamma", &["beta"], &[("alpha", "beta")]),
    ])
}

fn all(world: &mut World) {
    for name in world.sites.iter().map(|s| s.config.name.clone()).collect::<Vec<_>>() {
        world.start(&name);
    }
    world.wait(Duration::from_secs(1));
}

fn delivery(world: &World, at: &str, id: SegmentId, to: &str) -> Option<DeliveryRow> {
    let snapshot = world.sites[world.index(at)].store.snapshot();
    let seq: IdRow = read::row(&snapshot, Table::Ids, &keys::id(&id)).unwrap()?;
    let mut site = None;
    snapshot
        .scan(Table::Peers, &[], &mut |key, value| {
            let row: PeerRow = codec::decode(Table::Peers, key, value).unwrap();
            if row.name == to {
                site = Some(consign_core::id::SiteNo(u32::from_be_bytes(key.try_into().unwrap())));
            }
            true
        })
        .unwrap();
    read::row(&snapshot, Table::Deliveries, &keys::delivery(seq.seq, site?)).unwrap()
}

fn state(world: &World, at: &str, id: SegmentId, to: &str) -> Option<State> {
    delivery(world, at, id, to).map(|row| row.state)
}

fn segment(world: &World, at: &str, id: SegmentId) -> SegmentRow {
    let snapshot = world.sites[world.index(at)].store.snapshot();
    let seq: IdRow = read::row(&snapshot, Table::Ids, &keys::id(&id)).unwrap().unwrap();
    read::row(&snapshot, Table::Segments, &keys::seq(seq.seq)).unwrap().unwrap()
}

/// Nobody owes anything, waits for anything, or has anything to tell.
fn at_rest(world: &World) {
    for site in &world.sites {
        for table in [Table::Owed, Table::Inflight, Table::Handed, Table::PassBack] {
            assert_eq!(site.store.rows(table), 0, "{table} at {}", site.config.name);
        }
    }
}

#[test]
fn a_segment_crosses_a_chain_and_its_receipt_comes_back() {
    let mut world = chain();
    all(&mut world);
    for (n, body) in [(0, vec![]), (1, vec![7; 5_000]), (2, vec![9; 200_000])] {
        let id = world.send("alpha", &format!("s{n}"), &body, &["gamma"]).unwrap();
        world.wait(Duration::from_secs(1));
        assert!(world.content("gamma", id).as_ref() == Some(&body));
        assert_eq!(state(&world, "alpha", id, "gamma"), Some(State::Acked));
        assert!(segment(&world, "alpha", id).relayed_at.is_some());
        let row = segment(&world, "gamma", id);
        assert_eq!((&row.origin[..], row.hops, row.here), ("alpha", 2, true));
        assert!(!segment(&world, "beta", id).here);
    }
    at_rest(&world);
}

#[test]
fn the_origin_learns_of_arrival_and_of_nothing_less() {
    let mut world = chain();
    world.start("alpha");
    world.start("beta");
    let id = world.send("alpha", "one", b"hello", &["gamma"]).unwrap();
    world.wait(Duration::from_secs(300));
    let row = delivery(&world, "alpha", id, "gamma").unwrap();
    assert_eq!((row.state, row.custody.is_some(), row.attempts), (State::Inflight, true, 1));
    assert_eq!(segment(&world, "alpha", id).relayed_at, None, "R4");
    world.start("gamma");
    world.wait(Duration::from_secs(1200));
    assert_eq!(state(&world, "alpha", id, "gamma"), Some(State::Acked));
    at_rest(&world);
}

#[test]
fn a_hop_and_what_lies_behind_it_share_an_offer() {
    let mut world = World::new(vec![
        routed("alpha", &["beta"], &[("gamma", "beta"), ("delta", "beta")]),
        routed("beta", &["alpha", "gamma", "delta"], &[]),
        routed("gamma", &["beta"], &[]),
        routed("delta", &["beta"], &[]),
    ]);
    all(&mut world);
    let id = world.send("alpha", "one", b"for three", &["beta", "gamma", "delta"]).unwrap();
    world.wait(Duration::from_secs(1));
    for at in ["beta", "gamma", "delta"] {
        assert!(world.content(at, id).is_some(), "{at}");
        assert_eq!(state(&world, "alpha", id, at), Some(State::Acked), "{at}");
    }
    assert!(segment(&world, "beta", id).here);
    at_rest(&world);
    let claims: Vec<&String> =
        world.trace.iter().filter(|l| l.starts_with("alpha") && l.contains("#2")).collect();
    assert!(claims.is_empty(), "{claims:?}");
}

#[test]
fn whoever_dies_at_whichever_byte_it_arrives_once_and_is_told() {
    for victim in ["alpha", "beta", "gamma"] {
        for after in (0..6_000).step_by(311) {
            let mut world = chain();
            world.start("alpha");
            let send = |i| world.send("alpha", &format!("s{i}"), &[i; 300], &["gamma"]).unwrap();
            let ids: Vec<SegmentId> = (0..4_u8).map(send).collect();
            // So many bytes cross; then all wires break, one site dies, and comes back.
            world.cut_after = Some(after);
            world.start("beta");
            world.start("gamma");
            world.wait(Duration::from_millis(300));
            world.kill(victim);
            world.cut_after = None;
            world.start(victim);
            world.wait(Duration::from_secs(20));
            for (i, id) in ids.iter().enumerate() {
                let there = world.content("gamma", *id);
                assert_eq!(there, Some(vec![i as u8; 300]), "{victim} {after}");
                let state = state(&world, "alpha", *id, "gamma");
                assert_eq!(state, Some(State::Acked), "{victim} {after}");
            }
            assert_eq!(world.sites[2].store.rows(Table::Segments), 4, "{victim} {after}");
            at_rest(&world);
        }
    }
}

#[test]
fn the_hop_may_restart_between_any_two_steps() {
    for kills in 1..12 {
        let mut world = chain();
        all(&mut world);
        let id = world.send("alpha", "one", b"hello", &["gamma"]).unwrap();
        // Its wires break after so few bytes that each step has a restart of its own.
        for n in 0..kills {
            world.cut_after = Some(350 + 60 * n);
            world.wait(Duration::from_millis(200));
            world.kill("beta");
            world.start("beta");
        }
        world.cut_after = None;
        world.wait(Duration::from_secs(60));
        assert_eq!(world.content("gamma", id).as_deref(), Some(&b"hello"[..]), "{kills}");
        assert_eq!(state(&world, "alpha", id, "gamma"), Some(State::Acked), "{kills}");
        at_rest(&world);
    }
}

#[test]
fn a_refusal_far_away_is_a_dead_letter_at_home() {
    let small = Config { max_segment: Some(100), ..config("gamma", &["beta"]) };
    let mut world = World::new(vec![
        routed("alpha", &["beta"], &[("gamma", "beta")]),
        routed("beta", &["alpha", "gamma"], &[]),
        small,
    ]);
    all(&mut world);
    let id = world.send("alpha", "big", &[1; 5_000], &["gamma"]).unwrap();
    world.wait(Duration::from_secs(1));
    for at in ["alpha", "beta"] {
        let row = delivery(&world, at, id, "gamma").unwrap();
        let too_large = consign_core::code::Cause::TooLarge.number();
        assert_eq!((row.state, row.last_error), (State::Deadletter, too_large), "{at}");
    }
    at_rest(&world);
    assert!(world.content("alpha", id).is_some() && world.content("beta", id).is_some());
}

#[test]
fn routes_in_a_circle_end_in_dead_letters_everywhere() {
    let mut world = World::new(vec![
        routed("alpha", &["beta", "gamma"], &[("omega", "beta")]),
        routed("beta", &["alpha", "gamma"], &[("omega", "gamma")]),
        routed("gamma", &["alpha", "beta"], &[("omega", "alpha")]),
    ]);
    all(&mut world);
    // Not by way of its origin: the circle is cut before it closes.
    let id = world.send("alpha", "one", b"round", &["omega"]).unwrap();
    world.wait(Duration::from_secs(5));
    for at in ["alpha", "beta"] {
        assert_eq!(state(&world, at, id, "omega"), Some(State::Deadletter), "{at}");
    }
    at_rest(&world);
    assert!(world.content("alpha", id).is_some(), "R3: the copy is kept");
}

#[test]
fn a_circle_that_does_not_touch_the_origin_ends_too() {
    let mut world = World::new(vec![
        routed("origin", &["alpha"], &[("omega", "alpha")]),
        routed("alpha", &["origin", "beta", "gamma"], &[("omega", "beta")]),
        routed("beta", &["alpha", "gamma"], &[("omega", "gamma")]),
        routed("gamma", &["alpha", "beta"], &[("omega", "alpha")]),
    ]);
    all(&mut world);
    let id = world.send("origin", "one", b"round", &["omega"]).unwrap();
    world.wait(Duration::from_secs(5));
    for at in ["origin", "alpha", "beta", "gamma"] {
        let row = delivery(&world, at, id, "omega").unwrap();
        let looped = consign_core::code::Cause::Loop.number();
        assert_eq!((row.state, row.last_error), (State::Deadletter, looped), "{at}");
    }
    at_rest(&world);
}

#[test]
fn two_origins_with_one_segment_meet_at_a_hop() {
    let mut world = World::new(vec![
        routed("alpha", &["beta"], &[("gamma", "beta")]),
        routed("other", &["beta"], &[("gamma", "beta")]),
        routed("beta", &["alpha", "gamma", "other"], &[]),
        routed("gamma", &["beta"], &[]),
    ]);
    for name in ["alpha", "other", "beta"] {
        world.start(name);
    }
    world.wait(Duration::from_secs(1));
    let id = world.send("alpha", "same", b"twice", &["gamma"]).unwrap();
    assert_eq!(world.send("other", "same", b"twice", &["gamma"]), Ok(id));
    world.wait(Duration::from_secs(1));
    world.kill("beta");
    world.start("beta");
    world.start("gamma");
    world.wait(Duration::from_secs(60));
    for at in ["alpha", "other"] {
        assert_eq!(state(&world, at, id, "gamma"), Some(State::Acked), "{at}");
    }
    at_rest(&world);
    // And a third time, when everything is over.
    assert_eq!(world.send("other", "same", b"twice", &["gamma"]), Ok(id));
    world.wait(Duration::from_secs(1));
    at_rest(&world);
}

#[test]
fn a_longer_chain_both_ways_at_once() {
    let names = ["s0", "s1", "s2", "s3", "s4"];
    let site = |i: usize| {
        let near: Vec<&str> =
            [i.wrapping_sub(1), i + 1].into_iter().filter_map(|j| names.get(j).copied()).collect();
        let far = |j: usize| (names[j], names[if j < i { i - 1 } else { i + 1 }]);
        let routes: Vec<_> = (0..names.len()).filter(|j| j.abs_diff(i) > 1).map(far).collect();
        routed(names[i], &near, &routes)
    };
    let mut world = World::new((0..names.len()).map(site).collect());
    all(&mut world);
    let there = world.send("s0", "there", b"down", &["s1", "s2", "s3", "s4"]).unwrap();
    let back = world.send("s4", "back", &[5; 100_000], &["s0"]).unwrap();
    world.wait(Duration::from_secs(2));
    for at in ["s1", "s2", "s3", "s4"] {
        assert!(world.content(at, there).is_some(), "{at}");
        assert_eq!(state(&world, "s0", there, at), Some(State::Acked), "{at}");
    }
    assert_eq!(state(&world, "s4", back, "s0"), Some(State::Acked));
    assert!(world.content("s0", back).is_some());
    at_rest(&world);
}

#[test]
fn a_site_that_passes_it_on_becomes_its_destination_too() {
    let mut world = chain();
    all(&mut world);
    let id = world.send("alpha", "one", b"hello", &["gamma"]).unwrap();
    world.wait(Duration::from_secs(1));
    assert!(!segment(&world, "beta", id).here);
    world.send("alpha", "one", b"hello", &["beta"]).unwrap();
    world.wait(Duration::from_secs(1));
    assert!(segment(&world, "beta", id).here, "R1");
    assert_eq!(state(&world, "alpha", id, "beta"), Some(State::Acked));
    // Its own accept coming back does not make a site a destination.
    world.send("gamma", "two", b"hello", &["beta"]).unwrap();
    world.wait(Duration::from_secs(1));
    assert!(!segment(&world, "alpha", id).here);
    at_rest(&world);
}
