//! The socket on which a service manager listens: datagrams of `NAME=value` lines (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long a manager that reads nothing holds its own thread up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A way to it.
#[derive(Debug)]
pub(super) struct Line {
    socket: UnixDatagram,
    to: SocketAddr,
    /// Whether the last message could not be sent, so that it is said once.
    broken: AtomicBool,
}

impl Line {
    /// To a path, or to an abstract name that begins with `@`.
    ///
    /// # Errors
    /// When it is neither, or the system gives no socket.
    pub(super) fn to(name: &OsStr) -> io::Result<Line> {
        let to = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "neither a path nor @NAME",
                ));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Line { socket, to, broken: AtomicBool::new(false) })
    }

    /// Sends one message. A manager that is gone for a while, as when it executes itself anew, is tried again with the
    /// next one.
    pub(super) fn say(&self, message: &str) {
        match self.socket.send_to_addr(message.as_bytes(), &self.to) {
            Ok(_) => self.broken.store(false, Ordering::Relaxed),
            Err(e) if self.broken.swap(true, Ordering::Relaxed) => {
                tracing::debug!(
                    code = "CN0571",
                    "the service manager cannot be told anything: {e}"
                );
            }
            Err(e) => {
                tracing::warn!(code = "CN0571", "the service manager cannot be told anything: {e}");
            }
        }
    }
}

/// The monotonic clock in microseconds, as a manager compares it.
pub(super) fn monotonic() -> u64 {
    micros(ClockId::Monotonic)
}

/// Processor time of this process so far, in microseconds.
pub(super) fn processor() -> u64 {
    micros(ClockId::ProcessCPUTime)
}

fn micros(clock: ClockId) -> u64 {
    let time = Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
