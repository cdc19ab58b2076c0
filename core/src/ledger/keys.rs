//! Key layouts: big-endian fields one after the other, so that byte order is the order we want.

use crate::id::{BlobNo, BodyNo, SegmentId, Seq, SiteNo};
use crate::segment::Class;
use crate::time::UnixMillis;

/// A key of at most 48 bytes on the stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    len: u8,
    bytes: [u8; 48],
}

impl Key {
    /// The empty key.
    pub const EMPTY: Key = Key { len: 0, bytes: [0; 48] };

    /// This key with `part` behind it.
    ///
    /// # Panics
    /// When the key would be longer than 48 bytes; every layout in this file is shorter.
    #[must_use]
    pub fn and(mut self, part: &[u8]) -> Key {
        let from = usize::from(self.len);
        let to = from + part.len();
        self.bytes
            .get_mut(from..to)
            .expect("key layouts are at most 48 bytes")
            .copy_from_slice(part);
        self.len = to as u8;
        self
    }

    /// The bytes of the key.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

impl core::ops::Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// `segments`: seq.
#[must_use]
pub fn seq(seq: Seq) -> Key {
    Key::EMPTY.and(&seq.0.to_be_bytes())
}

/// `ids`, `remembered`: segment id.
#[must_use]
pub fn id(id: &SegmentId) -> Key {
    Key::EMPTY.and(&id.0)
}

/// `bodies`: body number.
#[must_use]
pub fn body(body: BodyNo) -> Key {
    Key::EMPTY.and(&body.0.to_be_bytes())
}

/// `blobs`, `doomed`, `incoming`: blob number.
#[must_use]
pub fn blob(blob: BlobNo) -> Key {
    Key::EMPTY.and(&blob.0.to_be_bytes())
}

/// `deliveries`, `receipts`: (seq, site).
#[must_use]
pub fn delivery(seq: Seq, site: SiteNo) -> Key {
    Key::EMPTY.and(&seq.0.to_be_bytes()).and(&site.0.to_be_bytes())
}

/// `owed`, `inflight`, `handed`: (peer, seq).
#[must_use]
pub fn peer_seq(peer: SiteNo, seq: Seq) -> Key {
    Key::EMPTY.and(&peer.0.to_be_bytes()).and(&seq.0.to_be_bytes())
}

/// `pass_back`: (peer, seq, site).
#[must_use]
pub fn pass_back(peer: SiteNo, seq: Seq, site: SiteNo) -> Key {
    peer_seq(peer, seq).and(&site.0.to_be_bytes())
}

/// Reads a `pass_back` key; `None` when it is not one.
#[must_use]
pub fn parse_pass_back(bytes: &[u8]) -> Option<(SiteNo, Seq, SiteNo)> {
    let mut rest = bytes;
    let peer = SiteNo(u32::from_be_bytes(take(&mut rest)?));
    let (seq, site) = parse_delivery(rest)?;
    Some((peer, seq, site))
}

/// `deadletters`: (ms, seq, site).
#[must_use]
pub fn deadletter(at: UnixMillis, seq: Seq, site: SiteNo) -> Key {
    Key::EMPTY.and(&at.0.to_be_bytes()).and(&seq.0.to_be_bytes()).and(&site.0.to_be_bytes())
}

/// Reads a `deadletters` key; `None` when it is not one.
#[must_use]
pub fn parse_deadletter(bytes: &[u8]) -> Option<DeadKey> {
    let mut rest = bytes;
    let at = UnixMillis(u64::from_be_bytes(take(&mut rest)?));
    let seq = Seq(u64::from_be_bytes(take(&mut rest)?));
    let site = SiteNo(u32::from_be_bytes(take(&mut rest)?));
    rest.is_empty().then_some(DeadKey { at, seq, site })
}

/// A key of `deadletters`, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeadKey {
    /// When it was given up.
    pub at: UnixMillis,
    /// The segment.
    pub seq: Seq,
    /// The destination.
    pub site: SiteNo,
}

impl DeadKey {
    /// Its bytes.
    #[must_use]
    pub fn key(&self) -> Key {
        deadletter(self.at, self.seq, self.site)
    }
}

/// `unmet`: (ms, seq).
#[must_use]
pub fn unmet(at: UnixMillis, seq: Seq) -> Key {
    Key::EMPTY.and(&at.0.to_be_bytes()).and(&seq.0.to_be_bytes())
}

/// `counters`: (site, state).
#[must_use]
pub fn counter(site: SiteNo, state: u8) -> Key {
    Key::EMPTY.and(&site.0.to_be_bytes()).and(&[state])
}

/// `peers`: site number.
#[must_use]
pub fn site(site: SiteNo) -> Key {
    Key::EMPTY.and(&site.0.to_be_bytes())
}

/// `audit`: audit number.
#[must_use]
pub fn audit(number: u64) -> Key {
    Key::EMPTY.and(&number.to_be_bytes())
}

/// A key of `due`, in fields: (peer, class, ms, first 8 bytes of the segment id, seq). Within a
/// (peer, class) this is the source's order (next_attempt_after, segment_id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DueKey {
    /// The peer it waits for.
    pub peer: SiteNo,
    /// The class of the segment.
    pub class: Class,
    /// Not before this time.
    pub at: UnixMillis,
    /// First 8 bytes of the segment id, big-endian.
    pub id8: u64,
    /// The segment.
    pub seq: Seq,
}

impl DueKey {
    /// The key in bytes.
    #[must_use]
    pub fn key(&self) -> Key {
        due_prefix(self.peer, self.class)
            .and(&self.at.0.to_be_bytes())
            .and(&self.id8.to_be_bytes())
            .and(&self.seq.0.to_be_bytes())
    }

    /// Reads a key; `None` when it is not one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<DueKey> {
        let mut rest = bytes;
        let key = DueKey {
            peer: SiteNo(u32::from_be_bytes(take(&mut rest)?)),
            class: Class::from_number(u8::from_be_bytes(take(&mut rest)?))?,
            at: UnixMillis(u64::from_be_bytes(take(&mut rest)?)),
            id8: u64::from_be_bytes(take(&mut rest)?),
            seq: Seq(u64::from_be_bytes(take(&mut rest)?)),
        };
        rest.is_empty().then_some(key)
    }
}

/// The common beginning of all `due` keys of one (peer, class).
#[must_use]
pub fn due_prefix(peer: SiteNo, class: Class) -> Key {
    Key::EMPTY.and(&peer.0.to_be_bytes()).and(&[class as u8])
}

/// First 8 bytes of a segment id, as they stand in `due`.
#[must_use]
pub fn id8(id: &SegmentId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = id.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Takes `N` bytes from the front of `rest`.
pub fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Reads a big-endian u64 key (`segments`, `bodies`, `blobs`, …).
#[must_use]
pub fn parse_u64(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

/// Reads a (u32, u64) key (`owed`, `inflight`).
#[must_use]
pub fn parse_peer_seq(bytes: &[u8]) -> Option<(SiteNo, Seq)> {
    let mut rest = bytes;
    let peer = SiteNo(u32::from_be_bytes(take(&mut rest)?));
    let seq = Seq(u64::from_be_bytes(take(&mut rest)?));
    rest.is_empty().then_some((peer, seq))
}

/// Reads a (u64, u32) key (`deliveries`).
#[must_use]
pub fn parse_delivery(bytes: &[u8]) -> Option<(Seq, SiteNo)> {
    let mut rest = bytes;
    let seq = Seq(u64::from_be_bytes(take(&mut rest)?));
    let site = SiteNo(u32::from_be_bytes(take(&mut rest)?));
    rest.is_empty().then_some((seq, site))
}
