//! The page and the sources say the same codes.

use std::collections::BTreeSet;
use std::path::Path;

use consign_core::act::Why;
use consign_core::code::{Cause, Goodbye, Refusal};
use consign_core::pickup::PickupRefusal;

use super::*;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Sources below a folder; tests are none.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            let name = path.display().to_string();
            if path.is_dir() && !name.ends_with("/tests") {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                found.push((name, std::fs::read_to_string(path).expect("a source file")));
            }
        }
    }
    found
}

/// The word that begins behind each `mark`, before anything but digits, blanks and commas.
fn words_behind(text: &str, mark: &str, into: &mut BTreeSet<String>) {
    for (at, _) in text.match_indices(mark) {
        let rest = text[at + mark.len()..]
            .trim_start_matches(|c: char| c.is_whitespace() || c.is_ascii_digit() || c == ',');
        let word = rest.strip_prefix('"').and_then(|rest| rest.split('"').next());
        into.extend(word.map(String::from));
    }
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}

/// Codes of the page whose section begins so.
fn told(section: &str) -> Vec<String> {
    let of = all().into_iter().filter(|entry| entry.section.starts_with(section));
    of.map(|entry| entry.code).collect()
}

/// What is used and not on the page.
fn missing<'w>(used: impl IntoIterator<Item = &'w String>) -> Vec<&'w String> {
    let told: BTreeSet<String> = all().into_iter().map(|entry| entry.code).collect();
    used.into_iter().filter(|word| !told.contains(*word)).collect()
}

#[test]
fn every_row_is_whole_and_no_code_stands_twice_in_a_section() {
    let rows = PAGE.lines().filter(|l| l.starts_with("| CN") || l.starts_with("| `")).count();
    let entries = all();
    assert_eq!(entries.len(), rows, "a row that cannot be read");
    let mut seen = BTreeSet::new();
    for entry in &entries {
        assert!(!entry.means.is_empty() && !entry.section.is_empty(), "{entry:?}");
        assert!(seen.insert((entry.section.clone(), entry.code.clone())), "twice: {entry:?}");
    }
    let numbered: Vec<_> = entries.iter().filter(|e| e.code.starts_with("CN")).collect();
    assert!(numbered.len() > 100);
    assert!(numbered.iter().all(|e| e.code.len() == 6));
}

#[test]
fn what_the_core_can_say_is_on_the_page_in_its_order() {
    let table: [(&str, Vec<&str>); 4] = [
        ("Refusals between sites", Refusal::ALL.iter().map(|c| c.word()).collect()),
        (CAUSES, Cause::ALL.iter().map(|c| c.word()).collect()),
        ("Why a connection", Goodbye::ALL.iter().map(|c| c.word()).collect()),
        ("What an act leaves", Why::ALL.iter().map(|c| c.word()).collect()),
    ];
    for (section, words) in table {
        assert_eq!(told(section), words, "{section}");
    }
    let pickup = told("Refusals of pickup");
    for refusal in PickupRefusal::ALL {
        assert!(pickup.iter().any(|word| word == refusal.word()), "{refusal}");
    }
}

#[test]
fn every_word_in_the_sources_is_on_the_page() {
    let mut used = BTreeSet::new();
    for folder in ["src/admin", "src/pickup", "core/src/pickup", "core/src/http", "core/src/node"] {
        for (_, text) in sources(folder) {
            for mark in ["No::new(", "code: ", "ErrorOf::new(", " error("] {
                words_behind(&text, mark, &mut used);
            }
        }
    }
    // Faults of the codec and of messages have a table from fault to word.
    for file in ["core/src/http/fault.rs", "core/src/pickup/message.rs"] {
        let text = std::fs::read_to_string(root().join(file)).expect("a source file");
        for line in text.lines().filter(|line| line.contains("Fault::")) {
            words_behind(line, "=>", &mut used);
        }
    }
    used.retain(|word| is_word(word));
    assert!(used.contains("invalid_id") && used.contains("clock_step"), "{used:?}");
    assert!(used.contains("too_slow") && used.contains("wrong_node"), "{used:?}");
    assert_eq!(missing(&used), [""; 0]);
    // The same look finds one that is not there.
    words_behind("No::new(\n  418, \"made_up\", x)", "No::new(", &mut used);
    assert_eq!(missing(&used), ["made_up"]);
}

#[test]
fn a_word_is_found_wherever_it_occurs_and_a_code_in_either_case() {
    let quota = find("quota");
    let sections: Vec<&str> = quota.iter().map(|e| e.section.as_str()).collect();
    assert_eq!(sections, ["Refusals between sites", CAUSES, "Refusals of pickup"]);
    let full = &find("cn0503")[0];
    assert_eq!((full.code.as_str(), full.section.as_str()), ("CN0503", "A running site"));
    assert_eq!(full.help, "make room; it goes on by itself");
    assert_eq!(find("CN0532")[0].help, "", "a dash says that nothing is to be done");
    assert_eq!(find("CN9999"), []);
    assert_eq!(cause("busy").map(|e| e.section), Some(CAUSES.into()));
    assert_eq!(cause("cn0503"), None);
}

/// Lines of the log above `info` in a text: what stands between the brackets of each macro.
fn complaints(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for mark in ["warn!(", "error!("] {
        for (at, _) in text.match_indices(mark) {
            let rest = &text[at + mark.len()..];
            let mut depth = 1;
            let end = rest.char_indices().find(|(_, c)| {
                depth += i32::from(*c == '(') - i32::from(*c == ')');
                depth == 0
            });
            found.extend(end.map(|(end, _)| &rest[..end]));
        }
    }
    found
}

/// Whether a line names its code: a number of the page, or one that comes with what is told.
fn has_code(line: &str) -> bool {
    let fields = || line.split(',').map(str::trim);
    let numbers = fields().filter_map(|field| field.strip_prefix("code = \""));
    let mut known = numbers.map(|rest| !find(rest.trim_end_matches('"')).is_empty());
    known.next().unwrap_or_else(|| fields().any(|field| field == "code"))
}

#[test]
fn every_warning_and_error_of_the_log_has_a_code() {
    let mut seen = 0;
    for folder in ["src", "core/src", "runtime-smol/src", "runtime-std/src", "storage-lmdb/src"] {
        for (path, text) in sources(folder) {
            // Tests of a module stand at its end.
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for line in complaints(text) {
                assert!(has_code(line), "{path}: {line}");
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
    let bad = ["%why, \"it failed\"", "code = \"CN9999\", \"it failed\"", "\"a code\""];
    assert!(bad.iter().all(|line| !has_code(line)));
    assert!(has_code("node, code, \"{text}\"") && has_code("a = (1), code = \"CN0503\", \"x\""));
    assert_eq!(complaints("tracing::warn!(a = f(1), \"x\"); error!(b)"), ["a = f(1), \"x\"", "b"]);
}
