//! The single checks.

use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consign_core::config::PeerConfig;

use super::Check;
use crate::admin::shapes::{Peer, Status};
use crate::client::Api;
use crate::cmd::check::judge::ends;
use crate::cmd::check::{CERTIFICATE, Verdict};
use crate::config::{Settings, outside};
use crate::human;
use crate::inbox::Left;
use crate::tls::identity::date;
use crate::tls::{Credentials, NO_PEER};

/// How long a peer may take to take a connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// Peers that are tried at most.
const TRIED: usize = 64;
/// No clock can be right that is before this: 2025-01-01.
const EARLIEST: i64 = 1_735_689_600;

fn seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// What can be seen without a running site.
pub(super) fn of_files(settings: &Settings) -> Vec<Check> {
    let now = seconds();
    let mut found = vec![
        Check::ok("configuration", format!("{} is good", settings.file.display())),
        certificate(settings, now),
        data_dir(&settings.data_dir),
        clock(now),
        disk(&settings.data_dir, settings.node.min_free),
    ];
    let unusable = outside::unusable(settings).into_iter();
    found.extend(unusable.map(|it| Check::warning(it.section, it.text, it.help)));
    found.extend(unfinished(settings));
    found
}

/// What rules that are no more have left and no start has come to so far.
fn unfinished(settings: &Settings) -> Vec<Check> {
    let dirs = Left::unfinished(&settings.data_dir, &settings.inbox).into_iter();
    let tell = |dir: std::path::PathBuf| {
        let text =
            format!("{}: unfinished files of a rule that is no more may be left", dir.display());
        Check::warning("inbox", text, "the next start that finds that disk there removes them")
    };
    dirs.map(tell).collect()
}

fn certificate(settings: &Settings, now: i64) -> Check {
    const NAME: &str = "certificate";
    let loaded = Credentials::read(&settings.tls).and_then(|read| read.setup(&settings.node));
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(why) => return Check::failed(NAME, &why),
    };
    let until = loaded.own.not_after;
    // What ends soon is judged as `check` judges it.
    match loaded.warning.filter(|warning| warning.starts_with(NO_PEER)) {
        Some(warning) => Check::wrong(NAME, format!("{warning} [CN0309]"), RENEW),
        None => lasts(until, now),
    }
}

/// What helps.
const RENEW: &str =
    "`consign cert renew`, or `consign cert request` where the authority is elsewhere";

fn lasts(until: i64, now: i64) -> Check {
    let text = format!("valid until {}", date(until));
    match ends(until.saturating_sub(now), CERTIFICATE) {
        Verdict::Ok => Check::ok("certificate", text),
        Verdict::Critical => Check::wrong("certificate", text, RENEW),
        _ => Check::warning("certificate", text, RENEW),
    }
}

fn data_dir(dir: &Path) -> Check {
    const NAME: &str = "data_dir";
    let shown = dir.display();
    let meta = match std::fs::metadata(dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Check::ok(NAME, format!("{shown} is not there yet: the first start makes it"));
        }
        Err(e) => return Check::wrong(NAME, format!("{shown}: {e}"), "look at its permissions"),
    };
    let mode = meta.permissions().mode() & 0o7777;
    if !meta.is_dir() {
        return Check::wrong(NAME, format!("{shown} is no directory"), "name another data_dir");
    }
    if mode & 0o002 != 0 {
        let text =
            format!("{shown} has mode {mode:04o}: everybody on this machine can write to it");
        return Check::wrong(NAME, text, format!("chmod o-w {shown}"));
    }
    let (mine, owner) = (rustix::process::geteuid().as_raw(), meta.uid());
    if owner != mine && mine != 0 {
        let text = format!("{shown} belongs to user {owner}, this is user {mine}");
        return Check::warning(NAME, text, "run this as the site's own user");
    }
    Check::ok(NAME, format!("{shown} has mode {mode:04o}"))
}

fn clock(now: i64) -> Check {
    if now < EARLIEST {
        let text = format!("the system's clock says {}", date(now));
        return Check::wrong("clock", text, "set it: certificates and expiry depend on it");
    }
    Check::ok("clock", date(now))
}

fn disk(dir: &Path, min_free: u64) -> Check {
    // A directory that is yet to be made will be on its parent's disk.
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(there) {
        Ok(space) => room(space.f_bavail.saturating_mul(space.f_frsize), min_free),
        Err(e) => Check::wrong("disk", format!("{}: {e}", there.display()), ""),
    }
}

fn room(free: u64, min_free: u64) -> Check {
    let text = format!("{} free, {} of it stay free", human::bytes(free), human::bytes(min_free));
    if free < min_free {
        return Check::wrong("disk", text, "make room: new segments are refused");
    }
    if free < min_free.saturating_mul(2) {
        return Check::warning("disk", text, "make room soon");
    }
    Check::ok("disk", text)
}

/// What a running site says of itself, and whether its peers can be reached.
pub(super) fn of_site(api: Option<&mut Api>, peers: &[PeerConfig]) -> Vec<Check> {
    let Some(api) = api else { return Vec::new() };
    let status: Status = match api.json("GET", "/v1/status") {
        Ok(status) => status,
        Err(why) => {
            let mut found = vec![Check::warning(
                "site",
                format!("{} [{}]", why.message, why.code),
                "start it: `consign serve`; `consign fsck` checks its ledger before",
            )];
            let tried = peers.iter().map(|peer| (peer.name.as_str(), peer.address.as_str(), ""));
            found.extend(reached(tried.collect()));
            return found;
        }
    };
    let mut found = of_status(&status);
    found.extend(
        status
            .peers
            .iter()
            .filter(|peer| peer.up)
            .map(|peer| Check::ok("peer", format!("{} is connected", peer.name))),
    );
    let down = status.peers.iter().filter(|peer| !peer.up && !peer.address.is_empty());
    let down = down
        .map(|peer: &Peer| (peer.name.as_str(), peer.address.as_str(), peer.last_error.as_str()));
    found.extend(reached(down.collect()));
    found
}

/// What a status says of the site's health.
pub(super) fn of_status(status: &Status) -> Vec<Check> {
    let up = human::seconds(status.up_seconds);
    let mut found = vec![Check::ok("site", format!("{} runs, up {up}", status.name))];
    if status.clock_held {
        let text = "the clock has jumped: nothing expires";
        found.push(Check::warning("clock", text, "`consign clock confirm`, if it is right now"));
    }
    if status.storage.full {
        let text = "full: new segments are refused";
        found.push(Check::wrong("disk", text, "make room; consign quota says where"));
    } else if status.storage.used >= status.storage.limit && status.storage.limit > 0 {
        let text = "storage.max_bytes is used up: new segments are refused";
        found.push(Check::wrong(
            "storage",
            text,
            "raise it, or make room; consign quota says where",
        ));
    }
    let ledger = [
        (status.quarantined > 0, human::count(status.quarantined, "row") + " in quarantine"),
        (
            status.scrub.damaged > 0,
            format!("the content of {} is damaged", human::count(status.scrub.damaged, "segment")),
        ),
        (!status.ledger.ballast_whole, "the reserve for a full disk is not whole".into()),
    ];
    let troubles: Vec<String> =
        ledger.into_iter().filter(|(is, _)| *is).map(|(_, text)| text).collect();
    if troubles.is_empty() {
        found.push(Check::ok("ledger", "nothing is set aside, nothing was found damaged"));
    } else {
        let help = "look at the disk; `consign stop`, then: `consign fsck`";
        found.push(Check::warning("ledger", troubles.join("; "), help));
    }
    let now = SystemTime::now();
    for rule in &status.inbox {
        for (what, help) in super::super::inbox::troubles(rule, now) {
            found.push(Check::warning("inbox", format!("{}: {what}", rule.dir), help));
        }
    }
    for dir in status.watch.iter().filter(|dir| !dir.error.is_empty()) {
        let help = "it is tried again by itself; consign watch ls";
        found.push(Check::warning("watch", format!("{}: {}", dir.dir, dir.error), help));
    }
    let dead: u64 = status.peers.iter().map(|peer| peer.dead.count).sum();
    if dead > 0 {
        let text = human::count(dead, "dead letter");
        found.push(Check::warning("deadletters", text, "`consign deadletter ls --by reason`"));
    }
    found
}

/// Tries a connection to each of these (name, address, last error), all at once.
fn reached(peers: Vec<(&str, &str, &str)>) -> Vec<Check> {
    let tried = &peers[..peers.len().min(TRIED)];
    std::thread::scope(|scope| {
        let tries: Vec<_> = tried.iter().map(|peer| scope.spawn(move || reach(*peer))).collect();
        tries.into_iter().filter_map(|tried| tried.join().ok()).collect()
    })
}

fn reach((name, address, error): (&str, &str, &str)) -> Check {
    let said = if error.is_empty() { String::new() } else { format!(" ({error})") };
    let connected = address.to_socket_addrs().map_err(|e| e.to_string()).and_then(|found| {
        let mut last = "its name has no address".to_string();
        for at in found {
            match TcpStream::connect_timeout(&at, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(e) => last = e.to_string(),
            }
        }
        Err(last)
    });
    match connected {
        Ok(()) if error.is_empty() => Check::ok("peer", format!("{name} answers at {address}")),
        Ok(()) => {
            let text = format!("{name} answers at {address}, but there is no session{said}");
            let help = super::super::peers::repin(name, error)
                .unwrap_or_else(|| format!("look at certificates and names here and at {name}"));
            Check::warning("peer", text, help)
        }
        Err(why) => {
            let text = format!("{name} does not answer at {address}: {why}{said}");
            Check::warning(
                "peer",
                text,
                format!("is {name} up, is its address right, is a firewall between?"),
            )
        }
    }
}

#[cfg(test)]
mod tests;
