//! What drawn runs found once: each failure, told as the shortest story that shows it.

use super::{Stage, Story, seconds};
use crate::sim::keeping::Keeping;
use crate::sim::net::{LinkSpec, Topology};
use crate::sim::seen::Death;

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "lost-file-found-at-every-start",
        about: "a start finds the same content missing again, after somebody has brought it anew",
        tell: lost_file_again,
    },
    Story {
        name: "lost-file-fetched-again",
        about: "a start finds content missing, and the site that has acked it gives it back",
        tell: lost_file_comes_back,
    },
    Story {
        name: "lost-file-handed-in-for-another",
        about: "what was for a site and lost there is handed in there for another, handed on and evicted",
        tell: lost_file_for_another,
    },
    Story {
        name: "link-that-takes-nothing",
        about: "offers that the kernel has not taken wait for longer than answers may",
        tell: link_takes_nothing,
    },
];

/// The second start took id and digest away from the new copy.
fn lost_file_again(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |options| options.knobs.inline_max = 0);
    stage.start();
    let id = stage.send_as(0, "kept", 7, 9_000, &[1]);
    stage.pass(seconds(5));
    // Who has it too would give it back.
    stage.world.die(1, Death::Killed);
    restart(stage, 1_000_000);
    if stage.world.holds(0, &id) {
        return Err("the file was not lost".into());
    }
    stage.send_as(0, "kept", 7, 9_000, &[1]);
    stage.pass(seconds(5));
    restart(stage, 0);
    stage.world.start(1);
    stage.pass(seconds(60));
    match stage.world.holds(0, &id) {
        true => Ok(()),
        false => Err("the copy that was brought anew is not known any more".into()),
    }
}

/// What one site has lost, the other has: it is asked for, and is there again.
fn lost_file_comes_back(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |options| options.knobs.inline_max = 0);
    stage.start();
    let id = stage.send_as(0, "kept", 7, 9_000, &[1]);
    stage.pass(seconds(5));
    restart(stage, 1_000_000);
    stage.pass(seconds(60));
    match stage.world.holds(0, &id) {
        true => Ok(()),
        false => Err("what was lost has not come back".into()),
    }
}

/// The auditor took the copy that is only handed on for the one that was lost.
fn lost_file_for_another(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |options| {
        options.knobs.inline_max = 0;
        options.keeping = Keeping { evict: true, ..Keeping::usual() };
    });
    stage.start();
    let id = stage.send_as(1, "kept", 7, 9_000, &[0]);
    stage.pass(seconds(5));
    restart(stage, 1_000_000);
    if stage.world.holds(0, &id) || stage.world.holds(1, &id) {
        return Err("somebody has it".into());
    }
    stage.send_as(0, "kept", 7, 9_000, &[1]);
    stage.pass(seconds(60));
    match (stage.world.holds(0, &id), stage.world.holds(1, &id)) {
        (false, true) => Ok(()),
        (here, there) => Err(format!("here it is kept: {here}, where it is for: {there}")),
    }
}

/// The first site starts again; of a million such starts, so many find a content file gone.
fn restart(stage: &mut Stage, lost: u32) {
    stage.world.die(0, Death::Killed);
    stage.world.sites[0].store.faults.restart_lost = lost;
    stage.world.start(0);
    stage.world.sites[0].store.faults.restart_lost = 0;
    stage.pass(seconds(5));
}

/// Each offer that stayed on this side for `ack_timeout` spent a retry.
fn link_takes_nothing(stage: &mut Stage) -> Result<(), String> {
    stage.set(2, Topology::Line, |options| {
        options.knobs.ack_timeout = seconds(2);
        options.knobs.max_retries = 1;
    });
    // Less than one offer with its body.
    let narrow = LinkSpec { send_buffer: 16 << 10, ..LinkSpec::default() };
    stage.world.net.set_link(0, 1, narrow);
    stage.start();
    let now = stage.world.now;
    stage.world.net.clog(now, 0, 1);
    for _ in 0..20 {
        stage.send(0, 60_000, &[1]);
    }
    stage.pass(seconds(30));
    let now = stage.world.now;
    stage.world.net.unclog(now, 0, 1);
    let within = seconds(3_600);
    stage.until("the queue", within, |world| world.watch.audit.owed() == 0)?;
    match stage.world.watch.audit.totals().dead {
        0 => Ok(()),
        dead => Err(format!("{dead} are given up for a link that took nothing")),
    }
}
