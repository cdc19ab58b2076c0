//! `consign peers ls --pending`: sites that knocked and are not known.

use std::time::SystemTime;

use crate::admin::shapes::{PendingPeer, PendingPeers};
use crate::client::Api;
use crate::cmd::screen::Screen;
use crate::exit::{Exit, Failure};
use crate::human::{self, Align};

const HEAD: [(&str, Align); 5] = [
    ("NAME", Align::Left),
    ("KNOCKED", Align::Left),
    ("TIMES", Align::Right),
    ("WHY NOT", Align::Left),
    ("FINGERPRINT", Align::Left),
];

/// Why somebody was turned away who is known by another certificate.
const PINNED: &str = "CN0307";

/// Lists them, who knocked last first; exit 4 when there is none.
pub(super) fn list(
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    let pending: PendingPeers = api.json("GET", "/v1/peers/pending")?;
    if screen.is_json() {
        screen.object(&pending)?;
    } else if pending.peers.is_empty() {
        screen.note("nobody unknown has knocked since the start");
    } else {
        let rows: Vec<_> = pending.peers.iter().map(|peer| row(peer, now)).collect();
        screen.line(human::table(&HEAD, &rows).trim_end());
        let pinned = |peer: &&PendingPeer| peer.code == PINNED;
        if pending.peers.iter().any(|peer| !pinned(&peer)) {
            screen.note(
                "To let one in: a [[relay.known_peers]] section with its name, its address and, best, its \
                 fingerprint; then consign reload",
            );
        }
        if let Some(peer) = pending.peers.iter().find(pinned) {
            screen.note(&format!(
                "Another pin: if the fingerprint is that of its certificate (`consign cert show` at {0}), correct \
                 `fingerprint` of [[relay.known_peers]] {0} to it; then consign reload",
                peer.name
            ));
        }
    }
    Ok(if pending.peers.is_empty() { Exit::NoMatch } else { Exit::Done })
}

fn row(peer: &PendingPeer, now: SystemTime) -> Vec<String> {
    let why = if peer.code == PINNED { "another pin" } else { "not configured" };
    vec![
        peer.name.clone(),
        human::ago(&peer.last_at, now),
        human::thousands(peer.knocks),
        why.into(),
        peer.fingerprint.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::testing::{Daemon, Say};
    use crate::cmd::screen::said;

    #[test]
    fn who_knocked_is_shown_with_what_it_takes_to_let_them_in() {
        let now = human::moment("2026-11-30T18:44:05Z").unwrap();
        for (code, words) in [("CN0305", "not configured"), ("CN0307", "another pin")] {
            let daemon = Daemon::answering(move |request, _| {
                assert_eq!(request.target, "/v1/peers/pending");
                let peer = json!({"name":"gamma","fingerprint":"sha256:ab","code":code,
                    "first_at":"2026-11-30T18:00:00Z","last_at":"2026-11-30T18:43:53Z","knocks":7});
                Say::json(200, json!({"schema":"consign.pending_peers/1","peers":[peer]}))
            });
            let (exit, heard) = said(false, |s| list(&mut Api::new(&daemon.socket()), s, now));
            assert_eq!(exit, Ok(Exit::Done));
            let row = heard.lines[0].lines().nth(1).unwrap();
            assert!(row.starts_with("gamma  12 s ago      7  ") && row.contains(words), "{row}");
            assert!(heard.notes[0].contains("consign reload"));
            let note = if code == PINNED { "correct `fingerprint` of" } else { "To let one in: a" };
            assert!(heard.notes.len() == 1 && heard.notes[0].contains(note), "{:?}", heard.notes);
        }
        let daemon = Daemon::answering(|_, _| {
            Say::json(200, json!({"schema":"consign.pending_peers/1","peers":[]}))
        });
        let (exit, heard) = said(false, |s| list(&mut Api::new(&daemon.socket()), s, now));
        assert_eq!((exit, heard.lines.len()), (Ok(Exit::NoMatch), 0));
    }
}
