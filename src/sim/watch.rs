//! Those who watch a world: the auditor, the trace hash, the last steps for a report.

use std::collections::VecDeque;
use std::fmt::Write as _;

use consign_core::ledger::Table;
use consign_core::store::{Batch, Op};

use super::audit::{Audit, Violation};
use super::client::Job;
use super::run::LINES;
use super::seen::{Seen, SiteIx};
use super::time::Micros;

/// A number that two runs share only when they did the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> TraceHash {
        TraceHash(0x5eed)
    }
}

impl TraceHash {
    /// Takes in a word.
    pub fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    /// Takes in bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        self.word(u64::from(crc32fast::hash(bytes)));
    }

    /// The number.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Everybody who watches.
#[derive(Debug)]
pub struct Watch {
    /// Checks every promise.
    pub audit: Audit,
    /// Of everything that left a node or a session.
    pub hash: TraceHash,
    /// The first broken promise, and when.
    pub broken: Option<(Micros, Violation)>,
    /// Whether connections are readable to it (not under TLS).
    pub taps: bool,
    /// What clients were refused for now: they may come again.
    pub unsent: Vec<(SiteIx, Job)>,
    last: VecDeque<(Micros, SiteIx, String)>,
    /// The world's turns so far.
    pub step: u64,
    /// Steps are kept as text from this one on; before, that would only cost time.
    pub story_from: u64,
    /// How many of them are kept.
    pub keep: usize,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            audit: Audit::new(),
            hash: TraceHash::default(),
            broken: None,
            taps: true,
            unsent: Vec::new(),
            last: VecDeque::new(),
            step: 0,
            story_from: u64::MAX,
            keep: LINES,
        }
    }
}

impl Watch {
    /// Shows everybody what happened.
    pub fn see(&mut self, at: Micros, site: SiteIx, seen: &Seen<'_>) {
        if self.broken.is_some() {
            return;
        }
        self.hash(at, site, seen);
        if self.step >= self.story_from {
            self.keep(at, site, seen);
        }
        if let Err(violation) = self.audit.see(at, site, seen) {
            self.broken = Some((at, violation));
        }
    }

    /// Takes note of the outcome of a check.
    pub fn check(&mut self, at: Micros, checked: Result<(), Violation>) {
        if let (Err(violation), None) = (checked, &self.broken) {
            self.broken = Some((at, violation));
        }
    }

    /// The last steps before the end, oldest first.
    #[must_use]
    pub fn last_steps(&self, names: &[String]) -> Vec<String> {
        let name = |site: SiteIx| names.get(site).map_or("?", String::as_str);
        let lines = self.last.iter();
        lines.map(|(at, site, text)| format!("{at} {} {text}", name(*site))).collect()
    }

    /// Keeps a line of the story that is no [`Seen`].
    pub fn say(&mut self, at: Micros, site: SiteIx, text: impl FnOnce() -> String) {
        if self.step >= self.story_from {
            self.push(at, site, text());
        }
    }

    fn push(&mut self, at: Micros, site: SiteIx, text: String) {
        if self.last.len() >= self.keep {
            self.last.pop_front();
        }
        self.last.push_back((at, site, text));
    }

    fn hash(&mut self, at: Micros, site: SiteIx, seen: &Seen<'_>) {
        let hash = &mut self.hash;
        let mut event = |kind: u64| {
            hash.word(at.0);
            hash.word((site as u64) << 8 | kind);
        };
        match seen {
            Seen::Born { .. } => event(1),
            Seen::Started { boot } => {
                event(2);
                hash.word(*boot);
            }
            Seen::Died(how) => event(3 + *how as u64),
            Seen::Stopping => event(21),
            Seen::Durable { batch, .. } => {
                event(10);
                hash_batch(hash, batch);
            }
            Seen::FileWhole { blob, digest, .. } => {
                event(11);
                hash.word(blob.0);
                hash.bytes(&digest.0);
            }
            Seen::FileGone(blob) => {
                event(12);
                hash.word(blob.0);
            }
            Seen::Damaged(_) => event(13),
            Seen::Submitted { id, .. } => {
                event(14);
                hash.bytes(&id.0);
            }
            Seen::Queued(accepted) => {
                event(15);
                hash.word(accepted.seq.0);
            }
            Seen::Refused { code, .. } => {
                event(16);
                hash.bytes(code.as_bytes());
            }
            // Frames are hashed as bytes where they are written.
            Seen::FrameSent { .. } => event(17),
            Seen::FrameArrived { .. } => event(18),
            Seen::Note(_) => event(19),
            Seen::Operated(word) => {
                event(22);
                hash.bytes(word.as_bytes());
            }
            Seen::Pickup(sight) => {
                event(23);
                hash.bytes(format!("{sight:?}").as_bytes());
            }
            Seen::Reconfigured { handed, .. } => {
                event(24);
                hash.word(handed.0);
            }
            // What the session writes of it is hashed.
            Seen::AckLetGo { .. }
            | Seen::Opened(_)
            | Seen::Serving { .. }
            | Seen::FetchOver { .. } => {}
            Seen::Turned { inputs, .. } => {
                event(20);
                hash.word(*inputs as u64);
            }
        }
    }

    fn keep(&mut self, at: Micros, site: SiteIx, seen: &Seen<'_>) {
        let text = match seen {
            Seen::Turned { .. } | Seen::AckLetGo { .. } | Seen::Opened(_) => return,
            Seen::Durable { batch, .. } => batch_text(batch),
            Seen::FrameSent { frame, peer, .. } => format!("→ {peer} {}", frame_text(frame)),
            Seen::FrameArrived { frame, peer, .. } => format!("← {peer} {}", frame_text(frame)),
            Seen::Born { config } => format!("exists as {}", config.name),
            Seen::Note(note) => format!("{note:?}"),
            Seen::Operated(word) => format!("an operator wants: {word}"),
            Seen::Reconfigured { config, .. } => format!("reads its configuration: {config:?}"),
            Seen::Pickup(sight) => format!("on the quay: {sight:?}"),
            Seen::Started { .. }
            | Seen::Serving { .. }
            | Seen::FetchOver { .. }
            | Seen::Died(_)
            | Seen::Stopping
            | Seen::FileWhole { .. }
            | Seen::FileGone(_)
            | Seen::Damaged(_)
            | Seen::Submitted { .. }
            | Seen::Queued(_)
            | Seen::Refused { .. } => format!("{seen:?}"),
        };
        self.push(at, site, text);
    }
}

fn hash_batch(hash: &mut TraceHash, batch: &Batch) {
    hash.word(batch.number.0);
    for op in batch.ops() {
        match op {
            Op::Put { table, key, value } => {
                hash.word(u64::from(table.number()));
                hash.bytes(key);
                hash.bytes(value);
            }
            Op::Del { table, key } => {
                hash.word(u64::from(table.number()) | 1 << 32);
                hash.bytes(key);
            }
            Op::PutBody { number, .. } => hash.word(number.0 | 1 << 63),
        }
    }
}

fn batch_text(batch: &Batch) -> String {
    let mut text = format!("commits batch {}:", batch.number);
    let mut put = |sign: char, table: Table, key: &[u8]| {
        if text.len() < 600 {
            let hex: String = key.iter().take(12).map(|b| format!("{b:02x}")).collect();
            // Writing to a string cannot fail.
            let _ = write!(text, " {sign}{table}[{hex}]");
        }
    };
    for op in batch.ops() {
        match op {
            Op::Put { table, key, .. } => put('+', table, key),
            Op::Del { table, key } => put('-', table, key),
            Op::PutBody { number, .. } => put('+', Table::Bodies, &number.0.to_be_bytes()),
        }
    }
    text
}

fn frame_text(frame: &consign_core::wire::Frame<'_>) -> String {
    let mut text = format!("{frame:?}");
    if let Some((at, _)) = text.char_indices().nth(200) {
        text.truncate(at);
        text.push('…');
    }
    text
}
