//! One case for each rule of the framing.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use minicbor::encode::Encoder;

use super::super::*;
use crate::limits::{FRAME_MAX, INLINE_MAX, TEXT_MAX};
use crate::segment::{Class, MetaFault};

/// A frame of that type around a CBOR body.
fn framed(kind: u8, body: impl FnOnce(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let mut cbor = Vec::new();
    body(&mut Encoder::new(&mut cbor));
    let mut bytes = u32::try_from(cbor.len() + 1).unwrap().to_be_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(cbor);
    bytes
}

fn fault(bytes: &[u8]) -> WireFault {
    match decode(bytes) {
        Err(fault) => fault,
        Ok(other) => panic!("decoded {other:?}"),
    }
}

#[test]
fn fields_ascend_once_and_definite_and_nothing_follows() {
    let frame = Kind::Goodbye;
    let twice = framed(9, |e| {
        e.map(2).unwrap().u8(0).unwrap().u8(1).unwrap().u8(0).unwrap().u8(2).unwrap();
    });
    assert_eq!(fault(&twice), WireFault::Order { frame, field: 0, after: 0 });
    let back = framed(9, |e| {
        e.map(2).unwrap().u8(1).unwrap().str("x").unwrap().u8(0).unwrap().u8(2).unwrap();
    });
    assert_eq!(fault(&back), WireFault::Order { frame, field: 0, after: 1 });
    let none = framed(9, |e| {
        let _ = e.map(0).unwrap();
    });
    assert_eq!(fault(&none), WireFault::Missing { frame, field: 0 });
    let open = framed(9, |e| {
        e.begin_map().unwrap().u8(0).unwrap().u8(1).unwrap().end().unwrap();
    });
    assert_eq!(fault(&open), WireFault::Cbor { frame, at: 0 });
    let more = framed(9, |e| {
        e.map(1).unwrap().u8(0).unwrap().u8(1).unwrap().u8(0).unwrap();
    });
    assert_eq!(fault(&more), WireFault::Trailing { frame, left: 1 });
    let short = framed(9, |e| {
        let _ = e.map(1).unwrap().u8(0).unwrap();
    });
    assert_eq!(fault(&short), WireFault::Cbor { frame, at: 2 });
    let many = framed(9, |e| {
        let _ = e.map(u64::MAX).unwrap().u8(0).unwrap().u8(1).unwrap();
    });
    assert_eq!(fault(&many), WireFault::Cbor { frame, at: 11 });
}

#[test]
fn unknown_fields_are_passed_over_however_they_are_nested() {
    let known = Frame::Goodbye { code: 1, text: "x".to_owned() };
    let grown = framed(9, |e| {
        e.map(4).unwrap().u8(0).unwrap().u8(1).unwrap().u8(1).unwrap().str("x").unwrap();
        e.u8(7).unwrap().array(3).unwrap().map(1).unwrap().str("k").unwrap().bytes(b"v").unwrap();
        e.tag(minicbor::data::Tag::new(5)).unwrap().array(0).unwrap();
        // A floating-point number, 1.5.
        e.writer_mut().extend_from_slice(&[0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
        e.u32(70_000).unwrap().null().unwrap();
    });
    assert_eq!(decode(&grown), Ok(Some((grown.len(), known))));
    let deep = framed(9, |e| {
        e.map(2).unwrap().u8(0).unwrap().u8(1).unwrap().u8(9).unwrap();
        for _ in 0..4_000 {
            e.array(1).unwrap();
        }
        e.u8(0).unwrap();
    });
    assert!(matches!(decode(&deep), Ok(Some((_, Frame::Goodbye { code: 1, .. })))));
    let huge = framed(9, |e| {
        e.map(2).unwrap().u8(0).unwrap().u8(1).unwrap().u8(9).unwrap();
        e.array(u64::MAX).unwrap().array(u64::MAX).unwrap();
    });
    assert!(matches!(fault(&huge), WireFault::Cbor { .. }));
    let endless = framed(9, |e| {
        e.map(2).unwrap().u8(0).unwrap().u8(1).unwrap().u8(9).unwrap();
        e.begin_array().unwrap().end().unwrap();
    });
    assert!(matches!(fault(&endless), WireFault::Cbor { .. }));
}

#[test]
fn a_foreign_version_is_told_from_a_broken_hello() {
    let foreign = framed(1, |e| {
        e.map(2).unwrap().u8(0).unwrap().u16(2).unwrap().u8(1).unwrap().u8(9).unwrap();
    });
    assert_eq!(fault(&foreign), WireFault::Version { found: 2, speaks: 1 });
    let unnamed = framed(1, |e| {
        let _ = e.map(1).unwrap().u8(0).unwrap().u8(1).unwrap();
    });
    assert_eq!(fault(&unnamed), WireFault::Missing { frame: Kind::Hello, field: 1 });
    let named = framed(1, |e| {
        e.map(2).unwrap().u8(0).unwrap().u8(1).unwrap().u8(1).unwrap().str("a b").unwrap();
    });
    let bad = WireFault::Site { frame: Kind::Hello, name: "a b".to_owned() };
    assert_eq!(fault(&named), bad);
}

fn sample() -> Offer {
    Offer {
        transfer: TransferNo(3),
        id: SegmentId([1; 32]),
        digest: BlobDigest([2; 32]),
        size: 5,
        to: Destinations::named(vec!["a".to_owned(), "b".to_owned()]).unwrap(),
        origin: "home".to_owned(),
        origin_seq: 9,
        hops: 0,
        meta: Meta { name: "n".to_owned(), ..Meta::default() },
    }
}

type Change = Box<dyn Fn(&mut Offer)>;

/// What comes of a sample offer with a body of five bytes that is changed before it is encoded.
fn bad(change: impl FnOnce(&mut Offer)) -> BadOffer {
    let mut offer = sample();
    change(&mut offer);
    let mut bytes = Vec::new();
    encode_offer(&offer, Some(b"hello"), &mut bytes);
    match decode(&bytes) {
        Ok(Some((used, Frame::BadOffer(bad)))) if used == bytes.len() => *bad,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_offer_with_values_that_cannot_be_taken_can_still_be_answered() {
    let frame = Kind::Offer;
    let label = |k: &str, v: usize| (k.to_owned(), "v".repeat(v));
    let cases: Vec<(Change, WireFault)> = vec![
        (
            Box::new(|o| o.meta.name = "a//b".to_owned()),
            WireFault::Meta(MetaFault::Name("a//b".to_owned())),
        ),
        (
            Box::new(|o| o.meta.name = "n".repeat(1_025)),
            WireFault::Limit { frame, what: "a name", len: 1_025, limit: 1_024 },
        ),
        (
            Box::new(|o| o.meta.content_type = "t".repeat(257)),
            WireFault::Limit { frame, what: "a content type", len: 257, limit: 256 },
        ),
        (
            Box::new(move |o| {
                o.meta.labels = (0..65).map(|i| label(&format!("{i:02}"), 1)).collect()
            }),
            WireFault::Limit { frame, what: "labels", len: 65, limit: 64 },
        ),
        (
            Box::new(move |o| o.meta.labels = vec![label("a", 9_000), label("b", 9_000)]),
            WireFault::Limit { frame, what: "labels in bytes", len: 18_002, limit: 16_384 },
        ),
        (
            Box::new(move |o| o.meta.labels = vec![label("b", 1), label("a", 1)]),
            WireFault::Meta(MetaFault::LabelOrder),
        ),
        (
            Box::new(|o| o.meta.instance = vec![1; 8]),
            WireFault::Meta(MetaFault::Instance { len: 8 }),
        ),
        (Box::new(|o| o.hops = 17), WireFault::Limit { frame, what: "hops", len: 17, limit: 16 }),
        (
            Box::new(|o| o.origin = ".hidden".to_owned()),
            WireFault::Site { frame, name: ".hidden".to_owned() },
        ),
        (
            Box::new(|o| o.to = Destinations::Named(vec!["b".to_owned(), "a".to_owned()])),
            WireFault::Set { frame, what: "destinations" },
        ),
        (
            Box::new(|o| o.to = Destinations::Named(vec![])),
            WireFault::Set { frame, what: "destinations" },
        ),
        (
            Box::new(|o| {
                o.to = Destinations::Named((0..257).map(|i| format!("s{i:03}")).collect())
            }),
            WireFault::Limit { frame, what: "destinations", len: 257, limit: 256 },
        ),
    ];
    for (change, fault) in cases {
        let expected = BadOffer { transfer: TransferNo(3), id: SegmentId([1; 32]), rode: 5, fault };
        assert_eq!(bad(change), expected);
    }
}

#[test]
fn an_offer_that_cannot_be_answered_is_a_fault() {
    let mut bytes = Vec::new();
    encode_offer(&Offer { transfer: TransferNo(0), ..sample() }, None, &mut bytes);
    let zero = WireFault::Value { frame: Kind::Offer, what: "a transfer number", value: 0 };
    assert_eq!(fault(&bytes), zero);
    let mut bytes = Vec::new();
    encode_offer(&sample(), None, &mut bytes);
    // The CBOR part claims one byte more than there is.
    let len = u32::from_be_bytes(bytes[5..9].try_into().unwrap());
    bytes[5..9].copy_from_slice(&(len + 1).to_be_bytes());
    let (what, len, limit) = ("a CBOR part", u64::from(len + 1), u64::from(len));
    assert_eq!(fault(&bytes), WireFault::Limit { frame: Kind::Offer, what, len, limit });
    // The CBOR part claims less: its map is cut off.
    bytes[5..9].copy_from_slice(&20u32.to_be_bytes());
    assert!(matches!(fault(&bytes), WireFault::Cbor { frame: Kind::Offer, .. }));
}

#[test]
fn a_riding_body_has_a_limit_of_its_own() {
    let mut bytes = Vec::new();
    encode_offer(&sample(), Some(&vec![0; INLINE_MAX]), &mut bytes);
    let len = u32::try_from(bytes.len() - 4 + 1).unwrap();
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes.push(0);
    let (what, len, limit) = ("a riding body", 65_537, 65_536);
    assert_eq!(fault(&bytes), WireFault::Limit { frame: Kind::Offer, what, len, limit });
}

#[test]
fn an_offer_of_nothing_always_carries_its_body() {
    let empty = Offer { size: 0, ..sample() };
    let mut bytes = Vec::new();
    encode_offer(&empty, None, &mut bytes);
    assert_eq!(decode(&bytes), Ok(Some((bytes.len(), Frame::Offer(empty, Some(&[]))))));
}

#[test]
fn the_largest_offer_fits_a_frame() {
    let label = |k: char, v: usize| (String::from(k), "v".repeat(v));
    let offer = Offer {
        transfer: TransferNo(u32::MAX),
        size: u64::MAX,
        origin: "o".repeat(128),
        origin_seq: u64::MAX,
        hops: 16,
        to: Destinations::named((0..256).map(|i| format!("{i:03}{}", "s".repeat(125))).collect())
            .unwrap(),
        meta: Meta {
            name: "n".repeat(1_024),
            content_type: "t".repeat(256),
            labels: vec![label('a', 7_000), label('b', 8_342)],
            instance: vec![1; 16],
            class: Class::Bulk,
            accepted_at: u64::MAX,
            expires_at: Some(u64::MAX),
        },
        ..sample()
    };
    offer.meta.check().unwrap();
    let body = vec![7; INLINE_MAX];
    let mut bytes = Vec::new();
    encode_offer(&offer, Some(&body), &mut bytes);
    assert!(bytes.len() <= FRAME_MAX);
    assert_eq!(decode(&bytes), Ok(Some((bytes.len(), Frame::Offer(offer, Some(&body))))));
}

#[test]
fn values_without_meaning_are_faults() {
    let outcome = framed(11, |e| {
        e.map(4).unwrap().u8(0).unwrap().bytes(&[0; 32]).unwrap().u8(1).unwrap().str("s").unwrap();
        e.u8(2).unwrap().u8(0).unwrap().u8(3).unwrap().u8(2).unwrap();
    });
    let frame = Kind::Receipt;
    assert_eq!(fault(&outcome), WireFault::Value { frame, what: "an outcome", value: 2 });
    let both = framed(12, |e| {
        e.map(3).unwrap().u8(0).unwrap().u8(1).unwrap();
        e.u8(1).unwrap().bytes(&[0; 32]).unwrap().u8(2).unwrap().bytes(&[0; 32]).unwrap();
    });
    assert!(matches!(fault(&both), WireFault::Value { frame: Kind::Want, .. }));
    let short = framed(13, |e| {
        e.map(2).unwrap().u8(0).unwrap().bytes(&[0; 31]).unwrap().u8(1).unwrap().str("s").unwrap();
    });
    assert_eq!(fault(&short), WireFault::Cbor { frame: Kind::ReceiptOk, at: 2 });
    let mut segment = Vec::new();
    encode_segment(TransferNo(0), 0, b"x", &mut segment);
    assert!(matches!(fault(&segment), WireFault::Value { frame: Kind::Segment, .. }));
}

#[test]
fn long_texts_are_cut_between_characters() {
    let mut bytes = Vec::new();
    let text = format!("x{}", "é".repeat(400));
    encode(&Frame::Goodbye { code: 3, text: text.clone() }, &mut bytes);
    let Ok(Some((_, Frame::Goodbye { text: cut, .. }))) = decode(&bytes) else { panic!() };
    assert_eq!(cut.len(), TEXT_MAX - 1);
    assert!(text.starts_with(&cut));
}
