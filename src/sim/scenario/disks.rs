//! Stories of disks that are full, slow or broken.

use super::{Stage, Story, seconds};
use crate::sim::net::Topology;
use crate::sim::swarm::Kind;

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "disk-fills-at-the-receiver",
        about: "the receiver's disk is full for a minute in the middle of a burst",
        tell: full_at_the_receiver,
    },
    Story {
        name: "disk-fills-at-the-sender",
        about: "the sender's disk is full while its queue drains",
        tell: full_at_the_sender,
    },
    Story {
        name: "commits-fail-after-effect",
        about: "every tenth commit reports an error although it took effect",
        tell: after_effect,
    },
    Story { name: "disk-stalls", about: "every hundredth call takes up to a minute", tell: stalls },
];

fn full_at_the_receiver(stage: &mut Stage) -> Result<(), String> {
    full_at(stage, 1)
}

fn full_at_the_sender(stage: &mut Stage) -> Result<(), String> {
    full_at(stage, 0)
}

fn full_at(stage: &mut Stage, ix: usize) -> Result<(), String> {
    stage.set(2, Topology::Line, |_| {});
    stage.start();
    for _ in 0..200 {
        stage.send(0, 2_000, &[1]);
    }
    stage.pass(std::time::Duration::from_millis(20));
    stage.world.fill(ix, true);
    for _ in 0..100 {
        stage.send(0, 2_000, &[1]);
    }
    stage.pass(seconds(60));
    stage.world.fill(ix, false);
    let within = seconds(30 * 60);
    stage.until("the queue", within, |world| world.watch.audit.owed() == 0)?;
    match stage.world.watch.audit.totals().dead {
        0 => Ok(()),
        dead => Err(format!("{dead} dead because a disk was full")),
    }
}

fn after_effect(stage: &mut Stage) -> Result<(), String> {
    troubled(stage, Kind::AfterEffect, 100_000)
}

fn stalls(stage: &mut Stage) -> Result<(), String> {
    troubled(stage, Kind::Stall, 10_000)
}

/// Two sites at work with one kind of trouble.
fn troubled(stage: &mut Stage, kind: Kind, rate: u32) -> Result<(), String> {
    stage.set(2, Topology::Line, |_| {});
    stage.world.rates.set(kind, rate);
    stage.world.set_rates();
    stage.start();
    for round in 0..100_u64 {
        for _ in 0..5 {
            stage.send((round % 2) as usize, 700, &[((round + 1) % 2) as usize]);
        }
        stage.pass(std::time::Duration::from_millis(50));
    }
    Ok(())
}
