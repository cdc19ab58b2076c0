//! Notes of the node as events: a stable word, what it is about, and a sentence.

use consign_core::http::rfc3339;
use consign_core::id::SegmentId;
use consign_core::ledger::rows::State;
use consign_core::node::{LogLevel, Note, Reading};
use consign_core::time::UnixMillis;

use super::Event;

/// An event before it has a number.
#[derive(Default)]
struct Said {
    kind: &'static str,
    level: Level,
    segment: Option<SegmentId>,
    peer: String,
    code: String,
    text: String,
}

#[derive(Clone, Copy, Default)]
enum Level {
    #[default]
    Info,
    Warn,
    Error,
}

pub(super) fn event(id: u64, at: u64, note: &Note) -> Event {
    let said = said(note);
    let some = |text: String| (!text.is_empty()).then_some(text);
    Event {
        schema: "consign.event/1".into(),
        id,
        at: rfc3339(UnixMillis(at)),
        kind: said.kind.into(),
        level: match said.level {
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
        .into(),
        segment: said.segment.map(|id| id.to_string()),
        peer: some(said.peer),
        code: some(said.code),
        text: said.text,
    }
}

fn plain(kind: &'static str, text: impl Into<String>) -> Said {
    Said { kind, text: text.into(), ..Said::default() }
}

fn of_segment(kind: &'static str, id: SegmentId, text: String) -> Said {
    Said { segment: Some(id), ..plain(kind, text) }
}

fn of_peer(kind: &'static str, peer: &str, text: String) -> Said {
    Said { peer: peer.into(), ..plain(kind, text) }
}

fn coded(level: Level, code: &str, said: Said) -> Said {
    Said { level, code: code.into(), ..said }
}

fn said(note: &Note) -> Said {
    match note {
        Note::SessionUp { peer, .. } => {
            of_peer("session_up", peer, format!("session with {peer} is up"))
        }
        Note::SessionDown { peer, why } => {
            let why = if why.is_empty() { "it ended in good order" } else { why };
            of_peer("session_down", peer, format!("session with {peer} is over: {why}"))
        }
        Note::Unwelcome { name, why } => {
            let said = of_peer("unwelcome", name, format!("turned away: {why}"));
            coded(Level::Warn, "CN0501", said)
        }
        Note::Delivery { .. } => delivery(note),
        Note::HandedOn { id, site, hop } => {
            let text = format!("{} for {site} is handed on to {hop}", id.short());
            Said { peer: site.clone(), ..of_segment("handed_on", *id, text) }
        }
        Note::Accepted { id, size, from, .. } => {
            let by = if from.is_empty() { "here" } else { from };
            let text = format!("{} accepted from {by}: {size} bytes", id.short());
            Said { peer: from.to_string(), ..of_segment("accepted", *id, text) }
        }
        Note::Relayed { id, condition, acks } => {
            let acks = crate::human::count(u64::from(*acks), "ack");
            let text = format!("{} relayed: {condition} with {acks}", id.short());
            of_segment("relayed", *id, text)
        }
        Note::Removed { id, name, size, how } => {
            let text = format!("{} {how}: {name}, {size} bytes", id.short());
            of_segment("removed", *id, text)
        }
        Note::Refused { code, peer, text } => {
            coded(Level::Info, code, of_peer("refused", peer, format!("refused: {text}")))
        }
        other => of_site(other),
    }
}

/// Notes on the site itself.
fn of_site(note: &Note) -> Said {
    match note {
        Note::Full { why } => {
            let text = format!("no space, new segments are refused: {why}");
            coded(Level::Error, "CN0503", plain("full", text))
        }
        Note::RoomAgain => plain("room_again", "there is room again"),
        Note::Exported { id, name, problem, .. } if problem.is_empty() => {
            of_segment("exported", *id, format!("{} given out as {name}", id.short()))
        }
        Note::Exported { id, problem, given_up, .. } => {
            let text = format!("giving out {}: {problem}", id.short());
            let code = if *given_up { "CN0542" } else { "CN0541" };
            coded(Level::Warn, code, of_segment("export_failed", *id, text))
        }
        Note::Reconciled(summary) => {
            let text = format!(
                "start-up check done: {} segments seen, {} deliveries were in flight, {} contents missing",
                summary.checked, summary.inflight, summary.missing
            );
            match summary.missing {
                0 => plain("reconciled", text),
                _ => coded(Level::Error, "CN0505", plain("reconciled", text)),
            }
        }
        Note::Quarantined { what } => {
            let text = format!("set aside because it cannot be read: {what}");
            coded(Level::Error, "CN0504", plain("quarantined", text))
        }
        Note::Reread { who, reading } => reread(who, reading),
        Note::LogLevel { level, text, .. } => {
            let level = level.map_or("as configured", LogLevel::word);
            plain("log_level", format!("log level {level}: {text}"))
        }
        Note::Warn { code, text } => coded(Level::Warn, code, plain("warning", text.as_str())),
        Note::Recovered { text } => plain("recovered", text.as_str()),
        // Notes of later versions of the core are told as they are.
        other => plain("other", format!("{other:?}")),
    }
}

/// A reading of the configuration: what holds from then on, or why nothing has changed.
fn reread(who: &str, reading: &Reading) -> Said {
    let Reading { taken, code, text, .. } = reading;
    let by = if who.is_empty() { "the site" } else { who };
    let (kind, level, head) = match (taken, code.is_empty()) {
        (true, true) => ("reload", Level::Info, "read again"),
        (true, false) => ("reload", Level::Warn, "read again"),
        (false, _) => ("reload_refused", Level::Error, "refused, nothing has changed"),
    };
    let said = plain(kind, format!("configuration {head} (asked by {by}): {text}"));
    coded(level, code, said)
}

fn delivery(note: &Note) -> Said {
    let Note::Delivery { id, peer, to, cause, attempts, .. } = note else {
        return plain("other", format!("{note:?}"));
    };
    let cause = cause.map_or("", |cause| cause.word());
    let short = id.short();
    let (kind, level, text) = match to {
        Some(State::Acked) => ("delivered", Level::Info, format!("{short} delivered to {peer}")),
        Some(State::Deadletter) => {
            ("dead", Level::Warn, format!("{short} is a dead letter for {peer}: {cause}"))
        }
        Some(State::Failed) => {
            let text = format!("attempt {attempts} of {short} to {peer} failed: {cause}");
            ("failed", Level::Info, text)
        }
        Some(State::Scheduled | State::Inflight) | None => {
            ("other", Level::Info, format!("{short} to {peer}: {to:?}"))
        }
    };
    Said { level, code: cause.into(), peer: peer.to_string(), ..of_segment(kind, *id, text) }
}
