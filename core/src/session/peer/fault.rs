//! How a peer can break the protocol once its frames are well formed.

use alloc::string::String;

use super::phase::PhaseFault;
use crate::code::Goodbye;
use crate::id::TransferNo;
use crate::wire::WireFault;

/// A rule that the peer broke; its session ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PeerFault {
    /// The framing.
    #[error(transparent)]
    Wire(#[from] WireFault),
    /// The order of a session.
    #[error(transparent)]
    Phase(#[from] PhaseFault),
    /// HELLO bears another name than the certificate.
    #[error("HELLO says {claimed:?}, the certificate says {certified:?}")]
    Name {
        /// In HELLO.
        claimed: String,
        /// In the certificate.
        certified: String,
    },
    /// A transfer number that does not ascend.
    #[error("transfer {transfer} after transfer {last}: numbers must ascend")]
    Reused {
        /// The number.
        transfer: TransferNo,
        /// The highest before.
        last: TransferNo,
    },
    /// More offers than HELLO allows.
    #[error("more than {limit} offers unanswered")]
    Offers {
        /// `max_offers` in our HELLO.
        limit: usize,
    },
    /// Content beyond the credit.
    #[error("{bytes} bytes of content with {left} bytes of credit left")]
    Overspent {
        /// Bytes in the frame.
        bytes: u64,
        /// Credit left.
        left: u64,
    },
    /// SEGMENT of a transfer that was never offered.
    #[error("SEGMENT of transfer {transfer}, which was never offered")]
    NeverOffered {
        /// The transfer.
        transfer: TransferNo,
    },
    /// SEGMENT that was not asked for.
    #[error("SEGMENT of transfer {transfer}, whose content was not asked for")]
    NotAsked {
        /// The transfer.
        transfer: TransferNo,
    },
    /// SEGMENT that does not go on where the one before ended.
    #[error("SEGMENT of transfer {transfer} at {offset}, expected at {expected}")]
    Gap {
        /// The transfer.
        transfer: TransferNo,
        /// Where it stands.
        offset: u64,
        /// Where it should stand.
        expected: u64,
    },
    /// SEGMENT past the end.
    #[error("SEGMENT of transfer {transfer} ends {over} bytes after the content's {size}")]
    Overlong {
        /// The transfer.
        transfer: TransferNo,
        /// How many bytes there are too many.
        over: u64,
        /// Offered size.
        size: u64,
    },
    /// ACCEPT that does not fit what was offered.
    #[error("ACCEPT of transfer {transfer} {problem}")]
    Accept {
        /// The transfer.
        transfer: TransferNo,
        /// What does not fit.
        problem: &'static str,
    },
    /// Credit beyond what can be counted.
    #[error("credit of {credit} bytes and {more} more is beyond 2^64")]
    Credit {
        /// Credit left.
        credit: u64,
        /// Credit granted.
        more: u64,
    },
    /// PING after PING.
    #[error("more than {limit} PINGs at once")]
    Pings {
        /// How many are taken at once.
        limit: u32,
    },
}

impl PeerFault {
    /// What the peer is told.
    pub(super) fn goodbye(&self) -> Goodbye {
        match self {
            PeerFault::Wire(WireFault::Version { .. }) => Goodbye::Version,
            PeerFault::Wire(_)
            | PeerFault::Phase(_)
            | PeerFault::Name { .. }
            | PeerFault::Reused { .. }
            | PeerFault::Offers { .. }
            | PeerFault::Overspent { .. }
            | PeerFault::NeverOffered { .. }
            | PeerFault::NotAsked { .. }
            | PeerFault::Gap { .. }
            | PeerFault::Overlong { .. }
            | PeerFault::Accept { .. }
            | PeerFault::Credit { .. }
            | PeerFault::Pings { .. } => Goodbye::Protocol,
        }
    }
}
