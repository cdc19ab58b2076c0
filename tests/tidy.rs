//! Rules on the repository itself: what may depend on what, what may be said where, how long a file
//! may be. Every rule is a function of a path and a text, and is shown something it must refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::Table;

/// Most lines of a source file.
const LINES_MAX: usize = 500;

/// What `core` may depend on; `rustls` only where a feature asks for it.
const CORE_MAY: [&str; 14] = [
    "base64",
    "blake3",
    "bytes",
    "crc32fast",
    "ed25519-dalek",
    "httparse",
    "minicbor",
    "serde",
    "serde_json",
    "sha1",
    "sha2",
    "subtle",
    "thiserror",
    "zeroize",
];

/// Where tests may sleep: between two looks at a condition, and to measure what idleness costs.
const PAUSES: [&str; 2] = ["tests/it/wait.rs", "runtime-std/tests/shared/idle.rs"];

/// A rule on one file: what is wrong with it, line by line or as a whole.
type Rule = fn(&str, &str) -> Vec<String>;

const RULES: [(&str, Rule); 9] = [
    ("too long", too_long),
    ("no module docs", no_module_docs),
    ("left over", left_over),
    ("not in the core", not_in_the_core),
    ("a clock elsewhere", a_clock_elsewhere),
    ("rustls elsewhere", rustls_elsewhere),
    ("ignored without a reason", ignored_without_a_reason),
    ("a test that sleeps", a_test_that_sleeps),
    ("not the product", not_the_product),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the repository, by its path from the root.
fn files() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a readable folder") {
            let entry = entry.expect("a readable entry");
            let path = folder.join(entry.file_name());
            let name = path.to_str().expect("a name in UTF-8").to_string();
            let kind = entry.file_type().expect("a file type");
            if matches!(name.as_str(), "target" | ".git") {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(entry.path())
            {
                found.insert(name, text);
            }
        }
    }
    found
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

fn is_source(path: &str) -> bool {
    [".rs", ".c", ".toml", ".sh", ".py"].iter().any(|end| path.ends_with(end)) || path == ".ci/run"
}

/// In a folder of tests, or tests of their own file.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The line without its comment.
fn code(line: &str) -> &str {
    let mut from = 0;
    while let Some(at) = line[from..].find("//").map(|at| at + from) {
        if !line[..at].ends_with(':') {
            return &line[..at];
        }
        from = at + 2;
    }
    line
}

/// Whether `word` stands in `line` with no letter, digit or underscore around it.
fn has_word(line: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let starts = !word.starts_with(inner) || !before.is_some_and(inner);
        let ends = !word.ends_with(inner) || !after.is_some_and(inner);
        starts && ends
    })
}

/// `path:line: word` for every code line that has one of the words.
fn lines_with(path: &str, text: &str, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words.iter().filter(|word| has_word(code(line), word)) {
            found.push(format!("{path}:{}: {word}", number + 1));
        }
    }
    found
}

fn too_long(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if (is_rust(path) || path.ends_with(".c")) && lines > LINES_MAX {
        return vec![format!("{path}: {lines} lines are more than {LINES_MAX}")];
    }
    Vec::new()
}

fn no_module_docs(path: &str, text: &str) -> Vec<String> {
    let documented = text.lines().next().is_some_and(|line| line.starts_with("//! "));
    if is_rust(path) && !documented { vec![format!("{path}: the first line")] } else { Vec::new() }
}

fn left_over(path: &str, text: &str) -> Vec<String> {
    if !is_source(path) {
        return Vec::new();
    }
    // Put together here, or this file would find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];
    let mut found = lines_with(path, text, &macros);
    for (number, line) in text.lines().enumerate() {
        for mark in marks.iter().filter(|mark| has_word(line, mark)) {
            found.push(format!("{path}:{}: {mark}", number + 1));
        }
    }
    found
}

fn not_in_the_core(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("core/src/") {
        return Vec::new();
    }
    let mut words =
        vec!["HashMap", "HashSet", "Instant::now", "SystemTime", "std::thread", "unsafe"];
    if !is_test(path) {
        words.extend(["f32", "f64", "print!", "println!", "eprint!", "eprintln!"]);
    }
    lines_with(path, text, &words)
}

fn a_clock_elsewhere(path: &str, text: &str) -> Vec<String> {
    let runtime = path.starts_with("runtime-std/src/") || path.starts_with("runtime-smol/src/");
    if !runtime || path.ends_with("/clock.rs") {
        return Vec::new();
    }
    lines_with(path, text, &["Instant::now", "SystemTime::now"])
}

fn rustls_elsewhere(path: &str, text: &str) -> Vec<String> {
    let wrapper = path == "core/src/tls.rs" || path.starts_with("core/src/tls/");
    if !path.starts_with("core/src/") || wrapper {
        return Vec::new();
    }
    lines_with(path, text, &["rustls"])
}

fn ignored_without_a_reason(path: &str, text: &str) -> Vec<String> {
    let bare = concat!("#[igno", "re]");
    if is_rust(path) { lines_with(path, text, &[bare]) } else { Vec::new() }
}

fn a_test_that_sleeps(path: &str, text: &str) -> Vec<String> {
    let may = PAUSES.contains(&path) || path == "tests/tidy.rs";
    if !is_rust(path) || !is_test(path) || may {
        return Vec::new();
    }
    lines_with(path, text, &["sleep", "park_timeout", "Timer::after"])
}

fn not_the_product(path: &str, text: &str) -> Vec<String> {
    if path == "Cargo.lock" {
        return Vec::new();
    }
    let words = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("crates", ".io"),
        concat!("py", "pi."),
        concat!("npm", "js"),
    ];
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words.iter().filter(|word| line.contains(*word)) {
            found.push(format!("{path}:{}: {word}", number + 1));
        }
    }
    found
}

#[test]
fn every_file_keeps_the_rules() {
    let files = files();
    assert!(files.contains_key("tests/tidy.rs") && files.contains_key("core/src/lib.rs"));
    let mut found = Vec::new();
    for (path, text) in &files {
        for (name, rule) in RULES {
            found.extend(rule(path, text).into_iter().map(|what| format!("{name}: {what}")));
        }
    }
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_rule_refuses_what_it_is_for() {
    let long = "//! Docs\n".repeat(LINES_MAX + 1);
    let bare = concat!("#[igno", "re]\nfn f() {}");
    let mark = concat!("//! Docs\n// TO", "DO: later");
    let stub = concat!("fn f() { unimple", "mented!() }");
    let machine = concat!("see /wo", "rk/main");
    let bad: [(&str, &str, &str); 19] = [
        ("too long", "src/a.rs", &long),
        ("no module docs", "src/a.rs", "use std::fs;\n//! Docs"),
        ("no module docs", "src/a.rs", ""),
        ("left over", "src/a.rs", mark),
        ("left over", "src/a.rs", stub),
        ("left over", ".ci/run", mark),
        ("not in the core", "core/src/a.rs", "use alloc::HashMap;"),
        ("not in the core", "core/src/a.rs", "let x: f64 = 1.0; // f"),
        ("not in the core", "core/src/a.rs", "std::println!();"),
        ("not in the core", "core/src/a/tests.rs", "std::thread::spawn(f);"),
        ("a clock elsewhere", "runtime-std/src/conn.rs", "let t = Instant::now();"),
        ("a clock elsewhere", "runtime-smol/src/conn.rs", "std::time::SystemTime::now()"),
        ("rustls elsewhere", "core/src/driver.rs", "use rustls::ServerConfig;"),
        ("ignored without a reason", "src/a.rs", bare),
        ("a test that sleeps", "tests/it/a.rs", "std::thread::sleep(d);"),
        ("a test that sleeps", "storage-lmdb/tests/it.rs", "thread::park_timeout(d);"),
        ("a test that sleeps", "core/src/node/tests.rs", "Timer::after(d).await"),
        ("not the product", "docs/a.md", machine),
        ("not the product", "README.md", concat!("from crates", ".io")),
    ];
    for (name, path, text) in bad {
        let (_, rule) = RULES.iter().find(|(n, _)| *n == name).expect("a rule of that name");
        assert!(!rule(path, text).is_empty(), "{name} did not see it: {path}");
    }
    let tried: BTreeSet<&str> = bad.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(tried.len(), RULES.len(), "every rule is tried");
}

#[test]
fn no_rule_refuses_what_is_fine() {
    let fine = [
        ("src/a.rs", "//! Docs\nfn f() {}\n"),
        ("core/src/a.rs", "//! No HashMap, no Instant::now, no rustls here.\nlet f = 0xf64f32;"),
        ("core/src/tls.rs", "//! Docs\nuse rustls::ServerConfig;"),
        ("runtime-std/src/clock.rs", "//! Docs\nInstant::now()"),
        ("tests/it/a.rs", "//! Docs\n#[ignore = \"needs an hour\"]\nlet sleepy = 1; // sleep"),
        ("docs/a.md", "Nothing is left over here."),
    ];
    for (path, text) in fine {
        for (name, rule) in RULES {
            assert_eq!(rule(path, text), [""; 0], "{name} in {path}");
        }
    }
    assert_eq!(code("let a = \"http://b\"; // c"), "let a = \"http://b\"; ");
}

fn manifest(folder: &str) -> Table {
    let path = root().join(folder).join("Cargo.toml");
    fs::read_to_string(&path).expect("a manifest").parse().expect("a manifest in TOML")
}

fn table<'a>(of: &'a Table, key: &str) -> Option<&'a Table> {
    of.get(key).and_then(toml::Value::as_table)
}

fn strings(of: &Table, key: &str) -> Vec<String> {
    let list = of.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
    list.iter().filter_map(|v| v.as_str().map(str::to_string)).collect()
}

fn dependencies(manifest: &Table) -> BTreeSet<&str> {
    let kinds = ["dependencies", "build-dependencies"];
    kinds.iter().filter_map(|k| table(manifest, k)).flat_map(Table::keys).map(|k| &**k).collect()
}

/// What is wrong with the core's manifest.
fn core_faults(manifest: &Table) -> Vec<String> {
    let mut faults = Vec::new();
    let name = table(manifest, "package").and_then(|p| p.get("name")).and_then(|n| n.as_str());
    // A dependency named `core` would shadow Rust's own.
    if name != Some("consign-core") {
        faults.push(format!("the package is named {name:?}"));
    }
    for section in ["build-dependencies", "target"] {
        if manifest.contains_key(section) {
            faults.push(format!("[{section}]"));
        }
    }
    for (name, spec) in table(manifest, "dependencies").into_iter().flatten() {
        let optional = spec.get("optional").and_then(toml::Value::as_bool) == Some(true);
        let may = CORE_MAY.contains(&name.as_str()) || (name == "rustls" && optional);
        if !may {
            faults.push(format!("depends on {name}"));
        }
    }
    let features = table(manifest, "features").cloned().unwrap_or_default();
    if !strings(&features, "default").is_empty() {
        faults.push("has default features: without any it must build for a bare target".into());
    }
    for (feature, asks) in &features {
        let asks = asks.as_array().into_iter().flatten().filter_map(toml::Value::as_str);
        if feature != "tls" && asks.into_iter().any(|a| a.contains("rustls")) {
            faults.push(format!("feature {feature} asks for rustls"));
        }
    }
    faults
}

#[test]
fn the_core_depends_on_its_allowlist_only() {
    assert_eq!(core_faults(&manifest("core")), [""; 0]);
}

#[test]
fn a_core_that_depends_on_more_is_refused() {
    for (bad, fault) in [
        ("[dependencies]\nrand = '1'", "depends on rand"),
        ("[dependencies]\nrustls = '1'", "depends on rustls"),
        ("[dependencies]\nrustls = { version = '1', optional = false }", "depends on rustls"),
        ("[build-dependencies]\ncc = '1'", "[build-dependencies]"),
        ("[target.'cfg(unix)'.dependencies]\nlibc = '1'", "[target]"),
        ("[features]\nstd = ['dep:rustls']", "feature std asks for rustls"),
    ] {
        let text = format!("[package]\nname = 'consign-core'\n{bad}");
        assert_eq!(core_faults(&text.parse().unwrap()), [fault]);
    }
    assert_eq!(core_faults(&"[package]\nname = 'core'".parse().unwrap()).len(), 1);
}

#[test]
fn packages_depend_in_one_direction() {
    let may: [(&str, &[&str]); 4] = [
        ("core", &[]),
        ("storage-lmdb", &["consign-core"]),
        ("runtime-std", &["consign-core", "consign-storage-lmdb"]),
        ("runtime-smol", &["consign-core", "consign-storage-lmdb"]),
    ];
    for (folder, may) in may {
        let manifest = manifest(folder);
        for name in dependencies(&manifest) {
            let ours = name == "consign" || name.starts_with("consign-");
            assert!(!ours || may.contains(&name), "{folder} depends on {name}");
        }
    }
}

#[test]
fn some_crates_are_not_taken_by_any_way() {
    // Unmaintained, a second TLS provider, or a second runtime. The lock file also names what no
    // feature asks for, so cargo is asked what is really built.
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--workspace", "--prefix", "none"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("names in UTF-8");
    let taken: BTreeSet<&str> = tree.lines().filter_map(|l| l.split(' ').next()).collect();
    assert!(taken.contains("rustls") && taken.contains("consign-core"), "{taken:?}");
    for refused in ["bincode", "native-tls", "openssl", "ring", "rustls-pemfile", "tokio"] {
        assert!(!taken.contains(refused), "{refused} is built");
    }
}

#[test]
fn no_planted_bug_is_in_what_is_released() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--workspace", "--prefix", "none"])
        .args(["--edges", "normal,build,features"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("names in UTF-8");
    let asked = |feature: &str| tree.contains(&format!("consign-core feature \"{feature}\""));
    assert!(asked("tls") && !asked("plant"), "{tree}");
}

#[test]
fn every_package_is_in_the_workspace_and_under_its_rules() {
    let top = manifest("");
    let workspace = table(&top, "workspace").expect("a workspace");
    let members = strings(workspace, "members");
    let mut defaults = strings(workspace, "default-members");
    defaults.retain(|m| m != ".");
    assert_eq!(members, defaults, "plain `cargo test` tests everything");
    for folder in std::iter::once("").chain(members.iter().map(String::as_str)) {
        let manifest = manifest(folder);
        let lints = table(&manifest, "lints").and_then(|l| l.get("workspace"));
        assert_eq!(lints.and_then(toml::Value::as_bool), Some(true), "[lints] of {folder:?}");
        let package = table(&manifest, "package").expect("a package");
        for key in ["version", "edition", "rust-version", "license"] {
            let inherited = package.get(key).and_then(|v| v.get("workspace"));
            assert!(inherited.is_some(), "{key} of {folder:?} is not the workspace's");
        }
    }
}

/// Names in backticks of the rows of tests/CASES.md: tests with `_`, stories with `-`.
fn named_cases(text: &str) -> Vec<(&str, &str)> {
    let rows = text.lines().filter(|line| line.starts_with("| B"));
    let mut names = Vec::new();
    for row in rows {
        let case = row.trim_start_matches("| ").split(' ').next().unwrap_or_default();
        names.extend(row.split('`').skip(1).step_by(2).map(|name| (case, name)));
    }
    names
}

/// A test is a function under `#[test]`, or one of a property-test macro.
fn is_there(files: &BTreeMap<String, String>, name: &str) -> bool {
    let wanted = match name.contains('_') {
        true => format!("fn {name}("),
        false => format!("name: \"{name}\""),
    };
    files.iter().any(|(path, text)| is_rust(path) && text.contains(&wanted))
}

#[test]
fn every_regression_case_has_a_test_that_exists() {
    let files = files();
    let names = named_cases(&files["tests/CASES.md"]);
    let gone: Vec<_> = names.iter().filter(|(_, name)| !is_there(&files, name)).collect();
    assert!(gone.is_empty(), "tests/CASES.md names what is not there: {gone:?}");
    let cases: BTreeSet<&str> = names.iter().map(|(case, _)| *case).collect();
    let wanted = (1..=25).chain([35, 36]).map(|n| format!("B{n:02}"));
    let missing: Vec<String> = wanted.filter(|case| !cases.contains(case.as_str())).collect();
    assert!(missing.is_empty(), "cases without a test: {missing:?}");
    assert!(!is_there(&files, "there_is_no_such_test") && !is_there(&files, "no-such-story"));
}
