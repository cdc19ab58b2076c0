//! Waiting against a scripted daemon.

use std::sync::{Arc, Mutex};

use super::*;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::{Said, said};

fn accepted(id: &str, peers: &[&str]) -> Accepted {
    let added = peers.iter().map(|p| (*p).into()).collect();
    Accepted { id: id.into(), name: id.into(), size: 100, added, new: true, ..Accepted::default() }
}

fn segment(id: &str, deliveries: &[(&str, &str)]) -> Say {
    let delivery = |(peer, state): &(&str, &str)| Delivery {
        peer: (*peer).into(),
        state: (*state).into(),
        since: "2026-11-30T18:44:06.000Z".into(),
        ..Delivery::default()
    };
    let segment = Segment {
        id: id.into(),
        name: id.into(),
        size: 100,
        accepted_at: "2026-11-30T18:44:05.000Z".into(),
        deliveries: deliveries.iter().map(delivery).collect(),
        ..Segment::default()
    };
    Say::json(200, serde_json::to_value(segment).unwrap())
}

fn waited(
    daemon: &Daemon,
    all_of: Vec<Accepted>,
    until: Option<Instant>,
    json: bool,
) -> (Result<Waited, Failure>, Said) {
    let all_of = all_of.into_iter().map(|one| (one, SystemTime::now())).collect();
    said(json, |screen| all(&mut Api::new(&daemon.socket()), all_of, until, screen))
}

#[test]
fn a_segment_is_waited_for_until_every_peer_has_it() {
    let steps = [
        vec![("beta", "queued")],
        vec![("beta", "sending"), ("gamma", "queued")],
        vec![("beta", "delivered"), ("gamma", "backing off")],
        vec![("beta", "delivered"), ("gamma", "delivered")],
    ];
    let mut steps = steps.into_iter();
    let daemon = Daemon::answering(move |_, _| segment("a", &steps.next().unwrap()));
    let (result, said) = waited(&daemon, vec![accepted("a", &["beta", "gamma"])], None, false);
    assert_eq!(result, Ok(Waited::default()));
    assert_eq!(said.lines, ["Delivered a  to beta, gamma in 1.0 s  (receipt: consign show a)"]);
}

#[test]
fn what_is_there_already_is_not_waited_for_and_what_is_dead_is_told() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&asked);
    let daemon = Daemon::answering(move |request, _| {
        keep.lock().unwrap().push(request.target.clone());
        segment("b", &[("beta", "dead"), ("gamma", "delivered"), ("other", "queued")])
    });
    let there = Accepted { delivered: vec!["beta".into()], added: vec![], ..accepted("a", &[]) };
    let both = vec![there, accepted("b", &["beta", "gamma"])];
    let (result, said) = waited(&daemon, both, None, false);
    assert_eq!(result, Ok(Waited { dead: 1, still_queued: 0 }));
    assert_eq!(*asked.lock().unwrap(), ["/v1/segments/b"]);
    assert_eq!(said.lines.len(), 2);
    assert!(
        said.lines[1].starts_with("Dead      b  for beta after 0 attempts"),
        "{:?}",
        said.lines
    );
}

#[test]
fn when_time_is_up_it_is_still_queued() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/segments/a" => segment("a", &[("beta", "delivered")]),
        _ => segment("b", &[("beta", "backing off")]),
    });
    let both = || vec![accepted("a", &["beta"]), accepted("b", &["beta"])];
    let (result, said) = waited(&daemon, both(), Some(Instant::now()), false);
    assert_eq!(result, Ok(Waited { dead: 0, still_queued: 1 }));
    assert_eq!(said.lines[1], "Queued    b  still, when the wait ran out  (beta: backing off)");
    let (_, said) = waited(&daemon, both(), Some(Instant::now()), true);
    let states: Vec<serde_json::Value> = said
        .lines
        .iter()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["state"].clone())
        .collect();
    assert_eq!(states, ["delivered", "queued"]);
}

#[test]
fn segments_that_move_on_do_not_wait_for_one_that_does_not() {
    let daemon = Daemon::answering(|request, _| match request.target.as_str() {
        "/v1/segments/stuck" => segment("stuck", &[("beta", "queued")]),
        other => segment(other.rsplit('/').next().unwrap(), &[("gamma", "delivered")]),
    });
    let mut many = vec![accepted("stuck", &["beta"])];
    many.extend((0..100).map(|i| accepted(&format!("n{i}"), &["gamma"])));
    let (result, said) = waited(&daemon, many, Some(Instant::now() + 4 * PAUSE_MIN), false);
    assert_eq!(result, Ok(Waited { dead: 0, still_queued: 1 }));
    assert_eq!(said.lines.len(), 101);
    assert!(said.lines[100].contains("stuck"));
}

#[test]
fn progress_never_goes_back() {
    let mut open = Open::of((accepted("a", &["beta", "gamma"]), SystemTime::now())).unwrap();
    let look = |open: &mut Open, sent: [Option<u64>; 2], state: &str| {
        let delivery = |peer: &str, sent| Delivery {
            peer: peer.into(),
            state: state.into(),
            sent,
            ..Delivery::default()
        };
        let deliveries = vec![delivery("beta", sent[0]), delivery("gamma", sent[1])];
        open.look(&Segment { size: 100, deliveries, ..Segment::default() });
        open.sent
    };
    assert_eq!(look(&mut open, [Some(60), Some(20)], "sending"), 40);
    assert_eq!(look(&mut open, [None, Some(20)], "sending"), 40, "an attempt broke off");
    assert_eq!(look(&mut open, [None, None], "delivered"), 100);
}
