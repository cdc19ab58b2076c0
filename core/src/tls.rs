//! TLS without I/O: the only module that knows rustls.
//!
//! [`TlsConn`] takes encrypted bytes as they arrive and decrypts them where they lie; what it has to
//! send goes behind a [`SendBuffer`]. It never waits, never loops on a peer's behalf (each record is
//! looked at once) and keeps no more than an incomplete record, so an idle connection holds nothing
//! here beyond rustls's own 7 to 9 KiB.
//!
//! ```text
//! client/server ─ receive ─▶ handshaking ─ receive ─▶ identity() ─ open() ─▶ open ─ close_notify ─▶ closed
//!                                 └── TlsFault: what is in the send buffer then is the alert
//! ```

mod fault;
mod state;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, CommonState, ServerConfig};

pub use fault::TlsFault;
use state::{Goal, Next, act};

use crate::sendbuf::SendBuffer;
use crate::session::Identity;
use crate::wire::ALPN;

/// Reads a peer's identity from its verified certificate chain, or says why it is not welcome.
pub type Identify = Arc<dyn Fn(&[CertificateDer<'_>]) -> Result<Identity, String> + Send + Sync>;

/// How this site meets its peers.
#[derive(Clone)]
pub struct TlsSetup {
    /// For dialling.
    pub client: Arc<ClientConfig>,
    /// For listening.
    pub server: Arc<ServerConfig>,
    /// Who the other side is.
    pub identify: Identify,
}

/// How pickup meets those who connect: with this site's certificate, asking for none.
pub type PickupTls = Arc<ServerConfig>;

impl fmt::Debug for TlsSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSetup").finish_non_exhaustive()
    }
}

/// Most bytes kept of a record or message that is not whole yet.
pub const HELD_MAX: usize = 32 << 10;
/// The same while nobody knows whose they are.
pub const HANDSHAKE_HELD_MAX: usize = 16 << 10;
/// Length of a record's header.
const RECORD_HEADER: usize = 5;

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl Side {
    fn common(&self) -> &CommonState {
        match self {
            Side::Client(conn) => conn,
            Side::Server(conn) => conn,
        }
    }
}

/// Who the other side is.
#[derive(Debug)]
enum Peer {
    /// The handshake is not done.
    Unknown,
    /// Anybody: nobody asked for a certificate.
    Anybody,
    /// Who its certificate says it is.
    Known(Identity),
}

/// One TLS connection.
pub struct TlsConn {
    side: Side,
    /// `None` takes anybody without a certificate.
    identify: Option<Identify>,
    /// The beginning of something that is not whole yet, or everything that arrived behind the
    /// handshake, until [`TlsConn::open`].
    held: Vec<u8>,
    /// Decrypted bytes that came in one pass with the end of the handshake.
    early: Vec<u8>,
    peer: Peer,
    open: bool,
    peer_closed: bool,
    closed: bool,
    /// Why it is beyond repair; rustls is not asked again then.
    fault: Option<TlsFault>,
}

impl fmt::Debug for TlsConn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConn")
            .field("held", &self.held.len())
            .field("peer", &self.peer)
            .field("open", &self.open)
            .field("peer_closed", &self.peer_closed)
            .field("closed", &self.closed)
            .field("fault", &self.fault)
            .finish_non_exhaustive()
    }
}

impl TlsConn {
    /// The dialling side; appends the first flight to `out`. `name` is the site that is dialled: the
    /// verifier in [`TlsSetup::client`] gets it as the server's name, or `site.invalid` where a site's
    /// name cannot be a DNS name.
    ///
    /// # Errors
    /// [`TlsFault::Setup`].
    pub fn client(setup: &TlsSetup, name: &str, out: &mut SendBuffer) -> Result<TlsConn, TlsFault> {
        let server = ServerName::try_from(name.to_string())
            .or_else(|_| ServerName::try_from("site.invalid"))
            .map_err(|e| TlsFault::Setup(e.to_string()))?;
        let conn = UnbufferedClientConnection::new(setup.client.clone(), server)
            .map_err(|e| TlsFault::Setup(e.to_string()))?;
        let mut tls = TlsConn::new(Side::Client(conn), Some(setup.identify.clone()));
        tls.receive(&mut [], out, &mut |_| ())?;
        Ok(tls)
    }

    /// The listening side.
    ///
    /// # Errors
    /// [`TlsFault::Setup`].
    pub fn server(setup: &TlsSetup) -> Result<TlsConn, TlsFault> {
        let conn = UnbufferedServerConnection::new(setup.server.clone())
            .map_err(|e| TlsFault::Setup(e.to_string()))?;
        Ok(TlsConn::new(Side::Server(conn), Some(setup.identify.clone())))
    }

    /// The listening side for anybody: who it is, is told and proved above TLS. The protocol above must
    /// say itself where its messages end, because a stream that ends without close_notify ends in order.
    ///
    /// # Errors
    /// [`TlsFault::Setup`].
    pub fn for_anybody(config: &PickupTls) -> Result<TlsConn, TlsFault> {
        let conn = UnbufferedServerConnection::new(config.clone())
            .map_err(|e| TlsFault::Setup(e.to_string()))?;
        Ok(TlsConn::new(Side::Server(conn), None))
    }

    fn new(side: Side, identify: Option<Identify>) -> TlsConn {
        TlsConn {
            side,
            identify,
            held: Vec::new(),
            early: Vec::new(),
            peer: Peer::Unknown,
            open: false,
            peer_closed: false,
            closed: false,
            fault: None,
        }
    }

    /// Whether the handshake is still going on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        matches!(self.peer, Peer::Unknown)
    }

    /// Who the peer is, once the handshake is done and [`TlsSetup::identify`] has agreed.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match &self.peer {
            Peer::Known(identity) => Some(identity),
            Peer::Unknown | Peer::Anybody => None,
        }
    }

    /// Whether the peer said that it will send no more.
    #[must_use]
    pub fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Lets plaintext through: until this call everything behind the handshake is kept. Follow it by a
    /// [`TlsConn::receive`] of nothing.
    ///
    /// # Panics
    /// When the handshake is not done yet.
    pub fn open(&mut self) {
        assert!(!self.is_handshaking(), "opened before the handshake was done");
        self.open = true;
    }

    /// Takes bytes that arrived and decrypts them in place. Plaintext is shown to `plain` piece by
    /// piece; what TLS itself has to say goes behind `out`. After the end of the handshake it stops
    /// until [`TlsConn::open`]. What comes behind the peer's close_notify is dropped.
    ///
    /// # Errors
    /// The connection is beyond repair; `out` holds the alert that says so to the peer.
    pub fn receive(
        &mut self,
        data: &mut [u8],
        out: &mut SendBuffer,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TlsFault> {
        self.alive()?;
        let result = self.receive_inner(data, out, plain);
        if let Err(fault) = &result {
            // The alert, if rustls has one. A second fault would not be news.
            let _ = self.flush(out);
            self.held = Vec::new();
            self.early = Vec::new();
            self.fault = Some(fault.clone());
        }
        result
    }

    fn alive(&self) -> Result<(), TlsFault> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn receive_inner(
        &mut self,
        mut data: &mut [u8],
        out: &mut SendBuffer,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TlsFault> {
        if !self.is_handshaking() && !self.open {
            self.held.extend_from_slice(data);
            return Ok(());
        }
        if !self.early.is_empty() && self.open {
            plain(&core::mem::take(&mut self.early));
        }
        if !self.held.is_empty() && self.open {
            // What was kept when the handshake ended may be many records.
            self.receive_held(out, plain)?;
        }
        while !self.held.is_empty() && !data.is_empty() && !self.peer_closed {
            let wanted = missing(&self.held).unwrap_or(data.len()).min(data.len());
            let (head, rest) = core::mem::take(&mut data).split_at_mut(wanted);
            self.held.extend_from_slice(head);
            data = rest;
            self.receive_held(out, plain)?;
            if !self.is_handshaking() && !self.open {
                self.held.extend_from_slice(data);
                return Ok(());
            }
        }
        if self.held.is_empty() {
            let used = self.pass(data, out, plain)?;
            self.held.extend_from_slice(data.get(used..).unwrap_or_default());
        }
        if self.peer_closed {
            self.held = Vec::new();
        }
        self.judge_held()
    }

    fn receive_held(
        &mut self,
        out: &mut SendBuffer,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TlsFault> {
        let mut held = core::mem::take(&mut self.held);
        let used = self.pass(&mut held, out, plain)?;
        held.drain(..used);
        self.held = held;
        self.judge_held()
    }

    fn judge_held(&self) -> Result<(), TlsFault> {
        let limit = match (self.open, !self.is_handshaking()) {
            (true, _) => HELD_MAX,
            (false, false) => HANDSHAKE_HELD_MAX,
            // What lies there will be read when it is opened, and nothing more is read until then.
            (false, true) => return Ok(()),
        };
        let held = self.held.len();
        if held > limit { Err(TlsFault::Oversized { held, limit }) } else { Ok(()) }
    }

    /// Shows `data` to rustls until it wants more or the handshake ends; returns how much is used up.
    fn pass(
        &mut self,
        data: &mut [u8],
        out: &mut SendBuffer,
        plain: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, TlsFault> {
        let TlsConn { early, open, .. } = self;
        let opened = *open;
        let mut early_bytes = core::mem::take(early);
        let mut visit = |bytes: &[u8]| match opened {
            true => plain(bytes),
            false => early_bytes.extend_from_slice(bytes),
        };
        let mut used = 0usize;
        let result = loop {
            let rest = data.get_mut(used..).unwrap_or_default();
            let (discard, next) = self.turn(rest, &mut Goal::Read(&mut visit), out);
            used = used.saturating_add(discard);
            match next {
                Err(fault) => break Err(fault),
                Ok(Next::PeerClosed) => self.peer_closed = true,
                Ok(Next::Blocked | Next::Done) => break Ok(()),
                Ok(Next::Again) => {}
            }
            if !opened && !self.side.common().is_handshaking() {
                break self.flush(out);
            }
        };
        self.early = early_bytes;
        result?;
        if self.is_handshaking()
            && !self.side.common().is_handshaking()
            && let Err(fault) = self.authenticate()
        {
            // TLS 1.3 has no alert for this that rustls would send; close_notify must do.
            self.say_goodbye(data.get_mut(used..).unwrap_or_default(), out);
            return Err(fault);
        }
        Ok(used)
    }

    /// Sends close_notify past whatever arrived and will not be read. A failure changes nothing: the
    /// connection ends for another reason already.
    fn say_goodbye(&mut self, mut rest: &mut [u8], out: &mut SendBuffer) {
        self.closed = true;
        loop {
            let (discard, next) = self.turn(rest, &mut Goal::Close, out);
            match next {
                Ok(Next::Again | Next::PeerClosed) => {
                    rest = rest.get_mut(discard..).unwrap_or_default();
                }
                Ok(Next::Blocked | Next::Done) | Err(_) => return,
            }
        }
    }

    /// Judges the peer, now that the handshake is done.
    fn authenticate(&mut self) -> Result<(), TlsFault> {
        let common = self.side.common();
        let Some(identify) = &self.identify else {
            self.peer = Peer::Anybody;
            return Ok(());
        };
        if common.alpn_protocol() != Some(ALPN) {
            return Err(TlsFault::Alpn);
        }
        let chain = common.peer_certificates().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or(TlsFault::NoCertificate)?;
        self.peer = Peer::Known(identify(chain).map_err(TlsFault::Unwelcome)?);
        Ok(())
    }

    /// Encrypts `plain` behind `out`.
    ///
    /// # Errors
    /// The connection is beyond repair.
    ///
    /// # Panics
    /// When the connection is not open, or after [`TlsConn::close`].
    pub fn send(&mut self, plain: &[u8], out: &mut SendBuffer) -> Result<(), TlsFault> {
        assert!(self.open && !self.closed, "sent on a connection that is not open");
        if plain.is_empty() {
            return Ok(());
        }
        self.write(&mut Goal::Write(plain), out)
    }

    /// Says close_notify: nothing can be sent any more. Does nothing the second time, nor before the
    /// handshake is done, where TLS has no authentic way to say it.
    ///
    /// # Errors
    /// The connection is beyond repair.
    pub fn close(&mut self, out: &mut SendBuffer) -> Result<(), TlsFault> {
        if self.closed || self.side.common().is_handshaking() {
            return Ok(());
        }
        self.closed = true;
        self.write(&mut Goal::Close, out)
    }

    fn write(&mut self, goal: &mut Goal<'_>, out: &mut SendBuffer) -> Result<(), TlsFault> {
        self.alive()?;
        let mut held = core::mem::take(&mut self.held);
        let mut used = 0usize;
        let result = loop {
            let rest = held.get_mut(used..).unwrap_or_default();
            let (discard, next) = self.turn(rest, goal, out);
            used = used.saturating_add(discard);
            match next {
                Err(fault) => break Err(fault),
                Ok(Next::Again) => {}
                Ok(Next::PeerClosed) => self.peer_closed = true,
                Ok(Next::Done) => break Ok(()),
                Ok(Next::Blocked) => break Err(TlsFault::Protocol("cannot write".to_string())),
            }
        };
        held.drain(..used);
        self.held = held;
        self.fault = result.clone().err();
        result
    }

    /// The stream has ended: whether that is the end of the data.
    ///
    /// # Errors
    /// When the peer did not say so before, under the protection of TLS, and nothing above TLS tells
    /// where its messages end ([`TlsConn::for_anybody`]).
    pub fn eof(&self) -> Result<(), TlsFault> {
        self.alive()?;
        match (self.peer_closed, self.is_handshaking()) {
            (true, _) => Ok(()),
            (false, true) => Err(TlsFault::Unfinished),
            (false, false) if self.identify.is_none() => Ok(()),
            (false, false) => Err(TlsFault::Truncated),
        }
    }

    /// Gives back what memory is not needed while nothing happens.
    pub fn rest(&mut self) {
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }

    /// Bytes kept of what is not whole yet.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len().saturating_add(self.early.len())
    }

    /// One state of rustls.
    fn turn(
        &mut self,
        data: &mut [u8],
        goal: &mut Goal<'_>,
        out: &mut SendBuffer,
    ) -> (usize, Result<Next, TlsFault>) {
        match &mut self.side {
            Side::Client(conn) => act(conn.process_tls_records(data), goal, out),
            Side::Server(conn) => act(conn.process_tls_records(data), goal, out),
        }
    }

    /// Takes what rustls has ready to send. While it has something it looks at no input, so this shows
    /// it none.
    fn flush(&mut self, out: &mut SendBuffer) -> Result<(), TlsFault> {
        while self.side.common().wants_write() {
            let (_, next) = self.turn(&mut [], &mut Goal::Read(&mut |_| ()), out);
            next?;
        }
        Ok(())
    }
}

/// How many bytes the record at the front of `held` lacks; `None` when it is whole, so that what is
/// missing is more of a handshake message.
fn missing(held: &[u8]) -> Option<usize> {
    let Some(header) = held.first_chunk::<RECORD_HEADER>() else {
        return Some(RECORD_HEADER.saturating_sub(held.len()));
    };
    let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let whole = RECORD_HEADER.saturating_add(body);
    (whole > held.len()).then(|| whole.saturating_sub(held.len()))
}
