//! Where the first one stands of something that stands in a text twice.

use std::ops::Range;

/// The line, from 1, of the first of two; `at` is the second. `key` is empty where the parser found them: a header or a key
/// of one table, whatever its value. `None` where it is written in another way, and must be looked for.
pub(super) fn first_line(text: &str, at: &Range<usize>, key: &str) -> Option<usize> {
    let before = text.get(..at.start)?;
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let own = text.get(line_start..)?.lines().next()?;
    let earlier: Vec<&str> = text.get(..line_start)?.lines().collect();
    let found = match (key.is_empty(), is_header(own)) {
        (true, true) => earlier.iter().position(|line| bare(line) == bare(own)),
        (true, false) => {
            let table = earlier.iter().rposition(|line| is_header(line)).map_or(0, |i| i + 1);
            let in_it = earlier.get(table..)?;
            in_it.iter().position(|line| name(line) == name(own)).map(|i| table + i)
        }
        (false, _) => {
            let header = earlier.iter().rfind(|line| is_header(line)).map(|line| bare(line))?;
            let mut under = String::new();
            earlier.iter().position(|line| {
                if is_header(line) {
                    under = bare(line);
                }
                under == header && bare(line) == bare(own)
            })
        }
    };
    found.map(|line| line + 1)
}

fn is_header(line: &str) -> bool {
    line.trim_start().starts_with('[')
}

/// A line without blanks and what follows a number sign: good enough to find what is written alike.
fn bare(line: &str) -> String {
    let line = line.split('#').next().unwrap_or_default();
    line.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The key of a line; `None` if it has none.
fn name(line: &str) -> Option<&str> {
    let (name, _) = line.split_once('=')?;
    Some(name.trim().trim_matches(['"', '\''])).filter(|name| !name.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str, second: &str, key: &str) -> Option<usize> {
        let at = text.rfind(second).expect("it is there");
        first_line(text, &(at..at + second.len()), key)
    }

    #[test]
    fn the_first_of_two_keys_is_the_one_of_the_same_table() {
        let text = "[a]\nx = 1\n[b]\n# x = 2\nx = 3\ny = 4\n x= 5\n";
        assert_eq!(first(text, "x= 5", ""), Some(5));
        assert_eq!(first("x = 1\nx = 2\n", "x = 2", ""), Some(1));
    }

    #[test]
    fn the_first_of_two_tables_is_found_by_its_header() {
        let text = "[node]\nx = 1\n[relay]\n[ node ] # again\n";
        assert_eq!(first(text, "[ node ]", ""), Some(1));
    }

    #[test]
    fn the_first_of_two_sections_is_one_of_the_same_kind() {
        let text = "[[inbox]]\nname = \"b\"\n[[peer]]\nname = \"b\"\n[[peer]]\nname=\"b\"\n";
        assert_eq!(first(text, "\"b\"", "peer.name"), Some(4));
        assert_eq!(first("[[peer]]\nname = 'b'\n[[peer]]\nname = \"b\"\n", "\"b\"", "p"), None);
    }
}
