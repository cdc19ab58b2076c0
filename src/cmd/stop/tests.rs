//! Stopping, and the wait for the end.

use std::process::Command;

use serde_json::json;

use super::*;
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::said;

fn unreachable() -> Failure {
    Failure::new(Exit::Unreachable, "CN0601", "nobody")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn the_daemon_is_asked_to_stop() {
    let daemon = Daemon::answering(|request, _| {
        assert_eq!((request.method.name(), request.target.as_str()), ("POST", "/v1/stop"));
        Say::json(202, json!({"schema": "consign.stopping/1", "stopping": true, "pid": 7}))
    });
    let (stopping, said) = said(false, |screen| stop(&mut Api::new(&daemon.socket()), screen));
    assert_eq!(stopping.unwrap().pid, 7);
    assert_eq!(said.lines, ["Stopping  (what is in flight is finished first)"]);
}

#[test]
fn the_wait_is_over_when_nobody_answers_and_the_process_has_ended() {
    let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let stopping = Stopping { pid: child.id(), ..Stopping::default() };
    let mut looks = 0;
    let mut input = child.stdin.take();
    wait(&stopping, soon(), || {
        looks += 1;
        if looks < 3 {
            return Ok(());
        }
        // The process ends when its input does, some time after it has ceased to answer.
        drop(input.take());
        Err(unreachable())
    })
    .unwrap();
    assert_eq!(looks, 3);
    assert!(child.try_wait().unwrap().is_some(), "it was waited for");
}

#[test]
fn a_daemon_that_goes_on_answering_has_not_stopped() {
    let failure = wait(&Stopping::default(), Instant::now(), || Ok(())).unwrap_err();
    assert_eq!((failure.exit, failure.code), (Exit::Failed, "CN0606"));
}

#[test]
fn a_process_that_is_gone_or_no_process_at_all_is_not_waited_for() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    for pid in [0, child.id(), u32::MAX] {
        let stopping = Stopping { pid, ..Stopping::default() };
        wait(&stopping, soon(), || Err(unreachable())).unwrap();
    }
}
