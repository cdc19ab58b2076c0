//! How far what a session says has come.

/// Bytes of answers that the socket has not taken, above which no further request is looked at.
const CROWDED: u64 = 256 << 10;

/// Everything a session has ever appended to its output, and what of that the socket has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spoken {
    /// Up to the beginning of this step.
    said: u64,
    /// What was to be sent already when it began.
    waiting: usize,
    handed: u64,
}

impl Spoken {
    /// A step begins, with this output waiting.
    pub fn begin(&mut self, out: &[u8]) {
        self.waiting = out.len();
    }

    /// The step ends.
    pub fn end(&mut self, out: &[u8]) {
        self.said = self.position(out);
        self.waiting = out.len();
    }

    /// The socket has so many bytes of everything.
    pub fn handed(&mut self, bytes: u64) {
        self.handed = bytes;
    }

    /// How much it has said by now.
    #[must_use]
    pub fn position(&self, out: &[u8]) -> u64 {
        self.said.saturating_add(out.len().saturating_sub(self.waiting) as u64)
    }

    /// What of that the socket does not have.
    #[must_use]
    pub fn unsent(&self, out: &[u8]) -> u64 {
        self.position(out).saturating_sub(self.handed)
    }

    /// Whether so much waits for the peer that its next request has to wait, too.
    #[must_use]
    pub fn is_crowded(&self, out: &[u8]) -> bool {
        self.unsent(out) > CROWDED
    }
}
