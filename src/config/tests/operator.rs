//! What `config show`, `explain`, `schema` and `fmt` say, against the table of keys.

use std::path::Path;

use regex::Regex;
use serde_json::Value as Json;

use super::{GOOD, golden};
use crate::config::effective::{self, Origin, effective};
use crate::config::explain::{self, Topic};
use crate::config::keys::{Fallback, KEYS, Key, SECTIONS};
use crate::config::{Code, Layers, fmt, parse, schema};
use crate::exit::Exit;

const FILE: &str = "/etc/site/consign.toml";

fn layers(vars: &[(&str, &str)]) -> Layers {
    Layers::from_env(vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
}

fn here(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/golden");
    std::fs::read_to_string(dir.join(name)).expect("a golden file")
}

/// Every kind of key set to something else than its default.
const FULL: &str = r#"
[node]
name = "alpha"
data_dir = "data"
[listen]
peers = ["127.0.0.1:1", "[::1]:2"]
pickup = "127.0.0.1:7410"
admin = "unix:/run/x.sock"
web = "off"
[tls]
ca = "ca \"quoted\".pem"
cert = "node.pem"
key = "node.key"
[storage]
max_bytes = "1.5GiB"
max_segments = 7
[relay]
evict_on_relay = true
backoff_max = "90s"
[[relay.known_peers]]
name = "beta"
address = "b:1"
fingerprint = "sha256:abababababababababababababababababababababababababababababababab"
window = ["Mon-Fri 22:00-06:00", "Sat"]
[[route]]
to = "gamma"
via = "beta"
[[watch]]
dir = "/srv/out"
to = ["beta", "*"]
"#;

#[test]
fn what_is_shown_says_the_same_as_the_file() {
    for text in [GOOD, FULL] {
        let shown = effective(Path::new(FILE), text, &Layers::default()).expect("good");
        for origin in [false, true] {
            let rendered = effective::render(&shown, FILE, origin);
            let again = effective::render_json(&effective::json(&shown, FILE), origin);
            assert_eq!(again, rendered, "a running site is shown as a file is");
            let judged = |text: &str| parse(Path::new(FILE), text, &Layers::default());
            assert_eq!(judged(&rendered), judged(text), "{rendered}");
        }
    }
}

#[test]
fn every_value_says_where_it_came_from() {
    let mut layers = layers(&[("CONSIGN_STORAGE_MIN_FREE", "3GiB")]);
    layers.flag("node.runtime", "--runtime", "std");
    let shown = effective(Path::new(FILE), FULL, &layers).expect("good");
    let find = |section: &str, name: &str| {
        let section = shown.iter().find(|s| s.section == section).expect("a section");
        let key = section.keys.iter().find(|k| k.name == name).expect("a key");
        (key.value.clone(), key.origin.clone())
    };
    let some = |text: &str| Some(text.to_owned());
    let table = [
        ("storage", "max_bytes", some("\"1536MiB\""), Origin::File(15)),
        ("storage", "min_free", some("\"3GiB\""), {
            Origin::Variable("$CONSIGN_STORAGE_MIN_FREE".into())
        }),
        ("node", "runtime", some("\"std\""), Origin::Flag("--runtime".into())),
        ("relay", "max_retries", some("8"), Origin::Default),
        ("relay.known_peers", "inbound_quota", some("\"none\""), Origin::Default),
        ("relay.known_peers", "address", some("\"b:1\""), Origin::File(22)),
        ("inbox", "from", None, Origin::Default),
    ];
    for (section, name, value, origin) in table {
        if section != "inbox" {
            assert_eq!(find(section, name), (value, origin), "{section}.{name}");
        }
    }
    assert_eq!(find("listen", "admin").0, some("\"unix:/run/x.sock\""));
    let json = effective::json(&shown, FILE);
    let keys = json["keys"].as_array().expect("a list");
    let of = |path: &str| keys.iter().find(|k| k["key"] == path).expect("a key");
    assert_eq!(of("relay.known_peers[0].address")["line"], 22);
    assert_eq!(of("node.runtime")["origin"], "flag");
    assert_eq!(of("storage.min_free")["given"], "$CONSIGN_STORAGE_MIN_FREE");
    let default = effective(Path::new(FILE), GOOD, &Layers::default()).expect("good");
    let text = effective::render(&default, FILE, true);
    assert!(text.contains("admin = \"unix:data/admin.sock\""), "{text}");
    let plain = SECTIONS.iter().filter(|s| !s.many).map(|s| s.name);
    for key in plain.flat_map(crate::config::keys::of_section) {
        assert!(text.contains(key.name), "{} is not shown", key.path());
    }
}

#[test]
fn what_is_wrong_is_not_shown_but_told() {
    let text = FULL.replace("[relay]", "[relay]\nbackoff_initial = \"1h\"\nx = 1");
    let faults = effective(Path::new(FILE), &text, &Layers::default()).expect_err("broken");
    assert_eq!(faults.faults.len(), 2, "{faults}");
}

fn keys_of(word: &str) -> Vec<String> {
    match explain::find(word) {
        Ok(Topic::Keys(keys)) => keys.into_iter().map(Key::path).collect(),
        Ok(Topic::Section(section)) => vec![section.header()],
        Err(failure) => panic!("{word}: {failure}"),
    }
}

#[test]
fn every_key_can_be_explained_and_an_unknown_one_leads_to_a_similar_one() {
    for key in KEYS {
        assert_eq!(keys_of(&key.path()), [key.path()]);
        assert!(keys_of(key.name).contains(&key.path()));
        let text = explain::render(key);
        assert!(text.starts_with(&key.path()) && text.contains(key.meaning), "{text}");
        if let Fallback::Is(default) = key.default {
            assert!(text.contains(default), "{text}");
        }
        assert_eq!(explain::json(key)["key"], key.path());
    }
    assert_eq!(keys_of("[[route]]"), ["[[route]]"]);
    assert_eq!(keys_of("max_bytes"), ["storage.max_bytes", "buffer.max_bytes"]);
    let near = [
        ("relay.max_retry", "relay.max_retries"),
        ("storage.max_retries", "relay.max_retries"),
        ("max_retrys", "max_retries"),
        ("storag", "storage"),
        ("zzzz", "sections are node, listen"),
    ];
    for (word, meant) in near {
        let failure = explain::find(word).map(|_| ()).expect_err(word);
        assert_eq!((failure.exit, failure.code), (Exit::NoMatch, "CN0212"));
        assert!(failure.help.contains(meant), "{word}: {}", failure.help);
    }
}

#[test]
fn a_key_is_explained_with_its_bounds_and_its_variable() {
    let text = explain::render(KEYS.iter().find(|k| k.name == "ack_timeout").expect("there"));
    assert!(text.contains("from 1s to 1d"), "{text}");
    assert!(text.contains("CONSIGN_RELAY_ACK_TIMEOUT"), "{text}");
}

/// What a document breaks of a schema, as far as our schema uses the language.
fn broken(schema: &Json, value: &Json, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rule = |ok: bool, what: &str| {
        if !ok {
            found.push(format!("{path}: {what}"));
        }
    };
    let known = [
        "$schema",
        "title",
        "description",
        "default",
        "type",
        "properties",
        "required",
        "pattern",
        "additionalProperties",
        "items",
        "enum",
        "anyOf",
        "minimum",
        "maximum",
        "minLength",
        "minItems",
        "uniqueItems",
    ];
    for word in schema.as_object().expect("a schema").keys() {
        assert!(known.contains(&word.as_str()), "{path}: the test does not know {word}");
    }
    if let Some(any) = schema["anyOf"].as_array() {
        rule(any.iter().any(|s| broken(s, value, path).is_empty()), "anyOf");
    }
    rule(
        match schema["type"].as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some(other) => panic!("{other}"),
            None => true,
        },
        "type",
    );
    if let Some(words) = schema["enum"].as_array() {
        rule(words.contains(value), "enum");
    }
    if let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str()) {
        rule(Regex::new(pattern).expect("a pattern").is_match(text), "pattern");
    }
    if let (Some(min), Some(number)) = (schema["minimum"].as_i64(), value.as_i64()) {
        rule(number >= min, "minimum");
    }
    if let (Some(max), Some(number)) = (schema["maximum"].as_i64(), value.as_i64()) {
        rule(number <= max, "maximum");
    }
    if let (Some(min), Some(text)) = (schema["minLength"].as_u64(), value.as_str()) {
        rule(text.len() as u64 >= min, "minLength");
    }
    if let (Some(min), Some(items)) = (schema["minItems"].as_u64(), value.as_array()) {
        rule(items.len() as u64 >= min, "minItems");
    }
    if let Some(table) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            rule(table.contains_key(name.as_str().expect("a name")), &format!("no {name}"));
        }
        for (name, value) in table {
            match schema["properties"].get(name) {
                Some(inner) => found.extend(broken(inner, value, &format!("{path}.{name}"))),
                None if schema["additionalProperties"] == false => {
                    found.push(format!("{path}.{name}: unknown"));
                }
                None => {}
            }
        }
    }
    if let (Some(items), false) = (value.as_array(), schema["items"].is_null()) {
        for (at, item) in items.iter().enumerate() {
            found.extend(broken(&schema["items"], item, &format!("{path}[{at}]")));
        }
    }
    found
}

fn against_the_schema(text: &str) -> Vec<String> {
    let table: toml::Table = text.parse().expect("TOML");
    broken(&schema::schema(), &serde_json::to_value(table).expect("JSON"), "")
}

#[test]
fn the_schema_takes_what_the_parser_takes() {
    golden("src/config/golden/schema.json", &format!("{:#}\n", schema::schema()));
    for text in [GOOD, FULL, &here("template.toml"), &here("messy.toml")] {
        assert_eq!(against_the_schema(text), [""; 0]);
    }
    // Every default, written out.
    let mut text = String::new();
    for section in SECTIONS.iter().filter(|s| !s.many) {
        text += &format!("{}\n", section.header());
        for key in crate::config::keys::of_section(section.name) {
            match key.default {
                Fallback::Is(value) => text += &format!("{} = {value}\n", key.name),
                Fallback::Required => text += &format!("{} = \"x\"\n", key.name),
                Fallback::Absent => {}
            }
        }
    }
    assert_eq!(against_the_schema(&text), [""; 0]);
}

#[test]
fn the_schema_refuses_what_one_key_alone_has_wrong() {
    let found = against_the_schema(&here("broken.toml"));
    for part in [
        ".node.runtime: enum",
        ".listen.peers[0]: pattern",
        ".tls.kye: unknown",
        ".storage.max_bytes: type",
        ".storage.min_fre: unknown",
        ".storage.ledger_max: pattern",
        ".relay.success_condition: enum",
        ".relay.max_retries: minimum",
        ".relay.known_peers[0].fingerprint: anyOf",
        ".relay.known_peers[1].adress: unknown",
        ".inbox[0]: no \"dir\"",
        ".limit: unknown",
    ] {
        assert!(found.iter().any(|f| f == part), "{part} in {found:#?}");
    }
}

#[test]
fn tidied_files_say_the_same_and_keep_every_comment() {
    let file = Path::new("messy.toml");
    let messy = here("messy.toml");
    let tidy = fmt::format(file, &messy).expect("TOML");
    golden("src/config/golden/tidy.toml", &tidy);
    assert_eq!(fmt::format(file, &tidy).as_ref(), Ok(&tidy), "once is enough");
    let judged = |text: &str| parse(Path::new(FILE), text, &Layers::default());
    assert_eq!(judged(&tidy), judged(&messy));
    let comments = messy.lines().filter_map(|line| line.trim().strip_prefix('#'));
    for comment in comments {
        assert!(tidy.contains(comment), "{comment}");
    }
}

#[test]
fn what_init_writes_is_in_order_already() {
    let template = here("template.toml");
    assert_eq!(fmt::format(Path::new("t.toml"), &template), Ok(template));
}

#[test]
fn a_file_that_is_not_toml_is_not_touched() {
    let faults = fmt::format(Path::new("x.toml"), "[node]\nname = \n").expect_err("no TOML");
    assert_eq!(faults.faults.first().map(|f| f.code), Some(Code::Syntax));
    // What cannot be told apart line by line is left alone as well: the dotted key would change its section.
    let shapes = [
        "node.name = \"a\"\n[log]\nlevel = \"info\"\n",
        "node = { name = \"a\", data_dir = \"d\" } # all in one\n",
        "[relay]\nknown_peers = [ { name = \"a\", address = \"a:1\" }, ]\nmax_retries = 2\n",
        "[log] # \"#\"\nlevel = '''info''' # a [header]\n",
        "",
    ];
    for text in shapes {
        let out = fmt::format(Path::new("x.toml"), text).expect("taken");
        assert_eq!(out.parse::<toml::Table>(), text.parse::<toml::Table>(), "{text} {out}");
        assert_eq!(out.matches('#').count(), text.matches('#').count(), "{text} {out}");
    }
}
