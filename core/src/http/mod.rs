//! HTTP/1.1 without I/O: one strict codec for the admin socket, the page, pickup and the command line.
//!
//! `httparse` reads the grammar of heads; everything that decides where a message begins and ends is
//! judged here and is deliberately narrower than the standard allows, so that nobody in between can read
//! the same bytes differently (docs: RELIABILITY 5, rows 19 to 25 and 35):
//!
//! - lines end in CRLF and in nothing else; no folded lines, no control characters
//! - at most [`HEAD_MAX`] bytes and [`FIELDS_MAX`] fields of head, [`TARGET_MAX`] bytes of target
//! - exactly one `Host` (HTTP/1.0 may leave it out); targets are a path in canonical spelling
//! - a body is sized by one plain `Content-Length`, or chunked and nothing else; both is an error; neither
//!   means that there is none
//! - the head must be whole [`Limits::header_timeout`] after its first byte, and a body must keep
//!   [`Limits::body_rate`]
//!
//! [`Conn`] is the serving side and [`Client`] the asking side. Both are pull parsers: `read` takes bytes
//! off the front of a slice and returns one event at a time; body bytes are borrowed from that slice and
//! never copied. The whole of what a connection keeps is the head that is arriving.
//!
//! ```text
//!             bytes of a head               bytes of a body
//!   ┌──────┐ ───────────────► Event::Head ────────────────► Event::Body … Event::End
//!   │ Head │                                                      │
//!   └──────┘ ◄─── answer finished and the body read to its end ───┘ waits for the answer
//!      │ a fault: answered with its status, then closed
//!      │ an answer finished before the body: what arrives is dropped (at most DRAIN_MAX, DRAIN_TIME),
//!      ▼ then closed; bytes behind a refused body are never parsed
//!    closing
//! ```

mod chunked;
mod client;
mod date;
mod encode;
mod fault;
mod framing;
mod head;
mod held;
mod server;
mod target;
mod told;

use core::time::Duration;

pub use client::{Client, Outgoing, Reply, ReplyHead};
pub use date::{Civil, http_date, parse_rfc3339, rfc3339};
pub use encode::{Payload, Response};
pub use fault::Fault;
pub use framing::Length;
pub use head::{Headers, Method, Request, Version};
pub use held::Held;
pub use server::{Conn, Event};
pub use target::{Query, Target, encode_component};
pub use told::{Answered, Tell};

/// Largest head, and largest trailer section, in bytes.
pub const HEAD_MAX: usize = 16_384;
/// Most fields of a head.
pub const FIELDS_MAX: usize = 64;
/// Longest request target in bytes.
pub const TARGET_MAX: usize = 4_096;
/// Longest method in bytes.
pub const METHOD_MAX: usize = 32;
/// Most bytes of chunk extensions in one body.
pub const EXTENSIONS_MAX: usize = 1_024;
/// Most bytes that are dropped behind an early answer.
pub const DRAIN_MAX: u64 = 65_536;
/// How long bytes are dropped behind an early answer.
pub const DRAIN_TIME: Duration = Duration::from_secs(2);

/// What a serving connection puts up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A head must be whole this long after its first byte, the first one after the connection opened.
    pub header_timeout: Duration,
    /// How long a kept connection may be idle; `None` is for ever.
    pub idle_timeout: Option<Duration>,
    /// Bytes a second that a body must bring over every [`Limits::rate_window`]; `None` asks nothing.
    pub body_rate: Option<u64>,
    /// Over which time that rate is judged.
    pub rate_window: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Some(Duration::from_secs(60)),
            body_rate: Some(8 << 10),
            rate_window: Duration::from_secs(30),
        }
    }
}
