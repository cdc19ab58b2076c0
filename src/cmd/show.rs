//! `consign show`: one segment and how each of its deliveries stands.

use std::path::Path;
use std::time::SystemTime;

use clap::Args;

use super::complete;
use super::ls::short;
use super::screen::{Screen, standard};
use crate::admin::shapes::{Delivery, Segment};
use crate::advice::Address;
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Shows a segment: what it is, where it goes and what it waits for.
#[derive(Args, Clone, Debug, Default)]
pub struct ShowArgs {
    /// Its id, or the first 6 digits or more
    #[arg(required = true, value_name = "ID", value_parser = super::id, add = complete::segments())]
    pub ids: Vec<String>,
}

/// How a segment came to be unplaced: the ledger does not say which of the two it was, the audit does.
pub(super) const UNPLACED: &str = "nobody is left to have it: what was owed was purged or forgotten (consign \
                                   audit), or refused as already relayed";

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached, or there is not exactly one segment of that id.
pub fn run(args: ShowArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| show(&args, &mut Api::new(socket), screen, SystemTime::now()))
}

fn show(
    args: &ShowArgs,
    api: &mut Api,
    screen: &mut Screen<'_>,
    now: SystemTime,
) -> Result<Exit, Failure> {
    for (i, id) in args.ids.iter().enumerate() {
        let segment: Segment = api.json("GET", &format!("/v1/segments/{id}"))?;
        if screen.is_json() {
            screen.object(&segment)?;
        } else {
            if i > 0 {
                screen.line("");
            }
            let text = text(&segment, now, screen.address());
            screen.line(text.trim_end());
        }
    }
    Ok(Exit::Done)
}

fn text(segment: &Segment, now: SystemTime, address: &Address) -> String {
    let mut lines = vec![format!(
        "{}  {}  {}  accepted {}",
        short(&segment.id),
        segment.name,
        human::bytes(segment.size),
        human::ago(&segment.accepted_at, now)
    )];
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            lines.push(format!("  {name:<9} {value}"));
        }
    };
    let labels: Vec<String> = segment.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let origin = match segment.origin.as_str() {
        "" => "accepted here".into(),
        origin => format!("{origin}, {}", human::count(segment.hops.into(), "hop")),
    };
    field("id", &segment.id);
    field("blake3", &segment.digest);
    field("size", &human::count(segment.size, "byte"));
    field("type", &segment.content_type);
    field("labels", &labels.join(" "));
    field("priority", &segment.priority);
    field("instance", segment.instance.as_deref().unwrap_or_default());
    field("from", &origin);
    field("to", &segment.to.join(", "));
    field("accepted", &segment.accepted_at);
    field("expires", segment.expires_at.as_deref().unwrap_or_default());
    field("relayed", segment.relayed_at.as_deref().unwrap_or_default());
    if segment.damaged {
        field("content", "damaged or gone here; a peer that has it is asked for it");
    }
    if segment.held {
        field("held", "by an operator");
    }
    if segment.unplaced {
        let id = short(&segment.id);
        let until = format!("{UNPLACED}; it is kept here until: consign release {id}");
        field("unplaced", &address.tell(&until));
    }
    let mut text = lines.join("\n");
    text.push('\n');
    if !segment.deliveries.is_empty() {
        let rows: Vec<Vec<String>> =
            segment.deliveries.iter().map(|d| row(d, segment.size, now)).collect();
        text.push_str(&human::table(&HEAD, &rows));
    } else if segment.here && !segment.unplaced {
        text.push_str("  stays here: this site is a destination and forwards it to nobody\n");
    }
    text
}

const HEAD: [(&str, Align); 7] = [
    ("PEER", Align::Left),
    ("STATE", Align::Left),
    ("SINCE", Align::Left),
    ("ATTEMPTS", Align::Right),
    ("SPENT", Align::Right),
    ("NEXT TRY", Align::Left),
    ("LAST ERROR", Align::Left),
];

fn row(delivery: &Delivery, size: u64, now: SystemTime) -> Vec<String> {
    let state = match (delivery.sent, &delivery.custody) {
        (_, Some(hop)) => format!("handed on to {hop}, waiting for its receipt"),
        (Some(sent), None) => {
            let percent = sent.saturating_mul(100).checked_div(size).unwrap_or(100).min(100);
            format!("{} {percent} %", delivery.state)
        }
        (None, None) => delivery.state.clone(),
    };
    let next = delivery.next_attempt_at.as_ref().map(|at| human::until(at, now));
    vec![
        delivery.peer.clone(),
        state,
        human::ago(&delivery.since, now),
        delivery.attempts.to_string(),
        delivery.spent.to_string(),
        next.unwrap_or_default(),
        delivery.last_error.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests;
