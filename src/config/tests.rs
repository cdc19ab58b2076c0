//! Tests of the configuration: whole texts against golden files, rules one by one.

mod operator;
mod places;
mod reloads;

use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_core::config::BufferConfig;

use super::fault::At;
use super::keys::{self, Fallback, KEYS, SECTIONS};
use super::units::{millis, size};
use super::value::{Kind, Value};
use super::walk::default_of;
use super::{Code, Faults, Layers, Runtime, Settings, load, named, parse, template};

const GOOD: &str = r#"
[node]
name = "alpha"
data_dir = "data"
[tls]
ca = "ca.pem"
cert = "node.pem"
key = "node.key"
"#;

fn judge(text: &str) -> Result<Settings, Faults> {
    parse(Path::new("/etc/site/consign.toml"), text, &Layers::default())
}

/// The good file with one more line in a section, or a section more.
fn with(section: &str, line: &str) -> Result<Settings, Faults> {
    let header = format!("[{section}]\n");
    if GOOD.contains(&header) {
        judge(&GOOD.replace(&header, &format!("{header}{line}\n")))
    } else {
        judge(&format!("{GOOD}{header}{line}\n"))
    }
}

fn faults_of(result: Result<Settings, Faults>) -> Vec<(Code, String)> {
    let faults = result.expect_err("must be refused").faults;
    faults.into_iter().map(|f| (f.code, f.message)).collect()
}

fn only(result: Result<Settings, Faults>) -> (Code, String) {
    let faults = faults_of(result);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.into_iter().next().expect("one")
}

/// Compares with a file, or writes it when `CONSIGN_BLESS` is set.
fn golden(file: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("CONSIGN_BLESS").is_some() {
        std::fs::write(&path, actual).expect("writable");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(expected, actual, "{file} differs; CONSIGN_BLESS=1 rewrites it");
}

#[test]
fn broken_file_shows_every_fault() {
    for name in ["broken", "syntax"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/golden");
        let text = std::fs::read_to_string(dir.join(format!("{name}.toml"))).expect("there");
        let faults = parse(Path::new(&format!("{name}.toml")), &text, &Layers::default())
            .expect_err("broken");
        golden(&format!("src/config/golden/{name}.txt"), &faults.render(false));
    }
}

#[test]
fn json_names_every_fault_with_its_place() {
    let faults = judge(&GOOD.replace("[tls]", "[tls]\nfoo = 1\nbar = 2")).expect_err("broken");
    let json = faults.json();
    assert_eq!(json["schema"], "consign.error/1");
    assert_eq!(json["errors"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["errors"][0]["line"], 6);
    assert_eq!(json["errors"][0]["column"], 1);
    assert_eq!(json["errors"][1]["key"], "tls.bar");
    assert_eq!(json["errors"][1]["code"], "CN0203");
}

#[test]
fn reference_page_is_up_to_date() {
    golden("docs/CONFIG.md", &template::reference());
}

#[test]
fn a_good_file_gives_the_defaults() {
    let settings = judge(GOOD).expect("good");
    let core = consign_core::config::Config { name: "alpha".into(), ..Default::default() };
    assert_eq!(settings.node, core, "the table's defaults are the core's");
    assert_eq!(settings.data_dir, PathBuf::from("/etc/site/data"));
    assert_eq!(settings.admin, PathBuf::from("/etc/site/data/admin.sock"));
    assert_eq!(settings.tls.key, PathBuf::from("/etc/site/node.key"));
    assert_eq!(settings.runtime, Runtime::Smol);
    assert_eq!(settings.listen, ["0.0.0.0:7400".parse().expect("address")]);
    assert_eq!(settings.web, Some("127.0.0.1:7411".parse().expect("address")));
    assert_eq!(settings.connections, 10_000);
    assert_eq!(settings.header_timeout, Duration::from_secs(10));
    assert_eq!(settings.ballast, 64 << 20);
}

#[test]
fn every_default_is_of_its_kind_and_every_key_has_a_section() {
    for key in KEYS {
        assert!(keys::find_section(key.section).is_some(), "{}", key.path());
        if let Fallback::Is(text) = key.default {
            let value = default_of(key).unwrap_or_else(|| panic!("{} {text}", key.path()));
            assert!(!format!("{value}").contains('\0'));
        }
        let same = KEYS.iter().filter(|k| k.path() == key.path()).count();
        assert_eq!(same, 1, "{} stands in the table {same} times", key.path());
    }
}

#[test]
fn writing_every_default_out_changes_nothing() {
    let mut text = String::new();
    for section in SECTIONS.iter().filter(|s| !s.many) {
        text += &format!("[{}]\n", section.name);
        for key in keys::of_section(section.name) {
            match key.default {
                Fallback::Is(value) => text += &format!("{} = {value}\n", key.name),
                Fallback::Required => {
                    let value = if key.name == "name" { "alpha" } else { "x" };
                    text += &format!("{} = \"{value}\"\n", key.name);
                }
                Fallback::Absent => {}
            }
        }
    }
    let plain = GOOD.replace("\"data\"", "\"x\"");
    let plain = plain.replace("ca.pem", "x").replace("node.pem", "x").replace("node.key", "x");
    assert_eq!(judge(&text), judge(&plain));
}

#[test]
fn zero_negative_and_overflow_are_refused() {
    let many = |section| keys::find_section(section).is_some_and(|s| s.many);
    for key in KEYS.iter().filter(|k| !many(k.section)) {
        let bad: &[&str] = match key.kind {
            Kind::Count { .. } | Kind::CountOrNone => {
                &["0", "-1", "99999999999999999999999999999999999999999999", "1.5", "\"8\""]
            }
            Kind::Size { .. } => &["\"-1B\"", "\"99999999999PiB\"", "0", "1.5", "\"\"", "\"GiB\""],
            Kind::Time { .. } => {
                &["\"-1s\"", "\"99999999999w\"", "0", "\"5\"", "\"s5\"", "\"1s2\""]
            }
            _ => continue,
        };
        for value in bad {
            let result = with(key.section, &format!("{} = {value}", key.name));
            let found = result.as_ref().err().map(|f| f.faults.iter().any(|f| f.key == key.path()));
            assert_eq!(found, Some(true), "{} = {value} must be refused", key.path());
        }
    }
    let zero = [("storage", "max_bytes = \"0B\""), ("relay", "backoff_max = \"0s\"")];
    for (section, line) in zero {
        let (code, message) = only(with(section, line));
        assert_eq!(code, Code::Range);
        assert!(message.ends_with("must be more than 0"), "{message}");
    }
}

#[test]
fn a_window_that_cannot_be_read_is_shown_with_what_is_wrong() {
    let peer = |window: &str| {
        let known = "[[relay.known_peers]]\nname = \"far\"\naddress = \"far.example:7400\"\n";
        judge(&format!("{GOOD}{known}window = {window}\n"))
    };
    let settings = peer("[\"Mon-Fri 22:00-06:00\", \"Sat +02:00\"]").expect("it is good");
    let far = settings.node.peers.iter().find(|p| p.name == "far").expect("it is there");
    assert_eq!(far.window.len(), 2);
    let faults = peer("[\"Mon-Fri 22:00-06:00\", \"Mon-Fry\"]").expect_err("it is not");
    let text = faults.render(false);
    let which = "window 2 of 2";
    for part in ["window", which, "not a day", "\"Fry\"", "without a zone it is UTC"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The place is that of the one that is wrong, also on a line of its own.
    let (before, bad) = ("\"Sat\",\n  \"Sun 08:00-10:00\",\n  ", "\"Mon 8-9\"");
    let faults = peer(&format!("[{before}{bad}]")).expect_err("it is not");
    let At::File(span) = &faults.faults[0].at else { panic!("it stands in the file") };
    assert_eq!(faults.text.get(span.clone()), Some(bad));
    assert!(faults.render(false).contains("window 3 of 3"), "{}", faults.render(false));
    // So it is with any other list.
    let faults = with("listen", "peers = [\"0.0.0.0:1\", 7]").expect_err("a number");
    let At::File(span) = &faults.faults[0].at else { panic!("it stands in the file") };
    assert_eq!(faults.text.get(span.clone()), Some("7"));
    assert_eq!(only(peer("[\"Mon 25:00-26:00\"]")).0, Code::Value);
    assert_eq!(only(peer("\"always\"")).0, Code::Type);
}

#[test]
fn pickup_has_tls_by_itself_wherever_others_can_listen() {
    let listen = |text: &str| with("listen", text).expect("good").pickup;
    assert_eq!(listen("").address, None);
    assert_eq!(listen("pickup = \"off\"").address, None);
    let tls = |text: &str| {
        let listen = listen(text);
        listen.wants_tls(&[listen.address.expect("on")])
    };
    assert!(!tls("pickup = \"127.0.0.1:7410\""));
    assert!(!tls("pickup = \"[::1]:7410\""));
    assert!(tls("pickup = \"0.0.0.0:7410\""));
    assert!(tls("pickup = \"127.0.0.1:7410\"\npickup_tls = \"on\""));
    assert!(!tls("pickup = \"0.0.0.0:7410\"\npickup_tls = \"off\""));
    let named = listen("pickup = \"127.0.0.1:0\"\npickup_names = [\"relay.example\"]");
    assert_eq!(named.names, ["relay.example"]);
    let (code, _) = only(with("listen", "pickup = \"relay.example:7410\""));
    assert_eq!(code, Code::Value);
}

#[test]
fn what_holds_for_shards_reaches_the_node() {
    let buffer = with("buffer", "ttl = \"1h\"\nmax_pickups = 3\nmax_upload = \"1MiB\"");
    let buffer = buffer.expect("good").node.buffer;
    assert_eq!(buffer.ttl, Duration::from_secs(3600));
    assert_eq!((buffer.max_pickups, buffer.max_upload), (3, Some(1 << 20)));
    let left_out = BufferConfig {
        ttl: buffer.ttl,
        max_pickups: 3,
        max_upload: Some(1 << 20),
        ..BufferConfig::default()
    };
    assert_eq!(buffer, left_out);
}

#[test]
fn success_condition_names_the_allowed_words() {
    let faults = with("relay", "success_condition = \"all_peer\"").expect_err("refused");
    let fault = faults.faults.first().expect("one");
    assert!(fault.message.contains("\"one_peer\" or \"all_peers\""), "{}", fault.message);
    assert!(fault.help.contains("\"all_peers\""), "{}", fault.help);
}

#[test]
fn peers_are_told_apart() {
    let peer = |name: &str, more: &str| {
        format!("[[relay.known_peers]]\nname = \"{name}\"\naddress = \"h:1\"\n{more}\n")
    };
    let pin = format!("fingerprint = \"sha256:{}\"", "ab".repeat(32));
    let good = format!("{GOOD}{}{}", peer("beta", &pin), peer("gamma", ""));
    let settings = judge(&good).expect("good");
    assert_eq!(settings.node.peers.len(), 2);
    assert_eq!(settings.node.peers.first().and_then(|p| p.pin), Some([0xab; 32]));
    let (ab, cd) = ("ab".repeat(32), "cd".repeat(32));
    let list = format!("fingerprint = [\"sha256:{ab}\", \"sha256:{cd}\"]");
    let settings = judge(&format!("{GOOD}{}", peer("beta", &list))).expect("good");
    let beta = settings.node.peers.first().expect("one");
    assert_eq!(beta.pins().collect::<Vec<_>>(), [&[0xab; 32], &[0xcd; 32]]);
    let shared = format!("{GOOD}{}{}", peer("beta", &list), peer("gamma", &pin));
    assert_eq!(only(judge(&shared)).0, Code::Double);
    assert_eq!(only(judge(&format!("{GOOD}{}", peer("beta", "fingerprint = []")))).0, Code::Value);
    let twice = format!("{GOOD}{}{}", peer("beta", ""), peer("beta", ""));
    assert_eq!(only(judge(&twice)).0, Code::Double);
    let itself = format!("{GOOD}{}", peer("alpha", ""));
    assert_eq!(only(judge(&itself)).0, Code::Conflict);
    let pins = format!("{GOOD}{}{}", peer("beta", &pin), peer("gamma", &pin));
    assert_eq!(only(judge(&pins)).0, Code::Double);
}

#[test]
fn addresses_need_host_and_port() {
    for good in ["h:1", "10.0.0.1:7400", "[::1]:7400", "a.example.net:65535"] {
        assert!(Kind::Address.read_text(good).is_ok(), "{good}");
    }
    for bad in ["", "h", ":1", "h:", "h:0", "h:65536", "::1:7400", "a b:1", "h/x:1", "h:-1"] {
        assert!(Kind::Address.read_text(bad).is_err(), "{bad}");
    }
    assert!(Kind::Listen.read_text("127.0.0.1:1, [::1]:1").is_ok());
    assert!(Kind::Listen.read_text("127.0.0.1:1,127.0.0.1:1").is_err());
    assert!(Kind::Socket.read_text("admin.sock").is_err());
    for bad in ["0.0.0.0:7411", "10.0.0.1:7411", "localhost:7411", "on"] {
        assert!(Kind::Web.read_text(bad).is_err(), "{bad}");
    }
    assert_eq!(with("listen", "web = \"off\"").map(|s| s.web), Ok(None));
}

#[test]
fn no_address_is_listened_on_twice() {
    let peers = "peers = [\"127.0.0.1:7400\"]\n";
    for line in ["web = \"127.0.0.1:7400\"", "pickup = \"127.0.0.1:7400\""] {
        let (code, message) = only(with("listen", &format!("{peers}{line}")));
        assert_eq!(code, Code::Conflict);
        assert!(message.contains("where this site listens already"), "{message}");
    }
    let any = "peers = [\"127.0.0.1:0\"]\nweb = \"127.0.0.1:0\"";
    assert!(with("listen", any).is_ok(), "port 0 is any port");
}

#[test]
fn a_missing_data_directory_is_one_fault() {
    let text = GOOD.replace("data_dir = \"data\"\n", "") + "[[inbox]]\ndir = \"in\"\n";
    let (_, message) = only(judge(&text));
    assert!(message.contains("data_dir"), "{message}");
}

#[test]
fn a_file_with_faults_still_leads_to_the_socket_of_a_site_that_runs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let file = dir.path().join("consign.toml");
    let socket = dir.path().join("d/admin.sock");
    let of = |text: &str| parse(&file, text, &Layers::default()).expect_err("refused").socket();
    let text = "[node]\nname = \"alpha\"\ndata_dir = \"d\"\nnonsense = 1\n";
    assert_eq!(of(text), None, "nothing runs");
    let _site = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert_eq!(of(text), Some(socket.clone()));
    let named = format!("[listen]\nadmin = \"unix:{}\"\nnonsense = 1\n", socket.display());
    assert_eq!(of(&named), Some(socket));
    assert_eq!(of("no TOML at all"), None);
}

#[test]
fn amounts_add_up() {
    let bytes = |text: &str| match (Kind::Size { min: 0, max: 1 << 60, none: true }).read_text(text)
    {
        Ok(Value::Number(number)) => number,
        _ => panic!("{text}"),
    };
    assert_eq!(bytes("1.5GiB"), Some(3 << 29));
    assert_eq!(bytes("10 MB"), Some(10_000_000));
    assert_eq!(bytes("none"), None);
    let ms = |text: &str| match (Kind::Time { min: 0, max: u64::MAX, none: false }).read_text(text)
    {
        Ok(Value::Number(Some(ms))) => ms,
        _ => panic!("{text}"),
    };
    assert_eq!(ms("1h 30m"), 5_400_000);
    assert_eq!(ms("1h30m"), 5_400_000);
    assert_eq!(ms("250ms"), 250);
    assert_eq!(millis(5_400_001), "1h 30m 1ms");
    assert_eq!(millis(0), "0s");
    assert_eq!(size(3 << 29), "1536MiB");
    assert_eq!(size(1500), "1500B");
}

#[test]
fn flags_win_over_variables_and_those_over_the_file() {
    let vars = [
        ("CONSIGN_NODE_RUNTIME", "std"),
        ("CONSIGN_STORAGE_MAX_BYTES", "3GiB"),
        ("CONSIGN_LISTEN_PEERS", "127.0.0.1:1,127.0.0.1:2"),
        ("CONSIGN_CONFIG", "x"),
        ("CONSIGN_EXPORT_ID", "x"),
        ("CREDENTIALS_DIRECTORY", "/run/credentials/consign"),
        ("HOME", "/"),
    ];
    let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let mut layers = Layers::from_env(vars);
    let file = Path::new("consign.toml");
    let text = GOOD.replace("[tls]", "[storage]\nmax_bytes = \"1GiB\"\n[tls]");
    let text = text.replace("\"node.key\"", "\"credential:node.key\"");
    let settings = parse(file, &text, &layers).expect("good");
    assert_eq!(settings.runtime, Runtime::Std);
    assert_eq!(settings.node.max_bytes, 3 << 30);
    assert_eq!(settings.listen.len(), 2);
    assert_eq!(settings.tls.key, PathBuf::from("/run/credentials/consign/node.key"));
    layers.flag("node.runtime", "--runtime", "smol");
    assert_eq!(parse(file, &text, &layers).expect("good").runtime, Runtime::Smol);
}

#[test]
fn bad_variables_are_faults_too() {
    let vars = [("CONSIGN_STORAGE_MAX_BYTE", "1GiB"), ("CONSIGN_RELAY_MAX_RETRIES", "many")];
    let layers = Layers::from_env(vars.iter().map(|(k, v)| ((*k).into(), (*v).into())));
    let faults = parse(Path::new("consign.toml"), GOOD, &layers).expect_err("refused");
    let text = faults.render(false);
    assert!(text.contains("$CONSIGN_STORAGE_MAX_BYTE"), "{text}");
    assert!(text.contains("`CONSIGN_STORAGE_MAX_BYTES`"), "{text}");
    assert!(text.contains("$CONSIGN_RELAY_MAX_RETRIES"), "{text}");
    let text = GOOD.replace("\"node.key\"", "\"credential:node.key\"");
    assert_eq!(only(judge(&text)).0, Code::Value);
}

#[test]
fn too_long_a_socket_path_is_told_before_the_system_does() {
    let (code, message) =
        only(judge(&GOOD.replace("\"data\"", &format!("\"/{}\"", "d".repeat(120)))));
    assert_eq!(code, Code::Range);
    assert!(message.contains("132 bytes"), "{message}");
}

#[test]
fn the_template_is_a_good_configuration() {
    let set = [
        ("node.name", template::quote("alpha")),
        ("node.data_dir", template::quote("data")),
        ("tls.ca", template::quote("ca.pem")),
        ("tls.cert", template::quote("node.pem")),
        ("tls.key", template::quote("node.key")),
    ];
    let peer = template::Peer { name: "beta".into(), address: "b:1".into() };
    let text = template::render(&set, &[peer]);
    golden("src/config/golden/template.toml", &text);
    let settings = judge(&text).expect("good");
    assert_eq!(settings.node.peers.len(), 1);
    // Every commented default, uncommented, is still good and says the same.
    let open = text.lines().filter(|line| !line.contains('…')).map(|line| {
        let key =
            line.strip_prefix("# ").filter(|rest| rest.contains(" = ") && !rest.starts_with(' '));
        key.unwrap_or(line)
    });
    assert_eq!(judge(&open.collect::<Vec<_>>().join("\n")), Ok(settings));
}

#[test]
fn a_directory_stands_for_the_file_in_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("consign.toml");
    std::fs::write(&file, GOOD).expect("written");
    assert_eq!(named(dir.path(), "-c"), Ok(file.clone()));
    assert_eq!(named(&file, "-c"), Ok(file.clone()));
    let missing = named(&dir.path().join("other.toml"), "-c").expect_err("not there");
    assert!(missing.render(false).contains("from -c"), "{missing}");
    assert!(load(&file, &Layers::default()).is_ok());
    std::fs::write(&file, b"\xff").expect("written");
    let (code, message) = only(load(&file, &Layers::default()));
    assert_eq!((code, message.as_str()), (Code::Unreadable, "is not UTF-8 at byte 0"));
}
