//! Many connections to a relay at once: a task each on a few threads, TLS by rustls, everything above
//! it by core's own codecs.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use consign_core::http::{Client, Outgoing, Payload, Reply};
use consign_core::pickup::message::{FromNode, FromRelay};
use consign_core::pickup::sign::{Claim, Signable, no_body};
use consign_core::pickup::ws::{self, Message, Reader, Side};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use smol::Async;

/// What goes wrong in a task.
pub type Sent<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Nothing secret is masked here.
const MASK: [u8; 4] = [7, 31, 63, 127];
/// Where `Sec-WebSocket-Key` needs 16 bytes in base64.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// Where the relay is and how it is known.
#[derive(Clone)]
pub struct Door {
    at: SocketAddr,
    tls: Arc<ClientConfig>,
    name: ServerName<'static>,
    /// The Host field.
    pub host: String,
}

impl Door {
    /// The relay that listens there, with a certificate of that authority.
    pub fn new(at: SocketAddr, ca: &Path) -> Sent<Door> {
        let mut roots = RootCertStore::empty();
        for certificate in consign::tls::certificates(ca).map_err(|e| e.to_string())? {
            roots.add(certificate)?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(consign::tls::provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::from(at.ip());
        Ok(Door { at, tls: Arc::new(tls), name, host: at.to_string() })
    }

    /// Connects from an address of this machine.
    pub async fn open(&self, from: Ipv4Addr) -> Sent<Line> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddr::from((from, 0)))?;
        match connect(&socket, &self.at) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(e) => return Err(e.into()),
        }
        let socket = Async::new(TcpStream::from(socket))?;
        socket.writable().await?;
        if let Some(e) = socket.get_ref().take_error()? {
            return Err(e.into());
        }
        socket.get_ref().set_nodelay(true)?;
        let tls = ClientConnection::new(self.tls.clone(), self.name.clone())?;
        let mut line = Line { socket, tls, input: Vec::new() };
        while line.tls.is_handshaking() {
            line.flush().await?;
            if line.tls.is_handshaking() {
                line.read().await?;
            }
        }
        line.flush().await?;
        Ok(line)
    }
}

/// A connection.
pub struct Line {
    socket: Async<TcpStream>,
    tls: ClientConnection,
    /// What arrived and was not read.
    input: Vec<u8>,
}

impl Line {
    async fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket.get_ref()) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.socket.writable().await?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.tls.writer().write(bytes)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            self.flush().await?;
        }
        Ok(())
    }

    /// Waits for bytes; comes back without any when TLS has something to say first.
    async fn read(&mut self) -> io::Result<()> {
        loop {
            match self.tls.read_tls(&mut self.socket.get_ref()) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.socket.readable().await?;
                    continue;
                }
                Err(e) => return Err(e),
            }
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            let came = state.plaintext_bytes_to_read();
            let start = self.input.len();
            self.input.resize(start + came, 0);
            self.tls.reader().read_exact(&mut self.input[start..])?;
            if came > 0 || self.tls.wants_write() || self.tls.is_handshaking() {
                return Ok(());
            }
        }
    }

    /// The input without its first bytes.
    fn used(&mut self, rest: usize) {
        let used = self.input.len() - rest;
        self.input.drain(..used);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }
}

/// A connection for one request after another.
pub struct Http {
    line: Line,
    client: Client,
    host: String,
}

impl Http {
    pub async fn open(door: &Door, from: Ipv4Addr) -> Sent<Http> {
        let line = door.open(from).await?;
        Ok(Http { line, client: Client::new(), host: door.host.clone() })
    }

    /// One request; status and body of its answer.
    pub async fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        payload: Payload<'_>,
    ) -> Sent<(u16, Vec<u8>)> {
        let host = &self.host;
        let outgoing = Outgoing { method, target, host, headers, payload, expect_continue: false };
        let mut out = Vec::new();
        self.client.request(&outgoing, &mut out);
        self.line.send(&out).await?;
        let (mut status, mut body) = (0, Vec::new());
        loop {
            let mut input = self.line.input.as_slice();
            let mut whole = false;
            while let Some(reply) = self.client.read(&mut input)? {
                match reply {
                    Reply::Continue => {}
                    Reply::Head(head) => status = head.status,
                    Reply::Body(data) => body.extend_from_slice(data),
                    Reply::End => {
                        whole = true;
                        break;
                    }
                }
            }
            let rest = input.len();
            self.line.used(rest);
            if whole {
                return Ok((status, body));
            }
            self.line.read().await?;
        }
    }
}

/// A node's name and key.
#[derive(Clone)]
pub struct Identity {
    pub id: String,
    pub secret: [u8; 32],
}

impl Identity {
    /// The node of that number.
    pub fn numbered(number: usize) -> Identity {
        let id = format!("node-{number}");
        Identity { secret: *blake3::hash(id.as_bytes()).as_bytes(), id }
    }

    /// The fields that sign a GET.
    pub fn fields(&self, host: &str, target: &str) -> Sent<[(&'static str, String); 4]> {
        let timestamp = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)?;
        let (method, authority, body) = ("GET", host, no_body());
        let signable = Signable { method, authority, target, timestamp, nonce, body };
        let signature = signable.sign(&self.secret);
        Ok(Claim { node: self.id.clone(), timestamp, nonce, signature }.fields())
    }
}

/// A node's WebSocket.
pub struct Socket {
    line: Line,
    reader: Reader,
}

impl Socket {
    /// Connects and upgrades.
    pub async fn open(door: &Door, from: Ipv4Addr, node: &Identity) -> Sent<Socket> {
        let mut line = door.open(from).await?;
        let mut head = format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n",
            door.host
        );
        for (name, value) in node.fields(&door.host, "/ws")? {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        line.send(head.as_bytes()).await?;
        let end = loop {
            line.read().await?;
            line.flush().await?;
            if let Some(at) = line.input.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
        };
        if !line.input.starts_with(b"HTTP/1.1 101 ") {
            return Err(format!("no upgrade: {}", String::from_utf8_lossy(&line.input)).into());
        }
        line.used(line.input.len() - end);
        Ok(Socket { line, reader: Reader::new(Side::Client) })
    }

    pub async fn say(&mut self, message: &FromNode) -> Sent<()> {
        let mut out = Vec::new();
        ws::text(&message.text(), Some(MASK), &mut out);
        Ok(self.line.send(&out).await?)
    }

    /// The next message.
    pub async fn hear(&mut self) -> Sent<FromRelay> {
        loop {
            let mut input = self.line.input.as_slice();
            let message = self.reader.read(&mut input)?;
            let rest = input.len();
            self.line.used(rest);
            match message {
                Some(Message::Text(text)) => return Ok(FromRelay::parse(&text)?),
                Some(Message::Ping(payload)) => {
                    let mut out = Vec::new();
                    ws::pong(&payload, Some(MASK), &mut out);
                    self.line.send(&out).await?;
                }
                Some(Message::Pong(_)) => {}
                Some(Message::Close(code, why)) => {
                    return Err(format!("the relay closed: {code:?} {why}").into());
                }
                None => self.line.read().await?,
            }
        }
    }
}
