//! Every command with `--json`: each object that it prints says its schema, and fits it as docs/schemas has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use jsonschema::Validator;
use serde_json::Value;

use crate::pickup::Relay;
use crate::site::{Site, consign, lines};
use crate::wait;

/// Commands that print no objects, or none by themselves, and why.
const OTHERS: [(&str, &str); 3] = [
    ("serve", "it writes log lines, which are not answers"),
    ("top", "it says what `status -w` says, until it is ended"),
    ("completions", "it prints a script for a shell"),
];

struct Walk {
    relay: Relay,
    validators: BTreeMap<String, Validator>,
    seen: BTreeSet<String>,
    schemas: BTreeSet<String>,
}

impl Walk {
    fn site(&self) -> &Site {
        &self.relay.site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.site().folder().path().join(name)
    }

    /// Looks at everything a command has said.
    fn fits(&mut self, what: &str, values: &[Value]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas");
        for value in values {
            let id = value["schema"].as_str().unwrap_or_else(|| panic!("{what}: {value}"));
            let validator = self.validators.entry(id.to_owned()).or_insert_with(|| {
                let file = folder.join(id.replace('/', "-") + ".json");
                let text = fs::read_to_string(&file);
                let text = text.unwrap_or_else(|e| panic!("{what}: {id} is not published: {e}"));
                let schema = serde_json::from_str(&text).expect("JSON");
                jsonschema::validator_for(&schema).expect("a schema")
            });
            let wrong: Vec<String> = validator.iter_errors(value).map(|e| e.to_string()).collect();
            assert!(wrong.is_empty(), "{what}: {value}\n{wrong:?}");
            self.schemas.insert(id.to_owned());
        }
    }

    fn looked_at(&mut self, command: &str, output: &Output) -> Vec<Value> {
        let code = output.status.code().expect("it ended by itself");
        assert!(code <= 5, "{command}: {output:?}");
        self.seen.insert(command.to_owned());
        let said = lines(&output.stdout);
        self.fits(command, &said);
        self.fits(command, &lines(&output.stderr));
        said
    }

    /// Runs a command of the relay; what it prints, of which there must be something.
    fn says(&mut self, command: &str, more: &[&str]) -> Vec<Value> {
        let words: Vec<&str> = command.split(' ').chain(more.iter().copied()).collect();
        let output = self.site().run(&[&words[..], &["--json"]].concat());
        let said = self.looked_at(command, &output);
        assert!(!said.is_empty(), "{command}: {output:?}");
        said
    }

    /// Runs a command without a site of its own.
    fn says_alone(&mut self, command: &str, more: &[&str]) -> Vec<Value> {
        let output = consign().args(command.split(' ')).args(more).arg("--json").output();
        let output = output.expect("the binary runs");
        let said = self.looked_at(command, &output);
        assert!(!said.is_empty(), "{command}: {output:?}");
        said
    }
}

fn word(values: &[Value], name: &str) -> String {
    values[0][name].as_str().unwrap_or_else(|| panic!("no {name} in {values:?}")).to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// A relay with a peer that is away, a rule and a watched directory.
fn begun() -> Walk {
    let mut relay = Relay::new("smol", &[]);
    let config = relay.site.config();
    let folder = relay.site.folder().path().to_path_buf();
    let [inbox, watch] = ["in", "out"].map(|name| folder.join(name));
    fs::create_dir_all(&watch).expect("made");
    let old = fs::read_to_string(&config).expect("it is there");
    let new = format!(
        "{old}\n[[relay.known_peers]]\nname = \"beta\"\naddress = \"127.0.0.1:1\"\n\
         [[inbox]]\ndir = {inbox:?}\n[[watch]]\ndir = {watch:?}\nto = [\"beta\"]\n"
    );
    fs::write(&config, new).expect("written");
    relay.serve();
    let (validators, seen, schemas) = Default::default();
    Walk { relay, validators, seen, schemas }
}

impl Walk {
    fn segments(&mut self) {
        let [file, late, out] = ["file", "late", "fetched"].map(|name| self.path(name));
        fs::write(&file, b"content").expect("written");
        fs::write(&late, b"too late").expect("written");
        let id = word(&self.says("send", &["--to", "beta", text(&file)]), "id");
        self.says("send", &["--to", "beta", "--expires", "1s", text(&late)]);
        self.says("ls", &[]);
        self.says("show", &[&id]);
        self.says("explain", &[&id]);
        self.says("explain", &["CN0503", "quota"]);
        self.says("assurance", &["--all"]);
        self.says("assurance", &[&id]);
        self.says("get", &[&id, "-o", text(&out)]);
        for command in ["hold", "unhold", "release"] {
            self.says(command, &[&id]);
        }
        wait::until_true("a dead letter", || {
            let output = self.relay.site.run(&["deadletter", "ls", "--json"]);
            !lines(&output.stdout).is_empty()
        });
        self.says("deadletter ls", &[]);
        self.says("deadletter ls", &["--by", "reason"]);
        self.says("deadletter retry", &["--all", "-n"]);
        self.says("deadletter purge", &["--all", "-n"]);
        self.says("inbox run", &[]);
        self.says("inbox retry", &[&id]);
        let output = self.site().run(&["inbox", "ls", "--all", "--json"]);
        self.looked_at("inbox ls", &output);
    }

    fn site_itself(&mut self) {
        for command in [
            "status",
            "shape",
            "quota",
            "storage",
            "check",
            "page",
            "audit",
            "watch ls",
            "clock confirm",
            "config check",
            "config show",
            "config fmt",
            "cert show",
            "reload",
            "log-level",
            "doctor",
        ] {
            self.says(command, &[]);
        }
        self.says("events", &["--once", "--since", "0"]);
        self.says("config explain", &["relay.max_retries", "inbox"]);
        let output = self.site().run(&["config", "schema", "--json"]);
        assert!(lines(&output.stdout)[0]["$schema"].is_string(), "a schema, not an object of ours");
        self.seen.insert("config schema".into());
        self.says("peers ls", &[]);
        self.says("peers ls", &["--pending"]);
        for command in ["peers ping", "peers hold", "peers release", "peers flush", "peers export"]
        {
            self.says(command, &["beta"]);
        }
        self.says("peers rekey", &["beta"]);
        // Refused, as long as it is configured: by an object on standard error.
        let output = self.site().run(&["peers", "forget", "beta", "-n", "--json"]);
        self.looked_at("peers forget", &output);
        assert_eq!(lines(&output.stderr).len(), 1, "{output:?}");
        let peers = self.path("peers.toml");
        let section = "[[relay.known_peers]]\nname = \"gamma\"\naddress = \"127.0.0.1:2\"\n";
        fs::write(&peers, section).expect("written");
        self.says("peers import", &["-n", text(&peers)]);
    }

    fn shards(&mut self) {
        let file = self.path("shard");
        fs::write(&file, b"a shard").expect("written");
        self.says("pickup clients enrol", &["other"]);
        self.says("pickup clients ls", &[]);
        self.says("pickup clients revoke", &["other"]);
        let mut node = self.relay.node("edge");
        self.says("pickup nodes ls", &[]);
        for shard in [0, 1] {
            let output = self.relay.upload(&file, "edge", shard);
            self.looked_at("pickup upload", &output);
        }
        self.says("pickup shards ls", &[]);
        for command in ["pickup shards show", "pickup shards retry", "pickup shards abandon"] {
            self.says(command, &["film/1/0@edge"]);
        }
        let told = self.path("node.jsonl");
        let log = fs::File::create(&told).expect("a file");
        node.run_telling(Stdio::from(log));
        wait::until_true("the shard to be stored", || {
            fs::read_to_string(&told).is_ok_and(|text| text.contains("consign.stored/1"))
        });
        node.kill();
        let said = lines(&fs::read(&told).expect("it is there"));
        self.fits("node run", &said);
        self.seen.insert("node run".into());
        let key = word(
            &self.says_alone(
                "node init",
                &["--id", "n", "--relay", "http://127.0.0.1:1", text(&self.path("n"))],
            ),
            "key",
        );
        self.says("pickup nodes enrol", &["n", "--key", &key]);
        self.says("pickup nodes revoke", &["n"]);
    }

    fn certificates(&mut self) {
        let (made, joined) = (self.path("made"), self.path("joined"));
        let args = ["--listen", "127.0.0.1:7400", text(&made)];
        let card = word(&self.says_alone("init", &args), "card");
        self.says_alone("init", &["--join", &card, text(&joined)]);
        let request = joined.join("joined.csr");
        self.says_alone("cert sign", &["-c", text(&made), text(&request)]);
        let signed = joined.join("joined.pem");
        self.says_alone("cert install", &["-c", text(&joined), text(&signed)]);
        self.says_alone("cert renew", &["-c", text(&made)]);
        self.says_alone("cert request", &["-c", text(&made)]);
    }

    fn without_a_site(&mut self) {
        let [man, schemas, demo, trace] =
            ["man", "schemas", "demo", "trace.jsonl"].map(|name| self.path(name));
        self.says_alone("schema", &[]);
        self.says_alone("schema", &["--dir", text(&schemas)]);
        self.says_alone("man", &[text(&man)]);
        self.says_alone("demo", &["--dir", text(&demo), text(&self.path("file"))]);
        let calm = ["--seed", "1", "--sites", "2", "--segments", "2", "--minutes", "1"];
        self.says_alone(
            "sim",
            &[&calm[..], &["--without", "all", "--trace", text(&trace)]].concat(),
        );
        self.says_alone("replay", &[text(&trace)]);
        self.says_alone("bench", &["--runtime", "std", "--size", "1KiB", "--count", "5"]);
        self.says_alone("bench", &["--runtime", "std", "--latency", "--count", "5"]);
    }
}

/// Every command that has none below it, by its manual page.
fn commands(man: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(man).expect("manual pages").flatten();
    let names = names.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        Some(name.strip_prefix("consign-")?.strip_suffix(".1")?.replace('-', " "))
    });
    let names: BTreeSet<String> = names.collect();
    let is_leaf = |name: &&String| !names.iter().any(|n| n.starts_with(&format!("{name} ")));
    names.iter().filter(is_leaf).cloned().collect()
}

#[test]
fn every_command_says_what_it_prints() {
    let mut walk = begun();
    walk.segments();
    walk.site_itself();
    walk.shards();
    walk.certificates();
    walk.without_a_site();
    walk.says("stop", &["--wait"]);
    walk.relay.site.wait();
    walk.says("fsck", &[]);
    let others = OTHERS.map(|(command, _)| command.to_owned());
    // Names of pages have no blanks, and `log-level` has a dash of its own.
    let seen = walk.seen.iter().cloned().chain(others).map(|name| name.replace('-', " "));
    let seen: BTreeSet<String> = seen.collect();
    assert_eq!(seen, commands(&walk.path("man")), "each command is run, or said why not");
    // What no answer above could be: findings of a broken ledger, exports of a node, progress of long work.
    assert!(walk.schemas.len() > 50, "{:?}", walk.schemas);
}
