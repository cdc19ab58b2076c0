//! Numbers without gaps, gaps that can be seen, and words.

use consign_core::code::Cause;
use consign_core::id::SegmentId;
use consign_core::node::{Reading, ReconcileSummary};

use super::*;

fn ids(events: &Events, since: Option<u64>, limit: usize) -> (Vec<u64>, u64, u64) {
    let page = events.page(Wanted { since, limit });
    (page.events.iter().map(|event| event.id).collect(), page.first, page.last)
}

#[test]
fn ids_rise_by_one_and_what_fell_out_can_be_seen() {
    let events = Events::of(3, 0);
    assert_eq!(ids(&events, None, 9), (Vec::new(), 0, 0));
    assert!(!events.has_more(0));
    for _ in 0..5 {
        events.record(Note::RoomAgain);
    }
    assert_eq!(ids(&events, Some(0), 9), (vec![3, 4, 5], 3, 5), "1 and 2 are lost, first says so");
    assert_eq!(ids(&events, Some(3), 9).0, [4, 5]);
    assert_eq!(ids(&events, Some(2), 2).0, [3, 4]);
    assert_eq!(ids(&events, None, 2).0, [4, 5], "the newest");
    assert_eq!(ids(&events, Some(5), 9).0, Vec::<u64>::new());
    assert!(events.has_more(4) && !events.has_more(5));
    assert_eq!(ids(&events, Some(77), 9).0, [3, 4, 5], "an id of an earlier start");
    assert!(events.has_more(77));
}

#[test]
fn steps_on_the_way_are_no_news() {
    let events = Events::default();
    let id = SegmentId([9; 32]);
    for to in [
        None,
        Some(State::Scheduled),
        Some(State::Inflight),
        Some(State::Acked),
        Some(State::Failed),
        Some(State::Deadletter),
    ] {
        let cause = Some(Cause::TooLarge);
        let peer = "beta".into();
        let (from, attempts, bytes, took) = (None, 2, 9, None);
        events.record(Note::Delivery { id, peer, from, to, cause, attempts, bytes, took });
    }
    let page = events.page(Wanted { since: Some(0), limit: 9 });
    let kinds: Vec<&str> = page.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["delivered", "failed", "dead"]);
    let dead = &page.events[2];
    assert_eq!((dead.level.as_str(), dead.code.as_deref()), ("warn", Some("too_large")));
    assert_eq!(
        (dead.peer.as_deref(), dead.segment.as_ref()),
        (Some("beta"), Some(&id.to_string()))
    );
    assert_eq!(dead.text, "090909090909 is a dead letter for beta: too_large");
}

#[test]
fn every_note_has_a_kind_of_its_own() {
    let id = SegmentId([9; 32]);
    let (name, peer) = ("n".to_string(), "beta".to_string());
    let exported = |problem: &str, given_up| Note::Exported {
        id,
        name: "f".into(),
        problem: problem.into(),
        given_up,
    };
    let missing = ReconcileSummary { missing: 1, ..ReconcileSummary::default() };
    let table = [
        (
            Note::SessionDown { peer: peer.clone(), why: String::new() },
            "session_down",
            "info",
            None,
        ),
        (
            Note::Unwelcome { name: peer.clone(), why: "w".into() },
            "unwelcome",
            "warn",
            Some("CN0501"),
        ),
        (Note::HandedOn { id, site: "s".into(), hop: peer.clone() }, "handed_on", "info", None),
        (Note::Relayed { id, condition: "one_peer", acks: 1 }, "relayed", "info", None),
        (Note::Removed { id, name, size: 1, how: "evict" }, "removed", "info", None),
        (Note::Refused { code: "quota", peer, text: "t".into() }, "refused", "info", Some("quota")),
        (Note::Full { why: "w".into() }, "full", "error", Some("CN0503")),
        (Note::RoomAgain, "room_again", "info", None),
        (exported("", false), "exported", "info", None),
        (exported("p", false), "export_failed", "warn", Some("CN0541")),
        (exported("p", true), "export_failed", "warn", Some("CN0542")),
        (Note::Reconciled(ReconcileSummary::default()), "reconciled", "info", None),
        (Note::Reconciled(missing), "reconciled", "error", Some("CN0505")),
        (Note::Quarantined { what: "w".into() }, "quarantined", "error", Some("CN0504")),
        (
            Note::Warn { code: "clock_step", text: "t".into() },
            "warning",
            "warn",
            Some("clock_step"),
        ),
    ];
    for (note, kind, level, code) in table {
        let event = words::event(1, 0, &note);
        assert_eq!((event.kind.as_str(), event.level.as_str()), (kind, level), "{note:?}");
        assert_eq!(event.code.as_deref(), code, "{note:?}");
        assert!(!event.text.is_empty());
    }
}

#[test]
fn a_reload_says_who_asked_and_how_bad_it_is() {
    let events = Events::default();
    let cases = [
        ("SIGHUP", true, "", "nothing has changed", "info", None),
        ("uid:0", true, "CN0543", "needs restart: listen.web", "warn", Some("CN0543")),
        ("", false, "CN0206", "CN0206: it is 0", "error", Some("CN0206")),
    ];
    for (who, taken, code, text, ..) in cases {
        let (code, text) = (code.into(), text.into());
        let reading = Box::new(Reading { taken, code, text, ..Reading::default() });
        events.record(Note::Reread { who: who.into(), reading });
    }
    let page = events.page(Wanted { since: Some(0), limit: 9 });
    for (event, (.., level, code)) in page.events.iter().zip(cases) {
        assert_eq!((event.level.as_str(), event.code.as_deref()), (level, code), "{event:?}");
    }
    let texts: Vec<&str> = page.events.iter().map(|event| event.text.as_str()).collect();
    let expected = [
        "configuration read again (asked by SIGHUP): nothing has changed",
        "configuration read again (asked by uid:0): needs restart: listen.web",
        "configuration refused, nothing has changed (asked by the site): CN0206: it is 0",
    ];
    assert_eq!(texts, expected);
}
