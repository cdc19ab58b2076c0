//! Content taken in piece by piece.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::{CHUNK, Intake};
use crate::hash::ChainFault;
use crate::id::{BlobDigest, BlobNo, TransferNo};
use crate::limits::CHECKPOINT_EVERY;
use crate::session::SessionOut;
use crate::session::peer::fault::PeerFault;
use crate::session::peer::spare::Spare;
use crate::store::StoreRequest;

fn intake(size: u64) -> Intake {
    Intake::new(TransferNo(1), BlobNo(2), size, &[], CHECKPOINT_EVERY, false).unwrap()
}

fn take(
    intake: &mut Intake,
    offset: u64,
    data: &[u8],
    spare: &mut Spare,
    out: &mut SessionOut,
) -> Result<(), PeerFault> {
    intake.expect(offset, data.len() as u64)?;
    intake.take(data, spare, out);
    Ok(())
}

fn writes(out: &SessionOut) -> Vec<usize> {
    out.requests
        .iter()
        .map(|request| match request {
            StoreRequest::Write { data, .. } => data.len(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn full_chunks_go_to_the_store_and_the_last_one_as_it_is() {
    let size = 2 * CHUNK + 7;
    let mut intake = intake(size as u64);
    let mut out = SessionOut::default();
    for piece in vec![3; size].chunks(50_000) {
        let at = intake.received();
        take(&mut intake, at, piece, &mut Spare::default(), &mut out).unwrap();
    }
    assert!(intake.is_whole());
    assert_eq!(writes(&out), [CHUNK, CHUNK, 7]);
    assert_eq!(intake.digest(), BlobDigest(*blake3::hash(&vec![3; size]).as_bytes()));
}

#[test]
fn a_chunk_is_no_larger_than_what_is_to_come() {
    let mut intake = intake(10);
    take(&mut intake, 0, &[1; 4], &mut Spare::default(), &mut SessionOut::default()).unwrap();
    assert!(intake.chunk.capacity() < 100, "{}", intake.chunk.capacity());
}

#[test]
fn no_more_is_freed_than_the_store_was_given() {
    let mut intake = intake(CHUNK as u64 + 100);
    let mut out = SessionOut::default();
    take(&mut intake, 0, &vec![1; CHUNK + 40], &mut Spare::default(), &mut out).unwrap();
    assert_eq!(writes(&out), [CHUNK]);
    assert_eq!(intake.written(10), 10);
    assert_eq!(intake.written(u64::MAX), CHUNK as u64 - 10);
    assert_eq!(intake.written(1), 0);
    assert_eq!(intake.held(), 40, "what is gathered here is still held");
}

#[test]
fn gaps_overlaps_and_what_is_too_long_are_faults_and_change_nothing() {
    let mut intake = intake(100);
    let mut out = SessionOut::default();
    take(&mut intake, 0, &[1; 60], &mut Spare::default(), &mut out).unwrap();
    let (transfer, expected, size) = (TransferNo(1), 60, 100);
    for offset in [0, 59, 61, u64::MAX] {
        let fault = PeerFault::Gap { transfer, offset, expected };
        assert_eq!(take(&mut intake, offset, &[1; 1], &mut Spare::default(), &mut out), Err(fault));
    }
    let fault = PeerFault::Overlong { transfer, over: 2, size };
    assert_eq!(take(&mut intake, 60, &[1; 42], &mut Spare::default(), &mut out), Err(fault));
    assert_eq!((intake.received(), intake.held()), (60, 60));
    assert!(out.is_empty());
}

#[test]
fn only_a_sound_checkpoint_is_gone_on_from() {
    let fault = Intake::new(TransferNo(1), BlobNo(2), 100, &[1, 2], CHECKPOINT_EVERY, false);
    let fault = fault.unwrap_err();
    assert_eq!(format!("{fault}"), format!("{}", ChainFault::Length { len: 2 }));
}
