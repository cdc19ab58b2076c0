//! The text of the file of contexts: judged strictly, every fault with its place, and written anew as a whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Contexts;
use crate::config::fault::{At, Code, Fault, Faults};
use crate::config::template::quote;
use crate::config::value::{Kind, Value, similar};
use crate::config::walk::syntax;

/// Names that may stand at the top.
const TOP: [&str; 2] = ["use", "contexts"];

/// Judges a text.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn parse(file: &Path, text: &str) -> Result<Contexts, Faults> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut walk = Walk { faults: Vec::new(), known: BTreeMap::new() };
    let used = walk.root(root.get_ref());
    // What the parser put in place of something it could not read is not worth a second fault.
    let places: Vec<At> = errors.iter().filter_map(toml::de::Error::span).map(At::File).collect();
    walk.faults.retain(|fault| !places.contains(&fault.at));
    walk.faults.extend(errors.iter().map(syntax));
    if walk.faults.is_empty() {
        return Ok(Contexts { used, known: walk.known });
    }
    Err(Faults::new(file.into(), text.to_owned(), walk.faults))
}

struct Walk {
    faults: Vec<Fault>,
    known: BTreeMap<String, PathBuf>,
}

impl Walk {
    fn root(&mut self, root: &DeTable<'_>) -> Option<String> {
        for (name, value) in root {
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("contexts", DeValue::Table(table)) => self.contexts(table),
                ("contexts", _) => {
                    let message = "`contexts` must be written as a section";
                    self.fault(Code::Type, "contexts", message, "write [contexts]", value.span());
                }
                ("use", _) => {}
                (word, _) => self.unknown(word, name.span()),
            }
        }
        let (_, value) = root.iter().find(|(name, _)| name.get_ref() == "use")?;
        let used = self.text("use", Kind::Site, value)?;
        if !self.known.contains_key(&used) && self.faults.is_empty() {
            let message = format!("`use` names {used:?}, which is no context");
            let label = "not among [contexts]";
            self.fault(Code::Conflict, "use", message, label, value.span());
        }
        Some(used)
    }

    fn contexts(&mut self, table: &DeTable<'_>) {
        for (name, value) in table {
            let word = name.get_ref().as_ref();
            let key = format!("contexts.{word}");
            if let Err(bad) = Kind::Site.read_text(word) {
                let message = format!("the name {word:?} {}", bad.problem);
                self.fault(bad.code, &key, message, "not a name for a context", name.span());
                continue;
            }
            let Some(path) = self.text(&key, Kind::Text, value) else { continue };
            if !Path::new(&path).is_absolute() {
                let message = format!("`{key}` must be an absolute path");
                self.fault(Code::Value, &key, message, "it does not begin with /", value.span());
                continue;
            }
            self.known.insert(word.to_owned(), path.into());
        }
    }

    fn text(&mut self, key: &str, kind: Kind, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match kind.read(value.get_ref()) {
            Ok(Value::Text(text)) => Some(text),
            Ok(_) => None,
            Err(bad) => {
                let message = format!("`{key}` {}", bad.problem);
                self.fault(bad.code, key, message, &bad.label, value.span());
                None
            }
        }
    }

    fn unknown(&mut self, word: &str, span: Range<usize>) {
        let near = similar(word, TOP.into_iter());
        self.fault(Code::Unknown, word, format!("unknown key `{word}`"), "not a key here", span);
        if let (Some(near), Some(fault)) = (near, self.faults.last_mut()) {
            fault.help = format!("a key with a similar name exists: `{near}`");
        }
    }

    fn fault(
        &mut self,
        code: Code,
        key: &str,
        message: impl Into<String>,
        label: &str,
        span: Range<usize>,
    ) {
        let (key, message, label, help) =
            (key.to_owned(), message.into(), label.to_owned(), String::new());
        self.faults.push(Fault { code, key, message, label, help, at: At::File(span) });
    }
}

/// The whole file.
pub(super) fn render(contexts: &Contexts) -> String {
    let mut out = String::from("# Names of sites on this machine, kept by `consign context`.\n");
    if let Some(used) = &contexts.used {
        let _ = writeln!(out, "use = {}", quote(used));
    }
    let _ = writeln!(out, "\n[contexts]");
    for (name, path) in &contexts.known {
        let bare = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        let name = if bare { name.clone() } else { quote(name) };
        let _ = writeln!(out, "{name} = {}", quote(&path.to_string_lossy()));
    }
    out
}
