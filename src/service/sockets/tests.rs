//! Tests of what the environment announces, and of sockets that are none of ours.

use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

use super::*;

fn said(vars: &[(&str, &str)]) -> Result<Vec<(u32, Place)>, String> {
    let var = |name: &str| {
        let found = vars.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    announced(&var, 42)
}

#[test]
fn what_is_announced_is_taken_by_name() {
    let vars =
        [("LISTEN_PID", "42"), ("LISTEN_FDS", "4"), ("LISTEN_FDNAMES", "peers:peers:admin:web")];
    let expected = [(3, Place::Peers), (4, Place::Peers), (5, Place::Admin), (6, Place::Web)];
    assert_eq!(said(&vars), Ok(expected.to_vec()));
}

#[test]
fn what_is_for_somebody_else_or_nothing_at_all_is_left_alone() {
    assert_eq!(said(&[]), Ok(Vec::new()));
    assert_eq!(said(&[("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "a:b")]), Ok(Vec::new()));
    let others = [("LISTEN_PID", "41"), ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "a:b")];
    assert_eq!(said(&others), Ok(Vec::new()));
    assert_eq!(said(&[("LISTEN_PID", "42")]), Ok(Vec::new()));
    assert_eq!(said(&[("LISTEN_PID", "42"), ("LISTEN_FDS", "0")]), Ok(Vec::new()));
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |pid: &str, fds: &str, names: Option<&str>| {
        let mut vars = vec![("LISTEN_PID", pid), ("LISTEN_FDS", fds)];
        vars.extend(names.map(|names| ("LISTEN_FDNAMES", names)));
        said(&vars).expect_err("refused")
    };
    assert!(refused("me", "1", Some("peers")).contains("LISTEN_PID is \"me\""));
    for count in ["-1", "65", "4294967295", "many", ""] {
        assert!(refused("42", count, Some("peers")).contains("LISTEN_FDS"), "{count}");
    }
    assert!(refused("42", "1", None).contains("LISTEN_FDNAMES is missing"));
    let text = refused("42", "2", Some("peers"));
    assert!(text.contains("says 2") && text.contains("has 1"), "{text}");
    let text = refused("42", "2", Some("peers:consign.socket"));
    assert!(text.contains("descriptor 4 is called \"consign.socket\""), "{text}");
    assert!(refused("42", "1", Some("")).contains("descriptor 3 is called \"\""));
    let text = refused("42", "3", Some("admin:peers:admin"));
    assert!(text.contains("descriptor 5 is a second one"), "{text}");
}

/// What a kind of socket says of this one.
fn taken(place: Place, socket: impl Into<OwnedFd>) -> Result<Given, String> {
    let mut given = Given::default();
    given.take(place, socket.into()).map(|()| given)
}

#[test]
fn only_listening_sockets_of_the_right_family_are_taken() {
    let dir = tempfile::tempdir().expect("a directory");
    let unix = |name: &str| UnixListener::bind(dir.path().join(name)).expect("bound");
    let tcp = || TcpListener::bind("127.0.0.1:0").expect("bound");
    for place in [Place::Peers, Place::Pickup, Place::Web] {
        let given = taken(place, tcp()).expect("taken");
        assert_eq!(given.tcp.get(&place).map(Vec::len), Some(1));
        let name = format!("{place:?}");
        assert!(taken(place, unix(&name)).expect_err("Unix").contains("another family"));
        let udp = UdpSocket::bind("127.0.0.1:0").expect("bound");
        assert!(taken(place, udp).expect_err("UDP").contains("no stream socket"));
    }
    assert!(taken(Place::Admin, tcp()).expect_err("TCP").contains("another family"));
    let (end, _other) = UnixStream::pair().expect("a pair");
    assert!(taken(Place::Admin, end).expect_err("connected").contains("does not listen"));
    let everywhere = TcpListener::bind("0.0.0.0:0").expect("bound");
    assert!(taken(Place::Web, everywhere).expect_err("open").contains("this machine only"));
    let plain = std::fs::File::open("/dev/null").expect("there");
    assert!(taken(Place::Peers, plain).is_err());
}

#[test]
fn an_admin_socket_is_for_owner_and_group() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("admin.sock");
    let bound = |mode: u32| {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("bound");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        listener
    };
    let text = taken(Place::Admin, bound(0o666)).expect_err("everybody's");
    assert!(text.contains("mode 0666") && text.contains("SocketMode=0660"), "{text}");
    let given = taken(Place::Admin, bound(0o660)).expect("taken");
    let sockets = Sockets(Arc::new(Mutex::new(given)));
    let (listener, at) = sockets.admin().expect("given");
    assert_eq!(at, path);
    let flags = rustix::io::fcntl_getfd(&listener).expect("flags");
    assert!(flags.contains(FdFlags::CLOEXEC));
    assert!(sockets.admin().is_none(), "given out once");
}

#[test]
fn what_is_not_open_is_told_before_anything_is_owned() {
    assert_eq!(is_open(900), Err("it is not open".into()));
    let file = tempfile::tempfile().expect("a file");
    let fd = u32::try_from(std::os::fd::AsRawFd::as_raw_fd(&file)).expect("a number");
    assert!(is_open(fd).expect_err("a file").contains("no socket"));
}
