//! A connection of a client or a node to a site: written in pieces, read in pieces, at its own pace.

use crate::sim::net::{Got, Sock, Written};
use crate::sim::time::Micros;

use super::Shore;
use super::seal::Seal;

/// How a line is written and read.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Bytes at a time.
    write: usize,
    read: usize,
    /// Microseconds between.
    write_gap: u64,
    read_gap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Dialling(u64),
    Up(Sock),
    Over,
}

/// What a line has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It goes on.
    More,
    /// The other side has ended it in order; nothing more comes.
    Eof,
    /// It is broken, or never came about.
    Broken,
}

/// A line.
#[derive(Debug)]
pub(super) struct Line {
    state: State,
    pace: Pace,
    /// What is to be said.
    out: Vec<u8>,
    /// Real TLS, with what of it waits to be written.
    seal: Option<Seal>,
    next_write: Micros,
    next_read: Micros,
    blocked: bool,
    more: bool,
    /// When it was dialled, or something came last.
    pub heard: Micros,
}

impl Line {
    /// Dials the actor's site.
    pub fn dial(shore: &mut Shore<'_>) -> Line {
        let rng = &mut *shore.rng;
        let slow = |rng: &mut crate::sim::rng::Rng| match rng.below(10) {
            0..5 => (usize::MAX, 0),
            5..8 => (rng.between(16, 4_096) as usize, rng.below(2_000)),
            8 => (rng.between(50, 400) as usize, rng.below(1_000)),
            _ => (rng.between(1_000, 60_000) as usize, rng.below(200_000)),
        };
        let ((write, write_gap), (read, read_gap)) = (slow(rng), slow(rng));
        let attempt = shore.net.dial(shore.at, shore.host, shore.site);
        Line {
            state: State::Dialling(attempt),
            pace: Pace { write, read, write_gap, read_gap },
            out: Vec::new(),
            seal: shore.tls.map(|config| Seal::new(config, shore.authority())),
            next_write: shore.at,
            next_read: shore.at,
            blocked: false,
            more: true,
            heard: shore.at,
        }
    }

    /// A dial has succeeded; whether it is this one's.
    pub fn connected(&mut self, attempt: u64, sock: Sock) -> bool {
        let mine = self.state == State::Dialling(attempt);
        if mine {
            self.state = State::Up(sock);
        }
        mine
    }

    /// A dial has failed; whether it is this one's.
    pub fn failed(&mut self, attempt: u64) -> bool {
        let mine = self.state == State::Dialling(attempt);
        if mine {
            self.state = State::Over;
        }
        mine
    }

    /// Something happened on a socket; whether it is this one's.
    pub fn ready(&mut self, sock: Sock) -> bool {
        let mine = self.state == State::Up(sock);
        if mine {
            (self.blocked, self.more) = (false, true);
        }
        mine
    }

    /// Whether it stands.
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Bytes that wait to be written.
    pub fn unsent(&self) -> usize {
        self.out.len() + self.seal.as_ref().map_or(0, |seal| seal.sealed.len())
    }

    /// Where to append what is to be said.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes and reads what is to be now; what came is appended.
    pub fn run(&mut self, shore: &mut Shore<'_>, came: &mut Vec<u8>) -> Came {
        let sock = match self.state {
            State::Dialling(_) => return Came::More,
            State::Up(sock) => sock,
            State::Over => return Came::Broken,
        };
        if !self.write(shore, sock) {
            return Came::Broken;
        }
        while self.more && self.next_read <= shore.at {
            let got = match &mut self.seal {
                Some(seal) => shore.net.read(shore.at, sock, &mut seal.arrived, self.pace.read),
                None => shore.net.read(shore.at, sock, came, self.pace.read),
            };
            match got {
                Got::Bytes => {
                    self.heard = shore.at;
                    self.next_read = shore.at.plus(self.pace.read_gap);
                    match self.seal.as_mut().map_or(Came::More, |seal| seal.open(came)) {
                        Came::More => {}
                        other => return other,
                    }
                }
                Got::Nothing => self.more = false,
                // Under TLS an end is said before.
                Got::Eof if self.seal.is_some() => return Came::Broken,
                Got::Eof => return Came::Eof,
                Got::Reset => return Came::Broken,
            }
        }
        // What came may have asked for an answer of TLS itself.
        if self.write(shore, sock) { Came::More } else { Came::Broken }
    }

    /// Writes what is to be now; whether the connection stands.
    fn write(&mut self, shore: &mut Shore<'_>, sock: Sock) -> bool {
        loop {
            if let Some(seal) = &mut self.seal {
                seal.close_up(&mut self.out);
            }
            let out = self.seal.as_mut().map_or(&mut self.out, |seal| &mut seal.sealed);
            if out.is_empty() || self.blocked || self.next_write > shore.at {
                return true;
            }
            let n = out.len().min(self.pace.write);
            match shore.net.write(shore.at, sock, &out[..n]) {
                Written::Took(took) => {
                    out.drain(..took);
                    self.blocked = took < n;
                    self.next_write = shore.at.plus(self.pace.write_gap);
                }
                Written::Reset => return false,
            }
        }
    }

    /// When it wants to run by itself.
    pub fn wake(&self) -> Micros {
        let State::Up(_) = self.state else { return Micros::FAR };
        let write = self.unsent() > 0 && !self.blocked;
        let write = if write { self.next_write } else { Micros::FAR };
        write.min(if self.more { self.next_read } else { Micros::FAR })
    }

    /// Lets it go.
    pub fn close(&mut self, shore: &mut Shore<'_>) {
        if let State::Up(sock) = self.state {
            if let Some(seal) = &mut self.seal {
                seal.end();
                // Whether the site hears of it does not matter.
                let _ = shore.net.write(shore.at, sock, &seal.sealed);
            }
            shore.net.close(shore.at, sock);
        }
        self.state = State::Over;
    }
}
