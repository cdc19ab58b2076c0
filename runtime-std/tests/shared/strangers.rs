//! Whoever is not a peer, in every way, ends soon and disturbs nobody.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use consign_core::link::Timeouts;
use consign_core::tls::TlsConn;
use rustls::{ClientConnection, StreamOwned};

use crate::shared::pki::Ca;
use crate::shared::support::{Beta, Setting, client, read_to_end, round_trip};

/// A setting in which silence ends soon.
fn impatient() -> Setting {
    let timeouts = Timeouts {
        handshake: Duration::from_millis(50),
        linger: Duration::from_millis(50),
        ..Timeouts::default()
    };
    Setting { timeouts, ..Setting::default() }
}

/// A ClientHello as a peer would send it.
fn hello(ca: &Ca) -> Vec<u8> {
    let mut out = consign_core::sendbuf::SendBuffer::new();
    TlsConn::client(&ca.setup(&ca.site("alpha")), "beta", &mut out).unwrap();
    out.pending().to_vec()
}

/// The error that a client's first exchange ends with.
fn refused(mut tls: StreamOwned<ClientConnection, std::net::TcpStream>) -> String {
    let written = tls.write_all(b"hello").and_then(|()| tls.flush());
    let read = tls.read(&mut [0; 16]);
    match (written, read) {
        (Err(error), _) | (_, Err(error)) => error.to_string(),
        (Ok(()), Ok(n)) => format!("{n} bytes"),
    }
}

#[test]
fn rubbish_gets_an_alert_and_an_end() {
    let beta = Beta::start(Setting::default());
    let mut raw = beta.raw();
    raw.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let (answer, _) = read_to_end(&mut raw);
    assert_eq!(answer.first(), Some(&0x15), "{answer:?}");
    assert!(beta.notes.unwelcome().starts_with("tls: "));
    round_trip(&mut beta.client("alpha"), b"still here");
}

#[test]
fn silence_and_any_prefix_of_a_handshake_end() {
    let beta = Beta::start(impatient());
    let hello = hello(&beta.ca);
    let mut waiting: Vec<_> = (0..hello.len())
        .step_by(hello.len() / 12)
        .map(|n| {
            let mut raw = beta.raw();
            raw.write_all(&hello[..n]).unwrap();
            raw
        })
        .collect();
    for raw in &mut waiting {
        let (answer, _) = read_to_end(raw);
        assert_eq!(answer, [0u8; 0], "nothing is said before a whole ClientHello");
    }
    assert_eq!(beta.notes.unwelcome(), "no tls handshake within 50ms");
    // Hello, and then an alert: fatal, or close_notify.
    for (level, what) in [(2, 40), (1, 0)] {
        let mut raw = beta.raw();
        raw.write_all(&hello).unwrap();
        raw.write_all(&[0x15, 3, 3, 0, 2, level, what]).unwrap();
        read_to_end(&mut raw).1.unwrap();
    }
    assert!(beta.store.ended.lock().unwrap().is_empty(), "none of them got a session");
}

#[test]
fn more_silent_strangers_than_there_is_room_for_keep_nobody_out() {
    let beta = Beta::start(Setting { max_connections: 8, ..impatient() });
    let silent: Vec<_> = (0..20).map(|_| beta.raw()).collect();
    // Local clients have room of their own.
    round_trip(&mut beta.plain(), b"status");
    // A peer has to come again if it was slow itself.
    let mut back = [0; 7];
    beta.settle(|| {
        let mut alpha = beta.client("alpha");
        let sent = alpha.write_all(b"in turn").and_then(|()| alpha.flush());
        sent.and_then(|()| alpha.read_exact(&mut back)).is_ok()
    });
    assert_eq!(&back, b"in turn");
    drop(silent);
}

#[test]
fn peers_without_the_right_papers_are_refused() {
    let beta = Beta::start(Setting::default());
    let alpn: &[&[u8]] = &[b"consign/1"];
    let why = refused(client(beta.peers, &beta.ca, None, alpn));
    assert!(why.contains("CertificateRequired"), "{why}");
    let other = Ca::new();
    let why = refused(client(beta.peers, &beta.ca, Some(&other.site("alpha")), alpn));
    assert!(why.contains("received fatal alert"), "{why}");
    let why = refused(client(beta.peers, &other, Some(&beta.ca.site("alpha")), alpn));
    assert!(why.contains("invalid peer certificate"), "{why}");
    let site = beta.ca.site("alpha");
    let why = refused(client(beta.peers, &beta.ca, Some(&site), &[b"http/1.1"]));
    assert!(why.contains("NoApplicationProtocol"), "{why}");
    // Without any ALPN the handshake succeeds and is ended by close_notify before any data.
    assert_eq!(refused(client(beta.peers, &beta.ca, Some(&site), &[])), "0 bytes");
    // A good certificate of somebody unknown: the session is closed by the node.
    let stranger = client(beta.peers, &beta.ca, Some(&beta.ca.site("omega")), alpn);
    let mut stranger = stranger;
    stranger.write_all(b"hello").unwrap();
    read_to_end(&mut stranger).1.unwrap();
    let unknown = beta.notes.wait(|note| match note {
        consign_core::node::Note::Unwelcome { name, why } if name == "omega" => Some(why.clone()),
        _ => None,
    });
    assert!(unknown.contains("omega is not among"), "{unknown}");
}

#[test]
fn tls_1_2_is_not_spoken() {
    let beta = Beta::start(impatient());
    // A ClientHello without supported_versions: version 1.2, one suite, no extensions.
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    let mut record = vec![0x16, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    record.extend(body);
    let mut raw = beta.raw();
    raw.write_all(&record).unwrap();
    let (answer, _) = read_to_end(&mut raw);
    assert_eq!((answer.first(), answer.len()), (Some(&0x15), 7), "{answer:?}");
}

#[test]
fn a_panicking_session_takes_nobody_with_it() {
    let session: consign_core::driver::MakeSession = Arc::new(|info| match &info.identity {
        Some(peer) if peer.name == "gamma" => Box::new(Panicking),
        _ => crate::shared::sessions::Echo::new(),
    });
    let beta = Beta::start(Setting { session, ..Setting::default() });
    let mut alpha = beta.client("alpha");
    round_trip(&mut alpha, b"before");
    let mut gamma = beta.client("gamma");
    gamma.write_all(b"boom").unwrap();
    assert!(read_to_end(&mut gamma).1.is_err());
    round_trip(&mut alpha, b"after");
    assert_eq!(beta.store.ended.lock().unwrap().len(), 1);
}

struct Panicking;

impl consign_core::session::Session for Panicking {
    fn step(
        &mut self,
        _: consign_core::time::Now,
        input: consign_core::session::SessionInput<'_>,
        _: &mut consign_core::session::SessionOut,
    ) {
        let bytes = matches!(input, consign_core::session::SessionInput::Bytes(_));
        assert!(!bytes, "a planted panic");
    }
    fn next_deadline(&self) -> Option<consign_core::time::Instant> {
        None
    }
    fn wants_read(&self) -> bool {
        true
    }
}
