//! [`Conn`]: who hears what, and in which order.

use std::sync::Arc;

use consign_core::conn::{Begin, Conn, Outlet};
use consign_core::driver::MakeSession;
use consign_core::id::{BlobNo, ConnId, SiteNo};
use consign_core::link::Timeouts;
use consign_core::node::{Input, Note};
use consign_core::session::{Session, SessionEvent, SessionInput, SessionOut};
use consign_core::store::StoreRequest;
use consign_core::time::{Instant, Now};

use crate::pair::at;
use crate::pki::{Ca, two_sites};
use crate::sessions::Echo;

/// Writes down what it is told.
#[derive(Default)]
struct Log(Vec<String>);

impl Outlet for Log {
    fn request(&mut self, conn: ConnId, request: StoreRequest) {
        self.0.push(format!("{conn} store {request:?}"));
    }
    fn ended(&mut self, conn: ConnId) {
        self.0.push(format!("{conn} ended"));
    }
    fn node(&mut self, input: Input) {
        self.0.push(match input {
            Input::Connected { conn, identity, dialled } => {
                format!("{conn} connected {} {dialled}", identity.name)
            }
            Input::Opened { conn } => format!("{conn} opened"),
            Input::Session(conn, event) => format!("{conn} event {event:?}"),
            Input::Closed { conn, why } => format!("{conn} closed {why:?}"),
            Input::DialFailed { site, why, reached } => {
                let how = if reached { "" } else { " (nobody there)" };
                format!("dial {site} failed{how}: {why}")
            }
            other => panic!("{other:?}"),
        });
    }
    fn note(&mut self, note: Note) {
        match note {
            Note::Unwelcome { name, why } => self.0.push(format!("unwelcome {name}: {why}")),
            other => panic!("{other:?}"),
        }
    }
}

/// Answers every input by an event and a request, said in the wrong order.
struct Chatty;

impl Session for Chatty {
    fn step(&mut self, _: Now, input: SessionInput<'_>, out: &mut SessionOut) {
        if let SessionInput::Open | SessionInput::Bytes(_) = input {
            out.events.push(SessionEvent::Wants);
            out.requests.push(StoreRequest::Sync { blob: BlobNo(4) });
        }
        if let SessionInput::Bytes(_) = input {
            out.close = true;
        }
    }
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    fn wants_read(&self) -> bool {
        true
    }
}

fn id(slot: u32) -> ConnId {
    ConnId { slot, generation: 1 }
}

fn begin(slot: u32, make: &MakeSession) -> Begin<'_> {
    Begin { id: id(slot), now: at(0), timeouts: Timeouts::default(), make }
}

fn echo() -> MakeSession {
    Arc::new(|_| Echo::new())
}

/// Moves bytes between two connections until nothing moves.
fn run(a: &mut Conn, b: &mut Conn, logs: &mut [Log; 2]) {
    let mut moved = true;
    while moved {
        moved = false;
        for turn in [0, 1] {
            let (from, to) = if turn == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            from.deliver(at(0), &mut logs[turn]);
            from.link().fill(at(0));
            let mut data = from.link().pending().to_vec();
            from.link().sent(data.len());
            moved |= !data.is_empty();
            to.link().received(at(0), &mut data);
            to.deliver(at(0), &mut logs[1 - turn]);
            if from.link().wants_shutdown() {
                from.link().shut(at(0));
                to.link().eof(at(0));
                moved = true;
            }
        }
    }
}

#[test]
fn requests_go_before_events_and_the_end_is_told_once() {
    let make: MakeSession = Arc::new(|info| {
        assert_eq!((info.uid, info.identity.as_ref()), (Some(1000), None));
        Box::new(Chatty)
    });
    let mut conn = Conn::local(begin(3, &make), "unix".to_string(), Some(1000));
    let mut log = Log::default();
    conn.deliver(at(0), &mut log);
    assert_eq!(log.0, ["3.1 opened", "3.1 store Sync(4)", "3.1 event Wants"]);
    log.0.clear();
    conn.link().received(at(1), &mut [1]);
    conn.deliver(at(1), &mut log);
    conn.link().broken("gone".to_string());
    conn.deliver(at(1), &mut log);
    let told = ["3.1 store Sync(4)", "3.1 event Wants", "3.1 ended", "3.1 closed \"\""];
    assert_eq!(log.0, told);
}

#[test]
fn peers_are_announced_with_their_certificates_name() {
    let (alpha, beta) = two_sites();
    let make = echo();
    let name = "beta".to_string();
    let mut a = Conn::dialled(begin(0, &make), "b:1".to_string(), SiteNo(7), name, &alpha);
    let mut b = Conn::accepted(begin(1, &make), "a:2".to_string(), &beta);
    let mut logs = [Log::default(), Log::default()];
    run(&mut a, &mut b, &mut logs);
    assert_eq!(logs[0].0, ["0.1 connected beta true"]);
    assert_eq!(logs[1].0, ["1.1 connected alpha false"]);
    a.link().broken("cable pulled".to_string());
    b.link().eof(at(0));
    run(&mut a, &mut b, &mut logs);
    assert_eq!(logs[0].0[1..], ["0.1 ended", "0.1 closed \"cable pulled\""]);
    let cut = "1.1 closed \"the connection was cut (no tls close_notify)\"";
    assert_eq!(logs[1].0[1..], ["1.1 ended", cut]);
}

#[test]
fn a_certificate_that_names_another_site_is_a_failed_dial() {
    let ca = Ca::new();
    let (alpha, beta) = (ca.setup(&ca.site("alpha")), ca.setup(&ca.site("beta")));
    // The verifier lets it pass as beta, but it is somebody else by `identify`.
    let mut lax = alpha.clone();
    let identify = alpha.identify.clone();
    lax.identify = Arc::new(move |chain| {
        identify(chain).map(|found| consign_core::session::Identity {
            name: format!("not-{}", found.name),
            ..found
        })
    });
    let make = echo();
    let name = "beta".to_string();
    let mut a = Conn::dialled(begin(0, &make), "b:1".to_string(), SiteNo(7), name, &lax);
    let mut b = Conn::accepted(begin(1, &make), "a:2".to_string(), &beta);
    let mut logs = [Log::default(), Log::default()];
    run(&mut a, &mut b, &mut logs);
    let why = "dial 7 failed: the certificate says \"not-beta\" instead of \"beta\"";
    assert_eq!(logs[0].0, [why]);
    // The other side heard close_notify: an orderly end.
    assert_eq!(logs[1].0, ["1.1 connected alpha false", "1.1 ended", "1.1 closed \"\""]);
}

#[test]
fn failed_handshakes_are_failed_dials_or_notes() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let (alpha, beta) = (theirs.setup(&theirs.site("alpha")), ours.setup(&ours.site("beta")));
    let make: MakeSession = Arc::new(|_| panic!("no session is made"));
    let name = "beta".to_string();
    let mut a = Conn::dialled(begin(0, &make), "b:1".to_string(), SiteNo(7), name, &alpha);
    let mut b = Conn::accepted(begin(1, &make), "a:2".to_string(), &beta);
    let mut logs = [Log::default(), Log::default()];
    run(&mut a, &mut b, &mut logs);
    assert_eq!(logs[0].0.len(), 1, "{:?}", logs[0].0);
    assert!(logs[0].0[0].starts_with("dial 7 failed: certificate refused: "));
    assert_eq!(logs[1].0.len(), 1, "{:?}", logs[1].0);
    assert!(logs[1].0[0].starts_with("unwelcome a:2: the peer refused the connection: "));
}
