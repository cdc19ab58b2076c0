//! A SEGMENT, which can be taken before all of it is there.

use super::decode::{frame_len, judge_size};
use super::{Kind, WireFault};
use crate::id::TransferNo;

/// Type byte, transfer and offset in front of the bytes of a SEGMENT.
pub(super) const HEAD: usize = 1 + 4 + 8;

/// Bytes of a SEGMENT in front of its content, its length included.
pub const SEGMENT_FRONT: usize = 4 + HEAD;

/// What stands in a SEGMENT in front of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFront {
    /// The transfer it belongs to.
    pub transfer: TransferNo,
    /// Where in the content it stands.
    pub offset: u64,
    /// How many bytes of content follow.
    pub len: usize,
}

/// The front of the SEGMENT at the beginning of `buf`; `None` while its [`SEGMENT_FRONT`] bytes are not there,
/// and for any other frame. Its content can be taken as it comes: nothing stands behind it.
///
/// # Errors
/// Those of [`decode()`](super::decode()).
pub fn segment_front(buf: &[u8]) -> Result<Option<SegmentFront>, WireFault> {
    let (Some(len), Some(front)) = (frame_len(buf), buf.get(..SEGMENT_FRONT)) else {
        return Ok(None);
    };
    if front.get(4) != Some(&Kind::Segment.number()) {
        return Ok(None);
    }
    judge_size(Kind::Segment, len.saturating_sub(4))?;
    let (transfer, offset, _) = parts(front.get(5..).unwrap_or_default())?;
    Ok(Some(SegmentFront { transfer, offset, len: len.saturating_sub(SEGMENT_FRONT) }))
}

/// How many bytes of the frame at the beginning of `buf` have to be there before it can be gone on with: up to
/// its type, then all of it, but of a SEGMENT only its front. Judges nothing.
#[must_use]
pub fn wanted(buf: &[u8]) -> usize {
    match (frame_len(buf), buf.get(4)) {
        (Some(len), Some(kind)) if *kind == Kind::Segment.number() => len.min(SEGMENT_FRONT),
        (Some(len), Some(_)) => len,
        (None, _) | (_, None) => 5,
    }
}

/// Transfer, offset and content of what follows the type.
pub(super) fn parts(body: &[u8]) -> Result<(TransferNo, u64, &[u8]), WireFault> {
    let frame = Kind::Segment;
    let short = WireFault::Cbor { frame, at: 0 };
    let (transfer, rest) = body.split_first_chunk::<4>().ok_or_else(|| short.clone())?;
    let (offset, data) = rest.split_first_chunk::<8>().ok_or(short)?;
    let transfer = u32::from_be_bytes(*transfer);
    if transfer == 0 {
        return Err(WireFault::Value { frame, what: "a transfer number", value: 0 });
    }
    Ok((TransferNo(transfer), u64::from_be_bytes(*offset), data))
}
