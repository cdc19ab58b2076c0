//! Lists against a scripted daemon.

use serde_json::json;

use super::*;
use crate::admin::shapes::Delivery;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::{Said, said};

fn now() -> SystemTime {
    human::moment("2026-11-30T18:44:05.000Z").unwrap()
}

fn segment(seq: u64, deliveries: &[(&str, &str, Option<&str>)]) -> Segment {
    Segment {
        schema: Segment::SCHEMA.into(),
        id: format!("{seq:064x}").chars().rev().collect(),
        seq,
        name: format!("n{seq}"),
        size: 1 << (10 * seq),
        accepted_at: "2026-11-30T18:42:05.000Z".into(),
        deliveries: deliveries
            .iter()
            .map(|(peer, state, error)| Delivery {
                peer: (*peer).into(),
                state: (*state).into(),
                last_error: error.map(Into::into),
                ..Delivery::default()
            })
            .collect(),
        ..Segment::default()
    }
}

fn page(segments: Vec<Segment>, next: Option<u64>) -> Say {
    let page = Segments { schema: Segments::SCHEMA.into(), segments, next };
    Say::json(200, serde_json::to_value(page).unwrap())
}

fn listed(args: &LsArgs, json: bool, daemon: &Daemon) -> (Result<Exit, Failure>, Said) {
    said(json, |screen| list(args, &mut Api::new(&daemon.socket()), screen, now()))
}

fn args() -> LsArgs {
    LsArgs { limit: 100, ..LsArgs::default() }
}

#[test]
fn a_table_with_the_last_failure_on_each_row() {
    let daemon = Daemon::answering(|_, _| {
        let here = Segment { here: true, origin: "gamma".into(), ..segment(3, &[]) };
        let first =
            [("beta", "delivered", Some("busy")), ("gamma", "backing off", Some("ack_timeout"))];
        page(vec![segment(1, &first), segment(2, &[("beta", "queued", None)]), here], None)
    });
    let (exit, said) = listed(&args(), false, &daemon);
    assert_eq!(exit, Ok(Exit::Done));
    let expected = "\
ID            NAME     SIZE    AGE  FROM   DELIVERIES
100000000000  n1    1.0 KiB  2 min  here   beta delivered, gamma backing off (ack_timeout)
200000000000  n2    1.0 MiB  2 min  here   beta queued
300000000000  n3    1.0 GiB  2 min  gamma  stays here";
    assert_eq!(said.lines, [expected]);
    assert_eq!(said.notes, [""; 0]);
}

#[test]
fn json_is_one_object_a_line() {
    let daemon = Daemon::answering(|_, _| page(vec![segment(1, &[]), segment(2, &[])], None));
    let (_, said) = listed(&args(), true, &daemon);
    let seqs: Vec<u64> =
        said.lines.iter().map(|l| serde_json::from_str::<Segment>(l).unwrap().seq).collect();
    assert_eq!(seqs, [1, 2]);
}

#[test]
fn pages_are_turned_until_there_is_enough() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/segments?limit=3&state=backing%20off&peer=beta" => page(vec![], Some(7)),
        "/v1/segments?limit=3&after=7&state=backing%20off&peer=beta" => {
            page(vec![segment(1, &[]), segment(2, &[])], Some(9))
        }
        "/v1/segments?limit=1&after=9&state=backing%20off&peer=beta" => {
            page(vec![segment(3, &[])], Some(12))
        }
        other => Say::refuse(400, "unexpected", other),
    });
    let args =
        LsArgs { limit: 3, state: Some("backing off".into()), peer: Some("beta".into()), ..args() };
    let (exit, said) = listed(&args, true, &daemon);
    assert_eq!((exit, said.lines.len()), (Ok(Exit::Done), 3));
    let (_, said) = listed(&args, false, &daemon);
    assert_eq!(said.notes, ["the oldest are shown; newer ones follow with --after 12, or --all"]);
}

#[test]
fn what_nobody_is_left_to_have_can_be_listed_alone() {
    let daemon = Daemon::answering(|_, _| {
        let unplaced = Segment { unplaced: true, ..segment(2, &[]) };
        page(vec![segment(1, &[("beta", "queued", None)]), unplaced], None)
    });
    let (exit, said) = listed(&LsArgs { unplaced: true, ..args() }, true, &daemon);
    assert_eq!((exit, said.lines.len()), (Ok(Exit::Done), 1));
    assert_eq!(serde_json::from_str::<Segment>(&said.lines[0]).unwrap().seq, 2);
    let none = Daemon::answering(|_, _| page(vec![segment(1, &[])], None));
    let (exit, _) = listed(&LsArgs { unplaced: true, ..args() }, false, &none);
    assert_eq!(exit, Ok(Exit::NoMatch));
}

#[test]
fn nothing_is_4_only_where_something_was_looked_for() {
    let daemon = Daemon::answering(|_, _| page(vec![segment(1, &[])], None));
    let old = LsArgs { older: Some(Duration::from_secs(121)), ..args() };
    assert_eq!(listed(&old, false, &daemon).0, Ok(Exit::NoMatch));
    let young = LsArgs { older: Some(Duration::from_secs(120)), ..args() };
    assert_eq!(listed(&young, false, &daemon).0, Ok(Exit::Done));
    let empty = Daemon::answering(|_, _| page(vec![], None));
    let (exit, said) = listed(&args(), false, &empty);
    assert_eq!((exit, said.notes), (Ok(Exit::Done), vec!["no segments".into()]));
    let refused =
        Daemon::answering(|_, _| Say::json(404, json!({"code": "missing", "message": "m"})));
    assert_eq!(listed(&args(), false, &refused).0.unwrap_err().exit, Exit::Failed);
}
