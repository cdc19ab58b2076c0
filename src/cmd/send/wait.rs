//! The wait for arrival: looks at one segment after the other, oftener while things move.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::words;
use crate::admin::shapes::{Accepted, Delivery, Segment};
use crate::client::Api;
use crate::cmd::screen::{Progress, Screen};
use crate::exit::Failure;

/// Pauses between looks that find nothing new: the first, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Segments looked at before a pause.
const LOOKS: usize = 32;

/// How the wait ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waited {
    /// Segments that were given up for somebody.
    pub(super) dead: u64,
    /// Segments that had not arrived when time was up.
    pub(super) still_queued: u64,
}

/// What is said of a segment at the end, with `--json`.
#[derive(Serialize)]
struct Outcome<'a> {
    schema: &'static str,
    id: &'a str,
    name: &'a str,
    /// `delivered`, `dead` or `queued`.
    state: &'static str,
    deliveries: &'a [Delivery],
}

/// A segment that is waited for.
struct Open {
    id: String,
    size: u64,
    /// The peers it is waited for; none is all that it will be owed to.
    peers: Vec<String>,
    /// When it was handed in, where that is not when it was accepted: it was here before.
    handed: Option<SystemTime>,
    /// Bytes that have left.
    sent: u64,
}

/// How a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Under,
    Delivered,
    Dead,
}

/// Waits for all of them, or until then.
pub(super) fn all(
    api: &mut Api,
    accepted: Vec<(Accepted, SystemTime)>,
    until: Option<Instant>,
    screen: &mut Screen<'_>,
) -> Result<Waited, Failure> {
    let mut open: VecDeque<Open> = accepted.into_iter().filter_map(Open::of).collect();
    let (count, total) = (open.len() as u64, open.iter().map(|o| o.size).sum());
    let mut progress = Progress::new(screen, "Sending", Some(total));
    let (mut waited, mut bytes) = (Waited::default(), 0);
    let (mut pause, mut looks) = (PAUSE_MIN, 0);
    while let Some(mut one) = open.pop_front() {
        let segment: Segment = api.json("GET", &format!("/v1/segments/{}", one.id))?;
        let late = until.is_some_and(|until| Instant::now() >= until);
        let before = one.sent;
        let stand = one.look(&segment);
        bytes += one.sent.saturating_sub(before);
        progress.show(screen, bytes, (count - open.len() as u64 - 1, count));
        if stand == Stand::Under && !late {
            looks = if one.sent > before { 0 } else { looks + 1 };
            if one.sent > before {
                pause = PAUSE_MIN;
            }
            open.push_back(one);
            if looks >= open.len().min(LOOKS) {
                let left =
                    until.map_or(pause, |until| until.saturating_duration_since(Instant::now()));
                thread::sleep(pause.min(left));
                pause = (pause * 3 / 2).min(PAUSE_MAX);
                looks = 0;
            }
            continue;
        }
        (pause, looks) = (PAUSE_MIN, 0);
        match stand {
            Stand::Under => waited.still_queued += 1,
            Stand::Dead => waited.dead += 1,
            Stand::Delivered => {}
        }
        progress.aside(|| tell(&one, &segment, stand, screen))?;
    }
    progress.done();
    Ok(waited)
}

impl Open {
    /// `None` when nothing is on its way: it is all there already, or stays here.
    fn of((accepted, at): (Accepted, SystemTime)) -> Option<Open> {
        let Accepted { id, size, added, queued, dead, new, .. } = accepted;
        if added.is_empty() && queued.is_empty() && dead.is_empty() {
            return None;
        }
        let peers = [added, queued, dead].concat();
        Some(Open { id, size, peers, handed: (!new).then_some(at), sent: 0 })
    }

    fn look(&mut self, segment: &Segment) -> Stand {
        let mine: Vec<&Delivery> = segment
            .deliveries
            .iter()
            .filter(|d| self.peers.is_empty() || self.peers.contains(&d.peer))
            .collect();
        let is = |state: &str| mine.iter().filter(|d| d.state == state).count();
        let (delivered, dead, each) = (is("delivered"), is("dead"), mine.len() as u64);
        let whole = (delivered + dead) as u64 * segment.size;
        let under: u64 = mine.iter().filter_map(|d| d.sent).sum();
        // Of several peers each counts for its share of the bytes; a bar never goes back.
        let sent = (whole + under).checked_div(each).unwrap_or(0);
        self.sent = self.sent.max(sent.min(self.size));
        let known = mine.len() >= self.peers.len().max(1);
        match (known && delivered + dead == mine.len(), dead) {
            (false, _) => Stand::Under,
            (true, 0) => Stand::Delivered,
            (true, _) => Stand::Dead,
        }
    }

    /// The peers in this state.
    fn peers<'a>(&self, segment: &'a Segment, state: &str) -> Vec<String> {
        let mine = |d: &&'a Delivery| self.peers.is_empty() || self.peers.contains(&d.peer);
        let those = segment.deliveries.iter().filter(mine).filter(|d| d.state == state);
        those.map(|d| d.peer.clone()).collect()
    }
}

fn tell(
    one: &Open,
    segment: &Segment,
    stand: Stand,
    screen: &mut Screen<'_>,
) -> Result<(), Failure> {
    if screen.is_json() {
        let state = match stand {
            Stand::Under => "queued",
            Stand::Delivered => "delivered",
            Stand::Dead => "dead",
        };
        return screen.object(&Outcome {
            schema: "consign.outcome/1",
            id: &segment.id,
            name: &segment.name,
            state,
            deliveries: &segment.deliveries,
        });
    }
    let delivered = one.peers(segment, "delivered");
    if !delivered.is_empty() {
        screen.advise(&words::delivered(segment, &delivered, one.handed));
    }
    for peer in one.peers(segment, "dead") {
        screen.advise(&words::dead(segment, &peer));
    }
    if stand == Stand::Under {
        let open: Vec<String> = segment
            .deliveries
            .iter()
            .filter(|d| one.peers.is_empty() || one.peers.contains(&d.peer))
            .filter(|d| d.state != "delivered" && d.state != "dead")
            .map(|d| d.peer.clone())
            .collect();
        screen.line(&words::still_queued(segment, &open));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
