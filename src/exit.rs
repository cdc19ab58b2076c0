//! Exit codes and failures as a user sees them.

use std::fmt;

use crate::advice::Address;

/// How a command ends (documented in the README; unknown codes are failures).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Some of it is done.
    Partly = 3,
    /// Nothing matched.
    NoMatch = 4,
    /// Still queued when the wait ran out.
    StillQueued = 5,
    /// The daemon cannot be reached.
    Unreachable = 69,
    /// The store failed and the process stopped.
    StoreFailed = 70,
    /// Full or over quota; try later.
    TryLater = 75,
    /// Not permitted.
    NotPermitted = 77,
    /// The configuration is wrong.
    Config = 78,
}

/// A failure with its stable code, printed as `error[CODE]: message` or, with `--json`, as one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// Stable code, such as `CN0201`.
    pub code: &'static str,
    /// What happened, with the numbers, lower-case, without a full stop.
    pub message: String,
    /// What to do about it; may be empty.
    pub help: String,
}

impl Failure {
    /// A failure without help.
    pub fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Failure {
        Failure { exit, code, message: message.into(), help: String::new() }
    }

    /// The same with a hint what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = help.into();
        self
    }

    /// The same with the commands of its help as the reader called this one.
    #[must_use]
    pub fn told(mut self, address: &Address) -> Failure {
        self.help = address.tell(&self.help);
        self
    }

    /// The same as `consign.error/1`.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema": "consign.error/1",
            "code": self.code,
            "message": self.message,
            "help": self.help,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        if !self.help.is_empty() {
            write!(f, "\n  = help: {}", self.help)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Flags that every command takes.
#[derive(Clone, Debug, Default)]
pub struct Global {
    /// `-c/--config`: the configuration file.
    pub config: Option<std::path::PathBuf>,
    /// `--context`: the name of one.
    pub context: Option<String>,
    /// `--json`: machine-readable output.
    pub json: bool,
    /// `-q`: no progress.
    pub quiet: bool,
    /// `-v`, counted.
    pub verbose: u8,
    /// How the site was named, for commands that are told.
    pub address: Address,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Every `CN` with four digits in a text.
    fn codes(text: &str, into: &mut BTreeSet<String>) {
        for (at, _) in text.match_indices("CN0") {
            let code = text.get(at..at + 6).unwrap_or_default();
            if code.len() == 6 && code.bytes().skip(2).all(|b| b.is_ascii_digit()) {
                into.insert(code.to_owned());
            }
        }
    }

    fn of_folder(folder: &Path, into: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                of_folder(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                codes(&std::fs::read_to_string(&path).expect("a source file"), into);
            }
        }
    }

    #[test]
    fn every_code_is_on_the_page_and_no_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut used, mut told) = (BTreeSet::new(), BTreeSet::new());
        for folder in ["src", "storage-lmdb/src", "runtime-smol/src", "runtime-std/src"] {
            of_folder(&root.join(folder), &mut used);
        }
        let page = std::fs::read_to_string(root.join("docs/CODES.md")).expect("the page");
        for line in page.lines().filter(|line| line.starts_with("| CN")) {
            codes(line.split('|').nth(1).unwrap_or_default(), &mut told);
        }
        assert_eq!(used, told);
    }
}
