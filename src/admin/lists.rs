//! Lists for operators: dead letters one by one and in groups, and the audit. Pure functions over a
//! snapshot, each bounded: a page may be short, or empty, and still name a next one.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use consign_core::code::Cause;
use consign_core::http::rfc3339;
use consign_core::id::{Seq, SiteNo};
use consign_core::ledger::keys::{self, DeadKey};
use consign_core::ledger::read::lenient;
use consign_core::ledger::read_acts::{Dead, dead_keys};
use consign_core::ledger::rows::{DeliveryRow, SegmentRow};
use consign_core::ledger::rows_upkeep::AuditRow;
use consign_core::ledger::{Table, codec};
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;

use super::ledger::{Names, site_of};

/// Dead letters counted for one answer.
const GROUP_ROWS: usize = 65_536;
/// Records of the audit looked at for one answer.
const AUDIT_ROWS: usize = 8_192;

/// Which dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeadListing {
    pub(super) limit: usize,
    pub(super) after: Option<DeadKey>,
    pub(super) peer: Option<String>,
    pub(super) reason: Option<Cause>,
    pub(super) older: Option<Duration>,
}

/// Which records of the audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AuditListing {
    pub(super) limit: usize,
    pub(super) after: Option<u64>,
    pub(super) since: Option<UnixMillis>,
}

/// A page of dead letters, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadletters {
    /// `consign.deadletters/1`
    pub schema: String,
    /// The dead letters.
    pub deadletters: Vec<Deadletter>,
    /// `after` of the next page, if there may be one.
    pub next: Option<String>,
}

/// A dead letter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadletter {
    /// `consign.deadletter/1`
    pub schema: String,
    /// The segment, 64 hex digits.
    pub id: String,
    /// Its accept number.
    pub seq: u64,
    /// Its name.
    pub name: String,
    /// Its length.
    pub size: u64,
    /// The destination.
    pub peer: String,
    /// Stable word.
    pub reason: String,
    /// Claims so far.
    pub attempts: u64,
    /// When it was given up.
    pub since: String,
    /// When the segment was accepted.
    pub accepted_at: String,
}

/// Dead letters in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadletterGroups {
    /// `consign.deadletter_groups/1`
    pub schema: String,
    /// By reason, then peer.
    pub groups: Vec<Group>,
    /// `after` of the next page, if there may be one: its groups are to be added to these.
    pub next: Option<String>,
}

/// Dead letters of one reason and one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// `consign.deadletter_group/1`
    pub schema: String,
    /// Stable word.
    pub reason: String,
    /// The destination.
    pub peer: String,
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first of them was given up.
    pub oldest: String,
    /// What may help.
    pub hint: String,
}

/// A page of the audit, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// `consign.audit/1`
    pub schema: String,
    /// The records.
    pub records: Vec<Record>,
    /// `after` of the next page, if there may be one.
    pub next: Option<u64>,
}

/// Who did what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// `consign.audit_record/1`
    pub schema: String,
    /// Its number; grows by one.
    pub number: u64,
    /// When.
    pub at: String,
    /// `uid:1000`, a peer, or empty for the site itself.
    pub who: String,
    /// What was done.
    pub action: String,
    /// To what.
    pub subject: String,
    /// The reason given, or a stable code.
    pub reason: String,
    /// How many deliveries or segments it touched.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Deadletters {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.deadletters/1";
}

impl DeadletterGroups {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.deadletter_groups/1";
}

impl Audit {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.audit/1";
}

/// `after` of a page of dead letters: the numbers of its key.
pub(super) fn parse_after(text: &str) -> Option<DeadKey> {
    let mut parts = text.split('-');
    let at = UnixMillis(parts.next()?.parse().ok()?);
    let seq = Seq(parts.next()?.parse().ok()?);
    let site = SiteNo(parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(DeadKey { at, seq, site })
}

fn after_text(key: DeadKey) -> String {
    format!("{}-{}-{}", key.at.0, key.seq, key.site)
}

fn only(
    snapshot: &dyn Snapshot,
    listing: &DeadListing,
    now: UnixMillis,
) -> Result<Dead, StoreFault> {
    let peer = match &listing.peer {
        None => None,
        Some(name) => {
            let site = site_of(snapshot, name)?;
            Some(site.ok_or_else(|| StoreFault::Missing(format!("no peer is called {name:?}")))?)
        }
    };
    let age = listing.older.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
    let until = UnixMillis(if age == 0 { u64::MAX } else { now.0.saturating_sub(age) });
    Ok(Dead { until, peer, cause: listing.reason })
}

fn reason(number: u8) -> String {
    Cause::from_number(number).map_or_else(|| format!("code_{number}"), |c| c.word().into())
}

/// A page of dead letters.
///
/// # Errors
/// When the store cannot be read. [`StoreFault::Missing`] for a peer that is not known.
pub(super) fn dead(
    snapshot: &dyn Snapshot,
    listing: &DeadListing,
    now: UnixMillis,
) -> Result<Deadletters, StoreFault> {
    let only = only(snapshot, listing, now)?;
    let (keys, next) = dead_keys(snapshot, listing.after, &only, listing.limit)?;
    let mut names = Names::default();
    let mut page = Deadletters { schema: Deadletters::SCHEMA.into(), ..Deadletters::default() };
    for (key, cause) in keys {
        let segment: Option<SegmentRow> = lenient(snapshot, Table::Segments, &keys::seq(key.seq))?;
        let delivery: Option<DeliveryRow> =
            lenient(snapshot, Table::Deliveries, &keys::delivery(key.seq, key.site))?;
        let Some((segment, delivery)) = segment.zip(delivery) else { continue };
        page.deadletters.push(Deadletter {
            schema: "consign.deadletter/1".into(),
            id: segment.id.to_string(),
            seq: key.seq.0,
            name: segment.meta.name,
            size: segment.size,
            peer: names.of(snapshot, key.site)?,
            reason: reason(cause),
            attempts: delivery.attempts,
            since: rfc3339(key.at),
            accepted_at: rfc3339(UnixMillis(segment.accepted_at)),
        });
    }
    page.next = next.map(after_text);
    Ok(page)
}

/// Dead letters by reason and peer.
///
/// # Errors
/// As [`dead`].
pub(super) fn groups(
    snapshot: &dyn Snapshot,
    listing: &DeadListing,
    now: UnixMillis,
) -> Result<DeadletterGroups, StoreFault> {
    let only = only(snapshot, listing, now)?;
    let mut groups: BTreeMap<(u8, SiteNo), (u64, u64, UnixMillis)> = BTreeMap::new();
    let (mut after, mut seen) = (listing.after, 0);
    let next = loop {
        let (keys, next) = dead_keys(snapshot, after, &only, GROUP_ROWS)?;
        seen += keys.len();
        for (key, cause) in keys {
            let segment: Option<SegmentRow> =
                lenient(snapshot, Table::Segments, &keys::seq(key.seq))?;
            let group = groups.entry((cause, key.site)).or_insert((0, 0, key.at));
            group.0 += 1;
            group.1 = group.1.saturating_add(segment.map_or(0, |s| s.size));
        }
        match next {
            Some(key) if seen < GROUP_ROWS => after = Some(key),
            other => break other,
        }
    };
    let mut names = Names::default();
    let mut page =
        DeadletterGroups { schema: DeadletterGroups::SCHEMA.into(), ..DeadletterGroups::default() };
    for ((cause, site), (count, bytes, oldest)) in groups {
        let peer = names.of(snapshot, site)?;
        page.groups.push(Group {
            schema: "consign.deadletter_group/1".into(),
            reason: reason(cause),
            hint: hint(Cause::from_number(cause), &peer),
            peer,
            count,
            bytes,
            oldest: rfc3339(oldest),
        });
    }
    page.groups.sort_by(|a, b| (&a.reason, &a.peer).cmp(&(&b.reason, &b.peer)));
    page.next = next.map(after_text);
    Ok(page)
}

/// What may help against dead letters with this word for a reason.
pub(crate) fn hint_of(word: &str, peer: &str) -> String {
    hint(Cause::from_word(word), peer)
}

/// What may help against dead letters of this reason.
pub(super) fn hint(cause: Option<Cause>, peer: &str) -> String {
    let retry = |first: String, cause: Cause| {
        format!("{first}, then: consign deadletter retry --peer {peer} --reason {cause}")
    };
    let purge = |first: &str, cause: Cause| {
        format!("{first}: consign deadletter purge --peer {peer} --reason {cause}")
    };
    let Some(cause) = cause else {
        return "look at one of them: consign show ID".into();
    };
    match cause {
        Cause::TooLarge => retry(format!("raise storage.max_segment at {peer}"), cause),
        Cause::NotAddressed => {
            retry(format!("give {peer} a route onwards, or send to its name"), cause)
        }
        Cause::Expired => purge("too late for these", cause),
        Cause::Missing | Cause::Corrupt => purge("send them again, these are lost", cause),
        Cause::Unreadable => retry("look at this site's disk".into(), cause),
        Cause::Invalid | Cause::Refused => retry(format!("compare versions with {peer}"), cause),
        Cause::Mismatch | Cause::AckMismatch => {
            retry(format!("look at the disks and memory here and at {peer}"), cause)
        }
        Cause::Loop => retry(format!("look at the routes between here and {peer}"), cause),
        Cause::AckTimeout => retry(format!("see why {peer} is slow"), cause),
        Cause::Quota | Cause::DiskFull => retry(format!("make room at {peer}"), cause),
        Cause::SessionLost | Cause::Restart | Cause::Busy | Cause::Exhausted => {
            retry(format!("look at the link to {peer}"), cause)
        }
    }
}

/// A page of the audit.
///
/// # Errors
/// When the store cannot be read.
pub(super) fn audit(snapshot: &dyn Snapshot, listing: &AuditListing) -> Result<Audit, StoreFault> {
    let mut page = Audit { schema: Audit::SCHEMA.into(), ..Audit::default() };
    let from = listing.after.map_or(0, |number| number.saturating_add(1));
    let (mut seen, mut last) = (0, listing.after);
    snapshot.scan(Table::Audit, &keys::audit(from), &mut |key, value| {
        if page.records.len() == listing.limit || seen == AUDIT_ROWS {
            page.next = last;
            return false;
        }
        seen += 1;
        let Some(number) = keys::parse_u64(key) else { return true };
        last = Some(number);
        let Ok(row) = codec::decode::<AuditRow>(Table::Audit, key, value) else { return true };
        if listing.since.is_none_or(|since| row.at >= since.0) {
            page.records.push(Record {
                schema: "consign.audit_record/1".into(),
                number,
                at: rfc3339(UnixMillis(row.at)),
                who: row.who,
                action: row.action,
                subject: row.subject,
                reason: row.reason,
                count: row.count,
                bytes: row.bytes,
            });
        }
        true
    })?;
    Ok(page)
}

#[cfg(test)]
mod tests;
