//! Lists of dead letters against a scripted daemon.

use serde_json::json;

use super::*;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::said;

fn now() -> SystemTime {
    human::moment("2026-11-30T18:44:05.000Z").unwrap()
}

fn args() -> DeadArgs {
    DeadArgs { limit: 100, ..DeadArgs::default() }
}

fn dead(n: u64) -> serde_json::Value {
    json!({"schema":"consign.deadletter/1","id":format!("{n:064x}"),"seq":n,"name":format!("n{n}"),
        "size":1_u64 << 30,"peer":"gamma","reason":"too_large","attempts":3,
        "since":"2026-11-30T17:44:05.000Z","accepted_at":"2026-11-30T17:00:00.000Z"})
}

#[test]
fn one_row_each_with_the_reason() {
    let daemon = Daemon::answering(|request, _| {
        let (first, next) = match request.target.contains("after=") {
            false => (1, json!("5-1-2")),
            true => (2, json!(null)),
        };
        Say::json(
            200,
            json!({"schema":"consign.deadletters/1","deadletters":[dead(first)],"next":next}),
        )
    });
    let (exit, said) = said(false, |s| list(&args(), &mut Api::new(&daemon.socket()), s, now()));
    assert_eq!(exit, Ok(Exit::Done));
    let expected = "\
ID            NAME     SIZE  PEER    SINCE  ATTEMPTS  REASON
000000000000  n1    1.0 GiB  gamma  60 min         3  rejected: too large
000000000000  n2    1.0 GiB  gamma  60 min         3  rejected: too large";
    assert_eq!(said.lines, [expected]);
}

#[test]
fn groups_of_several_pages_are_added_up_and_sorted_as_asked() {
    let daemon = || {
        Daemon::answering(|request, _| {
            let group = |reason: &str, peer: &str, count: u64, oldest: &str| {
                json!({"schema":"consign.deadletter_group/1","reason":reason,"peer":peer,
                    "count":count,"bytes":count << 20,"oldest":oldest,"hint":"do something"})
            };
            let (early, late) = ("2026-11-30T17:44:05.000Z", "2026-11-30T18:14:05.000Z");
            let (groups, next) = match request.target.contains("after=9-9-9") {
                false => (
                    vec![group("loop", "gamma", 1, early), group("too_large", "beta", 30, early)],
                    json!("9-9-9"),
                ),
                true => (vec![group("too_large", "beta", 4, late)], json!(null)),
            };
            Say::json(
                200,
                json!({"schema":"consign.deadletter_groups/1","groups":groups,"next":next}),
            )
        })
    };
    let reason = "\
REASON               PEER   COUNT      SIZE  OLDEST  TRY THIS
loop                 gamma      1   1.0 MiB  60 min  do something
rejected: too large  beta      34  34.0 MiB  60 min  do something";
    let peer = "\
PEER   REASON               COUNT      SIZE  OLDEST  TRY THIS
beta   rejected: too large     34  34.0 MiB  60 min  do something
gamma  loop                     1   1.0 MiB  60 min  do something";
    for (by, expected) in [(By::Reason, reason), (By::Peer, peer)] {
        let daemon = daemon();
        let (exit, said) =
            said(false, |s| count(&args(), by, &mut Api::new(&daemon.socket()), s, now()));
        assert_eq!(exit, Ok(Exit::Done));
        assert_eq!(said.lines, [expected]);
    }
}

#[test]
fn filters_go_into_the_request() {
    let args = DeadArgs {
        peer: Some("g&a".into()),
        reason: Some("loop".into()),
        older: Some(Duration::from_secs(60)),
        ..args()
    };
    assert_eq!(
        target(&args, "deadletters", Some(5), Some("1-2-3")),
        "/v1/deadletters?limit=5&after=1-2-3&peer=g%26a&reason=loop&older=60"
    );
    assert_eq!(
        target(&super::tests::args(), "deadletters/groups", None, None),
        "/v1/deadletters/groups"
    );
}

#[test]
fn none_at_all_is_good_news_and_none_of_those_asked_for_is_not() {
    let daemon = Daemon::answering(|_, _| {
        Say::json(200, json!({"schema":"consign.deadletters/1","deadletters":[],"next":null}))
    });
    let filtered = DeadArgs { peer: Some("beta".into()), ..args() };
    for (args, exit) in [(args(), Exit::Done), (filtered, Exit::NoMatch)] {
        let mut api = Api::new(&daemon.socket());
        let (got, said) = said(false, |s| list(&args, &mut api, s, now()));
        assert_eq!((got, said.lines.len(), said.notes.len()), (Ok(exit), 0, 1));
    }
}

fn acted(count: u64, dry_run: bool) -> serde_json::Value {
    json!({"schema":"consign.act/1","action":"purge","dry_run":dry_run,"count":count,
        "bytes":count,"commits":1,"done":[{"peer":"gamma","count":count,"bytes":count}],
        "left":[],"left_count":0})
}

#[test]
fn a_purge_of_what_was_not_named_needs_a_yes() {
    let daemon = Daemon::answering(|_, body| {
        let request: serde_json::Value = serde_json::from_slice(body).unwrap();
        let dry_run = request["dry_run"] == true;
        Say::json(200, acted(34, dry_run))
    });
    let all = Chosen { all: true, ..Chosen::default() };
    let mut api = Api::new(&daemon.socket());
    // With --json nobody is asked.
    let (unsure, _) = said(true, |s| change(&all, "purge", None, false, &mut api, s));
    let unsure = unsure.unwrap_err();
    assert_eq!((unsure.exit, unsure.code), (Exit::Usage, "CN0401"));
    assert_eq!(
        unsure.message,
        "purge deletes 34 deliveries for good; repeat with --yes, or pass ids"
    );
    let (sure, _) = said(true, |s| change(&all, "purge", None, true, &mut api, s));
    assert_eq!(sure, Ok(Exit::Done));
    let named = Chosen { ids: vec!["3fa9c1".into()], ..Chosen::default() };
    let (sure, said) = said(false, |s| change(&named, "purge", None, false, &mut api, s));
    assert_eq!(sure, Ok(Exit::Done));
    assert_eq!(said.lines, ["Deleted 34 deliveries (34 B) to gamma."]);
}
