//! Files of keys and certificates: replaced by [`crate::replace`], and what is said when they are not.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::exit::{Exit, Failure};
use crate::replace::{self, NotWritten};
pub(super) use crate::replace::{Alone, New, Reader, with_ending};

/// Waits until no other command is at work in the directory of this file.
///
/// # Errors
/// When the directory cannot be opened or locked.
pub(super) fn alone(file: &Path) -> Result<Alone, Failure> {
    replace::alone(file).map_err(|NotWritten { path, error }| failure(&path, &error))
}

/// Replaces files in this order, all of them or, as far as that can be, none.
///
/// # Errors
/// When one cannot be written.
pub(super) fn replace(files: &[New<'_>]) -> Result<(), Failure> {
    replace::replace(files).map_err(|NotWritten { path, error }| failure(&path, &error))
}

/// Makes a file that is not there yet, owned as `like` is.
///
/// # Errors
/// CN0322 when it is there, CN0324 when it cannot be written.
pub(super) fn make(
    path: &Path,
    text: &str,
    reader: Reader,
    like: Option<&Path>,
) -> Result<(), Failure> {
    replace::make(path, text, reader, like).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => there(path),
        _ => failure(path, &e),
    })
}

/// Something is in the way that is not overwritten.
pub(super) fn there(path: &Path) -> Failure {
    let message = format!("{} is already there; nothing was changed", path.display());
    Failure::new(Exit::Failed, "CN0322", message)
}

fn failure(path: &Path, e: &io::Error) -> Failure {
    let message = format!("{} was not written: {e}", path.display());
    let help = "whoever owns the files of this site can run it again; credentials of a service are \
                replaced where the service manager takes them from";
    Failure::new(Exit::Failed, "CN0324", message).help(help)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_there_is_not_overwritten() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        make(&path, "one", Reader::Owner, None).expect("made");
        let mode = path.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(make(&path, "two", Reader::Owner, None).expect_err("there").code, "CN0322");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "one");
    }
}
