//! [`Link`] with small sessions on both sides.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::code::Goodbye;
use consign_core::id::BlobNo;
use consign_core::link::{End, Link, LinkFault, OUTPUT_TARGET, REPLIES_MAX, Timeouts};
use consign_core::session::{Session, SessionCommand, SessionEvent, SessionInput, SessionOut};
use consign_core::store::StoreEvent;
use consign_core::time::{Instant, Now};
use consign_core::tls::TlsFault;

use crate::pair::{Pair, at};
use crate::pki::{Ca, two_sites};
use crate::sessions::{Echo, Source, Watch};

fn close() -> SessionCommand {
    SessionCommand::Close { why: Goodbye::Stopping, text: String::new() }
}

/// Whatever follows must hold with and without TLS.
fn pairs() -> [Pair; 2] {
    let (alpha, beta) = two_sites();
    let plain = || Link::plain(Timeouts::default());
    [Pair::new([plain(), plain()]), Pair::tls(&alpha, &beta)]
}

#[test]
fn a_stream_comes_back_whole_in_any_pieces() {
    for chunk in [17, 1_000, 16_384, 300_000] {
        for mut pair in pairs() {
            let length = if chunk < 100 { 40_000 } else { 3_000_000 };
            let seen = Watch::default();
            pair.chunk = chunk;
            pair.attach([Box::new(Source::new(length, length, &seen)), Echo::new()]);
            pair.run();
            let seen = seen.lock().unwrap();
            assert_eq!((seen.received, seen.wrong, seen.opened), (length, 0, 1));
            // The source closed; the echo saw the end and closed too; nobody needed a deadline.
            for link in &pair.sides {
                assert_eq!(link.end(), Some(&End::Orderly));
                assert!(link.is_over(), "{link:?}");
            }
        }
    }
}

#[test]
fn both_directions_at_once() {
    for mut pair in pairs() {
        let watches = [Watch::default(), Watch::default()];
        let sessions = watches.each_ref().map(|seen| {
            Box::new(Source::new(2_000_000, 0, seen)) as Box<dyn consign_core::session::Session>
        });
        pair.attach(sessions);
        pair.run();
        for seen in &watches {
            let seen = seen.lock().unwrap();
            assert_eq!((seen.received, seen.wrong), (2_000_000, 0));
        }
    }
}

#[test]
fn output_is_asked_for_within_the_target() {
    for mut pair in pairs() {
        let seen = Watch::default();
        pair.attach([Box::new(Source::new(u64::MAX, 0, &seen)), Echo::new()]);
        let link = &mut pair.sides[0];
        assert!(link.fill(at(0)));
        assert!(!link.fill(at(0)), "full");
        assert_eq!(seen.lock().unwrap().sent, OUTPUT_TARGET as u64);
        let pending = link.pending().len();
        assert!(pending < OUTPUT_TARGET + OUTPUT_TARGET / 100 + 1_000, "{pending}");
        link.sent(pending);
        assert!(link.fill(at(0)));
    }
}

#[test]
fn a_peer_that_never_reads_its_answers_is_not_read_from() {
    for mut pair in pairs() {
        let flood = Watch::default();
        pair.attach([Box::new(Source::new(u64::MAX, 0, &flood)), Echo::new()]);
        let mut rounds = 0;
        while pair.sides[1].wants_read() {
            let [a, b] = &mut pair.sides;
            a.fill(at(0));
            let mut data = a.pending()[..a.pending().len().min(60_000)].to_vec();
            a.sent(data.len());
            b.received(at(0), &mut data);
            b.fill(at(0));
            rounds += 1;
            assert!(rounds < 10_000);
        }
        let pending = pair.sides[1].pending().len();
        assert!(pending < OUTPUT_TARGET + REPLIES_MAX + 100_000, "{pending} B wait");
    }
}

#[test]
fn commands_store_events_and_deadlines_reach_the_session() {
    for mut pair in pairs() {
        let seen = Watch::default();
        let mut source = Source::new(0, 0, &seen);
        source.deadline = Some(Instant(5_000_000_000));
        source.event = Some(SessionEvent::Wants);
        pair.attach([Box::new(source), Echo::new()]);
        pair.run();
        let link = &mut pair.sides[0];
        assert_eq!(link.out().events, [SessionEvent::Wants]);
        assert_eq!(link.next_deadline(), Some(Instant(5_000_000_000)));
        link.timer(at(4_999));
        assert_eq!(seen.lock().unwrap().timers, 0);
        link.timer(at(5_000));
        assert_eq!(seen.lock().unwrap().timers, 1);
        assert_eq!(link.next_deadline(), None);
        link.store_event(at(5_000), StoreEvent::Written { blob: BlobNo(1), bytes: 1 });
        assert_eq!(seen.lock().unwrap().store_events, 1);
        link.command(at(5_000), close());
        assert_eq!(link.end(), Some(&End::Orderly));
        // What comes later finds no session.
        link.command(at(5_000), close());
        link.store_event(at(5_000), StoreEvent::Written { blob: BlobNo(1), bytes: 1 });
        let seen = seen.lock().unwrap();
        assert_eq!((seen.commands, seen.store_events, seen.dropped), (1, 1, true));
    }
}

#[test]
fn what_a_session_said_before_it_closed_arrives() {
    for mut pair in pairs() {
        let (said, heard) = (Watch::default(), Watch::default());
        pair.attach([
            Box::new(Source::new(200_000, 0, &said)),
            Box::new(Source::new(0, 0, &heard)),
        ]);
        pair.sides[0].fill(at(0));
        pair.sides[0].command(at(0), close());
        pair.run();
        let heard = heard.lock().unwrap();
        assert_eq!((heard.received, heard.wrong, heard.eofs), (200_000, 0, 1));
    }
}

#[test]
fn a_closed_link_waits_for_the_other_side_but_not_for_ever() {
    for mut pair in pairs() {
        let (one, two) = (Watch::default(), Watch::default());
        pair.attach([Box::new(Source::new(0, 0, &one)), Box::new(Source::new(0, 0, &two))]);
        pair.run();
        pair.sides[0].command(at(0), close());
        pair.run();
        assert!(!pair.sides[0].is_over(), "the other side is still open");
        assert_eq!(pair.sides[0].next_deadline(), Some(Instant(2_000_000_000)));
        pair.wait(Duration::from_millis(1_999));
        assert!(!pair.sides[0].is_over());
        pair.wait(Duration::from_millis(1));
        assert!(pair.sides[0].is_over());
        assert_eq!(two.lock().unwrap().eofs, 1);
    }
}

#[test]
fn output_that_nobody_takes_is_given_up() {
    for mut pair in pairs() {
        let seen = Watch::default();
        pair.attach([Box::new(Source::new(1_000, 0, &seen)), Echo::new()]);
        let link = &mut pair.sides[0];
        link.fill(at(0));
        link.command(at(0), close());
        assert!(!link.wants_shutdown(), "there is output");
        assert_eq!(link.next_deadline(), Some(Instant(30_000_000_000)));
        link.timer(at(30_000));
        assert!(link.is_over());
        assert_eq!(link.end(), Some(&End::Orderly));
    }
}

/// Says something, and breaks it off when it is told to.
struct Breaker;

impl Session for Breaker {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        match input {
            SessionInput::Room(_) => out.bytes.extend([7; 10]),
            SessionInput::Command(_) => (out.close, out.cut) = (true, true),
            _ => {}
        }
    }
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    fn wants_read(&self) -> bool {
        true
    }
}

#[test]
fn what_is_broken_off_is_not_flushed() {
    for mut pair in pairs() {
        pair.attach([Box::new(Breaker), Echo::new()]);
        let link = &mut pair.sides[0];
        link.fill(at(0));
        link.command(at(0), close());
        assert!(link.is_over(), "nobody waits for the socket to take the rest");
        assert_eq!(link.end(), Some(&End::Orderly));
    }
}

/// Ends when its deadline comes before the socket has taken what it said.
struct Hurried {
    said: bool,
    handed: Arc<Mutex<u64>>,
}

impl Session for Hurried {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        match input {
            SessionInput::Room(_) if !self.said => {
                self.said = true;
                out.bytes.extend([7; 10]);
            }
            SessionInput::Handed(bytes) => *self.handed.lock().unwrap() = bytes,
            SessionInput::Timer => assert_eq!(*self.handed.lock().unwrap(), 10),
            _ => {}
        }
    }
    fn next_deadline(&self) -> Option<Instant> {
        let handed = *self.handed.lock().unwrap();
        (handed == 0).then_some(Instant(1))
    }
    fn wants_read(&self) -> bool {
        true
    }
}

#[test]
fn what_the_socket_has_taken_is_told_before_a_deadline() {
    for mut pair in pairs() {
        let handed = Arc::new(Mutex::new(0));
        pair.attach([Box::new(Hurried { said: false, handed: handed.clone() }), Echo::new()]);
        let link = &mut pair.sides[0];
        link.fill(at(0));
        link.sent(link.pending().len());
        link.timer(at(1_000));
        assert_eq!(*handed.lock().unwrap(), 10);
    }
}

#[test]
fn a_bare_end_of_stream_is_not_the_end_of_the_data() {
    for (i, mut pair) in pairs().into_iter().enumerate() {
        let seen = Watch::default();
        pair.attach([Box::new(Source::new(0, 0, &seen)), Echo::new()]);
        pair.run();
        let link = &mut pair.sides[0];
        link.eof(at(0));
        let seen = seen.lock().unwrap();
        if i == 0 {
            // Without TLS there is nothing better.
            assert_eq!((seen.eofs, link.end()), (1, None));
            assert!(!link.wants_read());
        } else {
            assert_eq!((seen.eofs, seen.dropped), (0, true));
            assert_eq!(link.end(), Some(&End::Fault(LinkFault::Tls(TlsFault::Truncated))));
            assert!(link.is_over());
        }
    }
}

#[test]
fn a_silent_handshake_ends() {
    let (alpha, beta) = two_sites();
    let timeouts = Timeouts { handshake: Duration::from_millis(300), ..Timeouts::default() };
    let sides =
        [Link::client(&alpha, "beta", at(0), timeouts), Link::server(&beta, at(0), timeouts)];
    for mut link in sides {
        assert!(link.wants_read());
        assert_eq!(link.next_deadline(), Some(Instant(300_000_000)));
        link.timer(at(299));
        assert!(!link.is_over());
        link.timer(at(300));
        assert!(link.is_over());
        let slow = LinkFault::Slow(Duration::from_millis(300));
        assert_eq!(link.end(), Some(&End::Fault(slow)));
    }
}

#[test]
fn any_prefix_of_a_handshake_followed_by_an_end_ends_it() {
    let (alpha, beta) = two_sites();
    let hello = Link::client(&alpha, "beta", at(0), Timeouts::default()).pending().to_vec();
    for n in 0..=hello.len() {
        let mut link = Link::server(&beta, at(0), Timeouts::default());
        link.received(at(0), &mut hello[..n].to_vec());
        link.fill(at(0));
        assert_eq!(link.end(), None, "{n} bytes");
        link.eof(at(0));
        assert!(link.is_over());
        assert_eq!(link.end(), Some(&End::Fault(LinkFault::Tls(TlsFault::Unfinished))));
    }
}

#[test]
fn rubbish_is_answered_by_an_alert_and_a_short_linger() {
    let (_, beta) = two_sites();
    let mut link = Link::server(&beta, at(0), Timeouts::default());
    link.received(at(0), &mut b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec());
    assert!(matches!(link.end(), Some(End::Fault(LinkFault::Tls(_)))), "{link:?}");
    assert_eq!(link.pending().first(), Some(&0x15), "an alert record");
    assert!(link.wants_read(), "what else comes is drained");
    link.received(at(0), &mut [0x16; 100_000]);
    link.sent(link.pending().len());
    assert!(link.wants_shutdown());
    link.shut(at(1));
    assert_eq!(link.next_deadline(), Some(Instant(2_001_000_000)));
    link.eof(at(2));
    assert!(link.is_over());
}

#[test]
fn a_refused_peer_hears_close_notify_and_its_data_is_not_looked_at() {
    let ca = Ca::new();
    let (alpha, beta) = (ca.setup(&ca.site("alpha")), ca.setup(&ca.site("beta")));
    let mut pair = Pair::tls(&alpha, &beta);
    pair.run();
    let seen = Watch::default();
    pair.sides[0].attach(at(0), Box::new(Source::new(50_000, 0, &seen)));
    // The other side's data is there before the word is spoken.
    pair.sides[0].fill(at(0));
    let mut data = pair.sides[0].pending().to_vec();
    pair.sides[0].sent(data.len());
    pair.sides[1].received(at(0), &mut data);
    pair.sides[1].refuse(at(0), "not today".to_string());
    pair.run();
    let refused = LinkFault::Refused("not today".to_string());
    assert_eq!(pair.sides[1].end(), Some(&End::Fault(refused)));
    assert_eq!(seen.lock().unwrap().eofs, 1);
}

#[test]
fn an_idle_link_holds_no_buffers() {
    for mut pair in pairs() {
        let seen = Watch::default();
        pair.attach([Box::new(Source::new(300_000, 0, &seen)), Echo::new()]);
        pair.run();
        for link in &mut pair.sides {
            link.rest();
            assert!(link.pending().is_empty());
            let out = link.out();
            let held = out.bytes.capacity() + out.events.capacity() + out.requests.capacity();
            assert_eq!(held + out.content.capacity(), 0);
        }
    }
}

#[test]
fn a_broken_socket_ends_it_at_once() {
    for mut pair in pairs() {
        let seen = Watch::default();
        pair.attach([Box::new(Source::new(1_000, 0, &seen)), Echo::new()]);
        pair.sides[0].broken("connection reset".to_string());
        assert!(pair.sides[0].is_over() && seen.lock().unwrap().dropped);
        pair.sides[0].timer(at(1));
        pair.sides[0].eof(at(1));
        pair.sides[0].received(at(1), &mut [1, 2, 3]);
        assert!(!pair.sides[0].fill(at(1)) || pair.sides[0].is_over());
        let fault = LinkFault::Socket("connection reset".to_string());
        assert_eq!(pair.sides[0].end(), Some(&End::Fault(fault)));
    }
}

#[test]
fn a_stop_says_goodbye_on_open_links_and_ends_the_others() {
    let (alpha, beta) = two_sites();
    let mut pair = Pair::tls(&alpha, &beta);
    pair.sides[1].stop(at(0));
    assert!(pair.sides[1].is_over());
    for mut pair in pairs() {
        let seen = Watch::default();
        pair.attach([Box::new(Source::new(0, 0, &seen)), Echo::new()]);
        pair.sides[0].stop(at(0));
        pair.run();
        assert_eq!(seen.lock().unwrap().commands, 1);
        assert!(pair.sides[0].is_over() && pair.sides[0].end() == Some(&End::Orderly));
        pair.sides[0].stop(at(1));
    }
}
