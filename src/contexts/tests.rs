//! The file of contexts, how it is changed, and what wins over what.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::text::{parse, render};
use super::{By, Contexts, Said, change, place};

fn with(used: Option<&str>, known: &[(&str, &str)]) -> Contexts {
    let known = known.iter().map(|(name, path)| ((*name).into(), (*path).into()));
    Contexts { used: used.map(str::to_owned), known: known.collect() }
}

#[test]
fn the_file_lies_where_users_keep_such_files() {
    let os = |text: &str| Some(OsString::from(text));
    let table = [
        (os("/x"), os("/h"), Some("/x/consign/contexts.toml")),
        (None, os("/h"), Some("/h/.config/consign/contexts.toml")),
        (os(""), os("/h"), Some("/h/.config/consign/contexts.toml")),
        (os("x"), os("h"), None),
        (None, None, None),
    ];
    for (xdg, home, file) in table {
        assert_eq!(place(xdg, home), file.map(PathBuf::from));
    }
}

#[test]
fn what_is_written_is_what_is_read() {
    let odd = with(Some("a.b"), &[("a.b", "/x/\"y\\z"), ("0", "/ü")]);
    for contexts in [Contexts::default(), odd, with(None, &[("alpha", "/sites/alpha")])] {
        assert_eq!(parse(Path::new("c.toml"), &render(&contexts)), Ok(contexts));
    }
}

#[test]
fn every_fault_is_shown_with_its_place() {
    let table = [
        ("use = 'a'", "CN0209", "`use` names \"a\", which is no context"),
        ("uses = 'a'", "CN0203", "a key with a similar name exists: `use`"),
        ("contexts = 1", "CN0204", "must be written as a section"),
        ("[contexts]\na = 1", "CN0204", "`contexts.a`"),
        ("[contexts]\na = 'rel'", "CN0205", "must be an absolute path"),
        ("[contexts]\n\"a b\" = '/a'", "CN0205", "the name \"a b\" must be 1 to 128"),
        ("[contexts]\na = '/a'\na = '/b'", "CN0208", "stands there twice"),
        ("[contexts", "CN0202", "c.toml:1"),
    ];
    for (text, code, words) in table {
        let said = parse(Path::new("c.toml"), text).expect_err(text).render(false);
        assert!(said.starts_with(&format!("error[{code}]")) && said.contains(words), "{said}");
        assert!(said.contains("1 error in c.toml"), "{said}");
    }
    let said =
        parse(Path::new("c.toml"), "x = 1\n[contexts]\na = 1\nb = 'b'\n").expect_err("three");
    assert_eq!(said.faults.len(), 3);
}

#[test]
fn a_change_is_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("deep/consign/contexts.toml");
    assert_eq!(Contexts::read(&file), Ok(Contexts::default()));
    let site = folder.path().join("alpha");
    std::fs::create_dir(&site).expect("made");
    change(&file, |contexts| contexts.add("alpha", &site)).expect("written");
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let refused = change(&file, |contexts| {
        contexts.used = Some("alpha".into());
        contexts.add("alpha", Path::new("/elsewhere"))
    });
    let refused = refused.expect_err("it is taken");
    assert_eq!(refused.code, "CN0593");
    assert!(refused.help.contains("context rm alpha"), "{refused}");
    assert_eq!(Contexts::read(&file).expect("good").used, None);
    // What it stood for is gone: nobody misses the name.
    std::fs::remove_dir(&site).expect("removed");
    change(&file, |contexts| contexts.add("alpha", Path::new("/elsewhere"))).expect("written");
    std::fs::write(&file, "x = 1").expect("written");
    let refused = change(&file, |contexts| contexts.remove("alpha")).expect_err("faults");
    assert_eq!(refused.code, "CN0203");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "x = 1");
    let blocked = file.join("below/contexts.toml");
    assert_eq!(change(&blocked, |_| Ok(())).expect_err("no folder").code, "CN0592");
}

#[test]
fn what_is_forgotten_is_no_longer_used() {
    let mut contexts = with(Some("a"), &[("a", "/a"), ("b", "/b")]);
    assert_eq!(contexts.remove("b"), Ok("/b".into()));
    assert_eq!(contexts.used.as_deref(), Some("a"));
    assert_eq!(contexts.remove("a"), Ok("/a".into()));
    assert_eq!(contexts, Contexts::default());
    assert!(contexts.remove("a").expect_err("gone").help.contains("context add"));
}

/// A folder with four sites, two of which are contexts, one of them used.
fn scene() -> (tempfile::TempDir, Said) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["here", "one", "two", "flag", "variable"] {
        std::fs::create_dir(at(name)).expect("made");
        std::fs::write(at(name).join("consign.toml"), "").expect("written");
    }
    let file = at("contexts.toml");
    change(&file, |contexts| {
        contexts.add("one", &at("one"))?;
        contexts.add("two", &at("two/consign.toml"))?;
        contexts.used = Some("one".into());
        Ok(())
    })
    .expect("written");
    let said = Said {
        config: Some(at("flag")),
        context: Some("two".into()),
        config_variable: Some(at("variable")),
        context_variable: Some("two".into()),
        contexts: Some(file),
        here: at("here"),
    };
    (folder, said)
}

#[test]
fn what_is_said_nearer_wins() {
    let (folder, mut said) = scene();
    let expect = |said: &Said, by, context: Option<&str>, dir: &str| {
        let chosen = said.choose().expect("found");
        let file = folder.path().join(dir).join("consign.toml");
        assert_eq!((chosen.by, chosen.context.as_deref(), chosen.file), (by, context, file));
    };
    expect(&said, By::Config, None, "flag");
    said.config = None;
    expect(&said, By::Context, Some("two"), "two");
    said.context = None;
    expect(&said, By::ConfigVariable, None, "variable");
    said.config_variable = None;
    expect(&said, By::ContextVariable, Some("two"), "two");
    said.context_variable = None;
    expect(&said, By::Here, None, "here");
    said.here = folder.path().join("nowhere");
    expect(&said, By::Used, Some("one"), "one");
}

#[test]
fn what_was_named_and_is_not_there_is_refused() {
    let (folder, said) = scene();
    let refused = |said: &Said| said.choose().expect_err("refused").failure();
    let failure = refused(&Said { config: Some("/no/such".into()), ..said.clone() });
    assert!(failure.message.contains("from -c"), "{failure}");
    let said = Said { config: None, context: Some("onne".into()), ..said };
    let failure = refused(&said);
    assert_eq!((failure.code, failure.exit as u8), ("CN0591", 78));
    assert_eq!(failure.message, "there is no context \"onne\" (from --context)");
    assert_eq!(failure.help, "a context with a similar name exists: one");
    let failure = refused(&Said { context: Some("zzz".into()), ..said.clone() });
    assert_eq!(failure.help, "contexts: one, two");
    let failure = refused(&Said { contexts: None, ..said.clone() });
    assert!(failure.help.contains("consign context add"), "{failure}");
    std::fs::remove_file(folder.path().join("one/consign.toml")).expect("removed");
    let failure = refused(&Said { context: Some("one".into()), ..said.clone() });
    assert!(failure.message.contains("from the context one"), "{failure}");
    // Faults of the contexts are shown only to whom they matter.
    let contexts = folder.path().join("contexts.toml");
    std::fs::write(&contexts, "x = 1").expect("written");
    assert_eq!(refused(&said).code, "CN0203");
    let here = Said { here: folder.path().join("here"), ..Said::default() };
    assert_eq!(Said { contexts: Some(contexts), ..here }.choose().expect("found").by, By::Here);
}

#[test]
fn who_finds_no_configuration_is_told_of_contexts() {
    let (folder, said) = scene();
    let nowhere = Said { here: folder.path().join("nowhere"), ..Said::default() };
    let none = nowhere.choose().expect_err("there is nothing");
    assert!(!none.failure().help.contains("contexts"), "{none}");
    let file = said.contexts.clone().expect("there are contexts");
    change(&file, |contexts| {
        contexts.used = None;
        Ok(())
    })
    .expect("written");
    let known = Said { contexts: Some(file), ..nowhere };
    let none = known.choose().expect_err("none is used");
    assert!(none.failure().help.contains("contexts that there are: one, two"), "{none}");
    assert!(!none.render(false).contains("nothing was changed"), "{none}");
    let meant = Said { config: Some("two".into()), ..known };
    let help = meant.choose().expect_err("no file").failure().help;
    assert_eq!(help, "there is a context two: --context two");
}
