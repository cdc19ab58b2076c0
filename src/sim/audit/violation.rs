//! A broken promise, in plain words.

use std::fmt;

use consign_core::id::SegmentId;

/// A promise that a world has broken: which, where, of which segment, and what came before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number: `I1` to `I31`.
    pub invariant: &'static str,
    /// Name of the site where it was seen.
    pub site: String,
    /// The segment, if it is about one.
    pub segment: Option<SegmentId>,
    /// Name of that segment; empty when it is not known.
    pub name: String,
    /// What was found, with the numbers.
    pub text: String,
    /// What happened before, on all sites, oldest first; each line begins with the time.
    pub story: Vec<String>,
}

/// Every invariant that can be found broken here, as a sentence.
pub(super) const PROMISES: [(&str, &str); 20] = [
    ("I1", "what is said to be kept is on disk: rows, identity and content"),
    ("I2", "every accepted segment is owed, delivered or dead with a cause, and the counts add up"),
    ("I3", "a delivery is Acked only if the peer held the segment when it said so"),
    ("I4", "a delivery changes its state only along its edges"),
    ("I6", "attempts rise by one per claim before the first byte, and the budget is spent fairly"),
    ("I7", "at most one attempt for a segment and a peer is in flight"),
    ("I8", "an answer of another session changes nothing, and no session's number comes twice"),
    ("I9", "a segment counts as relayed only when its success condition is met"),
    ("I10", "the bytes that are charged are the bytes that are kept, within the limits"),
    ("I11", "content is what its digest says"),
    ("I16", "every content file has its row and every row its file"),
    ("I17", "start-up comes to its end, and nothing that is owed is removed"),
    ("I18", "no time lies too far ahead, and no clock goes back"),
    ("I19", "memory stays within its bounds"),
    ("I21", "what is due goes in its turn"),
    ("I22", "every wait is as long as the backoff says"),
    ("I23", "nothing goes round without getting anywhere"),
    ("I25", "a segment is kept once, and offering it again gets the same answer"),
    ("I26", "what is reported to be there never shrinks and is on disk"),
    ("I28", "once faults stop, everything comes to its end and nothing temporary is left"),
];

/// The same for those that are about people and processes.
pub(super) const MORE: [(&str, &str); 7] = [
    ("I5", "a shard changes its state only along its edges"),
    ("I12", "a token opens its shard once, in its time, for its node"),
    ("I13", "no signed request is taken twice"),
    ("I24", "a node that is there is notified of all it is owed, once"),
    ("I27", "every request has the answer that the documents name, and nothing panics"),
    ("I30", "a process that has stopped says and takes nothing more"),
    ("I31", "dead letters and audit records stay where they are"),
];

/// What an invariant promises.
pub(super) fn promise(invariant: &str) -> &'static str {
    let all = PROMISES.iter().chain(&MORE);
    all.clone().find(|(number, _)| *number == invariant).map_or("", |(_, words)| words)
}

impl Violation {
    /// Something at `site` panicked.
    pub(in crate::sim) fn panicked(site: String, text: String) -> Violation {
        let (segment, name, story) = (None, String::new(), Vec::new());
        Violation { invariant: "I27", site, segment, name, text, story }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { invariant, site, text, .. } = self;
        writeln!(f, "{invariant} is broken at {site}: {}", promise(invariant))?;
        if let Some(segment) = &self.segment {
            writeln!(f, "  segment {} {:?}", segment.short(), self.name)?;
        }
        write!(f, "  {text}")?;
        for (i, line) in self.story.iter().enumerate() {
            let head = if i == 0 { "\n  what happened before:" } else { "" };
            write!(f, "{head}\n    {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Violation {}

/// What a check finds; where and when is added by whoever asked.
#[derive(Debug)]
pub(super) struct Broken {
    pub invariant: &'static str,
    pub segment: Option<SegmentId>,
    pub text: String,
}

/// The result of a check.
pub(super) type Check = Result<(), Box<Broken>>;

/// A promise is broken.
pub(super) fn broken(
    invariant: &'static str,
    segment: Option<SegmentId>,
    text: String,
) -> Box<Broken> {
    Box::new(Broken { invariant, segment, text })
}

/// Demands that something holds; `text` says what was found instead.
pub(super) fn demand(
    holds: bool,
    invariant: &'static str,
    segment: Option<SegmentId>,
    text: impl FnOnce() -> String,
) -> Check {
    if holds { Ok(()) } else { Err(broken(invariant, segment, text())) }
}
