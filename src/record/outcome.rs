//! What a replay found.

use std::fmt;
use std::time::Duration;

use consign_core::time::{Instant, Now};
use serde::Serialize;

use super::Header;

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// What wrote the recording.
    pub header: Header,
    /// How much was replayed.
    pub totals: Totals,
    /// The first effect that differs; `None` when all are the same.
    pub difference: Option<Difference>,
    /// How the recording ends.
    pub ending: Ending,
    /// A panic of the core after which the recording says nothing more of that life: it panicked then,
    /// too, or its process was killed right there.
    pub panicked: Option<Panicked>,
}

impl Outcome {
    /// Whether the core did now what it did then, as far as the recording goes.
    #[must_use]
    pub fn is_identical(&self) -> bool {
        self.difference.is_none()
    }
}

/// How much was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Lines that were read, with the header.
    pub lines: u64,
    /// Nodes.
    pub nodes: u64,
    /// Their lives: a restart begins a new one.
    pub lives: u64,
    /// Inputs.
    pub inputs: u64,
    /// Turns.
    pub turns: u64,
    /// Effects that were compared, the ends of turns among them.
    pub effects: u64,
}

/// The first effect that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Line of the recording, from 1.
    pub line: u64,
    /// Number of the node.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// Its time.
    pub now: Now,
    /// Its last inputs before that, the latest last.
    pub inputs: Vec<String>,
    /// What the recording says comes here.
    pub recorded: String,
    /// What the core of this build does here.
    pub replayed: String,
}

/// How a recording ends, or where the replay of it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With its last line.
    Whole,
    /// Without: the process was killed, or its disk was full. All that is there was replayed.
    Cut {
        /// The last whole line.
        after: u64,
        /// Whether the beginning of another line follows it.
        half: bool,
    },
    /// The replay did not go on behind the line of the difference.
    Left {
        /// That line.
        at: u64,
    },
}

/// A panic of the core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Panicked {
    /// The line it panics over.
    pub line: u64,
    /// Number of the node.
    pub node: u32,
    /// Its message.
    pub why: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { nodes, lives, inputs, turns, effects, .. } = self.totals;
        let Header { source, .. } = &self.header;
        match &self.difference {
            None => write!(f, "Identical")?,
            Some(difference) => write!(f, "{difference}\nReplayed up to there")?,
        }
        write!(
            f,
            "  (nodes {nodes}, lives {lives}, inputs {inputs}, turns {turns}, effects {effects}; \
             recorded by {source} of {})",
            self.header.build()
        )?;
        if let Ending::Cut { after, half } = self.ending {
            let half = if half { " in the middle of the next" } else { "" };
            write!(f, "\nThe recording is cut off after line {after}{half}: replayed up to there")?;
        }
        if let Some(Panicked { line, node, why }) = &self.panicked {
            write!(
                f,
                "\nNode {node} panics over line {line}, where that life ends in the recording: {why}"
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { line, node, name, now, inputs, recorded, replayed } = self;
        let mono: Duration = now.mono.since(Instant::ZERO);
        let at = humantime::format_rfc3339_millis(
            std::time::UNIX_EPOCH + Duration::from_millis(now.wall.0.min(MILLIS_MAX)),
        );
        writeln!(
            f,
            "Differs at line {line}: node {node} ({name}), {at}, {mono:?} after its start"
        )?;
        writeln!(f, "  recorded: {recorded}")?;
        write!(f, "  now:      {replayed}")?;
        for (i, input) in inputs.iter().enumerate() {
            let head = if i == 0 { "  last inputs:" } else { "              " };
            write!(f, "\n{head} {input}")?;
        }
        Ok(())
    }
}

/// The last millisecond of the year 9999: what dates are written for.
const MILLIS_MAX: u64 = 253_402_300_799_999;
