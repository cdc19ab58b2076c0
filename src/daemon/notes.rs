//! The node's story as log lines: warn is what an operator may act on, error what somebody must.

use consign_core::ledger::rows::State;
use consign_core::node::{LogLevel, Note, ReconcileSummary};
use tracing::{debug, error, info, warn};

/// Writes a note to the log, and has the log go by it.
pub(super) fn tell(node: &str, note: &Note) {
    let Note::LogLevel { level, .. } = note else { return log(node, note) };
    // The line is there whether less is logged from now on or was until now.
    let fewer = matches!(level, Some(LogLevel::Error | LogLevel::Warn));
    if fewer {
        log(node, note);
    }
    crate::log::ask_level(*level);
    if !fewer {
        log(node, note);
    }
}

/// Writes a note to the log.
fn log(node: &str, note: &Note) {
    // A line that nobody reads is not worth its words: there are several of these for each segment.
    if is_detail(note) && !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    match note {
        Note::SessionUp { peer, epoch, dialled } => {
            info!(node, peer, %epoch, dialled, "session with {peer} is up");
        }
        Note::SessionDown { peer, why } => {
            let reason = if why.is_empty() { "it ended in good order" } else { why };
            info!(node, peer, reason, "session with {peer} is over: {reason}");
        }
        Note::Unwelcome { name, why } => {
            warn!(node, peer = name, reason = why, code = "CN0501", "turned away: {why}");
        }
        Note::Accepted { id, seq, size, from } => {
            let segment = id.short();
            let from = &**from;
            debug!(node, segment, seq = seq.0, bytes = size, from, "accepted {segment}");
        }
        Note::HandedOn { id, site, hop } => {
            let segment = id.short();
            debug!(node, segment, peer = site, hop, "{segment} for {site} is handed on to {hop}");
        }
        Note::Relayed { id, condition, acks } => {
            let segment = id.short();
            debug!(
                node,
                segment, condition, acks, "relayed {segment}: {condition} with {acks} acks"
            );
        }
        Note::Removed { id, name, size, how } => {
            let segment = id.short();
            debug!(node, segment, name, bytes = size, how, "{how} {segment}");
        }
        Note::Refused { code, peer, text } => {
            info!(node, peer, code, reason = text, "refused: {text}");
        }
        Note::Full { why } => {
            let text = "no space: new segments are refused until there is room again";
            error!(node, reason = why, code = "CN0503", "{text}: {why}");
        }
        Note::RoomAgain => info!(node, "there is room again"),
        Note::Reconciled(summary) => reconciled(node, summary),
        Note::Quarantined { what } => {
            error!(node, code = "CN0504", "set aside because it cannot be read: {what}");
        }
        Note::Exported { id, name, problem, given_up } if problem.is_empty() => {
            let segment = id.short();
            debug!(node, segment, file = name, given_up, "gave out {segment} as {name}");
        }
        Note::Exported { id, name, problem, given_up } => {
            let segment = id.short();
            let code = if *given_up { "CN0542" } else { "CN0541" };
            warn!(
                node,
                segment,
                file = name,
                reason = problem,
                code,
                "giving out {segment}: {problem}"
            );
        }
        Note::LogLevel { who, level, text } => {
            let level = level.map_or("as configured", LogLevel::word);
            info!(node, who, "log level {level}: {text}");
        }
        // Who reads the configuration has written it down already.
        Note::Reread { .. } => {}
        Note::Warn { code, text } => warn!(node, code, "{text}"),
        Note::Recovered { text } => info!(node, "{text}"),
        Note::Delivery { .. } => delivery(node, note),
        // Notes of later versions of the core are told as they are.
        other => info!(node, "{other:?}"),
    }
}

/// Whether a note is told at the level `debug` only.
fn is_detail(note: &Note) -> bool {
    match note {
        Note::Accepted { .. } | Note::HandedOn { .. } | Note::Relayed { .. } => true,
        Note::Delivery { to, .. } => !matches!(to, Some(State::Deadletter | State::Failed)),
        _ => false,
    }
}

fn delivery(node: &str, note: &Note) {
    let Note::Delivery { id, peer, from, to, cause, attempts, bytes, took } = note else { return };
    let duration_ms = *took;
    let (segment, peer) = (id.short(), &**peer);
    let reason = cause.map_or("", |cause| cause.word());
    let (from, to_word) = (word(*from), word(*to));
    match to {
        Some(State::Deadletter) => {
            warn!(
                node,
                segment,
                peer,
                attempt = attempts,
                bytes,
                duration_ms,
                reason,
                code = "CN0502",
                "{segment} is a dead letter for {peer}: {reason}"
            );
        }
        Some(State::Failed) => {
            info!(
                node,
                segment,
                peer,
                attempt = attempts,
                bytes,
                duration_ms,
                reason,
                "attempt {attempts} of {segment} to {peer} failed: {reason}"
            );
        }
        Some(State::Scheduled | State::Inflight | State::Acked) | None => {
            debug!(
                node,
                segment,
                peer,
                from,
                to = to_word,
                attempt = attempts,
                bytes,
                duration_ms,
                reason,
                "{segment} to {peer}: {from} -> {to_word}"
            );
        }
    }
}

/// The state's name in the ledger's own words.
fn word(state: Option<State>) -> &'static str {
    match state {
        None => "none",
        Some(State::Scheduled) => "scheduled",
        Some(State::Inflight) => "inflight",
        Some(State::Acked) => "acked",
        Some(State::Failed) => "failed",
        Some(State::Deadletter) => "deadletter",
    }
}

fn reconciled(node: &str, summary: &ReconcileSummary) {
    let ReconcileSummary { inflight, doomed, checked, missing, orphans } = *summary;
    let text = format!(
        "start-up check done: {checked} segments seen, {inflight} deliveries were in flight, \
         {doomed} files removed, {missing} contents missing, {orphans} files set aside"
    );
    if missing > 0 {
        error!(node, inflight, doomed, checked, missing, orphans, code = "CN0505", "{text}");
    } else {
        info!(node, inflight, doomed, checked, missing, orphans, "{text}");
    }
}
