//! Configurations that change while sites run: what one takes away, another gives back, and nothing is lost between.

use std::time::Duration;

use consign_core::config::{Config, SuccessCondition};

use super::{Stage, Story, seconds};
use crate::sim::keeping::Keeping;
use crate::sim::net::Topology;

/// What is told here.
pub const STORIES: &[Story] = &[
    Story {
        name: "peer-leaves-and-comes-back",
        about: "a peer leaves the configuration again and again while much is owed to it, and is served when it is back",
        tell: comes_and_goes,
    },
    Story {
        name: "limits-lowered-below-what-is-kept",
        about: "quotas, retries and times shrink below what is kept and spent already, and grow again",
        tell: shrinks,
    },
    Story {
        name: "condition-changes-under-way",
        about: "one peer is enough, then all are needed, then one, while segments go out and are evicted",
        tell: wavers,
    },
];

fn begin(on: &mut Stage, change: impl FnOnce(&mut Keeping)) {
    on.set(3, Topology::Mesh, |options| {
        change(&mut options.keeping);
        options.knobs.ack_timeout = seconds(10);
    });
    on.start();
}

/// A site reads another configuration, as it is when the old one is changed like that.
fn reload(stage: &mut Stage, ix: usize, change: impl FnOnce(&mut Config)) {
    let mut config = stage.world.sites[ix].config.clone();
    change(&mut config);
    stage.world.reconfigure(ix, config);
    stage.pass(Duration::from_millis(50));
}

fn delivered(stage: &mut Stage) -> Result<(), String> {
    stage.until("the queue", seconds(3_600), |world| world.watch.audit.owed() == 0)
}

fn comes_and_goes(on: &mut Stage) -> Result<(), String> {
    begin(on, |_| {});
    let whole = on.world.sites[0].config.clone();
    let mut owed = 0;
    for round in 0..40_u64 {
        for _ in 0..10 {
            on.send(0, 2_000, &[1]);
            on.send(0, 300, &[1, 2]);
        }
        on.pass(Duration::from_micros(2_000 + 700 * round));
        reload(on, 0, |config| config.peers.retain(|peer| peer.name != "beta"));
        on.pass(Duration::from_millis(300));
        owed += usize::from(on.world.watch.audit.owed() > 0);
        reload(on, 0, |config| config.peers.clone_from(&whole.peers));
    }
    if on.world.watch.broken.is_none() && owed < 3 {
        return Err(format!("something was owed to the peer that has left {owed} times only"));
    }
    delivered(on)
}

fn shrinks(on: &mut Stage) -> Result<(), String> {
    begin(on, |keeping| keeping.keep = 1);
    let whole = on.world.sites[0].config.clone();
    for _ in 0..10 {
        for _ in 0..20 {
            on.send(0, 3_000, &[1, 2]);
            on.send(1, 3_000, &[0]);
        }
        on.pass(Duration::from_millis(40));
        reload(on, 0, |config| {
            (config.max_bytes, config.max_segments) = (20_000, Some(3));
            (config.max_retries, config.audit_max) = (1, 5);
            (config.backoff_max, config.ack_timeout) = (seconds(5), seconds(2));
            for peer in &mut config.peers {
                (peer.inbound_quota, peer.rate_limit) = (Some(4_000), Some(32 << 10));
            }
        });
        on.pass(seconds(5));
        reload(on, 0, |config| config.clone_from(&whole));
        on.pass(seconds(1));
    }
    delivered(on)
}

fn wavers(on: &mut Stage) -> Result<(), String> {
    begin(on, |keeping| (keeping.evict, keeping.keep_relayed) = (true, seconds(1)));
    for round in 0..20_u64 {
        for _ in 0..10 {
            on.send(0, 500, &[]);
        }
        on.pass(Duration::from_millis(5 * round));
        let one = round % 2 == 0;
        reload(on, 0, |config| {
            config.success_condition =
                if one { SuccessCondition::OnePeer } else { SuccessCondition::AllPeers };
        });
        on.pass(seconds(2));
    }
    delivered(on)
}
