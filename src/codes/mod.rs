//! Every stable code with what it means and what to do. The page that people read, docs/CODES.md, is the
//! table itself: the binary carries it, so that the two cannot differ.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The page.
const PAGE: &str = include_str!("../../docs/CODES.md");

/// A code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// `consign.code/1`
    pub schema: String,
    /// `CN0503`, or a word such as `quota`.
    pub code: String,
    /// Where it occurs: the heading of its table.
    pub section: String,
    /// What it means.
    pub means: String,
    /// What to do about it; empty when nothing is to be done.
    pub help: String,
}

impl Entry {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.code/1";
}

/// Every code, in the order of the page. A word can have several meanings, in sections of their own.
#[must_use]
pub fn all() -> Vec<Entry> {
    parse(PAGE)
}

/// What a code means, wherever it occurs; either case.
#[must_use]
pub fn find(code: &str) -> Vec<Entry> {
    all().into_iter().filter(|entry| entry.code.eq_ignore_ascii_case(code)).collect()
}

/// The cause of a failed delivery with this word.
#[must_use]
pub fn cause(word: &str) -> Option<Entry> {
    all().into_iter().find(|entry| entry.section == CAUSES && entry.code == word)
}

/// The heading over the causes of failed deliveries.
const CAUSES: &str = "Causes of failed deliveries and dead letters";

fn parse(page: &str) -> Vec<Entry> {
    let mut section = "";
    let mut entries = Vec::new();
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        entries.extend(row(section, line));
    }
    entries
}

/// A row of a table of codes; the heads of tables are none.
fn row(section: &str, line: &str) -> Option<Entry> {
    let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<&str> = line.split(" | ").collect();
    let [code, means, help] = cells.as_slice() else { return None };
    let word = code.strip_prefix('`').and_then(|code| code.strip_suffix('`'));
    let code = word.or_else(|| code.starts_with("CN").then_some(code))?;
    let help = if *help == "–" { "" } else { help };
    Some(Entry {
        schema: Entry::SCHEMA.into(),
        code: code.into(),
        section: section.into(),
        means: (*means).into(),
        help: help.into(),
    })
}

#[cfg(test)]
mod tests;
