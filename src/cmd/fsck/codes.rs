//! The codes of findings, as they stand in docs/CODES.md.

use consign_core::ledger::check::Rule;

/// Pages of the ledger cannot be read.
pub(super) const PAGES: &str = "CN0923";

/// The code of a finding.
pub(super) fn code(rule: Rule) -> &'static str {
    match rule {
        Rule::Unreadable => "CN0901",
        Rule::Key => "CN0902",
        Rule::IndexMissing => "CN0903",
        Rule::IndexAstray => "CN0904",
        Rule::DeliveryLost => "CN0905",
        Rule::SegmentLost => "CN0906",
        Rule::SegmentCounts => "CN0907",
        Rule::Counter => "CN0908",
        Rule::Usage => "CN0909",
        Rule::Number => "CN0910",
        Rule::References => "CN0911",
        Rule::ContentLost => "CN0912",
        Rule::Unowned => "CN0913",
        Rule::Twice => "CN0914",
        Rule::Peer => "CN0915",
        Rule::Format => "CN0916",
        Rule::FileMissing => "CN0917",
        Rule::FileLength => "CN0918",
        Rule::FileOrphan => "CN0919",
        Rule::FileAhead => "CN0920",
        Rule::FileKind => "CN0921",
        Rule::Corrupt => "CN0922",
        Rule::Pages => PAGES,
        Rule::Shard => "CN0924",
    }
}
