//! Assurance in words, and selections in figures.

use serde_json::Value;

use super::*;
use crate::admin::assurance::{Holder, Owed};
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::said;

fn assurance(first: char, met: bool) -> Assurance {
    let holder = Holder {
        site: "beta".into(),
        at: "2026-11-30T18:43:05.000Z".into(),
        by: "acknowledged".into(),
        until: None,
    };
    let owed = Owed {
        site: "gamma".into(),
        state: "backing off".into(),
        last_error: Some("ack_timeout".into()),
    };
    Assurance {
        schema: Assurance::SCHEMA.into(),
        id: format!("{first}fa9c17be204").repeat(6)[..64].into(),
        name: "video.mp4".into(),
        size: 1 << 20,
        copy: "held".into(),
        since: "2026-11-30T18:42:05.000Z".into(),
        condition: "all_peers".into(),
        sites: 2,
        required: 2,
        holding: if met { 2 } else { 1 },
        met,
        met_at: met.then(|| "2026-11-30T18:43:06.000Z".into()),
        holders: vec![holder],
        owed: if met { Vec::new() } else { vec![owed] },
        safe_to_delete: met,
        because: if met { "all 2 sites hold it" } else { "it is still owed to gamma" }.into(),
        ..Assurance::default()
    }
}

/// Three segments on two pages, and one by its id.
fn daemon() -> Daemon {
    Daemon::answering(|request, _| {
        let page = |assurances: Vec<Assurance>, next: Option<&str>| Assurances {
            schema: Assurances::SCHEMA.into(),
            assurances,
            next: next.map(String::from),
        };
        let answer = match request.target.as_str() {
            "/v1/status" => serde_json::to_value(Status::default()),
            "/v1/assurance?limit=500" => serde_json::to_value(page(
                vec![assurance('1', true), assurance('2', false)],
                Some("0-2"),
            )),
            "/v1/assurance?limit=500&after=0-2" => {
                serde_json::to_value(page(vec![assurance('3', false)], None))
            }
            "/v1/assurance?limit=500&unmet=1&peer=beta" => {
                serde_json::to_value(page(Vec::new(), None))
            }
            "/v1/assurance/2fa9c1" => serde_json::to_value(assurance('2', false)),
            other => panic!("nobody asks for {other}"),
        };
        Say::json(200, answer.unwrap())
    })
}

fn now() -> SystemTime {
    human::moment("2026-11-30T18:44:05.000Z").unwrap()
}

fn say(args: &AssuranceArgs, json: bool) -> (Result<Exit, Failure>, super::super::screen::Said) {
    let daemon = daemon();
    said(json, |s| assure(args, &mut Api::new(&daemon.socket()), s, now()))
}

#[test]
fn one_segment_says_who_holds_it_and_whether_it_may_go() {
    let args = AssuranceArgs { ids: vec!["2fa9c1".into()], ..AssuranceArgs::default() };
    let (exit, said) = say(&args, false);
    assert_eq!(exit, Ok(Exit::Done));
    let expected = "\
2fa9c17be204  video.mp4  1.0 MiB
  here      held since 2026-11-30T18:42:05.000Z
  held by   1 of 2 required (all_peers): not met
            beta  acknowledged 2026-11-30T18:43:05.000Z
  owed      gamma  backing off (ack_timeout)
  delete    no: it is still owed to gamma";
    assert_eq!(said.lines, [expected]);
}

#[test]
fn a_selection_is_shown_in_part_and_counted_whole() {
    let args = AssuranceArgs { all: true, limit: 2, ..AssuranceArgs::default() };
    let (exit, said) = say(&args, false);
    assert_eq!(exit, Ok(Exit::Done));
    let table = "\
ID            NAME          SIZE  HELD BY  MET  DELETE HERE  BECAUSE
1fa9c17be204  video.mp4  1.0 MiB   2 of 2  yes  yes          all 2 sites hold it
2fa9c17be204  video.mp4  1.0 MiB   1 of 2  no   no           it is still owed to gamma";
    let totals = "
segments                  3
met                       1
not met                   2, the oldest accepted 2 min ago
may be deleted here       1 (1.0 MiB)
confirmed nowhere else    0
damaged here              0
dead letters of the site  0
all content compared      never yet; 0 found wrong
rows in quarantine        0";
    assert_eq!(said.lines, [table, totals]);
    assert_eq!(said.notes, ["1 more are counted below: -n shows more"]);
}

#[test]
fn where_nothing_is_required_nothing_is_missed() {
    let free = Assurance { sites: 0, required: 0, holding: 0, ..assurance('4', false) };
    let cells = row(&free);
    assert_eq!((cells[3].as_str(), cells[4].as_str()), ("–", "nothing required"));
    assert!(text(&free).contains("  held by   nothing required here\n"), "{}", text(&free));
    let mut total = Total::default();
    total.add(&free);
    total.add(&assurance('2', false));
    assert_eq!((total.met, total.unmet, total.nothing_required), (0, 1, 1));
    let told = totals(&total, now());
    assert!(told.contains("not met                   1, the oldest"), "{told}");
    assert!(told.contains("\nnothing required          1\nmay be deleted here"), "{told}");
}

#[test]
fn json_has_every_segment_and_the_figures_last() {
    let args = AssuranceArgs { all: true, limit: 1, ..AssuranceArgs::default() };
    let (_, said) = say(&args, true);
    assert_eq!(said.lines.len(), 4);
    let last: Value = serde_json::from_str(&said.lines[3]).unwrap();
    assert_eq!(last["schema"], Total::SCHEMA);
    assert_eq!((&last["met"], &last["unmet"]), (&1.into(), &2.into()));
    assert_eq!(last["safe_to_delete"]["bytes"], 1 << 20);
}

#[test]
fn an_empty_selection_matches_nothing() {
    let args = AssuranceArgs { unmet: true, peer: Some("beta".into()), ..AssuranceArgs::default() };
    let (exit, said) = say(&args, false);
    assert_eq!((exit, said.notes), (Ok(Exit::NoMatch), vec!["no segment matches".to_string()]));
}
