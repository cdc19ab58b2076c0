//! A peer that is there and does not answer: what is in flight fails in time, and is delivered once.

use rustix::process::Signal;

use crate::site::{RUNTIMES, Site, content, pair};
use crate::wait;

/// Whether both have agreed on a session. Each may have called the other: frozen before that, the other side would
/// leave this one without any.
fn agreed(alpha: &Site, beta: &Site) -> bool {
    let up = [alpha, beta].map(|site| site.status()["peers"][0]["up"] == true);
    up == [true, true] && alpha.run(&["peers", "ping", "beta"]).status.success()
}

#[test]
fn a_frozen_peer_is_given_up_and_met_again() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.set("CONSIGN_RELAY_ACK_TIMEOUT", "1s");
        alpha.serve();
        beta.serve();
        wait::until_true("a session that stays", || agreed(&alpha, &beta));
        beta.signal(Signal::STOP);
        let bytes = content(1, 150_000);
        let ids = [alpha.accepted("large", &bytes), alpha.accepted("small", &bytes[..500])];
        // Both fail, by time and by nothing else.
        wait::until_true("both attempts to fail", || {
            alpha.segments().iter().all(|s| !s["deliveries"][0]["last_error"].is_null())
        });
        for segment in alpha.segments() {
            let why = segment["deliveries"][0]["last_error"].as_str().unwrap().to_string();
            assert!(["ack_timeout", "session_lost"].contains(&why.as_str()), "{why}");
        }
        assert_eq!(alpha.counts("beta").dead, 0);
        beta.signal(Signal::CONT);
        assert!(beta.arrival(&ids[0]) == bytes && beta.arrival(&ids[1]) == bytes[..500]);
        assert_eq!(alpha.settled("beta").delivered, 2);
        assert_eq!(beta.segments().len(), 2);
    }
}

#[test]
fn a_death_in_flight_is_a_failed_attempt_and_no_fault() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        alpha.serve();
        beta.serve();
        wait::until_true("a session that stays", || agreed(&alpha, &beta));
        // With the other side frozen the delivery stays in flight, whenever this one dies.
        beta.signal(Signal::STOP);
        let bytes = content(1, 150_000);
        let id = alpha.accepted("file", &bytes);
        // In the ledger, that is: `status` counts what is still to be committed, too.
        wait::until_true("the delivery to be in flight", || {
            alpha.segments()[0]["deliveries"][0]["state"] == "sending"
        });
        alpha.kill();
        alpha.serve();
        wait::until_true("the attempt to be settled", || {
            alpha.segments()[0]["deliveries"][0]["state"] != "sending"
        });
        let delivery = alpha.segments()[0]["deliveries"][0].clone();
        assert_eq!((&delivery["last_error"], &delivery["spent"]), (&"restart".into(), &0.into()));
        beta.signal(Signal::CONT);
        assert!(beta.arrival(&id) == bytes);
        assert_eq!(alpha.settled("beta").delivered, 1);
        let delivery = alpha.segments()[0]["deliveries"][0].clone();
        assert_eq!(delivery["spent"], 0);
        assert!(delivery["attempts"].as_u64().unwrap() >= 2);
    }
}
