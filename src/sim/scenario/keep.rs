//! Stories of copies that are let go: the traces that the model's rules were found by.

use std::time::Duration;

use consign_core::segment::{Destinations, Meta};

use super::{Stage, Story, seconds};
use crate::sim::client::{Job, content};
use crate::sim::keeping::{GHOST, Keeping, Routes};
use crate::sim::net::Topology;
use crate::sim::swarm::{Kind, Options};

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "everybody-hands-on-and-lets-go",
        about: "a triangle in which everybody evicts: those it is for keep it all the same (R1)",
        tell: triangle,
    },
    Story {
        name: "accepted-again-after-eviction",
        about: "what was handed on, evicted and remembered is accepted once more, and goes once more (R2)",
        tell: accepted_again,
    },
    Story {
        name: "route-in-a-circle",
        about: "routes lead in a circle to a site that exists nowhere; its origin keeps it (R3)",
        tell: circle,
    },
    Story {
        name: "hop-gives-up-and-forgets",
        about: "a hop gives up what it has custody of and purges its dead letter; its origin knows (R4)",
        tell: hop_gives_up,
    },
    Story {
        name: "offered-again-while-it-goes",
        about: "a link breaks again and again while the hop behind it hands on and evicts (G1)",
        tell: offered_again,
    },
];

/// Sites that let go at once what they have handed on, and reach others by way of their neighbours.
fn evicting(options: &mut Options) {
    options.keeping = Keeping { evict: true, routes: Routes::Towards, ..Keeping::usual() };
}

fn holds(
    stage: &Stage,
    ix: usize,
    id: &consign_core::id::SegmentId,
    wanted: bool,
) -> Result<(), String> {
    match stage.world.holds(ix, id) == wanted {
        true => Ok(()),
        false => Err(format!("site {ix} holds it: {}", !wanted)),
    }
}

fn triangle(stage: &mut Stage) -> Result<(), String> {
    stage.set(3, Topology::Mesh, evicting);
    stage.start();
    let id = stage.send(0, 700, &[]);
    stage.pass(seconds(120));
    holds(stage, 0, &id, false)?;
    holds(stage, 1, &id, true)?;
    holds(stage, 2, &id, true)
}

fn accepted_again(stage: &mut Stage) -> Result<(), String> {
    stage.set(3, Topology::Line, evicting);
    stage.start();
    let id = stage.send_as(0, "kept", 7, 700, &[2]);
    stage.pass(seconds(30));
    holds(stage, 0, &id, false)?;
    holds(stage, 1, &id, false)?;
    stage.send_as(0, "kept", 7, 700, &[1, 2]);
    stage.pass(seconds(30));
    holds(stage, 1, &id, true)?;
    holds(stage, 2, &id, true)?;
    match stage.world.watch.audit.totals().dead {
        0 => Ok(()),
        dead => Err(format!("{dead} dead")),
    }
}

fn circle(stage: &mut Stage) -> Result<(), String> {
    stage.set(3, Topology::Ring, |options| {
        evicting(options);
        options.keeping.routes = Routes::Loop;
    });
    stage.start();
    let meta = Meta { name: "nowhere".to_string(), ..Meta::default() };
    let to = Destinations::named(vec![GHOST.to_string()]).unwrap_or(Destinations::All);
    let job = Job::new(meta, to, content(1, 700));
    let id = job.id;
    stage.world.submit(0, job, true);
    stage.pass(seconds(300));
    holds(stage, 0, &id, true)?;
    match stage.world.watch.audit.totals().dead {
        0 => Err("nobody gave it up".into()),
        _ => Ok(()),
    }
}

fn hop_gives_up(stage: &mut Stage) -> Result<(), String> {
    stage.set(3, Topology::Line, |options| {
        evicting(options);
        options.keeping.keep_deadletter = seconds(30);
        // The last site refuses what is as long as this.
        options.rates.set(Kind::Poison, 1);
    });
    stage.start();
    let id = stage.send(0, 30_000, &[2]);
    stage.pass(seconds(300));
    holds(stage, 0, &id, true)?;
    match stage.world.watch.audit.totals().dead {
        2 => Ok(()),
        dead => Err(format!("{dead} gave it up, not the hop and its origin")),
    }
}

fn offered_again(stage: &mut Stage) -> Result<(), String> {
    stage.set(3, Topology::Line, |options| {
        evicting(options);
        options.rates.set(Kind::SlowCommit, 2_000_000);
    });
    stage.world.set_rates();
    stage.start();
    for round in 0..120_u64 {
        for _ in 0..5 {
            stage.send(0, 300, &[2]);
        }
        stage.pass(Duration::from_micros(1_000 + 400 * round));
        let now = stage.world.now;
        stage.world.net.cut(now, 0, 1);
        stage.pass(Duration::from_millis(500));
        let now = stage.world.now;
        stage.world.net.restore(now, 0, 1);
        stage.pass(seconds(2));
    }
    stage.until("the queue", seconds(1_800), |world| world.watch.audit.owed() == 0)
}
