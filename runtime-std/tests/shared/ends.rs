//! Dialling, and how a run ends.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::driver::{Ended, MakeSession};
use consign_core::id::TransferNo;
use consign_core::link::Timeouts;
use consign_core::node::{Answer, Note, Question};
use consign_core::session::{Session, SessionCommand, SessionEvent, SessionInput, SessionOut};
use consign_core::time::{Instant, Now};
use rustls::{ServerConnection, StreamOwned};

use crate::shared::pki::Ca;
use crate::shared::sessions::Echo;
use crate::shared::support::{
    Beta, PATIENCE, Setting, client, listen, parts, read_to_end, round_trip,
};

#[test]
fn a_known_peer_is_dialled() {
    let (ca, listener) = (Arc::new(Ca::new()), listen());
    let server = Arc::new(ca.server(&ca.site("alpha"), &[b"consign/1"]));
    let dials = listener.local_addr().unwrap().to_string();
    let (tell, told) = mpsc::channel();
    let session: MakeSession = Arc::new(move |info| {
        tell.send(info.clone()).unwrap();
        Echo::new()
    });
    let setting = Setting { ca, session, dials: dials.clone(), ..Setting::default() };
    let _beta = Beta::start(setting);
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut tls = StreamOwned::new(ServerConnection::new(server).unwrap(), stream);
    round_trip(&mut tls, b"you called");
    let info = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!((info.identity.unwrap().name.as_str(), info.remote), ("alpha", dials));
}

/// Asks for the status until `alpha`'s last error satisfies `wanted`.
struct Asker {
    wanted: fn(&str) -> bool,
    tell: mpsc::Sender<String>,
    asked: u32,
}

impl Asker {
    fn ask(&mut self, out: &mut SessionOut) {
        self.asked += 1;
        let (ticket, question) = (TransferNo(self.asked), Question::Status);
        out.events.push(SessionEvent::Ask { ticket, question });
    }
}

impl Session for Asker {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        match input {
            SessionInput::Open => self.ask(out),
            SessionInput::Command(SessionCommand::Answer { answer, .. }) => {
                let Answer::Status(status) = &*answer else { panic!("{answer:?}") };
                let alpha = status.peers.iter().find(|peer| peer.name == "alpha").unwrap();
                if (self.wanted)(&alpha.last_error) {
                    // Whoever waited may have what it wants already.
                    let _ = self.tell.send(alpha.last_error.clone());
                    out.close = true;
                } else {
                    self.ask(out);
                }
            }
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

/// The last error of dialling `alpha` at `dials`, once it satisfies `wanted`.
fn dial_error(dials: &str, timeouts: Timeouts, wanted: fn(&str) -> bool) -> String {
    let (tell, told) = mpsc::channel();
    let local_session: MakeSession =
        Arc::new(move |_| Box::new(Asker { wanted, tell: tell.clone(), asked: 0 }));
    let setting =
        Setting { dials: dials.to_string(), local_session, timeouts, ..Setting::default() };
    let beta = Beta::start(setting);
    let _asking = beta.plain();
    told.recv_timeout(PATIENCE).unwrap()
}

#[test]
fn a_dial_that_fails_says_why() {
    let nobody = listen().local_addr().unwrap().to_string();
    let soon = Timeouts { handshake: Duration::from_millis(30), ..Timeouts::default() };
    let why = dial_error(&nobody, Timeouts::default(), |why| !why.is_empty());
    assert!(why.contains("refused") && why.starts_with(&nobody), "{why}");
    let why = dial_error("no port", Timeouts::default(), |why| !why.is_empty());
    assert!(why.starts_with("no port: "), "{why}");
    // A listener that accepts and says nothing.
    let silent = listen();
    let address = silent.local_addr().unwrap().to_string();
    let why = dial_error(&address, soon, |why| !why.is_empty());
    assert_eq!(why, "no tls handshake within 30ms");
    // One that says the wrong thing.
    let rude = listen();
    let address = rude.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in rude.incoming() {
            // Whatever becomes of it: the other side complains.
            let _ = stream.unwrap().write_all(b"220 smtp ready\r\n");
        }
    });
    let why = dial_error(&address, Timeouts::default(), |why| !why.is_empty());
    assert!(why.starts_with("tls: "), "{why}");
}

#[test]
fn a_stop_says_goodbye_and_drains() {
    let beta = Beta::start(Setting::default());
    let mut alpha = beta.client("alpha");
    let mut local = beta.plain();
    round_trip(&mut alpha, b"up");
    round_trip(&mut local, b"up");
    let halfway = beta.raw();
    beta.running.stop();
    beta.running.stop();
    assert_eq!(beta.running.wait(), Ended::Drained);
    assert_eq!(beta.running.wait(), Ended::Drained, "asked again");
    assert!(*beta.store.stopped.lock().unwrap());
    // Both sessions were told: TLS ends with close_notify, nothing is lost on the way.
    assert!(matches!(read_to_end(&mut alpha), (bytes, Ok(())) if bytes.is_empty()));
    assert!(matches!(read_to_end(&mut local), (bytes, Ok(())) if bytes.is_empty()));
    assert_eq!(beta.store.ended.lock().unwrap().len(), 2);
    drop(halfway);
    for address in [beta.peers, beta.local] {
        assert!(std::net::TcpStream::connect(address).is_err(), "{address} still listens");
    }
}

#[test]
fn a_peer_that_does_not_listen_to_a_goodbye_is_cut() {
    let watch = crate::shared::sessions::Watch::default();
    let seen = watch.clone();
    let session: MakeSession =
        Arc::new(move |_| Box::new(crate::shared::sessions::Source::new(u64::MAX, 0, &seen)));
    let beta = Beta::start(Setting { session, ..Setting::default() });
    let mut alpha = beta.client("alpha");
    let mut byte = [0];
    alpha.read_exact(&mut byte).unwrap();
    // It reads no more, so the goodbye cannot be written.
    beta.running.stop();
    assert_eq!(beta.running.wait(), Ended::Drained);
    assert!(watch.lock().unwrap().dropped);
}

#[test]
fn a_stop_while_dialling_and_while_asked_by_many_threads() {
    // A listener with a full backlog answers nobody.
    let (full, mut held) = (listen(), Vec::new());
    let address = full.local_addr().unwrap();
    for _ in 0..300 {
        match std::net::TcpStream::connect_timeout(&address, Duration::from_millis(5)) {
            Ok(stream) => held.push(stream),
            Err(_) => break,
        }
    }
    let beta = Beta::start(Setting { dials: address.to_string(), ..Setting::default() });
    let running = beta.running.clone();
    let ended: Arc<Mutex<Vec<Ended>>> = Arc::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                running.stop();
                ended.lock().unwrap().push(running.wait());
            });
        }
    });
    assert_eq!(*ended.lock().unwrap(), vec![Ended::Drained; 4]);
}

#[test]
fn a_node_that_panics_halts_the_run() {
    // The store's answer makes the observer panic on the node's thread.
    let (ca, store) = (Ca::new(), Arc::new(crate::shared::support::TestStore::default()));
    let parts =
        crate::shared::support::parts(&ca, store.clone(), Arc::new(|_| panic!("a planted panic")));
    let address = parts.peers[0].local_addr().unwrap();
    let running = crate::runtime::start_with(parts, Timeouts::default()).unwrap();
    // The first note there is: start-up is done.
    let ended = running.wait();
    assert_eq!(ended, Ended::Halted("the node panicked".to_string()));
    assert!(*store.stopped.lock().unwrap());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_store_that_does_not_answer_is_not_waited_for_for_ever() {
    let store = Arc::new(crate::shared::support::TestStore::default());
    store.mute.store(true, std::sync::atomic::Ordering::Relaxed);
    let beta = Beta::start(Setting { store, drain_ms: 50, ..Setting::default() });
    beta.running.stop();
    assert_eq!(beta.running.wait(), Ended::Cut);
}

#[test]
fn a_store_that_fails_halts_the_run() {
    let store = Arc::new(crate::shared::support::TestStore::default());
    let broken = consign_core::store::CommitFault::Broken("the disk is gone".to_string());
    store.mem().fail_commit(1, broken);
    let beta = Beta::start(Setting { store, ..Setting::default() });
    let ended = beta.running.wait();
    assert!(matches!(&ended, Ended::Halted(why) if why.contains("the disk is gone")), "{ended:?}");
}

#[test]
fn a_node_with_nothing_to_do_makes_turns_when_it_is_asked_and_a_stuck_one_does_not() {
    let ca = Ca::new();
    let (entered, is_in) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel();
    let may_leave = Mutex::new(may_leave);
    let observe = Arc::new(move |note: Note| {
        if matches!(note, Note::Unwelcome { .. }) {
            entered.send(()).unwrap();
            may_leave.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
    });
    let parts = parts(&ca, Arc::default(), observe);
    let peers = parts.peers[0].local_addr().unwrap();
    let running = crate::runtime::start_with(parts, Timeouts::default()).unwrap();
    let turns = || running.pulse();
    let moves_on_from = |before: u64| {
        let patience = std::time::Instant::now() + PATIENCE;
        while turns() == before {
            assert!(std::time::Instant::now() < patience, "no turn after {before}");
            std::thread::yield_now();
        }
    };
    moves_on_from(turns());
    moves_on_from(turns());
    // Somebody without a certificate is turned away, which is told, and whoever is told does not come back.
    let mut stranger = client(peers, &ca, None, &[b"consign/1"]);
    let _ = stranger.write_all(b"hello").and_then(|()| stranger.flush());
    is_in.recv_timeout(PATIENCE).unwrap();
    let stuck = turns();
    assert_eq!([turns(), turns(), turns()], [stuck; 3]);
    leave.send(()).unwrap();
    moves_on_from(stuck);
    running.stop();
    assert_eq!(running.wait(), Ended::Drained);
    assert_eq!(turns(), turns());
}
