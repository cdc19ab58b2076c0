//! What a key or a section means, in words.

use serde_json::{Value as Json, json};

use super::keys::{self, Fallback, KEYS, Key, SECTIONS, Section};
use super::value::similar;
use crate::exit::{Exit, Failure};

/// What somebody asks about.
#[derive(Clone, Debug)]
pub enum Topic {
    /// A key; more than one when only its own name was given and several sections have it.
    Keys(Vec<&'static Key>),
    /// A whole section.
    Section(&'static Section),
}

/// Finds a key by its dotted path or by its own name, or a section.
///
/// # Errors
/// When there is none of that name; the help has a similar one.
pub fn find(word: &str) -> Result<Topic, Failure> {
    let word = word.trim().trim_matches(['[', ']']);
    if let Some(section) = keys::find_section(word) {
        return Ok(Topic::Section(section));
    }
    let dotted = word.contains('.');
    let fits = |key: &&Key| if dotted { key.path() == word } else { key.name == word };
    let found: Vec<&Key> = KEYS.iter().filter(fits).collect();
    if !found.is_empty() {
        return Ok(Topic::Keys(found));
    }
    Err(unknown(word))
}

fn unknown(word: &str) -> Failure {
    let paths: Vec<String> = KEYS.iter().map(Key::path).collect();
    let names = KEYS.iter().map(|k| k.name).chain(SECTIONS.iter().map(|s| s.name));
    let last = word.rsplit('.').next().unwrap_or(word);
    let elsewhere = KEYS.iter().find(|key| key.name == last).map(Key::path);
    let near = elsewhere
        .or_else(|| similar(word, paths.iter().map(String::as_str)).map(str::to_owned))
        .or_else(|| similar(last, names).map(str::to_owned));
    let message = format!("there is no key or section `{word}`");
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let all: Vec<&str> = SECTIONS.iter().map(|s| s.name).collect();
            format!("sections are {}", all.join(", "))
        }
    };
    Failure::new(Exit::NoMatch, "CN0212", message).help(help)
}

fn default(key: &Key) -> Option<&'static str> {
    match key.default {
        Fallback::Is(text) => Some(text),
        Fallback::Required | Fallback::Absent => None,
    }
}

/// The variable that stands for a key; sections that may stand there more than once have none.
#[must_use]
pub fn variable(key: &Key) -> Option<String> {
    let plain = keys::find_section(key.section).is_some_and(|s| !s.many);
    plain.then(|| format!("CONSIGN_{}_{}", key.section, key.name).to_ascii_uppercase())
}

/// A key, for people.
#[must_use]
pub fn render(key: &Key) -> String {
    let default = match key.default {
        Fallback::Required => "none: it must be there",
        Fallback::Absent => "none: it may be left out",
        Fallback::Is(text) => text,
    };
    let mut takes = key.kind.expected();
    if let Some(bounds) = key.kind.bounds() {
        takes += &format!("; {bounds}");
    }
    let variable =
        variable(key).unwrap_or_else(|| "none: it may stand there more than once".into());
    let (path, meaning, change) = (key.path(), key.meaning, key.change().sentence());
    format!(
        "{path}\n  {meaning}\n\n  takes     {takes}\n  default   {default}\n  variable  {variable}\n  \
         change    {change}\n"
    )
}

/// A section with its keys, for people.
#[must_use]
pub fn render_section(section: &Section) -> String {
    let mut out = format!("{}\n  {}\n\n", section.header(), section.meaning);
    for key in keys::of_section(section.name) {
        out += &format!("  {:<18} {}\n", key.name, key.meaning);
    }
    out
}

/// A key, for programs.
#[must_use]
pub fn json(key: &Key) -> Json {
    json!({
        "schema": "consign.config-key/1",
        "key": key.path(),
        "meaning": key.meaning,
        "takes": key.kind.expected(),
        "bounds": key.kind.bounds(),
        "required": key.default == Fallback::Required,
        "default": default(key),
        "variable": variable(key),
        "change": key.change().word(),
    })
}
