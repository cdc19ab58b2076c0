//! The text of a node's configuration: every key judged on its own, every fault collected, as for a site's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_core::inbox::{RULES_MAX, pattern_fault};
use consign_core::ledger::keys_pickup::is_node_id;
use consign_core::ledger::keys_upkeep::RuleId;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::NodeConfig;
use crate::config::fault::{At, Code, Fault, Faults};
use crate::config::value::{Kind, Value, similar};
use crate::config::walk::syntax;
use crate::inbox::InboxDir;
use crate::pickup::node::give::Rule;
use crate::pickup::url::Relay;

/// Fetches at a time when nothing is said.
const FETCHES: u64 = 4;
/// How long a command may take when nothing is said.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The section of rules.
const INBOX: &str = "inbox";

/// A key.
struct Key {
    name: &'static str,
    kind: Kind,
    required: bool,
    meaning: &'static str,
}

const fn key(name: &'static str, kind: Kind, required: bool, meaning: &'static str) -> Key {
    Key { name, kind, required, meaning }
}

/// Keys of the node itself.
const NODE: &[Key] = &[
    key("id", Kind::Text, true, "its id, as it is enrolled at the relay"),
    key("relay", Kind::Text, true, "its relay, such as \"https://relay.example:7410\""),
    key("ca", Kind::Path, false, "the authority that signed the relay's certificate"),
    key("key", Kind::Path, true, "its private key"),
    key("dir", Kind::Path, true, "where shards go"),
    key("fetches", Kind::Count { min: 1, max: 32 }, false, "fetches at a time"),
];

/// Keys of a rule.
const RULE: &[Key] = &[
    key("file", Kind::Text, false, "pattern of file ids"),
    key("dir", Kind::Path, true, "where files go"),
    key("command", Kind::Texts, false, "a program and its arguments"),
    key(
        "timeout",
        Kind::Time { min: 1, max: 30 * 86_400_000, none: false },
        false,
        "how long the command may take",
    ),
];

/// Values with their places.
type Items = BTreeMap<&'static str, (Value, At)>;

/// What is found while a text is gone through.
struct Walk<'t> {
    /// Directory of the file: relative paths start there.
    base: &'t Path,
    /// Whether the text is TOML: otherwise nothing is called missing.
    whole: bool,
    faults: Vec<Fault>,
}

/// Judges the text of a file; relative paths in it start at the directory of `file`.
///
/// # Errors
/// Everything that is wrong with it.
pub(super) fn parse(file: &Path, text: &str) -> Result<NodeConfig, Faults> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let base = file.parent().unwrap_or(Path::new("."));
    let mut walk = Walk { base, whole: errors.is_empty(), faults: Vec::new() };
    let config = walk.node(root.get_ref());
    // What the parser put in place of something it could not read is not worth a second fault.
    let places: Vec<At> = errors.iter().filter_map(toml::de::Error::span).map(At::File).collect();
    walk.faults.retain(|fault| !places.contains(&fault.at));
    walk.faults.extend(errors.iter().map(syntax));
    match config {
        Some(config) if walk.faults.is_empty() => Ok(config),
        _ => Err(Faults::new(file.into(), text.to_owned(), walk.faults)),
    }
}

impl Walk<'_> {
    fn node(&mut self, root: &DeTable<'_>) -> Option<NodeConfig> {
        let items = self.table("", NODE, root, &At::Whole);
        let dir = items.get("dir").map(|(value, _)| self.base.join(text(value)));
        let inbox = self.rules(root.get(INBOX), dir.as_deref());
        let id = self.judged(&items, "id", |id| match is_node_id(id) {
            true => Ok(id.to_owned()),
            false => Err("is not 1 to 128 characters of A-Z a-z 0-9 . _ -".into()),
        });
        let relay = self.judged(&items, "relay", |url| {
            Relay::parse(url).map_err(|why| format!("cannot be used: {why}"))
        });
        let path = |name: &str| items.get(name).map(|(value, _)| self.base.join(text(value)));
        let (ca, key) = (path("ca"), path("key"));
        if let (Some(Relay { tls: true, .. }), None, Some((_, at))) =
            (&relay, &ca, items.get("relay"))
        {
            let message = "`ca` is missing: https needs the authority that signed the relay";
            self.fault(Code::Required, "ca", message, "this is https", at.clone());
        }
        let fetches = match items.get("fetches") {
            Some((Value::Number(Some(fetches)), _)) => *fetches,
            _ => FETCHES,
        };
        Some(NodeConfig {
            id: id?,
            relay: relay?,
            ca,
            key: key?,
            dir: dir?,
            fetches: usize::try_from(fetches).ok()?,
            inbox,
        })
    }

    /// Values of a table; what it does not take, and what is missing, are faults.
    fn table(&mut self, section: &str, keys: &[Key], table: &DeTable<'_>, place: &At) -> Items {
        let path = |name: &str| match section {
            "" => name.to_owned(),
            section => format!("{section}.{name}"),
        };
        let (mut items, mut meant) = (Items::new(), Vec::new());
        for (name, value) in table {
            let word = name.get_ref().as_ref();
            let Some(key) = keys.iter().find(|key| key.name == word) else {
                if !(section.is_empty() && word == INBOX) {
                    meant.extend(self.unknown(section, word, keys, At::File(name.span())));
                }
                continue;
            };
            let at = At::File(value.span());
            match key.kind.read(value.get_ref()) {
                Ok(value) => drop(items.insert(key.name, (value, at))),
                Err(bad) => {
                    let message = format!("`{}` {}", path(word), bad.problem);
                    let (code, key) = (bad.code, path(word));
                    let (label, help) = (bad.label, bad.help);
                    self.faults.push(Fault { code, key, message, label, help, at });
                }
            }
        }
        for key in keys.iter().filter(|key| key.required && self.whole) {
            if !table.contains_key(key.name) && !meant.contains(&key.name) {
                let help = format!("{}: {}", key.meaning, key.kind.expected());
                let message = format!("`{}` is missing", path(key.name));
                let label = format!("`{}` belongs here", key.name);
                let (code, key, at) = (Code::Required, path(key.name), place.clone());
                self.faults.push(Fault { code, key, message, label, help, at });
            }
        }
        items
    }

    /// A key that nobody knows; the one that was probably meant is not called missing as well.
    fn unknown(&mut self, section: &str, word: &str, keys: &[Key], at: At) -> Option<&'static str> {
        let names = keys.iter().map(|key| key.name);
        let section_too = section.is_empty().then_some(INBOX);
        let near = similar(word, names.chain(section_too));
        let (key, place) = match section {
            "" => (word.to_owned(), String::new()),
            section => (format!("{section}.{word}"), format!(" in `[[{section}]]`")),
        };
        let help = near.map(|near| format!("a key with a similar name exists: `{near}`"));
        self.faults.push(Fault {
            code: Code::Unknown,
            key,
            message: format!("unknown key `{word}`{place}"),
            label: "not a setting of nodes".into(),
            help: help.unwrap_or_default(),
            at,
        });
        keys.iter().map(|key| key.name).find(|name| Some(*name) == near)
    }

    /// A value that has to mean something.
    fn judged<T>(
        &mut self,
        items: &Items,
        name: &str,
        judge: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (value, at) = items.get(name)?;
        match judge(text(value)) {
            Ok(judged) => Some(judged),
            Err(why) => {
                self.fault(Code::Value, name, format!("`{name}` {why}"), "this", at.clone());
                None
            }
        }
    }

    fn fault(&mut self, code: Code, key: &str, message: impl Into<String>, label: &str, at: At) {
        let (key, message, label) = (key.into(), message.into(), label.into());
        self.faults.push(Fault { code, key, message, label, help: String::new(), at });
    }

    /// The rules; `own` is where the node itself keeps shards.
    fn rules(&mut self, value: Option<&Spanned<DeValue<'_>>>, own: Option<&Path>) -> Vec<Rule> {
        let Some(value) = value else { return Vec::new() };
        let DeValue::Array(tables) = value.get_ref() else {
            let message = "`inbox` must be written as a section";
            let at = At::File(value.span());
            self.fault(Code::Type, INBOX, message, "not a section", at);
            return Vec::new();
        };
        let mut rules: Vec<Rule> = Vec::new();
        for (number, each) in tables.iter().enumerate() {
            let at = At::File(each.span());
            if number == RULES_MAX {
                let message = format!("more than {RULES_MAX} sections `[[inbox]]`");
                self.fault(Code::Range, INBOX, message, "one too many", at);
                break;
            }
            let DeValue::Table(table) = each.get_ref() else {
                self.fault(Code::Type, INBOX, "`inbox` must be written as a section", "this", at);
                continue;
            };
            let Some(rule) = self.rule(table, &at) else { continue };
            let dir = &rule.dir.dir;
            if own.is_some_and(|own| overlap(dir, own)) {
                let message = format!(
                    "`inbox.dir` {} is within `dir`, or the other way round",
                    dir.display()
                );
                self.fault(Code::Conflict, "inbox.dir", message, "of this rule", at.clone());
            }
            if rules.iter().any(|other| other.dir.id == rule.dir.id) {
                let message = "two rules `[[inbox]]` with the same `file` and `dir`";
                self.fault(Code::Double, INBOX, message, "the second one", at);
            }
            rules.push(rule);
        }
        rules
    }

    fn rule(&mut self, table: &DeTable<'_>, at: &At) -> Option<Rule> {
        let items = self.table(INBOX, RULE, table, at);
        let file = items.get("file").map(|(value, at)| (text(value).to_owned(), at.clone()));
        if let Some((pattern, at)) = &file
            && let Some(why) = pattern_fault(pattern)
        {
            let message = format!("`inbox.file` is no pattern: {why}");
            self.fault(Code::Value, "inbox.file", message, "this", at.clone());
        }
        let command = match items.get("command") {
            Some((Value::Texts(words), at)) => {
                if words.first().is_some_and(String::is_empty)
                    || words.iter().any(|w| w.contains('\0'))
                {
                    let message = "`inbox.command` must be a program and its arguments";
                    self.fault(Code::Value, "inbox.command", message, "this", at.clone());
                }
                words.clone()
            }
            _ => Vec::new(),
        };
        let timeout = match items.get("timeout") {
            Some((Value::Number(Some(ms)), _)) => Duration::from_millis(*ms),
            _ => TIMEOUT,
        };
        let said: PathBuf = text(&items.get("dir")?.0).into();
        let file = file.map(|(pattern, _)| pattern);
        let id =
            RuleId::inbox("", "", file.as_deref().unwrap_or_default(), &said.to_string_lossy());
        let picks = file.clone().unwrap_or_else(|| "everything".into());
        let dir = self.base.join(said);
        Some(Rule { file, dir: InboxDir { id, picks, dir, command, timeout } })
    }
}

/// Whether one of two directories is within the other, however they are written.
fn overlap(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
    let (a, b) = (whole(a), whole(b));
    a.starts_with(&b) || b.starts_with(&a)
}

/// The text of a value that is one.
fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) => text,
        Value::Switch(_)
        | Value::Number(_)
        | Value::Listen(_)
        | Value::Pins(_)
        | Value::Texts(_) => "",
    }
}
