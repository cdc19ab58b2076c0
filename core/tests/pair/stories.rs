//! Stories of two and three sites, checked by what crossed and by the ledger's transitions.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::id::BodyNo;
use consign_core::ledger::{Table, keys};

use crate::world::{World, config};

fn pair() -> World {
    World::new(vec![config("alpha", &["beta"]), config("beta", &["alpha"])])
}

fn body(n: usize, salt: u8) -> Vec<u8> {
    (0..n).map(|i| (i as u64).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ salt).collect()
}

#[test]
fn a_segment_waits_for_its_site_and_crosses_when_it_comes() {
    let mut world = pair();
    world.start("alpha");
    let id = world.send("alpha", "one", b"hello", &["beta"]).unwrap();
    world.wait(Duration::from_secs(5));
    assert_eq!(world.take_trace(), ["alpha one beta: none -> Scheduled #0"]);
    world.start("beta");
    world.wait(Duration::from_secs(1));
    assert_eq!(world.content("beta", id).as_deref(), Some(&b"hello"[..]));
    let trace = world.take_trace();
    let expected =
        ["alpha one beta: Scheduled -> Inflight #1", "alpha one beta: Inflight -> Acked #1"];
    assert_eq!(trace, expected);
}

#[test]
fn contents_of_every_kind_of_length_cross_whole() {
    let mut world = pair();
    world.start("alpha");
    world.start("beta");
    world.wait(Duration::from_secs(1));
    let lengths = [0, 1, 1023, 65_535, 65_536, 65_537, 1 << 20, (16 << 20) + 1, (33 << 20) + 7];
    for (i, n) in lengths.into_iter().enumerate() {
        let content = body(n, i as u8);
        let id = world.send("alpha", &format!("n{n}"), &content, &["beta"]).unwrap();
        world.run();
        let there = world.content("beta", id);
        assert!(there.as_deref() == Some(&content[..]), "{n} bytes: {:?}", there.map(|t| t.len()));
    }
    assert_eq!(world.sites[0].store.rows(Table::Owed), 0);
    assert_eq!(world.sites[1].store.rows(Table::Incoming), 0);
}

#[test]
fn a_transfer_that_is_cut_again_and_again_goes_on_at_its_checkpoints() {
    let mut world = pair();
    world.start("alpha");
    let content = body(50 << 20, 9);
    let id = world.send("alpha", "big", &content, &["beta"]).unwrap();
    world.cut_after = Some(5 << 20);
    world.start("beta");
    for after in [18 << 20, 17 << 20, 3 << 20] {
        assert!(world.content("beta", id).is_none());
        world.cut_after = Some(after);
        while world.cut_after.is_some() {
            world.wait(Duration::from_millis(100));
        }
    }
    world.wait(Duration::from_secs(60));
    assert!(world.content("beta", id).as_deref() == Some(&content[..]));
    let retries = world.trace.iter().filter(|l| l.contains("session_lost")).count();
    assert!(retries >= 3, "{:?}", world.trace);
    assert_eq!(world.sites[1].store.files().count(), 1);
}

#[test]
fn either_side_may_die_at_any_moment_and_nothing_is_lost_or_doubled() {
    for victim in ["alpha", "beta"] {
        for after in (0..40_000).step_by(1_733) {
            let mut world = pair();
            world.start("alpha");
            let ids: Vec<_> = (0..30)
                .map(|i| {
                    let content = body(700 + i, i as u8);
                    (world.send("alpha", &format!("s{i}"), &content, &["beta"]).unwrap(), content)
                })
                .collect();
            world.cut_after = Some(after);
            world.start("beta");
            world.kill(victim);
            world.cut_after = None;
            world.start(victim);
            world.wait(Duration::from_secs(10));
            for (id, content) in &ids {
                assert_eq!(world.content("beta", *id).as_ref(), Some(content), "{victim} {after}");
            }
            assert_eq!(world.sites[1].store.rows(Table::Segments), 30);
            assert_eq!(world.sites[0].store.rows(Table::Owed), 0, "{victim} {after}");
            assert_eq!(world.sites[0].store.rows(Table::Inflight), 0);
        }
    }
}

#[test]
fn bytes_in_mouthfuls_of_any_size_come_to_the_same() {
    let mut traces = Vec::new();
    for mouthful in [1, 7, 64, 1_000, usize::MAX] {
        let mut world = pair();
        world.mouthful = mouthful;
        world.start("alpha");
        for i in 0..5 {
            world.send("alpha", &format!("s{i}"), &body(300, i), &["beta"]).unwrap();
        }
        world.start("beta");
        world.wait(Duration::from_secs(1));
        let mut trace = world.take_trace();
        trace.sort();
        traces.push(trace);
    }
    assert!(traces.windows(2).all(|w| w[0] == w[1]), "{traces:#?}");
}

#[test]
fn what_the_other_side_refuses_for_good_is_a_dead_letter_and_its_neighbours_cross() {
    let small = Config { max_segment: Some(1000), ..config("beta", &["alpha"]) };
    let mut world = World::new(vec![config("alpha", &["beta"]), small]);
    world.start("alpha");
    world.start("beta");
    for (name, n) in [("a", 10), ("b", 5_000), ("c", 100_000), ("d", 20)] {
        world.send("alpha", name, &body(n, 1), &["beta"]).unwrap();
    }
    world.wait(Duration::from_secs(1));
    let mut dead: Vec<_> =
        world.trace.iter().filter(|l| l.contains("Deadletter")).cloned().collect();
    dead.sort();
    let expected = [
        "alpha b beta: Inflight -> Deadletter #1 (too_large)",
        "alpha c beta: Inflight -> Deadletter #1 (too_large)",
    ];
    assert_eq!(dead, expected);
    assert_eq!(world.sites[1].store.rows(Table::Segments), 2);
}

#[test]
fn a_site_over_quota_gets_the_rest_when_there_is_room() {
    let small = Config { max_bytes: 40_000, ..config("beta", &["alpha"]) };
    let mut world = World::new(vec![config("alpha", &["beta"]), small]);
    world.start("alpha");
    for i in 0..10 {
        world.send("alpha", &format!("s{i}"), &body(8_000, i), &["beta"]).unwrap();
    }
    world.start("beta");
    world.wait(Duration::from_secs(30));
    let held = world.sites[1].store.rows(Table::Segments);
    assert!((1..10).contains(&held), "{held}");
    assert!(world.trace.iter().any(|l| l.contains("(quota)")));
    assert_eq!(world.sites[0].store.rows(Table::Deadletters), 0, "quota spends nothing");
    world.kill("beta");
    let beta = world.index("beta");
    world.sites[beta].config.max_bytes = 1 << 30;
    world.start("beta");
    world.wait(Duration::from_secs(900));
    assert_eq!(world.sites[1].store.rows(Table::Segments), 10);
    assert_eq!(world.sites[0].store.rows(Table::Owed), 0);
}

#[test]
fn both_sides_may_send_at_once_over_one_session() {
    let mut world = pair();
    world.start("alpha");
    world.start("beta");
    for i in 0..50 {
        world.send("alpha", &format!("a{i}"), &body(2_000, i), &["beta"]).unwrap();
        world.send("beta", &format!("b{i}"), &body(90_000, i), &["alpha"]).unwrap();
    }
    world.wait(Duration::from_secs(1));
    for site in &world.sites {
        assert_eq!(site.store.rows(Table::Segments), 100);
        assert_eq!(site.store.rows(Table::Owed), 0);
    }
}

#[test]
fn three_sites_each_get_what_is_theirs() {
    let mut world = World::new(vec![
        config("alpha", &["beta", "gamma"]),
        config("beta", &["alpha", "gamma"]),
        config("gamma", &["alpha", "beta"]),
    ]);
    for name in ["alpha", "beta", "gamma"] {
        world.start(name);
    }
    let both = world.send("alpha", "both", b"for two", &["beta", "gamma"]).unwrap();
    let one = world.send("beta", "one", b"for one", &["gamma"]).unwrap();
    world.wait(Duration::from_secs(1));
    for (at, id, there) in
        [("beta", both, true), ("gamma", both, true), ("gamma", one, true), ("alpha", one, false)]
    {
        assert_eq!(world.content(at, id).is_some(), there, "{at}");
    }
    assert!(world.sites.iter().all(|s| s.store.rows(Table::Owed) == 0));
}

#[test]
fn damaged_content_comes_back_from_the_other_side() {
    for (at, size) in [("beta", 300_000), ("alpha", 3_000)] {
        let mut world = pair();
        world.start("alpha");
        world.start("beta");
        world.wait(Duration::from_secs(1));
        let content = body(size, 7);
        let id = world.send("alpha", "one", &content, &["beta"]).unwrap();
        world.send("alpha", "two", b"whole", &["beta"]).unwrap();
        world.wait(Duration::from_secs(1));
        world.take_trace();
        let store = &mut world.sites[usize::from(at == "beta")].store;
        let blob = store.files().map(|(blob, _)| blob).next();
        match blob {
            Some(blob) => store.plant_file(blob, b"something else"),
            None => assert!(store.flip(Table::Bodies, &keys::body(BodyNo(1)), 9)),
        }
        // The scrub finds it within a day. The one who gave it and the one who got it help each other.
        world.wait(Duration::from_secs(25 * 3600));
        assert!(world.content(at, id).as_deref() == Some(&content[..]), "{size} bytes at {at}");
        let store = &world.sites[usize::from(at == "beta")].store;
        assert_eq!(store.rows(Table::Audit), 1);
        assert_eq!(store.files().count(), usize::from(blob.is_some()), "the old one is gone");
        assert!(blob.is_none_or(|old| store.files().all(|(blob, _)| blob != old)));
        assert_eq!(world.take_trace(), Vec::<String>::new(), "no delivery has moved");
    }
}
