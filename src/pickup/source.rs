//! Where an upload's bytes come from: a file, which can be read again, or a stream, of which the last
//! part is kept so that an upload that broke off goes on.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use consign_core::id::{BlobDigest, Sha256Digest};
use sha2::{Digest, Sha256};

/// Bytes of a stream that are kept: more than a relay that was killed may have lost.
const KEPT: u64 = 48 << 20;
/// Bytes hashed at a time.
const PIECE: usize = 1 << 20;

/// Both digests of content that comes in pieces.
#[derive(Clone, Debug, Default)]
pub struct Hashes {
    sha256: Sha256,
    blake3: blake3::Hasher,
    /// Bytes so far.
    pub size: u64,
}

impl Hashes {
    /// The next piece.
    pub fn update(&mut self, data: &[u8]) {
        self.sha256.update(data);
        self.blake3.update(data);
        self.size += data.len() as u64;
    }

    /// The digests of all of it.
    #[must_use]
    pub fn finish(self) -> (Sha256Digest, BlobDigest) {
        let sha256 = Sha256Digest(self.sha256.finalize().into());
        (sha256, BlobDigest(*self.blake3.finalize().as_bytes()))
    }

    /// Everything a reader has.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn read(&mut self, from: &mut dyn Read, seen: &mut dyn FnMut(u64)) -> io::Result<()> {
        read_all(from, &mut |data| {
            self.update(data);
            seen(data.len() as u64);
        })
    }
}

/// Reads to the end.
fn read_all(from: &mut dyn Read, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => each(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The bytes of an upload.
pub trait Source: Read {
    /// Goes to an offset; `false` when it is gone for good.
    ///
    /// # Errors
    /// Those of the system.
    fn rewind(&mut self, offset: u64) -> io::Result<bool>;
    /// Length and digest of all of it, where they are known before anything is sent. BLAKE3 alone: SHA-256, which
    /// the relay takes of what arrives, would cost three times as much and find nothing more.
    fn whole(&self) -> Option<(u64, BlobDigest)>;
    /// Length and digest of what was read, once that is all of it.
    fn read_whole(&self) -> Option<(u64, BlobDigest)>;
}

/// A file that must stay what it was when it was hashed.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    there: Metadata,
    at: u64,
    whole: (u64, BlobDigest),
}

impl FileSource {
    /// Opens a file and hashes it; `None` when it is none, but a pipe or a device.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path, seen: &mut dyn FnMut(u64)) -> io::Result<Option<FileSource>> {
        let mut file = File::open(path)?;
        let there = file.metadata()?;
        if there.is_dir() {
            return Err(io::Error::other("it is a directory"));
        }
        if !there.is_file() {
            return Ok(None);
        }
        let (mut hash, mut size) = (blake3::Hasher::new(), 0);
        read_all(&mut file, &mut |data| {
            hash.update(data);
            size += data.len() as u64;
            seen(data.len() as u64);
        })?;
        let digest = BlobDigest(*hash.finalize().as_bytes());
        let mut source = FileSource { file, there, at: size, whole: (size, digest) };
        source.check()?;
        source.rewind(0)?;
        Ok(Some(source))
    }

    fn check(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        let same = now.len() == self.whole.0 && now.modified().ok() == self.there.modified().ok();
        if same { Ok(()) } else { Err(io::Error::other("it was written to while it was read")) }
    }
}

impl Read for FileSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(buffer)?;
        self.at += got as u64;
        // Its last bytes are given only if nobody wrote to it since.
        if self.at >= self.whole.0 {
            self.check()?;
        }
        Ok(got)
    }
}

impl Source for FileSource {
    fn rewind(&mut self, offset: u64) -> io::Result<bool> {
        if offset > self.whole.0 {
            return Ok(false);
        }
        self.at = self.file.seek(SeekFrom::Start(offset))?;
        Ok(true)
    }

    fn whole(&self) -> Option<(u64, BlobDigest)> {
        Some(self.whole)
    }

    fn read_whole(&self) -> Option<(u64, BlobDigest)> {
        Some(self.whole)
    }
}

/// A stream: hashed while it is read, its last part kept.
pub struct Stream<'a> {
    from: &'a mut dyn Read,
    kept: VecDeque<u8>,
    most: u64,
    /// How far it was read, and where the reader stands.
    end: u64,
    at: u64,
    hash: blake3::Hasher,
    is_whole: bool,
}

impl<'a> Stream<'a> {
    /// A stream that nothing was read of.
    pub fn new(from: &'a mut dyn Read) -> Stream<'a> {
        Stream::keeping(from, KEPT)
    }

    fn keeping(from: &'a mut dyn Read, most: u64) -> Stream<'a> {
        let (kept, hash) = (VecDeque::new(), blake3::Hasher::new());
        Stream { from, kept, most, end: 0, at: 0, hash, is_whole: false }
    }

    /// Keeps the first `got` bytes of `buffer`. Its memory is never more than `most`: what is too old
    /// makes way first, and room is made in steps that end there.
    fn keep(&mut self, got: usize, buffer: &[u8]) {
        let most = self.most as usize;
        let data = &buffer[got.saturating_sub(most)..got];
        let needed = self.kept.len() + data.len();
        self.kept.drain(..needed.saturating_sub(most));
        let needed = needed.min(most);
        if needed > self.kept.capacity() {
            let room = (2 * self.kept.capacity()).clamp(needed, most);
            self.kept.reserve_exact(room - self.kept.len());
        }
        self.kept.extend(data);
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at < self.end {
            let start = self.kept.len() - (self.end - self.at) as usize;
            let got = buffer.len().min(self.kept.len() - start);
            for (to, from) in buffer.iter_mut().zip(self.kept.range(start..start + got)) {
                *to = *from;
            }
            self.at += got as u64;
            return Ok(got);
        }
        let got = self.from.read(buffer)?;
        let data = &buffer[..got];
        self.hash.update(data);
        self.is_whole |= got == 0 && !buffer.is_empty();
        self.keep(got, buffer);
        self.end += got as u64;
        self.at = self.end;
        Ok(got)
    }
}

impl Source for Stream<'_> {
    fn rewind(&mut self, offset: u64) -> io::Result<bool> {
        let start = self.end - self.kept.len() as u64;
        let is_kept = (start..=self.end).contains(&offset);
        if is_kept {
            self.at = offset;
        }
        Ok(is_kept)
    }

    fn whole(&self) -> Option<(u64, BlobDigest)> {
        None
    }

    fn read_whole(&self) -> Option<(u64, BlobDigest)> {
        let digest = BlobDigest(*self.hash.finalize().as_bytes());
        self.is_whole.then_some((self.end, digest))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_stream_goes_back_as_far_as_it_is_kept_and_is_hashed_once() {
        let content: Vec<u8> = (0..100u8).collect();
        let mut from = content.as_slice();
        let mut stream = Stream::keeping(&mut from, 40);
        let mut buffer = [0; 30];
        let mut seen = Vec::new();
        for _ in 0..2 {
            let got = stream.read(&mut buffer).unwrap();
            seen.extend_from_slice(&buffer[..got]);
        }
        assert!(!stream.rewind(19).unwrap() && !stream.rewind(61).unwrap());
        assert!(stream.rewind(25).unwrap());
        seen.truncate(25);
        stream.read_to_end(&mut seen).unwrap();
        assert_eq!(seen, content);
        let mut hashes = Hashes::default();
        hashes.update(&content);
        assert_eq!(stream.read_whole(), Some((100, hashes.finish().1)));
        assert!(stream.rewind(100).unwrap() && stream.rewind(60).unwrap());
    }

    #[test]
    fn what_is_kept_of_a_stream_takes_no_more_memory_than_that() {
        for piece in [1, 7, 40, 1_000] {
            let content: Vec<u8> = (0..4_000u32).map(|n| n as u8).collect();
            let mut from = content.as_slice();
            let mut stream = Stream::keeping(&mut from, 300);
            let mut buffer = vec![0; piece];
            while stream.read(&mut buffer).unwrap() > 0 {
                assert!(stream.kept.capacity() <= 300, "{}", stream.kept.capacity());
            }
            assert!(stream.rewind(3_700).unwrap() && !stream.rewind(3_699).unwrap());
            let mut last = Vec::new();
            assert!(stream.rewind(3_700).unwrap());
            stream.read_to_end(&mut last).unwrap();
            assert_eq!(last, content[3_700..], "{piece}");
        }
    }

    #[test]
    fn a_file_that_changes_is_not_given_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "0123456789").unwrap();
        let mut source = FileSource::open(&path, &mut |_| {}).unwrap().unwrap();
        let mut all = Vec::new();
        source.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"0123456789");
        assert!(source.rewind(4).unwrap() && !source.rewind(11).unwrap());
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"more").unwrap();
        assert!(source.read_to_end(&mut Vec::new()).is_err());
        assert!(FileSource::open(dir.path(), &mut |_| {}).is_err());
    }
}
