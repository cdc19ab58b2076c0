//! Streams of bytes through a runtime: TLS, loopback and Unix sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use consign_core::driver::MakeSession;
use consign_core::session::ConnInfo;

use crate::shared::sessions::{Echo, Source, Watch, pattern};
use crate::shared::support::{Beta, PATIENCE, Setting, read_to_end, round_trip};

#[test]
fn a_peer_and_local_clients_are_served_alike() {
    let infos: Arc<Mutex<Vec<ConnInfo>>> = Arc::default();
    let seen = infos.clone();
    let session: MakeSession = Arc::new(move |info| {
        seen.lock().unwrap().push(info.clone());
        Echo::new()
    });
    let setting =
        Setting { session: session.clone(), local_session: session, ..Setting::default() };
    let beta = Beta::start(setting);
    round_trip(&mut beta.client("alpha"), b"over tls");
    round_trip(&mut beta.plain(), b"over loopback");
    let mut unix = UnixStream::connect(&beta.unix).unwrap();
    unix.set_read_timeout(Some(PATIENCE)).unwrap();
    round_trip(&mut unix, b"over a unix socket");
    let infos = infos.lock().unwrap();
    assert_eq!(infos[0].identity.as_ref().unwrap().name, "alpha");
    assert_eq!((infos[0].uid, infos[1].uid), (None, None));
    assert_eq!(infos[2].uid, Some(rustix::process::getuid().as_raw()));
    assert!(infos[1].identity.is_none() && infos[1].remote.starts_with("127.0.0.1:"));
}

/// 8 MiB both ways at once: neither side may wait for the other to read first.
#[test]
fn a_big_stream_comes_back_whole() {
    let beta = Beta::start(Setting::default());
    let bytes: Vec<u8> = (0..8u64 << 20).map(pattern).collect();
    let mut plain = beta.plain();
    let mut reader = plain.try_clone().unwrap();
    let expected = bytes.clone();
    let reading = std::thread::spawn(move || {
        let (back, end) = read_to_end(&mut reader);
        end.unwrap();
        assert!(back == expected);
    });
    plain.write_all(&bytes).unwrap();
    plain.shutdown(Shutdown::Write).unwrap();
    reading.join().unwrap();
    // Over TLS, in pieces, for this client cannot do both at a time.
    let mut tls = beta.client("alpha");
    for piece in bytes.chunks(200_000) {
        round_trip(&mut tls, piece);
    }
}

#[test]
fn a_stream_out_is_whole_and_ends_with_close_notify() {
    let watch = Watch::default();
    let seen = watch.clone();
    let session: MakeSession = Arc::new(move |_| {
        let mut source = Source::new(20_000_000, 1, &seen);
        source.keep = true;
        Box::new(source)
    });
    let beta = Beta::start(Setting { session, ..Setting::default() });
    let mut tls = beta.client("alpha");
    let mut total = 0u64;
    let mut buffer = vec![0; 100_000];
    while total < 20_000_000 {
        let n = tls.read(&mut buffer).unwrap();
        assert!(n > 0, "ended after {total}");
        let right = buffer[..n].iter().enumerate().all(|(i, b)| *b == pattern(total + i as u64));
        assert!(right, "wrong bytes after {total}");
        total += n as u64;
    }
    // The first byte makes the source close: a clean end for rustls is close_notify.
    tls.write_all(b"x").unwrap();
    assert_eq!(tls.read(&mut buffer).unwrap(), 0);
    assert_eq!(watch.lock().unwrap().bytes, b"x");
}

#[test]
fn the_peers_close_notify_ends_the_data_but_not_the_answer() {
    let beta = Beta::start(Setting::default());
    let mut tls = beta.client("alpha");
    tls.write_all(b"the last thing").unwrap();
    tls.conn.send_close_notify();
    tls.flush().unwrap();
    tls.sock.shutdown(Shutdown::Write).unwrap();
    let (back, end) = read_to_end(&mut tls);
    end.unwrap();
    assert_eq!(back, b"the last thing");
}

#[test]
fn an_end_without_close_notify_is_a_cut() {
    let beta = Beta::start(Setting::default());
    let mut tls = beta.client("alpha");
    round_trip(&mut tls, b"hello");
    tls.sock.shutdown(Shutdown::Write).unwrap();
    // The session is not told that the data ended, so nothing is closed in order.
    let (_, end) = read_to_end(&mut tls);
    let kind = end.unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{kind}");
    drop(tls);
    // The site goes on.
    round_trip(&mut beta.client("alpha"), b"again");
}

#[test]
fn bytes_one_by_one_are_the_same_bytes() {
    let beta = Beta::start(Setting::default());
    let mut tls = beta.client("alpha");
    round_trip(&mut tls, b"handshake");
    // The record is written a byte at a time.
    let mut record = Vec::new();
    tls.conn.writer().write_all(b"slowly").unwrap();
    tls.conn.write_tls(&mut record).unwrap();
    tls.sock.set_nodelay(true).unwrap();
    for byte in &record {
        tls.sock.write_all(&[*byte]).unwrap();
    }
    let mut back = [0; 6];
    tls.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"slowly");
}
