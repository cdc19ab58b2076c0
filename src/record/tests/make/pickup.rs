//! Random events of pickup.

use consign_core::id::Sha256Digest;
use consign_core::ledger::keys_pickup::ShardKey;
use consign_core::ledger::rows_pickup::{AckStatus, ClientRow};
use consign_core::pickup::*;
use consign_core::session::SessionEvent;
use quickcheck::{Arbitrary, Gen};

use super::Make;

tuple!(Sha256Digest);

impl Make for [u8; 16] {
    fn make(g: &mut Gen) -> [u8; 16] {
        std::array::from_fn(|_| u8::arbitrary(g))
    }
}

impl Make for ShardKey {
    fn make(g: &mut Gen) -> ShardKey {
        let file = format!("file-{}", u64::make(g));
        let node = format!("node.{}", u8::make(g));
        ShardKey::new(file, u64::make(g) >> 11, u64::make(g) >> 11, node).unwrap()
    }
}

one_of!(AckStatus: AckStatus::ALL);

fields! {
    ClientRow { token, enrolled_at, revoked_at }
    Signed { node, key, timestamp, nonce }
    UploadAsk { shard, client, kind, size, body, sha256, blake3, complete, whole }
    FetchAsk { signed, token, from }
    AckAsk { shard, redemption, status, reason }
    TokenOffer { handle, hash }
    Operator { act, who, why }
}

variants! {
    UploadKind: g { { let _ = g; UploadKind::Post }, with!(g, UploadKind::Patch { offset }) }
    FetchEnd: g {
        { let _ = g; FetchEnd::Whole },
        with!(g, FetchEnd::Broken { moved }),
        FetchEnd::Unreadable(Make::make(g)),
    }
    BrokenUpload: g {
        with!(g, BrokenUpload::Cut { offset, chain }),
        { let _ = g; BrokenUpload::Mismatch },
        BrokenUpload::Store(Make::make(g)),
    }
    OperatorAct: g {
        with!(g, OperatorAct::EnrolNode { id, key }),
        with!(g, OperatorAct::RevokeNode { id, key }),
        with!(g, OperatorAct::EnrolClient { name, token }),
        with!(g, OperatorAct::RevokeClient { name }),
        with!(g, OperatorAct::RetryShard { shard }),
        with!(g, OperatorAct::AbandonShard { shard }),
    }
    Event: g {
        with!(g, Event::Upload { ticket, ask }),
        with!(g, Event::Extend { ticket, blob }),
        with!(g, Event::Checkpoint { ticket, blob, offset, chain }),
        with!(g, Event::Whole { ticket, blob, size, sha256, blake3 }),
        with!(g, Event::Broken { ticket, blob, why }),
        with!(g, Event::Head { ticket, shard, client }),
        with!(g, Event::Slot { ticket, shard, client, size }),
        with!(g, Event::Fetch { ticket, ask }),
        with!(g, Event::FetchMoved { redemption }),
        with!(g, Event::FetchEnded { redemption, end }),
        with!(g, Event::Subscribe { ticket, signed }),
        with!(g, Event::Register { tokens }),
        Event::Tokens(Make::make(g)),
        Event::Ack(Make::make(g)),
        with!(g, Event::Operator { ticket, act }),
    }
}

/// One of them, as a session tells it.
pub(super) fn event(g: &mut Gen) -> SessionEvent {
    SessionEvent::Pickup(Make::make(g))
}
