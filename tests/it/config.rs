//! `consign config …` on real files, without a running site.

use std::fs;
use std::process::Output;
use std::sync::Arc;

use serde_json::Value;

use crate::site::{Site, consign};

fn made() -> Site {
    let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
    let mut alpha = Site::at(&folder, "alpha", "smol");
    alpha.init(&[], None);
    alpha
}

fn config(site: &Site, args: &[&str]) -> Output {
    let mut command = consign();
    command.arg("-c").arg(site.config()).arg("config").args(args).output().expect("it runs")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

#[test]
fn six_faults_are_shown_in_one_run_each_with_its_line() {
    let site = made();
    let text = "[node]\nname = \"alpha\"\ndata_dir = \"data\"\nruntime = \"smoll\"\n\n\
                [tls]\nca = \"ca.pem\"\ncert = \"node.pem\"\nkey = \"node.key\"\n\n\
                [storage]\nmin_fre = \"5GiB\"\nmax_bytes = 5\n\n\
                [relay]\nbackoff_initial = \"1h\"\nmax_retries = -1\n\n\
                [[relay.known_peers]]\nname = \"beta\"\naddress = \"beta.example.net\"\n";
    fs::write(site.config(), text).expect("written");
    // (line, column, what is marked, code, what helps)
    let planted = [
        (4, 11, "smoll", "CN0205", "a similar word exists: \"smol\""),
        (12, 1, "min_fre", "CN0203", "a key with a similar name exists: `min_free`"),
        (13, 13, "max_bytes", "CN0204", "put a unit to it"),
        (16, 19, "backoff_initial", "CN0209", ""),
        (17, 15, "max_retries", "CN0206", ""),
        (21, 11, "beta.example.net", "CN0205", ""),
    ];
    let output = config(&site, &["check"]);
    assert_eq!(code(&output), Some(78), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = said(&output.stderr);
    for (line, column, word, code, help) in planted {
        let place = format!("{}:{line}:{column}", site.config().display());
        let from = text.find(&place).unwrap_or_else(|| panic!("{place} in {text}"));
        let excerpt: Vec<&str> = text[from..].lines().take(5).collect();
        let excerpt = excerpt.join("\n");
        assert!(excerpt.contains(word) && excerpt.contains('^'), "{place}: {excerpt}");
        assert!(excerpt.contains(help), "{place}: {excerpt}");
        assert!(text.contains(&format!("error[{code}]")), "{code}: {text}");
    }
    assert!(text.contains("6 errors in "), "{text}");
    let output = config(&site, &["check", "--json"]);
    assert_eq!(code(&output), Some(78), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stderr).expect("one object");
    let errors = object["errors"].as_array().expect("a list");
    assert_eq!(errors.len(), planted.len(), "{object}");
    for (error, (line, column, _, code, _)) in errors.iter().zip(planted) {
        assert_eq!((&error["line"], &error["column"]), (&line.into(), &column.into()), "{error}");
        assert_eq!(error["code"], code, "{error}");
    }
}

#[test]
fn a_check_looks_at_certificates_and_key_unless_told_not_to() {
    let site = made();
    let output = config(&site, &["check"]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(said(&output.stdout).contains(" is good: alpha, 0 peers"), "{output:?}");
    fs::remove_file(site.dir.join("node.key")).expect("it was there");
    let output = config(&site, &["check"]);
    assert_eq!(code(&output), Some(78), "{output:?}");
    assert!(said(&output.stderr).contains("CN0311"), "{output:?}");
    let output = config(&site, &["check", "--no-files", "--json"]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    let object: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&object["node"], &object["files_checked"]), (&"alpha".into(), &false.into()));
    let data = fs::read_dir(site.dir.join("data")).expect("it is there");
    assert_eq!(data.count(), 0, "a check touches nothing");
}

#[test]
fn what_is_shown_can_be_served_and_says_where_it_came_from() {
    let site = made();
    let key = fs::read_to_string(site.dir.join("node.key")).expect("a key");
    let mut command = consign();
    command.env("CONSIGN_STORAGE_MAX_BYTES", "3GiB").arg("-c").arg(site.config());
    let output = command.args(["config", "show", "--origin", "--runtime", "std", "-v"]).output();
    let output = output.expect("it runs");
    assert_eq!(code(&output), Some(0), "{output:?}");
    let text = said(&output.stdout);
    let line = |start: &str| {
        text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"))
    };
    assert!(line("max_bytes").ends_with("# $CONSIGN_STORAGE_MAX_BYTES"), "{text}");
    assert!(line("runtime").ends_with("# --runtime"), "{text}");
    assert!(line("level = \"debug\"").ends_with("# -v"), "{text}");
    assert!(line("max_retries = 8").ends_with("# default"), "{text}");
    let place = format!("{}:6", site.config().display());
    assert!(line("name = \"alpha\"").ends_with(&place), "{text}");
    let secret = key.lines().nth(1).expect("a line of the key");
    assert!(!text.contains(secret), "the key itself is nowhere");
    fs::write(site.config(), &text).expect("written");
    assert_eq!(code(&config(&site, &["check"])), Some(0), "{text}");
    let output = config(&site, &["show", "--json"]);
    let object: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(object["schema"], "consign.config/1");
}

#[test]
fn keys_are_explained_and_an_unknown_one_leads_to_a_similar_one() {
    let site = made();
    let output = config(&site, &["explain", "relay.max_retries"]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    let text = said(&output.stdout);
    for part in ["dead letter", "default   8", "CONSIGN_RELAY_MAX_RETRIES"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = config(&site, &["explain", "relay.max_retry"]);
    assert_eq!(code(&output), Some(4), "{output:?}");
    assert!(said(&output.stderr).contains("did you mean `relay.max_retries`?"), "{output:?}");
    let output = config(&site, &["schema"]);
    let object: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(object["properties"]["relay"]["properties"]["max_retries"]["default"], 8);
}

#[test]
fn a_file_is_put_in_order_once_and_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let site = made();
    let file = site.config();
    let output = config(&site, &["fmt", "--check"]);
    assert_eq!(code(&output), Some(0), "what init writes is in order: {output:?}");
    let text = fs::read_to_string(&file).expect("it is there");
    let messy =
        format!("{text}\n\n\n# mine\n[[ relay.known_peers ]]\naddress='b:1'#old\nname='b'\n");
    fs::write(&file, &messy).expect("written");
    let mode = file.metadata().expect("it is there").permissions().mode();
    let output = config(&site, &["fmt", "--check"]);
    assert_eq!(code(&output), Some(1), "{output:?}");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), messy, "a check changes nothing");
    let output = config(&site, &["fmt"]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    let tidy = fs::read_to_string(&file).expect("it is there");
    assert!(tidy.contains("# mine\n[[relay.known_peers]]\nname = 'b'\naddress = 'b:1'"), "{tidy}");
    assert!(tidy.contains("  #old\n"), "{tidy}");
    assert_eq!(file.metadata().expect("it is there").permissions().mode(), mode);
    assert_eq!(code(&config(&site, &["fmt", "--check"])), Some(0));
    fs::write(&file, "[node]\nname =\n").expect("written");
    assert_eq!(code(&config(&site, &["fmt"])), Some(78));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "[node]\nname =\n");
}

#[test]
fn files_and_routes_that_are_wrong_are_told_with_the_keys() {
    let site = made();
    let text = fs::read_to_string(site.config()).expect("there");
    let broken = format!("{text}\n[[route]]\nto = \"far\"\nvia = \"gone\"\n")
        .replace("# max_retries = 8", "max_retries = 0  ");
    assert_ne!(broken.find("max_retries = 0"), None, "{broken}");
    fs::write(site.config(), broken).expect("written");
    fs::remove_file(site.dir.join("ca.pem")).expect("removed");
    fs::write(site.dir.join("node.pem"), "nothing").expect("written");
    let output = config(&site, &["check"]);
    assert_eq!(code(&output), Some(78), "{output:?}");
    let said_text = said(&output.stderr);
    let parts = [
        "max_retries",
        "names \"gone\"",
        "= help: add gone to relay.known_peers, or take the [[route]] out",
        "ca.pem cannot be read",
        "node.pem holds no",
        "4 errors",
    ];
    for part in parts {
        assert!(said_text.contains(part), "{part}: {said_text}");
    }
    let output = config(&site, &["check", "--json"]);
    let error: Value = serde_json::from_slice(&output.stderr).expect("one object");
    let codes: Vec<&str> = error["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .filter_map(|e| e["code"].as_str())
        .collect();
    assert_eq!(codes, ["CN0206", "CN0209", "CN0311", "CN0312"], "{error}");
    let output = config(&site, &["check", "--no-files"]);
    assert!(said(&output.stderr).contains("2 errors"), "{output:?}");
    // The keys are right again: the files are told all at once, too.
    fs::write(site.config(), text).expect("written");
    let output = config(&site, &["check"]);
    assert_eq!(code(&output), Some(78), "{output:?}");
    assert!(said(&output.stderr).contains("2 errors"), "{output:?}");
}

#[test]
fn a_file_that_is_no_toml_any_more_does_not_hide_the_site_that_runs() {
    let mut site = made();
    site.serve();
    let text = fs::read_to_string(site.config()).expect("there");
    let broken = [
        text.replacen("[node]", "[node", 1),
        text.replace("name = \"alpha\"", "name = \"alpha"),
        format!("{text}\n= = =\n"),
        "\u{0}".into(),
    ];
    for broken in &broken {
        assert_ne!(*broken, text);
        fs::write(site.config(), broken).expect("written");
        for verb in [&["status"][..], &["ls"], &["peers", "ls"], &["check"]] {
            let output = site.run(verb);
            assert!(output.status.success(), "{verb:?} {broken}: {output:?}");
            let notes = said(&output.stderr);
            let first = notes.lines().next().unwrap_or_default().to_owned();
            let socket = site.socket().display().to_string();
            assert!(first.contains("(CN02") && first.contains(&socket), "{verb:?}: {notes}");
        }
    }
    // Nothing to be told from it, and nothing runs: the file is what is wrong.
    site.stop();
    let output = site.run(&["status"]);
    assert_eq!(self::code(&output), Some(78), "{output:?}");
    fs::write(site.config(), text).expect("written");
}
