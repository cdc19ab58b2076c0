//! The commented configuration that `init` writes, and the reference page, both from the table of keys.

use std::fmt::Write as _;

use super::keys::{self, Fallback, Key, SECTIONS};

/// A peer as it is written into a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where it is dialled.
    pub address: String,
}

impl Peer {
    /// The lines that make it known.
    #[must_use]
    pub fn lines(&self) -> String {
        let (name, address) = (quote(&self.name), quote(&self.address));
        format!("[[relay.known_peers]]\nname = {name}\naddress = {address}\n")
    }
}

/// A complete configuration: the given keys set, every other key there as a comment with its default
/// and its meaning.
#[must_use]
pub fn render(set: &[(&str, String)], peers: &[Peer]) -> String {
    let mut out = String::from(
        "# Configuration of a consign site. A line that begins with # shows a default.\n\
         # Sizes and durations have units: \"5GiB\", \"64KiB\", \"90s\", \"1h 30m\", \"7d\".\n\
         # Relative paths start at the directory of this file. `consign reload` applies changes.\n",
    );
    for section in SECTIONS {
        let known: Vec<&Key> = keys::of_section(section.name).collect();
        if known.is_empty() {
            continue;
        }
        if section.many {
            let _ = write!(out, "\n# {}\n", section.meaning);
            if section.name != "relay.known_peers" {
                commented(&mut out, section.name, &known);
                continue;
            }
            for peer in peers {
                let _ = writeln!(out, "{}", peer.lines());
            }
            if peers.is_empty() {
                let example = Peer { name: "beta".into(), address: "beta.example.net:7400".into() };
                let lines = example.lines();
                lines.lines().for_each(|line| {
                    let _ = writeln!(out, "# {line}");
                });
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
            continue;
        }
        let _ = write!(out, "\n[{}]  # {}\n", section.name, section.meaning);
        for key in known {
            let path = key.path();
            let value = set.iter().find(|(p, _)| *p == path).map(|(_, v)| v.as_str());
            let line = match (value, key.default) {
                (Some(value), _) => format!("{} = {value}", key.name),
                (None, Fallback::Is(value)) => format!("# {} = {value}", key.name),
                (None, Fallback::Required | Fallback::Absent) => format!("# {} = …", key.name),
            };
            let _ = writeln!(out, "{line:<34}  # {}", key.meaning);
        }
    }
    out
}

/// A section that may stand there more than once, as a comment.
fn commented(out: &mut String, section: &str, keys: &[&Key]) {
    let _ = writeln!(out, "# [[{section}]]");
    for key in keys {
        let value = match key.default {
            Fallback::Is(value) => value,
            Fallback::Required | Fallback::Absent => "…",
        };
        let line = format!("#   {} = {value}", key.name);
        let _ = writeln!(out, "{line:<34}  # {}", key.meaning);
    }
}

/// A TOML string.
#[must_use]
pub fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// The reference page `docs/CONFIG.md`.
#[must_use]
pub fn reference() -> String {
    let mut out = String::from(
        "# Configuration keys\n\n\
         Made from the table in `src/config/keys.rs`; a test keeps the two alike. The file is TOML; sizes and\n\
         durations are strings with units (`\"5GiB\"`, `\"90s\"`, `\"1h 30m\"`); `none` means no limit where it is\n\
         allowed, and 0 never does. Relative paths start at the directory of the file. The file is looked for at\n\
         `-c`, `--context`, `$CONSIGN_CONFIG`, `$CONSIGN_CONTEXT`, `./consign.toml`, the context of `consign context use`,\n\
         `/etc/consign/consign.toml`, and the first of them that is said or there counts. A variable\n\
         `CONSIGN_<SECTION>_<KEY>` (such as `CONSIGN_STORAGE_MAX_BYTES`) wins over the file, a flag over both.\n\
         Every fault is shown in one run, and a configuration with a fault is not taken at all (exit 78).\n\n\
         | command | does |\n|---|---|\n\
         | `consign config check` | every fault with line, column and what was probably meant; certificates and key are judged too, and directories and programs of rules that could not be used are warned of, unless `--no-files` |\n\
         | `consign config show` | what `serve` would go by, as a file; `--origin` says where each value came from; `--running` is what the running site goes by |\n\
         | `consign config explain KEY` | what a key or section means, what it takes, its default and its variable |\n\
         | `consign config schema` | JSON Schema of the file, for editors: `#:schema ./consign.schema.json` |\n\
         | `consign reload` | the running site reads the file again (also at SIGHUP): all of it holds from then on, or nothing changes |\n\
         | `consign config fmt` | usual order and spacing, no comment lost; `--check` only says whether there is something to do |\n\n\
         Column *change* says when another value holds: after a `reload`, or at the next start (`restart`). A reload that finds keys of the second\n\
         kind changed names them (`needs restart: …`, also in `consign status`) and leaves them as they are, as `config show --running` says. What was decided by the old values stays decided: a limit below what is\n\
         in use refuses what is new and deletes nothing, and times that were set for a segment stay set.\n\n\
         Certificate, key and authorities are read again at every reload, and by themselves a few seconds after their files change. While they do\n\
         not fit together, as half-way through a renewal, the last good ones stay in use (CN0314, `status`). New sessions show the new certificate.\n\
         To give a peer another key without a gap: put both fingerprints into its `fingerprint` on the other side, replace the pair, take the\n\
         old one out after the next session. To change the authority: old, then old and new in one file, then new. Sessions end within a minute\n\
         when an authority is taken out. A key from `credential:NAME` changes only with a restart of the service, since the service manager does not\n\
         change credentials of one that runs.\n\n\
         How much is logged can be changed without the file: `consign log-level debug --for 10m`. A reload \
         brings `log.level` back.\n",
    );
    for section in SECTIONS {
        let (open, close) = if section.many { ("[[", "]]") } else { ("[", "]") };
        let _ = write!(out, "\n## `{open}{}{close}`\n\n", section.name);
        let mut meaning = section.meaning.to_owned();
        if let Some(first) = meaning.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let _ = writeln!(out, "{meaning}.");
        let _ =
            write!(out, "\n| key | takes | default | change | meaning |\n|---|---|---|---|---|\n");
        for key in keys::of_section(section.name) {
            let default = match key.default {
                Fallback::Required => "required".to_owned(),
                Fallback::Absent => "–".to_owned(),
                Fallback::Is(text) => format!("`{text}`"),
            };
            let (name, takes, change) = (key.name, key.kind.expected(), key.change().word());
            let meaning = key.meaning;
            let _ = writeln!(out, "| `{name}` | {takes} | {default} | {change} | {meaning} |");
        }
    }
    out
}
