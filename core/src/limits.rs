//! Every bound in one place, with the relations between them checked at compile time.

use core::time::Duration;

/// Largest frame: type byte plus body (DESIGN 3.4).
pub const FRAME_MAX: usize = 131_072;
/// Largest piece of content in one SEGMENT frame.
pub const SEGMENT_MAX: usize = 65_536;
/// Content up to this many bytes may ride with its OFFER and be kept inline in the ledger.
pub const INLINE_MAX: usize = 65_536;
/// Longest segment name in bytes.
pub const NAME_MAX: usize = 1_024;
/// Longest site name in bytes.
pub const SITE_NAME_MAX: usize = 128;
/// Longest content type in bytes.
pub const TYPE_MAX: usize = 256;
/// Most named destinations of one segment.
pub const DESTINATIONS_MAX: usize = 256;
/// Most labels of one segment.
pub const LABELS_MAX: usize = 64;
/// Largest encoded metadata (name, type, labels, …) of one segment.
pub const META_MAX: usize = 16_384;
/// Longest text in a REJECT or GOODBYE.
pub const TEXT_MAX: usize = 512;
/// Largest PING payload.
pub const PING_MAX: usize = 64;
/// Most sites a segment may have passed through.
pub const HOPS_MAX: u8 = 16;
/// Content is checkpointed every this many bytes (DESIGN 3.4, resume).
pub const CHECKPOINT_EVERY: u64 = 16 << 20;
/// Most rows of one ledger batch (DESIGN 2.2).
pub const BATCH_ROWS: usize = 4_096;
/// Most bytes of one ledger batch.
pub const BATCH_BYTES: usize = 8 << 20;
/// Smallest ballast (`limits.ballast`), in bytes: some batches of one thing each, twice over.
pub const BALLAST_MIN: u64 = 1 << 20;
/// What the end of a delivery may add to the ledger, in bytes, beside what it takes away (240 to 340 measured, with
/// content of 50 bytes that is evicted at once).
pub const END_BYTES: u64 = 512;
/// Most claims a session may have in flight: two batches' worth (DESIGN 2.2).
pub const SESSION_INFLIGHT: usize = 2 * BATCH_ROWS;
/// Claims that a new session may have in flight. Each ACK allows one more, up to
/// [`SESSION_INFLIGHT`]: a peer that answers nothing holds little.
pub const SESSION_BEGINS: usize = 256;
/// Entries of one (peer, class) window of due deliveries.
pub const WINDOW: usize = 1_024;
/// Most claims in one turn of the pump.
pub const CLAIMS_PER_TURN: usize = 1_024;
/// Most inputs taken in one turn of the pump.
pub const TURN_INPUTS: usize = 4_096;
/// A source that sends content slower than this (bytes per second) …
pub const SLOW_RATE: u64 = 64 << 10;
/// … for so many seconds gives way to another that offers the same (DESIGN 3.4).
pub const SLOW_SECONDS: u64 = 10;
/// Distance of the events by which a slow source is told from others.
pub const ARRIVED_EVERY: u64 = SLOW_RATE * SLOW_SECONDS;
/// Content that is handed to a store in large pieces stands at addresses that are multiples of this, so that a
/// store can write it past the page cache as it is.
pub const CONTENT_ALIGN: usize = 4_096;
/// Rows of one reconciliation slice.
pub const SLICE_ROWS: usize = 512;
/// Credit every session starts with; at least one full OFFER with its body.
pub const CREDIT_START: u64 = 128 << 10;
/// Space reserved at a time for content of unknown size.
pub const RESERVE_STEP: u64 = 64 << 20;
/// Classes of priority: urgent, high, normal, bulk.
pub const CLASSES: usize = 4;
/// Rows that growth may fill of a batch; the rest is kept for relief, so that accepting never stops
/// delivering.
pub const GROWTH_ROWS: usize = BATCH_ROWS / 4 * 3;
/// Deliveries or segments that one commit of an operator's act changes at most. Such a batch may have more
/// than [`BATCH_ROWS`] rows, so that a retry is one commit; its bytes stay within [`BATCH_BYTES`].
pub const ACT_ROWS: usize = 20_000;
/// Most ledger rows of a batch with an act in it.
pub const ACT_BATCH_ROWS: usize = ACT_ROWS * 8 + BATCH_ROWS;
/// Bytes that one commit of an act writes at most.
pub const ACT_BYTES: usize = 6 << 20;
/// Rows of one page that an act reads.
pub const ACT_PAGE: usize = 1_024;
/// Acts that may wait for their turn.
pub const ACTS_MAX: usize = 64;
/// While something waits for a peer whose address nobody answers at, it is dialled again at least so often …
pub const REDIAL: Duration = Duration::from_millis(500);
/// … unless there are more of them than this: then all together cost what so many would.
pub const REDIAL_PEERS: u32 = 8;
/// Segments of one lookup.
pub const LOOKUP_MAX: usize = 512;
/// Peers that may wait for receipts of one segment, counted for each site they asked for.
pub const ASKERS_MAX: usize = 64;
/// Receipts a peer may be told without having answered.
pub const RECEIPTS_OPEN: usize = 256;

const _: () = assert!(ACT_BYTES + (2 << 20) <= BATCH_BYTES);
const _: () = assert!(SEGMENT_MAX + 64 < FRAME_MAX);
const _: () = assert!(INLINE_MAX + META_MAX + DESTINATIONS_MAX * (SITE_NAME_MAX + 8) < FRAME_MAX);
const _: () = assert!(CREDIT_START as usize >= 2 * INLINE_MAX);
const _: () = assert!(CLAIMS_PER_TURN <= WINDOW * CLASSES);
// A claim writes its delivery and its inflight row and removes its due key: a turn's fit one batch.
const _: () = assert!(CLAIMS_PER_TURN * 3 <= BATCH_ROWS);

#[cfg(test)]
mod tests;
