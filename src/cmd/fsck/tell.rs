//! What was found, told: the first findings one by one, all of them by their codes.

use std::collections::BTreeMap;

use consign_core::ledger::check::{Finding, Rule, Tally};
use serde::Serialize;
use serde_json::json;

use super::codes::code;
use crate::cmd::screen::Screen;
use crate::exit::Failure;
use crate::human::{self, Align};

/// Findings of one look.
#[derive(Debug, Default)]
pub(super) struct Found {
    counts: BTreeMap<Rule, u64>,
    shown: Vec<Told>,
    most: u64,
    all: u64,
}

/// A finding as it is told.
#[derive(Clone, Debug, Serialize)]
struct Told {
    schema: &'static str,
    code: &'static str,
    rule: &'static str,
    table: &'static str,
    key: String,
    text: String,
    mendable: bool,
}

impl Found {
    /// Keeps at most so many to be told one by one.
    pub(super) fn new(most: u64) -> Found {
        Found { most, ..Found::default() }
    }

    pub(super) fn add(&mut self, finding: &Finding, mendable: bool) {
        *self.counts.entry(finding.rule).or_default() += 1;
        self.all += 1;
        if self.all > self.most {
            return;
        }
        self.shown.push(Told {
            schema: "consign.finding/1",
            code: code(finding.rule),
            rule: finding.rule.word(),
            table: finding.table.word(),
            key: finding.key.iter().map(|byte| format!("{byte:02x}")).collect(),
            text: finding.text.clone(),
            mendable,
        });
    }

    /// Adds what another look has found.
    pub(super) fn join(&mut self, other: Found) {
        for (rule, n) in other.counts {
            *self.counts.entry(rule).or_default() += n;
        }
        self.all += other.all;
        self.shown.extend(other.shown);
        self.shown.truncate(usize::try_from(self.most).unwrap_or(usize::MAX));
    }

    pub(super) fn all(&self) -> u64 {
        self.all
    }

    /// Tells them.
    ///
    /// # Errors
    /// When they cannot be written as JSON.
    pub(super) fn tell(&self, screen: &mut Screen<'_>) -> Result<(), Failure> {
        for told in &self.shown {
            if screen.is_json() {
                screen.object(told)?;
            } else {
                screen.line(&format!("{}  {}", told.code, told.text));
            }
        }
        if screen.is_json() || self.all == 0 {
            return Ok(());
        }
        let more = self.all.saturating_sub(self.most);
        if more > 0 {
            screen.line(&format!("… and {more} more (--show {} tells all)", self.all));
        }
        let head = [("CODE", Align::Left), ("FAULT", Align::Left), ("FOUND", Align::Right)];
        let rows: Vec<Vec<String>> = self
            .counts
            .iter()
            .map(|(rule, n)| vec![code(*rule).into(), rule.word().into(), n.to_string()])
            .collect();
        screen.line(human::table(&head, &rows).trim_end());
        Ok(())
    }

    fn object(&self) -> serde_json::Value {
        let counts: serde_json::Map<String, serde_json::Value> =
            self.counts.iter().map(|(rule, n)| (code(*rule).into(), (*n).into())).collect();
        counts.into()
    }
}

/// How it ended.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// What was there at the end.
    pub(super) tally: Tally,
    /// Pieces of content that were looked at, and bytes that were read.
    pub(super) content: (u64, u64),
    /// Findings that were mended.
    pub(super) mended: u64,
    /// Files that were set aside now.
    pub(super) aside: u64,
    /// Names of what was set aside before.
    pub(super) before: Vec<String>,
    /// Bytes of the ledger before and after it was compacted.
    pub(super) compacted: Option<(u64, u64)>,
    /// Whether counters have jumped.
    pub(super) restored: bool,
}

impl Ending {
    /// Tells it.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn tell(&self, left: &Found, screen: &mut Screen<'_>) -> Result<(), Failure> {
        let Ending { tally, content, mended, aside, before, compacted, restored } = self;
        if screen.is_json() {
            return screen.object(&json!({
                "schema": "consign.fsck/1",
                "clean": left.all() == 0,
                "segments": tally.segments,
                "deliveries": tally.deliveries,
                "used_bytes": tally.used,
                "content_lost": tally.lost,
                "content": content.0,
                "content_bytes_read": content.1,
                "found": left.object(),
                "mended": mended,
                "files_set_aside": aside,
                "rows_in_quarantine": tally.quarantined,
                "files_in_quarantine": before,
                "restored": restored,
                "ledger_bytes_before": compacted.map(|c| c.0),
                "ledger_bytes_after": compacted.map(|c| c.1),
            }));
        }
        if *restored {
            screen.line(
                "Restored: every counter has jumped; what was given since is not given again",
            );
        }
        if *mended > 0 {
            screen.line(&format!("Mended {}", human::count(*mended, "fault")));
        }
        if *aside > 0 {
            screen.line(&format!("Set aside {} in quarantine/", human::count(*aside, "file")));
        }
        if let Some((old, new)) = compacted {
            let (old, new) = (human::bytes(*old), human::bytes(*new));
            screen.line(&format!("Compacted the ledger from {old} to {new}"));
        }
        if tally.quarantined > 0 || !before.is_empty() {
            let (rows, files) = (tally.quarantined, before.len() as u64);
            let (rows, files) = (human::count(rows, "row"), human::count(files, "file"));
            screen.line(&format!("In quarantine: {rows}, {files}"));
            for name in before.iter().take(FILES) {
                screen.line(&format!("  quarantine/{name}"));
            }
        }
        if tally.lost > 0 {
            let lost = human::count(tally.lost, "segment");
            screen.advise(&format!(
                "The content of {lost} is damaged or gone: `consign assurance --all` names them; a peer that has it is asked \
                 for it once the site runs"
            ));
        }
        let word = if left.all() == 0 { "Clean" } else { "Not clean" };
        let (segments, deliveries) =
            (human::count(tally.segments, "segment"), human::count(tally.deliveries, "delivery"));
        let bytes = human::bytes(tally.used);
        screen.line(&format!("{word}: {segments}, {deliveries}, {bytes}"));
        Ok(())
    }
}

/// Files in quarantine that are named.
const FILES: usize = 20;
