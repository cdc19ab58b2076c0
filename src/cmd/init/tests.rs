//! Tests of `init`: what it makes works, and what is there stays.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{InitArgs, make, shown};
use crate::config::{self, Layers, Settings};
use crate::exit::{Exit, Failure};
use crate::tls::{Credentials, Loaded};

fn args(dir: &Path) -> InitArgs {
    InitArgs { dir: Some(dir.into()), ..InitArgs::default() }
}

fn init(args: &InitArgs) -> Result<(), Failure> {
    make(args).map(|_| ())
}

fn text(args: &InitArgs) -> String {
    let (plan, report) = make(args).expect("made");
    report.text(&plan)
}

fn load(dir: &Path) -> (Settings, Loaded) {
    let settings = config::load(&dir.join("consign.toml"), &Layers::default()).expect("good");
    let loaded = Credentials::read(&settings.tls).and_then(|c| c.setup(&settings.node));
    (settings, loaded.expect("certificates that work"))
}

/// Every file with its text, to see that nothing changed.
fn everything(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.display().to_string();
        if path.is_dir() {
            all.insert(name, Vec::new());
            all.extend(everything(&path));
        } else {
            all.insert(name, std::fs::read(&path).expect("readable"));
        }
    }
    all
}

#[test]
fn a_fresh_site_can_be_served() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("alpha");
    init(&args(&dir)).expect("made");
    let (settings, loaded) = load(&dir);
    assert_eq!(settings.node.name, "alpha");
    assert_eq!(settings.data_dir, dir.join("data"));
    assert_eq!(loaded.own.name, "alpha");
    assert_eq!(loaded.warning, None);
    let mode = |name: &str| dir.join(name).metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("ca.key"), mode("node.key"), mode("data")), (0o600, 0o600, 0o700));
}

#[test]
fn a_second_run_changes_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("alpha");
    init(&args(&dir)).expect("made");
    let before = everything(root.path());
    let again = init(&args(&dir)).expect_err("there already");
    assert_eq!((again.exit, again.code), (Exit::Failed, "CN0322"));
    assert!(again.message.contains("ca.key"), "{again}");
    assert_eq!(everything(root.path()), before);
    let other = root.path().join("beta");
    std::fs::create_dir_all(other.join("data/ledger")).expect("made");
    let refused = init(&args(&other)).expect_err("data is there");
    assert!(refused.message.contains("beta/data is already there"), "{refused}");
}

#[test]
fn two_sites_meet_without_any_editing() {
    let root = tempfile::tempdir().expect("a directory");
    let (alpha, beta) = (root.path().join("alpha"), root.path().join("beta"));
    init(&args(&alpha)).expect("made");
    let before = std::fs::read_to_string(alpha.join("consign.toml")).expect("readable");
    let second = InitArgs { ca: Some(alpha.clone()), introduce: true, ..args(&beta) };
    let said = text(&second);
    assert!(said.contains("alpha knows beta at 127.0.0.1:7500"), "{said}");
    assert!(!beta.join("ca.key").exists());
    let after = std::fs::read_to_string(alpha.join("consign.toml")).expect("readable");
    assert!(after.starts_with(before.trim_end()), "only added to");
    let ((a, a_tls), (b, b_tls)) = (load(&alpha), load(&beta));
    let peer = |s: &Settings| s.node.peers.first().map(|p| (p.name.clone(), p.address.clone()));
    assert_eq!(peer(&a), Some(("beta".into(), "127.0.0.1:7500".into())));
    assert_eq!(peer(&b), Some(("alpha".into(), "127.0.0.1:7400".into())));
    let certificate = |dir: &Path| crate::tls::certificates(&dir.join("node.pem")).expect("PEM");
    let seen = (a_tls.setup.identify)(&certificate(&beta)).expect("welcome");
    assert_eq!(seen.name, "beta");
    let seen = (b_tls.setup.identify)(&certificate(&alpha)).expect("welcome");
    assert_eq!(seen.name, "alpha");
}

#[test]
fn a_third_site_finds_a_free_port() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = |name: &str| root.path().join(name);
    let listen = Some("127.0.0.1:7400".parse().expect("an address"));
    init(&InitArgs { listen, ..args(&dir("alpha")) }).expect("made");
    for name in ["beta", "gamma"] {
        let ca = Some(dir("alpha"));
        init(&InitArgs { ca, introduce: true, ..args(&dir(name)) }).expect("made");
    }
    let (gamma, _) = load(&dir("gamma"));
    assert_eq!(gamma.listen, ["127.0.0.1:7600".parse().expect("an address")]);
    assert_eq!(load(&dir("alpha")).0.node.peers.len(), 2);
}

#[test]
fn a_site_for_another_machine_is_not_said_to_be_here() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = |name: &str| root.path().join(name);
    init(&args(&dir("alpha"))).expect("made");
    let listen = Some("0.0.0.0:7400".parse().expect("an address"));
    let peer = vec!["alpha=alpha.example.net:7400".to_string()];
    let said = text(&InitArgs { ca: Some(dir("alpha")), listen, peer, ..args(&dir("gamma")) });
    assert!(said.contains("address = \"HOST:7400\""), "{said}");
    assert!(!said.contains("127.0.0.1"), "{said}");
    assert!(said.contains("to its machine, and there:"), "{said}");
}

#[test]
fn the_authority_may_be_given_as_files() {
    let root = tempfile::tempdir().expect("a directory");
    let (alpha, beta) = (root.path().join("alpha"), root.path().join("beta"));
    init(&args(&alpha)).expect("made");
    let key = root.path().join("elsewhere.key");
    std::fs::rename(alpha.join("ca.key"), &key).expect("moved");
    let ca = Some(alpha.join("ca.pem"));
    let without = InitArgs { ca: ca.clone(), ..args(&beta) };
    let failure = init(&without).expect_err("no key");
    assert_eq!(failure.code, "CN0311");
    assert!(!beta.exists(), "nothing is left behind");
    let said = text(&InitArgs { ca, ca_key: Some(key), ..args(&beta) });
    assert!(said.contains("add to the configuration there:\n  [[relay.known_peers]]"), "{said}");
    assert_eq!(load(&beta).1.own.name, "beta");
}

#[test]
fn an_authority_that_is_none_is_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let (alpha, beta) = (root.path().join("alpha"), root.path().join("beta"));
    init(&args(&alpha)).expect("made");
    let node = InitArgs {
        ca: Some(alpha.join("node.pem")),
        ca_key: Some(alpha.join("node.key")),
        ..args(&beta)
    };
    assert_eq!(init(&node).expect_err("a site's certificate").code, "CN0321");
    let mixed = InitArgs {
        ca: Some(alpha.join("ca.pem")),
        ca_key: Some(alpha.join("node.key")),
        ..args(&beta)
    };
    assert_eq!(init(&mixed).expect_err("another key").code, "CN0321");
    assert!(!beta.exists());
}

#[test]
fn a_site_that_cannot_be_introduced_is_not_made() {
    let root = tempfile::tempdir().expect("a directory");
    let (alpha, beta) = (root.path().join("alpha"), root.path().join("beta"));
    init(&args(&alpha)).expect("made");
    let file = alpha.join("consign.toml");
    let old = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(&file, old.replace("[relay]", "[relay]\nknown_peers = []")).expect("written");
    let before = everything(root.path());
    let second = InitArgs { ca: Some(alpha.clone()), introduce: true, ..args(&beta) };
    let failure = init(&second).expect_err("the lines do not fit there");
    assert_eq!(failure.code, "CN0323");
    assert_eq!(everything(root.path()), before);
    std::fs::write(&file, "[node").expect("written");
    assert!(init(&second).expect_err("broken").message.contains("--introduce needs a good"));
    assert!(
        init(&InitArgs { introduce: false, ..second }).is_ok(),
        "but it is not needed otherwise"
    );
}

#[test]
fn arguments_are_judged_first() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("alpha");
    let peers =
        |list: &[&str]| InitArgs { peer: list.iter().map(|p| (*p).into()).collect(), ..args(&dir) };
    let bad = [
        peers(&["beta"]),
        peers(&["beta="]),
        peers(&["be ta=h:1"]),
        peers(&["alpha=h:1"]),
        peers(&["beta=h:1", "beta=h:2"]),
        InitArgs { name: Some("-x".into()), ..args(&dir) },
        args(Path::new("/")),
    ];
    for args in bad {
        let failure = init(&args).expect_err("refused");
        assert_eq!(failure.exit, Exit::Usage, "{args:?}: {failure}");
    }
    assert!(!dir.exists());
    let said = text(&peers(&["beta=h:1", "gamma=[::1]:2"]));
    assert!(said.contains("knows beta at h:1, gamma at [::1]:2"), "{said}");
    assert_eq!(load(&dir).0.node.peers.len(), 2);
}

#[test]
fn paths_are_shown_as_they_can_be_typed() {
    assert_eq!(shown(Path::new("a/b-c_1/")), "a/b-c_1");
    assert_eq!(shown(Path::new("it's here")), "'it'\\''s here'");
}

#[test]
fn keys_and_certificates_can_be_made_for_a_configuration_that_is_there() {
    let root = tempfile::tempdir().expect("a directory");
    let (etc, pki) = (root.path().join("etc"), root.path().join("etc/pki"));
    std::fs::create_dir(&etc).expect("made");
    let args = InitArgs { no_config: true, name: Some("alpha".into()), ..args(&pki) };
    let said = text(&args);
    let names: Vec<String> = everything(&pki).into_keys().collect();
    let expected = ["ca.key", "ca.pem", "node.key", "node.pem"];
    assert_eq!(names, expected.map(|name| pki.join(name).display().to_string()));
    // What it says makes a configuration.
    let (_, lines) = said.split_once("configuration says:\n").expect("lines");
    let (lines, card) = lines.split_once("\n\nIts card").expect("a card");
    assert!(card.contains("alpha"), "{card}");
    let lines = lines.replace("[tls]", "data_dir = \"data\"\n[tls]");
    std::fs::write(etc.join("consign.toml"), lines).expect("written");
    let (_, loaded) = load(&etc);
    assert_eq!(loaded.own.name, "alpha");
    let failure = init(&args).expect_err("they are there");
    assert_eq!(failure.code, "CN0322");
}

#[test]
fn a_card_that_is_of_no_use_elsewhere_says_so_and_a_host_goes_into_it() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = |name: &str| root.path().join(name);
    let listen = Some("127.0.0.1:7400".parse().expect("an address"));
    let alone = text(&InitArgs { listen, ..args(&dir("alpha")) });
    assert!(alone.contains("That card is of use on this machine alone"), "{alone}");
    let host = vec!["beta.example".to_string()];
    let named = InitArgs { listen, host, ..args(&dir("beta")) };
    let said = text(&named);
    assert!(said.contains("consign:beta@beta.example:7400#"), "{said}");
    assert!(!said.contains("this machine alone"), "{said}");
    let join = Some(format!("consign:alpha@127.0.0.1:7400#sha256:{}", "00".repeat(32)));
    let joined = text(&InitArgs { join: join.clone(), host: Vec::new(), ..args(&dir("gamma")) });
    assert!(joined.contains("reached from this machine alone"), "{joined}");
    let joined = text(&InitArgs { join, host: named.host, ..args(&dir("delta")) });
    assert!(joined.contains("address = \"beta.example:7400\""), "{joined}");
}

#[test]
fn the_way_to_the_first_shard_is_told() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("relay");
    let pickup = Some("127.0.0.1:7410".parse().expect("an address"));
    let said = text(&InitArgs { pickup, ..args(&dir) });
    for step in [
        "pickup clients enrol app > app.token",
        "consign node init edge --id edge-7 --relay http://127.0.0.1:7410\n",
        "pickup nodes enrol edge-7 --key KEY",
        "consign pickup upload FILE --to http://127.0.0.1:7410 --node edge-7",
        "consign node run edge",
    ] {
        assert!(said.contains(step), "{step}: {said}");
    }
    assert!(!said.contains("second site"), "{said}");
    let (pickup, host) = (Some("0.0.0.0:7410".parse().expect("one")), vec!["relay.example".into()]);
    let said = text(&InitArgs { pickup, host, ..args(&root.path().join("other")) });
    assert!(said.contains("--relay https://relay.example:7410 --ca "), "{said}");
}

#[test]
fn a_second_site_is_named_as_nothing_here_is() {
    assert_eq!(super::report::free_name("alpha", |_| false), "beta");
    assert_eq!(super::report::free_name("gamma", |name| name == "beta"), "delta");
    assert_eq!(super::report::free_name("alpha", |_| true), "another");
}
