//! Sites of the real binary on loopback, asked over their admin sockets, and a proxy between two of
//! them that counts, slows down and cuts.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consign::meters::process::rss_anon;
use serde_json::Value;

use super::Res;

/// The binary.
pub const CONSIGN: &str = env!("CARGO_BIN_EXE_consign");
/// How long anything may take to happen.
const PATIENCE: Duration = Duration::from_secs(3600);

/// An address that nobody has right now.
pub fn free_address() -> Res<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Looks until something is there.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Res<Option<T>>) -> Res<T> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(found) = look()? {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(format!("waited in vain for {what}").into())
}

/// A site.
pub struct Real {
    pub name: String,
    pub dir: PathBuf,
    child: Option<Child>,
}

impl Real {
    /// Makes a site in `parent`, signed by its own authority or another site's.
    pub fn init(
        parent: &Path,
        name: &str,
        listen: SocketAddr,
        peers: &[(&str, SocketAddr)],
        authority: Option<&Real>,
    ) -> Res<Real> {
        let mut more = Vec::new();
        if let Some(authority) = authority {
            more.extend(["--ca".into(), authority.dir.display().to_string()]);
        }
        for (peer, address) in peers {
            more.extend(["--peer".into(), format!("{peer}={address}")]);
        }
        Real::make(parent, name, listen, &more)
    }

    /// Makes a site whose certificate bears this host besides its name.
    pub fn with_host(parent: &Path, name: &str, listen: SocketAddr, host: &str) -> Res<Real> {
        Real::make(parent, name, listen, &["--host".into(), host.into()])
    }

    fn make(parent: &Path, name: &str, listen: SocketAddr, more: &[String]) -> Res<Real> {
        let dir = parent.join(name);
        let mut command = Command::new(CONSIGN);
        command.arg("init").arg(&dir).args(["--name", name, "--listen", &listen.to_string()]);
        command.args(more);
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(format!("init of {name}: {output:?}").into());
        }
        Ok(Real { name: name.into(), dir, child: None })
    }

    pub fn config(&self) -> PathBuf {
        self.dir.join("consign.toml")
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// `consign -c CONFIG ARGS`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(CONSIGN);
        command.arg("-c").arg(self.config()).args(args);
        command.env("CONSIGN_LOG_LEVEL", "warn");
        command
    }

    /// Starts it with these settings besides; how long until it listens, and until it is ready.
    pub fn serve(&mut self, listen: SocketAddr, settings: &[(&str, &str)]) -> Res<[Duration; 2]> {
        let path = self.dir.join("serve.log");
        let log = std::fs::File::options().create(true).append(true).open(path)?;
        let mut command = self.command(&["serve"]);
        // `init` puts it near the port for peers, where somebody else may listen.
        command.env("CONSIGN_LISTEN_WEB", "off");
        command.envs(settings.iter().copied()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let begun = Instant::now();
        self.child = Some(command.spawn()?);
        let listening = until("it to listen", || {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().transpose()) {
                let log = std::fs::read_to_string(self.dir.join("serve.log"))?;
                return Err(format!("{} ended at its start, {}: {log}", self.name, status?).into());
            }
            Ok(TcpStream::connect(listen).is_ok().then(|| begun.elapsed()))
        })?;
        let ready = until("it to be ready", || {
            let ready = self.get("/readyz").is_ok_and(|(status, _)| status == 200);
            Ok(ready.then(|| begun.elapsed()))
        })?;
        Ok([listening, ready])
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Res<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// GET; status and body.
    pub fn get(&self, target: &str) -> Res<(u16, Vec<u8>)> {
        self.exchange("GET", target, &[])
    }

    pub fn exchange(&self, method: &str, target: &str, body: &[u8]) -> Res<(u16, Vec<u8>)> {
        let mut stream = UnixStream::connect(self.data().join("admin.sock"))?;
        let length = body.len();
        write!(
            stream,
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n"
        )?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or("no answer")?;
        let status = std::str::from_utf8(answer.get(9..12).unwrap_or_default())?.parse()?;
        Ok((status, answer.split_off(end + 4)))
    }

    pub fn status(&self) -> Res<Value> {
        Ok(serde_json::from_slice(&self.get("/v1/status")?.1)?)
    }

    /// A count of deliveries to a peer.
    pub fn count(&self, peer: &str, state: &str) -> Res<u64> {
        let status = self.status()?;
        let peers = status["peers"].as_array().ok_or("no peers")?;
        let found = peers.iter().find(|p| p["name"] == peer).ok_or("no such peer")?;
        Ok(found[state]["count"].as_u64().unwrap_or(0))
    }

    /// Anonymous resident memory in bytes.
    pub fn rss_anon(&self) -> u64 {
        rss_anon(self.pid())
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// What a proxy does.
#[derive(Default)]
pub struct Rules {
    /// Bytes that went from the dialling to the listening side.
    pub passed: AtomicU64,
    /// After so many of a connection, one byte a second passes; 0 is never.
    pub slow_after: AtomicU64,
    /// Raised to cut every connection.
    pub cuts: AtomicU64,
    /// Whether nobody gets through.
    pub shut: AtomicBool,
}

/// Passes connections to `listen` on to `to`.
pub fn proxy(listen: SocketAddr, to: SocketAddr) -> Res<Arc<Rules>> {
    let listener = TcpListener::bind(listen)?;
    let rules = Arc::new(Rules::default());
    let shared = Arc::clone(&rules);
    std::thread::spawn(move || {
        for dialled in listener.incoming().flatten() {
            let rules = Arc::clone(&shared);
            if rules.shut.load(Ordering::Relaxed) {
                continue;
            }
            let Ok(listening) = TcpStream::connect(to) else { continue };
            let (Ok(back), Ok(forth)) = (dialled.try_clone(), listening.try_clone()) else {
                continue;
            };
            let other = Arc::clone(&rules);
            std::thread::spawn(move || pass(dialled, listening, &rules, true));
            std::thread::spawn(move || pass(forth, back, &other, false));
        }
    });
    Ok(rules)
}

fn pass(mut from: TcpStream, mut to: TcpStream, rules: &Rules, forward: bool) {
    let cuts = rules.cuts.load(Ordering::Relaxed);
    let _ = from.set_read_timeout(Some(Duration::from_millis(20)));
    let mut buffer = vec![0; 256 << 10];
    let mut sum = 0;
    loop {
        if rules.cuts.load(Ordering::Relaxed) != cuts {
            break;
        }
        let slow_after = rules.slow_after.load(Ordering::Relaxed);
        let slow = forward && slow_after > 0 && sum > slow_after;
        let most = if slow { 1 } else { buffer.len() };
        let read = match from.read(buffer.get_mut(..most).unwrap_or_default()) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock) => continue,
            Err(_) => break,
        };
        if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
            break;
        }
        sum += read as u64;
        if forward {
            rules.passed.fetch_add(read as u64, Ordering::Relaxed);
        }
        if slow {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
