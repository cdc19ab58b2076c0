//! The admin socket: made where nobody else can put one in its place, 0660, and taken away at the end.
//!
//! Called under the lock of the data directory, so a socket that nobody answers on is a leftover of a
//! process that is gone.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::exit::{Exit, Failure};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Owner and group.
const MODE: u32 = 0o660;

/// The name in the file system; removed when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    made: Mark,
}

/// Device, inode and last change of what was made: an inode alone is soon used again.
type Mark = (u64, u64, i64, i64);

fn mark(path: &Path) -> std::io::Result<Mark> {
    let meta = path.symlink_metadata()?;
    Ok((meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if mark(&self.path).is_ok_and(|now| now == self.made) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn refused(code: &'static str, path: &Path, why: impl std::fmt::Display) -> Failure {
    let message = format!("the admin socket {} cannot be used: {why}", path.display());
    Failure::new(Exit::Config, code, message)
}

/// Makes the socket and listens on it.
///
/// # Errors
/// When its place is not safe or not free.
pub(super) fn listen(path: &Path) -> Result<(UnixListener, SocketFile), Failure> {
    refuse_unsafe(path)?;
    clear_stale(path)?;
    let io = |e: rustix::io::Errno| {
        let failure = refused("CN0513", path, e);
        let permitted = !matches!(e, rustix::io::Errno::ACCESS | rustix::io::Errno::PERM);
        if permitted { failure } else { Failure { exit: Exit::NotPermitted, ..failure } }
    };
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(io)?;
    bind(&socket, path).map_err(io)?;
    let made = mark(path).map_err(|e| refused("CN0513", path, e))?;
    let file = SocketFile { path: path.to_path_buf(), made };
    rustix::net::listen(&socket, BACKLOG).map_err(io)?;
    Ok((UnixListener::from(socket), file))
}

/// Binds with the mode set beforehand, so that at no time others may connect.
fn bind(socket: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(MODE);
    rustix::fs::fchmod(socket.as_fd(), mode)?;
    rustix::net::bind(socket, &SocketAddrUnix::new(path)?)?;
    // The process's umask took bits away; give the group its own back.
    rustix::fs::chmod(path, mode)
}

fn refuse_unsafe(path: &Path) -> Result<(), Failure> {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let meta =
        dir.metadata().map_err(|e| refused("CN0512", path, format!("its directory: {e}")))?;
    let mode = meta.mode() & 0o7777;
    if mode & 0o002 != 0 {
        let why = format!("everybody may write to its directory (mode {mode:04o})");
        let help = "choose another directory for listen.admin, or `chmod o-w` this one";
        return Err(refused("CN0512", path, why).help(help));
    }
    let (owner, me) = (meta.uid(), rustix::process::geteuid().as_raw());
    if owner != me && owner != 0 {
        let why = format!("its directory belongs to user {owner}, this process is user {me}");
        return Err(refused("CN0512", path, why));
    }
    Ok(())
}

/// Removes what a process left that is gone; refuses anything else.
fn clear_stale(path: &Path) -> Result<(), Failure> {
    let meta = match path.symlink_metadata() {
        Ok(meta) => meta,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(refused("CN0513", path, e)),
    };
    if !meta.file_type().is_socket() {
        return Err(refused("CN0512", path, "something that is not a socket is there"));
    }
    let me = rustix::process::geteuid().as_raw();
    if meta.uid() != me {
        let why = format!("a socket of user {} is there, this process is user {me}", meta.uid());
        return Err(refused("CN0512", path, why));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(refused("CN0513", path, "another process answers on it")),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|e| refused("CN0513", path, e))
        }
        Err(e) => Err(refused("CN0513", path, e)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("admin.sock");
        (dir, path)
    }

    #[test]
    fn is_for_owner_and_group_and_goes_away() {
        let (_dir, path) = place();
        let (listener, file) = listen(&path).expect("made");
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o660);
        UnixStream::connect(&path).expect("answers");
        drop(file);
        assert!(!path.exists());
        drop(listener);
    }

    #[test]
    fn a_leftover_is_replaced_but_a_live_one_is_not() {
        let (_dir, path) = place();
        let (listener, file) = listen(&path).expect("made");
        let failure = listen(&path).expect_err("somebody answers");
        assert!(failure.message.contains("another process answers"), "{failure}");
        drop(listener);
        // The name is still there, and nobody answers.
        let (_second, replaced) = listen(&path).expect("replaced");
        drop(file);
        assert!(path.exists(), "the older one's end does not take the newer one away");
        drop(replaced);
        assert!(!path.exists());
    }

    #[test]
    fn other_things_are_left_alone() {
        let (dir, path) = place();
        std::fs::write(&path, "precious").expect("written");
        assert_eq!(listen(&path).expect_err("not a socket").code, "CN0512");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "precious");
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).expect("linked");
        assert_eq!(listen(&path).expect_err("a link").code, "CN0512");
    }

    #[test]
    fn an_open_directory_is_refused() {
        let (dir, path) = place();
        for mode in [0o777, 0o1777] {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).expect("set");
            let failure = listen(&path).expect_err("unsafe");
            assert_eq!(failure.code, "CN0512");
            assert!(failure.message.contains("everybody may write"), "{failure}");
        }
        assert_eq!(listen(&dir.path().join("no/admin.sock")).expect_err("none").code, "CN0512");
    }
}
