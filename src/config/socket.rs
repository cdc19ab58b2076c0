//! The socket of a site that runs by an earlier reading of a file that is not good any more.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::SYSTEM_FILE;

/// Where `init` has the data directory, from the file's.
const DATA: &str = "data";
/// Where the packaged configuration has the socket.
const PACKAGED: &str = "/run/consign/admin.sock";

/// The socket, as far as the text tells: what its parser makes out, else the line of a key by itself, else where `init` and the
/// package have it. `None` where no socket is.
pub(super) fn left(file: &Path, text: &str) -> Option<PathBuf> {
    let (root, _) = DeTable::parse_recoverable(text);
    let said = |section: &str, key: &str| {
        parsed(root.get_ref(), section, key).or_else(|| scanned(text, section, key))
    };
    let beside = file.parent().unwrap_or(Path::new("."));
    let path = match (said("listen", "admin"), said("node", "data_dir")) {
        (Some(admin), _) => beside.join(admin.strip_prefix("unix:").unwrap_or(&admin)),
        (None, Some(data)) => beside.join(data).join("admin.sock"),
        (None, None) if file == Path::new(SYSTEM_FILE) => PACKAGED.into(),
        (None, None) => beside.join(DATA).join("admin.sock"),
    };
    let there = std::fs::symlink_metadata(&path).ok()?;
    there.file_type().is_socket().then_some(path)
}

fn parsed(root: &DeTable<'_>, section: &str, key: &str) -> Option<String> {
    let DeValue::Table(table) = root.get(section)?.get_ref() else { return None };
    let DeValue::String(text) = table.get(key)?.get_ref() else { return None };
    Some(text.to_string()).filter(|text| !text.is_empty())
}

/// What a line seems to say where the parser has given up: the last header in brackets, whole or not, is the section.
fn scanned(text: &str, section: &str, key: &str) -> Option<String> {
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let end = header.find([']', '#']).unwrap_or(header.len());
            inside = header[..end].trim() == section;
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        let dotted =
            || name.split_once('.').is_some_and(|(s, k)| (s.trim(), k.trim()) == (section, key));
        if (inside && name.trim() == key) || dotted() {
            return unquoted(value.trim());
        }
    }
    None
}

/// A string whose quotes may be missing.
fn unquoted(value: &str) -> Option<String> {
    let text = match value.strip_prefix(['"', '\'']) {
        Some(rest) => rest.split(['"', '\'']).next().unwrap_or_default(),
        None => value.split(['#', '"', '\'']).next().unwrap_or_default(),
    };
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    const BROKEN: [&str; 5] = [
        "[node]\nname = \"alpha\ndata_dir = \"d\"\n",
        "[node\nname = \"alpha\"\ndata_dir = \"d\"   # here\n",
        "[node]\ndata_dir = d\n",
        "[node]\ndata_dir = \"d\nname = \n[relay]\ndata_dir = \"other\"\n",
        "node.data_dir = 'd'\n= = =\n[[\n",
    ];

    #[test]
    fn a_broken_text_still_says_where_its_site_is() {
        let room = tempfile::tempdir().unwrap();
        std::fs::create_dir(room.path().join("d")).unwrap();
        let socket = room.path().join("d/admin.sock");
        let _site = UnixListener::bind(&socket).unwrap();
        let of = |text: &str| left(&room.path().join("consign.toml"), text);
        for text in BROKEN {
            assert_eq!(of(text), Some(socket.clone()), "{text}");
        }
        let named = "[node]\ndata_dir = \"x\"\n[listen]\nadmin = \"unix:d/admin.sock\n[tls\n";
        assert_eq!(of(named), Some(socket));
        assert_eq!(of("[listen]\nadmin = \"d\"\n]"), None, "what is no socket is none");
    }

    #[test]
    fn a_text_that_says_nothing_leads_to_where_init_has_it() {
        let room = tempfile::tempdir().unwrap();
        let of = |text: &str| left(&room.path().join("consign.toml"), text);
        assert_eq!(of("\u{0}"), None, "nothing runs");
        std::fs::create_dir(room.path().join(DATA)).unwrap();
        let socket = room.path().join("data/admin.sock");
        let _site = UnixListener::bind(&socket).unwrap();
        assert_eq!(of("\u{0}"), Some(socket));
        assert_eq!(of("[node]\ndata_dir = \"elsewhere\"\n["), None, "it is another one's");
    }
}
