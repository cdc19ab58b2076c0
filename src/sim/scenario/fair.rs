//! Stories of peers in trouble, and of others that must not notice; of peers that are sent to at their
//! own hours and pace.

use std::time::Duration;

use consign_core::segment::Class;
use consign_core::time::Now;

use super::{Stage, Story, seconds};
use crate::sim::net::{LinkSpec, Topology};
use crate::sim::seen::SiteIx;

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "three-bad-peers-of-eight",
        about: "one peer is dead, one reads a byte a second, one refuses every third segment: for the \
                five others nothing waits longer than two seconds",
        tell: three_bad_peers,
    },
    Story {
        name: "paced-peer-and-urgent-work",
        about: "a backlog goes out at its rate and no faster, and what is urgent passes it",
        tell: paced_peer,
    },
    Story {
        name: "slow-source-gives-way",
        about: "two sites hold what a third wants; the slow one has begun, the fast one takes over",
        tell: slow_source,
    },
];

/// What a healthy peer waits at most, from the hand-in to the arrival, whatever others do.
const BOUND: Duration = Duration::from_secs(2);

const DEAD: SiteIx = 1;
const SLOW: SiteIx = 2;
const PICKY: SiteIx = 3;
const HEALTHY: [SiteIx; 5] = [4, 5, 6, 7, 8];

fn three_bad_peers(stage: &mut Stage) -> Result<(), String> {
    stage.set(9, Topology::Star, |_| {});
    stage.world.sites[PICKY].config.max_segment = Some(1_000);
    for ix in (0..9).filter(|ix| *ix != DEAD) {
        stage.world.start(ix);
    }
    stage.pass(seconds(2));
    stage.world.net.set_link(0, SLOW, LinkSpec { bandwidth: 1, ..LinkSpec::default() });
    for round in 0..600 {
        // Every third is more than the picky one takes.
        let len = if round % 3 == 0 { 1_500 } else { 500 };
        for ix in [DEAD, SLOW, PICKY] {
            stage.send(0, len, &[ix]);
        }
        let id = stage.send(0, len, &HEALTHY);
        stage.until(&format!("segment {round}"), BOUND, |world| {
            HEALTHY.iter().all(|ix| world.holds(*ix, &id))
        })?;
        stage.pass(seconds(10));
    }
    let held = in_flight(stage, SLOW);
    stage.world.net.set_link(0, SLOW, LinkSpec::default());
    match held {
        0..=256 => Ok(()),
        held => Err(format!("{held} deliveries are in flight to a peer that reads nothing")),
    }
}

/// Deliveries that site 0 has in flight to another.
fn in_flight(stage: &Stage, ix: SiteIx) -> u64 {
    let name = &stage.world.sites[ix].config.name;
    let Some(process) = &stage.world.sites[0].process else { return 0 };
    let status = process.node().status(Now::default());
    let peer = status.peers.iter().find(|peer| peer.name == *name);
    peer.map_or(0, |peer| peer.counters[1].count)
}

/// 100 segments of 10,000 bytes at 20,000 bytes a second take 50 seconds; something urgent that comes
/// in their midst takes three, and so does what comes while something large is under way.
fn paced_peer(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |_| {});
    let peer = stage.world.sites[1].config.name.clone();
    for known in &mut stage.world.sites[0].config.peers {
        known.rate_limit = (known.name == peer).then_some(20_000);
    }
    stage.start();
    let backlog: Vec<_> = (0..100).map(|_| stage.send(0, 10_000, &[1])).collect();
    stage.pass(seconds(20));
    let arrived = backlog.iter().filter(|id| stage.world.holds(1, id)).count();
    // Twenty seconds and a burst, of which the first seconds are the start's.
    if !(30..=47).contains(&arrived) {
        return Err(format!("{arrived} of 100 segments went out in 20 seconds, 40 are its pace"));
    }
    let urgent = stage.send_class(0, 500, &[1], Class::Urgent);
    stage.until("something urgent", seconds(3), |world| world.holds(1, &urgent))?;
    stage.pass(seconds(45));
    let large = stage.send(0, 400_000, &[1]);
    stage.pass(seconds(3));
    let small = stage.send(0, 500, &[1]);
    stage.until("something small", seconds(3), |world| world.holds(1, &small))?;
    match stage.world.holds(1, &large) {
        true => Err("what is large went faster than its pace".into()),
        false => Ok(()),
    }
}

/// The slow source's link carries 20,000 bytes a second: less than 64 KiB.
fn slow_source(stage: &mut Stage) -> Result<(), String> {
    stage.set(3, Topology::Mesh, |_| {});
    for ix in [0, 1] {
        stage.world.net.set_link(ix, 2, LinkSpec { bandwidth: 20_000, ..LinkSpec::default() });
    }
    stage.start();
    let id = stage.send_as(0, "wanted", 1, 4 << 20, &[2]);
    stage.pass(seconds(15));
    stage.world.net.set_link(1, 2, LinkSpec::default());
    stage.send_as(1, "wanted", 1, 4 << 20, &[2]);
    // The slow one would take three minutes more.
    stage.until("the fast one's copy", seconds(30), |world| world.holds(2, &id))?;
    stage.world.net.set_link(0, 2, LinkSpec::default());
    Ok(())
}
