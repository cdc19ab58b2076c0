//! `consign storage`: what is stored, in what room, and in what condition.

use std::path::Path;
use std::time::SystemTime;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::screen::{Screen, standard};
use crate::admin::shapes::{Ledger, Scrub, Status, Storage};
use crate::client::Api;
use crate::exit::{Exit, Failure, Global};
use crate::human;

/// Shows what is stored: content, ledger, disk, and when content was last compared with its digests.
#[derive(Args, Clone, Debug, Default)]
pub struct StorageArgs {}

/// What is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stored {
    /// `consign.storage/1`
    pub schema: String,
    /// Segments held.
    pub segments: u64,
    /// Segments among them that nobody is left to have.
    pub unplaced: u64,
    /// Room for content.
    pub storage: Storage,
    /// The ledger.
    pub ledger: Ledger,
    /// Bytes held or reserved for shards.
    pub pickup: u64,
    /// Rows in quarantine.
    pub quarantined: u64,
    /// How far content was compared with its digests.
    pub scrub: Scrub,
    /// Whether start-up reconciliation is still under way.
    pub reconciling: bool,
}

impl Stored {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.storage/1";
}

/// Runs it.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub fn run(_: StorageArgs, global: &Global, socket: &Path) -> Result<Exit, Failure> {
    standard(global, |screen| show(&mut Api::new(socket), screen, SystemTime::now()))
}

fn show(api: &mut Api, screen: &mut Screen<'_>, now: SystemTime) -> Result<Exit, Failure> {
    let status: Status = api.json("GET", "/v1/status")?;
    let stored = Stored {
        schema: Stored::SCHEMA.into(),
        segments: status.segments,
        unplaced: status.unplaced,
        storage: status.storage,
        ledger: status.ledger,
        pickup: status.pickup.used,
        quarantined: status.quarantined,
        scrub: status.scrub,
        reconciling: status.reconciling,
    };
    if screen.is_json() {
        screen.object(&stored)?;
    } else {
        screen.line(&text(&stored, now));
    }
    Ok(Exit::Done)
}

fn text(stored: &Stored, now: SystemTime) -> String {
    let Stored { storage, ledger, scrub, .. } = stored;
    let of = |used, limit| format!("{} of {}", human::bytes(used), human::bytes(limit));
    let full = if storage.full { "; full: new segments are refused" } else { "" };
    let whole = if ledger.ballast_whole { "whole" } else { "not whole" };
    let pass = match (&scrub.last, scrub.running) {
        (last, true) => {
            let before =
                last.as_ref().map(|at| format!("; the last ended {}", human::ago(at, now)));
            format!("a pass is under way{}", before.unwrap_or_default())
        }
        (Some(at), false) => format!("all of it {}", human::ago(at, now)),
        (None, false) => "no pass has ended yet".into(),
    };
    let mut lines = vec![
        ("segments", human::thousands(stored.segments)),
        ("content", of(storage.used, storage.limit) + full),
        ("of shards", human::bytes(stored.pickup)),
        ("ledger", of(ledger.used, ledger.limit)),
        (
            "disk",
            format!(
                "{} free, {} of it stay free",
                human::bytes(storage.free),
                human::bytes(storage.min_free)
            ),
        ),
        ("reserve", format!("{whole} (kept for a full disk)")),
        (
            "commits",
            format!(
                "{} since the start, {} rows",
                human::thousands(ledger.commits),
                human::thousands(ledger.rows)
            ),
        ),
        ("compared", format!("{pass}; {} found wrong", human::count(scrub.corrupt, "segment"))),
        ("quarantine", human::count(stored.quarantined, "row")),
    ];
    if stored.unplaced > 0 {
        lines.push(("unplaced", human::count(stored.unplaced, "segment")));
    }
    if stored.reconciling {
        lines.push(("start", "what is stored is still being checked".into()));
    }
    let lines: Vec<String> =
        lines.iter().map(|(name, text)| format!("{name:<11} {text}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::client::testing::{Daemon, Say};
    use crate::cmd::screen::said;

    #[test]
    fn what_is_stored_in_words_and_in_numbers() {
        let daemon = Daemon::answering(|_, _| {
            let storage = Storage {
                used: 3 << 30,
                limit: 100 << 30,
                free: 50 << 30,
                min_free: 1 << 30,
                ..Storage::default()
            };
            let ledger = Ledger {
                used: 1 << 20,
                limit: 64 << 30,
                ballast_whole: true,
                commits: 1234,
                rows: 9,
            };
            let scrub = Scrub {
                last: Some("2026-11-30T18:42:05.000Z".into()),
                corrupt: 1,
                ..Scrub::default()
            };
            let status = Status { segments: 7, storage, ledger, scrub, ..Status::default() };
            Say::json(200, serde_json::to_value(status).unwrap())
        });
        let now = human::moment("2026-11-30T18:44:05.000Z").unwrap();
        let (exit, words) = said(false, |s| show(&mut Api::new(&daemon.socket()), s, now));
        assert_eq!(exit, Ok(Exit::Done));
        let expected = "\
segments    7
content     3.0 GiB of 100 GiB
of shards   0 B
ledger      1.0 MiB of 64.0 GiB
disk        50.0 GiB free, 1.0 GiB of it stay free
reserve     whole (kept for a full disk)
commits     1,234 since the start, 9 rows
compared    all of it 2 min ago; 1 segment found wrong
quarantine  0 rows";
        assert_eq!(words.lines, [expected]);
        let (_, object) = said(true, |s| show(&mut Api::new(&daemon.socket()), s, now));
        let object: Value = serde_json::from_str(&object.lines[0]).unwrap();
        assert_eq!((&object["schema"], &object["segments"]), (&Stored::SCHEMA.into(), &7.into()));
        assert_eq!(object["storage"]["free"], 50_u64 << 30);
    }
}
