//! Random rows for quickcheck.

use consign_core::id::*;
use consign_core::inbox::FileMark;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows::*;
use consign_core::ledger::rows_pickup::*;
use consign_core::ledger::rows_upkeep::*;
use consign_core::segment::{Class, Destinations, Meta};
use quickcheck::{Arbitrary, Gen};

/// Something that can be made at random.
pub(crate) trait Make {
    fn make(g: &mut Gen) -> Self;
}

/// Brings [`Make`] to quickcheck.
#[derive(Clone, Debug)]
pub(crate) struct Any<T>(pub(crate) T);

impl<T: Make + Clone + 'static> Arbitrary for Any<T> {
    fn arbitrary(g: &mut Gen) -> Any<T> {
        Any(T::make(g))
    }
}

macro_rules! arbitrary {
    ($($t:ty),*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { <$t>::arbitrary(g) }
    })*};
}
arbitrary!(bool, u8, u32, u64, i32, i64, String, Vec<u8>, Vec<u32>, Vec<(u32, u32)>);

impl<T: Make> Make for Option<T> {
    fn make(g: &mut Gen) -> Option<T> {
        bool::arbitrary(g).then(|| T::make(g))
    }
}

impl Make for [u8; 32] {
    fn make(g: &mut Gen) -> [u8; 32] {
        std::array::from_fn(|_| u8::arbitrary(g))
    }
}

macro_rules! tuple {
    ($($t:ident),*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { $t(Make::make(g)) }
    })*};
}
tuple!(SegmentId, BlobDigest, Sha256Digest, Seq, BlobNo, BodyNo, SiteNo);

macro_rules! one_of {
    ($($t:ident: $all:expr),*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { *g.choose(&$all[..]).unwrap() }
    })*};
}
one_of!(
    Class: Class::ALL,
    State: [State::Scheduled, State::Inflight, State::Acked, State::Failed, State::Deadletter],
    ExportState: [
        ExportState::Intent, ExportState::Placed, ExportState::Done, ExportState::Failed
    ],
    Loss: [Loss::Doubted, Loss::Gone],
    ShardState: ShardState::ALL,
    AckStatus: AckStatus::ALL,
    TokenState: TokenState::ALL
);

macro_rules! fields {
    ($($t:ident { $($f:ident),* $(,)? })*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { $t { $($f: Make::make(g)),* } }
    })*};
}
fields! {
    Epoch { boot, session }
    SegmentRow {
        id, digest, size, body, meta, to, here, origin, origin_seq, hops, accepted_at, required,
        acked, relayed_at, held, from, loss, askers, unplaced, let_go,
    }
    DeliveryRow {
        state, attempts, spent, next_attempt_after, last_error, since, custody, held, claimed_at, refused,
    }
    InflightRow { epoch }
    IdRow { seq }
    BlobRow { digest, size, refs, owner }
    DigestRow { blob }
    DoomedRow { size, owner, aside }
    IncomingRow { digest, source, reserved, offset, chain, expires_at, shard }
    SourceRow { blob, mismatches }
    CounterRow { count, bytes }
    DeadletterRow { cause }
    PeerRow { name, pin, held, last_acked, forgotten }
    MetaRow { value }
    PlaceRow { value, key }
    RememberedRow { evicted_at, origin, origin_seq, seq }
    ReceiptRow { id, site, when, cause, back, pending, name, size, digest, expires_at, more }
    AuditRow { at, who, action, subject, reason, count, bytes }
    QuarantineRow { at, why, value, size, expires_at }
    ExportRow { state, name, since, runs, next_attempt_after, exit, output, error, mark, tries }
    FileMark { inode, modified }
    WatchedRow { path, inode, size, modified, seen_at, accepted, error }
    ShardRow {
        generation, state, buffer, incoming, size, sha256, blake3, client, since, deadline,
        slot_expires_at, buffered_at, expires_at, progress_at, entries, redemption, token,
        failed_acks, waits, notify_after, acked_redemption, acked_status, reason, reserved, loss,
    }
    TokenRow { shard, generation, redemption, expires_at, state, since }
    NonceRow { until, key }
    NodeKey { public, enrolled_at }
    NodeRow { keys, enrolled_at, revoked_at, registered_at, tokens_from }
    ClientRow { token, enrolled_at, revoked_at }
    Meta { name, content_type, labels, instance, class, accepted_at, expires_at }
}

impl Make for Body {
    fn make(g: &mut Gen) -> Body {
        if bool::arbitrary(g) { Body::Inline(Make::make(g)) } else { Body::Blob(Make::make(g)) }
    }
}

impl Make for Destinations {
    fn make(g: &mut Gen) -> Destinations {
        if bool::arbitrary(g) {
            Destinations::All
        } else {
            Destinations::Named(Arbitrary::arbitrary(g))
        }
    }
}

impl Make for Vec<(String, String)> {
    fn make(g: &mut Gen) -> Vec<(String, String)> {
        Arbitrary::arbitrary(g)
    }
}

impl Make for Vec<NodeKey> {
    fn make(g: &mut Gen) -> Vec<NodeKey> {
        (0..u8::arbitrary(g) % 3).map(|_| Make::make(g)).collect()
    }
}

/// Permitted identities, short and alike so that neighbours differ in one place only, now and then as
/// long as they may be.
impl Make for ShardKey {
    fn make(g: &mut Gen) -> ShardKey {
        fn word(g: &mut Gen, alphabet: &[u8], max: usize) -> String {
            let len = if u8::arbitrary(g) < 16 { max } else { 1 + usize::arbitrary(g) % 3 };
            (0..len).map(|_| char::from(*g.choose(alphabet).unwrap())).collect()
        }
        fn number(g: &mut Gen) -> u64 {
            *g.choose(&[0, 1, 255, 256, 65_535, 1 << 32, (1 << 53) - 1]).unwrap()
        }
        let file = word(g, b"!/ab~", 256);
        let node = word(g, b"-.09AZ_az", 128);
        ShardKey::new(file, number(g), number(g), node).expect("made of permitted parts")
    }
}
