//! Rules for what arrives and what appears: what they become, and what is refused.

use std::path::Path;
use std::time::Duration;

use crate::config::{Code, Faults, Layers, Settings, parse};

const GOOD: &str = r#"
[node]
name = "alpha"
data_dir = "data"
[tls]
ca = "ca.pem"
cert = "node.pem"
key = "node.key"
[[relay.known_peers]]
name = "beta"
address = "beta:7400"
"#;

fn judge(sections: &str) -> Result<Settings, Faults> {
    parse(Path::new("/etc/site/consign.toml"), &format!("{GOOD}{sections}"), &Layers::default())
}

fn codes(sections: &str) -> Vec<(Code, String)> {
    let faults = judge(sections).expect_err("must be refused").faults;
    faults.into_iter().map(|fault| (fault.code, fault.key)).collect()
}

#[test]
fn rules_are_read_with_their_defaults() {
    let settings = judge(
        "[[inbox]]\ndir = \"in\"\n\
         [[inbox]]\nfrom = \"b*\"\nlabel = \"k=v=w\"\nname = \"*.x\"\ndir = \"/in\"\n\
         command = [\"import\", \"-v\"]\ntimeout = \"2m\"\n\
         [[watch]]\ndir = \"out\"\n\
         [[watch]]\ndir = \"other\"\nto = [\"beta\"]\nquiet = \"10s\"\nremove = true\n",
    )
    .expect("good");
    let [plain, picky] = &settings.node.inbox[..] else { panic!("two rules") };
    assert_eq!(
        (&plain.from, &plain.label, &plain.name, plain.command),
        (&None, &None, &None, false)
    );
    assert_eq!(picky.label, Some(("k".into(), Some("v=w".into()))));
    assert_eq!((picky.from.as_deref(), picky.command), (Some("b*"), true));
    let [first, second] = &settings.inbox[..] else { panic!("two directories") };
    assert_eq!((first.id, first.picks.as_str()), (plain.id, "everything"));
    assert_eq!(
        (first.dir.as_path(), first.timeout),
        (Path::new("/etc/site/in"), Duration::from_secs(60))
    );
    assert_eq!(
        (second.picks.as_str(), second.command.len()),
        ("from b*, label k=v=w, name *.x", 2)
    );
    let [out, other] = &settings.watch[..] else { panic!("two directories") };
    assert_eq!((out.quiet, out.remove, out.to.len()), (Duration::from_secs(2), false, 0));
    assert_eq!((other.quiet, other.remove), (Duration::from_secs(10), true));
    assert_ne!(out.id, other.id);
}

#[test]
fn a_rule_stays_the_same_when_its_file_moves_or_its_command_changes() {
    let rule = |path: &str, more: &str| {
        let text = format!("{GOOD}[[inbox]]\nname = \"*\"\ndir = \"in\"\n{more}");
        parse(Path::new(path), &text, &Layers::default()).expect("good").node.inbox[0].id
    };
    let same = rule("/etc/site/consign.toml", "");
    assert_eq!(same, rule("/elsewhere/consign.toml", "command = [\"x\"]\ntimeout = \"1s\"\n"));
    assert_ne!(same, rule("/etc/site/consign.toml", "from = \"beta\"\n"));
}

#[test]
fn what_rules_may_not_say_is_refused_with_its_key() {
    for (sections, code, key) in [
        ("[[inbox]]\nname = \"a\"\n", Code::Required, "inbox.dir"),
        ("[[inbox]]\ndir = \"in\"\nname = \"[a\"\n", Code::Value, "inbox.name"),
        ("[[inbox]]\ndir = \"in\"\nfrom = \"[b-a]\"\n", Code::Value, "inbox.from"),
        ("[[inbox]]\ndir = \"in\"\nlabel = \"=v\"\n", Code::Value, "inbox.label"),
        ("[[inbox]]\ndir = \"in\"\ncommand = [\"\"]\n", Code::Value, "inbox.command"),
        ("[[inbox]]\ndir = \"in\"\ntimeout = \"0s\"\n", Code::Range, "inbox.timeout"),
        ("[[inbox]]\ndir = \"in\"\n[[inbox]]\ndir = \"in\"\n", Code::Double, "inbox.dir"),
        ("[[inbox]]\ndir = \"data/in\"\n", Code::Conflict, "inbox.dir"),
        ("[[watch]]\ndir = \"out\"\nto = [\"gamma\"]\n", Code::Conflict, "watch.to"),
        ("[[watch]]\ndir = \"/etc\"\n", Code::Conflict, "watch.dir"),
        ("[[inbox]]\ndir = \"x\"\n[[watch]]\ndir = \"x/out\"\n", Code::Conflict, "watch.dir"),
        ("[[watch]]\ndir = \"x\"\n[[watch]]\ndir = \"x\"\n", Code::Conflict, "watch.dir"),
        ("[[watch]]\ndir = \"x\"\nremove = \"yes\"\n", Code::Type, "watch.remove"),
        ("[[watch]]\ndir = \"x\"\nrecursive = true\n", Code::Unknown, "watch.recursive"),
    ] {
        let found = codes(sections);
        assert!(found.contains(&(code, key.to_owned())), "{sections}: {found:?}");
    }
    // Two kinds of files may go to the same place.
    let both = "[[inbox]]\nname = \"a\"\ndir = \"in\"\n[[inbox]]\nname = \"b\"\ndir = \"in\"\n";
    assert!(judge(both).is_ok());
    let many = |n: usize| -> String {
        (0..n).map(|i| format!("[[inbox]]\ndir = \"in\"\nname = \"{i}\"\n")).collect()
    };
    assert!(judge(&many(64)).is_ok());
    assert!(judge(&many(65)).is_err());
}
