//! Every row alone: its key, its checksum, its fields.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use minicbor::Decode;

use super::{Check, Fix, Rule};
use crate::id::SiteNo;
use crate::ledger::keys::{self, DueKey};
use crate::ledger::keys_pickup::{KEY_MAX, ShardKey, is_node_id, parse_by_node};
use crate::ledger::keys_pickup::{parse_nonce, parse_shard_deadline};
use crate::ledger::keys_upkeep::{
    self, ExpiryKind, Quarantined, parse_expiry, parse_export, parse_owner, parse_quarantine,
};
use crate::ledger::rows::{
    BlobRow, CounterRow, DeadletterRow, DeliveryRow, DigestRow, DoomedRow, IdRow, IncomingRow,
    InflightRow, MetaName, MetaRow, PeerRow, SegmentRow, SourceRow,
};
use crate::ledger::rows_pickup::{ClientRow, NodeRow, NonceRow, ShardRow, TokenRow};
use crate::ledger::rows_upkeep::{
    AuditRow, ExportRow, QuarantineRow, ReceiptRow, RememberedRow, WatchedRow,
};
use crate::ledger::{FORMAT, Table, codec};

/// Numbers that may have been given since they were last known: none of them is given again.
const JUMP: u64 = 1 << 32;
/// As [`JUMP`], for sites, whose numbers are shorter.
const SITE_JUMP: u64 = 1 << 16;

/// Whether a row can be read: the rule it breaks and why, if not.
///
/// # Errors
/// [`Rule::Key`] or [`Rule::Unreadable`], with what is wrong.
pub fn decodes(table: Table, key: &[u8], value: &[u8]) -> Result<(), (Rule, String)> {
    if !key_parses(table, key) || (is_index(table) && !value.is_empty()) {
        return Err((Rule::Key, format!("a row of {table} under a key that is none of it")));
    }
    let decoded = match table {
        Table::Bodies
        | Table::Due
        | Table::Owed
        | Table::Handed
        | Table::Expiry
        | Table::Unmet
        | Table::Owners
        | Table::ByNode
        | Table::ShardDeadlines
        | Table::PassBack
        | Table::RememberedAge => Ok(()),
        Table::Meta => row::<MetaRow>(table, key, value),
        Table::Segments => row::<SegmentRow>(table, key, value),
        Table::Ids => row::<IdRow>(table, key, value),
        Table::Blobs => row::<BlobRow>(table, key, value),
        Table::Digests => row::<DigestRow>(table, key, value),
        Table::Deliveries => row::<DeliveryRow>(table, key, value),
        Table::Inflight => row::<InflightRow>(table, key, value),
        Table::Deadletters => row::<DeadletterRow>(table, key, value),
        Table::Doomed => row::<DoomedRow>(table, key, value),
        Table::Incoming => row::<IncomingRow>(table, key, value),
        Table::Counters => row::<CounterRow>(table, key, value),
        Table::Remembered => row::<RememberedRow>(table, key, value),
        Table::Sources => row::<SourceRow>(table, key, value),
        Table::Quarantine => row::<QuarantineRow>(table, key, value),
        Table::Exports => row::<ExportRow>(table, key, value),
        Table::Watched => row::<WatchedRow>(table, key, value),
        Table::Shards => row::<ShardRow>(table, key, value),
        Table::Tokens => row::<TokenRow>(table, key, value),
        Table::Nonces => row::<NonceRow>(table, key, value),
        Table::Nodes => row::<NodeRow>(table, key, value),
        Table::Clients => row::<ClientRow>(table, key, value),
        Table::Peers => row::<PeerRow>(table, key, value),
        Table::Audit => row::<AuditRow>(table, key, value),
        Table::Receipts => row::<ReceiptRow>(table, key, value),
    };
    decoded.map_err(|why| (Rule::Unreadable, why.to_string()))
}

fn row<R: for<'b> Decode<'b, ()>>(
    table: Table,
    key: &[u8],
    value: &[u8],
) -> Result<(), codec::RowFault> {
    codec::decode::<R>(table, key, value).map(|_| ())
}

/// Tables whose rows have a key and nothing else.
fn is_index(table: Table) -> bool {
    matches!(
        table,
        Table::Due
            | Table::Owed
            | Table::Handed
            | Table::Expiry
            | Table::Unmet
            | Table::Owners
            | Table::ByNode
            | Table::ShardDeadlines
            | Table::PassBack
            | Table::RememberedAge
    )
}

fn key_parses(table: Table, key: &[u8]) -> bool {
    match table {
        Table::Meta => !key.is_empty(),
        Table::Segments
        | Table::Bodies
        | Table::Blobs
        | Table::Doomed
        | Table::Incoming
        | Table::Audit => key.len() == 8,
        Table::Ids | Table::Digests | Table::Remembered | Table::Tokens => key.len() == 32,
        Table::Deliveries | Table::Receipts => keys::parse_delivery(key).is_some(),
        Table::Due => DueKey::parse(key).is_some(),
        Table::Owed | Table::Inflight | Table::Handed => keys::parse_peer_seq(key).is_some(),
        Table::Deadletters => key.len() == 20,
        Table::Expiry => parse_expiry(key).is_some(),
        Table::Counters => key.len() == 5,
        Table::Unmet => key.len() == 16,
        Table::Owners => parse_owner(key).is_some(),
        Table::Sources => key.len() == 36,
        Table::Quarantine => parse_quarantine(key).is_some(),
        Table::Exports => parse_export(key).is_some(),
        Table::Watched => key.len() == 40,
        Table::Shards => ShardKey::parse(key).is_some(),
        Table::ByNode => parse_by_node(key).is_some(),
        Table::ShardDeadlines => parse_shard_deadline(key).is_some(),
        Table::Nonces => parse_nonce(key).is_some(),
        Table::Nodes | Table::Clients => core::str::from_utf8(key).is_ok_and(is_node_id),
        Table::Peers => key.len() == 4,
        Table::PassBack => keys::parse_pass_back(key).is_some(),
        Table::RememberedAge => keys_upkeep::parse_remembered_age(key).is_some(),
    }
}

/// Moves a row into quarantine with its bytes. Empty when its key is too long to stand there.
#[must_use]
pub fn quarantine(table: Table, key: &[u8], value: &[u8], at: u64, why: &str) -> Vec<Fix> {
    if key.len() + 2 > KEY_MAX {
        return Vec::new();
    }
    let place = keys_upkeep::quarantine(&Quarantined::Row { table, key });
    let row = QuarantineRow { at, why: why.into(), value: value.into(), size: 0, expires_at: 0 };
    vec![Fix::put(Table::Quarantine, &place, &row), Fix::del(table, key)]
}

impl Check<'_> {
    /// The row, if it can be read; otherwise it is found, to be set aside.
    pub(super) fn readable<R>(&mut self, table: Table, key: &[u8], value: &[u8]) -> Option<R>
    where
        R: for<'b> Decode<'b, ()>,
    {
        match decodes(table, key, value) {
            Ok(()) => codec::decode(table, key, value).ok(),
            Err((rule, why)) => {
                self.aside(rule, table, key, value, why);
                None
            }
        }
    }

    /// As [`Check::readable`], for rows that are only a key.
    pub(super) fn key_is_good(&mut self, table: Table, key: &[u8], value: &[u8]) -> bool {
        match decodes(table, key, value) {
            Ok(()) => true,
            Err((rule, why)) => {
                self.aside(rule, table, key, value, why);
                false
            }
        }
    }

    fn aside(&mut self, rule: Rule, table: Table, key: &[u8], value: &[u8], why: String) {
        let fixes = quarantine(table, key, value, self.at.0, &why);
        self.found(rule, table, key, why, fixes);
    }

    pub(super) fn meta(&mut self) {
        self.each(Table::Meta, &[], &mut |check, key, value| {
            check.readable::<MetaRow>(Table::Meta, key, value);
        });
        let (key, table) = (MetaName::Format.key(), Table::Meta);
        match self.look::<MetaRow>(table, key).row() {
            Some(row) if row.value == u64::from(FORMAT) => {}
            Some(row) => {
                let text =
                    format!("the ledger has format {}, this build reads {FORMAT}", row.value);
                self.found(Rule::Format, table, key, text, Vec::new());
            }
            None => {
                let fix = Fix::put(table, key, &MetaRow { value: FORMAT.into() });
                self.found(Rule::Format, table, key, "the format is missing".into(), vec![fix]);
            }
        }
        let high = self.look::<MetaRow>(table, MetaName::TimeHigh.key()).row();
        self.time_high = high.map_or(0, |row| row.value);
        if high.is_none() {
            self.forgotten(MetaName::TimeHigh, self.at.0);
        }
        // Whoever mends writes the number of the batch that does it.
        if self.look::<MetaRow>(table, MetaName::Batch.key()).row().is_none() {
            self.forgotten(MetaName::Batch, 0);
        }
    }

    fn forgotten(&mut self, name: MetaName, value: u64) {
        let (table, key) = (Table::Meta, name.key());
        let text = format!("{} is missing", text_of(key));
        self.found(Rule::Number, table, key, text, vec![Fix::put(table, key, &MetaRow { value })]);
    }

    /// Peers that can be read; what can be mended of the others is a name that only they can have.
    pub(super) fn peers(&mut self) {
        self.each(Table::Peers, &[], &mut |check, key, value| {
            let number = <[u8; 4]>::try_from(key).map(u32::from_be_bytes);
            if let (Some(row), Ok(number)) =
                (check.readable::<PeerRow>(Table::Peers, key, value), number)
            {
                check.sums.gives(MetaName::NextSite, number.into());
                check.peer(SiteNo(number), &row);
            }
        });
    }

    /// A site that deliveries go to has no row: it gets one, so that an operator sees it. Its name is
    /// known if the configuration knows just one site that no row names.
    pub(super) fn unknown_peer(&mut self, site: SiteNo) {
        if self.peers.contains_key(&site) || site == SiteNo(0) {
            return;
        }
        let known = |name: &String| self.peers.values().any(|peer| peer.name == *name);
        let free: Vec<&String> = self.names.iter().filter(|name| !known(name)).collect();
        let name = match free.as_slice() {
            [one] => (*one).clone(),
            _ => format!("lost-{site}"),
        };
        let row = PeerRow {
            name: name.clone(),
            pin: Vec::new(),
            held: false,
            last_acked: None,
            forgotten: None,
        };
        self.peer(site, &row);
        self.sums.gives(MetaName::NextSite, site.0.into());
        let key = keys::site(site);
        let text = format!("site number {site} has deliveries and no row; it is called {name}");
        let fix = Fix::put(Table::Peers, &key, &row);
        self.found(Rule::Peer, Table::Peers, &key, text, vec![fix]);
    }

    /// Tables that no rule but their own form is about, and quarantine.
    pub(super) fn others(&mut self) {
        use Table::{Audit, Clients, Exports, Nodes, Nonces, Quarantine, Receipts, Remembered};
        use Table::{Expiry, RememberedAge, Watched};
        let tables = [Exports, Watched, Nonces, Nodes, Clients, Receipts, Expiry];
        for table in tables {
            self.each(table, &[], &mut |check, key, value| {
                check.key_is_good(table, key, value);
            });
        }
        self.each(Remembered, &[], &mut |check, key, value| {
            check.sums.counts(MetaName::Remembered);
            let Some(row) = check.readable::<RememberedRow>(Remembered, key, value) else { return };
            let Ok(id) = <[u8; 32]>::try_from(key) else { return };
            let at = crate::time::UnixMillis(row.evicted_at);
            let age = keys_upkeep::remembered_age(at, &crate::id::SegmentId(id));
            check.need(RememberedAge, &age, "an id that is remembered");
        });
        self.each(Audit, &[], &mut |check, key, value| {
            check.sums.counts(MetaName::AuditRows);
            if check.key_is_good(Audit, key, value) {
                check.sums.gives(MetaName::NextAudit, keys::parse_u64(key).unwrap_or(0));
            }
        });
        self.each(Quarantine, &[], &mut |check, key, value| {
            check.sums.quarantined();
            let Some(row) = check.readable::<QuarantineRow>(Quarantine, key, value) else { return };
            check.sums.charge(0, row.size);
            if row.expires_at > 0 {
                let at = crate::time::UnixMillis(row.expires_at);
                let expiry = keys_upkeep::expiry(at, ExpiryKind::Quarantine, key);
                check.need(Expiry, &expiry, "something in quarantine");
            }
        });
    }

    /// A number that was given; the next one must be higher.
    pub(super) fn number(&mut self, name: MetaName, given: Option<u64>) {
        let (table, key) = (Table::Meta, name.key());
        let next = self.look::<MetaRow>(table, key).row().map(|row| row.value);
        // Numbers begin at 1. Only what nobody has asked for yet has no counter.
        let lowest = given.map_or(1, |given| given.saturating_add(1));
        let late = matches!(name, MetaName::NextRedemption | MetaName::NextAudit);
        let missing = next.is_none() && (given.is_some() || !late);
        if !missing && next.unwrap_or(lowest).max(1) >= lowest {
            return;
        }
        let jump = if name == MetaName::NextSite { SITE_JUMP } else { JUMP };
        let value = lowest.saturating_add(jump);
        let found = next.map_or_else(|| "missing".to_string(), |next| next.to_string());
        let text = format!("{} is {found}, but {} was given", text_of(key), lowest - 1);
        self.found(Rule::Number, table, key, text, vec![Fix::put(table, key, &MetaRow { value })]);
    }
}

/// A name of `meta`.
pub(super) fn text_of(key: &[u8]) -> &str {
    core::str::from_utf8(key).unwrap_or("a name")
}
