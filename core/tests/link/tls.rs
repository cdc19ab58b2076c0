//! [`TlsConn`] against itself and against rubbish.

use consign_core::sendbuf::SendBuffer;
use consign_core::tls::{HANDSHAKE_HELD_MAX, TlsConn, TlsFault, TlsSetup};
use quickcheck::quickcheck;

use crate::pki::{Ca, two_sites};

struct Ends {
    conns: [TlsConn; 2],
    outs: [SendBuffer; 2],
    plain: [Vec<u8>; 2],
    faults: [Option<TlsFault>; 2],
}

impl Ends {
    fn new(alpha: &TlsSetup, beta: &TlsSetup, name: &str) -> Ends {
        let mut outs = [SendBuffer::new(), SendBuffer::new()];
        let client = TlsConn::client(alpha, name, &mut outs[0]).unwrap();
        let server = TlsConn::server(beta).unwrap();
        let plain = [Vec::new(), Vec::new()];
        Ends { conns: [client, server], outs, plain, faults: [None, None] }
    }

    /// Moves bytes, `chunk` at a time, until nothing moves.
    fn run(&mut self, chunk: usize) {
        let mut moved = true;
        while moved {
            moved = false;
            for from in [0, 1] {
                let to = 1 - from;
                while !self.outs[from].is_empty() {
                    moved = true;
                    let n = self.outs[from].len().min(chunk);
                    let mut data = self.outs[from].pending()[..n].to_vec();
                    self.outs[from].sent(n);
                    if self.faults[to].is_some() {
                        continue;
                    }
                    let plain = &mut self.plain[to];
                    let mut visit = |bytes: &[u8]| plain.extend_from_slice(bytes);
                    let result = self.conns[to].receive(&mut data, &mut self.outs[to], &mut visit);
                    self.faults[to] = result.err();
                }
            }
        }
    }

    /// Opens both sides that are done with their handshake.
    fn open(&mut self) {
        for i in [0, 1] {
            if self.conns[i].is_handshaking() {
                continue;
            }
            self.conns[i].open();
            let plain = &mut self.plain[i];
            let mut visit = |bytes: &[u8]| plain.extend_from_slice(bytes);
            self.faults[i] = self.conns[i].receive(&mut [], &mut self.outs[i], &mut visit).err();
        }
    }
}

#[test]
fn both_sides_learn_who_the_other_is() {
    let (alpha, beta) = two_sites();
    let mut ends = Ends::new(&alpha, &beta, "beta");
    assert!(ends.conns[0].is_handshaking() && ends.conns[1].is_handshaking());
    ends.run(usize::MAX);
    assert_eq!(ends.faults, [None, None]);
    assert_eq!(ends.conns[0].identity().unwrap().name, "beta");
    assert_eq!(ends.conns[1].identity().unwrap().name, "alpha");
}

#[test]
fn any_split_of_the_stream_gives_the_same_bytes() {
    let (alpha, beta) = two_sites();
    for chunk in [1, 2, 3, 5, 7, 100, 4096, 16_406, 20_000, 70_000] {
        let mut ends = Ends::new(&alpha, &beta, "beta");
        ends.run(chunk);
        ends.open();
        let message: Vec<u8> = (0..50_000u32).map(|i| (i % 251) as u8).collect();
        for from in [0, 1] {
            ends.conns[from].send(&message, &mut ends.outs[from]).unwrap();
            ends.conns[from].send(b"tail", &mut ends.outs[from]).unwrap();
        }
        ends.run(chunk);
        for plain in &ends.plain {
            assert_eq!(plain.len(), message.len() + 4, "chunks of {chunk}");
            assert!(plain.starts_with(&message) && plain.ends_with(b"tail"));
        }
        assert_eq!(ends.conns.each_ref().map(TlsConn::held), [0, 0], "chunks of {chunk}");
    }
}

#[test]
fn what_comes_behind_the_handshake_is_kept_until_opened() {
    let (alpha, beta) = two_sites();
    // No tickets: then application data can follow the handshake in one pass of the server.
    let mut config = (*beta.server).clone();
    config.send_tls13_tickets = 0;
    for tickets in [true, false] {
        let beta = match tickets {
            true => beta.clone(),
            false => TlsSetup { server: std::sync::Arc::new(config.clone()), ..beta.clone() },
        };
        let mut ends = Ends::new(&alpha, &beta, "beta");
        // Client hello over, the server's flight back, then the client's last flight and data at once.
        let mut hello = ends.outs[0].pending().to_vec();
        ends.outs[0].sent(hello.len());
        ends.conns[1].receive(&mut hello, &mut ends.outs[1], &mut |_| panic!("early")).unwrap();
        let mut flight = ends.outs[1].pending().to_vec();
        ends.outs[1].sent(flight.len());
        ends.conns[0].receive(&mut flight, &mut ends.outs[0], &mut |_| panic!("early")).unwrap();
        ends.conns[0].open();
        let message = vec![9u8; 40_000];
        ends.conns[0].send(&message, &mut ends.outs[0]).unwrap();
        let mut all = ends.outs[0].pending().to_vec();
        ends.conns[1].receive(&mut all, &mut ends.outs[1], &mut |_| panic!("early")).unwrap();
        assert_eq!(ends.conns[1].identity().unwrap().name, "alpha");
        let mut got = Vec::new();
        ends.conns[1].open();
        let mut visit = |bytes: &[u8]| got.extend_from_slice(bytes);
        ends.conns[1].receive(&mut [], &mut ends.outs[1], &mut visit).unwrap();
        assert_eq!(got, message, "tickets: {tickets}");
    }
}

#[test]
fn close_notify_is_the_end_of_the_data_and_a_bare_end_is_not() {
    let (alpha, beta) = two_sites();
    let mut ends = Ends::new(&alpha, &beta, "beta");
    assert_eq!(ends.conns[1].eof(), Err(TlsFault::Unfinished));
    ends.run(usize::MAX);
    ends.open();
    assert_eq!(ends.conns[1].eof(), Err(TlsFault::Truncated));
    ends.conns[0].send(b"last words", &mut ends.outs[0]).unwrap();
    ends.conns[0].close(&mut ends.outs[0]).unwrap();
    ends.conns[0].close(&mut ends.outs[0]).unwrap();
    ends.run(3);
    assert_eq!(ends.plain[1], b"last words");
    assert!(ends.conns[1].peer_closed());
    assert_eq!(ends.conns[1].eof(), Ok(()));
    // The other direction is still open.
    assert_eq!(ends.conns[0].eof(), Err(TlsFault::Truncated));
    ends.conns[1].send(b"and mine", &mut ends.outs[1]).unwrap();
    ends.conns[1].close(&mut ends.outs[1]).unwrap();
    ends.run(3);
    assert_eq!(ends.plain[0], b"and mine");
    assert_eq!(ends.conns[0].eof(), Ok(()));
    assert_eq!(ends.faults, [None, None]);
}

#[test]
fn bytes_behind_close_notify_are_dropped() {
    let (alpha, beta) = two_sites();
    let mut ends = Ends::new(&alpha, &beta, "beta");
    ends.run(usize::MAX);
    ends.open();
    ends.conns[0].close(&mut ends.outs[0]).unwrap();
    ends.outs[0].append(&[0x17, 3, 3, 0xff, 0xff, 1, 2, 3]);
    ends.outs[0].append(&vec![0xaa; 100_000]);
    ends.run(1000);
    assert_eq!(ends.faults, [None, None]);
    assert!(ends.conns[1].peer_closed());
    assert_eq!(ends.conns[1].held(), 0);
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let ca = Ca::new();
    let beta = ca.setup(&ca.site("beta"));
    let mut alpha = ca.setup(&ca.site("alpha"));
    alpha.client = std::sync::Arc::new(ca.client(None, &[b"consign/1"]));
    let mut ends = Ends::new(&alpha, &beta, "beta");
    ends.run(usize::MAX);
    ends.open();
    assert_eq!(ends.faults[1], Some(TlsFault::NoCertificate));
    assert!(matches!(ends.faults[0], Some(TlsFault::Alert(_))), "{:?}", ends.faults);
}

#[test]
fn certificates_of_another_authority_are_refused_on_either_side() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let beta = ours.setup(&ours.site("beta"));
    // The client shows a foreign certificate, but trusts ours.
    let mut alpha = ours.setup(&ours.site("alpha"));
    let stranger = theirs.site("alpha");
    alpha.client = std::sync::Arc::new(ours.client(Some(&stranger), &[b"consign/1"]));
    let mut ends = Ends::new(&alpha, &beta, "beta");
    ends.run(usize::MAX);
    ends.open();
    assert!(matches!(ends.faults[1], Some(TlsFault::Certificate(_))), "{:?}", ends.faults);
    assert!(matches!(ends.faults[0], Some(TlsFault::Alert(_))), "{:?}", ends.faults);
    // The client trusts somebody else.
    let alpha = theirs.setup(&theirs.site("alpha"));
    let mut ends = Ends::new(&alpha, &beta, "beta");
    ends.run(usize::MAX);
    assert!(matches!(ends.faults[0], Some(TlsFault::Certificate(_))), "{:?}", ends.faults);
    assert!(matches!(ends.faults[1], Some(TlsFault::Alert(_))), "{:?}", ends.faults);
    // The certificate is for another name.
    let alpha = ours.setup(&ours.site("alpha"));
    let mut ends = Ends::new(&alpha, &beta, "gamma");
    ends.run(usize::MAX);
    assert!(matches!(ends.faults[0], Some(TlsFault::Certificate(_))), "{:?}", ends.faults);
}

#[test]
fn the_protocol_must_be_agreed() {
    let ca = Ca::new();
    let site = ca.site("alpha");
    let beta = ca.setup(&ca.site("beta"));
    let mut alpha = ca.setup(&site);
    for (alpn, alert) in [(&[][..], false), (&[&b"h2"[..]][..], true)] {
        alpha.client = std::sync::Arc::new(ca.client(Some(&site), alpn));
        let mut ends = Ends::new(&alpha, &beta, "beta");
        ends.run(usize::MAX);
        assert_eq!(ends.faults[1], Some(TlsFault::Alpn));
        let other = ends.faults[0].clone();
        assert_eq!(alert, matches!(other, Some(TlsFault::Alert(_))), "{other:?}");
        assert!(alert || other == Some(TlsFault::Alpn), "{other:?}");
    }
}

#[test]
fn identify_has_the_last_word() {
    let ca = Ca::new();
    let alpha = ca.setup(&ca.site("alpha"));
    let mut beta = ca.setup(&ca.site("beta"));
    beta.identify = std::sync::Arc::new(|_| Err("nobody here knows alpha".to_string()));
    let mut ends = Ends::new(&alpha, &beta, "beta");
    ends.run(usize::MAX);
    assert_eq!(ends.faults[1], Some(TlsFault::Unwelcome("nobody here knows alpha".to_string())));
    assert!(ends.conns[1].identity().is_none());
    // The other side is told by close_notify, before any data.
    assert_eq!(ends.faults[0], None);
    ends.conns[0].open();
    let mut rest = ends.outs[1].pending().to_vec();
    ends.conns[0].receive(&mut rest, &mut SendBuffer::new(), &mut |_| panic!("data")).unwrap();
    assert!(ends.conns[0].peer_closed());
}

#[test]
fn names_that_dns_does_not_know_can_be_dialled() {
    let (alpha, beta) = two_sites();
    for name in ["site..x", "a_b", "10.0.0.1", &"x".repeat(128)] {
        let mut ends = Ends::new(&alpha, &beta, name);
        ends.run(usize::MAX);
        // The verifier of this set-up insists on the name.
        assert!(matches!(ends.faults[0], Some(TlsFault::Certificate(_))), "{:?}", ends.faults);
    }
}

#[test]
fn a_large_unfinished_message_is_refused() {
    let (_, beta) = two_sites();
    let mut server = TlsConn::server(&beta).unwrap();
    let mut out = SendBuffer::new();
    // A client hello that claims 65,000 bytes, in records of 16,000.
    let mut stream = Vec::new();
    let mut body = vec![1, 0, 0xfd, 0xe8];
    body.resize(64_000, 0);
    for part in body.chunks(16_000) {
        stream.extend([0x16, 3, 3, 0x3e, 0x80]);
        stream.extend(part);
    }
    let mut fault = None;
    for piece in stream.chunks_mut(1_000) {
        // Goes on after the fault: it stays what it was.
        let result = server.receive(piece, &mut out, &mut |_| panic!("data"));
        assert!(fault.is_none() || result.is_err());
        fault = result.err();
        assert!(server.held() <= HANDSHAKE_HELD_MAX + 1_000);
    }
    assert!(matches!(fault, Some(TlsFault::Oversized { .. })), "{fault:?}");
}

#[test]
fn an_alert_inside_the_handshake_ends_it() {
    let (alpha, beta) = two_sites();
    let hello = {
        let ends = Ends::new(&alpha, &beta, "beta");
        ends.outs[0].pending().to_vec()
    };
    for level in [1, 2] {
        let mut server = TlsConn::server(&beta).unwrap();
        let mut out = SendBuffer::new();
        server.receive(&mut hello.clone(), &mut out, &mut |_| panic!("data")).unwrap();
        let mut alert = vec![0x15, 3, 3, 0, 2, level, 0];
        let fault = server.receive(&mut alert, &mut out, &mut |_| panic!("data"));
        assert!(fault.is_err() || server.is_handshaking(), "{fault:?}");
        assert!(server.eof().is_err());
    }
}

quickcheck! {
    fn rubbish_ends_in_a_fault_or_waits(bytes: Vec<u8>, split: usize) -> bool {
        let (_, beta) = two_sites();
        let mut server = TlsConn::server(&beta).unwrap();
        let mut out = SendBuffer::new();
        let mut bytes = bytes;
        let mut fault = false;
        for piece in bytes.chunks_mut(split % 7 + 1) {
            fault = fault || server.receive(piece, &mut out, &mut |_| panic!("data")).is_err();
        }
        server.is_handshaking() && server.held() <= HANDSHAKE_HELD_MAX
    }

    fn a_flipped_bit_is_noticed(position: usize, bit: u8) -> bool {
        let (alpha, beta) = two_sites();
        let mut ends = Ends::new(&alpha, &beta, "beta");
        ends.run(usize::MAX);
        ends.open();
        ends.run(usize::MAX);
        ends.conns[0].send(&[5; 300], &mut ends.outs[0]).unwrap();
        let mut data = ends.outs[0].pending().to_vec();
        let at = position % data.len();
        data[at] ^= 1 << (bit % 8);
        let plain = &mut ends.plain[1];
        let mut visit = |bytes: &[u8]| plain.extend_from_slice(bytes);
        let result = ends.conns[1].receive(&mut data, &mut ends.outs[1], &mut visit);
        // A longer length only waits for more; type and version of a record are not protected.
        result.is_err() || ends.plain[1].is_empty() || (at < 3 && ends.plain[1] == [5; 300])
    }
}
