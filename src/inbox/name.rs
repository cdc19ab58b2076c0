//! Names of segments as paths below a directory.
//!
//! A name comes from another site and may be anything. What could lead out of the directory, or cannot
//! be a file, is refused; what would only be a nuisance (hidden files, names reserved elsewhere, names
//! that are too long) is made harmless.

/// Longest part of a path in bytes, as file systems have it.
const PART_MAX: usize = 255;
/// Most directories a name may lead down.
const DEPTH_MAX: usize = 32;
/// Longest ending that counts as one.
const ENDING_MAX: usize = 16;

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NameFault {
    /// A part that leads elsewhere.
    #[error("it is no path below a directory")]
    Outside,
    /// Characters that deceive or that no file has.
    #[error("it has a control character or one that turns text around")]
    Control,
    /// Too many directories.
    #[error("it leads down more than {DEPTH_MAX} directories")]
    Deep,
}

/// The parts of a name, each fit to be a file or a directory.
pub(super) fn clean(name: &str) -> Result<Vec<String>, NameFault> {
    // Marks that change the direction of text make `exe.txt` of `txt.exe`.
    let turns = |c: char| matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if name.chars().any(|c| c.is_control() || turns(c)) {
        return Err(NameFault::Control);
    }
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > DEPTH_MAX + 1 {
        return Err(NameFault::Deep);
    }
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return Err(NameFault::Outside);
    }
    Ok(parts.into_iter().map(part).collect())
}

/// The parts of a name that was cleaned before; `None` when it was not.
pub(super) fn kept(name: &str) -> Option<Vec<String>> {
    let parts: Vec<String> = name.split('/').map(String::from).collect();
    let sound = |part: &String| {
        !part.is_empty() && part.len() <= PART_MAX && !part.starts_with('.') && !part.contains('\0')
    };
    (parts.iter().all(sound) && parts.len() <= DEPTH_MAX + 1).then_some(parts)
}

/// One part, made harmless.
fn part(part: &str) -> String {
    let mut text = part.to_owned();
    // A hidden file is one that nobody finds; `.consign` is this site's own.
    if text.starts_with('.') {
        text.replace_range(..1, "_");
    }
    // Ends that other systems drop, so that two names would be one.
    let kept = text.trim_end_matches([' ', '.']).len();
    if kept < text.len() {
        text.truncate(kept);
        text.push('_');
    }
    if is_reserved(&text) {
        text.insert(0, '_');
    }
    fit(&text, "")
}

/// Names that are devices on other systems, with any ending.
fn is_reserved(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().to_ascii_uppercase();
    let numbered =
        |kind: &str| stem.strip_prefix(kind).is_some_and(|n| matches!(n.as_bytes(), [b'1'..=b'9']));
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

/// The `n`-th name for a part whose name is taken: a number before its ending.
pub(super) fn numbered(part: &str, n: u32) -> String {
    if n < 2 { part.to_owned() } else { fit(part, &format!(" ({n})")) }
}

/// A part with `insert` before its ending, cut where that makes it too long.
fn fit(part: &str, insert: &str) -> String {
    let (stem, ending) = match part.rfind('.') {
        Some(dot) if dot > 0 && part.len() - dot <= ENDING_MAX => part.split_at(dot),
        _ => (part, ""),
    };
    let mut room = PART_MAX.saturating_sub(insert.len() + ending.len()).min(stem.len());
    while !stem.is_char_boundary(room) {
        room -= 1;
    }
    format!("{}{insert}{ending}", stem.get(..room).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused_and_troublesome_ones_made_harmless() {
        let long = "x".repeat(300) + ".jpg";
        let cut = "x".repeat(251) + ".jpg";
        let wide = "é".repeat(200);
        let wide_cut = "é".repeat(127);
        let fine = [
            ("a.txt", "a.txt"),
            ("a/b c/d", "a/b c/d"),
            ("a\\..\\b", "a\\..\\b"),
            (".bashrc", "_bashrc"),
            (".consign/x", "_consign/x"),
            ("...", "__"),
            ("..a", "_.a"),
            ("CON", "_CON"),
            ("nul.txt", "_nul.txt"),
            ("com1/lpt9.x", "_com1/_lpt9.x"),
            ("com0", "com0"),
            ("console", "console"),
            ("a.", "a_"),
            ("a . ", "a_"),
            (" ", "_"),
            ("-rf", "-rf"),
            ("Grüße", "Grüße"),
            (long.as_str(), cut.as_str()),
            (wide.as_str(), wide_cut.as_str()),
        ];
        for (name, path) in fine {
            assert_eq!(clean(name).map(|p| p.join("/")), Ok(path.to_owned()), "{name:?}");
        }
        let deep = vec!["d"; DEPTH_MAX + 2].join("/");
        let hostile = [
            ("", NameFault::Outside),
            ("/", NameFault::Outside),
            ("/etc/passwd", NameFault::Outside),
            ("..", NameFault::Outside),
            ("a/../../b", NameFault::Outside),
            ("./a", NameFault::Outside),
            ("a//b", NameFault::Outside),
            ("a/", NameFault::Outside),
            ("a\0b", NameFault::Control),
            ("a\nb", NameFault::Control),
            ("\u{1b}[2J", NameFault::Control),
            ("\u{202e}gpj.exe", NameFault::Control),
            (deep.as_str(), NameFault::Deep),
        ];
        for (name, fault) in hostile {
            assert_eq!(clean(name), Err(fault), "{name:?}");
        }
    }

    #[test]
    fn numbers_stand_before_the_ending_and_fit() {
        for (part, n, expected) in [
            ("a.txt", 1, "a.txt"),
            ("a.txt", 2, "a (2).txt"),
            ("a", 10, "a (10)"),
            ("a.tar.gz", 3, "a.tar (3).gz"),
        ] {
            assert_eq!(numbered(part, n), expected);
        }
        let longest = "x".repeat(251) + ".jpg";
        let numbered = numbered(&longest, 2);
        assert_eq!((numbered.len(), numbered.ends_with("x (2).jpg")), (255, true));
    }

    quickcheck::quickcheck! {
        fn what_is_clean_is_below(name: String) -> bool {
            let Ok(parts) = clean(&name) else { return true };
            kept(&parts.join("/")).as_ref() == Some(&parts)
        }
    }
}
