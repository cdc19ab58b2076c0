//! Commands in what consign says: written once as they are, told in the way the reader called the command.
//!
//! Whoever types `consign --context alpha send` is to paste `consign --context alpha show ID`, not `consign show ID`, which
//! asks another site or none. Every help and note goes through [`Address::tell`]; tables and lines of data whose words are
//! advice are given to it where they are made.

use std::path::Path;

use crate::cmd::init::shown;

/// Commands that go by no configuration, so that nothing has to say which.
const BY_NONE: [&str; 13] = [
    "init",
    "node",
    "context",
    "demo",
    "bench",
    "replay",
    "sim",
    "schema",
    "completions",
    "man",
    "serve --demo",
    "pickup upload",
    "explain --all",
];

/// How the site that a command is about was named on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// From the flags as they were given. What the environment or the directory says holds for the next command, too.
    #[must_use]
    pub fn of(config: Option<&Path>, context: Option<&str>, socket: Option<&Path>) -> Address {
        let mut flags = String::new();
        if let Some(config) = config {
            flags.push_str(&format!(" -c {}", shown(config)));
        }
        if let Some(context) = context {
            flags.push_str(&format!(" --context {}", shown(Path::new(context))));
        }
        if let Some(socket) = socket {
            flags.push_str(&format!(" --socket {}", shown(socket)));
        }
        Address(flags)
    }

    /// The text with every command in it addressed as the reader did. Commands for another machine stay as they are: they
    /// stand behind `at NAME:` or `there:`, or before `there` or `at`.
    #[must_use]
    pub fn tell(&self, text: &str) -> String {
        if self.0.is_empty() || !text.contains(CALL) {
            return text.into();
        }
        let known = known();
        let mut told = String::with_capacity(text.len() + 64);
        let mut rest = text;
        while let Some(at) = rest.find(CALL) {
            let end = at + CALL.len();
            let (before, after) = (&rest[..end], &rest[end..]);
            told.push_str(before);
            let whole = &text[..text.len() - after.len() - CALL.len()];
            if starts(whole) && !elsewhere(whole, after) && goes_by_one(after, &known) {
                told.push_str(self.0.trim_start());
                told.push(' ');
            }
            rest = after;
        }
        told.push_str(rest);
        told
    }
}

/// What a command begins with.
const CALL: &str = "consign ";

/// Every command there is, with its other names.
fn known() -> Vec<String> {
    let command = crate::cli::command();
    let names = |sub: &clap::Command| {
        let others: Vec<String> = sub.get_all_aliases().map(String::from).collect();
        [vec![sub.get_name().into()], others].concat()
    };
    command.get_subcommands().flat_map(names).collect()
}

/// Whether a word may start behind this.
fn starts(before: &str) -> bool {
    before.chars().next_back().is_none_or(|c| c.is_whitespace() || "`(".contains(c))
}

/// Whether the command is one for another machine.
fn elsewhere(before: &str, after: &str) -> bool {
    let mut words = before.split_whitespace().rev();
    let behind = match words.next() {
        Some("there:") => true,
        Some(name) => name.ends_with(':') && words.next() == Some("at"),
        None => false,
    };
    let quoted = before.ends_with('`');
    let then = after.split_once('`').filter(|_| quoted).map_or("", |(_, then)| then);
    behind || then.starts_with(" there") || then.starts_with(" at ")
}

/// Whether what follows is a command that goes by a configuration.
fn goes_by_one(after: &str, known: &[String]) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c == '-';
    let first = after.split(|c| !word(c)).next().unwrap_or_default();
    let by_none = |none: &&str| {
        if none.contains(' ') { after.starts_with(*none) } else { *none == first }
    };
    known.iter().any(|name| name == first) && !BY_NONE.iter().any(by_none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        Address::of(Some(Path::new("my site/alpha/")), None, None).tell(text)
    }

    #[test]
    fn commands_are_told_as_the_reader_called_them() {
        let context = Address::of(None, Some("alpha"), None);
        for (text, is) in [
            ("(receipt: consign show 3fa9)", "(receipt: consign --context alpha show 3fa9)"),
            ("consign ls", "consign --context alpha ls"),
            (
                "`consign ls`, then `consign put F`",
                "`consign --context alpha ls`, then `consign --context alpha put F`",
            ),
            (
                "consign stop, then: consign fsck",
                "consign --context alpha stop, then: consign --context alpha fsck",
            ),
        ] {
            assert_eq!(context.tell(text), is);
            assert_eq!(Address::default().tell(text), text);
        }
        assert_eq!(told("x: consign reload"), "x: consign -c 'my site/alpha' reload");
        let socket = Address::of(None, None, Some(Path::new("/run/s.sock")));
        assert_eq!(socket.tell("consign stop"), "consign --socket /run/s.sock stop");
    }

    #[test]
    fn what_is_no_command_for_this_site_stays() {
        for text in [
            "at beta: consign explain 3fa9c1",
            "copy it, and there:\n  consign cert sign beta.csr",
            "`consign cert renew` there; look at both clocks",
            "`consign pickup nodes enrol ID` at the relay",
            "`consign init` makes one here",
            "`consign context add` makes one",
            "consign serve --demo",
            "consign pickup upload FILE",
            "consign -c beta ls",
            "consign 0.1.0",
            "consign itself",
            "a file my-consign ls",
        ] {
            assert_eq!(told(text), text);
        }
    }
}
