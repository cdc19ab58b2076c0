//! What a reload applies and what it leaves for a restart: every key of the table, and peers that come, go and change.

use std::path::Path;

use super::GOOD;
use crate::config::effective::{Shown, effective};
use crate::config::keys::{self, Change, Fallback, KEYS, Key};
use crate::config::reload::{Changed, Difference, compare};
use crate::config::value::Kind;
use crate::config::{Layers, Settings, parse};

fn read(text: &str) -> (Settings, Vec<Shown>) {
    let (file, layers) = (Path::new("/etc/site/consign.toml"), Layers::default());
    let settings = parse(file, text, &layers).unwrap_or_else(|faults| panic!("{text}\n{faults}"));
    (settings, effective(file, text, &layers).expect("good"))
}

fn difference(old: &str, new: &str) -> Difference {
    compare(&read(old).1, &read(new).1).0
}

/// Another value than the default that is as good.
fn another(key: &Key) -> String {
    match (key.kind, key.name) {
        (_, "keep") => "\"25h\"".into(),
        (_, "backoff_initial") => "\"2s\"".into(),
        (_, "session_max_age") => "\"2h\"".into(),
        (_, "inline_max") => "\"1KiB\"".into(),
        (_, "session_bytes") => "\"1MiB\"".into(),
        (Kind::Word(words), _) => {
            let default = match key.default {
                Fallback::Is(text) => text.trim_matches('"'),
                _ => "",
            };
            format!("\"{}\"", words.iter().find(|word| **word != default).expect("two words"))
        }
        (Kind::Switch, _) => "true".into(),
        (Kind::Count { .. } | Kind::CountOrNone, _) => "77".into(),
        (Kind::Size { .. }, _) => "\"77MiB\"".into(),
        (Kind::Time { .. }, _) => "\"61s\"".into(),
        (Kind::Listen, _) => "[\"127.0.0.1:1\"]".into(),
        (Kind::Socket, _) => "\"unix:/run/other.sock\"".into(),
        (Kind::Web, _) => "\"off\"".into(),
        (Kind::Pickup, _) => "\"127.0.0.1:9\"".into(),
        (Kind::Texts, _) => "[\"other\"]".into(),
        (Kind::Site | Kind::Path | Kind::Credential, _) => "\"other\"".into(),
        (kind, _) => panic!("{kind:?} stands in no plain section"),
    }
}

/// The good file with another value for a key.
fn with(key: &Key) -> String {
    let line = format!("{} = {}", key.name, another(key));
    let header = format!("[{}]\n", key.section);
    let rest = GOOD.lines().filter(|l| {
        key.default != Fallback::Required || !l.starts_with(&format!("{} =", key.name))
    });
    let rest = rest.collect::<Vec<_>>().join("\n") + "\n";
    match rest.contains(&header) {
        true => rest.replace(&header, &format!("{header}{line}\n")),
        false => format!("{rest}{header}{line}\n"),
    }
}

/// What holds, whatever line it stands in.
fn values(all: &[Shown]) -> Vec<(&str, &str, Option<&str>)> {
    let keys = all.iter().flat_map(|s| s.keys.iter().map(|k| (s.section, k)));
    keys.map(|(section, key)| (section, key.name, key.value.as_deref())).collect()
}

#[test]
fn every_key_holds_from_the_reload_on_or_not_at_all() {
    let (old, shown) = read(GOOD);
    let plain = |key: &&Key| keys::find_section(key.section).is_some_and(|s| !s.many);
    for key in KEYS.iter().filter(plain) {
        let (path, text) = (key.path(), with(key));
        let (new, now) = read(&text);
        let merged = old.with_live(&new);
        let (found, holds) = compare(&shown, &now);
        match key.change() {
            Change::Reload => {
                assert_ne!(new, old, "{path}: the value must matter");
                assert_eq!(merged, new, "{path}");
                let changed: Vec<&str> = found.changed.iter().map(|c| c.key.as_str()).collect();
                assert_eq!((changed, found.restart.len()), (vec![path.as_str()], 0), "{path}");
                assert_eq!(values(&holds), values(&now), "{path}");
            }
            Change::Restart => {
                assert_eq!(merged, old, "{path}");
                // The socket's default is made from the data directory.
                assert!(found.restart.contains(&path), "{path}: {found:?}");
                assert!(found.changed.is_empty(), "{path}: {found:?}");
                assert_eq!(values(&holds), values(&shown), "{path}: said again at the next reload");
            }
        }
    }
}

#[test]
fn sections_that_may_stand_there_more_than_once_need_a_restart_but_for_peers() {
    let peers = "[[relay.known_peers]]\nname = \"beta\"\naddress = \"b:1\"\n";
    let base = format!("{GOOD}{peers}");
    for (name, section) in [
        ("route", "[[route]]\nto = \"far\"\nvia = \"beta\"\n"),
        ("inbox", "[[inbox]]\ndir = \"/srv/in\"\n"),
        ("watch", "[[watch]]\ndir = \"/srv/out\"\n"),
    ] {
        let new = format!("{base}{section}");
        assert_eq!(difference(&base, &new).restart, [name]);
        assert_eq!(read(&base).0.with_live(&read(&new).0), read(&base).0, "{name}");
        assert_eq!(difference(&new, &new), Difference::default());
    }
}

#[test]
fn peers_come_go_and_change_by_name() {
    let peer = |name: &str, more: &str| {
        format!("[[relay.known_peers]]\nname = \"{name}\"\naddress = \"{name}:1\"\n{more}\n")
    };
    let old = format!("{GOOD}{}{}", peer("beta", "inbound_quota = \"50GiB\""), peer("gone", ""));
    let new = format!("{GOOD}{}{}", peer("new", ""), peer("beta", "inbound_quota = \"80GiB\""));
    let found = difference(&old, &new);
    let lines: Vec<String> = found.changed.iter().map(Changed::line).collect();
    assert_eq!(
        lines,
        [
            "relay.known_peers.beta.inbound_quota 50GiB -> 80GiB",
            "relay.known_peers.gone removed",
            "relay.known_peers.new added, new:1",
        ]
    );
    assert!(found.restart.is_empty());
    let merged = read(&old).0.with_live(&read(&new).0);
    assert_eq!(merged, read(&new).0);
}
