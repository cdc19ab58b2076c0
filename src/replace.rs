//! Small files written so that a crash leaves the old or the new one: beside, synced, then put in place, with the mode and
//! owner of what was there, so that whoever runs the site can still read them.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Who may read a file that is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Its owner.
    Owner,
    /// Everybody.
    Everybody,
}

impl Reader {
    fn mode(self) -> u32 {
        match self {
            Reader::Owner => 0o600,
            Reader::Everybody => 0o644,
        }
    }
}

/// What could not be written, or locked, and why.
#[derive(Debug)]
pub(crate) struct NotWritten {
    pub(crate) path: PathBuf,
    pub(crate) error: io::Error,
}

impl NotWritten {
    fn of(path: &Path) -> impl FnOnce(io::Error) -> NotWritten + use<> {
        let path = path.to_path_buf();
        move |error| NotWritten { path, error }
    }
}

/// Keeps others who replace files away from a directory as long as it lives.
pub(crate) struct Alone(#[expect(dead_code, reason = "held for its lock")] File);

/// Waits until nobody else replaces files in the directory of this one.
///
/// # Errors
/// When the directory cannot be opened or locked.
pub(crate) fn alone(file: &Path) -> Result<Alone, NotWritten> {
    let dir = parent(&resolved(file));
    let lock = File::open(&dir).and_then(|dir| dir.lock().map(|()| dir));
    lock.map(Alone).map_err(NotWritten::of(&dir))
}

/// A file to be replaced, and its new text.
pub(crate) struct New<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
    pub(crate) reader: Reader,
}

/// Replaces files in this order; the caller is alone. Until all of them are on disk beside, nothing is changed; what is cut
/// off between two of them leaves each as a whole, old or new.
///
/// # Errors
/// When one cannot be written.
pub(crate) fn replace(files: &[New<'_>]) -> Result<(), NotWritten> {
    let mut staged = Staged(Vec::new());
    for file in files {
        let path = resolved(file.path);
        let beside = with_ending(&path, "new");
        let old = path.metadata().ok();
        // What a run that was cut off has left; nobody else is at it now.
        let gone = std::fs::remove_file(&beside);
        gone.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
            .and_then(|()| write(&beside, file.text, file.reader, old.as_ref()))
            .map_err(NotWritten::of(&path))?;
        staged.0.push((beside, path));
    }
    let dirs: Vec<PathBuf> = staged.0.iter().map(|(_, path)| parent(path)).collect();
    while !staged.0.is_empty() {
        let (beside, path) = staged.0.remove(0);
        if let Err(e) = std::fs::rename(&beside, &path) {
            let _ = std::fs::remove_file(&beside);
            return Err(NotWritten { path, error: e });
        }
    }
    for dir in dirs {
        sync(&dir).map_err(NotWritten::of(&dir))?;
    }
    Ok(())
}

/// Files that lie beside those they are to replace; removed when they never do.
struct Staged(Vec<(PathBuf, PathBuf)>);

impl Drop for Staged {
    fn drop(&mut self) {
        for (beside, _) in &self.0 {
            let _ = std::fs::remove_file(beside);
        }
    }
}

/// Makes a file that is not there yet, owned as `like` is.
///
/// # Errors
/// When it is there, or cannot be written.
pub(crate) fn make(path: &Path, text: &str, reader: Reader, like: Option<&Path>) -> io::Result<()> {
    let like = like.and_then(|like| like.metadata().ok());
    write(path, text, reader, like.as_ref()).and_then(|()| sync(&parent(path)))
}

/// Writes a new file and syncs it; nothing is left of one that fails.
fn write(path: &Path, text: &str, reader: Reader, like: Option<&Metadata>) -> io::Result<()> {
    let mode = like.map_or(reader.mode(), |like| like.permissions().mode() & 0o777);
    // Nobody else may read a key, not even before its mode is set.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| own(&file, like))
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

fn own(file: &File, like: Option<&Metadata>) -> io::Result<()> {
    let Some(like) = like else { return Ok(()) };
    let now = file.metadata()?;
    if (now.uid(), now.gid()) == (like.uid(), like.gid()) {
        return Ok(());
    }
    fchown(file, Some(like.uid()), Some(like.gid()))
}

/// Where a file lies for good: a link to it stays a link.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}

/// The same name with something behind it.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

fn parent(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}

/// Makes names in a directory last.
pub(crate) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("there").permissions().mode() & 0o777
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).expect("a directory").flatten();
        let mut names: Vec<_> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn modes_and_links_stay_and_nothing_is_left_beside() {
        let dir = tempfile::tempdir().expect("a directory");
        let (key, cert) = (dir.path().join("key"), dir.path().join("cert"));
        let link = dir.path().join("link");
        std::fs::write(&key, "old").expect("written");
        std::fs::set_permissions(&key, Permissions::from_mode(0o640)).expect("set");
        std::os::unix::fs::symlink("key", &link).expect("linked");
        // Left by a run that was cut off.
        std::fs::write(with_ending(&key, "new"), "half").expect("written");
        let _alone = alone(&key).expect("nobody else");
        let all = [
            New { path: &link, text: "new key", reader: Reader::Owner },
            New { path: &cert, text: "new cert", reader: Reader::Everybody },
        ];
        replace(&all).expect("replaced");
        assert_eq!(std::fs::read_to_string(&key).expect("there"), "new key");
        assert!(link.symlink_metadata().expect("there").is_symlink());
        assert_eq!((mode(&key), mode(&cert)), (0o640, 0o644));
        assert_eq!(names(dir.path()), ["cert", "key", "link"]);
    }

    #[test]
    fn when_one_cannot_be_written_none_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let (key, lost) = (dir.path().join("key"), dir.path().join("no/where"));
        std::fs::write(&key, "old").expect("written");
        let all = [
            New { path: &key, text: "new", reader: Reader::Owner },
            New { path: &lost, text: "new", reader: Reader::Everybody },
        ];
        let failed = replace(&all).expect_err("there is no such directory");
        assert_eq!((failed.path, failed.error.kind()), (lost, ErrorKind::NotFound));
        assert_eq!(std::fs::read_to_string(&key).expect("there"), "old");
        assert_eq!(names(dir.path()), ["key"]);
    }
}
