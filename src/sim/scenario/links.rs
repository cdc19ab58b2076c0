//! Stories of links that go away.

use super::{Stage, Story, seconds};
use crate::sim::net::Topology;

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "flapping-link",
        about: "a link breaks every few seconds with 1,000 deliveries in flight",
        tell: flapping_link,
    },
    Story {
        name: "four-site-loop",
        about: "four sites in a ring pass a segment for everybody on, and it ends",
        tell: four_site_loop,
    },
    Story {
        name: "ferry",
        about: "a boat carries segments between shores that never meet",
        tell: ferry,
    },
    Story {
        name: "peer-away-for-a-day",
        about: "a peer is away for a day; nothing is spent on it, and its queue goes out at once",
        tell: peer_away,
    },
];

fn flapping_link(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |_| {});
    stage.start();
    for _ in 0..1_000 {
        stage.send(0, 500, &[1]);
    }
    for _ in 0..30 {
        let now = stage.world.now;
        stage.world.net.cut(now, 0, 1);
        stage.pass(seconds(2));
        let now = stage.world.now;
        stage.world.net.restore(now, 0, 1);
        stage.pass(seconds(3));
    }
    let totals = stage.world.watch.audit.totals();
    match (totals.queued, totals.dead) {
        (1_000, 0) => Ok(()),
        (queued, dead) => Err(format!("{queued} of 1000 queued, {dead} dead for a bad link")),
    }
}

fn four_site_loop(stage: &mut Stage) -> Result<(), String> {
    stage.set(4, Topology::Ring, |_| {});
    stage.start();
    let id = stage.send(0, 700, &[]);
    stage.pass(seconds(60));
    match (1..4).find(|ix| !stage.world.holds(*ix, &id)) {
        None => Ok(()),
        Some(ix) => Err(format!("site {ix} never got it")),
    }
}

fn ferry(stage: &mut Stage) -> Result<(), String> {
    stage.set(4, Topology::Ferry, |_| {});
    stage.start();
    let id = stage.send(1, 700, &[]);
    stage.until("the segment at the boat and every shore", seconds(4 * 3600), |world| {
        [0, 2, 3].iter().all(|ix| world.holds(*ix, &id))
    })
}

fn peer_away(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |_| {});
    stage.world.start(0);
    for _ in 0..50 {
        stage.send(0, 500, &[1]);
    }
    stage.pass(seconds(24 * 3600));
    stage.world.start(1);
    let within = seconds(20 * 60);
    stage.until("the queue", within, |world| world.watch.audit.owed() == 0)?;
    match stage.world.watch.audit.totals().dead {
        0 => Ok(()),
        dead => Err(format!("{dead} dead because the peer was away")),
    }
}
