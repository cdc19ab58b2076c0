//! Small sessions for tests of whatever carries sessions.
// Several test crates include this file; none uses all of it.
#![allow(dead_code, unreachable_pub)]

use std::sync::{Arc, Mutex};

use consign_core::session::{Session, SessionCommand, SessionEvent, SessionInput, SessionOut};
use consign_core::time::{Instant, Now};

/// The byte at `position` of the test pattern; its period is a prime, so shifts show.
pub fn pattern(position: u64) -> u8 {
    (position % 251) as u8
}

/// What a session has seen, for the test to look at from outside.
#[derive(Debug, Default)]
pub struct Seen {
    pub opened: u32,
    pub bytes: Vec<u8>,
    pub received: u64,
    pub wrong: u64,
    pub eofs: u32,
    pub commands: u32,
    pub timers: u32,
    pub store_events: u32,
    pub sent: u64,
    pub dropped: bool,
}

pub type Watch = Arc<Mutex<Seen>>;

/// Sends back what it gets; closes when the other side has ended and everything is back.
pub struct Echo {
    waiting: Vec<u8>,
    eof: bool,
}

impl Echo {
    pub fn new() -> Box<Echo> {
        Box::new(Echo { waiting: Vec::new(), eof: false })
    }
}

impl Session for Echo {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        match input {
            SessionInput::Bytes(bytes) => self.waiting.extend_from_slice(bytes),
            SessionInput::Eof => self.eof = true,
            SessionInput::Room(room) => {
                let n = room.min(self.waiting.len());
                if n == self.waiting.len() && out.bytes.is_empty() {
                    std::mem::swap(&mut out.bytes, &mut self.waiting);
                } else {
                    out.bytes.extend(self.waiting.drain(..n));
                }
            }
            SessionInput::Command(SessionCommand::Close { .. }) => out.close = true,
            SessionInput::Command(_)
            | SessionInput::Open
            | SessionInput::Handed(_)
            | SessionInput::Timer
            | SessionInput::Store(_) => {}
        }
        if self.eof && self.waiting.is_empty() {
            out.close = true;
        }
    }
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    fn wants_read(&self) -> bool {
        self.waiting.len() < 512 << 10
    }
}

/// Sends `length` bytes of the pattern, checks what comes back, and closes when `expect` bytes are
/// there.
pub struct Source {
    pub length: u64,
    pub expect: u64,
    pub keep: bool,
    pub seen: Watch,
    pub deadline: Option<Instant>,
    pub reads: bool,
    pub event: Option<SessionEvent>,
}

impl Source {
    pub fn new(length: u64, expect: u64, seen: &Watch) -> Source {
        let (keep, deadline, event) = (false, None, None);
        Source { length, expect, keep, seen: seen.clone(), deadline, reads: true, event }
    }
}

impl Session for Source {
    fn step(&mut self, now: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        let mut seen = self.seen.lock().unwrap();
        match input {
            SessionInput::Open => {
                seen.opened += 1;
                out.events.extend(self.event.take());
            }
            SessionInput::Bytes(bytes) => {
                for (i, byte) in bytes.iter().enumerate() {
                    if *byte != pattern(seen.received + i as u64) {
                        seen.wrong += 1;
                    }
                }
                seen.received += bytes.len() as u64;
                if self.keep {
                    seen.bytes.extend_from_slice(bytes);
                }
                if self.expect > 0 && seen.received >= self.expect {
                    out.close = true;
                }
            }
            SessionInput::Room(room) => {
                let n = (self.length - seen.sent).min(room as u64);
                // Some of it as it is said, some as a store might have given it.
                let half = seen.sent + n / 2;
                out.bytes.extend((seen.sent..half).map(pattern));
                if n > 0 {
                    let rest: Vec<u8> = (half..seen.sent + n).map(pattern).collect();
                    out.place(rest.into());
                }
                seen.sent += n;
            }
            SessionInput::Eof => seen.eofs += 1,
            SessionInput::Command(command) => {
                seen.commands += 1;
                out.close |= matches!(command, SessionCommand::Close { .. });
            }
            SessionInput::Timer => {
                seen.timers += 1;
                assert!(self.deadline.is_some_and(|at| at <= now.mono));
                self.deadline = None;
            }
            SessionInput::Store(_) => seen.store_events += 1,
            SessionInput::Handed(_) => {}
        }
    }
    fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }
    fn wants_read(&self) -> bool {
        self.reads
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.seen.lock().unwrap().dropped = true;
    }
}
