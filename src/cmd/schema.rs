//! `consign schema`: what `--json` and the local interface answer, as JSON Schema.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::screen::{Screen, standard};
use crate::exit::{Exit, Failure, Global};
use crate::schemas::{self, Published};

/// Prints the JSON Schema of what a command says with --json; without one, what there is.
#[derive(Args, Clone, Debug, Default)]
pub struct SchemaArgs {
    /// A command such as status, or an object such as consign.status/1
    #[arg(value_name = "CMD|SCHEMA", conflicts_with = "dir")]
    pub what: Option<String>,
    /// Writes every schema into this directory, one file each
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Runs it.
///
/// # Errors
/// When there is no such command or object, or a file cannot be written.
pub fn run(args: &SchemaArgs, global: &Global) -> Result<Exit, Failure> {
    standard(global, |screen| schema(args, screen))
}

fn schema(args: &SchemaArgs, screen: &mut Screen<'_>) -> Result<Exit, Failure> {
    match (&args.dir, &args.what) {
        (Some(dir), _) => write(dir, screen)?,
        (None, Some(what)) => print(what, screen)?,
        (None, None) => list(screen)?,
    }
    Ok(Exit::Done)
}

fn print(what: &str, screen: &mut Screen<'_>) -> Result<(), Failure> {
    let found: Vec<&Published> = schemas::of(what).collect();
    if found.is_empty() {
        let message = format!("{what:?} is neither a command with --json nor an object");
        let failure = Failure::new(Exit::NoMatch, "CN0404", message);
        return Err(failure.help("all of them: consign schema"));
    }
    for published in found {
        if screen.is_json() {
            screen.document(&published.schema())?;
        } else {
            screen.line(published.text().trim_end());
        }
    }
    Ok(())
}

fn list(screen: &mut Screen<'_>) -> Result<(), Failure> {
    for published in schemas::ALL {
        if screen.is_json() {
            let object: Value = json!({
                "schema": "consign.schema_entry/1",
                "id": published.id,
                "commands": published.commands,
            });
            screen.object(&object)?;
        } else {
            screen.line(&format!("{:<28} {}", published.id, published.commands.join(", ")));
        }
    }
    Ok(())
}

fn write(dir: &Path, screen: &mut Screen<'_>) -> Result<(), Failure> {
    let cannot = |path: &Path, e: &std::io::Error| {
        let message = format!("{} cannot be written: {e}", path.display());
        Failure::new(Exit::Failed, "CN0406", message)
    };
    std::fs::create_dir_all(dir).map_err(|e| cannot(dir, &e))?;
    let mut files = Vec::new();
    for published in schemas::ALL {
        let path = dir.join(published.file());
        std::fs::write(&path, published.text()).map_err(|e| cannot(&path, &e))?;
        files.push(path.display().to_string());
    }
    if screen.is_json() {
        return screen.object(&super::pages::Written {
            schema: super::pages::Written::SCHEMA.into(),
            files,
        });
    }
    files.iter().for_each(|file| screen.line(file));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::screen::said;

    fn of(what: &str) -> SchemaArgs {
        SchemaArgs { what: Some(what.into()), dir: None }
    }

    #[test]
    fn a_command_and_an_object_lead_to_the_same_schema() {
        let (exit, by_command) = said(false, |s| schema(&of("status"), s));
        assert_eq!(exit, Ok(Exit::Done));
        let (_, by_object) = said(false, |s| schema(&of("consign.status/1"), s));
        assert_eq!(by_command, by_object);
        let read: Value = serde_json::from_str(&by_object.lines[0]).unwrap();
        assert_eq!(read["properties"]["schema"]["const"], "consign.status/1");
        let (exit, _) = said(false, |s| schema(&of("nothing"), s));
        assert_eq!(exit.map_err(|e| (e.exit, e.code)), Err((Exit::NoMatch, "CN0404")));
    }

    #[test]
    fn all_are_listed_and_written() {
        let (_, text) = said(true, |s| schema(&SchemaArgs::default(), s));
        assert_eq!(text.lines.len(), schemas::ALL.len());
        let folder = tempfile::tempdir().unwrap();
        let args = SchemaArgs { what: None, dir: Some(folder.path().into()) };
        let (exit, text) = said(false, |s| schema(&args, s));
        assert_eq!((exit, text.lines.len()), (Ok(Exit::Done), schemas::ALL.len()));
        assert!(folder.path().join("consign.status-1.json").exists());
    }
}
