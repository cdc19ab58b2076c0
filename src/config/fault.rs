//! Faults of a configuration and how they are shown: all of them in one run, each with its place.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::twin;
use crate::advice::Address;
use crate::exit::{Exit, Failure};

/// Stable codes of configuration faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The file is not there or cannot be read.
    Unreadable,
    /// The file is not TOML.
    Syntax,
    /// A key or section that does not exist.
    Unknown,
    /// A value of the wrong type.
    Type,
    /// A value that cannot be read or is none of the allowed words.
    Value,
    /// A value outside its bounds.
    Range,
    /// A key that must be there is not.
    Required,
    /// Something that may stand once stands twice.
    Double,
    /// Two keys contradict each other.
    Conflict,
    /// A secret that others can read.
    Exposed,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 10] = [
        Code::Unreadable,
        Code::Syntax,
        Code::Unknown,
        Code::Type,
        Code::Value,
        Code::Range,
        Code::Required,
        Code::Double,
        Code::Conflict,
        Code::Exposed,
    ];

    /// The code as it is printed.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Code::Unreadable => "CN0201",
            Code::Syntax => "CN0202",
            Code::Unknown => "CN0203",
            Code::Type => "CN0204",
            Code::Value => "CN0205",
            Code::Range => "CN0206",
            Code::Required => "CN0207",
            Code::Double => "CN0208",
            Code::Conflict => "CN0209",
            Code::Exposed => "CN0211",
        }
    }
}

/// Where a fault is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// Bytes of the file.
    File(Range<usize>),
    /// An environment variable or a flag, as it is written.
    Given(String),
    /// The file as a whole.
    Whole,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Stable code.
    pub code: Code,
    /// The key, dotted; empty when there is none.
    pub key: String,
    /// What is wrong, lower-case, no full stop.
    pub message: String,
    /// Short note under the place; may be empty.
    pub label: String,
    /// What to do; may be empty.
    pub help: String,
    /// Where.
    pub at: At,
}

/// Why a configuration is not taken: every fault, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The file, as it was named; empty when there is none.
    pub file: PathBuf,
    /// Its text, for the excerpts.
    pub text: String,
    /// At least one, here or below.
    pub faults: Vec<Fault>,
    /// What is wrong with the files that it names.
    pub files: Vec<Failure>,
}

static EMPTY: String = String::new();

impl Faults {
    /// The socket of a site that runs by an earlier reading of this file: as far as the file can be
    /// understood, else where `init` has it. `None` where no socket is, and of a file that is not there.
    #[must_use]
    pub fn socket(&self) -> Option<PathBuf> {
        if self.file.as_os_str().is_empty() {
            return None;
        }
        super::socket::left(&self.file, &self.text)
    }

    /// Faults of a file, put in order.
    #[must_use]
    pub fn new(file: PathBuf, text: String, mut faults: Vec<Fault>) -> Faults {
        faults.sort_by_key(|fault| match &fault.at {
            At::File(range) => (0, range.start, range.end),
            At::Given(_) => (1, 0, 0),
            At::Whole => (2, 0, 0),
        });
        faults.dedup();
        for fault in faults.iter_mut().filter(|fault| fault.code == Code::Double) {
            if let At::File(at) = &fault.at
                && let Some(line) = twin::first_line(&text, at, &fault.key)
            {
                fault.label = format!("{}; the first is in line {line}", fault.label);
            }
        }
        Faults { file, text, faults, files: Vec::new() }
    }

    /// A fault that has no place in the text.
    #[must_use]
    pub fn whole(file: PathBuf, code: Code, message: impl Into<String>, help: &str) -> Faults {
        let fault = Fault {
            code,
            key: String::new(),
            message: message.into(),
            label: String::new(),
            help: help.to_owned(),
            at: At::Whole,
        };
        Faults { file, text: String::new(), faults: vec![fault], files: Vec::new() }
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.faults.len() + self.files.len()
    }

    /// All faults as a person reads them, with excerpts; ends with a newline.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let mut out = String::new();
        for fault in &self.faults {
            self.render_one(fault, color, &mut out);
            out.push('\n');
        }
        let paint = Paint { on: color };
        for Failure { code, message, help, .. } in &self.files {
            let head = paint.red(&format!("error[{code}]"));
            let _ = writeln!(out, "{head}{}", paint.bold(&format!(": {message}")));
            if !help.is_empty() {
                let _ = writeln!(out, "  {} {help}", paint.blue("= help:"));
            }
            out.push('\n');
        }
        // Where no file was read, nobody thinks that anything was changed.
        if self.file.as_os_str().is_empty() {
            return out;
        }
        let n = self.count();
        let errors = if n == 1 { "1 error" } else { &format!("{n} errors") };
        let _ =
            writeln!(out, "{errors} in {}; nothing was changed or started", self.file.display());
        out
    }

    /// The same with the commands of its help as the reader called this one.
    #[must_use]
    pub fn told(mut self, address: &Address) -> Faults {
        let of_keys = self.faults.iter_mut().map(|fault| &mut fault.help);
        for help in of_keys.chain(self.files.iter_mut().map(|failure| &mut failure.help)) {
            *help = address.tell(help);
        }
        self
    }

    fn render_one(&self, fault: &Fault, color: bool, out: &mut String) {
        let paint = Paint { on: color };
        let head = format!("error[{}]", fault.code.word());
        let _ =
            writeln!(out, "{}{}", paint.red(&head), paint.bold(&format!(": {}", fault.message)));
        let file = self.file.display();
        let arrow = paint.blue("-->");
        let mut gutter = 1;
        match &fault.at {
            At::File(range) => {
                let place = Place::find(&self.text, range);
                gutter = place.line.to_string().len();
                let (pad, bar) = (" ".repeat(gutter), paint.blue("|"));
                let number = paint.blue(&place.line.to_string());
                let _ = writeln!(out, "{pad}{arrow} {file}:{}:{}", place.line, place.column);
                let _ = writeln!(out, "{pad} {bar}");
                let _ = writeln!(out, "{number} {bar} {}", place.excerpt);
                let carets = "^".repeat(place.width);
                let label = format!("{carets} {}", fault.label);
                let space = " ".repeat(place.indent);
                let _ = writeln!(out, "{pad} {bar} {space}{}", paint.red(label.trim_end()));
            }
            At::Given(name) => {
                let label = if fault.label.is_empty() {
                    String::new()
                } else {
                    format!("  ({})", fault.label)
                };
                let _ = writeln!(out, " {arrow} {name}{label}");
            }
            At::Whole if self.file.as_os_str().is_empty() => {}
            At::Whole => {
                let _ = writeln!(out, " {arrow} {file}");
            }
        }
        if !fault.help.is_empty() {
            let pad = " ".repeat(gutter);
            let _ = writeln!(out, "{pad} {} {}", paint.blue("= help:"), fault.help);
        }
    }

    /// The same for programs: one object.
    #[must_use]
    pub fn json(&self) -> Json {
        let of_files = self.files.iter().map(|Failure { code, message, help, .. }| {
            json!({ "code": code, "key": "", "message": message, "help": help })
        });
        let errors: Vec<Json> =
            self.faults.iter().map(|f| self.json_one(f)).chain(of_files).collect();
        let (n, failure) = (errors.len(), self.failure());
        json!({
            "schema": "consign.error/1",
            "code": failure.code,
            "message": match n {
                1 => failure.message,
                _ => format!("{n} errors in {}", self.file.display()),
            },
            "help": if n == 1 { failure.help } else { String::new() },
            "file": self.file.display().to_string(),
            "errors": errors,
        })
    }

    fn json_one(&self, fault: &Fault) -> Json {
        let mut object = json!({
            "code": fault.code.word(),
            "key": fault.key,
            "message": fault.message,
            "help": fault.help,
        });
        match &fault.at {
            At::File(range) => {
                let place = Place::find(&self.text, range);
                object["line"] = place.line.into();
                object["column"] = place.column.into();
            }
            At::Given(name) => object["given"] = name.as_str().into(),
            At::Whole => {}
        }
        object
    }

    /// The faults as one failure (exit 78): the first one's code and every message.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let of_keys = self.faults.iter().map(|f| (f.code.word(), &f.message, &f.help));
        let of_files = self.files.iter().map(|f| (f.code, &f.message, &f.help));
        let all: Vec<_> = of_keys.chain(of_files).collect();
        let messages: Vec<&str> = all.iter().map(|(_, message, _)| message.as_str()).collect();
        let (code, _, help) = all.first().copied().unwrap_or(("CN0201", &EMPTY, &EMPTY));
        Failure::new(Exit::Config, code, messages.join("; ")).help(help)
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Faults {}

struct Paint {
    on: bool,
}

impl Paint {
    fn with(&self, style: &str, text: &str) -> String {
        if self.on { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }
    fn red(&self, text: &str) -> String {
        self.with("1;31", text)
    }
    fn blue(&self, text: &str) -> String {
        self.with("1;34", text)
    }
    fn bold(&self, text: &str) -> String {
        self.with("1", text)
    }
}

/// Most columns of an excerpt: longer lines are cut around the fault.
const EXCERPT_MAX: usize = 110;

/// A range of bytes as a person finds it.
struct Place {
    /// From 1.
    line: usize,
    /// In characters, from 1.
    column: usize,
    /// The line, made printable and cut to a bearable length.
    excerpt: String,
    /// Columns before the carets.
    indent: usize,
    /// How many carets.
    width: usize,
}

impl Place {
    fn find(text: &str, range: &Range<usize>) -> Place {
        let start = floor_char(text, range.start);
        let end = floor_char(text, range.end).max(start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let line = rest.lines().next().unwrap_or_default();
        let column = text.get(line_start..start).unwrap_or_default().chars().count();
        let marked = text.get(start..end).unwrap_or_default();
        let width = marked.lines().next().unwrap_or_default().chars().count().max(1);
        let printable: Vec<char> =
            line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let cut = (column + width.min(40) + 20).saturating_sub(EXCERPT_MAX).min(column);
        let shown: String = printable.iter().skip(cut).take(EXCERPT_MAX).collect();
        let (excerpt, indent) =
            if cut > 0 { (format!("…{shown}"), column - cut + 1) } else { (shown, column) };
        let width = width.min(EXCERPT_MAX.saturating_sub(column - cut)).max(1);
        Place { line: before.matches('\n').count() + 1, column: column + 1, excerpt, indent, width }
    }
}

/// The line, from 1, in which a byte of a text stands.
#[must_use]
pub fn line_of(text: &str, at: usize) -> usize {
    text.get(..floor_char(text, at)).unwrap_or_default().matches('\n').count() + 1
}

/// The nearest boundary of a character at or before `at`.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
