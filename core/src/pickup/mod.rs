//! Pickup: shards for nodes that are not there yet (DESIGN 4).
//!
//! A client uploads a shard for a node over HTTP; the relay keeps it; the node, whenever it is there,
//! is notified over its WebSocket, redeems a single-use token, fetches, verifies and acknowledges. The
//! surface to the byte is docs/PICKUP.md.
//!
//! ```text
//!  client ── HTTP ──▶ PickupSession ── Event ──▶ Node ── rows ──▶ store
//!  node  ◀─ WS/HTTP ─ (one per connection) ◀─ Command / Promise ─┘
//! ```
//!
//! The session frames, authenticates signatures, hashes and moves content. The node judges everything
//! that rests on rows. Like everywhere, what lets somebody else forget their copy is a promise on the
//! commit that makes it true: `201`, `shard_state`, and the first byte of a fetch.

mod answers;
pub mod digest;
pub mod message;
mod session;
pub mod sign;
pub mod state;
pub mod token;
mod types;
pub mod ws;

pub use answers::{Answer, Command, Notify, Report, Serve, ShardView};
pub use session::{FillRandom, PickupContext, PickupSession};
pub use types::{
    AckAsk, BrokenUpload, Event, FetchAsk, FetchEnd, Operator, OperatorAct, PickupRefusal, Signed,
    TokenOffer, UploadAsk, UploadKind,
};
