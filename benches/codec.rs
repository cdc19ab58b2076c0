//! Frames to bytes and back, type by type, and rows to bytes.

use std::hint::black_box;

use consign_core::id::{BlobDigest, BodyNo, Epoch, SegmentId, TransferNo};
use consign_core::ledger::rows::{Body, DeliveryRow, SegmentRow, State};
use consign_core::ledger::{Table, codec as row};
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

/// The two rows that every segment costs on its way, written by the site that passes it on.
fn rows(c: &mut Criterion) {
    let offer = offer(&[0x5a; 1_024]);
    let segment = SegmentRow {
        id: offer.id,
        digest: offer.digest,
        size: offer.size,
        body: Body::Inline(BodyNo(123_456)),
        meta: offer.meta,
        to: offer.to,
        here: false,
        origin: offer.origin,
        origin_seq: offer.origin_seq,
        hops: 1,
        accepted_at: 1_790_000_000_000,
        required: 1,
        acked: 0,
        relayed_at: None,
        held: false,
        from: 0,
        loss: None,
        askers: Vec::new(),
        unplaced: None,
        let_go: None,
    };
    let delivery = DeliveryRow {
        state: State::Inflight,
        attempts: 1,
        spent: 0,
        next_attempt_after: 1_790_000_000_000,
        last_error: 0,
        since: 1_790_000_000_000,
        custody: None,
        held: None,
        claimed_at: Some(1_790_000_000_000),
        refused: 0,
    };
    let mut group = c.benchmark_group("rows");
    let mut value = Vec::new();
    group.bench_function("segment", |b| {
        b.iter(|| {
            value.clear();
            row::encode(Table::Segments, b"12345678", black_box(&segment), &mut value);
        });
    });
    group.bench_function("delivery", |b| {
        b.iter(|| {
            value.clear();
            row::encode(Table::Deliveries, b"123456781234", black_box(&delivery), &mut value);
        });
    });
    group.finish();
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

criterion_group!(benches, codec, rows);
criterion_main!(benches);
