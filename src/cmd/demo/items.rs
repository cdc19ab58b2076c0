//! What the demo sends: generated content, or files that were named.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use consign_core::id::{BlobDigest, hex};

use crate::exit::{Exit, Failure};

/// One thing to send.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// Its name as a segment.
    pub(super) name: String,
    /// Its length in bytes.
    pub(super) size: u64,
    from: From,
}

#[derive(Clone, Debug)]
enum From {
    /// Content that follows from the name.
    Name,
    File(PathBuf),
}

/// How many of which size, in bytes: inline ones, ones on either side of the limit, and files.
const SIZES: [(u64, usize); 8] = [
    (0, 1),
    (1 << 10, 12),
    (16 << 10, 8),
    (64 << 10, 2),
    ((64 << 10) + 1, 2),
    (1 << 20, 4),
    (8 << 20, 2),
    (64 << 20, 1),
];

/// The generated set.
pub(super) fn generated() -> Vec<Item> {
    let of = |size: u64, n: usize| {
        (0..n).map(move |i| Item { name: format!("{size}-{i}.bin"), size, from: From::Name })
    };
    SIZES.iter().flat_map(|(size, n)| of(*size, *n)).collect()
}

/// What goes the other way.
pub(super) fn returned() -> Vec<Item> {
    [1 << 10, 100 << 10, 1 << 20]
        .map(|size| Item { name: format!("back-{size}.bin"), size, from: From::Name })
        .to_vec()
}

/// The files that were named.
pub(super) fn named(files: &[PathBuf]) -> Result<Vec<Item>, Failure> {
    files.iter().map(|path| named_one(path)).collect()
}

fn named_one(path: &Path) -> Result<Item, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, "CN0002", format!("{} cannot be sent: {why}", path.display()))
    };
    let meta = path.metadata().map_err(|e| bad(&e))?;
    if !meta.is_file() {
        return Err(bad(&"it is not a file"));
    }
    let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(|| bad(&"it has no name"))?;
    Ok(Item { name: name.to_owned(), size: meta.len(), from: From::File(path.to_path_buf()) })
}

impl Item {
    /// Its content from the beginning.
    pub(super) fn open(&self) -> Result<Box<dyn Read>, Failure> {
        match &self.from {
            From::Name => {
                let mut hasher = blake3::Hasher::new();
                hasher.update(self.name.as_bytes());
                Ok(Box::new(hasher.finalize_xof().take(self.size)))
            }
            From::File(path) => {
                let file = File::open(path).map_err(|e| {
                    let message = format!("{} cannot be read: {e}", path.display());
                    Failure::new(Exit::Failed, "CN0530", message)
                })?;
                Ok(Box::new(file.take(self.size)))
            }
        }
    }

    /// Digest of its content.
    pub(super) fn digest(&self) -> Result<BlobDigest, Failure> {
        let mut hasher = blake3::Hasher::new();
        let mut from = self.open()?;
        let mut piece = vec![0; 256 << 10];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return Ok(BlobDigest(*hasher.finalize().as_bytes())),
                Ok(n) => hasher.update(piece.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    let message = format!("{} cannot be read: {e}", self.name);
                    return Err(Failure::new(Exit::Failed, "CN0530", message));
                }
            };
        }
    }

    /// Its name in a request's target.
    pub(super) fn encoded_name(&self) -> String {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        self.name.bytes().fold(String::new(), |mut text, b| {
            if plain(b) {
                text.push(char::from(b));
            } else {
                text.push('%');
                text.push_str(&hex(&[b]).to_ascii_uppercase());
            }
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_content_is_the_same_each_time_and_differs_by_name() {
        let items = generated();
        assert!(items.len() >= 24);
        assert_eq!(items.iter().map(|i| i.size).max(), Some(64 << 20));
        let small: Vec<&Item> = items.iter().filter(|i| i.size == 1 << 10).collect();
        let digests: std::collections::BTreeSet<BlobDigest> =
            small.iter().map(|i| i.digest().expect("generated")).collect();
        assert_eq!(digests.len(), small.len());
        let mut content = Vec::new();
        let first = small.first().expect("one");
        first.open().expect("open").read_to_end(&mut content).expect("read");
        assert_eq!(content.len(), 1 << 10);
        assert_eq!(blake3::hash(&content).as_bytes(), &first.digest().expect("generated").0);
    }

    #[test]
    fn files_keep_their_names() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a b&c.txt");
        std::fs::write(&path, "hello").expect("written");
        let item = named(&[path]).expect("a file").remove(0);
        assert_eq!((item.name.as_str(), item.size), ("a b&c.txt", 5));
        assert_eq!(item.encoded_name(), "a%20b%26c.txt");
        assert_eq!(item.digest().expect("read").0, *blake3::hash(b"hello").as_bytes());
        let failure = named(&[dir.path().to_path_buf()]).expect_err("a directory");
        assert_eq!(failure.exit, Exit::Usage);
        assert!(named(&[dir.path().join("no")]).is_err());
    }
}
