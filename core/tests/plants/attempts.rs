//! Attempts, retries and order: whose failure it is, and whose turn.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::ledger::rows::State;
use consign_core::node::Input;
use consign_core::plant::Plant;
use consign_core::segment::Class;
use consign_core::session::Outcome;

use crate::site::{Site, config};
use crate::story::{End, promise, site};

/// The process is started again and again while a segment is in flight.
pub fn restarts(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let id = site.queue("one", &["beta"]);
    let mut before = 0;
    for _ in 0..3 {
        site.session("beta");
        site.settle();
        assert_eq!(site.sendings().len(), 1);
        let attempts = site.delivery(id, "beta").unwrap().attempts;
        promise(attempts == before + 1, || {
            format!("{before} attempts were counted, and the next one is number {attempts}")
        })?;
        before = attempts;
        site = site.restart();
        site.settle();
    }
    Ok(())
}

/// The session with a peer is lost each time something is under way on it.
pub fn flapping_link(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let id = site.queue("one", &["beta"]);
    for n in 1..=50 {
        let conn = site.session("beta");
        site.settle();
        site.input(Input::Closed { conn, why: "reset".into() });
        site.settle();
        let state = site.delivery(id, "beta").unwrap().state;
        promise(state != State::Deadletter, || {
            format!("a segment is given up because the link broke {n} times")
        })?;
    }
    Ok(())
}

/// A segment goes to two peers, and one of them never answers.
pub fn two_peers(plant: Option<Plant>) -> End {
    let peers = ["beta", "gamma"];
    // Each wait is over before its session is too old.
    let backoff_max = Duration::from_secs(10);
    let mut site = Site::with(Config { plant, backoff_max, ..config(&peers) });
    let id = site.queue("one", &peers);
    let beta = site.session("beta");
    for _ in 0..7 {
        site.settle();
        let (_, sending) = site.sendings().pop().expect("offered");
        site.outcome(beta, sending.offer.transfer, Outcome::AckTimeout);
        site.settle();
        site.wait(Duration::from_secs(10));
    }
    let gamma = site.session("gamma");
    site.settle();
    let (_, sending) =
        site.sendings().into_iter().find(|(conn, _)| *conn == gamma).expect("offered");
    site.outcome(gamma, sending.offer.transfer, Outcome::AckTimeout);
    site.settle();
    let row = site.delivery(id, "gamma").unwrap();
    promise((row.state, row.spent) == (State::Failed, 1), || {
        format!("gamma failed once and is {:?} with {} failures", row.state, row.spent)
    })
}

/// Much bulk waits for a peer, then something urgent comes in, then the peer is there.
pub fn urgent_after_bulk(plant: Option<Plant>) -> End {
    let mut site = site(&["beta"], plant);
    let client = site.client();
    for i in 1..=40 {
        let class = if i <= 20 { Class::Bulk } else { Class::Urgent };
        site.submit(client, i, &format!("n{i}"), &["beta"], class);
    }
    site.settle();
    site.session("beta");
    site.settle();
    let first: Vec<Class> =
        site.sendings().iter().take(9).map(|(_, s)| s.offer.meta.class).collect();
    let urgent = first.iter().filter(|class| **class == Class::Urgent).count();
    promise(urgent == 8, || format!("of the first nine, {urgent} are urgent instead of eight"))
}

/// A peer is taken out of the configuration while the node runs, and something is handed in for it before.
pub fn removed_peer(plant: Option<Plant>) -> End {
    let mut site = site(&["beta", "gamma"], plant);
    site.session("beta");
    site.settle();
    let without = Config { plant, ..config(&["gamma"]) };
    let (reload, config) = (0, Some(Box::new(without)));
    let id = site.queue("before", &["beta"]);
    site.sendings();
    let row = site.delivery(id, "beta").unwrap();
    promise(row.attempts <= 1, || "it is tried again and again".into())?;
    site.input(Input::Reconfigure { reload, config, renew: false, reading: None });
    site.settle();
    let shown = site.pump.node().status(site.now).peers.into_iter().find(|p| p.name == "beta");
    let session = shown.and_then(|peer| peer.session);
    promise(session.is_none(), || "who is trusted no longer is still sent to".into())
}
