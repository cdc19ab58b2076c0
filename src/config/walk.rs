//! From text, environment and flags to values: every key judged on its own, every fault collected.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{At, Code, Fault};
use super::keys::{self, Fallback, KEYS, Key, SECTIONS};
use super::value::{Bad, Value, similar};

/// A value and where it came from.
#[derive(Clone, Debug)]
pub struct Item {
    /// The value.
    pub value: Value,
    /// Where it stands; `None` for a default.
    pub at: Option<At>,
}

/// Values of one section.
pub type Items = BTreeMap<&'static str, Item>;

/// Everything that was said, and what was wrong with it.
#[derive(Debug, Default)]
pub struct Walked {
    /// Values of the plain sections, by dotted path; keys with neither value nor default are missing.
    pub items: BTreeMap<String, Item>,
    /// Values of each section that may stand there more than once, in their order, with its name and
    /// the place of its header.
    pub lists: Vec<(&'static str, Items, At)>,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// Keys that were probably meant by unknown ones: not called missing as well.
    misspelt: Vec<String>,
}

/// What is said outside the file; later layers win.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// (dotted key, what the user wrote, such as `--runtime` or `CONSIGN_NODE_RUNTIME`, value).
    pub given: Vec<(String, String, String)>,
    /// Faults found while the layers were made, such as a variable that names no key.
    pub faults: Vec<Fault>,
    /// `$CREDENTIALS_DIRECTORY`: where `credential:NAME` is found.
    pub credentials: Option<PathBuf>,
}

impl Layers {
    /// Reads the variables `CONSIGN_<SECTION>_<KEY>`.
    #[must_use]
    pub fn from_env(vars: impl Iterator<Item = (String, String)>) -> Layers {
        let mut layers = Layers::default();
        for (name, value) in vars {
            if name == "CREDENTIALS_DIRECTORY" {
                layers.credentials = Some(value.into());
                continue;
            }
            let Some(rest) = name.strip_prefix("CONSIGN_") else { continue };
            let rest = rest.to_ascii_lowercase();
            let sections = SECTIONS.iter().filter(|s| !s.many);
            let Some((section, key)) = sections
                .filter_map(|s| Some((s.name, rest.strip_prefix(s.name)?.strip_prefix('_')?)))
                .next()
            else {
                continue;
            };
            if keys::find(section, key).is_some() {
                layers.given.push((format!("{section}.{key}"), format!("${name}"), value));
                continue;
            }
            let near = similar(key, keys::of_section(section).map(|k| k.name));
            let help = near.map_or_else(String::new, |k| {
                let path = format!("CONSIGN_{section}_{k}").to_ascii_uppercase();
                format!("a variable with a similar name exists: `{path}`")
            });
            layers.faults.push(Fault {
                code: Code::Unknown,
                key: format!("{section}.{key}"),
                message: format!("unknown key `{key}` in `[{section}]`"),
                label: "not a consign setting".into(),
                help,
                at: At::Given(format!("${name}")),
            });
        }
        layers
    }

    /// Adds a flag; flags win over the environment.
    pub fn flag(&mut self, key: &str, flag: &str, value: impl Into<String>) {
        self.given.push((key.to_owned(), flag.to_owned(), value.into()));
    }
}

/// Judges the text of a file together with what was given outside it.
#[must_use]
pub fn walk(text: &str, layers: &Layers) -> Walked {
    let (root, errors) = DeTable::parse_recoverable(text);
    let whole = errors.is_empty();
    let mut walked = Walked { faults: layers.faults.clone(), ..Walked::default() };
    walked.root(root.get_ref());
    walked.layers(layers);
    walked.defaults(root.get_ref(), whole);
    // What the parser put in place of something it could not read is not worth a second fault.
    let places: Vec<At> = errors.iter().filter_map(toml::de::Error::span).map(At::File).collect();
    walked.faults.retain(|fault| !places.contains(&fault.at));
    walked.faults.extend(errors.iter().map(syntax));
    walked
}

/// A fault of the parser.
pub(crate) fn syntax(error: &toml::de::Error) -> Fault {
    let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
    let double = message.contains("duplicate key");
    Fault {
        code: if double { Code::Double } else { Code::Syntax },
        key: String::new(),
        message: if double { "a key that stands there twice".into() } else { message },
        label: if double { "the second one".into() } else { String::new() },
        help: error.message().lines().skip(1).collect::<Vec<_>>().join(", "),
        at: error.span().map_or(At::Whole, At::File),
    }
}

impl Walked {
    fn root(&mut self, root: &DeTable<'_>) {
        for (name, value) in root {
            match (name.get_ref().as_ref(), value.get_ref()) {
                (section, DeValue::Table(table)) if is_plain(section) => {
                    self.section(section, table);
                }
                (section, _) if is_plain(section) => {
                    self.wrong_shape(section, value, &format!("[{section}]"));
                }
                (section, _) => match list_section(section) {
                    Some(section) => self.list(section, value),
                    None => self.unknown_section(section, name.span()),
                },
            }
        }
    }

    fn section(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let word = name.get_ref().as_ref();
            if section == "relay" && word == "known_peers" {
                self.list("relay.known_peers", value);
            } else if let Some(key) = keys::find(section, word) {
                let path = key.path();
                if let Some(value) = self.read(key, value) {
                    self.items.insert(path, Item { value, at: Some(at(key, table)) });
                }
            } else {
                self.unknown_key(section, word, name.span());
            }
        }
    }

    fn list(&mut self, section: &'static str, value: &Spanned<DeValue<'_>>) {
        let header = format!("[[{section}]]");
        let DeValue::Array(tables) = value.get_ref() else {
            return self.wrong_shape(section, value, &header);
        };
        for each in tables {
            let DeValue::Table(table) = each.get_ref() else {
                self.wrong_shape(section, each, &header);
                continue;
            };
            let mut items = Items::new();
            for (name, value) in table {
                let word = name.get_ref().as_ref();
                let Some(key) = keys::find(section, word) else {
                    self.unknown_key(section, word, name.span());
                    continue;
                };
                if let Some(value) = self.read(key, value) {
                    items.insert(key.name, Item { value, at: Some(at(key, table)) });
                }
            }
            for key in keys::of_section(section) {
                if key.default == Fallback::Required && !table.contains_key(key.name) {
                    self.missing(key, At::File(each.span()));
                }
            }
            self.lists.push((section, items, At::File(each.span())));
        }
    }

    fn read(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<Value> {
        match key.kind.read(value.get_ref()) {
            Ok(read) => Some(read),
            Err(bad) => {
                let at = At::File(entry(value, bad.nth).unwrap_or(value.span()));
                self.bad(key, bad, at);
                None
            }
        }
    }

    fn layers(&mut self, layers: &Layers) {
        for (path, given, text) in &layers.given {
            let Some(key) = KEYS.iter().find(|k| k.path() == *path) else { continue };
            let at = At::Given(given.clone());
            match key.kind.read_text(text) {
                Ok(value) => {
                    self.items.insert(path.clone(), Item { value, at: Some(at) });
                }
                Err(bad) => self.bad(key, bad, at),
            }
        }
    }

    /// Fills in what was left out. With a file that is not whole TOML, nothing is called missing.
    fn defaults(&mut self, root: &DeTable<'_>, whole: bool) {
        for key in KEYS.iter().filter(|k| is_plain(k.section)) {
            let path = key.path();
            if self.items.contains_key(&path) {
                continue;
            }
            if let Some(value) = default_of(key) {
                self.items.insert(path, Item { value, at: None });
            } else if key.default == Fallback::Required
                && whole
                && !self.faults.iter().any(|f| f.key == path)
            {
                let section = root.get_key_value(key.section);
                let at = section.map_or(At::Whole, |(name, _)| At::File(name.span()));
                self.missing(key, at);
            }
        }
    }

    fn missing(&mut self, key: &Key, at: At) {
        if self.misspelt.contains(&key.path()) {
            return;
        }
        self.faults.push(Fault {
            code: Code::Required,
            key: key.path(),
            message: format!("`{}` is missing", key.path()),
            label: format!("`{}` belongs here", key.name),
            help: format!("{}: {}", key.meaning, key.kind.expected()),
            at,
        });
    }

    fn bad(&mut self, key: &Key, bad: Bad, at: At) {
        self.faults.push(Fault {
            code: bad.code,
            key: key.path(),
            message: format!("`{}` {}", key.path(), bad.problem),
            label: bad.label,
            help: bad.help,
            at,
        });
    }

    fn unknown_key(&mut self, section: &str, word: &str, span: Range<usize>) {
        let near = similar(word, keys::of_section(section).map(|k| k.name));
        let elsewhere = KEYS.iter().find(|k| k.name == word);
        let help = match (elsewhere, near) {
            (Some(key), _) => format!("a key of that name exists in `{}`", header(key.section)),
            (None, Some(near)) => format!("a key with a similar name exists: `{near}`"),
            (None, None) => String::new(),
        };
        if let (None, Some(near)) = (elsewhere, near) {
            self.misspelt.push(format!("{section}.{near}"));
        }
        self.faults.push(Fault {
            code: Code::Unknown,
            key: format!("{section}.{word}"),
            message: format!("unknown key `{word}` in `{}`", header(section)),
            label: "not a consign setting".into(),
            help,
            at: At::File(span),
        });
    }

    fn unknown_section(&mut self, word: &str, span: Range<usize>) {
        let near = similar(word, SECTIONS.iter().map(|s| s.name));
        let key = KEYS.iter().find(|k| k.name == word);
        let help = match (near, key) {
            (Some(near), _) => format!("a section with a similar name exists: `{}`", header(near)),
            (None, Some(key)) => format!("a key of that name exists in `[{}]`", key.section),
            (None, None) => {
                let all: Vec<String> = SECTIONS.iter().map(|s| header(s.name)).collect();
                format!("sections are {}", all.join(" "))
            }
        };
        self.faults.push(Fault {
            code: Code::Unknown,
            key: word.to_owned(),
            message: format!("unknown section `{word}`"),
            label: "not a consign section".into(),
            help,
            at: At::File(span),
        });
    }

    fn wrong_shape(&mut self, section: &str, value: &Spanned<DeValue<'_>>, header: &str) {
        self.faults.push(Fault {
            code: Code::Type,
            key: section.to_owned(),
            message: format!("`{section}` must be written as a section"),
            label: "not a section".into(),
            help: format!("begin a line with `{header}`"),
            at: At::File(value.span()),
        });
    }
}

/// Where one entry of a list stands.
fn entry(value: &Spanned<DeValue<'_>>, nth: Option<usize>) -> Option<Range<usize>> {
    match value.get_ref() {
        DeValue::Array(items) => Some(items.get(nth?)?.span()),
        _ => None,
    }
}

fn is_plain(section: &str) -> bool {
    keys::find_section(section).is_some_and(|s| !s.many)
}

/// The name of a section that may stand there more than once, if it is one.
fn list_section(section: &str) -> Option<&'static str> {
    let section = keys::find_section(section)?;
    (section.many && !section.name.contains('.')).then_some(section.name)
}

fn header(section: &str) -> String {
    match keys::find_section(section) {
        Some(section) => section.header(),
        None => format!("[{section}]"),
    }
}

fn at(key: &Key, table: &DeTable<'_>) -> At {
    table.get(key.name).map_or(At::Whole, |value| At::File(value.span()))
}

/// The default of a key as a value.
///
/// # Panics
/// When the table of keys holds a default that its own kind refuses; a test reads all of them.
#[must_use]
pub fn default_of(key: &Key) -> Option<Value> {
    let Fallback::Is(text) = key.default else { return None };
    let parsed = DeValue::parse(text).expect("defaults are TOML values");
    Some(key.kind.read(parsed.get_ref()).expect("defaults are of their own kind"))
}
