//! What becomes of segments that are for this site: rules that give their content to people and
//! programs as files, and the words in which node and exporter speak about one export (DESIGN 3.7).
//!
//! ```text
//!            Write: content durable aside        Place: the file is there under its name
//!  Intent ──────────────────────────────► Intent ─────────────────────────────► Placed ──► Done
//!  no name          Named                 a name           Placed                │   ▲ Run
//!                                            │ Lost: begin anew                   └───┘ Ran
//! ```
//! Every arrow is a commit before the next task is given out. What was written aside is known again by
//! its inode and its time ([`FileMark`]), so a file that somebody else put there is never taken for it.

use alloc::string::String;
use alloc::vec::Vec;

use minicbor::{Decode, Encode};

use crate::id::{BlobDigest, SegmentId, Seq};
use crate::ledger::keys_upkeep::RuleId;
use crate::ledger::rows::Body;
use crate::segment::Meta;

/// Most rules of a site.
pub const RULES_MAX: usize = 64;
/// Longest pattern in characters.
pub const PATTERN_MAX: usize = 256;

/// An `[[inbox]]` rule, as far as the node goes by it; where files go and what is run is the
/// exporter's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct InboxRule {
    /// Which rule it is.
    pub id: RuleId,
    /// Pattern of the name of the site where a segment was first accepted; `None` is every site.
    pub from: Option<String>,
    /// A label it must have, with this value or with any.
    pub label: Option<(String, Option<String>)>,
    /// Pattern of its name; `None` is every name.
    pub name: Option<String>,
    /// Whether a command is run on each file.
    pub command: bool,
}

impl InboxRule {
    /// Whether a segment of this origin is for this rule.
    #[must_use]
    pub fn matches(&self, origin: &str, meta: &Meta) -> bool {
        let fits = |pattern: &Option<String>, text| pattern.as_ref().is_none_or(|p| glob(p, text));
        let label = self.label.as_ref().is_none_or(|(key, value)| {
            let mut labels = meta.labels.iter();
            labels.any(|(k, v)| k == key && value.as_ref().is_none_or(|value| value == v))
        });
        label && fits(&self.from, origin) && fits(&self.name, &meta.name)
    }
}

impl RuleId {
    /// The number of an inbox rule: what it picks, and where that goes. Its command may change.
    #[must_use]
    pub fn inbox(from: &str, label: &str, name: &str, dir: &str) -> RuleId {
        RuleId::of(b"consign inbox rule 1\n", &[from, label, name, dir])
    }

    /// The number of a watch rule: the directory. Where its files go may change.
    #[must_use]
    pub fn watch(dir: &str) -> RuleId {
        RuleId::of(b"consign watch rule 1\n", &[dir])
    }

    fn of(tag: &[u8], parts: &[&str]) -> RuleId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(tag);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
        RuleId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Any,
    One,
    Is(char),
    /// Ranges of characters, and whether it is those or all others.
    Set(Vec<(char, char)>, bool),
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Token::Any | Token::One => true,
            Token::Is(other) => *other == c,
            Token::Set(ranges, not) => ranges.iter().any(|(a, b)| (*a..=*b).contains(&c)) != *not,
        }
    }
}

/// What is wrong with a pattern, if anything.
#[must_use]
pub fn pattern_fault(pattern: &str) -> Option<&'static str> {
    if pattern.chars().count() > PATTERN_MAX {
        return Some("it is longer than 256 characters");
    }
    tokens(pattern).err()
}

fn tokens(pattern: &str) -> Result<Vec<Token>, &'static str> {
    let mut chars = pattern.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Token::Any,
            '?' => Token::One,
            '[' => {
                let not = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
                let mut ranges = Vec::new();
                loop {
                    let first = chars.next().ok_or("a `[` is not closed by `]`")?;
                    if first == ']' && !ranges.is_empty() {
                        break;
                    }
                    let mut ahead = chars.clone();
                    match (ahead.next(), ahead.next()) {
                        (Some('-'), Some(last)) if last != ']' => {
                            if last < first {
                                return Err("a range in `[ ]` ends before it begins");
                            }
                            chars = ahead;
                            ranges.push((first, last));
                        }
                        _ => ranges.push((first, first)),
                    }
                }
                Token::Set(ranges, not)
            }
            c => Token::Is(c),
        });
    }
    Ok(tokens)
}

/// Whether a pattern describes the whole text: `*` is any run of characters (slashes too), `?` one
/// character, `[a-z]` one of these, `[!a-z]` one of the others, everything else itself. Takes at most as
/// many steps as pattern times text is long. A pattern with a fault describes nothing.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let Ok(pattern) = tokens(pattern) else { return false };
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Behind the last `*`, and how far that one has been stretched.
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = text.get(t) {
        match pattern.get(p) {
            Some(Token::Any) => {
                p += 1;
                star = Some((p, t));
            }
            Some(token) if token.takes(*c) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((behind, stretched)) = star else { return false };
                star = Some((behind, stretched + 1));
                p = behind;
                t = stretched + 1;
            }
        }
    }
    pattern.iter().skip(p).all(|token| *token == Token::Any)
}

/// By what a file is known again that this site wrote: it survives a rename, and no other file has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FileMark {
    /// Inode number.
    #[n(0)]
    pub inode: u64,
    /// Time of its last change in nanoseconds since the Unix epoch.
    #[n(1)]
    pub modified: i64,
}

/// One task for the exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportJob {
    /// Echoed in the answer, and never used twice in one run.
    pub job: u64,
    /// The rule.
    pub rule: RuleId,
    /// The segment here.
    pub seq: Seq,
    /// Its identity.
    pub id: SegmentId,
    /// Digest of its content.
    pub digest: BlobDigest,
    /// Its length.
    pub size: u64,
    /// Where its content is.
    pub body: Body,
    /// Its name, labels and times.
    pub meta: Meta,
    /// The site where it was first accepted.
    pub origin: String,
    /// What is to be done.
    pub task: ExportTask,
}

/// What is to be done with a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportTask {
    /// Write the content aside, durably, and find a name that nobody has.
    Write,
    /// Give what was written aside its name, without replacing anything, durably.
    Place {
        /// The name, below the rule's directory.
        name: String,
        /// What was written aside.
        mark: FileMark,
    },
    /// Run the command on the file.
    Run {
        /// The file's name, below the rule's directory.
        name: String,
        /// Which run this is, from 1.
        run: u32,
    },
    /// Forget what may lie aside: the segment is gone. Not answered.
    Clear,
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ExportStep {
    /// The content is durable aside, and may have this name.
    Named {
        /// The name, below the rule's directory.
        name: String,
        /// What was written.
        mark: FileMark,
    },
    /// What was written aside is gone, or somebody else has taken its name: it is begun anew.
    Lost(String),
    /// The file and its name are durable.
    Placed,
    /// The command has ended.
    Ran {
        /// Its exit status; `None` when it was killed or could not be started.
        exit: Option<i32>,
        /// The end of what it printed.
        #[cfg_attr(feature = "serde", serde(with = "crate::hexed::bytes"))]
        output: Vec<u8>,
        /// Why it failed, for people; empty when it did not.
        error: String,
    },
    /// It cannot be done now.
    Later(String),
    /// It cannot be done at all until somebody changes something.
    Never(String),
    /// The content is not what was accepted, or not there: it is tried again once that is mended.
    Corrupt(String),
}

#[cfg(test)]
mod tests;
