//! Shards, clients and nodes: what each rule of pickup (P1 to P5) is there for, and a node that is gone.

use std::time::Duration;

use super::{Stage, Story, seconds};
use crate::sim::net::{NetFaults, Topology};
use crate::sim::pickup::draw::{Pickup, Tricks};
use crate::sim::seen::Death;
use crate::sim::swarm::Kind;
use crate::sim::world::World;

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "pickup-old-acks",
        about: "shards are given up and begun anew, while acks come late, twice and under old numbers (P1)",
        tell: old_acks,
    },
    Story {
        name: "pickup-broken-fetches",
        about: "fetches break off again and again, and one failed ack would be enough to give up (P2)",
        tell: broken_fetches,
    },
    Story {
        name: "pickup-killed-site",
        about: "the site is killed and loses its power again and again while nodes fetch (P3)",
        tell: killed_site,
    },
    Story {
        name: "pickup-slow-fetches",
        about: "fetches outlive the grace, and end when a later one of the same shard is under way (P4)",
        tell: slow_fetches,
    },
    Story {
        name: "pickup-ignored-notices",
        about: "a node ignores most of what it is notified of, one shard at a time (P5)",
        tell: ignored_notices,
    },
    Story {
        name: "pickup-rot",
        about: "content of shards rots where it lies: the scrub finds some, and fetches the rest",
        tell: rotten,
    },
    Story {
        name: "pickup-nodes-that-crash",
        about: "nodes crash, come twice, race, and send forged requests and old ones again",
        tell: restless_nodes,
    },
];

fn rotten(stage: &mut Stage) -> Result<(), String> {
    quay(stage, |pickup| (pickup.large, pickup.tricks.ignored) = (1_000_000, 1_000_000));
    stage.pass(seconds(120));
    let rot = |stage: &mut Stage| {
        for _ in 0..5 {
            stage.world.sites[0].store.rot_some_file();
        }
        stage.world.facts(0);
        stage.world.watch.audit.spoiled()
    };
    // Nobody fetches anything for a day: the scrub comes by.
    let spoiled = rot(stage);
    stage.pass(seconds(25 * 3600));
    let (left, given_up) = (stage.world.watch.audit.spoiled(), stage.world.watch.audit.given_up());
    if spoiled == 0 || left > 0 || given_up != spoiled as u64 {
        return Err(format!("{spoiled} have rotted, {left} still wait, {given_up} are given up"));
    }
    // Then nodes behave, and find the next ones themselves.
    match rot(stage) {
        0 => Err("nothing has rotted".into()),
        _ => Ok(()),
    }
}

/// One site with so many shards, all uploaded within the first minute.
fn quay(stage: &mut Stage, change: impl FnOnce(&mut Pickup)) {
    stage.set(1, Topology::Line, |options| {
        options.length = Duration::from_secs(60);
        let mut pickup = Pickup { sites: 1, nodes: 2, clients: 2, shards: 40, ..Pickup::none() };
        change(&mut pickup);
        options.keeping.pickup = pickup;
    });
    stage.start();
}

/// Every shard is handed over to its node: none is given up on the way.
fn all_stored(stage: &mut Stage, shards: u64) -> Result<(), String> {
    let stored = |world: &World| world.watch.audit.totals().stored;
    stage.until("every shard", seconds(3_600), |world| stored(world) >= shards)?;
    match stage.world.watch.broken {
        Some(_) => Ok(()),
        None if stored(&stage.world) == shards => Ok(()),
        None => Err(format!("{} shards are stored, of {shards}", stored(&stage.world))),
    }
}

fn old_acks(stage: &mut Stage) -> Result<(), String> {
    quay(stage, |pickup| {
        pickup.ttl = seconds(10);
        pickup.keep_history = seconds(20);
        pickup.token_ttl = seconds(5);
        pickup.tricks =
            Tricks { acks: 700_000, contested: 400_000, ignored: 400_000, ..Tricks::default() };
    });
    stage.pass(seconds(120));
    Ok(())
}

fn broken_fetches(stage: &mut Stage) -> Result<(), String> {
    quay(stage, |pickup| {
        pickup.max_pickups = 1;
        pickup.large = 500_000;
        pickup.tricks.leaves = 700_000;
    });
    stage.pass(seconds(600));
    // Nothing fails but fetches: nobody has said `failed`, so that none is given up.
    let given_up = stage.world.watch.audit.given_up();
    if given_up > 0 { Err(format!("{given_up} shards were given up")) } else { Ok(()) }
}

fn killed_site(stage: &mut Stage) -> Result<(), String> {
    quay(stage, |pickup| pickup.large = 300_000);
    for i in 0..40 {
        let how = if i % 2 == 0 { Death::Killed } else { Death::PowerCut };
        stage.world.die(0, how);
        stage.world.start(0);
        stage.pass(Duration::from_millis(700 + 37 * i));
    }
    all_stored(stage, 40)
}

fn slow_fetches(stage: &mut Stage) -> Result<(), String> {
    quay(stage, |pickup| {
        pickup.transit_grace = seconds(1);
        pickup.token_ttl = seconds(5);
        pickup.large = 700_000;
        pickup.tricks.races = 300_000;
    });
    stage.world.quay.net.faults = NetFaults { silences: 200_000, drips: 50_000, ..NetFaults::NONE };
    // Threads come late: the end of a fetch may be told when the next one is under way.
    stage.world.rates.set(Kind::Starved, 500_000);
    stage.pass(seconds(300));
    Ok(())
}

fn ignored_notices(stage: &mut Stage) -> Result<(), String> {
    quay(stage, |pickup| {
        (pickup.window, pickup.token_ttl) = (1, seconds(2));
        pickup.tricks.ignored = 600_000;
    });
    all_stored(stage, 40)
}

fn restless_nodes(stage: &mut Stage) -> Result<(), String> {
    quay(stage, |pickup| {
        pickup.crashes = 3_000_000;
        pickup.token_ttl = seconds(20);
        pickup.tricks = Tricks {
            races: 400_000,
            forged: 400_000,
            twice: 600_000,
            acks: 300_000,
            failed: 200_000,
            ..Tricks::default()
        };
    });
    for _ in 0..60 {
        stage.world.quay_weather(12);
        stage.pass(seconds(5));
    }
    all_stored(stage, 40)
}
