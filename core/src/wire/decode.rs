//! Bytes to frames.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::reader::{Fields, Reader, need};
use super::segment::{self, HEAD};
use super::{
    BadOffer, CONTROL_MAX, FEATURE_MAX, FEATURES_MAX, Frame, Hello, Kind, Offer, Receipt,
    ReceiptOutcome, VERSION, Wanted, WireFault,
};
use crate::id::{BlobDigest, SegmentId, TransferNo};
use crate::limits::{
    DESTINATIONS_MAX, FRAME_MAX, HOPS_MAX, INLINE_MAX, LABELS_MAX, META_MAX, NAME_MAX, PING_MAX,
    SEGMENT_MAX, TEXT_MAX, TYPE_MAX,
};
use crate::segment::{Class, Destinations, Meta, MetaFault};

/// How many bytes the frame at the beginning of `buf` has in all, length included, once four bytes
/// are there. Judges nothing.
#[must_use]
pub fn frame_len(buf: &[u8]) -> Option<usize> {
    let len = u32::from_be_bytes(*buf.first_chunk::<4>()?);
    Some(usize::try_from(len).unwrap_or(usize::MAX).saturating_add(4))
}

/// Decodes the frame at the beginning of `buf`: how many bytes it took and what it is; `None` when
/// more bytes are needed. Allocates nothing before every limit is judged, and nothing at all for
/// content, which stays borrowed from `buf`.
///
/// # Errors
/// The first rule that is broken; as early as the bytes that break it are there.
pub fn decode(buf: &[u8]) -> Result<Option<(usize, Frame<'_>)>, WireFault> {
    let Some((head, rest)) = buf.split_first_chunk::<4>() else { return Ok(None) };
    let number = u32::from_be_bytes(*head);
    let len = usize::try_from(number).unwrap_or(usize::MAX);
    if len == 0 || len > FRAME_MAX {
        return Err(WireFault::Length { len: number });
    }
    let Some(kind) = rest.first().copied() else { return Ok(None) };
    let known = Kind::from_number(kind);
    match known {
        Some(known) => judge_size(known, len)?,
        None if kind >= 0x80 => {}
        None => return Err(WireFault::Type { kind }),
    }
    let Some(body) = rest.get(1..len) else { return Ok(None) };
    let frame = match known {
        Some(known) => decode_body(known, body)?,
        None => Frame::Skipped(kind),
    };
    Ok(Some((len.saturating_add(4), frame)))
}

pub(super) fn judge_size(frame: Kind, len: usize) -> Result<(), WireFault> {
    let (min, max) = match frame {
        Kind::Offer => (1 + 4 + 1, FRAME_MAX),
        Kind::Segment => (HEAD + 1, HEAD + SEGMENT_MAX),
        Kind::Ping | Kind::Pong => (1, 1 + PING_MAX),
        Kind::Hello
        | Kind::Ack
        | Kind::Accept
        | Kind::Reject
        | Kind::Goodbye
        | Kind::Credit
        | Kind::Receipt
        | Kind::Want
        | Kind::ReceiptOk => (2, CONTROL_MAX),
    };
    if (min..=max).contains(&len) {
        return Ok(());
    }
    Err(WireFault::Size { frame, len, min, max })
}

fn decode_body(kind: Kind, body: &[u8]) -> Result<Frame<'_>, WireFault> {
    match kind {
        Kind::Offer => return offer(body),
        Kind::Segment => {
            let (transfer, offset, data) = segment::parts(body)?;
            return Ok(Frame::Segment { transfer, offset, data });
        }
        Kind::Ping => return Ok(Frame::Ping(body)),
        Kind::Pong => return Ok(Frame::Pong(body)),
        Kind::Hello
        | Kind::Ack
        | Kind::Accept
        | Kind::Reject
        | Kind::Goodbye
        | Kind::Credit
        | Kind::Receipt
        | Kind::Want
        | Kind::ReceiptOk => {}
    }
    let mut reader = Reader::new(kind, body);
    let fields = reader.fields()?;
    let frame = match kind {
        Kind::Hello => hello(&mut reader, fields)?,
        Kind::Ack => ack(&mut reader, fields)?,
        Kind::Accept => accept(&mut reader, fields)?,
        Kind::Reject => reject(&mut reader, fields)?,
        Kind::Goodbye => goodbye(&mut reader, fields)?,
        Kind::Credit => credit(&mut reader, fields)?,
        Kind::Receipt => receipt(&mut reader, fields)?,
        Kind::Want => want(&mut reader, fields)?,
        Kind::ReceiptOk => receipt_ok(&mut reader, fields)?,
        Kind::Offer | Kind::Segment | Kind::Ping | Kind::Pong => {
            unreachable!("decoded above")
        }
    };
    reader.end()?;
    Ok(frame)
}

fn hello(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut version, mut name, mut epoch) = (None, None, None);
    let (mut max_segment, mut credit, mut max_offers) = (None, None, None);
    let mut features = Vec::new();
    while let Some(field) = fields.next(r)? {
        match field {
            0 => {
                // The one field every version has, and the first: nothing else of a foreign HELLO
                // need make sense.
                let found = r.u64()?;
                if found != u64::from(VERSION) {
                    return Err(WireFault::Version { found, speaks: VERSION });
                }
                version = Some(VERSION);
            }
            1 => name = Some(r.owned_site()?),
            2 => epoch = Some(r.epoch()?),
            3 => max_segment = Some(r.u64()?),
            4 => credit = Some(r.u64()?),
            5 => match r.u32()? {
                0 => return Err(r.value("max_offers", 0)),
                offers => max_offers = Some(offers),
            },
            6 => features = read_features(r)?,
            _ => r.skip()?,
        }
    }
    Ok(Frame::Hello(Hello {
        version: need(r.frame, 0, version)?,
        name: need(r.frame, 1, name)?,
        epoch: need(r.frame, 2, epoch)?,
        max_segment,
        credit: need(r.frame, 4, credit)?,
        max_offers: need(r.frame, 5, max_offers)?,
        features,
    }))
}

fn read_features(r: &mut Reader<'_>) -> Result<Vec<String>, WireFault> {
    let count = r.array("features", FEATURES_MAX)?;
    let mut features: Vec<String> = Vec::with_capacity(count);
    for _ in 0..count {
        let name = r.str("a feature", FEATURE_MAX)?;
        if name.is_empty() || features.last().is_some_and(|last| last.as_str() >= name) {
            return Err(WireFault::Set { frame: r.frame, what: "features" });
        }
        features.push(name.to_owned());
    }
    Ok(features)
}

fn offer(body: &[u8]) -> Result<Frame<'_>, WireFault> {
    let frame = Kind::Offer;
    let short = WireFault::Cbor { frame, at: 0 };
    let (head, rest) = body.split_first_chunk::<4>().ok_or(short)?;
    let len = u32::from_be_bytes(*head);
    let split = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
    let (cbor, rode) = split.ok_or(WireFault::Limit {
        frame,
        what: "a CBOR part",
        len: u64::from(len),
        limit: rest.len() as u64,
    })?;
    if rode.len() > INLINE_MAX {
        let (len, limit) = (rode.len() as u64, INLINE_MAX as u64);
        return Err(WireFault::Limit { frame, what: "a riding body", len, limit });
    }
    match offer_fields(cbor) {
        Ok(offer) => {
            let rides = offer.size == 0 || !rode.is_empty();
            Ok(Frame::Offer(offer, rides.then_some(rode)))
        }
        // Whoever names its transfer and segment in a sound map can be answered.
        Err(fault) => {
            let (transfer, id) = offer_name(cbor).map_err(|_| fault.clone())?;
            Ok(Frame::BadOffer(Box::new(BadOffer { transfer, id, rode: rode.len(), fault })))
        }
    }
}

/// Transfer and identity of an offer whose other fields are passed over.
fn offer_name(cbor: &[u8]) -> Result<(TransferNo, SegmentId), WireFault> {
    let mut r = Reader::new(Kind::Offer, cbor);
    let mut fields = r.fields()?;
    let (mut transfer, mut id) = (None, None);
    while let Some(field) = fields.next(&mut r)? {
        match field {
            0 => transfer = Some(r.transfer()?),
            1 => id = Some(SegmentId(r.hash()?)),
            _ => r.skip()?,
        }
    }
    r.end()?;
    Ok((need(r.frame, 0, transfer)?, need(r.frame, 1, id)?))
}

fn offer_fields(cbor: &[u8]) -> Result<Offer, WireFault> {
    let mut r = Reader::new(Kind::Offer, cbor);
    let mut fields = r.fields()?;
    let (mut transfer, mut id, mut digest, mut size) = (None, None, None, None);
    let (mut to, mut origin, mut origin_seq, mut hops) = (None, None, None, None);
    let mut meta = None;
    while let Some(field) = fields.next(&mut r)? {
        match field {
            0 => transfer = Some(r.transfer()?),
            1 => id = Some(SegmentId(r.hash()?)),
            2 => digest = Some(BlobDigest(r.hash()?)),
            3 => size = Some(r.u64()?),
            4 => to = Some(destinations(&mut r)?),
            5 => origin = Some(r.owned_site()?),
            6 => origin_seq = Some(r.u64()?),
            7 => {
                let count = r.u64()?;
                r.limit("hops", count, u64::from(HOPS_MAX))?;
                hops = u8::try_from(count).ok();
            }
            8 => meta = Some(read_meta(&mut r)?),
            _ => r.skip()?,
        }
    }
    r.end()?;
    let frame = r.frame;
    Ok(Offer {
        transfer: need(frame, 0, transfer)?,
        id: need(frame, 1, id)?,
        digest: need(frame, 2, digest)?,
        size: need(frame, 3, size)?,
        to: need(frame, 4, to)?,
        origin: need(frame, 5, origin)?,
        origin_seq: need(frame, 6, origin_seq)?,
        hops: need(frame, 7, hops)?,
        meta: need(frame, 8, meta)?,
    })
}

fn destinations(r: &mut Reader<'_>) -> Result<Destinations, WireFault> {
    let bad = WireFault::Set { frame: r.frame, what: "destinations" };
    if r.at_text() {
        return if r.str("destinations", 1)? == "*" { Ok(Destinations::All) } else { Err(bad) };
    }
    let count = r.array("destinations", DESTINATIONS_MAX)?;
    if count == 0 {
        return Err(bad);
    }
    let mut names: Vec<String> = Vec::with_capacity(count);
    for _ in 0..count {
        let name = r.site()?;
        if names.last().is_some_and(|last| last.as_str() >= name) {
            return Err(bad);
        }
        names.push(name.to_owned());
    }
    Ok(Destinations::Named(names))
}

fn read_meta(r: &mut Reader<'_>) -> Result<Meta, WireFault> {
    let mut fields = r.fields()?;
    let (mut name, mut accepted_at) = (None, None);
    let mut meta = Meta::default();
    while let Some(field) = fields.next(r)? {
        match field {
            0 => name = Some(r.str("a name", NAME_MAX)?.to_owned()),
            1 => meta.content_type = r.str("a content type", TYPE_MAX)?.to_owned(),
            2 => meta.labels = labels(r)?,
            3 => meta.instance = r.bytes("an instance", 16)?.to_vec(),
            4 => {
                let class = r.u8()?;
                meta.class = Class::from_number(class)
                    .ok_or_else(|| r.value("a class", u64::from(class)))?;
            }
            5 => accepted_at = Some(r.u64()?),
            6 => meta.expires_at = Some(r.u64()?),
            _ => r.skip()?,
        }
    }
    meta.name = need(r.frame, 0, name)?;
    meta.accepted_at = need(r.frame, 5, accepted_at)?;
    meta.check()?;
    Ok(meta)
}

fn labels(r: &mut Reader<'_>) -> Result<Vec<(String, String)>, WireFault> {
    let count = r.array("labels", LABELS_MAX)?;
    let mut labels: Vec<(String, String)> = Vec::with_capacity(count);
    let mut size = 0usize;
    for _ in 0..count {
        if r.array("a label", 2)? != 2 {
            return Err(r.value("parts of a label", 1));
        }
        let (key, value) = (r.str("a label key", META_MAX)?, r.str("a label value", META_MAX)?);
        size = size.saturating_add(key.len()).saturating_add(value.len());
        r.limit("labels in bytes", size as u64, META_MAX as u64)?;
        if key.is_empty() || labels.last().is_some_and(|last| last.0.as_str() >= key) {
            return Err(WireFault::Meta(MetaFault::LabelOrder));
        }
        labels.push((key.to_owned(), value.to_owned()));
    }
    Ok(labels)
}

fn ack(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut transfer, mut id, mut epoch) = (None, None, None);
    while let Some(field) = fields.next(r)? {
        match field {
            0 => transfer = Some(r.transfer()?),
            1 => id = Some(SegmentId(r.hash()?)),
            2 => epoch = Some(r.epoch()?),
            _ => r.skip()?,
        }
    }
    Ok(Frame::Ack {
        transfer: need(r.frame, 0, transfer)?,
        id: need(r.frame, 1, id)?,
        epoch: need(r.frame, 2, epoch)?,
    })
}

fn accept(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut transfer, mut id, mut offset) = (None, None, None);
    while let Some(field) = fields.next(r)? {
        match field {
            0 => transfer = Some(r.transfer()?),
            1 => id = Some(SegmentId(r.hash()?)),
            2 => offset = Some(r.u64()?),
            _ => r.skip()?,
        }
    }
    Ok(Frame::Accept {
        transfer: need(r.frame, 0, transfer)?,
        id: need(r.frame, 1, id)?,
        offset: need(r.frame, 2, offset)?,
    })
}

fn reject(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut transfer, mut id, mut code) = (None, None, None);
    let (mut retry_after, mut text) = (0, "");
    while let Some(field) = fields.next(r)? {
        match field {
            0 => transfer = Some(r.transfer()?),
            1 => id = Some(SegmentId(r.hash()?)),
            2 => code = Some(r.u8()?),
            3 => retry_after = r.u64()?,
            4 => text = r.str("a text", TEXT_MAX)?,
            _ => r.skip()?,
        }
    }
    Ok(Frame::Reject {
        transfer: need(r.frame, 0, transfer)?,
        id: need(r.frame, 1, id)?,
        code: need(r.frame, 2, code)?,
        retry_after,
        text: text.to_owned(),
    })
}

fn goodbye(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut code, mut text) = (None, "");
    while let Some(field) = fields.next(r)? {
        match field {
            0 => code = Some(r.u8()?),
            1 => text = r.str("a text", TEXT_MAX)?,
            _ => r.skip()?,
        }
    }
    Ok(Frame::Goodbye { code: need(r.frame, 0, code)?, text: text.to_owned() })
}

fn credit(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut transfer, mut bytes) = (None, None);
    while let Some(field) = fields.next(r)? {
        match field {
            0 => transfer = Some(TransferNo(r.u32()?)),
            1 => bytes = Some(r.u64()?),
            _ => r.skip()?,
        }
    }
    Ok(Frame::Credit { transfer: need(r.frame, 0, transfer)?, bytes: need(r.frame, 1, bytes)? })
}

fn receipt(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut id, mut site, mut when) = (None, None, None);
    let (mut failed, mut cause) = (None, None);
    while let Some(field) = fields.next(r)? {
        match field {
            0 => id = Some(SegmentId(r.hash()?)),
            1 => site = Some(r.owned_site()?),
            2 => when = Some(r.u64()?),
            3 => match r.u64()? {
                0 => failed = Some(false),
                1 => failed = Some(true),
                other => return Err(r.value("an outcome", other)),
            },
            4 => cause = Some(r.u8()?),
            _ => r.skip()?,
        }
    }
    let outcome = match (need(r.frame, 3, failed)?, cause) {
        (false, None) => ReceiptOutcome::Delivered,
        (false, Some(cause)) => return Err(r.value("a cause of success", u64::from(cause))),
        (true, cause) => ReceiptOutcome::Failed(need(r.frame, 4, cause)?),
    };
    Ok(Frame::Receipt(Receipt {
        id: need(r.frame, 0, id)?,
        site: need(r.frame, 1, site)?,
        when: need(r.frame, 2, when)?,
        outcome,
    }))
}

fn want(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut transfer, mut what) = (None, None);
    while let Some(field) = fields.next(r)? {
        match field {
            0 => transfer = Some(r.transfer()?),
            1 => what = Some(Wanted::Segment(SegmentId(r.hash()?))),
            2 if what.is_some() => return Err(r.value("a second thing wanted", 2)),
            2 => what = Some(Wanted::Blob(BlobDigest(r.hash()?))),
            _ => r.skip()?,
        }
    }
    Ok(Frame::Want { transfer: need(r.frame, 0, transfer)?, what: need(r.frame, 1, what)? })
}

fn receipt_ok(r: &mut Reader<'_>, mut fields: Fields) -> Result<Frame<'static>, WireFault> {
    let (mut id, mut site, mut later) = (None, None, false);
    while let Some(field) = fields.next(r)? {
        match field {
            0 => id = Some(SegmentId(r.hash()?)),
            1 => site = Some(r.owned_site()?),
            2 => later = r.u64()? != 0,
            _ => r.skip()?,
        }
    }
    Ok(Frame::ReceiptOk { id: need(r.frame, 0, id)?, site: need(r.frame, 1, site)?, later })
}
