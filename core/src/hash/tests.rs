//! The hasher against plain BLAKE3, with checkpoints taken, encoded and resumed everywhere.

use alloc::vec;
use alloc::vec::Vec;

use quickcheck::quickcheck;

use super::{ChainFault, Checkpoint, Hasher};
use crate::limits::CHECKPOINT_EVERY;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).unwrap_or(0)).collect()
}

fn plain(data: &[u8]) -> [u8; 32] {
    *blake3::hash(data).as_bytes()
}

/// Hashes in pieces; at each checkpoint goes on with a hasher made from its encoded form.
fn hash_with_restarts(data: &[u8], every: u64, piece: usize) -> [u8; 32] {
    let mut hasher = Hasher::with_distance(every);
    for part in data.chunks(piece) {
        hasher.update(part);
        if let Some(checkpoint) = hasher.checkpoint() {
            let read = Checkpoint::decode(&checkpoint.encode()).unwrap();
            assert_eq!(read, checkpoint);
            hasher = Hasher::resume_with_distance(&read, every).unwrap();
        }
    }
    assert_eq!(hasher.offset(), data.len() as u64);
    hasher.finalize().0
}

#[test]
fn equals_blake3_at_every_edge_of_small_distances() {
    for every in [2_048u64, 4_096, 16_384] {
        let step = usize::try_from(every).unwrap();
        let mut lengths = vec![0, 1, 2, 1_023, 1_024, 1_025];
        for n in 1..=17 {
            lengths.extend([n * step - 1, n * step, n * step + 1, n * step + step / 2]);
        }
        for len in lengths {
            let data = content(len);
            let mut whole = Hasher::with_distance(every);
            whole.update(&data);
            assert_eq!(whole.finalize().0, plain(&data), "{len} bytes at once, every {every}");
            for piece in [512, 1_024, step] {
                let got = hash_with_restarts(&data, every, piece);
                assert_eq!(got, plain(&data), "{len} bytes by {piece}, every {every}");
            }
        }
    }
}

#[test]
fn equals_blake3_at_the_edges_of_the_real_distance() {
    let every = usize::try_from(CHECKPOINT_EVERY).unwrap();
    let data = content(3 * every + 5);
    for len in [0, 1, 1_024, every - 1, every, every + 1, 2 * every, 3 * every, 3 * every + 5] {
        let got = hash_with_restarts(&data[..len], CHECKPOINT_EVERY, every / 4);
        assert_eq!(got, plain(&data[..len]), "{len} bytes");
    }
}

quickcheck! {
    fn equals_blake3_in_any_pieces(pieces: Vec<Vec<u8>>, times: u8) -> bool {
        let mut hasher = Hasher::with_distance(2_048);
        let mut all = Vec::new();
        for _ in 0..=times % 32 {
            for piece in &pieces {
                hasher.update(piece);
                all.extend_from_slice(piece);
                if let Some(checkpoint) = hasher.checkpoint() {
                    hasher = Hasher::resume_with_distance(&checkpoint, 2_048).unwrap();
                }
            }
        }
        hasher.offset() == all.len() as u64 && hasher.finalize().0 == plain(&all)
    }

    fn arbitrary_checkpoints_never_panic(bytes: Vec<u8>, offset: u64, values: u8) -> bool {
        let _ = Checkpoint::decode(&bytes);
        let stack = vec![[7; 32]; usize::from(values % 66)];
        let checkpoint = Checkpoint { offset: offset & !2_047, stack };
        if let Ok(mut hasher) = Hasher::resume_with_distance(&checkpoint, 2_048) {
            if offset < u64::MAX / 2 {
                hasher.update(&bytes);
            }
            let _ = hasher.finalize();
        }
        true
    }
}

#[test]
fn a_checkpoint_stands_only_at_multiples_of_the_distance() {
    let mut hasher = Hasher::with_distance(4_096);
    assert_eq!(hasher.checkpoint(), Some(Checkpoint::default()));
    for byte in 1..=3 * 4_096u64 {
        hasher.update(&[1]);
        assert_eq!(hasher.checkpoint().is_some(), byte % 4_096 == 0, "at {byte}");
    }
}

#[test]
fn checkpoints_that_do_not_fit_are_refused() {
    let good = Checkpoint { offset: 3 * 4_096, stack: vec![[1; 32]; 3] };
    assert!(Hasher::resume_with_distance(&good, 4_096).is_ok());
    let cases = [
        (
            Checkpoint { offset: 100, stack: vec![] },
            ChainFault::Offset { offset: 100, every: 4_096 },
        ),
        (
            Checkpoint { offset: 4_096, stack: vec![[1; 32]] },
            ChainFault::Values { offset: 4_096, found: 1, expected: 2 },
        ),
        (
            Checkpoint { offset: 0, stack: vec![[1; 32]] },
            ChainFault::Values { offset: 0, found: 1, expected: 0 },
        ),
    ];
    for (checkpoint, fault) in cases {
        assert_eq!(Hasher::resume_with_distance(&checkpoint, 4_096).unwrap_err(), fault);
    }
    let mut bytes = good.encode();
    bytes.push(0);
    assert_eq!(Checkpoint::decode(&bytes), Err(ChainFault::Length { len: bytes.len() }));
    assert_eq!(Checkpoint::decode(&[1, 0]), Err(ChainFault::Length { len: 2 }));
    assert_eq!(Checkpoint::decode(&[2]), Err(ChainFault::Version { version: 2 }));
    assert_eq!(Checkpoint::decode(&[]), Ok(Checkpoint::default()));
}

#[test]
fn a_checkpoint_of_the_largest_offset_is_small() {
    let every = CHECKPOINT_EVERY;
    let offset = u64::MAX / every * every;
    let groups = offset / (every / 2);
    let stack = vec![[9; 32]; usize::try_from((groups - 1).count_ones()).unwrap() + 1];
    let checkpoint = Checkpoint { offset, stack };
    assert!(Hasher::resume(&checkpoint).is_ok());
    assert!(checkpoint.encode().len() < 1_400);
}
