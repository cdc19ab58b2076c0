//! The words are part of the interface.

use super::*;
use crate::admin::shapes::Delivery;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).into()).collect()
}

fn answer(
    new: bool,
    added: &[&str],
    queued: &[&str],
    delivered: &[&str],
    dead: &[&str],
) -> Accepted {
    Accepted {
        id: "3fa9c17be204".to_string() + &"0".repeat(52),
        name: "video.mp4".into(),
        new,
        added: names(added),
        queued: names(queued),
        delivered: names(delivered),
        dead: names(dead),
        size: 1_288_490_189,
        ..Accepted::default()
    }
}

#[test]
fn what_became_of_a_submission() {
    let table: &[(Accepted, bool, &str)] = &[
        (
            answer(true, &["beta"], &[], &[], &[]),
            true,
            "Queued    3fa9c17be204  video.mp4  1.2 GiB  for beta  (safe on disk; Ctrl-C stops only the waiting)",
        ),
        (
            answer(true, &["beta", "gamma"], &[], &[], &[]),
            false,
            "Queued    3fa9c17be204  video.mp4  1.2 GiB  for beta, gamma  (safe on disk)",
        ),
        (
            answer(false, &["delta"], &["beta"], &["gamma"], &["eta"]),
            false,
            "Queued    3fa9c17be204  video.mp4  1.2 GiB  for delta  (safe on disk; already queued for beta; \
             already delivered to gamma; given up for eta)",
        ),
        (
            answer(false, &[], &["beta"], &[], &[]),
            false,
            "Already queued 3fa9c17be204  video.mp4  1.2 GiB  for beta  (safe on disk)",
        ),
        (
            answer(false, &[], &[], &["beta"], &[]),
            true,
            "Already delivered 3fa9c17be204  video.mp4  1.2 GiB  to beta",
        ),
        (
            answer(false, &[], &[], &["beta"], &["gamma"]),
            false,
            "Dead      3fa9c17be204  video.mp4  1.2 GiB  for gamma  (given up for gamma; `consign show \
             3fa9c17be204` says why, --again sends it anew; already delivered to beta)",
        ),
        (
            answer(true, &[], &[], &[], &[]),
            false,
            "Queued    3fa9c17be204  video.mp4  1.2 GiB  for nobody yet  (safe on disk; this site knows no \
             peer yet; it goes to those it will know)",
        ),
    ];
    for (answer, waits, text) in table {
        assert_eq!(accepted(answer, *waits, &[]), *text);
    }
}

#[test]
fn peers_that_are_down_are_named() {
    let peer = |name: &str, up| Peer { name: name.into(), up, ..Peer::default() };
    let peers = [peer("beta", false), peer("gamma", true), peer("delta", false)];
    let line = accepted(&answer(true, &["beta", "gamma"], &[], &[], &[]), false, &peers);
    assert!(line.ends_with("(safe on disk; beta is down)"), "{line}");
}

#[test]
fn peers_that_are_held_are_named_with_what_lets_them_go_on() {
    let peer = |name: &str, held, via: &str| Peer {
        name: name.into(),
        held,
        via: via.into(),
        up: true,
        ..Peer::default()
    };
    let peers = [peer("beta", true, ""), peer("gamma", false, ""), peer("far", false, "beta")];
    for to in ["beta", "far"] {
        let line = accepted(&answer(true, &[to, "gamma"], &[], &[], &[]), false, &peers);
        let end = "(safe on disk; beta is held; on with: consign peers release beta)";
        assert!(line.ends_with(end), "{line}");
    }
}

#[test]
fn a_name_that_is_nearly_right_is_suggested() {
    let peers = ["beta", "gamma"].map(|n| Peer { name: n.into(), known: true, ..Peer::default() });
    let beta = "a peer with a similar name exists: beta";
    for wrong in ["bta", "bera", "ebta", "beta2"] {
        assert_eq!(meant(&names(&["gamma", wrong]), &peers), beta, "{wrong}");
    }
    assert_eq!(meant(&names(&["omega"]), &peers), "known peers and routes: beta, gamma");
    assert!(meant(&names(&["beta"]), &[]).contains("no peers"));
}

#[test]
fn a_route_that_waits_for_a_restart_is_named() {
    let mut status = Status::default();
    assert!(unknown(&names(&["far"]), &status).starts_with("this site has no peers"));
    status.reload.restart = vec!["route".into()];
    let text = unknown(&names(&["far"]), &status);
    assert!(text.starts_with("[[route]] was changed, which holds after a restart"), "{text}");
}

fn segment() -> Segment {
    let delivery = |peer: &str, state: &str, since: &str| Delivery {
        peer: peer.into(),
        state: state.into(),
        since: since.into(),
        attempts: 8,
        last_error: (state != "delivered").then(|| "too_large".into()),
        ..Delivery::default()
    };
    Segment {
        id: "3fa9c17be204".to_string() + &"0".repeat(52),
        accepted_at: "2026-11-30T18:44:05.000Z".into(),
        deliveries: vec![
            delivery("beta", "delivered", "2026-11-30T18:44:09.100Z"),
            delivery("gamma", "dead", "2026-11-30T18:44:06.000Z"),
            delivery("delta", "queued", "2026-11-30T18:44:06.000Z"),
        ],
        ..Segment::default()
    }
}

#[test]
fn how_it_ended() {
    let line = delivered(&segment(), &names(&["beta"]), None);
    assert_eq!(
        line,
        "Delivered 3fa9c17be204  to beta in 4.1 s  (receipt: consign show 3fa9c17be204)"
    );
    // It was here long before, and is sent to a further site now.
    let before = Segment { accepted_at: "2026-10-01T00:00:00.000Z".into(), ..segment() };
    let handed = human::moment("2026-11-30T18:44:08.000Z");
    let line = delivered(&before, &names(&["beta"]), handed);
    assert!(line.contains("to beta in 1.1 s"), "{line}");
    let line = dead(&segment(), "gamma");
    assert_eq!(
        line,
        "Dead      3fa9c17be204  for gamma after 8 attempts: too_large  (consign show 3fa9c17be204)"
    );
    let line = still_queued(&segment(), &names(&["delta"]));
    assert_eq!(
        line,
        "Queued    3fa9c17be204  still, when the wait ran out  (delta: queued, too_large)"
    );
}

#[test]
fn a_peer_that_was_taken_out_is_not_called_known() {
    let peer = |name: &str, known| Peer { name: name.into(), known, ..Peer::default() };
    let peers = [peer("beta", true), peer("gone", false)];
    assert_eq!(meant(&names(&["omega"]), &peers), "known peers and routes: beta");
    assert_eq!(meant(&names(&["gane"]), &peers), "known peers and routes: beta");
    let text = "gone was taken out of relay.known_peers; add it there again to send to it";
    assert_eq!(meant(&names(&["beta", "gone"]), &peers), text);
    assert!(meant(&names(&["gone"]), &peers[1..]).starts_with("gone was taken out"));
    assert!(meant(&names(&["beta"]), &peers[1..]).starts_with("this site has no peers"));
}
