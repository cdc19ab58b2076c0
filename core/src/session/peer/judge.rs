//! What an accepting side can refuse without asking anybody.

use alloc::format;
use alloc::string::String;

use crate::code::Refusal;
use crate::id::{SegmentId, TransferNo};
use crate::segment::segment_id;
use crate::session::SessionOut;
use crate::wire::{Frame, Offer, encode};

/// What can be judged without a ledger.
pub(super) fn judge(offer: &Offer, body: Option<&[u8]>) -> Option<(Refusal, String)> {
    if segment_id(&offer.meta, &offer.digest) != offer.id {
        let text = "the segment id does not match name, type, labels, digest and instance";
        return Some((Refusal::Invalid, text.into()));
    }
    let body = body?;
    if body.len() as u64 != offer.size {
        let text = format!("a body of {} bytes for a size of {}", body.len(), offer.size);
        return Some((Refusal::Mismatch, text));
    }
    if *blake3::hash(body).as_bytes() != offer.digest.0 {
        return Some((Refusal::Mismatch, "the body does not match its digest".into()));
    }
    None
}

/// Says no.
pub(super) fn reject(
    transfer: TransferNo,
    id: SegmentId,
    refusal: Refusal,
    retry_after: u64,
    text: String,
    out: &mut SessionOut,
) {
    let code = refusal.number();
    encode(&Frame::Reject { transfer, id, code, retry_after, text }, &mut out.bytes);
}
