//! A client of a site's admin socket that keeps many submissions under way.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use consign_core::http::{Client, Outgoing, Payload, Reply};

use super::{Load, failed};
use crate::admin::shapes::Status;
use crate::exit::Failure;

/// Submissions under way at a time.
const LANES: u64 = 128;
/// Bytes of content made and sent at a time.
const PIECE: usize = 256 << 10;

/// One connection.
struct Lane {
    stream: UnixStream,
    client: Client,
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl Lane {
    fn open(path: &Path) -> Result<Lane, Failure> {
        let stream = UnixStream::connect(path)
            .map_err(|e| failed(&format!("{} cannot be reached", path.display()), e))?;
        Ok(Lane { stream, client: Client::new(), out: Vec::new(), buffer: vec![0; 16 << 10] })
    }

    fn ask(&mut self, method: &str, target: &str, payload: Payload<'_>) -> Result<(), Failure> {
        let request = Outgoing {
            method,
            target,
            host: "localhost",
            headers: &[],
            payload,
            expect_continue: false,
        };
        self.client.request(&request, &mut self.out);
        self.flush()
    }

    fn send(&mut self, data: &[u8]) -> Result<(), Failure> {
        self.client.send(data, &mut self.out);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(|e| failed("the admin socket", e))
    }

    /// Status and body of the answer.
    fn answer(&mut self) -> Result<(u16, Vec<u8>), Failure> {
        let wrong = |e: &dyn std::fmt::Display| failed("the admin socket", e);
        let (mut status, mut body) = (0, Vec::new());
        loop {
            let len = self.stream.read(&mut self.buffer).map_err(|e| wrong(&e))?;
            if len == 0 {
                return Err(wrong(&"closed within an answer"));
            }
            let mut input = self.buffer.get(..len).unwrap_or_default();
            while let Some(reply) = self.client.read(&mut input).map_err(|e| wrong(&e))? {
                match reply {
                    Reply::Continue => {}
                    Reply::Head(head) => status = head.status,
                    Reply::Body(data) => body.extend_from_slice(data),
                    Reply::End => return Ok((status, body)),
                }
            }
        }
    }

    fn accepted(&mut self) -> Result<(), Failure> {
        match self.answer()? {
            (200 | 201, _) => Ok(()),
            (status, body) => {
                let text = String::from_utf8_lossy(&body);
                Err(failed(&format!("a segment was refused with {status}"), text.trim()))
            }
        }
    }
}

/// The admin socket of one site.
pub(super) struct Admin {
    path: PathBuf,
    asks: Option<Lane>,
}

impl Admin {
    pub(super) fn new(path: &Path) -> Admin {
        Admin { path: path.to_path_buf(), asks: None }
    }

    /// Hangs up: a site that stops waits a while for those who have not.
    pub(super) fn close(&mut self) {
        self.asks = None;
    }

    /// What the site says of itself.
    pub(super) fn status(&mut self) -> Result<Status, Failure> {
        let mut lane = match self.asks.take() {
            Some(lane) => lane,
            None => Lane::open(&self.path)?,
        };
        lane.ask("GET", "/v1/status", Payload::Empty)?;
        let (_, body) = lane.answer()?;
        self.asks = Some(lane);
        serde_json::from_slice(&body).map_err(|e| failed("the answer to status", e))
    }

    /// Hands in a load, addressed to every peer.
    pub(super) fn submit(&self, load: Load, prefix: &str) -> Result<(), Failure> {
        if load.size <= PIECE as u64 {
            return self.submit_small(load, prefix);
        }
        let mut lane = Lane::open(&self.path)?;
        for number in 0..load.count {
            lane.ask("POST", &target(prefix, number), Payload::Sized(load.size))?;
            let mut content = Content::new(prefix, number);
            let mut left = load.size;
            while left > 0 {
                let piece = content.next(left);
                left -= piece.len() as u64;
                lane.send(piece)?;
            }
            lane.client.finish(&mut lane.out);
            lane.flush()?;
            lane.accepted()?;
        }
        Ok(())
    }

    /// As many at a time as there are lanes: each waits for its commit, so they share one.
    fn submit_small(&self, load: Load, prefix: &str) -> Result<(), Failure> {
        let lanes = (0..LANES.min(load.count)).map(|_| Lane::open(&self.path));
        let mut lanes = lanes.collect::<Result<Vec<Lane>, Failure>>()?;
        let mut next = 0;
        while next < load.count {
            let mut asked = 0;
            for lane in &mut lanes {
                if next == load.count {
                    break;
                }
                let mut content = Content::new(prefix, next);
                let body = content.next(load.size);
                lane.ask("POST", &target(prefix, next), Payload::Full(body))?;
                next += 1;
                asked += 1;
            }
            for lane in lanes.iter_mut().take(asked) {
                lane.accepted()?;
            }
        }
        Ok(())
    }
}

fn target(prefix: &str, number: u64) -> String {
    format!("/v1/segments?name={prefix}-{number}.bin&to=*")
}

/// Content that is different for every segment.
struct Content {
    word: u64,
    piece: Vec<u8>,
}

impl Content {
    fn new(prefix: &str, number: u64) -> Content {
        let hash = blake3::hash(format!("{prefix} {number}").as_bytes());
        let word = hash.as_bytes().first_chunk().map_or(1, |c| u64::from_le_bytes(*c)) | 1;
        Content { word, piece: Vec::new() }
    }

    /// The next bytes, at most so many.
    fn next(&mut self, left: u64) -> &[u8] {
        let len = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        if self.piece.is_empty() {
            for _ in 0..len.div_ceil(8) {
                self.word ^= self.word << 13;
                self.word ^= self.word >> 7;
                self.word ^= self.word << 17;
                self.piece.extend_from_slice(&self.word.to_le_bytes());
            }
        } else {
            // Making every byte anew would cost more than relaying it.
            self.word = self.word.wrapping_add(1);
            for (byte, new) in self.piece.iter_mut().zip(self.word.to_le_bytes()) {
                *byte = new;
            }
        }
        self.piece.get(..len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_differs_by_segment_and_has_its_length() {
        let mut a = Content::new("x", 1);
        let mut b = Content::new("x", 2);
        assert_eq!(a.next(1_000).len(), 1_000);
        assert_ne!(a.next(1_000), b.next(1_000));
    }
}
