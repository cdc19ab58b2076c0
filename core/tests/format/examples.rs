//! One fixed row of every table that has rows, every field filled with a value of its own.

use consign_core::id::{BlobDigest, BlobNo, BodyNo, Epoch, SegmentId, Seq, Sha256Digest, SiteNo};
use consign_core::inbox::FileMark;
use consign_core::ledger::Table;
use consign_core::ledger::keys::{self, Key};
use consign_core::ledger::keys_pickup::{self, ShardKey};
use consign_core::ledger::keys_upkeep::{self, Quarantined, RuleId};
use consign_core::ledger::rows::*;
use consign_core::ledger::rows_pickup::*;
use consign_core::ledger::rows_upkeep::*;
use consign_core::segment::{Class, Destinations, Meta};
use consign_core::time::UnixMillis;

/// What is done with each example.
pub(crate) trait Visit {
    /// Takes one example: its table, the name of its type, its key and itself.
    fn row<R>(&mut self, table: Table, name: &str, key: &[u8], row: &R)
    where
        R: minicbor::Encode<()> + for<'b> minicbor::Decode<'b, ()> + PartialEq + std::fmt::Debug;
}

/// 32 bytes counting up from `from`.
pub(crate) fn bytes32(from: u8) -> [u8; 32] {
    std::array::from_fn(|i| from.wrapping_add(i as u8))
}

pub(crate) fn segment_id() -> SegmentId {
    SegmentId(bytes32(0x10))
}

pub(crate) fn digest() -> BlobDigest {
    BlobDigest(bytes32(0x40))
}

pub(crate) fn sha256() -> Sha256Digest {
    Sha256Digest(bytes32(0x80))
}

pub(crate) fn shard_key() -> ShardKey {
    ShardKey::new("file-1", 2, 3, "node.a").expect("a permitted key")
}

pub(crate) const SEQ: Seq = Seq(0x0102_0304_0506_0708);
pub(crate) const SITE: SiteNo = SiteNo(0x0a0b_0c0d);
pub(crate) const BLOB: BlobNo = BlobNo(0x21);
pub(crate) const AT: UnixMillis = UnixMillis(1_764_500_000_000);
pub(crate) const RULE: RuleId = RuleId(0xfeed_face_cafe_beef);

/// Shows every example to `v`.
pub(crate) fn each(v: &mut impl Visit) {
    relay(v);
    content(v);
    upkeep(v);
    pickup(v);
}

fn relay(v: &mut impl Visit) {
    for name in MetaName::ALL.into_iter().filter(|name| *name != MetaName::ScrubShard) {
        v.row(Table::Meta, "MetaRow", name.key(), &MetaRow { value: 1 });
    }
    let place = PlaceRow { value: 1, key: shard_key().key().to_vec() };
    v.row(Table::Meta, "PlaceRow", MetaName::ScrubShard.key(), &place);
    let local = SegmentRow {
        id: segment_id(),
        digest: digest(),
        size: 1024,
        body: Body::Inline(BodyNo(7)),
        meta: Meta { name: "a.txt".into(), accepted_at: AT.0, ..Meta::default() },
        to: Destinations::All,
        here: false,
        origin: String::new(),
        origin_seq: SEQ.0,
        hops: 0,
        accepted_at: AT.0,
        required: 2,
        acked: 1,
        relayed_at: None,
        held: false,
        from: 0,
        loss: None,
        let_go: None,
        askers: Vec::new(),
        unplaced: None,
    };
    v.row(Table::Segments, "SegmentRow", &keys::seq(Seq(1)), &local);
    v.row(Table::Segments, "SegmentRow", &keys::seq(SEQ), &received());
    let asked = SegmentRow { askers: vec![(3, 9), (4, 9)], unplaced: Some(true), ..received() };
    v.row(Table::Segments, "SegmentRow", &keys::seq(SEQ), &asked);
    let released = SegmentRow { let_go: Some(AT.0 + 11), ..received() };
    v.row(Table::Segments, "SegmentRow", &keys::seq(SEQ), &released);
    v.row(Table::Ids, "IdRow", &keys::id(&segment_id()), &IdRow { seq: SEQ });
    for state in [State::Scheduled, State::Inflight, State::Acked, State::Failed, State::Deadletter]
    {
        let row = DeliveryRow {
            state,
            attempts: 1 << 40,
            spent: 3,
            next_attempt_after: AT.0,
            last_error: 3,
            since: AT.0,
            custody: None,
            held: None,
            claimed_at: None,
            refused: 3,
        };
        v.row(Table::Deliveries, "DeliveryRow", &keys::delivery(SEQ, SITE), &row);
    }
    let full = DeliveryRow {
        state: State::Inflight,
        attempts: 1,
        spent: 0,
        next_attempt_after: 0,
        last_error: 0,
        since: AT.0,
        custody: Some(9),
        held: Some(true),
        claimed_at: Some(AT.0),
        refused: 3,
    };
    v.row(Table::Deliveries, "DeliveryRow", &keys::delivery(SEQ, SITE), &full);
    let epoch = Epoch { boot: 5, session: 300 };
    v.row(Table::Inflight, "InflightRow", &keys::peer_seq(SITE, SEQ), &InflightRow { epoch });
    let dead = keys::deadletter(AT, SEQ, SITE);
    v.row(Table::Deadletters, "DeadletterRow", &dead, &DeadletterRow { cause: 17 });
    let count = CounterRow { count: 70_000, bytes: 1 << 33 };
    v.row(Table::Counters, "CounterRow", &keys::counter(SITE, 4), &count);
    let pin = bytes32(0xc0).to_vec();
    let peer =
        PeerRow { name: "beta".into(), pin, held: true, last_acked: Some(AT.0), forgotten: None };
    v.row(Table::Peers, "PeerRow", &keys::site(SITE), &peer);
    let gone = PeerRow { forgotten: Some(true), ..peer };
    v.row(Table::Peers, "PeerRow", &keys::site(SITE), &gone);
}

/// A segment from elsewhere that uses every field.
pub(crate) fn received() -> SegmentRow {
    SegmentRow {
        id: segment_id(),
        digest: digest(),
        size: 1 << 31,
        body: Body::Blob(BLOB),
        meta: Meta {
            name: "frame-0001.raw".into(),
            content_type: "image/x-raw".into(),
            labels: vec![("camera".into(), "3".into()), ("site".into(), "north".into())],
            instance: bytes32(0)[..16].to_vec(),
            class: Class::Urgent,
            accepted_at: AT.0,
            expires_at: Some(AT.0 + 86_400_000),
        },
        to: Destinations::Named(vec!["beta".into(), "gamma".into()]),
        here: true,
        origin: "alpha".into(),
        origin_seq: 77,
        hops: 2,
        accepted_at: AT.0 + 5,
        required: 3,
        acked: 3,
        relayed_at: Some(AT.0 + 9),
        held: true,
        from: SITE.0,
        loss: Some(Loss::Doubted),
        let_go: None,
        askers: Vec::new(),
        unplaced: None,
    }
}

fn content(v: &mut impl Visit) {
    let blob = BlobRow { digest: digest(), size: 100_000, refs: 2, owner: Some(3) };
    v.row(Table::Blobs, "BlobRow", &keys::blob(BLOB), &blob);
    let known = Key::EMPTY.and(&digest().0);
    v.row(Table::Digests, "DigestRow", &known, &DigestRow { blob: BLOB });
    let doomed = DoomedRow::new(100_000, SITE.0);
    v.row(Table::Doomed, "DoomedRow", &keys::blob(BLOB), &doomed);
    let aside = DoomedRow { aside: Some(true), ..doomed };
    v.row(Table::Doomed, "DoomedRow", &keys::blob(BLOB), &aside);
    let incoming = IncomingRow {
        digest: digest(),
        source: SITE.0,
        reserved: 64 << 20,
        offset: 16 << 20,
        chain: vec![0xab; 40],
        expires_at: AT.0,
        shard: None,
    };
    v.row(Table::Incoming, "IncomingRow", &keys::blob(BLOB), &incoming);
    let shard = IncomingRow { shard: Some(true), ..incoming };
    v.row(Table::Incoming, "IncomingRow", &keys::blob(BLOB), &shard);
    let source = keys_upkeep::source(&digest(), SITE);
    for blob in [None, Some(BLOB)] {
        v.row(Table::Sources, "SourceRow", &source, &SourceRow { blob, mismatches: 1 });
    }
}

fn upkeep(v: &mut impl Visit) {
    let remembered =
        RememberedRow { evicted_at: AT.0, origin: "alpha".into(), origin_seq: 77, seq: SEQ };
    v.row(Table::Remembered, "RememberedRow", &keys::id(&segment_id()), &remembered);
    let receipt = ReceiptRow {
        id: segment_id(),
        site: "gamma".into(),
        when: AT.0,
        cause: 6,
        back: SITE.0,
        pending: true,
        name: "a.txt".into(),
        size: 1024,
        digest: digest(),
        expires_at: AT.0 + 1,
        more: Vec::new(),
    };
    v.row(Table::Receipts, "ReceiptRow", &keys::delivery(SEQ, SITE), &receipt);
    let asked = ReceiptRow { more: vec![SITE.0 + 1], ..receipt };
    v.row(Table::Receipts, "ReceiptRow", &keys::delivery(SEQ, SITE), &asked);
    let audit = AuditRow {
        at: AT.0,
        who: "uid:1000".into(),
        action: "retry".into(),
        subject: "peer gamma".into(),
        reason: "cable is back".into(),
        count: 34,
        bytes: 3 << 30,
    };
    v.row(Table::Audit, "AuditRow", &keys::audit(12), &audit);
    let quarantine = QuarantineRow {
        at: AT.0,
        why: "a row in segments does not match its checksum".into(),
        value: vec![1, 0xa1, 0, 1],
        size: 4,
        expires_at: AT.0 + 86_400_000,
    };
    let key =
        keys_upkeep::quarantine(&Quarantined::Row { table: Table::Segments, key: &keys::seq(SEQ) });
    v.row(Table::Quarantine, "QuarantineRow", &key, &quarantine);
    for state in [ExportState::Intent, ExportState::Placed, ExportState::Done, ExportState::Failed]
    {
        let export = ExportRow {
            state,
            name: "a (2).txt".into(),
            since: AT.0,
            runs: 1,
            next_attempt_after: AT.0 + 1000,
            exit: Some(-1),
            output: b"no such table".to_vec(),
            error: "exit 1".into(),
            mark: Some(FileMark { inode: 131_078, modified: 1_000_000_001 }),
            tries: 2,
        };
        v.row(Table::Exports, "ExportRow", &keys_upkeep::export(RULE, SEQ), &export);
    }
    let watched = WatchedRow {
        path: b"in/a.txt".to_vec(),
        inode: 131_077,
        size: 1024,
        modified: -1,
        seen_at: AT.0,
        accepted: Some(segment_id()),
        error: String::new(),
    };
    let key = keys_upkeep::watched(RULE, &bytes32(0x33));
    v.row(Table::Watched, "WatchedRow", &key, &watched);
}

fn pickup(v: &mut impl Visit) {
    for state in ShardState::ALL {
        let row = ShardRow { state: *state, ..fresh_shard() };
        v.row(Table::Shards, "ShardRow", &shard_key().key(), &row);
    }
    v.row(Table::Shards, "ShardRow", &shard_key().key(), &full_shard());
    let (state, loss) = (ShardState::RelayCleanup, Some(Loss::Doubted));
    let spoiled = ShardRow { state, loss, ..fresh_shard() };
    v.row(Table::Shards, "ShardRow", &shard_key().key(), &spoiled);
    for state in TokenState::ALL {
        let row = TokenRow {
            shard: shard_key().key().to_vec(),
            generation: 1,
            redemption: 42,
            expires_at: AT.0,
            state: *state,
            since: AT.0 - 5,
        };
        v.row(Table::Tokens, "TokenRow", &keys_pickup::token(&sha256()), &row);
    }
    let nonce = NonceRow { until: AT.0, key: 0x0011_2233_4455_6677 };
    v.row(Table::Nonces, "NonceRow", &keys_pickup::nonce("node.a", &[0x5a; 16]), &nonce);
    let node = NodeRow {
        keys: vec![
            NodeKey { public: bytes32(1), enrolled_at: AT.0 },
            NodeKey { public: bytes32(2), enrolled_at: AT.0 + 1 },
        ],
        enrolled_at: AT.0,
        revoked_at: Some(AT.0 + 2),
        registered_at: Some(AT.0 + 3),
        tokens_from: None,
    };
    v.row(Table::Nodes, "NodeRow", &keys_pickup::node("node.a"), &node);
    let registered = NodeRow { tokens_from: Some(77), ..node };
    v.row(Table::Nodes, "NodeRow", &keys_pickup::node("node.a"), &registered);
    let client = ClientRow { token: sha256(), enrolled_at: AT.0, revoked_at: Some(AT.0) };
    v.row(Table::Clients, "ClientRow", &keys_pickup::node("camera-3"), &client);
}

fn fresh_shard() -> ShardRow {
    ShardRow {
        generation: 1,
        state: ShardState::Created,
        buffer: None,
        incoming: None,
        size: None,
        sha256: None,
        blake3: None,
        client: "camera-3".into(),
        since: AT.0,
        deadline: AT.0 + 3_600_000,
        slot_expires_at: None,
        buffered_at: None,
        expires_at: None,
        progress_at: AT.0,
        entries: 0,
        redemption: 0,
        token: None,
        failed_acks: 0,
        waits: 0,
        notify_after: 0,
        acked_redemption: 0,
        acked_status: None,
        reason: String::new(),
        reserved: 0,
        loss: None,
    }
}

fn full_shard() -> ShardRow {
    ShardRow {
        generation: 2,
        state: ShardState::NodeReceiving,
        buffer: Some(Body::Blob(BLOB)),
        incoming: Some(BlobNo(0x22)),
        size: Some(1 << 20),
        sha256: Some(sha256()),
        blake3: Some(digest()),
        client: "camera-3".into(),
        since: AT.0,
        deadline: AT.0 + 1,
        slot_expires_at: Some(AT.0 + 2),
        buffered_at: Some(AT.0 + 3),
        expires_at: Some(AT.0 + 4),
        progress_at: AT.0 + 5,
        entries: 6,
        redemption: 42,
        token: Some(sha256()),
        failed_acks: 3,
        waits: 2,
        notify_after: AT.0 + 7,
        acked_redemption: 41,
        acked_status: Some(AckStatus::Failed),
        reason: "disk full".into(),
        reserved: 1 << 20,
        loss: None,
    }
}
