//! Two sites on loopback: `alpha`, which has the segments, and `beta`, which is to get them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::admin::Admin;
use super::failed;
use crate::config::template::quote;
use crate::config::{self, Layers, Runtime};
use crate::daemon::{Daemon, Observe, Overrides};
use crate::exit::Failure;
use crate::pki::{Authority, SITE_LASTS};

/// How long a site may take to come up or to go.
const PATIENCE: Duration = Duration::from_secs(30);

/// The processes to be watched; those of both sites, or this one.
#[derive(Clone, Debug, Default)]
pub(super) struct Pids(Arc<Mutex<Vec<u32>>>);

impl Pids {
    pub(super) fn now(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, pids: Vec<u32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pids;
    }
}

/// What carries a site.
enum Carrier {
    Here(Box<Daemon>),
    Process(Child),
}

/// A running site.
struct Site {
    carrier: Option<Carrier>,
    admin: Admin,
}

impl Site {
    fn start(
        file: &Path,
        program: Option<&Path>,
        observe: Option<Observe>,
    ) -> Result<Site, Failure> {
        let admin = socket(file);
        let carrier = match program {
            None => {
                let settings = config::load(file, &Layers::default())
                    .map_err(|faults| failed("the configuration", faults.render(false)))?;
                let overrides = Overrides { observe, ..Overrides::default() };
                Carrier::Here(Box::new(Daemon::start(&settings, overrides)?))
            }
            Some(program) => {
                let child = Command::new(program)
                    .arg("serve")
                    .arg("--config")
                    .arg(file)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .spawn()
                    .map_err(|e| failed(&format!("{} does not run", program.display()), e))?;
                Carrier::Process(child)
            }
        };
        let mut site = Site { carrier: Some(carrier), admin: Admin::new(&admin) };
        site.wait_until_up()?;
        Ok(site)
    }

    fn wait_until_up(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let error = match self.admin.status() {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            if let Some(Carrier::Process(child)) = &mut self.carrier
                && let Ok(Some(status)) = child.try_wait()
            {
                return Err(failed("a site ended before it was up", status));
            }
            if begun.elapsed() > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn pid(&self) -> u32 {
        match &self.carrier {
            Some(Carrier::Process(child)) => child.id(),
            Some(Carrier::Here(_)) | None => std::process::id(),
        }
    }

    fn stop(mut self) -> Result<(), Failure> {
        self.admin.close();
        match self.carrier.take() {
            None => Ok(()),
            Some(Carrier::Here(daemon)) => {
                daemon.stop();
                daemon.wait().map(drop)
            }
            Some(Carrier::Process(mut child)) => {
                terminate(&child);
                child.wait().map(drop).map_err(|e| failed("a site", e))
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.admin.close();
        match self.carrier.take() {
            None => {}
            Some(Carrier::Here(daemon)) => {
                daemon.stop();
                let _ = daemon.wait();
            }
            Some(Carrier::Process(mut child)) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn terminate(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// The two sites; `beta` runs only while it is to receive.
pub(super) struct Pair {
    runtime: Runtime,
    program: Option<PathBuf>,
    beta_file: PathBuf,
    alpha: Site,
    beta: Option<Site>,
    pids: Pids,
}

impl Pair {
    /// Makes both sites under `dir` and starts `alpha`; where it runs in this process, `observe` is
    /// told its notes.
    pub(super) fn new(
        dir: &Path,
        runtime: Runtime,
        program: Option<&Path>,
        observe: Option<Observe>,
    ) -> Result<Pair, Failure> {
        let (authority, own) = Authority::new()?;
        let ports = [free_port()?, free_port()?];
        let mut files = Vec::new();
        for (at, name) in ["alpha", "beta"].into_iter().enumerate() {
            let place = dir.join(name);
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&place);
            made.map_err(|e| failed(&format!("{} cannot be made", place.display()), e))?;
            let pair = authority.site(name, &[], SITE_LASTS)?;
            write(&place.join("ca.pem"), &own.certificate)?;
            write(&place.join("node.pem"), &pair.certificate)?;
            write(&place.join("node.key"), &pair.key)?;
            let other = if at == 0 { ("beta", ports[1]) } else { ("alpha", ports[0]) };
            let file = place.join(config::FILE_NAME);
            write(&file, &settings(name, runtime, ports[at], other))?;
            files.push(file);
        }
        let beta_file = files.pop().unwrap_or_default();
        let alpha_file = files.pop().unwrap_or_default();
        let alpha = Site::start(&alpha_file, program, observe)?;
        let pids = Pids::default();
        pids.set(vec![alpha.pid()]);
        let program = program.map(Path::to_path_buf);
        Ok(Pair { runtime, program, beta_file, alpha, beta: None, pids })
    }

    pub(super) fn runtime(&self) -> Runtime {
        self.runtime
    }

    pub(super) fn pids(&self) -> Pids {
        self.pids.clone()
    }

    pub(super) fn sender(&mut self) -> &mut Admin {
        &mut self.alpha.admin
    }

    pub(super) fn receiver(&mut self) -> Result<&mut Admin, Failure> {
        let beta = self.beta.as_mut().ok_or_else(|| failed("the receiver", "does not run"))?;
        Ok(&mut beta.admin)
    }

    pub(super) fn start_receiver(&mut self) -> Result<(), Failure> {
        let beta = Site::start(&self.beta_file, self.program.as_deref(), None)?;
        let mut pids = vec![self.alpha.pid(), beta.pid()];
        pids.dedup();
        self.pids.set(pids);
        self.beta = Some(beta);
        Ok(())
    }

    pub(super) fn stop_receiver(&mut self) -> Result<(), Failure> {
        self.pids.set(vec![self.alpha.pid()]);
        self.beta.take().map_or(Ok(()), Site::stop)
    }

    pub(super) fn stop(mut self) -> Result<(), Failure> {
        self.stop_receiver()?;
        self.alpha.stop()
    }
}

fn socket(file: &Path) -> PathBuf {
    file.with_file_name("data").join("admin.sock")
}

fn settings(name: &str, runtime: Runtime, port: u16, peer: (&str, u16)) -> String {
    let (name, runtime, other) = (quote(name), quote(runtime.word()), quote(peer.0));
    let port_of_peer = peer.1;
    format!(
        "[node]\nname = {name}\ndata_dir = \"data\"\nruntime = {runtime}\n\
         [listen]\npeers = [\"127.0.0.1:{port}\"]\nweb = \"off\"\n\
         [tls]\nca = \"ca.pem\"\ncert = \"node.pem\"\nkey = \"node.key\"\n\
         [storage]\nmin_free = \"64MiB\"\n\
         [log]\nlevel = \"error\"\n\
         [[relay.known_peers]]\nname = {other}\naddress = \"127.0.0.1:{port_of_peer}\"\n"
    )
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .map_err(|e| failed(&format!("{} cannot be written", path.display()), e))
}

/// A port that nobody has right now.
fn free_port() -> Result<u16, Failure> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    port.map(|at| at.port()).map_err(|e| failed("no port on loopback is free", e))
}
