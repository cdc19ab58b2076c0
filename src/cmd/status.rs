//! `consign status`: the node at a glance.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use consign_core::ledger::rows_pickup::ShardState;

use super::screen::{Screen, standard};
use crate::admin::pickup::status::Pickup;
use crate::admin::shapes::{Count, Peer, Status};
use crate::advice::Address;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Shows the node and its peers: links, queues, dead letters, last errors.
#[derive(Args, Clone, Debug, Default)]
pub struct StatusArgs {
    /// Again every D [default: 2s]
    #[arg(short, long, value_name = "D", num_args = 0..=1, default_missing_value = "2s")]
    #[arg(value_parser = interval)]
    pub watch: Option<Duration>,
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_millis(100) {
        return Err("it is shorter than 100ms".into());
    }
    Ok(time)
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(args: StatusArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| {
        let mut api = Api::new(socket);
        let mut last: Option<(Status, Instant)> = None;
        loop {
            let status: Status = api.json("GET", "/v1/status")?;
            let asked = Instant::now();
            let before = last.as_ref().map(|(status, at)| (status, asked.duration_since(*at)));
            show(&status, before, screen, SystemTime::now())?;
            let Some(every) = args.watch else { return Ok(Exit::Done) };
            last = Some((status, asked));
            std::thread::sleep(every);
        }
    })
}

/// Shows a status; with an earlier one, rates as well.
fn show(
    status: &Status,
    before: Option<(&Status, Duration)>,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<(), Failure> {
    if screen.is_json() {
        return screen.object(status);
    }
    if before.is_some() {
        screen.line("");
    }
    let text = text(status, before, now, screen.address());
    screen.line(text.trim_end());
    Ok(())
}

/// A status in words, with its commands as the reader called this one.
pub(super) fn text(
    status: &Status,
    before: Option<(&Status, Duration)>,
    now: SystemTime,
    address: &Address,
) -> String {
    let mut text = address.tell(&headline(status, now));
    let rows: Vec<Vec<String>> = status
        .peers
        .iter()
        .map(|peer| {
            let earlier = before.and_then(|(status, passed)| {
                let same = status.peers.iter().find(|p| p.name == peer.name)?;
                Some((same, passed))
            });
            row(peer, earlier, now, address)
        })
        .collect();
    if rows.is_empty() {
        text.push_str("no peers\n");
    } else {
        text.push_str(&human::table(&head(before.is_some()), &rows));
    }
    push_pickup(&mut text, &status.pickup);
    push_watched(&mut text, status);
    push_inbox(&mut text, status, now, address);
    text
}

/// The site itself, in one line.
fn headline(status: &Status, now: SystemTime) -> String {
    let up = human::seconds(status.up_seconds);
    let share = u128::from(status.ledger.used) * 1000 / u128::from(status.ledger.limit.max(1));
    let mut text = format!(
        "{}  {}  {}  up {up}      {} in {} of {}      ledger {}.{} %",
        status.name,
        status.version,
        status.runtime,
        human::count(status.segments, "segment"),
        human::bytes(status.storage.used),
        human::bytes(status.storage.limit),
        share / 10,
        share % 10,
    );
    let (seen, all) = status.reconciled;
    let checking = match all {
        0 => "checking what is stored".to_owned(),
        all => format!(
            "checking what is stored: {} of {}",
            human::thousands(seen.min(all)),
            human::thousands(all)
        ),
    };
    let restart = format!("needs restart: {}", status.reload.restart.join(", "));
    let words = [
        (status.stopping, "stopping"),
        (status.clock_held, "clock stepped, nothing expires: consign clock confirm"),
        (status.reconciling, checking.as_str()),
        (status.storage.full, "full: new segments are refused until there is room"),
        (!status.ledger.ballast_whole, "the ballast is not whole"),
        (
            status.reload.at.is_some() && !status.reload.ok,
            "the last reload was refused: consign config check",
        ),
        (!status.reload.restart.is_empty(), restart.as_str()),
        (!status.certificate_files.is_empty(), status.certificate_files.as_str()),
    ];
    for (_, word) in words.iter().filter(|(is, _)| *is) {
        text.push_str(&format!("      {word}"));
    }
    if status.log.asked {
        text.push_str(&format!("      {}", super::log_level::text(&status.log, now)));
    }
    if status.unplaced > 0 {
        let segments = human::count(status.unplaced, "segment");
        text.push_str(&format!("      {segments} unplaced: consign ls --unplaced"));
    }
    if status.quarantined > 0 {
        text.push_str(&format!("      {} in quarantine", human::count(status.quarantined, "row")));
    }
    if status.scrub.damaged > 0 {
        let found = human::count(status.scrub.damaged, "segment");
        text.push_str(&format!(
            "      the content of {found} is damaged or gone: consign assurance --all"
        ));
    }
    text.push('\n');
    text
}

/// Shards, if there are any or could be.
fn push_pickup(text: &mut String, pickup: &Pickup) {
    if !pickup.is_used() {
        return;
    }
    let (used, limit) = (human::bytes(pickup.used), human::bytes(pickup.limit));
    text.push_str(&format!("pickup  {used} of {limit}      "));
    let words = [
        (ShardState::RelayBuffered, "waiting"),
        (ShardState::Uploading, "uploading"),
        (ShardState::NodeReceiving, "in transit"),
        (ShardState::NodeStored, "stored"),
        (ShardState::RelayCleanup, "given up"),
    ];
    let shown: Vec<String> = words
        .iter()
        .map(|(state, word)| (pickup.count(*state), word))
        .filter(|(count, word)| *count > 0 || **word == "waiting")
        .map(|(count, word)| format!("{} {word}", human::thousands(count)))
        .collect();
    text.push_str(&shown.join(", "));
    text.push_str(&format!("      {} here\n", human::count(pickup.sessions, "node")));
}

/// Watched directories, if there are any.
fn push_watched(text: &mut String, status: &Status) {
    if !status.watch.is_empty() {
        text.push_str(&super::watch::table(&status.watch));
    }
}

/// Inbox rules that are in trouble.
fn push_inbox(text: &mut String, status: &Status, now: SystemTime, address: &Address) {
    for rule in &status.inbox {
        for (what, help) in super::inbox::troubles(rule, now) {
            text.push_str(&format!("inbox {}      {what}: {}\n", rule.dir, address.tell(help)));
        }
    }
}

/// The columns; rates are known from the second look on.
fn head(rates: bool) -> Vec<(&'static str, Align)> {
    HEAD.into_iter().filter(|(title, _)| rates || *title != "RATE").collect()
}

const HEAD: [(&str, Align); 10] = [
    ("PEER", Align::Left),
    ("LINK", Align::Left),
    ("QUEUED", Align::Left),
    ("SENDING", Align::Left),
    ("OLDEST", Align::Left),
    ("DEAD", Align::Right),
    ("DELIVERED", Align::Right),
    ("RATE", Align::Right),
    ("NEXT TRY", Align::Left),
    ("LAST ERROR", Align::Left),
];

fn row(
    peer: &Peer,
    before: Option<(&Peer, Duration)>,
    now: SystemTime,
    address: &Address,
) -> Vec<String> {
    let link = match (peer.up, peer.address.is_empty(), peer.via.as_str()) {
        (true, ..) => "● up".to_string(),
        (false, false, _) => "▼ down".into(),
        (false, true, "") => "– not configured".into(),
        (false, true, hop) => format!("via {hop}"),
    };
    let link = match peer {
        Peer { needs_rekey: true, .. } => "✕ needs rekey".into(),
        Peer { held: true, .. } => format!("{link}, held"),
        _ => link,
    };
    let waiting = Count {
        count: peer.queued.count + peer.backing_off.count,
        bytes: peer.queued.bytes + peer.backing_off.bytes,
    };
    let age = |at: &String| human::ago(at, now).trim_end_matches(" ago").to_string();
    let rate = before.map(|(earlier, passed)| {
        let moved = |peer: &Peer| u128::from(peer.delivered.bytes) + u128::from(peer.sent);
        let bytes = moved(peer).saturating_sub(moved(earlier)) * 1000 / passed.as_millis().max(1);
        human::rate(u64::try_from(bytes).unwrap_or(u64::MAX))
    });
    let mut cells = vec![
        peer.name.clone(),
        link,
        match peer.held_back.count {
            0 => amount(waiting),
            held => format!("{}, {held} held", amount(waiting)),
        },
        amount(peer.sending),
        peer.oldest.as_ref().map(age).unwrap_or_default(),
        peer.dead.count.to_string(),
        peer.delivered.count.to_string(),
    ];
    cells.extend(rate);
    cells.push(address.tell(&next_try(peer, now)));
    cells.push(super::peers::last_error(peer, now));
    cells
}

/// When something is sent to it again: its window is shown before its backoff, which ends earlier.
fn next_try(peer: &Peer, now: SystemTime) -> String {
    let opens = peer.opens_at.as_ref().map(|at| format!("window opens {}", human::until(at, now)));
    let retry = || peer.retry_at.as_ref().map(|at| human::until(at, now));
    let waiting = peer.queued.count + peer.backing_off.count;
    if waiting > 0 && peer.held_back.count == waiting {
        return "held: consign ls --state held".into();
    }
    opens.or_else(retry).unwrap_or_default()
}

fn amount(count: Count) -> String {
    match count.count {
        0 => "0".into(),
        n => format!("{n} ({})", human::bytes(count.bytes)),
    }
}

#[cfg(test)]
mod tests;
