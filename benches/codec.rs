//! Frames to bytes and back, type by type.

use std::hint::black_box;

use consign_core::id::{BlobDigest, Epoch, SegmentId, TransferNo};
use consign_core::segment::{Class, Destinations, Meta, segment_id};
use consign_core::wire::{Frame, Hello, Offer, decode, encode};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// An offer as a site of sensors makes it.
fn offer(body: &[u8]) -> Offer {
    let digest = BlobDigest(*blake3::hash(body).as_bytes());
    let meta = Meta {
        name: "reading-000123456.json".into(),
        content_type: "application/json".into(),
        labels: vec![("line".into(), "7".into()), ("plant".into(), "west".into())],
        class: Class::Normal,
        accepted_at: 1_790_000_000_000,
        ..Meta::default()
    };
    Offer {
        transfer: TransferNo(70_000),
        id: segment_id(&meta, &digest),
        digest,
        size: body.len() as u64,
        to: Destinations::Named(vec!["hub.example".into()]),
        origin: "edge-17.example".into(),
        origin_seq: 123_456,
        hops: 1,
        meta,
    }
}

fn codec(c: &mut Criterion) {
    let (small, piece) = (vec![0x5a; 1_024], vec![0xa5; 65_536]);
    let (id, epoch) = (SegmentId([0x42; 32]), Epoch { boot: 12, session: 345 });
    let transfer = TransferNo(70_000);
    let hello = Hello {
        version: 1,
        name: "edge-17.example".into(),
        epoch,
        max_segment: None,
        credit: 131_072,
        max_offers: 8_192,
        features: Vec::new(),
    };
    let text = "12 GiB on top of 88 GiB are more than storage.max_bytes, 96 GiB".to_string();
    let frames = [
        ("HELLO", Frame::Hello(hello)),
        ("OFFER without body", Frame::Offer(offer(&piece), None)),
        ("OFFER with 1 KiB", Frame::Offer(offer(&small), Some(&small))),
        ("ACCEPT", Frame::Accept { transfer, id, offset: 16 << 20 }),
        ("SEGMENT of 64 KiB", Frame::Segment { transfer, offset: 1 << 30, data: &piece }),
        ("ACK", Frame::Ack { transfer, id, epoch }),
        ("CREDIT", Frame::Credit { transfer, bytes: 65_536 }),
        ("REJECT", Frame::Reject { transfer, id, code: 3, retry_after: 30_000, text }),
        ("PING", Frame::Ping(b"12345678")),
    ];
    let mut group = c.benchmark_group("encode");
    for (name, frame) in &frames {
        let mut out = Vec::new();
        encode(frame, &mut out);
        group.throughput(Throughput::Bytes(out.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), frame, |b, frame| {
            b.iter(|| {
                out.clear();
                encode(black_box(frame), &mut out);
                out.len()
            });
        });
    }
    group.finish();
    let mut group = c.benchmark_group("decode");
    for (name, frame) in &frames {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_with_input(BenchmarkId::from_parameter(name), &bytes, |b, bytes| {
            b.iter(|| {
                let decoded = decode(black_box(bytes)).expect("what was encoded decodes");
                decoded.expect("the frame is whole")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
