//! The bulk loader: any number of queued deliveries straight into a ledger, through the store's own
//! batches, as if a site had accepted them and never met its peer.
//!
//! Rows are those that the node writes, key for key. Batches are far larger than a node's, and ids are
//! put in the order of their index, so ten million take minutes, not hours.

use bytes::Bytes;

use consign_core::id::{BatchNo, BlobDigest, BodyNo, ConnId, Handle, SegmentId, Seq, SiteNo};
use consign_core::ledger::keys::{self, DueKey};
use consign_core::ledger::rows::{
    Body, CounterRow, DeliveryRow, IdRow, MetaName, MetaRow, PeerRow, SegmentRow, State,
};
use consign_core::ledger::{FORMAT, Table};
use consign_core::segment::{Class, Destinations, Meta, segment_id};
use consign_core::store::{Batch, Store, StoreRequest};
use consign_core::time::UnixMillis;

use super::{Disk, Res};

/// Segments of one batch of the loader.
const CHUNK: u64 = 16_384;
/// When the first of them was accepted; one more every millisecond.
pub const BEGAN: u64 = 1_790_000_000_000;
/// The peer they wait for.
pub const PEER: &str = "beta";
/// Its number.
pub const SITE: SiteNo = SiteNo(1);

/// What is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many segments, each with one delivery that is Scheduled.
    pub count: u64,
    /// Length of each one's content, at most 64 KiB.
    pub size: usize,
}

/// Loads an empty ledger.
pub fn queue(disk: &Disk, load: Load) -> Res<()> {
    let mut batch_no = 0;
    let mut first = 1;
    while first <= load.count {
        let last = load.count.min(first + CHUNK - 1);
        batch_no += 1;
        let mut batch = Batch::new(BatchNo(batch_no));
        let mut ids = Vec::with_capacity(usize::try_from(CHUNK)?);
        for seq in first..=last {
            ids.push((segment(disk, &mut batch, seq, load.size), seq));
        }
        ids.sort_unstable();
        for (id, seq) in ids {
            batch.put(Table::Ids, &keys::id(&id), &IdRow { seq: Seq(seq) });
        }
        counters(&mut batch, last, load.size as u64);
        disk.commit(batch)?;
        first = last + 1;
    }
    Ok(())
}

fn counters(batch: &mut Batch, last: u64, size: u64) {
    let number = batch.number.0;
    let peer = PeerRow {
        name: PEER.into(),
        pin: Vec::new(),
        held: false,
        last_acked: None,
        forgotten: None,
    };
    batch.put(Table::Peers, &keys::site(SITE), &peer);
    let meta = [
        (MetaName::Format, FORMAT.into()),
        (MetaName::HeldCounted, 1),
        (MetaName::Boot, 1),
        (MetaName::Batch, number),
        (MetaName::NextSeq, last + 1),
        (MetaName::NextBlob, 1),
        (MetaName::NextBody, last + 1),
        (MetaName::NextSite, u64::from(SITE.0) + 1),
        (MetaName::TimeHigh, BEGAN + last),
        (MetaName::UsedBytes, last * (size + 24)),
        (MetaName::Segments, last),
    ];
    for (name, value) in meta {
        batch.put(Table::Meta, name.key(), &MetaRow { value });
    }
    let counter = CounterRow { count: last, bytes: last * size };
    batch.put(Table::Counters, &keys::counter(SITE, State::Scheduled as u8), &counter);
}

/// The content of a segment: all different, nothing to compress.
pub fn content(seq: u64, size: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(size + 8);
    let mut word = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while body.len() < size {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        body.extend_from_slice(&word.to_le_bytes());
    }
    body.truncate(size);
    body
}

/// Puts the rows of one segment that waits for [`PEER`], all but its id.
pub fn segment(disk: &Disk, batch: &mut Batch, seq: u64, size: usize) -> SegmentId {
    let at = BEGAN + seq;
    let row = stored(disk, batch, seq, size, Origin::Here);
    let id = row.id;
    let delivery = DeliveryRow {
        state: State::Scheduled,
        attempts: 0,
        spent: 0,
        next_attempt_after: at,
        last_error: 0,
        since: at,
        custody: None,
        held: None,
        claimed_at: None,
        refused: 0,
    };
    let due = DueKey {
        peer: SITE,
        class: Class::Normal,
        at: UnixMillis(at),
        id8: keys::id8(&id),
        seq: Seq(seq),
    };
    batch.put(Table::Deliveries, &keys::delivery(Seq(seq), SITE), &delivery);
    batch.put_key(Table::Due, &due.key());
    batch.put_key(Table::Owed, &keys::peer_seq(SITE, Seq(seq)));
    batch.put_key(Table::Unmet, &keys::unmet(UnixMillis(at), Seq(seq)));
    id
}

/// Where a segment was first accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// At this site, for its peer.
    Here,
    /// At the peer, for this site.
    Peer,
}

/// Puts the rows that hold a segment, all but its id: what a site keeps of one that is addressed to it.
pub fn stored(disk: &Disk, batch: &mut Batch, seq: u64, size: usize, origin: Origin) -> SegmentRow {
    let conn = ConnId::default();
    let handle = Handle { conn, number: u32::try_from(seq).unwrap_or(u32::MAX) };
    let data = content(seq, size);
    let digest = BlobDigest(*blake3::hash(&data).as_bytes());
    disk.store.request(conn, StoreRequest::Park { handle, data: Bytes::from(data) });
    let at = BEGAN + seq;
    let here = origin == Origin::Peer;
    let meta = Meta { name: format!("reading-{seq}.json"), accepted_at: at, ..Meta::default() };
    let row = SegmentRow {
        id: segment_id(&meta, &digest),
        digest,
        size: size as u64,
        body: Body::Inline(BodyNo(seq)),
        meta,
        to: Destinations::All,
        here,
        origin: if here { PEER.into() } else { String::new() },
        origin_seq: if here { seq } else { 0 },
        hops: u8::from(here),
        accepted_at: at,
        required: u32::from(!here),
        acked: 0,
        relayed_at: None,
        held: false,
        from: if here { SITE.0 } else { 0 },
        loss: None,
        let_go: None,
        askers: Vec::new(),
        unplaced: None,
    };
    batch.put(Table::Segments, &keys::seq(Seq(seq)), &row);
    batch.put_body(BodyNo(seq), handle, size);
    row
}
