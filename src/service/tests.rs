//! Tests of what is said to a service manager: the decisions by themselves, and the words on a socket.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use consign_core::id::Epoch;

use super::*;

const S: Duration = Duration::from_secs(1);

fn sight(turns: u64, processor: u64, bytes: u64) -> Sight {
    Sight { turns: Some(turns), work: Work { processor, bytes } }
}

#[test]
fn the_watchdog_is_told_at_half_time_and_only_after_a_turn() {
    let mut keeper = Keeper::new(Some(20 * S));
    assert_eq!(keeper.look(S, Sight::default()), [""; 0]);
    keeper.ready(2 * S, 5, "no peers");
    assert_eq!(keeper.urgent(2 * S), ["READY=1\nSTATUS=no peers"]);
    assert_eq!(keeper.next(), 12 * S);
    assert_eq!(keeper.look(11 * S, sight(6, 0, 0)), [""; 0], "too early");
    assert_eq!(keeper.look(12 * S, sight(6, 0, 0)), ["WATCHDOG=1"]);
    assert_eq!(keeper.next(), 22 * S);
    // No turn since: however busy the process is otherwise, nothing is said, and that is told once.
    assert_eq!(keeper.look(22 * S, sight(6, 9_000_000, 9_000_000)), [""; 0]);
    assert_eq!(keeper.stuck(), Some(10 * S));
    assert_eq!(keeper.next(), 23 * S, "it is looked more often then");
    assert_eq!(keeper.look(31 * S, sight(6, 0, 0)), [""; 0]);
    assert_eq!(keeper.stuck(), None);
    // It comes to itself in time.
    assert_eq!(keeper.look(31 * S, sight(7, 0, 0)), ["WATCHDOG=1"]);
    assert_eq!(keeper.next(), 41 * S);
    assert_eq!(keeper.look(41 * S, sight(7, 0, 0)), [""; 0]);
    assert_eq!(keeper.stuck(), Some(10 * S), "the next time is told again");
}

#[test]
fn without_a_watchdog_nothing_is_said_of_turns() {
    let mut keeper = Keeper::new(None);
    keeper.ready(S, 0, "no peers");
    keeper.urgent(S);
    assert_eq!(keeper.look(500 * S, sight(9, 0, 0)), [""; 0]);
    assert!(keeper.next() > 600 * S);
}

#[test]
fn the_watchdog_is_ours_if_it_is_nobody_elses() {
    use keeper::watchdog;
    assert_eq!(watchdog(None, None, 42), None);
    assert_eq!(watchdog(Some("3000000"), None, 42), Some(3 * S));
    assert_eq!(watchdog(Some("3000000"), Some("42"), 42), Some(3 * S));
    for (usec, pid) in [("3000000", "41"), ("3000000", "me"), ("0", "42"), ("-1", "42"), ("", "42")]
    {
        assert_eq!(watchdog(Some(usec), Some(pid), 42), None, "{usec} {pid}");
    }
}

#[test]
fn sentences_come_at_a_bounded_rate_and_the_last_one_comes() {
    let mut keeper = Keeper::new(None);
    keeper.status("opening\nthe ledger");
    assert_eq!(keeper.look(S, Sight::default()), ["STATUS=opening the ledger"]);
    for n in 0..100 {
        keeper.status(&format!("{n} of 100"));
        assert_eq!(keeper.look(S + S / 2, Sight::default()), [""; 0]);
    }
    assert_eq!(keeper.next(), 3 * S);
    assert_eq!(keeper.look(3 * S, Sight::default()), ["STATUS=99 of 100"]);
    assert_eq!(keeper.look(9 * S, Sight::default()), [""; 0], "it is said once");
}

#[test]
fn more_time_is_asked_for_while_a_start_gets_somewhere() {
    let more = "EXTEND_TIMEOUT_USEC=60000000";
    let mut keeper = Keeper::new(None);
    let work = |processor, bytes| Sight { turns: None, work: Work { processor, bytes } };
    assert_eq!(keeper.next(), 10 * S);
    assert_eq!(keeper.look(9 * S, work(5_000_000, 0)), [""; 0]);
    assert_eq!(keeper.look(10 * S, work(5_000_000, 0)), [more]);
    assert_eq!(keeper.look(20 * S, work(5_000_000, 1)), [more], "it reads");
    assert_eq!(keeper.look(30 * S, work(5_050_000, 1)), [""; 0], "it hangs: only this thread runs");
    assert_eq!(keeper.look(40 * S, work(5_950_000, 1)), [more]);
    keeper.ready(41 * S, 0, "no peers");
    keeper.urgent(41 * S);
    assert_eq!(keeper.look(60 * S, work(60_000_000, 60)), [""; 0], "no more once it is ready");
}

#[test]
fn a_stop_asks_for_more_time_while_its_loop_turns_or_its_disk_works() {
    let more = "EXTEND_TIMEOUT_USEC=60000000";
    let mut keeper = Keeper::new(Some(60 * S));
    keeper.ready(S, 0, "no peers");
    keeper.urgent(S);
    keeper.stopping(2 * S);
    keeper.stopping(2 * S);
    let text = "STOPPING=1\nSTATUS=stopping: what is in flight is finished first";
    assert_eq!(keeper.urgent(2 * S), [text]);
    assert_eq!(keeper.look(12 * S, sight(1, 0, 0)), [more]);
    assert_eq!(keeper.look(22 * S, sight(1, 0, 0)), [""; 0]);
    assert_eq!(keeper.look(32 * S, sight(1, 0, 9)), ["WATCHDOG=1", more]);
    keeper.status("too late");
    keeper.reloading(1);
    assert_eq!(keeper.look(42 * S, sight(2, 0, 9)), [more]);
    // The loop has ended; that is not told as an error.
    keeper.look(62 * S, sight(2, 0, 9));
    assert_eq!(keeper.look(72 * S, sight(2, 0, 9)), [""; 0]);
    assert_eq!(keeper.stuck(), None);
}

#[test]
fn a_reload_begins_and_ends() {
    let mut keeper = Keeper::new(None);
    keeper.reloading(7);
    assert_eq!(keeper.urgent(S), [""; 0], "nothing before the site runs");
    keeper.ready(S, 0, "a");
    keeper.reloading(1_234);
    keeper.reloaded("b");
    keeper.reloaded("c");
    let expected = [
        "READY=1\nSTATUS=a",
        "RELOADING=1\nMONOTONIC_USEC=1234\nSTATUS=reading the configuration again",
        "READY=1\nSTATUS=b",
    ];
    assert_eq!(keeper.urgent(S), expected);
}

#[test]
fn the_sentence_tells_what_an_operator_looks_for() {
    let mut tell = Tell::default();
    tell.peers = 2;
    let up =
        |peer: &str| Note::SessionUp { peer: peer.into(), epoch: Epoch::default(), dialled: true };
    let down = |peer: &str| Note::SessionDown { peer: peer.into(), why: String::new() };
    assert_eq!(tell.sentence(), "0 of 2 peers connected");
    assert!(tell.note(&up("beta")) && tell.note(&up("beta")) && tell.note(&up("gamma")));
    assert_eq!(tell.sentence(), "2 of 2 peers connected");
    // A session that takes another's place comes before the other has ended.
    tell.note(&down("beta"));
    assert_eq!(tell.sentence(), "2 of 2 peers connected");
    tell.note(&down("beta"));
    tell.note(&Note::Full { why: "no space".into() });
    tell.refused = "CN0204".into();
    let text = "1 of 2 peers connected; no space: new segments are refused; the last reload was refused (CN0204)";
    assert_eq!(tell.sentence(), text);
    tell.note(&Note::RoomAgain);
    (tell.peers, tell.refused) = (0, String::new());
    assert_eq!(tell.sentence(), "no peers");
    assert!(!tell.note(&Note::Warn { code: "CN0501", text: String::new() }));
}

#[test]
fn messages_arrive_at_paths_and_abstract_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("notify");
    let at_path = UnixDatagram::bind(&path).expect("bound");
    let name = format!("consign-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let at_name = UnixDatagram::bind_addr(&address).expect("bound");
    for (to, socket) in [(path.into_os_string(), at_path), (format!("@{name}").into(), at_name)] {
        let service = Service::begin(Line::to(&to).expect("a line"), None);
        service.starting("opening the ledger");
        let mut bytes = [0; 512];
        socket.set_read_timeout(Some(60 * S)).expect("set");
        let length = socket.recv(&mut bytes).expect("a message");
        assert_eq!(&bytes[..length], b"STATUS=opening the ledger");
        service.stopping();
        let length = socket.recv(&mut bytes).expect("a message");
        assert!(bytes[..length].starts_with(b"STOPPING=1\n"));
    }
    assert!(Line::to("relative".as_ref()).is_err());
}

#[test]
fn what_the_process_does_shows_in_its_work() {
    let before = Work::of_this_process();
    let mut sum = 0u64;
    while !Work::of_this_process().since(before, S / 100) {
        sum = std::hint::black_box(sum.wrapping_add(1));
    }
    assert!(Work::of_this_process().processor > before.processor);
}
