//! Whatever a stranger or a broken peer sends: one session ends, nobody else notices.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use consign_core::id::{Epoch, SegmentId, TransferNo};
use consign_core::wire::{self, Frame, Hello};
use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
};

use crate::site::{RUNTIMES, Site, content, pair};

/// Longer than any answer may take.
const PATIENCE: Duration = Duration::from_secs(40);

/// A certificate chain and its key.
struct Pass {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Pass {
    /// A site's own.
    fn of(site: &Site) -> Pass {
        let pem = std::fs::read(site.dir.join("node.pem")).unwrap();
        let key = std::fs::read(site.dir.join("node.key")).unwrap();
        Pass::from_pem(&pem, &key)
    }

    fn from_pem(chain: &[u8], key: &[u8]) -> Pass {
        Pass {
            chain: CertificateDer::pem_slice_iter(chain).map(Result::unwrap).collect(),
            key: PrivateKeyDer::from_pem_slice(key).unwrap(),
        }
    }

    /// Signed by the authority in `site`'s directory; valid from and to these days from now.
    fn signed(site: &Site, name: &str, days: (i64, i64)) -> Pass {
        let read = |name: &str| std::fs::read_to_string(site.dir.join(name)).unwrap();
        let authority = KeyPair::from_pem(&read("ca.key")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&read("ca.pem"), authority).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        let uri = format!("consign://{name}").try_into().unwrap();
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let at = |days: i64| {
            let seconds = now.as_secs().checked_add_signed(days * 86_400).unwrap();
            date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
        };
        (params.not_before, params.not_after) = (at(days.0), at(days.1));
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Pass::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
    }
}

/// These tests are about the other end: whoever answers is believed.
#[derive(Debug)]
struct Believe(Arc<CryptoProvider>);

impl ServerCertVerifier for Believe {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn tcp(site: &Site) -> TcpStream {
    let stream = TcpStream::connect(site.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn tls(site: &Site, pass: Option<Pass>, alpn: &[u8]) -> Tls {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Believe(provider)));
    let mut config = match pass {
        Some(pass) => config.with_client_auth_cert(pass.chain, pass.key).unwrap(),
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    let name = ServerName::try_from("consign.invalid").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, tcp(site))
}

/// Reads until the other side is done; everything it said. Fails when it says nothing and stays.
fn to_the_end(stream: &mut impl Read) -> Vec<u8> {
    let mut said = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return said,
            Ok(n) => said.extend_from_slice(&piece[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the connection is still open after {PATIENCE:?}")
            }
            Err(_) => return said,
        }
        assert!(said.len() < 1 << 20, "it never stops talking");
    }
}

/// The frames in `bytes`, by their debug text.
fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let Ok(Some((used, frame))) = wire::decode(bytes) {
        found.push(format!("{frame:?}"));
        bytes = &bytes[used..];
    }
    found
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 1).unwrap();
    [&len.to_be_bytes()[..], &[kind], body].concat()
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode(frame, &mut bytes);
    bytes
}

fn hello(name: &str, version: u16) -> Vec<u8> {
    encoded(&Frame::Hello(Hello {
        version,
        name: name.into(),
        epoch: Epoch { boot: 1, session: 1 },
        max_segment: None,
        credit: 1 << 20,
        max_offers: 100,
        features: Vec::new(),
    }))
}

/// A served beta, and an alpha that is not served: its certificate is ours to misuse.
fn target(runtime: &'static str) -> (Site, Site) {
    let (alpha, mut beta) = pair(runtime);
    beta.serve();
    (alpha, beta)
}

/// After all that, an honest peer is served at once, and nothing came of the rest.
fn still_serves(alpha: &mut Site, beta: &Site) {
    assert_eq!(beta.segments().len(), 0);
    assert!(beta.rss_anon() < 64 << 20, "{} bytes of memory", beta.rss_anon());
    alpha.serve();
    let bytes = content(1, 200_000);
    let id = alpha.accepted("honest", &bytes);
    assert!(beta.arrival(&id) == bytes);
}

#[test]
fn strangers_without_tls_get_nowhere() {
    for runtime in RUNTIMES {
        let (mut alpha, beta) = target(runtime);
        let junk: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\nHost: beta\r\n\r\n",
            &[0; 4096],
            &[0xff; 70_000],
            &[0x16, 0x03, 0x01, 0xff, 0xff],
            // A record that promises a ClientHello and breaks off.
            &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03],
        ];
        for bytes in junk {
            let mut stream = tcp(&beta);
            // It may close before it has taken all of this.
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Write);
            to_the_end(&mut stream);
        }
        // Some connect and say nothing at all.
        let silent: Vec<TcpStream> = (0..50).map(|_| tcp(&beta)).collect();
        still_serves(&mut alpha, &beta);
        drop(silent);
    }
}

#[test]
fn a_peer_without_a_certificate_or_protocol_is_refused() {
    for runtime in RUNTIMES {
        let (mut alpha, beta) = target(runtime);
        for (pass, alpn) in [(None, wire::ALPN), (Some(Pass::of(&alpha)), &b"h2"[..])] {
            let mut stream = tls(&beta, pass, alpn);
            let _ = stream.write_all(&hello("alpha", wire::VERSION));
            assert_eq!(frames(&to_the_end(&mut stream)), [""; 0], "it said something");
        }
        still_serves(&mut alpha, &beta);
    }
}

#[test]
fn an_expired_certificate_is_refused() {
    for runtime in RUNTIMES {
        let (mut alpha, beta) = target(runtime);
        for (name, days, good) in [
            ("alpha", (-10, -1), false),
            ("alpha", (1, 10), false),
            ("gamma", (-1, 10), false),
            ("alpha", (-1, 10), true),
        ] {
            let mut stream = tls(&beta, Some(Pass::signed(&alpha, name, days)), wire::ALPN);
            let _ = stream.write_all(&hello(name, wire::VERSION));
            if good {
                // Only so that a refusal means something: this one is answered.
                let mut piece = [0; 16_384];
                let n = stream.read(&mut piece).expect("a HELLO");
                assert!(frames(&piece[..n])[0].starts_with("Hello"));
            } else {
                let said = frames(&to_the_end(&mut stream));
                assert!(!said.iter().any(|f| f.starts_with("Hello")), "{name} {days:?}: {said:?}");
            }
        }
        still_serves(&mut alpha, &beta);
    }
}

/// A session whose HELLOs are exchanged.
fn greeted(alpha: &Site, beta: &Site) -> Tls {
    let mut stream = tls(beta, Some(Pass::of(alpha)), wire::ALPN);
    stream.write_all(&hello("alpha", wire::VERSION)).unwrap();
    hears(&mut stream, "Hello");
    stream
}

/// Reads until a frame of that kind is there.
fn hears(stream: &mut Tls, kind: &str) {
    let mut said = Vec::new();
    let mut piece = [0; 4096];
    while !frames(&said).iter().any(|f| f.starts_with(kind)) {
        let n = stream.read(&mut piece).expect("an answer");
        assert!(n > 0, "it ended: {:?}", frames(&said));
        said.extend_from_slice(&piece[..n]);
    }
}

/// Its last words are a GOODBYE, or it has none.
fn ends(stream: &mut Tls, what: &str) {
    let said = frames(&to_the_end(stream));
    let last = said.last().map(String::as_str).unwrap_or_default();
    assert!(last.is_empty() || last.starts_with("Goodbye"), "{what}: {said:?}");
}

#[test]
fn a_bad_first_frame_ends_the_session() {
    for runtime in RUNTIMES {
        let (mut alpha, beta) = target(runtime);
        let cases: [(&str, Vec<u8>); 10] = [
            ("length 0", vec![0, 0, 0, 0]),
            ("one byte too long", [&131_073u32.to_be_bytes()[..], &[1]].concat()),
            ("four gigabytes", vec![0xff; 5]),
            ("an unknown type", frame(0x7f, b"")),
            ("type 0", frame(0, b"")),
            ("no HELLO", encoded(&Frame::Ping(b"x"))),
            ("a HELLO of nonsense", frame(1, &[0xff; 100])),
            ("a HELLO of nothing", frame(1, b"")),
            ("somebody else's name", hello("gamma", wire::VERSION)),
            ("another version", hello("alpha", 99)),
        ];
        for (what, bytes) in cases {
            let mut stream = tls(&beta, Some(Pass::of(&alpha)), wire::ALPN);
            stream.write_all(&bytes).unwrap();
            ends(&mut stream, what);
        }
        still_serves(&mut alpha, &beta);
    }
}

#[test]
fn a_bad_later_frame_ends_the_session() {
    for runtime in RUNTIMES {
        let (mut alpha, beta) = target(runtime);
        let piece = Frame::Segment { transfer: TransferNo(9), offset: 0, data: b"unasked" };
        let cases: [(&str, Vec<u8>); 5] = [
            ("a second HELLO", hello("alpha", wire::VERSION)),
            ("an unknown type", frame(0x7f, b"")),
            ("an OFFER of nonsense", frame(2, &[0xff; 100])),
            ("content that nobody asked for", encoded(&piece)),
            ("one byte too long", [&131_073u32.to_be_bytes()[..], &[1]].concat()),
        ];
        for (what, bytes) in cases {
            let mut stream = greeted(&alpha, &beta);
            stream.write_all(&bytes).unwrap();
            ends(&mut stream, what);
        }
        still_serves(&mut alpha, &beta);
    }
}

#[test]
fn what_may_be_skipped_is_skipped() {
    for runtime in RUNTIMES {
        let (mut alpha, beta) = target(runtime);
        let id = SegmentId([1; 32]);
        let epoch = Epoch { boot: 77, session: 77 };
        let stale = Frame::Ack { transfer: TransferNo(5), id, epoch };
        let late = Frame::Accept { transfer: TransferNo(7), id, offset: u64::MAX };
        let bytes = [
            frame(0x80, b"from the future"),
            frame(0xff, &[0; 1000]),
            // Answers to offers that were given up, or never made: counted and ignored.
            encoded(&stale),
            encoded(&late),
            encoded(&Frame::Ping(b"still there?")),
        ];
        let mut stream = greeted(&alpha, &beta);
        // Byte by byte: where the pieces are cut does not matter.
        for byte in bytes.concat() {
            stream.write_all(&[byte]).unwrap();
        }
        hears(&mut stream, "Pong");
        // Half a frame, and the end.
        stream.write_all(&[0, 0, 0, 9, 1, 2]).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        to_the_end(&mut stream);
        still_serves(&mut alpha, &beta);
    }
}
