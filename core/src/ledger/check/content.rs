//! Content: bodies, blobs and their owners, and what is being received.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::{Check, Fix, Look, Rule};
use crate::code::Cause;
use crate::id::{BlobDigest, BlobNo, Seq, SiteNo};
use crate::ledger::keys_upkeep::{self, Owner, Quarantined, owner_prefix, parse_owner};
use crate::ledger::read::scan_prefix;
use crate::ledger::rows::{
    BlobRow, Body, DigestRow, DoomedRow, IncomingRow, MetaName, SegmentRow, SourceRow,
};
use crate::ledger::rows_pickup::ShardState;
use crate::ledger::rows_upkeep::QuarantineRow;
use crate::ledger::{Table, keys};

/// Words of 64 bits in a piece.
const WORDS: usize = 64;

/// A set of numbers, a bit for each, in pieces of 4,096 where there are any.
#[derive(Debug, Default)]
pub(super) struct Bits(BTreeMap<u64, Box<[u64; WORDS]>>);

impl Bits {
    fn place(number: u64) -> (u64, usize, u64) {
        let in_piece = number % (WORDS as u64 * 64);
        (number / (WORDS as u64 * 64), (in_piece / 64) as usize, 1 << (in_piece % 64))
    }

    pub(super) fn insert(&mut self, number: u64) {
        let (piece, word, bit) = Bits::place(number);
        let piece = self.0.entry(piece).or_insert_with(|| Box::new([0; WORDS]));
        if let Some(word) = piece.get_mut(word) {
            *word |= bit;
        }
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let (piece, word, bit) = Bits::place(number);
        let word = self.0.get(&piece).and_then(|piece| piece.get(word));
        word.is_some_and(|word| word & bit != 0)
    }
}

impl Check<'_> {
    /// What is wrong with the row of an inline body.
    pub(super) fn inline(&mut self, row: &SegmentRow) -> Option<(Cause, String)> {
        let Body::Inline(number) = row.body else { return None };
        self.bodies.insert(number.0);
        self.sums.gives(MetaName::NextBody, number.0);
        let snapshot = self.snapshot;
        let body = self.failed(snapshot.get(Table::Bodies, &keys::body(number))).flatten();
        match body {
            None => Some((Cause::Missing, format!("body {number} is not there"))),
            Some(body) if body.len() as u64 != row.size => {
                let what = format!("body {number} has {} bytes, not {}", body.len(), row.size);
                Some((Cause::Corrupt, what))
            }
            Some(_) => None,
        }
    }

    /// What is wrong with the row of a blob.
    pub(super) fn blob_of(&mut self, blob: BlobNo, row: &SegmentRow) -> Option<(Cause, String)> {
        self.blobs.insert(blob.0);
        match self.look::<BlobRow>(Table::Blobs, &keys::blob(blob)) {
            Look::Row(found) if found.digest == row.digest && found.size == row.size => None,
            Look::Row(_) => {
                Some((Cause::Missing, format!("blob {blob} is the content of something else")))
            }
            // Its row says nothing that the segment does not say too: it is made again.
            Look::Nothing | Look::Bad => {
                self.make_blob(blob, row);
                None
            }
        }
    }

    /// A shard has its content here.
    pub(super) fn buffer(&mut self, body: Option<Body>, size: u64) {
        match body {
            Some(Body::Inline(number)) => {
                self.bodies.insert(number.0);
                self.sums.charge(0, crate::node::inline_charge(size));
            }
            Some(Body::Blob(blob)) => self.blobs.insert(blob.0),
            None => {}
        }
    }

    fn make_blob(&mut self, blob: BlobNo, row: &SegmentRow) {
        let key = keys::blob(blob);
        if row.loss.is_some() {
            return;
        }
        // Its owners may have been counted wrongly with it; the next look counts them.
        let owner = Some(row.from).filter(|from| *from != 0);
        let made = BlobRow { digest: row.digest, size: row.size, refs: 1, owner };
        let text = format!("blob {blob}, content of a segment, has no row");
        let fixes = vec![Fix::put(Table::Blobs, &key, &made)];
        self.found(Rule::IndexMissing, Table::Blobs, &key, text, fixes);
    }

    pub(super) fn blobs(&mut self) {
        self.each(Table::Blobs, &[], &mut |check, key, value| {
            check.sums.gives(MetaName::NextBlob, keys::parse_u64(key).unwrap_or(0));
            let Some(row) = check.readable::<BlobRow>(Table::Blobs, key, value) else { return };
            let Some(blob) = keys::parse_u64(key).map(BlobNo) else { return };
            check.sums.charge(row.owner.unwrap_or(0), row.size);
            check.twice(blob, &[Table::Incoming, Table::Doomed]);
            check.owned(blob, &row);
        });
    }

    fn twice(&mut self, blob: BlobNo, others: &[Table]) {
        let key = keys::blob(blob);
        for other in others {
            if self.has(*other, &key) {
                // The row that says more stays.
                let text = format!("blob {blob} is also in {other}");
                let fixes = vec![Fix::del(*other, &key)];
                self.found(Rule::Twice, *other, &key, text, fixes);
            }
        }
    }

    /// Owners of a blob, and whether its digest need not lead to it: one of them is known to have lost
    /// it, or is a shard.
    fn its_owners(&mut self, blob: BlobNo) -> (u32, bool) {
        let mut owners: Vec<Owner> = Vec::new();
        let snapshot = self.snapshot;
        let mut count: u32 = 0;
        let scanned = scan_prefix(snapshot, Table::Owners, &owner_prefix(blob), &mut |key, _| {
            if let Some((_, owner)) = parse_owner(key) {
                count = count.saturating_add(1);
                // More are not needed: one that has lost it is told by the first few as well.
                if owners.len() < OWNERS {
                    owners.push(owner);
                }
            }
            true
        });
        self.failed(scanned);
        let lost = owners.into_iter().any(|owner| match owner {
            Owner::Segment(seq) => self.has_lost(seq),
            // No digest leads to what a shard has: it is never shared.
            Owner::Shard(_) => true,
        });
        (count, lost)
    }

    fn has_lost(&mut self, seq: Seq) -> bool {
        let row = self.look::<SegmentRow>(Table::Segments, &keys::seq(seq)).row();
        row.is_some_and(|row| row.loss.is_some())
    }

    fn owned(&mut self, blob: BlobNo, row: &BlobRow) {
        let key = keys::blob(blob);
        let (owners, lost) = self.its_owners(blob);
        if owners == 0 && !self.blobs.contains(blob.0) {
            return self.unowned(blob, row);
        }
        if owners != row.refs && !self.owners_missing {
            let text = format!("blob {blob} has {owners} owners, its row says {}", row.refs);
            let fixes = vec![Fix::put(Table::Blobs, &key, &BlobRow { refs: owners, ..*row })];
            self.found(Rule::References, Table::Blobs, &key, text, fixes);
        }
        if lost {
            return;
        }
        let leads = match self.look::<DigestRow>(Table::Digests, &row.digest.0).row() {
            Some(digest) if digest.blob == blob => true,
            Some(digest) => {
                let other = self.look::<BlobRow>(Table::Blobs, &keys::blob(digest.blob)).row();
                other.is_some_and(|other| other.digest == row.digest)
            }
            None => false,
        };
        if !leads {
            let text = format!("the digest of blob {blob} does not lead to it");
            let fixes = vec![Fix::put(Table::Digests, &row.digest.0, &DigestRow { blob })];
            self.found(Rule::IndexMissing, Table::Digests, &row.digest.0, text, fixes);
        }
    }

    /// Nobody's content: its file is set aside, since it may be the only copy of something.
    fn unowned(&mut self, blob: BlobNo, row: &BlobRow) {
        let key = keys::blob(blob);
        let place = keys_upkeep::quarantine(&Quarantined::File(blob));
        let why = format!("content {} of {} bytes belonged to nobody", row.digest, row.size);
        let (at, value) = (self.at.0, Vec::new());
        let aside = QuarantineRow { at, why, value, size: 0, expires_at: 0 };
        let mut fixes =
            vec![Fix::put(Table::Quarantine, &place, &aside), Fix::del(Table::Blobs, &key)];
        let digest = self.look::<DigestRow>(Table::Digests, &row.digest.0).row();
        if digest.is_some_and(|digest| digest.blob == blob) {
            fixes.push(Fix::del(Table::Digests, &row.digest.0));
        }
        let text = format!("blob {blob} belongs to nobody");
        self.found(Rule::Unowned, Table::Blobs, &key, text, fixes);
    }

    pub(super) fn bodies(&mut self) {
        self.each(Table::Bodies, &[], &mut |check, key, value| {
            if !check.key_is_good(Table::Bodies, key, value) {
                return;
            }
            let number = keys::parse_u64(key).unwrap_or(0);
            check.sums.gives(MetaName::NextBody, number);
            if !check.bodies.contains(number) {
                let why = format!("body {number} belongs to nobody");
                let fixes = super::quarantine(Table::Bodies, key, value, check.at.0, &why);
                check.found(Rule::Unowned, Table::Bodies, key, why, fixes);
            }
        });
    }

    pub(super) fn incoming(&mut self) {
        self.each(Table::Incoming, &[], &mut |check, key, value| {
            check.sums.gives(MetaName::NextBlob, keys::parse_u64(key).unwrap_or(0));
            let Some(row) = check.readable::<IncomingRow>(Table::Incoming, key, value) else {
                return;
            };
            let Some(blob) = keys::parse_u64(key).map(BlobNo) else { return };
            check.sums.charge(row.source, row.reserved);
            check.twice(blob, &[Table::Doomed]);
            if row.shard == Some(true) {
                check.sums.shard(ShardState::Uploading, 0, row.reserved);
                check.its_shard(blob, &row);
            }
            if row.source != 0 {
                check.its_source(blob, &row);
            }
        });
        self.each(Table::Doomed, &[], &mut |check, key, value| {
            check.sums.gives(MetaName::NextBlob, keys::parse_u64(key).unwrap_or(0));
            if let Some(row) = check.readable::<DoomedRow>(Table::Doomed, key, value) {
                check.sums.charge(row.owner, row.size);
            }
        });
    }

    /// Partial content of a shard that no shard leads to would never be given up.
    fn its_shard(&mut self, blob: BlobNo, row: &IncomingRow) {
        if self.partials.contains(blob.0) {
            return;
        }
        let key = keys::blob(blob);
        let doomed = DoomedRow::new(row.reserved, row.source);
        let fixes = vec![Fix::put(Table::Doomed, &key, &doomed), Fix::del(Table::Incoming, &key)];
        let text = format!("partial content {blob} of a shard belongs to none");
        self.found(Rule::Unowned, Table::Incoming, &key, text, fixes);
    }

    fn its_source(&mut self, blob: BlobNo, row: &IncomingRow) {
        let key = keys_upkeep::source(&row.digest, SiteNo(row.source));
        let source = self.look::<SourceRow>(Table::Sources, &key).row();
        if source.and_then(|source| source.blob) != Some(blob) {
            let mismatches = source.map_or(0, |source| source.mismatches);
            let made = SourceRow { blob: Some(blob), mismatches };
            let text = format!("partial content {blob} has no row in sources");
            let fixes = vec![Fix::put(Table::Sources, &key, &made)];
            self.found(Rule::IndexMissing, Table::Sources, &key, text, fixes);
        }
    }

    pub(super) fn sources(&mut self) {
        self.each(Table::Sources, &[], &mut |check, key, value| {
            let Some(row) = check.readable::<SourceRow>(Table::Sources, key, value) else { return };
            let Some(blob) = row.blob else { return };
            let mut rest = key;
            let digest = keys::take(&mut rest).map(BlobDigest);
            let source = keys::take(&mut rest).map(u32::from_be_bytes);
            let incoming = check.look::<IncomingRow>(Table::Incoming, &keys::blob(blob)).row();
            let right = incoming.is_some_and(|incoming| {
                Some(incoming.digest) == digest && Some(incoming.source) == source
            });
            if right {
                return;
            }
            let fix = match row.mismatches {
                0 => Fix::del(Table::Sources, key),
                mismatches => Fix::put(Table::Sources, key, &SourceRow { blob: None, mismatches }),
            };
            let text = "a source leads to partial content that is not so".to_string();
            check.found(Rule::IndexAstray, Table::Sources, key, text, vec![fix]);
        });
    }
}

/// Owners of a blob that are looked at.
const OWNERS: usize = 1024;
