//! Both digests of content that may stop anywhere and go on later.

use alloc::vec::Vec;
use core::fmt;

use sha2::digest::common::hazmat::{SerializableState, SerializedState};
use sha2::{Digest, Sha256};

use crate::hash::{Checkpoint, Hasher};
use crate::id::{BlobDigest, Sha256Digest};

/// First byte of a chain.
const VERSION: u8 = 1;
/// First byte of a chain with a seal before it.
const SEALED: u8 = 2;

/// The digester.
#[derive(Clone)]
pub(super) struct Digester {
    sha256: Sha256,
    blake3: Hasher,
}

impl fmt::Debug for Digester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digester(at {})", self.offset())
    }
}

impl Digester {
    /// At the beginning of content, with checkpoints every `every` bytes.
    pub(super) fn new(every: u64) -> Digester {
        Digester { sha256: Sha256::new(), blake3: Hasher::with_distance(every) }
    }

    /// Goes on where a chain stands: at the beginning when it is empty. `None` when it cannot be used.
    pub(super) fn resume(chain: &[u8], every: u64) -> Option<Digester> {
        let Some((version, rest)) = chain.split_first() else { return Some(Digester::new(every)) };
        let mut state = SerializedState::<Sha256>::default();
        let (sha256, blake3) = rest.split_at_checked(state.len())?;
        if *version != VERSION {
            return None;
        }
        state.copy_from_slice(sha256);
        let blake3 = Checkpoint::decode(blake3).ok()?;
        Some(Digester {
            sha256: Sha256::deserialize(&state).ok()?,
            blake3: Hasher::resume_with_distance(&blake3, every).ok()?,
        })
    }

    /// Where hashing can go on later, if that can be said here: version 1, the state of SHA-256, and
    /// a checkpoint of BLAKE3 with the offset. Empty at the beginning.
    pub(super) fn chain(&self) -> Option<Vec<u8>> {
        let blake3 = self.blake3.checkpoint()?;
        if blake3.offset == 0 {
            return Some(Vec::new());
        }
        let mut chain = Vec::from([VERSION]);
        chain.extend_from_slice(&self.sha256.serialize());
        chain.extend_from_slice(&blake3.encode());
        Some(chain)
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        self.sha256.update(data);
        self.blake3.update(data);
    }

    /// How many bytes have been hashed.
    pub(super) fn offset(&self) -> u64 {
        self.blake3.offset()
    }

    /// SHA-256 of everything hashed.
    pub(super) fn sha256(&self) -> Sha256Digest {
        Sha256Digest(self.sha256.clone().finalize().into())
    }

    /// The digests of everything hashed.
    pub(super) fn finish(&self) -> (Sha256Digest, BlobDigest) {
        (self.sha256(), self.blake3.finalize())
    }
}

/// A chain for content that stopped between two checkpoints: what stands behind the chain is read again
/// when it goes on, and is taken only if all of it still has this SHA-256. Version 2, that digest, and the
/// chain of version 1.
pub(super) fn seal(all: Sha256Digest, bare: &[u8]) -> Vec<u8> {
    [&[SEALED], &all.0[..], bare].concat()
}

/// What a sealed chain says all of the content is up to where it stopped, and the chain itself. `None`
/// when there is no seal: it stopped at a checkpoint, or an earlier version wrote it.
pub(super) fn unseal(chain: &[u8]) -> Option<(Sha256Digest, &[u8])> {
    let (version, rest) = chain.split_first()?;
    let (digest, bare) = rest.split_first_chunk::<32>()?;
    (*version == SEALED).then_some((Sha256Digest(*digest), bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_goes_on_as_if_nothing_had_happened() {
        fn same(data: Vec<u8>, cuts: Vec<u16>) -> bool {
            let every = 2_048;
            let data: Vec<u8> = data.iter().cycle().take(data.len() * 97).copied().collect();
            let mut whole = Digester::new(every);
            whole.update(&data);
            let mut parts = Digester::new(every);
            for cut in cuts {
                let at = parts.offset() as usize;
                let end = (at + usize::from(cut)).min(data.len()) / every as usize * every as usize;
                if end > at {
                    parts.update(&data[at..end]);
                    parts = Digester::resume(&parts.chain().unwrap(), every).unwrap();
                }
            }
            let at = parts.offset() as usize;
            parts.update(&data[at..]);
            parts.finish() == whole.finish()
                && whole.finish().1.0 == *blake3::hash(&data).as_bytes()
        }
        quickcheck::quickcheck(same as fn(Vec<u8>, Vec<u16>) -> bool);
    }

    #[test]
    fn what_is_no_chain_is_refused() {
        let mut digester = Digester::new(2_048);
        assert_eq!(digester.chain(), Some(Vec::new()));
        digester.update(&[7; 2_048]);
        let chain = digester.chain().unwrap();
        digester.update(&[7]);
        assert_eq!(digester.chain(), None);
        assert!(Digester::resume(&chain, 2_048).is_some());
        for len in 1..chain.len() {
            assert!(
                Digester::resume(&chain[..len], 2_048).is_none_or(|d| d.offset() == 0),
                "{len}"
            );
        }
        let newer = [&[3], &chain[1..]].concat();
        assert!(Digester::resume(&newer, 2_048).is_none());
    }
    #[test]
    fn a_seal_tells_where_it_was_put() {
        let mut digester = Digester::new(2_048);
        digester.update(&[7; 2_048]);
        let bare = digester.chain().unwrap();
        assert_eq!(unseal(&bare), None);
        for chain in [bare, Vec::new()] {
            let mut further = digester.clone();
            for len in [1, 100] {
                further.update(&[8; 100][..len]);
                let sealed = seal(further.sha256(), &chain);
                assert_eq!(unseal(&sealed), Some((further.finish().0, &chain[..])));
            }
        }
        assert_eq!(unseal(&[SEALED; 32]), None, "too short");
    }
}
