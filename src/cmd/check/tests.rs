//! Every verdict of every check, and every way of saying it.

use std::time::{Duration, UNIX_EPOCH};

use clap::Parser;
use serde_json::Value;

use super::*;
use crate::admin::reloads::{Certificate, LastReload};
use crate::admin::shapes::{Count, Ledger, Peer, Storage};
use crate::client::testing::{Daemon, Say};
use crate::cmd::screen::said;

/// 2026-12-01T00:00:00Z
const NOW: u64 = 1_796_083_200;
const DAY: i64 = 86_400;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: CheckArgs,
}

fn args(line: &[&str]) -> CheckArgs {
    let line = std::iter::once("check").chain(line.iter().copied());
    Line::try_parse_from(line).unwrap_or_else(|e| panic!("{e}")).args
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// A site that is well and knows beta.
fn well() -> Status {
    let gib = 1 << 30;
    Status {
        name: "alpha".into(),
        version: "0.1.0".into(),
        up_seconds: 600,
        storage: Storage {
            used: 10 * gib,
            limit: 100 * gib,
            free: 50 * gib,
            min_free: gib,
            ..Storage::default()
        },
        ledger: Ledger { used: gib, limit: 64 * gib, ..Ledger::default() },
        reload: LastReload { ok: true, ..LastReload::default() },
        certificates: vec![certificate("own", 90 * DAY)],
        peers: vec![Peer { name: "beta".into(), known: true, ..Peer::default() }],
        ..Status::default()
    }
}

fn certificate(name: &str, left: i64) -> Certificate {
    let expires_seconds = i64::try_from(NOW).unwrap() + left;
    Certificate { certificate: name.into(), expires_seconds, ..Certificate::default() }
}

#[test]
fn a_site_that_has_just_started_is_up_whole_seconds() {
    let checked = judged(&[], |status| status.up_seconds = 0);
    assert!(checked.checks[0].text.ends_with("answers, up 0 s"), "{:?}", checked.checks[0]);
}

fn judged(line: &[&str], change: impl FnOnce(&mut Status)) -> Checked {
    let mut status = well();
    change(&mut status);
    judge::judge(&status, &args(line), now())
}

/// The one check that is not well, as `check subject verdict`, with its text.
fn bad(change: impl FnOnce(&mut Status)) -> (String, String) {
    let checked = judged(&[], change);
    let mut bad = checked.checks.iter().filter(|check| check.verdict != Verdict::Ok);
    let check = bad.next().expect("something is not well");
    assert_eq!(bad.next(), None, "only one is");
    assert_eq!(check.verdict, checked.verdict);
    let Check { check: name, subject, verdict, .. } = check;
    (format!("{name} {subject} {}", verdict.word()), check.text.clone())
}

fn ago(seconds: u64) -> Option<String> {
    let at = consign_core::time::UnixMillis((NOW - seconds) * 1000);
    Some(consign_core::http::rfc3339(at))
}

#[test]
fn a_site_that_is_well_is_ok_in_everything() {
    let checked = judged(&[], |_| {});
    assert_eq!((checked.verdict, checked.site.as_str()), (Verdict::Ok, "alpha"));
    assert!(checked.checks.iter().all(|check| check.verdict == Verdict::Ok), "{checked:?}");
    let names: Vec<&str> = checked.checks.iter().map(|check| check.check.as_str()).collect();
    let storage = ["storage"; 3];
    let want = [&["site"], &storage[..], &["content", "certificate", "reload"], &["pending"]];
    assert_eq!(names, [want.concat(), vec!["deadletters"]].concat());
}

#[test]
fn what_waits_is_judged_by_its_age_at_the_limits_exactly() {
    for (age, verdict) in [(899, "ok"), (900, "warning"), (14_399, "warning"), (14_400, "critical")]
    {
        let checked = judged(&[], |status| status.peers[0].oldest = ago(age));
        let pending = checked.checks.iter().find(|c| c.check == "pending").unwrap();
        assert_eq!((pending.verdict.word(), pending.value), (verdict, Some(age as i64)), "{age}");
    }
    let (what, text) = bad(|status| {
        status.peers[0].oldest = ago(1_000);
        status.peers[0].last_error = "connect: connection refused".into();
    });
    assert_eq!(what, "pending beta warning");
    let want = "the oldest segment for beta has waited for 17 min: connect: connection refused";
    assert_eq!(text, want);
    let (what, text) = bad(|status| {
        status.peers[0].oldest = ago(90_000);
        status.peers[0].held = true;
    });
    assert_eq!(what, "pending beta warning", "an operator's hold is never critical");
    assert!(text.ends_with("which an operator holds"), "{text}");
}

#[test]
fn dead_letters_and_pins_are_told() {
    let dead = |count| move |s: &mut Status| s.peers[0].dead = Count { count, bytes: 1 };
    let (what, text) = bad(dead(1));
    assert_eq!(what, "deadletters beta warning");
    assert_eq!(text, "1 dead letter for beta: consign deadletter ls --by reason");
    assert_eq!(bad(dead(100)).0, "deadletters beta critical");
    let (what, text) = bad(|status| status.peers[0].needs_rekey = true);
    assert_eq!(what, "peer beta warning");
    assert_eq!(text, "beta shows another pin: consign peers rekey beta");
}

#[test]
fn room_is_judged_in_percent_and_a_full_site_is_critical() {
    let gib = 1_u64 << 30;
    let (what, text) = bad(|status| status.storage.used = 80 * gib);
    assert_eq!(what, "storage storage.max_bytes warning");
    assert_eq!(text, "80 % of storage.max_bytes is used: 80.0 GiB of 100 GiB");
    assert_eq!(bad(|s| s.storage.used = 95 * gib).0, "storage storage.max_bytes critical");
    assert_eq!(bad(|s| s.ledger.used = 60 * gib).0, "storage storage.ledger_max warning");
    let pickup = bad(|s| (s.pickup.used, s.pickup.limit, s.pickup.clients) = (99, 100, 1)).0;
    assert_eq!(pickup, "storage buffer.max_bytes critical");
    assert_eq!(bad(|s| s.storage.full = true).0, "storage disk critical");
    let (what, text) = bad(|status| status.storage.free = gib / 2);
    assert_eq!(what, "storage disk critical");
    assert_eq!(text, "512 MiB are free on the disk, less than storage.min_free, 1.0 GiB");
}

#[test]
fn certificates_are_judged_by_what_is_left_of_them() {
    let of = |left: i64| move |s: &mut Status| s.certificates = vec![certificate("own", left)];
    for (left, verdict) in [(14 * DAY, "warning"), (3 * DAY, "critical"), (-DAY, "critical")] {
        assert_eq!(bad(of(left)).0, format!("certificate own {verdict}"), "{left}");
    }
    assert!(judged(&[], of(14 * DAY + 1)).verdict == Verdict::Ok);
    assert_eq!(bad(of(-DAY)).1, "this site's certificate ended 24 h ago: consign cert renew");
    let authority = bad(|s| s.certificates.push(certificate("authority", 4 * DAY)));
    assert_eq!(authority.0, "certificate authority warning");
    let (what, text) = bad(|status| status.certificate_files = "CN0302: no key".into());
    assert_eq!(what, "certificate files warning");
    assert!(text.ends_with("CN0302: no key"), "{text}");
}

#[test]
fn configuration_content_and_clock_are_told() {
    let (what, text) = bad(|s| (s.reload.ok, s.reload.problem) = (false, "CN0203: x".into()));
    assert_eq!(what, "reload  warning");
    assert_eq!(text, "an earlier configuration is in use: CN0203: x");
    let (what, text) = bad(|s| (s.quarantined, s.scrub.damaged) = (2, 1));
    assert_eq!(what, "content  critical");
    assert!(text.starts_with("2 rows set aside, 1 segment damaged"), "{text}");
    assert_eq!(bad(|s| s.clock_held = true).0, "site  warning");
    assert_eq!(bad(|s| s.stopping = true).0, "site  warning");
}

#[test]
fn peers_can_be_picked_and_one_that_is_not_there_is_unknown() {
    let checked = judged(&["--peer", "beta", "--peer", "nobody"], |_| {});
    let subjects: Vec<&str> = checked.checks.iter().map(|c| c.subject.as_str()).collect();
    assert_eq!(subjects, ["beta", "beta", "nobody"]);
    assert_eq!(checked.verdict, Verdict::Unknown);
}

#[test]
fn limits_are_read_strictly() {
    let strict = args(&["--pending", "1m,2m", "--storage", "50%,60%", "--certificate", "30d, 7d"]);
    assert_eq!(strict.pending, Limits { warning: 60, critical: 120 });
    assert_eq!(strict.storage, Limits { warning: 50, critical: 60 });
    assert_eq!(strict.certificate, Limits { warning: 30 * 86_400, critical: 7 * 86_400 });
    for bad in [
        ["--pending", "15m"],
        ["--pending", "4h,15m"],
        ["--deadletters", "-1,2"],
        ["--storage", "x,2"],
        ["--certificate", "3d,14d"],
    ] {
        assert!(Line::try_parse_from(["check"].iter().chain(&bad)).is_err(), "{bad:?}");
    }
}

#[test]
fn every_format_says_the_same_and_the_exit_code_is_nagios_own() {
    let table = [
        (Verdict::Ok, Exit::Done, 0),
        (Verdict::Warning, Exit::Failed, 1),
        (Verdict::Critical, Exit::Usage, 2),
        (Verdict::Unknown, Exit::Partly, 3),
    ];
    for (verdict, exit, number) in table {
        assert_eq!((verdict.exit(), exit as u8, verdict.number()), (exit, number, number));
    }
    let checked = judged(&["--peer", "beta"], |status| {
        status.peers[0].oldest = ago(1_000);
        status.peers[0].last_error = "a | b".into();
    });
    let say = |format| {
        let (exit, heard) = said(false, |screen| show(&checked, format, screen));
        assert_eq!(exit, Ok(Exit::Failed));
        heard.lines.join("\n")
    };
    let text = "\
warning  pending      beta  the oldest segment for beta has waited for 17 min: a | b
ok       deadletters  beta  0 dead letters for beta";
    assert_eq!(say(Format::Text), text);
    let nagios = "\
CONSIGN WARNING - alpha: the oldest segment for beta has waited for 17 min: a / b (1 of 2 checks are well) \
| 'pending_beta'=1000s;900;14400 'deadletters_beta'=0;1;100
warning: the oldest segment for beta has waited for 17 min: a / b";
    assert_eq!(say(Format::Nagios), nagios);
    let page = say(Format::Prometheus);
    let series = "consign_check_verdict{site=\"alpha\",check=\"pending\",subject=\"beta\"} 1\n";
    assert!(page.contains(series), "{page}");
    let object: Value = serde_json::from_str(&say(Format::Json)).expect("one object");
    assert_eq!(
        (&object["schema"], &object["verdict"]),
        (&"consign.check/1".into(), &"warning".into())
    );
    assert_eq!(object["checks"][0]["value"], 1_000);
    let certificates = judged(&[], |_| {});
    let (_, heard) = said(false, |screen| show(&certificates, Format::Nagios, screen));
    assert!(heard.lines[0].contains("'certificate_own'=7776000s;1209600:;259200:"), "{heard:?}");
    assert!(heard.lines[0].starts_with("CONSIGN OK - alpha: everything is well"), "{heard:?}");
}

#[test]
fn a_site_that_does_not_answer_is_critical_and_one_that_may_not_be_asked_unknown() {
    let nowhere = tempfile::tempdir().unwrap();
    let silent = ask(&args(&[]), &nowhere.path().join("admin.sock"));
    assert_eq!((silent.verdict, silent.site.as_str()), (Verdict::Critical, ""));
    assert!(silent.checks[0].text.starts_with("CN0601: no daemon answers at "), "{silent:?}");
    let refused = Daemon::answering(|_, _| {
        let body = serde_json::json!({ "code": "not_permitted", "message": "uid 7 is not it" });
        Say::json(403, body)
    });
    assert_eq!(ask(&args(&[]), &refused.socket()).verdict, Verdict::Unknown);
    // What the ledger knows of peers counts, not what is in memory.
    let answers = Daemon::answering(|request, _| {
        let mut status = well();
        let body = match request.target.as_str() {
            "/v1/peers" => {
                status.peers[0].oldest = ago(0);
                serde_json::to_value(Peers { schema: Peers::SCHEMA.into(), peers: status.peers })
            }
            _ => serde_json::to_value(status),
        };
        Say::json(200, body.expect("JSON"))
    });
    let checked = ask(&args(&["--pending", "0s,520w"]), &answers.socket());
    let pending = checked.checks.iter().find(|check| check.check == "pending").unwrap();
    assert_eq!((checked.site.as_str(), pending.verdict), ("alpha", Verdict::Warning));
    let text = judge::no_answer(Verdict::Unknown, "a\nb").checks[0].text.clone();
    assert_eq!(text, "a b");
}

#[test]
fn certificates_are_judged_as_doctor_judges_them_where_nothing_else_is_said() {
    assert_eq!(args(&[]).certificate, CERTIFICATE);
}
