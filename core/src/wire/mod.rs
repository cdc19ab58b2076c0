//! Wire protocol 1: frames between peers (DESIGN 3.4, docs/PROTOCOL.md).
//!
//! A frame is a big-endian u32 length (type byte plus body, 1 to [`crate::limits::FRAME_MAX`]), a
//! type byte and a body. Bodies are minicbor maps with numbered fields, except that the bytes of
//! SEGMENT, and those riding with an OFFER, stand raw behind a fixed header.

mod decode;
mod encode;
mod fault;
mod reader;
mod segment;
#[cfg(test)]
pub(crate) mod tests;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

pub use decode::{decode, frame_len};
pub use encode::{encode, encode_offer, encode_segment, encode_segment_front};
pub use fault::WireFault;
pub use segment::{SEGMENT_FRONT, SegmentFront, segment_front, wanted};

use crate::code::codes;
use crate::id::{BlobDigest, Epoch, SegmentId, TransferNo};
use crate::segment::{Destinations, Meta};

/// The protocol version this build speaks.
pub const VERSION: u16 = 1;
/// The ALPN protocol name.
pub const ALPN: &[u8] = b"consign/1";
/// REJECT code by which the offering side takes back its own offer: the transfer number is then one
/// of the sender's of the REJECT. Codes from 128 on are never a [`crate::code::Refusal`].
pub const WITHDRAWN: u8 = 128;
/// Largest frame (type byte plus body) of every type but OFFER and SEGMENT.
pub const CONTROL_MAX: usize = 4_096;
/// Most features in a HELLO.
pub const FEATURES_MAX: usize = 32;
/// Longest name of a feature in bytes.
pub const FEATURE_MAX: usize = 64;

codes! {
    /// Frame types of protocol 1.
    pub enum Kind {
        /// What a side says first.
        Hello = 0x01, "HELLO";
        /// A segment is offered.
        Offer = 0x02, "OFFER";
        /// A piece of content.
        Segment = 0x03, "SEGMENT";
        /// A segment is durably held.
        Ack = 0x04, "ACK";
        /// Content is asked for.
        Accept = 0x05, "ACCEPT";
        /// An offer or a WANT is refused, or an offer taken back.
        Reject = 0x06, "REJECT";
        /// A sign of life is asked for.
        Ping = 0x07, "PING";
        /// The sign of life.
        Pong = 0x08, "PONG";
        /// The session ends.
        Goodbye = 0x09, "GOODBYE";
        /// More may be sent.
        Credit = 0x0A, "CREDIT";
        /// How a routed segment fared.
        Receipt = 0x0B, "RECEIPT";
        /// Content is asked for (repair).
        Want = 0x0C, "WANT";
        /// A receipt is kept.
        ReceiptOk = 0x0D, "RECEIPT_OK";
    }
}

/// What one site tells the other first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version.
    pub version: u16,
    /// The node's name; must be the certificate's.
    pub name: String,
    /// Epoch of this session at the sender of this frame: ACKs to its offers must bear it.
    pub epoch: Epoch,
    /// Largest segment it takes in bytes; `None` is no limit.
    pub max_segment: Option<u64>,
    /// Session credit in bytes that the other side may spend from the start.
    pub credit: u64,
    /// Most offers it takes unanswered at a time.
    pub max_offers: u32,
    /// Names of optional features, sorted; none are defined in version 1.
    pub features: Vec<String>,
}

/// An offer of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Offer {
    /// Number of the transfer, chosen by the offerer.
    pub transfer: TransferNo,
    /// Identity of the segment.
    pub id: SegmentId,
    /// Digest of its content.
    pub digest: BlobDigest,
    /// Length of its content in bytes.
    pub size: u64,
    /// The sites the receiver is asked to serve.
    pub to: Destinations,
    /// The site where it was first accepted.
    pub origin: String,
    /// Its accept number there.
    pub origin_seq: u64,
    /// How many sites it has left so far.
    pub hops: u8,
    /// Name, type, labels, class, times.
    pub meta: Meta,
}

/// How a routed segment fared further on (RECEIPT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ReceiptOutcome {
    /// The site holds it durably.
    Delivered,
    /// It was given up on the way; the code is a [`crate::code::Cause`] number.
    Failed(u8),
}

/// A receipt that is passed back towards the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Receipt {
    /// The segment.
    pub id: SegmentId,
    /// The destination it speaks of.
    pub site: String,
    /// When, in milliseconds since the Unix epoch.
    pub when: u64,
    /// What happened.
    pub outcome: ReceiptOutcome,
}

/// What a WANT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Wanted {
    /// A segment.
    Segment(SegmentId),
    /// Content.
    Blob(BlobDigest),
}

/// An OFFER that names its transfer and segment but breaks a rule otherwise: refused, while the
/// session goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOffer {
    /// Number of the transfer.
    pub transfer: TransferNo,
    /// Identity it claims.
    pub id: SegmentId,
    /// Bytes of a body that rode along: they have spent credit.
    pub rode: usize,
    /// The rule.
    pub fault: WireFault,
}

/// One frame. Content is borrowed from the buffer it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// 0x01
    Hello(Hello),
    /// 0x02; a small body may ride along. An offer of size 0 always carries its empty body.
    Offer(Offer, Option<&'a [u8]>),
    /// 0x02 with values that cannot be taken. Never encoded.
    BadOffer(Box<BadOffer>),
    /// 0x03: a piece of content at most [`crate::limits::SEGMENT_MAX`] bytes long.
    Segment {
        /// The transfer it belongs to.
        transfer: TransferNo,
        /// Where in the content it stands.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// 0x04: the segment is durably held.
    Ack {
        /// The transfer.
        transfer: TransferNo,
        /// The segment.
        id: SegmentId,
        /// The epoch that the offering side sent in its HELLO.
        epoch: Epoch,
    },
    /// 0x05: send the content from this offset.
    Accept {
        /// The transfer.
        transfer: TransferNo,
        /// The segment.
        id: SegmentId,
        /// Where to begin.
        offset: u64,
    },
    /// 0x06
    Reject {
        /// The transfer.
        transfer: TransferNo,
        /// The segment.
        id: SegmentId,
        /// A [`crate::code::Refusal`] number, or [`WITHDRAWN`].
        code: u8,
        /// How long to wait, in milliseconds; 0 says nothing.
        retry_after: u64,
        /// For people.
        text: String,
    },
    /// 0x07
    Ping(&'a [u8]),
    /// 0x08
    Pong(&'a [u8]),
    /// 0x09
    Goodbye {
        /// A [`crate::code::Goodbye`] number.
        code: u8,
        /// For people.
        text: String,
    },
    /// 0x0A: so many bytes more may be sent.
    Credit {
        /// The transfer, or 0 for the session.
        transfer: TransferNo,
        /// Bytes granted on top of what was granted before.
        bytes: u64,
    },
    /// 0x0B
    Receipt(Receipt),
    /// 0x0C; the transfer number lets a REJECT `unknown` answer it.
    Want {
        /// Number chosen by the asking side, in its own direction.
        transfer: TransferNo,
        /// What it asks for.
        what: Wanted,
    },
    /// 0x0D: the receipt for this segment and site is durable here, or cannot be taken yet.
    ReceiptOk {
        /// The segment.
        id: SegmentId,
        /// The destination the receipt spoke of.
        site: String,
        /// Not taken: it is to be said again.
        later: bool,
    },
    /// A frame of a type from 0x80 on that this version does not know: skipped.
    Skipped(u8),
}
