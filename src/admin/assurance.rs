//! Assurance: how many of the required sites hold a segment, by what evidence, and whether the copy here
//! may go. Pure reads of a snapshot, each bounded; what was evicted is answered from its receipts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::config::SuccessCondition;
use consign_core::http::rfc3339;
use consign_core::id::{SegmentId, Seq, SiteNo, hex};
use consign_core::ledger::keys_upkeep::{RuleId, export};
use consign_core::ledger::read::{Held, held, lenient, scan_prefix};
use consign_core::ledger::rows::{DeliveryRow, SegmentRow, State};
use consign_core::ledger::rows_upkeep::{ExportRow, ExportState, ReceiptRow, RememberedRow};
use consign_core::ledger::{Table, codec, keys};
use consign_core::segment::Destinations;
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;

use super::ledger::{IdPrefix, Names, One, Word, find, site_of};

/// Segments looked at for one page, whatever the filter lets through.
const PAGE_ROWS: usize = 4_096;
/// Evicted segments looked at for one beginning of an id.
const SEVERAL: usize = 5;

/// What is known of where a segment is safe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Assurance {
    /// `consign.assurance/1`
    pub schema: String,
    /// The segment, 64 hex digits.
    pub id: String,
    /// Its accept number here.
    pub seq: u64,
    /// Its name; empty when nothing but receipts would tell and there is none.
    pub name: String,
    /// Its length.
    pub size: u64,
    /// The copy here: `held`, `damaged` or `evicted`.
    pub copy: String,
    /// Since when that is so: accepted, or evicted. Of a damaged copy it is when it was accepted.
    pub since: String,
    /// `one_peer` or `all_peers`: how many of the sites it takes.
    pub condition: String,
    /// Sites it is to go to from here.
    pub sites: u64,
    /// How many of them have to hold it; 0 where this site hands it on to nobody.
    pub required: u64,
    /// How many of them hold it, durably and verified.
    pub holding: u64,
    /// Whether that is enough; false also where nothing is required.
    pub met: bool,
    /// When it became enough.
    pub met_at: Option<String>,
    /// Who holds it, and since when.
    pub holders: Vec<Holder>,
    /// Who does not hold it yet.
    pub owed: Vec<Owed>,
    /// Whether the copy here may be deleted without a loss.
    pub safe_to_delete: bool,
    /// Why, or why not.
    pub because: String,
}

impl Assurance {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.assurance/1";
}

/// A site that has confirmed that it holds a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// The site.
    pub site: String,
    /// Since when.
    pub at: String,
    /// `acknowledged` on a session with this site, or `receipt` that is kept or came by way of a hop.
    pub by: String,
    /// Until when the receipt is kept, if there is one.
    pub until: Option<String>,
}

/// A site that has not confirmed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owed {
    /// The site.
    pub site: String,
    /// `queued`, `sending`, `backing off`, `held`, `dead`, or `given up` when only a receipt is left.
    pub state: String,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// A page of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Assurances {
    /// `consign.assurances/1`
    pub schema: String,
    /// By accept number; of unmet ones by the time of their acceptance.
    pub assurances: Vec<Assurance>,
    /// `after` of the next page, if there may be one. A page may be empty and still name one.
    pub next: Option<String>,
}

impl Assurances {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.assurances/1";
}

/// Which segments a page is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) limit: usize,
    /// Behind this one.
    pub(super) after: Option<(u64, Seq)>,
    /// With a delivery to this site.
    pub(super) peer: Option<String>,
    /// Only those for which it is not enough.
    pub(super) unmet: bool,
}

/// What must be known besides the ledger.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) success: SuccessCondition,
    pub(super) inbox: Vec<RuleId>,
}

/// `after` of a page: time in ms and accept number.
pub(super) fn parse_after(text: &str) -> Option<(u64, Seq)> {
    let (at, seq) = text.split_once('-')?;
    Some((at.parse().ok()?, Seq(seq.parse().ok()?)))
}

/// The segment whose id begins so, held or evicted.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn of(
    snapshot: &dyn Snapshot,
    prefix: &IdPrefix,
    rules: &Rules,
    now: UnixMillis,
) -> Result<One<Assurance>, StoreFault> {
    match find(snapshot, prefix)? {
        One::Found(seq) => match held(snapshot, seq)? {
            Some(held) => {
                of_held(snapshot, &mut Names::default(), &held, rules, now).map(One::Found)
            }
            None => Err(StoreFault::Corrupt(format!("segment row {seq} is missing or unreadable"))),
        },
        One::Ambiguous(ids) => Ok(One::Ambiguous(ids)),
        One::Missing => of_evicted(snapshot, prefix, rules),
    }
}

/// A page of segments that are held.
///
/// # Errors
/// When the store cannot be read. [`StoreFault::Missing`] for a peer that is not known.
pub(super) fn list(
    snapshot: &dyn Snapshot,
    selection: &Selection,
    rules: &Rules,
    now: UnixMillis,
) -> Result<Assurances, StoreFault> {
    let peer = match &selection.peer {
        None => None,
        Some(name) => {
            let site = site_of(snapshot, name)?;
            Some(site.ok_or_else(|| StoreFault::Missing(format!("no peer is called {name:?}")))?)
        }
    };
    let mut page = Assurances { schema: Assurances::SCHEMA.into(), ..Assurances::default() };
    let mut names = Names::default();
    let found = candidates(snapshot, selection)?;
    let more = found.len() == PAGE_ROWS;
    let mut last = None;
    for (at, seq) in found {
        if page.assurances.len() == selection.limit {
            page.next = last.map(after_text);
            return Ok(page);
        }
        last = Some((at, seq));
        // A row that cannot be read is the scrub's business; the others are told.
        let Some(held) = held(snapshot, seq)? else { continue };
        let of_peer = |peer| held.deliveries.iter().any(|(site, _)| *site == peer);
        if peer.is_none_or(of_peer) {
            page.assurances.push(of_held(snapshot, &mut names, &held, rules, now)?);
        }
    }
    page.next = last.filter(|_| more).map(after_text);
    Ok(page)
}

fn after_text((at, seq): (u64, Seq)) -> String {
    format!("{at}-{seq}")
}

/// The next segments behind `after`: the unmet ones by their own index, which has the oldest first.
fn candidates(
    snapshot: &dyn Snapshot,
    selection: &Selection,
) -> Result<Vec<(u64, Seq)>, StoreFault> {
    let mut found = Vec::new();
    let after = selection.after;
    if selection.unmet {
        let from = after.map_or(keys::Key::EMPTY, |(at, seq)| keys::unmet(UnixMillis(at), seq));
        snapshot.scan(Table::Unmet, &from, &mut |key, _| {
            found.extend(parse_unmet(key).filter(|found| Some(*found) != after));
            found.len() < PAGE_ROWS
        })?;
    } else {
        let from = after.map_or(Seq(0), |(_, seq)| Seq(seq.0.saturating_add(1)));
        snapshot.scan(Table::Segments, &keys::seq(from), &mut |key, _| {
            found.extend(keys::parse_u64(key).map(|seq| (0, Seq(seq))));
            found.len() < PAGE_ROWS
        })?;
    }
    Ok(found)
}

fn parse_unmet(key: &[u8]) -> Option<(u64, Seq)> {
    let (at, seq) = key.split_first_chunk::<8>()?;
    let seq = <[u8; 8]>::try_from(seq).ok()?;
    Some((u64::from_be_bytes(*at), Seq(u64::from_be_bytes(seq))))
}

fn receipts(snapshot: &dyn Snapshot, seq: Seq) -> Result<BTreeMap<SiteNo, ReceiptRow>, StoreFault> {
    let mut found = BTreeMap::new();
    scan_prefix(snapshot, Table::Receipts, &keys::seq(seq), &mut |key, value| {
        if let (Some((_, site)), Ok(row)) =
            (keys::parse_delivery(key), codec::decode::<ReceiptRow>(Table::Receipts, key, value))
        {
            found.insert(site, row);
        }
        true
    })?;
    Ok(found)
}

fn condition(to: &Destinations, success: SuccessCondition) -> SuccessCondition {
    match to {
        Destinations::All => success,
        // Named destinations are always all required.
        Destinations::Named(_) => SuccessCondition::AllPeers,
    }
}

fn of_held(
    snapshot: &dyn Snapshot,
    names: &mut Names,
    held: &Held,
    rules: &Rules,
    now: UnixMillis,
) -> Result<Assurance, StoreFault> {
    let row = &held.row;
    let receipts = receipts(snapshot, held.seq)?;
    let (mut holders, mut owed) = (Vec::new(), Vec::new());
    for (site, delivery) in &held.deliveries {
        let name = names.of(snapshot, *site)?;
        match delivery.state {
            State::Acked => holders.push(holder(name, delivery, receipts.get(site))),
            _ => owed.push(Owed {
                site: name,
                state: Word::of(delivery, row.held, now).text().into(),
                last_error: super::ledger::cause_word(delivery.last_error),
            }),
        }
    }
    let outside = outside(snapshot, held, rules)?;
    let (safe_to_delete, because) = judge(row, &holders, &owed, outside);
    let condition = condition(&row.to, rules.success);
    let sites = u64::from(row.required);
    Ok(Assurance {
        schema: Assurance::SCHEMA.into(),
        id: row.id.to_string(),
        seq: held.seq.0,
        name: row.meta.name.clone(),
        size: row.size,
        copy: if row.loss.is_some() { "damaged" } else { "held" }.into(),
        since: time(row.accepted_at),
        condition: condition.word().into(),
        sites,
        required: match condition {
            SuccessCondition::OnePeer => sites.min(1),
            SuccessCondition::AllPeers => sites,
        },
        holding: u64::from(row.acked),
        met: row.relayed_at.is_some(),
        met_at: row.relayed_at.map(time),
        holders,
        owed,
        safe_to_delete,
        because,
    })
}

fn holder(site: String, delivery: &DeliveryRow, receipt: Option<&ReceiptRow>) -> Holder {
    match receipt.filter(|receipt| receipt.cause == 0) {
        Some(receipt) => of_receipt(receipt),
        None => Holder { site, at: time(delivery.since), by: "acknowledged".into(), until: None },
    }
}

fn of_receipt(receipt: &ReceiptRow) -> Holder {
    Holder {
        site: receipt.site.clone(),
        at: time(receipt.when),
        by: "receipt".into(),
        until: Some(time(receipt.expires_at)),
    }
}

/// How the content has left the ledger at a site that is itself addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outside {
    /// Inbox rules have given out all they were to, at least once.
    Given,
    /// An inbox rule has still to.
    Waits,
    /// No rule picked it.
    Never,
}

fn outside(snapshot: &dyn Snapshot, held: &Held, rules: &Rules) -> Result<Outside, StoreFault> {
    let mut outside = Outside::Never;
    for rule in rules.inbox.iter().filter(|_| held.row.here) {
        let row: Option<ExportRow> = lenient(snapshot, Table::Exports, &export(*rule, held.seq))?;
        match row.map(|row| row.state) {
            Some(ExportState::Done) => outside = Outside::Given,
            Some(ExportState::Intent | ExportState::Placed | ExportState::Failed) => {
                return Ok(Outside::Waits);
            }
            None => {}
        }
    }
    Ok(outside)
}

/// Whether the copy here may go, and why.
fn judge(row: &SegmentRow, holders: &[Holder], owed: &[Owed], outside: Outside) -> (bool, String) {
    if row.loss.is_some() {
        return (false, "the content here is damaged or gone".into());
    }
    if let Some(first) = owed.first() {
        let others = match owed.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let what = match first.state.as_str() {
            "dead" => "it lies among the dead letters for",
            _ => "it is still owed to",
        };
        return (false, format!("{what} {}{others}", first.site));
    }
    if row.unplaced == Some(true) {
        return (false, "nobody is left to have it, and nobody says that it is kept".into());
    }
    match (row.here && row.let_go.is_none(), outside) {
        (true, Outside::Waits) => return (false, "an inbox rule has still to give it out".into()),
        (true, Outside::Never) => {
            return (
                false,
                "this site is a destination: this copy is one that was asked for".into(),
            );
        }
        (true, Outside::Given) if holders.is_empty() => {
            return (true, "an inbox rule has given it out, and nobody else is owed it".into());
        }
        (true, Outside::Given) | (false, _) => {}
    }
    match holders.len() {
        0 => (false, "no other site has confirmed that it holds it".into()),
        1 => (true, format!("{} holds it, durably and verified", holders[0].site)),
        many => (true, format!("all {many} sites hold it, durably and verified")),
    }
}

/// What is remembered of evicted segments whose id begins so.
fn of_evicted(
    snapshot: &dyn Snapshot,
    prefix: &IdPrefix,
    rules: &Rules,
) -> Result<One<Assurance>, StoreFault> {
    let mut found: Vec<(SegmentId, RememberedRow)> = Vec::new();
    snapshot.scan(Table::Remembered, &prefix.first_key(), &mut |key, value| {
        if !hex(key).starts_with(prefix.digits()) {
            return false;
        }
        let row = codec::decode::<RememberedRow>(Table::Remembered, key, value);
        if let (Ok(id), Ok(row)) = (<[u8; 32]>::try_from(key), row) {
            found.push((SegmentId(id), row));
        }
        found.len() < SEVERAL
    })?;
    match found.as_slice() {
        [] => Ok(One::Missing),
        [(id, row)] => evicted(snapshot, *id, row, rules).map(One::Found),
        several => Ok(One::Ambiguous(several.iter().map(|(id, _)| id.to_string()).collect())),
    }
}

fn evicted(
    snapshot: &dyn Snapshot,
    id: SegmentId,
    row: &RememberedRow,
    rules: &Rules,
) -> Result<Assurance, StoreFault> {
    let receipts = receipts(snapshot, row.seq)?;
    let mine: Vec<&ReceiptRow> = receipts.values().filter(|receipt| receipt.id == id).collect();
    let (good, bad): (Vec<&ReceiptRow>, Vec<&ReceiptRow>) =
        mine.iter().copied().partition(|receipt| receipt.cause == 0);
    let because = match good.len() {
        0 => "it was relayed and evicted; its receipts are not kept any more".to_string(),
        1 => format!("it was relayed and evicted; {} holds it", good[0].site),
        many => format!("it was relayed and evicted; {many} sites hold it"),
    };
    let count = |receipts: &[&ReceiptRow]| u64::try_from(receipts.len()).unwrap_or(u64::MAX);
    Ok(Assurance {
        schema: Assurance::SCHEMA.into(),
        id: id.to_string(),
        seq: row.seq.0,
        name: mine.first().map(|receipt| receipt.name.clone()).unwrap_or_default(),
        size: mine.first().map_or(0, |receipt| receipt.size),
        copy: "evicted".into(),
        since: time(row.evicted_at),
        condition: rules.success.word().into(),
        sites: count(&mine),
        required: match rules.success {
            SuccessCondition::OnePeer => count(&mine).min(1),
            SuccessCondition::AllPeers => count(&mine),
        },
        holding: count(&good),
        // Nothing else is evicted and remembered.
        met: true,
        met_at: None,
        holders: good.into_iter().map(of_receipt).collect(),
        owed: bad
            .into_iter()
            .map(|receipt| Owed {
                site: receipt.site.clone(),
                state: "given up".into(),
                last_error: super::ledger::cause_word(receipt.cause),
            })
            .collect(),
        safe_to_delete: true,
        because,
    })
}

fn time(ms: u64) -> String {
    rfc3339(UnixMillis(ms))
}

#[cfg(test)]
mod tests;
