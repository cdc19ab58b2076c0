//! `consign context`: names for configurations of sites on this machine.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use consign_core::segment::is_site_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::screen::{Screen, standard};
use crate::cli::{self, Trouble};
use crate::config;
use crate::contexts::{self, Contexts};
use crate::exit::{Exit, Failure, Global};
use crate::human::{self, Align};

/// What there is to do with names.
#[derive(Subcommand, Clone, Debug)]
pub enum ContextCommand {
    /// Lists them
    Ls,
    /// Shows which configuration a command goes by here, and why
    Show,
    /// Gives a configuration a name
    Add(AddArgs),
    /// Has commands go by it where nothing else is said and no ./consign.toml is there
    Use(UseArgs),
    /// Forgets names; the sites stay as they are
    Rm(RmArgs),
}

/// A new name.
#[derive(Args, Clone, Debug)]
pub struct AddArgs {
    /// The name
    #[arg(value_parser = name)]
    name: String,
    /// The configuration file, or its directory
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

/// The name to use.
#[derive(Args, Clone, Debug)]
pub struct UseArgs {
    /// The name
    #[arg(value_parser = name, required_unless_present = "none", add = known())]
    name: Option<String>,
    /// Uses none any more
    #[arg(long, conflicts_with = "name")]
    none: bool,
}

/// Names to forget.
#[derive(Args, Clone, Debug)]
pub struct RmArgs {
    /// The names; all of them or, if one is unknown, none
    #[arg(value_name = "NAME", value_parser = name, required = true, add = known())]
    names: Vec<String>,
}

/// Names there are, for shells that ask.
fn known() -> ArgValueCandidates {
    ArgValueCandidates::new(contexts::candidates)
}

fn name(text: &str) -> Result<String, String> {
    let rule = "a name is 1 to 128 characters of A-Z a-z 0-9 . _ -, not starting with . or -";
    is_site_name(text).then(|| text.to_owned()).ok_or_else(|| rule.into())
}

/// A name and what it stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Context {
    /// `consign.context/1`
    pub schema: String,
    /// Its name; null in `context show` where the configuration was not named by a context.
    pub name: Option<String>,
    /// The configuration file, or its directory.
    pub config: String,
    /// Whether commands go by it where nothing else is said.
    pub used: bool,
    /// Whether there is a configuration.
    pub there: bool,
    /// In `context show`: what said so, such as `--context` or `./consign.toml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Context {
    /// Its schema.
    pub const SCHEMA: &'static str = "consign.context/1";

    fn new(name: Option<&str>, path: &Path, used: Option<&str>) -> Context {
        Context {
            schema: Context::SCHEMA.into(),
            name: name.map(str::to_owned),
            config: path.display().to_string(),
            used: name.is_some() && name == used,
            there: config::named(path, "").is_ok(),
            by: None,
        }
    }
}

/// Runs it.
///
/// # Errors
/// When a name is unknown or taken, or the file of names cannot be read or written.
pub fn run(command: &ContextCommand, global: &Global) -> Result<Exit, Trouble> {
    standard(global, |screen| match command {
        ContextCommand::Show => show(&cli::said(global), screen),
        ContextCommand::Ls => {
            let contexts = contexts::file().as_deref().map(Contexts::read).transpose()?;
            Ok(ls(&contexts.unwrap_or_default(), screen)?)
        }
        ContextCommand::Add(args) => add(args, &contexts::needed_file()?, screen),
        ContextCommand::Use(args) => {
            Ok(use_it(args.name.as_deref(), &contexts::needed_file()?, screen)?)
        }
        ContextCommand::Rm(args) => Ok(rm(&args.names, &contexts::needed_file()?, screen)?),
    })
}

fn ls(contexts: &Contexts, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for (name, path) in &contexts.known {
        let context = Context::new(Some(name), path, contexts.used.as_deref());
        if screen.is_json() {
            screen.object(&context)?;
            continue;
        }
        let note = match (context.there, context.used) {
            (false, _) => "no configuration is there",
            (true, true) => "used",
            (true, false) => "",
        };
        rows.push(vec![name.clone(), context.config, note.into()]);
    }
    if contexts.known.is_empty() {
        screen.note("no contexts");
    } else if !screen.is_json() {
        let head = [("NAME", Align::Left), ("CONFIGURATION", Align::Left), ("", Align::Left)];
        screen.line(human::table(&head, &rows).trim_end());
    }
    Ok(Exit::Done)
}

fn show(said: &contexts::Said, screen: &mut Screen<'_>) -> Result<Exit, Trouble> {
    let chosen = said.choose()?;
    let used = matches!(chosen.by, contexts::By::Used);
    let name = chosen.context.as_deref();
    let context = Context {
        by: Some(chosen.by.word().into()),
        used,
        ..Context::new(name, &chosen.file, None)
    };
    if screen.is_json() {
        screen.object(&context)?;
    } else {
        let name = name.map(|name| format!("{name}  ")).unwrap_or_default();
        screen.line(&format!("{name}{}  (by {})", context.config, chosen.by.word()));
    }
    Ok(Exit::Done)
}

fn add(args: &AddArgs, file: &Path, screen: &mut Screen<'_>) -> Result<Exit, Trouble> {
    config::named(&args.path, "the command line")?;
    let path = std::path::absolute(&args.path).map_err(|e| {
        let message = format!("{} cannot be made absolute: {e}", args.path.display());
        Failure::new(Exit::Failed, "CN0592", message)
    })?;
    let used = contexts::change(file, |contexts| {
        contexts.add(&args.name, &path)?;
        Ok(contexts.used.clone())
    })?;
    tell("Added", &Context::new(Some(&args.name), &path, used.as_deref()), screen)?;
    Ok(Exit::Done)
}

fn use_it(name: Option<&str>, file: &Path, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let told = contexts::change(file, |contexts| {
        let before = contexts.used.take();
        contexts.used = name.map(str::to_owned);
        // Of none, it is the one that was used that has changed.
        let Some(told) = name.or(before.as_deref()) else { return Ok(None) };
        let path = contexts.get(told)?;
        Ok(Some(Context::new(Some(told), path, name)))
    })?;
    match told {
        None => {
            screen.note("no context was used");
            return Ok(Exit::NoMatch);
        }
        Some(context) => {
            tell(if context.used { "Used" } else { "No longer used" }, &context, screen)?;
        }
    }
    Ok(Exit::Done)
}

fn rm(names: &[String], file: &Path, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    let gone = contexts::change(file, |contexts| {
        let mut gone = Vec::new();
        for name in names {
            gone.push(Context::new(Some(name), &contexts.remove(name)?, None));
        }
        Ok(gone)
    })?;
    gone.iter().try_for_each(|context| tell("Forgot", context, screen))?;
    Ok(Exit::Done)
}

fn tell(word: &str, context: &Context, screen: &mut Screen<'_>) -> Result<(), Failure> {
    if screen.is_json() {
        return screen.object(context);
    }
    let name = context.name.as_deref().unwrap_or_default();
    screen.line(&format!("{word} {name}  {}", context.config));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::screen::said;

    /// A folder with a file of contexts that is yet to be made, and a site.
    fn scene() -> (tempfile::TempDir, PathBuf, AddArgs) {
        let folder = tempfile::tempdir().expect("a folder");
        let site = folder.path().join("site");
        std::fs::create_dir(&site).expect("made");
        std::fs::write(site.join("consign.toml"), "").expect("written");
        let file = folder.path().join("consign/contexts.toml");
        let add = AddArgs { name: "alpha".into(), path: site };
        (folder, file, add)
    }

    fn words(run: impl FnOnce(&mut Screen<'_>) -> Exit) -> String {
        let (exit, heard) = said(false, run);
        assert_eq!(exit, Exit::Done, "{heard:?}");
        heard.lines.join("\n")
    }

    fn ok<T>(result: Result<T, Trouble>) -> T {
        result.unwrap_or_else(|trouble| match trouble {
            Trouble::Failure(failure) => panic!("{failure}"),
            Trouble::Faults(faults) => panic!("{faults}"),
        })
    }

    #[test]
    fn names_come_are_used_and_go() {
        let (_folder, file, args) = scene();
        let path = args.path.display();
        assert_eq!(words(|s| ok(add(&args, &file, s))), format!("Added alpha  {path}"));
        assert_eq!(words(|s| ok(add(&args, &file, s))), format!("Added alpha  {path}"));
        let used = |name: Option<&str>| said(false, |s| use_it(name, &file, s).expect("changed"));
        assert_eq!(used(None).0, Exit::NoMatch);
        assert_eq!(used(Some("alpha")).1.lines, [format!("Used alpha  {path}")]);
        let listed = words(|s| ls(&Contexts::read(&file).expect("good"), s).expect("listed"));
        assert!(listed.ends_with(&format!("alpha  {path}  used")), "{listed}");
        assert_eq!(used(None).1.lines, [format!("No longer used alpha  {path}")]);
        let unknown = use_it(
            Some("beta"),
            &file,
            &mut Screen::new(&mut |_| {}, &mut |_| {}, &Global::default()),
        );
        assert_eq!(unknown.expect_err("unknown").code, "CN0591");
        let names = ["alpha".to_owned(), "beta".to_owned()];
        let (refused, _) = said(false, |s| rm(&names, &file, s));
        assert_eq!(refused.expect_err("one is unknown").exit, Exit::NoMatch);
        assert_eq!(
            words(|s| rm(&names[..1], &file, s).expect("gone")),
            format!("Forgot alpha  {path}")
        );
        assert_eq!(Contexts::read(&file), Ok(Contexts::default()));
    }

    #[test]
    fn what_has_no_configuration_gets_no_name_and_is_marked_when_it_lost_it() {
        let (folder, file, args) = scene();
        let wrong = AddArgs { path: folder.path().into(), ..args.clone() };
        assert!(said(true, |s| add(&wrong, &file, s)).0.is_err());
        let (added, heard) = said(true, |s| add(&args, &file, s));
        assert!(matches!(added, Ok(Exit::Done)) && heard.lines[0].contains("\"there\":true"));
        std::fs::remove_file(args.path.join("consign.toml")).expect("removed");
        let contexts = Contexts::read(&file).expect("good");
        let (_, heard) = said(true, |s| ls(&contexts, s));
        assert!(heard.lines[0].contains("\"there\":false"), "{heard:?}");
        let (_, heard) = said(false, |s| ls(&contexts, s));
        assert!(heard.lines[0].ends_with("no configuration is there"), "{heard:?}");
    }

    #[test]
    fn what_a_command_goes_by_is_shown_with_its_reason() {
        let (folder, file, args) = scene();
        ok(said(true, |s| add(&args, &file, s)).0);
        let by = contexts::Said {
            context_variable: Some("alpha".into()),
            contexts: Some(file),
            here: folder.path().into(),
            ..contexts::Said::default()
        };
        let shown = words(|s| ok(show(&by, s)));
        assert!(
            shown.starts_with("alpha  ") && shown.ends_with("(by $CONSIGN_CONTEXT)"),
            "{shown}"
        );
        let here = contexts::Said { here: args.path, ..contexts::Said::default() };
        let (_, heard) = said(true, |s| ok(show(&here, s)));
        assert!(heard.lines[0].contains("\"name\":null"), "{heard:?}");
        assert!(heard.lines[0].contains("\"by\":\"./consign.toml\""), "{heard:?}");
    }
}
