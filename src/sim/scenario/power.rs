//! Stories of processes that end and clocks that jump.

use super::{Stage, Story, seconds};
use crate::sim::net::Topology;
use crate::sim::seen::Death;

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "power-cuts-at-both-ends",
        about: "the power goes at sender and receiver in turn, every few moments",
        tell: cuts_at_both_ends,
    },
    Story {
        name: "killed-while-starting",
        about: "a site with much in flight is killed again and again while it reconciles",
        tell: killed_while_starting,
    },
    Story {
        name: "file-cut-in-the-middle",
        about: "the receiver of a large file loses power between two checkpoints",
        tell: file_cut,
    },
    Story {
        name: "clock-jumps-back",
        about: "a sender's clock is set back ten years, and to 1970 while it is down",
        tell: clock_jumps_back,
    },
    Story {
        name: "stopped-in-full-flight",
        about: "a site is asked to stop with everything under way",
        tell: stopped_in_flight,
    },
];

fn cuts_at_both_ends(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |_| {});
    stage.start();
    for round in 0..60_u64 {
        for _ in 0..5 {
            stage.send(0, 300, &[1]);
        }
        stage.pass(std::time::Duration::from_micros(900 + 3_700 * round));
        let ix = (round % 2) as usize;
        stage.world.die(ix, Death::PowerCut);
        stage.pass(seconds(1));
        stage.world.start(ix);
    }
    Ok(())
}

fn killed_while_starting(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |_| {});
    stage.start();
    for _ in 0..600 {
        stage.send(0, 200, &[1]);
    }
    for round in 0..40_u64 {
        stage.pass(std::time::Duration::from_micros(200 + 400 * round));
        stage.world.die(0, Death::Killed);
        stage.world.start(0);
    }
    Ok(())
}

fn file_cut(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |options| {
        options.knobs.inline_max = 0;
        options.knobs.checkpoint_every = 64 << 10;
    });
    stage.start();
    let id = stage.send(0, 3 << 20, &[1]);
    for round in 0..6_u64 {
        stage.pass(std::time::Duration::from_millis(7 + 5 * round));
        stage.world.die(1, Death::PowerCut);
        stage.pass(seconds(1));
        stage.world.start(1);
    }
    let within = seconds(3_600);
    stage.until("the file", within, |world| world.watch.audit.owed() == 0)?;
    if stage.world.holds(1, &id) { Ok(()) } else { Err("the file never came".into()) }
}

fn clock_jumps_back(stage: &mut Stage) -> Result<(), String> {
    const YEARS: i64 = 10 * 365 * 24 * 3_600_000;
    stage.set(2, Topology::Line, |_| {});
    stage.start();
    let now = stage.world.now;
    stage.world.net.cut(now, 0, 1);
    for _ in 0..20 {
        stage.send(0, 300, &[1]);
    }
    stage.pass(seconds(30));
    stage.world.sites[0].clocks.step(-YEARS);
    stage.pass(seconds(30));
    stage.world.die(0, Death::PowerCut);
    let now = stage.world.now;
    stage.world.sites[0].clocks.reset(now);
    stage.world.start(0);
    stage.world.net.restore(now, 0, 1);
    let within = seconds(20 * 60);
    stage.until("the queue", within, |world| world.watch.audit.owed() == 0)
}

fn stopped_in_flight(stage: &mut Stage) -> Result<(), String> {
    stage.set(3, Topology::Mesh, |_| {});
    stage.start();
    for round in 0..20_u64 {
        for _ in 0..20 {
            stage.send(0, 400, &[1, 2]);
        }
        stage.pass(std::time::Duration::from_micros(500 * round));
        stage.world.stop((round % 3) as usize);
        stage.pass(seconds(60));
    }
    Ok(())
}
