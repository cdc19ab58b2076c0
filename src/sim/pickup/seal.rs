//! Real TLS of a line: what a client or a node says is sealed, what comes is opened. The site proves who it is.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::line::Came;

/// Bytes that are sealed ahead of what the network takes.
const AHEAD: usize = 64 << 10;

/// One side of a TLS connection.
#[derive(Debug)]
pub(super) struct Seal {
    tls: Box<ClientConnection>,
    /// What waits to be written.
    pub sealed: Vec<u8>,
    /// What was read and is still to be opened.
    pub arrived: Vec<u8>,
}

impl Seal {
    /// A connection to a site that is asked for by that name.
    ///
    /// # Panics
    /// When rustls cannot work with what it was given: every run would find that.
    pub fn new(config: &Arc<ClientConfig>, name: &'static str) -> Seal {
        let name = ServerName::try_from(name).expect("sites have names that DNS knows");
        let mut tls = ClientConnection::new(config.clone(), name).expect("a client");
        tls.set_buffer_limit(Some(AHEAD));
        Seal { tls: Box::new(tls), sealed: Vec::new(), arrived: Vec::new() }
    }

    /// Seals what is to be said, as far as what is sealed already has not piled up.
    pub fn close_up(&mut self, out: &mut Vec<u8>) {
        while self.sealed.len() < AHEAD {
            let took = self.tls.writer().write(out).unwrap_or(0);
            out.drain(..took);
            if !self.flush() && took == 0 {
                return;
            }
        }
    }

    /// Takes what TLS has to write; whether there was anything.
    fn flush(&mut self) -> bool {
        let before = self.sealed.len();
        while self.tls.wants_write() && self.tls.write_tls(&mut self.sealed).is_ok() {}
        self.sealed.len() > before
    }

    /// Opens what arrived, and appends what it says.
    pub fn open(&mut self, came: &mut Vec<u8>) -> Came {
        let arrived = std::mem::take(&mut self.arrived);
        let mut bytes = &arrived[..];
        while !bytes.is_empty() {
            let taken = self.tls.read_tls(&mut bytes).unwrap_or(0);
            let Ok(state) = self.tls.process_new_packets() else { return Came::Broken };
            let start = came.len();
            came.resize(start + state.plaintext_bytes_to_read(), 0);
            if self.tls.reader().read_exact(&mut came[start..]).is_err() {
                return Came::Broken;
            }
            if state.peer_has_closed() {
                return Came::Eof;
            }
            if taken == 0 {
                return Came::Broken;
            }
        }
        Came::More
    }

    /// Says that nothing more will come.
    pub fn end(&mut self) {
        self.tls.send_close_notify();
        self.flush();
    }
}
