//! Reading recordings line by line, in bounded memory.

use std::io::{BufRead, Read};

use super::line::Line;
use super::{FORMAT, Header, ReplayError};

/// Longest line in bytes, without its line end. What a node takes in is far shorter: a page of rows.
pub const LINE_MAX: usize = 64 << 20;

/// What comes next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// A line.
    Line(Line<'static>),
    /// Nothing more; the last line may lack its line end, then it is not read.
    Nothing { half: bool },
}

/// The lines of a recording.
pub(super) struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    /// Number of the last line that was read, from 1.
    pub(super) line: u64,
    longest: usize,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Lines<R> {
        Lines { from, buffer: Vec::new(), line: 0, longest: LINE_MAX }
    }

    /// The same with another limit on lines, for tests.
    #[cfg(test)]
    pub(super) fn with_longest(from: R, longest: usize) -> Lines<R> {
        Lines { longest, ..Lines::new(from) }
    }

    /// Reads the header and judges its format.
    pub(super) fn header(&mut self) -> Result<Header, ReplayError> {
        let none = |why: &str| ReplayError::NoRecording(why.to_owned());
        if !self.fill()? {
            let empty = self.buffer.is_empty();
            return Err(none(if empty { "it is empty" } else { "its first line is not whole" }));
        }
        let value: serde_json::Value =
            serde_json::from_slice(&self.buffer).map_err(|_| none("its first line is not JSON"))?;
        let format = value.get("consign_recording").and_then(serde_json::Value::as_u64);
        match format {
            None => Err(none("its first line has no number `consign_recording`")),
            Some(FORMAT) => serde_json::from_value(value)
                .map_err(|e| none(&format!("its first line is no header: {e}"))),
            Some(found) => Err(ReplayError::Format { found }),
        }
    }

    /// The next line.
    pub(super) fn read(&mut self) -> Result<Next, ReplayError> {
        if !self.fill()? {
            return Ok(Next::Nothing { half: !self.buffer.is_empty() });
        }
        match serde_json::from_slice(&self.buffer) {
            Ok(line) => Ok(Next::Line(line)),
            Err(error) => {
                let text = error.to_string();
                let place = format!(" at line {} column {}", error.line(), error.column());
                let why = text.strip_suffix(&place).unwrap_or(&text).to_owned();
                Err(ReplayError::Bad { line: self.line, column: error.column(), why })
            }
        }
    }

    /// Whether a whole line came into the buffer.
    fn fill(&mut self) -> Result<bool, ReplayError> {
        self.buffer.clear();
        let line = self.line + 1;
        let most = u64::try_from(self.longest).unwrap_or(u64::MAX).saturating_add(1);
        (&mut self.from)
            .take(most)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|why| ReplayError::Io { line, why })?;
        if self.buffer.last() != Some(&b'\n') {
            if self.buffer.len() > self.longest {
                return Err(ReplayError::Long { line });
            }
            return Ok(false);
        }
        self.buffer.pop();
        self.line = line;
        Ok(true)
    }
}
