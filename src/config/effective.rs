//! What a site would go by: every key with its value, as it would stand in the file, and where it came from.

use std::path::Path;

use serde_json::{Value as Json, json};

use super::fault::{At, Faults, line_of};
use super::keys::{self, Fallback, Key, SECTIONS};
use super::settings::{self, Settings};
use super::template::quote;
use super::units::{millis, size};
use super::value::{Kind, Value, worded};
use super::walk::{self, Item, Items, Layers, Walked};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of the file, from 1.
    File(usize),
    /// A variable, as `$CONSIGN_…`.
    Variable(String),
    /// A flag, such as `--runtime`.
    Flag(String),
    /// Nobody said anything.
    Default,
}

/// A key and what stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// Its name in the section.
    pub name: &'static str,
    /// As it would stand in the file; `None` when nothing stands for it.
    pub value: Option<String>,
    /// Where from.
    pub origin: Origin,
}

/// A section with all its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Dotted name.
    pub section: &'static str,
    /// Which one, from 0, if it may stand there more than once.
    pub index: Option<usize>,
    /// Its keys in the order of the table.
    pub keys: Vec<Effective>,
}

/// Judges a configuration and lists what a site would go by.
///
/// # Errors
/// Everything that is wrong with it.
pub fn effective(file: &Path, text: &str, layers: &Layers) -> Result<Vec<Shown>, Faults> {
    settled(file, text, layers).map(|(_, shown)| shown)
}

/// The same, with the settings that it makes.
///
/// # Errors
/// Everything that is wrong with it.
pub fn settled(file: &Path, text: &str, layers: &Layers) -> Result<(Settings, Vec<Shown>), Faults> {
    let walked = walk::walk(text, layers);
    let shown = list(text, &walked);
    let settings = settings::settle(file, walked, layers.credentials.as_deref())
        .map_err(|faults| Faults::new(file.into(), text.to_owned(), faults))?;
    Ok((settings, with_admin(shown)))
}

fn list(text: &str, walked: &Walked) -> Vec<Shown> {
    let mut all = Vec::new();
    for section in SECTIONS {
        let keys = || keys::of_section(section.name);
        if !section.many {
            let of = |key: &'static Key| one(text, key, walked.items.get(&key.path()));
            let keys = keys().map(of).collect();
            all.push(Shown { section: section.name, index: None, keys });
            continue;
        }
        let stands = walked.lists.iter().filter(|(name, ..)| *name == section.name);
        for (index, (_, items, _)) in stands.enumerate() {
            let keys = keys().map(|key| one_of_many(text, key, items)).collect();
            all.push(Shown { section: section.name, index: Some(index), keys });
        }
    }
    all
}

fn one(text: &str, key: &'static Key, item: Option<&Item>) -> Effective {
    let value = item.map(|item| toml(key.kind, &item.value));
    let origin = match item.and_then(|item| item.at.as_ref()) {
        Some(At::File(range)) => Origin::File(line_of(text, range.start)),
        Some(At::Given(name)) if name.starts_with('$') => Origin::Variable(name.clone()),
        Some(At::Given(name)) => Origin::Flag(name.clone()),
        Some(At::Whole) | None => Origin::Default,
    };
    Effective { name: key.name, value, origin }
}

fn one_of_many(text: &str, key: &'static Key, items: &Items) -> Effective {
    let mut shown = one(text, key, items.get(key.name));
    if let (None, Fallback::Is(default)) = (&shown.value, key.default) {
        shown.value = Some(default.to_owned());
    }
    shown
}

/// The one default that is made from another key: relative to the same directory as that is.
fn with_admin(mut shown: Vec<Shown>) -> Vec<Shown> {
    let data_dir = shown.iter().flat_map(|s| &s.keys).find(|k| k.name == "data_dir");
    let data_dir = data_dir.and_then(|k| k.value.as_deref()).and_then(unquote);
    let Some(data_dir) = data_dir else { return shown };
    let socket = quote(&format!("unix:{}", Path::new(&data_dir).join("admin.sock").display()));
    let listen = shown.iter_mut().filter(|s| s.section == "listen");
    for key in listen.flat_map(|s| &mut s.keys).filter(|k| k.name == "admin") {
        key.value.get_or_insert_with(|| socket.clone());
    }
    shown
}

/// The text of a TOML string.
fn unquote(value: &str) -> Option<String> {
    let table: toml::Table = format!("v = {value}").parse().ok()?;
    table.get("v").and_then(|v| v.as_str()).map(str::to_owned)
}

/// A value as it would stand in the file.
#[must_use]
pub fn toml(kind: Kind, value: &Value) -> String {
    let words = |items: Vec<String>| format!("[{}]", items.join(", "));
    match (kind, value) {
        (_, Value::Number(None)) => quote("none"),
        (Kind::Size { .. }, Value::Number(Some(bytes))) => quote(&size(*bytes)),
        (Kind::Time { .. }, Value::Number(Some(ms))) => quote(&millis(*ms)),
        (_, Value::Number(Some(number))) => number.to_string(),
        (Kind::Socket, Value::Text(path)) => quote(&format!("unix:{path}")),
        (_, Value::Text(text)) => quote(text),
        (_, Value::Switch(on)) => on.to_string(),
        (Kind::Web | Kind::Pickup, Value::Listen(addresses)) => {
            quote(&addresses.first().map_or_else(|| "off".into(), ToString::to_string))
        }
        (_, Value::Listen(addresses)) => {
            words(addresses.iter().map(|a| quote(&a.to_string())).collect())
        }
        (_, Value::Pins(pins)) => {
            let each: Vec<String> = pins.iter().map(|pin| quote(&worded(pin))).collect();
            match each.as_slice() {
                [one] => one.clone(),
                _ => words(each),
            }
        }
        (_, Value::Texts(texts)) => words(texts.iter().map(|t| quote(t)).collect()),
    }
}

impl Origin {
    /// The word for programs.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Origin::File(_) => "file",
            Origin::Variable(_) => "env",
            Origin::Flag(_) => "flag",
            Origin::Default => "default",
        }
    }

    fn text(&self, file: &str) -> String {
        match self {
            Origin::File(line) => format!("{file}:{line}"),
            Origin::Variable(name) | Origin::Flag(name) => name.clone(),
            Origin::Default => "default".into(),
        }
    }
}

impl Shown {
    fn header(&self) -> String {
        match self.index {
            Some(_) => format!("[[{}]]", self.section),
            None => format!("[{}]", self.section),
        }
    }

    /// The dotted path of one of its keys, with the number of the section where there may be several.
    fn path(&self, name: &str) -> String {
        match self.index {
            Some(index) => format!("{}[{index}].{name}", self.section),
            None => format!("{}.{name}", self.section),
        }
    }
}

/// As a file: reading it again gives the same values. With `origin` each line says where its value came
/// from; `file` is the name for what came from the file.
#[must_use]
pub fn render(all: &[Shown], file: &str, origin: bool) -> String {
    let mut out = String::new();
    for shown in all {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &shown.header();
        out.push('\n');
        for key in &shown.keys {
            let line = match &key.value {
                Some(value) => format!("{} = {value}", key.name),
                None => format!("# {} is not set", key.name),
            };
            if origin {
                out += &format!("{line:<44}  # {}\n", key.origin.text(file));
            } else {
                out += &format!("{line}\n");
            }
        }
    }
    out
}

/// What [`json()`] has made, as a file again, as [`render`] writes it.
#[must_use]
pub fn render_json(config: &Json, origin: bool) -> String {
    let (mut out, mut last) = (String::new(), "");
    let file = config["file"].as_str().unwrap_or_default();
    for key in config["keys"].as_array().into_iter().flatten() {
        let text = |name: &str| key[name].as_str();
        let (section, name) = text("key").and_then(|key| key.rsplit_once('.')).unwrap_or_default();
        if section != last {
            let blank = if out.is_empty() { "" } else { "\n" };
            out += &match section.split_once('[') {
                Some((section, _)) => format!("{blank}[[{section}]]\n"),
                None => format!("{blank}[{section}]\n"),
            };
            last = section;
        }
        let line = match text("value") {
            Some(value) => format!("{name} = {value}"),
            None => format!("# {name} is not set"),
        };
        let from = match (key["line"].as_u64(), text("given")) {
            (Some(line), _) => format!("{file}:{line}"),
            (None, Some(given)) => given.to_owned(),
            (None, None) => "default".into(),
        };
        out += &if origin { format!("{line:<44}  # {from}\n") } else { format!("{line}\n") };
    }
    out
}

/// The same for programs: one object.
#[must_use]
pub fn json(all: &[Shown], file: &str) -> Json {
    let each = |shown: &Shown| -> Vec<Json> {
        let one = |key: &Effective| {
            let mut object = json!({
                "key": shown.path(key.name),
                "value": key.value,
                "origin": key.origin.word(),
            });
            match &key.origin {
                Origin::File(line) => object["line"] = (*line).into(),
                Origin::Variable(name) | Origin::Flag(name) => {
                    object["given"] = name.as_str().into();
                }
                Origin::Default => {}
            }
            object
        };
        shown.keys.iter().map(one).collect()
    };
    let keys: Vec<Json> = all.iter().flat_map(each).collect();
    json!({ "schema": "consign.config/1", "file": file, "keys": keys })
}
