//! `consign shape`: how old what waits is, by peer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::complete;
use super::screen::{Progress, Screen, standard};
use crate::admin::shape::{LIMITS, PeerShape, Shape};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// Shows how old what waits is, by peer: how many deliveries of which age.
#[derive(Args, Clone, Debug, Default)]
pub struct ShapeArgs {
    /// Only this peer
    #[arg(long, value_name = "PEER", add = complete::peers())]
    pub peer: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(args: ShapeArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| show(&args, &mut Api::new(socket), screen))
}

fn show(args: &ShapeArgs, api: &mut Api, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let mut shape = whole(api, screen)?;
    if let Some(name) = &args.peer {
        shape.peers.retain(|peer| peer.peer == *name);
    }
    let none = shape.peers.is_empty();
    if screen.is_json() {
        screen.object(&shape)?;
    } else if none {
        screen.note("nothing waits");
    } else {
        screen.line(text(&shape).trim_end());
    }
    Ok(if none && args.peer.is_some() { Exit::NoMatch } else { Exit::Done })
}

/// All slices in one.
fn whole(api: &mut Api, screen: &mut Screen<'_>) -> Result<Shape, Failure> {
    let mut peers: BTreeMap<String, PeerShape> = BTreeMap::new();
    let mut target = "/v1/shape".to_string();
    let (mut progress, mut counted) = (Progress::new(screen, "Counting", None), 0);
    loop {
        let slice: Shape = api.json("GET", &target)?;
        for more in slice.peers {
            let sum = peers.entry(more.peer.clone()).or_insert_with(|| PeerShape {
                peer: more.peer.clone(),
                counts: vec![0; more.counts.len()],
                total: 0,
            });
            sum.total += more.total;
            counted += more.total;
            for (sum, count) in sum.counts.iter_mut().zip(more.counts) {
                *sum += count;
            }
        }
        progress.show(screen, 0, (counted, 0));
        match slice.next {
            Some(next) => target = format!("/v1/shape?after={next}"),
            None => {
                progress.done();
                let peers = peers.into_values().collect();
                return Ok(Shape { schema: slice.schema, limits: slice.limits, peers, next: None });
            }
        }
    }
}

fn text(shape: &Shape) -> String {
    let short = |seconds: &u64| {
        let text = humantime::format_duration(Duration::from_secs(*seconds)).to_string();
        text.replace("day", "d").replace("ms", "m")
    };
    let limits = if shape.limits.is_empty() { &LIMITS[..] } else { &shape.limits };
    let mut titles: Vec<String> = limits.iter().map(|limit| format!("<{}", short(limit))).collect();
    titles.extend(limits.last().map(|limit| format!(">{}", short(limit))));
    let mut head = vec![("PEER", Align::Left), ("TOTAL", Align::Right)];
    head.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let mut rows: Vec<Vec<String>> = shape.peers.iter().map(row).collect();
    if rows.len() > 1 {
        let mut sum = PeerShape {
            peer: "TOTAL".into(),
            total: shape.peers.iter().map(|peer| peer.total).sum(),
            counts: vec![0; titles.len()],
        };
        for peer in &shape.peers {
            for (sum, count) in sum.counts.iter_mut().zip(&peer.counts) {
                *sum += count;
            }
        }
        rows.insert(0, row(&sum));
    }
    human::table(&head, &rows)
}

fn row(peer: &PeerShape) -> Vec<String> {
    let mut cells = vec![peer.peer.clone(), peer.total.to_string()];
    cells.extend(peer.counts.iter().map(u64::to_string));
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::testing::{Daemon, Say};
    use crate::cmd::screen::said;

    /// Two slices, the second of which goes on with the first one's last peer.
    fn daemon() -> Daemon {
        Daemon::answering(|request, _| {
            let peer = |peer: &str, counts: [u64; 7]| json!({"peer": peer, "total": counts.iter().sum::<u64>(), "counts": counts});
            let (peers, next) = match request.target.ends_with("?after=1-9") {
                false => (vec![peer("beta", [1, 0, 0, 0, 0, 0, 4])], json!("1-9")),
                true => (
                    vec![peer("beta", [2, 0, 0, 0, 0, 0, 0]), peer("gamma", [0, 0, 0, 5, 0, 0, 0])],
                    json!(null),
                ),
            };
            Say::json(
                200,
                json!({"schema": Shape::SCHEMA, "limits": LIMITS, "peers": peers, "next": next}),
            )
        })
    }

    #[test]
    fn slices_are_added_up() {
        let daemon = daemon();
        let args = ShapeArgs::default();
        let (exit, text) = said(false, |s| show(&args, &mut Api::new(&daemon.socket()), s));
        assert_eq!(exit, Ok(Exit::Done));
        let expected = "\
PEER   TOTAL  <1m  <5m  <15m  <1h  <6h  <1d  >1d
TOTAL     12    3    0     0    5    0    0    4
beta       7    3    0     0    0    0    0    4
gamma      5    0    0     0    5    0    0    0";
        assert_eq!(text.lines, [expected]);
        let (_, text) = said(true, |s| show(&args, &mut Api::new(&daemon.socket()), s));
        let object: Value = serde_json::from_str(&text.lines[0]).unwrap();
        assert_eq!(object["peers"][1]["counts"][3], 5);
    }

    #[test]
    fn one_peer_can_be_asked_for() {
        let daemon = daemon();
        for (name, exit) in [("gamma", Exit::Done), ("delta", Exit::NoMatch)] {
            let args = ShapeArgs { peer: Some(name.into()) };
            let (done, _) = said(false, |s| show(&args, &mut Api::new(&daemon.socket()), s));
            assert_eq!(done, Ok(exit), "{name}");
        }
    }
}
