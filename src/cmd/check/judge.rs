//! What is looked at, and how well it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Check, CheckArgs, Checked, Limits, Verdict};
use crate::admin::shapes::{Peer, Status};
use crate::human;

/// The site could not be asked.
pub(super) fn no_answer(verdict: Verdict, why: &str) -> Checked {
    let text = why.trim().replace('\n', " ");
    Checked::new("", vec![Check { check: "site".into(), verdict, text, ..Check::default() }])
}

/// Everything about a site that has answered.
pub(super) fn judge(status: &Status, args: &CheckArgs, now: SystemTime) -> Checked {
    let mut checks = Vec::new();
    if args.peer.is_empty() {
        checks.push(site(status));
        checks.extend(storage(status, args.storage));
        checks.push(content(status));
        checks.extend(certificates(status, args.certificate, now));
        checks.push(reload(status));
        checks.extend(rules(status, now));
    }
    for peer in &status.peers {
        if args.peer.is_empty() || args.peer.contains(&peer.name) {
            checks.push(pending(peer, args.pending, now));
            checks.push(deadletters(peer, args.deadletters));
            checks.extend(rekey(peer));
        }
    }
    for name in args.peer.iter().filter(|name| !status.peers.iter().any(|p| p.name == **name)) {
        let text = format!("no peer is called {name}");
        checks.push(of("peer", name, Verdict::Unknown, text));
    }
    Checked::new(&status.name, checks)
}

fn of(check: &str, subject: &str, verdict: Verdict, text: String) -> Check {
    Check { check: check.into(), subject: subject.into(), verdict, text, ..Check::default() }
}

/// A value that is bad from a limit on.
fn above(value: u64, limits: Limits) -> Verdict {
    match value {
        value if value >= limits.critical => Verdict::Critical,
        value if value >= limits.warning => Verdict::Warning,
        _ => Verdict::Ok,
    }
}

fn measured(check: Check, value: i64, unit: &str, limits: Limits) -> Check {
    let (warning, critical) = (Some(limits.warning), Some(limits.critical));
    Check { value: Some(value), unit: unit.into(), warning, critical, ..check }
}

fn site(status: &Status) -> Check {
    if status.stopping {
        return of("site", "", Verdict::Warning, format!("{} is stopping", status.name));
    }
    if status.clock_held {
        let text = "the clock has stepped and nothing expires: consign clock confirm".into();
        return of("site", "", Verdict::Warning, text);
    }
    let up = human::seconds(status.up_seconds);
    of("site", "", Verdict::Ok, format!("{} {} answers, up {up}", status.name, status.version))
}

fn pending(peer: &Peer, limits: Limits, now: SystemTime) -> Check {
    let Some(since) = peer.oldest.as_deref().and_then(human::moment) else {
        let text = format!("nothing waits for {}", peer.name);
        return measured(of("pending", &peer.name, Verdict::Ok, text), 0, "s", limits);
    };
    let age = now.duration_since(since).unwrap_or_default();
    let (name, waits) = (&peer.name, human::duration(age));
    let mut text = format!("the oldest segment for {name} has waited for {waits}");
    let mut verdict = above(age.as_secs(), limits);
    if peer.held && verdict != Verdict::Ok {
        // It waits by an operator's word: that is to be seen, and wakes nobody.
        verdict = Verdict::Warning;
        text += ", which an operator holds";
    } else if verdict != Verdict::Ok && !peer.last_error.is_empty() {
        text = format!("{text}: {}", peer.last_error);
    }
    let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
    measured(of("pending", name, verdict, text), seconds, "s", limits)
}

fn deadletters(peer: &Peer, limits: Limits) -> Check {
    let count = peer.dead.count;
    let verdict = above(count, limits);
    let mut text = format!("{} for {}", human::count(count, "dead letter"), peer.name);
    if verdict != Verdict::Ok {
        text += ": consign deadletter ls --by reason";
    }
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    measured(of("deadletters", &peer.name, verdict, text), count, "", limits)
}

fn rekey(peer: &Peer) -> Option<Check> {
    let text = format!("{0} shows another pin: consign peers rekey {0}", peer.name);
    peer.needs_rekey.then(|| of("peer", &peer.name, Verdict::Warning, text))
}

fn storage(status: &Status, limits: Limits) -> Vec<Check> {
    let (storage, ledger) = (&status.storage, &status.ledger);
    let mut used = vec![
        used("storage.max_bytes", storage.used, storage.limit, limits),
        used("storage.ledger_max", ledger.used, ledger.limit, limits),
    ];
    if status.pickup.is_used() {
        let pickup = &status.pickup;
        used.push(self::used("buffer.max_bytes", pickup.used, pickup.limit, limits));
    }
    let (verdict, text) = if storage.full {
        (Verdict::Critical, "new segments are refused for want of space: consign quota".into())
    } else if storage.free < storage.min_free {
        let (free, least) = (human::bytes(storage.free), human::bytes(storage.min_free));
        let text = format!("{free} are free on the disk, less than storage.min_free, {least}");
        (Verdict::Critical, text)
    } else {
        (Verdict::Ok, format!("{} are free on the disk", human::bytes(storage.free)))
    };
    used.push(of("storage", "disk", verdict, text));
    used
}

fn used(key: &str, used: u64, limit: u64, limits: Limits) -> Check {
    let percent = (u128::from(used) * 100).checked_div(u128::from(limit)).unwrap_or(0);
    let percent = u64::try_from(percent).unwrap_or(u64::MAX);
    let (is, may) = (human::bytes(used), human::bytes(limit));
    let text = format!("{percent} % of {key} is used: {is} of {may}");
    let value = i64::try_from(percent).unwrap_or(i64::MAX);
    measured(of("storage", key, above(percent, limits), text), value, "%", limits)
}

/// Inbox rules and watched directories; nothing where there is none.
fn rules(status: &Status, now: SystemTime) -> Vec<Check> {
    let mut checks = Vec::new();
    for rule in &status.inbox {
        let troubles = super::super::inbox::troubles(rule, now);
        let texts: Vec<String> =
            troubles.iter().map(|(what, help)| format!("{what}: {help}")).collect();
        checks.push(match texts.as_slice() {
            [] => of("inbox", &rule.dir, Verdict::Ok, format!("{} takes files", rule.dir)),
            texts => of("inbox", &rule.dir, Verdict::Warning, texts.join("; ")),
        });
    }
    for dir in &status.watch {
        checks.push(if dir.error.is_empty() {
            of("watch", &dir.dir, Verdict::Ok, format!("{} is watched", dir.dir))
        } else {
            let text = format!("{}: it is tried again by itself; `consign watch ls`", dir.error);
            of("watch", &dir.dir, Verdict::Warning, text)
        });
    }
    checks
}

fn content(status: &Status) -> Check {
    let (rows, damaged) = (status.quarantined, status.scrub.damaged);
    if rows + damaged == 0 {
        return of("content", "", Verdict::Ok, "nothing is known to be damaged".into());
    }
    let (rows, damaged) = (human::count(rows, "row"), human::count(damaged, "segment"));
    let text =
        format!("{rows} set aside, {damaged} damaged: `consign storage`, then `consign fsck`");
    of("content", "", Verdict::Critical, text)
}

/// A certificate with so many seconds left: `doctor` judges by this, too.
pub(in crate::cmd) fn ends(left: i64, limits: Limits) -> Verdict {
    let least = |limit: u64| left <= i64::try_from(limit).unwrap_or(i64::MAX);
    match () {
        () if least(limits.critical) => Verdict::Critical,
        () if least(limits.warning) => Verdict::Warning,
        () => Verdict::Ok,
    }
}

fn certificates(status: &Status, limits: Limits, now: SystemTime) -> Vec<Check> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let mut checks = Vec::new();
    for one in &status.certificates {
        let left = one.expires_seconds.saturating_sub(now);
        let verdict = ends(left, limits);
        let name = match one.certificate.as_str() {
            "own" => "this site's certificate",
            _ => "the authority's certificate",
        };
        let time = |left: i64| human::duration(Duration::from_secs(left.unsigned_abs()));
        let text = match left {
            ..0 => format!("{name} ended {} ago: consign cert renew", time(left)),
            _ if verdict == Verdict::Ok => format!("{name} is valid for {}", time(left)),
            _ => format!("{name} ends in {}: consign cert renew", time(left)),
        };
        let check = of("certificate", &one.certificate, verdict, text);
        checks.push(measured(check, left, "s", limits));
    }
    if !status.certificate_files.is_empty() {
        let text = format!("the files cannot be used as they are: {}", status.certificate_files);
        checks.push(of("certificate", "files", Verdict::Warning, text));
    }
    checks
}

fn reload(status: &Status) -> Check {
    let reload = &status.reload;
    if reload.ok {
        let text = match reload.restart.as_slice() {
            [] => "the configuration was taken".into(),
            keys => {
                format!("the configuration was taken; a restart is needed for {}", keys.join(", "))
            }
        };
        return of("reload", "", Verdict::Ok, text);
    }
    let text = format!("an earlier configuration is in use: {}", reload.problem);
    of("reload", "", Verdict::Warning, text)
}
