//! Heads on their way out.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Fault, http_date};
use crate::id::hex;
use crate::time::UnixMillis;

/// An answer: its head, and its body or how long that will be.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status, 200 to 599.
    pub status: u16,
    /// Fields besides `Date`, `Connection` and those that frame the body.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub payload: Payload<'a>,
}

/// The body of a message on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// There is none.
    Empty,
    /// All of it.
    Full(&'a [u8]),
    /// So many bytes follow.
    Sized(u64),
    /// More follows, nobody knows how much.
    Chunked,
}

/// What is said of a body in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// Nothing.
    Silent,
    /// `Content-Length`.
    Sized(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// The reason behind a status; for people only.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "Other",
    }
}

/// Appends a status line and fields, without the empty line behind them.
pub(super) fn status_line(status: u16, wall: Option<UnixMillis>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\n");
    if let Some(wall) = wall {
        field("Date", &http_date(wall), out);
    }
}

/// Appends a field. Characters that would end it are written as `?`.
pub(super) fn field(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend(value.bytes().map(|b| if b < 32 || b == 127 { b'?' } else { b }));
    out.extend_from_slice(b"\r\n");
}

/// Appends what frames the body.
pub(super) fn framed(framed: Framed, out: &mut Vec<u8>) {
    match framed {
        Framed::Silent => {}
        Framed::Sized(n) => field("Content-Length", &n.to_string(), out),
        Framed::Chunked => field("Transfer-Encoding", "chunked", out),
    }
}

/// Appends one chunk; nothing for no bytes, which would end the body.
pub(super) fn chunk(data: &[u8], out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    let size = (data.len() as u64).to_be_bytes();
    let digits = hex(&size);
    out.extend_from_slice(digits.trim_start_matches('0').as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// The chunk that ends a body.
pub(super) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The body of a refusal: `{"code":…,"message":…}`. Both are plain ASCII of our own.
pub(super) fn refusal(fault: Fault) -> String {
    alloc::format!("{{\"code\":\"{}\",\"message\":\"{fault}\"}}\n", fault.code())
}
