//! What another reading of the configuration changes while a site runs by the last one.

use super::Settings;
use super::effective::{Effective, Shown};
use super::keys::{self, Change};

/// A key, or a peer, that holds another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Dotted path, with the name of the peer where there are several.
    pub key: String,
    /// What held before, as people write it; empty for a peer that is new.
    pub from: String,
    /// What holds now; empty for a peer that is gone.
    pub to: String,
}

impl Changed {
    /// For people: `relay.known_peers.beta.inbound_quota 50GiB -> 80GiB`.
    #[must_use]
    pub fn line(&self) -> String {
        let Changed { key, from, to } = self;
        match (from.as_str(), to.as_str()) {
            ("", to) => format!("{key} added, {to}"),
            (_, "") => format!("{key} removed"),
            (from, to) => format!("{key} {from} -> {to}"),
        }
    }
}

/// What is different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What holds from now on.
    pub changed: Vec<Changed>,
    /// Keys that need a restart and stay as they are.
    pub restart: Vec<String>,
}

impl Settings {
    /// These settings with everything of `new` that can change while a site runs: one of the two holds for each key.
    #[must_use]
    pub fn with_live(&self, new: &Settings) -> Settings {
        let mut settings = self.clone();
        settings.node = self.node.with_live(&new.node);
        settings.tls = new.tls.clone();
        settings.log.level = new.log.level;
        settings
    }
}

/// Compares two readings, and makes the list of what holds afterwards.
#[must_use]
pub fn compare(old: &[Shown], new: &[Shown]) -> (Difference, Vec<Shown>) {
    let mut difference = Difference::default();
    let mut holds = Vec::new();
    for section in keys::SECTIONS {
        let of = |all: &[Shown]| -> Vec<Shown> {
            all.iter().filter(|s| s.section == section.name).cloned().collect()
        };
        let (old, new) = (of(old), of(new));
        match section.name {
            "relay.known_peers" => {
                peers(&old, &new, &mut difference.changed);
                holds.extend(new);
            }
            name if section.many => {
                // Only known peers come and go while a site runs.
                if values(&old) != values(&new) {
                    difference.restart.push(name.to_owned());
                }
                holds.extend(old);
            }
            _ => {
                for (old, new) in old.iter().zip(&new) {
                    holds.push(plain(old, new, &mut difference));
                }
            }
        }
    }
    (difference, holds)
}

fn values(all: &[Shown]) -> Vec<Vec<&Option<String>>> {
    all.iter().map(|shown| shown.keys.iter().map(|key| &key.value).collect()).collect()
}

/// A section that stands there once: key by key.
fn plain(old: &Shown, new: &Shown, difference: &mut Difference) -> Shown {
    let mut holds = new.clone();
    for (was, is) in old.keys.iter().zip(&mut holds.keys) {
        let restarts = keys::find(old.section, is.name).map(keys::Key::change);
        let key = format!("{}.{}", old.section, is.name);
        let differs = was.value != is.value;
        if restarts == Some(Change::Restart) {
            difference.restart.extend(differs.then_some(key));
            *is = was.clone();
        } else if differs {
            let (from, to) = (words(was), words(is));
            difference.changed.push(Changed { key, from, to });
        }
    }
    holds
}

fn peers(old: &[Shown], new: &[Shown], changed: &mut Vec<Changed>) {
    let path = |name: &str| format!("relay.known_peers.{name}");
    for peer in old {
        let name = value(peer, "name");
        match new.iter().find(|p| value(p, "name") == name) {
            None => {
                let (key, from) = (path(&name), value(peer, "address"));
                changed.push(Changed { key, from, to: String::new() });
            }
            Some(now) => {
                for (was, is) in peer.keys.iter().zip(&now.keys) {
                    if was.value != is.value {
                        let key = format!("{}.{}", path(&name), is.name);
                        changed.push(Changed { key, from: words(was), to: words(is) });
                    }
                }
            }
        }
    }
    for peer in new {
        let name = value(peer, "name");
        if !old.iter().any(|p| value(p, "name") == name) {
            let (key, to) = (path(&name), value(peer, "address"));
            changed.push(Changed { key, from: String::new(), to });
        }
    }
}

fn value(shown: &Shown, name: &str) -> String {
    shown.keys.iter().find(|key| key.name == name).map(words).unwrap_or_default()
}

/// As people write it.
fn words(key: &Effective) -> String {
    key.value.as_deref().map_or_else(|| "(not set)".into(), |v| v.trim_matches('"').to_owned())
}
