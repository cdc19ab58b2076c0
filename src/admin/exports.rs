//! Exports and watched files as the local interface shows them: shapes, and reads of the ledger.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::http::rfc3339;
use consign_core::id::{Seq, hex};
use consign_core::ledger::keys_upkeep::{RuleId, export, parse_export, parse_watched, watched};
use consign_core::ledger::read::row;
use consign_core::ledger::rows::SegmentRow;
use consign_core::ledger::rows_upkeep::{ExportRow, ExportState, WatchedRow};
use consign_core::ledger::{Table, codec, keys};
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;

/// Rows looked at for one page.
const PAGE_ROWS: usize = 4_096;
/// Rows in one page.
const PAGE: usize = 500;

/// One export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Export {
    /// `consign.export/1`
    pub schema: String,
    /// `CONSIGN_EXPORT_ID` of its command.
    pub export: String,
    /// What its rule picks; empty when that rule is not configured any more.
    pub picks: String,
    /// The rule's directory.
    pub dir: String,
    /// The segment, 64 hex digits; empty when it is gone.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The file below the directory; empty before it has a name.
    pub file: String,
    /// `waiting`, `placed`, `done` or `failed`.
    pub state: String,
    /// Since when.
    pub since: String,
    /// Runs of the command.
    pub runs: u32,
    /// Exit status of the last run.
    pub exit: Option<i32>,
    /// The end of what the last run printed.
    pub output: String,
    /// Last trouble; empty when there is none.
    pub error: String,
    /// When it is tried again, if it waits.
    pub next_attempt_at: Option<String>,
}

/// A page of exports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exports {
    /// `consign.exports/1`
    pub schema: String,
    /// The exports.
    pub exports: Vec<Export>,
    /// Where the next page begins; `None` is the end. A page may be empty and still name one.
    pub next: Option<String>,
}

/// A file of a watched directory that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Watched {
    /// Its path below the directory, bytes in hex.
    pub path: String,
    /// Inode number.
    pub inode: u64,
    /// Length.
    pub size: u64,
    /// Time of its last change in nanoseconds since the Unix epoch.
    pub modified: i64,
}

/// A page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedFiles {
    /// `consign.watched/1`
    pub schema: String,
    /// The files.
    pub files: Vec<Watched>,
    /// Where the next page begins; `None` is the end.
    pub next: Option<String>,
}

/// What an act came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// `consign.done/1`
    pub schema: String,
    /// How many it touched.
    pub count: u64,
}

impl Done {
    pub(super) fn of(count: u64) -> Done {
        Done { schema: "consign.done/1".into(), count }
    }
}

/// Which exports a page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExportListing {
    /// From this one on.
    pub(super) from: Option<(RuleId, Seq)>,
    /// Those that are done too.
    pub(super) all: bool,
}

/// Which watched files a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchListing {
    pub(super) rule: RuleId,
    /// From this one on.
    pub(super) from: [u8; 32],
}

/// What rules pick and where files go, by rule.
pub(super) type Rules = BTreeMap<RuleId, (String, String)>;

/// A page of exports.
pub(super) fn list(
    snapshot: &dyn Snapshot,
    listing: &ExportListing,
    rules: &Rules,
    now: UnixMillis,
) -> Result<Exports, StoreFault> {
    let from = listing.from.map(|(rule, seq)| export(rule, seq));
    let from = from.as_deref().unwrap_or_default();
    let mut found: Vec<(RuleId, Seq, ExportRow)> = Vec::new();
    let (mut looked, mut next) = (0, None);
    snapshot.scan(Table::Exports, from, &mut |key, value| {
        if looked == PAGE_ROWS || found.len() == PAGE {
            next = Some(hex(key));
            return false;
        }
        looked += 1;
        let decoded = codec::decode::<ExportRow>(Table::Exports, key, value);
        if let (Some((rule, seq)), Ok(row)) = (parse_export(key), decoded)
            && (listing.all || row.state != ExportState::Done)
        {
            found.push((rule, seq, row));
        }
        true
    })?;
    let mut exports = Vec::with_capacity(found.len());
    for (rule, seq, export) in found {
        let segment = match row::<SegmentRow>(snapshot, Table::Segments, &keys::seq(seq)) {
            Err(StoreFault::Corrupt(_)) => None,
            other => other?,
        };
        exports.push(shape(rule, seq, &export, segment.as_ref(), rules, now));
    }
    Ok(Exports { schema: "consign.exports/1".into(), exports, next })
}

fn shape(
    rule: RuleId,
    seq: Seq,
    row: &ExportRow,
    segment: Option<&SegmentRow>,
    rules: &Rules,
    now: UnixMillis,
) -> Export {
    let (picks, dir) = rules.get(&rule).cloned().unwrap_or_default();
    let open = matches!(row.state, ExportState::Intent | ExportState::Placed);
    let at = UnixMillis(row.next_attempt_after);
    Export {
        schema: "consign.export/1".into(),
        export: format!("{:016x}-{seq}", rule.0),
        picks,
        dir,
        id: segment.map(|s| s.id.to_string()).unwrap_or_default(),
        name: segment.map(|s| s.meta.name.clone()).unwrap_or_default(),
        file: row.name.clone(),
        state: match row.state {
            ExportState::Intent => "waiting",
            ExportState::Placed => "placed",
            ExportState::Done => "done",
            ExportState::Failed => "failed",
        }
        .into(),
        since: rfc3339(UnixMillis(row.since)),
        runs: row.runs,
        exit: row.exit,
        output: String::from_utf8_lossy(&row.output).into_owned(),
        error: row.error.clone(),
        next_attempt_at: (open && at > now).then(|| rfc3339(at)),
    }
}

/// A page of the files of a watch rule that were taken.
pub(super) fn watched_files(
    snapshot: &dyn Snapshot,
    listing: &WatchListing,
) -> Result<WatchedFiles, StoreFault> {
    let mut page = WatchedFiles { schema: "consign.watched/1".into(), ..WatchedFiles::default() };
    let from = watched(listing.rule, &listing.from);
    snapshot.scan(Table::Watched, &from, &mut |key, value| {
        let Some((rule, path)) = parse_watched(key) else { return true };
        if rule != listing.rule {
            return false;
        }
        if page.files.len() == PAGE {
            page.next = Some(hex(&path));
            return false;
        }
        // A row that cannot be read is as good as none: the file is handed in again, which is no harm.
        if let Ok(row) = codec::decode::<WatchedRow>(Table::Watched, key, value)
            && row.accepted.is_some()
        {
            let WatchedRow { path, inode, size, modified, .. } = row;
            page.files.push(Watched { path: hex(&path), inode, size, modified });
        }
        true
    })?;
    Ok(page)
}
