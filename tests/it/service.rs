//! A site under a service manager: what it says, the sockets that it is given, and keys that are credentials. The
//! manager is this test: a datagram socket, and descriptors that a shell puts in their places.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::http;
use crate::site::{RUNTIMES, Site, pair};

/// Where a site tells how it does.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// One that wants a sign of life within this time.
    fn of(site: &mut Site, watchdog: Duration) -> Manager {
        let path = site.dir.join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        site.set("NOTIFY_SOCKET", path.to_str().expect("UTF-8"));
        site.set("WATCHDOG_USEC", &watchdog.as_micros().to_string());
        Manager { socket }
    }

    /// The next message that has this line.
    fn hears(&self, line: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let length = self.socket.recv(&mut bytes);
            let length = length.unwrap_or_else(|e| panic!("{line} was never said: {e}"));
            let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if message.lines().any(|said| said == line) {
                return message;
            }
        }
    }
}

fn monotonic() -> u128 {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("positive").as_micros()
}

#[test]
fn a_manager_hears_of_the_start_of_life_of_reloads_and_of_the_end() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        // One of the reloads is refused, which is an error.
        alpha.expects_errors = true;
        let manager = Manager::of(&mut alpha, Duration::from_secs(2));
        alpha.start();
        let ready = manager.hears("READY=1");
        assert!(ready.contains("STATUS=0 of 1 peers connected"), "{ready}");
        // What was said holds at once.
        TcpStream::connect(alpha.address).expect("it listens");
        assert_eq!(http::get(&alpha.socket(), "/healthz").expect("it answers").status, 200);
        manager.hears("WATCHDOG=1");
        beta.serve();
        manager.hears("STATUS=1 of 1 peers connected");

        let before = monotonic();
        alpha.signal(Signal::HUP);
        let reloading = manager.hears("RELOADING=1");
        let at = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        let at: u128 = at.and_then(|at| at.parse().ok()).expect("a time");
        assert!((before..=monotonic()).contains(&at), "{reloading}");
        let ready = manager.hears("READY=1");
        assert!(ready.contains("STATUS=1 of 1 peers connected"), "{ready}");

        fs::write(alpha.config(), "[node]\nname = 7\n").expect("written");
        alpha.signal(Signal::HUP);
        let refused = manager.hears("READY=1");
        assert!(refused.contains("the last reload was refused (CN0"), "{refused}");
        manager.hears("WATCHDOG=1");

        alpha.signal(Signal::TERM);
        manager.hears("STOPPING=1");
        assert!(alpha.wait().success());
    }
}

#[test]
fn a_manager_that_is_not_there_holds_nothing_up() {
    let (mut alpha, _beta) = pair(RUNTIMES[0]);
    alpha.set(
        "NOTIFY_SOCKET",
        alpha.dir.join("nobody").to_str().expect("UTF-8").to_owned().as_str(),
    );
    alpha.serve();
    crate::wait::until_true("it to be told", || alpha.log().contains("CN0571"));
    assert!(alpha.stop().success());
}

/// `consign serve` with descriptors 3, 4 and 5, put there by a shell, which is that process afterwards.
fn activated(site: &Site, names: &str, fds: [Option<OwnedFd>; 3]) -> Command {
    let serve = site.serve_command();
    let script = "log=$1; shift; exec 3<&0 4<&1 5<&2 0</dev/null 1>>\"$log\" 2>&1\n\
                  export LISTEN_PID=$$; exec \"$@\"";
    let mut command = Command::new("sh");
    command.env_clear();
    for (key, value) in serve.get_envs() {
        command.env(key, value.unwrap_or_default());
    }
    let count = fds.iter().flatten().count();
    command.env("LISTEN_FDS", count.to_string()).env("LISTEN_FDNAMES", names);
    command.args(["-c", script, "sh"]).arg(site.dir.join("serve.log"));
    command.arg(serve.get_program()).args(serve.get_args());
    let [first, second, third] = fds.map(|fd| fd.map_or_else(Stdio::null, Stdio::from));
    command.stdin(first).stdout(second).stderr(third);
    command
}

#[test]
fn sockets_of_the_manager_win_over_the_configuration_and_are_not_passed_on() {
    for runtime in RUNTIMES {
        let (mut alpha, mut beta) = pair(runtime);
        let inbox = "\n[[inbox]]\ndir = \"in\"\ncommand = [\"sh\", \"-c\", \
                     \"ls -l /proc/self/fd >../fds; env >../env.new; mv ../env.new ../env\"]\n";
        let mut file = fs::OpenOptions::new().append(true).open(alpha.config()).expect("a file");
        file.write_all(inbox.as_bytes()).expect("written");
        let peers = TcpListener::bind(alpha.address).expect("free");
        let web = TcpListener::bind("127.0.0.1:0").expect("a port");
        let web_at = web.local_addr().expect("its address");
        let admin = UnixListener::bind(alpha.socket()).expect("bound");
        let mode = fs::Permissions::from_mode(0o660);
        fs::set_permissions(alpha.socket(), mode).expect("set");
        // Addresses that the site could not have: they are not asked for.
        let taken = ["CONSIGN_LISTEN_PEERS", "CONSIGN_LISTEN_WEB"].map(|key| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            alpha.set(key, &listener.local_addr().expect("its address").to_string());
            listener
        });
        let fds = [peers.into(), web.into(), admin.into()].map(Some);
        let command = activated(&alpha, "peers:web:admin", fds);
        alpha.start_as(command);
        assert!(alpha.became_ready(), "{}", alpha.log());
        let log = alpha.log();
        for part in [
            format!("peers: listening on {}, opened by the service manager", alpha.address),
            format!("web: listening on {web_at}, opened by the service manager"),
            "admin: listening on ".to_owned(),
        ] {
            assert!(log.contains(&part), "{part}: {log}");
        }
        TcpStream::connect(web_at).expect("it listens");
        beta.serve();
        let id = beta.accepted("a.txt", b"by way of a socket of the manager's");
        assert_eq!(alpha.arrival(&id), b"by way of a socket of the manager's");
        let env = alpha.dir.join("env");
        crate::wait::until_true("the command to run", || env.exists());
        let (env, fds) = (fs::read_to_string(env), fs::read_to_string(alpha.dir.join("fds")));
        let (env, fds) = (env.expect("written"), fds.expect("written"));
        for name in ["LISTEN_PID=", "LISTEN_FDS=", "LISTEN_FDNAMES="] {
            assert!(!env.lines().any(|line| line.starts_with(name)), "{env}");
        }
        assert!(!fds.contains("socket:"), "{fds}");
        assert!(alpha.stop().success());
        assert!(alpha.socket().exists(), "the manager's own stays");
        drop(taken);
    }
}

#[test]
fn sockets_that_are_not_what_they_are_called_are_named() {
    let (mut alpha, _beta) = pair(RUNTIMES[0]);
    let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a port"));
    let null = || OwnedFd::from(fs::File::open("/dev/null").expect("there"));
    let cases = [
        ("consign.socket", [Some(tcp()), None, None], "descriptor 3 is called \"consign.socket\""),
        ("peers:admin", [Some(tcp()), Some(tcp()), None], "descriptor 4 (admin)"),
        (
            "peers:pickup",
            [Some(tcp()), Some(null()), None],
            "descriptor 4 (pickup): it is no socket",
        ),
        ("peers:web", [Some(tcp()), None, None], "LISTEN_FDS says 1"),
    ];
    for (names, fds, part) in cases {
        let command = activated(&alpha, names, fds);
        alpha.start_as(command);
        assert_eq!(alpha.wait().code(), Some(78), "{}", alpha.log());
        let log = alpha.log();
        assert!(log.contains("error[CN0570]") && log.contains(part), "{part}: {log}");
    }
}

#[test]
fn a_key_may_be_a_credential() {
    let (mut alpha, mut beta) = pair(RUNTIMES[1]);
    let credentials = alpha.dir.join("credentials");
    fs::create_dir(&credentials).expect("made");
    fs::rename(alpha.dir.join("node.key"), credentials.join("node.key")).expect("moved");
    let text = fs::read_to_string(alpha.config()).expect("there");
    let with = text.replace("\"node.key\"", "\"credential:node.key\"");
    assert_ne!(with, text);
    fs::write(alpha.config(), with).expect("written");
    // Without the directory that is a fault, except where no file is to be looked at.
    let output = alpha.run(&["config", "check"]);
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("$CREDENTIALS_DIRECTORY is not set"), "{said}");
    assert!(said.contains("LoadCredential="), "{said}");
    assert!(alpha.run(&["config", "check", "--no-files"]).status.success());
    alpha.set("CREDENTIALS_DIRECTORY", credentials.to_str().expect("UTF-8"));
    for args in [&["config", "check"][..], &["cert", "show"]] {
        let output = alpha.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    }
    alpha.serve();
    beta.serve();
    let id = beta.accepted("a.txt", b"hello");
    assert_eq!(alpha.arrival(&id), b"hello");
    // A command that is run elsewhere, without credentials, reaches the site all the same.
    alpha.settings.remove("CREDENTIALS_DIRECTORY");
    let output = alpha.run(&["reload"]);
    assert!(output.status.success(), "{output:?}");
}
