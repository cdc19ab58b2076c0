//! Round trips of arbitrary frames, every split, and hostile bytes.

mod rules;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;
use crate::limits::{INLINE_MAX, PING_MAX, SEGMENT_MAX, TEXT_MAX};
use crate::segment::Class;

/// A frame with content of its own.
#[derive(Clone, Debug)]
pub(crate) enum Owned {
    Plain(Frame<'static>),
    Offer(Offer, Option<Vec<u8>>),
    Segment(TransferNo, u64, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
}

impl Owned {
    pub(crate) fn frame(&self) -> Frame<'_> {
        match self {
            Owned::Plain(frame) => frame.clone(),
            Owned::Offer(offer, body) => Frame::Offer(offer.clone(), body.as_deref()),
            Owned::Segment(transfer, offset, data) => {
                Frame::Segment { transfer: *transfer, offset: *offset, data }
            }
            Owned::Ping(data) => Frame::Ping(data),
            Owned::Pong(data) => Frame::Pong(data),
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&self.frame(), &mut bytes);
        bytes
    }
}

fn number(g: &mut Gen) -> TransferNo {
    TransferNo(u32::arbitrary(g).max(1))
}

fn hash(g: &mut Gen) -> [u8; 32] {
    core::array::from_fn(|_| u8::arbitrary(g))
}

fn words(g: &mut Gen, alphabet: &[u8], max: usize) -> String {
    let len = 1 + usize::arbitrary(g) % max;
    (0..len).map(|_| char::from(*g.choose(alphabet).unwrap())).collect()
}

fn site(g: &mut Gen) -> String {
    let mut name = words(g, b"abcXYZ019._-", 127);
    name.insert(0, 's');
    name
}

fn text(g: &mut Gen) -> String {
    let mut text = String::arbitrary(g);
    while text.len() > TEXT_MAX {
        text.pop();
    }
    text
}

/// A name that may be kept: `.` and `..` are refused, which `rules` shows.
fn name(g: &mut Gen) -> String {
    let mut name = words(g, b"name of a file.txt", 199);
    name.insert(0, 'f');
    name
}

fn bytes(g: &mut Gen, max: usize) -> Vec<u8> {
    let any = usize::arbitrary(g) % (max + 1);
    let len = *g.choose(&[0, 1, 2, max / 2, max - 1, max, any, any, any]).unwrap();
    let seed = u8::arbitrary(g);
    (0..len).map(|i| seed.wrapping_add(u8::try_from(i % 256).unwrap())).collect()
}

pub(crate) fn meta(g: &mut Gen) -> Meta {
    let count = usize::arbitrary(g) % 6;
    let mut labels: Vec<(String, String)> =
        (0..count).map(|_| (words(g, b"key", 9), String::arbitrary(g))).collect();
    labels.sort();
    labels.dedup_by(|a, b| a.0 == b.0);
    let again: [u8; 16] = core::array::from_fn(|_| u8::arbitrary(g));
    Meta {
        name: name(g),
        content_type: if bool::arbitrary(g) { "text/plain".to_owned() } else { String::new() },
        labels,
        instance: if bool::arbitrary(g) { again.to_vec() } else { Vec::new() },
        class: *g.choose(&Class::ALL).unwrap(),
        accepted_at: u64::arbitrary(g),
        expires_at: Option::arbitrary(g),
    }
}

fn offer(g: &mut Gen) -> Owned {
    let to = if bool::arbitrary(g) {
        Destinations::All
    } else {
        let count = 1 + usize::arbitrary(g) % 8;
        Destinations::named((0..count).map(|_| site(g)).collect()).unwrap()
    };
    let mut offer = Offer {
        transfer: number(g),
        id: SegmentId(hash(g)),
        digest: BlobDigest(hash(g)),
        size: u64::arbitrary(g).max(1),
        to,
        origin: site(g),
        origin_seq: u64::arbitrary(g),
        hops: u8::arbitrary(g) % 17,
        meta: meta(g),
    };
    let body = bool::arbitrary(g).then(|| bytes(g, INLINE_MAX));
    if let Some(body) = &body {
        offer.size = body.len() as u64;
    }
    Owned::Offer(offer, body)
}

fn hello(g: &mut Gen) -> Frame<'static> {
    let mut features: Vec<String> =
        (0..u8::arbitrary(g) % 4).map(|_| words(g, b"ft", 64)).collect();
    features.sort();
    features.dedup();
    Frame::Hello(Hello {
        version: VERSION,
        name: site(g),
        epoch: Epoch { boot: u64::arbitrary(g), session: u64::arbitrary(g) },
        max_segment: Option::arbitrary(g),
        credit: u64::arbitrary(g),
        max_offers: u32::arbitrary(g).max(1),
        features,
    })
}

impl Arbitrary for Owned {
    fn arbitrary(g: &mut Gen) -> Owned {
        let id = SegmentId(hash(g));
        let transfer = number(g);
        match u8::arbitrary(g) % 13 {
            0 => Owned::Plain(hello(g)),
            1 | 2 => offer(g),
            3 => {
                let data = bytes(g, SEGMENT_MAX);
                let data = if data.is_empty() { vec![1] } else { data };
                Owned::Segment(transfer, u64::arbitrary(g), data)
            }
            4 => {
                let epoch = Epoch { boot: u64::arbitrary(g), session: u64::arbitrary(g) };
                Owned::Plain(Frame::Ack { transfer, id, epoch })
            }
            5 => Owned::Plain(Frame::Accept { transfer, id, offset: u64::arbitrary(g) }),
            6 => Owned::Plain(Frame::Reject {
                transfer,
                id,
                code: u8::arbitrary(g),
                retry_after: u64::arbitrary(g),
                text: text(g),
            }),
            7 => Owned::Ping(bytes(g, PING_MAX)),
            8 => Owned::Pong(bytes(g, PING_MAX)),
            9 => Owned::Plain(Frame::Goodbye { code: u8::arbitrary(g), text: text(g) }),
            10 => {
                let transfer = TransferNo(u32::arbitrary(g));
                Owned::Plain(Frame::Credit { transfer, bytes: u64::arbitrary(g) })
            }
            11 => {
                let failed = ReceiptOutcome::Failed(u8::arbitrary(g));
                let outcome = *g.choose(&[ReceiptOutcome::Delivered, failed]).unwrap();
                let (site, when) = (site(g), u64::arbitrary(g));
                Owned::Plain(Frame::Receipt(Receipt { id, site, when, outcome }))
            }
            _ => match u8::arbitrary(g) % 3 {
                0 => Owned::Plain(Frame::Want { transfer, what: Wanted::Segment(id) }),
                1 => {
                    Owned::Plain(Frame::Want { transfer, what: Wanted::Blob(BlobDigest(hash(g))) })
                }
                _ => {
                    Owned::Plain(Frame::ReceiptOk { id, site: site(g), later: bool::arbitrary(g) })
                }
            },
        }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Owned>> {
        match self {
            Owned::Segment(transfer, offset, data) => {
                let (transfer, offset) = (*transfer, *offset);
                let smaller = data.shrink().filter(|d| !d.is_empty());
                Box::new(smaller.map(move |d| Owned::Segment(transfer, offset, d)))
            }
            Owned::Plain(_) | Owned::Offer(..) | Owned::Ping(_) | Owned::Pong(_) => {
                quickcheck::empty_shrinker()
            }
        }
    }
}

/// Feeds a decoder as a session does: what is not taken stays for the next piece.
fn decode_all<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Option<WireFault>) {
    let mut pending: Vec<u8> = Vec::new();
    let mut seen = Vec::new();
    for piece in pieces {
        pending.extend_from_slice(piece);
        let mut at = 0;
        loop {
            match decode(&pending[at..]) {
                Ok(Some((used, frame))) => {
                    seen.push(format!("{frame:?}"));
                    at += used;
                }
                Ok(None) => break,
                Err(fault) => return (seen, Some(fault)),
            }
        }
        pending.drain(..at);
    }
    (seen, None)
}

quickcheck! {
    fn what_is_encoded_decodes_alike(owned: Owned) -> bool {
        let bytes = owned.bytes();
        let frame = owned.frame();
        frame_len(&bytes) == Some(bytes.len()) && decode(&bytes) == Ok(Some((bytes.len(), frame)))
    }

    fn a_part_of_a_frame_asks_for_more(owned: Owned, cut: usize) -> bool {
        let bytes = owned.bytes();
        decode(&bytes[..cut % bytes.len()]) == Ok(None)
    }

    fn the_front_of_a_segment_says_what_the_whole_does(owned: Owned, cut: usize) -> bool {
        let bytes = owned.bytes();
        let cut = &bytes[..cut % (bytes.len() + 1)];
        let front = segment_front(cut);
        match owned.frame() {
            Frame::Segment { transfer, offset, data } if cut.len() >= SEGMENT_FRONT => {
                let len = data.len();
                front == Ok(Some(SegmentFront { transfer, offset, len }))
            }
            _ => front == Ok(None) && wanted(cut) > cut.len() || cut.len() == bytes.len(),
        }
    }

    fn any_pieces_decode_alike(frames: Vec<Owned>, sizes: Vec<u16>) -> bool {
        let stream: Vec<u8> = frames.iter().take(6).flat_map(Owned::bytes).collect();
        let mut rest = stream.as_slice();
        let mut pieces = Vec::new();
        for size in sizes {
            let (piece, after) = rest.split_at(usize::from(size).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        decode_all(pieces.into_iter()) == decode_all([stream.as_slice()].into_iter())
    }

    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, kind: u8) -> bool {
        let _ = decode(&bytes);
        let len = u32::try_from(bytes.len() + 1).unwrap().to_be_bytes();
        let framed: Vec<u8> =
            len.iter().copied().chain([kind % 16]).chain(bytes.iter().copied()).collect();
        match decode(&framed) {
            Ok(Some((used, _))) => used == framed.len(),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    fn one_flipped_byte_never_panics(owned: Owned, at: usize, flip: u8) -> bool {
        let mut bytes = owned.bytes();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        match decode(&bytes) {
            Ok(Some((used, _))) => used <= bytes.len(),
            Ok(None) | Err(_) => true,
        }
    }
}

#[test]
fn one_stream_cut_at_every_byte_decodes_alike() {
    let mut g = Gen::from_size_and_seed(6, 7);
    let mut frames: Vec<Owned> = (0..200).map(|_| Owned::arbitrary(&mut g)).collect();
    frames.retain(|f| f.bytes().len() < 300);
    frames.truncate(20);
    assert!(frames.len() == 20);
    let stream: Vec<u8> = frames.iter().flat_map(Owned::bytes).collect();
    let whole = decode_all([stream.as_slice()].into_iter());
    assert_eq!((whole.0.len(), &whole.1), (20, &None));
    for cut in 0..stream.len() {
        let (a, b) = stream.split_at(cut);
        assert_eq!(decode_all([a, b].into_iter()), whole, "cut at {cut}");
    }
    assert_eq!(decode_all(stream.chunks(1)), whole);
}

#[test]
fn hostile_lengths_are_judged_by_their_first_bytes() {
    let cases: [(&[u8], WireFault); 8] = [
        (&[0, 0, 0, 0], WireFault::Length { len: 0 }),
        (&[0, 2, 0, 1], WireFault::Length { len: 131_073 }),
        (&[0xff; 4], WireFault::Length { len: u32::MAX }),
        (&[0, 0, 0, 9, 0x00], WireFault::Type { kind: 0 }),
        (&[0, 2, 0, 0, 0x0e], WireFault::Type { kind: 14 }),
        (
            &[0, 1, 0, 14, 0x03],
            WireFault::Size { frame: Kind::Segment, len: 65_550, min: 14, max: 65_549 },
        ),
        (&[0, 0, 0, 66, 0x07], WireFault::Size { frame: Kind::Ping, len: 66, min: 1, max: 65 }),
        (
            &[0, 0, 0x10, 1, 0x01],
            WireFault::Size { frame: Kind::Hello, len: 4_097, min: 2, max: 4_096 },
        ),
    ];
    for (bytes, fault) in cases {
        assert_eq!(decode(bytes), Err(fault));
    }
    for len in [1u32, 131_072] {
        let mut bytes = len.to_be_bytes().to_vec();
        bytes.push(0x80);
        bytes.resize(4 + usize::try_from(len).unwrap(), 0);
        assert_eq!(decode(&bytes), Ok(Some((bytes.len(), Frame::Skipped(0x80)))));
    }
}
