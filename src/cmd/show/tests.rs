//! A segment in words.

use super::*;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::said;

fn segment() -> Segment {
    let delivery = |peer: &str, state: &str| Delivery {
        peer: peer.into(),
        state: state.into(),
        attempts: 3,
        spent: 1,
        since: "2026-11-30T18:43:55.000Z".into(),
        ..Delivery::default()
    };
    Segment {
        schema: Segment::SCHEMA.into(),
        id: "3fa9c17be204".to_string() + &"0".repeat(52),
        seq: 7,
        name: "video.mp4".into(),
        content_type: "video/mp4".into(),
        labels: [("camera".into(), "7".into()), ("shop".into(), "north".into())].into(),
        priority: "normal".into(),
        size: 1000,
        digest: "d".repeat(64),
        to: vec!["beta".into(), "gamma".into()],
        origin: "alpha".into(),
        hops: 1,
        accepted_at: "2026-11-30T18:42:05.000Z".into(),
        deliveries: vec![
            Delivery { sent: Some(670), ..delivery("beta", "sending") },
            Delivery {
                next_attempt_at: Some("2026-11-30T18:44:13.000Z".into()),
                last_error: Some("ack_timeout".into()),
                ..delivery("gamma", "backing off")
            },
        ],
        ..Segment::default()
    }
}

fn now() -> SystemTime {
    human::moment("2026-11-30T18:44:05.000Z").unwrap()
}

#[test]
fn everything_about_a_segment() {
    let expected = format!(
        "\
3fa9c17be204  video.mp4  1000 B  accepted 2 min ago
  id        3fa9c17be204{}
  blake3    {}
  size      1000 bytes
  type      video/mp4
  labels    camera=7 shop=north
  priority  normal
  from      alpha, 1 hop
  to        beta, gamma
  accepted  2026-11-30T18:42:05.000Z
PEER   STATE         SINCE     ATTEMPTS  SPENT  NEXT TRY  LAST ERROR
beta   sending 67 %  10 s ago         3      1
gamma  backing off   10 s ago         3      1  in 8 s    ack_timeout
",
        "0".repeat(52),
        "d".repeat(64)
    );
    assert_eq!(text(&segment(), now(), &Address::default()), expected);
}

#[test]
fn a_destination_says_that_it_keeps_it() {
    let segment = Segment { here: true, deliveries: Vec::new(), ..segment() };
    assert!(text(&segment, now(), &Address::default()).ends_with("forwards it to nobody\n"));
}

#[test]
fn what_nobody_is_left_to_have_names_the_command_that_lets_it_go() {
    let shown = Segment { here: true, unplaced: true, deliveries: Vec::new(), ..segment() };
    let shown = text(&shown, now(), &Address::default());
    let line = shown.lines().find(|line| line.starts_with("  unplaced  ")).unwrap();
    assert!(line.contains("purged or forgotten (consign audit), or refused as already"), "{line}");
    assert!(line.ends_with("kept here until: consign release 3fa9c17be204"), "{line}");
    assert!(!shown.contains("stays here"), "{shown}");
}

#[test]
fn several_are_shown_and_an_unknown_one_is_4() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/segments/3fa9c1" => Say::json(200, serde_json::to_value(segment()).unwrap()),
        _ => Say::refuse(404, "unknown", "no segment has an id that begins so"),
    });
    let show = |ids: &[&str]| {
        let args = ShowArgs { ids: ids.iter().map(|id| (*id).into()).collect() };
        said(true, |screen| show(&args, &mut Api::new(&daemon.socket()), screen, now()))
    };
    let (exit, said) = show(&["3fa9c1", "3fa9c1"]);
    assert_eq!((exit, said.lines.len()), (Ok(Exit::Done), 2));
    assert_eq!(serde_json::from_str::<Segment>(&said.lines[0]).unwrap(), segment());
    assert_eq!(show(&["000000"]).0.unwrap_err().exit, Exit::NoMatch);
}
