//! What the local interface reads from the ledger: pure functions over a snapshot, each bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use consign_core::code::Cause;
use consign_core::http::rfc3339;
use consign_core::id::{BlobDigest, SegmentId, Seq, SiteNo, hex};
use consign_core::ledger::read::{Held, held, row, scan_prefix};
use consign_core::ledger::rows::{Body, DeliveryRow, IdRow, Loss, PeerRow, SegmentRow, State};
use consign_core::ledger::{Table, codec, keys};
use consign_core::segment::Destinations;
use consign_core::store::{Snapshot, StoreFault};
use consign_core::time::UnixMillis;

use super::shapes::{Delivery, Segment, Segments};

/// Rows looked at for one page, whatever the filter lets through.
const PAGE_ROWS: usize = 4_096;
/// Rows taken from an index at a time.
const SLICE: usize = 256;
/// Deliveries in one page; a segment has at most 256.
const PAGE_DELIVERIES: usize = 8_192;

/// What people call the state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Waiting for its turn, or for the peer.
    Queued,
    /// In flight.
    Sending,
    /// Failed, and not due yet.
    BackingOff,
    /// Held by an operator.
    Held,
    /// Durably there.
    Delivered,
    /// Given up.
    Dead,
}

impl Word {
    /// All of them.
    pub const ALL: [Word; 6] =
        [Word::Queued, Word::Sending, Word::BackingOff, Word::Held, Word::Delivered, Word::Dead];

    /// The word.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Word::Queued => "queued",
            Word::Sending => "sending",
            Word::BackingOff => "backing off",
            Word::Held => "held",
            Word::Delivered => "delivered",
            Word::Dead => "dead",
        }
    }

    /// Reads it; `_` and `-` stand for the blank.
    #[must_use]
    pub fn parse(text: &str) -> Option<Word> {
        let text = text.replace(['-', '_'], " ");
        Word::ALL.into_iter().find(|word| word.text() == text)
    }

    /// The word for a delivery at this time.
    #[must_use]
    pub fn of(row: &DeliveryRow, segment_held: bool, now: UnixMillis) -> Word {
        let held = segment_held || row.held == Some(true);
        match row.state {
            State::Acked => Word::Delivered,
            State::Deadletter => Word::Dead,
            State::Inflight => Word::Sending,
            State::Scheduled | State::Failed if held => Word::Held,
            State::Failed if row.next_attempt_after > now.0 => Word::BackingOff,
            State::Scheduled | State::Failed => Word::Queued,
        }
    }
}

/// The beginning of a segment id: 6 to 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    digits: String,
    /// Whether segments that have lost their content are looked for too: no id leads to them.
    pub(super) lost: bool,
}

impl IdPrefix {
    /// Reads it, either case.
    #[must_use]
    pub fn parse(text: &str) -> Option<IdPrefix> {
        let good = (6..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| IdPrefix { digits: text.to_ascii_lowercase(), lost: false })
    }

    /// The digits, lower case.
    #[must_use]
    pub fn digits(&self) -> &str {
        &self.digits
    }

    /// The smallest key it can be the beginning of.
    pub(super) fn first_key(&self) -> Vec<u8> {
        let digit = |d: u8| char::from(d).to_digit(16).unwrap_or(0) as u8;
        self.digits
            .as_bytes()
            .chunks(2)
            .map(|pair| (digit(pair[0]) << 4) | pair.get(1).map_or(0, |d| digit(*d)))
            .collect()
    }
}

/// Which segments a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// At most so many.
    pub limit: usize,
    /// Behind this one.
    pub after: Option<Seq>,
    /// With a delivery in this state.
    pub state: Option<Word>,
    /// With a delivery to this site (and in that state).
    pub peer: Option<String>,
}

impl Listing {
    /// Largest page.
    pub const LIMIT_MAX: usize = 1_000;
}

impl Default for Listing {
    fn default() -> Listing {
        Listing { limit: 100, after: None, state: None, peer: None }
    }
}

/// One segment, or why there is not exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum One<T> {
    /// It.
    Found(T),
    /// No segment begins so.
    Missing,
    /// Several do; these are some of them.
    Ambiguous(Vec<String>),
}

impl<T> One<T> {
    /// The same of something else.
    pub(super) fn map<U>(self, map: impl FnOnce(T) -> U) -> One<U> {
        match self {
            One::Found(found) => One::Found(map(found)),
            One::Missing => One::Missing,
            One::Ambiguous(ids) => One::Ambiguous(ids),
        }
    }
}

/// Where the content of a segment is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Its number.
    pub seq: u64,
    /// The segment, 64 hex digits.
    pub id: String,
    /// Number of an inline body.
    pub inline: Option<u64>,
    /// Number of a file.
    pub blob: Option<u64>,
    /// Its length.
    pub size: u64,
    /// Its digest.
    pub digest: [u8; 32],
    /// Its media type; may be empty.
    pub content_type: String,
}

impl Located {
    /// Where it is, as the store wants to know it; `None` for an answer that names neither.
    #[must_use]
    pub fn body(&self) -> Option<Body> {
        use consign_core::id::{BlobNo, BodyNo};
        let inline = self.inline.map(|number| Body::Inline(BodyNo(number)));
        inline.or(self.blob.map(|number| Body::Blob(BlobNo(number))))
    }

    /// The digest.
    #[must_use]
    pub fn blob_digest(&self) -> BlobDigest {
        BlobDigest(self.digest)
    }
}

/// Finds the segment whose id begins so.
///
/// # Errors
/// When the store cannot be read.
pub fn find(snapshot: &dyn Snapshot, prefix: &IdPrefix) -> Result<One<Seq>, StoreFault> {
    let mut found: Vec<(SegmentId, Seq)> = Vec::new();
    let mut bad = None;
    snapshot.scan(Table::Ids, &prefix.first_key(), &mut |key, value| {
        if !hex(key).starts_with(prefix.digits()) {
            return false;
        }
        match (<[u8; 32]>::try_from(key), codec::decode::<IdRow>(Table::Ids, key, value)) {
            (Ok(id), Ok(row)) => found.push((SegmentId(id), row.seq)),
            (_, Err(fault)) => bad = Some(fault),
            (Err(_), Ok(_)) => {}
        }
        found.len() < 5
    })?;
    if found.is_empty() && bad.is_none() && prefix.lost {
        found = lost(snapshot, prefix)?;
    }
    match (found.as_slice(), bad) {
        ([], Some(fault)) => Err(StoreFault::Corrupt(fault.to_string())),
        ([], None) => Ok(One::Missing),
        ([(_, seq)], _) => Ok(One::Found(*seq)),
        (several, _) => Ok(One::Ambiguous(several.iter().map(|(id, _)| id.to_string()).collect())),
    }
}

/// Segments whose content is gone: no id leads to them, so that it can be taken anew, and yet they are held.
/// They are rare, and looked for only when nothing else is found and the node knows of any.
fn lost(snapshot: &dyn Snapshot, prefix: &IdPrefix) -> Result<Vec<(SegmentId, Seq)>, StoreFault> {
    let (mut found, mut rows) = (Vec::new(), 0);
    snapshot.scan(Table::Segments, &[], &mut |key, value| {
        rows += 1;
        let row = codec::decode::<SegmentRow>(Table::Segments, key, value).ok();
        if let (Some(row), Some(seq)) = (row, keys::parse_u64(key))
            && row.loss == Some(Loss::Gone)
            && hex(&row.id.0).starts_with(prefix.digits())
        {
            found.push((row.id, Seq(seq)));
        }
        found.len() < 5 && rows < LOST_ROWS
    })?;
    Ok(found)
}

/// Segments that are looked through for one without its id.
const LOST_ROWS: usize = 1_000_000;

/// The segment whose id begins so, with its deliveries.
///
/// # Errors
/// When the store cannot be read.
pub fn show(
    snapshot: &dyn Snapshot,
    prefix: &IdPrefix,
    now: UnixMillis,
) -> Result<One<Segment>, StoreFault> {
    each_found(snapshot, prefix, |held| segment(snapshot, &mut Names::default(), held, now))
}

/// Where the content of the segment is whose id begins so.
///
/// # Errors
/// When the store cannot be read.
pub fn locate(snapshot: &dyn Snapshot, prefix: &IdPrefix) -> Result<One<Located>, StoreFault> {
    each_found(snapshot, prefix, |held| {
        let (inline, blob) = match held.row.body {
            Body::Inline(number) => (Some(number.0), None),
            Body::Blob(number) => (None, Some(number.0)),
        };
        Ok(Located {
            seq: held.seq.0,
            id: held.row.id.to_string(),
            inline,
            blob,
            size: held.row.size,
            digest: held.row.digest.0,
            content_type: held.row.meta.content_type.clone(),
        })
    })
}

fn each_found<T>(
    snapshot: &dyn Snapshot,
    prefix: &IdPrefix,
    read: impl FnOnce(&Held) -> Result<T, StoreFault>,
) -> Result<One<T>, StoreFault> {
    let seq = match find(snapshot, prefix)? {
        One::Found(seq) => seq,
        One::Missing => return Ok(One::Missing),
        One::Ambiguous(ids) => return Ok(One::Ambiguous(ids)),
    };
    match held(snapshot, seq)? {
        Some(held) => read(&held).map(One::Found),
        None => Err(StoreFault::Corrupt(format!("segment row {seq} is missing or unreadable"))),
    }
}

/// A page of segments. Looks at a bounded number of rows: a page may be short, or empty, and still
/// name a next one.
///
/// # Errors
/// When the store cannot be read. [`StoreFault::Missing`] for a peer that is not known.
pub fn list(
    snapshot: &dyn Snapshot,
    listing: &Listing,
    now: UnixMillis,
) -> Result<Segments, StoreFault> {
    let peer = match &listing.peer {
        None => None,
        Some(name) => {
            let site = site_of(snapshot, name)?;
            Some(site.ok_or_else(|| StoreFault::Missing(format!("no peer is called {name:?}")))?)
        }
    };
    let mut names = Names::default();
    let mut page = Segments { schema: Segments::SCHEMA.into(), ..Segments::default() };
    let (mut looked, mut deliveries) = (0, 0);
    let mut after = listing.after;
    loop {
        let slice = slice(snapshot, listing, peer, after)?;
        let end = slice.len() < SLICE;
        for seq in slice {
            let full = page.segments.len() >= listing.limit || deliveries >= PAGE_DELIVERIES;
            if full || looked >= PAGE_ROWS {
                page.next = after.map(|seq| seq.0);
                return Ok(page);
            }
            looked += 1;
            after = Some(seq);
            // A row that cannot be read is the scrub's business; the others are shown.
            let Some(held) = held(snapshot, seq)? else { continue };
            if matches(&held, listing.state, peer, now) {
                deliveries += held.deliveries.len();
                page.segments.push(segment(snapshot, &mut names, &held, now)?);
            }
        }
        if end {
            return Ok(page);
        }
    }
}

/// The next candidates behind `after`: what a peer is owed where that is what is asked for, otherwise
/// every segment.
fn slice(
    snapshot: &dyn Snapshot,
    listing: &Listing,
    peer: Option<SiteNo>,
    after: Option<Seq>,
) -> Result<Vec<Seq>, StoreFault> {
    let from = after.map_or(Seq(0), |seq| Seq(seq.0.saturating_add(1)));
    let mut found = Vec::new();
    let waits =
        matches!(listing.state, Some(Word::Queued | Word::Sending | Word::BackingOff | Word::Held));
    match peer.filter(|_| waits) {
        Some(peer) => snapshot.scan(Table::Owed, &keys::peer_seq(peer, from), &mut |key, _| {
            let mine = keys::parse_peer_seq(key).filter(|(site, _)| *site == peer);
            found.extend(mine.map(|(_, seq)| seq));
            mine.is_some() && found.len() < SLICE
        })?,
        None => snapshot.scan(Table::Segments, &keys::seq(from), &mut |key, _| {
            found.extend(keys::parse_u64(key).map(Seq));
            found.len() < SLICE
        })?,
    }
    Ok(found)
}

fn matches(held: &Held, state: Option<Word>, peer: Option<SiteNo>, now: UnixMillis) -> bool {
    if state.is_none() && peer.is_none() {
        return true;
    }
    held.deliveries.iter().any(|(site, row)| {
        peer.is_none_or(|peer| peer == *site)
            && state.is_none_or(|state| state == Word::of(row, held.row.held, now))
    })
}

/// The number of a peer.
pub(super) fn site_of(snapshot: &dyn Snapshot, name: &str) -> Result<Option<SiteNo>, StoreFault> {
    let mut found = None;
    scan_prefix(snapshot, Table::Peers, &[], &mut |key, value| {
        let row = codec::decode::<PeerRow>(Table::Peers, key, value);
        if let (Ok(number), Ok(row)) = (<[u8; 4]>::try_from(key), row)
            && row.name == name
        {
            found = Some(SiteNo(u32::from_be_bytes(number)));
        }
        found.is_none()
    })?;
    Ok(found)
}

/// Names of sites, each read once.
#[derive(Default)]
pub(super) struct Names(BTreeMap<SiteNo, String>);

impl Names {
    pub(super) fn of(
        &mut self,
        snapshot: &dyn Snapshot,
        site: SiteNo,
    ) -> Result<String, StoreFault> {
        if let Some(name) = self.0.get(&site) {
            return Ok(name.clone());
        }
        let peer = match row::<PeerRow>(snapshot, Table::Peers, &keys::site(site)) {
            Err(StoreFault::Corrupt(_)) => None,
            other => other?,
        };
        let name = peer.map_or_else(|| format!("site-{site}"), |row| row.name);
        self.0.insert(site, name.clone());
        Ok(name)
    }
}

fn segment(
    snapshot: &dyn Snapshot,
    names: &mut Names,
    held: &Held,
    now: UnixMillis,
) -> Result<Segment, StoreFault> {
    let (row, meta) = (&held.row, &held.row.meta);
    let mut deliveries = Vec::with_capacity(held.deliveries.len());
    for (site, delivery_row) in &held.deliveries {
        let peer = names.of(snapshot, *site)?;
        let mut shape = delivery(peer, delivery_row, row.held, now);
        let hop = delivery_row.custody.filter(|_| delivery_row.state == State::Inflight);
        shape.custody = hop.map(|hop| names.of(snapshot, SiteNo(hop))).transpose()?;
        deliveries.push(shape);
    }
    Ok(Segment {
        schema: Segment::SCHEMA.into(),
        id: row.id.to_string(),
        seq: held.seq.0,
        name: meta.name.clone(),
        content_type: meta.content_type.clone(),
        labels: meta.labels.iter().cloned().collect(),
        priority: meta.class.word().into(),
        instance: (!meta.instance.is_empty()).then(|| hex(&meta.instance)),
        size: row.size,
        digest: row.digest.to_string(),
        to: match &row.to {
            Destinations::All => vec!["*".into()],
            Destinations::Named(names) => names.clone(),
        },
        here: row.here,
        origin: row.origin.clone(),
        hops: row.hops,
        accepted_at: time(row.accepted_at),
        expires_at: meta.expires_at.map(time),
        relayed_at: row.relayed_at.map(time),
        held: row.held,
        unplaced: row.unplaced == Some(true),
        damaged: row.loss.is_some(),
        deliveries,
    })
}

fn delivery(peer: String, row: &DeliveryRow, segment_held: bool, now: UnixMillis) -> Delivery {
    let word = Word::of(row, segment_held, now);
    let waits = matches!(word, Word::Queued | Word::BackingOff | Word::Held);
    Delivery {
        peer,
        state: word.text().into(),
        attempts: row.attempts,
        spent: row.spent,
        next_attempt_at: waits.then(|| time(row.next_attempt_after)),
        last_error: cause_word(row.last_error),
        since: time(row.since),
        claimed_at: row.claimed_at.map(time),
        sent: None,
        custody: None,
    }
}

/// The word of a cause by its number; 0 is none.
pub(super) fn cause_word(number: u8) -> Option<String> {
    let word = || Cause::from_number(number).map(|cause| cause.word().to_string());
    (number != 0).then(|| word().unwrap_or_else(|| format!("code_{number}")))
}

fn time(ms: u64) -> String {
    rfc3339(UnixMillis(ms))
}

#[cfg(test)]
mod tests;
