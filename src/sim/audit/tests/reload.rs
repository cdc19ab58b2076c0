//! A configuration that changes while a site runs: each decision by the one it was made under.

use std::time::Duration;

use consign_core::code::{Cause, Refusal};
use consign_core::config::{Config, PeerConfig};
use consign_core::id::BatchNo;

use super::play::{A, Draft, Play, config};
use crate::sim::seen::Seen;

/// A site goes by another configuration; so many batches were filled before, of which the last is not on disk.
fn reload(play: &mut Play, change: impl FnOnce(&mut Config), under_way: u64) {
    let mut config = config(A);
    change(&mut config);
    let handed = BatchNo(play.books[A].batch + under_way);
    play.see(A, &Seen::Reconfigured { config: &config, handed });
}

/// A refusal that is waited out for so long: a second, as the first configuration has it, or other.
fn refused(play: &mut Play, wait: u64) -> Draft {
    let one = play.offered("one.pdf");
    play.wait(5);
    play.reject(one, one.0 as u32, Refusal::Busy, 0);
    play.fail(one, Cause::Busy, wait).delivery(|row| row.refused = 1)
}

fn longer(config: &mut Config) {
    config.backoff_initial = Duration::from_secs(30);
}

#[test]
fn the_batch_that_was_being_filled_is_judged_by_either() {
    for wait in [1_000, 30_000] {
        let mut play = Play::new();
        let draft = refused(&mut play, wait);
        reload(&mut play, longer, 0);
        play.commit(A, draft);
        assert_eq!(play.broken.map(|v| v.to_string()), None, "{wait}");
    }
}

#[test]
fn a_batch_that_was_filled_before_is_judged_by_the_one_of_before() {
    for (wait, broken) in [(1_000, None), (30_000, Some("I22"))] {
        let mut play = Play::new();
        let draft = refused(&mut play, wait);
        reload(&mut play, longer, 1);
        play.commit(A, draft);
        assert_eq!(play.broken.map(|v| v.invariant), broken, "{wait}");
    }
}

#[test]
fn a_batch_that_was_filled_after_it_is_judged_by_the_new_one_alone() {
    for (wait, broken) in [(1_000, Some("I22")), (30_000, None)] {
        let mut play = Play::new();
        reload(&mut play, longer, 0);
        play.commit(A, Draft::default());
        let draft = refused(&mut play, wait);
        play.commit(A, draft);
        assert_eq!(play.broken.map(|v| v.invariant), broken, "{wait}");
    }
}

#[test]
fn what_takes_the_place_of_a_failed_batch_may_have_been_decided_before() {
    let mut play = Play::new();
    let draft = refused(&mut play, 1_000);
    reload(&mut play, longer, 0);
    // The batch that was being filled then has failed: its number is on no disk.
    play.books[A].batch += 1;
    play.commit(A, draft);
    assert_eq!(play.broken.map(|v| v.to_string()), None);
}

#[test]
fn nobody_claims_for_a_peer_that_has_left() {
    let stranger = |config: &mut Config| config.peers = vec![PeerConfig::new("gamma", "x")];
    for (batches, broken) in [(0, None), (1, Some("I7"))] {
        let mut play = Play::new();
        let seq = play.accepted("one.pdf");
        reload(&mut play, stranger, 0);
        (0..batches).for_each(|_| play.commit(A, Draft::default()));
        let claim = play.claim(seq);
        play.commit(A, claim);
        assert_eq!(play.broken.map(|v| v.invariant), broken, "after {batches}");
    }
}

#[test]
fn what_is_charged_when_a_limit_is_lowered_may_stay_and_nothing_comes_on_top() {
    let mut play = Play::new();
    play.accepted("one.pdf");
    reload(&mut play, |config| config.max_bytes = 10, 0);
    play.commit(A, Draft::default());
    play.commit(A, Draft::default());
    play.deep(A, &[]);
    assert_eq!(play.broken.as_ref().map(|v| v.to_string()), None);
    play.accepted("two.pdf");
    assert_eq!(play.broken.map(|v| v.invariant), Some("I10"));
}

/// Numbers of batches that never came to be are given again after a start.
#[test]
fn after_a_start_the_last_one_alone_holds_whatever_was_under_way() {
    for (wait, broken) in [(1_000, Some("I22")), (30_000, None)] {
        let mut play = Play::new();
        reload(&mut play, longer, 7);
        play.restart(A);
        play.hello();
        let draft = refused(&mut play, wait);
        play.commit(A, draft);
        assert_eq!(play.broken.as_ref().map(|v| v.invariant), broken, "{wait}: {:?}", play.broken);
    }
}
