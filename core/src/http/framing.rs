//! Where a body ends.

use super::Fault;
use super::chunked::Chunked;
use super::head::{Headers, Version};

/// How long a body is, as its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// There is none.
    None,
    /// So many bytes; may be 0.
    Sized(u64),
    /// In chunks; the last one says that it is the last.
    Chunked,
    /// Until the connection ends (answers only).
    UntilEof,
}

/// Judges a request. Neither `Content-Length` nor `Transfer-Encoding` means that there is no body,
/// whatever the method.
pub(super) fn of_request(version: Version, headers: &Headers) -> Result<Length, Fault> {
    Ok(declared(version, headers)?.unwrap_or(Length::None))
}

/// Judges an answer with this status to a request whose method was HEAD or not.
pub(super) fn of_response(
    version: Version,
    status: u16,
    to_head: bool,
    headers: &Headers,
) -> Result<Length, Fault> {
    let declared = declared(version, headers)?;
    if to_head || status < 200 || status == 204 || status == 304 {
        return Ok(Length::None);
    }
    Ok(declared.unwrap_or(Length::UntilEof))
}

fn declared(version: Version, headers: &Headers) -> Result<Option<Length>, Fault> {
    let mut codings = headers.all("transfer-encoding");
    let coding = codings.next();
    let mut lengths = headers.all("content-length");
    let length = lengths.next();
    if codings.next().is_some() {
        return Err(Fault::Framing("two Transfer-Encoding fields"));
    }
    if lengths.next().is_some() {
        return Err(Fault::Framing("two Content-Length fields"));
    }
    match (coding, length) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            Err(Fault::Framing("both Content-Length and Transfer-Encoding are there"))
        }
        (Some(coding), None) => {
            if version == Version::Http10 {
                return Err(Fault::Framing("HTTP/1.0 has no Transfer-Encoding"));
            }
            if !coding.eq_ignore_ascii_case(b"chunked") || !headers.is_plain("transfer-encoding") {
                return Err(Fault::Framing("a Transfer-Encoding other than chunked"));
            }
            Ok(Some(Length::Chunked))
        }
        (None, Some(length)) => {
            if !headers.is_plain("content-length") {
                return Err(Fault::Framing("blanks around Content-Length"));
            }
            Ok(Some(Length::Sized(decimal(length)?)))
        }
    }
}

/// A plain decimal number: digits only, no sign, no leading zero, below 2^64.
fn decimal(text: &[u8]) -> Result<u64, Fault> {
    let plain = match text {
        [] => false,
        [b'0'] => true,
        [first, ..] => *first != b'0' && text.iter().all(u8::is_ascii_digit),
    };
    if !plain {
        return Err(Fault::Framing("a Content-Length that is not a plain number"));
    }
    text.iter()
        .try_fold(0u64, |n, d| n.checked_mul(10)?.checked_add(u64::from(d - b'0')))
        .ok_or(Fault::Framing("a Content-Length of 2^64 or more"))
}

/// A body that is arriving.
#[derive(Debug)]
pub(super) enum Decoder {
    /// So many bytes are missing.
    Sized(u64),
    /// In chunks.
    Chunked(Chunked),
    /// Until the connection ends.
    UntilEof,
}

/// A piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'i> {
    /// Bytes of it, never empty.
    Data(&'i [u8]),
    /// More input is needed.
    More,
    /// It is whole.
    End,
}

impl Decoder {
    pub(super) fn new(length: Length) -> Decoder {
        match length {
            Length::None => Decoder::Sized(0),
            Length::Sized(n) => Decoder::Sized(n),
            Length::Chunked => Decoder::Chunked(Chunked::new()),
            Length::UntilEof => Decoder::UntilEof,
        }
    }

    /// Whether it is known to be whole without another byte.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Decoder::Sized(left) => *left == 0,
            Decoder::Chunked(chunked) => chunked.is_whole(),
            Decoder::UntilEof => false,
        }
    }

    /// Takes the next piece off the front of `input`.
    pub(super) fn decode<'i>(&mut self, input: &mut &'i [u8]) -> Result<Piece<'i>, Fault> {
        match self {
            Decoder::Sized(0) => Ok(Piece::End),
            Decoder::Sized(left) => Ok(take(input, left)),
            Decoder::Chunked(chunked) => chunked.decode(input),
            Decoder::UntilEof => {
                let mut endless = u64::MAX;
                Ok(take(input, &mut endless))
            }
        }
    }
}

/// Takes at most `left` bytes and counts them off.
pub(super) fn take<'i>(input: &mut &'i [u8], left: &mut u64) -> Piece<'i> {
    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    if most == 0 {
        return Piece::More;
    }
    let (data, rest) = input.split_at(most);
    *input = rest;
    *left -= most as u64;
    Piece::Data(data)
}
