//! A wake-up that `poll` can wait for: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};

/// Wakes whoever polls it, until [`Wake::clear`].
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    pub(crate) fn new() -> io::Result<Wake> {
        Ok(Wake(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes; stays so until cleared.
    pub(crate) fn wake(&self) {
        // The only failure is a full counter, and that is awake.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }

    /// Is asleep again.
    pub(crate) fn clear(&self) {
        // Nothing to read is what is wanted.
        let _ = read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What [`wait`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    /// The wake-up was given.
    pub(crate) woken: bool,
    /// The descriptor can be read, or has ended.
    pub(crate) readable: bool,
    /// The descriptor can be written.
    pub(crate) writable: bool,
    /// The descriptor is gone in both directions.
    pub(crate) gone: bool,
}

/// Waits for `wake`, for `interest` in `fd`, or for `timeout` to pass (`None` is for ever). Interrupted
/// or out of time, it has found nothing.
pub(crate) fn wait(
    wake: &Wake,
    fd: Option<(BorrowedFd<'_>, PollFlags)>,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    // What does not fit is for ever.
    let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
    let mut fds = [PollFd::new(wake, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
    let mut used = 1;
    if let Some((fd, interest)) = fd {
        fds[1] = PollFd::from_borrowed_fd(fd, interest);
        used = 2;
    }
    match poll(&mut fds[..used], timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let woken = !fds[0].revents().is_empty();
    let found = if used == 2 { fds[1].revents() } else { PollFlags::empty() };
    let gone = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    Ok(Ready {
        woken,
        readable: found.contains(PollFlags::IN) || gone,
        writable: found.contains(PollFlags::OUT) || gone,
        gone,
    })
}
