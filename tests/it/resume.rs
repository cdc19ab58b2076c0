//! A transfer that breaks off goes on at its last checkpoint, whichever side was gone.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::disk::Word;
use crate::site::{Site, make_file, pair};
use crate::wait;

/// Six checkpoints and a rest.
const SIZE: usize = (96 << 20) + 12_345;
/// Content is checkpointed every so many bytes.
const CHECKPOINT: u64 = 16 << 20;

struct Transfer {
    alpha: Site,
    beta: Site,
    digest: String,
    send: Child,
}

/// A large segment on its way, with at least two checkpoints behind it and the end still ahead: beta
/// dies at the sync of the third.
fn half_way(runtime: &'static str) -> Transfer {
    let (mut alpha, mut beta) = pair(runtime);
    beta.on_disk();
    alpha.serve();
    beta.serve();
    let file: PathBuf = alpha.dir.join("large");
    let digest = make_file(&file, 7, SIZE);
    let mut send = alpha.command(&["send", file.to_str().unwrap(), "--to", "beta", "--wait"]);
    let send = send.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Transfer { alpha, beta, digest, send }
}

impl Transfer {
    /// Waits until beta has taken so many bytes to its disk.
    fn reaches(&self, bytes: u64) {
        let disk = self.beta.disk();
        wait::until_true("the transfer to get on", || disk.get(Word::Bytes) >= bytes);
        assert!(disk.get(Word::Bytes) < SIZE as u64, "it was over before it could be broken off");
    }

    /// The end: it arrived whole, and beta wrote clearly less than all of it since `before`.
    fn arrives(mut self, before: u64) {
        assert!(self.send.wait().unwrap().success());
        let counts = self.alpha.settled("beta");
        assert_eq!((counts.delivered, counts.dead), (1, 0));
        let segments = self.beta.segments();
        assert_eq!(segments.len(), 1);
        assert_eq!(segments[0]["digest"], self.digest.as_str());
        let content = self.beta.content(segments[0]["id"].as_str().unwrap());
        assert_eq!(blake3::hash(&content).to_hex().as_str(), self.digest);
        let written = self.beta.disk().get(Word::Bytes) - before;
        let most = SIZE as u64 - CHECKPOINT + (8 << 20);
        assert!(written < most, "{written} bytes written again: it began anew");
        let delivery = &self.alpha.segments()[0]["deliveries"][0];
        assert_eq!(delivery["spent"], 0, "a lost session is not the segment's fault");
        assert!(delivery["attempts"].as_u64().unwrap() >= 2);
    }
}

fn receiver_is_killed(runtime: &'static str) {
    let mut transfer = half_way(runtime);
    // Two checkpoints are durable by then, with their rows.
    transfer.reaches(2 * CHECKPOINT + (8 << 20));
    transfer.beta.kill();
    let before = transfer.beta.disk().get(Word::Bytes);
    transfer.beta.serve();
    transfer.arrives(before);
}

fn sender_is_killed(runtime: &'static str) {
    let mut transfer = half_way(runtime);
    transfer.reaches(2 * CHECKPOINT + (8 << 20));
    transfer.alpha.kill();
    // The waiting client loses its daemon with it.
    assert!(!transfer.send.wait().unwrap().success());
    let before = transfer.beta.disk().get(Word::Bytes);
    transfer.alpha.serve();
    let file = transfer.alpha.dir.join("large");
    let mut again =
        transfer.alpha.command(&["send", file.to_str().unwrap(), "--to", "beta", "--wait"]);
    transfer.send = again.stdout(Stdio::null()).spawn().unwrap();
    transfer.arrives(before);
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
