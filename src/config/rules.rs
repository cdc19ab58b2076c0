//! `[[inbox]]` and `[[watch]]`: from values to rules, with what only several of them can have wrong.

use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_core::inbox::{InboxRule, pattern_fault};
use consign_core::ledger::keys_upkeep::RuleId;
use consign_core::segment::is_site_name;

use super::fault::{At, Code, Fault};
use super::keys;
use super::units::duration;
use super::value::Value;
use super::walk::{Item, Items, default_of};
use crate::inbox::InboxDir;
use crate::watch::WatchRule;

/// The rules of a configuration, and what is wrong with them.
pub(super) struct Rules {
    pub(super) inbox: Vec<(InboxRule, InboxDir)>,
    pub(super) watch: Vec<WatchRule>,
    pub(super) faults: Vec<Fault>,
}

/// What rules are judged by.
pub(super) struct Around<'a> {
    /// Relative paths start there.
    pub(super) base: &'a Path,
    pub(super) data_dir: &'a Path,
    /// Sites that can be addressed.
    pub(super) sites: Vec<String>,
}

/// One rule as it was read: its section, its directory, where that stands.
struct Dir {
    section: &'static str,
    path: PathBuf,
    at: At,
}

/// Reads all rules, in their order.
pub(super) fn read<'a>(
    lists: impl Iterator<Item = (&'static str, &'a Items)>,
    around: &Around<'_>,
) -> Rules {
    let mut rules = Rules { inbox: Vec::new(), watch: Vec::new(), faults: Vec::new() };
    let mut dirs: Vec<Dir> = Vec::new();
    for (section, items) in lists {
        let Some((dir, at)) = text(items, "dir") else { continue };
        let path = around.base.join(dir);
        match section {
            "inbox" => rules.inbox(items, dir, &path),
            "watch" => rules.watch(items, dir, &path, around),
            _ => continue,
        }
        rules.dir_is_apart(&Dir { section, path, at }, &mut dirs, around);
    }
    rules
}

fn text<'a>(items: &'a Items, key: &str) -> Option<(&'a str, At)> {
    match items.get(key) {
        Some(Item { value: Value::Text(text), at }) => {
            Some((text, at.clone().unwrap_or(At::Whole)))
        }
        _ => None,
    }
}

fn texts(items: &Items, key: &str) -> (Vec<String>, At) {
    match items.get(key) {
        Some(Item { value: Value::Texts(texts), at }) => {
            (texts.clone(), at.clone().unwrap_or(At::Whole))
        }
        _ => (Vec::new(), At::Whole),
    }
}

/// A duration, or what stands for it when it is left out.
fn time(items: &Items, section: &str, key: &str) -> Duration {
    let value = items.get(key).map(|item| item.value.clone());
    let value = value.or_else(|| keys::find(section, key).and_then(default_of));
    match value {
        Some(Value::Number(Some(ms))) => duration(ms),
        _ => Duration::ZERO,
    }
}

impl Rules {
    fn fault(&mut self, code: Code, key: &str, message: String, label: &str, at: At) {
        let (key, label, help) = (key.to_owned(), label.to_owned(), String::new());
        self.faults.push(Fault { code, key, message, label, help, at });
    }

    fn inbox(&mut self, items: &Items, dir: &str, path: &Path) {
        let picked = |key| text(items, key).map(|(text, _)| text.to_owned());
        for key in ["from", "name"] {
            let Some((pattern, at)) = text(items, key) else { continue };
            if let Some(fault) = pattern_fault(pattern) {
                let path = format!("inbox.{key}");
                self.fault(Code::Value, &path, format!("`{path}` is no pattern: {fault}"), "", at);
            }
        }
        let label = text(items, "label").map(|(label, at)| match label.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned()), at),
            None => (label.to_owned(), None, at),
        });
        if let Some((key, _, at)) = &label
            && key.is_empty()
        {
            let message = "`inbox.label` must be KEY or KEY=VALUE".to_owned();
            self.fault(Code::Value, "inbox.label", message, "there is no key", at.clone());
        }
        let (from, name) = (picked("from"), picked("name"));
        let said = picked("label").unwrap_or_default();
        let or_all = |text: &Option<String>| text.clone().unwrap_or_default();
        let id = RuleId::inbox(&or_all(&from), &said, &or_all(&name), dir);
        let picks: Vec<String> =
            [("from", &or_all(&from)), ("label", &said), ("name", &or_all(&name))]
                .iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(key, text)| format!("{key} {text}"))
                .collect();
        let (command, at) = texts(items, "command");
        if command.first().is_some_and(String::is_empty) || command.iter().any(|c| c.contains('\0'))
        {
            let message = "`inbox.command` must be a program and its arguments".to_owned();
            self.fault(Code::Value, "inbox.command", message, "", at);
        }
        if let Some((_, at)) = text(items, "dir")
            && self.inbox.iter().any(|(rule, _)| rule.id == id)
        {
            let message = "an inbox rule stands there twice".to_owned();
            self.fault(Code::Double, "inbox.dir", message, "the second one", at);
        }
        let rule = InboxRule {
            id,
            from,
            label: label.map(|(key, value, _)| (key, value)),
            name,
            command: !command.is_empty(),
        };
        let picks = if picks.is_empty() { "everything".to_owned() } else { picks.join(", ") };
        let timeout = time(items, "inbox", "timeout");
        self.inbox.push((rule, InboxDir { id, picks, dir: path.into(), command, timeout }));
    }

    fn watch(&mut self, items: &Items, dir: &str, path: &Path, around: &Around<'_>) {
        let (to, at) = texts(items, "to");
        for name in to.iter().filter(|name| *name != "*") {
            let known = is_site_name(name) && around.sites.contains(name);
            if !known {
                let message = format!("`watch.to` names {name:?}, which is no known peer");
                self.fault(Code::Conflict, "watch.to", message, "nobody of that name", at.clone());
                if let Some(fault) = self.faults.last_mut() {
                    fault.help = format!("add {name} to relay.known_peers, or a [[route]] to it");
                }
            }
        }
        let remove = items.get("remove").is_some_and(|item| item.value == Value::Switch(true));
        let quiet = time(items, "watch", "quiet");
        let id = RuleId::watch(dir);
        self.watch.push(WatchRule { id, dir: path.into(), to, quiet, remove });
    }

    /// What is watched must be nobody's output: a file would go round for ever.
    fn dir_is_apart(&mut self, dir: &Dir, earlier: &mut Vec<Dir>, around: &Around<'_>) {
        let key = format!("{}.dir", dir.section);
        let overlap = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
        // A data directory that is missing or wrong is told by itself.
        let known = !around.data_dir.as_os_str().is_empty();
        if known && overlap(&dir.path, around.data_dir) {
            let message = format!("`{key}` is within node.data_dir, or the other way round");
            self.fault(Code::Conflict, &key, message, "", dir.at.clone());
        }
        let clash = earlier.iter().find(|other| {
            let watched = dir.section == "watch" || other.section == "watch";
            watched && overlap(&dir.path, &other.path)
        });
        if let Some(other) = clash {
            let message = format!(
                "`{key}` is within the dir of another `[[{}]]`, or the other way round",
                other.section
            );
            self.fault(Code::Conflict, &key, message, "the second one", dir.at.clone());
        }
        let Dir { section, path, at } = dir;
        earlier.push(Dir { section, path: path.clone(), at: at.clone() });
    }
}

#[cfg(test)]
mod tests;
