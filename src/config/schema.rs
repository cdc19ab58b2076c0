//! The JSON Schema of the file, made from the table of keys: editors complete and check by it.
//!
//! It is as strict as one key at a time can be. What several keys have to say to each other, such as an
//! order of two durations, only `config check` knows.

use serde_json::{Map, Value as Json, json};

use super::keys::{self, Fallback, Key, SECTIONS, Section};
use super::units::{SIZES, TIMES};
use super::value::Kind;

/// The whole schema.
#[must_use]
pub fn schema() -> Json {
    let mut sections = Map::new();
    for section in SECTIONS.iter().filter(|s| !s.name.contains('.')) {
        sections.insert(section.name.to_owned(), of_section(section));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "consign.toml",
        "description": "Configuration of a consign site",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

fn of_section(section: &Section) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for key in keys::of_section(section.name) {
        properties.insert(key.name.to_owned(), of_key(key));
        if key.default == Fallback::Required {
            required.push(key.name);
        }
    }
    let below = format!("{}.", section.name);
    for inner in SECTIONS.iter().filter(|s| s.name.starts_with(&below)) {
        let name = inner.name.strip_prefix(&below).unwrap_or(inner.name);
        properties.insert(name.to_owned(), of_section(inner));
    }
    let table = json!({
        "description": section.meaning,
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    });
    if section.many {
        return json!({ "description": section.meaning, "type": "array", "items": table });
    }
    table
}

fn of_key(key: &Key) -> Json {
    let mut schema = of_kind(key.kind);
    schema["description"] = key.meaning.into();
    if let Fallback::Is(text) = key.default {
        schema["default"] = as_json(text);
    }
    schema
}

/// A default of the table as JSON.
fn as_json(text: &str) -> Json {
    let table: toml::Table = format!("v = {text}").parse().expect("defaults are TOML values");
    table.get("v").and_then(|value| serde_json::to_value(value).ok()).unwrap_or(Json::Null)
}

fn of_kind(kind: Kind) -> Json {
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let matching = |pattern: String| json!({ "type": "string", "pattern": pattern });
    match kind {
        Kind::Site => matching("^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$".into()),
        Kind::Path | Kind::Credential | Kind::Text => json!({ "type": "string", "minLength": 1 }),
        Kind::Word(words) => json!({ "type": "string", "enum": words }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Count { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::CountOrNone => json!({ "anyOf": [
            { "type": "integer", "minimum": 1 },
            { "type": "string", "enum": ["none"] },
        ] }),
        Kind::Size { none, .. } => matching(amount(SIZES, none)),
        Kind::Time { none, .. } => matching(amount(TIMES, none)),
        Kind::Listen => json!({
            "type": "array", "uniqueItems": true,
            "items": { "type": "string", "pattern": PORT },
        }),
        Kind::Socket => matching("^unix:.+$".into()),
        Kind::Web | Kind::Pickup => matching(format!("^off$|{PORT}")),
        Kind::Address => matching(PORT.into()),
        Kind::Pin => {
            let one = matching("^sha256:([0-9A-Fa-f]:?){63}[0-9A-Fa-f]$".into());
            json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
        }
        Kind::Texts | Kind::Windows => texts,
    }
}

/// Something and a port.
const PORT: &str = "^[^/\\s]+:[0-9]{1,5}$";

/// Amounts with units, such as `1h 30m`.
fn amount(units: &[(&str, u64)], none: bool) -> String {
    let units: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    let none = if none { "none|" } else { "" };
    format!("^\\s*({none}([0-9]+(\\.[0-9]{{1,3}})?\\s*({})\\s*)+)$", units.join("|"))
}
