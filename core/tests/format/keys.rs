//! Every key layout: its bytes, its order, and its inverse.

use consign_core::id::{BlobNo, BodyNo, SegmentId, Seq, SiteNo, hex};
use consign_core::ledger::Table;
use consign_core::ledger::keys::{self, DueKey};
use consign_core::ledger::keys_pickup::{self as pickup, KEY_MAX, ShardKey, ShardKeyFault};
use consign_core::ledger::keys_upkeep::{self as upkeep, ExpiryKind, Owner, Quarantined};
use consign_core::segment::Class;
use consign_core::time::UnixMillis;
use quickcheck::quickcheck;

use crate::examples::{AT, BLOB, RULE, SEQ, SITE, bytes32, digest, segment_id, sha256, shard_key};
use crate::make::Any;
use crate::snapshot;

fn due() -> DueKey {
    DueKey { peer: SITE, class: Class::Bulk, at: AT, id8: keys::id8(&segment_id()), seq: SEQ }
}

#[test]
fn keys_are_the_same_bytes_for_ever() {
    let shard = shard_key();
    let row = Quarantined::Row { table: Table::Segments, key: &keys::seq(SEQ) };
    let all: &[(&str, &[u8])] = &[
        ("seq", &keys::seq(SEQ)),
        ("id", &keys::id(&segment_id())),
        ("body", &keys::body(BodyNo(7))),
        ("blob", &keys::blob(BLOB)),
        ("delivery", &keys::delivery(SEQ, SITE)),
        ("peer_seq", &keys::peer_seq(SITE, SEQ)),
        ("deadletter", &keys::deadletter(AT, SEQ, SITE)),
        ("unmet", &keys::unmet(AT, SEQ)),
        ("counter", &keys::counter(SITE, 4)),
        ("site", &keys::site(SITE)),
        ("audit", &keys::audit(12)),
        ("due", &due().key()),
        ("due_prefix", &keys::due_prefix(SITE, Class::Bulk)),
        ("shard", &shard.key()),
        ("by_node", &pickup::by_node(&shard)),
        ("by_node_prefix", &pickup::by_node_prefix("node.a")),
        ("shard_deadline", &pickup::shard_deadline(AT, &shard)),
        ("token", &pickup::token(&sha256())),
        ("nonce", &pickup::nonce("node.a", &[0x5a; 16])),
        ("node", &pickup::node("node.a")),
        ("source", &upkeep::source(&digest(), SITE)),
        ("export", &upkeep::export(RULE, SEQ)),
        ("watched", &upkeep::watched(RULE, &bytes32(0x33))),
        ("expiry", &upkeep::expiry(AT, ExpiryKind::Segment, &keys::seq(SEQ))),
        ("remembered_age", &upkeep::remembered_age(AT, &segment_id())),
        ("owner_segment", &upkeep::owner(BLOB, &Owner::Segment(SEQ))),
        ("owner_shard", &upkeep::owner(BLOB, &Owner::Shard(shard.clone()))),
        ("quarantine_row", &upkeep::quarantine(&row)),
        ("quarantine_file", &upkeep::quarantine(&Quarantined::File(BLOB))),
    ];
    let lines: Vec<String> = all.iter().map(|(name, key)| format!("{name} {}", hex(key))).collect();
    snapshot::check("keys.txt", &lines);
}

#[test]
fn the_longest_keys_fit() {
    let file = "~".repeat(256);
    let node = "z".repeat(128);
    let last = (1 << 53) - 1;
    let shard = ShardKey::new(file, last, last, node).unwrap();
    let key = shard.key();
    let at = UnixMillis(u64::MAX);
    for key in [
        pickup::by_node(&shard),
        pickup::shard_deadline(at, &shard),
        upkeep::expiry(at, ExpiryKind::Shard, &key),
        upkeep::owner(BlobNo(u64::MAX), &Owner::Shard(shard.clone())),
        upkeep::quarantine(&Quarantined::Row { table: Table::Shards, key: &key }),
        upkeep::quarantine(&Quarantined::Row {
            table: Table::Expiry,
            key: &upkeep::expiry(at, ExpiryKind::Shard, &key),
        }),
    ] {
        assert!(key.len() <= KEY_MAX, "{} bytes", key.len());
    }
}

#[test]
fn parts_that_are_not_permitted_are_named() {
    let make = |file: &str, version, index, node: &str| ShardKey::new(file, version, index, node);
    let over = 1 << 53;
    assert!(make("f", over - 1, over - 1, "n").is_ok());
    assert_eq!(make("", 0, 0, "n"), Err(ShardKeyFault::FileId { len: 0 }));
    assert_eq!(make("a b", 0, 0, "n"), Err(ShardKeyFault::FileId { len: 3 }));
    assert_eq!(make("a\0b", 0, 0, "n"), Err(ShardKeyFault::FileId { len: 3 }));
    assert_eq!(make("é", 0, 0, "n"), Err(ShardKeyFault::FileId { len: 2 }));
    assert_eq!(make(&"x".repeat(257), 0, 0, "n"), Err(ShardKeyFault::FileId { len: 257 }));
    assert_eq!(make("f", over, 0, "n"), Err(ShardKeyFault::Version(over)));
    assert_eq!(make("f", 0, over, "n"), Err(ShardKeyFault::Index(over)));
    assert_eq!(make("f", 0, 0, ""), Err(ShardKeyFault::Node { len: 0 }));
    assert_eq!(make("f", 0, 0, "a/b"), Err(ShardKeyFault::Node { len: 3 }));
    assert_eq!(make("f", 0, 0, &"n".repeat(129)), Err(ShardKeyFault::Node { len: 129 }));
}

#[test]
fn a_file_id_stands_before_its_extensions() {
    let key = |file: &str| ShardKey::new(file, u64::MAX >> 11, 0, "n").unwrap().key();
    assert!(key("a") < key("a!"));
    assert!(key("a!") < key("aa"));
    assert!(key("ab") < key("b"));
}

#[test]
#[should_panic(expected = "512 bytes")]
fn a_key_longer_than_a_store_takes_is_a_bug() {
    let _ = pickup::LongKey::new().and(&[1; 500]).and(&[2; 12]);
}

quickcheck! {
    fn shard_keys_order_as_their_parts(a: Any<ShardKey>, b: Any<ShardKey>) -> bool {
        a.0.cmp(&b.0) == a.0.key().as_slice().cmp(b.0.key().as_slice())
    }

    fn shards_of_one_node_order_as_they_are_notified(a: Any<ShardKey>, b: Any<ShardKey>) -> bool {
        let parts = |s: &ShardKey| {
            (s.node().to_string(), s.file_id().to_string(), s.version(), s.index())
        };
        let (x, y) = (pickup::by_node(&a.0), pickup::by_node(&b.0));
        parts(&a.0).cmp(&parts(&b.0)) == x.cmp(&y)
            && x.starts_with(&pickup::by_node_prefix(a.0.node()))
            && x.starts_with(&pickup::by_node_prefix(b.0.node())) == (a.0.node() == b.0.node())
    }

    fn deadlines_order_by_time_first(a: (u64, Any<ShardKey>), b: (u64, Any<ShardKey>)) -> bool {
        let key = |t: u64, s: &ShardKey| pickup::shard_deadline(UnixMillis(t), s);
        (a.0, &a.1.0).cmp(&(b.0, &b.1.0)) == key(a.0, &a.1.0).cmp(&key(b.0, &b.1.0))
    }

    fn pickup_keys_are_read_back(at: u64, shard: Any<ShardKey>, half: u128) -> bool {
        let (at, shard, nonce) = (UnixMillis(at), shard.0, half.to_be_bytes());
        ShardKey::parse(&shard.key()).as_ref() == Some(&shard)
            && pickup::parse_by_node(&pickup::by_node(&shard)).as_ref() == Some(&shard)
            && pickup::parse_shard_deadline(&pickup::shard_deadline(at, &shard))
                == Some((at, shard.clone()))
            && pickup::parse_nonce(&pickup::nonce(shard.node(), &nonce))
                == Some((shard.node(), nonce))
    }

    fn upkeep_keys_are_read_back(a: u64, b: u64, kind: u8, shard: Any<ShardKey>) -> bool {
        let kind = ExpiryKind::ALL[usize::from(kind) % ExpiryKind::ALL.len()];
        let (key, shard) = (shard.0.key(), shard.0);
        let row = Quarantined::Row { table: Table::Shards, key: &key };
        let file = Quarantined::File(BlobNo(b));
        let (segment, owner) = (Owner::Segment(Seq(b)), Owner::Shard(shard));
        upkeep::parse_expiry(&upkeep::expiry(UnixMillis(a), kind, &key))
            == Some((UnixMillis(a), kind, &key[..]))
            && upkeep::parse_owner(&upkeep::owner(BlobNo(a), &segment)) == Some((BlobNo(a), segment))
            && upkeep::parse_owner(&upkeep::owner(BlobNo(a), &owner)) == Some((BlobNo(a), owner))
            && upkeep::parse_quarantine(&upkeep::quarantine(&row)) == Some(row)
            && upkeep::parse_quarantine(&upkeep::quarantine(&file)) == Some(file)
            && upkeep::parse_export(&upkeep::export(upkeep::RuleId(a), Seq(b)))
                == Some((upkeep::RuleId(a), Seq(b)))
    }

    fn relay_keys_are_read_back(peer: u32, class: u8, at: u64, id8: u64, seq: u64) -> bool {
        let class = Class::ALL[usize::from(class) % Class::ALL.len()];
        let (site, seq) = (SiteNo(peer), Seq(seq));
        let due = DueKey { peer: site, class, at: UnixMillis(at), id8, seq };
        DueKey::parse(&due.key()) == Some(due)
            && due.key().starts_with(&keys::due_prefix(site, class))
            && keys::parse_u64(&keys::seq(seq)) == Some(seq.0)
            && keys::parse_peer_seq(&keys::peer_seq(site, seq)) == Some((site, seq))
            && keys::parse_delivery(&keys::delivery(seq, site)) == Some((seq, site))
    }

    fn due_keys_order_as_their_fields(
        a: (u32, u8, u64, u64, u64),
        b: (u32, u8, u64, u64, u64),
        common: u8
    ) -> bool {
        let mut b = b;
        // Make the first few fields equal, or the later ones would hardly ever decide.
        if common & 1 != 0 { b.0 = a.0; }
        if common & 3 == 3 { b.1 = a.1; }
        if common & 7 == 7 { b.2 = a.2; }
        if common & 15 == 15 { b.3 = a.3; }
        let due = |f: (u32, u8, u64, u64, u64)| DueKey {
            peer: SiteNo(f.0),
            class: Class::ALL[usize::from(f.1) % 4],
            at: UnixMillis(f.2),
            id8: f.3,
            seq: Seq(f.4),
        };
        due(a).cmp(&due(b)) == due(a).key().as_slice().cmp(due(b).key().as_slice())
    }

    fn within_a_time_due_order_is_that_of_ids(a: u128, b: u128) -> bool {
        let id = |n: u128| {
            let mut bytes = [0; 32];
            bytes[..16].copy_from_slice(&n.to_be_bytes());
            SegmentId(bytes)
        };
        let (x, y) = (id(a), id(b));
        keys::id8(&x) == keys::id8(&y) || keys::id8(&x).cmp(&keys::id8(&y)) == x.cmp(&y)
    }

    /// Bytes that are no key are read as none, and what is read is what was written.
    fn junk_is_no_key(bytes: Vec<u8>) -> bool {
        let shard = ShardKey::parse(&bytes).is_none_or(|s| s.key()[..] == bytes[..]);
        let node = pickup::parse_by_node(&bytes).is_none_or(|s| pickup::by_node(&s)[..] == bytes[..]);
        let due = DueKey::parse(&bytes).is_none_or(|d| d.key()[..] == bytes[..]);
        let owner =
            upkeep::parse_owner(&bytes).is_none_or(|(b, o)| upkeep::owner(b, &o)[..] == bytes[..]);
        let set_aside =
            upkeep::parse_quarantine(&bytes).is_none_or(|q| upkeep::quarantine(&q)[..] == bytes[..]);
        shard && node && due && owner && set_aside
    }
}

#[test]
fn a_cut_or_longer_key_is_no_key() {
    type Reads = fn(&[u8]) -> bool;
    let shard = shard_key();
    let keys: [(&[u8], Reads); 9] = [
        (&keys::pass_back(SITE, SEQ, SITE), |k| keys::parse_pass_back(k).is_some()),
        (&due().key(), |k| DueKey::parse(k).is_some()),
        (&keys::peer_seq(SITE, SEQ), |k| keys::parse_peer_seq(k).is_some()),
        (&keys::delivery(SEQ, SITE), |k| keys::parse_delivery(k).is_some()),
        (&pickup::by_node(&shard), |k| pickup::parse_by_node(k).is_some()),
        (&pickup::nonce("node.a", &[1; 16]), |k| pickup::parse_nonce(k).is_some()),
        (&upkeep::owner(BLOB, &Owner::Segment(SEQ)), |k| upkeep::parse_owner(k).is_some()),
        (&upkeep::quarantine(&Quarantined::File(BLOB)), |k| upkeep::parse_quarantine(k).is_some()),
        (&upkeep::export(RULE, SEQ), |k| upkeep::parse_export(k).is_some()),
    ];
    for (i, (key, reads)) in keys.iter().enumerate() {
        assert!(reads(key), "{i}");
        for len in 0..key.len() {
            assert!(!reads(&key[..len]), "{i} cut to {len}");
        }
        let longer = [key, &[b'a'][..]].concat();
        assert!(!reads(&longer), "{i} with a byte more");
    }
}
