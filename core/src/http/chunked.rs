//! Chunked bodies, decoded as they come.

use super::framing::{Piece, take};
use super::head::{self, HeadBuffer, Kind};
use super::{EXTENSIONS_MAX, Fault};

/// Most digits of a chunk size: 2^64 and more cannot be written.
const DIGITS_MAX: u8 = 16;

#[derive(Debug)]
enum Phase {
    /// Digits of a size: so many so far, and their value.
    Size { digits: u8, size: u64 },
    /// Behind a semicolon, up to the end of the line.
    Extension { size: u64 },
    /// The LF behind a size.
    SizeLf { size: u64 },
    /// Bytes of a chunk.
    Data { left: u64 },
    /// The CR behind a chunk.
    DataCr,
    /// The LF behind a chunk.
    DataLf,
    /// Fields behind the last chunk.
    Trailer(HeadBuffer),
    /// Whole.
    End,
}

/// Decodes a chunked body. Trailer fields are checked and dropped.
#[derive(Debug)]
pub(super) struct Chunked {
    phase: Phase,
    /// Bytes of extensions so far, over all chunks.
    extensions: usize,
}

impl Chunked {
    pub(super) fn new() -> Chunked {
        Chunked { phase: Phase::Size { digits: 0, size: 0 }, extensions: 0 }
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::End)
    }

    pub(super) fn decode<'i>(&mut self, input: &mut &'i [u8]) -> Result<Piece<'i>, Fault> {
        loop {
            match &mut self.phase {
                Phase::End => return Ok(Piece::End),
                Phase::Data { left: 0 } => self.phase = Phase::DataCr,
                Phase::Data { left } => return Ok(take(input, left)),
                Phase::Trailer(buffer) => {
                    if !buffer.take(input)? {
                        return Ok(Piece::More);
                    }
                    head::trailer(&buffer.finish())?;
                    self.phase = Phase::End;
                }
                Phase::Size { .. }
                | Phase::Extension { .. }
                | Phase::SizeLf { .. }
                | Phase::DataCr
                | Phase::DataLf => {
                    let Some((byte, rest)) = input.split_first() else { return Ok(Piece::More) };
                    *input = rest;
                    self.byte(*byte)?;
                }
            }
        }
    }

    /// Takes one byte between the chunks.
    fn byte(&mut self, byte: u8) -> Result<(), Fault> {
        self.phase = match (&self.phase, byte) {
            (Phase::Size { digits: 0, .. }, b'\r' | b';') => {
                return Err(Fault::Chunk("a size without digits"));
            }
            (Phase::Size { size, .. }, b'\r') => Phase::SizeLf { size: *size },
            (Phase::Size { size, .. }, b';') => Phase::Extension { size: *size },
            (Phase::Size { digits, size }, _) => {
                let digit = (byte as char).to_digit(16);
                let digit = digit.ok_or(Fault::Chunk("a size with something besides digits"))?;
                if *digits == DIGITS_MAX {
                    return Err(Fault::Chunk("a size of more than 16 digits"));
                }
                Phase::Size { digits: digits + 1, size: (size << 4) | u64::from(digit) }
            }
            (Phase::Extension { size }, b'\r') => Phase::SizeLf { size: *size },
            (Phase::Extension { size }, b'\t' | b' '..=b'~' | 128..=255) => {
                self.extensions += 1;
                if self.extensions > EXTENSIONS_MAX {
                    return Err(Fault::Chunk("more than 1024 bytes of extensions"));
                }
                Phase::Extension { size: *size }
            }
            (Phase::Extension { .. }, _) => {
                return Err(Fault::Chunk("a control character in an extension"));
            }
            (Phase::SizeLf { size: 0 }, b'\n') => Phase::Trailer(HeadBuffer::new(Kind::Trailer)),
            (Phase::SizeLf { size }, b'\n') => Phase::Data { left: *size },
            (Phase::SizeLf { .. }, _) => return Err(Fault::Chunk("no line feed behind a size")),
            (Phase::DataCr, b'\r') => Phase::DataLf,
            (Phase::DataLf, b'\n') => Phase::Size { digits: 0, size: 0 },
            (Phase::DataCr | Phase::DataLf, _) => {
                return Err(Fault::Chunk("no end of line behind a chunk"));
            }
            (Phase::Data { .. } | Phase::Trailer(_) | Phase::End, _) => {
                unreachable!("bytes in these phases are taken by decode")
            }
        };
        Ok(())
    }
}
