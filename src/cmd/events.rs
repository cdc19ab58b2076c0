//! `consign events`: what happens at the site, as it happens.

use std::path::Path;
use std::time::SystemTime;

use clap::Args;

use super::screen::{Screen, standard};
use crate::client::Api;
use crate::events::{Event, EventPage};
use crate::exit::{Exit, Failure, Global};
use crate::human;

/// How long a question may wait for an event, in seconds.
const WAIT: u64 = 30;
/// Events of one answer.
const PAGE: u64 = 500;

/// Shows what happens at the site, as it happens; ids rise by one, so that gaps can be seen.
#[derive(Args, Clone, Debug, Default)]
pub struct EventsArgs {
    /// Those behind this id; 0 is everything that is kept [default: the newest 20]
    #[arg(long, value_name = "ID")]
    pub since: Option<u64>,
    /// Ends with what there is instead of waiting for more
    #[arg(long)]
    pub once: bool,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(args: EventsArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| follow(&args, &mut Api::new(socket), screen))
}

fn follow(args: &EventsArgs, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let first = match args.since {
        Some(since) => format!("/v1/events?since={since}&limit={PAGE}"),
        None => "/v1/events?limit=20".into(),
    };
    let mut page: EventPage = api.json("GET", &first)?;
    let mut since = args.since;
    loop {
        since = Some(show(&page, since, screen)?);
        let behind = since.unwrap_or(0);
        if args.once && behind >= page.last {
            return Ok(Exit::Done);
        }
        let wait = if args.once { 0 } else { WAIT };
        let target = format!("/v1/events?since={behind}&limit={PAGE}&wait={wait}");
        let next: EventPage = api.json("GET", &target)?;
        if next.start != page.start {
            screen.note("the site was started again: ids begin anew");
            since = Some(0);
        }
        page = next;
    }
}

/// Shows a page and says which id was seen last.
fn show(page: &EventPage, since: Option<u64>, screen: &mut Screen<'_>) -> Result<u64, Failure> {
    let mut last = since.unwrap_or(0);
    for event in &page.events {
        if since.is_some() && event.id > last + 1 && last < page.first {
            let lost = human::count(event.id - last - 1, "event");
            screen.note(&format!("{lost} before {} are not kept any more", event.id));
        }
        last = event.id;
        if screen.is_json() {
            screen.object(event)?;
        } else {
            screen.line(&line(event));
        }
    }
    // Nothing new: an id that is ahead of the site is one of an earlier start.
    Ok(if page.events.is_empty() { page.last } else { last })
}

/// `41  18:44:05  warn  3fa9c17be204 is a dead letter for beta: too_large  (CN0502)`.
pub(super) fn line(event: &Event) -> String {
    let time = event.at.get(11..19).unwrap_or(&event.at);
    let code = match &event.code {
        Some(code) if !event.text.contains(code.as_str()) => format!("  ({code})"),
        Some(_) | None => String::new(),
    };
    let level = match event.level.as_str() {
        "info" => "",
        "warn" => "warning: ",
        other => return format!("{:>6}  {time}  {other}: {}{code}", event.id, event.text),
    };
    format!("{:>6}  {time}  {level}{}{code}", event.id, event.text)
}

/// The newest events, for `top`.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub(super) fn newest(api: &mut Api, limit: usize) -> Result<EventPage, Failure> {
    api.json("GET", &format!("/v1/events?limit={}", limit.max(1)))
}

/// The time of day of a moment, as [`line`] shows it.
pub(super) fn clock(now: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(now).to_string();
    text.get(11..19).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::client::testing::{Daemon, Say};
    use crate::cmd::screen::said;

    fn event(id: u64) -> Event {
        Event {
            schema: "consign.event/1".into(),
            id,
            at: "2026-11-30T18:44:05.000Z".into(),
            kind: "full".into(),
            level: if id.is_multiple_of(2) { "error" } else { "info" }.into(),
            code: Some("CN0503".into()),
            text: format!("event {id}"),
            ..Event::default()
        }
    }

    fn page(start: &str, first: u64, ids: std::ops::RangeInclusive<u64>, last: u64) -> Say {
        let page = EventPage {
            schema: EventPage::SCHEMA.into(),
            start: start.into(),
            first,
            last,
            events: ids.map(event).collect(),
        };
        Say::json(200, serde_json::to_value(page).unwrap())
    }

    #[test]
    fn pages_are_followed_to_the_end_and_gaps_are_told() {
        let daemon = Daemon::answering(|request, _| match request.target.as_str() {
            "/v1/events?since=2&limit=500" => page("a", 5, 5..=6, 7),
            "/v1/events?since=6&limit=500&wait=0" => page("a", 5, 7..=7, 7),
            other => panic!("nobody asks for {other}"),
        });
        let args = EventsArgs { since: Some(2), once: true };
        let (exit, text) = said(false, |s| follow(&args, &mut Api::new(&daemon.socket()), s));
        assert_eq!(exit, Ok(Exit::Done));
        assert_eq!(text.notes, ["2 events before 5 are not kept any more"]);
        let expected = [
            "     5  18:44:05  event 5  (CN0503)",
            "     6  18:44:05  error: event 6  (CN0503)",
            "     7  18:44:05  event 7  (CN0503)",
        ];
        assert_eq!(text.lines, expected);
        let (_, text) = said(true, |s| follow(&args, &mut Api::new(&daemon.socket()), s));
        let ids: Vec<Value> = text
            .lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].take())
            .collect();
        assert_eq!(ids, [5, 6, 7]);
    }

    #[test]
    fn a_site_that_was_started_again_is_followed_from_its_beginning() {
        let daemon = Daemon::answering(|request, _| match request.target.as_str() {
            "/v1/events?limit=20" => page("a", 8, 8..=9, 10),
            "/v1/events?since=9&limit=500&wait=0" => page("b", 1, 1..=2, 2),
            other => panic!("nobody asks for {other}"),
        });
        let args = EventsArgs { since: None, once: true };
        let (exit, text) = said(true, |s| follow(&args, &mut Api::new(&daemon.socket()), s));
        assert_eq!((exit, text.lines.len()), (Ok(Exit::Done), 4));
        let (_, text) = said(false, |s| follow(&args, &mut Api::new(&daemon.socket()), s));
        assert_eq!(text.notes, ["the site was started again: ids begin anew"]);
    }
}
