//! Writing recordings: one file, one handle on it per node.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consign_core::config::Config;
use consign_core::ledger::read::Recovery;
use consign_core::node::{Action, Input};
use consign_core::pump::Tap;
use consign_core::store::Batch;
use consign_core::time::{Instant, Now};
use serde::Serialize;

use super::Header;
use super::effect::{BatchText, action_text};
use super::line::{Line, Start};

/// Is told once, when a recording cannot be written any further.
pub type OnFault = Box<dyn FnOnce(&io::Error) + Send>;

/// A recording that is being written. Its clones and [`Recorder`]s write to the same place; when the last
/// of them is gone, the recording gets its last line.
///
/// A write that fails ends the recording and nothing else: those who are recorded go on.
#[derive(Clone)]
pub struct Recording {
    shared: Arc<Shared>,
}

struct Shared(Mutex<Inner>);

struct Inner {
    /// `None` once it has ended.
    out: Option<Box<dyn Write + Send>>,
    on_fault: Option<OnFault>,
    line: Vec<u8>,
    lines: u64,
}

impl Recording {
    /// A recording that goes to `out`.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(
        out: Box<dyn Write + Send>,
        header: &Header,
        on_fault: OnFault,
    ) -> io::Result<Recording> {
        let mut inner =
            Inner { out: Some(out), on_fault: Some(on_fault), line: Vec::new(), lines: 0 };
        inner.put(header)?;
        inner.out.as_mut().map_or(Ok(()), Write::flush)?;
        Ok(Recording { shared: Arc::new(Shared(Mutex::new(inner))) })
    }

    /// A recording in memory.
    ///
    /// # Panics
    /// Never: memory takes all there is.
    #[must_use]
    pub fn in_memory(header: &Header) -> (Recording, Memory) {
        let memory = Memory::default();
        let recording = Recording::new(Box::new(memory.clone()), header, Box::new(|_| {}));
        (recording.expect("memory takes all there is"), memory)
    }

    /// A recording in a new file that only its owner can read. A file that is there is never overwritten:
    /// it may be the recording of what one wants to understand.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    pub fn create(path: &Path, header: &Header, on_fault: OnFault) -> io::Result<Recording> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Recording::new(Box::new(BufWriter::with_capacity(1 << 16, file)), header, on_fault)
    }

    /// A life of node `node` begins: what a [`consign_core::pump::Pump`] around the node that
    /// [`consign_core::node::Node::recover`] makes of these must be tapped by.
    #[must_use]
    pub fn start(&self, node: u32, config: &Config, recovery: &Recovery, now: Now) -> Recorder {
        let (config, recovery) = (Cow::Borrowed(config), Cow::Borrowed(recovery));
        self.write(&Line::Start(Box::new(Start { node, now, config, recovery })));
        Recorder { recording: self.clone(), node }
    }

    /// Says something to whoever reads the recording.
    pub fn note(&self, text: &str) {
        self.write(&Line::Note { text: Cow::Borrowed(text) });
    }

    /// Writes the last line now; nothing that comes later is recorded.
    pub fn end(&self) {
        self.shared.lock().end();
    }

    fn write(&self, line: &Line<'_>) {
        self.shared.lock().write(line);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut inner = self.lock();
        // A run that panics has not come to its end, and its recording says so by having none.
        if std::thread::panicking() { inner.flush() } else { inner.end() }
    }
}

impl Inner {
    fn write(&mut self, line: &Line<'_>) {
        let written = self.put(line);
        self.judge(written);
    }

    fn put(&mut self, line: &impl Serialize) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        self.lines += 1;
        out.write_all(&self.line)
    }

    fn flush(&mut self) {
        let Some(out) = &mut self.out else { return };
        let flushed = out.flush();
        self.judge(flushed);
    }

    fn end(&mut self) {
        let lines = self.lines + 1;
        self.write(&Line::End { lines });
        self.flush();
        self.out = None;
    }

    fn judge(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.out = None;
            if let Some(tell) = self.on_fault.take() {
                tell(&error);
            }
        }
    }
}

/// The hand that writes down one life of one node.
pub struct Recorder {
    recording: Recording,
    node: u32,
}

impl Tap for Recorder {
    fn input(&mut self, now: Now, input: &Input) {
        let input = Cow::Borrowed(input);
        self.recording.write(&Line::In { node: self.node, now, input });
    }

    fn turn(&mut self, now: Now) {
        self.recording.write(&Line::Turn { node: self.node, now });
    }

    fn action(&mut self, action: &Action) {
        let action = Cow::Owned(action_text(action));
        self.recording.write(&Line::Do { node: self.node, action });
    }

    fn batch(&mut self, batch: &Batch) {
        let batch = Cow::Owned(BatchText::of(batch));
        self.recording.write(&Line::Batch { node: self.node, batch });
    }

    /// After every turn all of it is with the system: what kills the process does not cut it.
    fn rest(&mut self, next: Option<Instant>) {
        self.recording.write(&Line::Rest { node: self.node, next });
        self.recording.shared.lock().flush();
    }
}

/// A place in memory to write to, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    /// What was written so far.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Write for Memory {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
