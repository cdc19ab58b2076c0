//! A transfer that breaks off goes on at its last checkpoint, whichever side was gone.

use crate::disk::Word;
use crate::site::{Site, content, pair};
use crate::wait;

/// Six checkpoints and a rest.
const SIZE: usize = (96 << 20) + 12_345;
/// Content is checkpointed every so many bytes.
const CHECKPOINT: u64 = 16 << 20;

struct Transfer {
    alpha: Site,
    beta: Site,
    bytes: Vec<u8>,
    id: String,
}

/// A large segment on its way, with at least two checkpoints behind it and the end still ahead.
fn half_way(runtime: &'static str) -> Transfer {
    let (mut alpha, mut beta) = pair(runtime);
    beta.on_disk();
    alpha.serve();
    beta.serve();
    let bytes = content(7, SIZE);
    let id = alpha.accepted("large", &bytes);
    // Two checkpoints are durable by then, with their rows.
    let disk = beta.disk();
    let far = 2 * CHECKPOINT + (8 << 20);
    wait::until_true("the transfer to get on", || disk.get(Word::Bytes) >= far);
    assert!(disk.get(Word::Bytes) < SIZE as u64, "it was over before it could be broken off");
    Transfer { alpha, beta, bytes, id }
}

impl Transfer {
    /// The end: it arrived whole, and beta wrote clearly less than all of it since `before`.
    fn arrives(self, before: u64) {
        assert!(self.beta.arrival(&self.id) == self.bytes);
        let counts = self.alpha.settled("beta");
        assert_eq!((counts.delivered, counts.dead), (1, 0));
        assert_eq!(self.beta.segments().len(), 1);
        let written = self.beta.disk().get(Word::Bytes) - before;
        let most = SIZE as u64 - CHECKPOINT + (8 << 20);
        assert!(written < most, "{written} bytes written again: it began anew");
        let all = self.beta.disk().get(Word::Bytes);
        let twice = all.saturating_sub(SIZE as u64);
        assert!(twice <= 2 * CHECKPOINT + (8 << 20), "{twice} bytes were written twice");
        let delivery = &self.alpha.segments()[0]["deliveries"][0];
        assert_eq!(delivery["spent"], 0, "a lost session is not the segment's fault");
        assert!(delivery["attempts"].as_u64().unwrap() >= 2);
    }
}

fn receiver_is_killed(runtime: &'static str) {
    let mut transfer = half_way(runtime);
    transfer.beta.kill();
    let before = transfer.beta.disk().get(Word::Bytes);
    transfer.beta.serve();
    transfer.arrives(before);
}

fn sender_is_killed(runtime: &'static str) {
    let mut transfer = half_way(runtime);
    transfer.alpha.kill();
    let before = transfer.beta.disk().get(Word::Bytes);
    transfer.alpha.serve();
    transfer.arrives(before);
}

fn both_are_killed(runtime: &'static str) {
    let mut transfer = half_way(runtime);
    transfer.alpha.kill();
    transfer.beta.kill();
    let before = transfer.beta.disk().get(Word::Bytes);
    transfer.beta.serve();
    transfer.alpha.serve();
    transfer.arrives(before);
}

#[test]
fn smol_resumes_when_both_are_killed() {
    both_are_killed("smol");
}

#[test]
fn std_resumes_when_both_are_killed() {
    both_are_killed("std");
}

#[test]
fn smol_resumes_when_the_receiver_is_killed() {
    receiver_is_killed("smol");
}

#[test]
fn std_resumes_when_the_receiver_is_killed() {
    receiver_is_killed("std");
}

#[test]
fn smol_resumes_when_the_sender_is_killed() {
    sender_is_killed("smol");
}

#[test]
fn std_resumes_when_the_sender_is_killed() {
    sender_is_killed("std");
}
