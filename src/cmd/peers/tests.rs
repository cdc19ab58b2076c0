//! Peers against a scripted daemon.

use serde_json::json;

use super::*;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::said;

fn args(peer: &str) -> PeerArgs {
    PeerArgs { peer: peer.into(), why: "maintenance".into(), dry_run: false }
}

#[test]
fn the_request_names_the_peer_and_the_reason() {
    let request = request("hold_peer", &args("beta"));
    let text = serde_json::to_value(&request).unwrap();
    assert_eq!(text, json!({"action":"hold_peer","peer":"beta","why":"maintenance"}));
}

#[test]
fn every_verb_has_its_sentence() {
    let acted = |action: &str, count| Acted { action: action.into(), count, ..Acted::default() };
    let table = [
        ("hold_peer", 1, "beta is held: nothing is sent to it until it is released"),
        ("hold_peer", 0, "beta is held already"),
        ("release_peer", 1, "beta is sent to again"),
        ("release_peer", 0, "beta is not held"),
        ("flush", 1, "beta is dialled now"),
        ("rekey", 1, "beta is known by its new pin"),
        ("rekey", 0, "beta has that pin already"),
        ("forget", 0, "beta is forgotten; nothing was owed to it"),
    ];
    for (action, count, text) in table {
        assert_eq!(sentence(&acted(action, count), "beta"), text);
    }
    let dry = Acted { dry_run: true, ..acted("hold_peer", 1) };
    assert_eq!(sentence(&dry, "beta"), "Would hold beta. Nothing changed.");
}

#[test]
fn a_rekey_that_changes_nothing_tells_which_pin_is_wrong() {
    for (error, noted) in [
        ("the certificate of gamma has the fingerprint sha256:ab, pinned is sha256:cd", true),
        ("connect: connection refused", false),
    ] {
        let daemon = Daemon::answering(move |request, _| match request.target.as_str() {
            "/v1/peers" => {
                let gamma =
                    Peer { name: "gamma".into(), last_error: error.into(), ..Peer::default() };
                let peers = Peers { schema: Peers::SCHEMA.into(), peers: vec![gamma] };
                Say::json(200, serde_json::to_value(peers).unwrap())
            }
            _ => {
                let acted = Acted { action: "rekey".into(), ..Acted::default() };
                Say::json(200, serde_json::to_value(acted).unwrap())
            }
        });
        let rekey = request("rekey", &args("gamma"));
        let (exit, said) = said(false, |s| change(&rekey, &mut Api::new(&daemon.socket()), s));
        assert_eq!(exit, Ok(Exit::Done));
        assert_eq!(said.lines, ["gamma has that pin already"]);
        let help = said.notes.iter().any(|note| {
            note.starts_with("it showed sha256:ab: ") && note.contains("known_peers]] gamma to it")
        });
        assert_eq!(help, noted, "{:?}", said.notes);
    }
}

#[test]
fn a_table_of_peers_with_what_keeps_them_from_being_sent_to() {
    let peer = |name: &str, known, held, needs_rekey, up| Peer {
        name: name.into(),
        known,
        held,
        needs_rekey,
        up,
        queued: Count { count: 1, bytes: 1 << 20 },
        sending: Count { count: 1, bytes: 1 << 20 },
        ..Peer::default()
    };
    let zeta = Peer { via: "beta".into(), ..peer("zeta", false, true, false, false) };
    let peers = vec![
        peer("beta", true, false, false, true),
        peer("delta", true, false, true, false),
        peer("eta", false, true, false, false),
        peer("gamma", true, true, false, true),
        zeta,
    ];
    let daemon = Daemon::answering(move |_, _| {
        let shape = Peers { schema: Peers::SCHEMA.into(), peers: peers.clone() };
        Say::json(200, serde_json::to_value(shape).unwrap())
    });
    let (exit, said) = said(false, |s| list(&mut Api::new(&daemon.socket()), s, SystemTime::now()));
    assert_eq!(exit, Ok(Exit::Done));
    let expected = "\
PEER   ADDRESS  STATE           OWED         DEAD  DELIVERED  LAST DELIVERY  LAST ERROR
beta            up              2 (2.0 MiB)     0          0
delta           needs rekey     2 (2.0 MiB)     0          0
eta             not configured  2 (2.0 MiB)     0          0
gamma           up, held        2 (2.0 MiB)     0          0
zeta            via beta, held  2 (2.0 MiB)     0          0";
    assert_eq!(said.lines, [expected]);
}

#[test]
fn a_peer_that_nobody_knows_is_no_match() {
    let daemon = Daemon::answering(|_, _| Say::refuse(404, "unknown", "no peer is called \"x\""));
    let (exit, _) =
        said(false, |s| change(&request("flush", &args("x")), &mut Api::new(&daemon.socket()), s));
    assert_eq!(exit.unwrap_err().exit, Exit::NoMatch);
}
