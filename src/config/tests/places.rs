//! Where things are, and which of them are not there: credentials, the package's places, routes, the file itself.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{GOOD, golden, judge, only};
use crate::config::fault::At;
use crate::config::{self, Code, Layers, parse, template};

#[test]
fn a_credential_is_one_file_of_its_directory() {
    let judged = |name: &str| {
        let text = GOOD.replace("\"node.key\"", &format!("\"credential:{name}\""));
        let credentials = Some("/run/credentials/consign.service".into());
        let layers = Layers { credentials, ..Layers::default() };
        parse(Path::new("consign.toml"), &text, &layers)
    };
    let key = judged("node.key").expect("good").tls.key;
    assert_eq!(key, Path::new("/run/credentials/consign.service/node.key"));
    for name in ["", ".", "..", "a/b", "/etc/passwd", "../node.key", "a:b", "a\\nb"] {
        let (code, message) = only(judged(name));
        assert_eq!(code, Code::Value, "{name}");
        assert!(message.contains("not the name of a credential"), "{message}");
    }
    let long = "k".repeat(256);
    assert_eq!(only(judged(&long)).0, Code::Value);
}

#[test]
fn what_the_package_ships_is_the_template_with_places_of_the_system() {
    let set = [
        ("node.name", template::quote("change-me")),
        ("node.data_dir", template::quote("/var/lib/consign")),
        ("listen.admin", template::quote("unix:/run/consign/admin.sock")),
        ("tls.ca", template::quote("pki/ca.pem")),
        ("tls.cert", template::quote("pki/node.pem")),
        ("tls.key", template::quote("pki/node.key")),
    ];
    let text = template::render(&set, &[]);
    golden("contrib/deb/consign.toml", &text);
    let settings = parse(Path::new("/etc/consign/consign.toml"), &text, &Layers::default());
    let settings = settings.expect("good");
    assert_eq!(settings.admin, Path::new("/run/consign/admin.sock"));
    assert_eq!(settings.tls.key, Path::new("/etc/consign/pki/node.key"));
}

#[test]
fn a_file_is_replaced_past_what_a_crash_has_left_and_stays_whose_it_is() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("consign.toml");
    std::fs::write(&file, "old").expect("written");
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(&file, mode).expect("set");
    std::fs::write(dir.path().join("consign.toml.new"), "half").expect("written");
    config::replace(&file, "new").expect("replaced");
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "new");
    let meta = file.metadata().expect("there");
    assert_eq!(meta.permissions().mode() & 0o777, 0o640);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1);
    let missing = dir.path().join("no/where.toml");
    assert_eq!(
        config::replace(&missing, "new").expect_err("no").kind(),
        std::io::ErrorKind::NotFound
    );
}

#[test]
fn faults_of_routes_are_told_with_all_others_and_where_they_stand() {
    let text = format!(
        "{GOOD}[relay]\nmax_retries = 0\n[[relay.known_peers]]\nname = \"beta\"\naddress = \"nowhere\"\n\
         [[route]]\nto = \"far\"\nvia = \"beta\"\n[[route]]\nto = \"far\"\nvia = \"gone\"\n\
         [[route]]\nto = \"beta\"\nvia = \"beta\"\n[[route]]\nto = \"alpha\"\nvia = \"beta\"\n\
         [[watch]]\ndir = \"/srv/out\"\nto = [\"beta\", \"far\", \"lost\"]\n"
    );
    let faults = judge(&text).expect_err("refused");
    let found: Vec<(&str, Code)> =
        faults.faults.iter().map(|fault| (fault.key.as_str(), fault.code)).collect();
    let expected = [
        ("relay.max_retries", Code::Range),
        ("relay.known_peers.address", Code::Value),
        ("route.to", Code::Double),
        ("route.via", Code::Conflict),
        ("route.to", Code::Conflict),
        ("route.to", Code::Conflict),
        ("watch.to", Code::Conflict),
    ];
    assert_eq!(found, expected, "{faults}");
    assert!(faults.faults.iter().all(|fault| matches!(fault.at, At::File(_))), "{faults}");
    let said = faults.render(false);
    for part in ["names \"gone\"", "`far` has two routes", "names \"lost\"", "7 errors"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A peer whose name cannot be read may be the one that is meant.
    let text = format!(
        "{GOOD}[[relay.known_peers]]\nname = 7\naddress = \"b:1\"\n[[route]]\nto = \"far\"\nvia = \"beta\"\n"
    );
    assert_eq!(only(judge(&text)).0, Code::Type);
}
