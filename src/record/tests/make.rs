//! Random inputs of a node, with everything that can be in them.

use std::time::Duration;

use consign_core::act::{Act, Action, IdPrefix, Selection};
use consign_core::code::Cause;
use consign_core::config::{BufferConfig, Config, PeerConfig, Route, SuccessCondition};
use consign_core::id::*;
use consign_core::inbox::{ExportStep, FileMark, InboxRule};
use consign_core::ledger::keys::{DeadKey, DueKey};
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::ledger::read::*;
use consign_core::ledger::read_acts::{Cursor, Named, Picked, Row};
use consign_core::ledger::read_export::{DueExport, HereSegment};
use consign_core::ledger::read_scrub::{RawRow, ScrubItem};
use consign_core::ledger::rows::*;
use consign_core::ledger::rows_upkeep::{ExportRow, ExportState, ReceiptRow, RememberedRow};
use consign_core::node::{Input, LogLevel, LogWanted, PathHash, Question, Reading};
use consign_core::plant::Plant;
use consign_core::segment::{Class, Destinations, Meta};
use consign_core::session::*;
use consign_core::store::{CommitFault, ScrubFault, Space, StoreFault};
use consign_core::time::{Instant, Now, UnixMillis};
use consign_core::wire::{Offer, Receipt, ReceiptOutcome, Wanted};
use quickcheck::{Arbitrary, Gen};

/// Something that can be made at random.
pub(super) trait Make {
    fn make(g: &mut Gen) -> Self;
}

/// Brings [`Make`] to quickcheck.
#[derive(Clone, Debug)]
pub(super) struct Any<T>(pub(super) T);

impl<T: Make + Clone + 'static> Arbitrary for Any<T> {
    fn arbitrary(g: &mut Gen) -> Any<T> {
        Any(T::make(g))
    }
}

macro_rules! arbitrary {
    ($($t:ty),*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { <$t>::arbitrary(g) }
    })*};
}
arbitrary!(bool, u8, u32, u64, i32, i64, usize, String);

impl<T: Make> Make for Option<T> {
    fn make(g: &mut Gen) -> Option<T> {
        bool::arbitrary(g).then(|| T::make(g))
    }
}

impl<T: Make> Make for Vec<T> {
    fn make(g: &mut Gen) -> Vec<T> {
        let len = u64::arbitrary(g) % 4;
        (0..len).map(|_| T::make(g)).collect()
    }
}

impl<T: Make> Make for Box<T> {
    fn make(g: &mut Gen) -> Box<T> {
        Box::new(T::make(g))
    }
}

impl<A: Make, B: Make> Make for (A, B) {
    fn make(g: &mut Gen) -> (A, B) {
        (A::make(g), B::make(g))
    }
}

impl<A: Make, B: Make, C: Make> Make for (A, B, C) {
    fn make(g: &mut Gen) -> (A, B, C) {
        (A::make(g), B::make(g), C::make(g))
    }
}

impl<A: Make, B: Make, C: Make, D: Make> Make for (A, B, C, D) {
    fn make(g: &mut Gen) -> (A, B, C, D) {
        (A::make(g), B::make(g), C::make(g), D::make(g))
    }
}

impl<A: Make, B: Make> Make for Result<A, B> {
    fn make(g: &mut Gen) -> Result<A, B> {
        if bool::arbitrary(g) { Ok(A::make(g)) } else { Err(B::make(g)) }
    }
}

impl Make for () {
    fn make(_: &mut Gen) {}
}

impl Make for [u8; 32] {
    fn make(g: &mut Gen) -> [u8; 32] {
        std::array::from_fn(|_| u8::arbitrary(g))
    }
}

impl Make for Duration {
    fn make(g: &mut Gen) -> Duration {
        Duration::arbitrary(g)
    }
}

macro_rules! tuple {
    ($($t:ident),*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { $t(Make::make(g)) }
    })*};
}
tuple!(
    RawRow, SegmentId, BlobDigest, Seq, BlobNo, BodyNo, SiteNo, BatchNo, ReadNo, TransferNo,
    Instant, UnixMillis, RuleId, PathHash
);

macro_rules! one_of {
    ($($t:ident: $all:expr),* $(,)?) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { *g.choose(&$all[..]).unwrap() }
    })*};
}
one_of!(
    Class: Class::ALL,
    MetaName: MetaName::ALL,
    Plant: Plant::ALL,
    State: [State::Scheduled, State::Inflight, State::Acked, State::Failed, State::Deadletter],
    Loss: [Loss::Doubted, Loss::Gone],
    Action: Action::ALL,
    Cause: Cause::ALL,
    ExportState: [
        ExportState::Intent, ExportState::Placed, ExportState::Done, ExportState::Failed
    ],
    ScrubFault: [ScrubFault::Corrupt, ScrubFault::Missing],
    SuccessCondition: [SuccessCondition::OnePeer, SuccessCondition::AllPeers],
);

impl Make for IdPrefix {
    fn make(g: &mut Gen) -> IdPrefix {
        let digits = 6 + usize::make(g) % 59;
        IdPrefix::parse(&SegmentId::make(g).to_string()[..digits]).unwrap()
    }
}

macro_rules! fields {
    ($($t:ident { $($f:ident),* $(,)? })*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t { $t { $($f: Make::make(g)),* } }
    })*};
}
fields! {
    ConnId { slot, generation }
    Act { action, of, who, why, dry_run, force, pin }
    Selection { ids, all, peer, reason, older }
    DeadKey { at, seq, site }
    Row { seq, site, segment, delivery }
    Epoch { boot, session }
    Handle { conn, number }
    ScrubItem { seq, body, size, digest }
    Now { mono, wall }
    DueKey { peer, class, at, id8, seq }
    Meta { name, content_type, labels, instance, class, accepted_at, expires_at }
    Identity { name, fingerprint, not_after }
    PeerLimits { name, max_segment, max_offers }
    Submission { meta, to, id, digest, size, content, watched }
    WatchedFile { rule, path, inode, size, modified }
    FileMark { inode, modified }
    InboxRule { id, from, label, name, command }
    ExportRow { state, name, since, runs, next_attempt_after, exit, output, error, mark, tries }
    DueExport { at, rule, seq, row, segment }
    HereSegment { seq, segment, known }
    Offer { transfer, id, digest, size, to, origin, origin_seq, hops, meta }
    Receipt { id, site, when, outcome }
    Space { free, ledger, ballast_whole }
    SegmentRow {
        id, digest, size, body, meta, to, here, origin, origin_seq, hops, accepted_at, required,
        acked, relayed_at, held, from, loss, askers, unplaced, let_go,
    }
    DeliveryRow {
        state, attempts, spent, next_attempt_after, last_error, since, custody, held, claimed_at, refused,
    }
    InflightRow { epoch }
    Reading { who, file, taken, code, text, changes }
    BlobRow { digest, size, refs, owner }
    DoomedRow { size, owner, aside }
    IncomingRow { digest, source, reserved, offset, chain, expires_at, shard }
    SourceRow { blob, mismatches }
    CounterRow { count, bytes }
    PeerRow { name, pin, held, last_acked, forgotten }
    Found { held, rowless, blob, source, incoming, remembered, receipts }
    ReceiptRow { id, site, when, cause, back, pending, name, size, digest, expires_at, more }
    Held { seq, row, deliveries, unreadable }
    Kept { held, id, blob, digest, receipts, remembered, exports }
    Expiring { key, what }
    RememberedRow { evicted_at, origin, origin_seq, seq }
    DueRow { key, segment, delivery }
    InflightFound { peer, seq, epoch, rows }
    Recovery {
        meta, peers, counters, inflight, doomed, incoming, quarantined, clients, scrub_shard, space,
    }
    ReadAnswer { as_of, body }
    PeerConfig { name, address, pin, more_pins, inbound_quota, rate_limit, window }
    Route { to, via }
    Config {
        name, peers, routes, inbox, success_condition, evict_on_relay, keep_relayed, remember_for,
        remember_max, keep_deadletter, keep_receipts, keep, scrub_rate, audit_max, max_retries, strict_attempts, backoff_initial, backoff_max,
        ack_timeout, expire_after, session_max_age, max_bytes, max_segments, max_segment, min_free,
        ledger_max, inline_max, buffered_bytes, session_bytes, peer_sessions, partial_ttl,
        drain_timeout, window, plant, buffer,
    }
    LogWanted { level, lasting, who }
    BufferConfig {
        max_bytes, max_upload, ttl, upload_grace, transit_grace, slot_ttl, token_ttl, notify_window,
        max_pickups, keep_history, nonces_per_key,
    }
}

macro_rules! variants {
    ($($t:ident: $g:ident { $($v:expr),* $(,)? })*) => {$(impl Make for $t {
        fn make(g: &mut Gen) -> $t {
            let all: &[fn(&mut Gen) -> $t] = &[$(|$g| $v),*];
            g.choose(all).unwrap()(g)
        }
    })*};
}

/// `Variant { field, … }`, with every field made.
macro_rules! with {
    ($g:ident, $t:ident::$v:ident { $($f:ident),* }) => { $t::$v { $($f: Make::make($g)),* } };
}

variants! {
    Destinations: g { { let _ = g; Destinations::All }, Destinations::Named(Make::make(g)) }
    Body: g { Body::Inline(Make::make(g)), Body::Blob(Make::make(g)) }
    Content: g { Content::Parked(Make::make(g)), Content::Blob(Make::make(g)) }
    ReceiptOutcome: g {
        { let _ = g; ReceiptOutcome::Delivered },
        ReceiptOutcome::Failed(Make::make(g)),
    }
    Wanted: g { Wanted::Segment(Make::make(g)), Wanted::Blob(Make::make(g)) }
    CommitFault: g { CommitFault::Full(Make::make(g)), CommitFault::Broken(Make::make(g)) }
    StoreFault: g {
        StoreFault::Full(Make::make(g)),
        StoreFault::Missing(Make::make(g)),
        StoreFault::Corrupt(Make::make(g)),
        { let _ = g; StoreFault::Crowded },
        StoreFault::Io(Make::make(g)),
    }
    Broken: g {
        { let _ = g; Broken::Mismatch },
        { let _ = g; Broken::Cut },
        Broken::Store(Make::make(g)),
    }
    Outcome: g {
        { let _ = g; Outcome::Acked },
        with!(g, Outcome::Rejected { code, retry_after, text }),
        { let _ = g; Outcome::AckTimeout },
        { let _ = g; Outcome::AckMismatch },
        Outcome::Unreadable(Make::make(g)),
    }
    LogLevel: g {
        { let _ = g; LogLevel::Error },
        { let _ = g; LogLevel::Warn },
        { let _ = g; LogLevel::Info },
        { let _ = g; LogLevel::Debug },
        { let _ = g; LogLevel::Trace },
    }
    Question: g {
        { let _ = g; Question::Status },
        Question::Progress(Make::make(g)),
        { let _ = g; Question::Stop },
        { let _ = g; Question::InboxRun },
        Question::InboxRetry(Make::make(g)),
        Question::Unwatch(Make::make(g), Make::make(g)),
        { let _ = g; Question::ConfirmClock },
        Question::Reload(Make::make(g)),
        Question::LogLevel(Make::make(g)),
        Question::Ping(Make::make(g)),
    }
    Answer: g {
        Answer::Lookup(Make::make(g)),
        with!(g, Answer::Due { rows, bad, end }),
        Answer::Pairs(Make::make(g)),
        with!(g, Answer::Segments { rows, end }),
        Answer::Held(Make::make(g)),
        Answer::Recovery(Make::make(g)),
        with!(g, Answer::Scrub { items, doubted, through, end }),
        Answer::Raw(Make::make(g)),
        with!(g, Answer::Rows { rows, next }),
        Answer::Count(Make::make(g)),
        with!(g, Answer::Expiry { rows, more, next }),
        Answer::Oldest(Make::make(g)),
        Answer::Kept(Make::make(g)),
        Answer::Repair(Make::make(g), Make::make(g)),
        Answer::Picked(Make::make(g)),
        with!(g, Answer::DueExports { rows, next }),
        Answer::Exports(Make::make(g)),
        with!(g, Answer::SegmentsHere { rows, last, end }),
    }
    Subject: g {
        Subject::Segment(Make::make(g), Make::make(g)),
        Subject::Receipt(Make::make(g), Make::make(g), Make::make(g)),
        Subject::Remembered(Make::make(g), Make::make(g)),
        { let _ = g; Subject::Other },
    }
    Oldest: g {
        Oldest::Audit(Make::make(g)),
        Oldest::Remembered(Make::make(g)),
        Oldest::Deadletters(Make::make(g)),
    }
    Cursor: g { Cursor::Dead(Make::make(g)), Cursor::Seq(Make::make(g)) }
    Named: g {
        Named::Found(Make::make(g)),
        { let _ = g; Named::Missing },
        Named::Ambiguous(Make::make(g)),
    }
    Picked: g {
        with!(g, Picked::Rows { rows, next }),
        with!(g, Picked::Segments { held, next }),
        Picked::Named(Make::make(g)),
    }
    ExportStep: g {
        with!(g, ExportStep::Named { name, mark }),
        ExportStep::Lost(Make::make(g)),
        { let _ = g; ExportStep::Placed },
        with!(g, ExportStep::Ran { exit, output, error }),
        ExportStep::Later(Make::make(g)),
        ExportStep::Never(Make::make(g)),
        ExportStep::Corrupt(Make::make(g)),
    }
    SessionEvent: g {
        SessionEvent::Ready(Make::make(g)),
        with!(g, SessionEvent::Offered { offer, body }),
        with!(g, SessionEvent::Checkpoint { transfer, blob, offset, chain }),
        with!(g, SessionEvent::Received { transfer, blob }),
        with!(g, SessionEvent::Broken { transfer, blob, why }),
        with!(g, SessionEvent::Outcome { transfer, outcome }),
        with!(g, SessionEvent::Progress { transfer, sent }),
        with!(g, SessionEvent::Arrived { transfer, blob }),
        { let _ = g; SessionEvent::Wants },
        SessionEvent::Pong(Make::make(g)),
        SessionEvent::Corrupt(Make::make(g)),
        SessionEvent::Receipt(Make::make(g)),
        with!(g, SessionEvent::ReceiptOk { id, site, later }),
        with!(g, SessionEvent::Want { transfer, what }),
        with!(g, SessionEvent::Submit { ticket, submission }),
        with!(g, SessionEvent::Reserve { ticket, size }),
        with!(g, SessionEvent::Extend { ticket, blob }),
        with!(g, SessionEvent::Ask { ticket, question }),
        with!(g, SessionEvent::Act { ticket, act }),
        SessionEvent::Fault(Make::make(g)),
        pickup::event(g),
    }
    Input: g {
        with!(g, Input::Connected { conn, identity, dialled }),
        with!(g, Input::Opened { conn }),
        with!(g, Input::DialFailed { site, why, reached }),
        Input::Session(Make::make(g), Make::make(g)),
        with!(g, Input::Closed { conn, why }),
        with!(g, Input::Committed { through, space }),
        with!(g, Input::CommitFailed { from, why, space }),
        Input::Read(Make::make(g), Make::make(g)),
        with!(g, Input::Unlinked { blob, result }),
        with!(g, Input::Checked { seen, missing }),
        with!(g, Input::Swept { folder, quarantined }),
        with!(g, Input::Scrubbed { seen, bytes, bad, unread }),
        Input::Space(Make::make(g)),
        with!(g, Input::Export { job, step }),
        with!(g, Input::Clock { ahead }),
        with!(g, Input::Skew { ahead }),
        with!(g, Input::Reconfigure { reload, config, renew, reading }),
        { let _ = g; Input::Timer },
        { let _ = g; Input::Turn },
        { let _ = g; Input::Stop },
    }
}

mod pickup;
