//! A clock that steps, and peers that leave.

use std::time::Duration;

use consign_core::config::Config;
use consign_core::id::TransferNo;
use consign_core::ledger::rows::State;
use consign_core::node::{Input, Note, Question};
use consign_core::session::SessionEvent;

use crate::site::Site;

use crate::keep::*;

/// B36: a clock that steps years ahead and nobody there to say whether it is right.
#[test]
fn a_step_of_the_clock_holds_expiry_until_it_is_confirmed_or_a_day_has_passed() {
    for confirmed in [false, true] {
        let mut site = Site::with(evicting(&["beta"]));
        let at = site.now.wall.after(Duration::from_secs(3600 * 5)).0;
        let id = queue_until(&mut site, "one", &["beta"], at);
        site.input(Input::Clock { ahead: 10 * 365 * 86_400_000 });
        site.settle();
        let warned = |note: &Note| matches!(note, Note::Warn { code: "clock_step", .. });
        assert!(site.notes.iter().any(warned));
        assert!(site.pump.node().status(site.now).clock_held);
        site.wait(Duration::from_secs(3600 * 6));
        assert_eq!(site.delivery(id, "beta").unwrap().state, State::Scheduled);
        if confirmed {
            let client = site.client();
            let ask = SessionEvent::Ask { ticket: TransferNo(9), question: Question::ConfirmClock };
            site.input(Input::Session(client, ask));
            site.settle();
        } else {
            site.wait(DAY);
        }
        assert_eq!(site.delivery(id, "beta").unwrap().state, State::Deadletter);
        assert!(!site.pump.node().status(site.now).clock_held);
        site.audit();
    }
}

#[test]
fn a_step_that_is_taken_back_holds_nothing() {
    let mut site = Site::new(&["beta"]);
    site.input(Input::Clock { ahead: 7_200_000 });
    site.settle();
    assert!(site.pump.node().status(site.now).clock_held);
    site.input(Input::Clock { ahead: 0 });
    site.settle();
    assert!(!site.pump.node().status(site.now).clock_held);
}

#[test]
fn time_that_passed_while_it_was_down_counts_up_to_a_month() {
    for (days, held) in [(29, false), (31, true)] {
        let mut site = Site::new(&["beta"]);
        let at = site.now.wall.after(DAY).0;
        let id = queue_until(&mut site, "one", &["beta"], at);
        site.now.wall = site.now.wall.after(DAY * days);
        let mut site = site.restart();
        site.settle();
        assert_eq!(site.pump.node().status(site.now).clock_held, held);
        let state = site.delivery(id, "beta").unwrap().state;
        assert_eq!(state == State::Deadletter, !held);
        site.wait(DAY);
        assert_eq!(site.delivery(id, "beta").unwrap().state, State::Deadletter);
    }
}

/// B18: a peer that is configured no more.
#[test]
fn what_is_owed_to_a_peer_that_left_is_shown_and_waited_for() {
    let mut site = Site::with(evicting(&["beta", "gamma"]));
    let id = site.queue("one", &["*"]);
    deliver(&mut site, "beta");
    site.config.peers.retain(|peer| peer.name == "beta");
    let mut site = site.restart();
    site.settle();
    site.wait(DAY * 10);
    let row = site.segment(id).expect("success waits for gamma");
    assert_eq!((row.acked, row.required, row.relayed_at), (1, 2, None));
    let status = site.pump.node().status(site.now);
    let known: Vec<_> = status.peers.iter().map(|p| (p.name.as_str(), p.known)).collect();
    assert_eq!(known, [("beta", true), ("gamma", false)]);
    let owed = status.peers[1].counters[State::Scheduled as usize].count;
    assert_eq!(owed, 1);
    site.audit();
}

/// Start-up goes on while nobody believes the clock: what it finds to be judged later waits, it does not.
#[test]
fn start_up_comes_to_its_end_on_a_clock_that_is_doubted() {
    let config = Config { keep_relayed: DAY * 1000, ..evicting(&["beta"]) };
    let mut site = Site::with(config);
    site.queue("one", &["beta"]);
    deliver(&mut site, "beta");
    site.now.wall = site.now.wall.after(DAY * 31);
    let mut site = site.restart();
    site.settle();
    let status = site.pump.node().status(site.now);
    assert!(status.clock_held && !status.reconciling, "{status:?}");
    site.audit();
}
