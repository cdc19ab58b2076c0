//! Frames to bytes.

use alloc::vec::Vec;
use core::convert::Infallible;

use minicbor::encode::{Encoder, Error};

use super::{
    CONTROL_MAX, Frame, Hello, Kind, Offer, Receipt, ReceiptOutcome, SEGMENT_FRONT, Wanted,
};
use crate::id::{Epoch, SegmentId, TransferNo};
use crate::limits::{FRAME_MAX, INLINE_MAX, PING_MAX, SEGMENT_MAX, TEXT_MAX};
use crate::segment::{Class, Destinations, Meta};

type Sink<'v> = Encoder<&'v mut Vec<u8>>;
type Done = Result<(), Error<Infallible>>;

/// Appends a frame to `out`. Texts longer than [`TEXT_MAX`] are cut.
///
/// # Panics
/// When a part is larger than the protocol allows, or the frame is one that only a decoder makes:
/// whoever builds frames has judged their parts.
pub fn encode(frame: &Frame<'_>, out: &mut Vec<u8>) {
    match frame {
        Frame::Hello(hello) => control(Kind::Hello, out, |e| write_hello(e, hello)),
        Frame::Offer(offer, body) => encode_offer(offer, *body, out),
        Frame::Segment { transfer, offset, data } => {
            encode_segment(*transfer, *offset, data, out);
        }
        Frame::Ack { transfer, id, epoch } => control(Kind::Ack, out, |e| {
            write_name(e, 3, *transfer, id)?;
            write_epoch(e.u8(2)?, *epoch)
        }),
        Frame::Accept { transfer, id, offset } => control(Kind::Accept, out, |e| {
            write_name(e, 3, *transfer, id)?;
            e.u8(2)?.u64(*offset)?;
            Ok(())
        }),
        Frame::Reject { transfer, id, code, retry_after, text } => {
            control(Kind::Reject, out, |e| {
                let fields = 3 + u64::from(*retry_after != 0) + u64::from(!text.is_empty());
                write_name(e, fields, *transfer, id)?;
                e.u8(2)?.u8(*code)?;
                if *retry_after != 0 {
                    e.u8(3)?.u64(*retry_after)?;
                }
                write_text(e, 4, text)
            });
        }
        Frame::Ping(data) => opaque(Kind::Ping, data, out),
        Frame::Pong(data) => opaque(Kind::Pong, data, out),
        Frame::Goodbye { code, text } => control(Kind::Goodbye, out, |e| {
            e.map(1 + u64::from(!text.is_empty()))?.u8(0)?.u8(*code)?;
            write_text(e, 1, text)
        }),
        Frame::Credit { transfer, bytes } => control(Kind::Credit, out, |e| {
            e.map(2)?.u8(0)?.u32(transfer.0)?.u8(1)?.u64(*bytes)?;
            Ok(())
        }),
        Frame::Receipt(receipt) => control(Kind::Receipt, out, |e| write_receipt(e, receipt)),
        Frame::Want { transfer, what } => control(Kind::Want, out, |e| {
            e.map(2)?.u8(0)?.u32(transfer.0)?;
            match what {
                Wanted::Segment(id) => e.u8(1)?.bytes(&id.0)?,
                Wanted::Blob(digest) => e.u8(2)?.bytes(&digest.0)?,
            };
            Ok(())
        }),
        Frame::ReceiptOk { id, site, later } => control(Kind::ReceiptOk, out, |e| {
            e.map(2 + u64::from(*later))?.u8(0)?.bytes(&id.0)?.u8(1)?.str(site)?;
            if *later {
                e.u8(2)?.u8(1)?;
            }
            Ok(())
        }),
        Frame::BadOffer(_) | Frame::Skipped(_) => panic!("{frame:?} cannot be sent"),
    }
}

/// Appends an OFFER with the body that rides along, if any.
///
/// # Panics
/// When the body or the whole frame is too large.
pub fn encode_offer(offer: &Offer, body: Option<&[u8]>, out: &mut Vec<u8>) {
    let body = body.unwrap_or_default();
    assert!(body.len() <= INLINE_MAX, "a riding body of {} bytes", body.len());
    out.reserve(body.len().saturating_add(256));
    framed(Kind::Offer, FRAME_MAX, out, |out| {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        cbor(out, |e| write_offer(e, offer));
        fill_len(out, start);
        out.extend_from_slice(body);
    });
}

/// Appends a SEGMENT.
///
/// # Panics
/// When `data` is empty or longer than [`SEGMENT_MAX`].
pub fn encode_segment(transfer: TransferNo, offset: u64, data: &[u8], out: &mut Vec<u8>) {
    out.reserve(data.len().saturating_add(SEGMENT_FRONT));
    encode_segment_front(transfer, offset, data.len(), out);
    out.extend_from_slice(data);
}

/// Appends what stands in a SEGMENT in front of `len` bytes of content, which have to follow.
///
/// # Panics
/// When `len` is 0 or larger than [`SEGMENT_MAX`].
pub fn encode_segment_front(transfer: TransferNo, offset: u64, len: usize, out: &mut Vec<u8>) {
    assert!((1..=SEGMENT_MAX).contains(&len), "a segment of {len} bytes");
    let rest = u32::try_from(SEGMENT_FRONT.saturating_add(len).saturating_sub(4));
    out.extend_from_slice(&rest.unwrap_or(u32::MAX).to_be_bytes());
    out.push(Kind::Segment.number());
    out.extend_from_slice(&transfer.0.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
}

fn opaque(kind: Kind, data: &[u8], out: &mut Vec<u8>) {
    framed(kind, 1 + PING_MAX, out, |out| out.extend_from_slice(data));
}

fn control(kind: Kind, out: &mut Vec<u8>, body: impl FnOnce(&mut Sink<'_>) -> Done) {
    framed(kind, CONTROL_MAX, out, |out| cbor(out, body));
}

fn framed(kind: Kind, limit: usize, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind.number()]);
    body(out);
    let len = fill_len(out, start);
    assert!(len <= limit, "{kind} of {len} bytes exceeds {limit}");
}

/// Writes at `start` how many bytes follow the four that stand there.
fn fill_len(out: &mut [u8], start: usize) -> usize {
    let len = out.len().saturating_sub(start).saturating_sub(4);
    let number = u32::try_from(len).unwrap_or(u32::MAX);
    if let Some(slot) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *slot = number.to_be_bytes();
    }
    len
}

fn cbor(out: &mut Vec<u8>, body: impl FnOnce(&mut Sink<'_>) -> Done) {
    if body(&mut Encoder::new(out)).is_err() {
        unreachable!("writing to a Vec cannot fail");
    }
}

/// Opens a map that begins with transfer and segment.
fn write_name(e: &mut Sink<'_>, fields: u64, transfer: TransferNo, id: &SegmentId) -> Done {
    e.map(fields)?.u8(0)?.u32(transfer.0)?.u8(1)?.bytes(&id.0)?;
    Ok(())
}

fn write_epoch(e: &mut Sink<'_>, epoch: Epoch) -> Done {
    e.array(2)?.u64(epoch.boot)?.u64(epoch.session)?;
    Ok(())
}

/// The field of a text, left out when it is empty.
fn write_text(e: &mut Sink<'_>, field: u8, text: &str) -> Done {
    if !text.is_empty() {
        e.u8(field)?.str(cut(text, TEXT_MAX))?;
    }
    Ok(())
}

/// The longest beginning of `text` that has at most `max` bytes.
fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

fn write_hello(e: &mut Sink<'_>, hello: &Hello) -> Done {
    let optional = u64::from(hello.max_segment.is_some()) + u64::from(!hello.features.is_empty());
    e.map(5 + optional)?.u8(0)?.u16(hello.version)?.u8(1)?.str(&hello.name)?;
    write_epoch(e.u8(2)?, hello.epoch)?;
    if let Some(max) = hello.max_segment {
        e.u8(3)?.u64(max)?;
    }
    e.u8(4)?.u64(hello.credit)?.u8(5)?.u32(hello.max_offers)?;
    if !hello.features.is_empty() {
        e.u8(6)?.array(hello.features.len() as u64)?;
        for feature in &hello.features {
            e.str(feature)?;
        }
    }
    Ok(())
}

fn write_offer(e: &mut Sink<'_>, offer: &Offer) -> Done {
    write_name(e, 9, offer.transfer, &offer.id)?;
    e.u8(2)?.bytes(&offer.digest.0)?.u8(3)?.u64(offer.size)?.u8(4)?;
    match &offer.to {
        Destinations::All => {
            e.str("*")?;
        }
        Destinations::Named(names) => {
            e.array(names.len() as u64)?;
            for name in names {
                e.str(name)?;
            }
        }
    }
    e.u8(5)?.str(&offer.origin)?.u8(6)?.u64(offer.origin_seq)?.u8(7)?.u8(offer.hops)?.u8(8)?;
    write_meta(e, &offer.meta)
}

fn write_meta(e: &mut Sink<'_>, meta: &Meta) -> Done {
    let optional = [
        !meta.content_type.is_empty(),
        !meta.labels.is_empty(),
        !meta.instance.is_empty(),
        meta.class != Class::Normal,
        meta.expires_at.is_some(),
    ];
    e.map(2 + optional.iter().map(|there| u64::from(*there)).sum::<u64>())?;
    e.u8(0)?.str(&meta.name)?;
    if !meta.content_type.is_empty() {
        e.u8(1)?.str(&meta.content_type)?;
    }
    if !meta.labels.is_empty() {
        e.u8(2)?.array(meta.labels.len() as u64)?;
        for (key, value) in &meta.labels {
            e.array(2)?.str(key)?.str(value)?;
        }
    }
    if !meta.instance.is_empty() {
        e.u8(3)?.bytes(&meta.instance)?;
    }
    if meta.class != Class::Normal {
        e.u8(4)?.u8(meta.class as u8)?;
    }
    e.u8(5)?.u64(meta.accepted_at)?;
    if let Some(at) = meta.expires_at {
        e.u8(6)?.u64(at)?;
    }
    Ok(())
}

fn write_receipt(e: &mut Sink<'_>, receipt: &Receipt) -> Done {
    let failed = match receipt.outcome {
        ReceiptOutcome::Delivered => None,
        ReceiptOutcome::Failed(cause) => Some(cause),
    };
    e.map(4 + u64::from(failed.is_some()))?.u8(0)?.bytes(&receipt.id.0)?;
    e.u8(1)?.str(&receipt.site)?.u8(2)?.u64(receipt.when)?;
    match failed {
        None => e.u8(3)?.u8(0)?,
        Some(cause) => e.u8(3)?.u8(1)?.u8(4)?.u8(cause)?,
    };
    Ok(())
}
