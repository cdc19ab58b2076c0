//! Small files that a site goes by, read without being held up by what is no file.

use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// Longest file that is read, in bytes.
const MAX: u64 = 16 << 20;

/// The whole of a regular file. A pipe or a device is refused at once: one that nobody writes to would be
/// waited for for ever, and the running site with it.
///
/// # Errors
/// Those of the system; when it is no regular file, or longer than 16 MiB.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(rustix::io::Errno::ISDIR.into()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX {
        let text = format!("it is longer than {MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_some_length_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read(&path).unwrap(), b"text");
        std::fs::File::create(&path).unwrap().set_len(MAX + 1).unwrap();
        assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let pipe = dir.path().join("p");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
        assert_eq!(read(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
